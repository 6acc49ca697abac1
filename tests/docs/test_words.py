"""What the documents name is there: links, files, options, environment variables, routes, error
messages."""

import re
import subprocess
from functools import lru_cache

import pytest

from markdown import COMMAND, FILES, MAN, ROOT, Document, documents
from sandbox import BINARY, split

DOCUMENTS = documents()
# Options of other programs that prose may name: a word that is none of berth's must be one of
# these.
FOREIGN = {
    "--preset",
    "--build",
    "--install",
    "--prefix",
    "--output-on-failure",
    "--wrap",
    "--berth",
}
# Not in this tree: made by a build, or a place in somebody else's.
ELSEWHERE = (
    "build/",
    "models/",
    "input/",
    "output/",
    "temp/",
    "user/",
    "comfy/",
    "custom_nodes/",
    "USER/",
    "BASE/",
    "DIR/",
    "COMFYUI/",
    "checkpoints/",
    "diffusion_models/",
    "text_encoders/",
    "vae/",
    "loras/",
)


def named(document: Document) -> str:
    return str(document.path.relative_to(ROOT))


def sources(*folders: str) -> str:
    """All of their text; a word is there or it is not, whatever the language."""
    names = [
        n
        for n in FILES
        if n.startswith(folders)
        and n.endswith(
            (
                ".c",
                ".h",
                ".def",
                ".cu",
                ".cuh",
                ".txt",
                ".cmake",
                ".py",
                ".sh",
                "Makefile",
                ".json",
                ".in",
            )
        )
    ]
    return "\n".join((ROOT / n).read_text(errors="replace") for n in names if (ROOT / n).is_file())


@lru_cache(None)
def options(command: str) -> frozenset:
    text = subprocess.run(
        [BINARY, *command.split(), "--help"], capture_output=True, text=True, check=True
    ).stdout
    return frozenset(re.findall(r"--[a-z0-9][\w-]*", text))


@lru_cache(None)
def commands() -> tuple:
    text = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    return tuple(
        re.findall(r"^  (\w+)  ", text[text.index("Commands:") : text.index("Options:")], re.M)
    )


@pytest.mark.parametrize("path", [n for n in FILES if n.endswith(".md")])
def test_links(path):
    document = Document.read(ROOT / path)
    for link in document.links():
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.path.parent / name).resolve() if name else document.path
        assert target.exists(), f"{path}: {link} leads nowhere"
        if anchor:
            assert anchor in Document.read(target).anchors(), f"{path}: {link}: no such heading"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_options_of_commands(document):
    """`berth CMD --x`, in a block or in prose: CMD is a command, and its help knows --x."""
    typed = [(c.where(), c.text) for b in document.blocks if b.language == "sh" for c in split(b)]
    typed += [(f"{document.path.name}:{n}", s) for n, s in document.spans()]
    for where, text in typed:
        for words in re.findall(
            r"(?:^|[\s(])berth ([a-z][^|&;]*)", re.sub(r"#[^\n\"']*$", "", text, flags=re.M)
        ):
            command, *rest = words.split()
            assert command in commands(), f"{where}: berth {command} is no command"
            for word in rest:
                if option := re.match(r"\[?(--[a-z0-9][\w-]*)", word):
                    assert option.group(1) in options(
                        command
                    ), f"{where}: berth {command} has no {option.group(1)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_options_in_prose(document):
    taken = re.findall(
        r'^ *\{ "([\w-]+)",', (ROOT / "src/app/serve_args.c").read_text(), re.M
    )  # ComfyUI's, with or without effect
    beside = re.findall(
        r'add_argument\("(--[\w-]+)"',
        "".join(p.read_text() for p in document.path.parent.glob("*.py")),
    )  # scripts it explains
    known = FOREIGN.union(
        (f"--{t}" for t in taken), beside, options(""), *(options(c) for c in commands())
    )
    for line, span in document.spans():
        if option := re.match(r"(--[a-z0-9][\w-]*)", span):
            assert (
                option.group(1) in known
            ), f"{document.path.name}:{line}: no command has {option.group(1)}"


def test_environment_variables():
    text = sources("src/", "tests/", "tools/", "bench/", "packaging/", "CMakeLists.txt", "Makefile")
    for document in DOCUMENTS:
        for name in set(re.findall(r"\b_?BERTH_[A-Z][A-Z0-9_]*\b", document.path.read_text())):
            assert re.search(rf"\b{name}\b", text), f"{document.path.name}: nothing reads {name}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_files_are_there(document):
    """`src/x/y.c` and `x/y.c` in prose; a reader will look."""
    for line, span in document.spans():
        if (
            not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)+", span)
            or span.startswith(ELSEWHERE)
            or not re.search(r"\.(c|h|def|py|sh|md|json|txt|svg|png|cu)$|/$", span)
        ):
            continue
        places = (ROOT / span, ROOT / "src" / span, document.path.parent / span)
        assert any(p.exists() for p in places), f"{document.path.name}:{line}: no {span}"


def test_folders_are_on_the_map():
    """docs/architecture.md names every folder of the repository, of src/ and of tests/."""
    page = (ROOT / "docs/architecture.md").read_text()
    folders = {n.split("/")[0] for n in FILES if "/" in n}
    for top in ("src", "tests"):
        folders |= {n.split("/")[1] for n in FILES if n.startswith(f"{top}/") and n.count("/") > 1}
    missing = {
        f
        for f in folders
        if not re.search(rf"^{f}\b|^device.*\b{f}\b|`{f}/|`\w+/{f}[/`]", page, re.M)
    }
    assert len(folders) > 25 and not missing, missing


def test_functions_are_there():
    """`x_y()` in prose or in a picture of the architecture."""
    text = sources("src/", "include/", "tests/unit/", "tests/e2e/", "examples/")
    for document in DOCUMENTS:
        said = {
            s for _, span in document.spans() for s in re.findall(r"(?<![.\w])(\w{3,})\(\)", span)
        }
        said |= {
            s
            for b in document.blocks
            if b.language == "text"
            for s in re.findall(r"\b(\w{3,})\(\)", b.text)
        }
        for name in said:
            op = re.fullmatch(r"op_(\w+?)(_ready|_scratch)?", name)  # what a line of ops.def makes
            assert (
                re.search(rf"\b{name}\b", text) or op and re.search(rf"\bOP\({op[1]}\)", text)
            ), f"{document.path.name}: no function {name}()"


def literals() -> str:
    """The string literals of the sources, neighbours joined as the compiler does."""
    text = sources("src/")
    return re.sub(r'"\s*(?:PRI\w+\s*)?"', "", text).replace('\\"', '"')


def test_error_messages():
    """The troubleshooting tables quote what the program says; `...` stands for what it fills in."""
    text = literals()
    page = Document.read(ROOT / "docs/guide.md").prose
    quoted = re.findall(r"^\| `([^`]+)` \|", page[page.index("## Troubleshooting") :], re.M)
    assert len(quoted) >= 20
    for message in quoted:
        for piece in re.split(r"\s*\.\.\.\s*", message):
            assert piece in text, f"guide.md: nothing says '{piece}'"


def test_sizes_are_binary():
    """KiB, MiB, GiB in what people read; MB and GB would leave open which is meant. Links have
    GB/s."""
    decimal = re.compile(r"(?<![\w/])[kKMGT]B\b(?!/s)")
    for document in DOCUMENTS:
        for number, line in enumerate(document.path.read_text().splitlines(), 1):
            assert not decimal.search(
                line
            ), f"{named(document)}:{number}: {decimal.search(line).group()}"
    for name in FILES:
        if name.startswith(("src/", "web/")) and name.endswith(
            (".c", ".h", ".cu", ".js", ".html", ".def")
        ):
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", (ROOT / name).read_text(), flags=re.S)
            said = (
                text
                if name.endswith(".html")
                else " ".join(re.findall(r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|\'[^\'\n]*\'', text))
            )
            assert not decimal.search(said), f"{name}: {decimal.search(said).group()}"


def test_quoted_code():
    """C that begins with a comment that is a file's name is in that file, word for word."""
    blocks = [b for d in DOCUMENTS for b in d.blocks if b.language == "c"]
    found = [(b, m) for b in blocks if (m := re.match(r"/\* ((?:src|tests)/\S+) \*/\n", b.text))]
    assert found
    for b, m in found:
        assert (
            b.text[m.end() :] in (ROOT / m.group(1)).read_text()
        ), f"{b.where()}: not in {m.group(1)}"


def test_nodes_that_cannot_be_computed():
    """docs/from-comfyui.md names all of them."""
    text = re.sub(r"#define.*", "", sources("src/node/"))
    declared = set(re.findall(r"\bNOT_YET\(\s*(\w+)", text)) | set(
        re.findall(r"NODE_CLASS\((\w+)[^;]*\.run = node_not_yet\)", text)
    )
    page = (ROOT / "docs/from-comfyui.md").read_text()
    missing = {n for n in declared if f"`{n}`" not in page and "WanVideo" not in n}
    assert len(declared) > 10 and not missing, missing


def test_routes():
    """docs/api.md has every route, and no other."""
    text = "\n".join(p.read_text() for p in sorted((ROOT / "src/server").glob("routes*.def")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    there = {re.sub(r":[^}]*\}", "}", r) for r in re.findall(r'ROUTE\w*\([^"]*"([^"]+)"', text)}
    page = Document.read(ROOT / "docs/api.md")
    said = {
        s.split("?")[0]
        for _, span in page.spans()
        for s in re.findall(r"(?:GET|POST|PATCH|DELETE|PUT) (/[\w/{}.]*)", span)
    }
    assert there - said == set(), "routes that docs/api.md does not have"
    assert said - there - {"/ws", "/"} == set(), "routes that are only in docs/api.md"


def test_labels():
    """What the tour tells people to press is on the page, in these words: README's *italics*."""
    page = (ROOT / "README.md").read_text()
    tour = page[page.index("## Five minutes") : page.index("## How it compares")]
    labels = set(
        re.findall(
            r"(?<!\*)\*([^*`\n]+)\*(?!\*)", re.sub(r"```.*?```|`[^`\n]*`", "", tour, flags=re.S)
        )
    )
    text = "".join(p.read_text() for p in [*(ROOT / "web").glob("*.js"), ROOT / "web/index.html"])
    text = re.sub(r"\s+", " ", text)
    assert len(labels) > 8
    for label in labels:
        assert re.search(
            rf"['\">] ?{re.escape(label)} ?['\"<]", text
        ), f"README.md: nothing on the dashboard is called '{label}'"


def test_readme_fits_three_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 130


def test_markdown_itself(tmp_path):
    """The reader of documents reads them as it should; an error there would hide errors here."""
    page = tmp_path / "x.md"
    page.write_text(
        "# A `b` c\n\n## A b, c\n<!-- not run: needs root -->\n```sh\nx \\\n y 'a\nb'\nz && w\n"
        "```\ntext `s` [l](#a-b-c-1)\n"
    )
    d = Document.read(page)
    assert (
        d.anchors() == {"a-b-c", "a-b-c-1"}
        and d.links() == ["#a-b-c-1"]
        and d.spans() == [(1, "b"), (11, "s")]
    )
    assert [b.not_run for b in d.blocks] == ["needs root"] and d.blocks[0].line == 6
    assert [c.text for c in split(d.blocks[0])] == ["x \\\n y 'a\nb'", "z && w"]


@pytest.mark.parametrize(
    "text",
    [
        "~~~sh\nberth x\n~~~",
        "- ```sh\n  berth x\n  ```",
        "1. text\n\n    ```sh\n    berth x\n    ```",
        "> ```sh\n> berth x\n> ```",
        "text\n\n    berth x",
        "text\n\n\tberth x",
        "<pre>berth x</pre>",
        "```sh title=x\nberth x\n```",
        "```sh\nberth x",
    ],
)
def test_markdown_that_would_not_be_read(text, tmp_path):
    page = tmp_path / "x.md"
    page.write_text(f"{text}\n")
    with pytest.raises(AssertionError, match="x.md|fence"):
        Document.read(page)


@pytest.mark.parametrize(
    "text",
    [
        "berth x",
        "picture\nberth x",
        "$ x",
        "./build/berth x",
        "A=b sudo make x",
        "  ~/x/berth x",
        "output\ncurl x",
    ],
)
def test_commands_are_told_from_output(text):
    assert COMMAND.search(text)
    assert not COMMAND.search("berth      a folder\nthe berth x\nberths\nmaker")


def test_the_man_page_is_read():
    page = Document.read_man(MAN)
    assert [b.text for b in page.blocks][:2] == [
        "berth serve --demo",
        "berth serve --comfyui-dir ~/ComfyUI",
    ]
    assert [b.not_run for b in page.blocks] == ["", "", "", "", "needs root"]
