"""From what a test program printed and how it ended to how many cases passed, failed and were skipped."""
import dataclasses
import os
import re
import signal

DOCTEST = re.compile(r"\[doctest\] test cases: *(\d+) *\| *(\d+) passed *\| *(\d+) failed *\| *(\d+) skipped")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_END = re.compile(r"^(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
# A case that finds at run time that it cannot run here (no root, say) prints this and returns.
SKIPPED = re.compile(r"SKIPPED: (.*)")
UNITTEST_SKIPPED = re.compile(r"skipped [\"'](.*)[\"']$", re.MULTILINE)
EXIT_SKIPPED = 77  # as meson and automake have it


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list = dataclasses.field(default_factory=list)

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def doctest_counts(output):
    """The last summary counts: a forked child may have printed an earlier one."""
    *_, last = DOCTEST.finditer(output)
    ran, passed, failed, filtered = map(int, last.groups())
    if not ran:
        return Counts(failed=1, skipped=filtered, notes=["ran no case"])
    reasons = SKIPPED.findall(output)
    skipped_at_run_time = min(len(reasons), passed)
    return Counts(passed - skipped_at_run_time, failed, filtered + skipped_at_run_time, reasons_as_notes(reasons))


def unittest_counts(output):
    *_, last = UNITTEST_RAN.finditer(output)
    end = UNITTEST_END.search(output, last.end())
    named = dict(re.findall(r"([a-z ]+)=(\d+)", end.group(1) or "")) if end else {}
    named = {name.strip(): int(number) for name, number in named.items()}
    failed = sum(named.get(name, 0) for name in ("failures", "errors", "unexpected successes"))
    skipped = named.get("skipped", 0)
    passed = max(int(last.group(1)) - failed - skipped, 0)
    return Counts(passed, failed, skipped, reasons_as_notes(UNITTEST_SKIPPED.findall(output)))


def reasons_as_notes(reasons):
    return [f"skipped: {reason.strip()}" for reason in reasons]


def must_count(command):
    """Programs named test-* and *_test print a summary; one that does not has ended before its time, whatever its exit code says."""
    names = [os.path.basename(part).removesuffix(".py") for part in command]
    return any(name.startswith("test-") or name.endswith("_test") for name in names)


def plain_counts(command, code, output):
    """A program without a summary is one case."""
    reasons = reasons_as_notes(SKIPPED.findall(output))
    if code == 0 and must_count(command):
        return Counts(failed=1, notes=["ended without a summary of its cases"])
    if code == EXIT_SKIPPED or (code == 0 and reasons):
        return Counts(skipped=1, notes=reasons)
    return Counts(passed=int(code == 0), failed=int(code != 0))


def how_it_ended(code):
    if code < 0:
        return f"killed by signal {-code} ({signal.strsignal(-code)})"
    return f"exit code {code}"


def count(command, code, output):
    """code: None where the watchdog ended it. A bad end counts as a failure even where every case that was counted passed."""
    if DOCTEST.search(output):
        counts = doctest_counts(output)
    elif UNITTEST_RAN.search(output):
        counts = unittest_counts(output)
    else:
        counts = plain_counts(command, code, output)
    if not (counts.passed or counts.failed or counts.skipped):
        counts.notes.append("ran no case")
        counts.failed = 1
    if code not in (0, EXIT_SKIPPED):
        counts.failed = max(counts.failed, 1)
        if code is not None:
            counts.notes.append(how_it_ended(code))
    return counts
