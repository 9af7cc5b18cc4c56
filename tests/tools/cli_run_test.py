#!/usr/bin/env python3
"""gradshm run from outside: exit codes, signals, and that nothing is left behind."""
import os
import pathlib
import shlex
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cli_driver import SMALL_TSV, TOOLS, WATCHDOG_S, ToolsTest, beacon_path, is_alive  # noqa: E402

LOOP = "while :; do sleep 0.05; done"


class RunTest(ToolsTest):
    def run_workers(self, count, *command, code=0, options=(), **more):
        """Runs to the end under a name of its own and wants nothing left behind."""
        name = self.name()
        result = self.tool("gradshm", "run", "-n", count, "--name", name, *options, "--", *command, code=code, **more)
        self.assert_nothing_left(name)
        return result

    def start_workers(self, count, script, options=(), trap=":"):
        """Started and running: each worker has set its trap and written its pid. Returns (name, gradshm run, pids of the workers)."""
        name = self.name()
        marks = pathlib.Path(self.directory) / name
        marks.mkdir()
        script = f'{trap}; echo $$ > {marks}/$GRADSHM_RANK.new; mv {marks}/$GRADSHM_RANK.new {marks}/$GRADSHM_RANK; {script}'
        process = self.popen("gradshm", "run", "-n", count, "--name", name, *options, "--", "sh", "-c", script)
        self.addCleanup(process.send_signal, signal.SIGKILL)
        self.eventually(lambda: sum(1 for mark in marks.glob("*") if mark.suffix != ".new") == count or process.poll() is not None, "all workers run")
        self.assertIsNone(process.poll())
        return name, process, [int((marks / str(rank)).read_text()) for rank in range(count)]

    def finish(self, process):
        out, err = process.communicate(timeout=WATCHDOG_S)
        return process.returncode, out, err

    def daemon_pid(self, name):
        return int((self.run_directory / name / "lock").read_text())

    def test_all_zero_is_zero_and_quiet(self):
        self.assertEqual(self.run_workers(3, "true"), ("", ""))

    def test_verbose_prints_a_line_a_worker(self):
        err = self.run_workers(2, "true", options=["--verbose"])[1]
        for rank in (0, 1):
            self.assertRegex(err, rf"worker {rank} \(pid \d+\): exit code 0")

    def test_workers_know_rank_world_instance_and_directory(self):
        out, _ = self.run_workers(3, "sh", "-c", 'echo "$GRADSHM_RANK of $GRADSHM_WORLD_SIZE in $GRADSHM_INSTANCE at $GRADSHM_DIR"')
        lines = sorted(out.splitlines())
        self.assertEqual([line.split(" in ")[0] for line in lines], ["0 of 3", "1 of 3", "2 of 3"])
        self.assertTrue(all(line.endswith(f" at {self.run_directory}") for line in lines))

    def test_stale_ranks_in_the_environment_are_replaced(self):
        out, _ = self.run_workers(1, "sh", "-c", 'env | grep ^GRADSHM_RANK=', environment={"GRADSHM_RANK": "77"})
        self.assertEqual(out, "GRADSHM_RANK=0\n")

    def test_a_directory_nobody_chose_is_exported_too(self):
        runtime = pathlib.Path(self.directory) / "xdg"
        runtime.mkdir(mode=0o700)
        out, _ = self.run_workers(1, "sh", "-c", 'echo "$GRADSHM_DIR"', environment={"GRADSHM_DIR": "", "XDG_RUNTIME_DIR": str(runtime)})
        self.assertEqual(out, f"{runtime}/gradshm\n")

    def test_the_name_is_made_of_the_pid_where_none_is_given(self):
        process = self.popen("gradshm", "run", "-n", 1, "--", "sh", "-c", 'echo "$GRADSHM_INSTANCE"')
        self.assertEqual(self.finish(process), (0, f"run-{process.pid}\n", ""))

    def test_the_code_of_the_first_failing_worker_is_returned_and_all_are_reported(self):
        _, err = self.run_workers(3, "sh", "-c", 'case $GRADSHM_RANK in 0) sleep 0.3; exit 4;; 1) exit 3;; esac', code=3, options=["--expect", 1])
        self.assertRegex(err, r"worker 0 \(pid \d+\): exit code 4\n")
        self.assertRegex(err, r"worker 1 \(pid \d+\): exit code 3\n")
        self.assertRegex(err, r"worker 2 \(pid \d+\): exit code 0\n")
        self.assertEqual(err.count("\n"), 3)

    def test_a_worker_that_fails_is_named_at_once(self):
        _, process, _ = self.start_workers(2, f"[ $GRADSHM_RANK = 1 ] && exit 3; {LOOP}", trap="trap 'exit 0' TERM", options=["--expect", 1])
        self.assertRegex(process.stderr.readline(), r"worker 1 \(pid \d+\): exit code 3\n")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)[0], 3)

    def test_too_few_workers_for_round_1_end_the_run(self):
        name, process, pids = self.start_workers(3, LOOP)
        os.kill(pids[1], signal.SIGKILL)
        code, _, err = self.finish(process)
        self.assertEqual(code, 137)
        self.assertIn("worker 1 was killed by signal 9 (SIGKILL) before round 1 opened: the others would wait for it; ending the run\n", err)
        self.assertFalse(any(map(is_alive, pids)))
        self.assert_nothing_left(name)
        err = self.run_workers(2, "sh", "-c", "[ $GRADSHM_RANK = 0 ] && exit 3; exec sleep 1000", code=3)[1]
        self.assertIn("worker 0 ended with exit code 3 before round 1 opened", err)

    def test_those_that_do_not_end_then_are_killed(self):
        _, err = self.run_workers(2, "sh", "-c", "trap '' TERM; sleep 0.2; [ $GRADSHM_RANK = 0 ] && exit 3; while :; do sleep 0.05; done", code=3)
        self.assertRegex(err, r"worker 1 \(pid \d+\): killed by signal 9")

    def test_workers_that_end_well_or_come_from_elsewhere_end_nothing(self):
        self.assertEqual(self.run_workers(2, "sh", "-c", "[ $GRADSHM_RANK = 0 ] && exit 0; sleep 0.3; echo done")[0], "done\n")
        script = "[ $GRADSHM_RANK = 0 ] && exit 3; sleep 0.3; echo done"
        for expect in (1, 4):
            self.assertEqual(self.run_workers(2, "sh", "-c", script, code=3, options=["--expect", expect])[0], "done\n")

    def test_a_worker_ended_by_a_signal_is_128_plus_its_number(self):
        _, err = self.run_workers(2, "sh", "-c", "kill -9 $$", code=137)
        self.assertIn("killed by signal 9 (SIGKILL)", err)

    def test_one_killed_worker_does_not_end_the_others(self):
        out, _ = self.run_workers(2, "sh", "-c", "[ $GRADSHM_RANK = 1 ] && kill -9 $$; sleep 0.2; echo done", code=137, options=["--expect", 1])
        self.assertEqual(out, "done\n")

    def test_a_command_that_cannot_be_executed_is_127(self):
        self.assertIn("./no-such-program: No such file", self.run_workers(2, "./no-such-program", code=127)[1])
        self.assertIn("Permission denied", self.run_workers(2, self.file("data", "no program"), code=127)[1])

    def test_options_behind_the_separator_are_the_command_s_own(self):
        out, _ = self.run_workers(1, "echo", "--help", "-n", "7", "--", "--name")
        self.assertEqual(out, "--help -n 7 -- --name\n")

    def test_rank_0_reads_our_input_and_the_others_nothing(self):
        out, _ = self.run_workers(2, "sh", "-c", 'echo "$GRADSHM_RANK:$(cat)"', input="hello")
        self.assertEqual(sorted(out.splitlines()), ["0:hello", "1:"])

    def test_pinned_workers_run_on_one_cpu_each(self):
        cpus = sorted(os.sched_getaffinity(0))
        out, _ = self.run_workers(3, "sh", "-c", 'echo "$GRADSHM_RANK $(grep Cpus_allowed_list /proc/self/status | cut -f2)"', options=["--pin"])
        self.assertEqual(sorted(out.splitlines()), [f"{rank} {cpus[rank % len(cpus)]}" for rank in range(3)])

    def test_signals_are_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            with self.subTest(number):
                _, process, pids = self.start_workers(2, LOOP, trap=f"trap 'exit 9' {number.name[3:]}")
                process.send_signal(number)
                code, _, err = self.finish(process)
                self.assertEqual(code, 9, err)
                self.assertFalse(any(map(is_alive, pids)))

    def test_control_c_on_a_terminal_reaches_each_worker_once(self):
        script = "trap 'count=$((count + 1)); late=0' INT; echo up; while [ ${late:=-99} -lt 10 ]; do sleep 0.05; late=$((late + (late >= 0))); done; echo got:$count"
        name = self.name()
        process, terminal = self.on_terminal("gradshm", "run", "-n", 1, "--name", name, "--", "sh", "-c", script)
        self.read_until(terminal, "up")
        os.write(terminal, b"\x03")
        self.assertIn("got:1", self.read_until(terminal, r"got:\d+\r?\n"))
        self.assertEqual(process.wait(WATCHDOG_S), 0)
        self.assert_nothing_left(name)

    def test_workers_that_do_not_listen_are_killed_after_the_second_interrupt(self):
        name, process, pids = self.start_workers(2, LOOP, trap="trap '' INT")
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)  # two at once would be one
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process)[0], 137)
        self.assertFalse(any(map(is_alive, pids)))
        self.assert_nothing_left(name)

    def test_kill_9_leaves_no_process_and_nothing_behind(self):
        name, process, pids = self.start_workers(3, "exec sleep 1000")
        pids.append(self.daemon_pid(name))
        self.assertTrue(all(map(is_alive, pids)))
        process.kill()
        self.eventually(lambda: not any(map(is_alive, pids)), f"{pids} end")
        self.eventually(lambda: not beacon_path(name).exists() and not (self.run_directory / name).exists(), "the server cleans up")

    def test_kill_9_while_it_starts_leaves_nothing_behind(self):
        for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.05):
            name = self.name()
            process = self.popen("gradshm", "run", "-n", 2, "--name", name, "--", "sleep", "1000")
            time.sleep(delay)
            process.kill()
            process.communicate()  # its pipes close when workers and server are gone too
            self.assert_nothing_left(name)

    def test_a_server_that_is_killed_is_reported(self):
        name, process, _ = self.start_workers(1, "while [ ! -e $GRADSHM_DIR/go ]; do sleep 0.05; done")
        os.kill(self.daemon_pid(name), signal.SIGKILL)
        self.assertRegex(process.stderr.readline(), r"the server \(pid \d+\) ended before its workers: killed by signal 9")
        self.assertIn(f"the workers look for a new one for 30 s; this starts it: GRADSHM_DIR={self.run_directory} {TOOLS}/gradshmd --name={name} --expect=1\n",
                      process.stderr.readline())
        self.assertIn("DEAD ", self.tool("gradshm-top", name, "--once", code=3)[0])
        (self.run_directory / "go").touch()
        self.assertEqual(self.finish(process)[0], 0)
        self.assert_nothing_left(name)

    def test_a_killed_server_is_replaced_by_the_command_that_is_printed(self):
        name, process, _ = self.start_workers(1, "while [ ! -e $GRADSHM_DIR/go ]; do sleep 0.05; done",
                                              options=["--group", "it's", "--op", "sum", "--rejoin-timeout", "90s"])
        os.kill(self.daemon_pid(name), signal.SIGKILL)
        process.stderr.readline()
        sentence, _, command = process.stderr.readline().strip().partition("; this starts it: ")
        self.assertTrue(sentence.endswith(" for 90 s"), sentence)
        words = shlex.split(command)
        self.assertEqual(words[1:], [str(TOOLS / "gradshmd"), f"--name={name}", "--expect=1", "--op=sum", "--rejoin-timeout=90", "--group=it's"])
        with self.server(*words[3:], name=name) as (_, successor):
            self.eventually(lambda: self.daemon_pid(name) == successor.pid, "the successor has the name")
            (self.run_directory / "go").touch()
            self.assertEqual(self.finish(process)[0], 0)
            self.assertTrue(beacon_path(name).exists())  # a living server's
        self.assert_nothing_left(name)

    def test_a_server_that_does_not_start_is_125_with_its_own_message(self):
        wrong = self.file("wrong.tsv", "garbage")
        self.assertIn("wrong.tsv", self.run_workers(1, "true", code=125, options=["--layout", wrong])[1])
        self.assertIn("cannot start the server", self.run_workers(1, "true", code=125, environment={"GRADSHM_DAEMON": "/nowhere/gradshmd"})[1])

    def test_a_second_run_of_the_same_name_is_refused_and_the_first_goes_on(self):
        name, process, pids = self.start_workers(1, "exec sleep 1000")
        _, err = self.tool("gradshm", "run", "-n", 1, "--name", name, "--", "true", code=125)
        self.assertIn(f"pid {self.daemon_pid(name)}", err)
        self.assertIsNone(process.poll())
        self.assertTrue(is_alive(pids[0]))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)[0], 143)

    def test_two_runs_side_by_side_do_not_meet(self):
        runs = [self.start_workers(1, LOOP, trap="trap 'exit 0' TERM") for _ in range(2)]
        listed, _ = self.tool("gradshm", "ls")
        for name, process, _ in runs:
            self.assertIn(name, listed)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(self.finish(process), (0, "", ""))
            self.assert_nothing_left(name)

    def test_options_reach_the_server(self):
        name, process, _ = self.start_workers(1, LOOP, trap="trap 'exit 0' TERM",
                                              options=["--layout", self.file("small.tsv", SMALL_TSV), "--op", "sum", "--expect", 7, "--max-workers", 9,
                                                       "--bucket-bytes", 1000, "--reducer-threads", 1, "--group", "fc1.b", "--group", "fc1.w"])
        out, _ = self.tool("gradshm-top", name, "--once")
        for text in ("op sum", "at most 9", "round 1 opens with 7 ready workers; no worker is attached", "2 buckets of 1.0 kB", "2 groups", "1 reducer thread "):
            self.assertIn(text, out)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)[0], 0)


class EmbeddedRunTest(RunTest):
    """--embedded: everything of the above that is not about the server's own process holds for a server in this process."""

    test_kill_9_leaves_no_process_and_nothing_behind = None  # nobody is left to tidy up: see below
    test_kill_9_while_it_starts_leaves_nothing_behind = None
    test_a_server_that_is_killed_is_reported = None
    test_a_killed_server_is_replaced_by_the_command_that_is_printed = None
    test_a_server_that_does_not_start_is_125_with_its_own_message = None

    def popen(self, program, *arguments, **more):
        if program == "gradshm" and arguments[0] == "run":
            arguments = ("run", "--embedded", *arguments[1:])
        return super().popen(program, *arguments, **more)

    def test_the_server_is_in_the_process_of_gradshm_run(self):
        name, process, _ = self.start_workers(1, LOOP, trap="trap 'exit 0' TERM")
        self.assertEqual(self.daemon_pid(name), process.pid)
        out, _ = self.tool("gradshm", "ls", "--json")
        self.assertIn(f'"{name}"', out)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process), (0, "", ""))
        self.assert_nothing_left(name)

    def test_workers_inherit_nothing_of_the_server(self):
        out, _ = self.run_workers(1, "sh", "-c", 'ls -l /proc/self/fd | grep -c "event\\|socket:\\|$GRADSHM_DIR"; grep ^SigBlk: /proc/self/status')
        self.assertEqual(out, "0\nSigBlk:\t0000000000000000\n")

    def test_kill_9_ends_the_workers_and_the_next_run_of_the_name_tidies_up(self):
        name, process, pids = self.start_workers(3, "exec sleep 1000")
        process.kill()
        self.eventually(lambda: not any(map(is_alive, pids)), f"{pids} end")
        self.assertTrue(beacon_path(name).exists())
        self.tool("gradshm", "run", "-n", 1, "--name", name, "--", "true")
        self.assert_nothing_left(name)

    def test_a_server_that_does_not_start_is_125_with_a_sentence(self):
        _, err = self.run_workers(1, "true", code=125, options=["--layout", self.file("wrong.tsv", "garbage")])
        self.assertRegex(err, r"gradshm run: cannot start the server: .*wrong\.tsv")

    def test_the_server_s_log_is_shown_when_asked_for(self):
        _, err = self.run_workers(1, TOOLS.parent / "examples" / "two_workers", code=0, options=["--expect", 2, "--verbose"])
        self.assertRegex(err, r"gradshm run: server: worker [01] \(pid \d+, 'two_workers'\): ")


if __name__ == "__main__":
    unittest.main()
