"""Runs the built programs in a world of their own: a temporary GRADSHM_DIR, and instance names that nobody else has."""
import contextlib
import ctypes
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
import uuid

SOURCE = pathlib.Path(os.environ.get("GRADSHM_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
TOOLS = pathlib.Path(os.environ.get("GRADSHM_BUILD") or SOURCE / "build") / "tools"
WATCHDOG_S = 120  # ends a hang; nothing here measures time


SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def beacon_path(name):
    """Its name ends with a hash of the run directory. Where there is none, a path that does not exist."""
    start = f"gradshm.{os.getuid()}.{name}@"
    return next(pathlib.Path("/dev/shm").glob(start + "*"), pathlib.Path("/dev/shm") / start)


def become_subreaper():
    """Whoever loses its parent becomes our child, so that we can wait for its end: the children of what is killed, say."""
    if ctypes.CDLL(None, use_errno=True).prctl(SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def is_alive(pid):
    """A zombie whose parent does not reap it has ended all the same."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def documented(heading):
    """The fields of that table in docs/json.md."""
    sections = re.split(r"^## ", (SOURCE / "docs/json.md").read_text(), flags=re.MULTILINE)
    section, = (text for text in sections if text.startswith(heading + "\n"))
    return set(re.findall(r"^\| `([^`]+)`", section, flags=re.MULTILINE))


def fields(value, path=""):
    if isinstance(value, dict):
        return set().union(*(fields(inner, f"{path}.{key}".lstrip(".")) for key, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(fields(inner, path + "[]") for inner in value))
    return {path}


class ToolsTest(unittest.TestCase):
    def setUp(self):
        self.assertTrue((TOOLS / "gradshm").exists(), f"{TOOLS} holds no programs: set GRADSHM_BUILD to the build directory")
        self.directory = self.enterContext(tempfile.TemporaryDirectory(prefix="gst-"))  # short: socket paths are limited
        self.run_directory = pathlib.Path(self.directory) / "run"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("GRADSHM_")}
        self.environment.update(GRADSHM_DIR=str(self.run_directory), NO_COLOR="1", COLUMNS="200")
        self.serial = 0
        become_subreaper()
        self.addCleanup(self.wait_for_strays)

    def wait_for_strays(self):
        """The last clean-up: nothing that the test started, directly or not, runs on."""
        deadline = time.monotonic() + WATCHDOG_S
        with contextlib.suppress(ChildProcessError):
            while time.monotonic() < deadline:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.005)
            self.fail("processes that the test started still run")

    def name(self):
        self.serial += 1
        name = f"t{uuid.uuid4().hex[:10]}.{self.serial}"
        self.addCleanup(lambda: beacon_path(name).unlink(missing_ok=True))
        return name

    def popen(self, program, *arguments, environment=None, **options):
        options = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) | options
        process = subprocess.Popen([TOOLS / program, *map(str, arguments)], env=self.environment | (environment or {}), **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def tool(self, program, *arguments, code=0, **options):
        """Runs it to its end, wants that exit code, and returns (stdout, stderr)."""
        given = options.pop("input", None)
        if given is not None:
            options["stdin"] = subprocess.PIPE
        process = self.popen(program, *arguments, **options)
        try:
            out, err = process.communicate(given, timeout=WATCHDOG_S)
        except subprocess.TimeoutExpired:
            self.fail(f"{program} {arguments} hangs")
        self.assertEqual(process.returncode, code, f"{program} {' '.join(map(str, arguments))}\n{out}{err}")
        return out, err

    def eventually(self, condition, what):
        deadline = time.monotonic() + WATCHDOG_S
        while not (found := condition()):
            if time.monotonic() > deadline:
                self.fail(f"never happened: {what}")
            time.sleep(0.01)
        return found

    @contextlib.contextmanager
    def server(self, *arguments, name=None):
        name = name or self.name()
        process = self.popen("gradshmd", "--name", name, "--log-level", "warning", *arguments, stderr=subprocess.DEVNULL)
        self.eventually(lambda: beacon_path(name).exists() or process.poll() is not None, "gradshmd is ready")
        self.assertIsNone(process.poll(), "gradshmd ended early")
        yield name, process
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(WATCHDOG_S)

    def on_terminal(self, program, *arguments):
        """Started with a terminal of 100 x 30 as its controlling one. Returns (process, our end of it)."""
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        control = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
        process = self.popen(program, *arguments, environment={"TERM": "xterm", "NO_COLOR": ""}, stdin=theirs, stdout=theirs, stderr=theirs,
                             start_new_session=True, preexec_fn=control, text=False)
        os.close(theirs)
        return process, ours

    def read_until(self, terminal, pattern):
        """What came from the terminal until the pattern is in it."""
        seen = ""
        deadline = time.monotonic() + WATCHDOG_S
        while not re.search(pattern, seen):
            ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
            self.assertTrue(ready, f"never came: {pattern} in {seen!r}")
            seen += os.read(terminal, 65536).decode()
        return seen

    def file(self, name, text):
        path = pathlib.Path(self.directory) / name
        path.write_text(text)
        return path

    def assert_nothing_left(self, name):
        self.assertFalse(beacon_path(name).exists(), f"{beacon_path(name)} is left")
        self.assertFalse((self.run_directory / name).exists(), f"{self.run_directory / name} is left")


SMALL_TSV = "name\tdtype\tshape\tnumel\nfc1.weight\tfloat32\t256x784\t200704\nfc1.bias\tfloat32\t256\t256\n"
