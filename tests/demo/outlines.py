"""Ten shapes as questions: is the point (u, v) inside? u to the right, v downwards, the shape
reaching to about 1 either way. Written apart from what the model was trained on (tools/demo-model),
for the judge to compare with and for drawing pictures that test the judge."""

from math import cos, hypot, pi, sin


def _in_polygon(points, u, v):
    inside = False
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1]):
        if (ay > v) != (by > v) and u < (bx - ax) * (v - ay) / (by - ay) + ax:
            inside = not inside
    return inside


def _polygon(*points):
    return lambda u, v: _in_polygon(list(points), u, v)


def _heart(u, v):
    x, y = 1.15 * u, -1.15 * v + 0.12
    return (x * x + y * y - 1) ** 3 - x * x * y ** 3 < 0


_STAR = [((1.05 if i % 2 == 0 else 0.45) * sin(pi * i / 5), -(1.05 if i % 2 == 0 else 0.45)
          * cos(pi * i / 5)) for i in range(10)]

INSIDE = {
    "circle": lambda u, v: hypot(u, v) < 1,
    "square": lambda u, v: max(abs(u), abs(v)) < 0.9,
    "triangle": _polygon((0, -1), (1.1, 0.88), (-1.1, 0.88)),
    "star": _polygon(*_STAR),
    "ring": lambda u, v: 0.46 < hypot(u, v) < 1,
    "diamond": lambda u, v: abs(u) / 0.8 + abs(v) / 1.12 < 1,
    "heart": _heart,
    "cross": lambda u, v: min(abs(u), abs(v)) < 0.36 and max(abs(u), abs(v)) < 1.02,
    "moon": lambda u, v: hypot(u, v) < 1 and hypot(u - 0.48, v + 0.18) > 0.82,
    "hexagon": lambda u, v: max(abs(v), abs(v) / 2 + abs(u) * 3 ** 0.5 / 2) < 3 ** 0.5 / 2,
}
