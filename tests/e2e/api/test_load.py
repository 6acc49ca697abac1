"""Everything at once, from many clients: what the sanitizers are for."""

import os
import random
import threading
import time

import requests

from conftest import PATIENCE, image_prompt, synth, uid

SECONDS = 4


def loader(name, keep):
    return {
        "1": {
            "class_type": "UNETLoaderDisTorch2MultiGPU",
            "inputs": {
                "unet_name": name,
                "weight_dtype": "default",
                "compute_device": "null:0",
                "virtual_vram_gb": 0.005,
                "donor_device": "cpu",
                "expert_mode_allocations": "",
                "eject_models": False,
                "keep_loaded": keep,
            },
        },
        "2": {"class_type": "PreviewAny", "inputs": {"source": ["1", 0]}},
    }


def test_everything_at_once(fresh, tmp_path):
    seed = int(os.environ.get("BERTH_SEED", random.randrange(1 << 30)))
    print("BERTH_SEED", seed)
    for name in ("a", "b"):
        synth(tmp_path / f"base/models/diffusion_models/{name}.safetensors", "flux-tiny")
    s = fresh(
        "--devices",
        "cpu=1g,null:0=64m",
        "--cache-lru",
        "20",
        "--max-history",
        "50",
        "--max-queue",
        "200",
        "--log-level",
        "error",
    )
    end = time.time() + SECONDS
    trouble, accepted, lock = [], [], threading.Lock()

    def client(k):
        rng = random.Random(seed + k)
        session = requests.Session()
        ws = None

        def call(method, path, **kw):
            r = session.request(method, s.url + path, timeout=PATIENCE, **kw)
            assert r.status_code < 500, f"{method} {path}: {r.status_code} {r.text[:300]}"
            return r

        try:
            while time.time() < end:
                what = rng.randrange(14)
                if what < 5:
                    pid = uid(f"p{k}-{rng.randrange(40)}")  # the same ids again and again
                    r = call(
                        "POST",
                        "/prompt",
                        json={
                            "prompt": image_prompt(rng.randrange(64), 32, 32),
                            "prompt_id": pid,
                            "client_id": f"c{rng.randrange(4)}",
                            "front": rng.random() < 0.2,
                        },
                    )
                    if r.status_code == 200:
                        with lock:
                            accepted.append(pid)
                elif what == 5:
                    call(
                        "POST",
                        "/prompt",
                        json={
                            "prompt": loader(
                                rng.choice(["a.safetensors", "b.safetensors"]), rng.random() < 0.5
                            ),
                            "client_id": f"c{k}",
                        },
                    )
                elif what == 6:
                    call(
                        "POST",
                        "/interrupt",
                        json={} if rng.random() < 0.5 else {"prompt_id": uid(f"p{k}-1")},
                    )
                elif what == 7:
                    call(
                        "POST",
                        "/queue",
                        json=(
                            {"delete": [uid(f"p{k}-{rng.randrange(40)}")]}
                            if rng.random() < 0.9
                            else {"clear": True}
                        ),
                    )
                elif what == 8:
                    call(
                        "POST",
                        "/free",
                        json={
                            "unload_models": True,
                            "free_memory": rng.random() < 0.5,
                            "wait": rng.random() < 0.5,
                            "force": rng.random() < 0.2,
                            "dry_run": rng.random() < 0.2,
                        },
                    )
                elif what == 9:
                    for m in call("GET", "/berth/models").json()["models"]:
                        call(
                            "PATCH",
                            f"/berth/models/{m['id']}",
                            json={"retention": rng.choice(["keep", "auto", "eject"])},
                        )
                        if rng.random() < 0.3:
                            call("DELETE", f"/berth/models/{m['id']}?force=1")
                elif what == 10:
                    call(
                        "GET",
                        rng.choice(
                            [
                                "/history?max_items=20",
                                "/queue",
                                "/api/jobs?limit=10",
                                "/object_info",
                                "/metrics",
                                "/berth/memory",
                                "/system_stats",
                                "/internal/logs/raw",
                            ]
                        ),
                    )
                elif what == 11:
                    call(
                        "POST",
                        "/upload/image",
                        files={"image": (f"{rng.randrange(5)}.png", os.urandom(2000))},
                    )
                elif what == 12:
                    call("POST", f"/settings/k{rng.randrange(3)}", json=rng.random())
                    call("POST", f"/userdata/f{rng.randrange(3)}.json", data=b"{}")
                elif ws is None:
                    ws = s.ws(f"c{rng.randrange(4)}", flags={"supports_preview_metadata": True})
                else:
                    for _ in range(3):
                        ws.recv()
                    ws.close()
                    ws = None
        except Exception as e:  # noqa: BLE001 - whatever it is, the main thread reports it
            if time.time() < end or not isinstance(e, ConnectionError):
                trouble.append(f"client {k}: {type(e).__name__}: {e}")

    threads = [threading.Thread(target=client, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not trouble, trouble
    assert s.process.poll() is None, s.errors()[-4000:]
    assert len(accepted) > 20
    s.until_idle()
    assert s.get("/berth/health").status_code == 200
    s.post("/free", {"unload_models": True, "free_memory": True, "force": True, "wait": True})
    assert s.get("/berth/models").json()["models"] == []
    for d in s.get("/berth/devices").json()["devices"]:
        assert d["in_use"] == 0, d
