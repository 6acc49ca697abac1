"""The man page: every command, every option, every variable of the environment, and no warning."""

import re
import subprocess

import pytest

from conftest import BINARY, BUILD, SOURCE, berth, commands, needs, options

PAGE = BUILD / "pages/berth.1"


def plain(troff):
    """Without what only typesetting needs: fonts and escaped signs."""
    text = re.sub(r"\\f[BIR]", "", troff)
    for escape, sign in (
        ("\\-", "-"),
        ("\\(aq", "'"),
        ("\\(ga", "`"),
        ("\\(ti", "~"),
        ("\\(ha", "^"),
        ("\\&", ""),
        ("\\e", "\\"),
    ):
        text = text.replace(escape, sign)
    return text


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text()


def test_sections(page):
    found = re.findall(r'^\.SH "?([A-Z ]+)"?$', page, re.M)
    assert found == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "COMMANDS",
        "EXIT STATUS",
        "ENVIRONMENT",
        "FILES",
        "EXAMPLES",
        "SEE ALSO",
    ]
    assert "@" not in page.split(".SH NAME")[0] and "@COMMANDS@" not in page


def test_the_synopsis_names_every_command(page):
    part = plain(page.split(".SH SYNOPSIS\n")[1].split(".SH ")[0])
    named = re.findall(r"^\.B berth (\w+)", part, re.M)
    listed = re.search(r'^\.BR "berth " \{ (.*) \}$', part, re.M).group(1)
    named += re.split(r" \|(?:\\:)? ", listed)
    assert sorted(named) == sorted(commands())


def test_man_is_all_of_it():
    done = subprocess.run([BINARY, "help", "--man", "foo"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == "" and "foo" in done.stderr


def test_it_is_of_this_version(page):
    version = berth("--version").split()[1]
    assert re.search(rf'^\.TH BERTH 1 \d{{4}}-\d\d-\d\d "Berth {re.escape(version)}" ', page, re.M)


@pytest.mark.parametrize("command", commands())
def test_every_option_is_there(page, command):
    part = re.search(rf"^\.SS berth {command} (.*?)(?=^\.S[SH] )", page, re.M | re.S)
    assert part, "no section"
    told = set(re.findall(r"^\.TP\n(.*)$", plain(part.group(1)), re.M))
    everywhere = options("help").keys() - {"--man"}
    wanted = {name: value for name, value in options(command).items() if name not in everywhere}
    for name, value in wanted.items():
        line = [t for t in told if name in re.split(r"[ ,]+", t)]
        assert len(line) == 1, name
        assert not value or line[0].endswith(f" {value}"), line
    assert len(told) == len([name for name in wanted if name.startswith("--")])


def test_global_options_are_told_once(page):
    part = plain(page.split(".SH OPTIONS")[1].split(".SH COMMANDS")[0])
    for name in options():
        assert name in part


def test_every_variable_is_there(page):
    """What app/ reads of the environment, which no other folder does."""
    read = set()
    for file in (SOURCE / "src/app").glob("*.c"):
        for call in re.findall(r"(?:getenv|env_text)\(([^)]*)\)", file.read_text()):
            read |= set(re.findall(r'"([A-Z_]+)"', call))
    assert "BERTH_TOKEN" in read and "BERTH_HOME" in read
    told = page.split(".SH ENVIRONMENT")[1].split(".SH FILES")[0]
    missing = {name for name in read - {"HOME"} if not re.search(rf"\b{name}\b", told)}
    assert not missing


def test_groff_has_nothing_to_say():
    needs("groff")
    done = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", "-K", "utf8", PAGE], capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stderr == ""
    shown = re.sub(r"\x1b\[\d+m|.\x08", "", done.stdout)
    for command in commands():
        assert f"berth {command} " in shown


def test_mandoc_has_nothing_to_say():
    needs("mandoc")
    done = subprocess.run(
        ["mandoc", "-Tlint", "-W", "warning", PAGE], capture_output=True, text=True
    )
    assert done.stdout == ""
