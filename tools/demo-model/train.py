"""Trains the demo model: first the VAE, then UNet and text encoder together. See README.md.

Both stages stop by the clock; the learning rate falls to nothing over their time.
"""
from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import data
import diffusion
import files
import grammar
import render
from nets import LATENT_SCALE, Clip, Unet, Vae, parameters
from tokenizer import Tokenizer

LOOK_AT = [
    "a red circle left of a blue square on a yellow background",
    "a green star above an orange heart on a black background",
    "three green stars",
    "a big purple ring in the center on a white background",
    "a small pink heart in the top left corner on a gray background",
    "a red house left of a green tree on a green meadow with a sun",
    "a white boat on the sea at sunset",
    "a snowman in the snow at night with a moon in the top right corner",
    "a cyan diamond between a red square and a white circle on a blue background",
    "five yellow circles on a purple background",
    "a white triangle inside a red circle on a black background",
    "a night sky with a yellow moon and stars",
    "a brown cross below a cyan hexagon",
    "two black hearts and a red star on a pink background",
    "a blue circle right of a red circle on a white background",
    "four blue squares in a row on an orange background",
    "a pink flower on the grass under a blue sky",
    "a yellow star in the bottom right corner and a red moon in the top left corner",
]


class Clock:
    """Where a stage stands: from 0 to 1 over its seconds."""

    def __init__(self, seconds: float):
        self.start, self.seconds = time.monotonic(), seconds

    def at(self) -> float:
        return min((time.monotonic() - self.start) / self.seconds, 1.0)


def rate(at: float, step: int, warm_up: int = 150) -> float:
    """Of the highest learning rate: up over the first steps, then down a cosine by the clock."""
    return min(1.0, (step + 1) / warm_up) * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * at)))


class Average:
    """Running mean of parameters: what is kept."""

    def __init__(self, params: list[torch.Tensor], decay: float):
        self.params, self.decay, self.n = params, decay, 0
        self.mean = [p.detach().clone() for p in params]

    @torch.no_grad()
    def update(self) -> None:
        self.n += 1
        keep = min(self.decay, (1 + self.n) / (10 + self.n))
        torch._foreach_lerp_(self.mean, self.params, 1 - keep)

    @torch.no_grad()
    def swap(self) -> None:
        """The mean into the networks and back out again."""
        for p, m in zip(self.params, self.mean):
            kept = p.detach().clone()
            p.copy_(m)
            m.copy_(kept)


def optimizer(params: list, lr: float, device: str) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.99), weight_decay=0.01,
                             fused=device == "cuda")


def say(*what: object) -> None:
    print(*what, flush=True)


# ---- VAE ----

def slopes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]


def vae_loss(vae: Vae, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean, logvar = vae.moments(x)
    mean, logvar = mean.float(), logvar.float()
    z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
    y = vae.decode(z).float()
    plain = (y - x).abs().mean()
    edges = sum((a - b).abs().mean() for a, b in zip(slopes(y), slopes(x)))
    coarse = (F.avg_pool2d(y, 8) - F.avg_pool2d(x, 8)).abs().mean()
    kl = 0.5 * (mean ** 2 + logvar.exp() - logvar - 1).mean()
    return plain + edges + 0.5 * coarse + 1e-4 * kl, plain.detach()


def train_vae(a: argparse.Namespace, world: tuple, tex: torch.Tensor, dev: str) -> Vae:
    vae = Vae().to(dev).to(memory_format=torch.channels_last)
    say("vae", parameters(vae), "parameters")
    ground, rows = world[0], world[1]
    params = list(vae.parameters())
    opt, mean = optimizer(params, a.vae_lr, dev), Average(params, 0.998)
    loss_of = torch.compile(vae_loss) if a.compile else vae_loss
    clock, step, seen = Clock(a.vae_seconds), 0, []
    while clock.at() < 1 and step < a.most_steps:
        at = torch.randint(len(ground), (a.vae_batch,), device=dev)
        x = (render.draw(tex, ground[at], rows[at]) * 2 - 1).contiguous(
            memory_format=torch.channels_last)
        for group in opt.param_groups:
            group["lr"] = a.vae_lr * rate(clock.at(), step)
        with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
            loss, plain = loss_of(vae, x)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        mean.update()
        seen.append(plain)
        step += 1
        if step == 1:
            clock = Clock(a.vae_seconds)  # what compiling took does not count
        if step % a.say_every == 0:
            say(f"vae step {step} {clock.at():.2f} l1 {torch.stack(seen).mean():.5f}")
            seen = []
    mean.swap()
    say(f"vae: {step} steps of {a.vae_batch}")
    return vae


@torch.no_grad()
def settle_vae(vae: Vae, world: tuple, tex: torch.Tensor, n: int) -> None:
    """Measures latents and folds their scale into the VAE."""
    z = torch.cat([vae.encode(render.draw(tex, world[0][i:i + 64], world[1][i:i + 64]) * 2 - 1)
                   for i in range(0, n, 64)])
    mean, std = z.mean((0, 2, 3)), z.std((0, 2, 3))
    say("latents: mean", [f"{v:.3f}" for v in mean], "deviation", [f"{v:.3f}" for v in std])
    vae.rescale(mean, std)


@torch.no_grad()
def look_vae(vae: Vae, world: tuple, tex: torch.Tensor, path: Path) -> None:
    x = render.draw(tex, world[0][-8:], world[1][-8:])
    y = (vae.decode(vae.encode(x * 2 - 1)) + 1) / 2
    error = ((y.clamp(0, 1) - x) ** 2).mean()
    say(f"vae: psnr {-10 * error.log10():.2f} dB")
    files.write_png(path, files.sheet(torch.cat([x, y]), 8))


# ---- diffusion ----

class Pool:
    """Latents of pictures on the device, with their captions; some are drawn anew all the time, so
    that training never goes through a fixed set."""

    def __init__(self, vae: Vae, world: tuple, tex: torch.Tensor, size: int, seed: int, dev: str):
        self.vae, self.world, self.tex, self.dev = vae, world, tex, dev
        self.size = min(size, len(world[0]))
        self.next = 0
        self.latent = torch.zeros(self.size, 4, 32, 32, device=dev)
        self.ids = torch.zeros(self.size, *world[2].shape[1:], dtype=torch.int16, device=dev)
        self.slot = 0
        start = time.monotonic()
        while self.next < self.size:
            self.draw(min(256, self.size - self.next))
        if dev == "cuda":
            torch.cuda.synchronize()
        say(f"pool: {self.size} pictures in {time.monotonic() - start:.1f} s")

    @torch.no_grad()
    def draw(self, n: int) -> None:
        at = (torch.arange(n, device=self.dev) + self.next) % len(self.world[0])
        to = (torch.arange(n, device=self.dev) + self.slot) % self.size
        x = render.draw(self.tex, self.world[0][at], self.world[1][at]) * 2 - 1
        with torch.autocast(self.dev, torch.bfloat16, enabled=self.dev == "cuda"):
            z = self.vae.encode(x.contiguous(memory_format=torch.channels_last))
        self.latent[to] = z.float() * LATENT_SCALE
        self.ids[to] = self.world[2][at]
        self.next += n
        self.slot = (self.slot + n) % self.size

    def batch(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.randint(self.size, (n,), device=self.dev)
        which = torch.randint(self.ids.shape[1], (n,), device=self.dev)
        return self.latent[at], self.ids[at, which].long()


def noised(x0: torch.Tensor, a_bar: torch.Tensor) -> tuple:
    """Input, time, target and weight for the loss.

    A part of the batch is what sampling starts from: noise that knows nothing of the picture, at
    the last step, with the eps that would lead to the picture. SD 1.5's schedule leaves 7 % of the
    picture in its last step; a model that has only seen those takes the noise's mean for the
    background's colour. The constant part of the noise (0.08) is there for the same reason."""
    n, dev = len(x0), x0.device
    t = ((torch.arange(n, device=dev) + torch.rand(n, device=dev)) / n * diffusion.STEPS).long()
    t = t.clamp(max=diffusion.STEPS - 1)[torch.randperm(n, device=dev)]
    blind = torch.arange(n, device=dev) < n // 24
    t = torch.where(blind, diffusion.STEPS - 1, t)
    a = a_bar[t][:, None, None, None]
    eps = torch.randn_like(x0)
    lifted = eps + 0.08 * torch.randn(n, 4, 1, 1, device=dev)
    b = blind[:, None, None, None]
    x = torch.where(b, eps, a.sqrt() * x0 + (1 - a).sqrt() * lifted)
    target = torch.where(b, (eps - a.sqrt() * x0) / (1 - a).sqrt(), lifted)
    snr = a_bar[t] / (1 - a_bar[t])
    # As if the loss were on v (layout and colours are decided where eps is nearly the input), and
    # no more than five times that of the picture itself where there is hardly any noise left.
    weight = (1 + 1 / snr).clamp(max=60) * (5 / snr).clamp(max=1)
    return x, t, target, weight


class Model:
    def __init__(self, tok: Tokenizer, vae: Vae, dev: str):
        self.tok, self.vae, self.dev = tok, vae, dev
        self.clip = Clip(len(tok.vocab)).to(dev)
        self.unet = Unet().to(dev).to(memory_format=torch.channels_last)

    def parts(self) -> dict[str, torch.nn.Module]:
        return {"unet": self.unet, "clip": self.clip, "vae": self.vae}

    def save(self, out: Path) -> None:
        """A file for each network; a checkpoint of all three is export.py's."""
        for name, net in self.parts().items():
            kind = torch.float32 if name == "vae" else torch.float16
            files.write_safetensors(out / f"{name}.safetensors", {
                k: v.to(kind) for k, v in net.state_dict().items()}, {})

    @torch.no_grad()
    def pictures(self, prompts: list[str], seed: int = 0, steps: int = 16, cfg: float = 4.0,
                 at_once: int = 64) -> torch.Tensor:
        out = []
        for i in range(0, len(prompts), at_once):
            some = prompts[i:i + at_once]
            ids = torch.tensor([self.tok.encode(p) for p in [*some, ""]], device=self.dev)
            noise = torch.stack([torch.randn(4, 32, 32, generator=torch.Generator().manual_seed(
                seed + i + k)) for k in range(len(some))]).to(self.dev)
            context = self.clip(ids)
            z = diffusion.sample(self.unet, noise, context[:-1], context[-1:], steps, cfg)
            out.append(((self.vae.decode(z / LATENT_SCALE) + 1) / 2).clamp(0, 1).cpu())
        return torch.cat(out)


def train_diffusion(a: argparse.Namespace, m: Model, pool: Pool, out: Path) -> None:
    dev = m.dev
    params = [*m.unet.parameters(), *m.clip.parameters()]
    say("unet", parameters(m.unet), "clip", parameters(m.clip), "parameters")
    opt, mean = optimizer(params, a.lr, dev), Average(params, 0.9990)
    a_bar = diffusion.alpha_bar(dev)
    nothing = torch.tensor(m.tok.encode(""), device=dev)

    def loss_of(x, t, ids, target, weight):
        eps = m.unet(x, t, m.clip(ids))
        each = (eps.float() - target).pow(2).mean((1, 2, 3))
        return (each * weight).mean(), each.mean().detach()

    fast = torch.compile(loss_of) if a.compile else loss_of
    step, seen, looked, began = 0, [], time.monotonic(), time.monotonic()
    clock = Clock(a.seconds)
    while clock.at() < 1 and step < a.most_steps:
        pool.draw(a.fresh)
        x0, ids = pool.batch(a.batch)
        ids = torch.where(torch.rand(len(ids), 1, device=dev) < 0.1, nothing, ids)
        x, t, target, weight = noised(x0, a_bar)
        for group in opt.param_groups:
            group["lr"] = a.lr * rate(clock.at(), step, 300)
        with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
            loss, plain = fast(x.contiguous(memory_format=torch.channels_last), t, ids, target,
                               weight)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        mean.update()
        seen.append(torch.stack([loss.detach(), plain]))
        step += 1
        if step == 1:
            say(f"first step after {time.monotonic() - began:.1f} s")
            clock = Clock(a.seconds)  # what compiling took does not count
        if step % a.say_every == 0:
            weighted, plain = torch.stack(seen).mean(0).tolist()
            say(f"step {step} {clock.at():.3f} loss {weighted:.4f} eps {plain:.4f} "
                f"{step * a.batch / (time.monotonic() - clock.start):.0f} pictures/s")
            seen = []
        if time.monotonic() - looked > a.look_every:
            mean.swap()
            m.save(out)
            files.write_png(out / "sheet.png", files.sheet(m.pictures(LOOK_AT), 6))
            mean.swap()
            looked = time.monotonic()
    mean.swap()
    say(f"diffusion: {step} steps of {a.batch}, {pool.next} pictures drawn")


def look_closely(m: Model, out: Path, n: int, seed: int = 4242) -> None:
    """Pictures of n sentences from the grammar, in one file, for the judge in tests/demo."""
    rng = random.Random(seed)
    texts = [grammar.describe(grammar.sample(rng), rng, plain=True) for _ in range(n)]
    files.write_png(out / "random.png", files.sheet(m.pictures(texts), 20))
    (out / "random.json").write_text(json.dumps({"seed": seed, "prompts": texts}, indent=0))


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--vae", type=Path, help="a trained VAE instead of training one")
    p.add_argument("--resume", type=Path, help="folder with unet and clip to go on from")
    p.add_argument("--vae-seconds", type=float, default=120)
    p.add_argument("--seconds", type=float, default=480)
    p.add_argument("--scenes", type=int, default=500_000)
    p.add_argument("--pool", type=int, default=150_000)
    p.add_argument("--fresh", type=int, default=48, help="pictures drawn anew each step")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--vae-batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--vae-lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=16)
    p.add_argument("--most-steps", type=int, default=1 << 30)
    p.add_argument("--say-every", type=int, default=200)
    p.add_argument("--look-every", type=float, default=120)
    p.add_argument("--random", type=int, default=320, help="sentences to look at in the end")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    return p.parse_args()


def main() -> None:
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    tok = data.make_tokenizer()
    (a.out / "tokenizer.json").write_text(tok.to_json())
    world = data.make(a.scenes, a.seed, tok, a.workers)
    say(f"{a.scenes} scenes in {time.monotonic() - start:.1f} s, {len(tok.vocab)} tokens")
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    world = tuple(w.to(dev) for w in world)
    tex = render.atlas(dev)
    if a.vae:
        vae = Vae().to(dev).to(memory_format=torch.channels_last)
        vae.load_state_dict(files.read_safetensors(a.vae)[0])
    else:
        vae = train_vae(a, world, tex, dev)
        settle_vae(vae, world, tex, min(2048, a.scenes))
        look_vae(vae, world, tex, a.out / "vae.png")
    vae.requires_grad_(False)
    m = Model(tok, vae, dev)
    if a.resume:
        for name in ("unet", "clip"):
            state = files.read_safetensors(a.resume / f"{name}.safetensors")[0]
            m.parts()[name].load_state_dict(state)
    m.save(a.out)
    train_diffusion(a, m, Pool(vae, world, tex, a.pool, a.seed, dev), a.out)
    m.save(a.out)
    files.write_png(a.out / "sheet.png", files.sheet(m.pictures(LOOK_AT), 6))
    if a.random:
        look_closely(m, a.out, a.random)
    say(f"all: {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
