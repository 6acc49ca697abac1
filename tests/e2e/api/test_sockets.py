"""Many WebSockets: thousands that only listen, and one that works."""

import base64
import os
import resource
import socket
import time

import pytest

from conftest import PATIENCE, image_prompt, rss

IDLE = 2000


def raise_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


class Refused(Exception):
    """An answer other than 101; it is the argument."""


class Plain(socket.socket):
    early = b""  # bytes of messages that came with the handshake


def plain_socket(server, client_id):
    """A handshake by hand: two thousand clients of a library would be the slow part."""
    s = Plain()
    s.settimeout(PATIENCE)
    s.connect(("127.0.0.1", server.port))
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall(
        f"GET /ws?clientId={client_id} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: "
        f"websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"\r\n".encode()
    )
    got = b""
    while b"\r\n\r\n" not in got:
        piece = s.recv(4096)
        assert piece, got
        got += piece
    if not got.startswith(b"HTTP/1.1 101"):
        s.close()
        raise Refused(got)
    s.early = got.partition(b"\r\n\r\n")[2]
    return s


def test_2000_idle_and_a_working_one(fresh):
    if raise_files() < IDLE + 100:
        pytest.skip(f"fewer than {IDLE + 100} open files allowed")
    server = fresh()
    before = rss(server.process.pid)
    idle = [plain_socket(server, f"idle-{i}") for i in range(IDLE)]
    cost = rss(server.process.pid) - before
    print(f"{IDLE} idle WebSockets: {cost / IDLE:.0f} bytes each")
    if "BERTH_SANITIZED" not in os.environ:
        assert cost < 40 << 20
    with server.ws("worker") as ws:
        pid = server.queue(image_prompt(), "worker")["prompt_id"]
        got = ws.until_done(pid)
        assert [m["type"] for m in got if m["type"] != "status"][-2:] == [
            "execution_success",
            "executing",
        ]
    # what all hear reached everybody: the first status, then one per change
    for s in idle[:: IDLE // 20]:
        s.settimeout(PATIENCE)
        got = s.early
        while got.count(b'"status": {"exec_info"') < 4:  # its own; accepted, taken, done
            piece = s.recv(65536)
            assert piece, got
            got += piece
    for s in idle:
        s.close()


def test_too_many_sockets_are_refused_politely(fresh):
    server = fresh("--max-sockets", "20")
    kept = []
    refused = []
    for i in range(40):
        try:
            kept.append(plain_socket(server, f"s{i}"))
        except Refused as e:
            refused.append(e.args[0])
    assert len(kept) == 20 and len(refused) == 20
    for answer in refused:
        assert answer.startswith(b"HTTP/1.1 503 ") and b"Retry-After: " in answer
    for s in kept:
        s.close()
    end = time.time() + PATIENCE  # the server hears of each close in its own time
    while server.get("/prompt").status_code != 200:
        assert time.time() < end, "places that became free stay taken"
