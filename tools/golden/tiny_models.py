"""What the makers of golden numbers share: weights that follow from their names, files of tensors,
and ComfyUI on the CPU."""

import json
import sys

import numpy as np
import torch


def synth(name, shape):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + np.uint64(1)
        z = np.uint64(h) + z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float64) / 2**24 * 2 - 1
    if len(shape) > 1:
        v = u * np.sqrt(3 / np.prod(shape[1:]))
    else:
        v = 0.1 * u + (1 if name.rsplit(".", 1)[-1] in ("weight", "scale") else 0)
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def write(path, tensors):
    head, at, data = {}, 0, []
    for name, t in tensors.items():
        t = t.detach().contiguous()
        kind = "I64" if t.dtype == torch.int64 else "F32"
        raw = (t if kind == "I64" else t.float()).numpy().tobytes()
        head[name] = {"dtype": kind, "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(data))


def load_comfy(path):
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1] + ["--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfy.model_patcher
    import comfy.sample
    import comfy.supported_models

    return comfy
