"""Clients as people write them, while models are loaded: what they do not know must not reach
them."""

import asyncio
import json
import os
import subprocess

import pytest

from conftest import BINARY, Server, synth

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
SD15 = "v1-5-pruned-emaonly-fp16.safetensors"
KNOWS = {"supports_progress_text_metadata": True}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    at = tmp_path_factory.mktemp("clients") / "base"
    synth(at / "models" / "checkpoints" / SD15, "sd15-tiny", "--dtype", "f16")
    os.makedirs(at / "tokenizers")
    subprocess.run(
        [BINARY, "synth", "--tokenizer", str(at / "tokenizers" / "clip")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return at


@pytest.fixture(scope="module")
def server(base):
    with Server(base, "--devices", "cpu") as s:
        yield s


def workflow(seed, steps=2):
    with open(os.path.join(ROOT, "examples", "workflows", "txt2img.json")) as f:
        w = json.load(f)
    for node in w.values():
        node["inputs"].update(
            {
                k: v
                for k, v in {"width": 64, "height": 64, "steps": steps, "seed": seed}.items()
                if k in node["inputs"]
            }
        )
    return w


def forget(server):
    """Weights leave, what nodes made stays: the next sampler loads them, and says so under
    itself."""
    assert server.post("/free", {"unload_models": True}).status_code == 200


def forget_behind_another(server, seed):
    """The same behind a prompt that takes a while: a client that connects after it has queued its
    own is there in time."""
    server.queue(workflow(seed, steps=100))
    forget(server)


def text_of(frame):
    n = int.from_bytes(frame[4:8], "big")
    return frame[8 : 8 + n].decode(), frame[8 + n :].decode()


def run(server, ws, seed):
    return ws.until_done(server.queue(workflow(seed), client_id=ws.id)["prompt_id"])


def test_texts_while_models_load_go_to_those_who_know_them(server):
    """A client that says nothing and takes every binary frame for a picture behind 8 bytes, as
    comfy-api-simplified does; one that wants texts only, as comfyui-utils; one that announced
    previews alone: none of them gets one."""
    with server.ws("simple") as simple, server.ws(
        flags={"supports_preview_metadata": True}
    ) as previews, server.ws(flags=KNOWS) as knows:
        for ws in (previews, knows):
            ws.until(lambda m: m["type"] == "feature_flags")
        loading = [
            m["data"]
            for m in run(server, simple, 1)
            if isinstance(m, dict) and m["type"] == "progress" and m["data"]["node"] == "1"
        ]
        assert loading and {d["max"] for d in loading} == {100}, loading  # percent, not bytes
        assert all(d["value"] == int(d["value"]) and 0 < d["value"] <= 100 for d in loading)
        forget(server)
        heard = run(server, simple, 2)
        assert [
            m[8:] for m in heard if isinstance(m, bytes)
        ] == []  # no pictures: the workflow saves one
        assert any(isinstance(m, dict) and m["type"] == "executed" for m in heard)
        server.queue(workflow(3), client_id="last")
        server.until_idle()
        last = (
            lambda m: isinstance(m, dict)
            and m["type"] == "status"
            and m["data"]["status"]["exec_info"]["queue_remaining"] == 0
        )
        seen = []
        for ws in (previews, knows):
            got = []
            for _ in range(3):
                got += ws.until(last)
            seen.append([text_of(m) for m in got if isinstance(m, bytes) and m[:4] == b"\0\0\0\3"])
        assert seen[0] == []
        assert any(t.startswith("loading ") for _, t in seen[1]), seen[1]
        ends = {node: text for node, text in seen[1]}
        assert set(ends.values()) == {" "}, ends  # nothing about loading stays under a node


def test_older_frontends_get_them_too(server):
    """ComfyUI's frontends from before the flag show texts, too; they are known by what they say of
    the manager."""
    with server.ws(flags={"supports_preview_metadata": True, "supports_manager_v4_ui": True}) as ws:
        ws.until(lambda m: m["type"] == "feature_flags")
        run(server, ws, 4)
        forget(server)
        assert any(isinstance(m, bytes) and m[:4] == b"\0\0\0\3" for m in run(server, ws, 5))


def test_comfy_api_simplified_itself(server):
    """Where they are installed (they are not needed): a picture each while the models come back."""
    simplified = pytest.importorskip("comfy_api_simplified")
    forget_behind_another(server, 60)
    w = simplified.ComfyWorkflowWrapper(workflow(6))
    api = simplified.ComfyApiWrapper(server.url)
    title = next(n["_meta"]["title"] for n in w.values() if n["class_type"] == "SaveImage")
    pictures = api.queue_and_wait_images(w, title)
    assert [p[:4] for p in pictures.values()] == [b"\x89PNG"]


def test_comfyui_utils_itself(server):
    comfy = pytest.importorskip("comfyui_utils.comfy")
    heard = []

    class Callbacks(comfy.Callbacks):
        async def queue_position(self, position):
            pass

        async def in_progress(self, node_id, progress, total):
            assert progress <= total
            heard.append(total)

        async def completed(self, outputs, cached):
            heard.append(outputs["images"][0]["filename"])

    forget_behind_another(server, 70)
    asyncio.run(comfy.ComfyAPI(f"127.0.0.1:{server.port}").submit(workflow(7), Callbacks()))
    assert heard[-1].endswith(".png") and max(heard[:-1]) <= 100
