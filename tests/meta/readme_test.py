#!/usr/bin/env python3
"""The README's program compiles as written, and no document has a placeholder left in it."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["GRADSHM_SOURCE"])

# What the README's program takes for granted.
STUB = """
#include <cstddef>
#include <span>
#include <vector>
struct Model {} model;
struct Batch { std::size_t size() const { return 1; } };
std::vector<Batch> batches;
void backward(Model&, const Batch&, std::span<float>) {}
void sgd(Model&, std::span<const float>) {}
"""


class ReadmeTest(unittest.TestCase):
    def test_its_program_compiles_as_written(self):
        block, = re.findall(r"```cpp\n(.*?)```", (SOURCE / "README.md").read_text(), flags=re.DOTALL)
        include, _, body = block.partition("\n\n")
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "readme.cpp"
            program.write_text(f"{include}\n{STUB}\nint main() {{\n{body}\n}}\n")
            done = subprocess.run(["c++", "-std=c++20", "-Wall", "-Wextra", f"-I{SOURCE / 'include'}", "-fsyntax-only", program],
                                  capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_no_document_has_a_placeholder(self):
        for path in [SOURCE / "README.md", SOURCE / "CHANGELOG.md", *(SOURCE / "docs").glob("*.md")]:
            self.assertIsNone(re.search(r"^\s*(NUMBERS|TABLE|TODO|FIXME|XXX)\b", path.read_text(), flags=re.MULTILINE), path)

    def test_links_lead_somewhere(self):
        for path in [SOURCE / "README.md", *(SOURCE / "docs").glob("*.md")]:
            for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
                self.assertTrue((path.parent / target).exists(), f"{path.name}: {target}")


if __name__ == "__main__":
    unittest.main()
