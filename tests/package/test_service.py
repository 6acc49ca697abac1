"""A service manager hears of the server: ready when it listens, stopping when it was asked to."""

import os
import signal
import socket
import subprocess

from conftest import BINARY


def serve(tmp_path, address):
    return subprocess.Popen([BINARY, "serve", "--base-directory", tmp_path / "base", "--port", "0", "--cpu"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ, NOTIFY_SOCKET=address))


def hear(manager):
    manager.settimeout(60)
    return manager.recv(4096).decode()


def test_ready_and_stopping(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        server = serve(tmp_path, str(tmp_path / "notify"))
        try:
            assert hear(manager) == "READY=1"
            port = next(int(line.rsplit(":", 1)[1]) for line in server.stdout if "listening" in line)
            socket.create_connection(("127.0.0.1", port)).close()  # ready means it
            server.send_signal(signal.SIGTERM)
            assert hear(manager) == "STOPPING=1"
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
