"""Scenes as tensors: what the renderer draws and what the text encoder reads, by all cores."""
from __future__ import annotations

import multiprocessing
import random

import torch

import grammar
import render
from tokenizer import LENGTH, Tokenizer

CAPTIONS = 3  # sentences for each scene


def make_tokenizer(seed: int = 7, texts: int = 30000) -> Tokenizer:
    rng = random.Random(seed)
    # Strange words are not for learning from: without them every merge is part of a real word.
    return Tokenizer.train([t for t in (grammar.describe(grammar.sample(rng), rng)
                                        for _ in range(texts))], rarest=25)


def numbers(scenes: list[grammar.Scene]) -> tuple[torch.Tensor, torch.Tensor]:
    """ground [n,6] and rows [n,LAYERS,COLUMNS] for render.draw()."""
    none = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]  # a layer that is not there
    grounds, rows = zip(*(render.layers(s) for s in scenes))
    return torch.tensor(grounds), torch.tensor(
        [r + [none] * (render.LAYERS - len(r)) for r in rows])


def _share(job: tuple[int, int, str]) -> tuple:
    n, seed, tokenizer = job
    torch.set_num_threads(1)
    rng = random.Random(seed)
    tok = Tokenizer.from_json(tokenizer)
    scenes = [grammar.sample(rng) for _ in range(n)]
    ids = torch.tensor([[tok.encode(grammar.describe(s, rng)) for _ in range(CAPTIONS)]
                        for s in scenes], dtype=torch.int16).reshape(n, CAPTIONS, LENGTH)
    ground, rows = numbers(scenes)
    return ground.numpy(), rows.numpy(), ids.numpy()


def make(n: int, seed: int, tok: Tokenizer, workers: int) -> tuple[torch.Tensor, ...]:
    """ground, rows and ids [n,CAPTIONS,77] of n scenes; the same for a seed and n, however many
    workers there are. Call before the device is first used: workers are forked."""
    share = min(4000, n)
    jobs = [(min(share, n - at), seed * 1_000_003 + at, tok.to_json())
            for at in range(0, n, share)]
    if workers > 1:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            parts = pool.map(_share, jobs, chunksize=1)
    else:
        parts = [_share(j) for j in jobs]
    return tuple(torch.cat([torch.from_numpy(p[i]) for p in parts]) for i in range(3))
