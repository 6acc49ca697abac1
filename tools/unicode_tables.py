#!/usr/bin/env python3
"""Writes src/text/unicode_tables.h from what Hugging Face's tokenizers library does with every code
point, and from the unicodedata of the Python that runs it.

    tools/unicode_tables.py > src/text/unicode_tables.h      run by hand; the result is committed
    tools/unicode_tables.py --digest                         what tests/unit/text/test_unicode.c
                                                             expects

CLIP prompts go through that library in ComfyUI. Its regular expressions, lower case and normal form
come from three packages with three Unicode versions, so it is asked for each of them. Digits and
graphemes, which it is not asked for, come from unicodedata. Needs `pip install tokenizers`.
"""
import sys
import unicodedata as u

import tokenizers
from tokenizers import Regex, normalizers

LAST = 0x10FFFF
POINTS = [c for c in range(LAST + 1) if not 0xD800 <= c <= 0xDFFF]
OTHER, SPACE, LETTER, NUMBER = range(4)
nfc = normalizers.NFC().normalize_str
nfd = normalizers.NFD().normalize_str
lower = normalizers.Lowercase().normalize_str
without_class = [(k, normalizers.Replace(Regex(r), "").normalize_str)
                 for k, r in ((SPACE, r"\s"), (LETTER, r"\p{L}"), (NUMBER, r"\p{N}"))]


def klass(c):
    return next((k for k, without in without_class if not without(chr(c))), OTHER)


def swaps(a, b):
    return a != b and nfd(a + b) == b + a


# A mark of every combining class that the library knows; U+0334 is of class 1, the lowest.
MARK = {1: "\u0334"}
for mark in (chr(c) for c in POINTS if u.combining(chr(c))):
    if swaps(mark, MARK[1]):
        MARK.setdefault(u.combining(mark), mark)


def ccc(c):
    """Combining class, told by the marks that c changes places with; 0 for what decomposes."""
    ch = chr(c)
    if nfd(ch) != ch or not (swaps(ch, MARK[1]) or swaps(MARK[240], ch)):
        return 0
    return next(k for k in sorted(MARK) if not swaps(ch, MARK[k]) and not swaps(MARK[k], ch))


# Spacing marks that do not join the character before them, and other characters that do: tables of
# UAX #29 for what unicodedata does not say.
ALONE = {0x102B, 0x102C, 0x1038, *range(0x1062, 0x1065), *range(0x1067, 0x106E), 0x1083,
         *range(0x1087, 0x108D), 0x108F, *range(0x109A, 0x109D), 0x1A61, 0x1A63, 0x1A64, 0xAA7B,
         0xAA7D, 0x11720, 0x11721}
JOINS = {0x0E33, 0x0EB3, 0x200C, 0x200D, 0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400),
         *range(0xE0020, 0xE0080)}


def joins(c):
    """Is c part of the grapheme in front of it (Extend, SpacingMark or ZWJ)?"""
    return int(c in JOINS or (u.category(chr(c))[0] == "M" and c not in ALONE))


def runs(value, none):
    """[first, count, value] of neighbours with one value other than `none`."""
    out = []
    for c in POINTS:
        v = value(c)
        if v == none:
            continue
        if out and out[-1][0] + out[-1][1] == c and out[-1][2] == v:
            out[-1][1] += 1
        else:
            out.append([c, 1, v])
    return out


def lower_runs():
    """first, count, step, delta of simple lower case; U+0130 alone becomes two and is left to
    code."""
    many = [c for c in POINTS if len(lower(chr(c))) != 1]
    assert many == [0x130], many
    out = []
    for c in POINTS:
        if c == 0x130 or lower(chr(c)) == chr(c):
            continue
        d = ord(lower(chr(c))) - c
        if out:
            first, count, step, delta = out[-1]
            gap = c - (first + (count - 1) * step)
            if d == delta and (gap == step or (count == 1 and gap <= 2)):
                out[-1] = [first, count + 1, gap, delta]
                continue
        out.append([c, 1, 1, d])
    return out


def decompositions():
    out = []
    for c in POINTS:
        d = u.decomposition(chr(c))
        if nfd(chr(c)) == chr(c) or 0xAC00 <= c <= 0xD7A3:
            continue
        assert nfd(chr(c)) == u.normalize("NFD", chr(c)), hex(c)
        parts = [int(x, 16) for x in d.split()]
        assert len(parts) <= 2
        composes = len(parts) == 2 and nfc(chr(parts[0]) + chr(parts[1])) == chr(c)
        out.append((c, parts[0], parts[1] if len(parts) == 2 else 0, composes))
    return out


def digit_zeros():
    zeros = [c for c in POINTS if u.category(chr(c)) == "Nd" and u.decimal(chr(c)) == 0]
    assert all(u.decimal(chr(z + i)) == i for z in zeros for i in range(10))
    assert sum(u.category(chr(c)) == "Nd" for c in POINTS) == 10 * len(zeros)
    return zeros


def fnv(values):
    h = 0xCBF29CE484222325
    for v in values:
        for b in v.to_bytes(4, "little"):
            h = ((h ^ b) * 0x100000001B3) & (2**64 - 1)
    return h


def digests():
    def each(f):
        for c in POINTS:
            yield from map(ord, f(chr(c)))
    print("classes  0x%016x" % fnv(klass(c) for c in POINTS))
    print("lower    0x%016x" % fnv(each(lower)))
    print("nfc      0x%016x" % fnv(each(nfc)))
    # between letters that compose, and behind marks of a high and of a low class: orders and blocks
    print("nfc_mix  0x%016x" % fnv(
        each(lambda s: nfc("a\u0315" + s + "\u0316\u0301e" + s + "\u0323"))))
    print("joins    0x%016x" % fnv(joins(c) for c in POINTS))


def emit(name, kind, rows, about):
    """Rows of numbers as structs, single numbers as they are; decimal, because that is shortest."""
    print("/* %s */" % about)
    print("static const %s %s[] = {" % (kind, name))
    line = "    "
    for r in rows:
        item = "%d," % r if isinstance(r, int) else "{%s}," % ",".join(map(str, r))
        if len(line) + len(item) > 100:
            print(line)
            line = "    "
        line += item
    print(line)
    print("};\n")


def tables():
    print("""/* tokenizers %s and Unicode %s, written by tools/unicode_tables.py: do not edit.
 * For unicode.c alone. */
/* clang-format off */
#pragma once

#include <stdint.h>

struct uc_run { /* value of `count` code points */
    uint32_t first;
    uint16_t count;
    uint8_t value;
};
struct uc_lower { /* first, first + step, ... (count of them): add delta */
    uint32_t first;
    uint16_t count;
    uint8_t step;
    int32_t delta;
};
struct uc_two { /* cp decomposes to a and b */
    uint32_t cp, a, b;
};
""" % (tokenizers.__version__, u.unidata_version))
    emit("uc_classes", "struct uc_run", runs(klass, OTHER),
         "enum uc_class, where it is not UC_OTHER")
    emit("uc_cccs", "struct uc_run", runs(ccc, 0), "canonical combining classes other than 0")
    emit("uc_lowers", "struct uc_lower", lower_runs(), "lower case, without U+0130")
    ds = decompositions()
    one, two = {d[0]: d[1] for d in ds if not d[2]}, [d for d in ds if d[2]]
    emit("uc_ones_runs", "struct uc_run", runs(lambda c: int(c in one), 0),
         "code points that decompose to one; Hangul is arithmetic")
    emit("uc_ones", "uint32_t", list(one.values()), "what they decompose to, one after the other")
    emit("uc_twos", "struct uc_two", [d[:3] for d in two],
         "code points that decompose to two, in order")
    emit("uc_pairs", "uint16_t", sorted((i for i, d in enumerate(two) if d[3]),
                                        key=lambda i: two[i][1:3]),
         "of uc_twos those that a and b compose to again, by a and then b")
    emit("uc_zeros", "uint32_t", digit_zeros(), "zeros of the decimal digits; 1 to 9 follow each")
    emit("uc_joins_runs", "struct uc_run", runs(joins, 0),
         "characters that belong to the grapheme in front of them")


if __name__ == "__main__":
    digests() if "--digest" in sys.argv else tables()
