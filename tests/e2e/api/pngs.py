"""PNG files made and read without a library: 8 bits, grey, RGB or RGBA, all filters."""

import struct
import zlib

COLOR = {1: 0, 3: 2, 4: 6}
CHANNELS = {0: 1, 2: 3, 6: 4}


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def write(width, height, channels, pixels, text=()):
    """pixels: bytes, row after row."""
    rows = b"".join(
        b"\0" + pixels[y * width * channels : (y + 1) * width * channels] for y in range(height)
    )
    out = b"\x89PNG\r\n\x1a\n" + _chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, 8, COLOR[channels], 0, 0, 0)
    )
    for key, value in text:
        out += _chunk(b"tEXt", key.encode("latin-1") + b"\0" + value.encode("latin-1"))
    return out + _chunk(b"IDAT", zlib.compress(rows)) + _chunk(b"IEND", b"")


def _paeth(a, b, c):
    p = a + b - c
    return min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]


def read(data):
    """(width, height, channels, pixels, {key: text})"""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, text = 8, b"", {}
    while at < len(data):
        n, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + n]
        assert struct.unpack(">I", data[at + 8 + n : at + 12 + n])[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
            assert depth == 8 and body[12] == 0
            channels = CHANNELS[color]
        elif kind == b"IDAT":
            packed += body
        elif kind == b"tEXt":
            key, _, value = body.partition(b"\0")
            text[key.decode("latin-1")] = value.decode("latin-1")
        at += 12 + n
    raw, stride, out, above = (
        zlib.decompress(packed),
        width * channels,
        b"",
        bytes(width * channels),
    )
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(
            raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)]
        )
        for x in range(stride):
            left = line[x - channels] if x >= channels else 0
            corner = above[x - channels] if x >= channels else 0
            line[x] = (
                line[x]
                + (0, left, above[x], (left + above[x]) // 2, _paeth(left, above[x], corner))[kind]
            ) % 256
        above = bytes(line)
        out += above
    return width, height, channels, out, text
