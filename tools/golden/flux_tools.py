#!/usr/bin/env python3
"""What ComfyUI's Flux tools make: Fill, a control model (Canny, Depth), and its LoRA on plain Flux.

usage: flux_tools.py FOLDER COMFYUI [--seed N] [--text N] [--size H W] [--other H W] [--steps N]
                     [--cfg X] [--rank N]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks, samplers and adapters are run as they are, on weights made by
the rule of tests/golden/data/README.md. Inputs are drawn from --seed, which is the runs' seed, too;
--size is that of the latents, --other that of a picture and, in eights of pixels, of a mask which
do not fit them. Writes

    flux_tools.safetensors      latent, picture, other, mask, other_mask, noise_mask, context, vec,
                                and run/<case> for each case that the manifest lists
    flux_<model>_tool_keys.json names and shapes of each model's tensors
    flux_lora_tool_keys.json, flux_narrow_tool_keys.json
                                the same of the LoRA, and of an ordinary one

and manifest.json. tests/golden/node/test_flux_tools.c reads any such folder:

    tools/golden/flux_tools.py /tmp/fresh ../ComfyUI --seed 77 --size 6 9 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R flux_tools
"""

import argparse
import json
import os

import torch

from kontext import CONFIG, in_file
from tiny_models import load_comfy, synth, write

CHANNELS = {"plain": 16, "control": 32, "fill": 96}
# model, what the prompts have (concat_latent, concat_mask), the latent's mask, of how many latents,
# the LoRA's strength, and where an ordinary LoRA stands that changes the same layer
CASES = {
    "fill": ("fill", "picture", "mask", None, 1, 0, None),
    "fill_resized": ("fill", "other", "other_mask", None, 3, 0, None),
    "fill_noise_mask": ("fill", None, None, "noise_mask", 1, 0, None),
    "fill_both_masks": ("fill", "picture", "mask", "noise_mask", 2, 0, None),
    "fill_picture": ("fill", "picture", None, None, 1, 0, None),
    "fill_nothing": ("fill", None, None, None, 1, 0, None),
    "control": ("control", "picture", None, None, 1, 0, None),
    "control_resized": ("control", "other", None, None, 2, 0, None),
    "control_nothing": ("control", None, None, None, 1, 0, None),
    "lora": ("plain", "picture", None, None, 1, 1.0, None),
    "lora_weaker": ("plain", "other", None, None, 2, 0.6, None),
    "lora_behind": ("plain", "picture", None, None, 1, 0.8, "before"),
    "lora_in_front": ("plain", "picture", None, None, 1, 0.8, "after"),
}
LAYERS = [
    "img_in",
    "txt_in",
    "time_in.in_layer",
    "vector_in.out_layer",
    "double_blocks.0.img_attn.qkv",
    "double_blocks.0.txt_mlp.0",
    "single_blocks.1.linear1",
    "single_blocks.0.modulation.lin",
    "final_layer.linear",
]
NORMS = [
    "double_blocks.0.img_attn.norm.query_norm",
    "double_blocks.0.txt_attn.norm.key_norm",
    "single_blocks.0.norm.key_norm",
    "single_blocks.1.norm.query_norm",
]


def model_of(comfy, channels):
    about = comfy.supported_models.Flux(dict(CONFIG, in_channels=channels))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu")).eval().float()
    net = model.diffusion_model
    net.load_state_dict({k: synth(in_file(k), list(v.shape)) for k, v in net.state_dict().items()})
    return model


def lora_of(net, rank):
    """As Black Forest Labs have it: bare names, biases, scales of norms; img_in twice as wide."""
    shapes = {}
    for layer in LAYERS:
        out, wide = net.get_submodule(layer).weight.shape
        shapes[f"{layer}.lora_A.weight"] = [rank, wide * (2 if layer == "img_in" else 1)]
        shapes[f"{layer}.lora_B.weight"] = [out, rank]
        shapes[f"{layer}.lora_B.bias"] = [out]
    for norm in NORMS:
        shapes[f"{norm}.scale"] = list(net.get_submodule(norm).weight.shape)
    return shapes


def narrow_of(rank):
    """An ordinary LoRA of the first layer and of another."""
    return {
        "diffusion_model.img_in.lora_A.weight": [rank, 64],
        "diffusion_model.img_in.lora_B.weight": [256, rank],
        "diffusion_model.txt_in.lora_A.weight": [rank, 64],
        "diffusion_model.txt_in.lora_B.weight": [256, rank],
    }


def run(comfy, patcher, case, t, args):
    _, picture, mask, noise_mask, batch, _, _ = case
    latent = t["latent"].repeat(batch, 1, 1, 1)
    said = {"pooled_output": t["vec"]}
    if picture:
        said["concat_latent_image"] = t[picture]
    if mask:
        said["concat_mask"] = t[mask].unsqueeze(1)
    noise = comfy.sample.prepare_noise(latent, args.seed)
    return comfy.sample.sample(
        patcher,
        noise,
        args.steps,
        args.cfg,
        "euler",
        "simple",
        [[t["context"], dict(said)]],
        [[t["context"] * 0.5, dict(said)]],
        latent,
        seed=args.seed,
        disable_pbar=True,
        noise_mask=t[noise_mask] if noise_mask else None,
    )


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=11)
    parse.add_argument("--text", type=int, default=7)
    parse.add_argument("--size", type=int, nargs=2, default=[6, 5])
    parse.add_argument("--other", type=int, nargs=2, default=[9, 4])
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--cfg", type=float, default=2.0)
    parse.add_argument("--rank", type=int, default=4)
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    import comfy.lora_convert
    import comfy.sd

    generator = torch.Generator().manual_seed(args.seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    (h, w), (oh, ow) = args.size, args.other
    t = {
        "latent": draw(1, 16, h, w),
        "picture": draw(1, 16, h, w),
        "other": draw(2, 16, oh, ow),
        "mask": draw(1, 8 * h, 8 * w).sigmoid(),
        "other_mask": draw(2, 8 * oh, 8 * ow).sigmoid(),
        "noise_mask": draw(1, 1, h, w).sigmoid(),
        "context": draw(1, args.text, 64),
        "vec": draw(1, 32),
    }
    os.makedirs(args.folder, exist_ok=True)
    cpu = torch.device("cpu")
    with torch.no_grad():
        models = {k: model_of(comfy, c) for k, c in CHANNELS.items()}
        shapes = lora_of(models["plain"].diffusion_model, args.rank)
        lora = comfy.lora_convert.convert_lora({k: synth(k, s) for k, s in shapes.items()})
        narrow = {k: synth(k, s) for k, s in narrow_of(args.rank).items()}
        for name, case in CASES.items():
            model = model_of(comfy, CHANNELS[case[0]])
            patcher = comfy.model_patcher.ModelPatcher(model, cpu, cpu)
            adapters = [(lora, case[5])] if case[5] else []
            if case[6]:
                adapters.insert(0 if case[6] == "before" else 1, (narrow, 1.0))
            for adapter, strength in adapters:
                patcher, _ = comfy.sd.load_lora_for_models(patcher, None, adapter, strength, 0)
            t[f"run/{name}"] = run(comfy, patcher, case, t, args)
    write(f"{args.folder}/flux_tools.safetensors", t)
    for name, model in models.items():
        with open(f"{args.folder}/flux_{name}_tool_keys.json", "w") as f:
            keys = model.diffusion_model.state_dict()
            json.dump({in_file(k): list(v.shape) for k, v in keys.items()}, f)
    for name, of in (("lora", shapes), ("narrow", narrow_of(args.rank))):
        with open(f"{args.folder}/flux_{name}_tool_keys.json", "w") as f:
            json.dump(of, f)
    fields = ["model", "picture", "mask", "noise_mask", "batch", "lora", "narrow"]
    manifest = {
        "seed": args.seed,
        "steps": args.steps,
        "cfg": args.cfg,
        "cases": {k: dict(zip(fields, c)) for k, c in CASES.items()},
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump({"flux_tools": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
