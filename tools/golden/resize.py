#!/usr/bin/env python3
"""What torch, Pillow and ComfyUI's bislerp make of small pictures in other sizes.

usage: resize.py FOLDER COMFYUI     (written with torch 2.15.0, Pillow 12.0.0, ComfyUI of
                                    2026-01-04)

COMFYUI is a checkout: its comfy/utils.py holds bislerp(). Pillow 13 resamples along y first where
that is less work, which rounds differently; ComfyUI's releases so far came with Pillow up to 12.

Writes resize.txt, one line a case:   method n h w c oh ow    (planar [n, c, h, w] for bislerp)
and resize.bin, the results as little-endian float32, one after the other. The sources are computed,
not stored: value i of a case is ((i * 2654435761 mod 2^32) >> 8) / 2^24 * 1.25 - 0.125, so that
some lie outside 0..1; latents are the same times 6 minus 3.
"""

import ast
import os
import sys

import numpy as np
import PIL
import torch
from PIL import Image

SHAPES = [  # n h w c oh ow
    (1, 7, 5, 3, 12, 9),
    (2, 9, 13, 3, 4, 6),
    (1, 8, 8, 4, 8, 8),
    (1, 1, 1, 3, 3, 5),
    (1, 1, 9, 1, 3, 4),
    (1, 31, 2, 3, 17, 11),
    (1, 20, 30, 3, 1, 1),
    (1, 6, 10, 1, 9, 15),
    (1, 12, 12, 4, 5, 7),
    (1, 10, 4, 4, 7, 9),
    (1, 3, 48, 1, 5, 31),
    (1, 16, 16, 3, 16, 9),
    (1, 16, 16, 3, 11, 16),
    (3, 4, 4, 1, 8, 8),
    (1, 2, 2, 2, 5, 5),
    (1, 17, 130, 1, 7, 100),
]
LATENTS = [
    (1, 8, 8, 4, 12, 10),
    (2, 5, 3, 16, 8, 7),
    (1, 3, 48, 3, 7, 31),
    (1, 1, 6, 4, 3, 1),
    (1, 6, 6, 4, 6, 6),
    (1, 9, 7, 1, 4, 3),
    (1, 5, 3, 3, 8, 31),
]


def source(count):
    i = np.arange(count, dtype=np.uint64) * np.uint64(2654435761) % np.uint64(1 << 32)
    return (i >> np.uint64(8)).astype(np.float32) / np.float32(1 << 24) * np.float32(
        1.25
    ) - np.float32(0.125)


def lanczos(x, oh, ow):
    out = []
    for im in x:
        a = np.clip(255.0 * im, 0, 255).astype(np.uint8)
        a = a[..., 0] if a.shape[2] == 1 else a
        r = Image.fromarray(a).resize((ow, oh), resample=Image.Resampling.LANCZOS)
        out.append((np.array(r).astype(np.float32) / 255.0).reshape(oh, ow, -1))
    return np.stack(out)


def bislerp_of(comfyui):
    tree = ast.parse(open(f"{comfyui}/comfy/utils.py").read())
    tree.body = [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "bislerp"]
    space = {"torch": torch}
    exec(compile(tree, "bislerp", "exec"), space)
    return space["bislerp"]


def main(folder, comfyui):
    assert int(PIL.__version__.split(".")[0]) <= 12, PIL.__version__
    os.makedirs(folder, exist_ok=True)
    index, results = open(f"{folder}/resize.txt", "w"), open(f"{folder}/resize.bin", "wb")
    for shape in SHAPES:
        n, h, w, c, oh, ow = shape
        x = source(n * h * w * c).reshape(n, h, w, c)
        t = torch.from_numpy(x).movedim(-1, 1)
        for method in ("nearest-exact", "bilinear", "area", "bicubic", "lanczos"):
            if method == "lanczos" and c not in (1, 3, 4):
                continue
            r = (
                lanczos(x, oh, ow)
                if method == "lanczos"
                else torch.nn.functional.interpolate(t, size=(oh, ow), mode=method)
                .movedim(1, -1)
                .numpy()
            )
            index.write(" ".join(map(str, (method,) + shape)) + "\n")
            results.write(np.ascontiguousarray(r, dtype="<f4").tobytes())
    bislerp = bislerp_of(comfyui)
    for shape in LATENTS:
        n, h, w, c, oh, ow = shape
        x = source(n * h * w * c).reshape(n, c, h, w) * np.float32(6) - np.float32(3)
        if shape == LATENTS[0]:
            x[:, :, 3:5] = 0  # no direction
            x[:, :, :, 6] = -x[:, :, :, 5]  # the opposite one
        index.write(" ".join(map(str, ("bislerp",) + shape)) + "\n")
        results.write(
            np.ascontiguousarray(
                bislerp(torch.from_numpy(x), ow, oh).numpy(), dtype="<f4"
            ).tobytes()
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
