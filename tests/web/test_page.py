"""The page itself: light to load, quiet, whole at both widths, in both colours, for keys and screen
readers; behind a token; when the server goes and comes; when names are hostile."""

import os
import re

import pytest

from browser import Keys
from conftest import DEVICES, LONG, Server, arrive, base_with_model, drawing

FIRST_PAINT = 100 * 1000  # bytes, everything the page needs included


def without_pictures(page):
    """Bytes that came, but for the pictures themselves."""
    pictures = {
        p["requestId"]
        for _, p in page.events("Network.requestWillBeSent")
        if "/view?" in p["request"]["url"]
    }
    return sum(
        p["encodedDataLength"]
        for _, p in page.events("Network.loadingFinished")
        if p["requestId"] not in pictures
    )


def test_sizes_read_as_in_a_terminal(page):
    """The page's rounding is held to the table that str_bytes() is held to: what `berth ps` and
    `berth free` print."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../unit/base/test_str.c")) as f:
        rows = re.findall(r"\{ ([^\"{}]+), \"([\d.]+ [KMGTPE]?i?B)\" \}", f.read())
    numbers = [eval(n.replace("UINT64_MAX", "2**64 - 1").replace("UINT64_C", "")) for n, _ in rows]
    assert len(rows) >= 16 and 1048575 in numbers
    got = page.js(
        "return import('/berth/web/format.js').then((m) => arguments[0].map(m.bytes))",
        [str(n) for n in numbers],
    )
    assert dict(zip(numbers, got)) == dict(zip(numbers, (text for _, text in rows)))


@pytest.mark.parametrize("pictures", [0, 15])
def test_its_first_paint_is_light_and_asks_nobody_else(page, server, pictures):
    """On a server that was just started, and on one with three models in memory, pictures, and
    prompts that wait."""
    for i in range(pictures):
        server.run(drawing(f"picture {i}", seed=i))
    if pictures:
        server.post("/berth/queue", {"paused": True})
        for i in range(3):
            server.queue(drawing(f"later {i}", seed=100 + i))
    page.cdp("Network.clearBrowserCache")
    page.leave()
    arrive(page, server)
    if pictures:
        page.until(lambda: len(page.all("[data-test=strip]")) == 3, "all blocks")
        page.until(lambda: "later" in page.text("[data-test=waiting]"), "what waits")
        page.until(
            lambda: "picture"
            in (page.one("[data-test=card] [data-test=open]").get_attribute("aria-label") or ""),
            "captions",
        )
    assert 10_000 < without_pictures(page) < FIRST_PAINT
    assert [(s, u) for s, u in page.answers() if s >= 400] == []
    assert page.log() == []  # not even a warning


def test_what_is_not_in_view_is_not_asked_for(page, server):
    """Block lists on a phone, whose memory column is far below."""
    server.run(drawing())
    page.size(390, 844)
    page.leave()
    arrive(page, server)
    page.until(lambda: len(page.all("#models [data-test=model]")) == 3, "three models")
    assert not [u for u in page.urls() if "blocks=1" in u]
    page.js("document.querySelector('#memory').scrollIntoView()")
    page.until(lambda: len(page.all("[data-test=strip]")) == 3, "all blocks")


def test_a_second_tab_is_another_client(page, server):
    """A duplicated tab has a copy of the first one's storage; a reload is the same client."""

    def client():
        return page.until(
            lambda: page.js("return document.documentElement.dataset.client"), "its id"
        )

    first, tab = client(), page.driver.current_window_handle
    page.js("window.open('/berth')")
    try:
        page.driver.switch_to.window(next(h for h in page.driver.window_handles if h != tab))
        assert client() != first
        page.driver.close()
    finally:
        page.driver.switch_to.window(tab)
    arrive(page, server)
    assert client() == first
    id = server.queue(drawing("still heard", steps=3), client_id=first)["prompt_id"]
    page.shown(f"[data-test=card][data-prompt-id='{id}']")


def test_a_second_visit_does_not_send_the_files_again(page, server):
    page.forget()
    arrive(page, server)
    files = {
        p["requestId"]
        for _, p in page.events("Network.requestWillBeSent")
        if "/berth/web/" in p["request"]["url"]
    }
    sent = sum(
        p["encodedDataLength"]
        for _, p in page.events("Network.loadingFinished")
        if p["requestId"] in files
    )
    assert files and sent < 500 * len(files)  # heads that say: unchanged


def test_it_is_at_the_root_too_where_no_frontend_is(page, server):
    arrive(page, server, "/")
    page.shown("#btn-free")


def test_server_and_connection_are_named(page, server):
    assert page.until_text("#connection", "Live")
    assert page.text("#version") == server.get("/berth/health").json()["version"]


# Names as a screen reader computes them, near enough: aria-label, aria-labelledby, a label, then
# text.
NAMELESS = """
    const nameOf = e => {
        const by = e.getAttribute('aria-labelledby');
        if (by)
            return by.split(/\\s+/).map(id => document.getElementById(id)?.textContent || '')
                .join(' ').trim();
        return (e.getAttribute('aria-label') ||
                [...(e.labels || [])].map(l => l.textContent).join(' ') ||
                (e.matches('button, a, summary') ? e.textContent : '') ||
                e.getAttribute('alt') || e.getAttribute('title') || '').trim();
    };
    const wanted = 'button, a[href], input, select, textarea, summary, dialog[open], progress, ' +
        '[role=img], [role=slider], [role=group], [role=region]';
    return [...document.querySelectorAll(wanted)].filter(e => !/\\p{L}/u.test(nameOf(e)))
        .map(e => e.outerHTML.slice(0, 200));
"""


def test_every_control_has_a_name_and_every_picture_a_text(page, server):
    server.run(drawing())
    server.post("/berth/queue", {"paused": True})
    server.queue(drawing(seed=2))
    page.shown("#gallery-list [data-test=card]")
    page.shown("[data-test=waiting]")
    page.shown("#models [data-test=model]")
    assert page.js(NAMELESS) == []
    assert (
        page.js(
            "return [...document.images].filter(i => !i.hasAttribute('alt')).map(i => i.outerHTML)"
        )
        == []
    )
    assert page.js("return document.documentElement.lang") == "en"
    assert page.js("return [...document.querySelectorAll('h1')].length") == 1
    for landmark in ("header", "main", "nav"):
        assert page.all(landmark), landmark
    ids = page.js("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    referred = page.js(
        """const all = document.querySelectorAll('[aria-describedby], [aria-labelledby], [for]');
        return [...all].flatMap(e => ['aria-describedby', 'aria-labelledby', 'for'].flatMap(
            a => (e.getAttribute(a) || '').split(/\\s+/).filter(Boolean)))"""
    )
    assert set(referred) - set(ids) == set()
    live = page.js(
        "return [...document.querySelectorAll('[aria-live], [role=status], [role=alert]')].map(e "
        "=> e.id)"
    )
    assert "toasts" in live and "compose-error" in live


def contrast(page, selector):
    """The ratio of WCAG between an element's colour and the first ground behind it."""
    return page.js(
        """
        const rgb = text => {
            const c = Object.assign(document.createElement('canvas'), {width: 1,
                height: 1}).getContext('2d', {willReadFrequently: true});
            c.fillStyle = text;
            c.fillRect(0, 0, 1, 1);
            return [...c.getImageData(0, 0, 1, 1).data];
        };
        const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92
            : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        const e = document.querySelector(arguments[0]);
        let ground = e;
        while (ground && rgb(getComputedStyle(ground).backgroundColor)[3] < 255)
            ground = ground.parentElement;
        const a = light(rgb(getComputedStyle(e).color));
        const b = light(ground ? rgb(getComputedStyle(ground).backgroundColor) : [255, 255, 255]);
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)""",
        selector,
    )


def ground(page):
    return page.js("return getComputedStyle(document.body).backgroundColor")


def test_light_and_dark_follow_the_system_and_the_switch(page, server):
    light = ground(page)
    page.scheme(dark=True)
    dark = page.until(lambda: ground(page) != light and ground(page), "another ground")
    seen = set()
    for _ in range(3):  # automatic -> light -> dark -> automatic
        page.click("#theme-switch")
        theme = page.js("return document.documentElement.dataset.theme || 'auto'")
        seen.add((theme, page.one("#theme-switch").get_attribute("aria-label")))
        page.until(
            lambda: ground(page) == {"light": light, "dark": dark, "auto": dark}[theme],
            f"the ground of {theme}",
        )
    assert {t for t, _ in seen} == {"auto", "light", "dark"} and len(
        {label for _, label in seen}
    ) == 3


def test_the_chosen_theme_is_remembered(page, server):
    page.click("#theme-switch")
    theme = page.js("return document.documentElement.dataset.theme")
    arrive(page, server)
    assert page.js("return document.documentElement.dataset.theme") == theme
    while page.js("return document.documentElement.dataset.theme || ''"):
        page.click("#theme-switch")


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(page, server, dark):
    page.scheme(dark)
    page.shown("#queue-empty")
    for selector in (
        "h2",
        "label",
        "#queue-empty",
        "#connection",
        "#btn-submit",
        "#btn-free",
        "#submit-hint",
        "nav a",
    ):
        page.until(
            lambda: contrast(page, selector) >= 4.5,
            f"{selector}: {contrast(page, selector)}",
            patience=5,
        )


@pytest.mark.parametrize("width, height", [(1440, 900), (820, 1180), (390, 844)])
def test_nothing_sticks_out_sideways(page, server, width, height):
    server.run(
        drawing(
            "a very long prompt " * 30 + "Donaudampfschifffahrtsgesellschaftskapitaensmuetze" * 4
        )
    )
    page.shown("#gallery-list [data-test=card]")
    page.size(width, height)
    page.until(lambda: page.js("return innerWidth") == width, "the width")
    assert page.js("return document.documentElement.scrollWidth") <= width
    for selector in (
        "#btn-submit",
        "#btn-free",
        "#btn-unload",
        "#btn-pause",
        "#f-prompt",
        "#devices",
    ):
        box = page.js(
            "const r = document.querySelector(arguments[0]).getBoundingClientRect(); return "
            "[r.left, r.right]",
            selector,
        )
        assert -1 <= box[0] and box[1] <= width + 1, selector


@pytest.mark.parametrize("width", [390, 360])
def test_the_tabs_fit_a_phone(page, width):
    page.size(width, 844)
    page.until(lambda: page.js("return innerWidth") == width, "the width")
    tabs = page.js(
        "return [...document.querySelectorAll('.jump a')].map((a) => [a.textContent, "
        "a.getBoundingClientRect().top,"
        " a.getBoundingClientRect().right])"
    )
    assert [t for t, _, _ in tabs] == ["Draw", "Queue", "Pictures", "Memory", "Models"]
    assert len({top for _, top, _ in tabs}) == 1 and all(right <= width - 8 for _, _, right in tabs)


def top(page, selector):
    return page.js(
        "const r = document.querySelector(arguments[0]).getBoundingClientRect(); return r.top + "
        "r.height / 2",
        selector,
    )


@pytest.mark.parametrize("width", [390, 360])
def test_buttons_keep_their_rows_on_a_phone(page, server, width):
    server.run(drawing())
    page.size(width, 844)
    page.until(lambda: page.js("return innerWidth") == width, "the width")
    for state in ("Live", "Reconnecting"):  # the longer one, too
        page.js("document.querySelector('#connection').textContent = arguments[0]", state)
        row = [top(page, s) for s in ("#btn-receipts", "#theme-switch", ".brand h1")]
        assert max(row) - min(row) < 3 and top(page, "#btn-unload") > max(row) + 10
    page.click("#btn-free")
    page.shown("#free-preview")
    box = page.js(
        "return ['#btn-free-cancel', '#btn-free-ok'].map((s) => "
        "document.querySelector(s).getBoundingClientRect())"
        ".map((r) => [r.left, r.right, r.top])"
    )
    left, right = min(b[0] for b in box), max(b[1] for b in box)
    same_row = (
        box[0][2] == box[1][2]
    )  # side by side with Cancel first, or one above the other and as wide
    assert (same_row and box[0][1] < box[1][0]) or all(b[:2] == [left, right] for b in box), box
    page.click("#btn-free-cancel")


def test_keys_are_not_spoken_of_where_there_are_none(page, server):
    assert page.one("#submit-hint").is_displayed()
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
            lambda: page.js("return matchMedia('(pointer: coarse)').matches"), "a touch screen"
        )
        page.gone("#submit-hint")
    finally:
        page.cdp("Emulation.setTouchEmulationEnabled", enabled=False)
        page.size(1440, 900)


def test_less_motion_is_honoured(page):
    page.cdp(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-reduced-motion", "value": "reduce"}],
    )
    moving = page.js("""return [...document.querySelectorAll('*')].filter(e => {
        const s = getComputedStyle(e);
        return parseFloat(s.animationDuration) > 0.01 || parseFloat(s.transitionDuration) > 0.01;
    }).map(e => e.outerHTML.slice(0, 100))""")
    assert moving == []


def test_keys_alone_draw_pause_and_open_a_picture(page, server):
    """Tab, Enter, Space, Escape and nothing else; where the focus is can be seen."""

    def tab_to(selector, most=200):
        for _ in range(most):
            page.keys(Keys.TAB)
            if page.js("return document.activeElement.matches(arguments[0])", selector):
                ring = page.js(
                    "const s = getComputedStyle(document.activeElement); return [s.outlineStyle, "
                    "s.boxShadow]"
                )
                assert ring[0] != "none" or ring[1] != "none", f"no sign of the focus on {selector}"
                return
        raise AssertionError(f"no way to {selector} by Tab")

    page.keys(Keys.TAB)
    assert page.js("return document.activeElement.matches('a.skip')")
    tab_to("#f-prompt")
    page.keys("a lighthouse")
    for field, value in (("#f-steps", "2"), ("#f-width", "64"), ("#f-height", "64")):
        tab_to(field)
        page.chord(Keys.CONTROL, "a")
        page.keys(value)
    page.chord(Keys.CONTROL, Keys.ENTER)
    page.shown("#gallery-list [data-test=card]")
    tab_to("#btn-pause")
    page.keys(Keys.SPACE)
    page.until_text("#btn-pause", "Resume")
    page.keys(Keys.ENTER)
    page.until_text("#btn-pause", "Pause")
    tab_to("#gallery-list [data-test=card] [data-test=open]")
    page.keys(Keys.ENTER)
    page.shown("#dlg-picture")
    assert page.js("return document.activeElement.closest('dialog')?.id") == "dlg-picture"
    page.keys(Keys.ESCAPE)
    page.gone("#dlg-picture")
    assert page.js("return !!document.activeElement.closest('#gallery')")  # back where it was
    (item,) = server.get("/history").json().values()
    assert "a lighthouse" in str(item["prompt"])


EVIL = '<img src=x onerror="document.title=`stolen`"><script>document.title="stolen"</script>'


def test_hostile_names_and_prompts_stay_text(chrome, tmp_path):
    name = "<img src=x onerror=alert(1)>.safetensors"
    base = base_with_model(tmp_path / "base", name)
    with Server(base, "--devices", DEVICES) as server:
        chrome.leave()
        arrive(chrome, server)
        server.run(drawing(EVIL, model=name))
        server.post("/berth/queue", {"paused": True})
        server.queue(drawing(EVIL, model=name, seed=3))
        chrome.click("#gallery-list [data-test=card] [data-test=open]")
        chrome.shown("#dlg-picture")
        assert EVIL in chrome.until_text("dd[data-fact=prompt]", "onerror")
        assert name in chrome.until_text("dd[data-fact=model]", "onerror")
        chrome.click("#btn-picture-close")
        chrome.until_text("[data-test=waiting]", "<img")
        chrome.until_text("#models [data-test=model]", "<img src=x")
        chrome.until_text("#legend", "<img")
        chrome.drop(
            "body",
            "<b>x.json",
            b'{"1": {"class_type": "<img src=x onerror=1>", "inputs": {"a": "<script>"}}}',
        )
        chrome.until_text("#dlg-workflow", "<img src=x")
        assert (
            chrome.js(
                'return document.querySelectorAll(\'img[src$="/x"], img[onerror], main script, '
                "dialog script').length"
            )
            == 0
        )
        assert "stolen" not in chrome.driver.title
        assert chrome.errors() == []
        policy = server.get("/berth").headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy and "unsafe" not in policy


def test_behind_a_token(chrome, tmp_path):
    base = base_with_model(tmp_path / "base")
    with Server(base, "--devices", DEVICES, "--token", "open-sesame") as server:
        assert server.get("/berth").status_code == 401
        chrome.driver.delete_all_cookies()
        chrome.leave()
        arrive(chrome, server, "/berth?token=open-sesame")
        assert "open-sesame" not in chrome.js("return location.href") + chrome.js(
            "return document.cookie"
        )
        chrome.shown("#devices [data-test=device]")
        arrive(chrome, server)  # the cookie is enough
        for field, value in (
            ("#f-prompt", "a key"),
            ("#f-steps", "2"),
            ("#f-width", "64"),
            ("#f-height", "64"),
        ):
            chrome.fill(field, value)
        chrome.click("#btn-submit")
        chrome.until(
            lambda: chrome.js(
                "return [...document.querySelectorAll('#gallery-list img')].some(i => "
                "i.naturalWidth > 0)"
            ),
            "the picture, for which the cookie is needed too",
        )
        assert chrome.errors() == []
        chrome.driver.delete_all_cookies()


POINTS = "return import('/berth/web/store.js').then((m) => m.state.points)"


def test_another_server_begins_another_timeline(chrome, tmp_path):
    """In the same tab, at the same address, with other devices; a reload of the same one keeps its
    line."""
    base = base_with_model(tmp_path / "base")
    with Server(base, "--devices", DEVICES) as server:
        chrome.leave()
        arrive(chrome, server)
        server.run(drawing())
        chrome.until(
            lambda: any(
                p["by"]["cuda:1"] is not None and p["by"]["cuda:0"]["weights"]
                for p in chrome.js(POINTS)
            ),
            "a point with weights",
        )
        arrive(chrome, server)
        assert any(p["by"]["cuda:0"]["weights"] for p in chrome.js(POINTS))
        chrome.leave()
    with Server(base, "--devices", "cpu=2g", "--port", server.port) as other:
        arrive(chrome, other)
        points = chrome.until(lambda: chrome.js(POINTS), "points")
        assert {name for p in points for name in p["by"]} == {"cpu"}
        assert chrome.errors() == []


def test_it_comes_back_when_the_server_does(chrome, tmp_path):
    base = base_with_model(tmp_path / "base")
    server = Server(base, "--devices", DEVICES).start()
    chrome.leave()
    arrive(chrome, server)
    server.run(drawing())
    chrome.shown("#gallery-list [data-test=card]")
    server.stop()
    chrome.until(
        lambda: chrome.one("#connection").get_attribute("data-state") != "live", "the loss noticed"
    )
    chrome.until(
        lambda: chrome.js("return document.documentElement.dataset.connected") == "0",
        "the loss noticed",
    )
    again = Server(base, "--devices", DEVICES, "--port", server.port).start()
    try:
        chrome.until_text("#connection", "Live")
        chrome.until(
            lambda: not chrome.all("#models [data-test=model]") or "0 B" in chrome.text("#models"),
            "what is loaded now: nothing",
        )
        chrome.until(
            lambda: not [p for p in chrome.js(POINTS) if p["by"]["cuda:0"]["weights"]],
            "nothing that was measured before",
        )
        again.run(drawing(seed=5))
        chrome.until(
            lambda: len(chrome.all("#gallery-list [data-test=card]")) == 2,
            "what came before and after",
        )
    finally:
        again.stop()


def test_what_is_shown_of_a_server_that_is_gone(chrome, tmp_path):
    """Queue and devices are of then, and say so; when it is back nothing says that it was gone."""
    base = base_with_model(tmp_path / "base")
    server = Server(base, "--devices", DEVICES).start()
    chrome.leave()
    arrive(chrome, server)
    server.queue(drawing("a long way", steps=LONG))
    chrome.until_text("#running-text", "left")
    assert not [e for e in chrome.all(".away") if e.is_displayed()]
    server.kill()
    chrome.until(
        lambda: [e.text for e in chrome.all("#queue .away, #memory .away") if e.is_displayed()]
        == ["not connected"] * 2,
        "that it is not connected",
    )
    chrome.until(lambda: "left" not in chrome.text("#running-text"), "no time left")
    assert not any(chrome.one(b).is_enabled() for b in ("#btn-interrupt", "#btn-pause"))
    for part in ("#running", "#devices"):
        assert (
            float(
                chrome.js(
                    "return getComputedStyle(document.querySelector(arguments[0])).opacity", part
                )
            )
            < 1
        )
    chrome.fill("#f-prompt", "nobody hears this")
    chrome.click("#btn-submit")
    chrome.until_text("#compose-error", "does not answer")
    again = Server(base, "--devices", DEVICES, "--port", server.port).start()
    try:
        chrome.until_text("#connection", "Live")
        chrome.gone("#compose-error")
        chrome.gone(".away")
        chrome.until(lambda: chrome.one("#btn-pause").is_enabled(), "buttons that do something")
        again.post("/queue", {"clear": True})
        again.post("/interrupt", {})
        again.until_idle()
    finally:
        again.stop()
        chrome.forget()


def test_without_a_model_it_says_what_to_do(chrome, tmp_path):
    with Server(tmp_path / "base", "--devices", DEVICES) as server:
        chrome.leave()
        arrive(chrome, server)
        text = chrome.until_text("#empty-models", "--demo")
        assert "--comfyui-dir" in text and chrome.one("#empty-models").is_displayed()
        assert (
            not chrome.one("#btn-submit").is_enabled()
            or not chrome.one("#btn-submit").is_displayed()
        )
        assert chrome.errors() == []
