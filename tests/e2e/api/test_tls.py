"""The same server behind TLS, with a certificate of its own making."""

import json
import os
import socket
import ssl

import pytest
import requests
import urllib3
import websocket

from conftest import PATIENCE, Server, image_prompt, make_certificate

urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

LIMIT = 8 << 20  # bytes of an upload


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="module")
def secure(tmp_path_factory, certificate):
    key, cert = certificate
    base = tmp_path_factory.mktemp("berth") / "base"
    with Server(
        base, "--tls-keyfile", key, "--tls-certfile", cert, "--max-upload-size", LIMIT >> 20
    ) as s:
        assert s.url.startswith("https://")
        s.cert = cert
        yield s
        assert s.process.poll() is None, "the server died"


def connect(server):
    """A TLS socket that trusts this certificate and no other."""
    context = ssl.create_default_context(cafile=server.cert)
    plain = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
    return context.wrap_socket(plain, server_hostname="localhost")


def read_all(s):
    got = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            return got
        got += piece


def test_get(secure):
    r = requests.get(secure.url + "/prompt", verify=secure.cert, timeout=PATIENCE)
    assert r.json() == {"exec_info": {"queue_remaining": 0}}
    with requests.Session() as s:  # one connection, many requests
        for _ in range(20):
            assert (
                s.get(secure.url + "/queue", verify=secure.cert, timeout=PATIENCE).status_code
                == 200
            )


def test_close_is_clean(secure):
    """Connection: close ends with TLS's own goodbye, behind the whole answer."""
    with connect(secure) as s:
        s.suppress_ragged_eofs = False  # an end without goodbye is an error
        s.sendall(
            f"GET /object_info HTTP/1.1\r\nHost: 127.0.0.1:{secure.port}\r\nConnection: close\r\n"
            f"\r\n".encode()
        )
        head, _, body = read_all(s).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert f"Content-Length: {len(body)}".encode() in head
    json.loads(body)


def test_pipelined(secure):
    with connect(secure) as s:
        one = f"GET /prompt HTTP/1.1\r\nHost: 127.0.0.1:{secure.port}\r\n"
        s.sendall((one + "\r\n").encode() * 99 + (one + "Connection: close\r\n\r\n").encode())
        assert read_all(s).count(b"HTTP/1.1 200") == 100


def test_websocket(secure):
    ws = websocket.create_connection(
        secure.ws_url + "?clientId=tls",
        timeout=PATIENCE,
        sslopt={"ca_certs": secure.cert, "check_hostname": False},
    )
    assert json.loads(ws.recv())["data"]["sid"] == "tls"
    r = requests.post(
        secure.url + "/prompt",
        json={"prompt": image_prompt(), "client_id": "tls"},
        verify=secure.cert,
        timeout=PATIENCE,
    )
    kinds = []
    while True:
        m = json.loads(ws.recv())
        kinds.append(m["type"])
        if m["type"] == "executing" and m["data"]["node"] is None:
            break
    assert m["data"]["prompt_id"] == r.json()["prompt_id"]
    assert "execution_success" in kinds
    ws.ping("still there")
    assert ws.recv_data(control_frame=True) == (websocket.ABNF.OPCODE_PONG, b"still there")
    ws.close()


def upload(server, name, data):
    return requests.post(
        server.url + "/upload/image",
        files={"image": (name, data, "image/png")},
        verify=server.cert,
        timeout=PATIENCE,
    )


def test_upload(secure):
    data = os.urandom(5 << 20)
    r = upload(secure, "five.png", data)
    assert r.status_code == 200, r.text
    with open(os.path.join(secure.base, "input", "five.png"), "rb") as f:
        assert f.read() == data
    r = requests.get(
        secure.url + "/view?filename=five.png&type=input", verify=secure.cert, timeout=PATIENCE
    )
    assert r.content == data


@pytest.mark.parametrize("kind", ["length", "chunked", "multipart"])
def test_refused_uploads_hear_why(secure, kind):
    """413 while the client still sends: it reads the answer, and is not reset before it can."""
    body = b" " * (3 * LIMIT)
    for _ in range(3):
        if kind == "multipart":
            r = upload(secure, "large.png", body)
        else:
            data = body if kind == "length" else iter([body[:LIMIT]] * 3)
            r = requests.post(
                secure.url + "/prompt", data=data, verify=secure.cert, timeout=PATIENCE
            )
        assert r.status_code == 413
        assert str(LIMIT) in r.text


def test_plain_http_is_no_tls(secure):
    """It gets no answer it could read, and nobody minds."""
    answer = secure.raw(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert b"HTTP/1.1 200" not in answer
    assert (
        requests.get(secure.url + "/prompt", verify=secure.cert, timeout=PATIENCE).status_code
        == 200
    )


def test_stop_ends_it(tmp_path, certificate):
    """SIGTERM with a client in the middle of its upload."""
    key, cert = certificate
    s = Server(tmp_path / "base", "--tls-keyfile", key, "--tls-certfile", cert).start()
    s.cert = cert
    with connect(s) as c:
        c.sendall(
            f"POST /prompt HTTP/1.1\r\nHost: 127.0.0.1:{s.port}\r\nContent-Length: 1000000\r\n"
            f"\r\n".encode() + b" " * 1000
        )
        s.stop()
