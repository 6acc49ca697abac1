"""The queue as lists show it: in order, without graphs; and a prompt's graph for itself, wherever
the prompt is."""

import pytest

from conftest import Server, image_prompt


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("berth") / "base") as s:
        s.post("/berth/queue", {"paused": True})
        yield s


@pytest.fixture
def waiting(server):
    server.post("/queue", {"clear": True})
    return [server.queue(image_prompt(color=i))["prompt_id"] for i in range(5)]


def listed(server, **query):
    return server.get("/berth/queue/waiting", params=query).json()


def ids(answer):
    return [i["prompt_id"] for i in answer["waiting"]]


def test_what_waits_is_listed_in_order_and_without_graphs(server, waiting):
    answer = listed(server)
    assert answer["running"] is None and answer["total"] == 5 and ids(answer) == waiting
    assert all(set(i) == {"prompt_id", "number", "create_time"} for i in answer["waiting"])
    assert [i["number"] for i in answer["waiting"]] == [
        q[0] for q in server.get("/queue").json()["queue_pending"]
    ]


def test_a_move_is_seen_in_a_part_of_the_list(server, waiting):
    """The part is that of the order, not of arrival."""
    server.post("/berth/queue", {"move": {"prompt_id": waiting[4], "before": waiting[0]}})
    answer = listed(server, limit=2)
    assert ids(answer) == [waiting[4], waiting[0]] and answer["total"] == 5
    assert ids(listed(server, limit=0)) == []


@pytest.mark.parametrize("limit", ["-1", "1001", "many", "9999999999999999999999"])
def test_limits_that_are_none(server, limit):
    assert server.get("/berth/queue/waiting", params={"limit": limit}).status_code == 400


def test_a_graph_follows_its_prompt_from_the_queue_into_the_history(server, waiting):
    def graph(id):
        return server.get(f"/berth/prompts/{id}").json()["prompt"]

    assert graph(waiting[1]) == image_prompt(color=1)
    assert graph("nobody") is None
    server.post("/berth/queue", {"paused": False})
    server.until_idle()
    assert waiting[1] not in ids(listed(server)) and graph(waiting[1]) == image_prompt(color=1)
    server.post("/history", {"clear": True})
    assert graph(waiting[1]) is None
    server.post("/berth/queue", {"paused": True})
