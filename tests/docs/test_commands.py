"""Every command of the documents is typed as it stands there, in order, and must end as it should."""

import re

import pytest

from conftest import COUNTS
from markdown import COMMAND, REASONS, Document, documents
from sandbox import SANITIZED, Sandbox, split, stand_ins

DOCUMENTS = documents()
LANGUAGES = {"sh": "commands", "text": "output or a picture", "c": "C", "json": "JSON", "ini": "settings", "": "output or a picture"}


@pytest.fixture(scope="session")
def comfyui(tmp_path_factory):
    return stand_ins(tmp_path_factory.mktemp("stand-ins"))


def named(document: Document) -> str:
    return document.path.stem


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_blocks_say_what_they_are(document):
    for b in document.blocks:
        assert b.language in LANGUAGES, f"{b.where()}: ```{b.language}: one of {sorted(LANGUAGES)}"
        assert b.language == "sh" or not COMMAND.match(b.text), \
            f"{b.where()}: begins with a command: tag it sh, and it is run, or give it a reason"
        assert not b.not_run or b.not_run in REASONS, f"{b.where()}: '{b.not_run}' is none of {sorted(REASONS)}"
        assert b.language == "sh" or not (b.not_run or b.exits), f"{b.where()}: marked, and no commands"


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
        assert not outside, f"{c.where()}: {outside.group()} is outside of what a test may touch: use ~ or a relative path"
    if SANITIZED and any("pkg-config" in c.text for c in run):
        pytest.skip("a stranger's compiler does not link what the sanitizer wants")
    if run:
        print(Sandbox(tmp_path, comfyui).run(run))


def test_a_wrong_command_is_found(comfyui, tmp_path):
    """The other tests can fail: a command that fails, one that does not when it should, a server that does not come up."""
    for n, (text, why) in enumerate([
            ("berth versio", "exit code 2"),
            ("berth version\nfalse && true\nberth version", "exit code 1"),
            ("berth serve &\ncurl -s -d '{}' http://127.0.0.1:8188/berth/plan", "exit code 22"),
            ("berth serve --no-such-option &\nberth ps", "no server")]):
        page = tmp_path / f"{n}.md"
        page.write_text(f"```sh\n{text}\n```\n")
        document = Document.read(page)
        document.blocks[0].document = DOCUMENTS[0].path
        with pytest.raises(AssertionError, match=why):
            Sandbox(tmp_path / f"box{n}", comfyui).run(split(document.blocks[0]))
