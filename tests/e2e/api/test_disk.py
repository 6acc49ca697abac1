"""A disk that is full: clearing the history always works, and then there is room for a picture.

Needs a small disk of its own, so the right to mount one; unit.store.store_room has the same
without. BERTH_FILLINGS says how many fillings (each one another disk and another way to fill it);
24 are all."""

import os
import subprocess
import time

import pytest
import requests

from conftest import PATIENCE, Server, image_prompt
from test_hostile import noise_png

FILLINGS = int(os.environ.get("BERTH_FILLINGS", "6"))
PICTURE = 400  # pixels a side; of noise, so some 480 kB


def prompts(s):
    """The history alone: large prompts until one is refused."""
    for i in range(4000):
        p = image_prompt(i, 8, 8, save=False)
        p["1"]["inputs"]["note"] = "x" * 150_000
        if s.post("/prompt", {"prompt": p}).status_code != 200:
            return
    raise AssertionError("the disk did not fill")


def pictures(s):
    """Pictures until one does not fit, each with a prompt of some size."""
    for i in range(4000):
        p = noise_prompt(i)
        p["2"]["inputs"]["note"] = "y" * 30_000
        r = s.post("/prompt", {"prompt": p})
        if (
            r.status_code != 200
            or s.wait(r.json()["prompt_id"])["status"]["status_str"] != "success"
        ):
            return
    raise AssertionError("the disk did not fill")


def others(s):
    """Somebody else's file, to the last byte, after some prompts."""
    for i in range(5):
        s.run(image_prompt(i))
    eat(s)


def waiting(s):
    """Somebody else's file while prompts wait, which then go on."""
    s.post("/berth/queue", {"paused": True})
    ids = [s.queue(noise_prompt(i))["prompt_id"] for i in range(12)]
    eat(s)
    assert s.post("/berth/queue", {"paused": False}).status_code == 200
    for i in ids:
        s.wait(i)  # with a picture or with an error in words, but none stands still


def slices(s):
    """All of them in turns: whoever comes last takes the last byte."""
    for i in range(4000):
        p = image_prompt(i, 8, 8, save=False)
        p["1"]["inputs"]["note"] = "z" * 70_000
        if s.post("/prompt", {"prompt": p}).status_code != 200:
            break
        eat(s, 200_000)
    eat(s)


def busy(s):
    """Somebody else's file under a stream of prompts."""
    for i in range(40):
        s.post("/prompt", {"prompt": image_prompt(i, 16, 16)})
    eat(s)
    for i in range(40, 60):
        s.post("/prompt", {"prompt": image_prompt(i, 16, 16)})


WAYS = (prompts, pictures, others, waiting, slices, busy)
DISKS = [("tmpfs", 16), ("tmpfs", 40), ("ext4", 24), ("ext4", 64)]
ALL = [(disk, way) for disk in DISKS for way in WAYS]


def eat(s, most=1 << 40):
    """A file that takes what is left, or `most` more."""
    with open(os.path.join(s.base, "..", "eaten"), "ab", buffering=0) as f:
        try:
            while most > 0:
                most -= f.write(bytes(min(most, 4096)))
        except OSError:
            pass


def noise_prompt(seed):
    return {
        "1": {"class_type": "LoadImage", "inputs": {"image": "noise.png"}},
        "2": {
            "class_type": "ImageScale",
            "inputs": {
                "image": ["1", 0],
                "upscale_method": "nearest-exact",
                "crop": "disabled",
                "width": PICTURE + seed % 7,
                "height": PICTURE,
            },
        },
        "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "n"}},
    }


def mounted(folder, kind, mib):
    """A disk of that size at that folder, or a skip."""
    os.makedirs(folder)
    what = ["tmpfs", "-o", f"size={mib}m"]
    if kind != "tmpfs":
        image = str(folder) + ".img"
        with open(image, "wb") as f:
            f.truncate(mib << 20)
        made = subprocess.run([f"mkfs.{kind}", "-q", "-m", "0", image], capture_output=True)
        if made.returncode:
            pytest.skip(f"mkfs.{kind}: {made.stderr.decode(errors='replace')[:200]}")
        what = [image, "-o", "loop"]
    made = subprocess.run(["mount", "-t", kind, *what, str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip(
            f"no right to mount a small disk: {made.stderr.decode(errors='replace')[:200].strip()}"
        )


@pytest.fixture
def disk(tmp_path, request):
    folder = tmp_path / "disk"
    try:
        mounted(folder, *request.param)
    except FileNotFoundError as e:
        pytest.skip(f"no {e.filename} here to make a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def pick(n):
    """n of all of them, every way to fill among the first six."""
    order = sorted(range(len(ALL)), key=lambda i: (i // len(WAYS) + i % len(WAYS)) % len(DISKS))
    firsts = [
        next(i for i in order if ALL[i][1] is w and ALL[i][0] == DISKS[k % len(DISKS)])
        for k, w in enumerate(WAYS)
    ]
    return [ALL[i] for i in (firsts + [i for i in order if i not in firsts])[:n]]


@pytest.mark.parametrize(
    "disk,way",
    pick(FILLINGS),
    indirect=["disk"],
    ids=[f"{d[0]}{d[1]}-{w.__name__}" for d, w in pick(FILLINGS)],
)
def test_a_clear_gives_room_back(disk, way, tmp_path):
    s = Server(disk / "base")
    s.log = str(tmp_path / "log")
    with s:
        with open(os.path.join(s.base, "input", "noise.png"), "wb") as f:
            f.write(noise_png(PICTURE))
        assert s.run(noise_prompt(0))["status"]["status_str"] == "success"
        way(s)
        s.until_idle()  # nobody stands still
        r = s.post("/history", {"clear": True})
        assert r.status_code == 200, r.text
        assert s.get("/history").json() == {}
        item = s.run(noise_prompt(1000))
        assert item["status"]["status_str"] == "success", item["status"]
        saved = item["outputs"]["3"]["images"][0]["filename"]
        assert os.path.getsize(os.path.join(s.base, "output", saved)) > 100_000
        # and nothing is lost by the way it is kept
        s.kill()
    with Server(disk / "base") as s:
        assert list(s.get("/history").json()) == [item["prompt"][1]]
