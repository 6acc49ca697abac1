"""The networks of SD1.5 in PyTorch, eager, for bench/engine to compare with.

    python3 torch_sd15.py unet|vae [--threads 2] [--repeat 3] [--dtype f32]

Random weights of the real shapes; prints one JSON line: seconds of the best and of every step, peak
resident bytes of the process above what it had with the weights alone, and those weights' bytes.
"""

import argparse
import json
import resource
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn


class Res(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.n1, self.c1 = nn.GroupNorm(32, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.e = nn.Linear(emb, cout) if emb else None
        self.n2, self.c2 = nn.GroupNorm(32, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb=None):
        h = self.c1(F.silu(self.n1(x)))
        if self.e is not None:
            h = h + self.e(F.silu(emb))[:, :, None, None]
        return self.skip(x) + self.c2(F.silu(self.n2(h)))


class Attn(nn.Module):
    def __init__(self, c, ctx, heads):
        super().__init__()
        self.h = heads
        self.q, self.k, self.v = (nn.Linear(i, c, bias=False) for i in (c, ctx, ctx))
        self.o = nn.Linear(c, c)

    def forward(self, x, ctx):
        b, t, c = x.shape
        q, k, v = (m(i).view(b, -1, self.h, c // self.h).transpose(1, 2) for m, i in
                   ((self.q, x), (self.k, ctx), (self.v, ctx)))
        return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, c))


class Transformer(nn.Module):
    def __init__(self, c, ctx, heads=8):
        super().__init__()
        self.norm, self.pi, self.po = (
            nn.GroupNorm(32, c, eps=1e-6), nn.Conv2d(c, c, 1), nn.Conv2d(c, c, 1)
        )
        self.n1, self.n2, self.n3 = nn.LayerNorm(c), nn.LayerNorm(c), nn.LayerNorm(c)
        self.a1, self.a2 = Attn(c, c, heads), Attn(c, ctx, heads)
        self.f1, self.f2 = nn.Linear(c, 8 * c), nn.Linear(4 * c, c)

    def forward(self, x, ctx):
        b, c, h, w = x.shape
        y = self.pi(self.norm(x)).flatten(2).transpose(1, 2)
        n = self.n1(y)
        y = y + self.a1(n, n)
        y = y + self.a2(self.n2(y), ctx)
        v, g = self.f1(self.n3(y)).chunk(2, dim=-1)
        y = y + self.f2(v * F.gelu(g))
        return x + self.po(y.transpose(1, 2).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, m=320, ctx=768, mult=(1, 2, 4, 4), attn=(1, 1, 1, 0)):
        super().__init__()
        emb = 4 * m
        self.t1, self.t2 = nn.Linear(m, emb), nn.Linear(emb, emb)
        self.m = m
        self.down, self.up = (
            nn.ModuleList([nn.ModuleList([nn.Conv2d(4, m, 3, padding=1)])]),
            nn.ModuleList(),
        )
        stack, c = [m], m
        for level, k in enumerate(mult):
            for _ in range(2):
                mods = [Res(c, k * m, emb)]
                c = k * m
                if attn[level]:
                    mods.append(Transformer(c, ctx))
                self.down.append(nn.ModuleList(mods))
                stack.append(c)
            if level + 1 < len(mult):
                self.down.append(nn.ModuleList([nn.Conv2d(c, c, 3, stride=2, padding=1)]))
                stack.append(c)
        self.mid = nn.ModuleList([Res(c, c, emb), Transformer(c, ctx), Res(c, c, emb)])
        for level, k in reversed(list(enumerate(mult))):
            for i in range(3):
                mods = [Res(c + stack.pop(), k * m, emb)]
                c = k * m
                if attn[level]:
                    mods.append(Transformer(c, ctx))
                if level and i == 2:
                    mods.append(nn.Conv2d(c, c, 3, padding=1))
                self.up.append(nn.ModuleList(mods))
        self.on, self.oc = nn.GroupNorm(32, m), nn.Conv2d(m, 4, 3, padding=1)

    def forward(self, x, t, ctx):
        half = self.m // 2
        f = torch.exp(-torch.log(torch.tensor(10000.0)) * torch.arange(half) / half)
        a = t[:, None] * f[None]
        emb = self.t2(F.silu(self.t1(torch.cat([a.cos(), a.sin()], -1).to(x.dtype))))

        def run(mods, h, up=False):
            for mod in mods:
                if isinstance(mod, Res):
                    h = mod(h, emb)
                elif isinstance(mod, Transformer):
                    h = mod(h, ctx)
                else:
                    h = mod(F.interpolate(h, scale_factor=2) if up else h)
            return h

        skips, h = [], x
        for mods in self.down:
            h = run(mods, h)
            skips.append(h)
        h = run(self.mid, h)
        for mods in self.up:
            h = run(mods, torch.cat([h, skips.pop()], 1), up=True)
        return self.oc(F.silu(self.on(h)))


class VaeAttn(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n = nn.GroupNorm(32, c, eps=1e-6)
        self.q, self.k, self.v, self.o = (nn.Conv2d(c, c, 1) for _ in range(4))

    def forward(self, x):
        b, c, h, w = x.shape
        n = self.n(x)
        q, k, v = (m(n).reshape(b, 1, c, h * w).transpose(2, 3) for m in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(b, c, h, w)
        return x + self.o(y)


class Decoder(nn.Module):
    def __init__(self, ch=128, mult=(1, 2, 4, 4), z=4):
        super().__init__()
        c = ch * mult[-1]
        mods = [
            nn.Conv2d(z, z, 1), nn.Conv2d(z, c, 3, padding=1), Res(c, c, 0), VaeAttn(c),
            Res(c, c, 0)
        ]
        for level, k in reversed(list(enumerate(mult))):
            for _ in range(3):
                mods.append(Res(c, ch * k, 0))
                c = ch * k
            if level:
                mods += [nn.Upsample(scale_factor=2), nn.Conv2d(c, c, 3, padding=1)]
        mods += [nn.GroupNorm(32, c, eps=1e-6), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1)]
        self.mods = nn.ModuleList(mods)

    def forward(self, h):
        for mod in self.mods:
            h = mod(h)
        return h


def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()


class Peak(threading.Thread):
    """Highest resident size while it runs; sampling is enough, activations live for many
    milliseconds."""

    def __init__(self):
        super().__init__(daemon=True)
        self.high, self.stop = 0, False

    def run(self):
        while not self.stop:
            self.high = max(self.high, rss())
            time.sleep(0.002)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["unet", "vae"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--dtype", choices=["f32"], default="f32")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    net = (UNet() if a.what == "unet" else Decoder()).eval()
    args = (
        (torch.randn(2, 4, 64, 64), torch.tensor([500.0, 500.0]), torch.randn(2, 77, 768))
        if a.what == "unet"
        else (torch.randn(1, 4, 64, 64),)
    )
    base, times, peak = rss(), [], Peak()
    with torch.inference_mode():
        peak.start()
        for _ in range(a.repeat):
            start = time.perf_counter()
            net(*args)
            times.append(time.perf_counter() - start)
    peak.stop = True
    peak.join()
    print(
        json.dumps(
            {
                "torch": torch.__version__,
                "threads": a.threads,
                "best": min(times),
                "all": times,
                "peak": peak.high - base,
                "weights": sum(x.numel() * x.element_size() for x in net.parameters()),
            }
        )
    )


if __name__ == "__main__":
    main()
