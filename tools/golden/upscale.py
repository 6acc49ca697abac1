#!/usr/bin/env python3
"""What ComfyUI's upscale models compute, with synthetic weights.

usage: upscale.py FOLDER COMFYUI [--seed N] [--filters N] [--size H W] [--side N]
       (written with torch 2.15, spandrel 0.4.2, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout. Each model is written to a file, as a state dict inside of a .pth where its
case says so, and goes through ComfyUI's own UpscaleModelLoader and ImageUpscaleWithModel; weights
are made by the rule of tests/golden/data/README.md from the names in the file. --size is that of
the small pictures, --side the long side of one that goes in tiles. Pictures are drawn from --seed.
Writes

    upscale_<model>.safetensors    x -> y: the network alone, before anything is clamped;
                                   image -> upscaled, and of models that have them wide ->
                                   wide_upscaled: as the node has them
    upscale_<model>_keys.json      names and shapes of tensors

and manifest.json, which says how each was made. tests/golden/model/test_upscaler.c reads any such
folder:

    tools/golden/upscale.py /tmp/fresh ../ComfyUI --seed 77 --size 8 20 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R upscaler
"""

import argparse
import json
import os
import sys
import tempfile

import torch

from tiny_models import synth, write

GROWTH = 32  # what spandrel has for all of them

# how names go in each style: block, layer of a dense block, and the rest
NEW = {"block": "body.{}.rdb{}.conv{}", "trunk": "conv_body", "up": "conv_up{}", "hr": "conv_hr"}
TRUNK = {
    "block": "RRDB_trunk.{}.RDB{}.conv{}",
    "trunk": "trunk_conv",
    "up": "upconv{}",
    "hr": "HRconv",
}


def conv(shapes, name, made, taken, side=3, bias=True):
    shapes[name + ".weight"] = [made, taken, side, side]
    if bias:
        shapes[name + ".bias"] = [made]


def dense(shapes, layer, filters):
    for k in range(5):
        conv(shapes, layer(k + 1), GROWTH if k < 4 else filters, filters + k * GROWTH)


def rrdb(names, filters, blocks, ups, squares):
    shapes = {}
    conv(shapes, "conv_first", filters, 3 * squares * squares)
    for i in range(blocks):
        for j in (1, 2, 3):
            dense(shapes, lambda k: names["block"].format(i, j, k), filters)
    conv(shapes, names["trunk"], filters, filters)
    for i in range(ups):
        conv(shapes, names["up"].format(i + 1), filters, filters)
    conv(shapes, names["hr"], filters, filters)
    conv(shapes, "conv_last", 3, filters)
    return shapes


def rrdb_old(filters, blocks, ups, plus=False):
    shapes = {}
    conv(shapes, "model.0", filters, 3)
    for i in range(blocks):
        for j in (1, 2, 3):
            if plus:
                conv(shapes, f"model.1.sub.{i}.RDB{j}.conv1x1", GROWTH, filters, 1, False)
            dense(shapes, lambda k: f"model.1.sub.{i}.RDB{j}.conv{k}.0", filters)
    conv(shapes, f"model.1.sub.{blocks}", filters, filters)
    for i in range(ups):
        conv(shapes, f"model.{3 * i + 3}", filters, filters)
    conv(shapes, f"model.{3 * ups + 2}", filters, filters)
    conv(shapes, f"model.{3 * ups + 4}", 3, filters)
    return shapes


def compact(filters, convs, scale):
    shapes = {}
    for i in range(convs + 2):
        last = i == convs + 1
        conv(shapes, f"body.{2 * i}", 3 * scale * scale if last else filters, filters if i else 3)
        if not last:
            shapes[f"body.{2 * i + 1}.weight"] = [filters]
    return shapes


def models(f):
    """name: (shapes, scale, the key of a .pth that holds them or None, is there a wide picture)"""
    return {
        "rrdb_new_x4": (rrdb(NEW, f, 2, 2, 1), 4, "params_ema", False),
        "rrdb_new_x2": (rrdb(NEW, f, 1, 2, 2), 2, None, True),
        "rrdb_new_x1": (rrdb(NEW, f, 1, 2, 4), 1, "params", False),
        "rrdb_trunk_x2": (rrdb(TRUNK, f, 1, 1, 1), 2, None, False),
        "rrdb_old_x1": (rrdb_old(f, 2, 0), 1, None, True),
        "rrdb_old_x8": (rrdb_old(f, 1, 3), 8, None, False),
        "rrdb_plus_x2": (rrdb_old(f, 1, 1, True), 2, None, False),
        "compact_x4": (compact(f, 3, 4), 4, "params", False),
        "compact_x1": (compact(f, 1, 1), 1, None, True),
    }


def start(path, folder):
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1] + ["--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import folder_paths

    folder_paths.add_model_folder_path("upscale_models", folder)
    from comfy_extras import nodes_upscale_model

    return nodes_upscale_model


def load(nodes, folder, name, state, wrapped):
    from safetensors.torch import save_file

    if wrapped:
        name += ".pth"
        torch.save({wrapped: state}, f"{folder}/{name}")
    else:
        name += ".safetensors"
        save_file(state, f"{folder}/{name}")
    return nodes.UpscaleModelLoader.execute(name).result[0]


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=21)
    parse.add_argument("--filters", type=int, default=16)
    parse.add_argument("--size", type=int, nargs=2, default=[5, 7])
    parse.add_argument("--side", type=int, default=545)
    args = parse.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    models_folder = tempfile.mkdtemp()
    nodes = start(args.comfyui, models_folder)
    manifest = {}
    for name, (shapes, scale, wrapped, wide) in models(args.filters).items():
        state = {k: synth(k, s) for k, s in shapes.items()}
        model = load(nodes, models_folder, name, state, wrapped)
        assert model.scale == scale, (name, model.scale)
        generator = torch.Generator().manual_seed(args.seed)
        h, w = args.size
        with torch.no_grad():
            x = torch.randn(1, 3, (h + 3) // 4 * 4, (w + 3) // 4 * 4, generator=generator)
            tensors = {"x": x, "y": model.model(x)}
            pictures = {"image": (2, h, w, 3)}
            if wide:
                pictures["wide"] = (1, 9, args.side, 3) if scale == 1 else (1, args.side, 3, 3)
            for what, shape in pictures.items():
                image = torch.rand(shape, generator=generator)
                made = nodes.ImageUpscaleWithModel.execute(model, image).result[0]
                tensors[what] = image
                tensors["upscaled" if what == "image" else "wide_upscaled"] = made
                inside = ((made > 0) & (made < 1)).float().mean()
                print(name, what, list(made.shape), f"{inside:.2f} of it inside 0..1")
        write(f"{args.folder}/upscale_{name}.safetensors", tensors)
        with open(f"{args.folder}/upscale_{name}_keys.json", "w") as f:
            json.dump(shapes, f)
        manifest[f"upscale_{name}"] = {
            "scale": scale,
            "keys": f"upscale_{name}_keys.json",
            "seed": args.seed,
            "filters": args.filters,
            "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()},
        }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
