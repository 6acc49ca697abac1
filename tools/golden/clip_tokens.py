#!/usr/bin/env python3
"""What ComfyUI makes of prompts: token ids and weights, chunk by chunk.

usage: clip_tokens.py COMFYUI PROMPTS.json OUT.json [--kind KIND] [--random N --seed S] [--unpadded]

KIND is clip_l, clip_g, t5xxl, byt5_small, qwen3_4b (weights are off, as in Z-Image) or qwen25_3b
(they are on, as in Omnigen2); templates are not part of it.

COMFYUI is a checkout with its requirements installed; its tokenizer classes run as they are.
PROMPTS.json is an array of texts ("-": none). --random appends N texts made of letters, marks,
emoji, controls and special tokens, the same for the same seed.

OUT.json is an array of {"text": ..., "tokens": [[[id, weight], ...], ...]}. --unpadded leaves out
the padding behind each chunk and says so ("unpadded": true). OUT_made_with.json names versions.
"""

import argparse
import json
import os
import random
import sys

KINDS = {
    "clip_l": ("comfy.sd1_clip", "SDTokenizer"),
    "clip_g": ("comfy.sdxl_clip", "SDXLClipGTokenizer"),
    "t5xxl": ("comfy.text_encoders.flux", "T5XXLTokenizer"),
    "qwen3_4b": ("comfy.text_encoders.z_image", "Qwen3Tokenizer"),
    "qwen25_3b": ("comfy.text_encoders.omnigen2", "Qwen25_3BTokenizer"),
    "byt5_small": ("comfy.text_encoders.hunyuan_image", "ByT5SmallTokenizer"),
}
PLAIN = {"qwen3_4b"}  # weights are off

BLOCKS = [
    (0x20, 0x7F),
    (0x41, 0x5B),
    (0x61, 0x7B),
    (0xA0, 0x180),
    (0x180, 0x250),
    (0x250, 0x300),
    (0x300, 0x370),
    (0x370, 0x400),
    (0x400, 0x530),
    (0x530, 0x600),
    (0x600, 0x700),
    (0x700, 0x900),
    (0x900, 0xE00),
    (0xE00, 0x1000),
    (0x1000, 0x1100),
    (0x1100, 0x1200),
    (0x1200, 0x1C90),
    (0x1C90, 0x1E00),
    (0x1E00, 0x2000),
    (0x2000, 0x2070),
    (0x2070, 0x2200),
    (0x2200, 0x2C00),
    (0x2C00, 0x3000),
    (0x3000, 0x3100),
    (0x3100, 0x3400),
    (0x3400, 0x4E00),
    (0x4E00, 0xA000),
    (0xA000, 0xAC00),
    (0xAC00, 0xD7B0),
    (0xE000, 0xF900),
    (0xF900, 0xFB50),
    (0xFB50, 0xFE00),
    (0xFE00, 0xFE30),
    (0xFE30, 0x10000),
    (0x10000, 0x11000),
    (0x11000, 0x12000),
    (0x12000, 0x16000),
    (0x16000, 0x1B000),
    (0x1B000, 0x1D000),
    (0x1D000, 0x1E000),
    (0x1E000, 0x1F000),
    (0x1F000, 0x1FB00),
    (0x1FB00, 0x20000),
    (0x20000, 0x32000),
    (0x32000, 0xE0000),
    (0xE0000, 0xE0200),
    (0xE0200, 0x110000),
    (0x1, 0xA0),
]
PIECES = [
    " ",
    "  ",
    "\t",
    "\n",
    "a photo of",
    "cat",
    "CAT's",
    "don't",
    "we'LL",
    "'S",
    "'",
    "''",
    "\u2019s",
    "1girl",
    "2024",
    "(red:1.2)",
    "((x))",
    "\\(",
    "<|endoftext|>",
    "<|startoftext|>",
    "<|EndOfText|>",
    "<|StartOfText|>",
    "<|",
    "|>",
    "</w>",
    "\u200d",
    "\ufe0f",
    "\u200b",
    "\u200c",
    "\u00ad",
    "\ufeff",
    "\u0301",
    "\u0323",
    "\u0345",
    "\u3099",
    "\u0338",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea",
    "\U0001f44d\U0001f3fd",
    "\u2603\ufe0f",
    "\u0130",
    "\u03a3",
    "\u1e9e",
    "\ufb01",
    "\u01c5",
    "\u2167",
    "\u00bd",
    "\u2460",
    "\u1100\u1161\u11a8",
    "\u4e00",
    "\u732b",
    "\u3042\u3099",
    "\u0928\u093f",
    "\u0e33",
    "\u0001",
    "\u001f",
    "\u0085",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\U00011935\U00011930",
    "\U00010d50",
    "\ufffd",
    "&amp;",
    "</s>",
    "<extra_id_0>",
    "<pad>",
    "<unk>",
    "\u2581",
]


def random_text(rng):
    out = []
    home = rng.choice(BLOCKS)
    for _ in range(rng.randint(1, 20)):
        kind = rng.random()
        if kind < 0.35:
            out.append(rng.choice(PIECES))
        else:
            point = rng.randrange(*(home if kind < 0.7 else rng.choice(BLOCKS)))
            out.append("" if 0xD800 <= point < 0xE000 else chr(point))
    return "".join(out)


def chunks(tokenizer, text, unpadded, plain):
    out = []
    for chunk in tokenizer.tokenize_with_weights(
        text, **({"disable_weights": True} if plain else {})
    ):
        pairs = [[int(t[0]), float(t[1])] for t in chunk]
        while unpadded and pairs and pairs[-1] == [tokenizer.pad_token, 1.0]:
            pairs.pop()
        out.append(pairs)
    return out


def main():
    p = argparse.ArgumentParser()
    for name in ("comfyui", "prompts", "out"):
        p.add_argument(name)
    p.add_argument("--kind", choices=KINDS, default="clip_l")
    p.add_argument("--random", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--unpadded", action="store_true")
    a = p.parse_args()
    sys.path.insert(0, a.comfyui)
    import importlib
    from comfy.cli_args import args

    args.cpu = True
    import tokenizers
    import transformers

    module, name = KINDS[a.kind]
    tokenizer = getattr(importlib.import_module(module), name)()
    texts = [] if a.prompts == "-" else json.load(open(a.prompts, encoding="utf-8"))
    rng = random.Random(a.seed)
    texts += [random_text(rng) for _ in range(a.random)]
    cases = []
    for text in texts:
        case = {"text": text, "tokens": chunks(tokenizer, text, a.unpadded, a.kind in PLAIN)}
        cases.append({**case, "unpadded": True} if a.unpadded else case)
    with open(a.out, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
    version = open(os.path.join(a.comfyui, "comfyui_version.py")).read().split('"')[1]
    made = {
        "comfyui": version,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "kind": a.kind,
        "cases": len(cases),
        "random": a.random,
        "seed": a.seed,
    }
    with open(os.path.splitext(a.out)[0] + "_made_with.json", "w") as f:
        json.dump(made, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
