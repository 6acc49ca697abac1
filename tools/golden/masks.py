#!/usr/bin/env python3
"""What ComfyUI makes of noise masks for latents of pictures and of video.

usage: masks.py FOLDER COMFYUI     (written with torch 2.15.0, ComfyUI 0.33.0)

COMFYUI is a checkout, of which comfy.sampler_helpers.prepare_mask() is run. Writes
masks.safetensors into FOLDER: for every case a mask as a node gives it, "<case>.mask", and what a
sampler gets for a latent, "<case>.latent", which has the latent's shape.
"""

import sys

import torch
from safetensors.torch import save_file

CASES = {  # mask, latent
    "picture": ((1, 1, 24, 16), (1, 4, 6, 4)),
    "pictures": ((2, 1, 7, 9), (3, 4, 5, 6)),
    "pictures_cut": ((3, 1, 5, 6), (2, 4, 5, 6)),
    "picture_3d": ((2, 5, 7), (2, 3, 9, 4)),
    "picture_channels": ((1, 2, 4, 4), (2, 2, 3, 3)),
    "video_one": ((1, 1, 16, 16), (1, 4, 3, 4, 4)),
    "video_each": ((3, 1, 4, 5), (2, 2, 3, 4, 5)),
    "video_fewer": ((2, 1, 9, 7), (1, 3, 5, 4, 4)),
    "video_more": ((7, 1, 3, 4), (1, 2, 3, 6, 5)),
    "video_3d": ((4, 6, 6), (1, 2, 3, 3, 3)),
    "video_5d": ((1, 1, 4, 6, 5), (2, 3, 3, 4, 4)),
    "video_5d_batch": ((2, 1, 3, 4, 4), (3, 2, 5, 4, 4)),
    "video_5d_channels": ((2, 2, 3, 5, 4), (2, 5, 2, 4, 4)),
    "sound": ((1, 1, 8, 16), (2, 8, 12, 16)),
}


def main(folder, comfyui):
    sys.path.insert(0, comfyui)
    sys.argv = ["masks.py", "--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    from comfy.sampler_helpers import prepare_mask

    generator = torch.Generator().manual_seed(20)
    out = {}
    for name, (mask, latent) in CASES.items():
        m = torch.rand(mask, generator=generator)
        out[f"{name}.mask"] = m
        out[f"{name}.latent"] = prepare_mask(m, latent, "cpu").contiguous()
        assert out[f"{name}.latent"].shape == latent, name
    save_file(out, f"{folder}/masks.safetensors")


if __name__ == "__main__":
    main(*sys.argv[1:3])
