#!/usr/bin/env python3
"""The layers of docs/design.md: who may include whom, where atomics may stand, and what shared memory never holds."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from source_tree import SOURCE, code_only, includes, sources  # noqa: E402

# Each may include itself and what stands left of it; client and daemon stand side by side and do not know each other.
STEPS = (("base",), ("layout",), ("memory",), ("protocol",), ("cuda",), ("reduce",), ("client", "daemon"), ("capi",), ("tools",))
STEP_OF = {layer: step for step, layers in enumerate(STEPS) for layer in layers}

# Accesses, not declarations: the order is a matter of each access.
ATOMIC = re.compile(r"\bstd\s*::\s*atomic_\w+|\batomic_ref\b|\bmemory_order\w*|\b__atomic_\w+|\b__sync_\w+")
NEVER_IN_SHARED_MEMORY = re.compile(r"\bmanaged_\w*shared_memory\b|\boffset_ptr\b|\bstd\s*::\s*\w*mutex\b|\binterprocess_mutex\b")


def layer_of(path):
    parts = path.relative_to(SOURCE).parts
    return parts[1] if parts[0] == "src" and len(parts) > 2 else parts[0]


def may_include(layer, other):
    return other == layer or STEP_OF[other] < STEP_OF[layer]


def wrong_includes(path, text):
    layer = layer_of(path)
    for line, name in includes(text):
        other = name[1:-1].split("/")[0]
        if name[0] == '"' and other in STEP_OF and not may_include(layer, other):
            yield f"{path.relative_to(SOURCE)}:{line}: {layer} must not include {name}"
        if name[0] == '"' and ".." in name:
            yield f'{path.relative_to(SOURCE)}:{line}: include as "layer/file.hpp", not {name}'


def has_order_comment(lines, index):
    """On the line itself, or in the comment that ends just above it."""
    if "// order:" in lines[index]:
        return True
    while index > 0 and lines[index - 1].lstrip().startswith("//"):
        index -= 1
        if "// order:" in lines[index]:
            return True
    return False


def bare_atomics(path, text):
    lines = text.splitlines()
    for index, line in enumerate(code_only(text).splitlines()):
        if ATOMIC.search(line) and not has_order_comment(lines, index):
            yield f"{path.relative_to(SOURCE)}:{index + 1}: atomic outside src/protocol without '// order:': {lines[index].strip()}"


class LayersTest(unittest.TestCase):
    def assert_none(self, findings):
        findings = list(findings)
        self.assertFalse(findings, "\n" + "\n".join(findings))

    def test_every_directory_of_src_is_a_layer(self):
        found = {path.name for path in (SOURCE / "src").iterdir() if path.is_dir()}
        self.assertLessEqual(found, set(STEP_OF))
        self.assertTrue(list(sources("src")), "no sources found: is GRADSHM_SOURCE right?")

    def test_a_file_includes_only_its_own_layer_and_those_to_the_left(self):
        self.assert_none(found for path in sources("src", "tools") for found in wrong_includes(path, path.read_text()))

    def test_public_headers_include_nothing_private(self):
        self.assert_none(f"{path.relative_to(SOURCE)}:{line}: {name}" for path in sources("include")
                         for line, name in includes(path.read_text()) if name[0] == '"')

    def test_examples_use_only_what_is_installed(self):
        self.assert_none(f"{path.relative_to(SOURCE)}:{line}: {name}" for path in sources("examples")
                         for line, name in includes(path.read_text()) if name[0] == '"' and name[1:-1].split("/")[0] in STEP_OF)

    def test_atomics_stand_in_protocol_or_say_their_order(self):
        self.assert_none(found for path in sources("src", "tools") if layer_of(path) != "protocol"
                         for found in bare_atomics(path, path.read_text()))

    def test_shared_memory_holds_no_lock_no_allocator_and_no_pointer(self):
        self.assert_none(f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
                         for path in sources("src/memory", "src/protocol")
                         for number, line in enumerate(code_only(path.read_text()).splitlines(), 1)
                         if NEVER_IN_SHARED_MEMORY.search(line))


class RulesTest(unittest.TestCase):
    """The rules themselves notice what they are for."""

    def test_an_include_to_the_right_or_across_is_found(self):
        path = SOURCE / "src/client/wait.cpp"
        self.assertEqual(len(list(wrong_includes(path, '#include "daemon/reactor.hpp"\n#include "capi/guard.hpp"\n'))), 2)
        self.assertEqual(list(wrong_includes(path, '#include "client/a.hpp"\n#include "base/b.hpp"\n#include <gradshm/gradshm.h>\n')), [])
        self.assertEqual(list(wrong_includes(path, '/* #include "daemon/reactor.hpp" */\n// #include "capi/guard.hpp"\n')), [])

    def test_an_atomic_without_an_order_comment_is_found(self):
        path = SOURCE / "src/daemon/server.hpp"
        self.assertEqual(len(list(bare_atomics(path, "int a;\nstop.load(std::memory_order_relaxed);\n"))), 1)
        self.assertEqual(list(bare_atomics(path, "// order: relaxed, a private flag.\n// Nothing is published.\nstop.load(std::memory_order_relaxed);\n")), [])
        self.assertEqual(list(bare_atomics(path, "stop.load(std::memory_order_relaxed);  // order: relaxed, a private flag\n")), [])
        self.assertEqual(list(bare_atomics(path, '// std::memory_order_relaxed\nlog("std::memory_order_relaxed");\n')), [])


if __name__ == "__main__":
    unittest.main()
