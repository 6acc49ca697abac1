"""GET/POST /queue, /interrupt, pause and resume (comfyui-api.md 1.1, 4.2, 4.3)."""

import sys

import pytest

from conftest import image_prompt, name_of, uid


@pytest.fixture(autouse=True)
def paused(server):
    server.post("/berth/queue", {"paused": True})
    (
        server.until_idle()
        if not server.get("/queue").json()["queue_pending"]
        else server.post("/queue", {"clear": True})
    )
    yield
    server.post("/queue", {"clear": True})


def ids(server):
    return [name_of(item[1]) for item in server.get("/queue").json()["queue_pending"]]


def empty_200(r):
    assert (r.status_code, r.content, r.headers["Content-Length"]) == (200, b"", "0")
    assert "Content-Type" not in r.headers


def test_shape(server):
    assert server.get("/queue").json() == {"queue_running": [], "queue_pending": []}
    assert server.get("/api/queue").json() == {"queue_running": [], "queue_pending": []}
    server.queue(image_prompt(), prompt_id=uid("a"))
    q = server.get("/queue").json()
    assert list(q) == ["queue_running", "queue_pending"]
    assert len(q["queue_pending"]) == 1 and len(q["queue_pending"][0]) == 5


def test_order(server):
    for number, name in ((5, "late"), (1, "early"), (3, "middle"), (1, "early2")):
        server.queue(image_prompt(), prompt_id=uid(name), number=number)
    assert ids(server) == ["early", "early2", "middle", "late"]


def test_delete(server):
    for name in "abc":
        server.queue(image_prompt(), prompt_id=uid(name))
    empty_200(server.post("/queue", {"delete": [uid("b"), "nobody", 5, None]}))
    assert ids(server) == ["a", "c"]
    empty_200(server.post("/queue", {"delete": []}))
    empty_200(server.post("/queue", {"clear": False}))
    empty_200(server.post("/queue", {}))
    assert ids(server) == ["a", "c"]


def test_clear_comes_first(server):
    for name in "abc":
        server.queue(image_prompt(), prompt_id=uid(name))
    empty_200(server.post("/queue", {"clear": True, "delete": [uid("a")]}))
    assert ids(server) == []


def test_status_follows_changes(server):
    with server.ws() as ws:
        assert ws.recv()["data"]["sid"] == ws.id
        server.queue(image_prompt(), prompt_id=uid("a"))
        server.queue(image_prompt(), prompt_id=uid("b"))
        server.post("/queue", {"delete": ["nobody"]})
        server.post("/queue", {"delete": [uid("a")]})
        server.post("/queue", {"clear": True})
        got = [ws.recv() for _ in range(4)]
        assert got == [
            {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": n}}}}
            for n in (1, 2, 1, 0)
        ]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5"])
def test_bad_bodies(server, body):
    assert server.post("/queue", data=body).status_code == 400
    assert server.post("/history", data=body).status_code == 400


def test_interrupt_is_always_200(server):
    for kw in (
        {},
        {"body": {}},
        {"data": b"{broken"},
        {"data": b"[]"},
        {"body": {"prompt_id": "nobody"}},
        {"body": {"prompt_id": 5}},
        {"body": {"prompt_id": ""}},
    ):
        empty_200(server.post("/interrupt", **kw))
    empty_200(server.post("/api/interrupt"))


def test_interrupt_while_idle_has_no_effect(server):
    server.post("/interrupt")
    server.queue(image_prompt(77), prompt_id=uid("after-interrupt"))
    server.post("/berth/queue", {"paused": False})
    assert server.wait(uid("after-interrupt"))["status"]["status_str"] == "success"


def test_pause_and_resume(server):
    r = server.post("/berth/queue", {"paused": True}).json()
    assert r["paused"] is True and r["pending"] == 0 and r["running"] == 0
    server.queue(image_prompt(78), prompt_id=uid("held"))
    state = server.get("/berth/queue").json()
    assert state["paused"] is True and state["pending"] == 1
    assert server.get("/history/" + uid("held")).json() == {}
    assert server.post("/berth/queue", {"paused": False}).json()["paused"] is False
    assert server.wait(uid("held"))["status"]["completed"] is True
    for wrong in (
        {},
        {"paused": 1},
        {"paused": "yes"},
        [],
        {"paused": True, "for": 5},
        {"pause": True},
    ):
        r = server.post("/berth/queue", wrong)
        assert r.status_code == 400 and r.json()["error"], wrong
    assert server.get("/berth/queue").json()["paused"] is False


def test_pause_survives_a_restart(fresh):
    s = fresh()
    s.post("/berth/queue", {"paused": True})
    s.queue(image_prompt(), prompt_id=uid("held"))
    s.stop()
    s.start()
    assert s.get("/berth/queue").json()["paused"] is True
    assert ids(s) == ["held"]
    s.post("/berth/queue", {"paused": False})
    assert s.wait(uid("held"))["status"]["completed"] is True


def test_methods(server):
    assert server.get("/interrupt").status_code in (404, 405)
    import requests

    r = requests.head(server.url + "/queue", timeout=10)
    assert r.status_code == 200 and r.content == b""
    assert requests.options(server.url + "/queue", timeout=10).status_code == 200
    assert requests.delete(server.url + "/queue", timeout=10).status_code == 405


def move(server, name, before):
    return server.post(
        "/berth/queue", {"move": {"prompt_id": uid(name), "before": before and uid(before)}}
    )


def test_move(server):
    for name in "abcd":
        server.queue(image_prompt(), prompt_id=uid(name))
    assert move(server, "d", "a").status_code == 200 and ids(server) == list("dabc")
    assert move(server, "d", None).status_code == 200 and ids(server) == list("abcd")
    assert move(server, "a", "d").status_code == 200 and ids(server) == list("bcad")
    assert move(server, "a", "a").status_code == 200 and ids(server) == list("bcad")
    state = move(server, "b", "c").json()  # it is there already
    assert state["paused"] is True and state["pending"] == 4 and ids(server) == list("bcad")
    for name, before in (("nobody", None), ("a", "nobody")):
        assert move(server, name, before).status_code == 404
    # numbers ascend with the order: clients that sort by them see the same queue
    numbers = [item[0] for item in server.get("/queue").json()["queue_pending"]]
    assert numbers == sorted(numbers)
    # what comes next goes behind, in front when it says so
    server.queue(image_prompt(), prompt_id=uid("late"))
    server.queue(image_prompt(), prompt_id=uid("front"), front=True)
    assert ids(server) == ["front", *"bcad", "late"]


def test_new_prompts_go_behind_what_was_moved(server):
    """A move takes numbers that the counter would have given next; it must not give them again."""
    for name in "abcd":
        server.queue(image_prompt(), prompt_id=uid(name))
    for name in "ab":
        move(server, name, None)
    for name in ("new1", "new2"):
        server.queue(image_prompt(), prompt_id=uid(name))
    assert ids(server) == [*"cdab", "new1", "new2"]
    for _ in range(12):
        order = ids(server)
        move(server, order[-1], order[0])
    order = ids(server)
    server.queue(image_prompt(), prompt_id=uid("front"), front=True)
    assert ids(server) == ["front", *order]


def test_a_move_beside_a_far_number_leaves_the_counter_alone(server):
    server.queue(image_prompt(), prompt_id=uid("last"), number=1e12)
    for name in "ab":
        server.queue(image_prompt(), prompt_id=uid(name))
    move(server, "a", None)
    assert ids(server) == ["b", "last", "a"]
    server.queue(image_prompt(), prompt_id=uid("new"))
    assert ids(server) == ["b", "new", "last", "a"]


def test_no_number_left(server):
    for name in "ab":
        server.queue(image_prompt(), prompt_id=uid(name), number=sys.float_info.max)
    r = move(server, "a", None)
    assert r.status_code == 409 and "no number" in r.json()["error"]
    assert ids(server) == list("ab")


def test_move_among_equal_numbers(server):
    for name in "abcd":
        server.queue(image_prompt(), prompt_id=uid(name), number=7)
    assert move(server, "d", "b").status_code == 200
    assert ids(server) == list("adbc")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"paused": 1},
        {"paused": True, "move": {"prompt_id": "a", "before": None}},
        {"move": []},
        {"move": {"prompt_id": "a"}},
        {"move": {"prompt_id": 5, "before": None}},
        {"move": {"prompt_id": "a", "before": 5}},
        {"move": {"prompt_id": "a", "before": None, "after": "b"}},
    ],
)
def test_bad_changes(server, body):
    r = server.post("/berth/queue", body)
    assert r.status_code == 400 and r.json()["error"]


def test_clients_hear_of_a_move(server):
    with server.ws() as ws:
        ws.until_status(0)
        for n, name in enumerate(
            "ab", 1
        ):  # each add tells once; heard here, it cannot be taken for the move's
            server.queue(image_prompt(), prompt_id=uid(name))
            ws.until_status(n)
        assert move(server, "a", "nobody").status_code == 404  # nothing changed, nothing is said
        assert move(server, "b", "a").status_code == 200
        ws.until_status(2)
        server.queue(image_prompt(), prompt_id=uid("c"))
        assert (
            ws.recv()["data"]["status"]["exec_info"]["queue_remaining"] == 3
        )  # so it was told once


def test_a_move_survives_kill(fresh):
    s = fresh()
    s.post("/berth/queue", {"paused": True})
    for name in "abc":
        s.queue(image_prompt(), prompt_id=uid(name))
    assert move(s, "c", "a").status_code == 200
    s.kill()
    again = fresh()
    assert ids(again) == list("cab")
