"""kill -9 at any moment: nothing that was accepted is lost, nothing is in the history twice."""

import os
import random
import signal
import threading
import time

import requests

from conftest import PATIENCE, Server, image_prompt, uid

KILLS = int(os.environ.get("BERTH_KILLS", "50"))


def test_kill_loop(tmp_path):
    """Clients post while the server is killed, fifty times (BERTH_KILLS). Every prompt whose 200
    arrived is finished in the end, once, unless it was running at two kills: then it is recorded as
    failed."""
    seed = int(os.environ.get("BERTH_SEED", random.randrange(1 << 30)))
    print("BERTH_SEED", seed)
    rng = random.Random(seed)
    accepted, unsure = [], []
    for round_ in range(KILLS):
        s = Server(tmp_path / "base", "--log-level", "error", "--max-history", 100000).start()
        stop = threading.Event()

        def work(k):
            session = requests.Session()
            i = 0
            while not stop.is_set():
                pid = uid(f"r{round_}-c{k}-{i}")
                i += 1
                try:
                    unsure.append(pid)
                    r = session.post(
                        s.url + "/prompt",
                        timeout=PATIENCE,
                        json={
                            "prompt": image_prompt(
                                rng.randrange(1 << 24), 16, 16, prefix="kill", save=i % 4 == 0
                            ),
                            "prompt_id": pid,
                        },
                    )
                    if r.status_code == 200:
                        accepted.append(pid)
                except requests.RequestException:
                    return

        threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
        for t in threads:
            t.start()
        time.sleep(rng.random() * 0.12)
        s.kill()
        stop.set()
        for t in threads:
            t.join()
        s.err.close()
    assert len(accepted) > KILLS, "the clients hardly got a word in"
    with Server(tmp_path / "base", "--max-history", 100000) as s:
        s.until_idle()
        history = s.get("/history").json()
        queue = s.get("/queue").json()
    assert queue == {"queue_running": [], "queue_pending": []}
    lost = [p for p in accepted if p not in history]
    assert not lost, f"{len(lost)} of {len(accepted)} lost: {lost[:5]}"
    assert set(history) <= set(unsure)
    for pid, item in history.items():
        assert item["prompt"][1] == pid
        kinds = [m[0] for m in item["status"]["messages"]]
        if item["status"]["status_str"] == "success":
            assert kinds.count("execution_start") == 1 and kinds[-1] == "execution_success", kinds
        else:
            assert kinds[-1] == "execution_error", kinds
    numbers = [item["prompt"][0] for item in history.values()]
    assert len(set(numbers)) == len(numbers), "a number was given twice"
    failed = sum(item["status"]["status_str"] != "success" for item in history.values())
    print(
        f"{KILLS} kills: {len(accepted)} accepted, {len(history)} in the history, {failed} of "
        f"them failed, 0 lost"
    )


def slow_prompt():
    """Long enough to be killed in: a large picture through many steps."""
    p = {
        "0": {
            "class_type": "EmptyImage",
            "inputs": {"width": 2048, "height": 2048, "batch_size": 1, "color": 7},
        }
    }
    for i in range(1, 200):
        p[str(i)] = {
            "class_type": "ImageScale",
            "inputs": {
                "image": [str(i - 1), 0],
                "upscale_method": "lanczos",
                "width": 2048 - i % 2,
                "height": 2048,
                "crop": "disabled",
            },
        }
    p["end"] = {"class_type": "PreviewImage", "inputs": {"images": ["199", 0]}}
    return p


def wait_running(s, pid):
    end = time.time() + PATIENCE
    while time.time() < end:
        running = s.get("/queue").json()["queue_running"]
        if running and running[0][1] == pid:
            return
        time.sleep(0.005)
    raise AssertionError("it did not start")


def test_running_at_a_crash_runs_again_once_then_fails(tmp_path):
    s = Server(tmp_path / "base").start()
    pid = s.queue(slow_prompt())["prompt_id"]
    after = s.queue(image_prompt())["prompt_id"]
    wait_running(s, pid)
    s.kill()
    s.err.close()
    s = Server(tmp_path / "base").start()
    wait_running(s, pid)  # again
    assert s.get(f"/history/{pid}").json() == {}
    s.kill()
    s.err.close()
    with Server(tmp_path / "base") as s:
        item = s.wait(pid)
        assert item["status"]["status_str"] == "error" and item["status"]["completed"] is False
        kind, data = item["status"]["messages"][-1]
        assert kind == "execution_error" and data["prompt_id"] == pid and data["exception_message"]
        assert s.wait(after)["status"]["status_str"] == "success"  # the rest of the queue goes on
        assert [i[1] for i in s.get("/queue").json()["queue_running"]] == []


def test_sigterm_parks_and_exits_0(tmp_path):
    s = Server(tmp_path / "base", "--grace", "0").start()
    pid = s.queue(slow_prompt())["prompt_id"]
    wait_running(s, pid)
    s.stop()  # asserts exit 0
    # parked three times and more: that is no crash, it is never given up
    for _ in range(3):
        s = Server(tmp_path / "base", "--grace", "0").start()
        wait_running(s, pid)
        s.stop()
    s = Server(tmp_path / "base").start()
    wait_running(s, pid)
    s.post("/interrupt", {"prompt_id": pid})
    assert s.wait(pid)["status"]["messages"][-1][0] == "execution_interrupted"
    s.stop()


def test_a_second_sigterm_does_not_wait(tmp_path):
    s = Server(tmp_path / "base", "--grace", "3600").start()
    pid = s.queue(slow_prompt())["prompt_id"]
    wait_running(s, pid)
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    assert s.process.poll() is None  # it waits for the prompt
    assert (
        "waiting up to 3600 s for the running prompt; Ctrl-C again stops now" in s.errors()
    )  # and says so
    s.stop()  # the second one: exit 0
    with Server(tmp_path / "base", "--grace", "0") as s:
        wait_running(s, pid)  # parked, not lost


def test_sigterm_lets_a_short_prompt_end(tmp_path):
    with Server(tmp_path / "base") as s:
        pid = s.queue(image_prompt(width=1024, height=1024))["prompt_id"]
    with Server(tmp_path / "base") as s:
        assert s.wait(pid)["status"]["status_str"] == "success"


def test_two_servers_do_not_share_a_queue(tmp_path):
    with Server(tmp_path / "base") as s:
        s.run(image_prompt(save=False))
        other = Server(tmp_path / "base").start(wait=False)
        assert other.process.wait(PATIENCE) == 1
        assert "state.db" in other.errors()
        assert os.listdir(tmp_path / "base/temp"), "the second one emptied the first one's temp"


def test_history_and_numbers_survive_a_restart(tmp_path):
    with Server(tmp_path / "base") as s:
        ids = [s.queue(image_prompt(i))["prompt_id"] for i in range(3)]
        for i in ids:
            s.wait(i)
        before = s.get("/history").json()
        last = max(item["prompt"][0] for item in before.values())
    with Server(tmp_path / "base") as s:
        assert s.get("/history").json() == before
        assert s.queue(image_prompt(9))["number"] > last
