"""Lines end at column 100: of code, and of prose in Markdown. Tables, code blocks, pictures and the
targets of links may be longer.

usage: columns.py ROOT
"""
import os
import re
import sys
import tempfile
from pathlib import Path

COLUMNS = 100
CODE = (".c", ".h", ".cu", ".cuh", ".def", ".py", ".js")
SKIP = (".", "tests/golden/data/", "tests/fuzz/corpus/", "tests/unit/format/pickles/")


def prose(lines):
    """(number, what counts) of the lines outside of fences and tables."""
    fence = False
    for number, line in enumerate(lines, 1):
        if re.match(r" {0,3}```", line):
            fence = not fence
        elif not fence and not line.startswith("|"):
            yield number, re.sub(r"!\[[^]]*\]|\]\([^)]*\)|<?https?://[^\s>)]+>?", "", line)


def too_long(path):
    lines = path.read_text(errors="replace").splitlines()
    counted = prose(lines) if path.suffix == ".md" else enumerate(lines, 1)
    return [number for number, line in counted if len(line) > COLUMNS]


def files(root):
    for folder, below, names in os.walk(root):
        below[:] = sorted(d for d in below if d not in ("build", "__pycache__", ".git"))
        for path in sorted(Path(folder, name) for name in names):
            name = str(path.relative_to(root))
            if path.suffix in (*CODE, ".md") and not name.startswith(SKIP):
                yield name, path


def check(root):
    """What is wrong, a sentence each."""
    return [
        f"{name}:{number}: more than {COLUMNS} columns"
        for name, path in files(root)
        for number in too_long(path)
    ]


def test_itself():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "src").mkdir()
        (root / "src/a.c").write_text("x" * 100 + "\n" + "ä" * 100 + "\n")
        (root / "src/b.py").write_text("x" * 101)
        long, row = "x" * 200, "x" * 100
        (root / "a.md").write_text(f"[x](https://{long})\n![{long}](x.png)\n| {long} |\n"
                                   f"```sh\n{long}\n```\n{row}\n")
        (root / "b.md").write_text("```sh\n```\n" + "x " * 51)
        (root / "c.txt").write_text("x" * 200)
        assert [w.split(":")[:2] for w in check(root)] == [["b.md", "3"], ["src/b.py", "1"]]


def main():
    test_itself()
    wrong = check(Path(sys.argv[1]))
    print("\n".join(wrong) or "ok")
    return 1 if wrong else 0


sys.exit(main())
