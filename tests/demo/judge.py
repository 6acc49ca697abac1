"""Looks at a picture and says what is on it, and whether that is what was asked for.

Pictures of plain scenes have a background that is one colour, a little lighter at the top; what
differs from it and is no shadow of it stands for something. Connected pixels make a thing; its
colour is what most of its inner pixels are nearest to, its shape the outline it covers best. Of
sceneries the judge only asks whether parts of the picture have the colours they should.

Standard library alone. A picture is 256 x 256; the judge looks at it at half that size.
"""

import math
from functools import lru_cache

from outlines import INSIDE

SIDE = 128
GRID = 26           # outlines are compared on so many squares a side
LEAST = 45          # pixels of a thing; less is dirt
COLOURS = {
    "red": (216, 44, 44), "green": (52, 164, 72), "blue": (44, 96, 216), "yellow": (250, 212, 44),
    "orange": (246, 134, 32), "purple": (128, 60, 184), "pink": (246, 140, 188),
    "cyan": (64, 204, 220), "white": (250, 250, 250), "black": (34, 34, 38),
    "gray": (138, 142, 148), "brown": (128, 82, 46),
}
UNTOLD = (226, 231, 239)  # the background when nobody asked for one
# Centre of a place, and how far from it a thing may be.
PLACES = {"top left": (0.25, 0.25), "top right": (0.75, 0.25), "bottom left": (0.25, 0.75),
          "bottom right": (0.75, 0.75), "top": (0.5, 0.22), "bottom": (0.5, 0.78),
          "left": (0.22, 0.5), "right": (0.78, 0.5), "center": (0.5, 0.5)}
NEAR = 0.15
ASIDE = 0.08        # "left of": that much further left at least, in parts of the side
SMALL, BIG = 0.125, 0.24  # half of the longer side, in parts of the picture


def _apart(a, b):
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)))


def _shades(rgb):
    """As lit: a highlight, the plain colour, the lower side."""
    yield rgb
    yield tuple(c * 0.88 for c in rgb)
    yield tuple(c + (255 - c) * 0.22 for c in rgb)


_SHADES = [(name, shade) for name, rgb in COLOURS.items() for shade in _shades(rgb)]


@lru_cache(maxsize=None)
def _name(quantised):
    rgb = tuple(c * 8 + 4 for c in quantised)
    return min(_SHADES, key=lambda s: _apart(s[1], rgb))[0]


def name_of(rgb):
    """The named colour nearest to rgb."""
    return _name(tuple(min(int(c), 255) // 8 for c in rgb))


def halve(width, height, channels, pixels):
    """SIDE x SIDE rows of (r, g, b): every two by two pixels as one."""
    assert (width, height) == (2 * SIDE, 2 * SIDE), (width, height)
    rows, stride = [], width * channels
    for y in range(0, height, 2):
        row = []
        for x in range(0, width * channels, 2 * channels):
            a, b = y * stride + x, (y + 1) * stride + x
            row.append(tuple((pixels[a + c] + pixels[a + channels + c] + pixels[b + c] +
                              pixels[b + channels + c]) / 4 for c in range(3)))
        rows.append(row)
    return rows


# ---- what is there ----

def _median(colours):
    return tuple(sorted(c)[len(colours) // 2] for c in zip(*colours))


def background(rows):
    """The colour at the top and at the bottom."""
    return (_median([p for r in rows[:3] for p in r]), _median([p for r in rows[-3:] for p in r]))


def _is_shadow(rgb, behind):
    """Darker, but not much, and of the same hue."""
    k = sum(rgb) / (sum(behind) or 1)
    return 0.66 < k < 1.0 and _apart(rgb, [c * k for c in behind]) < 14


def foreground(rows):
    """SIDE x SIDE of True where there is something."""
    top, bottom = background(rows)
    out = []
    for y, row in enumerate(rows):
        part = (y + 0.5) / SIDE
        behind = [a + (b - a) * part for a, b in zip(top, bottom)]
        out.append([_apart(p, behind) > 34 and not _is_shadow(p, behind) for p in row])
    return out


def components(mask):
    """Lists of (x, y) that hang together, largest first."""
    seen, out = [[not m for m in row] for row in mask], []
    for y in range(SIDE):
        for x in range(SIDE):
            if seen[y][x]:
                continue
            stack, found = [(x, y)], []
            seen[y][x] = True
            while stack:
                a, b = stack.pop()
                found.append((a, b))
                for p, q in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
                    if 0 <= p < SIDE and 0 <= q < SIDE and not seen[q][p]:
                        seen[q][p] = True
                        stack.append((p, q))
            if len(found) >= LEAST:
                out.append(found)
    return sorted(out, key=len, reverse=True)


def _inner(points, times):
    """Points with neighbours on every side, so often; all, where none is left."""
    left = set(points)
    for _ in range(times):
        less = {(x, y) for x, y in left if {(x - 1, y), (x + 1, y), (x, y - 1), (x, y + 1)} <= left}
        if len(less) < 12:
            break
        left = less
    return left


def _on_grid(inside, x0, y0, x1, y1):
    """GRID x GRID of whether inside(x, y), the box's longer side filling the grid."""
    step = max(x1 - x0, y1 - y0) / GRID
    cx, cy = (x0 + x1) / 2, (y0 + y1) / 2
    return [inside(cx + (i + 0.5 - GRID / 2) * step, cy + (j + 0.5 - GRID / 2) * step)
            for j in range(GRID) for i in range(GRID)]


@lru_cache(maxsize=None)
def _template(shape):
    inside, n = INSIDE[shape], 120
    at = [(2 * i + 1) / n * 1.25 - 1.25 for i in range(n)]
    points = [(u, v) for v in at for u in at if inside(u, v)]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    return _on_grid(inside, min(xs), min(ys), max(xs), max(ys))


def shape_of(points):
    """(shape, how much of both outlines is common, 0..1)"""
    have = set(points)
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    grid = _on_grid(lambda x, y: (math.floor(x), math.floor(y)) in have,
                    min(xs), min(ys), max(xs) + 1, max(ys) + 1)
    best = ("", 0.0)
    for shape in INSIDE:
        both = sum(a and b for a, b in zip(grid, _template(shape)))
        either = sum(a or b for a, b in zip(grid, _template(shape)))
        if both / either > best[1]:
            best = (shape, both / either)
    return best


def _thing(rows, points):
    names = [name_of(rows[y][x]) for x, y in _inner(points, 2)]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    shape, sure = shape_of(points)
    return {"colour": max(set(names), key=names.count), "shape": shape, "sure": round(sure, 2),
            "x": (min(xs) + max(xs) + 1) / 2 / SIDE, "y": (min(ys) + max(ys) + 1) / 2 / SIDE,
            "r": (max(max(xs) - min(xs), max(ys) - min(ys)) + 1) / 2 / SIDE, "points": points}


def things(rows):
    """What stands before the background, largest first."""
    return [_thing(rows, c) for c in components(foreground(rows))]


def say(thing):
    return (f"{thing['colour']} {thing['shape']} ({thing['sure']:.2f}) at {thing['x']:.2f},"
            f"{thing['y']:.2f} r {thing['r']:.2f}")


# ---- is it what was asked for? ----

def _alike(want, thing):
    return want["colour"] == thing["colour"] and want["shape"] == thing["shape"] and \
        thing["sure"] >= 0.6


def _match(wanted, found):
    """A thing for everything wanted, each used once; None: there is none. Few: all are tried."""
    if not wanted:
        return []
    for i, t in enumerate(found):
        if _alike(wanted[0], t):
            rest = _match(wanted[1:], found[:i] + found[i + 1:])
            if rest is not None:
                return [t] + rest
    return None


def _relation(name, a, b):
    dx, dy = b["x"] - a["x"], b["y"] - a["y"]
    along = {"left": dx, "right": -dx, "above": dy, "below": -dy}[name]
    across = abs(dy) if name in ("left", "right") else abs(dx)
    return along > ASIDE and along > across


def _inside(rows, want, found):
    """The second thing wanted stands alone; the first is a blot of its colour within."""
    inner, outer = want["objects"]
    if len(found) != 1:
        return [f"{len(found)} things instead of one in another"]
    wrong = [] if _alike(outer, found[0]) else [f"no {outer['colour']} {outer['shape']} outside"]
    body = set(found[0]["points"])
    mask = [[(x, y) in body and name_of(rows[y][x]) == inner["colour"] for x in range(SIDE)]
            for y in range(SIDE)]
    blots = [_thing(rows, c) for c in components(mask)]
    if not any(_alike(inner, b) and abs(b["x"] - found[0]["x"]) < ASIDE and
               abs(b["y"] - found[0]["y"]) < ASIDE * 1.5 for b in blots):
        wrong.append(f"no {inner['colour']} {inner['shape']} inside: "
                     + ("; ".join(map(say, blots)) or "nothing of that colour"))
    return wrong


def _areas(rows, areas):
    wrong = []
    for a in areas:
        x0, y0, x1, y1 = (round(c * SIDE) for c in a["box"])
        names = [name_of(rows[y][x]) for y in range(y0, y1) for x in range(x0, x1)]
        share = sum(n in a["colours"] for n in names) / len(names)
        if share < a["share"]:
            wrong.append(f"{a['what']}: {share:.2f} of it is {'/'.join(a['colours'])}, "
                         f"not {a['share']}")
    return wrong


def _ground(rows, want):
    top, bottom = background(rows)
    middle = [(a + b) / 2 for a, b in zip(top, bottom)]
    if want.get("background"):
        got = name_of(middle)
        return [] if got == want["background"] else [f"the background is {got}"]
    return [] if _apart(middle, UNTOLD) < 40 else [f"the background is {name_of(middle)}"]


def judge(rows, want):
    """What is wrong, as sentences; [] when nothing is.

    want: objects [{shape, colour, place?, size?}], in any order and nothing else but them;
    relations [[first, "left"|"right"|"above"|"below", second]] or "inside"; order "row" or
    "column"; background: a colour, none for the untold one; or, of a scenery, areas
    [{what, box, colours, share}]."""
    if "areas" in want:
        return _areas(rows, want["areas"])
    wrong = _ground(rows, want)
    found = things(rows)
    if want.get("relations") == "inside":
        return wrong + _inside(rows, want, found)
    if len(found) != len(want["objects"]):
        wrong.append(f"{len(found)} things instead of {len(want['objects'])}")
    match = _match(want["objects"], found)
    if match is None:
        return wrong + ["not those that were asked for"]
    for o, t in zip(want["objects"], match):
        what = f"the {o['colour']} {o['shape']}"
        if "place" in o and max(abs(a - b) for a, b in zip(PLACES[o["place"]],
                                                          (t["x"], t["y"]))) > NEAR:
            wrong.append(f"{what} is not at the {o['place']}")
        if o.get("size") == "small" and t["r"] > SMALL or o.get("size") == "big" and t["r"] < BIG:
            wrong.append(f"{what} is not {o['size']}")
    for a, relation, b in want.get("relations", []):
        if not _relation(relation, match[a], match[b]):
            wrong.append(f"thing {a} is not {relation} thing {b}")
    if want.get("order"):
        across = [t["y" if want["order"] == "row" else "x"] for t in match]
        if max(across) - min(across) > ASIDE:
            wrong.append(f"not in a {want['order']}")
    return wrong
