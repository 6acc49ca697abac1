"""Trains the demo model: first the VAE, then UNet and text encoder together. See README.md.

Both stages stop by the clock; the learning rate falls to nothing over their time.
"""
from __future__ import annotations

import argparse
import copy
import random
import time
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

import data
import diffusion
import files
import grammar
import render
import vae as vaes
from learner import Clock, Learner, rate, say
from nets import LATENT_SCALE, PREFIX, Clip, Unet, Vae, parameters
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


class Pool:
    """Latents of pictures on the device, with their captions; some are drawn anew all the time, so
    that training never goes through a fixed set."""

    def __init__(self, vae: Vae, world: tuple, tex: torch.Tensor, size: int, dev: str):
        self.world, self.tex, self.dev = world, tex, dev
        self.vae = copy.deepcopy(vae).bfloat16() if dev == "cuda" else vae
        self.at_once = min(256, size)
        self.size = min(size, len(world[0])) // self.at_once * self.at_once
        self.next = 0
        self.latent = torch.zeros(self.size, 4, 32, 32, device=dev)
        self.ids = torch.zeros(self.size, *world[2].shape[1:], dtype=torch.int16, device=dev)
        self.slot = 0
        self.most = render.used(world[1])
        start = time.monotonic()
        while self.next < self.size:
            self.draw()
        if dev == "cuda":
            torch.cuda.synchronize()
        say(f"pool: {self.size} pictures in {time.monotonic() - start:.1f} s")

    @torch.no_grad()
    def draw(self) -> None:
        n = self.at_once
        at = (torch.arange(n, device=self.dev) + self.next) % len(self.world[0])
        to = (torch.arange(n, device=self.dev) + self.slot) % self.size
        x = render.draw(self.tex, self.world[0][at], self.world[1][at], self.most) * 2 - 1
        z = self.vae.encode(x.to(self.vae.quant_conv.weight.dtype))
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

    Layout and colours are decided where there is little to see, so more than half of a batch is at
    t > 700. A part of it is what sampling starts from: noise that knows nothing of the picture, at
    the last step, with the eps that would lead to the picture. SD 1.5's schedule leaves 7 % of the
    picture in its last step; a model that has only seen those takes the noise's mean for the
    background's colour, and looks for the things instead of reading where they are. In another
    part the picture is fainter than t says, as after sampling's first steps. The constant part of
    the noise (0.08) is there for the same reason."""
    n, dev = len(x0), x0.device
    even = (torch.arange(n, device=dev) + torch.rand(n, device=dev)) / n
    late = torch.rand(n, device=dev) < 0.4
    t = (torch.where(late, 0.7 + 0.3 * even, even) * diffusion.STEPS).long()
    blind = torch.rand(n, device=dev) < 1 / 6
    t = torch.where(blind, diffusion.STEPS - 1, t.clamp(max=diffusion.STEPS - 1))
    faint = late & (torch.rand(n, device=dev) < 0.3)
    seen = torch.where(blind, 0.0, torch.where(faint, torch.rand(n, device=dev), 1.0))
    a = a_bar[t][:, None, None, None]
    eps = torch.randn_like(x0)
    lift = torch.where(blind, 0.0, 0.08)[:, None, None, None]
    eps = eps + lift * torch.randn(n, 4, 1, 1, device=dev)
    x = seen[:, None, None, None] * a.sqrt() * x0 + (1 - a).sqrt() * eps
    x = torch.where(blind[:, None, None, None], eps, x)
    target = (x - a.sqrt() * x0) / (1 - a).sqrt()
    snr = a_bar[t] / (1 - a_bar[t])
    # As if the loss were on v, which is that of the picture where there is little of it, and no
    # more than five times that of the picture where there is hardly any noise left.
    weight = (1 + 1 / snr) * (5 / snr).clamp(max=1)
    return x, t, target, weight


class Order:
    """Can the model tell "a red circle left of a blue square" from its contrary? Pictures of
    pairs, with a sentence that is right and one with the relation turned round."""

    def __init__(self, m: Model, tex: torch.Tensor, n: int = 192):
        rng = random.Random(77)
        scenes = [s for s in (grammar.sample(rng) for _ in range(20 * n)) if s.layout == "pair"
                  and s.things[0].paint != s.things[1].paint][:n]
        ground, rows = (x.to(m.dev) for x in data.numbers(scenes))
        kind = next(m.vae.parameters()).dtype
        with torch.no_grad():
            self.latent = torch.cat([m.vae.encode((render.draw(tex, ground[i:i + 8], rows[
                i:i + 8]) * 2 - 1).to(kind)) for i in range(0, n, 8)]).float() * LATENT_SCALE
        self.ids = [torch.tensor([m.tok.encode(grammar.say_related(s, turn)) for s in scenes],
                                 device=m.dev) for turn in (False, True)]
        gen = torch.Generator().manual_seed(5)
        self.noise = torch.randn(n, 4, 32, 32, generator=gen).to(m.dev)
        self.a = diffusion.alpha_bar()[-1].item()

    @torch.no_grad()
    def told(self, of: Callable) -> str:
        """of(ids) is what the model takes the pictures for: [n,4,s,s]."""
        small = [of(ids) for ids in self.ids]
        want = F.avg_pool2d(self.latent, 32 // small[0].shape[-1])
        right, turned = ((y.float() - want).pow(2).mean((1, 2, 3)) for y in small)
        return (f"order {100 * (right < turned).float().mean():.0f} % told, error "
                f"{right.mean():.4f}, turned round {turned.mean():.4f}")

    def unet(self, m: Model) -> str:
        t = torch.full((len(self.noise),), diffusion.STEPS - 1, device=m.dev)
        return self.told(lambda ids: (self.noise - (1 - self.a) ** 0.5 * m.unet(
            self.noise, t, m.clip(ids))) / self.a ** 0.5)


class Model:
    def __init__(self, tok: Tokenizer, vae: Vae, dev: str):
        self.tok, self.vae, self.dev = tok, vae, dev
        self.clip = Clip(len(tok.vocab)).to(dev)
        self.unet = Unet().to(dev)

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


def train_diffusion(a: argparse.Namespace, m: Model, pool: Pool, order: Order, out: Path,
                    until: float) -> None:
    dev = m.dev
    say("unet", parameters(m.unet), "clip", parameters(m.clip), "parameters")
    a_bar = diffusion.alpha_bar(dev)
    nothing = torch.tensor(m.tok.encode(""), device=dev)

    def plainly(unet: Unet, clip: Clip, x, t, ids) -> torch.Tensor:
        return unet(x, t, clip(ids))

    predict = torch.compile(plainly, dynamic=False) if a.compile else plainly

    def loss_of(unet: Unet, clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
        x0, ids = pool.batch(a.batch)
        ids = torch.where(torch.rand(len(ids), 1, device=dev) < 0.1, nothing, ids)
        x, t, target, weight = noised(x0, a_bar)
        eps = predict(unet, clip, x.to(unet.time_embed[0].weight.dtype), t, ids)
        each = (eps.float() - target).pow(2).mean((1, 2, 3))
        return (each * weight).mean(), each.mean().detach()

    learner = Learner([m.unet, m.clip], a.lr, 0.9993, dev)
    learner.record(loss_of)
    clock, step, seen, looked = Clock(until - time.monotonic()), 0, [], time.monotonic()
    while clock.at() < 1 and step < a.most_steps:
        if step % a.fresh == 0:
            pool.draw()
        seen.append(learner.step(rate(clock.at(), step, 400)))
        step += 1
        if step % a.say_every == 0:
            weighted, plain = torch.stack(seen).mean(0).tolist()
            say(f"step {step} {clock.at():.3f} loss {weighted:.4f} eps {plain:.4f} "
                f"{step * a.batch / (time.monotonic() - clock.start):.0f} pictures/s")
            seen = []
        if time.monotonic() - looked > a.look_every:
            learner.give()
            m.save(out)
            say(order.unet(m))
            files.write_png(out / "sheet.png", files.sheet(m.pictures(LOOK_AT), 6))
            looked = time.monotonic()
    learner.give()
    say(f"diffusion: {step} steps of {a.batch}, {pool.next} pictures drawn;", order.unet(m))


def part_of(checkpoint: Path, part: str) -> dict[str, torch.Tensor]:
    """One network's parameters."""
    tensors = files.read_safetensors(checkpoint)[0]
    return {name.removeprefix(PREFIX[part]): t.float() for name, t in tensors.items()
            if name.startswith(PREFIX[part])}


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--resume", type=Path, help="a checkpoint of export.py's to go on from")
    p.add_argument("--vae-seconds", type=float, default=240, help="0: as it is")
    p.add_argument("--seconds", type=float, default=960,
                   help="until diffusion is done, all before it included; 0: none")
    p.add_argument("--scenes", type=int, default=300_000)
    p.add_argument("--pool", type=int, default=60_000)
    p.add_argument("--fresh", type=int, default=60, help="steps between 256 pictures drawn anew")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--vae-batch", type=int, default=96)
    p.add_argument("--lr", type=float, default=8e-4)
    p.add_argument("--vae-lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--workers", type=int, default=16)
    p.add_argument("--polish-seconds", type=float, default=120,
                   help="in the end, for the decoder alone")
    p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    p.add_argument("--most-steps", type=int, default=1 << 30)
    p.add_argument("--say-every", type=int, default=200)
    p.add_argument("--look-every", type=float, default=120)
    return p.parse_args()


def main() -> None:
    a = arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    tok = (Tokenizer.from_json(files.read_safetensors(a.resume)[1]["berth.tokenizer"]) if a.resume
           else data.make_tokenizer())
    (a.out / "tokenizer.json").write_text(tok.to_json())
    world = data.make(a.scenes, a.seed, tok, a.workers)
    say(f"{a.scenes} scenes in {time.monotonic() - start:.1f} s, {len(tok.vocab)} tokens")
    dev = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    world = tuple(w.to(dev) for w in world)
    tex = render.atlas(dev)
    vae = Vae().to(dev)
    with torch.no_grad():
        vae.quant_conv.bias[4:] = -6  # else noise drowns what the encoder has to say at first
    if a.resume:
        vae.load_state_dict(part_of(a.resume, "vae"))
    if a.vae_seconds > 0:
        if a.resume:  # as it was before vaes.settle()
            vae.rescale(torch.zeros(4, device=dev), torch.full((4,), LATENT_SCALE ** -2.0,
                                                               device=dev))
        vaes.train(a, vae, world, tex, dev)
        vaes.settle(vae, world, tex, min(1600, a.scenes))
        vaes.look(vae, world, tex, a.out / "vae.png")
    vae.requires_grad_(False)
    m = Model(tok, vae, dev)
    if a.resume:
        for name in ("unet", "clip"):
            m.parts()[name].load_state_dict(part_of(a.resume, name))
    r = vaes.preview_turn(vae, world, tex).to(dev)
    vae.turn(r)
    m.unet.turn(r)
    if a.seconds > 0:
        m.save(a.out)
        order = Order(m, tex, min(192, a.scenes))
        train_diffusion(a, m, Pool(vae, world, tex, a.pool, dev), order, a.out, start + a.seconds)
    m.save(a.out)
    if a.polish_seconds > 0:
        vaes.look(vae, world, tex, a.out / "vae.png")
        vaes.polish_decoder(a, vae, world, tex, dev)
        m.save(a.out)
        vaes.look(vae, world, tex, a.out / "vae.png")
    files.write_png(a.out / "sheet.png", files.sheet(m.pictures(LOOK_AT), 6))
    say(f"all: {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
