#!/usr/bin/env python3
"""Training while workers come, are killed, stopped and leave: a short run of tools/demo --chaos, and single events."""
import json
import os
import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from cli_driver import SOURCE, TOOLS, WATCHDOG_S, ToolsTest  # noqa: E402

TRAIN = TOOLS.parent / "examples" / "train_fashion"
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


@unittest.skipUnless(DATA.is_dir(), "dataset-fashion-mnist is not installed")
class ChaosTest(ToolsTest):
    def test_a_short_chaos_ends_as_promised(self):
        out, err = self.tool(SOURCE / "tools" / "demo", "--chaos", "--rounds", 320, "--least-accuracy", 0.7, "--round-deadline", "500ms",
                             environment={"GRADSHM_BUILD": str(TOOLS.parent)})
        self.assertNotIn("NO:", out, err)
        for promise in ("all of them hold the same weights", "every record is consistent", "the late ones took part", "nothing is left", "the stopped worker was evicted"):
            self.assertRegex(out, f"yes: {promise}")
        self.assertEqual(out.count("kill -9 of the server"), 2)
        self.assertEqual(list(self.run_directory.iterdir()), [])

    def test_chaos_that_misses_its_accuracy_says_so(self):
        out, err = self.tool(SOURCE / "tools" / "chaos.py", "--rounds", 60, "--least-accuracy", 1.01, code=1,
                             environment={"GRADSHM_BUILD": str(TOOLS.parent)})
        self.assertRegex(out + err, r"NO: +the model has learnt|never happened")
        self.assertIn("not all of it is as promised", err)


@unittest.skipUnless(DATA.is_dir(), "dataset-fashion-mnist is not installed")
class ElasticTest(ToolsTest):
    def setUp(self):
        super().setUp()
        self.state = pathlib.Path(self.directory) / "state"

    def start(self, name, rank, *options):
        return self.popen(TRAIN, "--instance", name, "--checkpoint", self.state, "--quiet", *options, environment={"GRADSHM_RANK": str(rank), "GRADSHM_WORLD_SIZE": "4"})

    def report(self, process):
        out, err = process.communicate(timeout=WATCHDOG_S)
        self.assertEqual((process.returncode, err), (0, ""), out)
        return json.loads(out)

    def closed_round(self, name):
        instances = json.loads(self.tool("gradshm", "ls", "--json")[0])["instances"]
        return next((instance["closed_round"] for instance in instances if instance["instance"] == name), 0)

    def test_a_newcomer_goes_on_with_the_weights_of_the_others_though_they_write_none_unasked(self):
        with self.server("--expect", 1) as (name, _):
            first = self.start(name, 0, "--rounds", 1000, "--checkpoint-every", 1000)
            self.eventually(lambda: self.closed_round(name) >= 3, "three rounds are closed")
            self.assertFalse(self.state.exists())
            second = self.start(name, 1, "--rounds", 1000, "--checkpoint-every", 1000)
            reports = [self.report(first), self.report(second)]
        self.assertEqual([report["first_rounds"][0] > 1 for report in reports], [False, True])
        self.assertEqual(reports[0]["weights"], reports[1]["weights"])
        self.assertEqual([report["records_checked"] for report in reports], [1000, 1001 - reports[1]["first_rounds"][0]])

    def test_who_comes_after_the_end_ends_with_the_weights_of_the_end(self):
        with self.server("--expect", 2) as (name, _):
            ends = [self.report(process) for process in [self.start(name, rank, "--rounds", 5) for rank in (0, 1)]]
            late = self.report(self.start(name, 2, "--rounds", 5))
        self.assertEqual((late["first_rounds"], late["last_round"]), ([], 5))
        self.assertEqual({report["weights"] for report in [*ends, late]}, {ends[0]["weights"]})

    def test_a_state_of_an_earlier_training_is_not_taken_up(self):
        self.state.write_bytes(b"\xff" * 4_000_000)
        with self.server("--expect", 2) as (name, _):
            reports = [self.report(process) for process in [self.start(name, rank, "--rounds", 4) for rank in (0, 1)]]
        self.assertEqual(reports[0]["weights"], reports[1]["weights"])
        self.assertGreater(reports[0]["test_accuracy"], 0.1)

    def test_one_leaves_when_told_to_and_the_other_goes_on(self):
        with self.server("--expect", 2) as (name, _):
            stays, leaves = self.start(name, 0, "--rounds", 9), self.start(name, 1, "--rounds", 9, "--leave-after-round", 4)
            self.assertEqual([self.report(leaves)["last_round"], self.report(stays)["last_round"]], [4, 9])

    def test_a_killed_worker_is_left_out(self):
        with self.server("--expect", 2) as (name, _):
            stays, killed = self.start(name, 0, "--rounds", 200), self.start(name, 1, "--rounds", 200)
            self.eventually(lambda: self.closed_round(name) >= 3, "three rounds are closed")
            os.kill(killed.pid, signal.SIGKILL)
            self.assertEqual(self.report(stays)["last_round"], 200)

    def test_a_server_that_is_stopped_is_said(self):
        with self.server("--expect", 1) as (name, daemon):
            worker = self.start(name, 0, "--rounds", 100000)
            self.eventually(lambda: self.closed_round(name) >= 3, "three rounds are closed")
            daemon.send_signal(signal.SIGTERM)
            _, err = worker.communicate(timeout=WATCHDOG_S)
        self.assertEqual(worker.returncode, 1)
        self.assertIn("the server has gone", err)

    def test_options_that_need_a_checkpoint_say_so(self):
        for option in ("--leave-after-round", "--checkpoint-every"):
            self.assertIn("--checkpoint", self.tool(TRAIN, option, 5, code=2)[1])


if __name__ == "__main__":
    unittest.main()
