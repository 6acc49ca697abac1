"""Large workflows tell much. Clients that read hear all that matters, whatever others do."""

import base64
import os
import socket

import pytest

from conftest import PATIENCE

NODES = 3000


def chain(nodes, color):
    p = {
        "0": {
            "class_type": "EmptyImage",
            "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": color},
        }
    }
    for i in range(1, nodes):
        p[str(i)] = {"class_type": "ImageInvert", "inputs": {"image": [str(i - 1), 0]}}
    p["end"] = {"class_type": "PreviewImage", "inputs": {"images": [str(nodes - 1), 0]}}
    return p


def deaf_socket(server, client_id):
    """A client that connects and never reads again; the smallest buffer there is."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(PATIENCE)
    s.connect(("127.0.0.1", server.port))
    key = base64.b64encode(os.urandom(16)).decode()
    s.sendall(
        f"GET /ws?clientId={client_id} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nUpgrade: "
        f"websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"\r\n".encode()
    )
    assert s.recv(12) == b"HTTP/1.1 101"
    return s


@pytest.fixture(scope="module")
def lazy(server):
    with deaf_socket(server, "deaf") as s:
        yield s


def test_a_long_chain_for_its_client(server, lazy):
    with server.ws("reader") as ws:
        pid = server.queue(chain(NODES, 1), client_id="reader")["prompt_id"]
        got = ws.until_done(pid)
    executing = [m["data"]["node"] for m in got if m["type"] == "executing"]
    assert executing == [str(i) for i in range(NODES)] + ["end", None]
    assert [m["data"]["node"] for m in got if m["type"] == "executed"] == ["end"]
    assert [m["type"] for m in got if m["type"].startswith("execution_")][-1] == "execution_success"
    states = [m["data"]["nodes"] for m in got if m["type"] == "progress_state"]
    assert len(states[-1]) == NODES + 1 and all(
        n["state"] == "finished" for n in states[-1].values()
    )
    sizes = [len(s) for s in states]
    assert sizes == sorted(sizes)  # none is older than the one before it


def test_a_long_chain_of_nobody(server, lazy):
    """No client_id: all hear of its progress; those who read get the last word, and stay
    connected."""
    with server.ws("one") as one, server.ws("two") as two:
        for ws in (one, two):
            ws.recv()
        server.queue(chain(NODES, 2))
        for ws in (one, two):
            got = ws.until_status(0)
            states = [m["data"]["nodes"] for m in got if m["type"] == "progress_state"]
            assert len(states[-1]) == NODES + 1 and all(
                n["state"] == "finished" for n in states[-1].values()
            )


def test_who_does_not_read_changes_nothing_for_others(server, lazy):
    """Its own prompt runs to its end, and so does the next."""
    for client in ("deaf", None):
        item = server.run(chain(NODES, 3), client_id=client)
        assert item["status"]["status_str"] == "success"
