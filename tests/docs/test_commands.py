"""Every command of the documents is typed as it stands there, in order, and must end as it
should."""

import re

import pytest

from conftest import COUNTS
from markdown import COMMAND, REASONS, ROOT, Block, Command, Document, documents
from sandbox import SANITIZED, Sandbox, split, stand_ins

DOCUMENTS = documents()
LANGUAGES = {
    "sh": "commands",
    "text": "output or a picture",
    "c": "C",
    "json": "JSON",
    "ini": "settings",
    "": "output or a picture",
}


@pytest.fixture(scope="session")
def comfyui(tmp_path_factory):
    return stand_ins(tmp_path_factory.mktemp("stand-ins"))


def named(document: Document) -> str:
    return str(document.path.relative_to(ROOT))


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_blocks_say_what_they_are(document):
    for b in document.blocks:
        assert b.language in LANGUAGES, f"{b.where()}: ```{b.language}: one of {sorted(LANGUAGES)}"
        shown = b.language != "sh" and COMMAND.search(b.text)
        assert not shown, (
            f"{b.where()}: '{shown.group().strip()}' is a command: tag it sh, and it is run, or "
            "give it a reason"
        )
        assert (
            not b.not_run or b.not_run in REASONS
        ), f"{b.where()}: '{b.not_run}' is none of {sorted(REASONS)}"
        assert b.language == "sh" or not (
            b.not_run or b.exits
        ), f"{b.where()}: marked, and no commands"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_commands(document, comfyui, tmp_path):
    run = []
    for block in (b for b in document.blocks if b.language == "sh"):
        commands = split(block)
        COUNTS[block.not_run or "run"] += len(commands)
        if not block.not_run:
            run += commands
    for c in run:
        outside = re.search(r"(?<![\w.$}~])/(tmp|home|data|root|opt|srv|mnt)\b", c.text)
        assert not outside, (
            f"{c.where()}: {outside.group()} is outside of what a test may touch: use ~ or a "
            "relative path"
        )
    if SANITIZED and any("pkg-config" in c.text for c in run):
        pytest.skip("a stranger's compiler does not link what the sanitizer wants")
    if run:
        print(Sandbox(tmp_path, comfyui).run(run))


@pytest.mark.parametrize(
    "text, why",
    [
        ("berth versio", "exit code 2"),
        ("berth version\nfalse && true\nberth version", "exit code 1"),
        ("berth plann x --json | head -n 3", "exit code 2 inside a pipe"),
        ("berth version | grep -q nosuch", "exit code 1"),
        ("seq 1000000 | true", "exit code 141 inside a pipe"),
        ("export X=$(berth nosuch)", "exit code 2 of berth nosuch"),
        ('berth inspect "$(berth nosuch)"', "exit code"),
        ("cat << EOF\nberth version", "never ends"),
        ("berth version \\", "never ends"),
        ("berth nosuch; true", "hides"),
        ("berth nosuch || true", "hides"),
        ("! berth nosuch", "hides"),
        ("berth nosuch &", "hides"),
        ("berth nosuch & berth version", "hides"),
        ("berth nosuch | head -n 1 && true", "hides"),
        ("echo $(berth nosuch | head -n 1)", "hides"),
        ("exit 0\nberth nosuch", "hides"),
        ("kill -9 $$", "-9"),
        ("berth serve &\ncurl -s -d '{}' http://127.0.0.1:8188/berth/plan", "exit code 22"),
        ("berth serve --no-such-option &\nberth ps", "no server"),
    ],
)
def test_a_wrong_command_is_found(text, why, comfyui, tmp_path):
    """The other tests can fail: a command that fails, one that hides that it does, a server that
    does not come up."""
    with pytest.raises(AssertionError, match=why):
        Sandbox(tmp_path / "box", comfyui).run(split(Block(DOCUMENTS[0].path, 1, "sh", text)))


def test_right_commands_pass(comfyui, tmp_path):
    """And what looks like the above, and is none of it, is run to the end."""
    text = (
        "echo 'a; b || c &' \"$(echo d)\" > x   # it's; this || that\ncat << EOF\nplain\nEOF\n"
        "grep -q '^a; b || c & d$' x\nberth version 2>&1 | head -n 1\nseq 1000000 | head -n 1"
    )
    Sandbox(tmp_path / "box", comfyui).run(split(Block(DOCUMENTS[0].path, 1, "sh", text)))
    with pytest.raises(AssertionError, match="ended before"):  # however it came about
        Sandbox(tmp_path / "early", comfyui).run(
            [Command(Block(DOCUMENTS[0].path, 1, "sh", ""), 0, "exit 0")]
        )
