"""The queue: progress, previews of latents, pause, order, cancel."""

import pytest

from browser import ActionChains, Keys
from conftest import LONG, drawing, image_prompt


@pytest.fixture
def three(page, server):
    """Three prompts that wait in a paused queue; their ids in order of arrival."""
    server.post("/berth/queue", {"paused": True})
    ids = [server.queue(drawing(f"number {i}", seed=i))["prompt_id"] for i in range(3)]
    page.until(lambda: shown(page) == ids, "three waiting prompts")
    return ids


def shown(page):
    return page.js(
        "return [...document.querySelectorAll('[data-test=waiting]')].map(e => e.dataset.promptId)"
    )


def waiting(server):
    """Ids in the order the server would run them."""
    return [q[1] for q in sorted(server.get("/queue").json()["queue_pending"])]


def press(page, prompt_id, button):
    page.click(f"[data-test=waiting][data-prompt-id='{prompt_id}'] [data-test={button}]")


def agree(page, server, ids):
    page.until(lambda: shown(page) == ids, f"the order {ids}: {shown(page)}")
    assert waiting(server) == ids


@pytest.mark.parametrize("own", [True, False], ids=["of this page", "of another client"])
def test_a_running_prompt_shows_its_progress(page, server, own):
    client = page.js("return document.documentElement.dataset.client") if own else "somebody-else"
    id = server.queue(drawing("steps", steps=LONG, size=128), client_id=client)["prompt_id"]
    page.until(
        lambda: page.one("#running").get_attribute("data-prompt-id") == id, "the running prompt"
    )
    page.until_text("#running-node", "KSampler")
    page.until(
        lambda: float(page.one("#running-progress").get_attribute("value") or 0) > 2, "steps"
    )
    assert float(page.one("#running-progress").get_attribute("max")) == LONG
    assert "%" in page.until_text("#running-text", f"of {LONG}")
    assert "%" in page.driver.title
    server.post("/interrupt", {})
    page.gone("#running")


def test_previews_are_those_of_this_page_and_change(page, server):
    """Previews go to the client that asked: the page's own prompt."""
    page.fill("#f-prompt", "waves")
    for field, value in (("#f-steps", LONG), ("#f-width", 128), ("#f-height", 128)):
        page.fill(field, value)
    page.click("#btn-submit")
    image = page.shown("#running-preview")
    page.until(lambda: page.js("return arguments[0].naturalWidth", image) > 0, "a picture in it")
    first = image.get_attribute("src")
    page.until(
        lambda: int(image.get_attribute("data-count")) > 2 and image.get_attribute("src") != first,
        "another one",
    )
    page.click("#btn-interrupt")
    page.gone("#running")
    page.until(
        lambda: page.all("[data-test=card][data-status=cancelled]"),
        "the interrupted prompt in the gallery",
    )
    (item,) = server.get("/history").json().values()
    assert item["status"]["completed"] is False


def test_a_preview_is_not_taken_from_the_picture_that_shows_it(page, server):
    """On a busy machine the browser may still be loading it, and tells of a missing file then."""
    page.js("""
        const release = URL.revokeObjectURL;
        window.takenWhileShown = 0;
        URL.revokeObjectURL = (url) => {
            if (document.getElementById('running-preview').src === url)
                window.takenWhileShown++;
            release.call(URL, url);
        };
        """)
    page.fill("#f-prompt", "waves")
    for field, value in (("#f-steps", LONG), ("#f-width", 128), ("#f-height", 128)):
        page.fill(field, value)
    page.click("#btn-submit")
    image = page.shown("#running-preview")
    page.until(lambda: int(image.get_attribute("data-count")) > 3, "a few previews")
    page.click("#btn-interrupt")
    page.gone("#running")
    assert page.js("return window.takenWhileShown") == 0


def test_pause_holds_the_queue_and_resume_lets_it_go(page, server):
    page.click("#btn-pause")
    page.until_text("#btn-pause", "Resume")
    assert (
        page.one("#btn-pause").get_attribute("aria-pressed") is None
    )  # the text says it; both would say it twice
    assert server.get("/berth/queue").json()["paused"] is True
    id = server.queue(drawing())["prompt_id"]
    page.until(lambda: shown(page) == [id], "it waits")
    page.click("#btn-pause")
    page.until_text("#btn-pause", "Pause")
    page.shown(f"[data-test=card][data-prompt-id='{id}']")
    assert shown(page) == []


def test_a_pause_from_elsewhere_is_seen(page, server):
    server.post("/berth/queue", {"paused": True})
    server.queue(drawing())
    page.until_text("#btn-pause", "Resume")


def test_order_by_buttons(page, server, three):
    a, b, c = three
    press(page, c, "top")
    agree(page, server, [c, a, b])
    press(page, a, "down")
    agree(page, server, [c, b, a])
    press(page, a, "up")
    agree(page, server, [c, a, b])
    assert not page.one(f"[data-prompt-id='{c}'] [data-test=up]").is_enabled()
    assert not page.one(f"[data-prompt-id='{b}'] [data-test=down]").is_enabled()


def test_order_by_keys_keeps_the_focus(page, server, three):
    a, b, c = three
    page.js(
        "document.querySelector(`[data-test=waiting][data-prompt-id='${arguments[0]}']`).focus()", c
    )
    page.chord(Keys.ALT, Keys.ARROW_UP)
    agree(page, server, [a, c, b])
    page.until(
        lambda: page.js("return document.activeElement.dataset.promptId") == c,
        "the focus on what moved",
    )
    page.chord(Keys.ALT, Keys.ARROW_UP)
    agree(page, server, [c, a, b])
    page.chord(Keys.ALT, Keys.ARROW_DOWN)
    agree(page, server, [a, c, b])


STRANGE = {
    "a number for a text": {
        "0": {
            "class_type": "KSampler",
            "inputs": {"latent_image": ["1", 0], "positive": ["00", 0]},
        },
        "00": {"class_type": "CLIPTextEncode", "inputs": {"text": 7}},
    },
    "an object for a text": {
        "0": {
            "class_type": "KSampler",
            "inputs": {"latent_image": ["1", 0], "positive": ["00", 0]},
        },
        "00": {"class_type": "CLIPTextEncode", "inputs": {"text": {"a": 1}}},
    },
    "a text for inputs": {
        "0": {
            "class_type": "KSampler",
            "inputs": {"latent_image": ["00", 0], "positive": ["00", 0]},
        },
        "00": {"class_type": "CLIPTextEncode", "inputs": "abc"},
    },
    "an object for a title": {
        "0": {"class_type": "KSampler", "inputs": {}, "_meta": {"title": {"a": 1}}}
    },
}


@pytest.mark.parametrize("extra", STRANGE.values(), ids=STRANGE)
def test_a_strange_prompt_hides_nothing(page, server, extra):
    """The server runs what an output needs and does not look at the rest, which may be anything."""
    server.post("/berth/queue", {"paused": True})
    strange = server.queue({**image_prompt(color=5), **extra})["prompt_id"]
    other = server.queue(image_prompt(color=6))["prompt_id"]
    page.until(lambda: shown(page) == [strange, other], "both")
    page.until_text(f"[data-prompt-id='{strange}']", "nodes")  # its graph came, and was read
    page.click("#btn-pause")
    for id in (strange, other):
        page.click(f"[data-test=card][data-prompt-id='{id}'] [data-test=open]")
        page.shown("#dlg-picture")
        page.click("#btn-load-workflow")
        page.shown("#dlg-workflow")
        page.until_text("#workflow-kind", "nodes")
        page.click("#btn-workflow-close")
        page.gone("#dlg-workflow")


def test_a_long_queue_is_shown_from_its_beginning(page, server):
    """A hundred are listed, in the order in which they will run, not in that of their arrival."""
    server.post("/berth/queue", {"paused": True})
    ids = [server.queue(image_prompt(color=i))["prompt_id"] for i in range(130)]
    server.post("/berth/queue", {"move": {"prompt_id": ids[129], "before": ids[0]}})
    order = [ids[129], *ids[:129]]
    page.until(lambda: shown(page) == order[:100], "the first hundred")
    page.until_text("#queue-more", "100", "130")
    assert page.text("#queue-count").startswith("paused, 130")
    assert not page.one(f"[data-prompt-id='{order[99]}'] [data-test=down]").is_enabled()
    page.js("document.querySelector(`[data-prompt-id='${arguments[0]}']`).focus()", order[99])
    page.chord(Keys.ALT, Keys.ARROW_DOWN)  # nowhere to: what follows is not listed
    page.chord(Keys.ALT, Keys.ARROW_UP)
    order[98:100] = order[99], order[98]
    page.until(lambda: shown(page) == order[:100], "one place up")
    assert waiting(server) == order
    server.post("/queue", {"clear": True})


def test_large_prompts_are_not_sent_again_with_every_change(page, server):
    server.post("/berth/queue", {"paused": True})
    for i in range(4):
        server.queue(
            {
                **image_prompt(color=i),
                "9": {"class_type": "CLIPTextEncode", "inputs": {"text": f"{i}" * 1_000_000}},
            }
        )
    page.until(lambda: len(page.all("[data-test=waiting]")) == 4, "four")
    page.forget()
    server.queue(image_prompt(color=99))
    page.until(lambda: len(page.all("[data-test=waiting]")) == 5, "five")
    assert page.transferred() < 200_000
    server.post("/queue", {"clear": True})


def test_order_by_dragging(page, server, three):
    a, b, c = three
    at = [page.one(f"[data-test=waiting][data-prompt-id='{i}']") for i in (c, a)]
    page.js("arguments[0].scrollIntoView({block: 'center'})", at[1])
    ActionChains(page.driver).drag_and_drop(*at).perform()
    agree(page, server, [c, a, b])


def test_the_order_is_the_one_they_run_in(page, server, three):
    a, b, c = three
    press(page, c, "top")
    agree(page, server, [c, a, b])
    page.click("#btn-pause")
    server.until_idle()
    history = server.get("/history").json()
    begun = {
        i: next(m[1]["timestamp"] for m in h["status"]["messages"] if m[0] == "execution_start")
        for i, h in history.items()
    }
    assert sorted(begun, key=begun.get) == [c, a, b]


def test_cancel_one_and_clear_the_rest(page, server, three):
    a, b, c = three
    press(page, b, "cancel")
    agree(page, server, [a, c])
    page.click("#btn-clear")
    page.shown("#dlg-confirm")
    assert (page.text("#btn-confirm-cancel"), page.text("#btn-confirm-ok")) == (
        "Keep them",
        "Remove",
    )  # not two that cancel
    page.click("#btn-confirm-cancel")
    page.gone("#dlg-confirm")
    assert waiting(server) == [a, c]
    page.click("#btn-clear")
    page.click("#btn-confirm-ok")
    agree(page, server, [])
    assert server.get("/history").json() == {}


def test_what_others_queue_is_seen_and_counted(page, server, three):
    page.until_text("#queue-count", "3")
    server.post("/queue", {"delete": [three[0]]})
    page.until(lambda: shown(page) == three[1:], "two are left")
    page.until_text("#queue-count", "2")


def test_a_move_that_comes_too_late_is_said(page, server, three):
    """Between the drawing and the press somebody else took it away."""
    a, b, c = three
    page.js(
        "window.fetchReal = fetch; window.fetch = (u, o) => String(u).includes('/berth/queue') && "
        "o?.method === 'POST'"
        " ? fetchReal(u, {...o, body: o.body.replace(arguments[0], 'gone')}) : fetchReal(u, o)",
        c,
    )
    press(page, c, "top")
    page.shown("[data-test=toast][data-kind=error]")
    assert waiting(server) == [a, b, c]
    page.forget()  # a 404 is in the console, as it should be
