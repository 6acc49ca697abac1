#!/usr/bin/env python3
"""A step of a Z-Image sized transformer on the CPU: Berth against PyTorch eager, in the same run.

    python3 bench/torch_zimage.py --berth build/release/berth --layers 4 --threads 2

Files with --layers of the 30 main layers (and all refiners) are written by `berth synth` for each
--dtype and run by `berth bench stream`; PyTorch has as many layers of the same shapes. Weights of
PyTorch are F32, and BF16 where Berth's are BF16 (it multiplies those as such). --layers 30 is the
whole model: 23 GiB as F32. The tries of both take turns; a number is the best of --tries. Prints
JSON: milliseconds of both and Berth's over PyTorch's. --cpu-time counts the processor's time in
their stead, for machines where others compute, too: with --threads 1 that is what a step would take
there alone.
"""
import argparse
import json
import os
import resource
import subprocess
import tempfile
import time

import torch
import torch.nn.functional as F

D, HEADS, FFN, TEXT, MOD, TIME, REFINERS = 3840, 30, 10240, 2560, 256, 1024, 2


def shapes(layers):
    """Names and shapes, in the order of the files."""
    out = {"x_pad_token": [1, D], "cap_pad_token": [1, D],
           "x_embedder.weight": [D, 64], "x_embedder.bias": [D]}

    def block(name, modulated):
        out.update({f"{name}.attention.qkv.weight": [3 * D, D],
                    f"{name}.attention.out.weight": [D, D],
                    f"{name}.attention.q_norm.weight": [D // HEADS],
                    f"{name}.attention.k_norm.weight": [D // HEADS],
                    f"{name}.feed_forward.w1.weight": [FFN, D],
                    f"{name}.feed_forward.w2.weight": [D, FFN],
                    f"{name}.feed_forward.w3.weight": [FFN, D]})
        for norm in ("attention_norm1", "ffn_norm1", "attention_norm2", "ffn_norm2"):
            out[f"{name}.{norm}.weight"] = [D]
        if modulated:
            out[f"{name}.adaLN_modulation.0.weight"] = [4 * D, MOD]
            out[f"{name}.adaLN_modulation.0.bias"] = [4 * D]

    for i in range(REFINERS):
        block(f"noise_refiner.{i}", True)
    for i in range(REFINERS):
        block(f"context_refiner.{i}", False)
    out.update({"t_embedder.mlp.0.weight": [TIME, 256], "t_embedder.mlp.0.bias": [TIME],
                "t_embedder.mlp.2.weight": [MOD, TIME], "t_embedder.mlp.2.bias": [MOD],
                "cap_embedder.0.weight": [TEXT], "cap_embedder.1.weight": [D, TEXT],
                "cap_embedder.1.bias": [D]})
    for i in range(layers):
        block(f"layers.{i}", True)
    out.update({"final_layer.linear.weight": [64, D], "final_layer.linear.bias": [64],
                "final_layer.adaLN_modulation.1.weight": [D, MOD],
                "final_layer.adaLN_modulation.1.bias": [D]})
    return out


class Model:
    """The same network in PyTorch, on random weights."""

    def __init__(self, args, dtype):
        self.w = {k: torch.randn(*s, dtype=dtype) * (s[-1] ** -0.5 if len(s) > 1 else 0.1)
                  for k, s in shapes(args.layers).items()}
        self.layers, self.side, self.dtype = args.layers, args.size // 16, dtype
        pictures = self.side * self.side
        self.text = -(-args.tokens // 32) * 32
        self.picture = -(-pictures // 32) * 32
        self.context = torch.randn(1, args.tokens, TEXT, dtype=dtype)
        self.x = torch.randn(1, pictures, 64, dtype=dtype)
        angle = torch.rand(self.text + self.picture, D // HEADS // 2) * 6.28
        self.cos, self.sin = angle.cos()[:, None], angle.sin()[:, None]

    def linear(self, x, name):
        return F.linear(x, self.w[f"{name}.weight"], self.w.get(f"{name}.bias"))

    def rms(self, x, name, eps=1e-5):
        w = self.w[f"{name}.weight"]
        return F.rms_norm(x, w.shape, w, eps)

    def rope(self, x, begin):
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = (t[begin:begin + x.shape[1]] for t in (self.cos, self.sin))
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)

    def attention(self, x, name, begin):
        q, k, v = self.linear(x, f"{name}.qkv").unflatten(-1, (3, HEADS, -1)).unbind(2)
        q, k = (self.rope(self.rms(t, f"{name}.{n}", 1.2e-7), begin)
                for t, n in ((q, "q_norm"), (k, "k_norm")))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.linear(y, f"{name}.out")

    def block(self, x, name, c, begin):
        s1 = s2 = g1 = g2 = None
        if c is not None:
            s1, g1, s2, g2 = self.linear(c, f"{name}.adaLN_modulation.0")[:, None].chunk(4, -1)
        h = self.rms(x, f"{name}.attention_norm1")
        h = self.attention(h if s1 is None else h * (1 + s1), f"{name}.attention", begin)
        h = self.rms(h, f"{name}.attention_norm2")
        x = x + (h if g1 is None else g1.tanh() * h)
        h = self.rms(x, f"{name}.ffn_norm1")
        h = h if s2 is None else h * (1 + s2)
        name += ".feed_forward"
        h = self.linear(F.silu(self.linear(h, f"{name}.w1")) * self.linear(h, f"{name}.w3"),
                        f"{name}.w2")
        h = self.rms(h, name.replace("feed_forward", "ffn_norm2"))
        return x + (h if g2 is None else g2.tanh() * h)

    def padded(self, x, to, name):
        return torch.cat((x, self.w[name][None].repeat(1, to - x.shape[1], 1)), 1)

    def step(self):
        t = torch.randn(1, 256, dtype=self.dtype)
        c = self.linear(F.silu(self.linear(t, "t_embedder.mlp.0")), "t_embedder.mlp.2")
        text = self.linear(self.rms(self.context, "cap_embedder.0"), "cap_embedder.1")
        text = self.padded(text, self.text, "cap_pad_token")
        for i in range(REFINERS):
            text = self.block(text, f"context_refiner.{i}", None, 0)
        x = self.padded(self.linear(self.x, "x_embedder"), self.picture, "x_pad_token")
        for i in range(REFINERS):
            x = self.block(x, f"noise_refiner.{i}", c, self.text)
        x = torch.cat((text, x), 1)
        for i in range(self.layers):
            x = self.block(x, f"layers.{i}", c, 0)
        scale = self.linear(F.silu(c), "final_layer.adaLN_modulation.1")[:, None]
        x = F.layer_norm(x, (D,), None, None, 1e-6) * (1 + scale)
        return self.linear(x, "final_layer.linear")


def torch_ms(model, cpu_time):
    clock = time.process_time if cpu_time else time.perf_counter
    with torch.no_grad():
        began = clock()
        model.step()
        return (clock() - began) * 1e3


def berth_run(args, path, steps, warmup):
    """Its JSON, and what the processor took for all of it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([args.berth, "bench", "stream", "--file", path, "--offload", "0",
                           "--steps", str(steps), "--warmup", str(warmup), "--width",
                           str(args.size), "--height", str(args.size), "--tokens",
                           str(args.tokens), "--devices", "cpu", "--act", "f32", "--json"],
                          check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), took * 1e3


def berth_ms(args, path):
    if args.cpu_time:  # of two steps more
        return (berth_run(args, path, 3, 1)[1] - berth_run(args, path, 1, 1)[1]) / 2
    return berth_run(args, path, 1, 1)[0]["rows"][0]["ms_min"]


def written(args, folder, dtype):
    """A file of that type; GGUF for quants, as people have them."""
    ending = "gguf" if dtype.startswith("q") else "safetensors"
    keys, path = f"{folder}/keys.json", f"{folder}/zimage-{args.layers}-{dtype}.{ending}"
    with open(keys, "w") as f:
        json.dump(shapes(args.layers), f)
    if not os.path.exists(path):
        subprocess.run([args.berth, "synth", "--keys", keys, "--dtype", dtype, "--output", path,
                        "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return path


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--berth", required=True)
    parse.add_argument("--dtype", default="f32,bf16,q8_0,q4_k")
    parse.add_argument("--layers", type=int, default=4)
    parse.add_argument("--size", type=int, default=512)
    parse.add_argument("--tokens", type=int, default=100)
    parse.add_argument("--tries", type=int, default=3)
    parse.add_argument("--threads", type=int, default=os.cpu_count())
    parse.add_argument("--cpu-time", action="store_true")
    parse.add_argument("--dir", help="where files are kept for the next time")
    args = parse.parse_args()
    torch.set_num_threads(args.threads)
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:args.threads])  # Berth's, too
    rows = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.dir or temporary
        for dtype in args.dtype.split(","):
            path = written(args, folder, dtype)
            model = Model(args, torch.bfloat16 if dtype == "bf16" else torch.float32)
            torch_ms(model, False)
            tries = [(berth_ms(args, path), torch_ms(model, args.cpu_time))
                     for _ in range(args.tries)]
            ours, theirs = (min(t[i] for t in tries) for i in range(2))
            rows[dtype] = {"berth_ms": round(ours, 1), "torch_ms": round(theirs, 1),
                           "ratio": round(ours / theirs, 3)}
            del model
    print(json.dumps({"layers": args.layers, "size": args.size, "threads": args.threads,
                      "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
