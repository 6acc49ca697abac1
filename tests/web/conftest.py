"""Browser tests: a real server, a real Chromium, one of each for all tests of a file.

The server is started by what tests/e2e/api starts it with; models are synthetic and tiny. Devices
are logical ones in this machine's memory, so that there is something to see on any machine. Every
test that uses `page` also tests that nothing was wrong on the way: no error in the console, no
request that went elsewhere."""

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
    for item in items:
        if lacking and str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.skip(reason=lacking))


def base_with_model(base, *names):
    """A base directory with a tokenizer and tiny SD1.5 checkpoints, one if none is named."""
    for name in names or [MODEL]:
        synth(str(base / "models/checkpoints" / name), "sd15-tiny", "--dtype", "f16")
    os.makedirs(base / "tokenizers", exist_ok=True)
    api.subprocess.run(
        [api.BINARY, "synth", "--tokenizer", str(base / "tokenizers/clip")],
        check=True,
        stdout=api.subprocess.DEVNULL,
    )
    return base


def drawing(text="a boat", seed=1, steps=2, size=64, model=MODEL, prefix="web", cfg=1.0, **loader):
    """Text to picture as an API workflow. With allocations="...": by the DisTorch2 loader."""

    def node(kind, **inputs):
        return {"class_type": kind, "inputs": inputs}

    load = node("CheckpointLoaderSimple", ckpt_name=model)
    if loader:
        load = node(
            "CheckpointLoaderSimpleDisTorch2MultiGPU",
            ckpt_name=model,
            compute_device="cuda:0",
            virtual_vram_gb=0.0,
            donor_device="cpu",
            eject_models=False,
            **loader
        )
    return {
        "1": load,
        "2": node("CLIPTextEncode", clip=["1", 1], text=text),
        "3": node("CLIPTextEncode", clip=["1", 1], text=""),
        "4": node("EmptyLatentImage", width=size, height=size, batch_size=1),
        "5": node(
            "KSampler",
            model=["1", 0],
            positive=["2", 0],
            negative=["3", 0],
            latent_image=["4", 0],
            seed=seed,
            steps=steps,
            cfg=cfg,
            sampler_name="euler",
            scheduler="normal",
            denoise=1.0,
        ),
        "6": node("VAEDecode", samples=["5", 0], vae=["1", 2]),
        "7": node("SaveImage", images=["6", 0], filename_prefix=prefix),
    }


# Long enough that a test can act while it runs, however quick the machine; every use ends it.
LONG = 4000


@pytest.fixture(scope="module")
def chrome():
    with chromium.Browser() as b:
        yield b


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = base_with_model(tmp_path_factory.mktemp("berth") / "base")
    with Server(base, "--devices", DEVICES) as s:
        yield s
        assert s.process.poll() is None, "the server died"


def settle(server):
    """Nothing waits, nothing runs, nothing is held, nothing is remembered."""
    server.post("/queue", {"clear": True})
    server.post("/interrupt", {})
    server.post("/berth/queue", {"paused": False})
    server.until_idle()
    server.post("/history", {"clear": True})
    server.post("/free", {"unload_models": True, "free_memory": True, "force": True, "wait": True})


def arrive(browser, server, path="/berth"):
    """Opens the dashboard and waits until its first data is drawn and its socket is open."""
    browser.open(server.url + path)
    browser.until(
        lambda: browser.js(
            "const d = document.documentElement.dataset; return d.ready === '1' && d.connected "
            "=== '1'"
        ),
        "the dashboard",
    )


@pytest.fixture
def page(chrome, server):
    """The dashboard of a server that does nothing and remembers nothing."""
    settle(server)
    chrome.size(1440, 900)
    chrome.scheme(dark=False)
    chrome.open(server.url + "/berth/health")  # a page of the same origin that keeps nothing itself
    chrome.js("sessionStorage.clear()")
    chrome.leave()
    arrive(chrome, server)
    yield chrome
    assert chrome.errors() == []
    away = [
        u for u in chrome.urls() if not u.startswith((server.url, server.ws_url, "blob:", "data:"))
    ]
    assert away == []
