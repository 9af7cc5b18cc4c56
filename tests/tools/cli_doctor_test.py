#!/usr/bin/env python3
"""gradshm doctor from outside: whatever it says would not start, does not start."""
import ctypes
import errno
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cli_driver import SMALL_TSV, TOOLS, WATCHDOG_S, ToolsTest, documented, fields  # noqa: E402


def limited(which, soft):
    return lambda: resource.setrlimit(which, (soft, resource.getrlimit(which)[1]))


def forbid(call):
    """A seccomp filter in the child: that system call (x86-64's number) fails with EPERM, as container profiles do it."""
    load, equal, give = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
    code = [(load, 0, 0, 0), (equal, 0, 1, call), (give, 0, 0, 0x50000 | errno.EPERM), (give, 0, 0, 0x7fff0000)]
    program = b"".join(struct.pack("HBBI", *line) for line in code)
    buffer = ctypes.create_string_buffer(program, len(program))
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)

    def install():
        if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(filters), 0, 0) != 0:  # NO_NEW_PRIVS, SECCOMP_MODE_FILTER
            raise OSError(ctypes.get_errno(), "prctl")
        assert buffer  # lives as long as this function
    return install


class DoctorTest(ToolsTest):
    def doctor(self, *arguments, code=0, **options):
        """The document, and the checks that failed."""
        document = json.loads(self.tool("gradshm", "doctor", "--json", *arguments, code=code, **options)[0])
        return document, {check["check"]: check for check in document["checks"] if check["verdict"] == "FAIL"}

    def starts(self, *arguments, **options):
        """Does gradshmd?"""
        process = self.popen("gradshmd", "--log-level", "info", *arguments, **options)
        for line in process.stderr:
            if "ready: instance" in line:
                process.send_signal(signal.SIGTERM)
                self.assertEqual(process.wait(WATCHDOG_S), 0)
                return True
        self.assertNotEqual(process.wait(WATCHDOG_S), 0)
        return False

    def assert_both_refuse(self, check, *arguments, **options):
        """The doctor for this one reason, and the server too."""
        document, failed = self.doctor(*arguments, code=1, **options)
        self.assertEqual((list(failed), document["would_start"]), ([check], False))
        self.assertNotEqual(failed[check]["advice"], "")
        self.assertFalse(self.starts(*arguments, **options), f"{check} is said to fail, but gradshmd starts")
        return failed[check]["found"]

    def assert_both_start(self, *arguments, **options):
        self.assertTrue(self.doctor(*arguments, **options)[0]["would_start"])
        self.assertTrue(self.starts(*arguments, **options))

    def test_where_a_server_starts_the_doctor_says_so_and_leaves_nothing(self):
        self.run_directory.mkdir(mode=0o700)
        before = set(os.listdir("/dev/shm"))
        out, err = self.tool("gradshm", "doctor")
        self.assertRegex(out, r"(?m)^a server would start here: \d+ checks, \d+ warnings?, 0 failures$")
        self.assertRegex(out, r"(?m)^OK    GPU +this build has no GPU code")
        self.assertEqual(err, "")
        self.assertEqual(os.listdir(self.run_directory), [])
        self.assertFalse({name for name in set(os.listdir("/dev/shm")) - before if "doctor" in name})
        self.assert_both_start()

    def test_the_document_is_as_documented(self):
        document, _ = self.doctor("--name", "some.name")
        self.assertEqual((document["schema"], document["instance"]), (1, "some.name"))
        self.assertEqual(fields(document), documented("gradshm doctor --json"))
        self.assertEqual(self.doctor(environment={"GRADSHM_INSTANCE": "other"})[0]["instance"], "other")

    def test_memory_is_judged_to_the_byte_as_the_server_does(self):
        layout = self.file("small.tsv", SMALL_TSV)
        for arguments in (["--layout", layout], ["--layout", layout, "--expect", 5]):
            found = self.assert_both_refuse("memory", *arguments, environment={"GRADSHM_TEST_FREE_BYTES": "1000"})
            self.assertIn("1,000 are free (GRADSHM_TEST_FREE_BYTES)", found)
            need = int(found.split(" needs ")[1].split(" bytes")[0].replace(",", ""))
            self.assert_both_refuse("memory", *arguments, environment={"GRADSHM_TEST_FREE_BYTES": str(need - 1)})
            self.assert_both_start(*arguments, environment={"GRADSHM_TEST_FREE_BYTES": str(need)})

    def test_without_a_layout_memory_for_the_smallest_is_wanted(self):
        tiny = {"GRADSHM_TEST_FREE_BYTES": "1000"}
        _, failed = self.doctor(code=1, environment=tiny)
        self.assertEqual(list(failed), ["memory"])
        smallest = self.file("smallest.tsv", "name\tdtype\tshape\tnumel\nw\tfloat32\t1\t1\n")
        self.assertFalse(self.starts("--layout", smallest, environment=tiny))

    def test_a_tiny_limit_of_file_sizes(self):
        layout = self.file("small.tsv", SMALL_TSV)
        for limit in (100, 100_000):
            self.assertIn(f"RLIMIT_FSIZE is {limit:,}", self.doctor("--layout", layout, code=1, preexec_fn=limited(resource.RLIMIT_FSIZE, limit))[1]["file size"]["found"])
            self.assertFalse(self.starts("--layout", layout, preexec_fn=limited(resource.RLIMIT_FSIZE, limit)))
        self.assertFalse(self.starts(preexec_fn=limited(resource.RLIMIT_FSIZE, 100)))

    def test_hardly_any_descriptors(self):
        few = limited(resource.RLIMIT_NOFILE, 8)
        self.assertIn("descriptors", self.doctor(code=1, preexec_fn=few)[1])
        self.assertFalse(self.starts(preexec_fn=few))

    def test_a_run_directory_that_others_may_write(self):
        self.run_directory.mkdir()
        for mode in (0o777, 0o702, 0o720):
            self.run_directory.chmod(mode)
            self.assertIn("may be written by others", self.assert_both_refuse("run directory"))
        self.run_directory.chmod(0o700)
        self.assert_both_start()
        inner = self.run_directory / "inner"
        inner.mkdir()
        inner.chmod(0o777)
        self.assert_both_refuse("instance", "--name", "inner")

    def test_a_run_directory_that_is_foreign(self):
        path = self.run_directory
        if os.getuid() == 0:
            path.mkdir(mode=0o700)
            os.chown(path, 12345, 12345)
        else:
            path = pathlib.Path("/usr")
        self.assertIn("belongs to uid", self.assert_both_refuse("run directory", environment={"GRADSHM_DIR": str(path)}))

    def test_a_run_directory_that_is_a_link_or_a_file_or_cannot_be_made(self):
        target = pathlib.Path(self.directory) / "target"
        target.mkdir(mode=0o700)
        self.run_directory.symlink_to(target)
        self.assertIn("symbolic link", self.assert_both_refuse("run directory"))
        self.run_directory.unlink()
        self.run_directory.write_text("")
        self.assertIn("no directory", self.assert_both_refuse("run directory"))
        self.assertIn("cannot be made", self.assert_both_refuse("run directory", environment={"GRADSHM_DIR": self.directory + "/no/such"}))

    def test_a_socket_path_that_is_too_long(self):
        self.assert_both_refuse("socket path", "--name", "x" * 64, environment={"GRADSHM_DIR": self.directory + "/" + "d" * 50})

    @unittest.skipUnless(os.uname().machine == "x86_64", "the numbers of system calls are x86-64's")
    def test_a_kernel_feature_that_a_sandbox_forbids(self):
        layout = self.file("small.tsv", SMALL_TSV)
        for call, feature in ((319, "memfd with seals"), (290, "eventfd with epoll")):  # memfd_create, eventfd2
            found = self.assert_both_refuse("features", "--layout", layout, preexec_fn=forbid(call))
            self.assertIn(feature, found)
            self.assertIn("Operation not permitted", found)

    @unittest.skipUnless(os.uname().machine == "x86_64", "the numbers of system calls are x86-64's")
    def test_without_pidfds_a_server_can_take_no_worker(self):
        document, failed = self.doctor(code=1, preexec_fn=forbid(434))
        self.assertIn("pidfd_open (", failed["features"]["found"])
        self.assertIn("seccomp filter is active", failed["features"]["advice"])
        name = self.name()
        server = self.popen("gradshmd", "--name", name, "--layout", self.file("small.tsv", SMALL_TSV), preexec_fn=forbid(434))
        self.eventually(lambda: (self.run_directory / name / "sock").exists(), "gradshmd listens")
        self.assertIn("pidfd_open", self.tool("gradshm-top", name, "--once", code=1)[1])
        self.assertIsNone(server.poll())

    def test_a_shared_memory_directory_that_cannot_be_written(self):
        read_only = ["--mount", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh"]
        if subprocess.run(["unshare", *read_only, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("mounting /dev/shm read-only takes root and unshare")
        out, _ = self.tool("/usr/bin/env", "unshare", *read_only, TOOLS / "gradshm", "doctor", code=1)
        self.assertRegex(out, r"(?m)^FAIL  /dev/shm +a file of a kilobyte cannot be made there: Read-only file system$")
        self.tool("/usr/bin/env", "unshare", *read_only, TOOLS / "gradshmd", code=5)

    def test_a_layout_that_is_none(self):
        for text in ("", "nonsense"):
            self.assert_both_refuse("layout", "--layout", self.file("bad.tsv", text))
        self.assert_both_refuse("layout", "--layout", self.directory + "/nowhere.tsv")

    def test_a_server_of_that_name_is_a_warning(self):
        with self.server() as (name, process):
            document, _ = self.doctor("--name", name)
            found, = (check for check in document["checks"] if check["check"] == "instances")
            self.assertEqual(found["verdict"], "WARN")
            self.assertIn(f"'{name}' (pid {process.pid})", found["found"])
            self.assertFalse(self.starts("--name", name))

    def test_colour_is_as_in_the_other_tools(self):
        self.assertNotIn("\x1b", self.tool("gradshm", "doctor")[0])
        self.assertIn("\x1b[32mOK", self.tool("gradshm", "doctor", "--color", "always")[0])
        for no_color, painted in (("", True), ("1", False)):
            process, terminal = self.on_terminal("/usr/bin/env", f"NO_COLOR={no_color}", TOOLS / "gradshm", "doctor")
            self.assertEqual("\x1b[" in self.read_until(terminal, "would start here"), painted)
            process.wait(WATCHDOG_S)

    def test_bad_options_are_code_2(self):
        for arguments in (["--nonsense"], ["--expect", "0"], ["--expect", "x"], ["--name", "a/b"], ["--color", "blue"], ["a", "b"]):
            out, err = self.tool("gradshm", "doctor", *arguments, code=2)
            self.assertEqual(out, "")
            self.assertNotEqual(err, "")

    def test_help_has_examples_and_exit_codes(self):
        out, _ = self.tool("gradshm", "doctor", "--help")
        self.assertIn("Examples:", out)
        self.assertIn("Exit codes: 0 a server would start", out)

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            process = self.popen("gradshm", "doctor", stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(process.wait(WATCHDOG_S), 2)


if __name__ == "__main__":
    unittest.main()
