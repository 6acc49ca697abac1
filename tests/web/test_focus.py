"""Where the keyboard is: an update of the page never throws it back to the beginning."""

import pytest
import requests

from browser import Keys
from conftest import drawing, image_prompt


def focus(page, selector):
    page.js("document.querySelector(arguments[0]).focus()", selector)


def focused(page, selector):
    return page.js("return document.activeElement?.matches(arguments[0])", selector)


def test_draw_it_can_be_pressed_again(page, server):
    for field, value in (
        ("#f-prompt", "again"),
        ("#f-steps", 2),
        ("#f-width", 64),
        ("#f-height", 64),
    ):
        page.fill(field, value)
    focus(page, "#btn-submit")
    for n in (1, 2):
        page.keys(Keys.ENTER)
        page.until(lambda: len(page.all("[data-test=card]")) == n, f"picture {n}")
        assert focused(page, "#btn-submit")


def test_arrow_keys_walk_through_retention(page, server):
    server.run(drawing())
    page.until(lambda: len(page.all("#models [data-test=model]")) == 3, "three models")
    id = server.get("/berth/models").json()["models"][0]["id"]
    at = f"[data-test=model][data-model='{id}'] [data-test=retention]"
    focus(page, f"{at}:checked")
    for value in ("keep", "eject"):
        page.keys(Keys.ARROW_RIGHT)
        page.until(lambda: server.get(f"/berth/models/{id}").json()["retention"] == value, value)
        page.until(
            lambda: not page.one(
                f"[data-test=model][data-model='{id}'] [data-test=asked]"
            ).is_displayed(),
            "answered",
        )
        assert focused(page, f"{at}[value={value}]")


def test_what_stays_keeps_the_focus_when_others_leave(page, server):
    server.run(drawing())
    segments = "[data-test=device][data-device='cuda:0'] [data-test=segment][data-model]"
    page.until(lambda: len(page.all(segments)) == 3, "three segments")
    first, _, last = [e.get_attribute("data-model") for e in page.all(segments)]
    focus(page, f"{segments}[data-model='{last}']")
    assert requests.delete(f"{server.url}/berth/models/{first}", timeout=60).status_code == 200
    page.until(lambda: len(page.all(segments)) == 2, "two segments")
    assert focused(page, f"{segments}[data-model='{last}']")
    page.keys(Keys.ARROW_RIGHT)
    assert page.one("#block-tip").is_displayed()


@pytest.mark.parametrize("how", ["key", "button"])
def test_after_a_cancel_the_next_one_has_the_focus(page, server, how):
    server.post("/berth/queue", {"paused": True})
    ids = [server.queue(image_prompt(color=i))["prompt_id"] for i in range(3)]
    page.until(lambda: len(page.all("[data-test=waiting]")) == 3, "three")
    what, key = ("", Keys.DELETE) if how == "key" else (" [data-test=cancel]", Keys.ENTER)
    focus(page, f"[data-prompt-id='{ids[1]}']{what}")
    for left, neighbour in ((2, ids[2]), (1, ids[0])):
        page.keys(key)
        page.until(lambda: len(page.all("[data-test=waiting]")) == left, f"{left} left")
        assert focused(page, f"[data-test=waiting][data-prompt-id='{neighbour}']{what}")
    page.keys(key)
    page.until(lambda: not page.all("[data-test=waiting]"), "none left")
    assert focused(page, "#h-queue")


def test_a_button_that_ends_its_use_hands_the_focus_to_its_row(page, server):
    server.post("/berth/queue", {"paused": True})
    ids = [server.queue(image_prompt(color=i))["prompt_id"] for i in range(2)]
    page.until(lambda: len(page.all("[data-test=waiting]")) == 2, "two")
    focus(page, f"[data-prompt-id='{ids[1]}'] [data-test=up]")
    page.keys(Keys.ENTER)
    page.until(
        lambda: [e.get_attribute("data-prompt-id") for e in page.all("[data-test=waiting]")]
        == ids[::-1],
        "moved",
    )
    page.until(lambda: focused(page, f"[data-test=waiting][data-prompt-id='{ids[1]}']"), "the row")


def test_after_deleting_a_picture_the_next_one_has_the_focus(page, server):
    ids = []
    for i in range(3):
        ids.append(server.queue(image_prompt(color=i))["prompt_id"])
        server.wait(ids[-1])
    page.until(lambda: len(page.all("[data-test=card]")) == 3, "three")
    focus(page, f"[data-test=card][data-prompt-id='{ids[1]}'] [data-test=open]")
    page.keys(Keys.ENTER)
    page.shown("#dlg-picture")
    page.click("#btn-delete")
    page.click("#btn-confirm-ok")
    page.until(lambda: len(page.all("[data-test=card]")) == 2, "two")
    assert focused(page, f"[data-test=card][data-prompt-id='{ids[0]}'] [data-test=open]")


def test_drawings_that_take_arrow_keys_say_so(page, server):
    """Screen readers hand arrow keys only to roles that want them, and read what they chose."""
    server.run(drawing())
    for selector in ("[data-test=segment][data-model]", "#strips .lanes"):
        page.until(
            lambda: page.one(selector).get_attribute("role") == "slider", "blocks to walk through"
        )
        focus(page, selector)
        page.keys(Keys.END)
        last = page.js(
            "const e = document.activeElement; return [e.getAttribute('aria-valuenow'), "
            "e.getAttribute('aria-valuemax'),"
            "e.getAttribute('aria-valuetext'), e.getAttribute('aria-readonly')]"
        )
        assert last[0] == last[1] and int(last[1]) > 1 and last[2] and last[3] == "true"
        assert last[2] in page.text("#block-tip")
    nested = page.js(
        "const live = '[aria-live], [role=status], [role=alert]';"
        "return [...document.querySelectorAll(live)].filter(e => "
        "e.parentElement.closest(live)).length"
    )
    assert nested == 0
