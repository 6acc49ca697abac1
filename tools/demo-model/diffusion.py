"""Stable Diffusion 1.5's noise schedule, and a sampler for looking at what was learnt."""
from __future__ import annotations

from typing import Callable

import torch

STEPS = 1000


def alpha_bar(device: torch.device | str = "cpu") -> torch.Tensor:
    beta = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, STEPS, dtype=torch.float64) ** 2
    return torch.cumprod(1 - beta, 0).float().to(device)


def sigmas(device: torch.device | str = "cpu") -> torch.Tensor:
    a = alpha_bar(device)
    return ((1 - a) / a).sqrt()


def karras(n: int, low: float, high: float) -> list[float]:
    ramp = [i / (n - 1) for i in range(n)]
    return [(high ** (1 / 7) + r * (low ** (1 / 7) - high ** (1 / 7))) ** 7 for r in ramp] + [0.0]


@torch.no_grad()
def sample(eps: Callable, noise: torch.Tensor, context: torch.Tensor, empty: torch.Tensor,
           steps: int = 16, cfg: float = 4.0) -> torch.Tensor:
    """DPM++ 2M over Karras' sigmas. eps(x, t, context) is the UNet; noise [n,4,h,w] ~ N(0,1).
    Returns latents as the UNet sees them."""
    table = sigmas(noise.device)
    log_table = table.log()
    plan = karras(steps, float(table[0]), float(table[-1]))
    x = noise * (1 + plan[0] ** 2) ** 0.5
    both = torch.cat([context, empty.expand_as(context)])
    before = None
    for i in range(steps):
        s, to = plan[i], plan[i + 1]
        log_s = torch.tensor(s, device=x.device).log()
        low = int((log_table <= log_s + 1e-6).sum().clamp(1, STEPS - 1)) - 1
        part = ((log_s - log_table[low]) / (log_table[low + 1] - log_table[low])).clamp(0, 1)
        t = (low + part).expand(2 * len(x))
        scaled = x / (s * s + 1) ** 0.5
        e, e0 = eps(torch.cat([scaled, scaled]), t, both).float().chunk(2)
        x0 = x - s * (e0 + cfg * (e - e0))
        if to == 0:
            return x0
        h = torch.log(torch.tensor(s / to)).item()
        d = x0
        if before is not None:
            r = before[1] / h
            d = (1 + 1 / (2 * r)) * x0 - 1 / (2 * r) * before[0]
        x = to / s * x - (torch.tensor(-h).expm1().item()) * d
        before = (x0, h)
    return x
