"""A touch screen of 390 x 844: what became of a prompt is where the button is, everything can be
hit with a thumb, and nobody speaks of keys."""

import pathlib

import pytest

from conftest import LONG, MODEL, drawing
from test_draw import LORA, keys_file
from test_page import NAMELESS

HEIGHT = 40  # px, of whatever can be pressed


@pytest.fixture
def phone(page):
    page.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
    page.cdp(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=844,
        deviceScaleFactor=1,
        mobile=True,
    )
    try:
        page.until(
            lambda: page.js("return matchMedia('(pointer: coarse)').matches && innerWidth === 390"),
            "a touch screen",
        )
        yield page
    finally:
        page.cdp("Emulation.setTouchEmulationEnabled", enabled=False)
        page.size(1440, 900)


def in_view(page, selector):
    """Is all of it on the screen?"""
    return page.js(
        "const e = document.querySelector(arguments[0]), r = e?.getBoundingClientRect();"
        "return Boolean(e?.checkVisibility()) && r.top >= -1 && r.bottom <= innerHeight + 1 && "
        "r.left >= -1 && r.right <= innerWidth + 1",
        selector,
    )


def draw(page, text, steps, size=64):
    page.fill("#f-prompt", text)
    for name, n in (("steps", steps), ("width", size), ("height", size)):
        page.fill(f"#f-{name}", n)
    page.click("#btn-submit")


def test_progress_and_picture_are_where_the_button_is(phone, server):
    draw(phone, "a long one", LONG)
    phone.until(lambda: "step" in phone.text("#now-text"), "its steps")
    phone.until(
        lambda: in_view(phone, "#now-text")
        and in_view(phone, "#now-progress")
        and in_view(phone, "#now-frame"),
        "all of it in view",
    )
    phone.until(
        lambda: phone.js(
            "const i = document.querySelector('#now-image'); return i.complete && i.naturalWidth "
            "> 0"
        ),
        "a preview",
    )
    assert float(phone.one("#now-progress").get_attribute("max")) == LONG
    assert not in_view(phone, "#running") and in_view(phone, "#btn-submit")
    phone.click("#btn-now-stop")
    phone.until_text("#now-text", "Stopped")
    assert not phone.one("#now-frame").is_displayed()
    draw(phone, "a short one", 2)
    phone.until_text("#now-text", "Done")
    phone.until(
        lambda: phone.js(
            "const i = document.querySelector('#now-image'); return i.complete && i.naturalWidth "
            "=== 64"
        ),
        "the picture",
    )
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


def fail(page, server, text):
    """A prompt that is refused only when it runs: its file is gone by then."""
    server.post("/berth/queue", {"paused": True})
    page.until(lambda: page.text("#btn-pause") == "Resume", "the pause")
    path = pathlib.Path(server.base) / "models/checkpoints/soon-gone.safetensors"
    path.write_bytes((path.parent / MODEL).read_bytes())
    page.js("document.querySelector('#f-model').focus()")
    page.choose("#f-model", path.name)
    draw(page, text, 1)
    page.until(lambda: server.get("/queue").json()["queue_pending"], "it in the queue")
    path.unlink()
    server.post("/berth/queue", {"paused": False})


def test_a_failure_is_said_once(phone, server):
    fail(phone, server, "it fails")
    phone.until_text("#now-text", "failed")
    assert "soon-gone" in phone.shown("#now-error").text
    assert not phone.all("[data-test=toast]")


def test_messages_go_with_the_next_prompt(phone, server):
    flow = drawing()
    flow["7"]["inputs"]["filename_prefix"] = "../out"
    server.queue(flow, client_id=phone.js("return document.documentElement.dataset.client"))
    phone.shown("[data-test=toast][data-failed]")  # no box speaks of this one
    draw(phone, "the next", 1)
    phone.until_text("#now-text", "Done")
    assert not phone.all("[data-test=toast]")


def test_a_finger_does_not_hold_a_message(phone):
    phone.js(
        "import('/berth/web/toast.js').then((m) => m.toast('error', 'Held', 'by a finger', {stay: "
        "5000}))"
    )
    x, y = phone.until(
        lambda: phone.js(
            "const r = document.querySelector('.toast strong').getBoundingClientRect(); return "
            "[r.x + 5, r.y + 5]"
        ),
        "the message",
    )
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        phone.cdp("Input.dispatchTouchEvent", type=kind, touchPoints=points)
    phone.gone("[data-test=toast]")


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


# What is lower than it should be. A check box or radio button is hit by its label; what has no size
# is not there.
LOW = """
    const wanted = 'button, a[href], input, select, textarea, summary, [role=slider], ' +
        '[tabindex="0"]';
    const hit = (e) => (e.matches('[type=checkbox], [type=radio]') ? e.labels[0] : e);
    const there = (e) => e.checkVisibility() && !e.closest('.skip') &&
        e.getBoundingClientRect().width > 0;
    return [...document.querySelectorAll(wanted)].map(hit).filter(there)
        .map((e) => [e.getBoundingClientRect().height, e.outerHTML.slice(0, 120)])
        .filter(([h]) => h < arguments[0]);
"""


def open_everything(page, server):
    """A page with all there is in it: a picture with a mask, a LoRA row, models, prompts that
    wait."""
    keys_file(
        pathlib.Path(server.base) / "models/loras/one.safetensors",
        {f"{LORA}.lora_up.weight": [128, 4]},
    )
    server.run(drawing())
    server.post("/berth/queue", {"paused": True})
    server.queue(drawing(seed=2))
    page.shown("[data-test=waiting]")
    page.shown("#models [data-test=model]")
    page.js("document.querySelectorAll('main details').forEach((d) => { d.open = true; })")
    page.click("#btn-lora")
    page.shown("[data-test=lora]")
    page.click("[data-test=card] [data-test=open]")
    page.click("#btn-from")
    page.shown("#source-image")
    page.click("label:has(input[name=source-how][value=paint])")
    page.shown("[data-test=mask]")
    page.js(
        "import('/berth/web/toast.js').then((m) => m.toast('error', 'A message', 'with a text'))"
    )
    page.shown("[data-test=toast]")


def test_all_of_it_can_be_hit(phone, server):
    open_everything(phone, server)
    assert phone.js(LOW, HEIGHT) == []
    assert phone.js("return document.documentElement.scrollWidth") <= 390
    assert phone.js(NAMELESS) == []


@pytest.mark.parametrize(
    "opener, dialog",
    [
        ("[data-test=card] [data-test=open]", "#dlg-picture"),
        ("[data-test=plan]", "#dlg-plan"),
        ("#btn-free", "#dlg-free"),
        ("#btn-receipts", "#dlg-receipts"),
    ],
)
def test_so_can_dialogs(phone, server, opener, dialog):
    server.run(drawing())
    phone.shown("#models [data-test=model]")
    phone.shown("[data-test=card]")
    phone.click(opener)
    phone.shown(dialog)
    if dialog == "#dlg-plan":
        phone.until(lambda: phone.all("[data-test=plan-example]"), "its examples")
    assert phone.js(LOW, HEIGHT) == []
    assert phone.js("return document.querySelector(arguments[0]).scrollWidth", dialog) <= 390


def test_keys_are_not_spoken_of(phone, server):
    open_everything(phone, server)
    words = phone.js("return document.body.innerText")
    assert not [
        w
        for w in ("Ctrl", "arrow", "Space", "Shift", "Alt ", "Drop a")
        if w.lower() in words.lower()
    ], words
