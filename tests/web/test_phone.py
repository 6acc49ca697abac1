"""A touch screen of 390 x 844: what became of a prompt is where the button is."""

import pytest

from conftest import LONG, drawing


@pytest.fixture
def phone(page):
    page.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
    page.cdp("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    try:
        page.until(lambda: page.js("return matchMedia('(pointer: coarse)').matches && innerWidth === 390"), "a touch screen")
        yield page
    finally:
        page.cdp("Emulation.setTouchEmulationEnabled", enabled=False)
        page.size(1440, 900)


def in_view(page, selector):
    """Is all of it on the screen?"""
    return page.js("const e = document.querySelector(arguments[0]), r = e?.getBoundingClientRect();"
                   "return Boolean(e?.checkVisibility()) && r.top >= -1 && r.bottom <= innerHeight + 1 && r.left >= -1 && r.right <= innerWidth + 1",
                   selector)


def draw(page, text, steps, size=64):
    page.fill("#f-prompt", text)
    for name, n in (("steps", steps), ("width", size), ("height", size)):
        page.fill(f"#f-{name}", n)
    page.click("#btn-submit")


def test_progress_and_picture_are_where_the_button_is(phone, server):
    draw(phone, "a long one", LONG)
    phone.until(lambda: "step" in phone.text("#now-text"), "its steps")
    phone.until(lambda: in_view(phone, "#now-text") and in_view(phone, "#now-progress") and in_view(phone, "#now-frame"), "all of it in view")
    phone.until(lambda: phone.js("const i = document.querySelector('#now-image'); return i.complete && i.naturalWidth > 0"), "a preview")
    assert float(phone.one("#now-progress").get_attribute("max")) == LONG
    assert not in_view(phone, "#running") and in_view(phone, "#btn-submit")
    phone.click("#btn-now-stop")
    phone.until_text("#now-text", "Stopped")
    assert not phone.one("#now-frame").is_displayed()
    draw(phone, "a short one", 2)
    phone.until_text("#now-text", "Done")
    phone.until(lambda: phone.js("const i = document.querySelector('#now-image'); return i.complete && i.naturalWidth === 64"), "the picture")
    phone.until(lambda: in_view(phone, "#now-frame"), "the picture in view")
    assert "a short one" in phone.one("#now-image").get_attribute("alt")
    phone.click("#now-frame")
    assert "a short one" in phone.shown("#dlg-picture [data-fact=prompt]").text


def test_a_prompt_that_waits_says_for_how_many(phone, server):
    server.post("/berth/queue", {"paused": True})
    phone.until(lambda: phone.text("#btn-pause") == "Resume", "the pause")
    draw(phone, "later", 1)
    phone.until_text("#now-text", "paused")
    server.post("/berth/queue", {"paused": False})
    phone.until_text("#now-text", "Done")
    first = server.queue(drawing("before it", steps=LONG))["prompt_id"]
    draw(phone, "behind it", 1)
    phone.until_text("#now-text", "Waiting for 1 other prompt")
    server.post("/interrupt", {"prompt_id": first})
    phone.until_text("#now-text", "Done")


def test_whoever_sees_it_is_not_moved(phone, server):
    draw(phone, "one", 1)
    phone.until_text("#now-text", "Done")
    phone.until(lambda: in_view(phone, "#now-frame"), "the picture in view")
    phone.js("scrollBy(0, 10)")
    before = phone.js("return scrollY")
    phone.js("document.querySelector('#btn-submit').click()")
    phone.until(lambda: len(phone.all("[data-test=card]")) == 2, "the second")
    phone.until_text("#now-text", "Done")
    assert phone.js("return scrollY") == before


def test_a_wide_window_has_it_in_the_queue(page, server):
    draw(page, "wide", 1)
    page.shown("[data-test=card][data-status=completed]")
    assert not page.one("#now").is_displayed()
