"""The free flow through HTTP: real files, loaders, receipts, and what the ledgers say
afterwards."""

import json
import os
import shutil
import socket
import struct
import subprocess
import time

import pytest
import requests

from conftest import BINARY, PATIENCE, synth
from test_trace import slow_prompt

BUTTON_UNLOAD = {"unload_models": True}  # ComfyUI-Manager's two buttons, as it sends them
BUTTON_ALL = {"unload_models": True, "free_memory": True}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small models, made once: three of the diffusion kind, a VAE and a text encoder."""
    root = tmp_path_factory.mktemp("files")
    flux = synth(str(root / "flux.safetensors"), "flux-tiny", "--dtype", "bf16")
    vae = synth(str(root / "vae.safetensors"), "flux-tiny-vae", "--dtype", "bf16")
    t5 = synth(str(root / "t5.safetensors"), "t5-tiny", "--dtype", "bf16")
    return {
        "diffusion_models": [("A", flux), ("B", flux), ("C", flux)],
        "vae": [("vae", vae)],
        "text_encoders": [("t5", t5)],
    }


def lay_out(base, files):
    for folder, entries in files.items():
        d = os.path.join(base, "models", folder)
        os.makedirs(d, exist_ok=True)
        for name, path in entries:
            shutil.copy(path, os.path.join(d, name + ".safetensors"))
    subprocess.run(  # T5 alone encodes for Mochi
        [BINARY, "synth", "--tokenizer", os.path.join(base, "tokenizers")],
        check=True,
        stdout=subprocess.DEVNULL,
    )


class Place:
    """A server with these files; `device` is where models go."""

    def __init__(self, server, device):
        self.server, self.device = server, device

    def unet(self, name, keep=None, dtype="default"):
        """keep None: a loader without that input, so retention auto."""
        i = {"unet_name": name + ".safetensors", "weight_dtype": dtype}
        if keep is None:
            return {"class_type": "UNETLoader", "inputs": i}
        return {
            "class_type": "UNETLoaderDisTorch2MultiGPU",
            "inputs": {
                **i,
                "compute_device": self.device,
                "virtual_vram_gb": 0.0,
                "donor_device": "cpu",
                "expert_mode_allocations": "",
                "eject_models": False,
                "keep_loaded": keep,
            },
        }

    def vae(self):
        return {"class_type": "VAELoader", "inputs": {"vae_name": "vae.safetensors"}}

    def clip(self):
        return {
            "class_type": "CLIPLoader",
            "inputs": {
                "clip_name": "t5.safetensors",
                "type": "stable_diffusion",
                "device": "default",
            },
        }

    def prompt(self, *loaders, slow=0):
        """Loaders with somebody who wants their outputs; slow: resamplings that keep it running."""
        p = {}
        for i, loader in enumerate(loaders):
            p[f"l{i}"] = loader
            p[f"o{i}"] = {"class_type": "PreviewAny", "inputs": {"source": [f"l{i}", 0]}}
        if slow:
            p.update(slow_prompt(slow, seed=int(time.time() * 1000) % (1 << 24)))
        return p

    def load(self, *loaders):
        item = self.server.run(self.prompt(*loaders))
        assert item["status"]["completed"], item["status"]
        self.settled()

    def settled(self):
        """The worker is through with whatever it had to do."""
        self.free(dry_run=True)

    def free(self, **body):
        r = self.server.post("/free", {**body, "wait": True})
        assert r.status_code == 200, r.text
        return r.json()

    def models(self):
        return {m["name"]: m for m in self.server.get("/berth/models").json()["models"]}

    def resident(self):
        return {n for n, m in self.models().items() if m["resident"]}

    def patch(self, name, **body):
        r = requests.patch(
            f"{self.server.url}/berth/models/{self.models()[name]['id']}",
            json=body,
            timeout=PATIENCE,
        )
        assert r.status_code == 200, r.text
        return r.json()

    def weights(self):
        """Bytes of weights on all devices, as their ledgers have them."""
        memory = self.server.get("/berth/memory").json()
        return sum(
            o["bytes"]
            for d in memory["devices"]
            for o in d["owners"]
            if o["tier"] in ("weights", "pinned")
        )

    def cached(self, prompt):
        """Nodes that a run of this prompt finds in the cache."""
        status = self.server.run(prompt)["status"]
        return [d["nodes"] for kind, d in status["messages"] if kind == "execution_cached"][0]


@pytest.fixture(params=["cpu", "null"])
def place(request, fresh, files, tmp_path):
    lay_out(tmp_path / "base", files)
    devices = {"cpu": "cpu=512m", "null": "cpu=512m,null:0=512m"}[request.param]
    return Place(fresh("--devices", devices), {"cpu": "cpu", "null": "null:0"}[request.param])


def verdicts(receipt):
    return {m["name"]: m["verdict"] for m in receipt["models"]}


# ---- the three scenarios


def test_A_eject_B_keep_C_keep_only_A_goes(place):
    place.load(place.unet("A", False), place.unet("B", True), place.unet("C", True))
    before = place.models()
    assert [before[n]["retention"] for n in "ABC"] == ["eject", "keep", "keep"]
    receipt = place.free(**BUTTON_ALL)
    assert verdicts(receipt) == {"A": "ejected", "B": "kept", "C": "kept"}
    assert place.resident() == {"B", "C"}
    assert receipt["violations"] == []
    after = place.models()
    for name in ("B", "C"):  # strictly left alone
        assert (after[name]["read"], after[name]["moved"]) == (
            before[name]["read"],
            before[name]["moved"],
        )
        assert after[name]["devices"] == before[name]["devices"]


def test_D_keep_E_keep_nothing_goes(place):
    prompt = place.prompt(place.unet("A", True), place.unet("B", True))
    assert place.server.run(prompt)["status"]["completed"]
    place.settled()
    held = place.weights()
    before = place.models()
    assert verdicts(place.free(**BUTTON_ALL)) == {"A": "kept", "B": "kept"}
    assert place.resident() == {"A", "B"} and place.weights() == held
    # the node cache is gone; the loaders run again and find their models: nothing is read or moved
    assert place.cached(prompt) == []
    place.settled()
    after = place.models()
    for name in ("A", "B"):
        assert after[name]["id"] == before[name]["id"]
        assert after[name]["attached"] == before[name]["attached"] + 1
        assert (after[name]["read"], after[name]["moved"]) == (
            before[name]["read"],
            before[name]["moved"],
        )


@pytest.mark.parametrize("loader", ["plain", "device"])
def test_a_plan_set_by_hand_outlives_the_node_cache(fresh, files, tmp_path, loader):
    """Kept is kept where it is: a loader that names no place moves nothing back."""
    lay_out(tmp_path / "base", files)
    place = Place(fresh("--devices", "cpu=512m,null:0=256m,null:1=256m"), "null:0")
    prompt = place.prompt(place.unet("A", True if loader == "device" else None))
    assert place.server.run(prompt)["status"]["completed"]
    whole = place.models()["A"]["devices"]
    before = place.patch("A", retention="keep", allocation="null:0,40%;null:1,60%#null:0")
    assert (
        before["moved"] > 0
        and before["devices"].keys() == {"null:0", "null:1"}
        and before["devices"] != whole
    )
    assert verdicts(place.free(**BUTTON_ALL)) == {"A": "kept"}
    assert place.cached(prompt) == []  # the loader ran
    place.settled()
    after = place.models()["A"]
    assert (after["read"], after["moved"]) == (before["read"], before["moved"])
    assert after["devices"] == before["devices"] and after["plan"] == before["plan"]
    # "": automatic from now on
    assert place.patch("A", allocation="")["devices"] == whole
    place.free(**BUTTON_ALL)
    assert place.cached(prompt) == []
    assert place.models()["A"]["devices"] == whole


def test_flux_eject_vae_clip_auto_second_free_empties(place):
    place.load(place.unet("A", False), place.vae(), place.clip())
    assert verdicts(place.free(**BUTTON_ALL)) == {"A": "ejected", "vae": "kept", "t5": "kept"}
    assert place.resident() == {"vae", "t5"}
    assert all(a["reason"] for n in ("vae", "t5") for a in place.models()[n]["anchors"])
    second = place.free(**BUTTON_ALL)
    assert verdicts(second) == {"vae": "ejected", "t5": "ejected"}
    assert place.resident() == set() and place.models() == {} and place.weights() == 0


def test_flux_eject_vae_clip_auto_marked_later(place):
    """The same when Flux is marked through the API instead of by its loader."""
    place.load(place.unet("A"), place.vae(), place.clip())
    assert place.patch("A", retention="eject")["state"] == "resident"
    assert verdicts(place.free(**BUTTON_ALL)) == {"A": "ejected", "vae": "kept", "t5": "kept"}
    place.free(**BUTTON_ALL)
    assert place.models() == {} and place.weights() == 0


def test_flux_eject_vae_clip_auto_freed_while_it_runs(place):
    """What is asked for during the prompt is one free, right after it, however often it was
    pressed."""
    s = place.server
    with s.ws() as ws:
        pid = s.queue(
            place.prompt(place.unet("A", False), place.vae(), place.clip(), slow=6), client_id=ws.id
        )["prompt_id"]
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "executing")
        assert s.post("/free", BUTTON_ALL).status_code == 200
        assert s.post("/free", BUTTON_ALL).status_code == 200  # pressed twice: once
        assert s.post("/free", BUTTON_UNLOAD).status_code == 200
        ws.until_done(pid)
    place.settled()
    assert place.resident() == {"vae", "t5"}
    place.free(**BUTTON_ALL)
    assert place.resident() == set()


# ---- the buttons


def test_buttons(place):
    prompt = place.prompt(place.unet("A"), place.vae())
    assert place.server.run(prompt)["status"]["completed"]
    assert sorted(place.cached(prompt)) == sorted(prompt)
    # "unload models": they leave memory, the node cache stays, nothing is read twice for a cached
    # run
    for path in ("/free", "/api/free"):
        r = place.server.post(path, BUTTON_UNLOAD)
        assert (r.status_code, r.content) == (200, b"")
    place.settled()
    assert place.weights() == 0
    assert sorted(place.cached(prompt)) == sorted(prompt)
    # "free model and node cache"
    r = place.server.post("/free", BUTTON_ALL)
    assert (r.status_code, r.content) == (200, b"")
    place.settled()
    assert place.cached(prompt) == []
    # free_memory alone unloads too
    assert place.server.post("/free", {"free_memory": True}).status_code == 200
    place.settled()
    assert place.models() == {} and place.weights() == 0
    assert place.cached(prompt) == []


def test_nothing_asked_nothing_done(place):
    place.load(place.unet("A"))
    for body in (
        {},
        {"unload_models": False, "free_memory": False},
        {"unload_models": None},
        {"other": 1},
    ):
        assert place.server.post("/free", body).status_code == 200
    assert (
        requests.post(place.server.url + "/free", timeout=PATIENCE).status_code == 200
    )  # no body at all
    place.settled()
    assert place.resident() == {"A"}
    metrics = place.server.get("/metrics").text
    assert "\nberth_frees_total 0\n" in metrics


def test_malformed(place):
    url = place.server.url + "/free"
    for body in (
        b"{",
        b"[]",
        b"7",
        b'{"wait": 1}',
        b'{"force": "yes"}',
        b'{"models": "A"}',
        b'{"models": [{}]}',
        b'{"devices": [7.5]}',
        b'{"tiers": []}',
        b'{"tiers": ["vram"]}',
        b'{"models": [""]}',
        b'{"reason": 5}',
    ):
        r = requests.post(url, data=body, timeout=PATIENCE)
        assert r.status_code == 400, (body, r.text)
        assert r.json()["error"], body
    many = requests.post(url, json={"models": ["m"] * 1000}, timeout=PATIENCE)
    assert many.status_code == 400 and "256" in many.json()["error"]


def test_a_typo_does_not_free(place):
    place.load(place.unet("A"))
    for body in (
        {"dry_rum": True},
        {"dryrun": True},
        {"dry-run": True},
        {"wiat": True},
        {"model": ["B"]},
        {"tires": ["weights"]},
        {"device": ["cpu"]},
        {"wait": True, "modles": ["B"]},
        {"wait": True, "anything": 1},
        {"force": False, "Models": ["B"]},
    ):
        r = place.server.post("/free", {**BUTTON_ALL, **body})
        assert r.status_code == 400, (body, r.text)
        assert "dry_run" in r.json()["error"] and repr([k for k in body][-1]) in r.json()["error"]
    place.settled()
    assert place.resident() == {"A"}
    nobodys = {"other": 1, "at": 2, "mode": 3, "unload_modles": 4}  # not ours: as ComfyUI
    r = place.server.post("/free", {**BUTTON_ALL, **nobodys})
    assert (r.status_code, r.content) == (200, b"")
    place.settled()
    assert place.resident() == set()


# ---- receipts


def test_receipt(place):
    place.load(place.unet("A"), place.unet("B", True))
    held = place.models()["A"]["bytes"]
    dry = place.free(**BUTTON_ALL, dry_run=True)
    assert dry["dry_run"] and dry["serial"] == 0
    assert verdicts(dry) == {"A": "ejected", "B": "kept"}
    assert place.resident() == {"A", "B"}
    receipt = place.free(**BUTTON_ALL, reason="a test")
    assert receipt["reason"] == "a test" and receipt["serial"] == 1 and not receipt["dry_run"]
    assert verdicts(receipt) == verdicts(dry)
    line = {m["name"]: m for m in receipt["models"]}
    assert line["A"]["bytes"] == held and line["A"]["retention"] == "auto"
    assert line["B"]["why"] == "marked keep"
    device = {d["device"]: d for d in receipt["devices"]}[place.device]
    gone = sum(device["before"].values()) - sum(device["after"].values())
    assert device["released"] == gone >= held
    assert receipt["rss"]["after"] > 0 and receipt["seconds"] < 60


def test_force_takes_all(place):
    place.load(place.unet("A", True), place.vae())
    assert verdicts(place.free(force=True)) == {"A": "ejected", "vae": "ejected"}
    assert place.weights() == 0


def test_selectors(place):
    place.load(place.unet("A"), place.unet("B"), place.unet("C", True))
    ids = {n: m["id"] for n, m in place.models().items()}
    assert verdicts(place.free(models=["A"]))["A"] == "ejected"
    assert place.resident() == {"B", "C"}
    assert verdicts(place.free(models=[ids["B"], f"C#{ids['C']}"])) == {"B": "ejected", "C": "kept"}
    assert verdicts(place.free(models=["C"], force=True)) == {"C": "ejected"}
    r = place.server.post("/free", {"models": ["nobody"], "wait": True})
    assert r.status_code == 404 and "nobody" in r.json()["error"]
    r = place.server.post("/free", {"devices": ["cuda:77"], "wait": True})
    assert r.status_code == 404 and "cuda:77" in r.json()["error"]
    # nobody waits: clients of this route expect a 200 whatever happens
    assert place.server.post("/free", {"models": ["nobody"]}).status_code == 200


@pytest.mark.parametrize("how", [{"models": ["B"]}, {"devices": ["cpu"]}, {"tiers": ["pool-idle"]}])
def test_a_narrowed_free_takes_only_what_is_selected(fresh, files, tmp_path, how):
    lay_out(tmp_path / "base", files)
    place = Place(fresh("--devices", "cpu=512m,null:0=512m"), "null:0")
    other = Place(place.server, "cpu")
    place.load(place.unet("A", False), other.unet("B", False))
    want = {"A": "kept", "B": "kept" if "tiers" in how else "ejected"}
    assert verdicts(place.free(free_memory=True, dry_run=True, **how)) == want
    assert verdicts(place.free(free_memory=True, **how)) == want
    assert place.models()["A"]["anchors"] == [{"reason": "until the next free", "count": 1}]
    read = place.models()["A"]["read"]
    place.load(place.vae())  # anchored, it does not need a prompt that names it
    place.load(place.unet("A", False))
    assert place.models()["A"]["read"] == read  # found again
    place.free(unload_models=True)
    assert "A" not in place.resident()


def test_a_mark_makes_nobody_stay_longer(place):
    place.load(place.unet("A", False), place.unet("B"))
    assert place.resident() == {"A", "B"}  # nothing computed with them
    place.load(place.vae())  # names neither: eject and auto go alike
    assert place.resident() == {"vae"}


def test_devices_and_tiers(fresh, files, tmp_path):
    lay_out(tmp_path / "base", files)
    place = Place(fresh("--devices", "cpu=512m,null:0=256m,null:1=256m"), "null:1")
    other = Place(place.server, "null:0")
    place.load(place.unet("A", True), other.unet("B", True))
    for name in ("A", "B"):
        place.patch(name, retention="auto")
    assert place.models()["A"]["devices"].keys() == {"null:1"}
    # weights alone: the pool keeps what they leave
    r = place.free(unload_models=True, devices=["null:1"], tiers=["weights"])
    assert verdicts(r) == {"A": "ejected", "B": "kept"} and r["tiers"] == ["weights"]
    assert [d["device"] for d in r["devices"]] == ["null:1"]
    assert r["devices"][0]["after"]["pool-idle"] >= r["models"][0]["bytes"]
    r = place.free(tiers=["pool-idle"])
    assert all(
        d["after"]["pool-idle"] < 1 << 20 for d in r["devices"]
    )  # ends of pages that are in use
    assert place.resident() == {"B"}


# ---- when


def test_waits_for_the_prompt_and_precedes_the_next(place):
    s = place.server
    place.load(place.vae())
    with s.ws() as ws:
        first = s.queue(place.prompt(place.vae(), slow=8), client_id=ws.id)["prompt_id"]
        second = s.queue(place.prompt(place.vae()), client_id=ws.id)["prompt_id"]
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "executing")
        began = time.time()
        assert s.post("/free", BUTTON_ALL).status_code == 200
        quick = time.time() - began
        assert place.resident() == {"vae"}  # not under a running prompt's feet
        ws.until_done(first)
        got = ws.until_done(second)
    assert quick < 5
    cached = [
        m["data"]["nodes"] for m in got if isinstance(m, dict) and m["type"] == "execution_cached"
    ]
    assert cached == [[]]  # freed before it began, and once: the second prompt's models are there
    place.settled()
    assert place.resident() == {"vae"}


def test_a_waiting_free_answers_after_the_prompt(place):
    s = place.server
    pid = s.queue(place.prompt(place.vae(), slow=6))["prompt_id"]
    receipt = place.free(**BUTTON_ALL)
    assert s.get(f"/history/{pid}").json() or verdicts(receipt) == {}
    s.wait(pid)


def running(place, *loaders):
    """Starts a prompt that only an interrupt ends, and returns when its models are there."""
    pid = place.server.queue(place.prompt(*loaders, slow=400))["prompt_id"]
    give_up = time.monotonic() + PATIENCE
    # resident, not loading: a loader says eject when its model is there
    while (
        sum(m["state"] == "resident" for m in place.models().values()) < len(loaders)
        or not place.server.get("/queue").json()["queue_running"]
    ):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return pid


def leave(server, method, path, body):
    """Sends a request that has to wait, and resets the connection: the server sees that before any
    later request."""
    body = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as s:
        s.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
            f"\r\n".encode() + body
        )
        s.settimeout(0.5)
        with pytest.raises(TimeoutError):
            s.recv(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_dry_run_does_not_wait_for_the_prompt(place):
    s = place.server
    pid = running(place, place.vae(), place.unet("A", False))
    dry = place.free(**BUTTON_ALL, dry_run=True)
    assert s.get(f"/history/{pid}").json() == {}  # it was not waited for
    assert dry["dry_run"] and place.resident() == {"A", "vae"}
    s.post("/free", BUTTON_ALL)
    s.post("/interrupt")
    s.wait(pid)
    place.settled()
    assert (
        {n for n, v in verdicts(dry).items() if v == "kept"} == place.resident() == {"vae"}
    )  # it came true


def test_a_mark_does_not_wait_for_the_prompt(place):
    """What a running prompt's model is marked as counts from then on: for the free that comes at
    its end."""
    s = place.server
    pid = running(place, place.vae(), place.unet("A", True))
    assert place.patch("A", retention="eject")["retention"] == "eject"
    assert place.patch("vae", retention="keep")["retention"] == "keep"
    assert place.patch("vae")["retention"] == "keep"  # not a word: the model as it is
    assert s.get(f"/history/{pid}").json() == {}
    assert place.resident() == {"A", "vae"}
    s.post("/free", BUTTON_ALL)
    s.post("/interrupt")
    s.wait(pid)
    place.settled()
    assert place.resident() == {"vae"}


def test_who_leaves_before_his_turn(place):
    """A change whose client went is not made. A free is remembered, as in ComfyUI, though nobody
    reads its receipt."""
    s = place.server
    place.load(place.unet("B", True), place.unet("C", True))
    b, c = (place.models()[n]["id"] for n in "BC")
    pid = running(place, place.vae())
    leave(s, "DELETE", f"/berth/models/{b}?force=1", {})
    leave(
        s,
        "PATCH",
        f"/berth/models/{c}",
        {"allocation": "cpu,*#" + place.device, "retention": "eject"},
    )
    leave(s, "POST", "/free", {**BUTTON_ALL, "wait": True})
    s.post("/interrupt")
    s.wait(pid)
    place.settled()
    assert place.resident() == {"B", "C"}  # no vae
    assert place.models()["C"]["retention"] == "keep"


@pytest.mark.parametrize("wait", [None, False, True])
def test_who_only_lingers_survives_no_free(place, wait):
    """A's cached output went when B's prompt began; it lingers for that prompt's sake, and no
    longer."""
    s = place.server
    place.load(place.unet("A"))
    s.queue(place.prompt(place.unet("B", False), slow=6))
    give_up = time.monotonic() + PATIENCE
    while "B" not in place.resident():
        assert time.monotonic() < give_up
        time.sleep(0.01)
    assert "A" in place.resident()
    if wait is not None:
        r = s.post("/free", {**BUTTON_UNLOAD, "wait": True} if wait else BUTTON_UNLOAD)
        assert r.status_code == 200, r.text
        if wait:
            assert verdicts(r.json()) == {"B": "ejected"}
    s.until_idle()
    place.settled()
    assert place.resident() == ({"B"} if wait is None else set())  # no sampler used B: no cleanup


def test_disable_smart_memory(fresh, files, tmp_path):
    """Models go with every prompt, marked ones and others; kept ones stay."""
    lay_out(tmp_path / "base", files)
    place = Place(fresh("--devices", "cpu=512m", "--disable-smart-memory"), "cpu")
    place.load(place.unet("A"), place.unet("B", True), place.unet("C", False), place.vae())
    assert place.resident() == {"B"}
    place.load(place.unet("A"), place.clip())
    assert place.resident() == {"B"}


def test_idle_free_is_quick(place):
    """A bar for people, measured in bench/; here only that nothing waits for a timer."""
    place.free(**BUTTON_ALL)
    began = time.time()
    for _ in range(20):
        place.free(**BUTTON_ALL)
    assert (time.time() - began) / 20 < 1


def test_many_cycles_leave_nothing(place):
    prompt = place.prompt(place.unet("A"), place.vae(), place.clip())
    for _ in range(10):
        assert place.server.run(prompt)["status"]["completed"]
        assert len(place.free(**BUTTON_ALL)["models"]) == 3
    assert place.models() == {} and place.weights() == 0


# ---- files that change


@pytest.mark.parametrize("how", ["replaced", "written again"])
def test_a_file_that_changed_is_loaded_again(place, files, how):
    """The loader's output is in the cache, the model is kept: neither hides the new file."""
    prompt = place.prompt(place.unet("A"), place.vae())
    place.load(place.unet("A"), place.vae())
    place.patch("A", retention="keep")
    assert place.cached(prompt) == ["l0", "o0", "l1", "o1"]
    old = place.models()["A"]
    with open(old["path"], "rb") as f:
        data = bytearray(f.read())
    data[-1] ^= 1
    with open(
        old["path"] + ".next" if how == "replaced" else old["path"],
        "r+b" if how != "replaced" else "wb",
    ) as f:
        f.write(data)
    if how == "replaced":
        os.replace(old["path"] + ".next", old["path"])
    assert place.cached(prompt) == ["l1", "o1"]
    place.settled()
    new = place.models()["A"]
    assert len(place.models()) == 2  # nothing is left of the old one, kept or not
    assert new["id"] != old["id"] and new["read"] == new["bytes"] and new["retention"] == "keep"
    assert place.cached(prompt) == ["l0", "o0", "l1", "o1"]


def test_placements_are_in_the_json_log(fresh, files, tmp_path):
    """What ComfyUI-MultiGPU's extract_allocation.py looks for: these words in the message of a
    record."""
    lay_out(tmp_path / "base", files)
    log = tmp_path / "logs" / "mgpu.jsonl"
    place = Place(
        fresh("--devices", "cpu=512m,null:0=512m", env={"MGPU_JSON_LOG_PATH": str(log)}), "null:0"
    )
    virtual = place.unet("B", True)
    virtual["inputs"]["virtual_vram_gb"] = 0.005
    place.load(place.unet("A", True), virtual)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    found = {
        word: [r for r in records if word in r.get("message", "")]
        for word in ("Final Allocation String", "Total memory", "Virtual VRAM")
    }
    assert {word: len(r) for word, r in found.items()} == {
        "Final Allocation String": 2,
        "Total memory": 2,
        "Virtual VRAM": 2,
    }  # alone, and in the table
    for r in sum(found.values(), []):
        assert (
            r["event_category"] == "MultiGPU DisTorch V2"
            and r["component"]
            and r["timestamp"].endswith("Z")
        )
    strings = [r["message"].splitlines()[1] for r in found["Final Allocation String"]]
    assert all(s.startswith("null:0,") for s in strings) and "cpu," in strings[1]
