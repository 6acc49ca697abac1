"""Steps of training, for any of the networks: by the clock, recorded once and replayed."""
from __future__ import annotations

import copy
import math
import time
from typing import Callable

import torch

from nets import Unet


def say(*what: object) -> None:
    print(*what, flush=True)


class Clock:
    """Where a stage stands: from 0 to 1 over its seconds."""

    def __init__(self, seconds: float):
        self.start, self.seconds = time.monotonic(), seconds

    def at(self) -> float:
        return min((time.monotonic() - self.start) / self.seconds, 1.0)


def rate(at: float, step: int, warm_up: int = 150) -> float:
    """Of the highest learning rate: up over the first steps, then down a cosine by the clock."""
    return min(1.0, (step + 1) / warm_up) * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * at)))


class Learner:
    """Trains bfloat16 copies of networks, keeping float32 parameters and their running mean.

    On a GPU a whole step, from drawing random numbers to the optimizer, is recorded once and
    replayed: thousands of small kernels would otherwise wait for Python. `loss_of` returns the
    loss and what is shown of it, and may only use tensors that stay where they are."""

    def __init__(self, nets: list[torch.nn.Module], lr: float, decay: float, dev: str):
        self.nets, self.lr, self.decay, self.dev, self.n = nets, lr, decay, dev, 0
        self.copies = [copy.deepcopy(n) for n in nets]
        for c in self.copies:
            c.requires_grad_(True)
            if dev == "cuda":
                c.bfloat16()
            if isinstance(c, Unet):
                c.out.float()
        self.params = [p for c in self.copies for p in c.parameters()]
        self.master = [p.detach().clone().requires_grad_() for n in nets for p in n.parameters()]
        self.mean = [p.detach().clone() for p in self.master]
        for m in self.master:
            m.grad = torch.zeros_like(m)
        self.rate = torch.tensor(0.0, device=dev)
        self.opt = torch.optim.AdamW(self.master, lr=self.rate, betas=(0.9, 0.99),
                                     weight_decay=0.01, capturable=dev == "cuda",
                                     fused=dev == "cuda")

    def _step(self) -> torch.Tensor:
        for p in self.params:
            p.grad = None
        loss, shown = self.loss_of(*self.copies)
        loss.backward()
        with torch.no_grad():
            torch._foreach_copy_([m.grad for m in self.master],
                                 [p.grad if p.grad is not None else torch.zeros_like(p)
                                  for p in self.params])
            torch.nn.utils.clip_grad_norm_(self.master, 1.0, foreach=True)
            self.opt.step()
            torch._foreach_copy_(self.params, self.master)
        return torch.stack([loss.detach().float(), shown.float()])

    def record(self, loss_of: Callable) -> None:
        """What step() does from now on."""
        self.loss_of, self.graph = loss_of, None
        if self.dev != "cuda":
            return
        began = time.monotonic()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.shown = self._step()
        torch.cuda.synchronize()
        say(f"a step recorded in {time.monotonic() - began:.1f} s")

    def step(self, part: float) -> torch.Tensor:
        """One step at a part of the highest learning rate. Returns loss and what is shown."""
        self.rate.fill_(self.lr * part)
        if self.graph:
            self.graph.replay()
            shown = self.shown.clone()
        else:
            shown = self._step()
        self.n += 1
        keep = min(self.decay, (1 + self.n) / (10 + self.n))
        torch._foreach_lerp_(self.mean, [m.detach() for m in self.master], 1 - keep)
        return shown

    @torch.no_grad()
    def give(self) -> None:
        """Puts the mean into the networks."""
        torch._foreach_copy_([p for n in self.nets for p in n.parameters()], self.mean)
