"""The first run: --demo, and models that bring their tokenizer. A synthetic model stands in for the
one in assets/demo, so that these tests say nothing about pictures and everything about what is
found where."""

import json
import os
import shutil
import socket
import struct
import subprocess

import pytest

from conftest import BINARY, PATIENCE, Server, synth

WORKFLOWS = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "examples", "workflows"
)
MODEL = "berth-demo.safetensors"
REAL = os.path.join(WORKFLOWS, "../../assets/demo", MODEL)


def berth(*args, code=0, env=None):
    p = subprocess.run(
        [BINARY, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=dict(os.environ, **(env or {})),
    )
    assert p.returncode == code, f"{p.returncode}: {p.stdout}{p.stderr}"
    return p


def add_metadata(path, **more):
    """Writes the file again with more strings in its __metadata__."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.setdefault("__metadata__", {}).update(more)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data[8 + size :])


def metadata(path):
    with open(path, "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0])).get("__metadata__", {})


def tokenizer(folder, merges=()):
    """The text of a tokenizer.json that knows letters, and what these merges make of them."""
    berth("synth", "--tokenizer", folder)
    with open(folder / "vocab.json") as f:
        vocab = json.load(f)
    for left, right in merges:
        vocab[left + right] = 1000 + len(
            vocab
        )  # any id below the encoder's vocabulary that is free
    return json.dumps(
        {
            "model": {
                "type": "BPE",
                "end_of_word_suffix": "</w>",
                "vocab": vocab,
                "merges": [list(m) for m in merges],
            }
        }
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """$BERTH_DATA_DIR with demo/berth-demo.safetensors."""
    root = tmp_path_factory.mktemp("data")
    (root / "demo").mkdir()
    synth(root / "demo" / MODEL)
    add_metadata(root / "demo" / MODEL, **{"berth.tokenizer": tokenizer(root / "letters")})
    return root


QUICK = [
    "--set",
    "KSampler.steps=1",
    "--set",
    "EmptyLatentImage.width=64",
    "--set",
    "EmptyLatentImage.height=64",
]


def test_a_picture_without_anything_else(tmp_path, demo):
    p = berth(
        "run",
        "--demo",
        os.path.join(WORKFLOWS, "demo.json"),
        *QUICK,
        "--base-directory",
        tmp_path,
        env={"BERTH_DATA_DIR": str(demo)},
    )
    assert (
        p.stdout == f"{tmp_path}/output/demo_00001_.png\n"
        and os.path.getsize(p.stdout.strip()) > 100
    )


def test_where_it_is_looked_for(tmp_path, demo):
    """By a binary that lies elsewhere: in a prefix of its own."""
    (tmp_path / "bin").mkdir()
    binary = shutil.copy(os.path.realpath(BINARY), tmp_path / "bin/berth")
    command = [
        binary,
        "serve",
        "--demo",
        "--port",
        "0",
        "--base-directory",
        tmp_path / "b",
        "--quick-test-for-ci",
    ]
    env = dict(os.environ, BERTH_DATA_DIR=str(tmp_path / "data"))

    def start():
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env)

    p = start()
    assert p.returncode == 1
    for place in ("data/demo", "share/berth/demo"):
        assert f"{tmp_path}/{place}" in p.stderr, p.stderr
    assert "/assets/demo" in p.stderr
    for place in ("share/berth/demo", "data/demo"):
        os.makedirs(tmp_path / place)
        os.link(demo / "demo" / MODEL, tmp_path / place / MODEL)
        assert start().returncode == 0
        os.remove(tmp_path / place / MODEL)
    assert start().returncode == 1
    assert (
        "the server's"
        in berth(
            "run",
            "--demo",
            os.path.join(WORKFLOWS, "demo.json"),
            "--server",
            "http://127.0.0.1:1",
            code=2,
        ).stderr
    )


def test_ones_own_file_comes_first(tmp_path, demo):
    """Of the same name: the demo's folder is the last one."""
    mine = tmp_path / "models/checkpoints" / MODEL
    mine.parent.mkdir(parents=True)
    synth(mine)  # brings no tokenizer
    p = berth(
        "run",
        "--demo",
        os.path.join(WORKFLOWS, "demo.json"),
        *QUICK,
        "--base-directory",
        tmp_path,
        code=1,
        env={"BERTH_DATA_DIR": str(demo)},
    )
    assert "no CLIP tokenizer" in p.stderr


def test_the_server_says_where_to_go(tmp_path, demo):
    p = berth(
        "serve",
        "--demo",
        "--port",
        "0",
        "--base-directory",
        tmp_path / "b",
        "--quick-test-for-ci",
        env={"BERTH_DATA_DIR": str(demo)},
    )
    lines = dict(line.strip().split("  ", 1) for line in p.stdout.splitlines()[1:])
    address = lines["listening on"].strip()
    assert lines["dashboard"].strip() == address + "/berth" and lines["demo model"].strip() == MODEL
    assert " warn " not in p.stderr, p.stderr  # nothing that would frighten anybody
    assert (
        "no CLIP tokenizer"
        in berth(
            "serve", "--port", "0", "--base-directory", tmp_path / "b", "--quick-test-for-ci"
        ).stderr
    )
    with Server(tmp_path / "b", "--demo", env={"BERTH_DATA_DIR": str(demo)}) as s:
        assert MODEL in s.get("/models/checkpoints").json()


def test_a_port_that_is_taken(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = berth("serve", "--port", port, "--base-directory", tmp_path, code=1).stderr
    assert f"port {port}: Address already in use" in said and "--port N" in said


def picture(s, model):
    with open(os.path.join(WORKFLOWS, "demo.json")) as f:
        prompt = json.load(f)
    for node in prompt.values():
        if "ckpt_name" in node["inputs"]:
            node["inputs"]["ckpt_name"] = model
        if "steps" in node["inputs"]:
            node["inputs"]["steps"] = 1
        if "width" in node["inputs"]:
            node["inputs"].update(width=64, height=64)
    entry = s.run(prompt)
    if entry["status"]["status_str"] != "success":
        return None, json.dumps(entry["status"])
    image = next(iter(entry["outputs"].values()))["images"][0]
    return (
        s.get("/view", params={k: image[k] for k in ("filename", "subfolder", "type")}).content,
        "",
    )


def test_two_models_with_their_own_tokenizers(tmp_path):
    """In one server, in turns: the same weights, which see other tokens."""
    folder = tmp_path / "b/models/checkpoints"
    folder.mkdir(parents=True)
    texts = {
        "letters": tokenizer(tmp_path / "a"),
        "merged": tokenizer(tmp_path / "b2", [("r", "e"), ("re", "d</w>")]),
        "broken": '{"model": 3',
    }
    for name, text in texts.items():
        synth(folder / f"{name}.safetensors")
        add_metadata(folder / f"{name}.safetensors", **{"berth.tokenizer": text})
    with Server(tmp_path / "b", "--cache-none", "--disable-metadata", "--devices", "cpu=1g") as s:
        first, second = picture(s, "letters.safetensors")[0], picture(s, "merged.safetensors")[0]
        assert first and second and first != second
        assert picture(s, "letters.safetensors")[0] == first
        assert picture(s, "merged.safetensors")[0] == second
        none, why = picture(s, "broken.safetensors")
        assert none is None and "broken.safetensors" in why and "berth.tokenizer" in why


def test_the_tour(tmp_path, demo):
    """tools/demo.sh, which is make demo, with little to draw."""
    (tmp_path / "build").mkdir()
    (tmp_path / "build/berth").symlink_to(os.path.realpath(BINARY))
    (tmp_path / "build/demo").mkdir()
    (tmp_path / "build/demo/mine").touch()
    tour = ["sh", os.path.join(WORKFLOWS, "../../tools/demo.sh"), tmp_path / "build/berth"]
    refused = subprocess.run(
        tour,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=dict(os.environ, BERTH_DATA_DIR=str(demo)),
    )
    assert (
        refused.returncode == 1 and "move it away" in refused.stderr
    )  # a folder of somebody's is not cleared
    (tmp_path / "build/demo/mine").rename(
        tmp_path / "build/demo/.made-by-the-tour"
    )  # of an earlier tour: it is
    small = [
        x
        for node, key in (("schedule", "steps=1"), ("size", "width=64"), ("size", "height=64"))
        for x in ("--set", f"{node}.{key}")
    ]
    p = subprocess.run(
        [*tour, *small],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE,
        env=dict(os.environ, BERTH_DATA_DIR=str(demo)),
    )
    assert p.returncode == 0, p.stdout + p.stderr
    for what in (
        "the same picture, bit for bit",
        "kept     berth-demo#",
        "ejected  guest#",
        f"{tmp_path}/build/demo.png",
    ):
        assert what in p.stdout, p.stdout
    assert p.stdout.count("\nkept ") == p.stdout.count("\nejected ") == 3  # networks of each file
    asked = [
        line for line in p.stdout.splitlines() if line.startswith(("$ berth ps", "$ berth free"))
    ]
    assert len(asked) == 2 and all(
        "--server http://127.0.0.1:" in line for line in asked
    )  # as one could type them
    assert "\033" not in p.stdout  # no terminal, no colours
    store = os.path.join(tmp_path, "build/demo/user/__berth")
    assert not [
        f for f in os.listdir(store) if f.endswith(("-wal", "-shm"))
    ]  # the server has ended, and closed its database
    with open(tmp_path / "build/demo.png", "rb") as f:
        sheet = f.read()
    assert sheet[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", sheet[16:24]) == (
        4 * 256 + 5 * 12,
        3 * 256 + 4 * 12,
    )
    assert b"prompt" in sheet[:4096]  # its workflow is in it
    missing = subprocess.run(
        ["sh", os.path.join(WORKFLOWS, "../../tools/demo.sh"), BINARY],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=dict(os.environ, BERTH_DATA_DIR=str(tmp_path)),
    )
    assert missing.returncode == 1 and "the demo model is not there" in missing.stderr


def test_an_example_without_a_model(tmp_path):
    p = berth(
        "run",
        os.path.join(WORKFLOWS, "card.json"),
        "--base-directory",
        tmp_path,
        "--set",
        "save.filename_prefix=card",
    )
    assert p.stdout.startswith(f"{tmp_path}/output/card_00001_")


@pytest.mark.skipif(not os.path.exists(REAL), reason="the demo model is not in this tree")
@pytest.mark.parametrize("example", ["demo.json", "demo-two.json", "demo-sheet.json"])
def test_the_examples_use_what_the_model_wants(example):
    """Its own settings, which the dashboard takes from it."""
    want = json.loads(metadata(REAL)["berth.settings"])
    with open(os.path.join(WORKFLOWS, example)) as f:
        prompt = json.load(f)

    def value(key):
        """Of that input; a link means the constant at its other end."""
        found = {
            json.dumps(prompt[v[0]]["inputs"]["value"] if isinstance(v, list) else v)
            for v in (node["inputs"][key] for node in prompt.values() if key in node["inputs"])
        }
        assert len(found) == 1, (key, found)
        return json.loads(found.pop())

    for key in ("steps", "cfg", "sampler_name", "scheduler"):
        assert value(key) == want[key], key
    size = next(
        node["inputs"] for node in prompt.values() if node["class_type"] == "EmptyLatentImage"
    )
    assert (size["width"], size["height"]) == (want["width"], want["height"])
    texts = [
        node["inputs"]["text"] for node in prompt.values() if node["class_type"] == "CLIPTextEncode"
    ]
    assert want["prompts"][0] in texts and want["negative"] in texts


def test_the_sheet_has_no_chosen_seeds():
    """Its n-th picture has the seed n: README says so."""
    with open(os.path.join(WORKFLOWS, "demo-sheet.json")) as f:
        prompt = json.load(f)
    pictures = [node for node in prompt.values() if node["class_type"] == "SamplerCustom"]
    assert [node["_meta"]["title"] for node in pictures] == [f"picture {n}" for n in range(1, 13)]
    assert [node["inputs"]["noise_seed"] for node in pictures] == list(range(1, 13))
    assert len({prompt[node["inputs"]["positive"][0]]["inputs"]["text"] for node in pictures}) == 12
