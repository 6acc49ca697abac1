"""berth ps and run --server over https and through proxies."""

import http.server
import json
import os
import re
import socket
import ssl
import subprocess
import threading

import pytest

from conftest import BINARY, PATIENCE, Server, image_prompt, make_certificate

CLEAN = {
    k: v
    for k, v in os.environ.items()
    if "proxy" not in k.lower() and k not in ("CURL_CA_BUNDLE", "SSL_CERT_FILE")
}


def berth(*args, code=0, **env):
    p = subprocess.run(
        [BINARY, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**CLEAN, **env},
    )
    assert p.returncode == code, f"{p.returncode}: {p.stdout}{p.stderr}"
    return p.stdout + p.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("https"), "IP:127.0.0.1")


class Answers(http.server.BaseHTTPRequestHandler):
    """What `berth ps` asks for, a redirect below /moved, rubbish below /rubbish."""

    def do_GET(self):
        if self.path.startswith("/moved"):
            self.send_response(301)
            self.send_header("Location", "https://elsewhere.test/berth/models")
            self.end_headers()
            return
        if self.path.startswith("/rubbish"):
            self.wfile.write(b"220 mail.test ESMTP\r\n")
            return
        empty = {
            "/berth/models": {"models": []},
            "/berth/devices": {"devices": []},
            "/queue": {"queue_running": [], "queue_pending": []},
            "/berth/queue": {"paused": False},
        }
        body = json.dumps(empty[self.path]).encode()
        self.server.asked.append((self.path, self.headers["Authorization"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(0, len(body), 7):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]))
        self.wfile.write(b"0\r\n\r\n")

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def python_server(certificate):
    """Python's ssl, so that we do not talk to ourselves alone."""
    key, cert = certificate
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.asked = []
    server.url = f"https://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_a_certificate_of_ones_own(python_server, certificate):
    _, cert = certificate
    said = berth("ps", "--server", python_server.url, code=1)
    assert (
        f"{python_server.url}/berth/models: " in said
        and "certificate" in said
        and "--cacert FILE" in said
    )
    assert not python_server.asked  # it heard nothing, the token least of all
    assert "no models" in berth(
        "ps", "--server", python_server.url, "--cacert", cert, "--token", "a long token"
    )
    assert python_server.asked[0] == ("/berth/models", "Bearer a long token")
    for name in ("CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        assert "no models" in berth("ps", "--server", python_server.url + "/berth/", **{name: cert})
    said = berth("ps", "--server", python_server.url, "--cacert", "/nowhere.pem", code=1)
    assert "/nowhere.pem" in said
    named = python_server.url.replace("127.0.0.1", "localhost")  # a name that the certificate lacks
    assert "localhost" in berth("ps", "--server", named, "--cacert", cert, code=1)


def test_what_else_may_answer(python_server, certificate):
    _, cert = certificate
    said = berth("ps", "--server", python_server.url + "/moved", "--cacert", cert, code=1)
    assert "the server answers 301: ask at https://elsewhere.test/berth/models" in said
    assert "no HTTP server" in berth(
        "ps", "--server", python_server.url + "/rubbish", "--cacert", cert, code=1
    )
    plain = python_server.url.replace("https", "http")
    assert plain in berth("ps", "--server", plain, code=1)


def test_run_over_https_with_progress(tmp_path, certificate):
    key, cert = certificate
    workflow = tmp_path / "w.json"
    workflow.write_text(json.dumps(image_prompt(prefix="pic")))
    with Server(tmp_path / "base", "--tls-keyfile", key, "--tls-certfile", cert) as s:
        url = f"https://127.0.0.1:{s.port}"
        assert "certificate" in berth("run", workflow, "--server", url, code=1)
        out = berth("run", workflow, "--server", url, "--cacert", cert)
        assert f"{url}/view?filename=pic_00001_.png&type=output\n" in out
        assert "1/2 EmptyImage" in out  # which the WebSocket alone says
        assert "given back" in berth("free", "--server", url, "--cacert", cert)


class Proxy:
    """CONNECT, and GET and POST of whole addresses; every host is the one server."""

    def __init__(self, port):
        self.port, self.asked = port, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, socket.create_connection(("127.0.0.1", self.port)) as server:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            method, target = head.split(b" ")[:2]
            self.asked.append(f"{method.decode()} {target.decode()}")
            if method == b"CONNECT":
                client.sendall(b"HTTP/1.1 200 go on\r\n\r\n")
            else:
                head = head.replace(target, re.sub(rb"^http://[^/]*", b"", target), 1)
                server.sendall(re.sub(rb"Host: \S+", b"Host: 127.0.0.1", head))
            back = threading.Thread(target=self.pump, args=(server, client), daemon=True)
            back.start()
            self.pump(client, server)
            back.join()

    @staticmethod
    def pump(a, b):
        try:
            while piece := a.recv(65536):
                b.sendall(piece)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.listener.close()


def test_proxies(tmp_path):
    with Server(tmp_path / "base") as s, Proxy(s.port) as p:
        here, there = f"http://127.0.0.1:{s.port}", "http://gpu.test:8188"
        env = {"http_proxy": p.url, "https_proxy": p.url}
        for local in (here, f"http://localhost:{s.port}", f"127.0.0.1:{s.port}"):
            assert "no models" in berth("ps", "--server", local, **env)
        assert p.asked == []  # never for this machine
        assert "no models" in berth("ps", "--server", there, **env)
        assert p.asked[0] == "GET http://gpu.test:8188/berth/models"
        p.asked.clear()
        assert "no models" in berth(
            "ps", "--server", here, "--proxy", p.url, no_proxy="*"
        )  # but where one asks for it
        assert p.asked
        p.asked.clear()
        berth("ps", "--server", there, "--proxy", "", code=1, **env)
        berth("ps", "--server", there, code=1, no_proxy="gpu.test", **env)
        assert p.asked == []
        workflow = tmp_path / "w.json"
        workflow.write_text(json.dumps(image_prompt(prefix="pic")))
        out = berth("run", workflow, "--server", here, "--proxy", p.url)
        assert f"CONNECT 127.0.0.1:{s.port}" in p.asked and "1/2 EmptyImage" in out  # its WebSocket


def test_https_through_a_proxy(python_server, certificate):
    _, cert = certificate
    with Proxy(python_server.server_port) as p:
        assert "no models" in berth(
            "ps", "--server", python_server.url, "--proxy", p.url, "--cacert", cert
        )
        assert set(p.asked) == {f"CONNECT 127.0.0.1:{python_server.server_port}"}
    said = berth(
        "ps",
        "--server",
        "http://gpu.test:8188",
        "--proxy",
        "http://no-such-proxy.invalid:1",
        code=1,
    )
    assert (
        "no-such-proxy.invalid" in said
        and "--proxy" in said
        and "http://gpu.test:8188/berth/models" in said
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "https://",
        "http://[::1",
        "http://h:0",
        "http://h:70000",
        "http://h:8x",
        "http://me:pw@h:1",
        "ftp://h:1",
        "http://a b",
    ],
)
def test_no_addresses(url):
    assert f"'{url}' is no address like http://127.0.0.1:8188" in berth(
        "ps", "--server", url, code=1
    )
