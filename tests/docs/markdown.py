"""What the documents say: fenced blocks, links, anchors, code spans. No Markdown library: the few
constructs our documents use are told apart here, and what cannot be told apart is an error."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAN = ROOT / "docs/man/berth.1.in"
# The repository's files, also where it is no clone; what builds leave is none of them.
FILES = []
for folder, below, names in os.walk(ROOT):
    below[:] = [d for d in below if d != "build" and not d.startswith((".", "__pycache__"))]
    FILES += [os.path.relpath(os.path.join(folder, n), ROOT) for n in names]
# Whose commands are run: every Markdown file but those that tests bring, and the man page's
# examples.
DOCUMENTS = [
    *(ROOT / n for n in sorted(FILES) if n.endswith(".md") and not n.startswith("tests/")),
    MAN,
]

# Why a block may stay unrun. A short list on purpose: whoever adds to it argues for it here.
REASONS = {
    "needs root": "changes the machine: packages, /usr/local, services, containers",
    "needs a card": "an NVIDIA card, or PyTorch on one",
    "needs the network": "fetches something, or goes to another machine",
    "builds everything": "make test and its kin, which are what runs this test, and packages of a "
    "build of their own",
    "full size": "writes or reads tens of gigabytes",
}
# What no line of a block that is not `sh` may begin with: there it would be shown and never run. (A
# word and several blanks is a row of a table.)
COMMAND = re.compile(
    r"^\s*(\$ |(sudo |[A-Z_]+=\S* )*([\w.~$/-]*/"
    r")?(berth|make|cmake|ctest|ninja|curl|wget|git|mkdir|cd|cp|cat|export|cc|"
    r"pkg-config|python3?|pip|apt|apt-get|docker|podman|systemctl|journalctl|pytest|jq|ls)( (?! "
    r")|$))",
    re.M,
)
# Blocks that the reader below would take for prose.
UNREAD = re.compile(r"^[\s>]*([-*+]\s+|\d+[.)]\s+)?(```|~~~)|<pre\b|<code\b")


@dataclass
class Block:
    document: Path
    line: int  # of the first line inside the fence
    language: str
    text: str
    not_run: str = ""  # the reason of a `<!-- not run: ... -->` before it
    exits: int = 0  # of a `<!-- exits N -->` before it: what each of its commands ends with

    def where(self, offset: int = 0) -> str:
        return f"{os.path.relpath(self.document, ROOT)}:{self.line + offset}"


@dataclass
class Command:
    block: Block
    offset: int  # lines into the block
    text: str

    def where(self) -> str:
        return self.block.where(self.offset)

    def is_server(self) -> bool:
        """Does not come back by itself: the next commands are typed beside it."""
        return bool(
            re.match(r"([A-Z_]+=\S*\s+)*(berth|make)\s+serve\b", self.text)
        ) and not re.search(r"--(help|quick-test-for-ci)\b", self.text)


@dataclass
class Document:
    path: Path
    blocks: list[Block] = field(default_factory=list)
    prose: str = ""  # everything outside of fences, lines kept

    @classmethod
    def read(cls, path: Path) -> "Document":
        self, outside = cls(path), []
        fence, lines, start, directive, blank = None, [], 0, {}, True
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = re.match(r"^ {0,3}(```+)\s*(\w*)\s*$", line)
            if fence is None and mark:
                fence, lines, start = mark.group(1), [], number + 1
                self.blocks.append(Block(path, start, mark.group(2), "", **directive))
                directive = {}
                outside.append("")
            elif fence is not None and line.strip() == fence:
                self.blocks[-1].text = "\n".join(lines)
                fence = None
                outside.append("")
            elif fence is not None:
                lines.append(line)
                outside.append("")
            else:
                where = f"{path.name}:{number}"
                assert not UNREAD.search(
                    line
                ), f"{where}: commands stand in ``` fences of one word, at the left margin"
                assert not (
                    blank and re.match(r"    |\t", line)
                ), f"{where}: a block by indentation: use a fence"
                blank = not line.strip()
                outside.append(line)
                if found := re.match(r"^<!-- not run: (.*?) -->$", line.strip()):
                    directive = {"not_run": found.group(1)}
                elif found := re.match(r"^<!-- exits (\d+) -->$", line.strip()):
                    directive = {"exits": int(found.group(1))}
                elif line.strip():
                    directive = {}
        assert fence is None, f"{path.name}: the fence before line {start} is not closed"
        self.prose = "\n".join(outside)
        return self

    @classmethod
    def read_man(cls, path: Path) -> "Document":
        """The EXAMPLES of a man page: what stands between .EX and .EE. A comment before .EX may be
        a reason."""
        self, inside, reason = cls(path), None, ""
        text = path.read_text()
        first = text[: text.index(".SH EXAMPLES")].count("\n")
        for number, line in enumerate(text.splitlines()[first:], first + 1):
            if line == ".EX":
                inside = []
                self.blocks.append(Block(path, number + 1, "sh", "", reason))
                reason = ""
            elif line == ".EE":
                self.blocks[-1].text = "\n".join(inside).replace("\\-", "-").replace("\\(ti", "~")
                inside = None
            elif inside is not None:
                inside.append(line)
            elif found := re.match(r'\.\\" not run: (.*)', line):
                reason = found.group(1)
        assert self.blocks and inside is None and not reason, f"{path.name}: EXAMPLES"
        return self

    def anchors(self) -> set[str]:
        """As GitHub makes them from headings, a second one of a name with -1 and so on."""
        found: dict[str, int] = {}
        result = set(re.findall(r'<a (?:id|name)="([^"]+)"', self.prose))
        for heading in re.findall(r"^#{1,6} +(.*?) *#*$", self.prose, re.M):
            heading = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", heading)
            slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            n = found.get(slug, 0)
            found[slug] = n + 1
            result.add(f"{slug}-{n}" if n else slug)
        return result

    def links(self) -> list[str]:
        text = re.sub(r"`[^`\n]*`", "", self.prose)
        return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)

    def spans(self) -> list[tuple[int, str]]:
        """Code spans of one line, with the line they are on."""
        return [
            (n, s)
            for n, line in enumerate(self.prose.splitlines(), 1)
            for s in re.findall(r"`([^`]+)`", line)
        ]


def documents() -> list[Document]:
    return [Document.read_man(p) if p == MAN else Document.read(p) for p in DOCUMENTS]
