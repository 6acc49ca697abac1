#!/usr/bin/env python3
"""What PyTorch's CUDA generator draws on the card that is here.

usage: philox.py FOLDER     (needs a card)

Writes philox.txt, one line a case:

    seed threads sizes at value at value ...

    threads  of the card at once: multiprocessors x threads of each; larger draws depend on it
    sizes    of the draws from one generator, 16,40
    at       of the numbers of all draws, one after the other; value as C writes floats in
             hexadecimal
"""

import os
import sys

import torch

CASES = (
    [1],
    [16],
    [17, 40],
    [255, 256, 257],
    [4096, 4096],
    [262144, 262144],
    [300000],
    [1200000, 1000],
    [2500000],
)
SEEDS = (0, 42, 2**32 + 5, 2**64 - 1)


def picks(sizes):
    total, at = sum(sizes), 0
    out = set(range(min(8, total)))
    for n in sizes:  # the ends of every draw, and some between
        out |= {at, at + n // 3, at + n // 2, at + n - 1}
        at += n
    step = max(1, total // 40)
    return sorted(out | set(range(0, total, step)))


def main():
    p = torch.cuda.get_device_properties(0)
    threads = p.multi_processor_count * p.max_threads_per_multi_processor
    with open(os.path.join(sys.argv[1], "philox.txt"), "w") as f:
        for seed in SEEDS:
            for sizes in CASES:
                g = torch.Generator("cuda").manual_seed(seed)
                x = (
                    torch.cat([torch.randn(n, generator=g, device="cuda") for n in sizes])
                    .cpu()
                    .tolist()
                )
                values = " ".join(f"{i} {x[i].hex()}" for i in picks(sizes))
                f.write(f"{seed} {threads} {','.join(map(str, sizes))} {values}\n")


main()
