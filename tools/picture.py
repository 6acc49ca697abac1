#!/usr/bin/env python3
"""Runs a command on a pseudo terminal and draws its screen as an SVG (for README.md).

usage: tools/picture.py OUT.svg COLUMNS COMMAND [ARG...]
Knows what our own output uses: SGR colours (16, 256 and 24-bit), bold, dim; the rest is dropped."""
import fcntl, os, pty, re, struct, sys, termios
from html import escape

BASIC = ["#1f2430", "#f07178", "#a6cc70", "#ffcc66", "#5ccfe6", "#d4bfff", "#95e6cb", "#c7c7c7",
         "#707a8c", "#f28779", "#bae67e", "#ffd580", "#73d0ff", "#dfbfff", "#a8f0dc", "#ffffff"]


def colour256(n):
    if n < 16:
        return BASIC[n]
    if n >= 232:
        return "#%02x%02x%02x" % ((8 + (n - 232) * 10,) * 3)
    n -= 16
    return "#%02x%02x%02x" % tuple(
        0 if v == 0 else 55 + 40 * v for v in (n // 36, n // 6 % 6, n % 6)
    )


def run(columns, argv):
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns))
        os.execvp(argv[0], argv)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    out = b""
    while True:
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        out += got
    os.waitpid(pid, 0)
    return out.decode("utf-8", "replace").replace("\r\n", "\n")


def sgr(style, codes):
    codes = [int(c or 0) for c in codes.split(";")]
    while codes:
        c = codes.pop(0)
        if c == 0:
            style = {}
        elif c in (1, 2):
            style = {**style, {1: "bold", 2: "dim"}[c]: True}
        elif c in (38, 48) and codes:
            where = "fg" if c == 38 else "bg"
            if codes.pop(0) == 5:
                style = {**style, where: colour256(codes.pop(0))}
            else:
                style = {**style, where: "#%02x%02x%02x" % tuple(codes[:3])}
                codes = codes[3:]
        elif 30 <= c <= 37 or 90 <= c <= 97:
            style = {**style, "fg": BASIC[c - 30 if c < 90 else c - 82]}
        elif 40 <= c <= 47 or 100 <= c <= 107:
            style = {**style, "bg": BASIC[c - 40 if c < 100 else c - 92]}
        elif c in (39, 49):
            style = {k: v for k, v in style.items() if k != ("fg" if c == 39 else "bg")}
        elif c == 22:
            style = {k: v for k, v in style.items() if k not in ("bold", "dim")}
    return style


def main():
    out, columns, argv = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    w, h, pad = 8.4, 18, 16
    lines = ("$ " + " ".join(argv) + "\n" + run(columns, argv)).rstrip("\n").split("\n")
    parts = []
    for y, line in enumerate(lines):
        x, style = 0, {}
        for text, codes in re.findall(r"([^\x1b]+)|\x1b\[([0-9;]*)m", line.replace("\x1b[K", "")):
            if not text:
                style = sgr(style, codes)
                continue
            left, top = pad + x * w, pad + y * h
            if "bg" in style:
                parts.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{len(text) * w:.1f}" height="{h}" '
                    f'fill="{style["bg"]}"/>'
                )
            if text.strip():
                extra = ' font-weight="bold"' if style.get("bold") else ""
                extra += ' opacity="0.6"' if style.get("dim") else ""
                parts.append(
                    f'<text x="{left:.1f}" y="{top + 13}" textLength="{len(text) * w:.1f}" '
                    f'fill="{style.get("fg", BASIC[7])}"{extra}>{escape(text)}</text>'
                )
            x += len(text)
    width, height = columns * w + 2 * pad, len(lines) * h + 2 * pad
    with open(out, "w", encoding="utf-8") as f:
        f.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
            f'font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="14" '
            f'xml:space="preserve">\n'
            f'<rect width="100%" height="100%" rx="8" fill="{BASIC[0]}"/>\n'
            + "\n".join(parts)
            + "\n</svg>\n"
        )


main()
