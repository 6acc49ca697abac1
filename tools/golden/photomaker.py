#!/usr/bin/env python3
"""What ComfyUI's PhotoMaker makes of a picture and a token of a prompt, with synthetic weights.

usage: photomaker.py FOLDER COMFYUI [--seed N] [--size H W] [--word N]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its encoder is run as it is, made small, on weights made by the rule of
tests/golden/data/README.md. --size is that of the pictures, of which the first counts; --word the
number of the token that the person is put into. Inputs are drawn from --seed. Writes

    photomaker_tiny.safetensors    image, prompt -> out
    photomaker_tiny_keys.json      names and shapes of tensors

and manifest.json. tests/golden/model/test_photomaker.c reads any such folder:

    tools/golden/photomaker.py /tmp/fresh ../ComfyUI --seed 77 --size 50 31 --word 5 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R photomaker
"""

import argparse
import json
import os
import sys

import torch

from qwen_image import synth, write

SIDE = 28
CONFIG = {
    "hidden_size": 64,
    "image_size": SIDE,
    "intermediate_size": 128,
    "num_channels": 3,
    "num_attention_heads": 16,
    "num_hidden_layers": 3,
    "patch_size": 14,
    "projection_dim": 24,
    "hidden_act": "quick_gelu",
    "model_type": "clip_vision_model",
}
SECOND = 40  # values of the other projection
TOKENS = 77


def start(path):
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1] + ["--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    from comfy_extras import nodes_photomaker

    return nodes_photomaker


def encoder(nodes):
    import comfy.clip_model
    import comfy.ops

    net = nodes.PhotoMakerIDEncoder.__new__(nodes.PhotoMakerIDEncoder)
    comfy.clip_model.CLIPVisionModelProjection.__init__(
        net, CONFIG, torch.float32, "cpu", comfy.ops.manual_cast
    )
    ops = comfy.ops.manual_cast
    net.visual_projection_2 = ops.Linear(CONFIG["hidden_size"], SECOND, bias=False)
    net.fuse_module = nodes.FuseModule(CONFIG["projection_dim"] + SECOND, ops)
    return net


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=41)
    parse.add_argument("--size", type=int, nargs=2, default=[33, 45])
    parse.add_argument("--word", type=int, default=2)
    a = parse.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    nodes = start(a.comfyui)
    import comfy.clip_vision

    net = encoder(nodes)
    shapes = {k: list(v.shape) for k, v in net.state_dict().items()}
    net.load_state_dict({k: synth(k, s) for k, s in shapes.items()})
    net = net.eval().float()
    generator = torch.Generator().manual_seed(a.seed)
    image = torch.rand(2, *a.size, 3, generator=generator)
    prompt = torch.randn(1, TOKENS, CONFIG["projection_dim"] + SECOND, generator=generator)
    with torch.no_grad():
        pixels = comfy.clip_vision.clip_preprocess(image, size=SIDE).float()
        mask = torch.tensor([i == a.word for i in range(TOKENS)]).unsqueeze(0)
        out = net(
            id_pixel_values=pixels.unsqueeze(0),
            prompt_embeds=prompt.clone(),
            class_tokens_mask=mask,
        )
    write(f"{a.folder}/photomaker_tiny.safetensors", {"image": image, "prompt": prompt, "out": out})
    with open(f"{a.folder}/photomaker_tiny_keys.json", "w") as f:
        json.dump(shapes, f)
    with open(f"{a.folder}/manifest.json", "w") as f:
        json.dump(
            {
                "photomaker_tiny": {
                    "keys": "photomaker_tiny_keys.json",
                    "seed": a.seed,
                    "word": a.word,
                    "config": CONFIG,
                }
            },
            f,
            indent=1,
        )
    print(list(out.shape), float((out - prompt).abs().max()))


if __name__ == "__main__":
    main()
