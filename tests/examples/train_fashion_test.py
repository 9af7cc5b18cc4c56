#!/usr/bin/env python3
"""The demo from outside: what it prints, what it refuses, and how it ends when others end it."""
import json
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from cli_driver import SOURCE, TOOLS, WATCHDOG_S, ToolsTest, beacon_path  # noqa: E402

EXAMPLES = TOOLS.parent / "examples"
TRAIN = EXAMPLES / "train_fashion"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
MANY_ROUNDS = 1_000_000


class ExampleTest(ToolsTest):
    def train(self, workers, *options, run=(), code=0):
        """Returns (stdout, stderr) of all workers together."""
        return self.tool("gradshm", "run", "-n", workers, "--bucket-bytes", 65536, *run, "--", TRAIN, *options, code=code)


@unittest.skipUnless(DATA.is_dir(), "dataset-fashion-mnist is not installed")
class TrainingTest(ExampleTest):
    def start_training(self, workers):
        """Returns (gradshm run, instance, pids by rank) once some rounds are closed."""
        name = self.name()
        process = self.popen("gradshm", "run", "-n", workers, "--name", name, "--", TRAIN, "--quiet", "--rounds", MANY_ROUNDS)
        self.eventually(lambda: self.closed_round(name) >= 3 or process.poll() is not None, "three rounds are closed")
        self.assertIsNone(process.poll(), "the training ended by itself")
        return process, name, {worker["rank"]: worker["pid"] for worker in self.look(name)["workers"]}

    def look(self, name):
        return json.loads(self.tool("gradshm-top", "--json", name)[0])

    def closed_round(self, name):
        instances = json.loads(self.tool("gradshm", "ls", "--json")[0])["instances"]
        return next((instance["closed_round"] for instance in instances if instance["instance"] == name), 0)

    def finish(self, process):
        out, err = process.communicate(timeout=WATCHDOG_S)
        return process.returncode, out, err

    def test_uneven_shards_give_the_bits_of_the_serial_run_and_copy_nothing(self):
        out, err = self.train(3, "--rounds", 12, "--quiet")
        self.assertEqual((out.count("\n"), err), (1, ""))
        result = json.loads(out)
        self.assertEqual(list(result), ["workers", "rounds", "seconds", "samples_per_second", "test_accuracy", "bytes_copied",
                                        "max_abs_difference"])
        self.assertEqual((result["workers"], result["rounds"]), (3, 12))
        self.assertEqual((result["bytes_copied"], result["max_abs_difference"]), (0, 0.0))
        self.assertGreater(result["test_accuracy"], 0.3)

    def test_the_number_of_workers_does_not_change_what_is_checked(self):
        for workers in (1, 2, 5):
            result = json.loads(self.train(workers, "--rounds", 6, "--batch", 40, "--check-rounds", 4, "--quiet")[0])
            self.assertEqual((result["workers"], result["bytes_copied"], result["max_abs_difference"]), (workers, 0, 0.0))

    def test_without_a_check_the_difference_is_null(self):
        self.assertIsNone(json.loads(self.train(1, "--rounds", 2, "--check-rounds", 0, "--quiet")[0])["max_abs_difference"])

    def test_progress_goes_to_stderr_as_plain_lines(self):
        out, err = self.train(2, "--rounds", 5)
        self.assertRegex(err, r"(?m)^train_fashion: round 5 of 5, loss \d\.\d+, \d+ samples/s$")
        self.assertNotRegex(err, r"[\x1b\r]")
        json.loads(out)

    def test_a_term_makes_all_workers_leave(self):
        process, name, _ = self.start_training(3)
        process.send_signal(signal.SIGTERM)
        code, out, _ = self.finish(process)
        self.assertEqual((code, out), (128 + signal.SIGTERM, ""))
        self.assertFalse(beacon_path(name).exists())

    def test_a_killed_worker_does_not_stop_the_others(self):
        process, name, pids = self.start_training(3)
        os.kill(pids[2], signal.SIGKILL)
        self.eventually(lambda: [0, 1] in [one["contributors"] for one in self.look(name)["rounds"]], "a round without worker 2 is closed")
        process.send_signal(signal.SIGTERM)
        code, _, err = self.finish(process)
        self.assertEqual(code, 128 + signal.SIGKILL)
        self.assertRegex(err, r"from round \d+ on, only 2 of 3 workers take part")

    def test_a_killed_server_is_said_by_every_worker(self):
        process, name, _ = self.start_training(2)
        os.kill(self.look(name)["daemon"]["pid"], signal.SIGKILL)
        code, _, err = self.finish(process)
        self.assertEqual(code, 1)
        for rank in (0, 1):
            self.assertRegex(err, rf"worker {rank}: (round \d+|the commit of \S+): the server has gone")

    def test_a_missing_worker_is_noticed_in_the_first_round(self):
        _, err = self.tool("gradshm", "run", "-n", 1, "--", "env", "GRADSHM_WORLD_SIZE=2", TRAIN, "--rounds", 3, code=1)
        self.assertIn("round 1 was made by 1 instead of 2 workers; each training needs a server of its own", err)

    def test_a_server_that_does_not_average_is_refused(self):
        self.assertIn("start one with --op mean", self.train(1, "--rounds", 3, run=("--op", "sum"), code=1)[1])

    def test_a_loss_that_is_not_finite_ends_the_training(self):
        _, err = self.train(1, "--rounds", 100, "--learning-rate", 1e6, code=1)
        self.assertRegex(err, r"the loss is not finite after round \d+; a smaller --learning-rate may help")

    def test_fewer_samples_than_workers_are_refused(self):
        self.assertIn("--batch 2 must be at least the number of workers (3)", self.train(3, "--batch", 2, code=1)[1])

    def test_no_server_is_said(self):
        _, err = self.tool(TRAIN, "--instance", self.name(), code=1)
        self.assertRegex(err, r"worker 0: cannot attach to '.*': no server")

    def test_the_demo_script_judges_the_outcome(self):
        demo = SOURCE / "tools" / "demo"
        out, err = self.tool(demo, "-n", 2, "--rounds", 20, "--quiet", code=1, environment={"GRADSHM_BUILD": str(TOOLS.parent)})
        self.assertRegex(out, r"NO: +the model has learnt: test accuracy is at least 0\.86 \(0\.\d+\)")
        self.assertRegex(out, r"yes: gradshm copied 0 bytes between workers \(its counter\) \(0\)")
        self.assertRegex(out, r"yes: after the first 20 rounds the weights equal a serial run's: largest difference \(0\.0\)")
        self.assertIn("not all of it is as promised", err)


class UsageTest(ExampleTest):
    def test_help_has_examples_and_version_a_number(self):
        self.assertIn("gradshm run -n 4 -- train_fashion", self.tool(TRAIN, "--help")[0])
        self.assertRegex(self.tool(TRAIN, "--version")[0], r"^train_fashion of gradshm \d+\.\d+\.\d+\n$")

    def test_wrong_usage_is_code_2(self):
        for wrong in (["--epochs", 0], ["--rounds", -1], ["--batch", 0], ["--learning-rate", "nan"], ["--seed", -1], ["surplus"], ["--bogus"]):
            out, err = self.tool(TRAIN, *wrong, code=2)
            self.assertEqual(out, "")
            self.assertRegex(err, r"--help")

    def test_an_environment_that_makes_no_sense_is_refused(self):
        for rank, world, sentence in (("x", "4", "GRADSHM_RANK='x', which is not a number"), ("4", "4", "ranks go from 0"),
                                      ("0", "", "GRADSHM_WORLD_SIZE='', which is not"), ("0", "257", "at most 255")):
            _, err = self.tool(TRAIN, code=1, environment={"GRADSHM_RANK": rank, "GRADSHM_WORLD_SIZE": world})
            self.assertIn(sentence, err)

    def test_missing_data_names_directory_and_package(self):
        _, err = self.tool(TRAIN, "--data", "/nonexistent", code=1)
        self.assertIn("there is no directory '/nonexistent'; install the Debian package dataset-fashion-mnist", err)
        _, err = self.tool(TRAIN, "--data", self.directory, code=1)
        self.assertIn(f"cannot read '{self.directory}/train-images-idx3-ubyte.gz': No such file or directory", err)

    def test_the_demo_script_checks_its_options_and_its_help_needs_no_build(self):
        demo, nowhere = SOURCE / "tools" / "demo", {"GRADSHM_BUILD": "/nonexistent"}
        self.assertIn("usage: tools/demo", self.tool(demo, "--help", environment=nowhere)[0])
        for workers in ("0", "17", "many"):
            self.assertIn("the number of workers is 1 to 16", self.tool(demo, "-n", workers, code=1, environment=nowhere)[1])


class TwoWorkersTest(ExampleTest):
    def test_both_see_the_mean_over_all_samples(self):
        out, _ = self.tool("gradshm", "run", "-n", 1, "--expect", 2, "--", EXAMPLES / "two_workers")
        self.assertEqual(sorted(out.splitlines()),
                         [f"worker {rank} sees the mean over 2 workers and 4 samples: 1 2 3" for rank in (0, 1)])

    def test_without_a_server_it_says_so(self):
        _, err = self.tool(EXAMPLES / "two_workers", self.name(), code=1)
        self.assertIn("two_workers: gradshm_attach: cannot attach to", err)


class EmbeddedTest(ExampleTest):
    def test_threads_of_one_program_fit_the_line_with_a_server_in_it(self):
        self.assertEqual(self.tool(EXAMPLES / "embedded"), ("4 workers, 300 rounds: y = 2.01 x + 1.00\n", ""))
        self.assertEqual(list(self.run_directory.iterdir()), [])


class TwoPoliciesTest(ExampleTest):
    POLICIES = EXAMPLES / "two_policies"

    def test_wherever_the_learner_is_killed_the_weights_equal_the_replay(self):
        for seed in range(1, 7):  # before, between and after its commits
            out, err = self.tool(self.POLICIES, "--seed", seed, "--rounds", 60)
            self.assertRegex(out, r"^two_policies: \d+ rounds; learner 2 killed in round 21, (away in rounds \d+ to \d+|back before the next round); "
                                  r"all weights equal the serial replay bit for bit\n$")
            self.assertGreaterEqual(int(out.split()[1]), 60)
            self.assertEqual(err, "")
        self.assertEqual(list(self.run_directory.iterdir()), [])

    def test_a_name_that_is_taken_is_refused(self):
        with self.server() as (name, daemon):
            _, err = self.tool(self.POLICIES, "--instance", name, code=1)
            self.assertIn(f"runs already (pid {daemon.pid})", err)

    def test_an_interrupt_leaves_nothing_behind(self):
        name = self.name()
        process = self.popen(self.POLICIES, "--rounds", MANY_ROUNDS, "--instance", name, environment={"TMPDIR": self.directory})
        self.eventually(lambda: list(pathlib.Path(self.directory).glob("two-policies-*/checkpoint")), "some rounds are closed")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WATCHDOG_S)
        self.assertEqual((process.returncode, out, err), (130, "", "two_policies: interrupted\n"))
        self.assert_nothing_left(name)
        self.assertEqual(list(pathlib.Path(self.directory).glob("two-policies-*")), [])

    def test_help_and_wrong_usage(self):
        self.assertIn("--rounds", self.tool(self.POLICIES, "--help")[0])
        self.assertNotIn("--learner", self.tool(self.POLICIES, "--help")[0])
        for wrong in (["--rounds", 0], ["--seed", "x"], ["surplus"]):
            self.assertIn("--help", self.tool(self.POLICIES, *wrong, code=2)[1])


if __name__ == "__main__":
    unittest.main()
