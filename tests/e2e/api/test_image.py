"""Pictures from prompts, over HTTP and with `berth run`: the workflows of examples/, on tiny
models.

Weights are synthetic, so that pictures show nothing; that they are the right ones is what
tests/golden say. Here: every workflow runs from its file to a PNG, twice the same, placed anywhere
the same, freed in between the same; what a client sees on the way; what it may do meanwhile."""

import json
import os
import re
import shutil
import struct
import subprocess

import pytest

import pngs
from conftest import BINARY, PATIENCE, SANITIZED, Server, rss, synth

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "..", "examples", "workflows")
TINY = {
    "v1-5-pruned-emaonly-fp16.safetensors": "sd15-tiny",
    "sd-v1-5-inpainting.safetensors": "sd15-inpaint-tiny",
    "sd_xl_base_1.0.safetensors": "sdxl-base-tiny",
    "sd_xl_refiner_1.0.safetensors": "sdxl-refiner-tiny",
}
FLUX = {
    "diffusion_models/flux1-dev.safetensors": "flux-tiny",
    "diffusion_models/flux1-schnell.safetensors": "flux-schnell-tiny",
    "diffusion_models/flux1-dev-Q8_0.gguf": "flux-tiny",
    "text_encoders/t5xxl_fp16.safetensors": "t5-tiny",
    "text_encoders/t5-v1_1-xxl-encoder-Q8_0.gguf": "t5-tiny",
    "text_encoders/clip_l.safetensors": "clip-l-tiny",
    "vae/ae.safetensors": "flux-tiny-vae",
}
QWEN = {
    "diffusion_models/z_image_turbo_bf16.safetensors": "z-image-tiny",
    "text_encoders/qwen_3_4b.safetensors": "qwen3-tiny",
    "diffusion_models/qwen_image_2512_fp8_e4m3fn.safetensors": "qwen-image-tiny",
    "diffusion_models/qwen_image_edit_2511_bf16.safetensors": "qwen-edit-tiny",
    "text_encoders/qwen_2.5_vl_7b_fp8_scaled.safetensors": "qwen25vl-tiny",
    "diffusion_models/krea2_turbo_fp8_scaled.safetensors": "krea2-tiny",
    "text_encoders/qwen3vl_4b_fp8_scaled.safetensors": "qwen3vl-krea2-tiny",
    "vae/qwen_image_vae.safetensors": "wan-tiny-vae",
}
STEER = {"controlnet/control_v11p_sd15_canny_fp16.safetensors": "controlnet-sd15-tiny"}
LTX = {
    "checkpoints/ltx-video-2b-v0.9.5.safetensors": "ltxv-checkpoint-tiny",
    "diffusion_models/hunyuan_video_t2v_720p_bf16.safetensors": "hunyuan-video-tiny",
    "text_encoders/llava_llama3_fp8_scaled.safetensors": "llama3-tiny",
    "vae/hunyuan_video_vae_bf16.safetensors": "hunyuan-video-tiny-vae",
    "diffusion_models/mochi_preview_bf16.safetensors": "mochi-tiny",
    "vae/mochi_vae.safetensors": "mochi-tiny-vae",
}
UPSCALE = {"upscale_models/RealESRGAN_x4plus.safetensors": "esrgan-tiny"}
FLUX2 = {
    "diffusion_models/flux-2-klein-9b.safetensors": "flux2-klein-tiny",
    "diffusion_models/flux2-dev.safetensors": "flux2-tiny",
    "text_encoders/qwen_3_8b.safetensors": "qwen3-klein-tiny",
    "text_encoders/mistral_3_small_flux2_bf16.safetensors": "mistral3-tiny",
    "vae/flux2-vae.safetensors": "flux2-tiny-vae",
}
WAN = {
    "diffusion_models/wan2.1_t2v_1.3B_fp16.safetensors": "wan-tiny",
    "diffusion_models/wan2.2_i2v_high_noise_14B_fp8_scaled.safetensors": "wan22-i2v-tiny",
    "diffusion_models/wan2.2_i2v_low_noise_14B_fp8_scaled.safetensors": "wan22-i2v-tiny",
    "text_encoders/umt5_xxl_fp8_e4m3fn_scaled.safetensors": "umt5-tiny",
    "vae/wan_2.1_vae.safetensors": "wan-tiny-vae",
}
SD15 = "v1-5-pruned-emaonly-fp16.safetensors"
DEVICES = "cuda:0@cpu=512m,cuda:1@cpu=512m,cpu"


def lora(path, seed):
    """A kohya adapter on one layer of the UNet and one of CLIP-L, by hand: header and floats."""
    tensors = {}
    for base, out, width in (
        ("lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q", 32, 32),
        ("lora_te_text_model_encoder_layers_0_self_attn_q_proj", 64, 64),
    ):
        tensors[f"{base}.lora_up.weight"] = (out, 4)
        tensors[f"{base}.lora_down.weight"] = (4, width)
        tensors[f"{base}.alpha"] = ()
    header, data = {}, b""
    for name, shape in tensors.items():
        count = 1
        for d in shape:
            count *= d
        values = (
            [((i * 7919 + seed * 104729) % 2001 - 1000) / 1000 for i in range(count)]
            if shape
            else [4.0]
        )
        raw = struct.pack(f"<{count}f", *values)
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def node(cls, **inputs):
    return {"class_type": cls, "inputs": inputs}


def pixels(png):
    return pngs.read(png)[:4]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image") / "base"
    for name, preset in TINY.items():
        synth(folder / "models" / "checkpoints" / name, preset, "--dtype", "f16")
    for name, preset in {**FLUX, **FLUX2, **QWEN, **WAN, **STEER, **LTX}.items():
        synth(
            folder / "models" / name, preset, "--dtype", "q8_0" if name.endswith("gguf") else "f16"
        )
    for name, preset in UPSCALE.items():
        synth(folder / "models" / name, preset)
    os.makedirs(folder / "tokenizers")
    subprocess.run(
        [BINARY, "synth", "--tokenizer", str(folder / "tokenizers")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lora(folder / "models" / "loras" / "style.safetensors", 1)
    lora(folder / "models" / "loras" / "detail.safetensors", 2)
    os.makedirs(folder / "input", exist_ok=True)
    side, hole = 128, range(
        32, 96
    )  # a gradient, transparent in the middle: the part that is to be painted
    rgba = b"".join(
        bytes((x * 2, y * 2, 90, 0 if x in hole and y in hole else 255))
        for y in range(side)
        for x in range(side)
    )
    for name in ("example.png", "photo.png", "edges.png"):
        with open(folder / "input" / name, "wb") as f:
            f.write(pngs.write(side, side, 4, rgba))
    return folder


@pytest.fixture(scope="module")
def server(base):
    with Server(base, "--devices", DEVICES, "--preview-method", "latent2rgb") as s:
        yield s
        assert s.process.poll() is None, "the server died"


def workflow(name, steps=4, side=64):
    """An example as people have it, made small."""
    with open(os.path.join(EXAMPLES, name + ".json")) as f:
        w = json.load(f)
    for node in w.values():
        i = node["inputs"]
        for key in ("width", "height", "target_width", "target_height"):
            if key in i and node["class_type"] in (
                "EmptyLatentImage",
                "EmptySD3LatentImage",
                "EmptyFlux2LatentImage",
            ):
                i[key] = side
        if "length" in i:  # of a video
            i.update(width=side, height=side, length=9)
        if node["class_type"] == "FluxKontextImageScale":  # to a megapixel
            node["class_type"] = "ImageScale"
            i.update(upscale_method="bilinear", width=side, height=side, crop="disabled")
        if "expert_mode_allocations" in i:
            i["expert_mode_allocations"] = "cuda:0,6mb;cuda:1,5mb;cpu,*"
        if "start_at_step" in i:
            i["steps"], i["start_at_step"] = steps, min(i["start_at_step"], steps // 2)
            i["end_at_step"] = i["end_at_step"] if i["end_at_step"] > 100 else steps // 2
        elif "steps" in i:
            i["steps"] = steps
    return w


def picture(server, item):
    assert item["status"]["status_str"] == "success", item["status"]["messages"][-1]
    files = [f for out in item["outputs"].values() for f in out.get("images", [])]
    assert len(files) == 1, item["outputs"]
    r = server.get("/view", params=files[0])
    assert r.status_code == 200
    return r.content


def make(server, w):
    return picture(server, server.run(w))


ALL = [
    "txt2img",
    "img2img",
    "inpaint",
    "inpaint_model",
    "lora",
    "hires_fix",
    "sdxl_refiner",
    "distorch2",
    "custom_sampler",
    "flux_dev",
    "flux_schnell",
    "flux_gguf_distorch2",
    "z_image_turbo",
    "qwen_image",
    "qwen_image_edit",
    "krea2_turbo",
    "flux2_klein",
    "flux2_edit",
    "upscale",
    "controlnet",
]
VIDEOS = ["wan_t2v", "wan22_i2v", "ltx_video", "ltx_video_i2v", "hunyuan_video", "mochi"]


@pytest.mark.parametrize("name", VIDEOS)
def test_example_makes_a_video(server, name):
    webp = make(server, workflow(name))
    frames = 7 if name == "mochi" else 9
    assert webp[:4] == b"RIFF" and webp[8:12] == b"WEBP" and webp.count(b"ANMF") == frames
    assert make(server, workflow(name)) == webp


@pytest.mark.parametrize("name", ALL)
def test_example_makes_a_picture(server, name):
    png = make(server, workflow(name))
    w, h, c, data = pixels(png)
    assert c == 3 and (w, h) == {
        "hires_fix": (96, 96),
        "upscale": (512, 512),
        "img2img": (128, 128),
        "inpaint": (128, 128),
        "inpaint_model": (128, 128),
    }.get(name, (64, 64))
    assert len(set(data)) > 20, "a picture of one colour"


def test_every_example_is_tried():
    there = {f[:-5] for f in os.listdir(EXAMPLES) if f.endswith(".json")}
    elsewhere = {
        "card",
        "load",
        "demo",
        "demo-two",
        "demo-sheet",
        "write_text",
    }  # test_cli.py, test_demo.py
    assert there - elsewhere == set(ALL + VIDEOS)


def test_what_a_seed_gives(server):
    w = workflow("txt2img")
    first = pixels(make(server, w))
    w["5"]["inputs"]["seed"] = 43
    other = pixels(make(server, w))
    assert first != other
    assert (
        server.post("/free", {"unload_models": True, "free_memory": True, "wait": True}).status_code
        == 200
    )
    w["5"]["inputs"]["seed"] = 42
    assert pixels(make(server, w)) == first


def test_custom_nodes_equal_ksampler(server):
    assert pixels(make(server, workflow("custom_sampler"))) == pixels(
        make(server, workflow("txt2img"))
    )


def test_lora_matters_and_goes_again(server):
    plain, w = workflow("txt2img"), workflow("lora")
    bare = pixels(make(server, plain))
    with_lora = pixels(make(server, w))
    assert with_lora != bare
    for node in ("8", "9"):
        w[node]["inputs"]["strength_model"] = w[node]["inputs"]["strength_clip"] = 0.0
    w["10"]["inputs"]["stop_at_clip_layer"] = -1
    assert pixels(make(server, w)) == bare
    assert pixels(make(server, plain)) == bare


def test_metadata_reloads_as_the_same_workflow(server):
    w = workflow("txt2img")
    w["5"]["inputs"]["seed"] = 11  # one that is in no cache: a cached picture is the file it was
    ui = {"nodes": [{"id": 1}], "version": 0.4}
    png = picture(server, server.run(w, extra_data={"extra_pnginfo": {"workflow": ui}}))
    text = pngs.read(png)[4]
    assert json.loads(text["prompt"]) == w and json.loads(text["workflow"]) == ui
    again = picture(server, server.run(json.loads(text["prompt"])))
    assert pixels(again) == pixels(png)


# ---- Flux


def test_flux_is_placed_anywhere_and_told(server):
    """One picture wherever the blocks are; the history says what the networks did."""
    w = workflow("flux_dev")
    want = pixels(make(server, w))
    for alloc in ("cuda:0,4mb;cuda:1,3mb;cpu,*", "cuda:1,4mb;cpu,*", "cuda:0,100%"):
        w["1"] = node(
            "UNETLoaderDisTorch2MultiGPU",
            unet_name="flux1-dev.safetensors",
            weight_dtype="default",
            compute_device="cuda:0",
            virtual_vram_gb=0.0,
            donor_device="cpu",
            expert_mode_allocations=alloc,
            eject_models=False,
            keep_loaded=True,
        )
        item = server.run(w)
        assert pixels(picture(server, item)) == want, alloc
        did = {n["network"]: n for n in item["status"]["berth"]["networks"]}
        assert (
            did["diffusion"]["node"] == "12"
            and did["diffusion"]["passes"] == 4
            and did["diffusion"]["device"] == "cuda:0"
        )
        assert (
            did["diffusion"]["peak"]
            >= did["diffusion"]["weights"] + did["diffusion"]["activations"]
            > 0
        )
        assert "text" not in did, "the prompts came from the cache"
    server.post("/free", {"unload_models": True, "free_memory": True, "wait": True, "force": True})


def test_flux_guidance_matters(server):
    w = workflow("flux_dev")
    want = pixels(make(server, w))
    w["5"]["inputs"]["guidance"] = 1.0
    assert pixels(make(server, w)) != want
    w["5"] = node("FluxDisableGuidance", conditioning=["4", 0])
    assert pixels(make(server, w)) != want
    w["4"] = node(
        "CLIPTextEncodeFlux",
        clip=["2", 0],
        clip_l=w["4"]["inputs"]["text"],
        t5xxl=w["4"]["inputs"]["text"],
        guidance=3.5,
    )
    w["8"]["inputs"]["conditioning"] = ["4", 0]
    del w["5"]
    assert pixels(make(server, w)) == want


# ---- places


def placed(w, alloc, cls="CheckpointLoaderSimpleDisTorch2MultiGPU", **more):
    w["1"] = {
        "class_type": cls,
        "inputs": {
            "ckpt_name": "v1-5-pruned-emaonly-fp16.safetensors",
            "compute_device": "cuda:0",
            "virtual_vram_gb": 0.0,
            "donor_device": "cpu",
            "expert_mode_allocations": alloc,
            "eject_models": False,
            "keep_loaded": True,
            **more,
        },
    }
    return w


@pytest.mark.parametrize("sampler", ["euler", "euler_ancestral", "dpmpp_2m_sde", "uni_pc"])
def test_three_devices_give_the_same_picture(server, sampler):
    w = workflow("txt2img")
    w["5"]["inputs"]["sampler_name"] = sampler
    want = pixels(make(server, w))
    for alloc in ("cuda:0,6mb;cuda:1,5mb;cpu,*", "cuda:1,4mb;cpu,*", "cuda:0,100%", ""):
        got = pixels(make(server, placed(w, alloc)))
        assert got == want, alloc
        r = server.post("/free", {"unload_models": True, "free_memory": True, "wait": True})
        assert r.status_code == 200 and r.json()
        assert pixels(make(server, w)) == want, alloc


def test_blocks_really_lie_on_three_devices(server):
    make(server, placed(workflow("txt2img"), "cuda:0,6mb;cuda:1,5mb;cpu,*"))
    unet = [
        m
        for m in server.get("/berth/models").json()["models"]
        if m["role"] == "unet" and m["state"] == "resident"
    ]
    assert any(set(m["devices"]) == {"cuda:0", "cuda:1", "cpu"} for m in unet), unet


# ---- retention, when something computes


def resident(server):
    """(file, role) of all that is in memory, without what is nobody's business here."""
    server.post("/free", {"dry_run": True, "wait": True})  # the worker is through with the prompt
    return {
        (m["name"].removesuffix(".safetensors"), m["role"]): m
        for m in server.get("/berth/models").json()["models"]
        if m["state"] == "resident"
    }


@pytest.mark.parametrize("when", ["after", "during"])
def test_eject_keep_and_auto_with_a_sampler(server, base, when):
    """Eject models go with a prompt that computed with one, by themselves. A free after that finds
    nothing marked and takes the auto ones; one that was asked for during the prompt finds them
    still marked, and takes them alone. A kept model stays where it is, is found again and gives the
    same picture."""
    folder = base / "models"
    shutil.copy(
        folder / "checkpoints" / SD15, folder / "checkpoints" / "kept.safetensors"
    )  # a file of its own
    if not os.path.exists(folder / "vae" / "auto.safetensors"):
        synth(folder / "vae" / "auto.safetensors", "vae-tiny", "--dtype", "f16")
    free = {"unload_models": True, "free_memory": True}
    server.post("/free", {**free, "wait": True, "force": True})
    w = placed(workflow("txt2img", steps=12), "cuda:0,6mb;cuda:1,5mb;cpu,*", keep_loaded=False)
    w["8"] = placed({}, "cuda:0,100%", ckpt_name="kept.safetensors")["1"]
    w["9"] = node("VAELoader", vae_name="auto.safetensors")
    w["2"]["inputs"]["clip"] = w["3"]["inputs"]["clip"] = ["8", 1]
    w["6"]["inputs"]["vae"] = ["9", 0]
    kept = {("kept", "unet"), ("kept", "clip"), ("kept", "vae")}
    first = pixels(make(server, w))
    before = resident(server)
    assert set(before) == kept | {("auto", "vae")}
    if when == "during":
        with server.ws() as ws:
            ws.until(lambda m: isinstance(m, dict) and m["type"] == "status")
            w["5"]["inputs"]["seed"] = 43
            pid = server.queue(w, client_id=ws.id)["prompt_id"]
            ws.until(
                lambda m: isinstance(m, dict)
                and m["type"] == "progress"
                and m["data"]["node"] == "5"
            )
            assert server.post("/free", free).status_code == 200
            ws.until_done(pid)
        assert set(resident(server)) == kept | {("auto", "vae")}
    receipt = server.post("/free", {**free, "wait": True}).json()
    assert receipt["violations"] == []
    assert set(resident(server)) == kept
    w["5"]["inputs"]["seed"] = 42  # the loaders run again
    assert pixels(make(server, w)) == first
    after = resident(server)
    for k in kept:
        assert all(
            after[k][x] == before[k][x] for x in ("id", "read", "moved", "devices", "retention")
        ), k
    server.post("/free", {**free, "wait": True, "force": True})


def test_two_branches_of_one_model(server):
    """Adapters of one branch are none of the other's business, in one prompt and whatever ran
    before."""

    def branch(w, name, strength):
        w[name] = node(
            "LoraLoader",
            model=["1", 0],
            clip=["1", 1],
            lora_name="style.safetensors",
            strength_model=strength,
            strength_clip=0.0,
        )
        for k, link, source in (
            ("5", "model", [name, 0]),
            ("6", "samples", [name + "5", 0]),
            ("7", "images", [name + "6", 0]),
        ):
            w[name + k] = json.loads(json.dumps(w[k]))
            w[name + k]["inputs"][link] = source

    def alone(strength):
        w = workflow("txt2img")
        w["8"] = node(
            "LoraLoader",
            model=["1", 0],
            clip=["1", 1],
            lora_name="style.safetensors",
            strength_model=strength,
            strength_clip=0.0,
        )
        w["5"]["inputs"]["model"] = ["8", 0]
        return pixels(make(server, w))

    want = {"7": pixels(make(server, workflow("txt2img"))), "a7": alone(1.0), "b7": alone(-3.0)}
    assert want["7"] != want["a7"] != want["b7"]
    w = workflow("txt2img")
    branch(w, "a", 1.0)
    branch(w, "b", -3.0)
    server.post("/free", {"unload_models": True, "free_memory": True, "wait": True})
    item = server.run(w)
    assert item["status"]["status_str"] == "success"
    got = {
        n: pixels(server.get("/view", params=out["images"][0]).content)
        for n, out in item["outputs"].items()
    }
    assert got == want


@pytest.mark.skipif(SANITIZED, reason="memory costs what the sanitizer wants")
def test_many_prompts_take_no_more_memory(server):
    def go(seed):
        w = workflow("txt2img", steps=2)
        w["5"]["inputs"]["seed"] = seed
        make(server, w)

    for i in range(10):
        go(1000 + i)
    before = rss(server.process.pid)
    for i in range(40):
        go(2000 + i)
    assert rss(server.process.pid) - before < 24 << 20


# ---- prompts that say more

MORE = {
    "area": {
        "c": (
            "ConditioningSetAreaPercentage",
            {
                "conditioning": ["2", 0],
                "width": 0.5,
                "height": 1.0,
                "x": 0.5,
                "y": 0.0,
                "strength": 1.0,
            },
        ),
        "p": ("ConditioningCombine", {"conditioning_1": ["3", 0], "conditioning_2": ["c", 0]}),
    },
    "mask": {
        "m": ("SolidMask", {"value": 0.5, "width": 64, "height": 64}),
        "c": (
            "ConditioningSetMask",
            {
                "conditioning": ["2", 0],
                "mask": ["m", 0],
                "strength": 1.0,
                "set_cond_area": "default",
            },
        ),
        "p": ("ConditioningCombine", {"conditioning_1": ["3", 0], "conditioning_2": ["c", 0]}),
    },
    "combine": {
        "p": ("ConditioningCombine", {"conditioning_1": ["2", 0], "conditioning_2": ["3", 0]})
    },
    "concat": {
        "p": ("ConditioningConcat", {"conditioning_to": ["2", 0], "conditioning_from": ["3", 0]})
    },
    "average": {
        "p": (
            "ConditioningAverage",
            {
                "conditioning_to": ["2", 0],
                "conditioning_from": ["3", 0],
                "conditioning_to_strength": 0.5,
            },
        )
    },
    "zero": {"p": ("ConditioningZeroOut", {"conditioning": ["2", 0]})},
    "range": {
        "c": ("ConditioningSetTimestepRange", {"conditioning": ["2", 0], "start": 0.0, "end": 0.5}),
        "d": ("ConditioningSetTimestepRange", {"conditioning": ["3", 0], "start": 0.5, "end": 1.0}),
        "p": ("ConditioningCombine", {"conditioning_1": ["c", 0], "conditioning_2": ["d", 0]}),
    },
}


@pytest.mark.parametrize("what", MORE)
def test_what_is_said_about_prompts_matters(server, what):
    """Another picture than the plain one, and the same again after everything was freed."""
    w = workflow("txt2img")
    w["2"]["inputs"]["text"], w["3"]["inputs"]["text"] = "a red fox", "snow, trees"
    w["5"]["inputs"]["cfg"] = 7.0
    plain = pixels(make(server, w))
    for name, (cls, inputs) in MORE[what].items():
        w[name] = node(cls, **inputs)
    w["5"]["inputs"]["positive"] = ["p", 0]
    got = pixels(make(server, w))
    assert got != plain and len(set(got[3])) > 20
    server.post("/free", {"unload_models": True, "free_memory": True, "wait": True})
    assert pixels(make(server, w)) == got


# ---- other ways to load


def test_a_folder_of_diffusers(server, base):
    """The same files in such a folder and each by its loader: the same picture."""
    folder, models = base / "models" / "diffusers" / "tiny", base / "models"
    for network, file, key, preset in (
        ("unet", "diffusion_pytorch_model.fp16", "diffusion_models", "sd15-unet-tiny"),
        ("text_encoder", "model", "text_encoders", "clip-l-tiny"),
        ("vae", "diffusion_pytorch_model", "vae", "vae-tiny"),
    ):
        path = synth(folder / network / (file + ".safetensors"), preset, "--dtype", "f16")
        os.makedirs(models / key, exist_ok=True)
        os.symlink(path, models / key / "of_tiny.safetensors")
    (folder / "model_index.json").write_text("{}")
    w = workflow("txt2img")
    w["1"] = node("UNETLoader", unet_name="of_tiny.safetensors", weight_dtype="default")
    w["8"] = node("CLIPLoader", clip_name="of_tiny.safetensors", type="stable_diffusion")
    w["9"] = node("VAELoader", vae_name="of_tiny.safetensors")
    w["2"]["inputs"]["clip"] = w["3"]["inputs"]["clip"] = ["8", 0]
    w["6"]["inputs"]["vae"] = ["9", 0]
    want = pixels(make(server, w))
    for cls, more in (
        ("DiffusersLoader", {}),
        ("DiffusersLoaderMultiGPU", {"device": "cuda:1"}),
        (
            "DiffusersLoaderDisTorch2MultiGPU",
            {
                "compute_device": "cuda:0",
                "virtual_vram_gb": 0.0,
                "expert_mode_allocations": "cuda:0,6mb;cuda:1,5mb;cpu,*",
            },
        ),
    ):
        w = workflow("txt2img")
        w["1"] = node(cls, model_path="tiny", **more)
        assert pixels(make(server, w)) == want, cls
    os.remove(folder / "vae" / "diffusion_pytorch_model.safetensors")
    server.post("/free", {"unload_models": True, "free_memory": True, "wait": True})
    e = failure(server.run(w))
    assert "'tiny' has no vae/" in e["exception_message"], e["exception_message"]


# ---- on the way


def previews(messages):
    """Binary messages that are pictures; the others are texts under a node."""
    return [m for m in messages if isinstance(m, bytes) and struct.unpack(">I", m[:4])[0] == 1]


def test_progress_and_previews(server):
    w = workflow("txt2img", steps=6)
    w["5"]["inputs"]["seed"] = 77
    with server.ws() as ws:
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "status")
        done = server.queue(w, client_id=ws.id)["prompt_id"]
        got = ws.until_done(done)
    steps = [
        m["data"]["value"]
        for m in got
        if isinstance(m, dict) and m["type"] == "progress" and m["data"]["node"] == "5"
    ]
    assert steps == [1, 2, 3, 4, 5, 6]
    shown = previews(got)
    assert shown and all(p[8:10] == b"\xff\xd8" for p in shown)


def test_a_prompt_may_want_no_previews(server):
    w = workflow("txt2img", steps=3)
    w["5"]["inputs"]["seed"] = 78
    with server.ws() as ws:
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "status")
        done = server.queue(w, client_id=ws.id, extra_data={"preview_method": "none"})["prompt_id"]
        got = ws.until_done(done)
    assert not previews(got)


def test_interrupt_in_mid_sampling(server):
    w = workflow("txt2img", steps=2000)
    w["5"]["inputs"]["scheduler"] = "normal"
    with server.ws() as ws:
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "status")
        pid = server.queue(w, client_id=ws.id)["prompt_id"]
        ws.until(
            lambda m: isinstance(m, dict) and m["type"] == "progress" and m["data"]["value"] >= 2
        )
        assert server.post("/interrupt").status_code == 200
        got = ws.until_done(pid)
    assert [m for m in got if isinstance(m, dict) and m["type"] == "execution_interrupted"]
    assert server.get(f"/history/{pid}").json()[pid]["status"]["status_str"] == "error"
    make(server, workflow("txt2img"))


def test_free_during_sampling_acts_after_it(server):
    w = workflow("txt2img", steps=40)
    w["5"]["inputs"]["seed"] = 99
    with server.ws() as ws:
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "status")
        pid = server.queue(w, client_id=ws.id)["prompt_id"]
        ws.until(
            lambda m: isinstance(m, dict) and m["type"] == "progress" and m["data"]["value"] >= 2
        )
        assert server.post("/free", {"unload_models": True, "free_memory": True}).status_code == 200
        ws.until_done(pid)
    want = pixels(picture(server, server.wait(pid)))
    assert pixels(make(server, w)) == want


# ---- what goes wrong


def failure(item):
    assert item["status"]["status_str"] == "error"
    return [m for m in item["status"]["messages"] if m[0] == "execution_error"][0][1]


def test_wrong_kind_of_latent(server):
    w = workflow("txt2img")
    w["4"] = {
        "class_type": "EmptyLatentImage",
        "inputs": {"width": 64, "height": 64, "batch_size": 1},
    }
    w["5"]["inputs"]["model"], w["2"]["inputs"]["clip"] = ["1", 0], ["8", 1]
    w["8"] = {
        "class_type": "CheckpointLoaderSimple",
        "inputs": {"ckpt_name": "sd_xl_base_1.0.safetensors"},
    }
    e = failure(server.run(w))  # SDXL's text for SD1's UNet
    assert e["node_type"] == "KSampler"
    assert "128" in e["exception_message"] and "64" in e["exception_message"], e[
        "exception_message"
    ]


def test_no_tokenizer(base, tmp_path):
    """The loader says which file, where it looked and what to do; nothing was loaded."""
    other = tmp_path / "base"
    os.makedirs(other / "models")
    os.symlink(base / "models" / "checkpoints", other / "models" / "checkpoints")
    with Server(other, "--devices", "cpu") as s:
        e = failure(s.run(workflow("txt2img")))
        assert s.get("/berth/models").json()["models"] == []
    assert e["node_type"] == "CheckpointLoaderSimple" and SD15 in e["exception_message"]
    assert (
        str(other / "tokenizers") in e["exception_message"]
        and "--tokenizers" in e["exception_message"]
    )


def poisoned(base, name, part, value=b"\x00\x7e"):
    """The tiny checkpoint with one of its tensors full of F16 NaNs."""
    folder = base / "models" / "checkpoints"
    with open(folder / SD15, "rb") as f:
        data = bytearray(f.read())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    begin, end = next(v["data_offsets"] for k, v in header.items() if part in k)
    data[8 + size + begin : 8 + size + end] = value * ((end - begin) // 2)
    with open(folder / name, "wb") as f:
        f.write(data)
    return name


@pytest.mark.parametrize(
    "part,node,says",
    [
        ("diffusion_model.out.2.weight", "KSampler", ("step 1", "NaN")),
        ("encoder.layers.0.self_attn.q_proj.weight", "CLIPTextEncode", ("NaN",)),
        ("first_stage_model.decoder.conv_out.weight", "VAEDecode", ("NaN",)),
    ],
)
def test_nan_in_a_checkpoint(server, base, part, node, says):
    """No black picture: the node that met it says so, with the file; what follows is not harmed."""
    w = workflow("txt2img")
    w["1"]["inputs"]["ckpt_name"] = poisoned(base, "nan.safetensors", part)
    e = failure(server.run(w))
    assert e["node_type"] == node
    assert all(x in e["exception_message"] for x in says) and "nan" in e["exception_message"], e[
        "exception_message"
    ]
    os.remove(base / "models" / "checkpoints" / "nan.safetensors")
    make(server, workflow("txt2img"))


def test_weights_of_words_are_numbers(server):
    w = workflow("txt2img")
    w["2"]["inputs"]["text"] = "a (b:nan) c"
    e = failure(server.run(w))
    assert e["node_type"] == "CLIPTextEncode" and "(b:nan)" in e["exception_message"], e[
        "exception_message"
    ]


def test_prompts_that_double_meet_a_limit(server):
    """40 Combines of a list with itself would be 2^40 prompts."""
    w = workflow("txt2img")
    last = ["2", 0]
    for i in range(40):
        w[f"c{i}"] = node("ConditioningCombine", conditioning_1=last, conditioning_2=last)
        last = [f"c{i}", 0]
    w["5"]["inputs"]["positive"] = last
    e = failure(server.run(w))
    assert e["node_type"] == "ConditioningCombine" and "4096" in e["exception_message"], e[
        "exception_message"
    ]
    for i in range(40):
        w[f"c{i}"]["class_type"] = "ConditioningConcat"
        w[f"c{i}"]["inputs"] = {
            "conditioning_to": w[f"c{i}"]["inputs"]["conditioning_1"],
            "conditioning_from": w[f"c{i}"]["inputs"]["conditioning_2"],
        }
    e = failure(server.run(w))
    assert e["node_type"] == "ConditioningConcat" and "315392" in e["exception_message"], e[
        "exception_message"
    ]


def test_a_checkpoint_is_no_lora(server, base):
    loras = base / "models" / "loras"
    os.symlink(base / "models" / "checkpoints" / SD15, loras / "checkpoint.safetensors")
    w = workflow("lora")
    w["8"]["inputs"]["lora_name"] = "checkpoint.safetensors"
    e = failure(server.run(w))
    assert e["node_type"] == "LoraLoader" and "is no adapter" in e["exception_message"], e[
        "exception_message"
    ]
    assert "/" not in e["exception_message"].split("is no adapter")[0], e[
        "exception_message"
    ]  # no folder of this machine


def test_a_checkpoint_without_text_encoder(server, base):
    """One line, which survives logs and terminals; what the file is stands in it and under its
    loader."""
    synth(
        base / "models" / "checkpoints" / "unet_alone.safetensors",
        "sd15-unet-tiny",
        "--dtype",
        "f16",
    )
    w = workflow("txt2img")
    w["1"]["inputs"]["ckpt_name"] = "unet_alone.safetensors"
    e = failure(server.run(w))
    assert e["node_type"] == "CLIPTextEncode", e
    assert (
        "clip input is invalid: None. 'unet_alone.safetensors' holds no clip: it is "
        in e["exception_message"]
    ), e
    assert (
        "CLIPLoader opens one from another file" in e["exception_message"]
        and "??" not in e["exception_message"]
    )
    said = [
        line
        for line in server.errors().splitlines()
        if "unet_alone.safetensors' holds no clip: it is " in line
    ]
    assert said, server.errors()[-2000:]


def refused(server, w):
    """The errors of a prompt that is not taken; where models are is as it was."""
    make(server, workflow("txt2img"))
    before = server.get("/berth/models").json()["models"]
    assert before
    answer = server.queue(w, expect=400)
    assert server.get("/berth/models").json()["models"] == before
    assert answer["error"]["type"] == "prompt_outputs_failed_validation"
    return answer["node_errors"]


def test_what_cannot_be_computed_is_refused(server):
    w = workflow("txt2img")
    inputs = w["5"]["inputs"]
    w["8"] = node(
        "ConditioningStableAudio",
        positive=inputs["positive"],
        negative=inputs["negative"],
        seconds_start=0.0,
        seconds_total=47.0,
    )
    inputs["positive"] = ["8", 0]
    assert refused(server, w) == {
        "8": {
            "errors": [
                {
                    "type": "node_cannot_run",
                    "message": "Node cannot be computed",
                    "details": "ConditioningStableAudio cannot be computed yet",
                    "extra_info": {},
                }
            ],
            "dependent_outputs": ["7"],
            "class_type": "ConditioningStableAudio",
        }
    }


def test_a_file_of_a_family_that_cannot_be_computed(server, base, tmp_path):
    """A header is enough: nothing is evicted or read for it, and the sentence says what the file
    is."""
    keys = tmp_path / "keys.json"
    keys.write_text(
        json.dumps(
            {
                "video_patch_proj.weight": [1],
                "audio_patch_proj.weight": [1],
                "condition_proj.weight": [1],
            }
        )
    )
    file = base / "models" / "diffusion_models" / "h3.safetensors"
    subprocess.run(
        [BINARY, "synth", "--keys", keys, "--output", file], check=True, stdout=subprocess.DEVNULL
    )
    w = workflow("txt2img")
    w["8"] = node("UNETLoader", unet_name="h3.safetensors", weight_dtype="default")
    w["5"]["inputs"]["model"] = ["8", 0]
    what = "a MiniMax H3 audio and video model"
    said = f"'h3.safetensors' is {what}: this family cannot be computed yet"
    for _ in range(2):  # the second time it is remembered
        assert refused(server, w)["8"]["errors"] == [
            {
                "type": "custom_validation_failed",
                "message": "Custom validation failed for node",
                "details": f"unet_name - {said}",
                "extra_info": {"input_name": "unet_name"},
            }
        ]
    path = tmp_path / "w.json"
    path.write_text(json.dumps(w))
    here = subprocess.run(
        [BINARY, "run", path, "--base-directory", base, "--devices", "cpu"],
        capture_output=True,
        text=True,
    )
    assert (
        here.returncode == 1 and said in here.stderr and "loading" not in here.stderr
    ), here.stderr
    os.remove(file)
    subprocess.run(
        [BINARY, "synth", "--preset", "sd15-unet-tiny", "--output", file],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    make(server, w)  # another file of that name is another file
    os.remove(file)


# ---- without a server


def run(base, name, *args, steps=4, side=64):
    w = workflow(name, steps=steps, side=side)
    path = base / f"{name}.json"
    with open(path, "w") as f:
        json.dump(w, f)
    return subprocess.run(
        [BINARY, "run", "--base-directory", str(base), *args, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=PATIENCE * 2,
        text=True,
    )


def test_run_gives_the_servers_picture(server, base):
    r = run(base, "txt2img", "--devices", DEVICES)
    assert r.returncode == 0, r.stderr
    files = r.stdout.split()
    assert len(files) == 1
    with open(files[0], "rb") as f:
        assert pixels(f.read()) == pixels(make(server, workflow("txt2img")))


def test_run_with_little_memory(server, base):
    """A compute device smaller than weights and activations together: the ladder, and the same
    picture."""
    r = run(base, "distorch2", "--devices", "cuda:0@cpu=24m,cuda:1@cpu=512m,cpu")
    assert r.returncode == 0, r.stderr
    with open(r.stdout.split()[0], "rb") as f:
        assert pixels(f.read()) == pixels(make(server, workflow("txt2img")))


def test_run_without_the_memory_for_it(base):
    """Warned before the pass; then the numbers of what was tried last, and what helps."""
    r = run(base, "txt2img", "--devices", "cuda:0@cpu=24m,cpu=50m", side=2048, steps=1)
    assert r.returncode != 0
    warned = [
        line
        for line in r.stderr.splitlines()
        if "node.predict" in line and "more than half" in line
    ]
    assert warned and "budget=25165824" in warned[0], r.stderr
    said = r.stderr[r.stderr.index("berth run: ") :].splitlines()
    assert re.match(
        r"berth run: node \S+ \(KSampler\): cuda:0 is full: needs \S+ MiB, \S+ .iB of 24.0 MiB "
        r"are left; "
        "in the way: ",
        said[0],
    ), r.stderr
    assert "2 latents of 256 x 256: 1 at a time: " in said[1], r.stderr
    tips = r.stderr.split("TIPS")[-1]
    assert "smaller picture or batch" in tips and "--ram-budget" in tips, r.stderr
    assert "berth free" not in tips and "/free" not in tips  # there is no server


def test_taesd_is_told_once(base, tmp_path):
    other = tmp_path / "base"
    os.makedirs(other)
    os.symlink(base / "models", other / "models")
    os.symlink(base / "tokenizers", other / "tokenizers")
    with Server(other, "--devices", "cpu", "--preview-method", "taesd") as s:
        for seed in (1, 2):
            w = workflow("txt2img", steps=1)
            w["5"]["inputs"]["seed"] = seed
            make(s, w)
        said = [line for line in s.errors().splitlines() if "instead=latent2rgb" in line]
    assert len(said) == 1
