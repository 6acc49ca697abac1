"""The demo model's world: what can be on a picture, and how people say so.

    scene = sample(rng)            what is where, drawn from the world
    text = describe(scene, rng)    one of many sentences that say it

Places and sizes are parts of the picture's side: x to the right, y downwards, both 0..1; r is half
of a thing's height or width. A scene says what is drawn (`paint`) apart from what is told
(`colour`): "a circle" has some colour, but none the sentence names.

Standard library alone: training draws scenes from here, and tests/demo reads the same words.
"""
from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (216, 44, 44),
    "green": (52, 164, 72),
    "blue": (44, 96, 216),
    "yellow": (250, 212, 44),
    "orange": (246, 134, 32),
    "purple": (128, 60, 184),
    "pink": (246, 140, 188),
    "cyan": (64, 204, 220),
    "white": (250, 250, 250),
    "black": (34, 34, 38),
    "gray": (138, 142, 148),
    "brown": (128, 82, 46),
}
COLOUR_WORDS = {
    "purple": ["purple", "purple", "purple", "violet"],
    "gray": ["gray", "gray", "grey"],
    "cyan": ["cyan", "cyan", "turquoise"],
}
SHAPES = ["circle", "square", "triangle", "star", "ring", "diamond", "heart", "cross", "moon",
          "hexagon"]
FIGURES = ["house", "tree", "flower", "sun", "cloud", "boat", "snowman"]
NOUNS = {
    "circle": ["circle"] * 6 + ["disc", "ball", "dot"],
    "square": ["square"] * 5 + ["box"],
    "ring": ["ring"] * 4 + ["donut"],
    "diamond": ["diamond"] * 4 + ["rhombus"],
    "cross": ["cross"] * 4 + ["plus"],
    "moon": ["moon"] * 3 + ["crescent"],
    "house": ["house"] * 4 + ["cottage"],
    "boat": ["boat"] * 3 + ["sailboat", "ship"],
}
# What a figure looks like when nobody says a colour.
NATURAL = {"tree": "green", "sun": "yellow", "cloud": "white", "snowman": "white"}
NUMBERS = {2: ["two", "two", "two", "2"], 3: ["three", "three", "three", "3"],
           4: ["four", "four", "four", "4"], 5: ["five", "five", "five", "5"]}
SIZES = {"small": ["small", "small", "little", "tiny"], "big": ["big", "big", "large", "huge"]}
PLACES = {  # where: centre, and how it is said
    "top left": ((0.24, 0.24), ["in the top left corner", "in the top left", "at the top left",
                                "in the upper left corner"]),
    "top right": ((0.76, 0.24), ["in the top right corner", "in the top right",
                                 "at the top right", "in the upper right corner"]),
    "bottom left": ((0.24, 0.76), ["in the bottom left corner", "in the bottom left",
                                   "at the bottom left", "in the lower left corner"]),
    "bottom right": ((0.76, 0.76), ["in the bottom right corner", "in the bottom right",
                                    "at the bottom right", "in the lower right corner"]),
    "top": ((0.5, 0.22), ["at the top", "at the top of the picture"]),
    "bottom": ((0.5, 0.78), ["at the bottom", "at the bottom of the picture"]),
    "left": ((0.22, 0.5), ["on the left", "on the left side", "at the left"]),
    "right": ((0.78, 0.5), ["on the right", "on the right side", "at the right"]),
    "center": ((0.5, 0.5), ["in the center", "in the middle", "in the centre"]),
}
RELATIONS = {  # of the first to the second thing
    "left": ["left of", "to the left of", "on the left of"],
    "right": ["right of", "to the right of", "on the right of"],
    "above": ["above", "above", "over", "on top of"],
    "below": ["below", "below", "under", "beneath"],
}
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
GROUNDS = {  # sceneries: sky above, ground below
    "meadow": ["on a meadow", "on a green meadow", "on a green hill", "on the grass",
               "in a field"],
    "sea": ["on the sea", "on the water", "on the blue sea", "on the ocean"],
    "snow": ["in the snow", "in winter", "on snow"],
    "desert": ["in the desert", "on sand"],
}
SKIES = {
    "day": ["", "", "under a blue sky", "on a sunny day"],
    "night": ["at night", "at night", "under a night sky", "under the stars"],
    "sunset": ["at sunset", "at sunset", "at dusk", "under an orange sky"],
}
SKY_COLOURS = {  # top, bottom
    "day": ((96, 168, 240), (206, 232, 250)),
    "night": ((14, 18, 54), (40, 52, 110)),
    "sunset": ((120, 72, 150), (252, 170, 96)),
}
GROUND_COLOURS = {
    "meadow": (96, 180, 80),
    "sea": (36, 110, 190),
    "snow": (240, 245, 250),
    "desert": (232, 200, 130),
}
DEFAULT_BACKGROUND = (226, 231, 239)
LEADS = [""] * 14 + ["a picture of ", "a drawing of ", "an image of ", "a painting of ",
                     "an illustration of ", "draw ", "a simple picture of ", "show me "]
TAILS = [""] * 14 + [", simple", ", high quality", ", masterpiece", ", clean", " please",
                     ", best quality, detailed", ", flat design", "."]


@dataclass
class Thing:
    kind: str
    paint: str                   # the colour it is drawn in
    x: float
    y: float
    r: float
    colour: str | None = None    # the colour the sentence names; None: it names none
    size: str | None = None      # "small", "big"
    place: str | None = None     # a key of PLACES


@dataclass
class Scene:
    layout: str                  # which kind of sentence: a key of LAYOUTS
    things: list[Thing]
    background: str | None = None  # a colour of COLOURS, perhaps after "light " or "dark "
    relation: str | None = None
    ground: str | None = None    # a key of GROUNDS, for scenery
    sky: str | None = None       # a key of SKIES, for scenery
    count: int = 1               # of things[0] and those like it, at the list's start
    detail: dict = field(default_factory=dict)


def background_rgb(name: str | None) -> tuple[int, int, int]:
    if name is None:
        return DEFAULT_BACKGROUND
    tone, _, colour = name.rpartition(" ")
    rgb = COLOURS[colour]
    to = 255 if tone == "light" else 0
    part = 0.5 if tone else 0.0
    return tuple(round(c + (to - c) * part) for c in rgb)  # type: ignore[return-value]


# ---- drawing scenes from the world ----

def _background(rng: random.Random) -> str | None:
    if rng.random() < 0.35:
        return None
    colour = rng.choice(list(COLOURS))
    tone = rng.choice(["light ", "dark "]) if rng.random() < 0.15 else ""
    return tone + colour if tone and colour not in ("white", "black") else colour


def _paints(rng: random.Random, n: int, background: str | None) -> list[str]:
    """n colours; things that are told apart mostly differ, and none melts into the background."""
    behind = background.rpartition(" ")[2] if background else "white"
    rest = [c for c in COLOURS if c != behind or (background is None and rng.random() < 0.5)]
    rng.shuffle(rest)
    return [rng.choice(rest) if rng.random() < 0.12 else rest[i] for i in range(n)]


def _kind(rng: random.Random) -> str:
    return rng.choice(FIGURES) if rng.random() < 0.18 else rng.choice(SHAPES)


def _thing(rng: random.Random, kind: str, paint: str, r: float, x: float, y: float) -> Thing:
    t = Thing(kind, paint, x, y, r, colour=paint)
    if rng.random() < (0.3 if kind in FIGURES else 0.06):
        t.colour = None
        t.paint = NATURAL.get(kind, paint)
    return t


def _size(rng: random.Random, t: Thing, often: float, small: tuple, big: tuple) -> None:
    if rng.random() < often:
        t.size = rng.choice(["small", "big"])
        t.r = rng.uniform(*(small if t.size == "small" else big))


def _keep_in(t: Thing) -> None:
    edge = t.r * 1.12 + 0.02
    t.x = min(max(t.x, edge), 1 - edge)
    t.y = min(max(t.y, edge), 1 - edge)


def _scatter(rng: random.Random, things: list[Thing]) -> bool:
    """Puts things at random, apart from one another. False: there was no room."""
    for _ in range(60):
        for t in things:
            edge = t.r * 1.12 + 0.03
            t.x, t.y = rng.uniform(edge, 1 - edge), rng.uniform(edge, 1 - edge)
        if all(math.hypot(a.x - b.x, a.y - b.y) > (a.r + b.r) * 1.2 + 0.02
               for i, a in enumerate(things) for b in things[:i]):
            return True
    return False


def _one(rng: random.Random) -> Scene:
    bg = _background(rng)
    t = _thing(rng, _kind(rng), _paints(rng, 1, bg)[0], rng.uniform(0.17, 0.22), 0.5, 0.5)
    _size(rng, t, 0.35, (0.085, 0.11), (0.30, 0.36))
    if t.size != "big" and rng.random() < 0.5:
        t.place = rng.choice(list(PLACES))
        (t.x, t.y), t.r = PLACES[t.place][0], min(t.r, rng.uniform(0.14, 0.17))
    near = 0.03 if t.place else 0.05
    t.x += rng.uniform(-near, near)
    t.y += rng.uniform(-near, near)
    _keep_in(t)
    return Scene("one", [t], bg)


def _pair(rng: random.Random) -> Scene:
    bg = _background(rng)
    paint = _paints(rng, 2, bg)
    things = [_thing(rng, _kind(rng), p, rng.uniform(0.13, 0.17), 0.5, 0.5) for p in paint]
    for t in things:
        _size(rng, t, 0.16, (0.075, 0.095), (0.19, 0.215))
    relation = rng.choice(list(RELATIONS))
    a, b = things if relation in ("left", "above") else things[::-1]
    along = [rng.uniform(0.22, 0.32), rng.uniform(0.68, 0.78)]
    middle = rng.uniform(0.42, 0.58)
    across = [middle + rng.uniform(-0.05, 0.05) for _ in range(2)]
    for t, p, q in zip((a, b), along, across):
        t.x, t.y = (p, q) if relation in ("left", "right") else (q, p)
        _keep_in(t)
    return Scene("pair", things, bg, relation)


def _inside(rng: random.Random) -> Scene:
    bg = _background(rng)
    paint = _paints(rng, 2, bg)
    if paint[0] == paint[1]:
        return _inside(rng)
    x, y = rng.uniform(0.45, 0.55), rng.uniform(0.45, 0.55)
    outer = rng.choice(["circle", "square", "diamond", "heart", "hexagon", "star"])
    r = rng.uniform(0.30, 0.36)
    small = {"circle": 0.36, "square": 0.42, "diamond": 0.28, "heart": 0.30, "hexagon": 0.36,
             "star": 0.24}[outer]
    a = Thing(rng.choice(SHAPES), paint[0], x, y, r * small, paint[0])
    b = Thing(outer, paint[1], x, y, r, paint[1])
    return Scene("inside", [a, b], bg, "inside")


def _few(rng: random.Random) -> Scene:
    """Two or three things somewhere, or with a place each."""
    n = rng.choice([2, 2, 3])
    bg = _background(rng)
    while True:
        things = [_thing(rng, _kind(rng), p, rng.uniform(0.115, 0.15), 0.5, 0.5)
                  for p in _paints(rng, n, bg)]
        for t in things:
            _size(rng, t, 0.12, (0.07, 0.09), (0.18, 0.20))
        if n == 2 and rng.random() < 0.4:
            for t, place in zip(things, rng.sample([p for p in PLACES if p != "center"], 2)):
                t.place = place
                t.x, t.y = (c + rng.uniform(-0.025, 0.025) for c in PLACES[place][0])
                _keep_in(t)
            a, b = things
            if math.hypot(a.x - b.x, a.y - b.y) > (a.r + b.r) * 1.15:
                return Scene("few", things, bg)
        elif _scatter(rng, things):
            return Scene("few", things, bg)


def _row(rng: random.Random) -> Scene:
    """One thing between two others, or three from left to right."""
    bg = _background(rng)
    things = [_thing(rng, _kind(rng), p, rng.uniform(0.105, 0.13), 0, 0)
              for p in _paints(rng, 3, bg)]
    y = rng.uniform(0.42, 0.58)
    for t, x in zip(things, (0.18, 0.5, 0.82)):
        t.x, t.y = x + rng.uniform(-0.02, 0.02), y + rng.uniform(-0.03, 0.03)
        _keep_in(t)
    if rng.random() < 0.6:
        left, middle, right = things
        ends = [left, right] if rng.random() < 0.5 else [right, left]
        return Scene("between", [middle, *ends], bg, "between")
    return Scene("row", things, bg, "row")


def _many(rng: random.Random) -> Scene:
    """Several alike, perhaps in a row or a column, perhaps with something else."""
    bg = _background(rng)
    paint = _paints(rng, 2, bg)
    n = rng.choice([2, 2, 3, 3, 3, 4, 4, 5])
    kind = rng.choice(SHAPES + ["tree", "flower", "cloud", "house"])
    first = _thing(rng, kind, paint[0], 0.1, 0, 0)
    r = {2: (0.13, 0.16), 3: (0.115, 0.14), 4: (0.10, 0.12), 5: (0.09, 0.105)}[n]
    base = rng.uniform(*r)
    if rng.random() < 0.12:
        first.size = rng.choice(["small", "big"])
        base *= 0.66 if first.size == "small" else 1.2
    how = rng.random()
    if how < 0.3:
        order = "row" if rng.random() < 0.7 else "column"
        base = min(base, 0.78 / n / 2)
        middle = rng.uniform(0.42, 0.58)
        things = []
        for i in range(n):
            p, q = 0.5 + (i - (n - 1) / 2) * 0.86 / n, middle + rng.uniform(-0.012, 0.012)
            x, y = (p, q) if order == "row" else (q, p)
            things.append(Thing(kind, first.paint, x, y, base, first.colour, first.size))
        return Scene("many", things, bg, order, count=n)
    while True:
        things = [Thing(kind, first.paint, 0, 0, base * rng.uniform(0.95, 1.05), first.colour,
                        first.size) for _ in range(n)]
        if how < 0.6 and n <= 3:
            other = rng.choice([k for k in SHAPES if k != kind])
            things.append(_thing(rng, other, paint[1], base, 0, 0))
        if _scatter(rng, things):
            return Scene("many", things, bg, None, count=n)
        base *= 0.93


def _scenery(rng: random.Random) -> Scene:
    ground = rng.choice(list(GROUNDS))
    sky = rng.choice(["day", "day", "night", "sunset"])
    horizon = rng.uniform(0.60, 0.68)
    fitting = {"meadow": ["house", "tree", "flower", "house", "tree"], "sea": ["boat"],
               "snow": ["snowman", "snowman", "tree", "house"], "desert": ["house", "tree"]}
    n = 1 if ground == "sea" or rng.random() < 0.5 else 2
    kinds = [rng.choice(fitting[ground]) for _ in range(n)]
    things = []
    spots = [rng.uniform(0.42, 0.58)] if n == 1 else [0.29, 0.71]
    for kind, x in zip(kinds, spots):
        r = rng.uniform(0.19, 0.23) if n == 1 else rng.uniform(0.16, 0.19)
        t = _thing(rng, kind, rng.choice([c for c in COLOURS if c != "black"]), r, x, 0)
        if kind == "snowman" and rng.random() < 0.8:
            t.colour, t.paint = None, "white"
        if kind == "tree" and rng.random() < 0.6:
            t.colour, t.paint = None, NATURAL["tree"]
        deep = 0.06 if ground == "sea" else 0.10
        t.y = horizon + deep - t.r + (0.03 if ground == "sea" else 0)
        things.append(t)
    if n == 2 and rng.random() < 0.5:
        things.reverse()
    above = []
    if rng.random() < 0.6:
        body = "moon" if sky == "night" else rng.choice(["sun", "sun", "cloud"])
        paint = {"moon": "yellow", "sun": "yellow", "cloud": "white"}[body]
        x = rng.choice([0.2, 0.8]) + rng.uniform(-0.04, 0.04)
        above.append(Thing(body, paint, x, rng.uniform(0.16, 0.22), rng.uniform(0.085, 0.11)))
        if rng.random() < 0.5:
            above[0].place = "top left" if x < 0.5 else "top right"
        elif body == "moon" and rng.random() < 0.3:
            above[0].paint = above[0].colour = rng.choice(["white", "yellow", "orange"])
    scene = Scene("scenery", things + above, None, None, ground, sky)
    scene.detail = {"horizon": horizon, "n": n,
                    "stars": [(rng.uniform(0.04, 0.96), rng.uniform(0.03, horizon - 0.12),
                               rng.uniform(0.008, 0.016)) for _ in range(10)]
                    if sky == "night" else []}
    return scene


def _night(rng: random.Random) -> Scene:
    """A sky and nothing under it."""
    n = rng.randrange(6, 12)
    moon = Thing("moon", rng.choice(["yellow", "white", "yellow"]), rng.uniform(0.3, 0.7),
                 rng.uniform(0.3, 0.6), rng.uniform(0.14, 0.2))
    if rng.random() < 0.5:
        moon.colour = moon.paint
    stars = []
    while len(stars) < n:
        x, y = rng.uniform(0.06, 0.94), rng.uniform(0.06, 0.94)
        if math.hypot(x - moon.x, y - moon.y) > moon.r + 0.07 and all(
                math.hypot(x - a, y - b) > 0.12 for a, b, _ in stars):
            stars.append((x, y, rng.uniform(0.02, 0.034)))
    return Scene("night", [moon], None, None, None, "night", detail={"stars": stars})


LAYOUTS = {  # how often
    "one": (_one, 18), "pair": (_pair, 28), "inside": (_inside, 7), "few": (_few, 13),
    "row": (_row, 7), "many": (_many, 16), "scenery": (_scenery, 11), "night": (_night, 2),
}
_MAKERS = [m for m, _ in LAYOUTS.values()]
_OFTEN = [n for _, n in LAYOUTS.values()]


def sample(rng: random.Random) -> Scene:
    return rng.choices(_MAKERS, _OFTEN)[0](rng)


# ---- saying what is there ----

def _colour_word(rng: random.Random, colour: str) -> str:
    return rng.choice(COLOUR_WORDS.get(colour, [colour]))


def _plural(noun: str) -> str:
    if noun == "snowman":
        return "snowmen"
    return noun + ("es" if noun.endswith(("x", "s")) else "s")


def _words(rng: random.Random, t: Thing, plural: bool = False) -> str:
    """The thing without an article: "big red circle"."""
    noun = rng.choice(NOUNS.get(t.kind, [t.kind]))
    parts = [rng.choice(SIZES[t.size])] if t.size else []
    if t.colour:
        parts.append(_colour_word(rng, t.colour))
    if len(parts) == 2 and rng.random() < 0.1:
        parts.reverse()
    return " ".join(parts + [_plural(noun) if plural else noun])


def _article(rng: random.Random, words: str, bare: float = 0.08) -> str:
    chance = rng.random()
    if chance < bare:
        return words
    if chance < bare + 0.04:
        return "one " + words
    return ("an " if words[0] in "aeiou" else "a ") + words


def _say(rng: random.Random, t: Thing, bare: float = 0.08) -> str:
    return _article(rng, _words(rng, t), bare)


def _listed(rng: random.Random, parts: list[str]) -> str:
    last = rng.choice([" and ", " and ", " and ", ", ", " with "])
    return ", ".join(parts[:-1]) + last + parts[-1]


def _say_pair(rng: random.Random, s: Scene) -> str:
    a, b = s.things
    relation = s.relation or "left"
    if relation == "left" and rng.random() < 0.08 or relation == "right" and rng.random() < 0.08:
        first, second = (a, b) if relation == "left" else (b, a)
        return (f"{_say(rng, first)} on the left and {_say(rng, second)} on the right")
    if rng.random() < 0.07:
        word = "next to" if relation in ("left", "right") else "and"
        return f"{_say(rng, a)} {rng.choice([word, 'beside' if word != 'and' else 'and'])} " \
               f"{_say(rng, b)}"
    if rng.random() < 0.4:  # the same said from the other side
        a, b, relation = b, a, OPPOSITE[relation]
    return f"{_say(rng, a)} {rng.choice(RELATIONS[relation])} {_say(rng, b)}"


def say_related(s: Scene, turn: bool = False) -> str:
    """A pair plainly, or the contrary."""
    a, b = s.things
    relation = OPPOSITE[s.relation] if turn else s.relation
    rng = random.Random(0)
    return f"a {_words(rng, a)} {RELATIONS[relation][0]} a {_words(rng, b)}"


def _say_few(rng: random.Random, s: Scene) -> str:
    parts = []
    for t in s.things:
        said = _say(rng, t)
        if t.place:
            said += " " + rng.choice(PLACES[t.place][1])
        parts.append(said)
    return _listed(rng, parts) if not s.things[0].place else " and ".join(parts)


def _say_row(rng: random.Random, s: Scene) -> str:
    a, b, c = (_say(rng, t) for t in s.things)
    if s.layout == "between":
        return f"{a} between {b} and {c}"
    return rng.choice([f"{a}, {b} and {c} in a row", f"{a}, {b} and {c} from left to right",
                       f"{a} left of {b} left of {c}", f"a row of {a}, {b} and {c}"])


def _say_many(rng: random.Random, s: Scene) -> str:
    number = rng.choice(NUMBERS[s.count])
    said = f"{number} {_words(rng, s.things[0], plural=True)}"
    if s.relation == "row":
        said += rng.choice([" in a row", " in a row", " side by side"])
    elif s.relation == "column":
        said += rng.choice([" in a column", " on top of each other"])
    elif len(s.things) > s.count:
        other = _say(rng, s.things[-1])
        said = f"{said} and {other}" if rng.random() < 0.7 else f"{other} and {said}"
    return said


def _say_scenery(rng: random.Random, s: Scene) -> str:
    n = s.detail["n"]
    front, above = s.things[:n], s.things[n:]
    if n == 2 and rng.random() < 0.6:
        word = rng.choice(RELATIONS["left" if front[0].x < front[1].x else "right"])
        said = f"{_say(rng, front[0])} {word} {_say(rng, front[1])}"
    elif n == 2 and front[0].kind == front[1].kind and front[0].paint == front[1].paint:
        said = "two " + _words(rng, front[0], plural=True)
    else:
        said = " and ".join(_say(rng, t) for t in front)
    ground = rng.choice(GROUNDS[s.ground or "meadow"])
    sky = rng.choice(SKIES[s.sky or "day"])
    parts = [said, ground] + ([sky] if sky else [])
    if rng.random() < 0.12:
        parts = [sky + "," if sky else "", said, ground]
    if above:
        body = above[0]
        words = _words(rng, body)
        up = rng.choice(["with ", "and ", "under "]) + rng.choice(
            ["the ", "a "] if not body.colour else ["a "]) + words
        if body.place:
            up = rng.choice(["with ", "and "]) + "a " + words + " " + rng.choice(
                PLACES[body.place][1])
        parts.append(up)
    return " ".join(p for p in parts if p)


def _say_night(rng: random.Random, s: Scene) -> str:
    moon = _say(rng, s.things[0])
    return rng.choice([f"a night sky with {moon} and stars", f"{moon} and stars at night",
                       f"{moon} in the night sky", "the night sky", f"{moon} and many stars",
                       f"stars and {moon} in a dark sky"])


def _with_background(rng: random.Random, said: str, background: str | None) -> str:
    if not background:
        return said
    tone, _, colour = background.rpartition(" ")
    words = (tone + " " if tone else "") + _colour_word(rng, colour)
    a = "an" if words[0] in "aeiou" else "a"
    if rng.random() < 0.06:
        return f"{words} background, {said}"
    return said + rng.choice([f" on {a} {words} background"] * 6 +
                             [f" with {a} {words} background", f" on {words}",
                              f", {words} background", f" in front of {a} {words} background",
                              f" on {words} background", f" on {a} {words} ground"])


def describe(s: Scene, rng: random.Random, plain: bool = False) -> str:
    """One sentence. plain: without the words around it that say nothing about the picture."""
    if s.layout == "one":
        t = s.things[0]
        said = _say(rng, t)
        if t.place:
            where = rng.choice(PLACES[t.place][1])
            said = f"{said} {where}" if rng.random() < 0.9 else f"{where}, {said}"
    elif s.layout == "inside":
        a, b = s.things
        said = rng.choice(["{} inside {}", "{} in {}", "{} within {}"]).format(
            _say(rng, a), _say(rng, b))
    else:
        said = {"pair": _say_pair, "few": _say_few, "row": _say_row, "between": _say_row,
                "many": _say_many, "scenery": _say_scenery, "night": _say_night}[s.layout](rng, s)
    said = _with_background(rng, said, s.background)
    if plain:
        return said
    said = rng.choice(LEADS) + said + rng.choice(TAILS)
    if rng.random() < 0.03:  # words the model has never heard of mean nothing
        strange = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(
            2, 9)))
        parts = said.split(" ")
        parts.insert(rng.randrange(len(parts) + 1), strange)
        said = " ".join(parts)
    return said
