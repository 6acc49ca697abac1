"""Model folders (comfyui-api.md 1.2, 1.3, 11)."""

import json
import os
import struct
import time

import pytest

import pngs
from conftest import synth

KEYS = [
    "checkpoints",
    "configs",
    "loras",
    "vae",
    "text_encoders",
    "diffusion_models",
    "clip_vision",
    "style_models",
    "embeddings",
    "diffusers",
    "vae_approx",
    "controlnet",
    "gligen",
    "upscale_models",
    "latent_upscale_models",
    "custom_nodes",
    "datasets",
    "hypernetworks",
    "photomaker",
    "classifiers",
    "model_patches",
    "audio_encoders",
    "background_removal",
    "frame_interpolation",
    "geometry_estimation",
    "optical_flow",
    "detection",
]


def put(server, path, data=b""):
    full = os.path.join(server.base, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb") as f:
        f.write(data)
    return full


def safetensors(metadata, extra=0):
    header = {"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    if metadata is not None:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode() + b" " * extra
    return struct.pack("<Q", len(text)) + text + b"\0" * 4


def empty(r, status):
    assert (r.status_code, r.content) == (status, b"")


def test_keys(server):
    assert server.get("/models").json()[: len(KEYS)] == KEYS
    assert server.get("/api/models").json() == server.get("/models").json()


def test_listing(server):
    put(server, "models/loras/b.safetensors")
    put(server, "models/loras/sub/a.PT")
    put(server, "models/loras/sub/notes.txt")
    put(server, "models/loras/.git/x.safetensors")
    assert server.get("/models/loras").json() == ["b.safetensors", "sub/a.PT"]
    put(server, "models/unet/u.safetensors")
    put(server, "models/diffusion_models/d.safetensors")
    put(server, "models/diffusion_models/u.safetensors")
    assert server.get("/models/diffusion_models").json() == ["d.safetensors", "u.safetensors"]
    assert server.get("/models/gligen").json() == []
    for key in ("unet", "clip", "nothing", "Loras", "loras%2F.."):
        empty(server.get("/models/" + key), 404)


def test_embeddings(server):
    put(server, "models/embeddings/easy.pt")
    put(server, "models/embeddings/sub/neg.v2.safetensors")
    assert server.get("/embeddings").json() == ["easy", "sub/neg.v2"]


def test_experiment(server):
    all_ = server.get("/experiment/models").json()
    names = [f["name"] for f in all_]
    assert "configs" not in names and "custom_nodes" not in names and names[0] == "checkpoints"
    ends = {f["name"]: f["extensions"] for f in all_}
    assert ends["loras"] == [".bin", ".ckpt", ".pkl", ".pt", ".pt2", ".pth", ".safetensors", ".sft"]
    assert (ends["diffusers"], ends["classifiers"], ends["datasets"]) == (["folder"], [""], [])
    assert ends["unet_gguf"] == [".gguf"]
    te = next(f for f in all_ if f["name"] == "text_encoders")["folders"]
    assert te[:2] == [
        os.path.join(os.path.realpath(server.base), "models", d) for d in ("text_encoders", "clip")
    ]


def test_experiment_files(server):
    path = put(server, "models/vae/x/y.safetensors", b"12345")
    put(server, "models/vae/.hidden.safetensors")
    put(server, "models/vae/.dir/z.safetensors")
    os.utime(path, (time.time(), 1_600_000_000.5))
    got = server.get("/experiment/models/vae").json()
    assert len(got) == 1
    f = got[0]
    assert list(f) == ["name", "pathIndex", "modified", "created", "size"]
    assert (f["name"], f["pathIndex"], f["size"], f["modified"]) == (
        "x/y.safetensors",
        0,
        5,
        1_600_000_000.5,
    )
    assert isinstance(f["created"], float)
    put(server, "models/unet/same.safetensors")
    put(server, "models/diffusion_models/same.safetensors")
    same = [
        f["pathIndex"]
        for f in server.get("/experiment/models/diffusion_models").json()
        if f["name"] == "same.safetensors"
    ]
    assert sorted(same) == [0, 1]
    empty(server.get("/experiment/models/nothing"), 404)


def test_preview(server):
    put(server, "models/loras/pic.safetensors")
    empty(server.get("/experiment/models/preview/loras/0/pic.safetensors"), 404)
    put(server, "models/loras/pic.preview.png", pngs.write(4, 4, 3, b"\x10\x80\xf0" * 16))
    r = server.get("/experiment/models/preview/loras/0/pic.safetensors")
    assert (
        r.status_code == 200
        and r.headers["Content-Type"] == "image/webp"
        and r.content[8:12] == b"WEBP"
    )
    put(server, "models/loras/deep/er.safetensors")
    put(server, "models/loras/deep/er.png", pngs.write(1, 1, 1, b"\x10"))
    assert server.get("/experiment/models/preview/loras/0/deep/er.safetensors").status_code == 200
    for path, status in (
        ("loras/9/pic.safetensors", 404),
        ("loras/x/pic.safetensors", 400),
        ("none/0/pic.safetensors", 404),
        ("loras/-1/pic.safetensors", 404),
        ("loras/0/", 400),
        ("loras/0/..%2F..%2Fx.safetensors", 403),
    ):
        empty(server.get("/experiment/models/preview/" + path), status)


def test_view_metadata(server):
    meta = {"ss_name": "ä", "n": "1"}
    put(server, "models/loras/meta.safetensors", safetensors(meta))
    assert server.get("/view_metadata/loras?filename=meta.safetensors").json() == meta
    put(server, "models/loras/sub/meta.safetensors", safetensors({"where": "sub"}))
    assert server.get("/api/view_metadata/loras?filename=sub%2Fmeta.safetensors").json() == {
        "where": "sub"
    }
    put(server, "models/loras/bare.safetensors", safetensors(None))
    put(server, "models/loras/big.safetensors", safetensors(meta, 1 << 20))
    put(server, "models/loras/junk.safetensors", b"\xff" * 20)
    put(server, "models/loras/short.safetensors", b"\x10")
    put(server, "models/loras/meta.pt", safetensors(meta))
    for query in (
        "",
        "?filename=",
        "?filename=none.safetensors",
        "?filename=meta.pt",
        "?filename=bare.safetensors",
        "?filename=big.safetensors",
        "?filename=junk.safetensors",
        "?filename=short.safetensors",
    ):
        empty(server.get("/view_metadata/loras" + query), 404)
    # names are taken as if the folder were the root: ".." leads nowhere else
    put(server, "models/outside.safetensors", safetensors({"secret": "1"}))
    empty(server.get("/view_metadata/loras?filename=..%2Foutside.safetensors"), 404)
    empty(server.get("/view_metadata/nothing?filename=meta.safetensors"), 404)
    # the dashboard asks about every model: what has none is no error, a tokenizer stays out, what
    # it holds is added
    put(
        server,
        "models/loras/own.safetensors",
        safetensors(
            {
                **meta,
                "berth.settings": "{}",
                "berth.tokenizer": "{}",
                "berth.networks": "its own word",
            }
        ),
    )
    for name, want in (
        ("own.safetensors", {**meta, "berth.settings": "{}"}),
        ("bare.safetensors", {}),
        ("junk.safetensors", {}),
    ):
        r = server.get(f"/view_metadata/loras?berth=1&filename={name}")
        assert (r.status_code, r.json()) == (200, {**want, "berth.networks": {}})


FLUX = {"type": "flux", "encoders": ["T5", "CLIP-L"], "channels": 16, "rank": 2, "inpaint": False}
SD1 = {
    "family": "SD1.5",
    "type": "stable_diffusion",
    "encoders": ["CLIP-L"],
    "channels": 4,
    "rank": 2,
    "guidance": False,
}
SDXL = {
    "family": "SDXL",
    "type": "sdxl",
    "encoders": ["CLIP-L", "CLIP-G"],
    "channels": 4,
    "rank": 2,
    "guidance": False,
}


@pytest.mark.parametrize(
    "preset, ending, holds",
    [
        ("flux-tiny", "safetensors", {"diffusion": {**FLUX, "family": "Flux", "guidance": True}}),
        (
            "flux-schnell-tiny",
            "gguf",
            {"diffusion": {**FLUX, "family": "Flux schnell", "guidance": False}},
        ),
        ("sd15-unet-tiny", "safetensors", {"diffusion": {**SD1, "inpaint": False}}),
        (
            "sd15-inpaint-tiny",
            "safetensors",
            {"diffusion": {**SD1, "inpaint": True}, "text": ["CLIP-L"]},
        ),
        ("sdxl-tiny", "safetensors", {"diffusion": {**SDXL, "inpaint": False}}),
        ("clip-l-tiny", "safetensors", {"text": ["CLIP-L"]}),
        ("clip-g-tiny", "safetensors", {"text": ["CLIP-G"]}),
        ("t5-tiny", "gguf", {"text": ["T5"]}),
        ("vae-tiny", "safetensors", {"vae": {"channels": 4, "rank": 2}}),
        ("flux-tiny-vae", "safetensors", {"vae": {"channels": 16, "rank": 2}}),
        ("wan-tiny-vae", "safetensors", {"vae": {"channels": 16, "rank": 3}}),
    ],
)
def test_what_a_model_file_holds(server, preset, ending, holds):
    """berth.networks, by which a client chooses loaders."""
    path = os.path.join(server.base, f"models/diffusion_models/{preset}.{ending}")
    synth(path, preset, "--dtype", "f16")
    got = server.get(f"/view_metadata/diffusion_models?berth=1&filename={preset}.{ending}").json()[
        "berth.networks"
    ]
    os.unlink(path)
    assert got == holds
    assert "berth.tokenizer" in server.get("/view_metadata/loras?filename=own.safetensors").json()
    empty(server.get("/view_metadata/loras?berth=1&filename=none.safetensors"), 404)


def test_internal_files(server):
    for i, name in enumerate(("old.png", "new.png", ".hidden", "sub/inner.png")):
        path = put(server, "output/" + name)
        os.utime(path, (time.time(), 1_600_000_000 + i))
    assert server.get("/internal/files/output").json() == ["new.png [output]", "old.png [output]"]
    assert isinstance(server.get("/internal/files/input").json(), list)
    assert server.get("/internal/files/temp").json() == []
    for wrong in ("user", "x", "models"):
        r = server.get("/internal/files/" + wrong)
        assert (r.status_code, r.json()) == (400, {"error": "Invalid directory type"})
    assert server.get("/api/internal/files/output").status_code == 404


def test_folder_paths(server):
    paths = server.get("/internal/folder_paths").json()
    assert list(paths)[: len(KEYS)] == KEYS
    assert all(os.path.isabs(p) for dirs in paths.values() for p in dirs)


def test_missing_folder_is_an_empty_list(fresh):
    s = fresh()
    os.rmdir(os.path.join(s.base, "output"))
    assert s.get("/internal/files/output").json() == []


@pytest.mark.parametrize(
    "yaml", ["one:\n  base_path: {0}\n  loras: extra\n  my_key: |\n    more\n    other\n"]
)
def test_extra_paths(fresh, tmp_path, yaml):
    extra = tmp_path / "elsewhere"
    (extra / "extra").mkdir(parents=True)
    (extra / "more").mkdir()
    (extra / "extra" / "e.safetensors").write_bytes(b"")
    (extra / "more" / "any.thing").write_bytes(b"")
    config = tmp_path / "paths.yaml"
    config.write_text(yaml.format(extra))
    s = fresh("--extra-model-paths-config", config)
    assert s.get("/models/loras").json() == ["e.safetensors"]
    assert s.get("/models").json()[-1] == "my_key"
    assert s.get("/models/my_key").json() == ["any.thing"]
