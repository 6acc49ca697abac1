#!/usr/bin/env python3
"""The outlines of a TrueType font as a table for src/image/font.c.

usage: font_table.py FONT.ttf OUT.def

OUT.def is src/image/font.def, made from Aileron Regular as Pillow has it (public domain, CC0).
One line a character: code point, advance, and its contours in units of the font: "x y " is a point
on the curve, "x y*" a control point of a quadratic curve, "z" the end of a contour.
"""
import struct
import sys


class Font:
    def __init__(self, data):
        self.data = data
        count = struct.unpack(">H", data[4:6])[0]
        tables = (struct.unpack(">4sIII", data[12 + 16 * i:28 + 16 * i]) for i in range(count))
        self.at = {tag.decode(): offset for tag, _, offset, _ in tables}
        self.units, self.long = self.u16("head", 18), self.u16("head", 50)
        self.ascent, self.descent = self.i16("hhea", 4), self.i16("hhea", 6)
        self.metrics = self.u16("hhea", 34)

    def u16(self, table, offset):
        at = self.at[table] + offset
        return struct.unpack(">H", self.data[at:at + 2])[0]

    def i16(self, table, offset):
        at = self.at[table] + offset
        return struct.unpack(">h", self.data[at:at + 2])[0]

    def advance(self, glyph):
        return self.u16("hmtx", 4 * min(glyph, self.metrics - 1))

    def where(self, glyph):
        if self.long:
            at = self.at["loca"] + 4 * glyph
            return struct.unpack(">II", self.data[at:at + 8])
        return 2 * self.u16("loca", 2 * glyph), 2 * self.u16("loca", 2 * glyph + 2)

    def characters(self):
        """Code point -> glyph, of a format 4 table."""
        found = {}
        for i in range(self.u16("cmap", 2)):
            at = struct.unpack(">I", self.data[self.at["cmap"] + 8 + 8 * i:][:4])[0]
            if self.u16("cmap", at) != 4:
                continue
            n = self.u16("cmap", at + 6) // 2
            for k in range(n):
                end = self.u16("cmap", at + 14 + 2 * k)
                start = self.u16("cmap", at + 16 + 2 * (n + k))
                delta = self.u16("cmap", at + 16 + 2 * (2 * n + k))
                place = at + 16 + 2 * (3 * n + k)
                offset = self.u16("cmap", place)
                for c in range(start, min(end, 0xfffe) + 1):
                    glyph = self.u16("cmap", place + offset + 2 * (c - start)) if offset else c
                    if not offset or glyph:
                        glyph = (glyph + delta) & 0xffff
                    if glyph:
                        found[c] = glyph
        return found

    def contours(self, glyph):
        start, end = self.where(glyph)
        if start == end:
            return []
        p = self.at["glyf"] + start
        n = struct.unpack(">h", self.data[p:p + 2])[0]
        return self.simple(p + 10, n) if n >= 0 else self.composite(p + 10)

    def composite(self, p):
        out = []
        while True:
            flags, glyph = struct.unpack(">HH", self.data[p:p + 4])
            assert flags & 2 and not flags & 0xc8, "only shifted parts"
            kind = ">hh" if flags & 1 else ">bb"
            size = struct.calcsize(kind)
            dx, dy = struct.unpack(kind, self.data[p + 4:p + 4 + size])
            out += [[(x + dx, y + dy, on) for x, y, on in c] for c in self.contours(glyph)]
            p += 4 + size
            if not flags & 0x20:
                return out

    def simple(self, p, n):
        ends = struct.unpack(">%dH" % n, self.data[p:p + 2 * n])
        p += 2 * n
        p += 2 + struct.unpack(">H", self.data[p:p + 2])[0]
        count, flags = ends[-1] + 1, []
        while len(flags) < count:
            flag = self.data[p]
            p += 1
            flags.append(flag)
            if flag & 8:
                flags += [flag] * self.data[p]
                p += 1
        axes = []
        for short, same in ((2, 16), (4, 32)):
            v, values = 0, []
            for flag in flags:
                if flag & short:
                    v += self.data[p] if flag & same else -self.data[p]
                    p += 1
                elif not flag & same:
                    v += struct.unpack(">h", self.data[p:p + 2])[0]
                    p += 2
                values.append(v)
            axes.append(values)
        points = [(x, y, bool(f & 1)) for x, y, f in zip(*axes, flags)]
        return [points[a:b + 1] for a, b in zip([0] + [e + 1 for e in ends], ends)]


def line(code, font, glyph):
    text = "".join("".join("%d %d%s" % (x, y, " " if on else "*") for x, y, on in c) + "z"
                   for c in font.contours(glyph))
    pieces = [text[i:i + 88] for i in range(0, len(text), 88)] or [""]
    body = "\n      ".join('"%s"' % p for p in pieces)
    return "GLYPH(%#x, %d,\n      %s)" % (code, font.advance(glyph), body)


def main(path, out):
    with open(path, "rb") as f:
        font = Font(f.read())
    lines = ["/* font.def: outlines of Aileron Regular, in the public domain; made by",
             " * tools/font_table.py. FONT(units, ascent, descent), then in order",
             " * GLYPH(code point, advance, contours); 0: all that are not there. */",
             "FONT(%d, %d, %d)" % (font.units, font.ascent, -font.descent)]
    lines.append(line(0, font, 0))
    lines += [line(c, font, g) for c, g in sorted(font.characters().items())]
    with open(out, "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:3])
