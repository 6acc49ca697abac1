"""Browser tests: a real server, a real Chromium, one of each for all tests of a file.

The server is started by what tests/e2e/api starts it with; models are synthetic and tiny. Devices are
logical ones in this machine's memory, so that there is something to see on any machine."""

import importlib.util
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import browser as chromium  # noqa: E402


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# Both folders have a conftest.py; this one's neighbour is imported by another name.
api = load("../e2e/api/conftest.py", "api")
Server, synth, image_prompt = api.Server, api.synth, api.image_prompt

DEVICES = "cpu=4g,cuda:0@cpu=512m,cuda:1@cpu=256m"
MODEL = "tiny.safetensors"


def pytest_collection_modifyitems(items):
    lacking = chromium.missing()
    if lacking:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=lacking))


def base_with_model(base, name=MODEL):
    """A base directory with one tiny SD1.5 checkpoint and a tokenizer."""
    os.makedirs(base / "models/checkpoints", exist_ok=True)
    synth(str(base / "models/checkpoints" / name), "sd15-tiny", "--dtype", "f16")
    os.makedirs(base / "tokenizers", exist_ok=True)
    api.subprocess.run([api.BINARY, "synth", "--tokenizer", str(base / "tokenizers/clip")], check=True,
                       stdout=api.subprocess.DEVNULL)
    return base


@pytest.fixture(scope="module")
def chrome():
    with chromium.Browser() as b:
        yield b
