"""berth run, ps, keep, eject and free as a person uses them."""

import json
import os
import re
import signal
import socket
import subprocess

import pytest
import requests

from conftest import BINARY, PATIENCE, Server, image_prompt, synth

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "..", "examples", "workflows")


def berth(*args, code=0, **kw):
    p = subprocess.run(
        [BINARY, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE, **kw
    )
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
    out = berth(
        "run",
        workflow,
        "--base-directory",
        tmp_path / "base",
        "--output-directory",
        tmp_path / "else",
    ).stdout.split()
    assert out == [str(tmp_path / "else/cli/pic_00001_.png")]


def test_run_set(tmp_path, workflow):
    r = json.loads(
        berth(
            "run",
            workflow,
            "--base-directory",
            tmp_path / "b",
            "--set",
            "EmptyImage.width=24",
            "--set",
            "2.filename_prefix=%width%x",
            "--json",
        ).stdout
    )
    assert r["files"] == [str(tmp_path / "b/output/24x_00001_.png")]
    assert r["node_errors"] == {} and r["status"]["status_str"] == "success"


def test_numbers_by_comfyuis_names(tmp_path, workflow):
    for flags in (
        ["--fp32-unet"],
        ["--force-fp32", "--bf16-unet"],
        ["--fp16-vae", "--fast", "fp8_matrix_mult,autotune"],
        ["--cpu-noise"],
        ["--fp32-text-enc"],
        ["--force-fp16", "--fp8_e4m3fn-unet", "--fp8_e5m2-text-enc"],
    ):
        berth("run", workflow, "--base-directory", tmp_path / "b", *flags)
    for flags, why in (
        (["--fp32-unet", "--bf16-unet"], "--fp32-unet or --bf16-unet, not both"),
        (["--bf16-unet", "--fp8_e4m3fn-unet"], "--bf16-unet or --fp8_e4m3fn-unet, not both"),
        (
            ["--fp8_e5m2-unet", "--fp8_e4m3fn-unet"],
            "--fp8_e4m3fn-unet or --fp8_e5m2-unet, not both",
        ),
        (
            ["--fp16-text-enc", "--fp8_e5m2-text-enc"],
            "--fp16-text-enc or --fp8_e5m2-text-enc, not both",
        ),
        (["--fp32-text-enc", "--fp16-text-enc"], "--fp16-text-enc or --fp32-text-enc, not both"),
        (["--fp16-vae", "--bf16-vae"], "--fp16-vae or --bf16-vae, not both"),
        (["--force-fp32", "--force-fp16"], "not both"),
        (["--fast", "warp"], "'warp' is none of fp8_matrix_mult"),
    ):
        assert (
            why in berth("run", workflow, "--base-directory", tmp_path / "b", *flags, code=2).stderr
        )


def test_fast_without_a_value_leaves_the_workflow(tmp_path, workflow):
    berth("run", "--base-directory", tmp_path / "b", "--fast", workflow)
    berth("run", "--base-directory", tmp_path / "b", workflow, "--fast")
    berth("run", "--base-directory", tmp_path / "b", "--fast", "autotune", workflow)


@pytest.mark.parametrize(
    "flags",
    [
        ["--tokenizers", "x"],
        ["--pin-budget", "1g"],
        ["--cuda-device", "0"],
        ["--default-device", "0"],
        ["--disable-metadata"],
        ["--fp32-unet"],
        ["--cpu-noise"],
        ["--fast", "autotune"],
    ],
)
def test_what_a_server_decides_is_refused(workflow, flags):
    said = berth(
        "run", workflow, "--server", "http://127.0.0.1:1", "-q", *flags, "--demo", code=2
    ).stderr
    assert (
        "are the server's: leave " in said and said.count("--") == 4
    ), said  # --server, those two, --help
    assert flags[0] in said and "--demo" in said


def test_cards_that_are_not_there(tmp_path, workflow):
    base = ["run", workflow, "--base-directory", tmp_path / "b"]
    env = dict(os.environ, BERTH_CUDA_LIBRARY="none")
    assert "--default-device: " in berth(*base, "--default-device", "0", code=1, env=env).stderr
    assert "--cuda-device: " in berth(*base, "--cuda-device", "0", code=1, env=env).stderr
    berth(*base, "--devices", "cpu", "--cuda-device", "0", env=env)  # no card is asked for
    quiet = berth(*base, env=env).stderr
    assert "dev.absent" not in quiet
    assert "dev.absent" in berth(*base, "--log-level", "info", env=env).stderr
    assert (
        "dev.absent" not in berth(*base, "--log-level", "info", "--devices", "cpu", env=env).stderr
    )
    start = ["serve", "--base-directory", tmp_path / "s", "--port", "0", "--quick-test-for-ci"]
    assert "\n  cards                  none: " in berth(*start, env=env).stdout
    assert "none: " not in berth(*start, "--cpu", "--cuda-device", "0", env=env).stdout


def test_run_from_standard_input(tmp_path):
    p = berth(
        "run", "-", "--base-directory", tmp_path / "b", input=json.dumps({"prompt": image_prompt()})
    )
    assert os.path.exists(p.stdout.strip())


@pytest.mark.parametrize(
    "change, code, said",
    [
        (lambda p: p["2"].update(class_type="Nope"), 1, "Node 'Nope' not found"),
        (lambda p: p["1"]["inputs"].update(width=0), 1, "smaller than min"),
        (lambda p: p.pop("2"), 1, "no outputs"),
    ],
)
def test_run_refuses_what_is_not_valid(tmp_path, change, code, said):
    p = image_prompt()
    change(p)
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    assert said in berth("run", path, "--base-directory", tmp_path / "b", code=code).stderr


def test_run_says_which_outputs_were_left_out(tmp_path):
    p = image_prompt(prefix="good")
    p["3"] = {
        "class_type": "EmptyImage",
        "inputs": {"width": 99999, "height": 8, "batch_size": 1, "color": 0},
    }
    p["4"] = {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "bad"}}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    r = berth("run", path, "--base-directory", tmp_path / "b", code=1)
    assert r.stdout.strip().endswith("good_00001_.png")
    assert "node 3 (EmptyImage)" in r.stderr and "16384" in r.stderr
    r = json.loads(berth("run", path, "--base-directory", tmp_path / "b", "--json", code=1).stdout)
    assert list(r["node_errors"]) == ["3"] and len(r["files"]) == 1


def shader(source):
    return {
        "class_type": "GLSLShader",
        "inputs": {"fragment_shader": "", "size_mode": "from_input", "images.image0": [source, 0]},
    }


SHADED = {
    "90": shader("1"),
    "91": shader("90"),
    "92": {"class_type": "PreviewImage", "inputs": {"images": ["91", 0]}},
}


def test_outputs_that_a_server_leaves_out(tmp_path):
    """Here and at a server the same is said, each node once on a line of its own, and the exit code
    is the same."""
    partly, none = tmp_path / "partly.json", tmp_path / "none.json"
    partly.write_text(json.dumps(image_prompt(prefix="good") | SHADED))
    none.write_text(json.dumps({"1": image_prompt()["1"]} | SHADED))
    why = "cannot be computed yet\n"
    nodes = f"  node 90 (GLSLShader): {why}  node 91 (GLSLShader): {why}"
    with Server(tmp_path / "s") as s:
        for where in (["--base-directory", tmp_path / "b"], ["--server", s.url]):
            r = berth("run", partly, *where, "-q", code=1)
            assert r.stderr == "berth run: some outputs cannot run\n" + nodes
            assert "good_0000" in r.stdout and r.stdout.count("\n") == 1
            r = json.loads(berth("run", partly, *where, "--json", code=1).stdout)
            assert list(r["node_errors"]) == ["90", "91"] and len(r["files"]) == 1
            assert (
                berth("run", none, *where, code=1).stderr
                == "berth run: Prompt outputs failed validation\n" + nodes
            )
            r = json.loads(berth("run", none, *where, "--json", code=1).stdout)
            said = nodes[:-1].replace("\n  ", "; ").replace("  ", "; ", 1)
            assert r["error"]["message"] == "Prompt outputs failed validation" + said
        # ComfyUI's lines are about outputs alone, and neither node is one
        answer = s.post("/prompt", {"prompt": json.loads(none.read_text())}).json()
        assert answer["error"]["details"] == ""


def test_a_relative_base_directory(tmp_path, workflow):
    out = berth("run", workflow, "--base-directory", "rel", cwd=tmp_path).stdout.strip()
    assert out == str(tmp_path / "rel/output/cli/pic_00001_.png")
    assert (tmp_path / "rel/models/checkpoints").is_dir()


def test_run_on_a_server(tmp_path, workflow):
    with Server(tmp_path / "base") as s:
        p = berth("run", workflow, "--server", s.url)
        assert p.stdout == f"{s.url}/view?filename=pic_00001_.png&subfolder=cli&type=output\n"
        assert requests.get(p.stdout.strip(), timeout=PATIENCE).content[:8] == b"\x89PNG\r\n\x1a\n"
        assert (
            p.stderr == "1/2 EmptyImage\n"
        )  # it waited for nobody, and a log wants no line for each node
        assert (
            berth("run", workflow, "--server", s.url, "--quiet", "--set", "1.color=1").stderr == ""
        )
        bad = berth("run", workflow, "--server", s.url, "--set", "1.width=0", code=1)
        assert "node 1 (EmptyImage)" in bad.stderr
        (tmp_path / "base/models/checkpoints/m.safetensors").touch()
        bad = berth(
            "run", os.path.join(EXAMPLES, "txt2img.json"), "--server", s.url, code=1
        )  # the server's list, not this machine's
        assert bad.stderr.endswith(
            "\n  --set 1.ckpt_name=m.safetensors takes one that is there\n"
        ), bad.stderr
        assert (
            "the server's"
            in berth("run", workflow, "--server", s.url, "--output-directory", "x", code=2).stderr
        )
        s.post("/berth/queue", {"paused": True})
        run = subprocess.Popen(
            [BINARY, "run", str(workflow), "--server", s.url], stderr=subprocess.PIPE, text=True
        )
        while not s.get("/queue").json()["queue_pending"]:
            assert run.poll() is None
        assert "paused: Resume on the dashboard" in berth("ps", "--server", s.url).stdout
        run.send_signal(signal.SIGINT)
        assert "stopped" in run.communicate(timeout=PATIENCE)[1] and run.returncode == 130
        assert s.get("/queue").json()["queue_pending"] == []  # it took its prompt with it


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_run_waits_for_a_server_that_starts(tmp_path, workflow):
    port = free_port()
    run = subprocess.Popen(
        [BINARY, "run", str(workflow), "--server", f"127.0.0.1:{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert f"waiting for a server at 127.0.0.1 port {port}" in run.stderr.readline()
    with Server(tmp_path / "base", "--port", port):
        out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0 and out.startswith(f"http://127.0.0.1:{port}/view?"), err
    assert "1/2 EmptyImage" in err


def test_nobody_there(workflow):
    for command in (["run", workflow], ["ps"], ["free"]):
        said = berth(*command, "--server", f"127.0.0.1:{free_port()}", code=1).stderr
        assert (
            said.count("waiting for a server") == 1
            and "waited 5 seconds: no server answers" in said
        )


def test_the_dashboards_address_is_the_servers(tmp_path, workflow):
    with Server(tmp_path / "base") as s:
        for tail in (
            "/berth",
            "/berth/",
            "//berth//",
            "/berth?theme=dark",
            "/berth#queue",
            "/",
            "?",
            "",
        ):
            assert "idle" in berth("ps", "--server", s.url + tail).stdout
        p = berth("run", workflow, "--server", s.url + "/berth/")
        assert p.stdout == f"{s.url}/view?filename=pic_00001_.png&subfolder=cli&type=output\n"
        assert (
            "given back" in berth("free", env=dict(os.environ, BERTH_URL=s.url + "/berth")).stdout
        )
        assert (
            f"{s.url}/x/berth/models: "
            in berth("ps", "--server", s.url + "/x/berth", code=1).stderr
        )  # of a proxy
        assert (
            f"{s.url}/xberth/berth/models: "
            in berth("ps", "--server", s.url + "/xberth", code=1).stderr
        )
    said = berth("ps", "--server", "http://berth:1", code=1).stderr  # a machine that is called that
    assert "http://berth:1/berth/models" in said


def picture_base(tmp_path):
    synth(tmp_path / "base/models/checkpoints/a.safetensors")
    berth("synth", "--tokenizer", tmp_path / "base/tokenizers/clip")  # parents and all
    return tmp_path / "base"


def picture(steps=4, side=64):
    with open(os.path.join(EXAMPLES, "txt2img.json")) as f:
        p = json.load(f)
    p["1"]["inputs"]["ckpt_name"] = "a.safetensors"
    p["4"]["inputs"].update(width=side, height=side)
    p["5"]["inputs"].update(steps=steps, sampler_name="euler", scheduler="normal")
    return p


def on_a_terminal(*args, **env):
    """(exit code, stdout and stderr together) of berth with a terminal on stderr."""
    main, other = os.openpty()
    p = subprocess.Popen(
        [BINARY, *map(str, args)], stdout=other, stderr=other, env=dict(os.environ, **env)
    )
    os.close(other)
    said = b""
    while True:
        try:
            piece = os.read(main, 65536)
        except OSError:  # all others closed it
            break
        if not piece:
            break
        said += piece
    os.close(main)
    return p.wait(PATIENCE), said.decode(errors="replace")


def test_steps_are_shown_here_and_from_a_server(tmp_path):
    base = picture_base(tmp_path)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(picture()))
    code, here = on_a_terminal("run", path, "--base-directory", base)
    assert code == 0
    with Server(base, "--cpu") as s:
        code, there = on_a_terminal("run", path, "--server", s.url)
        assert code == 0
        code, again = on_a_terminal("run", path, "--server", s.url)
        assert code == 0 and "KSampler" not in again  # all of it was cached
    for said in here, there:
        assert "KSampler" in said and re.search(r"\b4/4\b", said), said
        assert "Load Checkpoint" in said and "VAE Decode" in said
        assert {m.group(1) for m in re.finditer(r"Load Checkpoint \d+/(\d+)", said)} <= {
            "100"
        }  # percent
    assert re.search(r"Load Checkpoint \d+/100", here)


def test_pictures_in_a_terminal_that_can(tmp_path, workflow):
    run = ["run", workflow, "--show", "--set", "1.color=255"]
    rich = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", "COLORTERM": "truecolor"}
    blue = "\x1b[38;2;0;0;255m\x1b[48;2;0;0;255m\u2580"
    with Server(tmp_path / "base") as s:
        for where in (["--base-directory", tmp_path / "here"], ["--server", s.url]):
            code, said = on_a_terminal(*run, *where, **rich)
            assert code == 0 and blue in said and "pic_0000" in said, said
        for poor in ({"COLORTERM": ""}, {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"LC_ALL": "C"}):
            code, said = on_a_terminal(*run, "--server", s.url, **{**rich, **poor})
            assert code == 0 and "\u2580" not in said and "pic_0000" in said, said
        assert "\u2580" not in berth(*run, "--server", s.url, env={**os.environ, **rich}).stdout


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 404 Not Found\r\n\r\n", b"", b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81"],
)
def test_run_on_a_server_without_a_websocket(tmp_path, workflow, answer):
    """Something in between lets no WebSocket through, or breaks it: the history says that it
    ended."""
    with Server(tmp_path / "base") as s, socket.socket() as between:
        between.bind(("127.0.0.1", 0))
        between.listen(16)
        run = subprocess.Popen(
            [BINARY, "run", str(workflow), "--server", f"127.0.0.1:{between.getsockname()[1]}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        between.settimeout(0.1)
        asked = []
        while run.poll() is None:
            try:
                c, _ = between.accept()
            except socket.timeout:
                continue
            with c:
                c.settimeout(PATIENCE)
                got = c.recv(65536)
                while b"Content-Length: " in got and len(got.split(b"\r\n\r\n", 1)[1]) < int(
                    re.search(rb"Content-Length: (\d+)", got).group(1)
                ):
                    got += c.recv(65536)
                asked.append(got.split(b" ")[1].split(b"?")[0])
                c.sendall(
                    answer
                    if asked[-1] == b"/ws"
                    else s.raw(re.sub(rb"Host: \S+", b"Host: localhost", got))
                )
        out, err = run.communicate()
        assert run.returncode == 0 and "/view?filename=pic_00001_.png" in out, err
        assert asked.count(b"/ws") == 1 and b"/prompt" in asked


def test_progress_without_a_terminal_comes_when_a_node_begins(tmp_path):
    base = picture_base(tmp_path)
    path = tmp_path / "p.json"
    path.write_text(json.dumps(picture(steps=1000)))
    run = subprocess.Popen(
        [BINARY, "run", str(path), "--base-directory", str(base)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in run.stderr:
        if "KSampler" in line:
            break
    assert run.poll() is None  # a thousand steps are to come
    run.send_signal(signal.SIGINT)
    assert "stopped" in run.communicate(timeout=PATIENCE)[1] and run.returncode == 130


def test_tiles_for_want_of_memory_are_told(tmp_path):
    """Here, from a server and in its history; not with -q, and not where the node asks for
    tiles."""
    base = picture_base(tmp_path)
    path, asked = tmp_path / "p.json", tmp_path / "asked.json"
    p = picture(steps=1, side=256)
    path.write_text(json.dumps(p))
    (decode,) = [k for k, n in p.items() if n["class_type"] == "VAEDecode"]
    p[decode]["class_type"] = "VAEDecodeTiled"
    p[decode]["inputs"].update(tile_size=128, overlap=32, temporal_size=64, temporal_overlap=8)
    asked.write_text(json.dumps(p))
    small = ["--devices", "cpu=48m"]
    note = re.compile(
        rf"^node {decode} decoded in (\d+) tiles: cpu was full; the picture may differ from one "
        rf"decoded whole "
        r"\(docs/images\.md\)$",
        re.M,
    )

    def run(*args):
        return berth("run", *args, "--base-directory", base, *small).stderr

    here = note.findall(run(path))
    assert len(here) == 1 and int(here[0]) > 1
    assert not note.search(run(path, "-q")) and "tiles:" not in run(asked)
    assert (
        "tiles:" not in berth("run", path, "--base-directory", base, "--devices", "cpu=2g").stderr
    )
    with Server(base, *small) as s:
        assert note.findall(berth("run", path, "--server", s.url).stderr) == here
        (item,) = s.get("/history").json().values()
        (vae,) = [n for n in item["status"]["berth"]["networks"] if n["network"] == "vae"]
        assert vae["tiles"] == int(here[0]) and vae["what"] == "decode" and vae["rungs"] > 0
        berth("run", asked, "--server", s.url)
        last = list(s.get("/history").json().values())[-1]
        (vae,) = [n for n in last["status"]["berth"]["networks"] if n["network"] == "vae"]
        assert "tiles" not in vae


def test_ps_says_where_the_prompt_is(tmp_path):
    with Server(picture_base(tmp_path), "--cpu") as s:
        assert s.get("/berth/queue").json()["executing"] is None
        prompt = s.queue(picture(steps=1000))["prompt_id"]
        seen = ""
        while not re.search(
            rf"running  {prompt}, node 5 \(KSampler\), \d+ of 1000, 0 waiting", seen
        ):
            assert not s.get(f"/history/{prompt}").json(), seen
            seen = berth("ps", "--server", s.url).stdout
        e = json.loads(berth("ps", "--server", s.url, "--json").stdout)["executing"]
        assert e["node"] == "5" and 0 < e["value"] <= 1000 and e["max"] == 1000
        s.post("/interrupt")
        s.until_idle()
        assert s.get("/berth/queue").json()["executing"] is None


def test_a_missing_tokenizer_is_said_at_the_start(tmp_path):
    with Server(tmp_path / "base") as s:
        assert "no CLIP tokenizer" in s.errors() and "base/tokenizers/clip" in s.errors()
        assert "no T5 tokenizer" in s.errors() and "base/tokenizers/t5" in s.errors()
    berth("synth", "--tokenizer", tmp_path / "base/tokenizers/clip")
    os.rename(tmp_path / "base/tokenizers/clip/tokenizer.json", tmp_path / "tokenizer.json")
    with Server(tmp_path / "base") as s:
        assert "no T5 tokenizer" in s.errors() and "no CLIP tokenizer" not in s.errors()
    os.rename(tmp_path / "tokenizer.json", tmp_path / "base/tokenizers/clip/tokenizer.json")
    with Server(tmp_path / "base") as s:
        assert "serve.tokenizer" not in s.errors()


def test_tokenizers_of_language_models_that_are_there(tmp_path):
    """Those of encoders without a file are nobody's business."""
    with Server(tmp_path / "base") as s:
        assert "qwen" not in s.errors().lower()
    synth(
        tmp_path / "base/models/text_encoders/mine.safetensors", "qwen3-tiny", "--dtype", "f8_e4m3"
    )
    with Server(tmp_path / "base") as s:
        told = [
            line
            for line in s.errors().splitlines()
            if "serve.tokenizer" in line and "'mine.safetensors'" in line
        ]
        assert len(told) == 1 and "Qwen" in told[0] and "tokenizer.json" in told[0], s.errors()
    berth("synth", "--tokenizer", tmp_path / "base/tokenizers")
    with Server(tmp_path / "base") as s:
        assert "serve.tokenizer" not in s.errors()


def test_folders_are_named_without_dots(tmp_path, workflow):
    for base in (".", "./", "./base/..//./base/."):
        out = berth("run", workflow, "--base-directory", base, cwd=tmp_path).stdout.split()
        assert (
            len(out) == 1 and "/./" not in out[0] and "//" not in out[0] and os.path.exists(out[0])
        )


def test_hints_in_refusals(tmp_path):
    base = picture_base(tmp_path)
    txt, two = (os.path.join(EXAMPLES, f"{x}.json") for x in ("txt2img", "distorch2"))
    at = ["--base-directory", base, "--set", "1.ckpt_name=a.safetensors"]
    said = berth("run", txt, *at, "--set", "5.sampler_name=dpmpp_2n", code=1).stderr
    assert "did you mean 'dpmpp_2m'?" in said
    assert (
        "did you mean 'a.safetensors'?"
        in berth("run", txt, *at, "--set", "1.ckpt_name=a.safetensor", code=1).stderr
    )
    said = berth("run", two, *at, "--devices", "cpu", code=1).stderr
    assert said.count("--devices NAME@cpu=SIZE,cpu") == 1
    said = berth("run", txt, *at, "--ram-budget", "64", code=2).stderr
    assert "64 B; did you mean 64g?" in said
    small = ["--set", "5.steps=1", "--set", "4.width=64", "--set", "4.height=64"]
    berth("run", txt, *at, "--ram-budget", "2000000000", *small)
    for command in (["run", txt, *at], ["serve", "--base-directory", base]):
        said = berth(*command, "--pin-budget", "lots", code=2).stderr
        assert "--pin-budget: 'lots' is no size; write 16g, 512m or 0" in said
    for size in ("0", "1g"):
        berth("run", txt, *at, "--pin-budget", size, *small)


def test_a_choice_of_many(tmp_path):
    """ComfyUI's text has no list beyond 20; people get the nearest name, and all there are."""
    base, txt = picture_base(tmp_path), os.path.join(EXAMPLES, "txt2img.json")
    wrong = ["--set", "1.ckpt_name=a.safetensors", "--set"]
    here = berth(
        "run", txt, "--base-directory", base, *wrong, "KSampler.sampler_name=dpm++2m", code=1
    ).stderr
    assert "(list of length 44), did you mean 'dpmpp_2m'?" in here
    with Server(base) as s:
        there = berth(
            "run", txt, "--server", s.url, *wrong, "KSampler.sampler_name=dpm++2m", code=1
        ).stderr
        assert "\n  did you mean 'dpmpp_2m'? sampler_name is one of euler, " in there
        with open(txt) as f:
            p = json.load(f)
        p["5"]["inputs"]["sampler_name"] = "dpm++2m"
        error = s.post("/prompt", {"prompt": p}).json()["node_errors"]["5"]["errors"][0]
        assert (
            error["details"] == "sampler_name: 'dpm++2m' not in (list of length 44)"
        )  # for programs as ComfyUI has it
        assert error["extra_info"] == {
            "input_name": "sampler_name",
            "input_config": None,
            "received_value": "dpm++2m",
        }
    for said in (here, there):
        listed = said.splitlines()[-1].split(" is one of ")[1].split(", ")
        assert len(listed) == 44 and {"euler", "dpmpp_2m", "uni_pc_bh2"} <= set(listed)
    said = berth(
        "run", txt, "--base-directory", base, *wrong, "KSampler.scheduler=zebra", code=1
    ).stderr
    assert " is one of " not in said and "not in ['simple', " in said  # a short one is in the error


def test_a_node_that_cannot_be_computed_is_told_first(tmp_path):
    p = image_prompt(save=False)
    cls = "CLIPTextEncodeSD3"
    p["3"] = {"class_type": "CLIPLoader", "inputs": {"clip_name": "x4.safetensors", "type": "sd3"}}
    p["4"] = {
        "class_type": cls,
        "inputs": {
            "clip": ["3", 0],
            "clip_l": "",
            "clip_g": "",
            "t5xxl": "",
            "empty_padding": "none",
        },
    }
    p["5"] = {"class_type": "PreviewAny", "inputs": {"source": ["4", 0]}}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    why = f"\n  node 3 is wanted by node 4 ({cls}), which cannot be computed yet\n"
    said = berth("run", path, "--base-directory", tmp_path / "base", code=1).stderr
    assert (
        said.startswith(
            f"berth run: some outputs cannot run\n  node 4 ({cls}): cannot be computed yet\n  "
            f"node 3 "
        )
        and why in said
        and "put one there" not in said
    )
    p.pop("2")  # the output that could run
    path.write_text(json.dumps(p))
    said = berth("run", path, "--base-directory", tmp_path / "base", code=1).stderr
    assert said.startswith(
        f"berth run: Prompt outputs failed validation\n  node 4 ({cls}): cannot be computed yet\n "
        f" node 3 "
    ), said
    assert said.endswith(why) and "put one there" not in said
    p["4"] = {"class_type": "UpscaleModelLoader", "inputs": {"model_name": "x4.safetensors"}}
    p["5"] = {"class_type": "PreviewAny", "inputs": {"source": ["4", 0]}}
    path.write_text(json.dumps(p))
    assert (
        "upscale_models: put one there"
        in berth("run", path, "--base-directory", tmp_path / "base", code=1).stderr
    )


@pytest.mark.parametrize(
    "args, said",
    [
        (
            ["--steps", "3"],
            "unknown option '--steps': inputs of nodes are set with --set NODE.INPUT=VALUE: --set "
            "KSampler.steps=3",
        ),
        (["--seed=5"], "--set KSampler.seed=5"),
        (["--prompt", "a cat"], '--set positive.text="a cat"'),
        (["--width", "64"], "--set EmptyLatentImage.width=512"),
        (["--weight-dtype=fp8"], "--set UNETLoader.weight_dtype=fp8_e4m3fn"),
        (["--fp8-unet"], "with --fp8_e4m3fn-unet"),
        (
            ["--lowvram"],
            "unknown option '--lowvram': a flag of ComfyUI's that only `berth serve` takes, "
            "without effect",
        ),
        (["--cpu"], "unknown option '--cpu': --devices cpu computes on the processor"),
        (["--fp8_e8m0fnu-unet"], "only `berth serve` takes"),
        (["--set", "steps=3"], "did you mean --set KSampler.steps=3?"),
        (
            ["--set", "text=a cat"],
            "NODE may be 2 (positive, CLIPTextEncode), 3 (negative, CLIPTextEncode)",
        ),
    ],
)
def test_inputs_that_are_taken_for_options(args, said):
    assert said in berth("run", *args, os.path.join(EXAMPLES, "demo.json"), code=2).stderr


def test_models_that_are_taken_for_an_option():
    for name in ("--model", "--models"):
        said = berth("free", name, "x", code=2).stderr
        assert (
            f"unknown option '{name}': models are named without an option: berth free NAME#ID"
            in said
        )


def test_a_plan_for_cards_that_are_not_here(tmp_path):
    synth(tmp_path / "a.safetensors")
    plan, env = ["plan", tmp_path / "a.safetensors", "--alloc", "cuda:0,40%;cpu,60%"], dict(
        os.environ, BERTH_CUDA_LIBRARY="none"
    )
    said = berth(*plan, code=1, env=env).stderr
    assert "unknown device cuda:0, there are cpu" in said
    assert said.endswith("; --devices cuda:0=24g,cpu=64g plans for cards that are not here\n"), said
    berth(*plan, "--devices", "cuda:0=24g,cpu=64g", env=env)
    assert "that are not here" not in berth(*plan, "--devices", "cpu=1g", code=1, env=env).stderr
    assert (
        "after alignment: give them more"
        in berth("plan", tmp_path / "a.safetensors", "--devices", "cuda:0=4m,cpu=4m", code=1).stderr
    )
    assert ": lower them" in berth("devices", "--devices", "cpu=9999g", code=1).stderr


def test_a_server_that_stops_says_what_it_keeps(tmp_path):
    for kept, said in (
        (1, "1 prompt is kept and starts again with the server\n"),
        (2, "2 prompts are kept and start again with the server\n"),
        (0, None),
    ):
        with Server(tmp_path / f"base{kept}") as s:
            s.post("/berth/queue", {"paused": True})
            for i in range(kept):
                s.queue(image_prompt(color=i))
        last = s.errors()
        assert last.endswith("\n" + said) if said else "again with the server" not in last


@pytest.mark.parametrize(
    "prompt, said",
    [
        (
            {"1": {"class_type": "EmptyImage", "inputs": {}}},
            "  nothing in it saves or shows anything: add a node that does",
        ),
        ({"4": {"class_type": "KSamplr", "inputs": {}}}, "  node 4: did you mean 'KSampler'?\n"),
        (
            {"4": {"class_type": "SomebodysOwn", "inputs": {}}},
            "  node 4 is of no kind that Berth has; custom nodes in Python do not run",
        ),
        ({"\x1b[1m": {"class_type": "KSamplr", "inputs": {}}}, "did you mean 'KSampler'?"),
    ],
)
def test_workflows_that_cannot_run_as_a_whole(tmp_path, prompt, said):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(prompt))
    got = berth("run", path, "--base-directory", tmp_path / "base", code=1).stderr
    assert said in got and "\x1b" not in got, got


def test_wrong_commands_say_what_was_wrong_and_what_to_do(tmp_path):
    base = ["--base-directory", tmp_path / "base"]
    model, demo = synth(tmp_path / "m.safetensors"), os.path.join(EXAMPLES, "demo.json")
    pem = tmp_path / "k.pem"
    pem.write_text("no key")
    for args, code, words in [
        (
            ["run", model, *base],
            1,
            ["a workflow is JSON", "Workflow > Export (API)", "m.safetensors' has 68"],
        ),
        (["run", pem, *base], 1, ["a workflow is JSON", "k.pem': this is none"]),
        (
            ["run", demo, *base, "--set", "99.steps=3"],
            2,
            ["--set 99.steps: no node '99'; there are 1 (model"],
        ),
        (
            ["run", demo, *base, "--set", "5.stepz=3"],
            2,
            ["--set 5.stepz: KSampler has no input 'stepz'; it has model"],
        ),
        (
            ["plan", model, "--devices", "cpu=1g", "--alloc", "cpu,lots"],
            2,
            ["--alloc: bad number, write 4gb, 50%, 0.5 or *", '"cpu,lots"'],
        ),
        (
            ["plan", model, "--devices", "cpu=1m"],
            1,
            ["; cpu has 1.00 MiB, of which ", "give them more (--devices, --ram-budget)"],
        ),
        (
            ["run", demo, *base, "--devices", "cpu=lots"],
            2,
            ["berth run: --devices: entry 1 'cpu=lots': 'lots' is not a budget (write 24g"],
        ),
        (
            ["run", demo, *base, "--devices", "gpu"],
            1,
            ["berth run: --devices: entry 1 'gpu': no device gpu here; there is: cpu"],
        ),
        (
            ["plan", model, "--devices", "cpu"],
            2,
            ["berth plan: --devices: entry 1 'cpu': a hypothetical device needs a budget"],
        ),
        (["bench", "nope"], 2, ["'nope' cannot be measured; there is: stream"]),
        (
            ["serve", *base, "--listen", "nowhere"],
            1,
            ["--listen: 'nowhere' is no IP address", "127.0.0.1", "0.0.0.0"],
        ),
        (
            ["serve", *base, "--port", "0", "--insecure", "--listen", "192.0.2.1"],
            1,
            ["192.0.2.1", "No network of this machine has that address: --listen 0.0.0.0"],
        ),
        (
            ["serve", *base, "--port", "0", "--tls-keyfile", pem, "--tls-certfile", pem],
            1,
            ["k.pem", "both are PEM files"],
        ),
    ]:
        got = berth(*args, code=code).stderr
        for w in words:
            assert w in got, (args, w, got)


def test_a_server_that_does_not_answer(tmp_path):
    """Nobody is there; somebody else is."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        said = berth("ps", "--server", url, code=1).stderr
        assert (
            f"port {other.getsockname()[1]} (`berth serve` starts one; --server URL if it is "
            f"elsewhere)" in said
        )
        other.listen()
        assert (
            "no answer within 10 seconds: is it a berth server?"
            in berth("ps", "--server", url, code=1).stderr
        )


def test_files_that_are_not_there(tmp_path):
    """What to type instead stands below the error."""
    demo, txt = (os.path.join(EXAMPLES, f"{x}.json") for x in ("demo", "txt2img"))
    here = tmp_path / "base/models/checkpoints"
    at = ["--base-directory", tmp_path / "base"]
    said = berth("run", demo, *at, code=1).stderr
    assert said.endswith(
        f"not in []\n  no checkpoints in {here}: put one there, or use those of a ComfyUI with "
        f"--comfyui-dir DIR; "
        "--demo brings berth-demo.safetensors\n"
    )
    assert "--demo" not in berth("run", txt, *at, code=1).stderr  # that brings no such file
    assert (
        "--comfyui-dir"
        not in berth("run", demo, *at, "--comfyui-dir", tmp_path / "base", code=1).stderr
    )  # it was given
    (here / "a.safetensors").touch()  # no model in it
    assert (
        f"  the only file there cannot be used: '{here}/a.safetensors'"
        in berth("run", demo, *at, code=1).stderr
    )
    berth(
        "synth",
        "--preset",
        "sd15-unet-tiny",
        "--dtype",
        "f8_e4m3",
        "--output",
        here / "m.safetensors",
    )
    for name in ("it's one.safetensors", "n.safetensors", "o.safetensors"):
        os.link(here / "m.safetensors", here / name)
    said = berth("run", demo, *at, code=1).stderr.splitlines()
    assert said[2:] == [
        r"  --set '1.ckpt_name=it'\''s one.safetensors' takes one that is there; others: "
        r"m.safetensors, n.safetensors "
        "and 1 more; --demo brings berth-demo.safetensors"
    ]
    said = berth("run", txt, *at, "--set", "1.ckpt_name=m.safetensor", "--json", code=1)
    assert (
        "\n  --set 1.ckpt_name=m.safetensors takes" in said.stderr
        and json.loads(said.stdout)["error"]
    )
    p = image_prompt(prefix="good")
    for node in ("3", "4"):  # the same twice
        p[node] = {
            "class_type": "UNETLoader",
            "inputs": {"unet_name": "x.safetensors", "weight_dtype": "default"},
        }
    p["5"] = {"class_type": "PreviewAny", "inputs": {"source": ["3", 0]}}
    p["6"] = {"class_type": "PreviewAny", "inputs": {"source": ["4", 0]}}
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    said = berth("run", path, *at, code=1)
    assert (
        "good_00001_.png" in said.stdout and said.stderr.count("  no diffusion_models in ") == 1
    ), said.stderr
    assert (
        f"  no diffusion_models in {tmp_path}/base/models/diffusion_models: put one there"
        in said.stderr
    ), said.stderr
    p = {
        "1": {"class_type": "UnetLoaderGGUF", "inputs": {"unet_name": "x.gguf"}},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    path.write_text(json.dumps(p))
    assert (
        f"  no .gguf files in {tmp_path}/base/models/diffusion_models: put one there"
        in berth("run", path, *at, code=1).stderr
    )


@pytest.mark.parametrize(
    "cls, reads, key, inputs",
    [
        (
            "UNETLoader",
            "UnetLoaderGGUF",
            "diffusion_models",
            {"unet_name": "m.gguf", "weight_dtype": "default"},
        ),
        (
            "UNETLoaderMultiGPU",
            "UnetLoaderGGUFMultiGPU",
            "diffusion_models",
            {"unet_name": "m.gguf", "weight_dtype": "default", "device": "cpu"},
        ),
        (
            "DualCLIPLoader",
            "DualCLIPLoaderGGUF",
            "text_encoders",
            {"clip_name1": "m.gguf", "clip_name2": "m.gguf", "type": "flux"},
        ),
    ],
)
def test_gguf_files_have_loaders_of_their_own(tmp_path, cls, reads, key, inputs):
    """As in ComfyUI a plain loader does not list them; berth run says which one does."""
    synth(str(tmp_path / "base/models" / key / "m.gguf"), "flux-tiny", "--dtype", "q8_0")
    prompt = {
        "1": {"class_type": cls, "inputs": inputs},
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }
    path = tmp_path / "w.json"
    path.write_text(json.dumps(prompt))
    said = berth("run", path, "--base-directory", tmp_path / "base", code=1).stderr
    assert "'m.gguf' not in []" in said and said.endswith(
        f"\n  {cls} lists no .gguf files: make node 1 a {reads}\n"
    )


def run_without_tokenizer(tmp_path, prompt, code):
    synth(tmp_path / "base/models/checkpoints/a.safetensors")
    path = tmp_path / "w.json"
    path.write_text(json.dumps(prompt))
    return berth(
        "run", path, "--base-directory", tmp_path / "base", "--log-level", "info", code=code
    )


def test_a_tokenizer_that_is_missing_is_told_by_the_loader(tmp_path):
    """Before the checkpoint is loaded and before another branch samples: what was looked for,
    where, and the way out."""
    said = run_without_tokenizer(tmp_path, picture(steps=1), 1).stderr
    error = said[said.index("node 1 (CheckpointLoaderSimple)") :]
    for words in (
        "'a.safetensors'",
        "no CLIP tokenizer (vocab.json, merges.txt)",
        "--tokenizers or --comfyui-dir",
        "the model file, ",
        f"{tmp_path}/base/tokenizers/clip",
    ):
        assert words in error, error
    assert "res.load" not in said and "CLIPTextEncode" not in said, said


def test_model_and_vae_of_a_checkpoint_need_no_tokenizer(tmp_path):
    """Nor does a CLIP that is only handed on: here through CLIPSetLastLayer, to be looked at."""
    p = {
        "1": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "a.safetensors"}},
        "2": {
            "class_type": "EmptyLatentImage",
            "inputs": {"width": 64, "height": 64, "batch_size": 1},
        },
        "3": {"class_type": "VAEDecode", "inputs": {"samples": ["2", 0], "vae": ["1", 2]}},
        "4": {"class_type": "SaveImage", "inputs": {"images": ["3", 0], "filename_prefix": "t"}},
        "5": {
            "class_type": "CLIPSetLastLayer",
            "inputs": {"clip": ["1", 1], "stop_at_clip_layer": -2},
        },
        "6": {"class_type": "PreviewAny", "inputs": {"source": ["5", 0]}},
    }
    assert "t_00001_.png" in run_without_tokenizer(tmp_path, p, 0).stdout


def test_titles_of_the_examples_are_unique():
    """Every node has one: people and some clients find nodes by them."""
    for name in os.listdir(EXAMPLES):
        with open(os.path.join(EXAMPLES, name)) as f:
            titles = [n["_meta"]["title"] for n in json.load(f).values()]
        assert len(titles) == len(set(titles)), name


def test_the_distorch2_example_as_the_docs_run_it(tmp_path):
    berth(
        "run",
        os.path.join(EXAMPLES, "distorch2.json"),
        "--base-directory",
        picture_base(tmp_path),
        "--devices",
        "cuda:0@cpu=1g,cuda:1@cpu=1g,cpu",
        "--set",
        "1.ckpt_name=a.safetensors",
        "--set",
        "KSampler.steps=1",
        "--set",
        "4.width=64",
        "--set",
        "4.height=64",
    )


@pytest.mark.parametrize("two", [False, True])
def test_models_in_files_of_their_own(tmp_path, two):
    """SD1.5, and SDXL with its two text encoders: what the presets for separate files are for."""
    base, models = picture_base(tmp_path), tmp_path / "base/models"
    synth(models / "diffusion_models/u.safetensors", "sdxl-tiny" if two else "sd15-unet-tiny")
    synth(models / "text_encoders/l.safetensors", "clip-l-tiny")
    synth(models / "text_encoders/g.safetensors", "clip-g-tiny")
    synth(models / "vae/v.safetensors", "vae-tiny")
    p = picture()
    p["20"] = {
        "class_type": "UNETLoader",
        "inputs": {"unet_name": "u.safetensors", "weight_dtype": "default"},
    }
    p["21"] = {
        "class_type": "CLIPLoader",
        "inputs": {"clip_name": "l.safetensors", "type": "stable_diffusion"},
    }
    if two:
        p["21"] = {
            "class_type": "DualCLIPLoader",
            "inputs": {
                "clip_name1": "l.safetensors",
                "clip_name2": "g.safetensors",
                "type": "sdxl",
            },
        }
    p["22"] = {"class_type": "VAELoader", "inputs": {"vae_name": "v.safetensors"}}
    p["2"]["inputs"]["clip"] = p["3"]["inputs"]["clip"] = ["21", 0]
    p["5"]["inputs"]["model"] = ["20", 0]
    p["6"]["inputs"]["vae"] = ["22", 0]
    del p["1"]
    path = tmp_path / "w.json"
    path.write_text(json.dumps(p))
    out = berth("run", path, "--base-directory", base).stdout.strip()
    assert open(out, "rb").read(8) == b"\x89PNG\r\n\x1a\n"


def test_run_usage(tmp_path, workflow):
    assert "which workflow" in berth("run", code=2).stderr
    assert "NODE.INPUT=VALUE" in berth("run", workflow, "--set", "x", code=2).stderr
    assert "w.json" in berth("run", tmp_path / "w.json" / "x", code=1).stderr
    assert "Usage: berth run" in berth("run", "--help").stdout


def load(name, keep):
    return {
        "1": {
            "class_type": "UNETLoaderDisTorch2MultiGPU",
            "inputs": {
                "unet_name": f"{name}.safetensors",
                "weight_dtype": "default",
                "compute_device": "cpu",
                "virtual_vram_gb": 0.0,
                "donor_device": "cpu",
                "expert_mode_allocations": "",
                "eject_models": False,
                "keep_loaded": keep,
            },
        },
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }


def test_writing_text(tmp_path):
    """examples/workflows/write_text.json; inputs that sampling_mode brings are set by their dotted
    names."""
    base = tmp_path / "base"
    synth(base / "models/text_encoders/qwen_3_4b.safetensors", "qwen3-tiny", "--dtype", "f8_e4m3")
    berth("synth", "--tokenizer", base / "tokenizers")

    def write(*sets, code=0):
        args = [a for s in sets for a in ("--set", s)]
        return berth(
            "run",
            os.path.join(EXAMPLES, "write_text.json"),
            "--base-directory",
            base,
            "--json",
            *args,
            code=code,
        )

    for mode in ("sampling_mode.temperature=1.5", "sampling_mode=off"):
        said = json.loads(write("write.max_length=3", f"write.{mode}").stdout)
        assert isinstance(said["outputs"]["3"]["text"][0], str), said
        assert [
            n["passes"] for n in said["status"]["berth"]["networks"] if n["network"] == "text"
        ] == [3], said
    bad = write("write.sampling_mode=off", "write.sampling_mode.top_k=1", code=2)
    assert (
        "'sampling_mode.top_k' comes with sampling_mode=on, and the node has sampling_mode=off"
        in bad.stderr
    )


def test_columns_of_ps_do_not_shift(tmp_path):
    names = ["short", "a-name-of-a-model-that-is-rather-long-q8_0-v2", "n\u00e4hrwert-" + "x" * 60]
    for name in names:
        synth(tmp_path / f"base/models/diffusion_models/{name}.safetensors", "flux-tiny")
    with Server(tmp_path / "base", "--cpu", "--cache-lru", "50") as s:
        for name in names:
            assert s.run(load(name, True))["status"]["status_str"] == "success"
        lines = berth("ps", "--server", s.url).stdout.splitlines()
        head = next(i for i, line in enumerate(lines) if line.lstrip().startswith("id "))
        rows = lines[head + 1 :]
        assert len(rows) == 3 and names[1] in rows[1] and "..." in rows[2]
        for column in ("role", "state", "keep?", "where"):
            at = lines[head].index(column)
            assert all(row[at - 1] == " " and row[at] != " " for row in rows), lines


def test_ps_and_free(tmp_path):
    for name in ("kept", "gone"):
        synth(tmp_path / f"base/models/diffusion_models/{name}.safetensors", "flux-tiny")

    with Server(tmp_path / "base", "--cpu", "--cache-lru", "50") as s:
        at = ["--server", s.url]
        assert "no models" in berth("ps", *at).stdout
        assert s.run(load("kept", True))["status"]["status_str"] == "success"
        text = berth("ps", *at).stdout
        assert "kept" in text and "keep" in text and "idle, 0 waiting" in text
        info = json.loads(berth("ps", *at, "--json").stdout)
        assert [m["name"] for m in info["models"]] == ["kept"] and info["devices"][0][
            "name"
        ] == "cpu"
        dry = berth("free", *at, "--dry-run").stdout
        assert "nothing was done" in dry and "kept" in dry
        assert json.loads(berth("free", *at, "--json").stdout)["models"][0]["verdict"] == "kept"
        plain = load("kept", True)  # a loader that says nothing of keeping takes no keep away
        plain["1"] = {
            "class_type": "UNETLoader",
            "inputs": {"unet_name": "kept.safetensors", "weight_dtype": "default"},
        }
        s.run(plain)
        assert [m["retention"] for m in s.get("/berth/models").json()["models"]] == ["keep"]
        receipt = berth("free", *at, "--force").stdout
        assert "ejected" in receipt and "given back" in receipt
        assert "no models" in berth("ps", *at).stdout
        s.run(load("kept", True))
        assert "--force" in berth("free", *at, "kept", code=1).stderr
        assert "nobody" in berth("free", *at, "nobody", code=1).stderr
    assert "no server answers" in berth("ps", *at, code=1).stderr
    assert "no address" in berth("ps", "--server", "http://", code=1).stderr


def test_keep_and_eject(tmp_path):
    for name in ("a", "b", "c"):
        synth(tmp_path / f"base/models/diffusion_models/{name}.safetensors", "flux-tiny")
    with Server(tmp_path / "base", "--cpu", "--cache-lru", "50") as s:
        at = ["--server", s.url]

        def marks():
            return {m["name"]: m["retention"] for m in s.get("/berth/models").json()["models"]}

        for name in ("a", "b", "c"):  # loaders that say nothing of keeping
            s.run(
                {
                    "1": {
                        "class_type": "UNETLoader",
                        "inputs": {"unet_name": f"{name}.safetensors", "weight_dtype": "default"},
                    },
                    "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
                }
            )
        ids = {m["name"]: m["id"] for m in s.get("/berth/models").json()["models"]}
        said = berth("keep", *at, "a", ids["b"]).stdout.splitlines()
        assert [line.split()[:2] for line in said] == [
            ["keep", f"a#{ids['a']}"],
            ["keep", f"b#{ids['b']}"],
        ]
        assert re.search(r"\d MiB$", said[0])
        assert marks() == {"a": "keep", "b": "keep", "c": "auto"}
        assert "auto" in berth("keep", *at, "--undo", f"b#{ids['b']}").stdout
        told = json.loads(berth("eject", *at, "c", "--json").stdout)["models"]
        assert [(m["name"], m["retention"]) for m in told] == [("c", "eject")]
        assert marks() == {"a": "keep", "b": "auto", "c": "eject"}
        # nothing is marked when one of the names is wrong
        wrong = berth("eject", *at, "a", "nobody", code=1)
        assert (
            "no model is called 'nobody'; there are: " in wrong.stderr
            and f"a#{ids['a']}" in wrong.stderr
        )
        assert (
            json.loads(berth("keep", *at, "nobody", "--json", code=1).stdout)["error"]["code"]
            == "ENOTFOUND"
        )
        assert marks() == {"a": "keep", "b": "auto", "c": "eject"}
        berth("free", *at)
        assert marks() == {"a": "keep", "b": "auto"}  # the marked one went, and only that
        berth("free", *at)
        assert marks() == {"a": "keep"}
    for command in ("keep", "eject"):
        assert "which model?" in berth(command, code=2).stderr
        assert "no server answers" in berth(command, *at, "a", code=1).stderr


def test_a_refused_free_empties_no_cache(tmp_path):
    synth(tmp_path / "base/models/diffusion_models/a.safetensors", "flux-tiny")
    with Server(tmp_path / "base", "--cpu") as s:

        def cached():
            """Does the prompt find its results?"""
            messages = dict(s.run(load("a", True))["status"]["messages"])
            return "1" in messages["execution_cached"]["nodes"]

        assert not cached() and cached()
        at = ["--server", s.url]
        for args in (["a"], ["nobody"], ["--devices", "cuda:7"], ["--force", "nobody"]):
            berth("free", *at, *args, code=1)
            assert cached(), args
        for body in (
            {"free_memory": True, "wait": 1},
            {"free_memory": True, "models": "a"},
            {"free_memory": True, "wait": True, "nonsense": 1},
        ):
            assert s.post("/free", body).status_code == 400
            assert cached(), body
        model = s.get("/berth/models").json()["models"][0]["id"]
        assert requests.delete(f"{s.url}/berth/models/{model}", timeout=PATIENCE).status_code == 409
        assert cached()
        berth("free", *at)
        assert not cached()  # this is how an empty cache looks


def test_ps_with_a_token(tmp_path):
    with Server(tmp_path / "base", "--token", "a long token") as s:
        assert "token" in berth("ps", "--server", s.url, code=1).stderr
        berth("ps", "--server", s.url, "--token", "a long token")
        berth("ps", env=dict(os.environ, BERTH_URL=s.url, BERTH_TOKEN="a long token"))


def start_once(tmp_path, *args, code=0):
    return berth(
        "serve",
        "--base-directory",
        tmp_path / "b",
        "--port",
        "0",
        "--quick-test-for-ci",
        *args,
        code=code,
    )


def test_flags_of_comfyui_033(tmp_path):
    """All that its parser has and ours does not act on: named in the log."""
    idle = [
        "--enable-assets",
        "--enable-asset-hashing",
        "--fp16-intermediates",
        "--enable-triton-backend",
        "--disable-triton-backend",
        "--use-ck-attention",
        "--disable-nvml-pressure",
        "--enable-dynamic-vram",
        "--disable-dynamic-vram",
        "--fast-disk",
        "--disable-cuda-graphs",
        "--debug-hang",
        "--enable-manager-legacy-ui",
        "--normalvram",
        "--disable-ipex-optimize",
    ]
    said = start_once(
        tmp_path, *idle, "--vram-headroom", "0.5", "--cuda-device", "all", "--default-device", "0"
    ).stderr
    (line,) = [x for x in said.splitlines() if "serve.ignored" in x]
    assert all(flag in line for flag in idle) and "--vram-headroom" not in line
    shown = berth("serve", "--help").stdout
    assert all(flag in shown for flag in idle)


def test_cache_flags(tmp_path):
    assert "second value of --cache-ram" in start_once(tmp_path, "--cache-ram", "2", "16.5").stderr
    assert "serve.ignored" not in start_once(tmp_path, "--cache-ram").stderr
    start_once(tmp_path, "--high-ram")
    assert "at most two values" in start_once(tmp_path, "--cache-ram", "1", "2", "3", code=2).stderr
    assert "'x' is no number" in start_once(tmp_path, "--cache-ram", "1", "x", code=2).stderr
    assert (
        "one of --cache-classic"
        in start_once(tmp_path, "--high-ram", "--cache-none", code=2).stderr
    )


def test_verbose(tmp_path):
    """Levels by Python's names; with a file behind it that file gets those of its level."""
    file, other = tmp_path / "debug.log", tmp_path / "errors.log"
    said = start_once(
        tmp_path,
        "--lowvram",
        "--verbose",
        "WARNING",
        "--verbose",
        "DEBUG",
        str(file),
        "--verbose",
        "ERROR",
        str(other),
    )
    assert (
        "serve.ignored" in file.read_text()
        and other.read_text() == ""
        and " info " not in said.stderr
    )
    assert all(line in file.read_text() for line in said.stderr.splitlines() if " warn " in line)
    before = file.read_text()
    start_once(tmp_path, "--verbose", "INFO", str(file))
    assert file.read_text().startswith(before) and len(file.read_text()) > len(before)
    for most in (
        ["--verbose"],
        ["--verbose", "DETAIL"],
    ):  # of several for the terminal the one that says most
        assert " info " in start_once(tmp_path, "--verbose", "CRITICAL", *most).stderr
    assert " warn " not in start_once(tmp_path, "--verbose", "CRITICAL").stderr
    assert "none of DEBUG, DETAIL" in start_once(tmp_path, "--verbose", "LOUD", code=2).stderr
    assert (
        "none.log"
        in start_once(tmp_path, "--verbose", "INFO", str(tmp_path / "no/none.log"), code=1).stderr
    )


def test_models_directory(tmp_path):
    """It takes the place of BASE/models; other folders stay where they are."""
    models = tmp_path / "weights"
    synth(models / "checkpoints/mine.safetensors")
    with Server(tmp_path / "b", "--models-directory", models) as s:
        assert s.get("/models/checkpoints").json() == ["mine.safetensors"]
        paths = s.get("/internal/folder_paths").json()
        assert paths["loras"][0] == str(models / "loras")
        assert paths["custom_nodes"] == [str(tmp_path / "b/custom_nodes")] and paths[
            "datasets"
        ] == [str(tmp_path / "b/datasets")]
    assert not (tmp_path / "b/models").exists()
    assert (
        "is no folder"
        in start_once(tmp_path, "--models-directory", str(tmp_path / "none"), code=2).stderr
    )


def test_feature_flags_are_listed():
    flags = json.loads(berth("serve", "--list-feature-flags").stdout)
    assert set(flags) == {"show_signin_button", "enable_telemetry"}
    assert all(
        list(f) == ["type", "default", "description"]
        and f["type"] == "bool"
        and f["default"] is False
        for f in flags.values()
    )


def test_quick_test_and_usage(tmp_path):
    berth("serve", "--base-directory", tmp_path / "b", "--port", "0", "--quick-test-for-ci")
    assert "Usage: berth serve" in berth("serve", "--help").stdout
    assert "options only" in berth("serve", "x", code=2).stderr
    assert "no folder" in berth("serve", "--comfyui-dir", tmp_path / "none", code=2).stderr
    assert (
        "come together"
        in berth("serve", "--tls-keyfile", "x", "--base-directory", tmp_path / "b", code=2).stderr
    )
