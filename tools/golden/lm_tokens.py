#!/usr/bin/env python3
"""What the reference libraries make of prompts with a language model's tokenizer: ids, and the text
that they are decoded to.

usage: lm_tokens.py KIND FOLDER PROMPTS.json OUT.json [--random N --seed S] [--special TEXT]...
                    [--comfyui COMFYUI] [--no-decoded]

KIND    FOLDER                                               done by
qwen    vocab.json, merges.txt, tokenizer_config.json        transformers (Qwen2Tokenizer)
json    a tokenizer.json                                     tokenizers
spm     a SentencePiece model                                sentencepiece
gemma   the same, with the tokens that ComfyUI adds          ComfyUI (SPieceTokenizer)
tekken  a tekken.json                                        ComfyUI (bpe_tokenizer)
llama   a tokenizer.json                                     ComfyUI (bpe_tokenizer)

FOLDER is a folder for qwen and llama, else a file. PROMPTS.json is an array of texts ("-": none).
--random appends N texts made of letters, marks, emoji, controls and special tokens, the same for
the same seed. --special adds a text to what random texts are made of.

OUT.json is an array of {"text": ..., "ids": [...], "decoded": ...}; ids without start and end,
decoded without special tokens. --no-decoded: only ids, for tokenizers whose added tokens the
library decodes to something else than themselves (characters that stand for bytes elsewhere).
OUT_made_with.json names versions.
"""

import argparse
import importlib.metadata
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import clip_tokens  # noqa: E402: its random texts

PIECES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n",
    "\n ",
    " \n \n ",
    "x ",
    " x",
    "a photo of",
    "Don't",
    "I'LL",
    "'re",
    "'\u017fa",
    "'S",
    "''",
    "\u2019s",
    "12345",
    "3.14",
    " 7",
    "\u0967\u0968\u0969",
    "\u00bd",
    "\u2167",
    "...",
    "?!\n",
    " ?",
    "!!\r\n\r\n",
    "(red:1.2)",
    "\\(",
    "{}",
    "_",
    "__x",
    "#$%",
    "e\u0301",
    "\u0301",
    "\u1100\u1161\u11a8",
    "\uac00",
    "\u212b",
    "\u3042\u3099",
    "\u4e00\u53ea\u732b",
    "\u65e5\u672c",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea",
    "\U0001f44d\U0001f3fd",
    "\u2603\ufe0f",
    "\u200d",
    "\u200b",
    "\ufeff",
    "\u00ad",
    "\u0001",
    "\u001f",
    "\u007f",
    "\u0085",
    "\u00a0",
    "\u2028",
    "\u3000",
    "\u180e",
    "\ufffd",
    "\u2581",
    "\u2581\u2581",
    "<0x41>",
    "<s>",
    "</s>",
    "<pad>",
    "<unk>",
    "<bos>",
    "caf\u00e9",
    "na\u00efve",
    "STRASSE",
    "\u00df",
    "\ufb01",
]


def random_text(rng, special):
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.5:
            out.append(rng.choice(PIECES))
        elif kind < 0.6 and special:
            out.append(rng.choice(special))
        elif kind < 0.8:
            out.append("".join(rng.choice("abcdeinorst ") for _ in range(rng.randint(1, 12))))
        else:
            block = rng.choice(clip_tokens.BLOCKS)
            points = [rng.randrange(*block) for _ in range(rng.randint(1, 3))]
            out += [c for c in points if not 0xD800 <= c < 0xE000]
    return "".join(c if isinstance(c, str) else chr(c) for c in out)


class Library:
    """encode(text), decode(ids), special: texts of special tokens"""

    special = ()


class Qwen(Library):
    def __init__(self, path):
        from transformers import Qwen2Tokenizer

        self.t = Qwen2Tokenizer.from_pretrained(path)
        self.special = [t.content for t in self.t.added_tokens_decoder.values()]
        self.encode = lambda s: self.t(s)["input_ids"]
        self.decode = lambda ids: self.t.decode(ids, skip_special_tokens=True)


class Json(Library):
    def __init__(self, path):
        from tokenizers import Tokenizer

        self.t = Tokenizer.from_file(path)
        self.special = [t.content for t in self.t.get_added_tokens_decoder().values()]
        self.encode = lambda s: self.t.encode(s, add_special_tokens=False).ids
        self.decode = lambda ids: self.t.decode(ids, skip_special_tokens=True)


class Spm(Library):
    def __init__(self, path):
        import sentencepiece

        self.t = sentencepiece.SentencePieceProcessor(model_file=path)
        ids = range(self.t.get_piece_size())
        self.special = [self.t.id_to_piece(i) for i in ids if self.t.is_control(i)][:20]
        self.encode = self.t.encode
        self.decode = self.t.decode


class Gemma(Library):
    def __init__(self, path):
        from comfy.text_encoders.spiece_tokenizer import SPieceTokenizer

        self.special = {"<end_of_turn>": 106, "<image_soft_token>": 262144}
        self.t = SPieceTokenizer(path, add_bos=True, add_eos=False, special_tokens=self.special)
        self.special = list(self.special)
        self.encode = lambda s: self.t(s)["input_ids"][1:]
        self.decode = lambda ids: self.t.decode(ids, skip_special_tokens=True)


class Comfy(Library):
    def __init__(self, path):
        from comfy.text_encoders import bpe_tokenizer

        self.t = (
            bpe_tokenizer.from_tekken_json(open(path, "rb").read())
            if os.path.isfile(path)
            else bpe_tokenizer.from_tokenizer_json(path)
        )
        self.special = list(self.t._special_token_ids)
        self.encode = self.t._encode_raw
        self.decode = self.t.decode


KINDS = {"qwen": Qwen, "json": Json, "spm": Spm, "gemma": Gemma, "tekken": Comfy, "llama": Comfy}


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("kind", choices=KINDS)
    ap.add_argument("folder")
    ap.add_argument("prompts")
    ap.add_argument("out")
    ap.add_argument("--random", type=int, default=0)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--special", action="append", default=[])
    ap.add_argument("--no-decoded", action="store_true")
    ap.add_argument("--comfyui")
    a = ap.parse_args()
    if a.comfyui:
        sys.path.insert(0, a.comfyui)
    sys.argv = sys.argv[:1]  # ComfyUI reads it, too
    lib = KINDS[a.kind](a.folder)
    texts = [] if a.prompts == "-" else json.load(open(a.prompts))
    rng = random.Random(a.seed)
    texts += [random_text(rng, [*lib.special, *a.special]) for _ in range(a.random)]
    rows = [{"text": s, "ids": [int(i) for i in lib.encode(s)]} for s in texts]
    for row in [] if a.no_decoded else rows:
        row["decoded"] = lib.decode(row["ids"])
    with open(a.out, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
    with open(os.path.splitext(a.out)[0] + "_made_with.json", "w") as f:
        made = {
            m: importlib.metadata.version(m)
            for m in ("tokenizers", "transformers", "sentencepiece")
        }
        json.dump({"kind": a.kind, "random": a.random, "seed": a.seed} | made, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
