"""Quiet means quiet: with --quiet a command prints its result and its errors, nothing else."""

import json
import os
import re
import subprocess
import time

import pytest
import requests

from conftest import BINARY, PATIENCE, Server, image_prompt, synth
from test_cli import free_port, load, picture, picture_base


def commands():
    text = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (\w+)  ", text[text.index("Commands:") : text.index("Options:")], re.M)


def berth(*args, code=0):
    """(stdout, stderr), each a terminal of its own: that is where progress would be."""
    said, ends = [], [os.openpty(), os.openpty()]
    p = subprocess.Popen(
        [BINARY, *map(str, args)],
        stdout=ends[0][1],
        stderr=ends[1][1],
        env=dict(os.environ, TERM="dumb"),
    )
    for main, other in ends:
        os.close(other)
        text = b""
        try:
            while piece := os.read(main, 65536):
                text += piece
        except OSError:  # nobody has it open any more
            pass
        os.close(main)
        said.append(text.decode().replace("\r\n", "\n"))
    assert p.wait(PATIENCE) == code, said
    return said


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    base = str(picture_base(tmp_path_factory.mktemp("quiet")))
    synth(os.path.join(base, "models/diffusion_models/a.safetensors"), "flux-tiny")
    workflow = os.path.join(base, "w.json")
    with open(workflow, "w") as f:
        json.dump(picture(), f)
    with Server(base, "--cpu") as s:
        s.run(load("a", False))
        yield {
            "base": base,
            "workflow": workflow,
            "at": ["--server", s.url],
            "file": os.path.join(base, "models/diffusion_models/a.safetensors"),
        }


def bench(p):
    return [
        "stream",
        "--preset",
        "flux-tiny",
        "--devices",
        "cuda:0@cpu=1g,cpu=1g",
        "--device",
        "cuda:0",
        "--offload",
        "50",
        "--steps",
        "1",
        "--warmup",
        "0",
        "--width",
        "64",
        "--height",
        "64",
        "--tokens",
        "16",
        "--dir",
        p["base"],
    ]


# What to type of every command, and what its whole stdout looks like.
CASES = {
    "serve": (
        lambda p: ["--base-directory", p["base"] + "-2", "--port", "0", "--quick-test-for-ci"],
        r"",
    ),
    "run": (lambda p: [p["workflow"], "--base-directory", p["base"]], r"\S+\.png\n"),
    "ps": (lambda p: p["at"], r"idle, 0 waiting\ncpu .*\n *id .*\n *\d+ +a .*\n"),
    "keep": (lambda p: [*p["at"], "a"], r"keep +a#\d+ .*\n"),
    "eject": (lambda p: [*p["at"], "a"], r"eject +a#\d+ .*\n"),
    "free": (lambda p: p["at"], r"ejected +a#\d+ .*\ncpu .* given back\n"),
    "nodes": (lambda p: ["KSampler"], r"KSampler\n( {4}\S.*\n)+"),
    "inspect": (lambda p: [p["file"], "--json"], r"\[\s*\{.*\]\n"),
    "synth": (
        lambda p: ["--preset", "flux-tiny", "-o", p["base"] + "/new.safetensors"],
        r".*new\.safetensors: .*\n",
    ),
    "devices": (lambda p: ["--json", "--devices", "cpu=1g"], r"\[.*\]\n"),
    "plan": (
        lambda p: ["--preset", "flux-dev", "--devices", "cuda:0=12g,cpu=64g", "--json"],
        r"\{.*\}\n",
    ),
    "bench": (bench, r" *offload .*\n +50 % [^\n]*\n"),
    "version": (lambda p: [], r"berth \d.*"),
    "completion": (lambda p: ["bash"], r".*complete .*"),
    "help": (lambda p: [], r".*Commands:.*"),
}


def test_every_command_has_a_case():
    assert commands() == list(CASES)


@pytest.mark.parametrize("command", CASES)
def test_nothing_but_results(command, place):
    args, wanted = CASES[command]
    out, err = berth(command, "--quiet", *args(place))
    assert err == ""
    assert re.fullmatch(wanted, out, re.S), out


def test_what_is_silenced(place):
    """The same commands without --quiet say more: the test above can fail."""
    args = CASES["run"][0](place)
    assert "KSampler" in berth("run", *args, "--set", "KSampler.seed=9")[1]
    assert "dashboard" in berth("serve", *CASES["serve"][0](place))[0]
    assert "writing" in berth("bench", *CASES["bench"][0](place))[0]


def test_errors_are_said(place):
    nobody = ["--server", f"http://127.0.0.1:{free_port()}"]
    for args in (["-q", "keep", *nobody, "a"], ["run", "-q", place["workflow"], *nobody]):
        out, err = berth(*args, code=1)  # and nothing of waiting for it
        assert out == "" and re.fullmatch(r"berth .*no server answers.*\n", err), err


def wait_for(url):
    end = time.time() + PATIENCE
    while time.time() < end:
        try:
            if requests.get(url + "/berth/health", timeout=PATIENCE).status_code == 200:
                return
        except requests.ConnectionError:
            time.sleep(0.02)
    raise AssertionError(f"{url} does not answer")


@pytest.mark.parametrize(
    "flags",
    [
        ["--quiet"],
        ["-q"],
        ["--log-level", "error", "--dont-print-server"],
        ["--log-level", "off", "--dont-print-server"],
    ],
    ids=" ".join,
)
def test_a_quiet_server(place, tmp_path, flags):
    """It starts, warns of missing tokenizers, runs a prompt, frees and stops: without a word."""
    port = free_port()
    s = Server(tmp_path / "base", "--cpu", "--port", str(port), *flags).start(wait=False)
    s.url = f"http://127.0.0.1:{port}"
    wait_for(s.url)
    assert s.run(image_prompt())["status"]["status_str"] == "success"
    receipt = s.post("/free", {"unload_models": True, "free_memory": True, "wait": True})
    assert receipt.status_code == 200
    s.stop()
    assert s.process.stdout.read() == b"" and s.errors() == ""
