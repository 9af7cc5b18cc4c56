"""A memory cgroup of version 1 or 2, below our own."""
import contextlib
import pathlib

ROOT = pathlib.Path("/sys/fs/cgroup")


class NoCgroup(Exception):
    pass


def own_groups():
    """(directory, version) of where this process is charged."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield ROOT / "memory" / path.lstrip("/"), 1
        if not controllers and (ROOT / "cgroup.controllers").exists():
            yield ROOT / path.lstrip("/"), 2


class MemoryCgroup:
    FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes"), 2: ("memory.max", "memory.current")}

    def __init__(self, name, limit):
        reasons = ["no memory cgroup is mounted"]
        for parent, version in own_groups():
            self.path = parent / name
            self.limit_file, self.usage_file = self.FILES[version]
            try:
                self.path.mkdir()
            except OSError as error:
                reasons.append(f"{self.path} cannot be made: {error.strerror}")
                continue
            try:
                (self.path / self.limit_file).write_text(str(limit))
                return
            except OSError as error:
                self.path.rmdir()
                reasons.append(f"{parent} (version {version}) gives its children no memory limit: {error.strerror}")
        raise NoCgroup(reasons[-1])

    def wrap(self, *command):
        return ("sh", "-ec", 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"', "sh", str(self.path), *map(str, command))

    def usage(self):
        return int((self.path / self.usage_file).read_text())

    def remove(self):
        """False while a process of it is still ending."""
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return not self.path.exists()
