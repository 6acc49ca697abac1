"""POST and GET /prompt: numbers, ids, extra data, what is refused and how (comfyui-api.md 3,
4.1)."""

import concurrent.futures
import json
import os
import re
import sqlite3
import time
import uuid

import pytest

from conftest import image_prompt, uid

UUID4 = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


@pytest.fixture(scope="module", autouse=True)
def paused(server):
    """Prompts wait, so that the queue shows what was accepted."""
    assert server.post("/berth/queue", {"paused": True}).json()["paused"] is True
    yield
    server.post("/queue", {"clear": True})
    assert server.post("/berth/queue", {"paused": False}).json()["paused"] is False


def pending(server):
    return {item[1]: item for item in server.get("/queue").json()["queue_pending"]}


def error(type_, message, details, extra={}):
    return {
        "error": {"type": type_, "message": message, "details": details, "extra_info": extra},
        "node_errors": {},
    }


def test_accepted(server):
    before = server.get("/prompt").json()["exec_info"]["queue_remaining"]
    r = server.post(
        "/prompt", {"prompt": image_prompt(1), "client_id": "c1", "extra_data": {"x": [1, 2.5]}}
    )
    assert r.status_code == 200
    assert r.headers["Content-Type"] == "application/json; charset=utf-8"
    answer = r.json()
    assert list(answer) == ["prompt_id", "number", "node_errors"]
    assert UUID4.match(answer["prompt_id"]) and answer["node_errors"] == {}
    assert isinstance(answer["number"], int)
    assert server.get("/prompt").json() == {"exec_info": {"queue_remaining": before + 1}}
    number, prompt_id, prompt, extra, outputs = pending(server)[answer["prompt_id"]]
    assert (number, prompt_id, prompt, outputs) == (
        answer["number"],
        answer["prompt_id"],
        image_prompt(1),
        ["2"],
    )
    created = extra.pop("create_time")
    assert isinstance(created, int) and abs(created / 1000 - time.time()) < 60
    assert extra == {"x": [1, 2.5], "client_id": "c1"}


def test_any_content_type(server):
    """urllib scripts say nothing better than a form."""
    r = server.post(
        "/prompt",
        data=json.dumps({"prompt": image_prompt(2)}),
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert r.status_code == 200
    assert server.post("/api/prompt", {"prompt": image_prompt(2)}).status_code == 200


WRONG_ID = {
    "type": "invalid_prompt_id",
    "message": "prompt_id must be a valid UUID",
    "details": "prompt_id must be a UUID string in canonical lowercase hyphenated form; omit it "
    "to let the server "
    "generate one",
    "extra_info": {},
}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "mine",
        5,
        True,
        1.5,
        [],
        {},
        "x" * 5000,
        "6F9619FF-8B86-D011-B42D-00CF4FC964FF",
        "6f9619ff8b86d011b42d00cf4fc964ff",
        "{6f9619ff-8b86-d011-b42d-00cf4fc964ff}",
        "6f9619ff-8b86-d011-b42d-00cf4fc964f",
        "6f9619ff-8b86-d011-b42d-00cf4fc964fg",
        "6f9619ff-8b86-d011-b42d-00cf4fc964ff ",
        "6f9619ff-8b86-d011-b42d0-0cf4fc964ff",
    ],
)
def test_a_prompt_id_is_a_uuid(server, given):
    before = pending(server)
    for prompt in (image_prompt(3), {}):  # before the prompt itself is looked at
        r = server.post("/prompt", {"prompt": prompt, "prompt_id": given})
        assert (r.status_code, r.json()) == (400, {"error": WRONG_ID, "node_errors": {}})
    assert pending(server) == before


def test_a_prompt_id_given(server):
    mine = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    assert server.queue(image_prompt(3), prompt_id=mine)["prompt_id"] == mine
    assert mine in pending(server)
    assert UUID4.match(server.queue(image_prompt(3), prompt_id=None)["prompt_id"])


def test_usage_source(server):
    """A header says what the client is; its extra_data may say it itself."""

    def kept(extra, **headers):
        r = server.post(
            "/prompt", {"prompt": image_prompt(3), "extra_data": extra}, headers=headers
        )
        (item,) = [
            i for i in server.get("/queue").json()["queue_pending"] if i[1] == r.json()["prompt_id"]
        ]
        return item[3].get("comfy_usage_source")

    assert kept({}, **{"Comfy-Usage-Source": "comfy-cli"}) == "comfy-cli"
    assert kept({"comfy_usage_source": "mine"}, **{"Comfy-Usage-Source": "comfy-cli"}) == "mine"
    assert kept({}) is None and kept({}, **{"Comfy-Usage-Source": b"\xff\xfe"}) is None


def test_a_prompt_id_is_there_once(fresh):
    """Waiting, running or in the history: the second one is refused, and the first one is as it
    was."""
    s, once = fresh(), uid("once")
    s.post("/berth/queue", {"paused": True})
    assert s.queue(image_prompt(1), prompt_id=once)["prompt_id"] == once
    for prompt in (image_prompt(1), image_prompt(2)):
        refused = s.queue(prompt, prompt_id=once, expect=409)
        assert refused == error(
            "duplicate_prompt_id",
            "prompt_id is taken",
            f"prompt '{once}' is in the queue; one that is sent again needs an id of its own",
        )
    assert [i[1] for i in s.get("/queue").json()["queue_pending"]] == [once]
    s.post("/berth/queue", {"paused": False})
    item = s.wait(once)
    assert (
        "is in the history"
        in s.queue(image_prompt(1), prompt_id=once, expect=409)["error"]["details"]
    )
    assert s.get("/history").json() == {once: item}
    s.post("/history", {"delete": [once]})
    s.queue(image_prompt(1), prompt_id=once)
    assert s.wait(once)["status"]["status_str"] == "success"


def test_one_prompt_id_from_many_at_once(fresh):
    """However they race, one of them is in."""
    s = fresh()
    for round_ in range(10):
        body = {"prompt": image_prompt(round_, 8, 8, save=False), "prompt_id": uid(f"race{round_}")}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            codes = sorted(
                r.status_code for r in pool.map(lambda _: s.post("/prompt", body), range(8))
            )
        assert codes == [200] + 7 * [409]
    s.until_idle()
    assert sorted(s.get("/history").json()) == sorted(uid(f"race{i}") for i in range(10))
    assert sorted(i["prompt"][0] for i in s.get("/history").json().values()) == sorted(
        {i["prompt"][0] for i in s.get("/history").json().values()}
    )


def test_a_locked_database(fresh):
    """Another program holds it: that may pass, so 503 with Retry-After, in words; and then it goes
    on."""
    s = fresh()
    s.run(image_prompt(1))
    other = sqlite3.connect(
        os.path.join(s.base, "user", "__berth", "state.db"), isolation_level=None
    )
    other.execute("BEGIN IMMEDIATE")
    for r in (s.post("/history", {"clear": True}), s.post("/prompt", {"prompt": image_prompt(2)})):
        assert (r.status_code, r.headers["Retry-After"]) == (503, "1")
        assert "locked by another program" in r.text and "/" not in r.text.replace("/json", "")
    other.execute("ROLLBACK")
    other.close()
    assert s.post("/history", {"clear": True}).status_code == 200
    assert s.run(image_prompt(2))["status"]["status_str"] == "success"


@pytest.mark.parametrize(
    "given,shown",
    [
        (7, "7.0"),
        (-2.5, "-2.5"),
        ("9", "9.0"),
        (True, "1.0"),
        (0, "0.0"),
        (" 1_0 ", "10.0"),
        (".5", "0.5"),
        ("+1e2", "100.0"),
    ],
)
def test_number_given_is_a_float(server, given, shown):
    r = server.post("/prompt", {"prompt": image_prompt(4), "number": given})
    assert f'"number":{shown}' in r.text.replace(" ", "")
    raw = server.get("/queue").text.replace(" ", "")
    assert f'[{shown},"{r.json()["prompt_id"]}"' in raw


@pytest.mark.parametrize("given", [None, "x", [], {}, "nan", "inf", "7.5x", "0x10"])
def test_number_that_is_none(server, given):
    r = server.post("/prompt", {"prompt": image_prompt(4), "number": given})
    assert r.status_code == 400 and r.json()["error"]["type"] == "invalid_prompt"


def test_counter(server):
    a = server.queue(image_prompt(5))["number"]
    assert server.queue(image_prompt(5))["number"] == a + 1
    # a prompt that is refused takes a number all the same, one with a number of its own does not
    assert server.post("/prompt", {"prompt": {}}).status_code == 400
    assert server.post("/prompt", {}).status_code == 400
    server.queue(image_prompt(5), number=3)
    front = server.queue(image_prompt(5), front=True)
    assert front["number"] == -(a + 4)
    assert server.queue(image_prompt(5), front=False)["number"] == a + 5
    numbers = [item[0] for item in server.get("/queue").json()["queue_pending"]]
    assert numbers == sorted(numbers)
    assert numbers[0] == front["number"]


def test_first_front_of_a_new_server_is_zero(fresh):
    s = fresh()
    assert s.post("/berth/queue", {"paused": True}).status_code == 200
    assert '"number":0' in s.post(
        "/prompt", {"prompt": image_prompt(), "front": True}
    ).text.replace(" ", "")
    assert s.queue(image_prompt())["number"] == 1


def test_secrets_are_not_kept(server):
    secret = uuid.uuid4().hex
    r = server.queue(
        image_prompt(6),
        extra_data={"auth_token_comfy_org": secret, "api_key_comfy_org": secret, "keep": 1},
    )
    assert secret not in server.get("/queue").text
    assert pending(server)[r["prompt_id"]][3]["keep"] == 1


def test_client_id_beats_extra_data(server):
    r = server.queue(image_prompt(7), client_id="outer", extra_data={"client_id": "inner"})
    assert pending(server)[r["prompt_id"]][3]["client_id"] == "outer"
    r = server.queue(image_prompt(7), extra_data={"client_id": "inner"})
    assert pending(server)[r["prompt_id"]][3]["client_id"] == "inner"
    r = server.queue(image_prompt(7), client_id="")
    assert pending(server)[r["prompt_id"]][3]["client_id"] == ""


def test_extra_data_must_be_an_object(server):
    assert server.post("/prompt", {"prompt": image_prompt(), "extra_data": [1]}).status_code == 400
    assert server.post("/prompt", {"prompt": image_prompt(), "extra_data": None}).status_code == 200


def test_values_come_back_as_they_were(server):
    """Integers beyond 2^63, floats with and without fraction, order and unknown members."""
    text = (
        '{"prompt":{"1":{"class_type":"EmptyImage","inputs":{"width":64,'
        '"height":64,"batch_size":1,"color":1,'
        '"undeclared":18446744073709551615,"f":1.0,"g":1e300,'
        '"neg":-9223372036854775808},"_meta":{"title":"\\u00e4\\u2713"}},'
        '"2":{"class_type":"SaveImage","inputs":{"images":["1",0],"filename_prefix":"x"}}}}'
    )
    r = server.post("/prompt", data=text)
    assert r.status_code == 200, r.text
    raw = server.get("/queue").text.replace(" ", "")
    assert (
        '"undeclared":18446744073709551615,"f":1.0,"g":1e300,"neg":-9223372036854775808}'
        in raw.replace("1e+300", "1e300")
    )
    assert pending(server)[r.json()["prompt_id"]][2]["1"]["_meta"] == {"title": "ä✓"}


def test_converted_values_are_echoed(server):
    p = image_prompt()
    p["1"]["inputs"].update(width="64", height=64.9)
    r = server.queue(p)
    shown = pending(server)[r["prompt_id"]][2]["1"]["inputs"]
    assert shown["width"] == 64 and shown["height"] == 64 and isinstance(shown["height"], int)


def test_no_prompt(server):
    for body in ({}, {"client_id": "x"}, [], [1]):
        r = server.post("/prompt", body)
        assert (r.status_code, r.json()) == (
            400,
            error("no_prompt", "No prompt provided", "No prompt provided"),
        )
    r = server.post(
        "/prompt", image_prompt()
    )  # the workflow by itself: ComfyUI's error, and what to do
    assert (r.status_code, r.json()) == (
        400,
        error(
            "no_prompt",
            "No prompt provided",
            'This is a workflow by itself: wrap it as {"prompt": ...}',
        ),
    )


def test_the_editors_format(server):
    editors = {"nodes": [{"id": 1, "type": "SaveImage"}], "links": [], "version": 0.4}
    r = server.post("/prompt", {"prompt": editors})
    assert (r.status_code, r.json()) == (
        400,
        error(
            "invalid_prompt",
            "Cannot execute: this is the editor's format; in ComfyUI choose Workflow > Export "
            "(API)",
            "",
        ),
    )
    r = server.post("/prompt", editors)
    assert r.status_code == 400 and "choose Workflow > Export (API)" in r.json()["error"]["details"]


def test_no_outputs(server):
    p = image_prompt()
    del p["2"]
    for prompt in ({}, p):
        r = server.post("/prompt", {"prompt": prompt})
        assert (r.status_code, r.json()) == (
            400,
            error("prompt_no_outputs", "Prompt has no outputs", ""),
        )


def test_partial_targets(server):
    p = image_prompt()
    p["3"] = {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}
    r = server.queue(p, partial_execution_targets=["3"])
    assert pending(server)[r["prompt_id"]][4] == ["3"]
    r = server.queue(p, partial_execution_targets=None)
    assert pending(server)[r["prompt_id"]][4] == ["2", "3"]
    for targets in ([], ["1"], ["99"]):
        r = server.post("/prompt", {"prompt": p, "partial_execution_targets": targets})
        assert (r.status_code, r.json()["error"]["type"]) == (400, "prompt_no_outputs")


def test_class_errors(server):
    r = server.post("/prompt", {"prompt": {"7": {"inputs": {}}}})
    assert (r.status_code, r.json()) == (
        400,
        error(
            "missing_node_type",
            "Node 'ID #7' has no class_type. The workflow may be corrupted or a custom node is "
            "missing.",
            "Node ID '#7'",
            {"node_id": "7", "class_type": None, "node_title": None},
        ),
    )
    r = server.post("/prompt", {"prompt": {"7": {"class_type": "NoSuchNode", "inputs": {}}}})
    assert (r.status_code, r.json()) == (
        400,
        error(
            "missing_node_type",
            "Node 'NoSuchNode' not found. The custom node may not be installed.",
            "Node ID '#7'",
            {"node_id": "7", "class_type": "NoSuchNode", "node_title": "NoSuchNode"},
        ),
    )


def test_invalid_inputs(server):
    p = image_prompt(width=0)
    del p["1"]["inputs"]["height"]
    r = server.post("/prompt", {"prompt": p})
    assert r.status_code == 400
    body = r.json()
    assert body["error"] == {
        "type": "prompt_outputs_failed_validation",
        "message": "Prompt outputs failed validation",
        "details": "",
        "extra_info": {},
    }
    assert list(body["node_errors"]) == ["1"]
    node = body["node_errors"]["1"]
    assert node["class_type"] == "EmptyImage" and node["dependent_outputs"] == ["2"]
    assert {e["type"] for e in node["errors"]} == {
        "value_smaller_than_min",
        "required_input_missing",
    }


def test_partly_valid(server):
    p = image_prompt()
    p["3"] = {"class_type": "SaveImage", "inputs": {"filename_prefix": "y"}}
    r = server.queue(p)
    assert list(r["node_errors"]) == ["3"]
    assert pending(server)[r["prompt_id"]][4] == ["2"]


def test_refused_prompts_leave_no_trace(server):
    before = server.get("/queue").json()
    with server.ws() as ws:
        ws.recv()
        assert server.post("/prompt", {"prompt": {}}).status_code == 400
        r = server.queue(image_prompt(9))
        # the first message is about the good one
        assert ws.recv()["type"] == "status"
    server.post("/queue", {"delete": [r["prompt_id"]]})
    assert server.get("/queue").json() == before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1,]", b'{"a":1,"a":2}', b"\xff", b"nul", b"[" * 10000],
    ids=["empty", "open", "comma", "twice", "latin", "word", "deep"],
)
def test_malformed_json(server, body):
    r = server.post("/prompt", data=body)
    assert r.status_code == 400
    answer = r.json()
    assert answer["error"].pop("details")
    assert answer == {
        "error": {
            "type": "invalid_json",
            "message": "The body is not JSON that can be read",
            "extra_info": {},
        },
        "node_errors": {},
    }


def with_width(value):
    return json.dumps(
        {
            "prompt": {
                **image_prompt(1),
                "1": {
                    **image_prompt(1)["1"],
                    "inputs": {**image_prompt(1)["1"]["inputs"], "width": "@"},
                },
            }
        }
    ).replace('"@"', value)


@pytest.mark.parametrize(
    "value,type_",
    [
        ("18446744073709551616", "value_bigger_than_max"),
        ("9" * 400, "value_bigger_than_max"),
        ("1e400", "value_bigger_than_max"),
        ("-1e400", "value_smaller_than_min"),
        ("-9223372036854775809", "value_smaller_than_min"),
        ('"\\ud800"', "invalid_input_type"),
    ],
)
def test_json_that_python_takes(server, value, type_):
    """Numbers of any size and half surrogate pairs are JSON: what is wrong with them is said of the
    input."""
    r = server.post("/prompt", data=with_width(value))
    assert r.status_code == 400
    assert [e["type"] for n in r.json()["node_errors"].values() for e in n["errors"]] == [type_]


def test_prompt_that_is_no_object(server):
    for prompt in (None, 5, "x"):
        assert server.post("/prompt", {"prompt": prompt}).status_code == 400


def test_queue_full(fresh):
    s = fresh("--max-queue", "3")
    s.post("/berth/queue", {"paused": True})
    for i in range(3):
        s.queue(image_prompt(i))
    r = s.post("/prompt", {"prompt": image_prompt(9)})
    assert r.status_code == 429
    assert r.json()["error"]["type"] == "queue_full" and r.json()["node_errors"] == {}
    assert s.get("/prompt").json()["exec_info"]["queue_remaining"] == 3
    s.post("/queue", {"clear": True})
    s.queue(image_prompt(9))


def test_validator_of_two_inputs_names_the_one(server):
    """CheckpointLoaderAdvancedDisTorch2MultiGPU looks at two strings; the error says which is
    wrong."""
    inputs = {"ckpt_name": "none.safetensors", "clip_expert_mode_allocations": "nowhere,1gb"}
    prompt = {
        "1": {"class_type": "CheckpointLoaderAdvancedDisTorch2MultiGPU", "inputs": inputs},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    r = server.post("/prompt", {"prompt": prompt})
    assert r.status_code == 400
    custom = [
        e for e in r.json()["node_errors"]["1"]["errors"] if e["type"] == "custom_validation_failed"
    ]
    assert [e["extra_info"]["input_name"] for e in custom] == ["clip_expert_mode_allocations"]
    assert custom[0]["details"].startswith("clip_expert_mode_allocations - ")
