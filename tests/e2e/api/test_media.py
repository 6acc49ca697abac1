"""Clips and sounds over HTTP and with `berth run`: what the history says of them, how they are
fetched, and that a file brings its workflow back."""

import json
import os
import subprocess

import pytest

from conftest import BINARY, PATIENCE


def node(class_type, **inputs):
    return {"class_type": class_type, "inputs": inputs}


def film(prefix="video/t", **save):
    return {
        "1": node("EmptyImage", width=96, height=64, batch_size=6, color=8421631),
        "2": node("EmptyAudio", duration=1, sample_rate=16000, channels=1),
        "3": node("CreateVideo", images=["1", 0], fps=12, audio=["2", 0]),
        "4": node(
            "SaveVideo", video=["3", 0], filename_prefix=prefix, **{"format": "auto", **save}
        ),
        "5": node("PreviewAudio", audio=["2", 0]),
    }


@pytest.fixture(scope="module")
def built():
    said = subprocess.run(
        [BINARY, "nodes", "SaveVideo"], capture_output=True, text=True, timeout=PATIENCE
    )
    if "not in this build" in said.stdout + said.stderr:
        pytest.skip("no FFmpeg in this build")


def test_history_says_what_was_made(fresh, built):
    s = fresh()
    entry = s.run(film())
    out = entry["outputs"]
    assert entry["status"]["status_str"] == "success"
    clip = {"filename": "t_00001_.mp4", "subfolder": "video", "type": "output"}
    assert out["4"] == {"images": [clip], "animated": [True]}
    sound = out["5"]["audio"][0]
    assert sound["type"] == "temp" and sound["filename"].startswith("ComfyUI_temp_")
    assert sound["filename"].endswith("_00001.flac")
    jobs = s.get("/api/jobs").json()["jobs"]
    assert jobs[0]["outputs_count"] == 2


def test_files_are_fetched_in_parts(fresh, built):
    s = fresh()
    out = s.run(film())["outputs"]
    ask = out["4"]["images"][0]
    whole = s.get("/view", params=ask)
    assert whole.status_code == 200 and whole.headers["Content-Type"] == "video/mp4"
    assert whole.headers["Accept-Ranges"] == "bytes" and whole.content[4:8] == b"ftyp"
    # the index stands in front: players begin before they have all of it
    assert whole.content.index(b"moov") < whole.content.index(b"mdat")
    part = s.get("/view", params=ask, headers={"Range": "bytes=4-7"})
    assert part.status_code == 206 and part.content == b"ftyp"
    assert part.headers["Content-Range"] == f"bytes 4-7/{len(whole.content)}"
    last = s.get("/view", params=ask, headers={"Range": "bytes=-16"})
    assert last.status_code == 206 and last.content == whole.content[-16:]
    behind = {"Range": f"bytes={len(whole.content)}-"}
    assert s.get("/view", params=ask, headers=behind).status_code == 416
    sound = s.get("/view", params=out["5"]["audio"][0])
    assert sound.headers["Content-Type"] == "audio/flac" and sound.content[:4] == b"fLaC"


def test_older_prompts_name_the_codec_beside_the_format(fresh, built):
    s = fresh()
    assert s.run(film(format="mp4", codec="h264"))["status"]["status_str"] == "success"


def berth(*args, code=0):
    p = subprocess.run([BINARY, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE)
    assert p.returncode == code, f"{p.returncode}: {p.stdout}{p.stderr}"
    return p


@pytest.mark.parametrize(
    "save, name",
    [({}, "t_00001_.mp4"), ({"format": "mkv", "format.codec": "h264"}, "t_00001_.mkv")],
)
def test_a_clip_brings_its_workflow_back(tmp_path, built, save, name):
    path = tmp_path / "w.json"
    path.write_text(json.dumps(film(**save)))
    berth("run", path, "--base-directory", tmp_path / "a")
    clip = tmp_path / "a/output/video" / name
    again = berth(
        "run", clip, "--base-directory", tmp_path / "b", "--set", "4.filename_prefix=again"
    ).stdout
    assert str(tmp_path / "b/output" / name.replace("t_", "again_")) in again
    assert os.path.exists(tmp_path / "b/output" / name.replace("t_", "again_"))
    berth("run", path, "--base-directory", tmp_path / "c", "--disable-metadata")
    said = berth("run", tmp_path / "c/output/video" / name, code=1).stderr
    assert "no workflow was saved in this file" in said


def test_a_broken_file_is_one_nodes_error(fresh, built):
    s = fresh()
    broken = b"\0\0\0\x20ftypisom" + bytes(4000)
    put = s.post("/upload/image", files={"image": ("broken.mp4", broken, "video/mp4")})
    assert put.status_code == 200, put.text
    entry = s.run(
        {
            "1": {"class_type": "LoadVideo", "inputs": {"file": "broken.mp4"}},
            "2": {"class_type": "GetVideoComponents", "inputs": {"video": ["1", 0]}},
            "3": {"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}},
        }
    )
    assert entry["status"]["status_str"] == "error"
    assert s.run(film())["status"]["status_str"] == "success"
