#!/usr/bin/env python3
"""The README's program and the guide's lines compile as written, and no document has a placeholder left in it."""
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

# What the guide's lines take for granted; each stands in a block of its own, for it may have a `worker` of its own.
GUIDE = """
#include <gradshm/gradshm.hpp>
#include <cstddef>
#include <span>
#include <vector>
using namespace std::chrono_literals;
void backward_into(std::span<float>);
void lines(gradshm::Worker& worker, const gradshm::Layout& layout, const gradshm::Layout& adapter_layout,
           const std::vector<std::size_t>& parameters_last_layer_first, std::size_t used, double n) {
"""


def cpp_blocks(document):
    return re.findall(r"```cpp\n(.*?)```", (SOURCE / document).read_text(), flags=re.DOTALL)


class ReadmeTest(unittest.TestCase):
    maxDiff = None

    def test_its_program_compiles_as_written(self):
        block, = cpp_blocks("README.md")
        include, _, body = block.partition("\n\n")
        self.assert_compiles(f"{include}\n{STUB}\nint main() {{\n{body}\n}}\n")

    def test_the_guide_s_lines_compile_as_written(self):
        blocks = cpp_blocks("docs/guide.md")
        self.assertGreater(len(blocks), 5)
        self.assert_compiles(GUIDE + "".join(f"{{\n{block}}}\n" for block in blocks) + "}\n", "-Wno-unused")

    def assert_compiles(self, text, *flags):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "program.cpp"
            program.write_text(text)
            done = subprocess.run(["c++", "-std=c++20", "-Wall", "-Wextra", *flags, f"-I{SOURCE / 'include'}", "-fsyntax-only", program],
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
