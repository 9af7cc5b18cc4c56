#!/usr/bin/env python3
"""The runner itself: a test that dies, hangs, runs nothing or is skipped must never look like one that passed."""
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run_tests  # noqa: E402
from test_counts import count  # noqa: E402

PROGRAM = ["/somewhere/round_test"]
SCRIPT = ["python3", "/somewhere/layers_test.py"]
DOCTEST = "[doctest] test cases: {:2} | {} passed | {} failed | {} skipped\n[doctest] assertions: 9 | 9 passed | 0 failed |\n"


def triple(command, code, output):
    counts = count(command, code, output)
    return counts.passed, counts.failed, counts.skipped


class CountsTest(unittest.TestCase):
    def test_doctest_cases_are_counted(self):
        self.assertEqual(triple(PROGRAM, 0, DOCTEST.format(12, 12, 0, 2)), (12, 0, 2))

    def test_a_case_skipped_at_run_time_is_not_counted_as_passed(self):
        self.assertEqual(triple(PROGRAM, 0, "SKIPPED: needs root\n" + DOCTEST.format(3, 3, 0, 0)), (2, 0, 1))

    def test_the_last_summary_counts_where_a_forked_child_printed_one_too(self):
        self.assertEqual(triple(PROGRAM, 1, DOCTEST.format(1, 1, 0, 0) + DOCTEST.format(5, 4, 1, 0)), (4, 1, 0))

    def test_a_crash_after_all_cases_passed_is_a_failure(self):
        self.assertEqual(triple(PROGRAM, -11, DOCTEST.format(5, 5, 0, 0)), (5, 1, 0))

    def test_a_crash_before_the_summary_is_a_failure(self):
        self.assertEqual(triple(PROGRAM, -6, "terminate called\n"), (0, 1, 0))

    def test_exit_code_0_without_a_summary_is_a_failure(self):
        self.assertEqual(triple(PROGRAM, 0, ""), (0, 1, 0))
        self.assertEqual(triple(["/build/tests/test-base"], 0, ""), (0, 1, 0))
        self.assertEqual(triple(SCRIPT, 0, ""), (0, 1, 0))

    def test_no_case_at_all_is_a_failure(self):
        self.assertEqual(triple(PROGRAM, 0, DOCTEST.format(0, 0, 0, 7)), (0, 1, 7))
        self.assertEqual(triple(SCRIPT, 0, "\nRan 0 tests in 0.000s\n\nOK\n"), (0, 1, 0))

    def test_unittest_failures_errors_and_skips_are_counted(self):
        output = "\nRan 9 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=3)\n"
        self.assertEqual(triple(SCRIPT, 1, output), (3, 3, 3))
        self.assertEqual(triple(SCRIPT, 0, "Ran 1 test in 0.1s\n\nOK\n"), (1, 0, 0))

    def test_a_program_without_cases_is_one_case(self):
        self.assertEqual(triple(["two_workers"], 0, "hello"), (1, 0, 0))
        self.assertEqual(triple(["two_workers"], 77, ""), (0, 0, 1))
        self.assertEqual(triple(["two_workers"], 3, ""), (0, 1, 0))
        self.assertEqual(triple(["two_workers"], 0, "SKIPPED: no GPU"), (0, 0, 1))


class ProgramTest(unittest.TestCase):
    def run_shell(self, script, limit=60):
        test = {"cmd": ["sh", "-c", script], "env": {"FROM_MESON": "yes"}, "workdir": tempfile.gettempdir()}
        return run_tests.run_program(test, ".", limit)

    def test_a_program_gets_its_environment(self):
        code, output, _ = self.run_shell('echo "$FROM_MESON $GRADSHM_BUILD" >&2; exit 5')
        self.assertEqual((code, output), (5, f"yes {os.path.abspath('.')}\n"))

    def test_a_hanging_program_is_ended_with_its_children(self):
        code, output, _ = self.run_shell("sleep 1000 & echo $!; wait", limit=0.5)
        self.assertIsNone(code)
        self.assert_ends(int(output))

    def test_processes_left_behind_are_ended_and_named(self):
        code, output, left = self.run_shell("sleep 1000 & echo $!")
        self.assertEqual((code, left), (0, True))
        self.assert_ends(int(output))

    def run_as_test(self, script):
        test = {"name": "a", "cmd": ["sh", "-c", script], "env": {}, "workdir": tempfile.gettempdir()}
        return run_tests.run_test(test, ".", 1)[1]

    def test_processes_left_behind_are_a_failure(self):
        counts = self.run_as_test("sleep 1000 & exit 0")
        self.assertEqual((counts.passed, counts.failed), (1, 1))
        self.assertIn("left processes behind", counts.notes[-1])
        self.assertEqual(self.run_as_test("exit 0").failed, 0)

    def assert_ends(self, pid):
        while is_running(pid):  # a hang here is ended by the watchdog
            time.sleep(0.01)


def is_running(pid):
    """A zombie that nobody reaps has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


if __name__ == "__main__":
    unittest.main()
