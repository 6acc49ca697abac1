"""What the log says of prompts: accepted, refused, ended; on stderr and in the frontend's panel."""

import re

from conftest import image_prompt, uid


def lines(server, event):
    return [line for line in server.errors().splitlines() if f" {event} " in line]


def pairs(line):
    return {k: q or v for k, q, v in re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', line)}


def test_done(server):
    first, second = uid("first"), uid("second")
    server.queue(image_prompt(4001), prompt_id=first, number=7)
    server.wait(first)
    server.queue(image_prompt(4001), prompt_id=second)
    server.wait(second)
    server.until_idle()
    accepted = {p["id"]: p for p in map(pairs, lines(server, "prompt.accepted"))}
    assert accepted[first]["nodes"] == "2" and float(accepted[first]["number"]) == 7
    assert second in accepted
    done = {p["id"]: p for p in map(pairs, lines(server, "prompt.done"))}
    assert (done[first]["executed"], done[first]["cached"]) == ("2", "0")
    assert int(done[second]["cached"]) > 0 and float(done[first]["seconds"]) >= 0
    panel = server.get("/internal/logs").text
    assert f"prompt.accepted id={first}" in panel and f"prompt.done id={first}" in panel


def test_a_value_cannot_add_pairs(server):
    """Quotes in what a client chose are escaped: the line has no outcome, and no second class."""
    prompt = image_prompt(4002)
    prompt["9"] = {"class_type": 'no" outcome=fine class="\\', "inputs": {}}
    server.queue(prompt, prompt_id=uid("quotes"), expect=400)
    (line,) = [x for x in lines(server, "prompt.invalid") if uid("quotes") in x]
    got = dict(re.findall(r' (\w+)=("(?:[^"\\]|\\.)*"|\S+)', line))
    assert "outcome=fine" in line and "outcome" not in got and got["id"] == uid("quotes")


def test_failed(server):
    prompt = {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": 1},
        },
        "2": {
            "class_type": "ImageCrop",
            "inputs": {"image": ["1", 0], "width": 64, "height": 64, "x": 0, "y": 0},
        },
        "5": {"class_type": "VAELoader", "inputs": {"vae_name": "pixel_space"}},
        "7": {"class_type": "VAEEncode", "inputs": {"pixels": ["2", 0], "vae": ["5", 0]}},
        "9": {"class_type": "SaveLatent", "inputs": {"samples": ["7", 0], "filename_prefix": "x"}},
    }
    server.queue(prompt, prompt_id=uid("log-bad"))
    item = server.wait(uid("log-bad"))
    said = item["status"]["messages"][-1][1]
    line = [x for x in lines(server, "prompt.failed") if uid("log-bad") in x]
    assert len(line) == 1 and " warn " in line[0]
    got = pairs(line[0])
    assert got["node"] == said["node_id"] and got["class"] == said["node_type"]
    assert got["why"] and got["why"] in said["exception_message"]


def test_refused(server):
    prompt = image_prompt()
    prompt["1"]["inputs"]["width"] = "wide and high"
    server.queue(prompt, prompt_id=uid("log-no"), expect=400)
    got = [p for p in map(pairs, lines(server, "prompt.invalid")) if p["id"] == uid("log-no")]
    assert len(got) == 1
    assert (got[0]["node"], got[0]["class"], got[0]["input"]) == ("1", "EmptyImage", "width")
    assert "wide and high" in got[0]["why"]
    server.queue({}, prompt_id=uid("log-none"), expect=400)
    got = [p for p in map(pairs, lines(server, "prompt.invalid")) if p["id"] == uid("log-none")]
    assert len(got) == 1 and "node" not in got[0] and " " in got[0]["why"]


def test_interrupted(server):
    server.post("/berth/queue", {"paused": True})
    slow = {
        str(i): {
            "class_type": "EmptyImage",
            "inputs": {"width": 4096, "height": 4096, "batch_size": 4, "color": 900 + i},
        }
        for i in range(1, 40)
    }
    for i in range(1, 40):
        slow[f"s{i}"] = {"class_type": "PreviewImage", "inputs": {"images": [str(i), 0]}}
    with server.ws() as ws:
        server.queue(slow, prompt_id=uid("log-stop"), client_id=ws.id)
        server.post("/berth/queue", {"paused": False})
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "executing" and m["data"]["node"])
        server.post("/interrupt")
        ws.until_done(uid("log-stop"))
    got = [p for p in map(pairs, lines(server, "prompt.interrupted")) if p["id"] == uid("log-stop")]
    assert len(got) == 1 and got[0]["class"] in ("EmptyImage", "PreviewImage")
