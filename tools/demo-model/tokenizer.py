"""A small byte-pair tokenizer in CLIP's way: lower case, words apart, "</w>" at a word's end.

Every byte has a symbol, with and without "</w>", so that any text has tokens; merges are learnt
from captions until each of their words is one token.
"""
from __future__ import annotations

import json
import re
from collections import Counter

START, END = "<|startoftext|>", "<|endoftext|>"
LENGTH = 77
# What CLIP's pattern does to plain English text: runs of letters, single digits, runs of the rest.
_WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|[^\s\w]+|_+", re.IGNORECASE)


def words(text: str) -> list[str]:
    return _WORD.findall(" ".join(text.lower().split()))


def _byte_symbols() -> list[str]:
    """A printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(spare)) for b in range(256)]


class Tokenizer:
    def __init__(self, vocab: dict[str, int], merges: list[tuple[str, str]]):
        self.vocab, self.merges = vocab, merges
        self._rank = {pair: i for i, pair in enumerate(merges)}
        self._bytes = _byte_symbols()
        self._known: dict[str, list[int]] = {}

    @classmethod
    def train(cls, texts: list[str], rarest: int = 8) -> "Tokenizer":
        """Merges until no pair is seen `rarest` times."""
        symbols = _byte_symbols()
        parts = {}
        count = Counter(w for t in texts for w in words(t))
        for w in count:
            s = [symbols[b] for b in w.encode()]
            s[-1] += "</w>"
            parts[w] = s
        merges: list[tuple[str, str]] = []
        while True:
            pairs: Counter = Counter()
            for w, s in parts.items():
                for pair in zip(s, s[1:]):
                    pairs[pair] += count[w]
            if not pairs:
                break
            best = min(pairs, key=lambda p: (-pairs[p], p))
            if pairs[best] < rarest:
                break
            merges.append(best)
            for s in parts.values():
                i = 0
                while i + 1 < len(s):
                    if (s[i], s[i + 1]) == best:
                        s[i:i + 2] = [s[i] + s[i + 1]]
                    i += 1
        names = sorted(symbols) + [s + "</w>" for s in sorted(symbols)]
        names += [a + b for a, b in merges] + [START, END]
        return cls({n: i for i, n in enumerate(names)}, merges)

    def _encode_word(self, word: str) -> list[int]:
        if word not in self._known:
            s = [self._bytes[b] for b in word.encode()]
            s[-1] += "</w>"
            while len(s) > 1:
                rank, best = min((self._rank.get(p, 1 << 30), i)
                                 for i, p in enumerate(zip(s, s[1:])))
                if rank == 1 << 30:
                    break
                pair, out, i = self.merges[rank], [], 0
                while i < len(s):
                    if i + 1 < len(s) and (s[i], s[i + 1]) == pair:
                        out.append(s[i] + s[i + 1])
                        i += 2
                    else:
                        out.append(s[i])
                        i += 1
                s = out
            self._known[word] = [self.vocab[x] for x in s]
        return self._known[word]

    def encode(self, text: str) -> list[int]:
        """LENGTH ids: start, the text's, end, and the end token again to the length's end."""
        ids = [i for w in words(text) for i in self._encode_word(w)][:LENGTH - 2]
        end = self.vocab[END]
        return [self.vocab[START], *ids] + [end] * (LENGTH - 1 - len(ids))

    def to_json(self) -> str:
        special = [{"id": self.vocab[t], "content": t, "single_word": False, "lstrip": False,
                    "rstrip": False, "normalized": True, "special": True} for t in (START, END)]
        return json.dumps({"version": "1.0", "added_tokens": special, "model": {
            "type": "BPE", "continuing_subword_prefix": "", "end_of_word_suffix": "</w>",
            "unk_token": END, "vocab": self.vocab,
            "merges": [f"{a} {b}" for a, b in self.merges]}}, ensure_ascii=True,
            separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        model = json.loads(text)["model"]
        return cls(model["vocab"], [tuple(m.split(" ")) for m in model["merges"]])
