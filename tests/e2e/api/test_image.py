"""Pictures from prompts, over HTTP and with `berth run`: the workflows of examples/, on tiny models.

Weights are synthetic, so that pictures show nothing; that they are the right ones is what tests/golden say.
Here: every workflow runs from its file to a PNG, twice the same, placed anywhere the same, freed in between the
same; what a client sees on the way; what it may do meanwhile."""

import json
import os
import struct
import subprocess

import pytest

import pngs
from conftest import BINARY, PATIENCE, Server, synth

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "..", "examples", "workflows")
TINY = {"v1-5-pruned-emaonly-fp16.safetensors": "sd15-tiny", "sd-v1-5-inpainting.safetensors": "sd15-inpaint-tiny",
        "sd_xl_base_1.0.safetensors": "sdxl-base-tiny", "sd_xl_refiner_1.0.safetensors": "sdxl-refiner-tiny"}
DEVICES = "cuda:0@cpu=512m,cuda:1@cpu=512m,cpu"


def lora(path, seed):
    """A kohya adapter on one layer of the UNet and one of CLIP-L, by hand: header and floats."""
    tensors = {}
    for base, out, width in (("lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q", 32, 32),
                             ("lora_te_text_model_encoder_layers_0_self_attn_q_proj", 64, 64)):
        tensors[f"{base}.lora_up.weight"] = (out, 4)
        tensors[f"{base}.lora_down.weight"] = (4, width)
        tensors[f"{base}.alpha"] = ()
    header, data = {}, b""
    for name, shape in tensors.items():
        count = 1
        for d in shape:
            count *= d
        values = [((i * 7919 + seed * 104729) % 2001 - 1000) / 1000 for i in range(count)] if shape else [4.0]
        raw = struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def pixels(png):
    return pngs.read(png)[:4]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image") / "base"
    for name, preset in TINY.items():
        synth(folder / "models" / "checkpoints" / name, preset, "--dtype", "f16")
    os.makedirs(folder / "tokenizers")
    subprocess.run([BINARY, "synth", "--tokenizer", str(folder / "tokenizers" / "clip")], check=True, stdout=subprocess.DEVNULL)
    lora(folder / "models" / "loras" / "style.safetensors", 1)
    lora(folder / "models" / "loras" / "detail.safetensors", 2)
    os.makedirs(folder / "input", exist_ok=True)
    side, hole = 128, range(32, 96)  # a gradient, transparent in the middle: the part that is to be painted
    rgba = b"".join(bytes((x * 2, y * 2, 90, 0 if x in hole and y in hole else 255)) for y in range(side) for x in range(side))
    with open(folder / "input" / "example.png", "wb") as f:
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
            if key in i and node["class_type"] == "EmptyLatentImage":
                i[key] = side
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


ALL = ["txt2img", "img2img", "inpaint", "inpaint_model", "lora", "hires_fix", "sdxl_refiner", "distorch2", "custom_sampler"]


@pytest.mark.parametrize("name", ALL)
def test_example_makes_a_picture(server, name):
    png = make(server, workflow(name))
    w, h, c, data = pixels(png)
    assert c == 3 and (w, h) == {"hires_fix": (96, 96), "img2img": (128, 128), "inpaint": (128, 128),
                      "inpaint_model": (128, 128)}.get(name, (64, 64))
    assert len(set(data)) > 20, "a picture of one colour"


def test_every_example_is_tried():
    there = {f[:-5] for f in os.listdir(EXAMPLES) if f.endswith(".json")}
    assert there - {"card", "load"} == set(ALL)


def test_what_a_seed_gives(server):
    w = workflow("txt2img")
    first = pixels(make(server, w))
    w["5"]["inputs"]["seed"] = 43
    other = pixels(make(server, w))
    assert first != other
    assert server.post("/free", {"unload_models": True, "free_memory": True, "wait": True}).status_code == 200
    w["5"]["inputs"]["seed"] = 42
    assert pixels(make(server, w)) == first


def test_custom_nodes_equal_ksampler(server):
    assert pixels(make(server, workflow("custom_sampler"))) == pixels(make(server, workflow("txt2img")))


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


# ---- places

def placed(w, alloc, cls="CheckpointLoaderSimpleDisTorch2MultiGPU", **more):
    w["1"] = {"class_type": cls,
              "inputs": {"ckpt_name": "v1-5-pruned-emaonly-fp16.safetensors", "compute_device": "cuda:0",
                         "virtual_vram_gb": 0.0, "donor_device": "cpu", "expert_mode_allocations": alloc,
                         "eject_models": False, "keep_loaded": True, **more}}
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
    unet = [m for m in server.get("/berth/models").json()["models"] if m["role"] == "unet" and m["state"] == "resident"]
    assert any(set(m["devices"]) == {"cuda:0", "cuda:1", "cpu"} for m in unet), unet


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
    steps = [m["data"]["value"] for m in got if isinstance(m, dict) and m["type"] == "progress" and m["data"]["node"] == "5"]
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
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "progress" and m["data"]["value"] >= 2)
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
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "progress" and m["data"]["value"] >= 2)
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
    w["4"] = {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}}
    w["5"]["inputs"]["model"], w["2"]["inputs"]["clip"] = ["1", 0], ["8", 1]
    w["8"] = {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd_xl_base_1.0.safetensors"}}
    e = failure(server.run(w))  # SDXL's text for SD1's UNet
    assert e["node_type"] == "KSampler"
    assert "128" in e["exception_message"] and "64" in e["exception_message"], e["exception_message"]


def test_no_tokenizer(base, tmp_path):
    """Says where it looked and what to do."""
    other = tmp_path / "base"
    os.makedirs(other / "models")
    os.symlink(base / "models" / "checkpoints", other / "models" / "checkpoints")
    with Server(other, "--devices", "cpu") as s:
        e = failure(s.run(workflow("txt2img")))
    assert e["node_type"] == "CLIPTextEncode"
    assert str(other / "tokenizers") in e["exception_message"] and "--tokenizers" in e["exception_message"]


# ---- without a server

def run(base, name, *args, steps=4):
    w = workflow(name, steps=steps)
    path = base / f"{name}.json"
    with open(path, "w") as f:
        json.dump(w, f)
    return subprocess.run([BINARY, "run", "--base-directory", str(base), *args, str(path)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=PATIENCE * 2, text=True)


def test_run_gives_the_servers_picture(server, base):
    r = run(base, "txt2img", "--devices", DEVICES)
    assert r.returncode == 0, r.stderr
    files = r.stdout.split()
    assert len(files) == 1
    with open(files[0], "rb") as f:
        assert pixels(f.read()) == pixels(make(server, workflow("txt2img")))


def test_run_with_little_memory(server, base):
    """A compute device smaller than weights and activations together: the ladder, and the same picture."""
    r = run(base, "distorch2", "--devices", "cuda:0@cpu=24m,cuda:1@cpu=512m,cpu")
    assert r.returncode == 0, r.stderr
    with open(r.stdout.split()[0], "rb") as f:
        assert pixels(f.read()) == pixels(make(server, workflow("txt2img")))
