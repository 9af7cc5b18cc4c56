#!/usr/bin/env python3
"""gradshm dump from outside, of a worker with known values in its slot (dump_worker.cpp)."""
import ast
import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cli_driver import SMALL_TSV, TOOLS, WATCHDOG_S, ToolsTest, documented, fields  # noqa: E402

WORKER = TOOLS.parent / "tests" / "tools" / "dump-worker"
LAYOUT = """name\tdtype\tshape\tnumel\taliases\torder
w\tfloat32\t2x3\t6\tw.tied\tC
scalar\tfloat64\t()\t1\t\tC
columns\tfloat32\t2x3\t6\t\tF
half\tfloat16\t4\t4\t\tC
brain\tbfloat16\t3\t3\t\tC
none\tfloat32\t0x4\t0\t\tC
wild\tfloat32\t4\t4\t\tC
long.weight\tfloat32\t1000\t1000\t\tC
"""


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def parse_npy(content):
    """The header as a dictionary, and the bytes behind it."""
    assert content[:8] == b"\x93NUMPY\x01\x00", content[:10]
    length, = struct.unpack("<H", content[8:10])
    assert (10 + length) % 64 == 0 and content[9 + length:10 + length] == b"\n"
    return ast.literal_eval(content[10:10 + length].decode("latin1")), content[10 + length:]


class DumpTest(ToolsTest):
    def worker(self, name, rank, *arguments):
        process = self.popen(WORKER, name, rank, *arguments, stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process

    @staticmethod
    def tell(process, *lines):
        """Each is answered before the next."""
        for line in lines:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        return answer

    @contextlib.contextmanager
    def team(self, expect=1):
        """A server, and its worker of rank 0, a member of round 1."""
        with self.server("--layout", self.file("layout.tsv", LAYOUT), "--expect", expect) as (name, process):
            workers = [self.worker(name, rank) for rank in range(expect)]
            for worker in workers:
                self.assertEqual(self.tell(worker, "admitted"), "1")
            yield name, process, workers
            for worker in workers:
                worker.communicate()

    def dump(self, name, parameter, *arguments):
        return json.loads(self.tool("gradshm", "dump", name, "--param", parameter, "--json", *arguments)[0])

    def close_round(self, workers):
        for worker in workers:
            self.assertEqual(self.tell(worker, "commit"), "ok")
        for worker in workers:
            self.assertEqual(self.tell(worker, "wait"), "ok")

    def test_the_result_is_that_of_a_closed_round(self):
        with self.team() as (name, _, workers):
            self.assertIn("no round of", self.tool("gradshm", "dump", name, "--param", "w", "--timeout", 0.1, code=2)[1])
            self.close_round(workers)
            document = self.dump(name, "w")
            self.assertEqual((document["schema"], document["source"], document["state"], document["round"]), (1, "result", "closed", 1))
            self.assertEqual(document["result"], {"op": "mean", "count": 1, "weight_sum": 4.0})
            self.assertEqual(document["first"], [f32(value / 4) for value in (0.5, -1, 2, 3, 4, f32(0.1))])
            self.assertEqual(document["parameter"]["shape"], [2, 3])
            self.assertEqual(self.dump(name, "w.tied"), document)
            out, _ = self.tool("gradshm", "dump", name, "--param", "w", "--slot", "result")
            self.assertRegex(out, r"^w  f32\[2,3\]\nresult of round 1 \(mean\): from 1 worker, sum of weights 4\n6 elements: norm 1\.3\d+, min -0\.25, max 1, mean 0\.3583\d+\n0\.125 -0\.25 0\.5 0\.75 1 0\.025\n$")

    def test_a_slot_says_whether_its_worker_may_be_writing(self):
        with self.team(2) as (name, _, workers):
            document = self.dump(name, "w", "--slot", 0)
            self.assertEqual((document["source"], document["state"], document["round"]), ("slot", "writing", 0))
            self.assertEqual(document["first"], [f32(value) for value in (0.5, -1, 2, 3, 4, 0.1)])
            self.assertIn("never committed; the worker may be writing", self.tool("gradshm", "dump", name, "--param", "w", "--slot", 0)[0])
            self.tell(workers[0], "commit")
            document = self.dump(name, "w", "--slot", 0)
            self.assertEqual((document["state"], document["round"]), ("committed", 1))
            self.assertEqual(document["slot"], {"rank": 0, "generation": document["slot"]["generation"], "pid": workers[0].pid, "weight": 4.0, "present": True})
            self.assertIn(f"slot of worker 0 (pid {workers[0].pid}): committed to round 1, weight 4\n", self.tool("gradshm", "dump", name, "--param", "w", "--slot", 0)[0])
            self.assertEqual(self.dump(name, "w", "--slot", 1)["state"], "writing")
            self.tell(workers[1], "abstain", "wait")
            document = self.dump(name, "w", "--slot", 1)
            self.assertEqual((document["state"], document["round"], document["slot"]["present"]), ("closed", 1, False))
            self.assertIn("has closed, so the worker may be writing", self.tool("gradshm", "dump", name, "--param", "w", "--slot", 0)[0])

    def test_values_of_every_dtype(self):
        with self.team() as (name, _, _):
            values = lambda parameter, *more: self.dump(name, parameter, "--slot", 0, *more)  # noqa: E731
            self.assertEqual(values("half")["first"], [1, -2, 65504, 2 ** -24])
            self.assertEqual(values("brain")["first"], [1, -3.140625, None])
            self.assertEqual(values("scalar")["first"], [0.1])
            self.assertEqual(values("scalar")["parameter"]["shape"], [])
            self.assertEqual(values("columns")["parameter"]["order"], "F")
            text = lambda parameter: self.tool("gradshm", "dump", name, "--param", parameter, "--slot", 0)[0].splitlines()[-1]  # noqa: E731
            self.assertEqual(text("half"), "1 -2 65504 5.9604645e-08")
            self.assertEqual(text("brain"), "1 -3.140625 nan")
            self.assertEqual(text("scalar"), "0.1")

    def test_non_finite_elements_are_counted_and_left_out(self):
        with self.team() as (name, _, _):
            self.assertEqual(self.dump(name, "wild", "--slot", 0)["stats"], {"finite": 1, "nan": 1, "infinite": 2, "norm": 3.0, "min": 3.0, "max": 3.0, "mean": 3.0})
            out, _ = self.tool("gradshm", "dump", name, "--param", "wild", "--slot", 0)
            self.assertIn("3 not finite and left out of these (1 nan, 2 inf)", out)
            self.assertTrue(out.endswith("\nnan inf -inf 3\n"))

    def test_a_parameter_without_elements(self):
        with self.team() as (name, _, workers):
            self.close_round(workers)
            for source in ("result", "0"):
                document = self.dump(name, "none", "--slot", source)
                self.assertEqual((document["first"], document["last"], document["stats"]["min"], document["stats"]["norm"]), ([], [], None, 0.0))
                header, data = parse_npy(self.tool("gradshm", "dump", name, "--param", "none", "--slot", source, "--npy", "-", text=False)[0])
                self.assertEqual((header["shape"], data), ((0, 4), b""))
            self.assertTrue(self.tool("gradshm", "dump", name, "--param", "none")[0].endswith("\n0 elements\n"))

    def test_of_many_values_the_first_and_last_or_all(self):
        with self.team() as (name, _, _):
            arguments = ["gradshm", "dump", name, "--param", "long.weight", "--slot", 0]
            self.assertEqual(self.tool(*arguments)[0].splitlines()[-1], "0 1 2 3 4 5 6 7 ... 996 997 998 999")
            self.assertEqual(self.tool(*arguments, "--all")[0].splitlines()[3:], [str(i) for i in range(1000)])
            document = self.dump(name, "long.weight", "--slot", 0)
            self.assertEqual((document["first"], document["last"], "values" in document), (list(range(8)), list(range(996, 1000)), False))
            document = self.dump(name, "long.weight", "--slot", 0, "--all")
            self.assertEqual((document["values"], "first" in document), (list(range(1000)), False))

    def test_the_documents_are_as_documented(self):
        with self.team() as (name, _, workers):
            self.close_round(workers)
            found = set().union(*(fields(self.dump(name, "w", *arguments)) for arguments in ([], ["--slot", 0], ["--all"])))
            self.assertEqual(found, documented("gradshm dump --json"))

    def test_npy_files_hold_type_order_shape_and_values(self):
        expected = {"w": ("<f4", False, (2, 3), "<6f", tuple(f32(value) for value in (0.5, -1, 2, 3, 4, 0.1))), "columns": ("<f4", True, (2, 3), "<6f", (1, 2, 3, 4, 5, 6)),
                    "half": ("<f2", False, (4,), "<4e", (1, -2, 65504, 2 ** -24)), "brain": ("<u2", False, (3,), "<3H", (0x3f80, 0xc049, 0x7fc0)),
                    "scalar": ("<f8", False, (), "<d", (0.1,))}
        with self.team() as (name, _, _):
            for parameter, (descr, fortran, shape, form, values) in expected.items():
                path = pathlib.Path(self.directory) / f"{parameter}.npy"
                out, err = self.tool("gradshm", "dump", name, "--param", parameter, "--slot", 0, "--npy", path)
                self.assertIn("slot of worker 0", out)
                self.assertEqual("<u2" in err, parameter == "brain")
                header, data = parse_npy(path.read_bytes())
                self.assertEqual(header, {"descr": descr, "fortran_order": fortran, "shape": shape})
                self.assertEqual(struct.unpack(form, data), values)
                piped, _ = self.tool("gradshm", "dump", name, "--param", parameter, "--slot", 0, "--npy", "-", text=False)
                self.assertEqual(piped, path.read_bytes())
                self.load_with_numpy(path, descr, fortran, shape)

    def load_with_numpy(self, path, descr, fortran, shape):
        try:
            import numpy  # noqa: PLC0415
        except ImportError:
            return  # parse_npy has read it
        array = numpy.load(path)
        self.assertEqual((array.dtype.str, array.shape), (descr, shape))
        self.assertEqual(array.flags.f_contiguous and not array.flags.c_contiguous, fortran)

    def test_an_npy_file_is_replaced_whole_or_not_at_all(self):
        with self.team() as (name, _, _):
            folder = pathlib.Path(self.directory) / "npy"
            folder.mkdir()
            target = folder / "w.npy"
            target.write_text("old")
            arguments = ["gradshm", "dump", name, "--param", "w", "--slot", 0, "--npy"]
            self.tool(*arguments, target, preexec_fn=lambda: os.umask(0o027))
            self.assertEqual(target.stat().st_mode & 0o777, 0o640)
            parse_npy(target.read_bytes())
            self.assertIn("/no/such/w.npy", self.tool(*arguments, folder / "no/such/w.npy", code=1)[1])
            self.assertIn("no regular file", self.tool(*arguments, folder, code=1)[1])
            self.assertIn("no regular file", self.tool(*arguments, "/dev/null", code=1)[1])
            self.assertTrue(pathlib.Path("/dev/null").is_char_device())
            self.assertEqual(os.listdir(folder), ["w.npy"])

    def test_an_unknown_parameter_names_the_closest(self):
        with self.team() as (name, _, _):
            error = self.tool("gradshm", "dump", name, "--param", "long.wieght", code=2)[1]
            self.assertIn("no parameter 'long.wieght'; closest: 'long.weight', ", error)
            self.assertIn("'w.tied'", self.tool("gradshm", "dump", name, "--param", "w.tide", code=2)[1])

    def test_an_unknown_rank_names_those_there_are(self):
        with self.team(2) as (name, _, _):
            error = self.tool("gradshm", "dump", name, "--param", "w", "--slot", 7, code=2)[1]
            self.assertIn("there is no worker 7", error)
            self.assertIn("there are workers 0, 1", error)

    def test_a_partial_worker_has_what_it_registered(self):
        with self.team() as (name, _, _):
            partial = self.worker(name, 5, "partial")
            self.assertEqual(self.dump(name, "scalar", "--slot", 5)["first"], [0.1])
            self.assertIn("without 'half'", self.tool("gradshm", "dump", name, "--param", "half", "--slot", 5, code=2)[1])
            partial.communicate()

    def test_a_dead_server_is_code_3_and_none_is_code_2(self):
        with self.team() as (name, process, workers):
            self.close_round(workers)
            process.kill()
            process.wait()
            for source in ("result", "0"):
                self.assertIn(f"is dead (pid {process.pid})", self.tool("gradshm", "dump", name, "--param", "w", "--slot", source, code=3)[1])
        self.tool("gradshm", "dump", self.name(), "--param", "w", code=2)
        with self.server() as (name, _):
            self.assertIn("no layout yet", self.tool("gradshm", "dump", name, "--param", "w", code=2)[1])

    def test_looking_disturbs_nobody(self):
        with self.team(2) as (name, _, workers):
            for _ in range(3):
                self.close_round(workers)
                for slot in ("result", "0", "1"):
                    self.dump(name, "long.weight", "--slot", slot)
            self.assertEqual(json.loads(self.tool("gradshm-top", name, "--json")[0])["open"]["closed_round"], 3)

    def test_bad_options_are_code_1(self):
        for arguments in ([], ["--param"], ["--param", "w", "--slot", "256"], ["--param", "w", "--slot", "-1"], ["--param", "w", "--slot", "x"], ["--param", "w", "--timeout", "nan"],
                          ["--param", "w", "--npy", "-", "--json"], ["a/b", "--param", "w"]):
            out, err = self.tool("gradshm", "dump", *arguments, code=1)
            self.assertEqual(out, "")
            self.assertNotEqual(err, "")

    def test_help_has_examples_and_exit_codes(self):
        out, _ = self.tool("gradshm", "dump", "--help")
        self.assertIn("Examples:", out)
        self.assertIn("Exit codes:", out)


if __name__ == "__main__":
    unittest.main()
