#!/usr/bin/env python3
"""What ComfyUI calls the tensors of each family in adapter files.

usage: lora_names.py FOLDER COMFYUI BERTH     (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout, BERTH the program, which writes its small presets. comfy.lora's
model_lora_keys_unet() and model_lora_keys_clip() run as they are on models that have the tensors of
those files and nothing else.

Writes lora_names.txt: "= <preset>[+<preset>]", then for each tensor "<key> [<row> <rows>] [swap]",
with each of its names on a line of its own, behind two spaces. Of numbered layers the first two are
listed.

Left out, as ComfyUI means rows there that the tensors do not have: k and v of Lumina2, whose heads
share them; proj_mlp of Flux.2, whose feed-forward is wider.
"""

import importlib.machinery
import os
import re
import subprocess
import sys
import tempfile
import types

FOLDER, COMFYUI, BERTH = sys.argv[1:4]
sys.argv = [sys.argv[0], "--cpu"]
sys.path.insert(0, COMFYUI)


def anything(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


for name in "torchaudio", "torchaudio.functional", "torchaudio.transforms":  # no part of this
    module = types.ModuleType(name)
    module.__getattr__ = anything
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = module

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()
import comfy.lora  # noqa: E402
import comfy.model_base as base  # noqa: E402
import comfy.model_detection  # noqa: E402
import torch  # noqa: E402
from safetensors import safe_open  # noqa: E402

DIFFUSION = {
    "flux-tiny": base.Flux,
    "flux2-tiny": base.Flux2,
    "qwen-image-tiny": base.QwenImage,
    "krea2-tiny": base.Krea2,
    "z-image-tiny": base.Lumina2,
    "lumina2-tiny": base.Lumina2,
    "sd15-tiny": base.BaseModel,
    "sdxl-base-tiny": base.BaseModel,
}
TEXT = {
    "clip-l-tiny": ["clip_l"],
    "clip-l-tiny+clip-g-tiny": ["clip_l", "clip_g"],
    "clip-l-tiny+t5-tiny": ["clip_l", "t5xxl"],
    "qwen3-tiny": ["qwen3_4b"],
    "mistral3-tiny": ["mistral3_24b"],
    "qwen25vl-tiny": ["qwen25_7b"],
    "qwen3vl-krea2-tiny": ["qwen3vl_4b"],
    "gemma2-tiny": ["gemma2_2b"],
}
ROOT = "model.diffusion_model."
WRONG = {"lumina2-tiny": r"attention.to_[kv]$", "flux2-tiny": r"proj_mlp$"}


def shapes(preset, folder):
    path = os.path.join(folder, preset + ".safetensors")
    if not os.path.exists(path):
        subprocess.run(
            [BERTH, "synth", "--preset", preset, "--dtype", "f8_e4m3", "--output", path],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    with safe_open(path, "pt") as f:
        return {k: f.get_slice(k).get_shape() for k in f.keys()}


def layers(keys, of):
    return 1 + max([int(k.split(".")[1]) for k in keys if k.startswith(of + ".")], default=-1)


def config(preset, shape, keys):
    if preset.startswith("sd"):
        return comfy.model_detection.detect_unet_config(
            {k: torch.empty(s, device="meta") for k, s in shape.items()}, ROOT
        )
    if preset.startswith("flux"):
        return dict(
            depth=layers(keys, "double_blocks"),
            depth_single_blocks=layers(keys, "single_blocks"),
            hidden_size=shape["img_in.weight"][0],
        )
    if preset.startswith(("z-image", "lumina2")):
        return dict(
            n_layers=layers(keys, "layers"),
            n_refiner_layers=layers(keys, "noise_refiner"),
            dim=shape["x_embedder.weight"][0],
        )
    return dict(layers=layers(keys, "blocks"))


def means(v, back):
    if isinstance(v, str):
        return back.get(v), 0, 0, False
    row, rows = (v[1] or (0, 0, 0))[1:]
    return back.get(v[0]), row, rows, len(v) > 2 and v[2] is not None


def diffusion(preset, kind, folder):
    shape = shapes(preset, folder)
    root = ROOT if preset.startswith("sd") else ""
    keys = [k[len(root) :] for k in shape if k.startswith(root)]
    flux = preset.startswith("flux")  # ComfyUI holds the scales of its norms as weights
    back = {
        "diffusion_model."
        + (k[:-6] + ".weight" if flux and k.endswith("_norm.scale") else k): "diffusion_model."
        + k
        for k in keys
    }
    model = object.__new__(type("Model", (kind,), {"state_dict": lambda self: dict.fromkeys(back)}))
    known = types.SimpleNamespace(unet_config=config(preset, shape, keys))
    object.__setattr__(model, "model_config", known)
    return {k: means(v, back) for k, v in comfy.lora.model_lora_keys_unet(model, {}).items()}


def text(presets, known, folder):
    back = {}
    for preset, name in zip(presets.split("+"), known):
        for k in shapes(preset, folder):
            key = name + ".transformer." + k.split(".transformer.")[-1]
            back[key] = key
    model = types.SimpleNamespace(state_dict=lambda: back)
    return {k: means(v, back) for k, v in comfy.lora.model_lora_keys_clip(model, {}).items()}


def listed(preset, name):
    wrong = preset in WRONG and re.search(WRONG[preset], name.replace("_to", ".to"))
    return not wrong and all(int(n) < 2 for n in re.findall(r"(?<=[._])\d+(?=[._]|$)", name))


def main():
    with tempfile.TemporaryDirectory() as folder, open(
        os.path.join(FOLDER, "lora_names.txt"), "w"
    ) as out:
        names = {p: diffusion(p, kind, folder) for p, kind in DIFFUSION.items()}
        names |= {p: text(p, known, folder) for p, known in TEXT.items()}
        for preset, means_of in names.items():
            out.write(f"= {preset}\n")
            tensors = {}
            for name, (key, row, rows, swap) in means_of.items():
                if key and listed(preset, name):  # else of a tensor that this model has not
                    line = key + (f" {row} {rows}" if rows else "") + (" swap" if swap else "")
                    tensors.setdefault(line, []).append(name)
            for line, known in tensors.items():
                out.write("".join([line + "\n"] + [f"  {n}\n" for n in known]))


if __name__ == "__main__":
    main()
