"""/history and /api/jobs (comfyui-api.md 1.6, 1.7, 4.4)."""

import pytest

from conftest import image_prompt

NAMES = [f"h{i}" for i in range(6)]


@pytest.fixture(scope="module", autouse=True)
def finished(server):
    """h0..h5 ran, h4 failed; p0 and p1 wait."""
    for i, name in enumerate(NAMES):
        prompt = image_prompt(i, prefix=f"h/{name}")
        if name == "h4":
            prompt["2"]["inputs"]["filename_prefix"] = "../outside"
        extra = {"extra_pnginfo": {"workflow": {"id": "even" if i % 2 == 0 else "odd"}}}
        server.queue(prompt, prompt_id=name, extra_data=extra)
        server.wait(name)
    server.until_idle()
    server.post("/berth/queue", {"paused": True})
    for i in range(2):
        server.queue(image_prompt(i), prompt_id=f"p{i}", extra_data={"extra_pnginfo": {"workflow": {"id": "odd"}}})


def jobs(server, query=""):
    r = server.get("/api/jobs" + query)
    assert r.status_code == 200, r.text
    return r.json()


def names(server, query=""):
    return [j["id"] for j in jobs(server, query)["jobs"]]


# ---- history

def test_one(server):
    one = server.get("/history/h0").json()
    assert list(one) == ["h0"]
    item = one["h0"]
    assert list(item) == ["prompt", "outputs", "status", "meta"]
    number, prompt_id, prompt, extra, outputs = item["prompt"]
    assert isinstance(number, int) and prompt_id == "h0" and outputs == ["2"]
    assert prompt == image_prompt(0, prefix="h/h0")
    assert extra["extra_pnginfo"] == {"workflow": {"id": "even"}} and isinstance(extra["create_time"], int)
    assert item["outputs"] == {"2": {"images": [{"filename": "h0_00001_.png", "subfolder": "h", "type": "output"}]}}
    assert item["meta"] == {"2": {"node_id": "2", "display_node": "2", "parent_node": None, "real_node_id": "2"}}
    status = item["status"]
    assert (status["status_str"], status["completed"]) == ("success", True)
    assert [m[0] for m in status["messages"]] == ["execution_start", "execution_cached", "execution_success"]
    assert all(m[1]["prompt_id"] == "h0" and isinstance(m[1]["timestamp"], int) for m in status["messages"])
    assert server.get("/api/history/h0").json() == one


def test_failed(server):
    status = server.get("/history/h4").json()["h4"]["status"]
    assert (status["status_str"], status["completed"]) == ("error", False)
    assert [m[0] for m in status["messages"]] == ["execution_start", "execution_cached", "execution_error"]


def test_unknown_is_an_empty_object(server):
    for name in ("nobody", "p0", "a%2Fb"):
        r = server.get(f"/history/{name}")
        assert (r.status_code, r.json()) == (200, {})


@pytest.mark.parametrize("query,want", [
    ("", NAMES), ("?max_items=2", NAMES[-2:]), ("?max_items=100", NAMES), ("?max_items=0", []),
    ("?offset=4", NAMES[4:]), ("?max_items=2&offset=1", NAMES[1:3]), ("?max_items=2&offset=-1", NAMES[-2:]),
    ("?offset=100", []), ("?max_items=+3", None), ("?max_items=%202%20", NAMES[-2:]),
])
def test_pages(server, query, want):
    r = server.get("/history" + query)
    assert r.status_code == 200
    if want is not None:
        assert list(r.json()) == want


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
    assert {j["id"] for j in all_["jobs"]} == set(NAMES) | {"p0", "p1"}
    assert server.get("/api/api/jobs").status_code == 200
    assert server.get("/jobs").status_code == 404


def test_members(server):
    by_id = {j["id"]: j for j in jobs(server)["jobs"]}
    done = by_id["h0"]
    assert list(done) == ["id", "status", "priority", "create_time", "execution_start_time", "execution_end_time",
                          "outputs_count", "preview_output", "workflow_id"]
    assert (done["status"], done["outputs_count"], done["workflow_id"]) == ("completed", 1, "even")
    assert done["execution_start_time"] <= done["execution_end_time"]
    assert done["preview_output"] == {"filename": "h0_00001_.png", "subfolder": "h", "type": "output", "nodeId": "2",
                                      "mediaType": "images"}
    waiting = by_id["p0"]
    assert list(waiting) == ["id", "status", "priority", "create_time", "outputs_count", "workflow_id"]
    assert (waiting["status"], waiting["outputs_count"], waiting["workflow_id"]) == ("pending", 0, "odd")
    failed = by_id["h4"]
    assert failed["status"] == "failed" and failed["execution_error"]["node_id"] == "2"
    assert "preview_output" not in failed and failed["outputs_count"] == 0


@pytest.mark.parametrize("query,want", [
    ("status=pending", {"p0", "p1"}), ("status=in_progress", set()), ("status=failed", {"h4"}),
    ("status=completed", set(NAMES) - {"h4"}), ("status=pending,failed", {"p0", "p1", "h4"}),
    ("status=%20Pending%20,,FAILED", {"p0", "p1", "h4"}), ("status=completed,failed,cancelled", set(NAMES)),
    ("status=cancelled", set()), ("status=", set(NAMES) | {"p0", "p1"}),
    ("workflow_id=even", {"h0", "h2", "h4"}), ("workflow_id=odd", {"h1", "h3", "h5", "p0", "p1"}),
    ("workflow_id=none", set()), ("status=pending&workflow_id=even", set()),
])
def test_filters(server, query, want):
    got = names(server, "?" + query)
    assert set(got) == want and len(got) == len(want)


def test_sorting_and_pages(server):
    up = names(server, "?sort_order=asc&status=completed,failed")
    assert up == NAMES
    assert names(server, "?sort_order=desc&sort_by=created_at&status=completed,failed") == NAMES[::-1]
    durations = [j["execution_end_time"] - j["execution_start_time"]
                 for j in jobs(server, "?sort_by=execution_duration&sort_order=asc&status=completed,failed")["jobs"]]
    assert durations == sorted(durations)
    page = jobs(server, "?sort_order=asc&status=completed,failed&limit=2&offset=3")
    assert [j["id"] for j in page["jobs"]] == NAMES[3:5]
    assert page["pagination"] == {"offset": 3, "limit": 2, "total": 6, "has_more": True}
    page = jobs(server, "?sort_order=asc&status=completed,failed&limit=2&offset=4")
    assert page["pagination"]["has_more"] is False
    page = jobs(server, "?status=completed,failed&limit=2&offset=100")
    assert page["jobs"] == [] and page["pagination"] == {"offset": 100, "limit": 2, "total": 6, "has_more": False}
    assert jobs(server, "?offset=-5")["pagination"]["offset"] == 0


@pytest.mark.parametrize("query,text", [
    ("status=X", "Invalid status value(s): x. Valid values: pending, in_progress, completed, failed, cancelled"),
    ("status=pending,foo,bar", "Invalid status value(s): foo, bar. Valid values: pending, in_progress, completed, failed, cancelled"),
    ("sort_by=name", "sort_by must be 'created_at' or 'execution_duration'"),
    ("sort_order=up", "sort_order must be 'asc' or 'desc'"),
    ("limit=0", "limit must be a positive integer"), ("limit=-1", "limit must be a positive integer"),
    ("limit=x", "limit must be an integer"), ("offset=x", "offset must be an integer"),
])
def test_wrong_queries(server, query, text):
    r = server.get("/api/jobs?" + query)
    assert (r.status_code, r.json()) == (400, {"error": text})


def test_job_by_id(server):
    job = server.get("/api/jobs/h1").json()
    assert job["id"] == "h1" and job["outputs"]["2"]["images"][0]["filename"] == "h1_00001_.png"
    assert job["execution_status"]["status_str"] == "success"
    assert list(job["workflow"]) == ["prompt", "extra_data"]
    assert job["workflow"]["prompt"] == image_prompt(1, prefix="h/h1")
    assert job["workflow"]["extra_data"]["extra_pnginfo"]["workflow"]["id"] == "odd"
    waiting = server.get("/api/jobs/p1").json()
    assert waiting["status"] == "pending" and "workflow" not in waiting
    r = server.get("/api/jobs/nobody")
    assert (r.status_code, r.json()) == (404, {"error": "Job not found"})


# ---- changes, last

def test_cancel(server):
    assert server.post("/api/jobs/p0/cancel").status_code == 200
    assert names(server, "?status=pending") == ["p1"]
    assert server.post("/api/jobs/h0/cancel").status_code == 200  # finished: nothing to do
    assert server.post("/api/jobs/cancel", {"job_ids": ["p1", "nobody", "h0"]}).status_code == 200
    assert names(server, "?status=pending") == []
    assert server.get("/history/h0").json() != {}


def test_an_id_in_the_history_is_taken(server):
    server.post("/berth/queue", {"paused": False})
    before = server.get("/history").json()
    server.queue(image_prompt(99, prefix="again"), prompt_id="h1", expect=409)
    server.until_idle()
    assert server.get("/history").json() == before and list(before) == NAMES


def test_delete_and_clear(server):
    r = server.post("/history", {"delete": ["h2", "nobody", 7]})
    assert (r.status_code, r.content) == (200, b"")
    assert list(server.get("/history").json()) == [n for n in NAMES if n != "h2"]
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
        s.queue(image_prompt(i % 16, width=16, height=16, save=False), prompt_id=f"n{i}")
    s.until_idle()
    assert list(s.get("/history").json()) == [f"n{i}" for i in range(n)]
    assert list(s.get("/history?max_items=230").json()) == [f"n{i}" for i in range(20, n)]
    assert jobs(s, "?limit=5")["pagination"] == {"offset": 0, "limit": 5, "total": n, "has_more": True}
