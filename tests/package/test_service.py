"""A service manager hears of the server: ready when it listens, stopping when it was asked to."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from conftest import BINARY, SOURCE


def serve(tmp_path, address, *options):
    return subprocess.Popen(
        [BINARY, "serve", "--base-directory", tmp_path / "base", "--port", "0", "--cpu", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ, NOTIFY_SOCKET=address),
    )


def hear(manager):
    manager.settimeout(60)
    return manager.recv(4096).decode()


def test_ready_and_stopping(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        server = serve(tmp_path, str(tmp_path / "notify"))
        try:
            assert hear(manager) == "READY=1"
            port = next(
                int(line.rsplit(":", 1)[1]) for line in server.stdout if "listening" in line
            )
            socket.create_connection(("127.0.0.1", port)).close()  # ready means it
            server.send_signal(signal.SIGTERM)
            assert hear(manager) == "STOPPING=1"
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.communicate()


@pytest.mark.skipif(
    not (SOURCE / "assets/demo/berth-demo.safetensors").exists(),
    reason="no demo model in this tree",
)
def test_stopping_is_said_before_the_grace_of_a_prompt(tmp_path):
    """While it waits for the prompt, who is connected is served: so it has not stopped yet."""
    prompt = json.loads((SOURCE / "examples/workflows/demo.json").read_text())
    for node in prompt.values():
        if "steps" in node["inputs"]:
            node["inputs"]["steps"] = 10000
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        server = serve(tmp_path, str(tmp_path / "notify"), "--demo", "--grace", "600")
        try:
            assert hear(manager) == "READY=1"
            port = next(
                int(line.rsplit(":", 1)[1]) for line in server.stdout if "listening" in line
            )
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

            def ask(method, path, body=None):
                client.request(
                    method, path, body, {"Content-Type": "application/json"} if body else {}
                )
                answer = client.getresponse()
                text = answer.read()
                assert answer.status == 200, text
                return json.loads(text)

            ask("POST", "/prompt", json.dumps({"prompt": prompt}))
            while not ask("GET", "/queue")["queue_running"]:
                time.sleep(0.05)
            server.send_signal(signal.SIGTERM)
            assert hear(manager) == "STOPPING=1"
            assert ask("GET", "/queue")["queue_running"]
            server.send_signal(signal.SIGTERM)  # the second one is meant
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.communicate()


def test_names_without_a_file(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(b"\0berth-test-%d" % os.getpid())
        server = serve(tmp_path, f"@berth-test-{os.getpid()}")
        try:
            assert hear(manager) == "READY=1"
        finally:
            server.terminate()
            server.communicate()


def test_a_manager_that_is_gone_stops_nobody(tmp_path):
    server = serve(tmp_path, str(tmp_path / "nobody"))
    assert any("listening" in line for line in server.stdout)
    server.terminate()
    assert "serve.notify" in server.communicate()[1]
    assert server.returncode == 0
