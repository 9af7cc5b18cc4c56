#!/usr/bin/env python3
"""Runs the test programs of a meson build directory and counts their cases.

Meson counts programs; this counts what doctest and unittest ran inside them. A program is over when its main process ends or its
time is up; what then remains of its process group is killed, so that a test that hangs or forgets a daemon costs nobody else.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from test_counts import Counts, count  # noqa: E402

SHOWN_LINES = 200
running_groups = set()


def load_tests(build, options):
    """The tests that were asked for, as meson describes them, suites without the project's name."""
    listing = subprocess.run(["meson", "introspect", "--tests", build], check=True, capture_output=True, text=True)
    tests = json.loads(listing.stdout)
    for test in tests:
        test["suite"] = [suite.split(":", 1)[-1] for suite in test["suite"]]
    return [test for test in tests if is_wanted(test, options)]


def is_wanted(test, options):
    suites = set(test["suite"])
    if options.suite and not suites & set(options.suite):
        return False
    return not suites & set(options.no_suite) and options.filter in test["name"]


def time_limit(test, multiplier):
    own = test.get("timeout") or 0
    return (own if own > 0 else 600) * multiplier


def environment(test, build):
    source = pathlib.Path(__file__).resolve().parents[2]
    return {**os.environ, "GRADSHM_BUILD": os.path.abspath(build), "GRADSHM_SOURCE": str(source), **test["env"]}


def end_group(group):
    """Kills what is left of a process group; says whether anything ran on. Those that only wait for being reaped have ended."""
    left = any(runs_in(group, stat) for stat in pathlib.Path("/proc").glob("[0-9]*/stat"))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return left


def runs_in(group, stat):
    try:
        state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(its_group) == group and state not in "ZX"


def end_all(number, _frame):
    """The programs are in sessions of their own, so Ctrl-C reaches only this process."""
    for group in list(running_groups):
        end_group(group)
    os._exit(128 + number)


def run_program(test, build, limit):
    """(exit code or None after a time-out, output, whether processes were left behind). The output goes to a file: a pipe would
    stay open as long as any grandchild lives."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(test["cmd"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   cwd=test["workdir"] or build, env=environment(test, build), start_new_session=True)
        running_groups.add(process.pid)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        left = end_group(process.pid) and code is not None
        process.wait()
        running_groups.discard(process.pid)
        output.seek(0)
        return code, output.read().decode(errors="replace"), left


def run_test(test, build, multiplier):
    start = time.monotonic()
    limit = time_limit(test, multiplier)
    try:
        code, output, left = run_program(test, build, limit)
    except OSError as error:
        code, output, left = 127, f"cannot run {test['cmd'][0]}: {error}", False
    counts = count(test["cmd"], code, output)
    if code is None:
        counts.notes.append(f"ended by the watchdog after {limit:g} s")
    if left:
        counts.failed += 1
        counts.notes.append("left processes behind; they were killed")
    return test, counts, output, time.monotonic() - start


def report(test, counts, output, seconds):
    verdict = "FAIL" if counts.failed else "pass"
    print(f"{verdict}  {test['name']:<36} {counts}  {seconds:6.1f} s", flush=True)
    for note in counts.notes:
        print(f"      {note}", flush=True)
    if counts.failed:
        lines = output.splitlines()
        hidden = len(lines) - SHOWN_LINES
        print(f"--- output of {test['name']}" + (f" (without the first {hidden} lines)" if hidden > 0 else ""))
        print("\n".join(lines[-SHOWN_LINES:]))
        print(f"--- end of {test['name']}", flush=True)


def run_all(tests, options):
    """Tests that may run beside others first, -j at a time, then the others one by one."""
    total = Counts()
    parallel = [test for test in tests if test.get("is_parallel", True)]
    alone = [test for test in tests if not test.get("is_parallel", True)]
    for batch, jobs in ((parallel, options.jobs), (alone, 1)):
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            runs = [pool.submit(run_test, test, options.build, options.multiplier) for test in batch]
            for run in concurrent.futures.as_completed(runs):
                report(*run.result())
                total.add(run.result()[1])
    return total


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build", help="build directory (default: build)")
    parser.add_argument("--suite", action="append", default=[], help="only tests of this suite; may be repeated")
    parser.add_argument("--no-suite", action="append", default=[], help="no tests of this suite; may be repeated")
    parser.add_argument("--filter", default="", metavar="NAME", help="only tests whose name contains this")
    parser.add_argument("--list", action="store_true", help="say what would run, and stop")
    parser.add_argument("--programs", action="store_true", help="name the programs in the build directory that would run, and stop")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1, help="test programs at a time (default: one per CPU)")
    parser.add_argument("-t", "--multiplier", type=float, default=1, help="factor on every test's time limit")
    return parser.parse_args()


def list_tests(tests, options):
    for test in tests:
        print(f"{test['name']:<36} {','.join(test['suite']):<20} {time_limit(test, options.multiplier):g} s")


def list_programs(tests, options):
    """As ninja names them."""
    build = pathlib.Path(options.build).resolve()
    programs = {pathlib.Path(part) for test in tests for part in test["cmd"]}
    for path in sorted(programs):
        if path.is_relative_to(build):
            print(path.relative_to(build))


def main():
    options = parse_options()
    tests = load_tests(options.build, options)
    if options.list or options.programs:
        (list_tests if options.list else list_programs)(tests, options)
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_all)
    total = run_all(tests, options)
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
