#!/usr/bin/env python3
"""What the shared libraries show and need: a worker carries gradshm_* and nothing of the server."""
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from source_tree import BUILD, SOURCE  # noqa: E402

SERVER_ONLY = re.compile(r"lib(tbb|spdlog|fmt|hwy|gradshm-server)\b")


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def library(name):
    found = sorted(path for path in BUILD.rglob(f"{name}.so*") if path.is_file() and not path.is_symlink() and ".p" not in path.suffixes)
    if not found:
        raise AssertionError(f"{name}.so is not in {BUILD}: is it built, is GRADSHM_BUILD right?")
    return found[0]


def exported(path):
    """Names without their version; the version itself is an absolute symbol."""
    lines = (line.split() for line in output_of("nm", "-D", "--defined-only", path).splitlines())
    return {fields[-1].split("@")[0] for fields in lines if fields[-2] != "A"}


def dynamic(path, tag):
    return re.findall(rf"\({tag}\).*?\[(.*?)\]", output_of("readelf", "-d", "-W", path))


def declared(header):
    """Functions of a public header: GRADSHM_API stands before each."""
    text = (SOURCE / "include/gradshm" / header).read_text()
    return set(re.findall(r"GRADSHM_API\s+[^;]*?\b(gradshm_\w+)\(", text))


class ExportsTest(unittest.TestCase):
    def test_only_gradshm_symbols_are_exported(self):
        for name in ("libgradshm", "libgradshm-server"):
            with self.subTest(name):
                foreign = {symbol for symbol in exported(library(name)) if not symbol.startswith("gradshm_")}
                self.assertEqual(foreign, set())

    def test_every_function_of_the_headers_is_exported_and_nothing_else(self):
        for name, header in (("libgradshm", "gradshm.h"), ("libgradshm-server", "server.h")):
            with self.subTest(name):
                self.assertEqual(exported(library(name)), declared(header))

    def test_the_soname_is_0_until_version_1(self):
        for name in ("libgradshm", "libgradshm-server"):
            with self.subTest(name):
                self.assertEqual(dynamic(library(name), "SONAME"), [f"{name}.so.0"])

    def test_code_needs_no_relocation(self):
        for name in ("libgradshm", "libgradshm-server"):
            with self.subTest(name):
                self.assertNotIn("TEXTREL", output_of("readelf", "-d", "-W", library(name)))

    def test_a_worker_carries_nothing_of_the_server(self):
        needed = dynamic(library("libgradshm"), "NEEDED")
        self.assertTrue(needed)
        self.assertEqual([name for name in needed if SERVER_ONLY.match(name)], [])


if __name__ == "__main__":
    unittest.main()
