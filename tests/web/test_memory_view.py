"""What lies where: devices as bars with blocks coloured by owner, strips in execution order, the
timeline, and streaming."""

import json

import pytest

from browser import Keys
from conftest import LONG, arrive, drawing

SPLIT = "cuda:0,30%;cuda:1,30%;cpu,*"


def devices(server):
    return {d["name"]: d for d in server.get("/berth/devices").json()["devices"]}


def models(server):
    return server.get("/berth/models").json()["models"]


def segments(page, device):
    """What a device's bar shows: [{tier, model, bytes, blocks, colour, width}], left to right."""
    return page.js(
        """
        const bar = `[data-test=device][data-device="${arguments[0]}"] [data-test=segment]`;
        return [...document.querySelectorAll(bar)].map(e => ({
            tier: e.dataset.tier, model: e.dataset.model ? +e.dataset.model : null,
            bytes: +e.dataset.bytes, blocks: +e.dataset.blocks,
            colour: getComputedStyle(e).backgroundColor, width: e.getBoundingClientRect().width,
            name: e.getAttribute('aria-label')}))""",
        device,
    )


def weights(page, device):
    return {s["model"]: s for s in segments(page, device) if s["model"] is not None}


def test_every_device_has_a_bar_as_long_as_its_budget(page, server):
    for name, d in devices(server).items():
        bar = page.shown(f"[data-test=device][data-device='{name}']")
        assert int(bar.get_attribute("data-budget")) == d["budget"]
        assert name in bar.text
        assert page.shown(
            f"[data-test=device][data-device='{name}'] [data-test=bar]"
        ).get_attribute("aria-label")


def test_blocks_are_coloured_by_their_owner(page, server):
    server.run(drawing(expert_mode_allocations=SPLIT))
    placed = {m["id"]: m for m in models(server)}
    for name in devices(server):
        expected = {i: m["devices"][name] for i, m in placed.items() if m["devices"].get(name)}
        page.until(
            lambda: {i: s["bytes"] for i, s in weights(page, name).items()} == expected,
            f"the weights on {name}: {expected}",
        )
    split = next(i for i, m in placed.items() if len(m["devices"]) == 3)
    colours = {i: weights(page, "cuda:0")[i]["colour"] for i in weights(page, "cuda:0")}
    assert len(colours) == 3 and len(set(colours.values())) == 3  # UNet, CLIP and VAE told apart
    assert (
        len({weights(page, n)[split]["colour"] for n in devices(server)}) == 1
    )  # one owner, one colour everywhere
    page.until(
        lambda: sum(weights(page, n)[split]["blocks"] for n in devices(server))
        == placed[split]["blocks"],
        "all its blocks",
    )
    assert all(
        s["width"] > 0 and s["name"] for n in devices(server) for s in weights(page, n).values()
    )
    for i in placed:  # not by colour alone: the legend names each, and each has a letter
        assert page.shown(f"#legend [data-test=legend-model][data-model='{i}']").text.strip()
    letters = [
        e.text
        for e in page.all(
            "[data-test=device][data-device='cuda:0'] [data-test=segment][data-model]"
        )
    ]
    assert len(set(letters)) == len(letters)


def test_a_segment_steps_through_its_blocks_by_keys(page, server):
    server.run(drawing(expert_mode_allocations=SPLIT))
    unet = next(m["id"] for m in models(server) if m["role"] == "unet")
    selector = f"[data-test=device][data-device='cuda:1'] [data-test=segment][data-model='{unet}']"
    page.until(lambda: int(page.one(selector).get_attribute("data-blocks")) > 2, "its blocks")
    page.js("document.querySelector(arguments[0]).focus()", selector)
    page.keys(Keys.ARROW_RIGHT)
    first = page.until(
        lambda: page.one("#block-tip").is_displayed() and page.text("#block-tip"), "the tip"
    )
    page.keys(Keys.ARROW_RIGHT)
    page.until(lambda: page.text("#block-tip") != first, "the next block")
    assert "cuda:1" in page.text("#block-tip")
    names = [b["name"] for b in server.get(f"/berth/models/{unet}?blocks=1").json()["blocks"]]
    assert any(n in page.text("#block-tip") for n in names)


def test_strips_show_blocks_in_execution_order(page, server):
    server.run(drawing(expert_mode_allocations=SPLIT))
    unet = next(m["id"] for m in models(server) if m["role"] == "unet")
    blocks = server.get(f"/berth/models/{unet}?blocks=1").json()["blocks"]
    page.shown(f"[data-test=strip][data-model='{unet}']")
    for device in devices(server):
        expected = sum(b["device"] == device for b in blocks)
        page.until(
            lambda: page.js(
                "return [...document.querySelectorAll(arguments[0])].map(e => +e.dataset.blocks)",
                f"[data-test=strip][data-model='{unet}'] [data-test=lane][data-device='{device}']",
            )
            == [expected],
            f"{expected} blocks in the lane of {device}",
        )


def test_other_tiers_are_told_apart(page, server):
    server.run(drawing(size=128))
    page.until(
        lambda: any(s["tier"] == "pool-idle" for s in segments(page, "cuda:0")),
        "idle memory of the pool",
    )
    owned = {s["colour"] for s in segments(page, "cuda:0") if s["model"] is not None}
    assert all(
        s["colour"] not in owned for s in segments(page, "cuda:0") if s["tier"] == "pool-idle"
    )
    page.shown("#legend [data-test=legend-tier][data-tier='pool-idle']")


def test_bars_move_while_a_prompt_runs(page, server):
    server.queue(drawing(steps=LONG, size=256))
    page.until(
        lambda: any(
            s["tier"] == "activations" and s["bytes"] > 0 for s in segments(page, "cuda:0")
        ),
        "activations on the device that computes, before the prompt has ended",
    )
    used = page.one("[data-test=device][data-device='cuda:0']").get_attribute("data-used")
    assert int(used) > 0
    server.post("/interrupt", {})


def test_the_timeline_grows_and_has_a_table(page, server):
    before = int(page.one("#timeline").get_attribute("data-points"))
    server.run(drawing(size=128, steps=6))
    page.until(
        lambda: int(page.one("#timeline").get_attribute("data-points")) > max(before, 1),
        "more points",
    )
    assert (
        page.js(
            "return document.querySelectorAll('#timeline path, #timeline polyline, #timeline "
            "polygon, #timeline rect').length"
        )
        > 0
    )
    for name in devices(server):
        page.click(f"[data-test=timeline-device][data-device='{name}']")
        page.until(
            lambda: page.one(f"[data-test=timeline-device][data-device='{name}']").get_attribute(
                "aria-pressed"
            )
            == "true",
            name,
        )
        page.until(
            lambda: name in page.one("#timeline").get_attribute("aria-label"),
            "a text for those who do not see it",
        )
    page.click("#timeline-details summary")
    page.until(lambda: len(page.all("#timeline-text tbody tr")) > 0, "the table")


def test_kinds_of_memory_are_told_apart_on_the_timeline(page, server):
    """By a legend, a pattern and a title; and in none of the colours that mean a model."""
    server.run(drawing(size=128, steps=6))
    page.click("[data-test=timeline-device][data-device='cuda:0']")
    page.shown("#timeline-legend [data-test=timeline-tier][data-tier=weights]")
    areas = page.until(
        lambda: page.js(
            "return [...document.querySelectorAll('#timeline .area')].map(e => "
            "[e.dataset.tier, getComputedStyle(e).fill, "
            "e.nextElementSibling?.querySelector('title')?.textContent])"
        ),
        "areas",
    )
    legend = [
        e.get_attribute("data-tier") for e in page.all("#timeline-legend [data-test=timeline-tier]")
    ]
    assert [a[0] for a in areas] == legend and all(a[2] for a in areas)
    models = {s["colour"] for s in segments(page, "cuda:0") if s["model"] is not None}
    assert models and not models & {a[1] for a in areas}


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_server_whose_clock_is_wrong_is_drawn_now(tapped, server, hours):
    message = tapped.until(
        lambda: tapped.js("return heard.find(m => m.type === 'berth.memory')"), "berth.memory"
    )
    message["data"]["time"] += hours * 3_600_000
    tapped.js(
        "tapped.dispatchEvent(new MessageEvent('message', {data: arguments[0]}))",
        json.dumps(message),
    )
    away = tapped.driver.execute_async_script(
        "import('/berth/web/store.js').then(m => "
        "arguments[0](Math.abs(m.state.points.at(-1).time - Date.now())))"
    )
    assert away < 600_000


def test_what_was_before_is_on_the_timeline_of_who_comes_later(page, server):
    server.run(drawing(size=128, steps=6))
    arrive(page, server)
    assert int(page.one("#timeline").get_attribute("data-points")) > 1


TAP = """
    const Real = window.WebSocket;
    window.heard = [];
    window.WebSocket = class extends Real {
        constructor(...args) {
            super(...args);
            window.tapped = this;
            this.addEventListener('message', e =>
                { if (typeof e.data === 'string') heard.push(JSON.parse(e.data)); });
        }
    };
"""


@pytest.fixture
def tapped(page, server):
    """The page with its socket in the test's hands: window.heard, and window.tapped to say
    something on it."""
    script = page.cdp("Page.addScriptToEvaluateOnNewDocument", source=TAP)["identifier"]
    arrive(page, server)
    yield page
    page.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script)


def test_streaming_is_shown_in_gigabytes_a_second(tapped, server):
    """Memory of this machine is computed with where it lies, so that nothing is streamed without a
    card: the server's own message is said again with the numbers of one."""
    message = tapped.until(
        lambda: tapped.js("return heard.find(m => m.type === 'berth.memory')"), "berth.memory"
    )
    stream = message["data"]["stream"]
    assert (
        set(stream) >= {"bytes", "seconds", "exposed_seconds", "gb_per_s"}
        and stream["gb_per_s"] == 0
    )
    assert float(tapped.one("#stream-now").get_attribute("data-gbps")) == 0
    tapped.until_text("#stream-total", "pretend cards share RAM")
    for i, speed in enumerate((11.5, 23.25)):
        message["data"]["time"] += 1000
        message["data"]["stream"] = {
            "bytes": (i + 1) * 5_000_000_000,
            "seconds": i + 1.0,
            "exposed_seconds": 0.1,
            "gb_per_s": speed,
        }
        tapped.js(
            "tapped.dispatchEvent(new MessageEvent('message', {data: arguments[0]}))",
            json.dumps(message),
        )
        tapped.until(
            lambda: float(tapped.one("#stream-now").get_attribute("data-gbps")) == speed,
            f"{speed} GB/s",
        )
    tapped.until_text("#stream-now", "23", "GB/s")
    assert int(tapped.one("#stream-spark").get_attribute("data-points")) >= 2
    assert "GB" in tapped.text("#stream-total") or "GiB" in tapped.text("#stream-total")
    assert "GB/s" in tapped.one("#stream-spark").get_attribute("aria-label")


def test_a_card_that_streamed_nothing_yet_is_no_pretend_one(page, server):
    page.until_text("#stream-total", "pretend cards share RAM")
    page.js("""
        Promise.all([import('/berth/web/store.js'), import('/berth/web/data.js')]).then(([store,
            data]) =>
            data.takeDevices(store.state.devices.map(d => ({...d, kind: d.name === 'cuda:0' ? 'cuda'
                : d.kind}))))""")
    page.until(lambda: page.text("#stream-total") == "nothing streamed", "no word of pretending")


def test_messages_are_few(tapped, server):
    """At most four a second: a page that is drawn with every step would be slower than the
    sampler."""
    server.run(drawing(size=128, steps=30))
    times = [
        m["data"]["time"] for m in tapped.js("return heard.filter(m => m.type === 'berth.memory')")
    ]
    assert len(times) > 1
    assert len(times) <= 2 + 4 * (times[-1] - times[0]) / 1000 + 1
