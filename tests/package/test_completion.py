"""Completions offer what --help shows: every command, every option, and words for their values."""

import json
import re
import subprocess

import pytest

from conftest import berth, commands, needs, options

SHELLS = ["bash", "fish", "zsh"]


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / shell).write_text(berth("completion", shell))
    return folder


@pytest.fixture
def bash(scripts, tmp_path):
    """What bash offers for a line, with the cursor at its end."""

    def offer(line, breaks="\"'><=;|&(:"):
        program = (
            'source "$1"; COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDBREAKS=$3; _berth; '
            '[[ ${COMPREPLY[*]} ]] && printf "%s\\n" "${COMPREPLY[@]}"; true'
        )
        done = subprocess.run(
            ["bash", "--norc", "-c", program, "bash", scripts / "bash", line, breaks],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return offer


def test_bash_offers_every_command(bash):
    assert bash("berth ") == commands()
    assert bash("berth s") == [c for c in commands() if c.startswith("s")]
    assert set(bash("berth -")) == set(options())


@pytest.mark.parametrize("command", commands())
def test_bash_offers_exactly_the_options_of_help(bash, command):
    assert set(bash(f"berth {command} -")) == set(options(command))


def test_bash_offers_words_for_values(bash):
    presets = [p["preset"] for p in json.loads(berth("synth", "--list", "--json"))]
    assert len(presets) > 5
    assert bash("berth synth --preset ") == presets
    assert bash("berth synth -p ") == presets
    assert bash("berth synth --preset=flux") == [p for p in presets if p.startswith("flux")]
    assert bash("berth synth -p sd15 --dtype q8") == ["q8_0"]
    assert bash("berth bench stream --act ") == ["bf16", "f16", "f32"]
    assert bash("berth --log-level ") == ["debug", "info", "warn", "error", "off"]
    assert bash("berth --log-level info v") == ["version"]
    assert bash("berth plan --layout t") == ["tail"]
    assert "cpu" in bash("berth plan --devices ")
    assert bash("berth free --devices cuda:7,cp") == [
        "7,cpu"
    ]  # bash keeps what is before the colon
    assert bash("berth ps --server http:") == ["//127.0.0.1:8188"]
    assert bash("berth help p") == ["ps", "plan"]
    assert bash("berth completion z") == ["zsh"]


def test_bash_offers_files_and_folders(bash, tmp_path):
    (tmp_path / "my work.json").touch()
    (tmp_path / "models").mkdir()
    assert sorted(bash("berth run ")) == ["models", "my work.json"]
    assert bash("berth run --output-directory m") == ["models"]
    assert bash("berth run --output-directory=m") == ["models"]
    assert sorted(bash("berth inspect --json m")) == ["models", "my work.json"]


def test_bash_takes_off_what_bash_keeps_and_no_more(bash):
    """People take the colon, or the equals sign, out of COMP_WORDBREAKS."""
    assert bash("berth free --devices cuda:7,cp", "=") == ["cuda:7,cpu"]
    assert bash("berth ps --server=http:", "=") == ["http://127.0.0.1:8188"]
    assert bash("berth ps --server=http:", ":") == ["//127.0.0.1:8188"]
    assert bash("berth plan --layout=t", ":") == ["--layout=tail"]
    assert bash("berth plan --layout=t", "") == ["--layout=tail"]


def test_bash_takes_names_as_they_are(bash, tmp_path):
    for name in ("a*.json", "a1.json", "my work.json", "my wish"):
        (tmp_path / name).touch()
    assert sorted(bash("berth run a")) == ["a*.json", "a1.json"]  # a pattern is a name here
    assert bash(r"berth run my\ wo") == ["my work.json"]
    assert bash('berth run "my wo') == ["my work.json"]
    assert bash("berth run 'my wo") == ["my work.json"]
    assert bash(r"berth inspect my\ wish my\ wo") == ["my work.json"]
    assert bash(r"berth run --output-directory a\ b --log-l") == ["--log-level"]
    assert bash('berth ps --server "http:') == ["http://127.0.0.1:8188"]  # no cut behind a quote


def test_bash_offers_nothing_where_nothing_fits(bash):
    assert bash("berth serve --port ") == []  # a number
    assert bash("berth serve x") == []  # serve takes options only
    assert bash("berth nosuch -") == []
    assert bash("berth run --set a=b --port ") == []


def fish(scripts, line):
    needs("fish")
    done = subprocess.run(
        ["fish", "-c", "source $argv[1]; complete -C $argv[2]", scripts / "fish", line],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return {shown.split("\t")[0].rstrip("=") for shown in done.stdout.splitlines()}


@pytest.mark.parametrize("command", commands())
def test_fish_offers_every_option(scripts, command):
    assert fish(scripts, f"berth {command} --") == {
        o for o in options(command) if o.startswith("--")
    }


def test_fish_knows_which_word_is_the_command(scripts):
    assert fish(scripts, "berth ") == set(commands())
    assert fish(scripts, "berth --log-level ") == {"debug", "info", "warn", "error", "off"}
    assert fish(scripts, "berth --log-level info ") == set(commands())
    assert fish(scripts, "berth --log-level=info synth --preset sd15-t") == {"sd15-tiny"}
    assert fish(scripts, "berth --log-level info bench --act ") == {"bf16", "f16", "f32"}
    assert fish(scripts, "berth help serve --") == {
        o for o in options("help") if o.startswith("--")
    }
    assert fish(scripts, "berth help ") == set(commands())


@pytest.mark.parametrize("command", commands())
def test_zsh_offers_every_option(scripts, command):
    needs("zsh")
    # _arguments belongs to zsh's own completions: here it prints what it is called with.
    program = 'compdef() { }; _arguments() { print -rl -- "$@" }; source "$1"; _berth_command_$2'
    done = subprocess.run(
        ["zsh", "-f", "-c", program, "zsh", scripts / "zsh", command],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    # "(-p --port)--port=[help]:N: ", "--json[help]", "*--set=[help]:NODE.INPUT=VALUE: "
    assert ("*--set=" in done.stdout) == (command == "run")  # offered again, behind the first
    offered = set(re.findall(r"^(?:\([^)]*\)|\*)?(--?[\w-]+)[=+]?\[", done.stdout, re.M))
    assert offered == set(options(command))


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_can_read_them(scripts, shell):
    needs(shell)
    assert subprocess.run([shell, "-n", scripts / shell], capture_output=True).stderr == b""


def test_other_shells_are_named(scripts):
    with pytest.raises(subprocess.CalledProcessError) as failed:
        berth("completion", "tcsh")
    assert failed.value.returncode == 2
    assert "none of bash, fish, zsh" in failed.value.stderr
