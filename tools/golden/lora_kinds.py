#!/usr/bin/env python3
"""What ComfyUI makes of small weights and adapters of every kind that Berth merges.

usage: lora_kinds.py FOLDER COMFYUI     (written with torch 2.15.0 on a cpu, ComfyUI 0.33.0)

COMFYUI is a checkout: its comfy/weight_adapter is run as it is, in float32, but for one thing: a
LoKr with a kernel (lokr_t2) gives torch.kron() a permuted tensor, which this torch refuses; ComfyUI
then prints the error and leaves the weight alone. Here it gets the same numbers in order.

Writes lora_kinds.txt, one line a case, adapters in the order they are applied:

    weight | strength tensor=shape tensor=shape ... | strength ...     8x6 | -0.7 lora_up.weight=8x2
                                                                       ...

and lora_kinds.bin, the merged weights as little-endian float32, one after the other. What goes in
is computed, not stored: value i of tensor t of a line (the weight is 0) is
(((1009 * t + i) * 2654435761 mod 2^32) >> 8) / 2^23 - 1.
"""

import os
import sys
import types

import numpy as np
import torch

LINEAR, CONV, POINT = (8, 6), (6, 4, 3, 3), (8, 6, 1, 1)


def pair(out, inner, r=2, up=(), **more):
    return {"lora_up.weight": (out, r) + up, "lora_down.weight": (r,) + inner, **more}


def hada(out, cols, r=2, r2=3, **more):
    return {
        "hada_w1_a": (out, r),
        "hada_w1_b": (r, cols),
        "hada_w2_a": (out, r2),
        "hada_w2_b": (r2, cols),
        **more,
    }


def hada_t(out, inner, kernel, r=2, **more):
    return {
        "hada_w1_a": (r, out),
        "hada_w1_b": (r, inner),
        "hada_w2_a": (r, out),
        "hada_w2_b": (r, inner),
        "hada_t1": (r, r) + kernel,
        "hada_t2": (r, r) + kernel,
        **more,
    }


A = {"alpha": ()}
ROWS, COLUMNS = {"dora_scale": (8, 1)}, {"dora_scale": (1, 6)}
CONV_ROWS, CONV_COLUMNS = {"dora_scale": (6, 1, 1, 1)}, {"dora_scale": (1, 4, 1, 1)}
FACTORS = {"lokr_w1_a": (2, 1), "lokr_w1_b": (1, 3), "lokr_w2_a": (4, 2), "lokr_w2_b": (2, 2)}
OFT, OFT_CONV = {"oft_blocks": (2, 4, 4)}, {"oft_blocks": (2, 3, 3)}
GLORA = {"a1.weight": (6, 2), "a2.weight": (2, 6), "b1.weight": (8, 2), "b2.weight": (2, 6)}
GLORA_OLD = {"a1.weight": (2, 6), "a2.weight": (6, 2), "b1.weight": (2, 6), "b2.weight": (8, 2)}
GLORA_CONV = {
    "a1.weight": (4, 2, 1, 1),
    "a2.weight": (2, 4, 1, 1),
    "b1.weight": (6, 2, 1, 1),
    "b2.weight": (2, 4, 3, 3),
}
SQUARE = (6, 6)  # where rank 6 fits the old form and the new
GLORA_BOTH = {"a1.weight": (6, 6), "a2.weight": (6, 6), "b1.weight": (6, 6), "b2.weight": (6, 6)}
BOFT, BOFT_CONV = {"oft_blocks": (2, 2, 4, 4)}, {"oft_blocks": (1, 3, 2, 2)}
KERNEL = {"lokr_w1": (3, 2), "lokr_w2_a": (2, 2), "lokr_w2_b": (2, 2), "lokr_t2": (2, 2, 3, 3)}

CASES = [
    (LINEAR, [(1, pair(8, (6,)))]),
    (LINEAR, [(-0.7, pair(8, (6,), **A))]),
    (CONV, [(0.5, pair(6, (4, 3, 3), up=(1, 1), **A))]),
    (CONV, [(0.5, {**pair(6, (4, 1, 1), up=(1, 1)), "lora_mid.weight": (2, 2, 3, 3)})]),
    (LINEAR, [(1, hada(8, 6))]),
    (LINEAR, [(-0.7, hada(8, 6, **A))]),
    (CONV, [(1, hada(6, 36, **A))]),
    (CONV, [(0.3, hada_t(6, 4, (3, 3), **A))]),
    (POINT, [(1, hada_t(8, 6, (1, 1)))]),
    (LINEAR, [(1, {"lokr_w1": (2, 3), "lokr_w2": (4, 2), **A})]),
    (LINEAR, [(-0.7, {**FACTORS, **A})]),
    (LINEAR, [(0.3, {"lokr_w1_a": (2, 3), "lokr_w1_b": (3, 3), "lokr_w2": (4, 2), **A})]),
    (CONV, [(1, {"lokr_w1": (3, 2), "lokr_w2": (2, 2, 3, 3)})]),
    (CONV, [(0.3, {**KERNEL, **A})]),
    (CONV, [(0.3, {"lokr_w1": (3, 2), "lokr_w2_a": (2, 2), "lokr_w2_b": (2, 18), **A})]),
    (LINEAR, [(1, pair(8, (6,), **A, **ROWS))]),
    (LINEAR, [(-0.7, pair(8, (6,), **A, **COLUMNS))]),
    (LINEAR, [(0, pair(8, (6,), **COLUMNS))]),
    (CONV, [(1, pair(6, (4, 3, 3), **A, **CONV_COLUMNS))]),
    (CONV, [(0.3, hada_t(6, 4, (3, 3), **CONV_ROWS))]),
    (LINEAR, [(1, hada(8, 6, **COLUMNS))]),
    (CONV, [(-0.7, {**KERNEL, **A, **CONV_COLUMNS})]),
    (LINEAR, [(1, {**FACTORS, **ROWS})]),
    (
        LINEAR,
        [(0.5, pair(8, (6,), **A)), (1, hada(8, 6, **COLUMNS)), (-0.7, {**FACTORS, **A, **ROWS})],
    ),
    (
        CONV,
        [(1, pair(6, (4, 3, 3), **CONV_ROWS)), (0.3, {**KERNEL, **CONV_COLUMNS}), (1, hada(6, 36))],
    ),
    (LINEAR, [(1, OFT)]),
    (LINEAR, [(-0.7, {**OFT, "rescale": (8, 1)})]),
    (LINEAR, [(1, {"oft_blocks": (1, 8, 8), "alpha": ()})]),
    (LINEAR, [(0.5, {"rescale": (8, 1), "alpha": (), "oft_blocks": (4, 2, 2)})]),
    (LINEAR, [(1, {"oft_blocks": (8, 1, 1), "alpha": (), "dora_scale": (8, 1)})]),
    (CONV, [(0.3, {**OFT_CONV})]),
    (CONV, [(1, {"oft_blocks": (1, 6, 6), "rescale": (6, 1, 1, 1)})]),
    (LINEAR, [(1, {**OFT, **ROWS, **A})]),
    (LINEAR, [(0.6, {**OFT, **COLUMNS})]),
    (CONV, [(-0.7, {**OFT_CONV, **CONV_ROWS, **A})]),
    (
        LINEAR,
        [(0.5, pair(8, (6,), **A)), (0.8, OFT), (1, hada(8, 6, **COLUMNS)), (0.5, {**OFT, **A})],
    ),
    (LINEAR, [(1, GLORA)]),
    (LINEAR, [(-0.7, {**GLORA, **A})]),
    (LINEAR, [(0.6, {**GLORA_OLD, **A})]),
    (CONV, [(0.5, {**GLORA_CONV, **A})]),
    (SQUARE, [(0.4, GLORA_BOTH)]),
    (LINEAR, [(0.4, {**GLORA_BOTH, "b1.weight": (8, 6)})]),
    (LINEAR, [(1, {**GLORA, **ROWS})]),
    (LINEAR, [(-0.7, {**GLORA_OLD, **COLUMNS, **A})]),
    (CONV, [(0.3, {**GLORA_CONV, **CONV_COLUMNS})]),
    (
        LINEAR,
        [
            (0.5, pair(8, (6,), **A)),
            (0.8, {**GLORA, **COLUMNS}),
            (1, hada(8, 6, **ROWS)),
            (0.5, GLORA_OLD),
        ],
    ),
    (LINEAR, [(1, {**BOFT, **A})]),
    (LINEAR, [(-0.7, {"oft_blocks": (3, 4, 2, 2), **A, "rescale": (8, 1)})]),
    (LINEAR, [(0.5, {"rescale": (8, 1), "alpha": (), "oft_blocks": (1, 1, 8, 8)})]),
    (CONV, [(0.6, {"oft_blocks": (1, 1, 6, 6), **A, "rescale": (6, 1, 1, 1)})]),
    (CONV, [(1, {**BOFT_CONV, **A})]),
    (LINEAR, [(1, {**BOFT, **ROWS, **A})]),
    (LINEAR, [(0.6, {**BOFT, **COLUMNS, **A})]),
    (
        LINEAR,
        [
            (0.5, pair(8, (6,), **A)),
            (0.8, {**BOFT, **A}),
            (1, hada(8, 6, **COLUMNS)),
            (0.5, {**OFT, **A}),
        ],
    ),
]


def source(number, shape):
    n = int(np.prod(shape, dtype=np.int64))
    i = (
        (np.arange(n, dtype=np.uint64) + np.uint64(1009 * number))
        * np.uint64(2654435761)
        % np.uint64(1 << 32)
    )
    return torch.from_numpy(
        (i >> np.uint64(8)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)
    ).reshape(shape)


def adapters(comfyui):
    """comfy.weight_adapter, without what it does not need here: models and their memory."""
    sys.path.insert(0, comfyui)
    memory = types.ModuleType("comfy.model_management")
    memory.cast_to_device = lambda t, device, dtype, copy=False: t.to(
        device=device, dtype=dtype, copy=copy
    )
    kron = torch.kron
    torch.kron = lambda a, b: kron(a.contiguous(), b.contiguous())
    import comfy

    sys.modules["comfy.model_management"] = comfy.model_management = memory
    import comfy.weight_adapter

    return comfy.weight_adapter.adapters


def merged(kinds, weight, chain):
    number, w = 1, source(0, weight)
    for strength, tensors in chain:
        lora = {}
        for name, shape in tensors.items():
            lora["x." + name] = source(number, shape)
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
        before = w.clone()
        w = made[0].calculate_weight(w, "x", strength, 1.0, None, lambda a: a, torch.float32, None)
        assert strength == 0 or not torch.equal(
            before, w
        ), tensors  # it reports errors by doing nothing
    return w


def text(shape):
    return "x".join(str(n) for n in shape)


def main():
    folder, kinds = sys.argv[1], adapters(sys.argv[2])
    with open(os.path.join(folder, "lora_kinds.txt"), "w") as lines, open(
        os.path.join(folder, "lora_kinds.bin"), "wb"
    ) as out:
        for weight, chain in CASES:
            w = merged(kinds, weight, chain)
            assert w.shape == torch.Size(weight) and bool(torch.isfinite(w).all())
            out.write(w.contiguous().numpy().astype("<f4").tobytes())
            words = [text(weight)]
            for strength, tensors in chain:
                words += ["|", repr(strength)] + [f"{n}={text(s)}" for n, s in tensors.items()]
            lines.write(" ".join(words) + "\n")


if __name__ == "__main__":
    main()
