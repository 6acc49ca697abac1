"""Users, settings, user data (comfyui-api.md 1.4)."""

import concurrent.futures
import json
import os
import re
import socket
import time

import pytest
import requests


def ok_json(r):
    assert r.status_code == 200, (r.status_code, r.text)
    assert r.headers["Content-Type"] == "application/json; charset=utf-8"
    return r.json()


def empty(r, status=200):
    assert (r.status_code, r.content) == (status, b"")


def put(server, name, data=b"{}", query=""):
    return server.post(f"/userdata/{name}{query}", data=data)


def delete(server, name):
    return requests.delete(f"{server.url}/userdata/{name}", timeout=30)


def move(server, source, dest, query=""):
    return server.post(f"/userdata/{source}/move/{dest}{query}")


def user_path(server, *parts):
    return os.path.join(server.base, "user", "default", *parts)


# ---- users and settings


def test_new_user(fresh):
    s = fresh()
    assert ok_json(s.get("/users")) == {"storage": "server", "migrated": False}
    assert ok_json(s.get("/settings")) == {}
    assert s.get("/userdata?dir=workflows").status_code == 404
    assert ok_json(s.get("/v2/userdata")) == []
    assert s.get("/userdata/workflows%2Fx.json").status_code == 404
    empty(s.post("/settings/Comfy.InstalledVersion", data='"1.35.9"'))
    assert ok_json(s.get("/users")) == {"storage": "server", "migrated": True}


def test_a_user_more_without_multi_user(fresh):
    """As ComfyUI does it: the name is kept, and counts once --multi-user is said."""
    s = fresh()
    x = ok_json(s.post("/users", {"username": "x y"}))
    assert re.fullmatch(r"x-y_[0-9a-f-]{36}", x)
    for name in ("x y", "default", "", " ", "__x"):
        assert s.post("/users", {"username": name}).status_code == 400, name
    assert ok_json(s.get("/users")) == {"storage": "server", "migrated": False}
    with open(os.path.join(s.base, "user", "users.json")) as f:
        assert json.load(f) == {"default": "default", x: "x y"}


@pytest.mark.parametrize(
    "name,type_",
    [
        ("a.html", "application/octet-stream"),
        ("a.svg", "application/octet-stream"),
        ("a.js", "application/octet-stream"),
        ("a.css", "application/octet-stream"),
        ("a.xml", "application/octet-stream"),
        ("a.json", "application/json"),
        ("user.css", "text/css"),
        ("sub%2Fuser.css", "application/octet-stream"),
        ("noext", "application/octet-stream"),
    ],
)
def test_what_users_keep_is_no_page_of_ours(server, name, type_):
    assert server.post(f"/userdata/{name}", data=b"<script>alert(1)</script>").status_code == 200
    r = server.get(f"/userdata/{name}")
    assert r.headers["Content-Type"].split(";")[0] == type_
    assert r.headers["X-Content-Type-Options"] == "nosniff"
    assert r.headers["Content-Disposition"] == ("inline" if name == "user.css" else "attachment")


def test_settings(server):
    empty(server.post("/settings", {"a.b": 1, "Comfy.X": {"deep": [1, 2.0, None]}}))
    empty(server.post("/api/settings", {"a.b": 2, "c": "ä"}))
    assert ok_json(server.get("/settings")) == {
        "a.b": 2,
        "Comfy.X": {"deep": [1, 2.0, None]},
        "c": "ä",
    }
    assert ok_json(server.get("/settings/a.b")) == 2
    assert ok_json(server.get("/settings/Comfy.X")) == {"deep": [1, 2.0, None]}
    assert ok_json(server.get("/settings/none")) is None
    with open(user_path(server, "comfy.settings.json")) as f:
        assert json.load(f) == server.get("/settings").json()


@pytest.mark.parametrize("value", [1, 1.5, "text", True, None, [1], {"x": 1}, 18446744073709551615])
def test_setting_of_any_kind(server, value):
    empty(server.post("/settings/kind.of", data=json.dumps(value)))
    assert ok_json(server.get("/settings/kind.of")) == value


def test_setting_taken_out(server):
    server.post("/settings/gone", data="5")
    empty(server.post("/settings/gone", data=b""))
    assert "gone" not in server.get("/settings").json()
    assert ok_json(server.get("/settings/gone")) is None


def test_wrong_settings(server):
    for body in (b"", b"{", b"[1]", b"5"):
        assert server.post("/settings", data=body).status_code == 400
    assert server.post("/settings/x", data=b"{").status_code == 400


def test_settings_too_deep_to_be_read_again(fresh):
    s = fresh()
    empty(s.post("/settings/a", data="1"))
    for depth in range(60, 70):
        value = "[" * depth + "]" * depth
        r = s.post("/settings/deep", data=value)
        assert r.status_code == (200 if depth <= 63 else 400), (depth, r.text)
        whole = s.post("/settings", data='{"deeper":%s}' % value)
        assert whole.status_code == (200 if depth <= 63 else 400), (depth, whole.text)
        assert ok_json(s.get("/settings/a")) == 1
    assert json.dumps(ok_json(s.get("/settings/deep"))) == "[" * 63 + "]" * 63


def test_settings_of_another_program_or_broken(fresh):
    s = fresh()
    os.makedirs(user_path(s), exist_ok=True)
    with open(user_path(s, "comfy.settings.json"), "w") as f:
        f.write('{"mine": 1, "Comfy.Keep": [1]}')
    empty(s.post("/settings/added", data="true"))
    assert ok_json(s.get("/settings")) == {"mine": 1, "Comfy.Keep": [1], "added": True}
    with open(user_path(s, "comfy.settings.json"), "w") as f:
        f.write('{"cut')
    assert ok_json(s.get("/settings")) == {}
    assert [n for n in os.listdir(user_path(s)) if n.startswith(".")] == []
    empty(s.post("/settings/new", data="1"))  # what somebody may want to mend is kept
    assert ok_json(s.get("/settings")) == {"new": 1}
    with open(user_path(s, "comfy.settings.json.corrupt")) as f:
        assert f.read() == '{"cut'


def refused(s, r, status):
    assert r.status_code == status, (r.status_code, r.text)
    assert (
        s.base not in r.text and "/user" not in r.text
    ), r.text  # where things are is nobody's business


def test_settings_that_cannot_be_read_stay(fresh):
    s = fresh()
    path = user_path(s, "comfy.settings.json")
    os.makedirs(path)  # root reads everything but this
    with open(os.path.join(path, "inside"), "w") as f:
        f.write("x")
    for r in (
        s.get("/settings"),
        s.get("/settings/a"),
        s.post("/settings/a", data="1"),
        s.post("/settings", {"a": 1}),
    ):
        refused(s, r, 503)
    assert os.listdir(path) == ["inside"]
    os.remove(os.path.join(path, "inside"))
    os.rmdir(path)
    text = json.dumps({"big": "x" * (16 << 20)})
    with open(path, "w") as f:
        f.write(text)
    for r in (s.get("/settings"), s.post("/settings/a", data="1")):
        refused(s, r, 503)
    with open(path) as f:
        assert f.read() == text


def test_settings_have_a_size(fresh):
    s = fresh()
    empty(s.post("/settings/one", json="x" * (9 << 20)))
    refused(s, s.post("/settings/two", json="x" * (9 << 20)), 413)
    assert list(ok_json(s.get("/settings"))) == ["one"]


def test_users_that_cannot_be_read(fresh):
    s = fresh("--multi-user")
    ada = ok_json(s.post("/users", {"username": "ada"}))
    path = os.path.join(s.base, "user", "users.json")
    os.rename(path, path + ".kept")
    os.mkdir(path)
    a = {"comfy-user": ada}
    for r in (
        s.get("/users"),
        s.post("/users", {"username": "bob"}),
        s.get("/settings", headers=a),
        s.get("/userdata?dir=.", headers=a),
        s.get("/v2/userdata", headers=a),
        s.post("/userdata/f", data=b"x", headers=a),
    ):
        refused(s, r, 503)
    os.rmdir(path)
    os.rename(path + ".kept", path)
    assert ok_json(s.get("/users"))["users"] == {ada: "ada"}


# ---- files


def test_store_and_read(server):
    assert ok_json(put(server, "workflows%2Fa.json", b'{"x": 1}')) == "workflows/a.json"
    r = server.get("/userdata/workflows%2Fa.json")
    assert (r.status_code, r.content) == (200, b'{"x": 1}')
    assert r.headers["Content-Type"].startswith("application/json")
    assert server.get("/api/userdata/workflows%2Fa.json").content == b'{"x": 1}'
    assert server.get("/userdata/workflows/a.json").status_code == 404  # a slash is a slash
    with open(user_path(server, "workflows", "a.json"), "rb") as f:
        assert f.read() == b'{"x": 1}'


def test_names_may_be_encoded_twice(server):
    assert ok_json(put(server, "workflows%252Ftwice%2520x.json")) == "workflows/twice x.json"
    assert server.get("/userdata/workflows%2Ftwice%20x.json").status_code == 200
    assert ok_json(put(server, "100%25.txt")) == "100%.txt"
    assert ok_json(put(server, "%C3%A4%E2%98%83.json")) == "ä☃.json"


def test_full_info(server):
    before = time.time()
    info = ok_json(put(server, "full.json", b"12345", "?full_info=true"))
    assert list(info) == ["path", "size", "modified", "created"]
    assert (info["path"], info["size"]) == ("full.json", 5)
    for name in ("modified", "created"):  # in milliseconds
        assert isinstance(info[name], int) and abs(info[name] - before * 1000) < 60_000


def test_overwrite(server):
    put(server, "o.json", b"old")
    r = put(server, "o.json", b"new", "?overwrite=false")
    assert (r.status_code, r.text) == (409, "File already exists")
    assert server.get("/userdata/o.json").content == b"old"
    assert put(server, "o.json", b"new", "?overwrite=true").status_code == 200
    assert put(server, "o.json", b"newer").status_code == 200
    assert server.get("/userdata/o.json").content == b"newer"
    assert put(server, "o2.json", b"x", "?overwrite=false").status_code == 200


def test_two_that_must_be_new(server):
    """Both begin while the name is free: one has it, the other is told, whoever is first."""
    clients = []
    for body in (b"one", b"two"):
        c = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        c.sendall(
            b"POST /userdata/new.json?overwrite=false HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: "
            b"close\r\n"
            b"Content-Length: 3\r\n\r\n" + body[:2]
        )
        clients.append((c, body))
    time.sleep(0.2)  # both heads were seen
    got = {}
    for c, body in clients:
        c.sendall(body[2:])
        answer = b""
        while piece := c.recv(65536):
            answer += piece
        got[body] = int(answer.split()[1])
        c.close()
    assert got == {b"one": 200, b"two": 409}
    assert server.get("/userdata/new.json").content == b"one"


def test_moves_to_one_new_name(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for turn in range(10):
            for i in range(8):
                put(server, f"from{i}.json", b"%d" % i)
            got = list(
                pool.map(
                    lambda i: move(
                        server, f"from{i}.json", f"to{turn}.json", "?overwrite=false"
                    ).status_code,
                    range(8),
                )
            )
            assert sorted(got) == [200] + [409] * 7
            assert server.get(f"/userdata/to{turn}.json").content == b"%d" % got.index(200)


def test_folders_that_no_listing_would_show(server):
    deep = "%2F".join(["d"] * 64)
    assert put(server, deep + "%2Fok.json").status_code == 200
    assert put(server, deep + "%2Fd%2Fno.json").status_code == 400
    put(server, "m.json")
    assert move(server, "m.json", deep + "%2Fd%2Fno.json").status_code == 400
    assert "d/" * 64 + "ok.json" in ok_json(server.get("/userdata?dir=.&recurse=true"))


def test_more_than_there_is(server):
    """A length beyond every limit and every disk: refused, without a word of where the file would
    be."""
    answer = server.raw(
        b"POST /userdata/huge.bin HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"
        % (1 << 62)
    )
    assert answer.split()[1] in (b"413", b"507"), answer
    assert server.base.encode() not in answer


def test_large_and_empty_bodies(server):
    data = os.urandom(3 << 20)
    assert put(server, "large.bin", data).status_code == 200
    assert server.get("/userdata/large.bin").content == data
    assert put(server, "none.bin", b"").status_code == 200
    assert server.get("/userdata/none.bin").content == b""
    pieces = [data[i : i + 10007] for i in range(0, 1 << 20, 10007)]
    assert put(server, "chunked.bin", iter(pieces)).status_code == 200
    assert server.get("/userdata/chunked.bin").content == b"".join(pieces)


BAD = [
    "..%2Fx.json",
    "%2Fetc%2Fpasswd",
    "a%2F..%2F..%2Fx.json",
    "..%252Fx.json",
    "%252e%252e%252fx.json",
    "..%2F..%2Fsecret",
    "a%01b",
]


@pytest.mark.parametrize("name", BAD)
def test_paths_stay_inside(server, name):
    empty(server.get(f"/userdata/{name}"), 403)
    empty(put(server, name), 403)
    empty(delete(server, name), 403)
    put(server, "stay.json")
    empty(move(server, "stay.json", name), 403)
    empty(move(server, name, "stay.json"), 403)
    assert not os.path.exists(os.path.join(server.base, "user", "x.json"))


def test_paths_that_come_back(server):
    assert ok_json(put(server, "b%2F..%2Fc.json")) == "c.json"
    assert not os.path.exists(user_path(server, "b"))


def test_links_lead_nowhere(server):
    outside = os.path.join(server.base, "outside")
    os.makedirs(outside, exist_ok=True)
    with open(os.path.join(outside, "secret"), "w") as f:
        f.write("secret")
    os.makedirs(user_path(server), exist_ok=True)
    os.symlink(outside, user_path(server, "door"))
    empty(server.get("/userdata/door%2Fsecret"), 403)
    empty(put(server, "door%2Fnew"), 403)
    assert server.get("/userdata?dir=door").status_code == 403
    assert "secret" not in json.dumps(server.get("/v2/userdata").json())
    assert os.listdir(outside) == ["secret"]
    os.unlink(user_path(server, "door"))


def test_delete(server):
    put(server, "d.json")
    empty(delete(server, "d.json"), 204)
    empty(delete(server, "d.json"), 404)
    os.makedirs(user_path(server, "dir"), exist_ok=True)
    assert delete(server, "dir").status_code == 404
    assert server.get("/userdata/dir").status_code == 404
    assert put(server, "dir").status_code == 400


def test_move(server):
    put(server, "m1.json", b"one")
    assert ok_json(move(server, "m1.json", "new%2Fdir%2Fm2.json")) == "new/dir/m2.json"
    assert server.get("/userdata/new%2Fdir%2Fm2.json").content == b"one"
    empty(server.get("/userdata/m1.json"), 404)
    empty(move(server, "m1.json", "x.json"), 404)
    put(server, "m3.json", b"three")
    r = move(server, "m3.json", "new%2Fdir%2Fm2.json", "?overwrite=false")
    assert (r.status_code, r.text) == (409, "File already exists")
    info = ok_json(move(server, "m3.json", "new%2Fdir%2Fm2.json", "?full_info=true"))
    assert (info["path"], info["size"]) == ("new/dir/m2.json", 5)
    assert server.get("/userdata/new%2Fdir%2Fm2.json").content == b"three"


# ---- listings


@pytest.fixture
def tree(fresh):
    s = fresh()
    for name in (
        "workflows%2Fb.json",
        "workflows%2Fa.json",
        "workflows%2Fsub%2Fc.json",
        "workflows%2F.index.json",
        "top.txt",
    ):
        assert put(s, name, b"123").status_code == 200
    return s


def test_listing(tree):
    assert ok_json(tree.get("/userdata?dir=workflows")) == ["a.json", "b.json"]
    assert ok_json(tree.get("/userdata?dir=workflows&recurse=true")) == [
        "a.json",
        "b.json",
        "sub/c.json",
    ]
    assert ok_json(tree.get("/userdata?dir=workflows&recurse=TRUE&split=true")) == [
        ["a.json", "a.json"],
        ["b.json", "b.json"],
        ["sub/c.json", "sub", "c.json"],
    ]
    full = ok_json(tree.get("/api/userdata?dir=workflows&recurse=true&split=false&full_info=true"))
    assert [f["path"] for f in full] == ["a.json", "b.json", "sub/c.json"]
    assert all(list(f) == ["path", "size", "modified", "created"] and f["size"] == 3 for f in full)
    assert ok_json(tree.get("/userdata?dir=workflows%2Fsub")) == ["c.json"]
    assert ok_json(tree.get("/userdata?dir=.")) == ["top.txt"]


@pytest.mark.parametrize(
    "query,status,text",
    [
        ("", 400, "Directory not provided"),
        ("?dir=", 400, "Directory not provided"),
        ("?dir=none", 404, "Directory not found"),
        ("?dir=top.txt", 404, "Directory not found"),
        ("?dir=..", 403, None),
        ("?dir=%2Fetc", 403, None),
    ],
)
def test_listing_refused(tree, query, status, text):
    r = tree.get("/userdata" + query)
    assert r.status_code == status and (text is None or r.text == text)


def test_v2(tree):
    got = ok_json(tree.get("/v2/userdata"))
    assert [(e["path"], e["type"]) for e in got] == [
        ("workflows/sub", "directory"),
        ("workflows", "directory"),
        ("workflows/.index.json", "file"),
        ("workflows/a.json", "file"),
        ("workflows/b.json", "file"),
        ("workflows/sub/c.json", "file"),
        ("top.txt", "file"),
    ]
    for e in got:
        assert list(e) == ["name", "path", "type"] + (
            ["size", "modified"] if e["type"] == "file" else []
        )
        assert e["name"] == e["path"].split("/")[-1]
    sub = ok_json(tree.get("/api/v2/userdata?path=workflows%2Fsub"))
    assert [e["path"] for e in sub] == ["workflows/sub/c.json"]
    assert tree.get("/v2/userdata?path=none").status_code == 404
    assert tree.get("/v2/userdata?path=top.txt").status_code == 400
    assert tree.get("/v2/userdata?path=..").status_code == 403
    assert tree.get("/v2/userdata?path=..%252F").status_code == 403


# ---- several users


def test_multi_user(fresh):
    s = fresh("--multi-user")
    assert ok_json(s.get("/users")) == {"storage": "server", "users": {}}
    ada = ok_json(s.post("/users", {"username": " Ada L. "}))
    assert re.match(r"^Ada-L-_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f-]+$", ada)
    bob = ok_json(s.post("/users", {"username": "bob"}))
    assert ok_json(s.get("/users")) == {"storage": "server", "users": {ada: "Ada L.", bob: "bob"}}
    r = s.post("/users", {"username": "bob"})
    assert (r.status_code, r.json()) == (400, {"error": "Duplicate username."})
    for name in ("", "   ", "__x", None, 5):
        assert s.post("/users", {"username": name}).status_code == 400
    assert s.post("/users", {}).status_code == 400

    a, b = {"comfy-user": ada}, {"Comfy-User": bob}
    empty(s.post("/settings/x", data="1", headers=a))
    assert ok_json(s.get("/settings", headers=a)) == {"x": 1}
    assert ok_json(s.get("/settings", headers=b)) == {}
    assert s.post("/userdata/f.json", data=b"a", headers=a).status_code == 200
    assert s.get("/userdata/f.json", headers=a).content == b"a"
    assert s.get("/userdata/f.json", headers=b).status_code == 404
    for unknown in (
        {},
        {"comfy-user": ""},
        {"comfy-user": "nobody"},
        {"comfy-user": ".."},
        {"comfy-user": "__berth"},
    ):
        assert s.get("/settings", headers=unknown).status_code == 401
        assert s.get("/settings/x", headers=unknown).status_code == 401
        assert s.post("/settings", {"x": 1}, headers=unknown).status_code == 401
        assert s.post("/settings/x", data="1", headers=unknown).status_code == 401
        assert s.get("/userdata?dir=x", headers=unknown).status_code == 401
        assert s.get("/userdata/f.json", headers=unknown).status_code == 401
        assert s.post("/userdata/f.json", data=b"x", headers=unknown).status_code == 401
        assert s.get("/v2/userdata", headers=unknown).status_code == 403
    s.stop()
    s.start()
    assert ok_json(s.get("/users"))["users"] == {ada: "Ada L.", bob: "bob"}


def test_one_user_whatever_the_header_says(server):
    server.post("/settings/single", data="1")
    assert server.get("/settings/single", headers={"comfy-user": "somebody"}).json() == 1


def test_the_database_is_not_user_data(server):
    """It lies beside the users' folders and no user's name leads there."""
    for name in ("..%2F__berth%2Fstate.db", "__berth%2Fstate.db"):
        assert server.get(f"/userdata/{name}").status_code in (403, 404)
