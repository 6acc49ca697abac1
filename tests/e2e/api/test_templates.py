"""What ComfyUI's frontend finds at /templates: ours, unless its tree brings its own."""

import json
import os

import pytest

from conftest import Server

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "..", "assets", "demo", "berth-demo.safetensors")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The least that is a frontend."""
    folder = tmp_path_factory.mktemp("frontend")
    (folder / "index.html").write_text("<!doctype html><title>frontend</title>")
    return folder


@pytest.fixture(scope="module")
def served(tree, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("berth") / "base", "--front-end-root", tree) as s:
        yield s


def templates(server):
    r = server.get("/templates/index.json")
    assert r.status_code == 200 and r.headers["Content-Type"] == "application/json"
    return [t for group in r.json() for t in group["templates"]]


def test_each_template_has_a_workflow_and_a_picture(served):
    assert [t["name"] for t in templates(served)] == ["berth-demo"]
    for t in templates(served):
        assert served.get(f"/templates/{t['name']}.json").json()["nodes"]
        picture = served.get(f"/templates/{t['name']}-1.{t['mediaSubtype']}")
        assert picture.headers["Content-Type"] == "image/png" and picture.content.startswith(
            b"\x89PNG"
        )


def widgets(info):
    """Names of the inputs that a node shows as widgets, in their order; a seed has one more, for
    what comes after it."""
    names = []
    for name, spec in {
        **info["input"].get("required", {}),
        **info["input"].get("optional", {}),
    }.items():
        if isinstance(spec[0], list) or spec[0] in ("INT", "FLOAT", "STRING", "BOOLEAN", "COMBO"):
            names.append((name, spec))
            if len(spec) > 1 and spec[1].get("control_after_generate"):
                names.append(
                    ("control_after_generate", [["fixed", "increment", "decrement", "randomize"]])
                )
    return names


def test_a_template_fits_the_nodes_that_are_here(served):
    """Classes, links and values: what the frontend loads is what the server would accept."""
    known = served.get("/object_info").json()
    for t in templates(served):
        flow = served.get(f"/templates/{t['name']}.json").json()
        nodes = {n["id"]: n for n in flow["nodes"]}
        for link, source, slot, target, place, kind in flow["links"]:
            out = nodes[source]["outputs"][slot]
            assert (
                link in out["links"]
                and out["type"] == kind == known[nodes[source]["type"]]["output"][slot]
            )
            assert (
                nodes[target]["inputs"][place]["link"] == link
                and nodes[target]["inputs"][place]["type"] == kind
            )
        for n in nodes.values():
            expected = widgets(known[n["type"]])
            assert len(n.get("widgets_values", [])) == len(expected), n["type"]
            for value, (name, spec) in zip(n["widgets_values"], expected):
                if isinstance(spec[0], list) and name != "ckpt_name":
                    assert value in spec[0], (n["type"], name)


@pytest.mark.skipif(not os.path.exists(DEMO), reason="no demo model in assets/demo")
def test_the_template_uses_the_settings_of_the_demo_model(served):
    with open(DEMO, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    good = json.loads(header["__metadata__"]["berth.settings"])
    flow = served.get("/templates/berth-demo.json").json()["nodes"]
    nodes = {n["type"]: n["widgets_values"] for n in flow}
    assert nodes["CheckpointLoaderSimple"] == [os.path.basename(DEMO)]
    assert nodes["EmptyLatentImage"] == [good["width"], good["height"], 1]
    assert nodes["KSampler"][2:] == [
        good["steps"],
        good["cfg"],
        good["sampler_name"],
        good["scheduler"],
        1.0,
    ]
    assert {n["title"]: n["widgets_values"] for n in flow if n["type"] == "CLIPTextEncode"} == {
        "Prompt": [good["prompts"][0]],
        "Negative prompt": [good["negative"]],
    }


def test_a_tree_with_templates_of_its_own_keeps_them(tmp_path):
    own = tmp_path / "frontend"
    (own / "templates").mkdir(parents=True)
    (own / "index.html").write_text("x")
    (own / "templates/index.json").write_text("[]")
    with Server(tmp_path / "base", "--front-end-root", own) as s:
        assert s.get("/templates/index.json").json() == []


def test_nothing_else_is_found_there(served):
    for path in (
        "/templates/none.json",
        "/templates/main.js",
        "/templates/",
        "/main.js",
        "/templates/..%2findex.html",
    ):
        assert served.get(path).status_code in (403, 404), path


def test_without_a_frontend_there_are_none(server):
    assert server.get("/templates/index.json").status_code == 404
