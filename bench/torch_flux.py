#!/usr/bin/env python3
"""A step of a FLUX.1-dev sized transformer in plain PyTorch, for `berth bench stream` to be held
against.

Three ways, on the same card and in the same run as Berth's:
  resident   all weights on the card
  pageable   weights of a share of the blocks in ordinary RAM, each moved with .to() when its block
             runs
  pinned     those weights in pinned RAM, copied on a second stream into two buffers while the block
             before runs

    python3 bench/torch_flux.py --berth build/release/berth --dtype bf16,q8_0 --out results.json

runs Berth first (--berth; its options behind --), then PyTorch, prints both with their ratios and
writes the JSON that bench/plot_stream.py draws. Random weights and inputs: nothing here draws
pictures.
"""
import argparse
import json
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

D, HEADS, DOUBLE, SINGLE, TEXT_DIM, VEC_DIM = 3072, 24, 19, 38, 4096, 768
DT = torch.bfloat16


def linear(out, inp, bias=True):
    """Weight and bias, made on the card."""
    w = torch.randn(out, inp, device="cuda", dtype=DT) * (inp ** -0.5)
    return [w] + ([torch.randn(out, device="cuda", dtype=DT) * 0.1] if bias else [])


def stream_weights():
    """One of the two streams of a double block."""
    w = linear(6 * D, D) + linear(3 * D, D) + linear(D, D) + linear(4 * D, D) + linear(D, 4 * D)
    return w + [
        torch.ones(D // HEADS, device="cuda", dtype=DT),
        torch.ones(D // HEADS, device="cuda", dtype=DT),
    ]


def double_weights():
    return stream_weights() + stream_weights()


def single_weights():
    w = linear(3 * D, D) + linear(7 * D, D) + linear(D, 5 * D)
    return w + [
        torch.ones(D // HEADS, device="cuda", dtype=DT),
        torch.ones(D // HEADS, device="cuda", dtype=DT),
    ]


def rope(x, cos, sin):
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).to(x.dtype)


def rms(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-6)


def norm(x):
    return F.layer_norm(x, (x.shape[-1],), None, None, 1e-6)


def heads(x):
    return x.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def double_block(w, img, txt, vec, cos, sin):
    v = F.silu(vec)
    part = []
    for x, (mw, mb, qw, qb, pw, pb, uw, ub, dw, db, nq, nk) in ((txt, w[12:]), (img, w[:12])):
        m = F.linear(v, mw, mb)[:, None].chunk(6, -1)
        q, k, val = heads(F.linear((1 + m[1]) * norm(x) + m[0], qw, qb))
        part.append((x, m, rms(q, nq), rms(k, nk), val, pw, pb, uw, ub, dw, db))
    q, k, val = (torch.cat([p[i] for p in part], 2) for i in (2, 3, 4))
    a = attention(rope(q, cos, sin), rope(k, cos, sin), val)
    out = []
    for (x, m, _, _, _, pw, pb, uw, ub, dw, db), y in zip(
        part, (a[:, : txt.shape[1]], a[:, txt.shape[1] :])
    ):
        x = x + m[2] * F.linear(y, pw, pb)
        h = F.gelu(F.linear((1 + m[4]) * norm(x) + m[3], uw, ub), approximate="tanh")
        out.append(x + m[5] * F.linear(h, dw, db))
    return out[1], out[0]


def single_block(w, x, vec, cos, sin):
    mw, mb, w1, b1, w2, b2, nq, nk = w
    shift, scale, gate = F.linear(F.silu(vec), mw, mb)[:, None].chunk(3, -1)
    qkv, mlp = F.linear((1 + scale) * norm(x) + shift, w1, b1).split([3 * D, 4 * D], -1)
    q, k, v = heads(qkv)
    a = attention(rope(rms(q, nq), cos, sin), rope(rms(k, nk), cos, sin), v)
    return x + gate * F.linear(torch.cat((a, F.gelu(mlp, approximate="tanh")), 2), w2, b2)


class Model:
    def __init__(self, tokens, side):
        self.blocks = [double_weights() for _ in range(DOUBLE)] + [
            single_weights() for _ in range(SINGLE)
        ]
        self.n = side * side
        self.img_in, self.txt_in = linear(D, 64), linear(D, TEXT_DIM)
        self.vec_in, self.out = linear(D, VEC_DIM), linear(64, D)
        angle = torch.rand(tokens + self.n, D // HEADS // 2, device="cuda") * 6.28
        self.cos, self.sin = angle.cos(), angle.sin()
        self.x = torch.randn(1, self.n, 64, device="cuda", dtype=DT)
        self.txt = torch.randn(1, tokens, TEXT_DIM, device="cuda", dtype=DT)
        self.y = torch.randn(1, VEC_DIM, device="cuda", dtype=DT)

    def step(self, fetch):
        """fetch(i): the weights of block i on the card; told when the block is queued by
        fetch.done(i)."""
        vec = F.linear(self.y, *self.vec_in)
        img, txt = F.linear(self.x, *self.img_in), F.linear(self.txt, *self.txt_in)
        for i in range(DOUBLE):
            img, txt = double_block(fetch(i), img, txt, vec, self.cos, self.sin)
            fetch.done(i)
        x = torch.cat((txt, img), 1)
        for i in range(DOUBLE, DOUBLE + SINGLE):
            x = single_block(fetch(i), x, vec, self.cos, self.sin)
            fetch.done(i)
        return F.linear(norm(x[:, txt.shape[1] :]), *self.out)


class Resident:
    def __init__(self, blocks):
        self.blocks = blocks

    def __call__(self, i):
        return self.blocks[i]

    def done(self, i):
        pass


def spread(n, percent):
    """Which blocks are away: evenly over the order they run in."""
    return {i for i in range(n) if (i + 1) * percent // 100 > i * percent // 100}


class Pageable(Resident):
    def __init__(self, blocks, away):
        super().__init__([[w.cpu() for w in b] if i in away else b for i, b in enumerate(blocks)])

    def __call__(self, i):
        return [w.to("cuda") for w in self.blocks[i]]


class Pinned(Resident):
    """Two buffers of one block each; the copy of the next block that is away runs beside the
    current one."""

    def __init__(self, blocks, away):
        super().__init__(blocks)
        self.away = sorted(away)
        self.host = {i: [w.cpu().pin_memory() for w in blocks[i]] for i in self.away}
        for i in self.away:
            self.blocks = [*self.blocks[:i], None, *self.blocks[i + 1 :]]
        size = max(sum(w.numel() for w in self.host[i]) for i in self.away)
        self.buf = [torch.empty(size, device="cuda", dtype=DT) for _ in range(2)]
        self.side = torch.cuda.Stream()
        self.filled = [torch.cuda.Event() for _ in range(2)]
        self.drained = [torch.cuda.Event() for _ in range(2)]
        self.at, self.views = 0, {}
        self.start(0)

    def start(self, k):
        i, slot, at = self.away[k % len(self.away)], k % 2, 0
        views = []
        with torch.cuda.stream(self.side):
            self.side.wait_event(self.drained[slot])
            for w in self.host[i]:
                v = self.buf[slot][at : at + w.numel()].view(w.shape)
                v.copy_(w, non_blocking=True)
                views.append(v)
                at += w.numel()
            self.filled[slot].record(self.side)
        self.views[i] = views

    def __call__(self, i):
        if self.blocks[i] is not None:
            return self.blocks[i]
        torch.cuda.current_stream().wait_event(self.filled[self.at % 2])
        self.start(self.at + 1)
        return self.views[i]

    def done(self, i):
        if self.blocks[i] is None:
            self.drained[self.at % 2].record()
            self.at += 1


def measure(model, fetch, steps, warmup=2):
    times = []
    with torch.inference_mode():
        for k in range(warmup + steps):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            model.step(fetch)
            torch.cuda.synchronize()
            if k >= warmup:
                times.append((time.perf_counter() - begin) * 1e3)
    return sorted(times)[len(times) // 2]


def torch_rows(offload, steps, ways):
    model = Model(512, 64)
    blocks = model.blocks
    rows = []
    for percent in offload:
        row = {"offload": percent}
        away = spread(len(blocks), percent)
        if not away:
            row["resident"] = measure(model, Resident(blocks), steps)
        for name, cls, n in (("pinned", Pinned, steps), ("pageable", Pageable, 2)):
            if away and name in ways:
                fetch = cls(blocks, away)
                row[name] = measure(model, fetch, n, 1)
                del fetch
                torch.cuda.empty_cache()
        rows.append(row)
        print("PyTorch", json.dumps(row), flush=True)
    return rows


def berth_rows(program, offload, dtypes, more):
    out = {}
    for dtype in dtypes:
        cmd = [
            program, "bench", "stream", "--json", "--dtype", dtype, "--offload",
            ",".join(map(str, offload)), *more
        ]
        print(" ".join(cmd), flush=True)
        done = subprocess.run(cmd, stdout=subprocess.PIPE, check=False)
        out[dtype] = json.loads(done.stdout)
        if done.returncode:
            sys.exit(f"berth: {out[dtype].get('error')}")
    return out


def table(result):
    print(f"\n{result['card']}, {result['date']}, PyTorch {result['torch']}; ms a step")
    print(
        f"{'offload':>8} {'weights':>7} {'Berth':>9} {'limit':>7} {'PyTorch pinned':>16} "
        f"{'ratio':>6} {'pageable':>9} {'ratio':>6}"
    )
    theirs = {r["offload"]: r for r in result["pytorch"]}
    for dtype, run in result["berth"].items():
        for row in run["rows"]:
            t = theirs.get(row["offload"], {})
            fast, slow = t.get("pinned", t.get("resident")), t.get("pageable")
            cell = lambda v, w: f"{v:{w}.1f}" if v else " " * w
            ratio = lambda v: f"{row['ms'] / v:6.2f}" if v else " " * 6
            print(
                f"{row['offload']:6} % {dtype:>7} {row['ms']:9.1f} {row['limit_ms']:7.1f} "
                f"{cell(fast, 16)} {ratio(fast)} {cell(slow, 9)} {ratio(slow)}"
            )


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--berth", help="the program; without it only PyTorch is measured")
    p.add_argument("--dtype", default="bf16", help="of Berth's weights, a list")
    p.add_argument("--offload", default="0,20,50,100")
    p.add_argument("--steps", type=int, default=7)
    p.add_argument("--ways", default="pinned,pageable")
    p.add_argument("--out", help="JSON file")
    p.add_argument("more", nargs="*", help="behind --: options for `berth bench stream`")
    a = p.parse_args()
    offload = [int(x) for x in a.offload.split(",")]
    result = {
        "card": torch.cuda.get_device_name(),
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "berth": {},
    }
    if a.berth:
        result["berth"] = berth_rows(a.berth, offload, a.dtype.split(","), a.more)
    result["pytorch"] = torch_rows(offload, a.steps, a.ways.split(","))
    table(result)
    if a.out:
        with open(a.out, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
