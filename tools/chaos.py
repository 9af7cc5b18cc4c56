#!/usr/bin/env python3
"""tools/demo --chaos: trains with train_fashion while workers and the server are killed, stopped, replaced, and leave."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

WATCHDOG_S = 600  # ends a hang; nothing here measures time
LOOK_S = 0.05


class Failed(Exception):
    """Something that should have happened did not."""


def say(text):
    print(f"demo: {text}", flush=True)


def options():
    parser = argparse.ArgumentParser(prog="tools/demo --chaos", description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("GRADSHM_BUILD", "build")))
    parser.add_argument("--rounds", type=int, default=1872, help="rounds of the training (default: %(default)s, 8 epochs)")
    parser.add_argument("--least-accuracy", type=float, default=0.86)
    parser.add_argument("--round-deadline", default="1s", help="of the server, where it knows one (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


class Chaos:
    FIRST = 4  # workers that begin: 0 stays, 1 is killed, 2 is stopped, 3 leaves
    LATE = (1, 4)  # ranks of those that come later: one takes the killed one's

    def __init__(self, arguments, directory):
        self.arguments = arguments
        self.directory = pathlib.Path(directory)
        self.name = f"chaos-{os.getpid()}"
        self.processes = []
        self.workers = {}  # by label
        self.closed = 0
        self.records = {}
        self.problems = []
        self.judgements = []
        knows = subprocess.run([self.tool("gradshmd"), "--help"], capture_output=True, text=True, check=True).stdout
        self.has_deadline = "--round-deadline" in knows
        self.has_restart = "--rejoin-timeout" in knows
        self.daemon = None
        self.judged = False

    def tool(self, name):
        return self.arguments.build / "tools" / name

    def spawn(self, command, label, environment=None):
        with open(self.directory / f"{label}.err", "ab") as err, open(self.directory / f"{label}.out", "ab") as out:
            process = subprocess.Popen(list(map(str, command)), env=os.environ | (environment or {}), stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.processes.append(process)
        return process

    def start_daemon(self):
        deadline = ["--round-deadline", self.arguments.round_deadline] if self.has_deadline else []
        ready = (self.directory / "gradshmd.err").read_text().count("ready: ") if self.daemon else 0
        self.daemon = self.spawn([self.tool("gradshmd"), "--name", self.name, "--expect", self.FIRST, "--bucket-bytes", 65536, *deadline], "gradshmd")
        self.until(lambda: (self.directory / "gradshmd.err").read_text().count("ready: ") > ready, "the server is ready")

    def start_worker(self, rank, label, *more):
        command = [self.arguments.build / "examples" / "train_fashion", "--instance", self.name, "--checkpoint", self.directory / "state",
                   "--rounds", self.arguments.rounds, "--seed", self.arguments.seed, *more]
        if label != "worker-0":
            command.append("--quiet")
        self.workers[label] = self.spawn(command, label, {"GRADSHM_RANK": str(rank), "GRADSHM_WORLD_SIZE": str(max(self.FIRST, rank + 1))})

    def look(self):
        """What the server's beacon and its records say; nothing while there is none."""
        found = subprocess.run([self.tool("gradshm"), "ls", "--json"], capture_output=True, text=True, check=False).stdout
        with contextlib.suppress(ValueError):
            for instance in json.loads(found)["instances"]:
                if instance["instance"] == self.name:
                    self.closed = max(self.closed, instance["closed_round"])
        top = subprocess.run([self.tool("gradshm-top"), "--json", self.name], capture_output=True, text=True, check=False)
        if top.returncode == 0:
            self.check(json.loads(top.stdout).get("rounds", []))

    def check(self, rounds):
        numbers = sorted(one["round"] for one in rounds)
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))) if numbers else False:
            self.problems.append(f"rounds with a gap: {numbers}")
        for one in rounds:
            if not set(one["contributors"]) <= set(one["members"]):
                self.problems.append(f"round {one['round']} has contributors that are no members: {one}")
            parts = (sorted(one["members"]), sorted(one["contributors"]))
            if self.records.setdefault(one["round"], parts) != parts:
                self.problems.append(f"round {one['round']} has changed after it was closed")

    def until(self, condition, what):
        deadline = time.monotonic() + WATCHDOG_S
        while True:
            over = self.is_over()  # asked first: the last thing may happen between the two questions
            if condition():
                return
            if over or time.monotonic() > deadline:
                raise Failed(f"never happened: {what}")
            time.sleep(LOOK_S)

    def reach(self, percent):
        """Looks until so much of the training is done; a worker that fails meanwhile ends it all."""
        goal = max(self.arguments.rounds * percent // 100, 1)
        self.until(lambda: self.look() or self.closed >= goal or self.any_failed(), f"round {goal} is closed")
        if self.any_failed():
            raise Failed(f"a worker has failed: {self.any_failed()}")

    def is_over(self):
        """The training has ended, and no round will close any more."""
        return not self.judged and bool(self.workers) and all(process.poll() is not None for process in self.workers.values())

    def any_failed(self):
        return [label for label, process in self.workers.items() if process.poll() not in (None, 0, -signal.SIGKILL)]

    def advance(self, rounds):
        goal = self.closed + rounds
        self.until(lambda: self.look() or self.closed >= goal or self.any_failed(), f"round {goal} is closed")

    def is_said_to_be_evicted(self, rank):
        return re.search(rf"worker {rank} .*(evicted|round deadline)", (self.directory / "gradshmd.err").read_text()) is not None

    # What happens, in order.

    def kill_worker(self):
        say(f"round {self.closed}: kill -9 of worker 1")
        self.workers["worker-1"].kill()
        self.workers["worker-1"].wait()
        self.advance(2)

    def stop_worker(self):
        stopped = self.workers["worker-2"]
        say(f"round {self.closed}: worker 2 is stopped" + (f"; the others wait {self.arguments.round_deadline} for it" if self.has_deadline else " for a second"))
        stopped.send_signal(signal.SIGSTOP)
        if self.has_deadline:
            self.until(lambda: self.look() or self.is_said_to_be_evicted(2), "the stopped worker is evicted")
        else:
            time.sleep(1)
        say(f"round {self.closed}: worker 2 continues" + (", finds itself evicted and attaches again" if self.has_deadline else ""))
        stopped.send_signal(signal.SIGCONT)
        self.advance(2)

    def kill_daemon(self):
        if not self.has_restart:
            return
        say(f"round {self.closed}: kill -9 of the server, and a new one")
        self.daemon.kill()
        self.daemon.wait()
        self.start_daemon()
        self.advance(2)

    def start_late_workers(self):
        say(f"round {self.closed}: workers {' and '.join(map(str, self.LATE))} come")
        for rank in self.LATE:
            self.start_worker(rank, f"late-{rank}")

    def train(self):
        self.start_daemon()
        for rank in range(self.FIRST):
            more = ["--leave-after-round", self.arguments.rounds * 7 // 10] if rank == 3 else []
            self.start_worker(rank, f"worker-{rank}", *more)
        for percent, event in ((10, self.kill_worker), (15, self.start_late_workers), (25, self.stop_worker), (35, self.kill_daemon), (55, self.kill_daemon)):
            self.reach(percent)
            event()
        self.until(lambda: self.is_over() or self.look() or self.any_failed(), "all workers end")

    def holds(self, text, value, condition):
        say(f"{'yes:' if condition else 'NO: '} {text} ({value})")
        self.judgements.append(bool(condition))

    def judge(self):
        self.judged = True
        reports = {}
        for label, process in self.workers.items():
            lines = (self.directory / f"{label}.out").read_text().splitlines()
            reports[label] = json.loads(lines[-1]) if lines else None
        codes = {label: process.returncode for label, process in self.workers.items()}
        self.holds("only the killed worker has failed", codes, codes == {label: -9 if label == "worker-1" else 0 for label in codes})
        done = {label: report for label, report in reports.items() if report}
        to_the_end = {label: report for label, report in done.items() if report["last_round"] == self.arguments.rounds}
        self.holds("those that were to stay came to the last round", sorted(to_the_end), set(to_the_end) == {"worker-0", "worker-2", "late-1", "late-4"})
        self.holds("all of them hold the same weights", ", ".join(sorted({report["weights"] for report in to_the_end.values()})),
                   len({report["weights"] for report in to_the_end.values()}) == 1)
        accuracy = min((report["test_accuracy"] for report in to_the_end.values()), default=0)
        self.holds(f"the model has learnt: test accuracy is at least {self.arguments.least_accuracy}", accuracy, accuracy >= self.arguments.least_accuracy)
        left = done.get("worker-3", {}).get("last_round")
        self.holds("worker 3 left when it was told to", left, left == self.arguments.rounds * 7 // 10)
        firsts = {label: done[label]["first_rounds"] for label in ("late-1", "late-4") if label in done}
        self.holds("the late ones took part from some round on", firsts, len(firsts) == 2 and all(first and first[0] > 1 for first in firsts.values()))
        if self.has_deadline:
            evictions = done.get("worker-2", {}).get("evictions")
            self.holds("the stopped worker was evicted and came back", evictions, evictions and evictions >= 1)
        copied = sum(report["bytes_copied"] for report in done.values())
        self.holds("gradshm copied 0 bytes between workers (its counter)", copied, copied == 0)
        checked = sum(report["records_checked"] for report in done.values())
        self.holds("every record is consistent", f"{checked} checked by workers, {len(self.records)} by an observer{''.join('; ' + one for one in self.problems)}",
                   not self.problems and checked > 0 and self.records)

    def judge_clean_up(self):
        self.until(lambda: self.open_at_the_server() == [], "the server has closed what it had open for its workers")
        self.holds("the server has nothing open for its workers any more", self.open_at_the_server(), True)
        self.daemon.send_signal(signal.SIGTERM)
        code = self.daemon.wait(WATCHDOG_S)
        self.holds("the server ends when told to", code, code == 0)
        left = self.left_behind()
        self.holds("nothing is left in /dev/shm and in the socket directory", left, left == [])

    def open_at_the_server(self):
        """Process descriptors, slots and connections; the listener stays."""
        open_files = []
        for link in pathlib.Path(f"/proc/{self.daemon.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                open_files.append(os.readlink(link))
        sockets = [one for one in open_files if one.startswith("socket:")]
        return [one for one in open_files if "pidfd" in one or "slot" in one] + sockets[1:]

    def left_behind(self):
        beacons = pathlib.Path("/dev/shm").glob(f"gradshm.{os.getuid()}.{self.name}@*")
        return [str(path) for path in (*beacons, self.run_directory() / self.name) if path.exists()]

    @staticmethod
    def run_directory():
        if os.environ.get("GRADSHM_DIR"):
            return pathlib.Path(os.environ["GRADSHM_DIR"])
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        return pathlib.Path(runtime) / "gradshm" if runtime.startswith("/") else pathlib.Path(f"/tmp/gradshm-{os.getuid()}")

    def end(self):
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM if process is self.daemon else signal.SIGKILL)
                process.send_signal(signal.SIGCONT)
        for process in self.processes:
            process.wait()

    def show_errors(self):
        for path in sorted(self.directory.glob("*.err")):
            for line in path.read_text().splitlines()[-8:]:
                print(f"  {path.stem}: {re.sub(r'[^ -~]', '?', line)}", file=sys.stderr)


def main():
    arguments = options()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="gradshm-chaos-") as directory:
        chaos = Chaos(arguments, directory)
        say(f"{chaos.FIRST} workers train for {arguments.rounds} rounds; server '{chaos.name}'")
        if not (chaos.has_deadline and chaos.has_restart):
            say("this gradshmd knows no --round-deadline or no --rejoin-timeout: no eviction, or no kill of the server, is tried")
        try:
            chaos.train()
            chaos.judge()
            chaos.judge_clean_up()
        except Failed as failure:
            print(f"demo: {failure}", file=sys.stderr)
            chaos.judgements.append(False)
        except KeyboardInterrupt:
            return 130
        finally:
            chaos.end()
        if not all(chaos.judgements):
            chaos.show_errors()
            print("demo: not all of it is as promised", file=sys.stderr)
            return 1
    say(f"all as promised, after {arguments.rounds} rounds of chaos")
    return 0


if __name__ == "__main__":
    sys.exit(main())
