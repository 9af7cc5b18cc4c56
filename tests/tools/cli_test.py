#!/usr/bin/env python3
"""gradshm and gradshm-top from outside: what they print, how they end, what they leave."""
import fcntl
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cli_driver import SMALL_TSV, TOOLS, WATCHDOG_S, ToolsTest, beacon_path, documented, fields  # noqa: E402


class LsTest(ToolsTest):
    def test_servers_are_listed_and_gone_after_their_end(self):
        with self.server() as (first, process), self.server() as (second, _):
            out, _ = self.tool("gradshm", "ls")
            for name in (first, second):
                self.assertRegex(out, rf"(?m)^{re.escape(name)} .* alive ")
            self.assertIn(str(process.pid), out)
            document = json.loads(self.tool("gradshm", "ls", "--json")[0])
            found = {entry["instance"]: entry for entry in document["instances"]}
            self.assertEqual(document["schema"], 1)
            self.assertEqual(found[first]["pid"], process.pid)
            self.assertTrue(found[first]["alive"])
            self.assertLessEqual(fields(document), documented("gradshm ls --json"))
        self.assertNotIn(first, self.tool("gradshm", "ls")[0])
        self.assert_nothing_left(first)

    def test_a_killed_server_is_listed_as_dead(self):
        with self.server() as (name, process):
            process.kill()
            process.wait()
            self.assertRegex(self.tool("gradshm", "ls")[0], rf"(?m)^{re.escape(name)} .* dead ")

    def test_clean_removes_what_dead_servers_left_and_nothing_else(self):
        with self.server() as (dead, process), self.server() as (living, _):
            process.kill()
            process.wait()
            out, _ = self.tool("gradshm", "ls", "--clean")
            self.assertIn(f"removed {dead} (pid {process.pid}, {self.run_directory}/{dead}/sock)\n", out)
            self.assertNotIn(living, out)
            self.assert_nothing_left(dead)
            self.assertTrue(beacon_path(living).exists())
            self.assertEqual({path.name for path in (self.run_directory / living).iterdir()}, {"sock", "lock"})
            self.assertNotIn(dead, self.tool("gradshm", "ls", "--clean")[0])
            self.tool("gradshm", "ls", "--clean", "--json", code=1)


    def test_clean_leaves_what_another_server_has_the_lock_of_and_what_is_not_ours(self):
        with self.server() as (name, process):
            process.kill()
            process.wait()
            directory = self.run_directory / name
            with open(directory / "lock") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self.assertNotIn(name, self.tool("gradshm", "ls", "--clean")[0])
                self.assertTrue(beacon_path(name).exists())
                self.assertTrue((directory / "sock").exists())
            (directory / "notes").touch()
            self.assertIn(f"removed {name} ", self.tool("gradshm", "ls", "--clean")[0])
            self.assertFalse(beacon_path(name).exists())
            self.assertEqual([path.name for path in directory.iterdir()], ["notes"])


class LayoutTest(ToolsTest):
    def test_a_file_is_shown_as_table_json_and_tsv(self):
        path = self.file("small.tsv", SMALL_TSV)
        out, _ = self.tool("gradshm", "layout", "show", path)
        self.assertRegex(out, r"(?m)^[0-9a-f]{16}  fc1\.weight  f32 +\[256,784\] +200704 +0 +0  default")
        self.assertRegex(out, r"(?m)^2 parameters, 200,960 elements, 803\.8 kB \(803,840 bytes\) a slot, 1 bucket, 1 group, fingerprint [0-9a-f]{16}$")
        document = json.loads(self.tool("gradshm", "layout", "show", path, "--json")[0])
        self.assertEqual([parameter["name"] for parameter in document["parameters"]], ["fc1.weight", "fc1.bias"])
        self.assertLessEqual(fields(document), documented("gradshm layout show --json"))
        again = self.file("again.tsv", self.tool("gradshm", "layout", "show", path, "--tsv")[0])
        self.assertEqual(json.loads(self.tool("gradshm", "layout", "show", again, "--json")[0]), document)

    def test_on_a_terminal_no_line_is_wider_than_it(self):
        path = self.file("long.tsv", SMALL_TSV + "a" * 500 + "\tfloat32\t1\t1\n")
        process, terminal = self.on_terminal("gradshm", "layout", "show", path)
        lines = self.read_until(terminal, "fingerprint").splitlines()
        self.assertEqual(process.wait(WATCHDOG_S), 0)
        self.assertTrue(all(len(line) <= 100 for line in lines if "parameters, " not in line), lines)
        self.assertIn("aaa~ ", "\n".join(lines))

    def test_an_instance_is_shown_as_the_file_it_was_started_with(self):
        path = self.file("small.tsv", SMALL_TSV)
        with self.server("--layout", path) as (name, _):
            self.assertEqual(self.tool("gradshm", "layout", "show", name)[0], self.tool("gradshm", "layout", "show", path)[0])

    def test_an_instance_without_a_layout_says_so(self):
        with self.server() as (name, _):
            self.assertIn("no layout yet", self.tool("gradshm", "layout", "show", name, code=2)[1])

    def test_a_killed_server_s_layout_is_code_3(self):
        path = self.file("small.tsv", SMALL_TSV)
        with self.server("--layout", path) as (name, process):
            process.kill()
            process.wait()
            for arguments in (["show", name], ["diff", name, path]):
                self.assertIn(f"pid {process.pid} ", self.tool("gradshm", "layout", *arguments, code=3)[1])

    def test_what_is_neither_file_nor_instance_is_code_2(self):
        name = self.name()
        for wrong in (name, "nowhere", "./no such/file", "no/such.tsv"):
            for arguments in (["show", wrong], ["diff", wrong, self.file("a.tsv", SMALL_TSV)]):
                self.assertIn(f"'{wrong}' is neither a file nor a running instance: ", self.tool("gradshm", "layout", *arguments, code=2)[1])

    def test_a_plain_name_is_an_instance_first_and_any_other_a_file_first(self):
        self.file("plain", SMALL_TSV)
        self.file("dotted.name", SMALL_TSV)
        shown = lambda name: self.tool("gradshm", "layout", "show", name, "--tsv", cwd=self.directory)[0]  # noqa: E731
        other = self.file("other.tsv", SMALL_TSV.replace("fc1", "fc9"))
        self.assertIn("fc1", shown("plain"))
        with self.server("--layout", other, name="plain"), self.server("--layout", other, name="dotted.name"):
            self.assertIn("fc9", shown("plain"))
            self.assertIn("fc1", shown("./plain"))
            self.assertIn("fc1", shown("dotted.name"))

    def test_a_full_disk_is_an_error(self):
        path = self.file("full.tsv", SMALL_TSV)
        for arguments in (["gradshm", "ls"], ["gradshm", "layout", "show", path], ["gradshm", "layout", "check", path]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([TOOLS / arguments[0], *arguments[1:]], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(done.returncode, 1, arguments)
            self.assertIn("No space left on device", done.stderr)

    def test_layout_diff_lists_what_is_missing_extra_and_different(self):
        header = SMALL_TSV.splitlines()[0]
        a = self.file("a.tsv", f"{header}\nsame\tfloat32\t2\t2\nless\tfloat32\t3\t3\nother\tfloat32\t2x3\t6\n")
        b = self.file("b.tsv", f"{header}\nother\tfloat32\t3x2\t6\nmore\tfloat16\t()\t1\nsame\tfloat32\t2\t2\n")
        self.assertEqual(self.tool("gradshm", "layout", "diff", a, b, code=6)[0],
                         "- less  f32[3]\n! other  f32[2,3] in A, f32[3,2] in B\n+ more  f16[]\n")
        self.assertIn("the same 3 parameters", self.tool("gradshm", "layout", "diff", a, a)[0])
        self.tool("gradshm", "layout", "diff", a, "no-such-thing", code=2)

    def test_check_prints_totals(self):
        self.assertIn("2 parameters, 200,960 elements", self.tool("gradshm", "layout", "check", self.file("small.tsv", SMALL_TSV))[0])

    def test_check_of_a_malformed_file_is_code_5_and_names_the_line(self):
        wrong = self.file("wrong.tsv", SMALL_TSV + "fc2.bias\tfloat32\t10\t11\n")
        self.assertIn("wrong.tsv", error := self.tool("gradshm", "layout", "check", wrong, code=5)[1])
        self.assertIn("4", error)
        self.tool("gradshm", "layout", "check", self.file("empty.tsv", ""), code=5)
        self.tool("gradshm", "layout", "check", self.file("none.tsv", SMALL_TSV.splitlines()[0] + "\n"), code=5)
        self.tool("gradshm", "layout", "check", self.file("garbage.safetensors", "garbage"), code=5)

    def test_check_of_no_file_is_code_2(self):
        self.assertIn("/nowhere.tsv", self.tool("gradshm", "layout", "check", self.directory + "/nowhere.tsv", code=2)[1])


class TopTest(ToolsTest):
    def test_a_table_names_the_instance_and_the_round(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV), "--expect", 3) as (name, process):
            for arguments in ([name], ["--name", name]):
                out, _ = self.tool("gradshm-top", "--once", *arguments)
                self.assertIn(f"gradshm {name}  running  pid {process.pid}", out)
                self.assertIn("round 1 opens with 3 ready workers; no worker is attached", out)
            self.assertIn(f"gradshm {name}", self.tool("gradshm-top", "--once", environment={"GRADSHM_INSTANCE": name})[0])

    def test_json_is_one_document_or_with_n_one_a_line(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, process):
            document = json.loads(self.tool("gradshm-top", name, "--json")[0])
            self.assertEqual((document["schema"], document["state"], document["daemon"]["pid"]), (1, "live", process.pid))
            self.assertLessEqual(fields(document), documented("gradshm-top --json"))
            lines = self.tool("gradshm-top", name, "--json", "-n", 3, "-d", 0.01)[0].splitlines()
            self.assertEqual([json.loads(line)["instance"] for line in lines], [name] * 3)

    def test_tables_follow_one_another_where_there_is_no_terminal(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, _):
            out, _ = self.tool("gradshm-top", name, "-n", 3, "-d", 0.01)
            self.assertEqual(out.count(f"gradshm {name}"), 3)
            self.assertNotIn("\x1b", out)

    def test_on_a_terminal_frames_replace_one_another_and_fit(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, _):
            top, terminal = self.on_terminal("gradshm-top", name, "-d", 0.05)
            frames = self.read_until(terminal, r"\x1b\[J[^$]*\x1b\[J")
            self.assertIn("\x1b[H\x1b[1mgradshm " + name, frames)
            self.assertLess(frames.split("\x1b[J")[0].count("\n"), 30)
            os.write(terminal, b"\x03")
            self.assertEqual(top.wait(WATCHDOG_S), 0)

    def test_colour_comes_when_asked_for(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, _):
            self.assertIn("\x1b[", self.tool("gradshm-top", name, "--once", "--color", "always")[0])
            self.assertNotIn("\x1b[", self.tool("gradshm-top", name, "--once", "--color", "never")[0])

    def test_a_server_without_a_layout_waits_for_its_first_worker(self):
        with self.server() as (name, _):
            self.assertIn("waits for its first worker", self.tool("gradshm-top", name, "--once")[0])
            document = json.loads(self.tool("gradshm-top", name, "--json")[0])
            self.assertEqual(document["state"], "no-layout")
            self.assertLessEqual(fields(document), documented("gradshm-top --json without a picture"))

    def test_no_such_instance_is_code_2(self):
        name = self.name()
        self.assertIn(name, self.tool("gradshm-top", name, "--once", code=2)[1])

    def test_a_server_in_another_directory_is_pointed_at(self):
        with self.server() as (name, process):
            _, err = self.tool("gradshm-top", name, "--once", code=2, environment={"GRADSHM_DIR": self.directory + "/elsewhere"})
            self.assertIn(f"pid {process.pid} runs under that name, with its socket at {self.run_directory}/{name}/sock", err)

    def test_a_dead_server_in_another_directory_is_pointed_at_too(self):
        elsewhere = {"GRADSHM_DIR": self.directory + "/elsewhere"}
        with self.server() as (name, process):
            process.kill()
            process.wait()
            for command in (["gradshm-top", name, "--once"], ["gradshm", "layout", "show", name], ["gradshm", "dump", name, "--param", "x"]):
                _, err = self.tool(*command, code=2, environment=elsewhere)
                self.assertIn(f"pid {process.pid} ran under that name and was killed, with its socket at {self.run_directory}/{name}/sock: is GRADSHM_DIR the same?", err)

    def test_a_socket_that_answers_garbage_is_refused(self):
        name = self.name()
        (self.run_directory / name).mkdir(mode=0o700, parents=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self.run_directory / name / "sock"))
            listener.listen()
            for garbage in (b"x", b"x" * 100, b"\0" * 4096):
                top = self.popen("gradshm-top", name, "--once")
                connection, _ = listener.accept()
                connection.recv(4096)
                connection.send(garbage)
                out, err = top.communicate(timeout=WATCHDOG_S)
                connection.close()
                self.assertEqual(top.returncode, 4, out + err)
                self.assertRegex(err, r"^gradshm-top: .")

    def test_a_killed_server_is_dead_and_code_3(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, process):
            process.kill()
            process.wait()
            out, _ = self.tool("gradshm-top", name, "--once", code=3)
            self.assertRegex(out, r"DEAD \d")
            for part in (f"pid {process.pid}", "round 0 closed, no workers, 2 parameters, 803.8 kB a slot", f"{self.run_directory}/{name}/sock", f"gradshmd --name {name}"):
                self.assertIn(part, out)
            document = json.loads(self.tool("gradshm-top", name, "--json", code=3)[0])
            self.assertEqual((document["schema"], document["state"], document["beacon"]["pid"]), (1, "dead", process.pid))
            self.assertEqual(document["silent_ns"], document["taken_ns"] - document["beacon"]["progress_ns"])
            self.assertLessEqual(fields(document), documented("gradshm-top --json without a picture"))

    def watch(self, name, *arguments, **options):
        top = self.popen("gradshm-top", name, "-d", 0.05, *arguments, **options)
        self.assertIn(name, top.stdout.readline())
        return top

    def look_for(self, top, pattern):
        """Lines of its output until one has the pattern."""
        for line in top.stdout:
            if re.search(pattern, line):
                return
        self.fail(f"it ended without {pattern}")

    def test_live_it_shows_a_killed_server_as_dead_until_the_next_one_answers(self):
        for layout in (["--layout", self.file("small.tsv", SMALL_TSV)], []):
            with self.subTest(layout), self.server(*layout) as (name, process):
                top = self.watch(name)
                process.kill()
                process.wait()
                self.look_for(top, r"DEAD \d")
                late = self.watch(name)  # one that never saw it alive
                self.look_for(late, "its last beacon: round 0 closed")
                self.assertEqual((top.poll(), late.poll()), (None, None))
                # Not by the beacon: that of the dead one is there.
                with self.server("--layout", self.file("small.tsv", SMALL_TSV), name=name) as (_, new):
                    for each in (top, late):
                        self.look_for(each, rf"gradshm {re.escape(name)}  running  pid {new.pid}")
                        each.send_signal(signal.SIGINT)
                        self.assertEqual(each.wait(WATCHDOG_S), 0)

    def test_it_ends_with_code_3_when_the_server_ends_while_it_looks(self):
        for number, arguments in ((signal.SIGKILL, ["-n", 100000]), (signal.SIGTERM, ["-n", 100000]), (signal.SIGTERM, [])):
            with self.subTest(number), self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, process):
                top = self.watch(name, *arguments)
                process.send_signal(number)
                out, err = top.communicate(timeout=WATCHDOG_S)
                self.assertEqual(top.returncode, 3, out + err)
                self.assertRegex(out, "DEAD" if number == signal.SIGKILL else "STOPPED")

    def test_signals_and_a_closed_pipe_end_it_cleanly(self):
        with self.server("--layout", self.file("small.tsv", SMALL_TSV)) as (name, _):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                top = self.watch(name)
                top.send_signal(number)
                _, err = top.communicate(timeout=WATCHDOG_S)
                self.assertEqual((top.returncode, err), (0, ""))
            top = self.watch(name)
            top.stdout.close()
            self.assertEqual(top.wait(WATCHDOG_S), 0)
            self.assertEqual(top.stderr.read(), "")


class UsageTest(ToolsTest):
    def test_bad_options_are_code_1(self):
        for program, *arguments in (["gradshm"], ["gradshm", "nonsense"], ["gradshm", "ls", "--nonsense"], ["gradshm", "layout"],
                                    ["gradshm", "layout", "show"], ["gradshm", "layout", "show", "a", "--json", "--tsv"],
                                    ["gradshm", "run", "--", "true"], ["gradshm", "run", "-n", "0", "--", "true"],
                                    ["gradshm", "run", "-n", "257", "--", "true"], ["gradshm", "run", "-n", "x", "--", "true"],
                                    ["gradshm", "run", "-n", "1"], ["gradshm", "run", "-n", "1", "--"], ["gradshm", "run", "-n", "1", "true"],
                                    ["gradshm", "run", "-n", "1", "--name", "a/b", "--", "true"],
                                    *(["gradshm", "run", "-n", "1", option, wrong, "--", "true"]
                                      for option, wrong in (("--op", "nonsense"), ("--bucket-bytes", "0"), ("--bucket-bytes", "x"),
                                                            ("--reducer-threads", "1025"), ("--max-workers", "0"), ("--max-workers", "257"))),
                                    ["gradshm-top", "--nonsense"], ["gradshm-top", "a/b"], ["gradshm-top", "-n", "0"], ["gradshm-top", "-d", "-1"],
                                    ["gradshm-top", "-d", "nan"], ["gradshm-top", "--color", "blue"], ["gradshm-top", "--once", "-n", "2"]):
            with self.subTest(program=program, arguments=arguments):
                out, err = self.tool(program, *arguments, code=1)
                self.assertEqual(out, "")
                self.assertNotEqual(err, "")

    def test_a_command_without_the_separator_is_told_about_it(self):
        for arguments in (["true"], ["--nonsense"], ["ls"]):
            self.assertIn("behind a --", self.tool("gradshm", "run", "-n", 1, *arguments, code=1)[1])

    def test_help_has_examples_and_exit_codes(self):
        for program, *arguments in (["gradshm"], ["gradshm-top"], ["gradshm", "run"]):
            out, _ = self.tool(program, *arguments, "--help")
            self.assertIn("Examples:", out)
            self.assertIn("Exit codes:", out)
        self.assertIn("6 the layouts differ", self.tool("gradshm", "--help")[0])
        self.assertIn("gradshm layout diff default my.tsv", self.tool("gradshm", "layout", "--help")[0])
        for arguments in (["ls"], ["layout", "show"], ["layout", "check"]):
            self.assertIn("Exit codes:", self.tool("gradshm", *arguments, "--help")[0])

    def test_version_is_printed(self):
        for program in ("gradshm", "gradshm-top"):
            self.assertRegex(self.tool(program, "--version")[0], rf"^{program} \d+\.\d+\.\d+\n$")

    def test_an_unknown_subcommand_is_named(self):
        for arguments in (["nonsense"], ["layout", "nonsense"]):
            self.assertIn("'nonsense' is no subcommand", self.tool("gradshm", *arguments, code=1)[1])


if __name__ == "__main__":
    unittest.main()
