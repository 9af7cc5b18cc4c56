#!/usr/bin/env python3
"""`meson install` gives what a program outside this tree needs: pkg-config, headers, libraries, tools."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from source_tree import BUILD, SOURCE  # noqa: E402

VERSION = re.search(r"version: '([0-9.]+)'", (SOURCE / "meson.build").read_text()).group(1)
TOOLS = ("gradshmd", "gradshm", "gradshm-top", "gradshm-bench")
WARNINGS = ("-Wall", "-Wextra", "-Werror")

C_PROGRAM = """
#include <gradshm/gradshm.h>
#include <stdio.h>
int main(void) {
  gradshm_layout_t* layout = NULL;
  gradshm_handle_t* handle = NULL;
  const int64_t shape[] = {2, 3};
  if (gradshm_layout_create(&layout) != GRADSHM_OK) return 1;
  if (gradshm_layout_add(layout, "w", GRADSHM_F32, shape, 2) != GRADSHM_OK) return 2;
  if (gradshm_attach("no name with spaces", layout, NULL, &handle) != GRADSHM_INVALID) return 3;
  gradshm_layout_destroy(layout);
  printf("%s %zu\\n", gradshm_version(), gradshm_dtype_size(GRADSHM_F16));
  return 0;
}
"""
CPP_PROGRAM = """
#include <gradshm/gradshm.hpp>
#include <cstdio>
int main() {
  gradshm::Layout layout;
  layout.add("w", gradshm::DType::f32, {2, 3}).add("b", gradshm::DType::bf16, {3});
  try {
    auto worker = gradshm::Worker::attach("no name with spaces", layout);
    return 1;
  } catch (const gradshm::Error& error) {
    if (error.code().value() != GRADSHM_INVALID) return 2;
  }
  std::printf("%s %zu\\n", gradshm_version(), layout.size());
}
"""
SERVER_PROGRAM = """
#include <gradshm/server.h>
#include <stdio.h>
int main(void) {
  gradshm_server_options_t options = {0};
  gradshm_server_t* server = NULL;
  options.size = sizeof options;
  options.name = "no name with spaces";
  if (gradshm_server_create(&options, &server) != GRADSHM_INVALID) return 1;
  printf("%s %zu\\n", gradshm_server_version(), gradshm_dtype_size(GRADSHM_F64));
  return 0;
}
"""


def run(*command, **more):
    """Standard output; a failure shows both outputs."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="gradshm-install-")
        cls.root = pathlib.Path(cls.directory.name) / "root"
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", cls.root)
        cls.pkgconfig = next(cls.root.rglob("gradshm.pc")).parent
        cls.libraries = next(cls.root.rglob("libgradshm.so")).parent

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def environment(self):
        return {**os.environ, "LD_LIBRARY_PATH": str(self.libraries), "PKG_CONFIG_LIBDIR": str(self.pkgconfig),
                "PKG_CONFIG_SYSROOT_DIR": str(self.root)}

    def build_and_run(self, package, source, *compiler):
        """In an empty directory, with what pkg-config says and nothing else."""
        flags = run("pkg-config", "--cflags", "--libs", package, env=self.environment()).split()
        with tempfile.TemporaryDirectory(prefix="gradshm-user-") as directory:
            language = "c++" if "++" in compiler[0] else "c"
            run(*compiler, *WARNINGS, "-x", language, "-", "-o", "program", *flags, cwd=directory, input=source)
            return run("./program", cwd=directory, env=self.environment()).strip()

    def test_a_c_program_builds_with_pkg_config_and_runs(self):
        for compiler in compilers("gcc", "clang"):
            self.assertEqual(self.build_and_run("gradshm", C_PROGRAM, compiler, "-std=c11", "-pedantic"), f"{VERSION} 2")

    def test_a_cpp_program_builds_with_pkg_config_and_runs(self):
        for compiler in compilers("g++", "clang++"):
            self.assertEqual(self.build_and_run("gradshm", CPP_PROGRAM, compiler, "-std=c++20", "-pedantic"), f"{VERSION} 2")

    def test_a_program_that_embeds_a_server_builds_with_pkg_config_and_runs(self):
        self.assertEqual(self.build_and_run("gradshm-server", SERVER_PROGRAM, "gcc", "-std=c11", "-pedantic"), f"{VERSION} 8")

    def test_pkg_config_knows_the_version(self):
        for package in ("gradshm", "gradshm-server"):
            self.assertEqual(run("pkg-config", "--modversion", package, env=self.environment()).strip(), VERSION)

    def test_the_installed_tools_say_their_version(self):
        programs = next(self.root.rglob("gradshmd")).parent
        for tool in TOOLS:
            with self.subTest(tool):
                self.assertIn(VERSION, run(programs / tool, "--version"))  # without LD_LIBRARY_PATH

    def test_nothing_that_is_installed_names_the_build_directory(self):
        for path in self.root.rglob("*.pc"):
            self.assertNotIn(str(BUILD.resolve()), path.read_text(), path.name)
        for path in (*self.root.rglob("*.so"), *(next(self.root.rglob(tool)) for tool in TOOLS)):
            self.assertNotIn(str(BUILD.resolve()), run("readelf", "-d", "-W", path), path.name)


class HeadersTest(unittest.TestCase):
    """Each compiles alone, as the first include of a file."""

    def compile(self, header, *compiler):
        language = "c++" if "++" in compiler[0] else "c"
        run(*compiler, *WARNINGS, "-pedantic", "-fsyntax-only", "-x", language, "-", "-I", SOURCE / "include",
            input=f"#include <gradshm/{header}>\n#include <gradshm/{header}>\n")

    def test_c_headers_are_c11_and_cpp(self):
        for header in ("gradshm.h", "server.h"):
            for compiler in compilers("gcc", "clang"):
                self.compile(header, compiler, "-std=c11")
            for compiler in compilers("g++", "clang++"):
                self.compile(header, compiler, "-std=c++20", "-Wshadow", "-Wconversion")

    def test_the_cpp_headers_are_cpp20(self):
        for header, compiler in ((header, compiler) for header in ("gradshm.hpp", "server.hpp") for compiler in compilers("g++", "clang++")):
            self.compile(header, compiler, "-std=c++20", "-Wshadow", "-Wconversion", "-Wno-sign-conversion")


def compilers(*names):
    """Those that are here; the first is always wanted."""
    return [name for name in names if name == names[0] or shutil.which(name)]


if __name__ == "__main__":
    unittest.main()
