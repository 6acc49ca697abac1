"""A server that may not have all the memory of its machine: what does not fit is said, nothing is
killed."""

import os
import re
import resource

import pytest

from conftest import SANITIZED, Server, image_prompt

pytestmark = pytest.mark.skipif(SANITIZED, reason="memory costs what the sanitizer wants")

MIB = 1 << 20
GROUPS = "/sys/fs/cgroup"


def number_in(pid, name, key):
    with open(f"/proc/{pid}/{name}") as f:
        return int(re.search(rf"^{key}\s+(\d+)", f.read(), re.M).group(1))


def error_of(item):
    assert item["status"]["status_str"] == "error", item["status"]
    return [
        d["exception_message"]
        for kind, d in item["status"]["messages"]
        if kind == "execution_error"
    ][0]


def refuses_and_goes_on(server, side):
    """A picture beyond what there is fails in words, whoever asks for the memory; a small one is
    made then."""
    said = error_of(server.run(image_prompt(width=side, height=side)))
    assert str(side) in said and "bytes" in said, said
    assert server.process.poll() is None
    assert server.run(image_prompt())["status"]["completed"]
    assert server.get("/system_stats").status_code == 200


def test_what_it_may_not_have_is_said(fresh):
    """The limit that a server inside a container gives itself, on any machine."""
    server = fresh("--devices", "cpu=512m")
    most = number_in(server.process.pid, "status", "VmData:") * 1024 + 40 * MIB
    resource.prlimit(server.process.pid, resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))
    refuses_and_goes_on(server, 2048)  # 48 MiB as a tensor


@pytest.fixture
def box():
    """A memory control group of 64 MiB. Its files are where version 1 or 2 has them."""
    v1 = os.path.isdir(f"{GROUPS}/memory")
    path = f"{GROUPS}{'/memory' if v1 else ''}/berth-test-{os.getpid()}"
    limit = os.path.join(path, "memory.limit_in_bytes" if v1 else "memory.max")
    try:
        os.mkdir(path)
    except OSError as e:
        pytest.skip(f"no control group can be made here: {e}")
    try:
        with open(limit, "w") as f:
            f.write(str(64 * MIB))
    except OSError as e:
        os.rmdir(path)
        pytest.skip(f"no memory limit can be set here: {e}")
    yield path
    os.rmdir(path)


def test_inside_a_group(box, tmp_path):
    """Half of a small group is for weights and activations; no kill, however large the picture."""

    def enter():
        with open(f"{box}/cgroup.procs", "w") as f:
            f.write(str(os.getpid()))

    with Server(tmp_path / "base", preexec=enter) as server:
        cpu = [d for d in server.get("/berth/devices").json()["devices"] if d["name"] == "cpu"][0]
        assert cpu["budget"] == 32 * MIB and cpu["total"] == 64 * MIB
        assert number_in(server.process.pid, "limits", "Max data size") < 1 << 30
        for side in (2048, 4096, 8192):
            refuses_and_goes_on(server, side)
    name = "memory.oom_control" if "/memory/" in box else "memory.events"
    with open(os.path.join(box, name)) as f:
        assert re.search(r"^oom_kill (\d+)", f.read(), re.M).group(1) == "0"
