#!/usr/bin/env python3
"""gradshm-bench in the small: what it prints, and that it leaves nothing behind. No figure is judged: that is for docs/performance.md."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from source_tree import BUILD, SOURCE  # noqa: E402

BENCH = BUILD / "bench/gradshm-bench"
NUMBERS = {"latency": {"median_ms", "p99_ms", "gbps"}, "floor": {"threads", "measurements", "median_ms", "gbps"},
           "ratio": {"median", "p10", "p90", "pairs"}}


def children_of(pid):
    """(pid, command name) of its children."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            before, after = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        if int(after.split()[1]) == pid:
            yield int(stat.parent.name), before.split("(", 1)[1]


class BenchTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="gsb-")
        self.addCleanup(self.directory.cleanup)
        self.environment = {**os.environ, "TMPDIR": self.directory.name}

    def start(self, *arguments):
        return subprocess.Popen([BENCH, "allreduce", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment)

    def finish(self, process):
        """(exit code, stdout, stderr); nothing of the run may be left, however it ended."""
        output, errors = process.communicate()
        self.assertEqual(os.listdir(self.directory.name), [], "temporary files are left")
        self.assertEqual(list(pathlib.Path("/dev/shm").glob(f"*bench-{process.pid}*")), [], "a beacon is left")
        return process.returncode, output, errors

    def run_json(self, *arguments):
        code, output, errors = self.finish(self.start("--json", *arguments))
        self.assertEqual(code, 0, errors)
        self.assertEqual(output.count("\n"), 1)
        return json.loads(output)

    def start_long_run(self):
        """In its rounds when this returns."""
        process = self.start("--workers", "2", "--numel", "1000", "--rounds", "3000000")
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertIn("measuring", process.stderr.readline())
        return process

    def test_the_json_line_has_all_fields(self):
        result = self.run_json("--workers", "2", "--numel", "5000", "--rounds", "20", "--floor-threads", "1")
        expected = {"schema": 1, "benchmark": "allreduce", "workers": 2, "layout": None, "dtype": "f32", "parameters": 1, "buckets": 1,
                    "numel": 5000, "bytes": 20000, "rounds": 20, "cpus": len(os.sched_getaffinity(0))}
        self.assertEqual({name: result[name] for name in expected}, expected)
        self.assertEqual(set(result) - set(expected), {"version", *NUMBERS})
        for name, fields in NUMBERS.items():
            self.assertEqual(set(result[name]), fields)
            self.assertTrue(all(value > 0 for value in result[name].values()), result[name])
        self.assertEqual((result["floor"]["threads"], result["ratio"]["pairs"]), (1, 4))

    def test_every_dtype_sums_right(self):
        for dtype, size in (("f32", 4), ("f64", 8), ("f16", 2), ("bf16", 2)):
            with self.subTest(dtype):
                result = self.run_json("--workers", "3", "--numel", "1001", "--rounds", "5", "--dtype", dtype)
                self.assertEqual((result["dtype"], result["bytes"]), (dtype, 1001 * size))

    def test_a_layout_file_and_small_buckets(self):
        layout = pathlib.Path(self.directory.name) / "small.tsv"
        layout.write_text("name\tdtype\tshape\tnumel\na\tfloat32\t100x30\t3000\nb\tfloat16\t7\t7\nc\tfloat32\t2000\t2000\n")
        process = self.start("--json", "--workers", "2", "--layout", str(layout), "--rounds", "5", "--bucket-bytes", "4096",
                             "--reducer-threads", "2")
        output, errors = process.communicate()
        self.assertEqual(process.returncode, 0, errors)
        result = json.loads(output)
        self.assertEqual((result["layout"], result["dtype"], result["parameters"], result["buckets"]), ("small.tsv", "mixed", 3, 3))
        self.assertEqual(result["bytes"], 5000 * 4 + 7 * 2)

    def test_the_table_names_latency_floor_and_ratio(self):
        code, output, errors = self.finish(self.start("--workers", "1", "--numel", "64", "--rounds", "5"))
        self.assertEqual(code, 0, errors)
        for word in ("last commit to visible", "memory floor", "ratio", "workers 1"):
            self.assertIn(word, output)
        self.assertIn("gradients 256 B of f32", output)

    def test_help_explains_the_exit_codes(self):
        output = subprocess.run([BENCH, "allreduce", "--help"], capture_output=True, text=True, check=True).stdout
        self.assertIn("What is summed: one of these", output)
        self.assertIn("Exit codes:", subprocess.run([BENCH, "--help"], capture_output=True, text=True, check=True).stdout)

    def test_bad_arguments_are_refused(self):
        for arguments in ([], ["--workers", "2"], ["--workers", "0", "--numel", "5"], ["--workers", "2", "--numel", "0"],
                          ["--workers", "2", "--numel", "5", "--dtype", "int8"], ["--workers", "2", "--layout", "/no/such/file"],
                          ["--workers", "2", "--numel", "5", "--layout", __file__]):
            with self.subTest(arguments):
                code, output, errors = self.finish(self.start(*arguments))
                self.assertEqual(code, 1)
                self.assertEqual(output, "")
                self.assertTrue(errors)

    def test_a_daemon_that_cannot_be_started_is_named(self):
        code, _, errors = self.finish(self.start("--workers", "1", "--numel", "5", "--daemon", "/no/such/gradshmd"))
        self.assertEqual(code, 1)
        self.assertIn("/no/such/gradshmd", errors)

    def test_a_killed_worker_ends_the_run(self):
        process = self.start_long_run()
        os.kill(next(pid for pid, name in children_of(process.pid) if name == "gradshm-bench"), signal.SIGKILL)
        code, _, errors = self.finish(process)
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"worker \d \(pid \d+\) was killed by signal 9")

    def test_a_killed_daemon_ends_the_run(self):
        process = self.start_long_run()
        os.kill(next(pid for pid, name in children_of(process.pid) if name == "gradshmd"), signal.SIGKILL)
        code, _, errors = self.finish(process)
        self.assertEqual(code, 1)
        self.assertRegex(errors, r"gradshmd \(pid \d+\) was killed by signal 9|server")

    def test_a_signal_ends_the_run_cleanly(self):
        process = self.start_long_run()
        children = [pid for pid, _ in children_of(process.pid)]
        self.assertEqual(len(children), 3)
        process.send_signal(signal.SIGTERM)
        code, _, errors = self.finish(process)
        self.assertEqual(code, 1)
        self.assertIn("interrupted", errors)
        self.assertEqual([pid for pid in children if pathlib.Path(f"/proc/{pid}").exists()], [])

    def test_processes_end_with_a_killed_benchmark(self):
        process = self.start_long_run()
        children = [pid for pid, _ in children_of(process.pid)]
        process.kill()
        process.wait()
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in children):  # the watchdog ends a hang
            time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
