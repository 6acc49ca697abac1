"""berth run, ps and free as a person uses them."""

import json
import os
import signal
import subprocess

import pytest

from conftest import BINARY, PATIENCE, Server, image_prompt, synth


def berth(*args, code=0, **kw):
    p = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE, **kw)
    assert p.returncode == code, f"{p.returncode}: {p.stdout}{p.stderr}"
    return p


@pytest.fixture
def workflow(tmp_path):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(image_prompt(prefix="cli/pic")))
    return path


def test_run_writes_files_and_prints_their_paths(tmp_path, workflow):
    out = berth("run", workflow, "--base-directory", tmp_path / "base").stdout.split()
    assert out == [str(tmp_path / "base/output/cli/pic_00001_.png")]
    assert open(out[0], "rb").read(8) == b"\x89PNG\r\n\x1a\n"
    out = berth("run", workflow, "--base-directory", tmp_path / "base", "--output-directory", tmp_path / "else").stdout.split()
    assert out == [str(tmp_path / "else/cli/pic_00001_.png")]


def test_run_set(tmp_path, workflow):
    r = json.loads(berth("run", workflow, "--base-directory", tmp_path / "b", "--set", "EmptyImage.width=24",
                         "--set", "2.filename_prefix=%width%x", "--json").stdout)
    assert r["files"] == [str(tmp_path / "b/output/24x_00001_.png")]
    assert r["node_errors"] == {} and r["status"]["status_str"] == "success"


def test_run_from_standard_input(tmp_path):
    p = berth("run", "-", "--base-directory", tmp_path / "b", input=json.dumps({"prompt": image_prompt()}))
    assert os.path.exists(p.stdout.strip())


@pytest.mark.parametrize("change, code, said", [
    (lambda p: p["2"].update(class_type="Nope"), 1, "node Nope does not exist"),
    (lambda p: p["1"]["inputs"].update(width=0), 1, "smaller than min"),
    (lambda p: p.pop("2"), 1, "no outputs"),
])
def test_run_refuses_what_is_not_valid(tmp_path, change, code, said):
    p = image_prompt()
    change(p)
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    assert said in berth("run", path, "--base-directory", tmp_path / "b", code=code).stderr


def test_run_says_which_outputs_were_left_out(tmp_path):
    p = image_prompt(prefix="good")
    p["3"] = {"class_type": "EmptyImage", "inputs": {"width": 99999, "height": 8, "batch_size": 1, "color": 0}}
    p["4"] = {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "bad"}}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    r = berth("run", path, "--base-directory", tmp_path / "b", code=1)
    assert r.stdout.strip().endswith("good_00001_.png")
    assert "node 3 (EmptyImage)" in r.stderr and "16384" in r.stderr
    r = json.loads(berth("run", path, "--base-directory", tmp_path / "b", "--json", code=1).stdout)
    assert list(r["node_errors"]) == ["3"] and len(r["files"]) == 1


def test_a_relative_base_directory(tmp_path, workflow):
    out = berth("run", workflow, "--base-directory", "rel", cwd=tmp_path).stdout.strip()
    assert out == str(tmp_path / "rel/output/cli/pic_00001_.png")
    assert (tmp_path / "rel/models/checkpoints").is_dir()


def test_run_on_a_server(tmp_path, workflow):
    with Server(tmp_path / "base") as s:
        p = berth("run", workflow, "--server", s.url)
        assert p.stdout == "output/cli/pic_00001_.png\n"
        bad = berth("run", workflow, "--server", s.url, "--set", "1.width=0", code=1)
        assert "node 1 (EmptyImage)" in bad.stderr
        assert "the server's" in berth("run", workflow, "--server", s.url, "--output-directory", "x", code=2).stderr
        s.post("/berth/queue", {"paused": True})
        run = subprocess.Popen([BINARY, "run", str(workflow), "--server", s.url], stderr=subprocess.PIPE, text=True)
        while not s.get("/queue").json()["queue_pending"]:
            assert run.poll() is None
        assert "paused" in berth("ps", "--server", s.url).stdout
        run.send_signal(signal.SIGINT)
        assert "stopped" in run.communicate(timeout=PATIENCE)[1] and run.returncode == 130
        assert s.get("/queue").json()["queue_pending"] == []  # it took its prompt with it


def test_run_usage(tmp_path, workflow):
    assert "which workflow" in berth("run", code=2).stderr
    assert "NODE.INPUT=VALUE" in berth("run", workflow, "--set", "x", code=2).stderr
    assert "w.json" in berth("run", tmp_path / "w.json" / "x", code=1).stderr
    assert "Usage: berth run" in berth("run", "--help").stdout


def test_run_says_what_cannot_be_computed(tmp_path):
    synth(tmp_path / "base/models/checkpoints/a.safetensors")
    p = {"1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
         "2": {"class_type": "CLIPTextEncode", "inputs": {"text": "a cat", "clip": ["1", 1]}},
         "3": {"class_type": "EmptyLatentImage", "inputs": {"width": 64, "height": 64, "batch_size": 1}},
         "4": {"class_type": "KSampler", "inputs": {"model": ["1", 0], "positive": ["2", 0], "negative": ["2", 0],
               "latent_image": ["3", 0], "seed": 1, "steps": 2, "cfg": 8.0, "sampler_name": "euler",
               "scheduler": "normal", "denoise": 1.0}},
         "5": {"class_type": "VAEDecode", "inputs": {"samples": ["4", 0], "vae": ["1", 2]}},
         "6": {"class_type": "SaveImage", "inputs": {"images": ["5", 0], "filename_prefix": "x"}}}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    said = berth("run", path, "--base-directory", tmp_path / "base", code=1).stderr
    assert "node 2 (CLIPTextEncode)" in said and "cannot" in said


def test_ps_and_free(tmp_path):
    for name in ("kept", "gone"):
        synth(tmp_path / f"base/models/diffusion_models/{name}.safetensors", "flux-tiny")

    def load(name, keep):
        return {"1": {"class_type": "UNETLoaderDisTorch2MultiGPU",
                      "inputs": {"unet_name": f"{name}.safetensors", "weight_dtype": "default", "compute_device": "cpu",
                                 "virtual_vram_gb": 0.0, "donor_device": "cpu", "expert_mode_allocations": "",
                                 "eject_models": False, "keep_loaded": keep}},
                "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}}}

    with Server(tmp_path / "base", "--cpu", "--cache-lru", "50") as s:
        at = ["--server", s.url]
        assert "no models" in berth("ps", *at).stdout
        assert s.run(load("kept", True))["status"]["status_str"] == "success"
        text = berth("ps", *at).stdout
        assert "kept" in text and "keep" in text and "idle, 0 waiting" in text
        info = json.loads(berth("ps", *at, "--json").stdout)
        assert [m["name"] for m in info["models"]] == ["kept"] and info["devices"][0]["name"] == "cpu"
        dry = berth("free", *at, "--dry-run").stdout
        assert "nothing was done" in dry and "kept" in dry
        assert json.loads(berth("free", *at, "--json").stdout)["models"][0]["verdict"] == "kept"
        receipt = berth("free", *at, "--force").stdout
        assert "ejected" in receipt and "given back" in receipt
        assert "no models" in berth("ps", *at).stdout
        s.run(load("kept", True))
        assert "--force" in berth("free", *at, "kept", code=1).stderr
        assert "nobody" in berth("free", *at, "nobody", code=1).stderr
    assert "no server answers" in berth("ps", *at, code=1).stderr
    assert "no address" in berth("ps", "--server", "http://", code=1).stderr


def test_ps_with_a_token(tmp_path):
    with Server(tmp_path / "base", "--token", "a long token") as s:
        assert "token" in berth("ps", "--server", s.url, code=1).stderr
        berth("ps", "--server", s.url, "--token", "a long token")
        berth("ps", env=dict(os.environ, BERTH_URL=s.url, BERTH_TOKEN="a long token"))


def test_quick_test_and_usage(tmp_path):
    berth("serve", "--base-directory", tmp_path / "b", "--port", "0", "--quick-test-for-ci")
    assert "Usage: berth serve" in berth("serve", "--help").stdout
    assert "options only" in berth("serve", "x", code=2).stderr
    assert "no folder" in berth("serve", "--comfyui-dir", tmp_path / "none", code=2).stderr
    assert "come together" in berth("serve", "--tls-keyfile", "x", "--base-directory", tmp_path / "b", code=2).stderr
