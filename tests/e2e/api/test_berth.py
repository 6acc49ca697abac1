"""Berth's own surface: devices, models, plans, memory, metrics, berth.residency."""

import json
import os
import re
import subprocess
import time

import pytest
import requests

from conftest import BINARY, PATIENCE, image_prompt, synth
from test_free import BUTTON_ALL, Place, files, lay_out  # noqa: F401 (a fixture)


@pytest.fixture(scope="module")
def place(tmp_path_factory, files):  # noqa: F811
    from conftest import Server

    base = tmp_path_factory.mktemp("berth") / "base"
    lay_out(base, files)
    synth(str(base / "models" / "checkpoints" / "sd15.safetensors"), "sd15-tiny", "--dtype", "f16")
    with Server(base, "--devices", "cpu=512m,null:0=256m,null:1=64m") as s:
        yield Place(s, "null:0")
        assert s.process.poll() is None


@pytest.fixture(autouse=True)
def empty(place):
    place.server.until_idle()
    place.free(force=True, free_memory=True)


def method(place, name, path, **kw):
    return requests.request(name, place.server.url + path, timeout=PATIENCE, **kw)


def test_both_prefixes(place):
    for path in (
        "/berth/devices",
        "/berth/models",
        "/berth/memory",
        "/berth/receipts",
        "/berth/health",
    ):
        a, b = place.server.get(path), place.server.get("/api" + path)
        assert a.status_code == b.status_code == 200
        assert a.headers["Content-Type"].startswith("application/json")


def test_receipts_are_kept_whoever_asked(place):
    def kept():
        return place.server.get("/berth/receipts").json()["receipts"]

    mine = place.free(reason="mine")
    newest = kept()[0]
    assert {k: v for k, v in newest.items() if k != "time"} == mine
    assert abs(newest["time"] / 1000 - time.time()) < 3600
    place.server.post("/free", {"unload_models": True, "dry_run": True})
    assert kept()[0] == newest  # a look is none
    place.server.post("/free", {"unload_models": True})  # ComfyUI's way: nobody waits for it
    end = time.monotonic() + PATIENCE
    while kept()[0]["serial"] == newest["serial"] and time.monotonic() < end:
        time.sleep(0.02)
    assert kept()[0]["reason"] == "requested" and kept()[1] == newest
    for i in range(40):
        place.free(reason=f"free {i}")
    assert [r["reason"] for r in kept()] == [f"free {i}" for i in range(39, 7, -1)]


def test_health(place):
    assert place.server.get("/berth/health").json()["status"] == "ok"


def test_devices(place):
    got = place.server.get("/berth/devices").json()["devices"]
    told = json.loads(
        subprocess.run(
            [BINARY, "devices", "--devices", "cpu=512m,null:0=256m,null:1=64m", "--json"],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    assert [d["name"] for d in got] == ["cpu", "null:0", "null:1"]
    for mine, theirs in zip(got, told):
        # the command opens a card's libraries to say what is missing; a server does when it
        # computes
        assert set(mine) == set(theirs) - {"missing"} | {"tiers"}
        for key in ("name", "kind", "physical", "budget", "can", "hypothetical"):
            assert mine[key] == theirs[key]
        assert set(mine["tiers"]) == {"weights", "staging", "activations", "pinned", "pool-idle"}


def test_models(place):
    assert place.server.get("/berth/models").json() == {"models": []}
    place.load(place.unet("A", True), place.vae())
    models = place.models()
    a = models["A"]
    assert a["path"] == os.path.join(
        place.server.base, "models", "diffusion_models", "A.safetensors"
    )
    assert a["state"] == "resident" and a["retention"] == "keep" and a["role"] == "unet"
    assert a["resident"] == a["bytes"] == sum(a["devices"].values()) == a["read"]
    assert a["anchors"] == [{"reason": "marked keep", "count": 1}]
    assert a["plan"]["compute"] == "null:0" and a["plan"]["layout"] == "spread"
    assert a["loads"] == 1 and a["patches"] == 0 and a["last_use"] > 1600000000000
    assert models["vae"]["retention"] == "auto" and models["vae"]["anchors"] == []
    one = place.server.get(f"/berth/models/{a['id']}")
    assert one.status_code == 200 and one.json() == a
    for path in (
        "/berth/models/999999",
        "/berth/models/A",
        "/berth/models/-1",
        "/berth/models/1e3",
    ):
        r = place.server.get(path)
        assert r.status_code == 404 and r.json()["error"]


def test_change_retention(place):
    place.load(place.unet("A"))
    assert place.patch("A", retention="keep")["anchors"] == [{"reason": "marked keep", "count": 1}]
    place.free(**BUTTON_ALL)
    assert place.resident() == {"A"}
    marked = place.patch("A", retention="eject")  # only its anchor holds it: marking is not freeing
    assert marked["state"] == "resident" and marked["anchors"] == [
        {"reason": "until the next free", "count": 1}
    ]
    place.free(**BUTTON_ALL)
    assert place.models() == {} and place.weights() == 0


def test_marking_a_survivor(place):
    place.load(place.unet("A", False), place.vae(), place.clip())
    place.free(**BUTTON_ALL)
    assert place.resident() == {"vae", "t5"}
    assert place.patch("t5", retention="eject")["state"] == "resident"
    place.free(**BUTTON_ALL)
    assert place.resident() == {"vae"}


def test_change_plan(place):
    place.load(place.unet("A", True))
    bytes_ = place.models()["A"]["bytes"]
    got = place.patch("A", allocation="null:0,50%;cpu,50%")
    assert set(got["devices"]) == {"cpu", "null:0"} and sum(got["devices"].values()) == bytes_
    moved = got["moved"]
    got = place.patch("A", **got["plan"])
    assert got["moved"] == moved  # the same plan in other words: nothing moves
    assert place.patch("A", layout="tail")["plan"]["layout"] == "tail"
    lent = place.patch("A", virtual_vram_gb=0.005, donor_device="null:1")  # computes where it did
    assert lent["plan"]["compute"] == "null:0" and 4 << 20 < lent["devices"]["null:1"] < 7 << 20
    assert set(place.patch("A", virtual_vram_gb=0.005)["devices"]) == {"null:0", "cpu"}
    assert place.patch("A", virtual_vram_gb=0, compute="null:0")["devices"] == {"null:0": bytes_}
    back = place.patch("A", allocation="", compute="null:0", retention="auto")
    assert back["devices"] == {"null:0": bytes_} and back["retention"] == "auto"
    small = method(place, "PATCH", f"/berth/models/{back['id']}", json={"allocation": "null:1,1tb"})
    assert small.status_code == 400 and small.json()["error"]
    assert place.models()["A"]["devices"] == {"null:0": bytes_}


def test_change_plan_by_loader(place):
    """A loader whose plan changed gets the model that is there: blocks move, the file is read
    once."""
    place.load(place.unet("A"))  # a plan of its own: everything on the compute device
    first = place.models()["A"]
    for device in ("null:0", "null:1", "null:0"):
        loader = {
            "class_type": "UNETLoaderMultiGPU",
            "inputs": {"unet_name": "A.safetensors", "weight_dtype": "default", "device": device},
        }
        before = place.models()["A"]
        place.load(loader)
        now = place.models()["A"]
        assert now["id"] == first["id"] and now["anchors"] == []
        assert now["read"] == now["bytes"], "the file was read again"
        assert now["devices"] == {device: now["bytes"]}
        assert now["moved"] - before["moved"] == (
            0 if before["devices"] == now["devices"] else now["bytes"]
        )
    place.load(place.vae())  # nobody wants it any more
    assert place.resident() == {"vae"}


def test_patch_refuses(place):
    place.load(place.unet("A"))
    path = f"/berth/models/{place.models()['A']['id']}"
    for body in (
        {"retention": "forever"},
        {"retention": 1},
        {"plan": "cpu,*"},
        {"alloc": "cpu,*"},
        {"layout": "sideways"},
        {"allocation": "cpu;;,"},
        {"keep": True},
        {"allocation": 7},
        {"retention": ""},
        {"donor_device": "cpu"},
        {"virtual_vram_gb": 1, "allocation": "cpu,*"},
        {"compute": "cuda:5"},
        {"allocation": "cuda:5,*"},
        [],
    ):
        r = method(place, "PATCH", path, json=body)
        assert r.status_code in (400, 404) and r.json()["error"], body
    for data in (b"", b"{", b"nonsense"):
        assert method(place, "PATCH", path, data=data).status_code == 400
    r = method(place, "PATCH", "/berth/models/999999", json={"retention": "keep"})
    assert r.status_code == 404
    assert place.models()["A"]["retention"] == "auto"


def test_delete(place):
    place.load(place.unet("A"), place.unet("B", True))
    a, b = (f"/berth/models/{place.models()[n]['id']}" for n in "AB")
    r = method(place, "DELETE", a)
    assert (
        r.status_code == 200
        and {m["name"]: m["verdict"] for m in r.json()["models"]}["A"] == "ejected"
    )
    assert place.resident() == {"B"}
    r = method(place, "DELETE", b)
    assert r.status_code == 409 and "keep" in r.json()["error"]
    assert method(place, "DELETE", b + "?force=no").status_code == 409
    assert method(place, "DELETE", b + "?force=1").status_code == 200
    assert place.resident() == set()
    assert method(place, "DELETE", "/berth/models/999999").status_code == 404


def test_plan(place):
    body = {"folder": "checkpoints", "name": "sd15.safetensors", "allocation": "null:0,25%;cpu,75%"}
    r = method(place, "POST", "/berth/plan", json=body)
    assert r.status_code == 200
    p = r.json()
    path = os.path.join(place.server.base, "models", "checkpoints", "sd15.safetensors")
    told = json.loads(
        subprocess.run(
            [
                BINARY,
                "plan",
                path,
                "--devices",
                "cpu=512m,null:0=256m,null:1=64m",
                "--alloc",
                body["allocation"],
                "--json",
            ],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    assert p == told
    same = method(
        place, "POST", "/berth/plan", json={"path": path, "allocation": body["allocation"]}
    )
    assert same.json() == p
    virtual = method(
        place,
        "POST",
        "/berth/plan",
        json={
            "path": path,
            "virtual_vram_gb": 0.01,
            "donor_device": "null:1",
            "compute": "null:0",
            "layout": "tail",
            "part": "model.diffusion_model.",
        },
    ).json()
    assert virtual["layout"] == "tail" and virtual["compute"] == "null:0"
    assert {d["device"] for d in virtual["devices"] if d["bytes"]} == {"null:0", "null:1"}
    other = method(
        place, "POST", "/berth/plan", json={"path": path, "devices": "cuda:0=8g,cpu=32g"}
    ).json()
    assert other["compute"] == "cuda:0"
    half = method(place, "POST", "/berth/plan", json={**body, "weight_dtype": "fp8_e4m3fn"}).json()
    told = json.loads(
        subprocess.run(
            [
                BINARY,
                "plan",
                path,
                "--devices",
                "cpu=512m,null:0=256m,null:1=64m",
                "--alloc",
                body["allocation"],
                "--dtype",
                "fp8_e4m3fn",
                "--json",
            ],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    assert half == told and abs(half["total_bytes"] - p["total_bytes"] / 2) < 1e3
    assert (
        method(place, "POST", "/berth/plan", json={**body, "weight_dtype": "default"}).json() == p
    )
    assert place.models() == {}  # a plan loads nothing


def test_plan_refuses(place):
    inside = os.path.join(place.server.base, "models", "checkpoints")
    ok = {"folder": "checkpoints", "name": "sd15.safetensors"}
    for body, status in (
        ({}, 400),
        ([], 400),
        ({"folder": "checkpoints"}, 400),
        ({**ok, "path": "/x"}, 400),
        ({"path": "/etc/passwd"}, 400),
        ({"path": inside + "/../../../../etc/passwd"}, 400),
        ({"path": inside + "2/x"}, 400),
        ({"path": inside}, 400),
        ({"path": "sd15.safetensors"}, 400),
        ({"folder": "checkpoints", "name": "missing.safetensors"}, 404),
        ({"folder": "nowhere", "name": "x"}, 404),
        ({"folder": "checkpoints", "name": "../../secret"}, 404),
        ({**ok, "allocation": "cuda:9,*"}, 400),
        ({**ok, "allocation": 5}, 400),
        ({**ok, "virtual_vram_gb": -1}, 400),
        ({**ok, "virtual_vram_gb": "4"}, 400),
        ({**ok, "virtual_vram_gb": 1, "allocation": "cpu,*"}, 400),
        ({**ok, "donor_device": "cpu"}, 400),
        ({**ok, "layout": "round"}, 400),
        ({**ok, "weight_dtype": "f32"}, 400),
        ({**ok, "weight_dtype": 8}, 400),
        ({**ok, "devices": "what"}, 400),
        ({**ok, "part": "no.such."}, 404),
    ):
        r = method(place, "POST", "/berth/plan", json=body)
        assert r.status_code == status, (body, r.status_code, r.text)
        assert r.json()["error"], body
        assert place.server.base not in r.text, body  # which file, not where
    said = method(
        place, "POST", "/berth/plan", json={"folder": "checkpoints", "name": "missing.safetensors"}
    ).json()["error"]
    assert (
        said
        == "checkpoints 'missing.safetensors' is not there; GET /models/checkpoints lists what is"
    )
    said = method(place, "POST", "/berth/plan", json={}).json()["error"]
    assert "Say model (of a loaded one), or folder and name, or path" in said
    for wrong in ("alloc", "expert_mode_allocations", "retention", "donor", "virtual_vram"):
        r = method(place, "POST", "/berth/plan", json={**ok, wrong: "cpu,*"})
        assert r.status_code == 400, wrong
        for word in (
            f"'{wrong}'",
            "folder",
            "allocation",
            "virtual_vram_gb",
            "donor_device",
            "compute",
            "layout",
        ):
            assert word in r.json()["error"]


def test_a_failed_loader_says_which_file_and_the_log_says_where(place):
    path = os.path.join(place.server.base, "models", "checkpoints", "broken.safetensors")
    with open(path, "wb") as f:
        f.write(b"\xff" * 64)
    prompt = {
        "1": {
            "class_type": "CheckpointLoaderSimple",
            "inputs": {"ckpt_name": "broken.safetensors"},
        },
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    with place.server.ws("teller") as ws:
        queued = place.server.queue(prompt, client_id="teller")["prompt_id"]
        heard = [
            m["data"]
            for m in ws.until(lambda m: m["type"] == "execution_error")
            if m["type"] == "execution_error"
        ][0]
    told = place.server.wait(queued)["status"]["messages"][-1][1]
    os.remove(path)
    for where in (heard, told, place.server.get(f"/api/jobs/{queued}").json()["execution_error"]):
        assert "'broken.safetensors'" in where["exception_message"], where
        assert place.server.base not in json.dumps(where)
    assert f"'{path}'" in place.server.errors()


def test_memory(place):
    place.load(place.unet("A"))
    got = place.server.get("/berth/memory").json()
    owners = {(d["device"], o["owner"], o["tier"]) for d in got["devices"] for o in d["owners"]}
    name = f"A#{place.models()['A']['id']}"
    assert ("null:0", name, "weights") in owners
    for d in got["devices"]:
        for tier, n in d["tiers"].items():
            assert n == sum(o["bytes"] for o in d["owners"] if o["tier"] == tier)
    line = got["timeline"]
    assert 0 < len(line) <= 256 and line[-1]["seq"] == got["last"]
    assert [x["seq"] for x in line] == list(range(line[0]["seq"], got["last"] + 1))
    assert {d["device"] for d in line[0]["devices"]} == {"cpu", "null:0", "null:1"}
    few = place.server.get("/berth/memory?limit=3").json()["timeline"]
    assert [x["seq"] for x in few] == [got["last"] - 2, got["last"] - 1, got["last"]]
    since = place.server.get(f"/berth/memory?since={got['last'] - 1}&limit=10").json()["timeline"]
    assert [x["seq"] for x in since] == [got["last"]]
    assert place.server.get("/berth/memory?limit=0").json()["timeline"] == []
    for query in ("since=x", "since=-1", "limit=-2", "limit=1.5"):
        r = place.server.get("/berth/memory?" + query)
        assert r.status_code == 400 and r.json()["error"]


def test_metrics(place):
    place.load(place.unet("A"))
    r = place.server.get("/metrics")
    assert r.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    families, seen, family = set(), set(), None
    for line in r.text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert family not in families
            families.add(family)
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family and line.split()[3] in ("counter", "gauge")
        else:
            m = re.fullmatch(
                r'([a-z_]+)(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? (\d+(\.\d+)?)', line
            )
            assert m and m.group(1) == family, line
            assert line.rsplit(" ", 1)[0] not in seen
            seen.add(line.rsplit(" ", 1)[0])
    values = dict(line.rsplit(" ", 1) for line in r.text.splitlines() if not line.startswith("#"))
    before = float(values['berth_prompts_total{outcome="success"}'])
    assert before > 0 and float(values["berth_models"]) == 1
    assert (
        float(values['berth_device_bytes{device="null:0",tier="weights"}'])
        >= place.models()["A"]["bytes"]
    )
    assert float(values["berth_queue_remaining"]) == 0
    place.server.run(image_prompt(1, prefix="metrics"))
    place.settled()
    values = dict(
        line.rsplit(" ", 1)
        for line in place.server.get("/metrics").text.splitlines()
        if not line.startswith("#")
    )
    assert float(values['berth_prompts_total{outcome="success"}']) == before + 1


def test_residency_messages(place):
    def told(ws, want):
        while True:
            m = ws.recv()
            if isinstance(m, dict) and m["type"] == "berth.residency" and want(m["data"]):
                return m["data"]

    with place.server.ws(flags={"berth": True}) as ws:
        place.load(place.unet("A", True))
        d = told(ws, lambda d: any(m["read"] == m["bytes"] for m in d["models"]))
        assert set(d) == {"reason", "receipt", "models", "devices"}
        assert [x["name"] for x in d["devices"]] == ["cpu", "null:0", "null:1"]
        assert d["models"][0] == {
            **place.models()["A"],
            **{k: d["models"][0][k] for k in ("handles", "anchors", "last_use", "uses")},
        }
        place.patch("A", retention="auto")
        assert told(ws, lambda d: d["models"][0]["retention"] == "auto")["reason"] == "change"
        serial = place.free(**BUTTON_ALL)["serial"]
        d = told(ws, lambda d: not d["models"])
        assert (d["reason"], d["receipt"]) == ("free", serial)


def test_stats_name_the_devices(place):
    d = place.server.get("/system_stats").json()["devices"]
    assert [x["name"] for x in d] == ["null:0", "null:1"]
    assert (d[0]["name"], d[0]["type"], d[0]["index"]) == ("null:0", "null", 0)
    assert d[0]["vram_total"] == 256 << 20 and 0 < d[0]["vram_free"] <= d[0]["vram_total"]


# ---- a card that is too small for all that is kept


def test_what_is_kept_finds_its_place(fresh, tmp_path):
    """examples/workflows/load.json without an allocation: the text encoder's embeddings do not fit
    beside the UNet."""
    base = tmp_path / "base"
    synth(str(base / "models" / "checkpoints" / "sd15.safetensors"))
    s = fresh("--devices", "cpu=2g,cuda:0@cpu=20m")
    prompt = {
        "1": {
            "class_type": "CheckpointLoaderSimpleDisTorch2MultiGPU",
            "inputs": {
                "ckpt_name": "sd15.safetensors",
                "compute_device": "cuda:0",
                "virtual_vram_gb": 0.0,
                "donor_device": "cpu",
                "expert_mode_allocations": "",
                "eject_models": False,
                "keep_loaded": True,
            },
        },
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    first = s.run(prompt)
    assert first["status"]["completed"], first["status"]["messages"]
    place = Place(s, "cuda:0")
    place.settled()
    before = {m["id"]: m for m in s.get("/berth/models").json()["models"]}
    assert [m["retention"] for m in before.values()] == ["keep"] * 3
    unet = [m for m in before.values() if m["role"] == "unet"][0]
    assert unet["devices"]["cuda:0"] > 10 << 20
    assert s.post("/free", {**BUTTON_ALL, "wait": True}).status_code == 200
    assert s.run(prompt)["status"]["completed"]
    place.settled()
    after = {m["id"]: m for m in s.get("/berth/models").json()["models"]}
    assert {i: (m["read"], m["moved"]) for i, m in after.items()} == {
        i: (m["read"], m["moved"]) for i, m in before.items()
    }


def test_a_loader_that_fails_keeps_nothing(fresh, tmp_path):
    base = tmp_path / "base"
    synth(str(base / "models" / "checkpoints" / "sd15.safetensors"))
    s = fresh("--devices", "cpu=24m,cuda:0@cpu=20m")
    prompt = {
        "1": {
            "class_type": "CheckpointLoaderSimpleDisTorch2MultiGPU",
            "inputs": {
                "ckpt_name": "sd15.safetensors",
                "compute_device": "cuda:0",
                "virtual_vram_gb": 0.0,
                "donor_device": "cpu",
                "eject_models": False,
                "keep_loaded": True,
            },
        },
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    kind, data = s.run(prompt)["status"]["messages"][-1]
    assert kind == "execution_error" and data["node_id"] == "1"
    Place(s, "cuda:0").settled()
    assert s.get("/berth/models").json()["models"] == []


def test_the_token_is_not_shown(fresh):
    for given in (["--token", "sesame open"], ["--token=sesame open"]):
        s = fresh(*given)
        stats = s.get("/system_stats", headers={"Authorization": "Bearer sesame open"})
        assert stats.status_code == 200 and "sesame" not in stats.text
        with open(f"/proc/{s.process.pid}/cmdline", "rb") as f:
            assert b"sesame" not in f.read()
        s.stop()


def test_stats_are_of_the_device_that_computes(fresh):
    s = fresh("--devices", "cpu=1g,cuda:0@cpu=64m")
    stats = s.get("/system_stats").json()["devices"]
    assert [d["name"] for d in stats] == ["cuda:0"] and stats[0]["vram_total"] == 64 << 20


def test_what_a_plan_prints_can_be_given_back(fresh, tmp_path):
    synth(tmp_path / "base/models/diffusion_models/x.safetensors", "sdxl-tiny")
    # small enough that all three are needed, whichever of the donors measures faster today
    s = fresh("--devices", "cpu=80m,cuda:0@cpu=64m,cuda:1@cpu=64m")

    def load(cls, **more):
        p = {
            "1": {
                "class_type": cls,
                "inputs": {"unet_name": "x.safetensors", "weight_dtype": "default", **more},
            },
            "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
        }
        status = s.run(p)["status"]
        assert status["status_str"] == "success", json.dumps(status)
        return [m for m in s.get("/berth/models").json()["models"] if m["state"] == "resident"][-1]

    auto = load("UNETLoaderMultiGPU", device="cuda:0")
    assert all(auto["devices"].get(d, 0) > 0 for d in ("cuda:0", "cuda:1", "cpu")), auto["devices"]
    again = load(
        "UNETLoaderDisTorch2MultiGPU",
        compute_device="cuda:0",
        virtual_vram_gb=0.0,
        donor_device="cpu",
        eject_models=False,
        expert_mode_allocations=auto["plan"]["allocation"],
    )
    assert again["devices"] == auto["devices"]


def test_one_file_in_two_types(place):
    place.load(
        place.unet("A"), place.unet("A", dtype="fp8_e4m3fn"), place.unet("B", dtype="fp8_e5m2")
    )
    models = place.server.get("/berth/models").json()["models"]
    assert [(m["name"], m["converted"]) for m in models] == [
        ("A", None),
        ("A", "F8_E4M3"),
        ("B", "F8_E5M2"),
    ]
    assert models[0]["resident"] == 2 * models[1]["resident"] == 2 * models[2]["resident"] > 0
    assert (
        sum(m["resident"] for m in models)
        <= place.weights()
        < 1.1 * sum(m["resident"] for m in models)
    )
    said = subprocess.run(
        [BINARY, "ps", "--server", place.server.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (
        said.returncode == 0 and "A as F8_E4M3 " in said.stdout and "B as F8_E5M2 " in said.stdout
    )
    called = f"A#{models[1]['id']}"
    said = subprocess.run(
        [BINARY, "free", "--dry-run", called, "--server", place.server.url],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    ).stdout
    for line in (
        rf"kept +A#{models[0]['id']} +unet +\d",
        rf"ejected +{called} as F8_E4M3 +unet +\d",
        r"kept +B#\d+ as F8_E5M2 ",
    ):
        assert re.search("^" + line, said, re.M), said
    place.load(place.unet("A", dtype="fp8_e4m3fn"))  # found again: nothing is read
    again = place.server.get(f"/berth/models/{models[1]['id']}").json()
    assert (again["converted"], again["read"]) == ("F8_E4M3", models[1]["read"])
    receipt = place.free(unload_models=True, models=[called])
    assert [(m["name"], m["role"], m["converted"], m["verdict"]) for m in receipt["models"]] == [
        ("A", "unet", "F8_E4M3", "ejected")
    ]


def test_flags_say_which_type(fresh, tmp_path):
    """--fp8_e4m3fn-unet, --fp8_e5m2-text-enc: where a loader names none; of a checkpoint its VAE
    stays."""
    synth(str(tmp_path / "base/models/checkpoints/sd15.safetensors"), "sd15-tiny", "--dtype", "f16")
    synth(
        str(tmp_path / "base/models/diffusion_models/x.safetensors"), "flux-tiny", "--dtype", "f16"
    )
    s = fresh(
        "--devices",
        "cpu=1g",
        "--fp8_e4m3fn-unet",
        "--fp8_e5m2-text-enc",
        "--fp8_e8m0fnu-unet",
        "--lowvram",
    )
    assert [x.split(" flags=")[1] for x in s.errors().splitlines() if " serve.ignored " in x] == [
        '"--fp8_e8m0fnu-unet, --lowvram"'
    ]
    prompt = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "sd15.safetensors"}},
        "2": {
            "class_type": "UNETLoader",
            "inputs": {"unet_name": "x.safetensors", "weight_dtype": "default"},
        },
        "3": {
            "class_type": "UNETLoader",
            "inputs": {"unet_name": "x.safetensors", "weight_dtype": "fp8_e5m2"},
        },
    }
    for node, i in (("1", 0), ("2", 0), ("3", 0)):
        prompt["p" + node] = {"class_type": "PreviewAny", "inputs": {"source": [node, i]}}
    assert s.run(prompt)["status"]["status_str"] == "success"
    models = s.get("/berth/models").json()["models"]
    assert sorted((m["name"], m["role"], m["converted"] or "") for m in models) == [
        ("sd15", "clip", "F8_E5M2"),
        ("sd15", "unet", "F8_E4M3"),
        ("sd15", "vae", ""),
        ("x", "unet", "F8_E4M3"),
        ("x", "unet", "F8_E5M2"),
    ]
