"""An existing ComfyUI folder, and an unmodified frontend build served from it."""

import os
import subprocess

import pytest

from conftest import BINARY, Server, image_prompt

FRONTEND = "venv/lib/python3.12/site-packages/comfyui_frontend_package/static"


@pytest.fixture
def comfyui(tmp_path):
    """A ComfyUI installation as far as a server looks at it."""
    root = tmp_path / "ComfyUI"
    for d in (
        "models/checkpoints/sub",
        "models/unet",
        "models/clip",
        "input",
        "output",
        "user/default",
        f"{FRONTEND}/assets",
        "elsewhere/loras",
        "elsewhere/deep/vae",
    ):
        (root / d).mkdir(parents=True)
    (root / FRONTEND / "index.html").write_text("<!doctype html><title>ComfyUI</title>")
    (root / FRONTEND / "assets/index-abc.js").write_text("export {}")
    (root / FRONTEND / "assets/index-abc.css").write_text("a{}")
    (root / FRONTEND / "materialdesignicons.min.css").write_text("b{}")
    os.symlink("/etc/passwd", root / FRONTEND / "assets/out.js")
    for f in (
        "models/checkpoints/b.safetensors",
        "models/checkpoints/sub/a.ckpt",
        "models/checkpoints/note.txt",
        "models/unet/u.sft",
        "models/clip/c.safetensors",
        "elsewhere/loras/l.safetensors",
        "elsewhere/deep/vae/v.pt",
    ):
        (root / f).write_bytes(b"x")
    (root / "extra_model_paths.yaml").write_text(
        "# a comment\nmine:\n    base_path: elsewhere\n    loras: loras/\n    vae: |\n        "
        "deep/vae\n        missing\n"
        "    my_new_key: loras\n"
    )
    (root / "user/default/comfy.settings.json").write_text('{"Comfy.ColorPalette": "dark"}')
    return root


@pytest.fixture
def served(comfyui):
    with Server(comfyui, "--comfyui-dir", comfyui) as s:
        yield s


def test_models_of_the_folder(served, comfyui):
    assert served.get("/models/checkpoints").json() == ["b.safetensors", "sub/a.ckpt"]
    assert served.get("/models/diffusion_models").json() == ["u.sft"]
    assert served.get("/models/text_encoders").json() == ["c.safetensors"]
    assert served.get("/models/loras").json() == ["l.safetensors"]
    assert served.get("/models/vae").json() == ["v.pt"]
    assert served.get("/models/my_new_key").json() == ["l.safetensors"]
    assert served.get("/models/unet").status_code == 404
    keys = served.get("/models").json()
    assert keys[:4] == ["checkpoints", "configs", "loras", "vae"] and keys[-1] == "my_new_key"
    combo = served.get("/object_info/CheckpointLoaderSimple").json()
    assert combo["CheckpointLoaderSimple"]["input"]["required"]["ckpt_name"][0] == [
        "b.safetensors",
        "sub/a.ckpt",
    ]
    (comfyui / "models/checkpoints/new.safetensors").write_bytes(b"x")  # appears without a restart
    assert "new.safetensors" in served.get("/models/checkpoints").json()


def test_more_yaml_files(comfyui, tmp_path):
    extra = tmp_path / "more.yaml"
    (tmp_path / "m").mkdir()
    (tmp_path / "m/x.safetensors").write_bytes(b"x")
    extra.write_text("a:\n  is_default: true\n  checkpoints: m\n")
    s = Server(comfyui, "--extra-model-paths-config", extra)
    with s:
        assert served_names(s) == ["b.safetensors", "sub/a.ckpt", "x.safetensors"]
    bad = tmp_path / "bad.yaml"
    bad.write_text("a:\n  b: [1\n   c\n")
    s = Server(comfyui, "--extra-model-paths-config", bad).start(wait=False)
    assert s.process.wait() == 1 and "bad.yaml" in s.errors()


def served_names(s):
    return s.get("/models/checkpoints").json()


def test_frontend_is_served_unchanged(served):
    r = served.get("/")
    assert r.text == "<!doctype html><title>ComfyUI</title>" and r.headers[
        "Content-Type"
    ].startswith("text/html")
    assert (
        r.headers["Cache-Control"] == "no-store, must-revalidate"
        and r.headers["Pragma"] == "no-cache"
        and r.headers["Expires"] == "0"
    )
    r = served.get("/assets/index-abc.js")
    assert r.text == "export {}" and "javascript" in r.headers["Content-Type"]
    assert r.headers["Cache-Control"] == "no-store"
    assert "css" in served.get("/materialdesignicons.min.css").headers["Content-Type"]
    assert served.get("/assets").status_code == 403
    assert served.get("/assets/none.js").status_code == 404
    assert served.get("/assets/out.js").status_code in (403, 404)
    assert served.get("/settings/x/y").status_code == 404  # no fallback to index.html
    assert served.post("/assets/index-abc.js").status_code == 405


def test_boot_of_the_frontend(served):
    """Section 9 of the contract, in its order."""
    assert served.get("/api/users").json() == {"storage": "server", "migrated": True}
    stats = served.get("/api/system_stats").json()
    assert stats["devices"] and "--enable-manager" not in stats["system"]["argv"]
    assert isinstance(served.get("/api/i18n").json(), dict)
    assert served.get("/api/settings").json() == {"Comfy.ColorPalette": "dark"}
    assert served.post("/api/settings/Comfy.InstalledVersion", "1.35.9").status_code == 200
    assert served.get("/api/settings/Comfy.InstalledVersion").json() == "1.35.9"
    assert (
        served.get(
            "/api/userdata?dir=workflows&recurse=true&split=false&full_info=true"
        ).status_code
        == 404
    )
    assert served.get(
        "/api/userdata?dir=subgraphs&recurse=true&split=false&full_info=true"
    ).status_code in (200, 404)
    assert served.get("/api/global_subgraphs").json() == {}
    assert served.get("/api/extensions").json() == []
    with served.ws(flags={"supports_preview_metadata": True, "supports_manager_v4_ui": True}) as ws:
        first = ws.recv()
        assert first["type"] == "status" and first["data"]["sid"] == ws.id
        flags = ws.recv()
        assert flags["type"] == "feature_flags" and flags["data"]["max_upload_size"] == 104857600
        assert served.get("/api/queue").json() == {"queue_running": [], "queue_pending": []}
        assert served.get("/api/history?max_items=64").json() == {}
        assert (
            served.get("/api/jobs?status=in_progress,pending&limit=200&offset=0").json()["jobs"]
            == []
        )
        assert served.get("/api/jobs?status=completed,failed,cancelled").json()["jobs"] == []
        assert served.get("/api/userdata/comfy.templates.json").status_code == 404
        info = served.get("/api/object_info").json()
        assert {
            "KSampler",
            "CLIPTextEncode",
            "VAEDecode",
            "SaveImage",
            "CheckpointLoaderSimple",
        } <= set(info)
        assert served.get("/api/experiment/models").json()
        assert served.get("/api/userdata/workflows%2FUnsaved.json").status_code == 404
        assert (
            served.post(
                "/api/userdata/workflows%2FUnsaved.json?overwrite=false&full_info=true",
                data=b'{"a":1}',
            ).json()["path"]
            == "workflows/Unsaved.json"
        )
        assert served.get("/api/userdata/workflows%2FUnsaved.json").json() == {"a": 1}
        assert served.get("/api/workflow_templates").json() == {}
        templates = [
            t for group in served.get("/templates/index.json").json() for t in group["templates"]
        ]
        assert templates  # this frontend's tree brings none: ours are there, each with its workflow
        assert all(served.get(f"/templates/{t['name']}.json").status_code == 200 for t in templates)
        assert served.get("/templates/none.json").status_code == 404
        body = {
            "client_id": ws.id,
            "prompt": image_prompt(),
            "extra_data": {"extra_pnginfo": {"workflow": {"id": "w"}}},
        }
        r = served.post("/api/prompt", body)
        assert r.status_code == 200 and r.json()["node_errors"] == {}
        ws.until_done(r.json()["prompt_id"])


def test_folder_options(tmp_path):
    with Server(
        tmp_path / "base",
        "--output-directory",
        tmp_path / "out",
        "--input-directory",
        tmp_path / "in",
        "--temp-directory",
        tmp_path / "t",
    ) as s:
        s.run(image_prompt(prefix="here"))
        s.run(image_prompt(save=False))
        assert (tmp_path / "out/here_00001_.png").exists()
        assert list((tmp_path / "t/temp").iterdir())
    assert not list((tmp_path / "t/temp").iterdir())  # emptied at exit


def test_a_folder_that_is_no_comfyui(comfyui, tmp_path):
    def said(root, code):
        p = subprocess.run(
            [BINARY, "serve", "--port", "0", "--quick-test-for-ci", "--comfyui-dir", root],
            capture_output=True,
            text=True,
        )
        assert p.returncode == code, p.stderr
        return p.stderr

    other = tmp_path / "other"
    other.mkdir()
    for _ in range(2):  # the first time makes nothing that would look like one
        assert f"'{other}' is no ComfyUI, it has neither models/ nor main.py" in said(other, 2)
        assert not list(other.iterdir())
    said(comfyui, 0)
    (other / "main.py").touch()
    first = said(other, 0)
    assert "no CLIP tokenizer" in first and "or --comfyui-dir" not in first  # it was given


def test_default_base_is_in_the_home_folder(tmp_path):
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "BERTH_HOME": ""}
    binary = os.environ.get("BERTH_BINARY", "build/dev/berth")
    p = subprocess.run(
        [binary, "serve", "--port", "0", "--quick-test-for-ci"],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )
    assert p.returncode == 0, p.stderr
    assert (tmp_path / ".local/share/berth/output").is_dir()


def test_a_user_folder_is_made(fresh, tmp_path):
    """As input, output and temp are; one that cannot be is an error that names it."""
    s = fresh("--user-directory", tmp_path / "far" / "away")
    assert s.run(image_prompt(save=False))["status"]["completed"]
    assert (tmp_path / "far" / "away" / "__berth" / "state.db").is_file()
    (tmp_path / "file").write_bytes(b"")
    for path, said in (
        (tmp_path / "file", "is no folder"),
        (tmp_path / "file" / "x", "Not a directory"),
    ):
        p = subprocess.run(
            [
                BINARY,
                "serve",
                "--base-directory",
                tmp_path / "other",
                "--port",
                "0",
                "--quick-test-for-ci",
                "--user-directory",
                path,
            ],
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert p.returncode in (1, 2) and str(path) in p.stderr and said in p.stderr
