#!/usr/bin/env python3
"""tests/golden/data/quants.safetensors: weights in every layout that ComfyUI's quantised files
have, what it makes of them, and products with them.

    python tools/golden/quants.py COMFYUI [--out tests/golden/data]      and its manifest's entry

Layer "<case>" is stored as a file has it (<case>.weight, .weight_scale, .comfy_quant ...).
Beside it: <case>/values what the weight is, in float32; <case>/x and <case>/full the layer's input
and its product, the weight being expanded; <case>/native of integers the product as ComfyUI has it
on the cpu, the input being quantised, too; <case>/from what was quantised. Needs comfy_kitchen.
Made with ComfyUI 0.33.0, comfy_kitchen 0.2.31 and PyTorch 2.11, float32 throughout.
"""

import argparse
import json
import os
import sys

CASES = {  # name: (layout, rows, columns, what from_float() is told, what the layer says of itself)
    "fp8": ("float8_e4m3fn", 24, 48, {}, {}),
    "fp8_e5m2": ("float8_e5m2", 24, 48, {}, {}),
    "mxfp8": ("mxfp8", 32, 64, {}, {}),
    "mxfp8_odd": ("mxfp8", 20, 40, {}, {}),
    "nvfp4": ("nvfp4", 32, 64, {}, {}),
    "nvfp4_odd": ("nvfp4", 20, 40, {}, {}),
    "nvfp4_tall": ("nvfp4", 144, 80, {}, {}),
    "nvfp4_awq": ("nvfp4", 32, 64, {}, {"pre_quant_scale": True}),
    "int8": ("int8_tensorwise", 21, 45, {"per_channel": False}, {}),
    "int8_rows": ("int8_tensorwise", 21, 45, {"per_channel": True}, {}),
    "int8_turned": ("int8_tensorwise", 20, 256, {"per_channel": True, "convrot": True}, {}),
    "int8_turned_16": (
        "int8_tensorwise",
        20,
        48,
        {"per_channel": True, "convrot": True, "convrot_groupsize": 16},
        {},
    ),
    "w4a4": ("convrot_w4a4", 20, 128, {"convrot_groupsize": 64}, {}),
    "w4a8": ("asym_w4a8_int8", 20, 128, {"convrot_groupsize": 64, "fixed_codebook": True}, {}),
    "w4a8_bare": ("asym_w4a8_int8", 20, 64, {"convrot_groupsize": 16, "codebook": False}, {}),
}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("comfyui")
    p.add_argument("--out", default="tests/golden/data")
    a = p.parse_args()
    out = os.path.abspath(a.out)
    sys.path.insert(0, a.comfyui)
    os.chdir(a.comfyui)
    sys.argv = [sys.argv[0], "--cpu"]
    import torch
    import comfy.options

    comfy.options.enable_args_parsing()
    from comfy import ops, quant_ops
    from safetensors.torch import save_file

    def layer_of(case, weight, bias, full):
        layout, rows, cols, how, say = CASES[case]
        algo = quant_ops.QUANT_ALGOS[layout]
        name = algo["comfy_tensor_layout"]
        told = {"scale": "recalculate", **how} if layout[0] in "fnm" else how
        q = quant_ops.QuantizedTensor.from_float(weight, name, **told)
        sd = {"bias": bias, **q.state_dict("weight")}
        conf = {"format": layout, **{k: v for k, v in how.items() if k.startswith("convrot")}}
        if say.get("pre_quant_scale"):
            sd["pre_quant_scale"] = 1 + 0.5 * torch.sin(torch.arange(cols, dtype=torch.float32))
        sd["comfy_quant"] = torch.tensor(list(json.dumps(conf).encode()), dtype=torch.uint8)
        made = ops.mixed_precision_ops(compute_dtype=torch.float32, full_precision_mm=full)
        layer = made.Linear(cols, rows)
        layer.load_state_dict(dict(sd), strict=False)
        return layer, sd

    gen = torch.Generator().manual_seed(22)
    tensors, note = {}, {}
    for case, (layout, rows, cols, how, say) in CASES.items():
        weight = torch.randn(rows, cols, generator=gen) / cols**0.5
        bias = torch.randn(rows, generator=gen) * 0.1
        x = torch.randn(5, cols, generator=gen)
        full, sd = layer_of(case, weight, bias, True)
        tensors |= {f"{case}.{k}": v for k, v in sd.items()}
        values = full.weight.dequantize().float()
        with torch.no_grad():
            turned = x * sd["pre_quant_scale"] if "pre_quant_scale" in sd else x
            tensors |= {
                f"{case}/from": weight,
                f"{case}/x": x,
                f"{case}/values": values,
                f"{case}/full": turned @ values.T + bias,
            }
            if layout[:3] in ("int", "con", "asy"):
                tensors[f"{case}/native"] = layer_of(case, weight, bias, False)[0](x)
        note[case] = {"layout": layout, "shape": [rows, cols], **how}
    tensors = {k: v.detach().clone().contiguous() for k, v in tensors.items()}
    save_file(tensors, os.path.join(out, "quants.safetensors"))
    print(
        json.dumps(
            {
                "quants": {
                    "cases": note,
                    "seed": 22,
                    "tensors": {
                        k: [str(v.dtype).removeprefix("torch."), list(v.shape)]
                        for k, v in tensors.items()
                    },
                }
            }
        )
    )


main()
