"""What the tests of packaging share: the program, the folder it was built in, what --help says."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(os.environ.get("BERTH_BINARY", SOURCE / "build/dev/berth")).resolve()
BUILD = BINARY.parent


def berth(*args):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, check=True).stdout


def commands():
    """Names of the commands, as `berth help` lists them."""
    listed = berth("help").split("Commands:\n")[1].split("\n\n")[0]
    return re.findall(r"^  (\w+) ", listed, re.M)


def options(*command):
    """{"--name": value or None} of what --help shows, letters too."""
    shown = berth(*command, "--help").split("Options:\n")[1].split("\n\n")[0]
    found = {}
    for letter, name, value in re.findall(
        r"^  (?:(-\w), |    )(--[\w-]+)(?: (\S+))?(?:  |$)", shown, re.M
    ):
        found[name] = value or None
        if letter:
            found[letter] = value or None
    return found


def needs(tool):
    """A tool of Debian's that makes a test better and is no reason to fail where it is not."""
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not here")
    return tool
