#!/usr/bin/env python3
"""What ComfyUI samples with the tiny SD1.5 model and boxes of a GLIGEN, with synthetic weights.

usage: gligen.py GOLDEN FOLDER COMFYUI [--seed N] [--steps N] [--size H W]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

GOLDEN is tests/golden/data: the tiny model's keys. COMFYUI is a checkout; its KSampler, its loader
of GLIGEN files and what its sampler does with boxes are run as they are. --size is that of
latents. Prompts and texts are drawn from --seed. Writes

    gligen_tiny.safetensors    positive, negative, texts; <case>: the latent at the end
    gligen_tiny_keys.json      names and shapes of the GLIGEN's tensors

and manifest.json, which has the cases: boxes as (h, w, y, x) of latent pixels, an area of the
positive prompt as (h, w, y, x) of pixels or none. tests/golden/node/test_gligen.c reads any such
folder that has the tiny model's keys too:

    cp tests/golden/data/sd15_tiny_unet_keys.json /tmp/fresh &&
        tools/golden/gligen.py tests/golden/data /tmp/fresh ../ComfyUI --seed 77 --size 9 14 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.node.gligen
"""

import argparse
import json
import os
import re

import torch

from patches import Reference, synth
from tiny_models import write

WIDTH = 768  # of tokens and of texts: heads are 8 then, whatever the channels
HIDDEN = 512
WAVES = 64
PREFIX = "model.diffusion_model."
UNET = ("SD15", "unet_sd15_tiny", "sd15_tiny_unet_keys.json", PREFIX)


def linear(shapes, name, made, taken, bias=True):
    shapes[name + ".weight"] = [made, taken]
    if bias:
        shapes[name + ".bias"] = [made]


def fuser(shapes, name, c):
    linear(shapes, f"{name}.linear", c, WIDTH)
    for x in ("to_q", "to_k", "to_v"):
        linear(shapes, f"{name}.attn.{x}", c, c, False)
    linear(shapes, f"{name}.attn.to_out.0", c, c)
    linear(shapes, f"{name}.ff.net.0.proj", 8 * c, c)
    linear(shapes, f"{name}.ff.net.2", c, 4 * c)
    for x in ("norm1", "norm2"):
        shapes[f"{name}.{x}.weight"] = shapes[f"{name}.{x}.bias"] = [c]
    shapes[f"{name}.alpha_attn"] = shapes[f"{name}.alpha_dense"] = []


def gligen_keys(unet):
    """A fuser for each transformer block of the UNet, and the net that makes tokens of boxes."""
    shapes = {}
    for key, shape in unet.items():
        m = re.fullmatch(re.escape(PREFIX) + r"(.*transformer_blocks\.\d+)\.norm1\.weight", key)
        if m:
            fuser(shapes, f"{m[1]}.fuser", shape[0])
    linear(shapes, "position_net.linears.0", HIDDEN, WIDTH + WAVES)
    linear(shapes, "position_net.linears.2", HIDDEN, HIDDEN)
    linear(shapes, "position_net.linears.4", WIDTH, HIDDEN)
    shapes["position_net.null_positive_feature"] = [WIDTH]
    shapes["position_net.null_position_feature"] = [WAVES]
    return shapes


def cases(h, w):
    half = [h // 2, w // 2, 1, 2]
    return {
        "none": {"boxes": [], "area": None},
        "one": {"boxes": [half], "area": None},
        "three": {"boxes": [half, [h, w // 3, 0, 0], [2, 3, h - 2, w - 3]], "area": None},
        "area": {"boxes": [half], "area": [8 * (h // 2), 8 * (w - 2), 8, 16]},
    }


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("golden")
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=31)
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--size", type=int, nargs=2, default=[8, 12])
    a = parse.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    torch.set_num_threads(1)
    ref = Reference(a.comfyui, a.golden)
    model = ref.unet(*UNET)
    with open(f"{a.golden}/{UNET[2]}") as f:
        unet = json.load(f)
    shapes = gligen_keys(unet)
    import comfy.gligen
    import comfy.model_patcher

    cpu = torch.device("cpu")
    net = comfy.gligen.load_gligen({k: synth(k, s) for k, s in shapes.items()})
    net = comfy.model_patcher.ModelPatcher(net, cpu, cpu)
    generator = torch.Generator().manual_seed(a.seed)
    wide = model.model.model_config.unet_config["context_dim"]
    tensors = {
        "positive": torch.randn(1, 6, wide, generator=generator),
        "negative": torch.randn(1, 6, wide, generator=generator),
        "texts": torch.randn(3, WIDTH, generator=generator),
    }
    settings = {"cfg": 5.0, "steps": a.steps, "seed": a.seed, "size": a.size}
    listed = cases(*a.size)
    for name, case in listed.items():
        positive = [[tensors["positive"], {}]]
        if case["boxes"]:
            boxes = [(tensors["texts"][i : i + 1], *b) for i, b in enumerate(case["boxes"])]
            positive[0][1]["gligen"] = ("position", net, boxes)
        if case["area"]:
            h, w, y, x = case["area"]
            positive = ref.run(
                "ConditioningSetArea",
                dict(conditioning=positive, width=w, height=h, x=x, y=y, strength=1.0),
            )[0]
            positive = positive + [[tensors["positive"], {}]]
        with torch.inference_mode():
            out = ref.run(
                "KSampler",
                dict(
                    model=model,
                    seed=a.seed,
                    steps=a.steps,
                    cfg=settings["cfg"],
                    sampler_name="euler",
                    scheduler="normal",
                    positive=positive,
                    negative=[[tensors["negative"], {}]],
                    latent_image={"samples": torch.zeros(1, 4, *a.size)},
                    denoise=1.0,
                ),
            )[0]["samples"]
        tensors[name] = out.clone()
        print(name, float(out.abs().max()), float((out - tensors["none"]).abs().max()))
    write(f"{a.folder}/gligen_tiny.safetensors", tensors)
    with open(f"{a.folder}/gligen_tiny_keys.json", "w") as f:
        json.dump(shapes, f)
    with open(f"{a.folder}/manifest.json", "w") as f:
        json.dump(
            {"gligen_tiny": settings | {"keys": "gligen_tiny_keys.json", "cases": listed}},
            f,
            indent=1,
        )


if __name__ == "__main__":
    main()
