#!/usr/bin/env python3
"""What ComfyUI makes of 16-bit and fp8 weights and adapters, to the bit.

usage: lora_merge.py FOLDER COMFYUI

The cases are those of lora_kinds.py, with larger weights in front. COMFYUI's comfy.weight_adapter
and comfy.float run as they are, as ModelPatcher.patch_weight_to_device() calls them for a model on
the CPU: the weight becomes float32, each adapter is computed and added in float32, the sum is
rounded to the weight's own type. Fp8 is rounded by chance, with the seed of the key "w"; scaled fp8
("F8_E4M3*0.03") goes through comfy.quant_ops' layout, which chooses a new scale: a float32 in front
of its codes.

Writes lora_merge.txt, a line a case as in lora_kinds.txt with the type of the weight in front, and
lora_merge.bin: the merged weights, one after the other, little-endian. Weights are a tenth of
lora_kinds.py's value, rounded to their type; so are the adapters' tensors, in float32. The first
line of lora_merge.txt names versions.
"""

import os
import sys
import zlib

import torch

import lora_kinds
from lora_kinds import A, CASES, hada, pair, source, text

WIDE = (40, 25)
MORE = [
    (WIDE, [(0.8, pair(40, (25,), r=16, **A))]),
    (WIDE, [(-1.3, pair(40, (25,), r=4))]),
    (WIDE, [(0.35, hada(40, 25, r=4, r2=4, **A))]),
    (WIDE, [(0.6, {"lokr_w1": (5, 5), "lokr_w2": (8, 5), **A})]),
    (WIDE, [(0.8, pair(40, (25,), r=8)), (0.5, pair(40, (25,), r=8, **A))]),
]
TYPES = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
SCALE = 0.03
SEED = zlib.crc32(b"w")


def patches(kinds, chain):
    number, out = 1, []
    for strength, tensors in chain:
        lora = {}
        for name, shape in tensors.items():
            lora["x." + name] = source(number, shape) * 0.1
            number += 1
        alpha = lora["x.alpha"].item() if "x.alpha" in lora else None
        made = [
            a
            for a in (
                kind.load("x", lora, alpha, lora.get("x.dora_scale"), set()) for kind in kinds
            )
            if a
        ]
        assert len(made) == 1, tensors
        out.append((strength, made[0], 1.0, None, None))
    return out


def apply(kinds, w, chain):
    for strength, adapter, *_ in patches(kinds, chain):
        w = adapter.calculate_weight(w, "x", strength, 1.0, None, lambda a: a, torch.float32, None)
    return w


def line_of(name, weight, chain):
    words = [name, text(weight)]
    for strength, tensors in chain:
        words += ["|", repr(strength)] + [f"{n}={text(s)}" for n, s in tensors.items()]
    return " ".join(words) + "\n"


def scaled_cases(kinds, lines, out):
    """As QuantizedTensor.requantize_from_float() does it for scale="recalculate"."""
    from comfy.quant_ops import TensorCoreFP8E4M3Layout, TensorCoreFP8E5M2Layout

    for name, layout in ("F8_E4M3", TensorCoreFP8E4M3Layout), ("F8_E5M2", TensorCoreFP8E5M2Layout):
        for weight, chain in MORE + CASES:
            codes = (source(0, weight) * 0.1).to(layout.FP8_DTYPE)
            w = codes.to(torch.float32) * torch.tensor(SCALE)
            w = apply(kinds, w, chain)
            codes, params = layout.quantize(w, scale="recalculate", stochastic_rounding=SEED)
            out.write(params.scale.to(torch.float32).numpy().tobytes())
            out.write(codes.contiguous().view(torch.uint8).numpy().tobytes())
            lines.write(line_of(f"{name}*{SCALE}", weight, chain))


def main():
    folder, kinds = sys.argv[1], lora_kinds.adapters(sys.argv[2])
    sys.path.insert(0, sys.argv[2])
    import comfy.float

    version = open(os.path.join(sys.argv[2], "comfyui_version.py")).read().split('"')[1]
    with open(os.path.join(folder, "lora_merge.txt"), "w") as lines, open(
        os.path.join(folder, "lora_merge.bin"), "wb"
    ) as out:
        lines.write(f"# ComfyUI {version}, torch {torch.__version__}\n")
        for name, dtype in TYPES.items():
            for weight, chain in MORE + CASES:
                w = (source(0, weight) * 0.1).to(dtype)
                merged = w.to(torch.float32, copy=True)
                merged = apply(kinds, merged, chain)
                merged = comfy.float.stochastic_rounding(merged, dtype, seed=SEED)
                bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[dtype.itemsize]
                out.write(merged.contiguous().view(bits).numpy().tobytes())
                lines.write(line_of(name, weight, chain))
        scaled_cases(kinds, lines, out)


if __name__ == "__main__":
    main()
