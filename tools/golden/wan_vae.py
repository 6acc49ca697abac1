#!/usr/bin/env python3
"""What ComfyUI's VAE of Wan 2.1 computes, of pictures and video, with synthetic weights.

usage: wan_vae.py FOLDER COMFYUI [--seed N] [--dim N] [--size H W] [--frames N ...]
       (written with torch 2.11, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its network is run as it is, on weights made by the rule of
tests/golden/data/README.md. --size is that of latents, --frames has how many of them each case has:
one is a picture. Inputs are drawn from --seed. Writes

    wan21_vae_<n>_tiny.safetensors, wan21_vae_rgba_tiny.safetensors
                               z -> decoded, image or video -> encoded (the mean); no latent format
                               is applied
    wan21_vae_tiny_keys.json, wan21_vae_rgba_tiny_keys.json
                               names and shapes of tensors

and manifest.json, which says how each was made. tests/golden/model/test_vae_wan.c reads any such
folder:

    tools/golden/wan_vae.py /tmp/fresh ../ComfyUI --seed 77 --frames 1 2 5 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R vae_wan
"""

import argparse
import json
import os
import sys

import torch

from tiny_models import synth, write

CONFIG = dict(
    z_dim=16,
    dim_mult=[1, 2, 4, 4],
    num_res_blocks=2,
    attn_scales=[],
    temperal_downsample=[False, True, True],
    dropout=0.0,
)


def load_vae(path, config):
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1] + ["--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfy.ldm.wan.vae

    net = comfy.ldm.wan.vae.WanVAE(**config)
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return net.eval().float()


def case(net, args, frames, colours, draw):
    h, w = args.size
    z = draw(1, 16, frames, h, w)
    pixels = draw(1, colours, 4 * frames - 3, 8 * h, 8 * w).clamp(-1, 1)
    name = "image" if frames == 1 else "video"
    return {"z": z, "decoded": net.decode(z), name: pixels, "encoded": net.encode(pixels)}


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=14)
    parse.add_argument("--dim", type=int, default=16)
    parse.add_argument("--size", type=int, nargs=2, default=[4, 6])
    parse.add_argument("--frames", type=int, nargs="+", default=[1, 2, 3, 5])
    args = parse.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    files = [(f"wan21_vae_{n}_tiny", "wan21_vae_tiny_keys.json", n, 3) for n in args.frames]
    files.append(("wan21_vae_rgba_tiny", "wan21_vae_rgba_tiny_keys.json", 1, 4))
    manifest = {}
    for name, keys, frames, colours in files:
        generator = torch.Generator().manual_seed(args.seed)
        config = CONFIG | dict(dim=args.dim, image_channels=colours, conv_out_channels=colours)
        with torch.no_grad():
            net = load_vae(args.comfyui, config)
            tensors = case(
                net, args, frames, colours, lambda *shape: torch.randn(*shape, generator=generator)
            )
        write(f"{args.folder}/{name}.safetensors", tensors)
        with open(f"{args.folder}/{keys}", "w") as f:
            json.dump({k: list(v.shape) for k, v in net.state_dict().items()}, f)
        manifest[name] = {
            "config": config,
            "keys": keys,
            "seed": args.seed,
            "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()},
        }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
