"""A picture in 256 colours: screenshots are then a third as large, and hardly another picture.

The colours that most pixels have stay as they are, which are those of the page; the rest, of
pictures and of the edges of letters, share what is left: the box of colours whose pixels are
furthest from their mean is cut there."""

import struct
import zlib
from collections import Counter

COLOURS = 256
EXACT = 64  # of them: the commonest, unchanged


def _mean(box, axis):
    return sum(c[axis] * n for c, n in box) / sum(n for _, n in box)


def _spread(box):
    """(how far its pixels are from their mean along one channel, squared and added up; the channel
    where that is most)"""
    away = [
        sum(n * (c[i] - m) ** 2 for c, n in box) for i, m in ((i, _mean(box, i)) for i in range(3))
    ]
    return max(away), away.index(max(away))


def _cut(box):
    axis = _spread(box)[1]
    mean = _mean(box, axis)
    return [item for item in box if item[0][axis] <= mean], [
        item for item in box if item[0][axis] > mean
    ]


def _boxes(counts, most):
    boxes = [(_spread(counts)[0], counts)] if counts else []
    while 0 < len(boxes) < most:
        i = max(range(len(boxes)), key=lambda i: boxes[i][0] if len(boxes[i][1]) > 1 else -1.0)
        if len(boxes[i][1]) < 2:
            break
        boxes[i : i + 1] = [(_spread(half)[0], half) for half in _cut(boxes[i][1])]
    return [box for _, box in boxes]


def reduce(width, height, rgb):
    """The PNG of these pixels (bytes, row after row, three each) in 256 colours."""
    pixels = list(zip(rgb[0::3], rgb[1::3], rgb[2::3]))
    counts = Counter(pixels).most_common()
    palette = [c for c, _ in counts[:EXACT]]
    index = {c: i for i, c in enumerate(palette)}
    for box in _boxes(counts[EXACT:], COLOURS - len(palette)):
        index.update((c, len(palette)) for c, _ in box)
        palette.append(tuple(round(_mean(box, i)) for i in range(3)))
    plane = bytes(index[p] for p in pixels)
    rows = b"".join(b"\0" + plane[y * width : (y + 1) * width] for y in range(height))

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0))
        + chunk(b"PLTE", b"".join(bytes(c) for c in palette))
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )
