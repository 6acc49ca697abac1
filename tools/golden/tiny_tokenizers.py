#!/usr/bin/env python3
"""Small tokenizers of every kind of file, made of texts of our own, for tests that always run.

usage: tiny_tokenizers.py OUT TEXT...

OUT/qwen     vocab.json, merges.txt, tokenizer_config.json
OUT/llama3   tokenizer.json: bytes, Llama's words
OUT/gpt2     tokenizer.json: bytes, GPT-2's words
OUT/flags    tokenizer.json: bytes, Qwen's words, added tokens with every flag
OUT/gemma4   tokenizer.json: characters with U+2581, bytes for what is unknown
OUT/llama2   tokenizer.json: the same with a blank in front, unknown characters fused
OUT/tekken   tekken.json
OUT/gemma    tokenizer.model: SentencePiece BPE, pieces of users, bytes, nothing in front
OUT/spm      tokenizer.model: SentencePiece BPE, U+2581 in front, blanks kept
OUT/rules    tokenizer.model: SentencePiece BPE, rules for characters, blanks squeezed, no bytes

TEXT are the files they are trained on. Needs tokenizers and sentencepiece.
"""

import base64
import io
import json
import os
import sys
import tempfile

import sentencepiece
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + WORDS % r"\p{N}"
LLAMA = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + WORDS % r"\p{N}{1,3}"
BLANK = {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}
# Beside the files: what prompts are made of that documentation is not.
MORE = [
    "a photo of a cat",
    "Don't I'LL we're 12345 3.14 2024",
    "\u4e00\u53ea\u732b\u5750\u5728\u7a97\u53f0\u4e0a",
    "\u65e5\u672c\u8a9e\u306e\u732b",
    "caf\u00e9 na\u00efve e\u0301",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2603\ufe0f",
    "x  y   z\n\n\ttab",
    "\u0417\u0434\u0440\u0430\u0432\u0441\u0442\u0432\u0443\u0439",
    "\uac00\uac01",
] * 4
RULES = {
    "\t": " ",
    "\u00a0": " ",
    "\u3000": " ",
    "\ufb01": "fi",
    "e\u0301": "\u00e9",
    "\u00ad": "",
    "\u2026": "...",
}


def split(pattern):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def byte_level(lines, size, words, normalizer=None):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = words
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    )
    return t


def as_json(t):
    d = json.loads(t.to_str())
    # "left right", which older libraries and ComfyUI read, too
    d["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in d["model"]["merges"]]
    return d


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(data, f, indent=None, separators=(",", ":"))
        f.write("\n")


def added(texts, first, **flags):
    plain = {
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    }
    return {i: {"content": s} | plain | flags for i, s in enumerate(texts, first)}


def qwen(out, lines):
    d = as_json(byte_level(lines, 500, split(QWEN), normalizers.NFC()))
    vocab = d["model"]["vocab"]
    tokens = added(
        [
            "<|endoftext|>",
            "<|im_start|>",
            "<|im_end|>",
            "<|vision_start|>",
            "<|image_pad|>",
            "<|vision_end|>",
        ],
        len(vocab),
    )
    tokens |= added(["<think>", "</think>"], len(vocab) + len(tokens), special=False)
    write(out + "/vocab.json", vocab)
    write(
        out + "/tokenizer_config.json",
        {
            "add_prefix_space": False,
            "added_tokens_decoder": tokens,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "model_max_length": 32768,
            "pad_token": "<|endoftext|>",
            "tokenizer_class": "Qwen2Tokenizer",
            "unk_token": None,
        },
    )
    with open(out + "/merges.txt", "w") as f:
        f.write("#version: 0.2\n" + "".join(m + "\n" for m in d["model"]["merges"]))


def llama3(out, lines):
    begin = "<|begin_of_text|>"
    t = byte_level(lines, 500, split(LLAMA))
    t.add_special_tokens(
        [
            AddedToken(s, normalized=False)
            for s in (
                begin,
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
                "<image>",
                "<pad>",
            )
        ]
    )
    t.post_processor = processors.TemplateProcessing(
        single=begin + " $A", special_tokens=[(begin, t.token_to_id(begin))]
    )
    write(out + "/tokenizer.json", as_json(t))


def gpt2(out, lines):
    t = byte_level(lines, 450, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    t.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    write(out + "/tokenizer.json", as_json(t))


def flags(out, lines):
    t = byte_level(lines, 400, split(QWEN), normalizers.NFC())
    t.add_special_tokens(
        [
            AddedToken("<|endoftext|>", normalized=False),
            AddedToken("<mask>", lstrip=True, normalized=False),
            AddedToken("<both>", lstrip=True, rstrip=True, normalized=False),
        ]
    )
    t.add_tokens(
        [
            AddedToken("<right>", rstrip=True, normalized=False),
            AddedToken("cat", single_word=True, normalized=False),
            AddedToken("caf\u00e9", normalized=True),
            AddedToken("<ma", normalized=False),
            AddedToken("\u00e9t\u00e9", normalized=True, lstrip=True),
        ]
    )
    write(out + "/tokenizer.json", as_json(t))


def characters(lines, first, **model):
    """Pairs of characters; ids: `first`, 256 bytes, the rest."""
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.normalizer = normalizers.Replace(" ", "\u2581")
    t.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=450, special_tokens=["<unk>"], show_progress=False)
    )
    d = as_json(t)
    vocab = d["model"]["vocab"]
    rest = [s for s in sorted(vocab, key=vocab.get) if s not in first]
    names = first + ["<0x%02X>" % b for b in range(256)] + rest
    d["model"] |= {"vocab": {s: i for i, s in enumerate(names)}, "unk_token": "<unk>"} | model
    d["added_tokens"] = [{"id": i} | t for i, t in added(first, 0).items()]
    return d


def gemma4(out, lines):
    d = characters(
        lines,
        ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|image|>"],
        byte_fallback=True,
        fuse_unk=True,
    )
    d["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"String": " "},
        "behavior": "MergedWithPrevious",
        "invert": False,
    }
    d["decoder"] = {
        "type": "Sequence",
        "decoders": [BLANK, {"type": "ByteFallback"}, {"type": "Fuse"}],
    }
    write(out + "/tokenizer.json", d)


def llama2(out, lines):
    d = characters(lines, ["<unk>", "<s>", "</s>"], byte_fallback=False, fuse_unk=True)
    d["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        ],
    }
    d["decoder"] = {
        "type": "Sequence",
        "decoders": [
            BLANK,
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    write(out + "/tokenizer.json", d)


def symbols():
    """Characters that stand for bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    high = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(high)}


def tekken(out, lines):
    vocab = as_json(byte_level(lines, 500, split(LLAMA)))["model"]["vocab"]
    raw = [bytes(symbols()[c] for c in s) for s in sorted(vocab, key=vocab.get)]
    special = [
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[IMG]",
        "[SYSTEM_PROMPT]",
        "[/SYSTEM_PROMPT]",
        "<pad>",
        "<SPECIAL_9>",
    ]
    rows = [
        {"rank": i, "token_bytes": base64.b64encode(b).decode(), "token_str": None}
        for i, b in enumerate(raw)
    ]
    write(
        out + "/tekken.json",
        {
            # the last of them are beyond the vocabulary
            "config": {
                "pattern": "not looked at",
                "num_vocab_tokens": len(rows),
                "default_vocab_size": len(rows) + len(special) - 20,
                "default_num_special_tokens": len(special),
                "version": "v7",
            },
            "vocab": rows,
            "special_tokens": [
                {"rank": i, "token_str": s, "is_control": True} for i, s in enumerate(special)
            ],
        },
    )


def sentencepieces(out, lines, **how):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type="bpe",
        num_threads=1,
        minloglevel=2,
        character_coverage=0.98,
        **how
    )
    os.makedirs(out, exist_ok=True)
    with open(out + "/tokenizer.model", "wb") as f:
        f.write(model.getvalue())


def hexadecimal(text):
    return " ".join("%X" % ord(c) for c in text)


def main():
    out, files = sys.argv[1], sys.argv[2:]
    lines = MORE + [line.rstrip("\n") for name in files for line in open(name)]
    for make in (qwen, llama3, gpt2, flags, gemma4, llama2, tekken):
        make("%s/%s" % (out, make.__name__), lines)
    sentencepieces(
        out + "/gemma",
        lines,
        vocab_size=620,
        byte_fallback=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        pad_id=0,
        eos_id=1,
        bos_id=2,
        unk_id=3,
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        user_defined_symbols=[
            "<start_of_turn>",
            "<end_of_turn>",
            "\n",
            "\n\n",
            "\u2581\u2581",
            "\u2581\u2581\u2581",
            "[x]",
        ],
    )
    sentencepieces(
        out + "/spm",
        lines,
        vocab_size=560,
        byte_fallback=True,
        add_dummy_prefix=True,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
    )
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write(
            "".join("%s\t%s\n" % (hexadecimal(a), hexadecimal(b)) for a, b in RULES.items())
        )
        rules.flush()
        sentencepieces(
            out + "/rules",
            lines,
            vocab_size=300,
            byte_fallback=False,
            normalization_rule_tsv=rules.name,
            user_defined_symbols=["<u>"],
        )


if __name__ == "__main__":
    main()
