#!/usr/bin/env python3
"""Writes src/node/pycase_tables.h from what str.upper(), lower() and title() of the Python that
runs it do with every code point.

    tools/pycase_tables.py > src/node/pycase_tables.h      run by hand; the result is committed
    tools/pycase_tables.py --digest                        what tests/unit/node/test_py.c expects
"""
import sys
import unicodedata

POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
MAPS = {"upper": str.upper, "lower": str.lower, "title": str.title}


def digest():
    """FNV-1a over the UTF-8 of upper, lower and title case of every point."""
    h = 0xCBF29CE484222325
    for c in POINTS:
        for f in MAPS.values():
            for b in f(chr(c)).encode():
                h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def cased(c):
    return (chr(c) + "a").title()[-1] == "a"


def ignorable(c):
    after_letter, alone = ("A" + chr(c) + "\u03a3").lower(), (chr(c) + "\u03a3").lower()
    return after_letter[-1] == "\u03c2" != alone[-1]


def runs(pairs):
    """[first, count, step, delta] of [(point, delta)], steps 1 and 2."""
    out = []
    for c, d in pairs:
        if out and out[-1][3] == d:
            first, count, step, _ = out[-1]
            gap = c - (first + (count - 1) * step)
            if gap in (1, 2) and (count == 1 or gap == step):
                out[-1][1:3] = count + 1, gap
                continue
        out.append([c, 1, 1, d])
    return out


def spans(points):
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def table(rows):
    line, text = "   ", []
    for row in rows:
        item = " {%s}," % ",".join(str(x) for x in row)
        if len(line) + len(item) > 100:
            text.append(line)
            line = "   "
        line += item
    return "\n".join(text + [line])


def main():
    if sys.argv[1:] == ["--digest"]:
        print("0x%016x" % digest())
        return
    print("/* Unicode %s, written by tools/pycase_tables.py: do not edit. For pycase.c alone. */"
          % unicodedata.unidata_version)
    print("""/* clang-format off */
#pragma once

#include <stdint.h>

struct case_run { /* first, first + step, ... (count of them): add delta */
    uint32_t first;
    uint16_t count;
    uint8_t step;
    int32_t delta;
};
struct case_many { /* one point becomes up to three; 0: no more */
    uint32_t from, to[3];
};
struct case_span {
    uint32_t first, last;
};
""")
    for name, f in MAPS.items():
        one = [(c, ord(f(chr(c))) - c) for c in POINTS
               if len(f(chr(c))) == 1 and f(chr(c)) != chr(c)]
        many = [(c, [ord(x) for x in f(chr(c))] + [0, 0, 0]) for c in POINTS if len(f(chr(c))) > 1]
        print("static const struct case_run case_%s[] = {\n%s\n};" % (name, table(runs(one))))
        print("static const struct case_many case_%s_many[] = {\n%s\n};\n"
              % (name, table([(c, "{%s}" % ",".join(map(str, x[:3]))) for c, x in many])))
    print("static const struct case_span case_cased[] = {\n%s\n};"
          % table(spans(c for c in POINTS if cased(c))))
    print("static const struct case_span case_ignorable[] = {\n%s\n};"
          % table(spans(c for c in POINTS if ignorable(c))))


main()
