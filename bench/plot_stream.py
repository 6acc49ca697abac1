#!/usr/bin/env python3
"""Draws what bench/torch_flux.py measured: ms a step over the share of the model in RAM, as one SVG
file.

    python3 bench/plot_stream.py results.json docs/stream.svg

Needs nothing beyond Python. The step axis is logarithmic: what moves blocks one by one is far away
from the rest.
"""
import json
import math
import sys

W, H, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 64, 190, 34, 48
COLOURS = {"bf16": "#0b6e4f", "fp8": "#3a86c8", "q8_0": "#8a5cd1", "q4_k": "#c2571a"}
TICKS = (100, 150, 200, 300, 430, 600, 1000, 2000, 4000)


def lines(result):
    """(name, colour, dashes, [(percent, ms)]) of everything there is to draw."""
    out = []
    for dtype, run in result["berth"].items():
        rows = run["rows"]
        out.append(
            (
                f"Berth, {dtype}",
                COLOURS.get(dtype, "#333"),
                "",
                [(r["offload"], r["ms"]) for r in rows],
            )
        )
        if dtype == "bf16":
            compute = rows[0]["ms"]
            out.append(
                (
                    "link's limit, bf16",
                    "#888",
                    "3 3",
                    [(r["offload"], max(compute, r["limit_ms"])) for r in rows],
                )
            )
    theirs = result["pytorch"]
    pinned = [(r["offload"], r.get("pinned", r.get("resident"))) for r in theirs]
    pageable = [(r["offload"], r.get("pageable", r.get("resident"))) for r in theirs]
    out.append(("PyTorch, pinned", "#b23a48", "7 3", [p for p in pinned if p[1]]))
    out.append(("PyTorch, .to()", "#d98c00", "7 3", [p for p in pageable if p[1]]))
    return [x for x in out if len(x[3]) > 1]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as f:
        result = json.load(f)
    drawn = lines(result)
    values = [ms for _, _, _, points in drawn for _, ms in points]
    low, high = math.log(min(values) / 1.15), math.log(max(values) * 1.15)
    px = lambda percent: LEFT + percent / 100 * (W - LEFT - RIGHT)
    py = lambda ms: TOP + (high - math.log(ms)) / (high - low) * (H - TOP - BOTTOM)
    s = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" font-family="sans-serif" '
        f'font-size="12">',
        f'<rect width="{W}" height="{H}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="14" fill="#222">FLUX.1-dev, 1024x1024: ms a step, by '
        f'how much of it lives in RAM ({result["card"]})</text>',
    ]
    for t in TICKS:
        if low < math.log(t) < high:
            s.append(
                f'<path d="M{LEFT} {py(t):.1f}H{W - RIGHT}" stroke="#ddd"/>'
                f'<text x="{LEFT - 6}" y="{py(t) + 4:.1f}" text-anchor="end" fill="#555">{t}</text>'
            )
    for percent in (0, 20, 50, 100):
        s.append(
            f'<path d="M{px(percent):.1f} {TOP}V{H - BOTTOM}" stroke="#eee"/>'
            f'<text x="{px(percent):.1f}" y="{H - BOTTOM + 18}" text-anchor="middle" '
            f'fill="#555">{percent} %</text>'
        )
    ends = []
    for name, colour, dashes, points in drawn:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        s.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dashes}"/>'
        )
        s += [
            f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{colour}"/>'
            for x, y in points
            if not dashes
        ]
        ends.append([py(points[-1][1]), name, colour, points[-1]])
    ends.sort()
    for i, e in enumerate(ends):  # labels keep a line's distance
        e[0] = max(e[0], ends[i - 1][0] + 15) if i else e[0]
        s.append(
            f'<text x="{px(e[3][0]) + 8:.1f}" y="{e[0] + 4:.1f}" fill="{e[2]}">{e[1]}: '
            f'{e[3][1]:.0f}</text>'
        )
    s.append(
        f'<text x="{LEFT}" y="{H - 10}" fill="#777">{result["date"]}, '
        f'bench/torch_flux.py</text></svg>'
    )
    with open(sys.argv[2], "w", encoding="utf-8") as f:
        f.write("\n".join(s) + "\n")


if __name__ == "__main__":
    main()
