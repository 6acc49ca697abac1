#!/usr/bin/env python3
"""What ComfyUI's inpainting UNets make: SD1.5 and SDXL with a mask and a picture beside the latent.

usage: inpaint.py FOLDER COMFYUI [--seed N] [--size H W] [--other H W] [--steps N] [--cfg X]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks and samplers are run as they are, on weights made by the rule of
tests/golden/data/README.md. Inputs are drawn from --seed, which is the runs' seed, too; --size is
that of the latents, --other that of a picture and, in eights of pixels, of a mask that do not fit.
Writes

    inpaint.safetensors         latent, picture, other, mask, other_mask, noise_mask, context,
                                pooled, and <model>/<case> for each case that the manifest lists
    inpaint_<model>_keys.json   names and shapes of each model's tensors

and manifest.json. tests/golden/node/test_inpaint.c reads any such folder:

    tools/golden/inpaint.py /tmp/fresh ../ComfyUI --seed 77 --size 8 12 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.node.inpaint
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

UNET = dict(
    image_size=32,
    in_channels=9,
    out_channels=4,
    model_channels=64,
    context_dim=64,
    num_res_blocks=[1, 1],
    channel_mult=[1, 2],
    transformer_depth=[1, 1],
    transformer_depth_middle=1,
    transformer_depth_output=[1, 1, 1, 1],
    use_spatial_transformer=True,
    legacy=False,
    use_temporal_attention=False,
    adm_in_channels=None,
)
POOLED = 40
CONFIG = {
    "sd15": dict(UNET, num_heads=8, num_head_channels=-1, use_linear_in_transformer=False),
    "sdxl": dict(
        UNET,
        num_head_channels=64,
        use_linear_in_transformer=True,
        transformer_depth=[0, 1],
        transformer_depth_output=[0, 0, 1, 1],
        num_classes="sequential",
        adm_in_channels=POOLED + 6 * 256,
    ),
}
# what the prompts have (picture, mask), the latent's mask, of how many latents
CASES = {
    "both": ("picture", "mask", None, 1),
    "resized": ("other", "other_mask", None, 3),
    "noise_mask": (None, None, "noise_mask", 1),
    "both_masks": ("picture", "mask", "noise_mask", 2),
    "picture": ("picture", None, None, 1),
    "nothing": (None, None, None, 1),
}


def model_of(comfy, name):
    kind = {"sd15": comfy.supported_models.SD15, "sdxl": comfy.supported_models.SDXL}[name]
    about = kind(dict(CONFIG[name]))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu")).eval().float()
    net = model.diffusion_model
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return model


def run(comfy, model, case, t, args):
    picture, mask, noise_mask, batch = case
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    latent = t["latent"].repeat(batch, 1, 1, 1)
    said = {"pooled_output": t["pooled"]}
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
        "normal",
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
    parse.add_argument("--seed", type=int, default=6)
    parse.add_argument("--size", type=int, nargs=2, default=[8, 6])
    parse.add_argument("--other", type=int, nargs=2, default=[9, 4])
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--cfg", type=float, default=4.0)
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    generator = torch.Generator().manual_seed(args.seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    (h, w), (oh, ow) = args.size, args.other
    t = {
        "latent": draw(1, 4, h, w),
        "picture": draw(1, 4, h, w),
        "other": draw(2, 4, oh, ow),
        "mask": draw(1, 8 * h, 8 * w).sigmoid(),
        "other_mask": draw(2, 8 * oh, 8 * ow).sigmoid(),
        "noise_mask": draw(1, 1, h, w).sigmoid(),
        "context": draw(1, 7, 64),
        "pooled": draw(1, POOLED),
    }
    os.makedirs(args.folder, exist_ok=True)
    with torch.no_grad():
        for name in CONFIG:
            model = model_of(comfy, name)
            for case, what in CASES.items():
                t[f"{name}/{case}"] = run(comfy, model, what, t, args)
            with open(f"{args.folder}/inpaint_{name}_keys.json", "w") as f:
                keys = model.diffusion_model.state_dict()
                json.dump({k: list(v.shape) for k, v in keys.items()}, f)
    write(f"{args.folder}/inpaint.safetensors", t)
    fields = ["picture", "mask", "noise_mask", "batch"]
    manifest = {
        "seed": args.seed,
        "steps": args.steps,
        "cfg": args.cfg,
        "models": list(CONFIG),
        "cases": {k: dict(zip(fields, c)) for k, c in CASES.items()},
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump({"inpaint": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
