"""POST /upload/image and /upload/mask (comfyui-api.md 8.3, 8.4)."""

import json
import os
import resource

import pytest

import pngs

BOUNDARY = "----berth-test"


def upload(server, name="x.png", data=b"data", path="/upload/image", files=None, **fields):
    files = files if files is not None else {"image": (name, data, "image/png")}
    return server.post(path, files=files, data=fields)


def ok(r):
    assert r.status_code == 200, (r.status_code, r.text)
    return r.json()


def content(server, *path):
    with open(os.path.join(server.base, *path), "rb") as f:
        return f.read()


def raw_upload(server, body, path="/upload/image", boundary=BOUNDARY, **kw):
    return server.post(
        path, data=body, headers={"Content-Type": f"multipart/form-data; boundary={boundary}"}, **kw
    )


def part(name, data, filename=None):
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'
    if filename is not None:
        head += f'; filename="{filename}"'
    return head.encode() + b"\r\n\r\n" + data + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()


def leftovers(server):
    return [
        os.path.join(d, f)
        for kind in ("input", "output", "temp")
        for d, _, names in os.walk(os.path.join(server.base, kind))
        for f in names
        if f.startswith(".")
    ]


def test_plain(server):
    assert ok(upload(server, "plain.png", b"bytes")) == {
        "name": "plain.png",
        "subfolder": "",
        "type": "input",
    }
    assert content(server, "input", "plain.png") == b"bytes"
    assert (
        ok(server.post("/api/upload/image", files={"image": ("second.png", b"2")}))["name"]
        == "second.png"
    )
    assert server.get("/view?filename=plain.png&type=input").content == b"bytes"


def test_folders_that_no_listing_would_show(server):
    assert ok(upload(server, subfolder="/".join(["d"] * 64)))
    assert upload(server, subfolder="/".join(["d"] * 65)).status_code == 400


def test_places(server):
    assert ok(upload(server, "p.png", b"t", type="temp", subfolder="a/b")) == {
        "name": "p.png",
        "subfolder": "a/b",
        "type": "temp",
    }
    assert content(server, "temp", "a", "b", "p.png") == b"t"
    assert ok(upload(server, "p.png", b"o", type="output"))["type"] == "output"
    assert content(server, "output", "p.png") == b"o"
    assert ok(upload(server, "n.png", b"n", subfolder="x/../y/."))["subfolder"] == "x/../y/."
    assert content(server, "input", "y", "n.png") == b"n"
    assert not os.path.exists(os.path.join(server.base, "input", "x"))


def test_any_kind_of_file(server):
    for name in (
        "s.wav",
        "v.mp4",
        "m.glb",
        "t.txt",
        "l.latent",
        "d.json",
        "noext",
        "ümlaut ☃.png",
        "a%22b.png",
    ):
        assert ok(upload(server, name, b"x"))["name"] == name.replace("%22", '"')
    assert os.path.exists(os.path.join(server.base, "input", "ümlaut ☃.png"))


def test_names_that_are_taken(server):
    assert ok(upload(server, "same.tar.png", b"one"))["name"] == "same.tar.png"
    assert ok(upload(server, "same.tar.png", b"one"))["name"] == "same.tar.png"
    assert ok(upload(server, "same.tar.png", b"two"))["name"] == "same.tar (1).png"
    assert ok(upload(server, "same.tar.png", b"two"))["name"] == "same.tar (1).png"
    assert ok(upload(server, "same.tar.png", b"three"))["name"] == "same.tar (2).png"
    assert ok(upload(server, "noext2", b"1"))["name"] == "noext2"
    assert ok(upload(server, "noext2", b"2"))["name"] == "noext2 (1)"
    names = sorted(
        n for n in os.listdir(os.path.join(server.base, "input")) if n.startswith("same")
    )
    assert names == ["same.tar (1).png", "same.tar (2).png", "same.tar.png"]


@pytest.mark.parametrize(
    "value,replaces",
    [("true", True), ("1", True), ("false", False), ("yes", False), ("True", False)],
)
def test_overwrite(server, value, replaces):
    name = f"over-{value}.png"
    upload(server, name, b"old")
    got = ok(upload(server, name, b"newer", overwrite=value))["name"]
    assert (got == name) == replaces
    assert content(server, "input", name) == (b"newer" if replaces else b"old")


def test_empty_file(server):
    assert ok(upload(server, "zero.png", b""))["name"] == "zero.png"
    assert content(server, "input", "zero.png") == b""


def test_fields_before_and_behind_the_file(server):
    body = (
        part("type", b"output")
        + part("image", b"fields", "order.png")
        + part("subfolder", b"s")
        + part("other", b"x")
        + END
    )
    assert ok(raw_upload(server, body)) == {"name": "order.png", "subfolder": "s", "type": "output"}
    assert content(server, "output", "s", "order.png") == b"fields"


def test_bytes_are_exact(server):
    data = (b"\r\n--" + BOUNDARY[:-1].encode() + b"\r\n\r\r\n--" + os.urandom(1000)) * 300
    assert ok(raw_upload(server, part("image", data, "exact.bin") + END))["name"] == "exact.bin"
    assert content(server, "input", "exact.bin") == data


def test_chunked(server):
    whole = part("image", b"c" * 100000, "chunked.bin") + END
    pieces = [whole[i : i + 777] for i in range(0, len(whole), 777)]
    assert ok(raw_upload(server, iter(pieces)))["name"] == "chunked.bin"
    assert content(server, "input", "chunked.bin") == b"c" * 100000


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "user"},
        {"type": "models"},
        {"type": ""},
        {"subfolder": ".."},
        {"subfolder": "/tmp"},
        {"subfolder": "a/../../b"},
        {"subfolder": "a\x01b"},
    ],
)
def test_wrong_places(server, fields):
    assert upload(server, "wrong.png", b"x", **fields).status_code == 400


@pytest.mark.parametrize(
    "name",
    ["../up.png", "/etc/up.png", "dir/up.png", "..", ".hidden.png", "c:\\up.png", "a\x02.png"],
)
def test_wrong_names(server, name):
    body = part("image", b"x", name) + END
    assert raw_upload(server, body).status_code == 400
    assert not os.path.exists(os.path.join(server.base, "up.png"))


@pytest.mark.parametrize(
    "name", ["x.html", "x.HTM", "x.js", "x.py", "x.sh", "x.exe", "x.so", "x.php", "x.pkl"]
)
def test_types_that_are_not_taken(server, name):
    assert upload(server, name, b"x").status_code == 415
    assert not os.path.exists(os.path.join(server.base, "input", name))


def test_links_lead_nowhere(server):
    outside = os.path.join(server.base, "outside")
    os.makedirs(outside, exist_ok=True)
    os.symlink(outside, os.path.join(server.base, "input", "door"))
    os.symlink(os.path.join(outside, "f.png"), os.path.join(server.base, "input", "filelink.png"))
    assert upload(server, "f.png", b"x", subfolder="door").status_code == 400
    assert upload(server, "filelink.png", b"x", overwrite="true").status_code == 400
    assert os.listdir(outside) == []


def test_not_a_file(server):
    assert upload(server, files={"other": ("x.png", b"x")}).status_code == 400
    assert raw_upload(server, END).status_code == 400
    assert raw_upload(server, part("image", b"x") + END).status_code == 400  # a plain field
    assert raw_upload(server, part("image", b"x", "") + END).status_code == 400
    os.makedirs(os.path.join(server.base, "input", "folder.png"), exist_ok=True)
    assert upload(server, "folder.png", b"x", overwrite="true").status_code == 400
    assert ok(upload(server, "folder.png", b"x"))["name"] == "folder (1).png"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--",
        part("image", b"x", "cut.png"),
        part("image", b"x", "cut.png")[:-1],
        b"--" + BOUNDARY.encode() + b"\r\nbroken\r\n\r\n" + END,
        b"no boundary at all",
    ],
)
def test_broken_bodies(server, body):
    assert raw_upload(server, body).status_code == 400
    assert not os.path.exists(os.path.join(server.base, "input", "cut.png"))


def test_wrong_content_type(server):
    for type_ in ("application/json", "multipart/form-data", "multipart/mixed; boundary=x", ""):
        r = server.post(
            "/upload/image",
            data=part("image", b"x", "ct.png") + END,
            headers={"Content-Type": type_},
        )
        assert r.status_code == 400


def test_too_many_parts_and_long_fields(server):
    assert raw_upload(server, part("a", b"x") * 65 + END).status_code == 413
    assert (
        raw_upload(
            server, part("subfolder", b"x" * 70000) + part("image", b"x", "l.png") + END
        ).status_code
        == 413
    )


def test_too_large(fresh):
    s = fresh("--max-upload-size", "1")
    assert upload(s, "big.bin", b"x" * (1 << 21)).status_code == 413
    assert ok(upload(s, "small.bin", b"x" * 1000))["name"] == "small.bin"
    assert os.listdir(os.path.join(s.base, "input")) == ["small.bin"]


def test_full_disk(fresh):
    """A limit on file sizes stands for a full disk here: the write fails in the middle."""
    limit = 300000

    def small_files():
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    s = fresh(preexec=small_files)
    r = upload(s, "big.bin", b"x" * (limit * 2))
    assert r.status_code in (503, 507), r.text
    assert os.listdir(os.path.join(s.base, "input")) == []
    assert ok(upload(s, "fits.bin", b"x" * 1000))["name"] == "fits.bin"


def test_client_that_leaves(server):
    body = part("image", b"x" * 1000, "left.png")
    head = (
        f"POST /upload/image HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: "
        f"100000\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    ).encode()
    server.raw(head + body, half_close=True)
    assert ok(upload(server, "after.png", b"x"))["name"] == "after.png"
    assert not os.path.exists(os.path.join(server.base, "input", "left.png"))


# ---- masks


def rgba(alpha, w=4, h=3, text=()):
    return pngs.write(
        w, h, 4, b"".join(bytes((i * 7 % 256, 100, 200, alpha(i))) for i in range(w * h)), text
    )


def mask(server, name, data, ref, **fields):
    return upload(server, name, data, path="/upload/mask", original_ref=json.dumps(ref), **fields)


def test_mask(server):
    original = pngs.write(4, 3, 3, bytes(range(36)), [("prompt", '{"a":1}'), ("workflow", "{}")])
    upload(server, "orig.png", original, type="output", subfolder="m")
    r = ok(
        mask(
            server,
            "mask.png",
            rgba(lambda i: i * 20),
            {"filename": "orig.png", "subfolder": "m"},
            type="input",
            subfolder="clipspace",
        )
    )
    assert r == {"name": "mask.png", "subfolder": "clipspace", "type": "input"}
    w, h, c, pixels, text = pngs.read(content(server, "input", "clipspace", "mask.png"))
    assert (w, h, c) == (4, 3, 4)
    assert pixels[3::4] == bytes(i * 20 for i in range(12))
    assert bytes(v for i, v in enumerate(pixels) if i % 4 != 3) == bytes(range(36))
    assert text == {"prompt": '{"a":1}', "workflow": "{}"}


def test_mask_of_an_annotated_original(server):
    upload(server, "ann.png", rgba(lambda i: 255), subfolder="clipspace")
    r = ok(
        mask(server, "ann-mask.png", rgba(lambda i: i), {"filename": "clipspace/ann.png [input]"})
    )
    assert pngs.read(content(server, "input", r["name"]))[3][3::4] == bytes(range(12))


def test_mask_without_an_original(server):
    r = ok(mask(server, "lonely.png", rgba(lambda i: 1), {"filename": "nobody.png"}))
    assert r["name"] == "lonely.png"
    assert not os.path.exists(os.path.join(server.base, "input", "lonely.png"))


@pytest.mark.parametrize(
    "ref,status",
    [
        ({}, 400),
        ({"filename": ""}, 400),
        ({"filename": "../secret.png"}, 400),
        ({"filename": "/etc/passwd"}, 400),
        ({"filename": "x.png", "type": "user"}, 400),
        ({"filename": "x.png", "subfolder": "../.."}, 403),
        ({"filename": "x.png", "subfolder": "/etc"}, 403),
        ([], 400),
        ("x", 400),
    ],
)
def test_mask_with_a_wrong_reference(server, ref, status):
    assert mask(server, "w.png", rgba(lambda i: 1), ref).status_code == status


def test_mask_that_does_not_fit(server):
    upload(server, "fit.png", rgba(lambda i: 255), type="output")
    assert (
        mask(server, "nofit.png", rgba(lambda i: 1, 5, 5), {"filename": "fit.png"}).status_code
        == 400
    )
    assert mask(server, "nofit.png", b"no picture", {"filename": "fit.png"}).status_code == 400
    assert (
        upload(server, "nofit.png", rgba(lambda i: 1), path="/upload/mask").status_code == 400
    )  # no reference at all
    assert not os.path.exists(os.path.join(server.base, "input", "nofit.png"))


def test_nothing_is_left_behind(server):
    assert leftovers(server) == []
