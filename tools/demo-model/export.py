"""Makes the checkpoint people load of what train.py wrote: one file in SD 1.5's layout, float16,
with its tokenizer and good settings in the metadata."""
from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import files
from nets import PREFIX

SETTINGS = {
    "width": 256, "height": 256, "steps": 16, "cfg": 4.0,
    "sampler_name": "dpmpp_2m", "scheduler": "karras",
    "prompts": [
        "a red circle left of a blue square on a yellow background",
        "a red house left of a green tree on a green meadow with a sun",
        "three yellow stars on a black background",
        "a white boat on the sea at sunset",
        "a big purple heart on a white background",
        "a white triangle inside a red circle on a blue background",
    ],
    "negative": "",
}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("trained", type=Path, help="train.py's --out")
    p.add_argument("to", type=Path, help="folder for berth-demo.safetensors and tokenizer.json")
    a = p.parse_args()
    tensors = {}
    for part, prefix in PREFIX.items():
        for name, t in files.read_safetensors(a.trained / f"{part}.safetensors")[0].items():
            half = t.half()
            if not torch.isfinite(half).all():
                raise SystemExit(f"{prefix}{name} does not fit float16")
            tensors[prefix + name] = half
    tokenizer = (a.trained / "tokenizer.json").read_text()
    a.to.mkdir(parents=True, exist_ok=True)
    (a.to / "tokenizer.json").write_text(tokenizer)
    files.write_safetensors(a.to / "berth-demo.safetensors", tensors, {
        "berth.tokenizer": tokenizer, "berth.settings": json.dumps(SETTINGS),
        "modelspec.title": "Berth demo", "modelspec.license": "CC0-1.0"})
    print(sum(t.numel() for t in tensors.values()), "parameters,",
          (a.to / "berth-demo.safetensors").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
