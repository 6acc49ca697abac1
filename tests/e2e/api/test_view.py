"""GET /view: which file, which bytes, which type (comfyui-api.md 8.2)."""

import os

import pytest

import pngs

RGBA = pngs.write(8, 6, 4, bytes((x * 9 + c * 50) % 256 for x in range(48) for c in range(4)))
RGB = pngs.write(8, 6, 3, bytes((x * 5 + c * 40) % 256 for x in range(48) for c in range(3)))


@pytest.fixture(scope="module", autouse=True)
def files(server):
    def put(path, data):
        full = os.path.join(server.base, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as f:
            f.write(data)

    put("output/a.png", RGBA)
    put("output/rgb.png", RGB)
    put("output/sub/b.png", RGB)
    put("output/movie.mp4", bytes(range(256)) * 8)
    put("output/broken.png", RGBA[:60])
    put("output/empty.png", b"")
    put("output/with space.txt", b"text")
    for name in ("p.html", "p.htm", "p.js", "p.css", "p.xhtml", "p.svg", "p.json", "noext"):
        put("output/" + name, b"<x>")
    put("input/in.png", RGB)
    put("temp/t.png", RGB)
    put("secret.txt", b"secret")
    os.symlink(
        os.path.join(server.base, "secret.txt"), os.path.join(server.base, "output", "link.txt")
    )
    os.symlink(server.base, os.path.join(server.base, "output", "out"))
    os.symlink("movie.mp4", os.path.join(server.base, "output", "other.webm"))


def view(server, query, **kw):
    return server.get("/view?" + query, **kw)


# ---- the file


def test_raw(server):
    r = view(server, "filename=a.png")
    assert (r.status_code, r.content, r.headers["Content-Type"]) == (200, RGBA, "image/png")
    assert r.headers["Content-Disposition"] == 'filename="a.png"'
    assert (
        r.headers["Accept-Ranges"] == "bytes"
        and "ETag" in r.headers
        and "Last-Modified" in r.headers
    )
    assert "Cache-Control" not in r.headers
    assert server.get("/api/view?filename=a.png&rand=0.5&t=1").content == RGBA


@pytest.mark.parametrize(
    "query",
    [
        "filename=in.png&type=input",
        "filename=in.png [input]",
        "filename=in.png%20[input]&type=output",
        "filename=in.png%20%5Binput%5D&type=nonsense",
        "filename=t.png&type=temp",
        "filename=b.png&subfolder=sub",
        "filename=b.png&subfolder=sub/../sub/.",
        "filename=deep/er/rgb.png",
        "filename=b.png&subfolder=sub&type=output",
    ],
)
def test_found(server, query):
    r = view(server, query)
    assert (r.status_code, r.content) == (200, RGB)


@pytest.mark.parametrize(
    "query,status",
    [
        ("", 404),
        ("type=output", 404),
        ("filename=none.png", 404),
        ("filename=sub", 404),
        ("filename=sub/", 404),
        ("filename=b.png", 404),
        ("filename=a.png&subfolder=none", 404),
        ("filename=", 400),
        ("filename=%20[input]", 400),
        ("filename=/etc/passwd", 400),
        ("filename=../secret.txt", 400),
        ("filename=a..png", 400),
        ("filename=..%2fsecret.txt", 400),
        ("filename=a.png&type=user", 400),
        ("filename=a.png&type=models", 400),
        ("filename=a.png&type=", 400),
        ("filename=secret.txt&subfolder=..", 403),
        ("filename=secret.txt&subfolder=sub/../..", 403),
        ("filename=passwd&subfolder=/etc", 403),
        ("filename=secret.txt&subfolder=%2e%2e", 403),
        ("filename=link.txt", 403),
        ("filename=secret.txt&subfolder=out", 403),
        ("filename=a%00.png", 404),
    ],
)
def test_not_found(server, query, status):
    r = view(server, query)
    assert (r.status_code, r.content) == (status, b"")


@pytest.mark.parametrize(
    "name,type_",
    [
        ("p.html", "application/octet-stream"),
        ("p.htm", "application/octet-stream"),
        ("p.js", "application/octet-stream"),
        ("p.css", "application/octet-stream"),
        ("p.xhtml", "application/octet-stream"),
        ("p.svg", "application/octet-stream"),
        ("p.json", "application/json"),
        ("noext", "application/octet-stream"),
        ("movie.mp4", "video/mp4"),
        ("with space.txt", "text/plain"),
    ],
)
def test_types(server, name, type_):
    r = server.get("/view", params={"filename": name})
    assert r.status_code == 200 and r.headers["Content-Type"].split(";")[0] == type_
    saved = "attachment; " if name.startswith("p.") and name != "p.json" else ""
    assert r.headers["Content-Disposition"] == f'{saved}filename="{name}"'
    assert r.headers["X-Content-Type-Options"] == "nosniff"
    assert r.headers.get("Cache-Control") == ("no-store" if saved else None)


def test_a_drawing_in_an_img(server):
    """There it runs no scripts; as a page of its own it would."""
    for dest, type_ in (
        ("image", "image/svg+xml"),
        ("document", "application/octet-stream"),
        ("iframe", "application/octet-stream"),
    ):
        r = server.get("/view", params={"filename": "p.svg"}, headers={"Sec-Fetch-Dest": dest})
        assert (r.headers["Content-Type"].split(";")[0], r.headers["Vary"]) == (
            type_,
            "Sec-Fetch-Dest",
        )
        assert ("attachment" in r.headers["Content-Disposition"]) == (dest != "image")
    r = server.get("/view", params={"filename": "p.html"}, headers={"Sec-Fetch-Dest": "image"})
    assert r.headers["Content-Type"] == "application/octet-stream"


def test_quotes_in_names(server):
    name = 'q"uo\\te.txt'
    with open(os.path.join(server.base, "output", name), "w") as f:
        f.write("x")
    r = server.get("/view", params={"filename": name})
    assert r.headers["Content-Disposition"] == 'filename="q\\"uo\\\\te.txt"'


def test_ranges(server):
    whole = bytes(range(256)) * 8
    r = view(server, "filename=movie.mp4", headers={"Range": "bytes=10-19"})
    assert (r.status_code, r.content, r.headers["Content-Range"]) == (
        206,
        whole[10:20],
        "bytes 10-19/2048",
    )
    r = view(server, "filename=movie.mp4", headers={"Range": "bytes=-5"})
    assert (r.status_code, r.content) == (206, whole[-5:])
    r = view(server, "filename=movie.mp4", headers={"Range": "bytes=5000-"})
    assert r.status_code == 416


def test_conditions(server):
    r = view(server, "filename=a.png")
    assert (
        view(server, "filename=a.png", headers={"If-None-Match": r.headers["ETag"]}).status_code
        == 304
    )
    assert (
        view(
            server, "filename=a.png", headers={"If-Modified-Since": r.headers["Last-Modified"]}
        ).status_code
        == 304
    )
    assert view(server, "filename=a.png", headers={"If-None-Match": '"other"'}).status_code == 200


# ---- pictures made of it


def kind(data):
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return {b"\xff\xd8": "image/jpeg", b"\x89P": "image/png"}[data[:2]]


@pytest.mark.parametrize(
    "query,type_",
    [
        ("preview=webp", "image/webp"),
        ("preview=jpeg", "image/jpeg"),
        ("preview=jpeg;50", "image/jpeg"),
        ("preview=png", "image/webp"),
        ("preview=", "image/webp"),
        ("preview=webp;90", "image/webp"),
        ("preview=jpeg&channel=rgba", "image/webp"),
        ("preview=jpeg&channel=a", "image/webp"),
        ("preview=jpeg&channel=rgb", "image/jpeg"),
        ("preview=webp;x;20", "image/webp"),
        ("preview=jpeg;9999", "image/jpeg"),
        ("channel=rgb", "image/png"),
        ("channel=a", "image/png"),
    ],
)
@pytest.mark.parametrize("name", ["a.png", "rgb.png"])
def test_conversions(server, query, type_, name):
    r = view(server, f"filename={name}&{query}")
    assert r.status_code == 200, r.text
    assert (r.headers["Content-Type"], kind(r.content)) == (type_, type_)
    assert r.headers["Content-Disposition"] == f'filename="{name}"'


def test_quality_counts(server):
    noise = pngs.write(64, 64, 3, os.urandom(64 * 64 * 3))
    with open(os.path.join(server.base, "output", "noise.png"), "wb") as f:
        f.write(noise)
    sizes = [
        len(view(server, f"filename=noise.png&preview={f};{q}").content)
        for f in ("jpeg", "webp")
        for q in (10, 95)
    ]
    assert sizes[0] < sizes[1] and sizes[2] < sizes[3]


def test_channels(server):
    width, height, channels, pixels, _ = pngs.read(RGBA)
    w, h, c, got, _ = pngs.read(view(server, "filename=a.png&channel=rgb").content)
    assert (w, h, c) == (8, 6, 3)
    assert got == bytes(v for i, v in enumerate(pixels) if i % 4 != 3)
    w, h, c, got, _ = pngs.read(view(server, "filename=a.png&channel=a").content)
    assert (w, h, c) == (8, 6, 4)
    assert got == b"".join(b"\0\0\0" + pixels[i + 3 : i + 4] for i in range(0, len(pixels), 4))
    w, h, c, got, _ = pngs.read(view(server, "filename=rgb.png&channel=a").content)
    assert got == b"\0\0\0\xff" * 48
    assert view(server, "filename=a.png&channel=rgba").content == RGBA
    assert view(server, "filename=a.png&channel=g").content == RGBA


@pytest.mark.parametrize("name", ["broken.png", "empty.png", "movie.mp4"])
def test_no_pictures(server, name):
    r = view(server, f"filename={name}&preview=webp")
    assert r.status_code == 400 and r.text
    assert view(server, f"filename={name}").status_code == 200


def test_head(server):
    import requests

    r = requests.head(server.url + "/view?filename=a.png", timeout=10)
    assert (r.status_code, r.content, r.headers["Content-Length"]) == (200, b"", str(len(RGBA)))


def test_a_link_has_its_own_name(server):
    """What was asked for is what is said, not what it leads to."""
    r = server.get("/view?filename=other.webm")
    assert r.status_code == 200 and len(r.content) == 2048
    assert r.headers["Content-Disposition"] == 'filename="other.webm"'
    assert r.headers["Content-Type"] == "video/webm"
