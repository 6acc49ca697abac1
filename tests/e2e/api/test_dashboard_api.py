"""What the dashboard lives on: its files, blocks of models, previews of plans, berth.memory."""

import gzip
import json
import os
import subprocess
import time

import pytest
import requests

from conftest import BINARY, PATIENCE, Server, synth
from test_free import Place, files, lay_out  # noqa: F401 (a fixture)
from test_trace import slow_prompt

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
WEB = os.path.join(ROOT, "web")
FLAGS = {"berth": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory, files):  # noqa: F811
    base = tmp_path_factory.mktemp("berth") / "base"
    lay_out(base, files)
    with Server(base, "--devices", "cpu=512m,null:0=256m,null:1=64m") as s:
        yield Place(s, "null:0")
        assert s.process.poll() is None


@pytest.fixture(autouse=True)
def empty(place):
    place.server.until_idle()
    place.free(force=True, free_memory=True)


# -- files


def test_page_and_files(place):
    with open(os.path.join(WEB, "index.html"), "rb") as f:
        page = f.read()
    for path in ("/berth", "/berth/", "/", "/berth/web/index.html"):
        r = place.server.get(path)
        assert (r.status_code, r.content) == (200, page), path
        assert r.headers["Content-Type"] == "text/html; charset=utf-8"
    for name in os.listdir(WEB):
        if not name.endswith((".js", ".css", ".svg")):
            continue
        with open(os.path.join(WEB, name), "rb") as f:
            assert place.server.get(f"/berth/web/{name}").content == f.read(), name
    assert place.server.get("/berth/web/nothing.js").status_code == 404
    assert place.server.get("/berth/web/../index.html").status_code == 404


def test_a_browser_asks_again_for_nothing(place):
    first = place.server.get("/berth")
    again = place.server.get("/berth", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_files_are_packed(place):
    r = requests.get(
        place.server.url + "/berth",
        headers={"Accept-Encoding": "gzip"},
        stream=True,
        timeout=PATIENCE,
    )
    assert r.headers["Content-Encoding"] == "gzip"
    raw = r.raw.read()
    assert (
        gzip.decompress(raw)
        == place.server.get("/berth", headers={"Accept-Encoding": "identity"}).content
    )


def answer(server, path, **headers):
    """The bytes that travel, and the headers that say what they are."""
    r = requests.get(
        server.url + path,
        headers={"Accept-Encoding": "gzip", **headers},
        stream=True,
        timeout=PATIENCE,
    )
    assert r.status_code == 200, path
    for one in ("Vary", "Content-Encoding", "Content-Security-Policy", "Referrer-Policy"):
        assert len(r.raw.headers.getlist(one)) <= 1, (path, one)
    return r.raw.read(decode_content=False), r.headers


def test_files_are_packed_once(fresh, tmp_path):
    """Whatever the flag says of other answers: JSON among the files was packed twice with it."""
    (tmp_path / "index.html").write_text("frontend")
    with open(os.path.join(WEB, "templates", "index.json"), "rb") as f:
        index = f.read()
    for flags in ((), ("--enable-compress-response-body",)):
        s = fresh("--front-end-root", tmp_path, *flags)
        for path in (
            "/templates/index.json",
            "/berth/web/templates/index.json",
            "/berth",
            "/berth/web/main.js",
        ):
            raw, headers = answer(s, path)
            assert headers["Content-Encoding"] == "gzip" and headers["Vary"] == "Accept-Encoding"
            assert (
                gzip.decompress(raw) == s.get(path, headers={"Accept-Encoding": "identity"}).content
            )
            plain, headers = answer(s, path, **{"Accept-Encoding": "identity"})
            assert "Content-Encoding" not in headers and plain == gzip.decompress(raw)
            assert index == plain or not path.endswith(".json")
        s.stop()


def test_own_answers_are_packed_where_that_saves(place):
    """A dashboard with models loaded stays small on the wire; ComfyUI's routes do as ComfyUI's do
    without the flag."""
    place.load(place.unet("A", True))
    a = place.models()["A"]["id"]
    for path in (f"/berth/models/{a}?blocks=1", f"/api/berth/models?id={a}&blocks=1"):
        raw, headers = answer(place.server, path)
        assert headers["Content-Encoding"] == "gzip" and headers["Vary"] == "Accept-Encoding"
        plain = json.loads(gzip.decompress(raw))
        assert plain == place.server.get(path, headers={"Accept-Encoding": "identity"}).json()
        assert len(raw) * 4 < len(json.dumps(plain))
    body = {"model": a, "allocation": "cpu,*"}
    r = requests.post(place.server.url + "/berth/plan", json=body, timeout=PATIENCE)
    assert r.headers["Content-Encoding"] == "gzip" and r.json()["moves"] > 0
    for path in ("/berth/health", "/object_info", "/history"):  # small, and not ours
        assert "Content-Encoding" not in answer(place.server, path)[1], path


def test_a_page_may_load_nothing_else(place):
    policy = place.server.get("/berth").headers["Content-Security-Policy"]
    policy = dict(x.strip().split(" ", 1) for x in policy.split(";"))
    assert policy.pop("img-src") == "'self' blob: data:"
    assert all(policy.pop(x) == "'self'" for x in ("default-src", "style-src", "connect-src"))
    assert policy == {
        x: "'none'" for x in ("object-src", "base-uri", "form-action", "frame-ancestors")
    }
    assert place.server.get("/berth").headers["X-Content-Type-Options"] == "nosniff"


def test_the_token_opens_the_page(fresh):
    s = fresh("--token", "long-enough-token")
    assert s.get("/berth").status_code == 401
    browser = requests.Session()
    assert answer(s, "/berth?token=long-enough-token")[1]["Referrer-Policy"] == "no-referrer"
    assert (
        browser.get(s.url + "/berth?token=long-enough-token", timeout=PATIENCE).status_code == 200
    )
    assert browser.get(s.url + "/berth/web/index.html", timeout=PATIENCE).status_code == 200
    assert browser.get(s.url + "/berth/models", timeout=PATIENCE).status_code == 200


def test_beside_a_frontend(fresh, tmp_path):
    front = tmp_path / "front"
    front.mkdir()
    (front / "index.html").write_text("<title>frontend</title>")
    s = fresh("--front-end-root", front)
    assert s.get("/").text == "<title>frontend</title>"
    with open(os.path.join(WEB, "index.html"), "rb") as f:
        assert s.get("/berth").content == f.read()


# -- blocks


def blocks_of(place, name):
    one = place.server.get(f"/berth/models/{place.models()[name]['id']}?blocks=1").json()
    return one["blocks"]


def summed(blocks, key):
    out = {}
    for b in blocks:
        out[b[key]] = out.get(b[key], 0) + b["bytes"]
    return out


def test_blocks(place):
    place.load(place.unet("A", True))
    a = place.models()["A"]
    blocks = blocks_of(place, "A")
    assert isinstance(a["blocks"], int) and len(blocks) == a["blocks"]
    assert [set(b) for b in blocks] == [{"name", "bytes", "device", "planned"}] * len(blocks)
    assert sum(b["bytes"] for b in blocks) == a["bytes"] and len(
        {b["name"] for b in blocks}
    ) == len(blocks)
    assert summed(blocks, "device") == summed(blocks, "planned") == a["devices"]
    moved = place.patch("A", allocation="null:0,50%;cpu,50%")
    after = blocks_of(place, "A")
    assert summed(after, "device") == moved["devices"] and len(moved["devices"]) == 2
    assert [b["name"] for b in after] == [
        b["name"] for b in blocks
    ]  # execution order, whatever is where
    place.free(models=["A"], force=True)
    if "A" in place.models():  # a cached loader still names it
        assert all(b["device"] is None and b["planned"] for b in blocks_of(place, "A"))
    assert place.server.get("/berth/models/999999?blocks=1").status_code == 404


def test_a_list_of_one_model_or_none(place):
    """What a page asks for that was told of a model a moment ago: gone meanwhile is no error."""
    place.load(place.unet("A", True))
    a = place.models()["A"]
    one = place.server.get(f"/berth/models?id={a['id']}&blocks=1").json()["models"]
    assert len(one) == 1 and one[0]["blocks"] == blocks_of(place, "A")
    assert (
        place.server.get(f"/berth/models?id={a['id']}").json()["models"][0]["blocks"] == a["blocks"]
    )
    assert place.server.get("/berth/models?id=999999&blocks=1").json() == {"models": []}
    for wrong in ("id=x", "id=&blocks=1", "id=-1", "blocks=1"):
        r = place.server.get(f"/berth/models?{wrong}")
        assert r.status_code == 400 and r.json()["error"], wrong


# -- plans of models that are there


def look(place, model, **body):
    return place.server.post("/berth/plan", {"model": model, **body})


def test_plan_of_a_model_is_what_a_patch_does(place):
    place.load(place.unet("A", True), place.unet("B", True))
    for body in (
        {"allocation": "null:0,50%;cpu,50%"},
        {"allocation": "null:1,30%;cpu,*", "layout": "tail"},
        {"layout": "spread"},
        {"virtual_vram_gb": 0.005, "donor_device": "null:1"},
        {"allocation": ""},
        {"allocation": "", "compute": "null:1"},
    ):
        before = place.models()["A"]
        seen = look(place, before["id"], **body)
        assert seen.status_code == 200, seen.text
        seen = seen.json()
        assert place.models()["A"]["devices"] == before["devices"] == seen["now"]  # nothing moved
        assert sum(seen["after"].values()) == before["bytes"] == seen["total_bytes"]
        done = place.patch("A", **body)
        assert done["devices"] == seen["after"], body
        assert done["moved"] - before["moved"] == seen["moves"], body
        assert summed(blocks_of(place, "A"), "device") == summed(seen["blocks"], "device")
        assert (
            done["plan"]["layout"] == seen["layout"] and done["plan"]["compute"] == seen["compute"]
        )


def test_plan_of_a_model_refuses(place):
    place.load(place.unet("A", True))
    a = place.models()["A"]["id"]
    assert look(place, 999999).status_code == 404
    for body in (
        {"model": "A"},
        {"model": a, "folder": "checkpoints"},
        {"model": a, "allocation": "nowhere,1gb"},
        {"model": a, "layout": "sideways"},
        {"model": a, "retention": "keep"},
        {"model": -1},
        {"model": a, "allocation": "null:1,1tb"},
    ):
        r = place.server.post("/berth/plan", body)
        assert r.status_code == 400 and r.json()["error"], body


@pytest.fixture(scope="module")
def tight(tmp_path_factory, files):  # noqa: F811
    """The first card has room for half a model, so that automatic plans spill to one of two
    donors."""
    base = tmp_path_factory.mktemp("tight") / "base"
    lay_out(base, files)
    half = os.path.getsize(base / "models/diffusion_models/A.safetensors") // 2
    with Server(base, "--devices", f"cpu=512m,null:0={half},null:1=64m") as s:
        yield Place(s, "null:0")


def test_plan_of_a_model_that_spills(tight):
    """Links that nobody measured yet are, before the look is answered: else a patch would choose
    its donor by them."""
    loader = tight.unet("A", True)
    loader["inputs"]["expert_mode_allocations"] = "null:0,10%;cpu,90%"
    tight.load(loader)
    a = tight.models()["A"]["id"]
    seen = look(tight, a, allocation="").json()
    assert len(seen["after"]) > 1 and any(
        "measured" in n["text"] and "not" not in n["text"] for n in seen["notes"]
    ), seen["notes"]
    assert tight.patch("A", allocation="")["devices"] == seen["after"]
    assert look(tight, a).json()["moves"] == 0  # without a word: the plan it has


def test_a_plan_without_room_is_refused_in_both(tight):
    loader = tight.unet("A", True)
    loader["inputs"]["expert_mode_allocations"] = "cpu,*"
    tight.load(loader)
    a = tight.models()["A"]
    body = {"allocation": "null:0,*"}
    small = look(tight, a["id"], **body)
    patch = requests.patch(
        f"{tight.server.url}/berth/models/{a['id']}", json=body, timeout=PATIENCE
    )
    for r in (small, patch):
        assert r.status_code == 400 and "null:0 would hold" in r.json()["error"], r.text
    assert tight.models()["A"]["devices"] == a["devices"]


def test_plan_while_a_prompt_runs(place):
    place.load(place.unet("A", True))
    a = place.models()["A"]
    running = place.server.queue(slow_prompt(400, seed=7))["prompt_id"]
    while not place.server.get("/queue").json()["queue_running"]:
        time.sleep(0.01)
    seen = look(place, a["id"], allocation="cpu,*")
    assert seen.status_code == 200 and seen.json()["moves"] == seen.json()["after"]["cpu"] > 0
    assert place.server.get(f"/history/{running}").json() == {}  # it was not waited for
    place.server.post("/interrupt")
    place.server.wait(running)


# -- berth.memory


def memory(ws, want=lambda d: True):
    while True:
        m = ws.recv()
        if isinstance(m, dict) and m["type"] == "berth.memory" and want(m["data"]):
            return m["data"]


def test_memory_comes_at_once(place):
    with place.server.ws(flags=FLAGS) as ws:
        d = memory(ws)
        assert set(d) == {"time", "devices", "stream"} and abs(d["time"] / 1000 - time.time()) < 600
        assert [x["name"] for x in d["devices"]] == ["cpu", "null:0", "null:1"]
        told = {x["name"]: x for x in place.server.get("/berth/devices").json()["devices"]}
        for x in d["devices"]:
            assert set(x) == {"name", "kind", "budget", "used", "by"}
            assert x["budget"] == told[x["name"]]["budget"] and x["kind"] == told[x["name"]]["kind"]
            assert set(x["by"]) == set(told[x["name"]]["tiers"])
            assert x["used"] == sum(n for k, n in x["by"].items() if k != "pool-idle")
        assert set(d["stream"]) == {"bytes", "seconds", "exposed_seconds", "gb_per_s"}


def test_memory_follows_models(place):
    def weights(d):
        return {x["name"]: x["by"]["weights"] for x in d["devices"]}["null:0"]

    with place.server.ws(flags=FLAGS) as ws:
        memory(ws, lambda d: weights(d) == 0)
        place.load(place.unet("A", True))
        size = place.models()["A"]["devices"]["null:0"]
        memory(ws, lambda d: weights(d) >= size)
        place.free(force=True, free_memory=True)
        memory(ws, lambda d: weights(d) == 0)


def test_memory_goes_on_while_a_prompt_runs(place):
    with place.server.ws(flags=FLAGS) as ws:
        memory(ws)
        running = place.server.queue(slow_prompt(400, seed=11))["prompt_id"]
        times = [memory(ws)["time"] for _ in range(4)]
        assert times == sorted(times)
        place.server.post("/interrupt")
        place.server.wait(running)


def test_our_messages_only_for_those_who_ask(place):
    with place.server.ws() as plain, place.server.ws(
        flags={"supports_preview_metadata": True}
    ) as other, place.server.ws(flags=FLAGS) as ws:
        memory(ws)
        place.load(place.unet("A", True))
        memory(ws, lambda d: any(x["by"]["weights"] for x in d["devices"]))
        prompt = place.server.queue(place.prompt(place.vae()))["prompt_id"]
        place.server.wait(prompt)
        for quiet in (
            plain,
            other,
        ):  # reads on to the end of that prompt: nothing of ours is among it
            while True:
                m = quiet.recv()
                assert not isinstance(m, dict) or not m["type"].startswith("berth.")
                if (
                    isinstance(m, dict)
                    and m["type"] == "status"
                    and m["data"]["status"]["exec_info"]["queue_remaining"] == 0
                    and place.server.get(f"/history/{prompt}").json()
                ):
                    break


def test_memory_tells_what_is_streamed(fresh, tmp_path):
    """Half of the network lies on another device than the one that computes: every pass copies
    it."""
    base = tmp_path / "base"
    synth(
        base / "models" / "checkpoints" / "v1-5-pruned-emaonly-fp16.safetensors",
        "sd15-tiny",
        "--dtype",
        "f16",
    )
    os.makedirs(base / "tokenizers")
    subprocess.run(
        [BINARY, "synth", "--tokenizer", str(base / "tokenizers" / "clip")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    with open(os.path.join(ROOT, "examples", "workflows", "distorch2.json")) as f:
        workflow = json.load(f)
    for node in workflow.values():
        if "expert_mode_allocations" in node["inputs"]:
            node["inputs"].update(
                expert_mode_allocations="null:0,50%;cpu,50%", compute_device="cpu"
            )
        node["inputs"].update(
            {
                k: v
                for k, v in {"width": 64, "height": 64, "steps": 4}.items()
                if k in node["inputs"]
            }
        )
    s = fresh("--devices", "cpu=512m,null:0=256m")
    with s.ws(flags=FLAGS) as ws:
        assert memory(ws)["stream"] == {
            "bytes": 0,
            "seconds": 0,
            "exposed_seconds": 0,
            "gb_per_s": 0,
        }
        status = s.run(workflow)["status"]
        assert status["completed"], status
        streamed = sum(n["stream"]["bytes"] for n in status["berth"]["networks"] if "stream" in n)
        assert streamed > 0
        memory(ws, lambda d: d["stream"]["bytes"] == streamed and d["stream"]["gb_per_s"] > 0)
        memory(ws, lambda d: d["stream"]["bytes"] == streamed and d["stream"]["gb_per_s"] == 0)
