"""What the server says about itself: object_info, system_stats, features, logs, what the frontend
asks at boot (comfyui-api.md 1.2, 1.5, 1.8, 7, 8.1, 9)."""

import json
import os

import pytest
import requests

from conftest import image_prompt


def ok_json(r):
    assert r.status_code == 200, r.text
    assert r.headers["Content-Type"] == "application/json; charset=utf-8"
    return r.json()


@pytest.fixture(scope="module")
def info(server):
    return ok_json(server.get("/object_info"))


# ---- object_info


def test_every_definition_has_its_members(info):
    assert len(info) > 50
    for name, d in info.items():
        for member in ("name", "description", "category", "python_module"):
            assert isinstance(d[member], str), (name, member)
        assert d["name"] == name and isinstance(d["output_node"], bool)
        assert d["python_module"].split(".")[0] in (
            "nodes",
            "comfy_extras",
            "comfy_api_nodes",
            "custom_nodes",
        ), name
        assert len(d["output"]) == len(d["output_is_list"]) == len(d["output_name"]), name
        assert list(d["input_order"]) == list(d["input"]), name
        for group, order in d["input_order"].items():
            assert order == list(d["input"][group]), name


def test_save_image(info):
    d = info["SaveImage"]
    assert list(d["input"]) == ["required", "hidden"]
    assert list(d["input"]["required"]) == ["images", "filename_prefix"]
    assert d["input"]["required"]["images"][0] == "IMAGE"
    assert d["input"]["required"]["filename_prefix"][0] == "STRING"
    assert d["input"]["required"]["filename_prefix"][1]["default"] == "ComfyUI"
    assert d["input"]["hidden"] == {"prompt": "PROMPT", "extra_pnginfo": "EXTRA_PNGINFO"}
    assert (d["output"], d["output_is_list"], d["output_name"]) == (["IMAGE"], [False], ["images"])
    assert (d["display_name"], d["python_module"], d["category"], d["output_node"]) == (
        "Save Image",
        "nodes",
        "image",
        True,
    )


def test_seeds_are_exact(server):
    raw = server.get("/object_info/KSampler").text
    if raw != "{}":
        assert "18446744073709551615" in raw


def test_one_class(server, info):
    assert ok_json(server.get("/object_info/SaveImage")) == {"SaveImage": info["SaveImage"]}
    assert ok_json(server.get("/api/object_info/EmptyImage")) == {"EmptyImage": info["EmptyImage"]}
    assert ok_json(server.get("/object_info/NoSuchNode")) == {}


def test_new_files_appear_without_a_restart(server):
    def names(cls, name):
        spec = server.get(f"/object_info/{cls}").json()[cls]["input"]["required"][name]
        return spec[1]["options"] if spec[0] == "COMBO" else spec[0]

    folder = os.path.join(server.base, "models", "checkpoints", "sub")
    os.makedirs(folder, exist_ok=True)
    assert names("CheckpointLoaderSimple", "ckpt_name") == []
    for path in ("b.safetensors", "a.ckpt", "sub/c.pt", "no.txt"):
        open(os.path.join(server.base, "models", "checkpoints", path), "wb").close()
    assert names("CheckpointLoaderSimple", "ckpt_name") == ["a.ckpt", "b.safetensors", "sub/c.pt"]
    before = names("LoadImage", "image")
    open(os.path.join(server.base, "input", "new.png"), "wb").close()
    open(os.path.join(server.base, "input", "new.txt"), "wb").close()
    assert names("LoadImage", "image") == sorted(before + ["new.png"])


# ---- system_stats, features


def test_system_stats(server):
    s = ok_json(server.get("/system_stats"))
    assert list(s) == ["system", "devices"]
    system = s["system"]
    assert (
        system["os"] == "linux"
        and system["comfyui_version"] == "0.33.0"
        and system["embedded_python"] is False
    )
    assert 0 < system["ram_free"] <= system["ram_total"]
    for member in ("python_version", "pytorch_version"):
        assert isinstance(system[member], str)
    for member in (
        "required_frontend_version",
        "installed_templates_version",
        "required_templates_version",
    ):
        assert system[member] is None
    assert system["comfy_package_versions"] == [
        {"name": f"comfyui-{name}", "installed": None, "required": None}
        for name in ("frontend-package", "workflow-templates", "embedded-docs")
    ]
    assert isinstance(system["deploy_environment"], str)
    assert isinstance(system["argv"], list) and all(isinstance(a, str) for a in system["argv"])
    assert len(s["devices"]) >= 1
    for d in s["devices"]:
        assert set(d) >= {
            "name",
            "type",
            "index",
            "vram_total",
            "vram_free",
            "torch_vram_total",
            "torch_vram_free",
        }
        assert d["vram_total"] > 0 and d["vram_free"] <= d["vram_total"]


@pytest.mark.parametrize(
    "spec,want",
    [
        ("cpu=1g,cuda:0@cpu=64m,cuda:1@cpu=32m", [("cuda", 0, 64 << 20), ("cuda", 1, 32 << 20)]),
        ("cpu=1g", [("cpu", None, 1 << 30)]),
    ],
)
def test_every_device_is_there(fresh, spec, want):
    """The cards, the one that loaders choose first; the cpu only where there is no other."""
    s = fresh("--devices", spec)
    assert [
        (d["type"], d["index"], d["vram_total"]) for d in s.get("/system_stats").json()["devices"]
    ] == want


def test_the_manager_stays_out_of_argv(fresh):
    s = fresh("--enable-manager")
    argv = s.get("/system_stats").json()["system"]["argv"]
    assert argv and not [a for a in argv if a.startswith("--enable-manager")]


def test_features(server, fresh):
    want = {
        "supports_preview_metadata": True,
        "supports_model_type_tags": True,
        "max_upload_size": 104857600,
        "extension": {"manager": {"supports_v4": True}},
        "node_replacements": True,
        "assets": False,
    }
    assert ok_json(server.get("/features")) == want
    with server.ws(flags={}) as ws:
        assert ws.until(lambda m: m["type"] == "feature_flags")[-1]["data"] == want
    assert (
        ok_json(fresh("--max-upload-size", "2").get("/api/features"))["max_upload_size"] == 2 << 20
    )


def test_feature_flags_of_the_command_line(fresh):
    """Those that frontends know are true or false; of others the text stays. The server's own stay
    as they are."""
    given = [
        "show_signin_button",
        "enable_telemetry=ture",
        " mine = a b ",
        "empty=",
        "assets=true",
        "=x",
        "twice=1",
        "twice=2",
    ]
    s = fresh(*(word for flag in given for word in ("--feature-flag", flag)))
    want = {"show_signin_button": True, "mine": "a b", "empty": "", "twice": "2"}
    features = s.get("/features").json()
    assert {k: v for k, v in features.items() if k in want or k == "enable_telemetry"} == want
    assert features["assets"] is False and len(features) == 6 + len(want)
    with s.ws(flags={}) as ws:
        assert ws.until(lambda m: m["type"] == "feature_flags")[-1]["data"] == features
    for flag, why in (
        ("enable_telemetry=ture", "true or false"),
        ("assets=true", "server's own"),
        ("=x", "no name"),
    ):
        assert [x for x in s.errors().splitlines() if "serve.flag" in x and flag in x and why in x]


# ---- assets, replacements

OFF = {
    "error": {
        "code": "SERVICE_DISABLED",
        "details": {},
        "message": "Assets system is disabled. Start the server with --enable-assets to use this "
        "feature.",
    }
}


@pytest.mark.parametrize(
    "method,path",
    [
        ("GET", "assets"),
        ("GET", "assets?limit=5"),
        ("POST", "assets"),
        ("GET", "assets/0b1f"),
        ("PUT", "assets/0b1f"),
        ("DELETE", "assets/0b1f"),
        ("GET", "assets/0b1f/content"),
        ("POST", "assets/0b1f/tags"),
        ("DELETE", "assets/0b1f/tags"),
        ("POST", "assets/from-hash"),
        ("GET", "assets/tags/refine"),
        ("POST", "assets/seed"),
        ("GET", "assets/seed/status"),
        ("POST", "assets/seed/cancel"),
        ("POST", "assets/prune"),
        ("GET", "tags"),
        ("HEAD", "assets/hash/blake3:00"),
    ],
)
def test_assets_are_off(server, method, path):
    r = requests.request(
        method,
        f"{server.url}/api/{path}",
        data=b"x" if method in ("POST", "PUT") else None,
        timeout=10,
    )
    assert r.status_code == 503
    assert r.json() == OFF if method != "HEAD" else r.content == b""


def test_assets_of_the_frontend_are_files(server):
    assert server.get("/assets").status_code == 404 and server.get("/tags").status_code == 404


def test_node_replacements(server):
    """As ComfyUI 0.33 tells them."""

    def entry(old, new, widgets=None, inputs=None, outputs=None):
        return {
            old: [
                {
                    "new_node_id": new,
                    "old_node_id": old,
                    "old_widget_ids": widgets,
                    "input_mapping": inputs,
                    "output_mapping": outputs,
                }
            ]
        }

    def take(new, old):
        return {"new_id": new, "old_id": old}

    want = {
        **entry(
            "ResizeImagesByLongerEdge",
            "ImageScaleToMaxDimension",
            ["longer_edge"],
            [
                take("image", "images"),
                take("largest_size", "longer_edge"),
                {"new_id": "upscale_method", "set_value": "lanczos"},
            ],
            [{"new_idx": 0, "old_idx": 0}],
        ),
        **entry(
            "ImageBatch",
            "BatchImagesNode",
            None,
            [take("images.image0", "image1"), take("images.image1", "image2")],
        ),
        **entry(
            "ImageScaleBy",
            "ResizeImageMaskNode",
            ["upscale_method", "scale_by"],
            [
                take("input", "image"),
                {"new_id": "resize_type", "set_value": "scale by multiplier"},
                take("resize_type.multiplier", "scale_by"),
                take("scale_method", "upscale_method"),
            ],
        ),
        **entry(
            "T2IAdapterLoader",
            "ControlNetLoader",
            None,
            [take("control_net_name", "t2i_adapter_name")],
        ),
        **entry("Load3DAnimation", "Load3D"),
        **entry("Preview3DAnimation", "Preview3D"),
        **entry("SDV_img2vid_Conditioning", "SVD_img2vid_Conditioning"),
        **entry("ConditioningAverage ", "ConditioningAverage"),
    }
    assert ok_json(server.get("/node_replacements")) == want
    assert list(server.get("/api/node_replacements").json()) == list(want)


# ---- the frontend's boot


@pytest.mark.parametrize(
    "path,want",
    [
        ("/i18n", {}),
        ("/extensions", []),
        ("/workflow_templates", {}),
        ("/global_subgraphs", {}),
        ("/global_subgraphs/x", None),
        ("/users", {"storage": "server", "migrated": False}),
        ("/settings", {}),
        ("/customnode/installed", {}),
        ("/customnode/getmappings", {}),
        ("/customnode/alternatives", {}),
        ("/customnode/getlist", {"channel": "default", "node_packs": {}}),
        ("/externalmodel/getlist", {"models": []}),
        ("/snapshot/getlist", {"items": []}),
        ("/comfyui_manager/comfyui_versions", {"versions": [], "current": ""}),
        (
            "/manager/queue/status",
            {"total_count": 0, "done_count": 0, "in_progress_count": 0, "is_processing": False},
        ),
    ],
)
def test_small_answers(server, path, want):
    assert ok_json(server.get("/api" + path)) == want
    assert ok_json(server.get(path)) == want


def test_extensions_of_a_frontend(fresh, tmp_path):
    web = tmp_path / "web"
    for name in ("extensions/a.js", "extensions/pack/b.js", "extensions/pack/c.css", "other.js"):
        (web / name).parent.mkdir(parents=True, exist_ok=True)
        (web / name).write_text("//")
    (web / "index.html").write_text("<p>hello")
    s = fresh("--front-end-root", web)
    assert ok_json(s.get("/extensions")) == ["/extensions/a.js", "/extensions/pack/b.js"]
    assert s.get("/extensions/pack/b.js").status_code == 200
    assert s.get("/").text == "<p>hello"


def test_manager(server):
    for path in (
        "version",
        "share_option",
        "db_mode",
        "preview_method",
        "policy/component",
        "policy/update",
        "notice",
    ):
        r = server.get("/api/manager/" + path)
        assert r.status_code == 200 and r.text and r.headers["Content-Type"].startswith("text/")
    r = server.get("/manager/db_mode?value=local")
    assert (r.status_code, r.content) == (200, b"")
    before = server.get("/manager/preview_method").text
    r = server.get("/manager/preview_method?value=taesd")
    assert r.status_code == 403 and "--preview-method" in r.text
    assert server.get("/manager/preview_method").text == before
    assert ok_json(server.get("/manager/channel_url_list"))["selected"] == "default"
    assert ok_json(server.post("/manager/component/loads", {})) == {}
    for what in ("reset", "start", "update_all", "update_comfyui"):
        assert server.get("/manager/queue/" + what).status_code == 200
    for what in ("install", "uninstall", "update", "fix", "disable", "reinstall", "install_model"):
        assert server.post("/manager/queue/" + what, {}).status_code == 403
    assert server.post("/customnode/install/git_url", data="https://x").status_code == 403
    assert server.post("/customnode/install/pip", data="x").status_code == 403
    assert server.get("/manager/reboot").status_code == 403


# ---- logs


def test_logs(server):
    assert (
        server.post("/prompt", {"prompt": {"1": {"class_type": "LogMe"}}}).status_code == 400
    )  # warns
    raw = ok_json(server.get("/internal/logs/raw"))
    assert list(raw) == ["entries", "size"] and set(raw["size"]) == {"cols", "rows"}
    assert 0 < len(raw["entries"]) <= 300
    assert all(set(e) == {"t", "m"} for e in raw["entries"])
    assert any("LogMe" in e["m"] for e in raw["entries"])
    text = ok_json(server.get("/internal/logs"))
    assert isinstance(text, str) and "LogMe" in text and " - " in text
    assert server.get("/api/internal/logs").status_code == 404


def test_log_subscription(server):
    def subscribe(client, on):
        r = requests.patch(
            server.url + "/internal/logs/subscribe",
            json={"clientId": client, "enabled": on},
            timeout=10,
        )
        assert (r.status_code, r.content) == (200, b"")

    with server.ws("logger") as ws, server.ws("other") as other:
        ws.recv(), other.recv()
        subscribe("logger", True)
        server.post("/prompt", {"prompt": {"1": {"class_type": "Subscribed"}}})
        got = ws.until(
            lambda m: m["type"] == "logs"
            and any("Subscribed" in e["m"] for e in m["data"]["entries"])
        )
        assert set(got[-1]["data"]) == {"entries", "size"}
        subscribe("logger", False)
        server.post("/prompt", {"prompt": {"1": {"class_type": "Unheard"}}})
        server.run(image_prompt(3))
        assert not any(m["type"] == "logs" for m in ws.until_status(0))
        assert not any(m["type"] == "logs" for m in other.until_status(0))
    for wrong in ({}, {"clientId": 5}, []):
        assert (
            requests.patch(
                server.url + "/internal/logs/subscribe", json=wrong, timeout=10
            ).status_code
            == 400
        )


def test_numbers_and_text_survive_json(server):
    """Nothing in these answers is NaN, and all of it is UTF-8."""
    for path in (
        "/object_info",
        "/system_stats",
        "/internal/logs/raw",
        "/models",
        "/experiment/models",
    ):
        json.loads(
            server.get(path).content.decode("utf-8"), parse_constant=lambda c: pytest.fail(c)
        )
