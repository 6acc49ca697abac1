"""Lines end at column 100: of code, and of prose in Markdown. Tables, code blocks, pictures and the
targets of links may be longer.

usage: columns.py ROOT [--list]

columns.txt names the files that still have longer lines. It only ever shrinks: a file that is not
in it must fit, and one that fits must leave it. --list prints what the list would be now.
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


def check(root, listed):
    """What is wrong, a sentence each."""
    wrong, seen = [], set()
    for name, path in files(root):
        seen.add(name)
        long = too_long(path)
        if long and name not in listed:
            wrong.append(f"{name}:{long[0]}: more than {COLUMNS} columns ({len(long)} such lines)")
        if not long and name in listed:
            wrong.append(f"{name}: fits now, take it out of tests/arch/columns.txt")
    gone = sorted(listed - seen)
    return wrong + [f"{name}: is gone, take it out of tests/arch/columns.txt" for name in gone]


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
        assert [w.split(":")[0] for w in check(root, set())] == ["b.md", "src/b.py"]
        assert check(root, {"b.md", "src/b.py"}) == []
        assert len(check(root, {"b.md", "src/b.py", "a.md", "gone.c"})) == 2


def main():
    root = Path(sys.argv[1])
    test_itself()
    if "--list" in sys.argv:
        print("\n".join(name for name, path in files(root) if too_long(path)))
        return 0
    wrong = check(root, set((root / "tests/arch/columns.txt").read_text().split()))
    print("\n".join(wrong) or "ok")
    return 1 if wrong else 0


sys.exit(main())
