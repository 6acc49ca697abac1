"""The judge is no rubber stamp: it takes pictures that show what was asked for and refuses those
with another colour, shape, side, number or ground. The pictures are drawn here, plainly."""

import copy

import pytest

import drawing
import judge
from outlines import INSIDE

PLAIN = [p for p in drawing.prompts() if "areas" not in p]
SPOTS = {  # where n things without a place go
    1: [(0.5, 0.5)], 2: [(0.28, 0.5), (0.72, 0.52)],
    3: [(0.2, 0.5), (0.5, 0.48), (0.8, 0.5)],
    4: [(0.25, 0.25), (0.75, 0.28), (0.27, 0.74), (0.74, 0.75)],
}
SIDES = {"left": [(0.27, 0.5), (0.73, 0.5)], "right": [(0.73, 0.5), (0.27, 0.5)],
         "above": [(0.5, 0.27), (0.5, 0.73)], "below": [(0.5, 0.73), (0.5, 0.27)]}


def spots(want):
    """(x, y, r) of everything that is wanted."""
    n = len(want["objects"])
    at = SPOTS[n]
    if want.get("relations") == "inside":
        return [(0.5, 0.5, 0.12), (0.5, 0.5, 0.34)]
    if want.get("relations"):
        at = SIDES[want["relations"][0][1]]
    out = []
    for o, (x, y) in zip(want["objects"], at):
        x, y = judge.PLACES[o["place"]] if "place" in o else (x, y)
        out.append((x, y, {"small": 0.1, "big": 0.31}.get(o.get("size"), 0.14)))
    return out


def draw(want, places=None):
    """Rows as judge.halve() gives them: a ground a little lighter at the top, then each thing with
    a darker rim, the last one wanted first."""
    ground = judge.COLOURS[want["background"]] if want.get("background") else judge.UNTOLD
    rows = [[tuple(c * (1.03 - 0.06 * y / judge.SIDE) for c in ground)] * judge.SIDE
            for y in range(judge.SIDE)]
    rows = [list(r) for r in rows]
    things = list(zip(want["objects"], spots(want) if places is None else places))
    for o, (cx, cy, r) in reversed(things):
        inside, colour = INSIDE[o["shape"]], judge.COLOURS[o["colour"]]
        for y in range(judge.SIDE):
            for x in range(judge.SIDE):
                u, v = ((x + 0.5) / judge.SIDE - cx) / r, ((y + 0.5) / judge.SIDE - cy) / r
                if max(abs(u), abs(v)) < 1.3 and inside(u, v):
                    rim = not inside(u * 1.08, v * 1.08)
                    rows[y][x] = tuple(c * (0.75 if rim else 0.97) for c in colour)
    return rows


@pytest.mark.parametrize("want", PLAIN, ids=lambda w: w["prompt"])
def test_right_pictures_are_taken(want):
    rows = draw(want)
    assert judge.judge(rows, want) == [], [judge.say(t) for t in judge.things(rows)]


def other(value, values):
    values = list(values)
    return values[(values.index(value) + 1) % len(values)]


@pytest.mark.parametrize("want", PLAIN, ids=lambda w: w["prompt"])
def test_another_colour_is_refused(want):
    drawn = copy.deepcopy(want)
    taken = {o["colour"] for o in want["objects"]} | {want.get("background"), "white"}
    drawn["objects"][0]["colour"] = next(c for c in judge.COLOURS if c not in taken)
    assert judge.judge(draw(drawn), want)


@pytest.mark.parametrize("want", PLAIN, ids=lambda w: w["prompt"])
def test_another_shape_is_refused(want):
    drawn = copy.deepcopy(want)
    drawn["objects"][0]["shape"] = other(drawn["objects"][0]["shape"], INSIDE)
    assert judge.judge(draw(drawn), want)


@pytest.mark.parametrize("want", PLAIN, ids=lambda w: w["prompt"])
def test_another_ground_is_refused(want):
    drawn = copy.deepcopy(want)
    taken = {o["colour"] for o in want["objects"]} | {want.get("background"), "white"}
    drawn["background"] = next(c for c in judge.COLOURS if c not in taken)
    assert judge.judge(draw(drawn), want)


@pytest.mark.parametrize("want", [w for w in PLAIN if isinstance(w.get("relations"), list)],
                         ids=lambda w: w["prompt"])
def test_the_other_side_is_refused(want):
    assert judge.judge(draw(want, spots(want)[::-1]), want)


@pytest.mark.parametrize("want", [w for w in PLAIN if w.get("relations") != "inside"],
                         ids=lambda w: w["prompt"])
def test_another_number_is_refused(want):
    more = copy.deepcopy(want)
    more["objects"].append({"shape": "circle", "colour": "brown"})
    assert judge.judge(draw(more, [*spots(want), (0.08, 0.92, 0.06)]), want)
    less = copy.deepcopy(want)
    less["objects"].pop()
    assert judge.judge(draw(less, spots(want)[:-1]), want)


@pytest.mark.parametrize("want", [w for w in PLAIN if w["objects"][0].keys() & {"place", "size"}],
                         ids=lambda w: w["prompt"])
def test_another_place_or_size_is_refused(want):
    x, y, _ = spots(want)[0]
    x, y = (1 - x, 1 - y) if (x, y) != (0.5, 0.5) else (0.3, 0.5)
    middling = 0.18 if "size" in want["objects"][0] else 0.14
    assert judge.judge(draw(want, [(x, y, middling)]), want)


def test_sceneries_are_looked_at():
    want = next(p for p in drawing.prompts() if "areas" in p)
    empty = [[judge.COLOURS["black"]] * judge.SIDE for _ in range(judge.SIDE)]
    assert len(judge.judge(empty, want)) == len(want["areas"])
