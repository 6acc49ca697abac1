"""Pictures: what was drawn, with what it was made of, and what failed with its reason."""

import pytest

from browser import Keys
from conftest import LONG, MODEL, Server, arrive, base_with_model, drawing, image_prompt


@pytest.fixture
def drawn(page, server):
    """One picture; its history item and its id."""
    id = server.queue(drawing("a green kite", seed=42, steps=3, size=64, cfg=2.0))["prompt_id"]
    item = server.wait(id)
    page.shown(f"[data-test=card][data-prompt-id='{id}']")
    return id, item


def open_card(page, id):
    page.click(f"[data-test=card][data-prompt-id='{id}'] [data-test=open]")
    page.shown("#dlg-picture")


def label(page, id):
    return (
        page.one(f"[data-test=card][data-prompt-id='{id}'] [data-test=open]").get_attribute(
            "aria-label"
        )
        or ""
    )


def fact(page, name):
    return page.text(f"#picture-facts dd[data-fact={name}]").strip()


def test_it_is_empty_and_says_so(page):
    page.shown("#gallery-empty")


def test_a_thumbnail_is_small_and_there_without_a_reload(page, server, drawn):
    id, _ = drawn
    assert not page.one("#gallery-empty").is_displayed()
    source = page.until(
        lambda: page.js(
            "const i = document.querySelector('[data-test=card] img');"
            "return i?.naturalWidth ? i.src : null"
        ),
        "its thumbnail",
    )
    assert "preview=webp" in source and source.startswith(server.url)
    page.until(
        lambda: "a green kite"
        in (page.one("[data-test=card] [data-test=open]").get_attribute("aria-label") or ""),
        "its name",
    )
    assert page.one("[data-test=card] img").get_attribute("loading") == "lazy"


def test_a_picture_has_its_metadata(page, server, drawn):
    id, item = drawn
    open_card(page, id)
    assert fact(page, "prompt") == "a green kite"
    assert fact(page, "seed") == "42" and fact(page, "steps") == "3"
    assert "euler" in fact(page, "sampler") and "normal" in fact(page, "scheduler")
    assert "64" in fact(page, "size") and MODEL.split(".")[0] in fact(page, "model")
    assert (
        fact(page, "cfg") in ("2", "2.0")
        and any(c.isdigit() for c in fact(page, "duration"))
        and fact(page, "when")
    )
    networks = {n["network"] for n in item["status"]["berth"]["networks"]}
    table = page.text("#picture-networks")
    assert all(n in table for n in networks) and "cuda:0" in table
    page.until(
        lambda: page.js("return document.querySelector('#picture-image').naturalWidth") == 64,
        "the picture itself",
    )
    link = page.one("#btn-download")
    assert link.get_attribute("download") is not None
    assert (
        server.get(link.get_attribute("href")[len(server.url) :]).content[:8]
        == b"\x89PNG\r\n\x1a\n"
    )
    page.click("#btn-picture-close")
    page.gone("#dlg-picture")


def test_tiles_for_want_of_memory_are_told(chrome, tmp_path):
    """While it decodes, at the node; afterwards, beside the picture. One that had room says
    nothing."""
    with Server(base_with_model(tmp_path / "base"), "--devices", "cpu=32m") as server:
        chrome.leave()
        arrive(chrome, server)
        chrome.js("""window.notes = [];
            new MutationObserver(() => {
                const n = document.querySelector('#running-note');
                if (!n.hidden && !notes.includes(n.textContent)) notes.push(n.textContent);
            }).observe(document.querySelector('#running'), {subtree: true, childList: true,
                attributes: true});""")
        item = server.run(drawing("a wide sea", size=256, steps=1))
        (vae,) = [n for n in item["status"]["berth"]["networks"] if n["network"] == "vae"]
        said = f"in {vae['tiles']} tiles for want of memory"
        chrome.until(lambda: said in chrome.js("return notes"), "the note in the queue")
        id = item["prompt"][1]
        chrome.shown(f"[data-test=card][data-prompt-id='{id}']")
        open_card(chrome, id)
        assert (
            fact(chrome, "tiles")
            == f"decoded {said}: cpu was full. It may differ from one decoded whole."
        )
        chrome.click("#btn-picture-close")
        small = server.run(drawing("a small sea", size=64, steps=1))["prompt"][1]
        chrome.shown(f"[data-test=card][data-prompt-id='{small}']")
        open_card(chrome, small)
        assert fact(chrome, "prompt") == "a small sea" and not fact(chrome, "tiles")
        assert chrome.errors() == []


def test_arrow_keys_go_through_the_pictures(page, server):
    flow = drawing("the oldest", seed=1)
    flow["4"]["inputs"]["batch_size"] = 2
    ids = []
    for f in (flow, drawing("the middle one", seed=2), drawing("the newest", seed=3)):
        ids.append(server.queue(f)["prompt_id"])
        server.wait(ids[-1])
    page.until(lambda: len(page.all("[data-test=card]")) == 3, "three cards")

    def at(prompt, thumb=None):
        def look():
            pressed = page.js(
                "return [...document.querySelectorAll('#picture-thumbs [data-test=thumb]')]"
                ".findIndex((b) => b.getAttribute('aria-pressed') === 'true')"
            )
            return fact(page, "prompt") == prompt and (thumb is None or pressed == thumb)

        page.until(look, f"{prompt} {thumb}")

    open_card(page, ids[-1])
    at("the newest")
    page.keys(Keys.ARROW_LEFT)  # nothing is newer
    page.keys(Keys.ARROW_RIGHT)
    at("the middle one")
    page.keys(Keys.ARROW_RIGHT)
    at("the oldest", 0)
    page.keys(Keys.ARROW_RIGHT)
    at("the oldest", 1)
    page.keys(Keys.ARROW_RIGHT)  # nothing is older
    page.keys(Keys.ARROW_LEFT)
    at("the oldest", 0)
    page.keys(Keys.ARROW_LEFT)
    at("the middle one")
    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    page.keys(Keys.ESCAPE)
    page.gone("#dlg-picture")
    open_card(page, ids[1])
    at("the middle one")


def test_its_settings_can_be_used_again(page, server, drawn):
    open_card(page, drawn[0])
    page.click("#btn-use")
    page.gone("#dlg-picture")
    values = {
        "f-prompt": "a green kite",
        "f-seed": "42",
        "f-steps": "3",
        "f-width": "64",
        "f-height": "64",
        "f-sampler": "euler",
        "f-scheduler": "normal",
        "f-model": MODEL,
        "f-cfg": "2",
    }
    page.until(
        lambda: {
            k: page.js("return document.getElementById(arguments[0]).value", k) for k in values
        }
        == values,
        f"{values}",
    )
    assert not page.one("#f-seed-random").is_selected()
    page.fill("#f-steps", "2")
    page.click("#btn-submit")
    page.until(lambda: len(page.all("[data-test=card]")) == 2, "the second picture")


def test_its_workflow_can_be_loaded(page, server, drawn):
    open_card(page, drawn[0])
    page.click("#btn-load-workflow")
    page.shown("#dlg-workflow")
    page.until(lambda: len(page.all("#dlg-workflow [data-test=workflow-node]")) > 0, "its nodes")
    page.click("#btn-workflow-close")
    page.gone("#dlg-workflow")


def test_it_can_be_deleted(page, server, drawn):
    id, _ = drawn
    open_card(page, id)
    page.click("#btn-delete")
    if page.one("#dlg-confirm").is_displayed():
        page.click("#btn-confirm-ok")
    page.gone("#dlg-picture")
    page.until(lambda: not page.all(f"[data-test=card][data-prompt-id='{id}']"), "the card gone")
    assert server.get("/history").json() == {}
    page.shown("#gallery-empty")


def test_a_history_that_others_clear_is_seen(page, server, drawn):
    server.post("/history", {"clear": True})
    page.shown("#gallery-empty")


def test_a_batch_is_one_card_with_all_its_pictures(page, server):
    flow = drawing(seed=8)
    flow["4"]["inputs"]["batch_size"] = 3
    id = server.queue(flow)["prompt_id"]
    open_card(page, id)
    page.until(lambda: len(page.all("#picture-thumbs [data-test=thumb]")) == 3, "three thumbnails")
    first = page.js("return document.querySelector('#picture-image').src")
    page.js("document.querySelectorAll('#picture-thumbs [data-test=thumb]')[2].click()")
    page.until(
        lambda: page.js("return document.querySelector('#picture-image').src") != first,
        "another picture",
    )
    page.click("#btn-picture-close")


def test_a_prompt_that_failed_is_shown_with_its_reason(page, server):
    flow = drawing()
    flow["7"]["inputs"][
        "filename_prefix"
    ] = "../out"  # outside the output folder: refused when it is saved
    id = server.queue(flow)["prompt_id"]
    item = server.wait(id)
    assert item["status"]["status_str"] == "error"
    why = next(m[1] for m in item["status"]["messages"] if m[0] == "execution_error")
    page.shown(f"[data-test=card][data-prompt-id='{id}'][data-status=failed]")
    open_card(page, id)
    text = page.until_text("#picture-error", why["exception_message"].strip()[:40])
    assert "SaveImage" in text
    page.click("#btn-picture-close")


def test_an_interrupted_prompt_is_no_picture(page, server, drawn):
    flow = drawing("a patient owl", steps=LONG)
    id = server.queue(flow)["prompt_id"]
    page.shown("#btn-interrupt")
    page.until_text("#running-node", "KSampler")
    server.post("/interrupt", {})
    tile = f"[data-test=card][data-prompt-id='{id}']"
    page.shown(tile)
    page.until_text(tile, "Interrupted", "a patient owl")
    assert (
        page.one(f"{tile} [data-test=open]").get_attribute("aria-label")
        == "Interrupted: a patient owl"
    )
    assert page.text("#gallery-count") == "1"
    assert page.text(f"[data-test=card][data-prompt-id='{drawn[0]}']").strip() != "Interrupted"


def test_a_picture_from_the_cache_says_so(page, server, drawn):
    again = server.queue(drawn[1]["prompt"][2])["prompt_id"]
    other = server.queue(drawing("a green kite", seed=43, steps=3, cfg=2.0))[
        "prompt_id"
    ]  # its text and model are cached
    page.shown(f"[data-test=card][data-prompt-id='{again}'] [data-test=from-cache]")
    page.until(lambda: "a green kite" in label(page, other), "what the other one says")
    assert label(page, again) == "a green kite, from cache"
    for id in (drawn[0], other):
        assert (
            label(page, id) == "a green kite"
            and not page.one(
                f"[data-test=card][data-prompt-id='{id}'] [data-test=from-cache]"
            ).is_displayed()
        )


def test_more_come_on_demand(page, server):
    ids = [server.queue(image_prompt(color=i))["prompt_id"] for i in range(60)]
    server.until_idle()
    arrive(page, server)
    page.shown("#btn-more")
    few = len(page.all("[data-test=card]"))
    assert 0 < few < 60
    while page.one("#btn-more").is_displayed():
        before = len(page.all("[data-test=card]"))
        page.click("#btn-more")
        page.until(lambda: len(page.all("[data-test=card]")) > before, "more cards")
    shown = page.js(
        "return [...document.querySelectorAll('[data-test=card]')].map(e => e.dataset.promptId)"
    )
    assert sorted(shown) == sorted(ids) and len(shown) == len(set(shown))


def test_the_newest_is_first(page, server):
    ids = []
    for i in range(3):
        ids.append(server.queue(image_prompt(color=i))["prompt_id"])
        server.wait(ids[-1])
    page.until(
        lambda: page.js(
            "return [...document.querySelectorAll('[data-test=card]')].map(e => e.dataset.promptId)"
        )
        == ids[::-1],
        "newest first",
    )


def film():
    return {
        "1": {
            "class_type": "EmptyImage",
            "inputs": {"width": 96, "height": 64, "batch_size": 12, "color": 8421631},
        },
        "2": {
            "class_type": "EmptyAudio",
            "inputs": {"duration": 1, "sample_rate": 16000, "channels": 1},
        },
        "3": {
            "class_type": "CreateVideo",
            "inputs": {"images": ["1", 0], "fps": 12, "audio": ["2", 0]},
        },
        "4": {
            "class_type": "SaveWEBM",
            "inputs": {
                "images": ["1", 0],
                "codec": "vp9",
                "fps": 12,
                "crf": 32,
                "filename_prefix": "w",
            },
        },
        "5": {
            "class_type": "SaveVideo",
            "inputs": {"video": ["3", 0], "format": "auto", "filename_prefix": "v"},
        },
        "6": {"class_type": "PreviewAudio", "inputs": {"audio": ["2", 0]}},
    }


def test_clips_and_sounds_are_played(page, server):
    answer = server.post("/prompt", {"prompt": film()})
    if answer.status_code != 200:
        pytest.skip("no FFmpeg in this build")
    id = answer.json()["prompt_id"]
    server.wait(id)
    page.shown(f"[data-test=card][data-prompt-id='{id}'] video")
    open_card(page, id)
    # VP9 plays in every Chromium; H.264 in those that have it
    page.click("#picture-thumbs [data-name^='w_']")
    page.until(
        lambda: page.js(
            "const v = document.querySelector('#picture-video');"
            "return v.videoWidth === 96 && v.duration > 0.9 && v.duration < 1.1"
        ),
        "the clip",
    )
    page.js("const v = document.querySelector('#picture-video'); v.muted = true; v.play()")
    page.until(
        lambda: page.js("return document.querySelector('#picture-video').currentTime > 0.1"),
        "that it plays",
    )
    assert (
        not page.one("#picture-image").is_displayed() and not page.one("#btn-from").is_displayed()
    )
    page.click("#picture-thumbs [data-name$='.flac']")
    page.shown("#picture-sound")
    page.until(
        lambda: page.js("return document.querySelector('#picture-sound').duration > 0.9"),
        "the sound",
    )
    assert page.js("return document.querySelector('#picture-video').paused")
    page.click("#btn-picture-close")
    page.until(
        lambda: page.js("return !document.querySelector('#picture-sound').src"),
        "that it is let go of",
    )
