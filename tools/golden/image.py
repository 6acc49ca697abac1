#!/usr/bin/env python3
"""Small picture files of every kind we read, and what ComfyUI's LoadImage makes of them with
Pillow.

usage: image.py FOLDER      (needs Pillow and numpy; written with Pillow 13.0.0, numpy 2.4.6)

Writes the files, index.txt with one line a file
    name format width height frames alpha
and expected.bin: for every file of the index in order, for every frame, RGBA rows (alpha 255 where
LoadImage has no mask). The C test reads them; it does not need Python.

Where Pillow changed after ComfyUI's code was written (16-bit grey is 'I;16' now, and white above
255), the expectation is what that code says: value / 255 without its fraction, cut at 255.
"""

import io
import os
import struct
import sys
import zlib

import numpy as np
from PIL import Image, ImageOps, ImageSequence, PngImagePlugin

W, H = 13, 9
rng = np.random.default_rng(4)


def smooth(h=H, w=W, c=3, phase=0.0):
    y, x = np.mgrid[0:h, 0:w]
    k = np.arange(c)
    v = np.sin(x[..., None] * (0.4 + 0.1 * k) + phase) + np.cos(
        y[..., None] * (0.5 - 0.1 * k) + phase
    )
    return np.clip(127.5 + 60 * v, 0, 255).astype(np.uint8)


def noise(h=H, w=W, c=3):
    return rng.integers(0, 256, (h, w, c), dtype=np.uint8)


# ---- PNG files that Pillow does not write ----


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(a, bits):
    """a: [h, w, samples] of numbers -> list of rows of bytes"""
    rows = []
    for row in a:
        if bits == 16:
            rows.append(row.astype(">u2").tobytes())
        elif bits == 8:
            rows.append(row.astype(np.uint8).tobytes())
        else:
            flat, out, per = row.reshape(-1), bytearray(), 8 // bits
            for i in range(0, len(flat), per):
                v = 0
                for k in range(per):
                    v = v << bits | (int(flat[i + k]) if i + k < len(flat) else 0)
                out.append(v)
            rows.append(bytes(out))
    return rows


def png(a, color, bits, before=(), after=(), interlace=False):
    h, w = a.shape[:2]
    adam7 = [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ]
    parts = [a[y::dy, x::dx] for x, y, dx, dy in adam7] if interlace else [a]
    raw = b"".join(b"\0" + r for p in parts if p.size for r in pack_rows(p, bits))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, bits, color, 0, 0, interlace))
        + b"".join(before)
        + chunk(b"IDAT", zlib.compress(raw, 9))
        + b"".join(after)
        + chunk(b"IEND", b"")
    )


def exif(orientation, big=False):
    e = ">" if big else "<"
    return (
        (b"MM\0*" if big else b"II*\0")
        + struct.pack(e + "I", 8)
        + struct.pack(e + "H", 2)
        + struct.pack(e + "HHI4s", 0x10F, 2, 4, b"abc\0")
        + struct.pack(e + "HHIHH", 0x112, 3, 1, orientation, 0)
        + struct.pack(e + "I", 0)
    )


def saved(im, kind, **kw):
    b = io.BytesIO()
    im.save(b, kind, **kw)
    return b.getvalue()


# ---- BMP files that Pillow does not write ----


def bmp(w, h, bits, compression, body, palette=b"", masks=b"", header=40):
    info = struct.pack(
        "<IiiHHIIiiII", header, w, h, 1, bits, compression, len(body), 0, 0, len(palette) // 4, 0
    )
    head = info + masks + b"\0" * (header - 40 - len(masks) if header > 40 else 0)
    off = 14 + len(head) + len(palette)
    return b"BM" + struct.pack("<IHHI", off + len(body), 0, 0, off) + head + palette + body


def bmp_rows(a, bits):
    return b"".join(r + b"\0" * (-len(r) % 4) for r in pack_rows(a[..., None], bits))


# ---- TIFF files that Pillow does not write ----


def tiff(a, photometric, bits=8, big=False, planes=False, tile=0, extra=(), more=()):
    """a: [h, w, samples] of numbers; in one strip, or one a plane, or in tiles of tile x tile"""
    e, (h, w, n) = ">" if big else "<", a.shape
    kind = {8: "u1", 16: e + "u2", 32: e + "u4"}.get(bits)
    pieces = [a[..., k : k + 1] for k in range(n)] if planes else [a]
    if tile:
        whole = [np.pad(p, ((0, -h % tile), (0, -w % tile), (0, 0))) for p in pieces]
        pieces = [
            p[y : y + tile, x : x + tile]
            for p in whole
            for y in range(0, h, tile)
            for x in range(0, w, tile)
        ]
    data = [p.astype(kind).tobytes() if kind else b"".join(pack_rows(p, bits)) for p in pieces]
    tags = [
        (256, "I", [w]),
        (257, "I", [h]),
        (258, "H", [bits] * n),
        (259, "H", [1]),
        (262, "H", [photometric]),
        (277, "H", [n]),
        (284, "H", [2 if planes else 1]),
        *more,
    ]
    tags += [(338, "H", list(extra))] if extra else []
    at, offsets = 8, []
    for d in data:
        offsets.append(at)
        at += len(d)
    sizes = [len(d) for d in data]
    tags += (
        [(322, "I", [tile]), (323, "I", [tile]), (324, "I", offsets), (325, "I", sizes)]
        if tile
        else [(273, "I", offsets), (278, "I", [h]), (279, "I", sizes)]
    )
    body, tail = b"".join(data), b""
    body += b"\0" * (len(body) % 2)
    ifd, after = struct.pack(e + "H", len(tags)), 8 + len(body) + 2 + 12 * len(tags) + 4
    for tag, code, values in sorted(tags):
        v = struct.pack(e + str(len(values)) + code, *values)
        if len(v) > 4:
            tail, v = tail + v, struct.pack(e + "I", after + len(tail))
        ifd += struct.pack(e + "HHI", tag, {"H": 3, "I": 4}[code], len(values)) + v.ljust(4, b"\0")
    return (
        (b"MM\0*" if big else b"II*\0")
        + struct.pack(e + "I", 8 + len(body))
        + body
        + ifd
        + b"\0\0\0\0"
        + tail
    )


def tiffs(rgb, rgba, grey, idx, wide):
    im = Image.fromarray(rgb)
    yield "grey1.tif", saved(Image.fromarray(grey > 127), "TIFF")
    yield "grey1_g4.tif", saved(Image.fromarray(grey > 127), "TIFF", compression="group4")
    yield "grey8.tif", saved(Image.fromarray(grey), "TIFF")
    yield "greyalpha8.tif", saved(
        Image.merge("LA", [Image.fromarray(rgba[..., k]) for k in (0, 3)]), "TIFF"
    )
    for packing in ("raw", "tiff_lzw", "tiff_deflate", "tiff_adobe_deflate", "packbits"):
        yield f"rgb8_{packing}.tif", saved(im, "TIFF", compression=packing)
    yield "rgb8_jpeg.tif", saved(
        Image.fromarray(smooth(32, 48)), "TIFF", compression="jpeg", quality=90
    )
    yield "rgba8.tif", saved(Image.fromarray(rgba), "TIFF")
    yield "palette8.tif", saved(im.quantize(16), "TIFF")
    yield "cmyk8.tif", saved(Image.fromarray(smooth(c=4), "CMYK"), "TIFF")
    yield "float32.tif", saved(
        Image.fromarray(np.linspace(-20, 300, H * W, dtype=np.float32).reshape(H, W)), "TIFF"
    )
    for o in (3, 6, 7):
        yield f"rgb8_turned{o}.tif", saved(im, "TIFF", exif=exif(o))
    pages = [Image.fromarray(np.roll(rgb, i, 0)) for i in range(3)]
    yield "pages.tif", saved(
        pages[0], "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw"
    )
    for bits in (2, 4):
        yield f"grey{bits}.tif", tiff(idx % (1 << bits), 1, bits)
    yield "white_is_0.tif", tiff(grey[..., None], 0)
    for big in (False, True):
        yield f"grey16{'_big' * big}.tif", tiff(wide[..., :1], 1, 16, big)
        yield f"rgb16{'_big' * big}.tif", tiff(wide[..., :3], 2, 16, big)
    yield "rgba16.tif", tiff(wide, 2, 16, extra=[2])
    yield "rgb_and_more.tif", tiff(rgba, 2, extra=[0])
    yield "rgba_unsaid.tif", tiff(rgba, 2)
    yield "rgba_premultiplied.tif", tiff(rgba, 2, extra=[1])
    yield "planes.tif", tiff(rgb, 2, planes=True)
    yield "tiles.tif", tiff(noise(35, 21), 2, tile=16)
    yield "tiles_planes.tif", tiff(noise(21, 35), 2, tile=16, planes=True)
    yield "palette4.tif", tiff(idx, 3, 4, more=[(320, "H", list(range(0, 48 * 1300, 1300)))])


def files():
    rgb, rgba, grey = smooth(), noise(c=4), smooth(c=1)[..., 0]
    pal = rng.integers(0, 256, 48, dtype=np.uint8).tobytes()
    idx = rng.integers(0, 16, (H, W, 1))
    plte, trns = chunk(b"PLTE", pal), chunk(b"tRNS", bytes([0, 128, 255, 7]))
    wide = rng.integers(0, 65536, (H, W, 4))
    wide[0, :6, 0] = [0, 254, 255, 256, 65024, 65535]
    for bits in (1, 2, 4, 8):
        yield f"grey{bits}.png", png(rng.integers(0, 1 << bits, (H, W, 1)), 0, bits)
        yield f"palette{bits}.png", png(
            idx % (1 << bits), 3, bits, [chunk(b"PLTE", pal[: 3 << bits])]
        )
    yield "grey16.png", png(wide[..., :1], 0, 16)
    yield "greyalpha8.png", png(noise(c=2), 4, 8)
    yield "greyalpha16.png", png(wide[..., :2], 4, 16)
    yield "rgb8.png", png(rgb, 2, 8)
    yield "rgb16.png", png(wide[..., :3], 2, 16)
    yield "rgba8.png", png(rgba, 6, 8)
    yield "rgba16.png", png(wide, 6, 16)
    yield "palette4_trns.png", png(idx, 3, 4, [plte, trns])
    yield "palette8_interlaced_trns.png", png(idx, 3, 8, [plte, trns], interlace=True)
    yield "grey1_interlaced.png", png(rng.integers(0, 2, (H, W, 1)), 0, 1, interlace=True)
    yield "grey16_interlaced.png", png(wide[..., :1], 0, 16, interlace=True)
    yield "rgba8_interlaced.png", png(rgba, 6, 8, interlace=True)
    yield "rgb8_interlaced_1x1.png", png(rgb[:1, :1], 2, 8, interlace=True)
    yield "rgb8_key.png", png(
        rgb, 2, 8, [chunk(b"tRNS", struct.pack(">HHH", *map(int, rgb[0, 0])))]
    )
    yield "rgb8_exif5.png", png(rgb, 2, 8, [chunk(b"eXIf", exif(5))])
    yield "rgb8_exif8_after.png", png(rgb, 2, 8, after=[chunk(b"eXIf", exif(8, True))])
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    yield "rgb8_xmp6.png", png(rgb, 2, 8, [chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)])
    text = [
        chunk(b"tEXt", b'prompt\0{"1": "caf\xe9"}'),
        chunk(b"zTXt", b"packed\0\0" + zlib.compress(b"x" * 100 + b"\xe4")),
        chunk(b"iTXt", b"wide\0\0\0\0\0" + "€ ü".encode()),
        chunk(b"iTXt", b"widepacked\0\1\0de\0breit\0" + zlib.compress("ж".encode() * 9)),
    ]
    yield "text.png", png(grey[..., None], 0, 8, text[:2], text[2:])
    yield "pillow.png", saved(Image.fromarray(rgba), "PNG", compress_level=4)

    frames = [Image.fromarray(noise(c=4)) for _ in range(4)]
    for f in frames[1:]:
        f.paste((0, 0, 0, 0), (0, 0, 4, 5))
    opaque = []
    for i in range(4):
        f = Image.fromarray(smooth())
        f.paste((250, 10 * i, 3), (i, i, i + 4, i + 3))
        opaque.append(f)
    for n, (blend, dispose) in {
        "a": (0, 0),
        "b": (0, [0, 1, 0, 1]),
        "c": (0, [0, 2, 2, 0]),
    }.items():
        yield f"apng_{n}.png", saved(
            frames[0],
            "PNG",
            save_all=True,
            append_images=frames[1:],
            duration=[100, 200, 50, 70],
            blend=blend,
            disposal=dispose,
        )
    binary = []
    for i in range(3):  # over: alpha 0 or 255, where everybody agrees on the arithmetic
        a = noise(c=4)
        a[..., 3] = np.where(a[..., 3] > 127, 255, 0)
        binary.append(Image.fromarray(a))
    yield "apng_over.png", saved(
        binary[0], "PNG", save_all=True, append_images=binary[1:], duration=100, blend=1
    )
    yield "apng_rgb.png", saved(
        opaque[0], "PNG", save_all=True, append_images=opaque[1:], duration=100
    )
    yield "apng_default.png", saved(
        opaque[3], "PNG", save_all=True, append_images=opaque[:3], duration=100, default_image=True
    )

    for q, sub in ((90, 0), (75, 2)):
        yield f"rgb_{sub}.jpg", saved(
            Image.fromarray(smooth(19, 21)), "JPEG", quality=q, subsampling=sub
        )
    yield "grey.jpg", saved(Image.fromarray(grey), "JPEG")
    yield "progressive.jpg", saved(Image.fromarray(rgb), "JPEG", progressive=True)
    cmyk = saved(Image.fromarray(smooth(c=4), "CMYK"), "JPEG", quality=95)
    yield "cmyk.jpg", cmyk
    at = cmyk.index(b"Adobe")
    yield "ycck.jpg", cmyk[: at + 11] + b"\2" + cmyk[at + 12 :]
    for o in range(1, 9):
        yield f"exif{o}.jpg", saved(
            Image.fromarray(rgb), "JPEG", exif=b"Exif\0\0" + exif(o, o % 2 == 0)
        )

    yield "lossless.webp", saved(Image.fromarray(rgb), "WEBP", lossless=True)
    yield "lossless_alpha.webp", saved(Image.fromarray(rgba), "WEBP", lossless=True, exact=True)
    yield "lossy.webp", saved(Image.fromarray(rgb), "WEBP", quality=80)
    yield "lossy_alpha.webp", saved(Image.fromarray(smooth(c=4)), "WEBP", quality=80)
    yield "exif3.webp", saved(
        Image.fromarray(rgb), "WEBP", lossless=True, exif=b"Exif\0\0" + exif(3)
    )
    yield "anim.webp", saved(
        opaque[0],
        "WEBP",
        save_all=True,
        append_images=opaque[1:],
        duration=[40, 80, 120, 60],
        lossless=True,
    )
    yield "anim_alpha.webp", saved(
        frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=90, lossless=True
    )

    few = [f.quantize(8) for f in opaque]
    yield "still.gif", saved(few[0], "GIF", interlace=0)
    yield "interlaced.gif", saved(Image.fromarray(noise(29, 5)).quantize(200), "GIF", interlace=1)
    yield "clear.gif", saved(few[0], "GIF", transparency=int(np.array(few[0])[0, 0]))
    yield "anim.gif", saved(
        few[0], "GIF", save_all=True, append_images=few[1:], duration=[100, 200, 50, 70], loop=0
    )
    yield "long.gif", saved(
        Image.fromarray(noise(70, 90)).quantize(256), "GIF"
    )  # the table of codes fills up
    cut = []
    for i in range(3):
        p = Image.fromarray(noise(c=1)[..., 0] % 8, "P")
        p.putpalette(pal[:24])
        cut.append(p)
    for d in (1, 2, 3):
        yield f"anim_clear{d}.gif", saved(
            cut[0],
            "GIF",
            save_all=True,
            append_images=cut[1:],
            duration=100,
            transparency=3,
            disposal=d,
            optimize=False,
        )

    yield "rgb.bmp", saved(Image.fromarray(rgb), "BMP")
    yield "grey.bmp", saved(Image.fromarray(grey), "BMP")
    yield "bits1.bmp", saved(Image.fromarray(grey > 127), "BMP")
    bpal = b"".join(pal[3 * i : 3 * i + 3] + b"\0" for i in range(16))
    flat = idx[..., 0]
    yield "palette4.bmp", bmp(W, H, 4, 0, bmp_rows(flat[::-1], 4), bpal)
    yield "palette8_top.bmp", bmp(W, -H, 8, 0, bmp_rows(flat, 8), bpal)
    v16, v32 = rng.integers(0, 65536, (H, W)), rng.integers(0, 1 << 32, (H, W))
    rows16 = b"".join(r.astype("<u2").tobytes() + b"\0\0" * (W % 2) for r in v16)
    rows32 = v32.astype("<u4").tobytes()
    yield "bits16.bmp", bmp(W, H, 16, 0, rows16)
    yield "bits16_565.bmp", bmp(W, H, 16, 3, rows16, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
    yield "bits32.bmp", bmp(W, H, 32, 0, rows32)
    yield "bits32_alpha.bmp", bmp(
        W,
        H,
        32,
        3,
        rows32,
        header=56,
        masks=struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000),
    )
    # repeated, verbatim (odd: padded), the rest of a line skipped, a jump
    rle8 = (
        b"\5\1\0\3\2\3\4\0\5\7\0\0"
        + b"\0\2\3\1"
        + b"\4\6\6\2\0\0"
        + b"".join(b"\x0d%c\0\0" % i for i in range(6))
        + b"\0\1"
    )
    yield "rle8.bmp", bmp(W, H, 8, 1, rle8, bpal)
    rle4 = (
        b"\5\x12\0\5\x34\x56\x70\0\3\x89\0\0"
        + b"\0\2\2\1"
        + b"\x0b\xab\0\0"
        + b"\x0d\x5c\0\0" * 6
        + b"\0\1"
    )
    yield "rle4.bmp", bmp(W, H, 4, 2, rle4, bpal)

    yield "text1.pbm", b"P1\n# a comment\n5 2\n1 0 1 0 1\n01010\n"
    yield "bytes4.pbm", b"P4 10 2\n" + bytes([0xA5, 0x40, 0x0F, 0x80])
    yield "text2.pgm", b"P2 3 2 100\n0 50 100 # half\n 1 2 99\n"
    yield "bytes5.pgm", b"P5 4 2 255\n" + bytes(range(0, 240, 30))
    yield "bytes5_wide.pgm", b"P5 3 1 1000\n" + struct.pack(">HHH", 0, 500, 1000)
    yield "text3.ppm", b"P3\n2 1\n15\n0 7 15  3 4 5\n"
    yield "bytes6.ppm", b"P6 13 9 255\n" + rgb.tobytes()
    yield "bytes6_wide.ppm", b"P6 2 1 65535\n" + struct.pack(">6H", 0, 256, 65535, 128, 129, 1000)
    yield from tiffs(rgb, rgba, grey, idx, wide)


def load_image(data):
    """LoadImage: frames as RGBA, and whether there is a mask."""
    img = Image.open(io.BytesIO(data))
    out, alpha = [], False
    for i in ImageSequence.Iterator(img):
        i = ImageOps.exif_transpose(i)
        if i.mode.startswith("I;16"):
            i = i.convert("I")
        if i.mode == "I":
            i = i.point(lambda v: v * (1 / 255))
        rgb = np.array(i.convert("RGB"))
        mask = np.full(rgb.shape[:2], 255, np.uint8)
        if "A" in i.getbands():
            mask, alpha = np.array(i.getchannel("A")), True
        elif i.mode == "P" and "transparency" in i.info:
            mask, alpha = np.array(i.convert("RGBA").getchannel("A")), True
        out.append(np.dstack([rgb, mask]))
        if img.format == "MPO":
            break
    return img.format, out, alpha


def main(folder):
    os.makedirs(folder, exist_ok=True)
    names = {
        "PNG": "png",
        "JPEG": "jpeg",
        "MPO": "jpeg",
        "WEBP": "webp",
        "GIF": "gif",
        "BMP": "bmp",
        "PPM": "pnm",
        "TIFF": "tiff",
    }
    with open(f"{folder}/index.txt", "w") as index, open(
        f"{folder}/expected.bin", "wb"
    ) as expected:
        for name, data in files():
            with open(f"{folder}/{name}", "wb") as f:
                f.write(data)
            kind, frames, alpha = load_image(data)
            h, w = frames[0].shape[:2]
            index.write(f"{name} {names[kind]} {w} {h} {len(frames)} {int(alpha)}\n")
            for f in frames:
                assert f.shape == (h, w, 4), name
                expected.write(f.tobytes())


if __name__ == "__main__":
    main(sys.argv[1])
