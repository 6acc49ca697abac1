#!/usr/bin/env python3
"""What ComfyUI's USO makes of a picture's style: three states of SigLIP, tokens, runs of Flux.

usage: uso.py FOLDER COMFYUI [--seed N] [--picture H W] [--text N] [--size H W] [--ref H W]
              [--steps N] [--cfg X]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout whose packages are installed; its encoder, its node USOStyleReference and its
sampler are run as they are, on weights made by the rule of tests/golden/data/README.md. Inputs are
drawn from --seed, which is the runs' seed, too. Writes

    uso.safetensors  image/<k>, context, vec, ref; seen/<k>/<state> of picture k; run/<case> of
                     CASES: from an empty latent, both prompts look at ref where the case says so
    uso_<model>_keys.json  names and shapes of the encoder's, the projector's and Flux's tensors

and manifest.json. tests/golden/node/test_uso.c reads any such folder:

    tools/golden/uso.py /tmp/fresh ../ComfyUI --seed 77 --picture 90 31 --text 3
    BERTH_GOLDEN_DIR=/tmp/fresh ctest --preset dev -R golden.node.uso
"""

import argparse
import json
import os

import torch

from clip_vision import HEADS, SIGLIP, encoder
from kontext import CONFIG, in_file
from tiny_models import load_comfy, synth, write

LAYERS, GIVES = 21, 4
STATES = {"low": -20, "mid": -11, "penultimate": -2}
CASES = {"one": ([0], None), "two": ([0, 1], None), "ref": ([1], "uxo")}  # pictures, a latent


def projector(width, rows):
    import comfy.ops
    import comfy_extras.nodes_model_patch as nodes

    net = nodes.SigLIPMultiFeatProjModel(
        rows,
        GIVES,
        width,
        CONFIG["hidden_size"],
        device="cpu",
        dtype=torch.float32,
        operations=comfy.ops.manual_cast,
    )
    shapes = {f"feature_embedder.{k}": list(v.shape) for k, v in net.state_dict().items()}
    net.float().load_state_dict({k.split(".", 1)[1]: synth(k, s) for k, s in shapes.items()})
    return type("Patch", (), {"model": net})(), shapes


def flux(comfy):
    about = comfy.supported_models.Flux(dict(CONFIG))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu")).eval().float()
    net = model.diffusion_model
    net.load_state_dict({k: synth(in_file(k), list(v.shape)) for k, v in net.state_dict().items()})
    return model, {in_file(k): list(v.shape) for k, v in net.state_dict().items()}


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=8)
    parse.add_argument("--picture", type=int, nargs=2, default=[61, 80])
    parse.add_argument("--text", type=int, default=5)
    parse.add_argument("--size", type=int, nargs=2, default=[4, 6])
    parse.add_argument("--ref", type=int, nargs=2, default=[6, 4])
    parse.add_argument("--steps", type=int, default=2)
    parse.add_argument("--cfg", type=float, default=1.0)
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    import comfy_extras.nodes_model_patch as nodes

    draw = torch.Generator().manual_seed(args.seed)
    images = [torch.rand(1, *args.picture, 3, generator=draw) for _ in range(2)]
    t = {f"image/{k}": image for k, image in enumerate(images)}
    t |= {
        "context": torch.randn(1, args.text, 64, generator=draw),
        "vec": torch.randn(1, 32, generator=draw),
        "ref": torch.randn(1, 16, *args.ref, generator=draw),
    }
    latent = torch.zeros(1, 16, *args.size)
    with torch.no_grad():
        clip, vision = encoder(comfy, "siglip", dict(SIGLIP, num_hidden_layers=LAYERS))
        seen = [clip.encode_image(image, crop=True) for image in images]
        for k, s in enumerate(seen):
            t |= {
                f"seen/{k}/{name}": s.all_hidden_states[:, at].clone()
                for name, at in STATES.items()
            }
        patch, style = projector(SIGLIP["hidden_size"], (SIGLIP["image_size"] // 14) ** 2)
        model, keys = flux(comfy)
        cpu = torch.device("cpu")
        for name, (pictures, ref) in CASES.items():
            patcher = comfy.model_patcher.ModelPatcher(model, cpu, cpu)
            for k in pictures:
                (patcher,) = nodes.USOStyleReference().apply_patch(patcher, patch, seen[k])
            said = {"pooled_output": t["vec"]}
            if ref:
                said |= {"reference_latents": [t["ref"]], "reference_latents_method": ref}
            cond = [[t["context"], said]]
            noise = comfy.sample.prepare_noise(latent, args.seed)
            t[f"run/{name}"] = run(comfy, patcher, noise, cond, latent, args)
    write(f"{args.folder}/uso.safetensors", t)
    for name, shapes in (("vision", vision), ("style", style), ("flux", keys)):
        with open(f"{args.folder}/uso_{name}_keys.json", "w") as f:
            json.dump(shapes, f)
    cases = {k: {"pictures": p, "method": r} for k, (p, r) in CASES.items()}
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(
            {
                "uso": {
                    "heads": HEADS,
                    "seed": args.seed,
                    "steps": args.steps,
                    "cfg": args.cfg,
                    "cases": cases,
                }
            },
            f,
            indent=1,
        )


def run(comfy, patcher, noise, cond, latent, args):
    patches = patcher.model_options["transformer_options"]["patches"]["post_input"]
    for p in patches:  # the projector is no model that ComfyUI would have to load
        p.models = lambda: []
    return comfy.sample.sample(
        patcher,
        noise,
        args.steps,
        args.cfg,
        "euler",
        "simple",
        cond,
        cond,
        latent,
        seed=args.seed,
        disable_pbar=True,
    )


if __name__ == "__main__":
    main()
