"""/history and /api/jobs (comfyui-api.md 1.6, 1.7, 4.4)."""

import contextlib
import json
import os
import sqlite3

import pytest

from conftest import image_prompt, name_of, uid

NAMES = [f"h{i}" for i in range(6)]


@pytest.fixture(scope="module", autouse=True)
def finished(server):
    """h0..h5 ran, h4 failed; p0 and p1 wait."""
    for i, name in enumerate(NAMES):
        prompt = image_prompt(i, prefix=f"h/{name}")
        if name == "h4":
            prompt["2"]["inputs"]["filename_prefix"] = "../outside"
        extra = {"extra_pnginfo": {"workflow": {"id": "even" if i % 2 == 0 else "odd"}}}
        server.queue(prompt, prompt_id=uid(name), extra_data=extra)
        server.wait(uid(name))
    server.until_idle()
    server.post("/berth/queue", {"paused": True})
    for i in range(2):
        server.queue(
            image_prompt(i),
            prompt_id=uid(f"p{i}"),
            extra_data={"extra_pnginfo": {"workflow": {"id": "odd"}}},
        )


def jobs(server, query=""):
    r = server.get("/api/jobs" + query)
    assert r.status_code == 200, r.text
    return r.json()


def names(server, query=""):
    return [name_of(j["id"]) for j in jobs(server, query)["jobs"]]


def remembered(server, query=""):
    return [name_of(i) for i in server.get("/history" + query).json()]


# ---- history


def test_one(server):
    h0 = uid("h0")
    one = server.get("/history/" + h0).json()
    assert list(one) == [h0]
    item = one[h0]
    assert list(item) == ["prompt", "outputs", "status", "meta"]
    number, prompt_id, prompt, extra, outputs = item["prompt"]
    assert isinstance(number, int) and prompt_id == h0 and outputs == ["2"]
    assert prompt == image_prompt(0, prefix="h/h0")
    assert extra["extra_pnginfo"] == {"workflow": {"id": "even"}} and isinstance(
        extra["create_time"], int
    )
    assert item["outputs"] == {
        "2": {"images": [{"filename": "h0_00001_.png", "subfolder": "h", "type": "output"}]}
    }
    assert item["meta"] == {
        "2": {"node_id": "2", "display_node": "2", "parent_node": None, "real_node_id": "2"}
    }
    status = item["status"]
    assert (status["status_str"], status["completed"]) == ("success", True)
    assert [m[0] for m in status["messages"]] == [
        "execution_start",
        "execution_cached",
        "execution_success",
    ]
    assert all(
        m[1]["prompt_id"] == h0 and isinstance(m[1]["timestamp"], int) for m in status["messages"]
    )
    assert server.get("/api/history/" + h0).json() == one


def test_failed(server):
    status = server.get("/history/" + uid("h4")).json()[uid("h4")]["status"]
    assert (status["status_str"], status["completed"]) == ("error", False)
    assert [m[0] for m in status["messages"]] == [
        "execution_start",
        "execution_cached",
        "execution_error",
    ]


def test_unknown_is_an_empty_object(server):
    for name in ("nobody", uid("p0"), "a%2Fb"):
        r = server.get(f"/history/{name}")
        assert (r.status_code, r.json()) == (200, {})


@pytest.mark.parametrize(
    "query,want",
    [
        ("", NAMES),
        ("?max_items=2", NAMES[-2:]),
        ("?max_items=100", NAMES),
        ("?max_items=0", []),
        ("?offset=4", NAMES[4:]),
        ("?max_items=2&offset=1", NAMES[1:3]),
        ("?max_items=2&offset=-1", NAMES[-2:]),
        ("?offset=100", []),
        ("?max_items=+3", None),
        ("?max_items=%202%20", NAMES[-2:]),
    ],
)
def test_pages(server, query, want):
    r = server.get("/history" + query)
    assert r.status_code == 200
    if want is not None:
        assert remembered(server, query) == want


@pytest.mark.parametrize("query", ["?max_items=x", "?max_items=", "?offset=1.5", "?max_items=0x1"])
def test_bad_pages(server, query):
    assert server.get("/history" + query).status_code == 400


# ---- jobs


def test_all_jobs(server):
    all_ = jobs(server)
    assert list(all_) == ["jobs", "pagination"]
    assert all_["pagination"] == {"offset": 0, "limit": None, "total": 8, "has_more": False}
    times = [j["create_time"] for j in all_["jobs"]]
    assert times == sorted(times, reverse=True)
    assert {name_of(j["id"]) for j in all_["jobs"]} == set(NAMES) | {"p0", "p1"}
    assert server.get("/api/api/jobs").status_code == 200
    assert server.get("/jobs").status_code == 404


def test_members(server):
    by_id = {name_of(j["id"]): j for j in jobs(server)["jobs"]}
    done = by_id["h0"]
    assert list(done) == [
        "id",
        "status",
        "priority",
        "create_time",
        "execution_start_time",
        "execution_end_time",
        "outputs_count",
        "previewable_outputs_count",
        "preview_output",
        "workflow_id",
    ]
    assert (
        done["status"],
        done["outputs_count"],
        done["previewable_outputs_count"],
        done["workflow_id"],
    ) == ("completed", 1, 1, "even")
    assert done["execution_start_time"] <= done["execution_end_time"]
    assert done["preview_output"] == {
        "filename": "h0_00001_.png",
        "subfolder": "h",
        "type": "output",
        "nodeId": "2",
        "mediaType": "images",
    }
    waiting = by_id["p0"]
    assert list(waiting) == [
        "id",
        "status",
        "priority",
        "create_time",
        "outputs_count",
        "previewable_outputs_count",
        "workflow_id",
    ]
    assert (waiting["status"], waiting["outputs_count"], waiting["previewable_outputs_count"]) == (
        "pending",
        0,
        0,
    )
    assert waiting["workflow_id"] == "odd"
    failed = by_id["h4"]
    assert failed["status"] == "failed" and failed["execution_error"]["node_id"] == "2"
    assert "preview_output" not in failed and failed["outputs_count"] == 0


@pytest.mark.parametrize(
    "query,want",
    [
        ("status=pending", {"p0", "p1"}),
        ("status=in_progress", set()),
        ("status=failed", {"h4"}),
        ("status=completed", set(NAMES) - {"h4"}),
        ("status=pending,failed", {"p0", "p1", "h4"}),
        ("status=%20Pending%20,,FAILED", {"p0", "p1", "h4"}),
        ("status=completed,failed,cancelled", set(NAMES)),
        ("status=cancelled", set()),
        ("status=", set(NAMES) | {"p0", "p1"}),
        ("workflow_id=even", {"h0", "h2", "h4"}),
        ("workflow_id=odd", {"h1", "h3", "h5", "p0", "p1"}),
        ("workflow_id=none", set()),
        ("status=pending&workflow_id=even", set()),
    ],
)
def test_filters(server, query, want):
    got = names(server, "?" + query)
    assert set(got) == want and len(got) == len(want)


def test_sorting_and_pages(server):
    up = names(server, "?sort_order=asc&status=completed,failed")
    assert up == NAMES
    assert (
        names(server, "?sort_order=desc&sort_by=created_at&status=completed,failed") == NAMES[::-1]
    )
    durations = [
        j["execution_end_time"] - j["execution_start_time"]
        for j in jobs(server, "?sort_by=execution_duration&sort_order=asc&status=completed,failed")[
            "jobs"
        ]
    ]
    assert durations == sorted(durations)
    page = jobs(server, "?sort_order=asc&status=completed,failed&limit=2&offset=3")
    assert [name_of(j["id"]) for j in page["jobs"]] == NAMES[3:5]
    assert page["pagination"] == {"offset": 3, "limit": 2, "total": 6, "has_more": True}
    page = jobs(server, "?sort_order=asc&status=completed,failed&limit=2&offset=4")
    assert page["pagination"]["has_more"] is False
    page = jobs(server, "?status=completed,failed&limit=2&offset=100")
    assert page["jobs"] == [] and page["pagination"] == {
        "offset": 100,
        "limit": 2,
        "total": 6,
        "has_more": False,
    }
    assert jobs(server, "?offset=-5")["pagination"]["offset"] == 0


@pytest.mark.parametrize(
    "query,text",
    [
        (
            "status=X",
            "Invalid status value(s): x. Valid values: pending, in_progress, completed, failed, "
            "cancelled",
        ),
        (
            "status=pending,foo,bar",
            "Invalid status value(s): foo, bar. Valid values: pending, in_progress, completed, "
            "failed, cancelled",
        ),
        ("sort_by=name", "sort_by must be 'created_at' or 'execution_duration'"),
        ("sort_order=up", "sort_order must be 'asc' or 'desc'"),
        ("limit=0", "limit must be a positive integer"),
        ("limit=-1", "limit must be a positive integer"),
        ("limit=x", "limit must be an integer"),
        ("offset=x", "offset must be an integer"),
    ],
)
def test_wrong_queries(server, query, text):
    r = server.get("/api/jobs?" + query)
    assert (r.status_code, r.json()) == (400, {"error": text})


def test_job_by_id(server):
    job = server.get("/api/jobs/" + uid("h1")).json()
    assert (
        job["id"] == uid("h1") and job["outputs"]["2"]["images"][0]["filename"] == "h1_00001_.png"
    )
    assert job["execution_status"]["status_str"] == "success"
    assert list(job["workflow"]) == ["prompt", "extra_data"]
    assert job["workflow"]["prompt"] == image_prompt(1, prefix="h/h1")
    assert job["workflow"]["extra_data"]["extra_pnginfo"]["workflow"]["id"] == "odd"
    waiting = server.get("/api/jobs/" + uid("p1")).json()
    assert waiting["status"] == "pending" and "workflow" not in waiting
    r = server.get("/api/jobs/nobody")
    assert (r.status_code, r.json()) == (404, {"error": "Job not found"})


# ---- changes, last


def cancel(server, *names):
    r = server.post("/api/jobs/cancel", {"job_ids": [uid(n) for n in names]})
    assert r.status_code == 200
    return r.json()


@pytest.mark.parametrize(
    "body,want",
    [
        (b"", {"error": "Request body must be valid JSON"}),
        (b"{", {"error": "Request body must be valid JSON"}),
        (b"[]", {"error": "job_ids must be a list"}),
        (b"{}", {"error": "job_ids must be a list"}),
        (b'{"job_ids": "x"}', {"error": "job_ids must be a list"}),
        (
            json.dumps(
                {
                    "job_ids": [
                        "x",
                        uid("p0"),
                        {},
                        5,
                        None,
                        uid("A").upper().replace("0", "A"),
                        ["a"],
                    ]
                }
            ).encode(),
            {
                "error": "job_ids contains invalid id(s)",
                "invalid_ids": [
                    "x",
                    "{}",
                    "5",
                    "None",
                    uid("A").upper().replace("0", "A"),
                    "['a']",
                ],
            },
        ),
    ],
)
def test_wrong_cancels(server, body, want):
    r = server.post("/api/jobs/cancel", data=body)
    assert (r.status_code, r.json()) == (400, want)
    assert set(names(server, "?status=pending")) == {"p0", "p1"}  # none of them was


def test_cancel(server):
    def one(job):
        r = server.post(f"/api/jobs/{job}/cancel")
        assert r.status_code == 200
        return r.json()

    assert one(uid("p0")) == {"cancelled": True}
    assert names(server, "?status=pending") == ["p1"]
    assert server.get("/api/jobs/" + uid("p0")).status_code == 404  # it leaves no trace
    for job in (uid("p0"), uid("h0"), "nobody"):  # finished, or never there: nothing to do
        assert one(job) == {"cancelled": False}
    assert cancel(server, "h0", "nobody") == cancel(server) == {"cancelled": False}
    assert cancel(server, "p1", "nobody", "h0") == {"cancelled": True}
    assert names(server, "?status=pending") == []
    assert server.get("/history/" + uid("h0")).json() != {}


@pytest.mark.parametrize("batch", [False, True])
def test_cancel_what_runs(fresh, batch):
    """It is interrupted, which is a state of its own, and what comes next is left alone."""
    s = fresh()
    s.post("/berth/queue", {"paused": True})
    slow = {}
    for i in range(1, 40):
        slow[str(i)] = {
            "class_type": "EmptyImage",
            "inputs": {"width": 4096, "height": 4096, "batch_size": 4, "color": i},
        }
        slow[f"s{i}"] = {"class_type": "PreviewImage", "inputs": {"images": [str(i), 0]}}
    with s.ws() as ws:
        s.queue(slow, prompt_id=uid("slow"), client_id=ws.id)
        s.queue(image_prompt(), prompt_id=uid("next"))
        s.post("/berth/queue", {"paused": False})
        ws.until(lambda m: isinstance(m, dict) and m["type"] == "executing" and m["data"]["node"])
        assert names(s, "?status=in_progress") == ["slow"]
        assert (
            cancel(s, "slow") if batch else s.post(f"/api/jobs/{uid('slow')}/cancel").json()
        ) == {"cancelled": True}
        assert s.wait(uid("next"))["status"]["status_str"] == "success"
    assert names(s, "?status=cancelled") == ["slow"] and names(s, "?status=completed") == ["next"]
    assert names(s, "?status=failed") == []
    job = s.get("/api/jobs/" + uid("slow")).json()
    assert job["status"] == "cancelled" and "execution_error" not in job
    assert job["execution_start_time"] <= job["execution_end_time"]


# What outputs may hold, as ComfyUI 0.33 counts and shows it: all of them, those that can be shown,
# the best of these.
IMAGE = {"filename": "a.png", "subfolder": "", "type": "output"}
SHOWN = {"filename": "b.png", "subfolder": "", "type": "temp"}
MODEL = {"filename": "x/m.GLB", "type": "output", "subfolder": "", "mediaType": "3d"}
NOTE = {"filename": "n.md", "subfolder": "", "type": "output"}


@pytest.mark.parametrize(
    "outputs,counts,preview",
    [
        (
            {"1": {"text": ["early"]}, "2": {"images": [SHOWN, IMAGE], "animated": [True]}},
            (2, 2),
            {**IMAGE, "nodeId": "2", "mediaType": "images"},
        ),
        (
            {"1": {"files": [NOTE]}, "2": {"images": [SHOWN]}},
            (2, 2),
            {**SHOWN, "nodeId": "2", "mediaType": "images"},
        ),
        (
            {"1": {"text": ["said"]}, "2": {"files": [NOTE]}},
            (1, 1),
            {**NOTE, "nodeId": "2", "mediaType": "files"},
        ),
        (
            {"1": {"text": ["\u00e9" * 1025, "second"]}},
            (0, 0),
            {"content": "\u00e9" * 1024, "truncated": True, "nodeId": "1", "mediaType": "text"},
        ),
        (
            {"1": {"text": ["\u00e9" * 1024]}},
            (0, 0),
            {"content": "\u00e9" * 1024, "nodeId": "1", "mediaType": "text"},
        ),
        ({"1": {"result": ["x/m.GLB", None, "plain", 5]}}, (1, 1), {**MODEL, "nodeId": "1"}),
        ({"1": {"latents": [{"filename": "l.latent", "type": "output"}]}}, (1, 0), None),
        (
            {"1": {"gifs": [{"filename": "v", "format": "video/mp4", "type": "output"}]}},
            (1, 1),
            {
                "filename": "v",
                "format": "video/mp4",
                "type": "output",
                "nodeId": "1",
                "mediaType": "gifs",
            },
        ),
        (
            {"1": {"out": [{"filename": "m.usdz", "type": "temp"}]}},
            (1, 1),
            {"filename": "m.usdz", "type": "temp", "nodeId": "1", "mediaType": "out"},
        ),
    ],
)
def test_previews(with_outputs, outputs, counts, preview):
    server = with_outputs(outputs)
    (job,) = jobs(server)["jobs"]
    assert (job["outputs_count"], job["previewable_outputs_count"]) == counts
    assert job.get("preview_output") == preview


def test_outputs_of_one_job_are_normalised(with_outputs):
    server = with_outputs(
        {"1": {"result": ["x/m.GLB", None, "plain", 5], "animated": [None]}, "2": {"text": ["t"]}}
    )
    assert server.get("/api/jobs/" + uid("made")).json()["outputs"] == {
        "1": {"result": [MODEL, "plain", 5], "animated": [None]},
        "2": {"text": ["t"]},
    }


@pytest.fixture
def with_outputs(fresh):
    """start(outputs): a server that remembers one prompt with these, whatever made them."""

    def start(outputs):
        s = fresh()
        s.queue(image_prompt(8, 8, 8), prompt_id=uid("made"))
        s.wait(uid("made"))
        s.until_idle()
        s.stop()
        with contextlib.closing(
            sqlite3.connect(os.path.join(s.base, "user", "__berth", "state.db"))
        ) as db, db:
            assert (
                db.execute("UPDATE history SET outputs = ?", (json.dumps(outputs),)).rowcount == 1
            )
        return s.start()

    return start


def test_an_id_in_the_history_is_taken(server):
    server.post("/berth/queue", {"paused": False})
    before = server.get("/history").json()
    server.queue(image_prompt(99, prefix="again"), prompt_id=uid("h1"), expect=409)
    server.until_idle()
    assert server.get("/history").json() == before and remembered(server) == NAMES


def test_delete_and_clear(server):
    r = server.post("/history", {"delete": [uid("h2"), "nobody", 7]})
    assert (r.status_code, r.content) == (200, b"")
    assert remembered(server) == [n for n in NAMES if n != "h2"]
    assert server.post("/history", {"clear": False}).status_code == 200
    assert len(server.get("/history").json()) == 5
    assert server.post("/history", {"clear": True}).status_code == 200
    assert server.get("/history").json() == {}
    assert jobs(server)["pagination"]["total"] == 0


def test_long_history_is_whole(fresh):
    """More than a page that the loop makes itself."""
    s = fresh()
    n = 250
    for i in range(n):
        s.queue(image_prompt(i % 16, width=16, height=16, save=False), prompt_id=uid(f"n{i}"))
    s.until_idle()
    assert remembered(s) == [f"n{i}" for i in range(n)]
    assert remembered(s, "?max_items=230") == [f"n{i}" for i in range(20, n)]
    assert jobs(s, "?limit=5")["pagination"] == {
        "offset": 0,
        "limit": 5,
        "total": n,
        "has_more": True,
    }
