"""The queue: progress, previews of latents, pause, order, cancel."""

import pytest

from browser import ActionChains, Keys
from conftest import LONG, drawing


@pytest.fixture
def three(page, server):
    """Three prompts that wait in a paused queue; their ids in order of arrival."""
    server.post("/berth/queue", {"paused": True})
    ids = [server.queue(drawing(f"number {i}", seed=i))["prompt_id"] for i in range(3)]
    page.until(lambda: shown(page) == ids, "three waiting prompts")
    return ids


def shown(page):
    return page.js("return [...document.querySelectorAll('[data-test=waiting]')].map(e => e.dataset.promptId)")


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
    client = page.js("return sessionStorage.getItem('berth.client')") if own else "somebody-else"
    id = server.queue(drawing("steps", steps=LONG, size=128), client_id=client)["prompt_id"]
    page.until(lambda: page.one("#running").get_attribute("data-prompt-id") == id, "the running prompt")
    page.until_text("#running-node", "KSampler")
    page.until(lambda: float(page.one("#running-progress").get_attribute("value") or 0) > 2, "steps")
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
    page.until(lambda: int(image.get_attribute("data-count")) > 2 and image.get_attribute("src") != first, "another one")
    page.click("#btn-interrupt")
    page.gone("#running")
    page.until(lambda: page.all("[data-test=card][data-status=failed]"), "the interrupted prompt in the gallery")
    (item,) = server.get("/history").json().values()
    assert item["status"]["completed"] is False


def test_pause_holds_the_queue_and_resume_lets_it_go(page, server):
    page.click("#btn-pause")
    page.until_text("#btn-pause", "Resume")
    assert page.one("#btn-pause").get_attribute("aria-pressed") == "true"
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
    page.js("document.querySelector(`[data-test=waiting][data-prompt-id='${arguments[0]}']`).focus()", c)
    page.chord(Keys.ALT, Keys.ARROW_UP)
    agree(page, server, [a, c, b])
    page.until(lambda: page.js("return document.activeElement.dataset.promptId") == c, "the focus on what moved")
    page.chord(Keys.ALT, Keys.ARROW_UP)
    agree(page, server, [c, a, b])
    page.chord(Keys.ALT, Keys.ARROW_DOWN)
    agree(page, server, [a, c, b])


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
    begun = {i: next(m[1]["timestamp"] for m in h["status"]["messages"] if m[0] == "execution_start") for i, h in history.items()}
    assert sorted(begun, key=begun.get) == [c, a, b]


def test_cancel_one_and_clear_the_rest(page, server, three):
    a, b, c = three
    press(page, b, "cancel")
    agree(page, server, [a, c])
    page.click("#btn-clear")
    page.shown("#dlg-confirm")
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
    page.js("window.fetchReal = fetch; window.fetch = (u, o) => String(u).includes('/berth/queue') && o?.method === 'POST'"
            " ? fetchReal(u, {...o, body: o.body.replace(arguments[0], 'gone')}) : fetchReal(u, o)", c)
    press(page, c, "top")
    page.shown("[data-test=toast][data-kind=error]")
    assert waiting(server) == [a, b, c]
    page.forget()  # a 404 is in the console, as it should be
