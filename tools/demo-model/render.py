"""Draws scenes, many at a time, on whatever device torch has.

A picture is a background and up to LAYERS shapes over it, back to front. Every outline is a
texture of signed distances (below 0 inside), made once; drawing a shape is looking that texture
up, turned and scaled, and turning distance into coverage: edges come out anti-aliased at any size.
The numbers of a scene (layers()) are made on the CPU, pixels (draw()) on the device.
"""
from __future__ import annotations

import math

import torch

from grammar import (COLOURS, GROUND_COLOURS, SKY_COLOURS, Scene, Thing, background_rgb)

SIDE = 256
LAYERS = 32
REACH = 1.6   # a texture spans -REACH..REACH; an outline has a radius of about 1
TEXTURE = 192
# Of a layer: outline, x, y, half width, half height, turn, red, green, blue, style.
COLUMNS = 10
SHADOW, RIM, GLOSS = 1, 2, 4
SOLID = SHADOW | RIM | GLOSS


# ---- outlines ----

def _polygon(grid: torch.Tensor, points: list[tuple[float, float]]) -> torch.Tensor:
    """Signed distance of grid [S,S,2] to a closed polygon."""
    p = torch.tensor(points)
    best = torch.full(grid.shape[:2], 1e9)
    inside = torch.zeros(grid.shape[:2], dtype=torch.bool)
    x, y = grid[..., 0], grid[..., 1]
    for a, b in zip(p, p.roll(-1, 0)):
        edge, to = b - a, grid - a
        along = ((to * edge).sum(-1) / (edge * edge).sum()).clamp(0, 1)
        best = torch.minimum(best, (to - along[..., None] * edge).pow(2).sum(-1))
        crosses = (a[1] > y) != (b[1] > y)
        inside ^= crosses & (x < (b[0] - a[0]) * (y - a[1]) / (b[1] - a[1] + 1e-12) + a[0])
    return best.sqrt() * torch.where(inside, -1.0, 1.0)


def _round(n: int, radius: float = 1.0, turn: float = 0.0) -> list[tuple[float, float]]:
    """Corners of a regular polygon, the first one up."""
    return [(radius * math.sin(turn + 2 * math.pi * i / n),
             -radius * math.cos(turn + 2 * math.pi * i / n)) for i in range(n)]


def _star(points: int, inner: float) -> list[tuple[float, float]]:
    out = []
    for i in range(2 * points):
        r, a = (1.05 if i % 2 == 0 else inner), math.pi * i / points
        out.append((r * math.sin(a), -r * math.cos(a)))
    return out


def _heart() -> list[tuple[float, float]]:
    out = []
    for i in range(120):
        t = 2 * math.pi * i / 120
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        out.append((math.sin(t) ** 3, -(y + 2.5) / 15.5))
    return out


def _crescent() -> list[tuple[float, float]]:
    """A disc without the part another covers; as a polygon, because distances to the difference
    of two discs are wrong behind the tips."""
    (cx, cy), r = (0.48, -0.18), 0.82
    outer = [(math.cos(a), math.sin(a)) for a in (2 * math.pi * i / 240 for i in range(240))]
    keep = [p for p in outer if math.hypot(p[0] - cx, p[1] - cy) > r]
    gap = next(i for i in range(240) if outer[i] in keep and outer[i - 1] not in keep)
    keep = [outer[(gap + i) % 240] for i in range(240) if outer[(gap + i) % 240] in keep]
    a = math.atan2(keep[-1][1] - cy, keep[-1][0] - cx)
    b = math.atan2(keep[0][1] - cy, keep[0][0] - cx)
    while b > a:
        b -= 2 * math.pi
    turn = (b - a) if b - a > -2 * math.pi + 0.01 else 0.0
    middle = math.atan2(-cy, -cx)  # the inner arc passes the disc's centre
    if math.cos((a + b) / 2 - middle) < 0:
        turn += 2 * math.pi
    inner = [(cx + r * math.cos(a + turn * i / 80), cy + r * math.sin(a + turn * i / 80))
             for i in range(1, 80)]
    return keep + inner


def _outlines(grid: torch.Tensor) -> dict[str, torch.Tensor]:
    x, y = grid[..., 0], grid[..., 1]

    def disc(cx: float, cy: float, r: float) -> torch.Tensor:
        return torch.hypot(x - cx, y - cy) - r

    def union(*parts: torch.Tensor) -> torch.Tensor:
        return torch.stack(parts).amin(0)

    arm = 0.34
    cross = [(-arm, -1), (arm, -1), (arm, -arm), (1, -arm), (1, arm), (arm, arm), (arm, 1),
             (-arm, 1), (-arm, arm), (-1, arm), (-1, -arm), (-arm, -arm)]
    return {
        "circle": disc(0, 0, 1),
        "square": _polygon(grid, [(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)])
        - 0.04,
        "triangle": _polygon(grid, [(0, -1.0), (1.08, 0.86), (-1.08, 0.86)]) - 0.03,
        "star": _polygon(grid, _star(5, 0.44)) - 0.02,
        "ring": (torch.hypot(x, y) - 0.73).abs() - 0.27,
        "diamond": _polygon(grid, [(0, -1.1), (0.78, 0), (0, 1.1), (-0.78, 0)]) - 0.02,
        "heart": _polygon(grid, _heart()),
        "cross": _polygon(grid, cross) - 0.03,
        "moon": _polygon(grid, _crescent()),
        "hexagon": _polygon(grid, _round(6, 1.0, math.pi / 6)) - 0.02,
        "plate": _polygon(grid, [(-1, -1), (1, -1), (1, 1), (-1, 1)]),
        "roof": _polygon(grid, [(0, -1), (1, 1), (-1, 1)]),
        "hull": _polygon(grid, [(-1, -0.5), (1, -0.5), (0.6, 0.5), (-0.6, 0.5)]) - 0.03,
        "sail": _polygon(grid, [(-0.9, 1), (-0.9, -1), (0.9, 1)]) - 0.02,
        "cloud": union(disc(-0.5, 0.15, 0.42), disc(0.05, -0.1, 0.55), disc(0.58, 0.18, 0.38),
                       disc(0.0, 0.3, 0.36)),
        "petals": union(*(disc(0.58 * math.sin(a), -0.58 * math.cos(a), 0.40)
                          for a in (2 * math.pi * i / 6 for i in range(6)))),
        "rays": _polygon(grid, _star(12, 0.78)),
        "crown": union(disc(-0.42, 0.25, 0.55), disc(0.42, 0.25, 0.55), disc(0, -0.3, 0.62)),
    }


OUTLINES = ["none", "circle", "square", "triangle", "star", "ring", "diamond", "heart", "cross",
            "moon", "hexagon", "plate", "roof", "hull", "sail", "cloud", "petals", "rays",
            "crown"]
_INDEX = {name: i for i, name in enumerate(OUTLINES)}


def atlas(device: torch.device | str) -> torch.Tensor:
    """[outlines * TEXTURE * TEXTURE] of distances, in radii."""
    at = (torch.arange(TEXTURE) + 0.5) / TEXTURE * 2 * REACH - REACH
    y, x = torch.meshgrid(at, at, indexing="ij")
    made = _outlines(torch.stack([x, y], -1))
    none = torch.full((TEXTURE, TEXTURE), 9.0)
    return torch.stack([made.get(n, none) for n in OUTLINES]).float().flatten().to(device)


# ---- scenes to numbers ----

def _shade(colour: tuple, by: float) -> tuple:
    to = 255 if by > 0 else 0
    return tuple(c + (to - c) * abs(by) for c in colour)


def _layer(outline: str, x: float, y: float, w: float, h: float, colour: tuple, style: int = SOLID,
           turn: float = 0.0) -> list[float]:
    return [_INDEX[outline], x, y, w, h, turn, *(c / 255 for c in colour), style]


def _figure(t: Thing) -> list[list[float]]:
    """The layers of one thing, back to front."""
    c, x, y, r = COLOURS[t.paint], t.x, t.y, t.r
    flat = RIM
    if t.kind == "house":
        roof = (150, 60, 50) if t.paint not in ("red", "brown") else (84, 70, 74)
        return [_layer("plate", x, y + 0.36 * r, 0.74 * r, 0.64 * r, c, SHADOW | RIM),
                _layer("roof", x, y - 0.60 * r, 0.98 * r, 0.42 * r, roof, SHADOW | RIM),
                _layer("plate", x + 0.26 * r, y + 0.62 * r, 0.18 * r, 0.38 * r, (96, 62, 40),
                       flat),
                _layer("plate", x - 0.30 * r, y + 0.30 * r, 0.20 * r, 0.20 * r, (250, 232, 150),
                       flat)]
    if t.kind == "tree":
        return [_layer("plate", x, y + 0.68 * r, 0.15 * r, 0.34 * r, (112, 74, 44),
                       SHADOW | RIM),
                _layer("crown", x, y - 0.28 * r, 0.82 * r, 0.82 * r, c)]
    if t.kind == "flower":
        heart = (250, 206, 60) if t.paint not in ("yellow", "orange") else (128, 78, 40)
        return [_layer("plate", x, y + 0.55 * r, 0.07 * r, 0.47 * r, (60, 140, 66), RIM),
                _layer("circle", x + 0.26 * r, y + 0.66 * r, 0.22 * r, 0.10 * r, (60, 140, 66),
                       RIM, -0.5),
                _layer("petals", x, y - 0.34 * r, 0.66 * r, 0.66 * r, c),
                _layer("circle", x, y - 0.34 * r, 0.22 * r, 0.22 * r, heart, RIM)]
    if t.kind == "sun":
        return [_layer("rays", x, y, r, r, _shade(c, 0.25), 0),
                _layer("circle", x, y, 0.66 * r, 0.66 * r, c, RIM)]
    if t.kind == "boat":
        sail = (250, 250, 250) if t.paint != "white" else (216, 60, 60)
        return [_layer("plate", x, y - 0.10 * r, 0.04 * r, 0.85 * r, (96, 66, 44), 0),
                _layer("sail", x + 0.42 * r, y - 0.18 * r, 0.42 * r, 0.66 * r, sail, RIM),
                _layer("sail", x - 0.30 * r, y - 0.06 * r, -0.28 * r, 0.54 * r, sail, RIM),
                _layer("hull", x, y + 0.76 * r, 0.92 * r, 0.42 * r, c, RIM | GLOSS)]
    if t.kind == "snowman":
        scarf = (216, 60, 60) if t.paint != "red" else (44, 96, 216)
        return [_layer("circle", x, y + 0.48 * r, 0.52 * r, 0.52 * r, c),
                _layer("circle", x, y - 0.26 * r, 0.36 * r, 0.36 * r, c),
                _layer("plate", x, y + 0.04 * r, 0.32 * r, 0.06 * r, scarf, RIM),
                _layer("plate", x, y - 0.56 * r, 0.40 * r, 0.05 * r, (40, 40, 46), 0),
                _layer("plate", x, y - 0.78 * r, 0.25 * r, 0.22 * r, (40, 40, 46), 0),
                _layer("circle", x - 0.13 * r, y - 0.32 * r, 0.05 * r, 0.05 * r, (40, 40, 46), 0),
                _layer("circle", x + 0.13 * r, y - 0.32 * r, 0.05 * r, 0.05 * r, (40, 40, 46), 0),
                _layer("circle", x, y - 0.20 * r, 0.13 * r, 0.05 * r, (246, 134, 32), 0)]
    return [_layer(t.kind, x, y, r, r, c)]


def layers(s: Scene) -> tuple[list[float], list[list[float]]]:
    """What draw() takes of a scene: colours of the background's top and bottom, and layers."""
    if s.sky is None:
        rgb = background_rgb(s.background)
        top, bottom = _shade(rgb, 0.06), _shade(rgb, -0.05)
    else:
        top, bottom = SKY_COLOURS[s.sky]
    out = []
    for x, y, r in s.detail.get("stars", []):
        out.append(_layer("star" if r > 0.019 else "circle", x, y, r, r, (255, 244, 200), 0))
    if s.ground:
        rgb = GROUND_COLOURS[s.ground]
        rgb = _shade(rgb, {"day": 0.0, "night": -0.5, "sunset": -0.2}[s.sky or "day"])
        h = s.detail["horizon"]
        if s.ground == "sea":
            out.append(_layer("plate", 0.5, h + 0.6, 1.0, 0.6, rgb, 0))
        else:
            out.append(_layer("circle", 0.5, h + 1.2, 1.7, 1.2, rgb, 0))
    back_to_front = s.things[::-1] if s.layout == "inside" else s.things
    for t in back_to_front:
        rows = _figure(t)
        if s.sky is not None and t.kind in ("sun", "moon", "cloud", "star"):
            for row in rows:  # hangs in the air
                row[9] = int(row[9]) & ~SHADOW
        out += rows
    assert len(out) <= LAYERS, (s.layout, len(out))
    return [c / 255 for c in (*top, *bottom)], out


# ---- numbers to pixels ----

def _distance(tex: torch.Tensor, row: torch.Tensor, dx: torch.Tensor,
              dy: torch.Tensor) -> torch.Tensor:
    """Signed distance in pixels of points, given from a layer's centre, to its outline."""
    c = row[:, :, None, None]
    cos, sin = torch.cos(c[:, 5]), torch.sin(c[:, 5])
    u = (dx * cos + dy * sin) / c[:, 3] / REACH
    v = (dy * cos - dx * sin) / c[:, 4] / REACH
    far = (torch.maximum(u.abs(), v.abs()) - 1).clamp(min=0) * REACH  # beyond the texture
    a = ((u + 1) / 2 * TEXTURE - 0.5).clamp(0, TEXTURE - 1.001)
    b = ((v + 1) / 2 * TEXTURE - 0.5).clamp(0, TEXTURE - 1.001)
    i, j = a.long(), b.long()
    at = (c[:, 0].long() * TEXTURE + j) * TEXTURE + i
    a, b = a - i, b - j
    d = ((tex[at] * (1 - a) + tex[at + 1] * a) * (1 - b) +
         (tex[at + TEXTURE] * (1 - a) + tex[at + TEXTURE + 1] * a) * b)
    return (d + far) * torch.minimum(c[:, 3].abs(), c[:, 4]) * SIDE


def _paint(tex: torch.Tensor, canvas: torch.Tensor, row: torch.Tensor, x: torch.Tensor,
           y: torch.Tensor) -> torch.Tensor:
    """canvas [n,3,h,w] with one layer, row [n,COLUMNS], over it. x [n,1,w], y [n,h,1]."""
    style = row[:, 9].long()[:, None, None]
    dx, dy = x - row[:, 1, None, None], y - row[:, 2, None, None]
    d = _distance(tex, row, dx, dy)
    fall = _distance(tex, row, dx - 0.010, dy - 0.016)
    dark = 0.30 * torch.sigmoid(-fall / 4.0) * (style & SHADOW > 0)
    u, v = dx / row[:, 3, None, None].abs(), dy / row[:, 4, None, None]
    gloss = style & GLOSS > 0
    light = 0.30 * torch.exp(-((u + 0.32) ** 2 + (v + 0.38) ** 2) / 0.22) * gloss
    rim = ((d + 3.0) / 1.5).clamp(0, 1) * 0.32 * (style & RIM > 0)
    colour = row[:, 6:9, None, None] * (1 - 0.10 * (v.clamp(-1, 1) + 0.3) * gloss)[:, None]
    colour = (colour + (1 - colour) * light[:, None]) * (1 - rim[:, None])
    below = canvas * (1 - dark[:, None])
    return torch.lerp(below, colour, (0.5 - d).clamp(0, 1)[:, None]).clamp(0, 1)


_fast_paint = torch.compile(_paint, dynamic=False)  # one kernel a layer instead of sixty


@torch.no_grad()
def draw(tex: torch.Tensor, ground: torch.Tensor, rows: torch.Tensor, most: int = LAYERS,
         side: int = SIDE, corner: torch.Tensor | None = None) -> torch.Tensor:
    """Pictures [n,3,side,side] in 0..1, or windows into them.

    tex: atlas(); ground: [n,6]; rows: [n,LAYERS,COLUMNS]; most: layers that are used at all;
    corner: [n,2], top left of a window of side x side pixels, in parts of the picture."""
    at = (torch.arange(side, device=ground.device) + 0.5) / SIDE
    corner = torch.zeros(len(ground), 2, device=ground.device) if corner is None else corner
    x, y = corner[:, 0, None, None] + at, corner[:, 1, None, None] + at[:, None]
    canvas = torch.lerp(ground[:, :3, None, None], ground[:, 3:, None, None],
                        y[:, None]).expand(-1, -1, -1, side).contiguous()
    paint = _fast_paint if ground.is_cuda else _paint
    for k in range(most):
        canvas = paint(tex, canvas, rows[:, k].contiguous(), x, y)
    return canvas


def used(rows: torch.Tensor) -> int:
    """Layers of the scene that has most."""
    return int((rows[:, :, 0] > 0).sum(1).max())
