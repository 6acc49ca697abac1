"""A real server per test module (or per test), and the few things every client does.

The binary comes from BERTH_BINARY, its folders are temporary, its port is free. Nothing here knows
how the server is made: requests and websocket-client are what people use."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import uuid

import pytest
import requests
import websocket

BINARY = os.environ.get("BERTH_BINARY", "build/dev/berth")
# Sanitizers slow everything down; waiting is no assertion, so waits are generous.
SANITIZED = "BERTH_SANITIZED" in os.environ  # memory then costs what the sanitizer wants
PATIENCE = float(os.environ.get("BERTH_PATIENCE", "60"))


def make_certificate(folder, names):
    """A key and a certificate that nobody has signed, for these subjectAltNames."""
    openssl = shutil.which("openssl")
    if not openssl:
        pytest.skip("no openssl command here: nothing makes a certificate for this test")
    key, cert = str(folder / "key.pem"), str(folder / "cert.pem")
    made = subprocess.run(
        [
            openssl,
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            f"subjectAltName={names}",
            "-keyout",
            key,
            "-out",
            cert,
        ],
        capture_output=True,
    )
    if made.returncode:
        pytest.skip(f"openssl made no certificate: {made.stderr.decode(errors='replace')[-200:]}")
    return key, cert


class Server:
    """`berth serve` in a folder of its own. Use as a context manager, or start() and stop()."""

    def __init__(self, base, *args, env=None, preexec=None):
        self.base, self.args, self.preexec = str(base), [str(a) for a in args], preexec
        self.env = dict(os.environ, **(env or {}))
        self.process = None
        self.log = os.path.join(self.base, "..", f"server-{uuid.uuid4().hex[:8]}.log")

    def start(self, wait=True):
        if "--port" not in self.args:
            command = [BINARY, "serve", "--base-directory", self.base, "--port", "0", *self.args]
        else:
            command = [BINARY, "serve", "--base-directory", self.base, *self.args]
        os.makedirs(self.base, exist_ok=True)
        self.killed = False
        self.err = open(self.log, "ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.err, env=self.env, preexec_fn=self.preexec
        )
        if not wait:
            return self
        self.url = None
        for line in self.process.stdout:
            found = re.search(rb"https?://\S+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.url = found.group(0).decode()
                self.ws_url = self.url.replace("http", "ws", 1) + "/ws"
                # the rest of stdout must not fill the pipe
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return self
        raise AssertionError(f"no server: exit {self.process.wait()}\n{self.errors()}")

    def errors(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def kill(self):
        assert (
            self.process.poll() is None
        ), f"it was dead already: exit {self.process.returncode}\n{self.errors()[-4000:]}"
        self.killed = True
        self.process.kill()
        return self.process.wait(PATIENCE)

    def stop(self):
        """SIGTERM, as service managers do; the exit status must be 0, even if it ended before:
        unless by kill()."""
        if self.process and not self.killed:
            self.process.terminate()  # nothing, where it is gone
            code = self.process.wait(PATIENCE)
            assert code == 0, f"exit {code}\n{self.errors()[-4000:]}"
        self.err.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind and self.process.poll() is not None:
            print(f"server exit {self.process.returncode}\n{self.errors()[-4000:]}")
        self.stop()

    # -- HTTP

    def get(self, path, **kw):
        return requests.get(self.url + path, timeout=PATIENCE, **kw)

    def post(self, path, body=None, **kw):
        if body is not None:
            kw["json"] = body
        return requests.post(self.url + path, timeout=PATIENCE, **kw)

    def raw(self, data, half_close=False, limit=1 << 20):
        """Bytes out, everything that comes back in, until the server closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as s:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
            got = b""
            s.settimeout(2)
            try:
                while len(got) < limit:
                    piece = s.recv(65536)
                    if not piece:
                        break
                    got += piece
            except (socket.timeout, ConnectionResetError):
                pass
            return got

    # -- prompts

    def queue(self, prompt, client_id=None, expect=200, **more):
        body = {"prompt": prompt, **more}
        if client_id is not None:
            body["client_id"] = client_id
        r = self.post("/prompt", body)
        assert r.status_code == expect, r.text
        return r.json()

    def wait(self, prompt_id):
        """The history item of a prompt, when it is finished."""
        end = time.time() + PATIENCE
        while time.time() < end:
            item = self.get(f"/history/{prompt_id}").json()
            if item:
                return item[prompt_id]
            time.sleep(0.01)
        raise AssertionError(f"{prompt_id} did not finish\n{self.errors()[-4000:]}")

    def run(self, prompt, **more):
        return self.wait(self.queue(prompt, **more)["prompt_id"])

    def until_idle(self):
        end = time.time() + PATIENCE
        while time.time() < end:
            if self.get("/prompt").json()["exec_info"]["queue_remaining"] == 0:
                return
            time.sleep(0.01)
        raise AssertionError("the queue did not empty")

    def ws(self, client_id=None, **kw):
        return Socket(self, client_id, **kw)


class Socket:
    """A WebSocket client that reads in order. messages(): those so far; until(f): reads on."""

    def __init__(self, server, client_id=None, flags=None, **kw):
        self.id = client_id if client_id is not None else uuid.uuid4().hex
        url = server.ws_url + (f"?clientId={self.id}" if self.id else "")
        self.ws = websocket.create_connection(url, timeout=PATIENCE, **kw)
        if flags is not None:
            self.send({"type": "feature_flags", "data": flags})

    def send(self, value):
        self.ws.send(json.dumps(value))

    def recv(self):
        """A dict for text, bytes for binary frames."""
        op, data = self.ws.recv_data()
        if op == websocket.ABNF.OPCODE_TEXT:
            return json.loads(data)
        if op == websocket.ABNF.OPCODE_BINARY:
            return bytes(data)
        raise ConnectionError(f"closed: {data!r}")

    def until(self, last):
        """Reads until last(message) is true; returns all of them. berth.* messages are ours alone
        and are left out, as ComfyUI's own clients do."""
        got = []
        while True:
            m = self.recv()
            if isinstance(m, dict) and m["type"].startswith("berth."):
                continue
            got.append(m)
            if last(m):
                return got

    def until_done(self, prompt_id):
        return self.until(
            lambda m: isinstance(m, dict)
            and m["type"] == "executing"
            and m["data"].get("prompt_id") == prompt_id
            and m["data"]["node"] is None
        )

    def until_status(self, remaining):
        return self.until(
            lambda m: isinstance(m, dict)
            and m["type"] == "status"
            and m["data"]["status"]["exec_info"]["queue_remaining"] == remaining
        )

    def close(self):
        self.ws.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One server for all tests of a file: they must not mind each other."""
    with Server(tmp_path_factory.mktemp("berth") / "base") as s:
        yield s
        assert s.process.poll() is None, "the server died"


@pytest.fixture
def fresh(tmp_path):
    """start(*args): a server of this test alone; stopped (exit 0) afterwards."""
    started = []

    def start(*args, **kw):
        s = Server(tmp_path / "base", *args, **kw).start()
        started.append(s)
        return s

    yield start
    for s in started:
        s.stop()


def uid(name):
    """A prompt_id that says a name of up to 16 letters: ids are UUIDs."""
    return str(uuid.UUID(bytes=name.encode().ljust(16, b"\0")))


def name_of(prompt_id):
    """Of uid()."""
    return uuid.UUID(prompt_id).bytes.rstrip(b"\0").decode()


def image_prompt(color=0, width=64, height=64, prefix="t", save=True):
    """EmptyImage -> SaveImage (or PreviewImage): the smallest workflow with an output."""
    out = {"class_type": "SaveImage", "inputs": {"images": ["1", 0], "filename_prefix": prefix}}
    if not save:
        out = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    return {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": width, "height": height, "batch_size": 1, "color": color},
        },
        "2": out,
    }


def synth(path, preset="sd15-tiny", *args):
    """A synthetic model file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    subprocess.run(
        [BINARY, "synth", "--preset", preset, "--output", str(path), *args],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return str(path)


def rss(pid):
    """Resident bytes of a process."""
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+) kB", f.read()).group(1)) * 1024
