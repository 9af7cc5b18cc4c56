#!/usr/bin/env python3
"""Runs the Promela models of the protocol through spin: what must hold everywhere, and planted mistakes that must be found.

examples:
  run_model.py --quick               exhaustive searches of small bounds and all planted mistakes: what CI runs
  run_model.py --full                all exhaustive searches and the sampled (bit-state) ones
  run_model.py --list                what there is, with bounds
  run_model.py --only NO_REDO        the runs whose name contains this
  run_model.py --only NO_REDO --trail   with the steps that lead to the error

exit code: 0 all as it must be; 1 something was not; 2 wrong call; 77 spin or a C compiler is missing (the test is skipped)
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from model_runs import ALL, EXHAUSTED, MISTAKES, SAMPLED  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
EXIT_SKIPPED = 77
MEMORY_MB = 6144
GRACE_S = 60  # to print its figures after an interrupt
KEPT_STEPS = 80


class Unusable(Exception):
    """The run said nothing about the model: a syntax error, a crash, a limit."""


def compiler():
    return os.environ.get("CC", "").split() or [shutil.which("gcc") or shutil.which("cc")]


def checked(command, where, what):
    """spin reports errors on standard output and may end with 0."""
    done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    said = done.stdout + done.stderr
    if done.returncode != 0 or re.search(r"\bError\b|syntax error", said):
        raise Unusable(f"{what} failed:\n{said.strip()[-2000:]}")


def build(run, where):
    shutil.copy(HERE / run.model, where)
    checked(["spin", "-a", *(f"-D{name}" for name in run.defines), run.model], where, "spin")
    if not (where / "pan.c").exists():
        raise Unusable("spin made no pan.c")
    checked([*compiler(), "-O1" if run.mistake else "-O2", "-w", "-o", "pan", "pan.c", f"-DMEMLIM={MEMORY_MB}", *run.compile_options], where, "the C compiler")


def search(run, where, limit):
    """pan's output, and whether it ended by itself. A sampled search is interrupted at its limit, any other one must end before."""
    with open(where / "output", "w+", encoding="utf-8") as output:
        process = subprocess.Popen(["./pan", "-n", *run.options], cwd=where, stdout=output, stderr=subprocess.STDOUT)
        ended = True
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            ended = False
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                pass
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        return output.read(), ended


def number(pattern, text):
    found = re.search(pattern, text)
    return float(found.group(1)) if found else None


class Figures:
    """What pan printed."""

    def __init__(self, text, seconds):
        self.states = number(r"([\d.e+]+) states, stored", text)
        self.depth = number(r"depth reached (\d+)", text)
        self.memory = number(r"([\d.]+)\s+total actual memory usage", text)
        self.errors = number(r"errors: (\d+)", text)
        self.seconds = seconds
        self.message = (re.search(r"^pan:\d+: (.*)$", text, re.MULTILINE) or [None, ""])[1]
        self.cut = "max search depth too small" in text or "memory" in text and "reached -DMEMLIM" in text or "out of memory" in text
        self.finished = self.errors is not None and "Search not completed" not in text

    def row(self):
        def shown(value, form):
            return "-" if value is None else format(value, form)
        return f"{shown(self.states, ',.0f'):>13} {shown(self.depth, '.0f'):>7} {self.seconds:>8.1f} {shown(self.memory, '.0f'):>7}"


def judge(run, figures, ended):
    """What is wrong, or nothing."""
    if figures.errors is None:
        raise Unusable("pan printed no figures")
    if run.mistake:
        if not figures.errors:
            return "the planted mistake was NOT found"
        return None if run.shows in figures.message else f"found, but as '{figures.message}' instead of '{run.shows}'"
    if figures.errors:
        return figures.message
    if figures.cut:
        return "stopped at a bound (depth or memory)" if not run.sampled else None
    if run.sampled:
        return None
    return None if ended and figures.finished else "ended by the watchdog: not exhausted"


def verdict(run, figures, ended):
    if run.mistake:
        return "found: " + run.tells
    if run.sampled:
        return "no error in the sample" + ("" if ended else ", time limit reached")
    return "exhausted, no error" + (", every run ends" if run.progress else "")


def print_trail(run, where):
    said = subprocess.run(["spin", "-t", "-p", *(f"-D{name}" for name in run.defines), run.model], cwd=where, capture_output=True, text=True)
    print("\n".join(said.stdout.splitlines()[-KEPT_STEPS:]))


def run_one(run, options):
    """True if all is as it must be."""
    limit = run.limit_s if run.sampled else options.watchdog
    with tempfile.TemporaryDirectory(prefix="gradshm-model-") as folder:
        where = pathlib.Path(folder)
        try:
            build(run, where)
            start = time.monotonic()
            text, ended = search(run, where, limit)
            figures = Figures(text, time.monotonic() - start)
            wrong = judge(run, figures, ended)
        except Unusable as error:
            print(f"{run.name:<28} FAIL: {error}", flush=True)
            return False
        print(f"{run.name:<28} {figures.row()}  {'FAIL: ' + wrong if wrong else verdict(run, figures, ended)}", flush=True)
        if run.sampled:
            print(f"{'':<28} bounds: {run.bounds()}", flush=True)
        if options.trail and figures.errors:
            print_trail(run, where)
        return not wrong


def list_runs():
    for title, runs in (("exhaustive searches", EXHAUSTED), ("planted mistakes", MISTAKES), ("sampled searches", SAMPLED)):
        print(title)
        for run in runs:
            print(f"  {run.name:<28} {'quick' if run.quick else 'full':<6} {run.model:<11} {' '.join(run.defines)}")
            print(f"  {'':<28} {run.tells}")


def parse_options():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quick", action="store_true", help="small exhaustive searches and all planted mistakes (default)")
    what.add_argument("--full", action="store_true", help="everything")
    what.add_argument("--list", action="store_true", help="say what there is, and stop")
    parser.add_argument("--only", default="", metavar="NAME", help="of all runs those whose name contains this")
    parser.add_argument("--trail", action="store_true", help=f"print the last {KEPT_STEPS} steps before an error")
    parser.add_argument("--watchdog", type=float, default=1800, metavar="S", help="end a search after this many seconds and count it as failed (default: %(default)s)")
    options = parser.parse_args()
    if options.watchdog <= 0:
        parser.error("--watchdog takes seconds, more than 0")
    if options.only and not any(options.only in run.name for run in ALL):
        parser.error(f"no run has '{options.only}' in its name: --list names them")
    return options


def chosen(options):
    if options.only:
        return [run for run in ALL if options.only in run.name]
    return [run for run in ALL if options.full or run.quick]


def missing():
    if not shutil.which("spin"):
        return "spin is not installed (Debian: apt install spin)"
    return None if compiler()[0] else "no C compiler: set CC"


def main():
    options = parse_options()
    if options.list:
        list_runs()
        return 0
    if reason := missing():
        print(f"SKIPPED: {reason}")
        return EXIT_SKIPPED
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that a search does not outlive this
    runs = chosen(options)
    start = time.monotonic()
    print(f"{'run':<28} {'states':>13} {'depth':>7} {'seconds':>8} {'MiB':>7}  verdict", flush=True)
    failed = sum(not run_one(run, options) for run in runs)
    print(f"\nRan {len(runs)} tests in {time.monotonic() - start:.1f}s\n\n" + (f"FAILED (failures={failed})" if failed else "OK"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
