"""Clients that mean no good, or are broken. After each of them the server works for others."""

import json
import os
import resource
import select
import signal
import socket
import time

import pytest
import requests
import websocket

from conftest import PATIENCE, SANITIZED, Server, Socket, image_prompt, rss


@pytest.fixture(autouse=True)
def still_works(server):
    yield
    assert server.run(image_prompt(prefix="after"))["status"]["status_str"] == "success"


def head(server, path, *fields, method="GET"):
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *fields, "", ""]
    return "\r\n".join(lines).encode()


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


@pytest.mark.parametrize(
    "body",
    ["{", "", "nul", '{"prompt":}', '{"a":1,"a":2}', "\xff\xfe", '{"prompt":{}} x', '"\\u0000"'],
)
def test_malformed_json_is_400_and_says_where(server, body):
    r = requests.post(server.url + "/prompt", data=body.encode("latin-1"), timeout=PATIENCE)
    assert r.status_code == 400
    assert r.text


@pytest.mark.parametrize("text", ["[" * 10000 + "]" * 10000, '{"a":' * 10000 + "1" + "}" * 10000])
def test_deep_json_is_refused(server, text):
    r = requests.post(server.url + "/prompt", data='{"prompt":' + text + "}", timeout=PATIENCE)
    assert r.status_code == 400


def test_200_mb_body_is_413_without_being_read(server):
    before = rss(server.process.pid)
    size = 200 << 20
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as s:
        s.sendall(head(server, "/prompt", f"Content-Length: {size}", method="POST"))
        answer = s.recv(65536)
    assert status_of(answer) == 413
    # and in chunks, without having been told the size
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as s:
        s.sendall(head(server, "/prompt", "Transfer-Encoding: chunked", method="POST"))
        piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(200):
            s.sendall(piece)
            if select.select([s], [], [], 0)[0]:
                break  # as clients do that look up while they send
        answer = s.recv(65536)
    assert status_of(answer) == 413
    assert SANITIZED or rss(server.process.pid) - before < 160 << 20


@pytest.mark.parametrize("fields", [["Content-Length: 120000000"], ["Transfer-Encoding: chunked"]])
def test_413_is_read_by_clients_that_listen_late(server, fields):
    """They send all of it first. The answer waits for them, and no reset takes it back."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as s:
        s.sendall(head(server, "/prompt", *fields, method="POST"))
        for _ in range(120):
            s.sendall(
                b"f4240\r\n" + b" " * 1000000 + b"\r\n"
                if "chunked" in fields[0]
                else b" " * 1000000
            )
        answer = b""
        while b"exceeded" not in answer:
            piece = s.recv(65536)
            assert piece, answer
            answer += piece
    assert status_of(answer) == 413


def test_too_large_for_a_sink_is_413_and_names_no_folder(server):
    for path in ("/userdata/x.json", "/upload/image", "/prompt"):
        answer = server.raw(
            head(
                server,
                path,
                "Content-Length: 1000000000000000",
                "Content-Type: multipart/form-data; boundary=x",
                method="POST",
            )
        )
        assert status_of(answer) == 413, path
        assert server.base.encode() not in answer


def test_slow_clients_hold_nobody_and_are_dropped(server):
    """Heads that do not end (15 s), bodies that do not move (30 s), connections that say nothing
    (15 s), all at once, so that the wait is one. Meanwhile others are served."""
    slow = []
    for i in range(250):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        if i % 5 == 0:
            s.sendall(head(server, "/prompt", "Content-Length: 100000", method="POST") + b"{")
        elif i % 5 != 1:
            s.sendall(b"GET /prompt HTTP/1.1\r\nHost: localhost\r\nX-")
        slow.append(s)
    assert server.run(image_prompt())["status"]["completed"]
    dropped = set()
    end = time.time() + max(PATIENCE, 45)
    while len(dropped) < len(slow):
        assert time.time() < end, f"{len(slow) - len(dropped)} are still there"
        for s in slow:  # one byte at a time is no progress
            if s in dropped:
                continue
            try:
                s.send(b"a")
                if s in select.select([s], [], [], 0)[0] and s.recv(1000) == b"":
                    dropped.add(s)
            except OSError:
                dropped.add(s)
        assert server.get("/prompt").status_code == 200
        time.sleep(0.5)
    for s in slow:
        s.close()


def test_stop_does_not_wait_for_slow_clients(tmp_path):
    """A reader and a writer that keep moving, and one that does nothing: the end comes all the
    same."""
    s = Server(tmp_path / "base", "--grace", "1").start()
    os.makedirs(os.path.join(s.base, "output"), exist_ok=True)
    with open(os.path.join(s.base, "output", "big.bin"), "wb") as f:
        f.truncate(300 << 20)
    reader, writer = (
        socket.create_connection(("127.0.0.1", s.port), timeout=PATIENCE) for _ in range(2)
    )
    reader.sendall(head(s, "/view?filename=big.bin"))
    writer.sendall(head(s, "/userdata/x.json", "Content-Length: 50000000", method="POST"))
    reader.recv(1000)
    s.process.send_signal(signal.SIGTERM)
    end = time.time() + PATIENCE
    while s.process.poll() is None:
        assert time.time() < end, "it waits for them"
        try:
            reader.recv(8192)
            writer.send(b"x" * 2000)
        except OSError:
            pass
        time.sleep(0.05)
    assert s.process.returncode == 0
    s.stop()


def test_reader_that_does_not_read(server):
    """A client asks for much and reads nothing: bounded memory, and others are served."""
    path = os.path.join(server.base, "output", "large.bin")
    with open(path, "wb") as f:
        f.truncate(512 << 20)
    before = rss(server.process.pid)
    lazy = []
    for _ in range(8):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        s.sendall(head(server, "/view?filename=large.bin&type=output"))
        lazy.append(s)
    time.sleep(0.5)
    assert server.get("/prompt").status_code == 200
    assert SANITIZED or rss(server.process.pid) - before < 64 << 20
    for s in lazy:
        s.close()
    os.unlink(path)


def test_half_closed_and_reset(server):
    for _ in range(20):
        server.raw(
            head(server, "/prompt", "Content-Length: 10", method="POST") + b"{", half_close=True
        )
    for _ in range(20):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        s.sendall(head(server, "/object_info"))
        s.close()  # RST while the answer is on its way


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 100 + b"X\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        b"POST /prompt HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Length: 4\r\n\r\n0\r\n\r\n",
        b"POST /prompt HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(5000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA : b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200,
    ],
)
def test_garbage_is_answered_with_4xx_or_closed(server, data):
    answer = server.raw(data)
    assert answer == b"" or 400 <= status_of(answer) < 600, answer[:200]


SECRET = "the secret outside"
TRAVERSALS = [
    "../secret.txt",
    "..%2fsecret.txt",
    "..%252fsecret.txt",
    "%2e%2e/secret.txt",
    "....//secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "..\\secret.txt",
    "a/../../secret.txt",
    "secret.txt%00.png",
    "link.txt",
    "linkdir/secret.txt",
    "\u2025/secret.txt",
    ".%2e/secret.txt",
    "%c0%ae%c0%ae/secret.txt",
    "..;/secret.txt",
    "a" * 5000,
    ".",
    "..",
    "",
    " ",
    "con\nfig",
]


@pytest.fixture(scope="module")
def outside(server):
    """A file beside each folder, and links to it from inside."""
    with open(os.path.join(server.base, "secret.txt"), "w") as f:
        f.write(SECRET)
    for d in ("input", "output", "temp", "user/default"):
        folder = os.path.join(server.base, d)
        os.makedirs(folder, exist_ok=True)
        if not os.path.lexists(os.path.join(folder, "link.txt")):
            os.symlink(os.path.join(server.base, "secret.txt"), os.path.join(folder, "link.txt"))
            os.symlink(server.base, os.path.join(folder, "linkdir"))


@pytest.mark.parametrize("name", TRAVERSALS)
def test_paths_never_leave_their_folder(server, outside, name):
    quoted = name if "%" in name else requests.utils.quote(name, safe="")
    whole = name if "%" in name else requests.utils.quote(name, safe="/")
    for path in (
        f"/view?filename={quoted}",
        f"/view?filename=x.png&subfolder={quoted}",
        f"/view?filename=secret.txt&subfolder={quoted}",
        f"/view?filename={quoted}&type=temp",
        f"/userdata/{quoted}",
        f"/userdata?dir={quoted}",
        f"/v2/userdata?path={quoted}",
        f"/{whole}",
        f"/extensions/{whole}",
        f"/view_metadata/checkpoints?filename={quoted}",
        f"/models/{quoted}",
        f"/internal/files/{quoted}",
    ):
        answer = server.raw(head(server, path, "Connection: close"))
        assert SECRET.encode() not in answer and b"root:x:0" not in answer, path
        assert status_of(answer) is not None and status_of(answer) != 500, path
    r = requests.post(f"{server.url}/userdata/{quoted}", data=b"written", timeout=PATIENCE)
    assert r.status_code in (200, 400, 403, 404, 405, 409, 414), r.status_code
    r = requests.post(
        f"{server.url}/upload/image",
        timeout=PATIENCE,
        files={"image": (name, b"written", "image/png")},
        data={"subfolder": name},
    )
    assert r.status_code in (200, 400), r.text
    with open(os.path.join(server.base, "secret.txt")) as f:
        assert f.read() == SECRET
    assert not os.path.exists("/etc/passwd.png")
    inside = {
        os.path.realpath(os.path.join(server.base, d))
        for d in ("input", "output", "temp", "user", "models")
    }
    for entry in os.listdir(server.base):
        full = os.path.realpath(os.path.join(server.base, entry))
        assert entry in ("secret.txt", "custom_nodes") or full in inside, f"{entry} appeared"


@pytest.mark.parametrize(
    "prefix", ["../x", "/tmp/x", "a/../../x", "link.txt/x", "linkdir/x", "x" * 3000]
)
def test_saving_never_leaves_the_output_folder(server, outside, prefix):
    item = server.run(image_prompt(prefix=prefix))
    assert item["status"]["status_str"] == "error"
    assert any(m[0] == "execution_error" for m in item["status"]["messages"])


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "[::]", "lvh.me", "evil.example", "127.0.0.1.evil.example", "x", "[::1]"]
)
def test_wrong_origin_is_403_whatever_the_host(server, host):
    """It came to a loopback address; what a page makes its browser call it does not matter. Nor
    does it that page and host have the same name: names can be pointed here."""
    for origin in ("http://evil.example", f"http://evil.example:{server.port}", "null"):
        answer = server.raw(
            f"POST /interrupt HTTP/1.1\r\nHost: {host}:{server.port}\r\nOrigin: {origin}\r\n"
            "Connection: close\r\nContent-Length: 2\r\n\r\n{}".encode()
        )
        assert status_of(answer) == 403, (host, origin, answer)


@pytest.mark.parametrize(
    "host,status",
    [
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("127.0.0.1", 200),
        ("localhost", 200),
        (None, 200),
    ],
)
def test_names_that_were_pointed_here(server, host, status):
    """A page whose own name was pointed here sends its GETs without an Origin. Scripts may leave
    Host out."""
    line = f"Host: {host}:{server.port}\r\n" if host else ""
    version = "1.1" if host else "1.0"
    assert (
        status_of(
            server.raw(f"GET /history HTTP/{version}\r\n{line}Connection: close\r\n\r\n".encode())
        )
        == status
    )


@pytest.mark.parametrize("path", ["/prompt", "/ws", "/free", "/userdata/x", "/view"])
def test_wrong_origin_is_403(server, path):
    r = requests.request(
        "POST" if path in ("/free", "/prompt") else "GET",
        server.url + path,
        headers={"Origin": "http://evil.example"},
        json={},
        timeout=PATIENCE,
    )
    assert (r.status_code, r.content) == (403, b"")
    r = server.get("/prompt", headers={"Origin": f"http://127.0.0.1:{server.port}"})
    assert r.status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://127.0.0.1",
        "https://127.0.0.1",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:80",
        "http://localhost:{port}",
        "null",
    ],
)
def test_a_page_on_another_port_is_another_page(fresh, origin):
    """Browsers send the cookie to every port of a host: a page on port 80 neither posts nor listens
    with it."""
    s = fresh("--token", "correct horse")
    login = requests.get(s.url + "/?token=correct%20horse", timeout=PATIENCE)
    name, value = login.headers["Set-Cookie"].split(";")[0].split("=", 1)
    cookie, own = f"{name}={value}", f"http://127.0.0.1:{s.port}"
    for said, status in ((origin.format(port=s.port), 403), (own, 200)):
        r = requests.post(
            s.url + "/prompt",
            headers={"Cookie": cookie, "Origin": said},
            timeout=PATIENCE,
            json={"prompt": image_prompt()},
        )
        assert r.status_code == status, (said, r.text)
        if status == 200:
            Socket(s, "a", cookie=cookie, origin=said).close()
        else:
            with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
                Socket(s, "a", cookie=cookie, origin=said)


def test_token(fresh, tmp_path):
    s = fresh("--token", "correct horse")
    assert requests.get(s.url + "/prompt", timeout=PATIENCE).status_code == 401
    for wrong in (
        "Bearer wrong",
        "Bearer correct hors",
        "Bearer correct horse2",
        "Basic x",
        "Bearer",
        "correct horse",
    ):
        r = requests.get(s.url + "/prompt", headers={"Authorization": wrong}, timeout=PATIENCE)
        assert r.status_code == 401 and "WWW-Authenticate" in r.headers
    good = {"Authorization": "Bearer correct horse"}
    assert requests.get(s.url + "/prompt", headers=good, timeout=PATIENCE).status_code == 200
    with pytest.raises(Exception):
        Socket(s, "a")
    Socket(s, "a", header=["Authorization: Bearer correct horse"]).close()
    s.ws_url += "?token=correct%20horse"
    Socket(s, "").close()


def test_beyond_loopback_wants_a_token(tmp_path):
    s = Server(tmp_path / "base", "--listen", "0.0.0.0").start(wait=False)
    assert s.process.wait(PATIENCE) == 1
    assert "token" in s.errors()
    with Server(tmp_path / "base", "--listen", "0.0.0.0", "--insecure") as s:
        assert s.get("/prompt").status_code == 200


def test_full_disk_is_an_answer(tmp_path):
    """No file may grow beyond a limit: the same as a full disk, and it can be made without being
    root."""

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))

    with Server(tmp_path / "base", preexec=small_files) as s:
        first = s.run(image_prompt(width=16, height=16))
        assert first["status"]["status_str"] == "success"
        r = requests.post(
            s.url + "/upload/image",
            timeout=PATIENCE,
            files={"image": ("big.png", os.urandom(2_000_000), "image/png")},
        )
        assert r.status_code in (503, 507), r.text
        assert "big.png" not in os.listdir(os.path.join(s.base, "input"))
        r = requests.post(s.url + "/userdata/big.json", data=b"x" * 2_000_000, timeout=PATIENCE)
        assert r.status_code in (503, 507), r.text
        # saving a picture that does not fit: the prompt fails, nothing half is left
        noise = {
            "1": {"class_type": "LoadImage", "inputs": {"image": "noise.png"}},
            "2": {
                "class_type": "ImageScale",
                "inputs": {
                    "image": ["1", 0],
                    "upscale_method": "bicubic",
                    "width": 1500,
                    "height": 1500,
                    "crop": "disabled",
                },
            },
            "3": {
                "class_type": "SaveImage",
                "inputs": {"images": ["2", 0], "filename_prefix": "big"},
            },
        }
        with open(os.path.join(s.base, "input", "noise.png"), "wb") as f:
            f.write(noise_png())
        item = s.run(noise)
        assert item["status"]["status_str"] == "error", item["status"]
        assert not [x for x in os.listdir(os.path.join(s.base, "output")) if x.startswith("big")]
        # a queue that cannot grow: refused with an error, and what was accepted before is there
        big = image_prompt()
        big["1"]["inputs"]["note"] = "x" * 400_000
        codes = {s.post("/prompt", {"prompt": big}).status_code for _ in range(8)}
        assert codes <= {200, 500, 503, 507}, codes
        assert s.get("/prompt").status_code == 200


def noise_png(side=32):
    """Random RGB, by hand: no image library in the tests."""
    import struct
    import zlib

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + os.urandom(3 * side) for _ in range(side))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_limits_of_a_prompt(server):
    many = {str(i): {"class_type": "EmptyImage", "inputs": {}} for i in range(10001)}
    r = server.post("/prompt", {"prompt": many})
    assert r.status_code == 400 and "10000" in r.text
    chain = {
        "0": {
            "class_type": "EmptyImage",
            "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0},
        }
    }
    for i in range(1, 3000):
        chain[str(i)] = {"class_type": "ImageInvert", "inputs": {"image": [str(i - 1), 0]}}
    chain["end"] = {"class_type": "PreviewImage", "inputs": {"images": ["2999", 0]}}
    assert server.run(chain)["status"]["status_str"] == "success"


def test_empty_names_are_answered(server):
    """An error that quotes an empty name is an error like any other."""
    for path in ("/berth/queue", "/free", "/queue", "/history"):
        r = server.post(path, {"": 1})
        assert r.status_code < 500, (path, r.text)
    r = server.post("/berth/queue", {"": 1})
    assert r.status_code == 400 and "''" in r.json()["error"], r.text
    assert server.get("/prompt").status_code == 200


def test_full_queue_is_refused(fresh):
    s = fresh("--max-queue", "5")
    s.post("/berth/queue", {"paused": True})
    codes = [s.post("/prompt", {"prompt": image_prompt(i)}).status_code for i in range(8)]
    assert codes == [200] * 5 + [429] * 3
    s.post("/berth/queue", {"paused": False})
    s.until_idle()
    assert len(s.get("/history").json()) == 5
