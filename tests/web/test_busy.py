"""While a prompt runs: what changes memory waits for it, says so, and never keeps Interrupt from
getting through."""

import pytest

from browser import Keys
from conftest import LONG, drawing

HOLD = """
    window.real = window.real || window.fetch;
    window.held = [];
    const [method, path] = arguments;
    window.fetch = (url, o) => o?.method === method && String(url).startsWith(path)
        ? new Promise((yes, no) => {
              const signal = o.signal;
              held.push({signal, body: o.body, go: () => real(url, o).then(yes, no)});
              signal?.addEventListener('abort', () => no(new DOMException('aborted',
                  'AbortError')));
          })
        : real(url, o);
"""


@pytest.fixture
def loaded(page, server):
    server.run(drawing())
    page.until(lambda: len(page.all("#models [data-test=model]")) == 3, "three models")
    return {m["role"]: m["id"] for m in server.get("/berth/models").json()["models"]}


def start(page, server):
    """A prompt of somebody else, which runs until it is interrupted."""
    id = server.queue(drawing("long", steps=LONG, seed=99, size=128), client_id="somebody-else")[
        "prompt_id"
    ]
    page.until(
        lambda: page.one("#running").get_attribute("data-prompt-id") == id, "the running prompt"
    )
    page.shown("#btn-interrupt")
    return id


def model(server, id):
    return server.get(f"/berth/models/{id}").json()


def row(id, what=""):
    return f"[data-test=model][data-model='{id}'] {what}".strip()


def sent(page, method):
    return [
        p["request"]["url"]
        for _, p in page.events("Network.requestWillBeSent")
        if p["request"]["method"] == method
    ]


def test_what_waits_leaves_room_for_interrupt(page, server, loaded):
    """Six connections are all that a browser opens, for all tabs: no page takes more than two of
    them for waiting."""
    start(page, server)
    page.forget()
    for id in loaded.values():
        page.click(row(id, "[data-test=unload]"))
        page.click("#btn-confirm-ok")
        page.until_text(row(id, "[data-test=asked]"), "unload", "waits for the running prompt")
    assert len(sent(page, "DELETE")) == 2
    page.click("#btn-interrupt")
    page.until(
        lambda: not any(model(server, id).get("resident") for id in loaded.values()),
        "all three unloaded, the third as well",
    )
    assert len(sent(page, "DELETE")) == 3
    page.until(
        lambda: not any(e.is_displayed() for e in page.all("[data-test=asked]")),
        "nothing asked for any more",
    )


def test_a_look_that_nobody_waits_for_is_given_up(page, server, loaded):
    page.js(HOLD, "POST", "/free")
    page.click("#btn-free")
    page.until(lambda: page.js("return held.length") == 1, "the dry run")
    page.keys(Keys.ESCAPE)
    page.gone("#dlg-free")
    page.until(lambda: page.js("return held[0].signal.aborted"), "the request given up")
    assert not page.all("[data-test=toast]")


def test_a_look_is_answered_between_the_steps(page, server, loaded):
    start(page, server)
    page.click("#btn-unload")
    page.shown("#free-preview")
    assert server.get("/queue").json()["queue_running"]
    page.click("#btn-free-cancel")
    server.post("/interrupt", {})


def test_a_confirmed_free_happens_whether_or_not_its_dialog_is_open(page, server, loaded):
    page.click("#btn-unload")
    page.shown("#free-preview")
    start_id = server.queue(
        drawing("long", steps=LONG, seed=98, size=128), client_id="somebody-else"
    )["prompt_id"]
    page.until(
        lambda: page.one("#running").get_attribute("data-prompt-id") == start_id,
        "the running prompt",
    )
    page.click("#btn-free-ok")
    page.until_text("#free-wait", "waits for the running prompt")
    assert page.text("#btn-free-cancel") == "Close; it will still happen"
    page.click("#btn-free-cancel")
    page.gone("#dlg-free")
    page.click("#btn-free")  # another one, which the first one's answer must not close
    page.shown("#dlg-free")
    assert page.text("#btn-free-cancel") == "Cancel"
    server.post("/interrupt", {})
    page.until(lambda: page.all("[data-test=toast][data-receipt]"), "the receipt")
    assert page.one("#dlg-free").is_displayed() and "node cache" in page.text("#free-title")
    page.click("#btn-free-cancel")
    assert not any(m["resident"] for m in server.get("/berth/models").json()["models"])


def test_a_plan_that_is_applied_is_applied_once(page, server, loaded):
    unet = loaded["unet"]
    page.click(row(unet, "[data-test=plan]"))
    page.fill("#plan-allocation", "cuda:1,40%;cuda:0,*")
    page.click("#btn-plan-preview")
    page.until(lambda: page.one("#btn-plan-apply").is_enabled(), "Apply")
    start(page, server)
    page.forget()
    page.click("#btn-plan-apply")
    page.until_text("#plan-hint", "waits for the running prompt", "still happen")
    page.js(
        "document.querySelector('#plan-allocation').dispatchEvent(new Event('input', {bubbles: "
        "true}))"
    )
    assert (
        not page.one("#btn-plan-apply").is_enabled()
        and not page.one("#btn-plan-preview").is_enabled()
    )
    page.keys(Keys.ESCAPE)
    page.gone("#dlg-plan")
    page.click(row(loaded["vae"], "[data-test=plan]"))
    page.shown("#dlg-plan")
    assert "Look" in page.text("#plan-hint") and page.one("#btn-plan-preview").is_enabled()
    server.post("/interrupt", {})
    page.until(lambda: set(model(server, unet)["devices"]) == {"cuda:0", "cuda:1"}, "the new plan")
    page.until(lambda: page.all("[data-test=toast][data-kind=done]"), "it is said")
    assert page.one("#dlg-plan").is_displayed() and len(sent(page, "PATCH")) == 1
    page.click("#btn-plan-close")


def test_a_wish_is_shown_until_it_is_answered(page, server, loaded):
    """Retention: the switch stays where it was put, and the last of several wishes counts."""
    clip = loaded["clip"]
    start(page, server)
    page.js(HOLD, "PATCH", "/berth/models/")
    page.click(row(clip, "[data-test=retention][value=keep]"))
    page.until_text(row(clip, "[data-test=asked]"), "keep", "waits for the running prompt")
    server.post(
        "/queue", {"delete": [server.queue(drawing(seed=5))["prompt_id"]]}
    )  # something else changes, the page is drawn again
    page.js("return import('/berth/web/data.js').then(m => m.loadModels())")
    assert page.one(row(clip, "[data-test=retention][value=keep]")).is_selected()
    page.click(row(clip, "[data-test=retention][value=eject]"))
    assert page.js("return held.length") == 1  # the second wish waits for the first one's answer
    page.js("window.fetch = real; held[0].go()")
    page.until(lambda: model(server, clip)["retention"] == "eject", "the last wish")
    page.until(
        lambda: page.one(row(clip, "[data-test=retention][value=eject]")).is_selected()
        and not page.one(row(clip, "[data-test=asked]")).is_displayed(),
        "the switch agrees",
    )
    server.post("/interrupt", {})


def test_the_time_that_is_left_is_measured_from_when_we_came(page, server):
    """The steps that a prompt took before the page was there took no time that the page knows
    of."""
    script = page.cdp(
        "Page.addScriptToEvaluateOnNewDocument",
        source="""
        window.told = [];
        document.addEventListener('DOMContentLoaded', () => {
            const at = document.getElementById('running-text');
            new MutationObserver(() => told.push(at.textContent)).observe(at, {childList: true,
                characterData: true, subtree: true});
        });""",
    )["identifier"]
    start(page, server)
    page.until(
        lambda: server.get("/berth/queue").json()["executing"]["value"] > 20,
        "steps before the page is there",
    )
    try:
        page.open(server.url + "/berth")
        steps = page.until(
            lambda: [t for t in page.js("return window.told || []") if t.startswith("step ")],
            "steps",
        )
        assert "left" not in steps[0], steps
        page.until(
            lambda: "left" in page.text("#running-text"),
            "a guess, when there is something to guess from",
        )
    finally:
        page.cdp("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
        server.post("/interrupt", {})


def test_a_node_is_named_by_its_id_not_counted_by_it(page, server):
    flow = drawing("far", steps=LONG, size=128)
    flow["550"] = flow.pop("5")
    flow["6"]["inputs"]["samples"] = ["550", 0]
    server.queue(flow, client_id="somebody-else")
    text = page.until_text("#running-node", "KSampler", "550")
    assert " of " not in text
    server.post("/interrupt", {})


def test_a_prompt_that_fails_is_said_where_it_was_drawn(page, server):
    flow = drawing()
    flow["7"]["inputs"]["filename_prefix"] = "../out"
    server.queue(flow, client_id=page.js("return document.documentElement.dataset.client"))
    assert "SaveImage" in page.shown("[data-test=toast][data-kind=error]").text


def test_failures_do_not_pile_up_and_go_when_they_are_looked_at(page, server):
    client = page.js("return document.documentElement.dataset.client")
    for seed, name in ((1, "../out"), (2, "../elsewhere")):
        flow = drawing(seed=seed)
        flow["7"]["inputs"]["filename_prefix"] = name
        id = server.queue(flow, client_id=client)["prompt_id"]
        page.shown(f"[data-test=toast][data-failed='{id}']")
    assert len(page.all("[data-test=toast]")) == 1
    page.click(f"[data-test=card][data-prompt-id='{id}'] [data-test=open]")
    page.until_text("#picture-error", "SaveImage")
    page.gone("[data-test=toast]")  # the dialog says it
    page.click("#btn-picture-close")
