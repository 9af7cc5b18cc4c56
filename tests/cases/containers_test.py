#!/usr/bin/env python3
"""Server and workers in different namespaces, users and memory cgroups, made here as container engines make them."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from cli_driver import TOOLS, WATCHDOG_S, ToolsTest, is_alive  # noqa: E402
from memory_cgroup import MemoryCgroup, NoCgroup  # noqa: E402

WORKER = TOOLS.parent / "tests" / "cases" / "container-worker"
SMALL = 1024  # elements
MIB = 1 << 20
OWNER, MEMBER, STRANGER, GROUP = 23001, 23002, 23003, 23100  # nobody's uids, and a gid

PID_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# All that an engine separates. Of the files outside only what `shared` names is there, at /mnt/shared. The programs stay where they are,
# also where that is below /tmp.
CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--ipc", "--uts", "--net", "--cgroup", "sh", "-ec",
             'mount -t tmpfs none /mnt; mkdir /mnt/shared /mnt/programs; mount --bind "$2" /mnt/shared; mount --bind "$1" /mnt/programs; '
             "mount -t tmpfs -o size=64m none /dev/shm; mount -t tmpfs none /tmp; "
             'mkdir -p "$1"; mount --bind /mnt/programs "$1"; '
             'shift 2; export GRADSHM_DIR=/mnt/shared/run; exec "$@"', "sh", str(TOOLS.parent.resolve()))


def in_pid_namespace(*command):
    return (*PID_NAMESPACE, *command)


def as_user(uid, *command, groups=()):
    extra = ("--groups", ",".join(map(str, groups))) if groups else ("--clear-groups",)
    return ("setpriv", "--reuid", str(uid), "--regid", str(uid), *extra, *command)


def child_of(pid):
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


class Peer:
    """A program under its wrappers, with its output line by line."""

    def __init__(self, test, process):
        self.test, self.process = test, process

    def line(self):
        return self.process.stdout.readline().strip()

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def program(self):
        """The pid, as seen here, of what unshare has started."""
        return self.test.eventually(lambda: child_of(self.process.pid), "unshare forks")

    def kill(self, inner=False):
        os.kill(self.program() if inner else self.process.pid, signal.SIGKILL)
        self.process.wait(WATCHDOG_S)


class ContainersTest(ToolsTest):
    def setUp(self):
        super().setUp()
        self.assertTrue(WORKER.exists(), f"{WORKER} is not built")
        probe = subprocess.run([*CONTAINER, "/", "true"], capture_output=True, text=True, check=False)
        if os.getuid() != 0 or probe.returncode != 0:
            self.skipTest("namespaces take root and unshare: " + (probe.stderr.strip() or f"uid {os.getuid()}"))
        self.instance = self.name()
        self.addCleanup(self.remove_beacons)
        self.logs = 0

    def remove_beacons(self):
        for path in pathlib.Path("/dev/shm").glob(f"gradshm.*.{self.instance}@*"):
            path.unlink(missing_ok=True)

    def container(self, *command):
        return (*CONTAINER, self.directory, *command)

    def start(self, command, **options):
        program, *arguments = command
        return Peer(self, self.popen("/usr/bin/env", program, *arguments, **options))

    def serve(self, *arguments, wrap=lambda *command: command):
        """Returns once it is ready; `self.log` is its log."""
        self.logs += 1
        self.log = pathlib.Path(self.directory) / f"log{self.logs}"
        with self.log.open("w") as log:
            server = self.start(wrap(TOOLS / "gradshmd", "--name", self.instance, "--op", "sum", *arguments), stderr=log)
        self.eventually(lambda: "ready: " in self.log.read_text() or server.process.poll() is not None, "gradshmd is ready")
        self.assertIsNone(server.process.poll(), self.log.read_text())
        return server

    def worker(self, rank, elements=SMALL, wrap=lambda *command: command, answer="attached"):
        worker = self.start(wrap(WORKER, self.instance, str(rank), str(elements)), stdin=subprocess.PIPE)
        line = worker.line()
        self.assertRegex(line, answer)
        worker.answer = line
        return worker

    def rounds(self, workers, count=3):
        """All of them take part, and every sum is right."""
        for _ in range(count):
            for worker in workers:
                worker.say("round")
            numbers = set()
            for worker in workers:
                line = worker.line()
                self.assertRegex(line, rf"^round \d+ of {len(workers)}$")
                numbers.add(line)
            self.assertEqual(len(numbers), 1, numbers)

    def top(self, *wrapped):
        return json.loads(self.tool("/usr/bin/env", *wrapped, TOOLS / "gradshm-top", self.instance, "--once", "--json")[0])

    def pids_in_top(self):
        return [worker["pid"] for worker in self.top()["workers"]]


class PidNamespaceTest(ContainersTest):
    def test_a_worker_in_another_pid_namespace_takes_part_and_its_death_is_noticed(self):
        self.serve("--expect", "2")
        inside, outside = self.worker(0, wrap=in_pid_namespace), self.worker(1)
        self.rounds([inside, outside])
        self.assertEqual(self.pids_in_top(), [inside.program(), outside.process.pid])
        outside.say("round")
        inside.kill(inner=True)
        self.assertRegex(outside.line(), r"^round \d+ of 1$")
        self.rounds([outside])
        self.assertIn("its process ended without leaving", self.log.read_text())

    def test_a_server_in_a_pid_namespace_serves_workers_outside_and_notices_their_death(self):
        server = self.serve("--expect", "2", wrap=in_pid_namespace)
        workers = [self.worker(0), self.worker(1)]
        self.rounds(workers)
        self.assertEqual(self.pids_in_top(), [0, 0])
        workers[1].say("round")
        workers[0].kill()
        self.assertRegex(workers[1].line(), r"^round \d+ of 1$")
        # It is process 1 there, to which only signals come that it handles.
        os.kill(server.program(), signal.SIGTERM)
        self.assertEqual(server.process.wait(WATCHDOG_S), 0)
        workers[1].say("round")
        self.assertRegex(workers[1].line(), "^error ")

    def test_the_tools_work_in_a_namespace_of_their_own(self):
        self.serve()
        worker = self.worker(0)
        self.rounds([worker])
        self.assertEqual(self.top(*PID_NAMESPACE)["workers"][0]["rank"], 0)
        out, _ = self.tool("/usr/bin/env", *PID_NAMESPACE, TOOLS / "gradshm", "dump", self.instance, "--param", "w")
        self.assertIn("24 24", out)  # round 3, see container_worker.cpp

    def restart(self, first, second):
        """The server is killed in one place and started again in another; two workers in containers of their own and one outside."""
        server = self.serve("--expect", "3", wrap=first)
        workers = [self.worker(0, wrap=self.container), self.worker(1, wrap=in_pid_namespace), self.worker(2)]
        self.rounds(workers)
        os.kill(server.process.pid if first is not self.container and first is not in_pid_namespace else server.program(), signal.SIGKILL)
        server.process.wait(WATCHDOG_S)
        self.serve("--expect", "3", wrap=second)
        self.rounds(workers)
        self.assertEqual(len(re.findall("came back after round 3", self.log.read_text())), 3, self.log.read_text())

    def test_workers_in_containers_come_back_to_a_server_outside(self):
        self.restart(lambda *command: command, lambda *command: command)

    def test_workers_come_back_to_a_server_in_a_new_container(self):
        self.restart(self.container, self.container)

    def test_workers_come_back_to_a_server_that_moves_into_a_container(self):
        self.restart(lambda *command: command, self.container)

    def test_workers_come_back_to_a_server_that_moves_out_of_a_container(self):
        self.restart(self.container, lambda *command: command)


class MountNamespaceTest(ContainersTest):
    def test_the_socket_directory_is_all_that_a_worker_in_a_container_needs(self):
        self.serve("--expect", "3")
        workers = [self.worker(0, wrap=self.container), self.worker(1, wrap=self.container), self.worker(2)]
        self.rounds(workers)
        out, _ = self.tool("/usr/bin/env", *self.container(TOOLS / "gradshm", "ls"))
        self.assertNotIn(self.instance, out)
        self.assertIn(self.instance, self.tool("gradshm", "ls")[0])
        self.assertEqual(len(self.top(*self.container())["workers"]), 3)
        workers[2].say("round")
        workers[0].kill(inner=True)
        workers[1].say("round")
        for worker in workers[1:]:
            self.assertRegex(worker.line(), r"^round \d+ of 2$")

    def test_server_and_workers_in_sibling_containers(self):
        self.serve("--expect", "2", wrap=self.container)
        workers = [self.worker(rank, wrap=self.container) for rank in range(2)]
        self.rounds(workers)
        workers[1].say("round")
        workers[0].kill(inner=True)
        self.assertRegex(workers[1].line(), r"^round \d+ of 1$")

    def test_a_small_dev_shm_limits_nothing(self):
        elements = 200_000_000 // 4
        self.serve("--expect", "2", wrap=self.container)  # its /dev/shm holds 64 MiB, and the workers' too
        workers = [self.worker(rank, elements, wrap=self.container) for rank in range(2)]
        self.rounds(workers, 1)

    def test_without_the_directory_a_worker_is_told_where_it_looked(self):
        self.serve()
        elsewhere = pathlib.Path(self.directory) / "elsewhere"
        elsewhere.mkdir()
        worker = self.worker(0, wrap=lambda *command: (*CONTAINER, str(elsewhere), *command), answer="^error ")
        self.assertIn(f"no server '{self.instance}' answers at /mnt/shared/run/{self.instance}/sock", worker.answer)
        self.assertEqual(worker.process.wait(WATCHDOG_S), 2)


class UserTest(ContainersTest):
    """The server runs as OWNER, in GROUP."""

    def setUp(self):
        super().setUp()
        os.chmod(self.directory, 0o711)
        reachable = subprocess.run([*as_user(MEMBER), "test", "-x", str(WORKER)], check=False).returncode == 0
        if not reachable:
            self.skipTest(f"other users cannot reach {WORKER}")
        self.home = pathlib.Path(self.directory) / "home"
        self.home.mkdir(mode=0o711)
        os.chown(self.home, OWNER, OWNER)
        self.environment["GRADSHM_DIR"] = str(self.home / "run")

    def owner(self, *command):
        return as_user(OWNER, *command, groups=[GROUP])

    def member(self, *command):
        return as_user(MEMBER, *command, groups=[GROUP])

    def stranger(self, *command):
        return as_user(STRANGER, *command)

    def assert_refused(self, wrap):
        worker = self.worker(0, wrap=wrap, answer="^error ")
        self.assertEqual(worker.process.wait(WATCHDOG_S), 2)
        self.assertRegex(worker.answer, "^error not permitted: ")
        self.assertIn("--socket-group", worker.answer)
        return worker.answer

    def test_a_stranger_is_told_what_to_do(self):
        self.serve(wrap=self.owner)
        self.assert_refused(self.stranger)
        self.assert_refused(self.member)  # nobody said that the group may

    def test_a_member_of_the_group_takes_part_and_a_stranger_does_not(self):
        self.serve("--expect", "2", "--socket-group", GROUP, wrap=self.owner)
        self.assert_refused(self.stranger)
        workers = [self.worker(0, wrap=self.owner), self.worker(1, wrap=self.member)]
        self.rounds(workers)
        self.assertEqual([worker["uid"] for worker in self.top()["workers"]], [OWNER, MEMBER])
        workers[0].say("round")
        workers[1].kill()
        self.assertRegex(workers[0].line(), r"^round \d+ of 1$")
        self.assert_refused(self.stranger)

    def test_members_of_the_group_come_back_to_a_server_that_was_killed(self):
        arguments = ("--expect", "2", "--socket-group", GROUP)
        server = self.serve(*arguments, wrap=self.owner)
        workers = [self.worker(0, wrap=self.owner), self.worker(1, wrap=self.member)]
        self.rounds(workers)
        server.kill()
        self.serve(*arguments, wrap=self.owner)
        self.rounds(workers)

    def test_where_proc_hides_other_users_they_come_back_too(self):
        hidden = lambda *command: ("unshare", "--mount", "sh", "-ec", 'mount -t proc -o hidepid=2 none /proc; exec "$@"', "sh", *self.owner(*command))  # noqa: E731
        arguments = ("--expect", "2", "--socket-group", GROUP)
        server = self.serve(*arguments, wrap=hidden)
        workers = [self.worker(0, wrap=self.owner), self.worker(1, wrap=self.member)]
        self.rounds(workers)
        server.kill()
        self.serve(*arguments, wrap=hidden)
        self.rounds(workers)

    def test_a_directory_that_the_group_cannot_pass_is_named(self):
        (self.home / "run").mkdir(mode=0o700)  # made before the server, so left as it is
        os.chown(self.home / "run", OWNER, OWNER)
        self.serve("--socket-group", GROUP, wrap=self.owner)
        self.assertIn(f"{self.home}/run", self.assert_refused(self.member))
        self.assertRegex(self.log.read_text(), rf"group {GROUP} cannot reach the socket: {self.home}/run does not")

    def test_a_foreign_server_is_used_only_where_it_was_asked_for(self):
        """XDG_RUNTIME_DIR says nothing about whom to trust."""
        runtime = {"GRADSHM_DIR": "", "XDG_RUNTIME_DIR": str(self.home)}
        self.environment["GRADSHM_DIR"] = str(self.home / "gradshm")
        self.serve("--socket-group", GROUP, wrap=self.owner)
        self.environment |= runtime
        worker = self.worker(0, wrap=self.member, answer="^error ")
        self.assertIn("set GRADSHM_DIR if that is intended", worker.answer)

    def test_root_in_a_user_namespace_is_the_user_outside(self):
        """As rootless engines have it."""
        rootless = lambda *command: self.owner("unshare", "--user", "--map-root-user", *command)  # noqa: E731
        if subprocess.run(rootless("true"), stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("users may not make user namespaces here")
        self.serve("--expect", "2", wrap=self.owner)
        workers = [self.worker(0, wrap=rootless), self.worker(1, wrap=self.owner)]
        self.rounds(workers)
        self.assert_refused(self.stranger)

    def test_a_server_in_a_user_namespace_takes_workers_of_its_user_outside(self):
        rootless = lambda *command: self.owner("unshare", "--user", "--map-root-user", *command)  # noqa: E731
        if subprocess.run(rootless("true"), stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("users may not make user namespaces here")
        self.serve("--expect", "2", wrap=rootless)
        self.rounds([self.worker(0, wrap=rootless), self.worker(1, wrap=self.owner)])


class MemoryTest(ContainersTest):
    """Limits by memory cgroups, of version 1 or 2."""

    def cgroup(self, limit):
        try:
            group = MemoryCgroup("gst-" + self.name().replace(".", "-"), limit)
        except NoCgroup as error:
            self.skipTest(str(error))
        self.addCleanup(lambda: self.eventually(group.remove, "the cgroup is empty"))
        return group

    def layout(self, elements):
        return self.file("layout.tsv", f"name\tdtype\tshape\tnumel\nw\tfloat32\t{elements}\t{elements}\n")

    def assert_sentence(self, text):
        self.assertRegex(text, r"needs [\d,]+ bytes, [\d,]+ are free \(memory cgroup /\S*\)")

    def test_a_server_whose_limit_is_too_small_does_not_start(self):
        group = self.cgroup(48 * MIB)
        layout = self.layout(16 * MIB)
        server = self.start(group.wrap(TOOLS / "gradshmd", "--name", self.instance, "--layout", layout))
        _, err = server.process.communicate(timeout=WATCHDOG_S)
        self.assertEqual(server.process.returncode, 3)
        self.assert_sentence(err)

    def test_a_layout_too_large_for_the_servers_limit_is_refused_at_attach_and_a_smaller_one_works(self):
        group = self.cgroup(48 * MIB)
        server = self.serve(wrap=group.wrap)
        worker = self.worker(0, 16 * MIB, answer="^error ")
        self.assert_sentence(worker.answer)
        self.assertIsNone(server.process.poll())
        self.rounds([self.worker(0)])

    def test_the_servers_limit_must_hold_the_result_but_not_the_workers_slots(self):
        group = self.cgroup(48 * MIB)
        elements = 6 * MIB
        for arguments in ((), ("--layout", self.layout(elements))):
            server = self.serve("--expect", "3", *arguments, wrap=group.wrap)
            workers = [self.worker(rank, elements) for rank in range(3)]
            self.rounds(workers)
            for worker in workers:
                worker.kill()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(WATCHDOG_S), 0)

    def test_a_worker_whose_limit_is_too_small_is_told_and_nobody_else_notices(self):
        self.serve(wrap=self.cgroup(256 * MIB).wrap)
        other = self.worker(0, 16 * MIB)
        self.rounds([other], 1)
        worker = self.worker(1, 16 * MIB, wrap=self.cgroup(48 * MIB).wrap, answer="^error ")
        self.assert_sentence(worker.answer)
        self.assertEqual(worker.process.wait(WATCHDOG_S), 2)
        self.rounds([other], 1)

    def test_a_slot_that_almost_fits_is_taken_or_refused_but_nobody_is_killed(self):
        """Page tables and the kernel's own records count too."""
        group = self.cgroup(64 * MIB)
        outcomes = []
        for mib in range(48, 66):
            self.instance = self.name()
            server = self.serve()
            worker = self.worker(0, mib * MIB // 4, wrap=group.wrap, answer="^attached|^error ")
            outcomes.append(worker.answer.split()[0])
            if outcomes[-1] == "attached":
                self.rounds([worker], 1)
                worker.say("end")
            self.assertEqual(worker.process.wait(WATCHDOG_S), 0 if outcomes[-1] == "attached" else 2, f"slot of {mib} MiB")
            server.kill()
        self.assertEqual((outcomes[0], outcomes[-1]), ("attached", "error"))

    def test_slots_are_charged_to_their_workers(self):
        servers, workers = self.cgroup(512 * MIB), self.cgroup(512 * MIB)
        self.serve(wrap=servers.wrap)
        elements = 16 * MIB  # 64 MiB
        first = self.worker(0, elements)
        self.rounds([first], 1)
        server_before, workers_before = servers.usage(), workers.usage()
        second = self.worker(1, elements, wrap=workers.wrap)
        self.rounds([first], 1)  # it is admitted at the next opening
        self.rounds([first, second], 1)
        self.assertGreaterEqual(workers.usage() - workers_before, 64 * MIB)
        self.assertLess(servers.usage() - server_before, 16 * MIB)
        self.assertGreaterEqual(server_before, 64 * MIB)  # the result
        second.kill()
        self.eventually(lambda: workers.usage() < 32 * MIB, "the slot's memory is free")

    def test_files_that_were_read_take_no_room_from_a_slot(self):
        """A training container's limit is full of cached data before long."""
        group = self.cgroup(96 * MIB)
        data = self.file("data", "")
        subprocess.run(group.wrap("dd", "if=/dev/zero", f"of={data}", "bs=1M", "count=128", "conv=fsync"), check=True, stderr=subprocess.DEVNULL)
        subprocess.run(group.wrap("cat", str(data)), check=True, stdout=subprocess.DEVNULL)
        if group.usage() < 64 * MIB:
            self.skipTest(f"files in {self.directory} are not cached in memory, or not charged")
        self.serve()
        self.rounds([self.worker(0, 12 * MIB, wrap=group.wrap)], 1)


if __name__ == "__main__":
    unittest.main()
