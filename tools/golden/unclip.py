#!/usr/bin/env python3
"""What ComfyUI makes of pictures that a model is told of: SD2.1 unCLIP, and SDXL (revision).

usage: unclip.py FOLDER COMFYUI [--seed N] [--steps N] [--cfg X] [--size H W]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout whose packages are installed. Tiny checkpoints with an encoder of pictures,
made by the rule of tests/golden/data/README.md, are given to its networks. Writes

    unclip.safetensors      image, context, negative; and for every model and case of the manifest
                            <model>/adm/<case>, the vector that the model is told, and
                            <model>/run/<case>
    unclip_<model>_unet_keys.json, unclip_<model>_vision_keys.json
                            names and shapes of its tensors, as in a checkpoint

and manifest.json. tests/golden/node/test_unclip.c reads any such folder:

    tools/golden/unclip.py /tmp/fresh ../ComfyUI --seed 9 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R unclip
"""

import argparse
import json
import os

import torch

from clip_vision import HEADS, PLAIN, openclip_shapes
from tiny_models import load_comfy, synth, write

WIDTH = {"sd21": 48, "sdxl": 1280}  # of what the encoder says of a picture
UNET = dict(
    image_size=32,
    in_channels=4,
    out_channels=4,
    model_channels=64,
    context_dim=64,
    num_res_blocks=[1, 1],
    channel_mult=[1, 2],
    transformer_depth=[1, 1],
    transformer_depth_middle=1,
    transformer_depth_output=[1, 1, 1, 1],
    num_head_channels=64,
    use_linear_in_transformer=True,
    use_spatial_transformer=True,
    legacy=False,
    num_classes="sequential",
    adm_in_channels=2 * WIDTH["sd21"],
    use_temporal_attention=False,
)
XL = dict(
    UNET,
    transformer_depth=[0, 1],
    transformer_depth_output=[0, 0, 1, 1],
    adm_in_channels=WIDTH["sdxl"] + 6 * 256,
)
# lists of (pictures from the first on, strength, noise_augmentation)
CASES = {
    "one": [(1, 1.0, 0.0)],
    "noisy": [(1, 0.7, 0.4)],
    "two": [(1, 1.0, 0.1), (1, -0.5, 0.6)],
    "batch": [(2, 0.8, 0.25)],
    "none": [],
}


def model_of(comfy, name):
    class Tiny(comfy.supported_models.SD20):
        unet_config = {}
        noise_aug_config = {
            "noise_schedule_config": {"timesteps": 1000, "beta_schedule": "squaredcos_cap_v2"},
            "timestep_dim": WIDTH["sd21"],
        }

        def model_type(self, state_dict, prefix=""):
            return comfy.model_base.ModelType.EPS

    about = Tiny(dict(UNET)) if name == "sd21" else comfy.supported_models.SDXL(dict(XL))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu")).eval().float()
    net, lead = model.diffusion_model, "model.diffusion_model."
    shapes = {lead + k: list(v.shape) for k, v in net.state_dict().items()}
    net.load_state_dict({k[len(lead) :]: synth(k, s) for k, s in shapes.items()})
    return model, shapes


def vision_of(comfy, name):
    import comfy.clip_vision

    clip = comfy.clip_vision.ClipVisionModel(dict(PLAIN, projection_dim=WIDTH[name]))
    clip.model.float()
    shapes = openclip_shapes({k: list(v.shape) for k, v in clip.model.state_dict().items()})
    shapes = {"embedder.model." + k: s for k, s in shapes.items()}
    weights = {k: synth(k, s) for k, s in shapes.items()}
    weights = comfy.clip_vision.convert_to_transformers(weights, "embedder.model.visual.")
    missing, unused = clip.load_sd(weights)
    assert not missing and not unused, (missing, unused)
    clip.model.float()
    return clip, shapes


def run(comfy, nodes, name, t, args):
    model, unet = model_of(comfy, name)
    clip, vision = vision_of(comfy, name)
    cpu = torch.device("cpu")
    patcher = comfy.model_patcher.ModelPatcher(model, cpu, cpu)
    pooled = {} if name == "sd21" else {"pooled_output": torch.zeros(1, WIDTH[name])}
    for case, pictures in CASES.items():
        cond = [[t["context"], dict(pooled)]]
        for n, strength, noise in pictures:
            seen = clip.encode_image(t["image"][:n], crop=True)
            cond = nodes.unCLIPConditioning().apply_adm(cond, seen, strength, noise)[0]
        told = model.encode_adm(device=cpu, seed=args.seed, **cond[0][1])
        t[f"{name}/adm/{case}"] = told[:, : 2 * WIDTH[name] if name == "sd21" else WIDTH[name]]
        noise = comfy.sample.prepare_noise(t["latent"], args.seed)
        t[f"{name}/run/{case}"] = comfy.sample.sample(
            patcher,
            noise,
            args.steps,
            args.cfg,
            "euler",
            "normal",
            cond,
            [[t["negative"], dict(pooled)]],
            t["latent"],
            seed=args.seed,
            disable_pbar=True,
        )
    return {"unet": unet, "vision": vision}


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=4)
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--cfg", type=float, default=3.0)
    parse.add_argument("--size", type=int, nargs=2, default=[8, 6])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    import comfy.model_base
    import nodes

    generator = torch.Generator().manual_seed(args.seed)
    t = {
        "image": torch.rand(2, 60, 70, 3, generator=generator),
        "context": torch.randn(1, 7, 64, generator=generator),
        "negative": torch.randn(1, 7, 64, generator=generator),
        "latent": torch.zeros(2, 4, *args.size),
    }
    os.makedirs(args.folder, exist_ok=True)
    for name in WIDTH:
        with torch.no_grad():
            for part, shapes in run(comfy, nodes, name, t, args).items():
                with open(f"{args.folder}/unclip_{name}_{part}_keys.json", "w") as f:
                    json.dump(shapes, f)
    write(f"{args.folder}/unclip.safetensors", t)
    manifest = {
        "seed": args.seed,
        "steps": args.steps,
        "cfg": args.cfg,
        "heads": HEADS,
        "models": list(WIDTH),
        "cases": {k: [list(x) for x in v] for k, v in CASES.items()},
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump({"unclip": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
