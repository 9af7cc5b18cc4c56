"""What the meta tests share: where source and build are, and a view of C++ text without comments and string contents."""
import os
import pathlib
import re

SOURCE = pathlib.Path(os.environ.get("GRADSHM_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
BUILD = pathlib.Path(os.environ.get("GRADSHM_BUILD") or SOURCE / "build")

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]+[>"])', re.MULTILINE)


def sources(*directories):
    for directory in directories:
        for path in sorted((SOURCE / directory).rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".h", ".c", ".cu", ".cuh"):
                yield path


def code_only(text):
    """The same lines, comments and contents of string literals blanked; a digit separator is no quote."""
    text = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", text)

    def blank(match):
        found = match.group(0)
        return "\n" * found.count("\n") if found.startswith("/") else found[0] * 2

    return COMMENT_OR_STRING.sub(blank, text)


def includes(text):
    """(line number, name with its quotes or brackets); an include that is commented out does not count."""
    without_block_comments = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group(0).count("\n"), text, flags=re.DOTALL)
    for match in INCLUDE.finditer(without_block_comments):
        yield without_block_comments.count("\n", 0, match.start(1)) + 1, match.group(1)
