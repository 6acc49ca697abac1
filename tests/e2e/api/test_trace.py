"""Messages in their order: comfyui-api.md 2.5, seen by a real WebSocket client."""

import os

from conftest import image_prompt


def slow_prompt(nodes=40, side=1500, seed=0):
    """A chain of resamplings that takes a while, with a place to interrupt before each."""
    p = {
        "0": {
            "class_type": "EmptyImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1, "color": seed},
        }
    }
    for i in range(nodes):
        p[str(i + 1)] = {
            "class_type": "ImageScale",
            "inputs": {
                "image": [str(i), 0],
                "upscale_method": "lanczos",
                "crop": "disabled",
                "width": side + i,
                "height": side,
            },
        }
    p["out"] = {"class_type": "PreviewImage", "inputs": {"images": [str(nodes), 0]}}
    return p


def short(m):
    """A message as one comparable value."""
    if isinstance(m, bytes):
        return ("binary", int.from_bytes(m[:4], "big"))
    t, d = m["type"], m["data"]
    if t == "status":
        return ("status", d["status"]["exec_info"]["queue_remaining"])
    if t == "executing":
        return (t, d["node"])
    if t == "executed":
        return (t, d["node"], d["output"] is not None)
    if t == "execution_cached":
        return (t, tuple(d["nodes"]))
    if t == "progress_state":
        return (t, tuple((n, x["state"]) for n, x in d["nodes"].items()))
    return (t,)


def trace(messages):
    return [short(m) for m in messages]


def data(messages, kind):
    return [m["data"] for m in messages if isinstance(m, dict) and m["type"] == kind]


def run(server, ws, prompt):
    """Queues for this socket; the prompt's id and all messages up to its end."""
    pid = server.queue(prompt, client_id=ws.id)["prompt_id"]
    return pid, ws.until_done(pid)


def connect(server, client_id=None):
    """A socket whose first message was read: status with its sid."""
    ws = server.ws(client_id)
    first = ws.recv()
    assert first["type"] == "status" and first["data"]["sid"] == ws.id
    return ws


def test_success_then_cached_then_partly(fresh):
    server = fresh()
    with connect(server) as ws:
        pid, got = run(server, ws, image_prompt(1))
        assert trace(got) == [
            ("status", 1),
            ("status", 1),
            ("execution_start",),
            ("execution_cached", ()),
            ("progress_state", (("1", "running"),)),
            ("executing", "1"),
            ("progress_state", (("1", "finished"),)),
            ("progress_state", (("1", "finished"), ("2", "running"))),
            ("executing", "2"),
            ("executed", "2", True),
            ("progress_state", (("1", "finished"), ("2", "finished"))),
            ("execution_success",),
            ("status", 0),
            ("executing", None),
        ]
        state = data(got, "progress_state")
        assert state[0]["nodes"]["1"] == {
            "value": 0.0,
            "max": 1.0,
            "state": "running",
            "node_id": "1",
            "prompt_id": pid,
            "display_node_id": "1",
            "parent_node_id": None,
            "real_node_id": "1",
        }
        assert state[-1]["nodes"]["2"]["value"] == state[-1]["nodes"]["2"]["max"] == 1.0
        start = data(got, "execution_start")[0]
        assert start["prompt_id"] == pid and isinstance(start["timestamp"], int)
        assert data(got, "executing") == [
            {"node": "1", "display_node": "1", "prompt_id": pid},
            {"node": "2", "display_node": "2", "prompt_id": pid},
            {"node": None, "prompt_id": pid},
        ]
        done = data(got, "executed")[0]
        assert set(done) == {"node", "display_node", "output", "prompt_id"}
        assert done["output"]["images"][0]["type"] == "output"

        pid, got = run(server, ws, image_prompt(1))
        assert trace(got) == [
            ("status", 1),
            ("status", 1),
            ("execution_start",),
            ("execution_cached", ("1", "2")),
            ("executed", "2", True),
            ("progress_state", (("2", "finished"),)),
            ("execution_success",),
            ("status", 0),
            ("executing", None),
        ]
        assert data(got, "executed")[0]["output"] == done["output"]

        pid, got = run(server, ws, image_prompt(1, prefix="other"))
        assert trace(got) == [
            ("status", 1),
            ("status", 1),
            ("execution_start",),
            ("execution_cached", ("1",)),
            ("progress_state", (("2", "running"),)),
            ("executing", "2"),
            ("executed", "2", True),
            ("progress_state", (("2", "finished"),)),
            ("execution_success",),
            ("status", 0),
            ("executing", None),
        ]


def test_history_is_there_before_success(server):
    """Better than the reference: success says that the history can be read."""
    with connect(server) as ws:
        for color in range(5):
            pid = server.queue(image_prompt(color, prefix="h"), client_id=ws.id)["prompt_id"]
            ws.until(lambda m: isinstance(m, dict) and m["type"] == "execution_success")
            assert server.get(f"/history/{pid}").json()[pid]["status"]["completed"]
            ws.until_done(pid)


def test_twins_run_once(fresh):
    server = fresh()
    p = image_prompt(3)
    p["3"], p["4"] = p["1"], {
        "class_type": "SaveImage",
        "inputs": {"images": ["3", 0], "filename_prefix": "u"},
    }
    with connect(server) as ws:
        _, got = run(server, ws, p)
        ran = [d["node"] for d in data(got, "executing") if d["node"]]
        assert len([n for n in ran if n in ("1", "3")]) == 1
        assert {"2", "4"} <= set(ran)


def test_error(fresh):
    server = fresh()
    os.makedirs(os.path.join(server.base, "input"), exist_ok=True)
    with open(os.path.join(server.base, "input", "bad.png"), "wb") as f:
        f.write(b"this is no picture")
    p = {
        "1": {"class_type": "LoadImage", "inputs": {"image": "bad.png"}},
        "2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}},
    }
    with connect(server) as ws:
        pid, got = run(server, ws, p)
        assert trace(got) == [
            ("status", 1),
            ("status", 1),
            ("execution_start",),
            ("execution_cached", ()),
            ("progress_state", (("1", "running"),)),
            ("executing", "1"),
            ("execution_error",),
            ("status", 0),
            ("executing", None),
        ]
        e = data(got, "execution_error")[0]
        assert set(e) == {
            "prompt_id",
            "node_id",
            "node_type",
            "executed",
            "exception_message",
            "exception_type",
            "traceback",
            "current_inputs",
            "current_outputs",
            "timestamp",
        }
        assert (e["prompt_id"], e["node_id"], e["node_type"], e["executed"]) == (
            pid,
            "1",
            "LoadImage",
            [],
        )
        assert e["exception_message"].endswith("\n") and "bad.png" in e["exception_message"]
        assert e["current_inputs"] == {"image": ["bad.png"]}
        item = server.get(f"/history/{pid}").json()[pid]
        assert item["status"]["status_str"] == "error" and not item["status"]["completed"]
        assert [m[0] for m in item["status"]["messages"]] == [
            "execution_start",
            "execution_cached",
            "execution_error",
        ]
        assert item["status"]["messages"][2][1] == e
        # outputs from before a failure stay
        p.update(
            {
                "3": image_prompt(7)["1"],
                "4": {"class_type": "PreviewImage", "inputs": {"images": ["3", 0]}},
            }
        )
        pid, got = run(server, ws, p)
        outputs = server.get(f"/history/{pid}").json()[pid]["outputs"]
        assert set(outputs) == {d["node"] for d in data(got, "executed")}
        # and the server goes on
        _, got = run(server, ws, image_prompt(9))
        assert ("execution_success",) in trace(got)


def test_interrupt(fresh):
    server = fresh()
    with connect(server) as ws:
        # idle: no later effect
        assert server.post("/interrupt").status_code == 200
        pid = server.queue(slow_prompt(), client_id=ws.id)["prompt_id"]
        ws.until(lambda m: short(m) == ("executing", "2"))
        # another prompt's id: nothing
        assert server.post("/interrupt", {"prompt_id": "somebody else"}).status_code == 200
        ws.until(lambda m: short(m) == ("executing", "3"))
        r = server.post("/interrupt", {"prompt_id": pid})
        assert r.status_code == 200 and r.content == b""
        got = ws.until_done(pid)
        assert trace(got)[-3:] == [("execution_interrupted",), ("status", 0), ("executing", None)]
        d = data(got, "execution_interrupted")[0]
        assert set(d) == {"prompt_id", "node_id", "node_type", "executed", "timestamp"}
        assert d["prompt_id"] == pid and d["node_type"] == "ImageScale"
        status = server.get(f"/history/{pid}").json()[pid]["status"]
        assert status["status_str"] == "error" and not status["completed"]
        # the rest of the queue continues, and the flag is gone
        _, got = run(server, ws, image_prompt(4))
        assert ("execution_success",) in trace(got)


def test_interrupt_leaves_the_queue_alone(fresh):
    server = fresh()
    with connect(server) as ws:
        first = server.queue(slow_prompt(), client_id=ws.id)["prompt_id"]
        second = server.queue(image_prompt(5), client_id=ws.id)["prompt_id"]
        ws.until(lambda m: short(m) == ("executing", "1"))
        server.post("/interrupt", {})
        assert ("execution_interrupted",) in trace(ws.until_done(first))
        got = trace(ws.until_done(second))
        assert got[0] == ("status", 1) and ("execution_success",) in got


def test_validation_failure_is_silent(fresh):
    server = fresh()
    with connect(server) as ws:
        bad = image_prompt(1)
        del bad["1"]["inputs"]["width"]
        server.queue(bad, client_id=ws.id, expect=400)
        answer = server.queue(image_prompt(2), client_id=ws.id)
        got = trace(ws.until_done(answer["prompt_id"]))
        assert got[:3] == [("status", 1), ("status", 1), ("execution_start",)]
        assert len([g for g in got if g[0] == "status"]) == 3
        assert answer["number"] == 1  # the refused one took 0
        assert len(server.get("/history").json()) == 1


def test_without_client_id(fresh):
    server = fresh()
    with connect(server) as a, connect(server) as b:
        pid = server.queue(image_prompt(6))["prompt_id"]
        want = {"status", "progress_state"}
        for ws in (a, b):
            got = ws.until_status(0)
            assert {m["type"] for m in got} == want
            assert [s for s in trace(got) if s[0] == "status"] == [
                ("status", 1),
                ("status", 1),
                ("status", 0),
            ]
        # the cached run fills the history too, though nobody is told
        assert server.wait(pid)["outputs"]
        again = server.run(image_prompt(6))
        assert again["outputs"]["2"]["images"] and again["meta"]["2"]["node_id"] == "2"
        pid = server.queue(slow_prompt())["prompt_id"]
        a.until(lambda m: short(m)[0] == "progress_state" and "1" in m["data"]["nodes"])
        server.post("/interrupt", {"prompt_id": pid})
        for ws in (a, b):
            ws.until(lambda m: short(m) == ("execution_interrupted",))


def test_others_see_only_status(fresh):
    server = fresh()
    with connect(server) as mine, connect(server) as other:
        pid, _ = run(server, mine, image_prompt(8))
        assert trace(other.until_status(0)) == [("status", 1), ("status", 1), ("status", 0)]
        # a client id nobody has: the messages go nowhere, the prompt runs
        assert server.run(image_prompt(8, prefix="x"), client_id="nobody")["status"]["completed"]
        assert {g[0] for g in trace(other.until_status(0))} == {"status"}


def test_reconnect(fresh):
    server = fresh()
    ws = connect(server, "again")
    pid = server.queue(slow_prompt(), client_id="again")["prompt_id"]
    ws.until(lambda m: short(m) == ("executing", "1"))
    # the page reloads: the new socket opens before the old one is closed
    new = server.ws("again")
    first = new.recv()
    assert (
        first["data"]["sid"] == "again"
        and first["data"]["status"]["exec_info"]["queue_remaining"] == 1
    )
    now = new.until(lambda m: m["type"] == "executing")[-1]["data"]
    assert now["node"] and now["prompt_id"] == pid and now["display_node"] == now["node"]
    ws.close()
    # and hears the rest: no deaf socket
    got = trace(new.until_done(pid))
    assert ("execution_success",) in got and ("executed", "out", True) in got
    # gone and back while nothing runs: status only
    new.close()
    with connect(server, "again") as third:
        _, got = run(server, third, image_prompt(1))
        assert trace(got)[:3] == [("status", 1), ("status", 1), ("execution_start",)]


def test_queue_changes_send_status(fresh):
    server = fresh()
    with connect(server) as ws:
        first = server.queue(slow_prompt())["prompt_id"]
        ws.until(lambda m: short(m)[0] == "progress_state")
        pending = [server.queue(image_prompt(i))["prompt_id"] for i in range(2)]
        ws.until_status(3)
        server.post("/queue", {"delete": [pending[0]]})
        ws.until_status(2)
        server.post("/queue", {"clear": True})
        ws.until_status(1)
        server.post("/interrupt", {"prompt_id": first})
        ws.until_status(0)
        assert set(server.get("/history").json()) == {first}


def test_pictures_and_their_steps(fresh):
    """progress_state ; [binary 4] ; progress ; [binary 1], for both kinds of clients and for
    all."""
    server = fresh()
    prompt = {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 64, "height": 32, "batch_size": 3, "color": 255},
        },
        "2": {"class_type": "SaveImageWebsocket", "inputs": {"images": ["1", 0]}},
    }
    with server.ws("rich", flags={"supports_preview_metadata": True}) as rich, connect(
        server, "plain"
    ) as plain:
        rich.until(lambda m: m["type"] == "feature_flags")
        for ws, step in (
            (rich, [("binary", 4), ("progress",)]),
            (plain, [("progress",), ("binary", 1)]),
        ):
            pid, got = run(server, ws, prompt)
            of_2 = [m for m in trace(got) if m[0] in ("progress", "binary", "progress_state")][
                -1 - 3 * 3 - 1 :
            ]
            running = ("progress_state", (("1", "finished"), ("2", "running")))
            if ws is plain:  # 1 is cached
                running = ("progress_state", (("2", "running"),))
            assert of_2[:-1] == [running] + [running, *step] * 3
            assert [d["value"] for d in data(got, "progress")] == [0, 1, 2]
            for m in got:
                if isinstance(m, bytes):
                    at = 8 if ws is plain else 8 + int.from_bytes(m[4:8], "big")
                    assert m[at : at + 8] == b"\x89PNG\r\n\x1a\n"
        server.queue(prompt)  # of nobody: to all, form 1 whatever they said
        for ws in (rich, plain):
            for _ in range(3):
                steps = [
                    m
                    for m in trace(ws.until(lambda m: isinstance(m, bytes)))
                    if m[0] in ("progress", "binary")
                ]
                assert steps == [("progress",), ("binary", 1)]
