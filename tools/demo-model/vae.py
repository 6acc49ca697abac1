"""The VAE's training, and what is done to its latents before a UNet sees them."""
from __future__ import annotations

import argparse
import copy
import math
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

import files
import render
from learner import Clock, Learner, rate, say
from nets import LATENT_SCALE, Vae, parameters


def slopes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]


def in_corner(x: torch.Tensor) -> torch.Tensor:
    """Where the encoder, whose strides pad at the right and below, likes to keep things."""
    return x[..., -16:, -16:]


def unlike(y: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """How far y is from x: pixels, edges and, coarsely, colours; and the pixels' part alone."""
    plain = (y - x).abs().mean()
    edges = sum((a - b).abs().mean() for a, b in zip(slopes(y), slopes(x)))
    coarse = (F.avg_pool2d(y, 8) - F.avg_pool2d(x, 8)).abs().mean()
    return plain + edges + 0.5 * coarse, plain.detach()


def vae_loss(vae: Vae, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    mean, logvar = vae.moments(x.to(vae.quant_conv.weight.dtype))
    mean, logvar = mean.float(), logvar.float()
    z = mean + (0.5 * logvar).exp().clamp(min=0.05) * torch.randn_like(mean)
    loss, plain = unlike(vae.decode(z.to(vae.quant_conv.weight.dtype)).float(), x)
    kl = 0.5 * (mean ** 2 + logvar.exp() - logvar - 1).mean()
    return loss + 2e-5 * kl, plain


def windows(rows: torch.Tensor, side: int) -> torch.Tensor:
    """Top left corners [n,2] of windows with something in them: one of the last layers drawn."""
    n = len(rows)
    there = rows[:, :, 0] > 0
    last = (there.sum(1) - 1).clamp(min=0)
    pick = (torch.rand(n, device=rows.device) * (last + 1)).long()
    pick = torch.maximum(pick, last - 5).clamp(min=0)
    centre = rows[torch.arange(n, device=rows.device), pick, 1:3]
    part = side / render.SIDE
    corner = centre - part * (0.2 + 0.6 * torch.rand(n, 2, device=rows.device))
    pixel = (corner.clamp(0, 1 - part) * render.SIDE).round()
    return pixel / render.SIDE


def train(a: argparse.Namespace, vae: Vae, world: tuple, tex: torch.Tensor, dev: str) -> None:
    """First on windows of a quarter of the picture, around things: four times the pictures and
    hardly any empty ground. Then on whole pictures, as it will be used."""
    say("vae", parameters(vae), "parameters")
    ground, rows = world[0], world[1]
    most = render.used(rows)
    learner = Learner([vae], a.vae_lr, 0.998, dev)

    def loss_at(side: int, n: int) -> Callable:
        def loss_of(net: Vae) -> tuple[torch.Tensor, torch.Tensor]:
            at = torch.randint(len(ground), (n,), device=dev)
            corner = windows(rows[at], side) if side < render.SIDE else None
            x = render.draw(tex, ground[at], rows[at], most, side, corner) * 2 - 1
            return vae_loss(net, x)
        return loss_of

    spent, step = 0.0, 0
    stages = [(128, a.vae_batch, 0.6), (render.SIDE, a.vae_batch // 4, 0.4)]
    for side, n, part in stages if not a.resume else [(render.SIDE, a.vae_batch // 4, 1.0)]:
        learner.record(loss_at(side, n))
        clock, seen = Clock(a.vae_seconds * part), []
        while clock.at() < 1 and step < a.most_steps:
            seen.append(learner.step(rate(spent + part * clock.at(), step)))
            step += 1
            if step % a.say_every == 0:
                loss, plain = torch.stack(seen).mean(0).tolist()
                say(f"vae step {step} side {side} {clock.at():.2f} loss {loss:.5f} l1 {plain:.5f}")
                seen = []
        spent += part
    learner.give()
    say(f"vae: {step} steps")


def polish_decoder(a: argparse.Namespace, vae: Vae, world: tuple, tex: torch.Tensor,
                   dev: str) -> None:
    """The decoder alone, for what latents already mean to a trained UNet. They come out of the UNet
    a little off, so here they do, too."""
    ground, rows = world[0], world[1]
    most = render.used(rows)
    eye = copy.deepcopy(vae).bfloat16() if dev == "cuda" else copy.deepcopy(vae)
    kind = eye.quant_conv.weight.dtype
    learner = Learner([vae.decoder, vae.post_quant_conv], a.vae_lr / 2, 0.998, dev)

    def loss_of(decoder, post_quant) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.randint(len(ground), (a.vae_batch // 4,), device=dev)
        x = render.draw(tex, ground[at], rows[at], most) * 2 - 1
        with torch.no_grad():
            z = eye.encode(x.to(kind)).float()
            z = z + 0.05 / LATENT_SCALE * torch.randn_like(z)
        y = decoder(post_quant(z.to(kind))).float()
        loss, plain = unlike(y, x)
        # Specks are few pixels far off: the corner they are mostly in counts more, and squares do.
        specks = 0.1 * unlike(in_corner(y), in_corner(x))[0] + 3 * F.mse_loss(y, x)
        return loss + specks, plain

    learner.record(loss_of)
    clock, step, seen = Clock(a.polish_seconds), 0, []
    while clock.at() < 1 and step < a.most_steps:
        seen.append(learner.step(rate(clock.at(), step)))
        step += 1
        if step % a.say_every == 0:
            loss, plain = torch.stack(seen).mean(0).tolist()
            say(f"decoder step {step} {clock.at():.2f} loss {loss:.5f} l1 {plain:.5f}")
            seen = []
    learner.give()


@torch.no_grad()
def settle(vae: Vae, world: tuple, tex: torch.Tensor, n: int) -> None:
    """Measures latents and folds their scale into the VAE."""
    z = torch.cat([vae.encode(render.draw(tex, world[0][i:i + 8], world[1][i:i + 8]) * 2 - 1)
                   for i in range(0, n, 8)])
    mean, std = z.mean((0, 2, 3)), z.std((0, 2, 3))
    say("latents: mean", [f"{v:.3f}" for v in mean], "deviation", [f"{v:.3f}" for v in std])
    vae.rescale(mean, std)


PREVIEW = [[0.3512, 0.2297, 0.3227], [0.3250, 0.4974, 0.2350],  # red, green, blue of a channel:
           [-0.2829, 0.1762, 0.2721], [-0.2120, -0.2616, -0.7177]]  # how previews see SD 1.5's


def preview_turn(vae: Vae, world: tuple, tex: torch.Tensor, n: int = 400) -> torch.Tensor:
    """The orthogonal [4,4] after which previews made for SD 1.5 show our colours best."""
    n = min(n, len(world[0]))
    factors = torch.tensor(PREVIEW)
    with torch.no_grad():
        x = torch.cat([render.draw(tex, world[0][i:i + 8], world[1][i:i + 8])
                       for i in range(0, n, 8)]) * 2 - 1
        z = torch.cat([vae.encode(some) for some in x.split(8)]) * LATENT_SCALE
        z = z.permute(0, 2, 3, 1).reshape(-1, 4).cpu()
        colour = F.avg_pool2d(x, 8).permute(0, 2, 3, 1).reshape(-1, 3).cpu()
    best: tuple = (math.inf, None)
    for start in range(16):  # half of them mirrored
        gen = torch.Generator().manual_seed(start)
        free = torch.randn(4, 4, generator=gen).requires_grad_()
        mirror = torch.diag(torch.tensor([1.0, 1.0, 1.0, -1.0 if start % 2 else 1.0]))
        opt = torch.optim.Adam([free], 0.05)
        for _ in range(300):
            r = torch.matrix_exp(free - free.T) @ mirror
            far = (z[::29] @ r.T @ factors - colour[::29]).pow(2).mean()
            opt.zero_grad()
            far.backward()
            opt.step()
        if far.item() < best[0]:
            best = (far.item(), r.detach())
    say(f"previews: colours off by {best[0] ** 0.5:.3f}, "
        f"{(z @ factors - colour).pow(2).mean() ** 0.5:.3f} before")
    return best[1]


@torch.no_grad()
def look(vae: Vae, world: tuple, tex: torch.Tensor, path: Path) -> None:
    x = render.draw(tex, world[0][-8:], world[1][-8:])
    y = (vae.decode(vae.encode(x * 2 - 1)) + 1) / 2
    error = ((y.clamp(0, 1) - x) ** 2).mean()
    say(f"vae: psnr {-10 * error.log10():.2f} dB")
    files.write_png(path, files.sheet(torch.cat([x, y]), 8))
