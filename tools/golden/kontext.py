#!/usr/bin/env python3
"""What ComfyUI's Flux transformer computes when it looks at pictures (Kontext).

usage: kontext.py FOLDER COMFYUI [--seed N] [--text N] [--size H W] [--refs H W H W]
       (written with torch 2.11, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its network is run as it is, on weights made by the rule of
tests/golden/data/README.md. Inputs are drawn from --seed; --text is the length of the prompt,
--size that of the latent, --refs those of two latents to look at. Writes

    kontext_tiny.safetensors   x, t, context, vec, guidance; ref, ref2 -> out_ref/<method> of the
                               first, out_ref2/<method> of both, `own` being the model's own method
    kontext_tiny_keys.json     names and shapes of its tensors

and manifest.json. tests/golden/model/test_kontext.c reads any such folder:

    tools/golden/kontext.py /tmp/fresh ../ComfyUI --seed 77 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R kontext
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

CONFIG = dict(
    image_model="flux",
    in_channels=16,
    out_channels=16,
    vec_in_dim=32,
    context_in_dim=64,
    hidden_size=256,
    mlp_ratio=4.0,
    num_heads=2,
    depth=1,
    depth_single_blocks=2,
    axes_dim=[16, 56, 56],
    theta=10000,
    patch_size=2,
    qkv_bias=True,
    guidance_embed=True,
    txt_ids_dims=[],
)
METHODS = ["own", "offset", "index", "uxo"]


def in_file(name):
    """Files call the weight of a norm its scale."""
    return name.replace("_norm.weight", "_norm.scale")


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=5)
    parse.add_argument("--text", type=int, default=9)
    parse.add_argument("--size", type=int, nargs=2, default=[6, 9])
    parse.add_argument("--refs", type=int, nargs=4, default=[8, 5, 4, 6])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    generator = torch.Generator().manual_seed(args.seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    about = comfy.supported_models.Flux(dict(CONFIG))
    about.set_inference_dtype(torch.float32, None)
    net = about.get_model({}, "", device=torch.device("cpu")).diffusion_model.eval().float()
    net.load_state_dict({k: synth(in_file(k), list(v.shape)) for k, v in net.state_dict().items()})
    t = {
        "x": draw(1, 16, *args.size),
        "t": torch.tensor([0.7]),
        "context": draw(1, args.text, CONFIG["context_in_dim"]),
        "vec": draw(1, CONFIG["vec_in_dim"]),
        "guidance": torch.tensor([2.5]),
        "ref": draw(1, 16, *args.refs[:2]),
        "ref2": draw(1, 16, *args.refs[2:]),
    }
    with torch.no_grad():
        for method in METHODS:
            how = {} if method == "own" else {"ref_latents_method": method}
            for tail, refs in (("", [t["ref"]]), ("2", [t["ref"], t["ref2"]])):
                t[f"out_ref{tail}/{method}"] = net(
                    t["x"], t["t"], t["context"], t["vec"], t["guidance"], ref_latents=refs, **how
                )
    os.makedirs(args.folder, exist_ok=True)
    write(f"{args.folder}/kontext_tiny.safetensors", t)
    with open(f"{args.folder}/kontext_tiny_keys.json", "w") as f:
        json.dump({in_file(k): list(v.shape) for k, v in net.state_dict().items()}, f)
    with open(f"{args.folder}/manifest.json", "w") as f:
        tensors = {k: ["float32", list(v.shape)] for k, v in t.items()}
        manifest = {"config": CONFIG, "seed": args.seed, "tensors": tensors}
        json.dump({"kontext_tiny": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
