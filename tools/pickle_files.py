#!/usr/bin/env python3
"""Makes tests/unit/format/pickles: small files as people have them, each beside a .safetensors with
the same tensors under the names Berth gives them. Needs torch, numpy and safetensors; the tests
read what is committed and need none of them.

    tools/pickle_files.py tests/unit/format/pickles
"""
import collections
import os
import sys
import types

import numpy
import torch
from safetensors.torch import save_file

OUT = sys.argv[1]

# Files from before 2020 carry the source of the classes in them: PyTorch's stays out of ours.
torch.serialization.get_source_lines_and_file = lambda *a, **k: (
    ["class ParameterDict: pass"],
    1,
    "container.py",
)


def save(name, obj, tensors, **how):
    torch.save(obj, os.path.join(OUT, name), **how)
    twin = {k: v.detach().contiguous().clone() for k, v in tensors.items()}
    save_file(twin, os.path.join(OUT, name + ".safetensors"))


def both(name, obj, tensors):
    save(name + ".pt", obj, tensors)
    save(name + "_stream.pt", obj, tensors, _use_new_zipfile_serialization=False)


def numbers(*shape, dtype=torch.float32):
    n = 1
    for d in shape:
        n *= d
    return (torch.arange(n, dtype=torch.float64) * 0.375 - 1).reshape(shape).to(dtype)


def kinds():
    d = {str(t).split(".")[1]: numbers(2, 3, dtype=t) for t in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
        torch.float8_e5m2, torch.int64, torch.int32, torch.int16, torch.int8)}
    for t in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        d[str(t).split(".")[1]] = torch.arange(5).to(t)
    d["bool"] = torch.tensor([True, False, True])
    d["scalar"] = torch.tensor(7.5)
    d["empty"] = torch.zeros(0, 4)
    return d


def views():
    base = numbers(4, 6)
    return {
        "base": base,
        "tied": base,
        "row": base[1],
        "rows": base[1:3],
        "columns": base[:, 1:3],
        "turned": base.t(),
        "every_second": base[::2],
        "wide": base[0:1].expand(3, 6),
        "one": base[2:3, 3:4],
        "channels_last": numbers(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "nothing": base[4:],
        "own": numbers(3),
    }


def lightning(stream):
    """What training with Lightning leaves around the weights of Stable Diffusion 1."""
    module = types.ModuleType("pytorch_lightning.callbacks.model_checkpoint")

    class ModelCheckpoint:
        pass

    ModelCheckpoint.__module__ = module.__name__
    ModelCheckpoint.__qualname__ = "ModelCheckpoint"
    module.ModelCheckpoint = ModelCheckpoint
    for part in ("pytorch_lightning", "pytorch_lightning.callbacks"):
        sys.modules[part] = types.ModuleType(part)
    sys.modules[module.__name__] = module
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    for p in net.parameters():
        p.data = numbers(*p.shape)
    state = net.state_dict(prefix="model.diffusion_model.")
    state["alphas_cumprod"] = numbers(5)
    adam = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 3)).sum().backward()
    adam.step()
    whole = {
        "epoch": 12,
        "global_step": 2**33 + 470000,
        "pytorch-lightning_version": "1.4.2",
        "state_dict": state,
        "callbacks": {
            ModelCheckpoint: {
                "monitor": "val/loss_simple_ema",
                "best_model_score": torch.tensor(0.15),
                "best_model_path": "/tmp/epoch=12.ckpt",
                "current_score": numpy.float64(0.25),
            }
        },
        "optimizer_states": [adam.state_dict()],
        "lr_schedulers": [
            {"base_lrs": [1e-4], "last_epoch": -1, "milestones": collections.Counter({3: 1})}
        ],
        "hyper_parameters": {"seen": {1, 2}, "none": None, "pair": (True, False)},
    }
    save("lightning_stream.ckpt" if stream else "lightning.ckpt", whole, dict(state),
         _use_new_zipfile_serialization=not stream)


def main():
    os.makedirs(OUT, exist_ok=True)
    both("kinds", kinds(), kinds())
    v = views()
    both("views", v, v)
    vectors = numbers(2, 8)
    param = torch.nn.Parameter(vectors)
    both("inversion", {"string_to_token": {"*": torch.tensor(265)}, "string_to_param": {"*": param},
                       "name": "cat", "step": 499, "sd_checkpoint": "cc6cb27103",
                       "sd_checkpoint_name": None},
         {"string_to_token.*": torch.tensor(265), "string_to_param.*": vectors})
    both("inversion_first", {"string_to_token": {"*": 265},
                             "string_to_param": torch.nn.ParameterDict({"*": param})},
         {"string_to_param.*": vectors})
    style = torch.nn.Parameter(numbers(2, 64) / 64)  # for a tiny CLIP
    both("style", {"string_to_token": {"*": 265}, "string_to_param": {"*": style}, "name": "style"},
         {"string_to_param.*": style})
    save("concept.bin", {"<cat>": vectors[0]}, {"<cat>": vectors[0]})
    save("emb_params.pt", {"emb_params": vectors}, {"emb_params": vectors})
    pair = {"clip_g": numbers(1, 10), "clip_l": numbers(1, 8)}
    both("pair", pair, pair)
    save("alone.pt", vectors, {"tensor": vectors})
    save("list.pt", [{"a": vectors}, {"b": numbers(1, 8)}], {"0.a": vectors, "1.b": numbers(1, 8)})
    lightning(False)
    lightning(True)
    up = collections.OrderedDict(
        [("conv_first.weight", numbers(4, 3, 3, 3)), ("conv_first.bias", numbers(4))]
    )
    save("upscaler.pth", {"params_ema": up}, up)
    save("upscaler_two.pth", {"params": {"conv_first.weight": numbers(1)}, "params_ema": up}, up)
    save("upscaler_model.pth", {"model": up, "iter": 400000}, up)
    save("plain.pth", up, up, _use_new_zipfile_serialization=False)
    tagged = torch.nn.Parameter(vectors.clone())
    tagged.note = "an attribute"
    save("attribute.pt", {"a": tagged}, {"a": vectors})
    for protocol in (1, 3, 4, 5):
        save(
            f"protocol{protocol}.pt",
            {
                "a": vectors,
                "b": {
                    "c": v["turned"],
                    "big": 2**40,
                    "yes": True,
                    "no": False,
                    "f": 0.5,
                    "bytes": b"xyz",
                    "set": {1, "two"},
                    "neg": -5,
                },
            },
            {"a": vectors, "b.c": v["turned"]},
            pickle_protocol=protocol,
        )


main()
