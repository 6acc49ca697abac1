"""The two buttons: a preview that does nothing, then exactly what it said, with a receipt."""

import pytest

from browser import Keys
from conftest import arrive, drawing


@pytest.fixture
def loaded(page, server):
    """One picture drawn: three models are on cuda:0, and their nodes are cached."""
    server.run(drawing())
    page.until(lambda: len(page.all("#models [data-test=model]")) == 3, "three models")
    return {m["role"]: m["id"] for m in server.get("/berth/models").json()["models"]}


def resident(server):
    return {m["id"]: m["resident"] for m in server.get("/berth/models").json()["models"]}


def listed(page, what):
    return page.js(
        "return [...document.querySelectorAll(`#dlg-free [data-test=${arguments[0]}]`)].map(e => "
        "+e.dataset.model)",
        what,
    )


def used(server, device="cuda:0"):
    return next(
        sum(d["tiers"].values())
        for d in server.get("/berth/devices").json()["devices"]
        if d["name"] == device
    )


def executed(server, prompt):
    """Nodes that ran, of a prompt that is run again."""
    item = server.run(prompt)
    cached = next(m[1]["nodes"] for m in item["status"]["messages"] if m[0] == "execution_cached")
    return set(prompt) - set(cached)


@pytest.mark.parametrize(
    "button, title", [("#btn-unload", "Unload Models"), ("#btn-free", "Free model and node cache")]
)
def test_the_preview_does_nothing(page, server, loaded, button, title):
    before = resident(server)
    assert page.text(button).strip() == title
    page.click(button)
    page.shown("#free-preview")
    assert title in page.text("#free-title")
    page.until(
        lambda: sorted(listed(page, "goes")) == sorted(loaded.values()), "all three would go"
    )
    assert listed(page, "stays") == []
    row = page.one("#dlg-free [data-test=free-device][data-device='cuda:0']")
    assert int(row.get_attribute("data-before")) == used(server) > 0
    assert int(row.get_attribute("data-after")) < int(row.get_attribute("data-before"))
    assert page.text("#btn-free-ok").startswith(
        "Free about "
    )  # buffers come and go between a look and a free
    page.click("#btn-free-cancel")
    page.gone("#dlg-free")
    assert resident(server) == before
    assert not page.all("[data-test=toast][data-receipt]")


def test_unload_models_leaves_the_node_cache(page, server, loaded):
    page.click("#btn-unload")
    page.until(lambda: len(listed(page, "goes")) == 3, "the preview")
    page.click("#btn-free-ok")
    toast = page.shown("[data-test=toast][data-receipt]")
    assert toast.get_attribute("data-kind") == "done" and "MiB" in toast.text
    assert set(resident(server).values()) <= {0}
    page.until(
        lambda: not page.all("[data-test=device] [data-test=segment][data-model]"), "empty bars"
    )
    assert executed(server, drawing()) == set()  # every node is still cached


def test_free_takes_the_node_cache_too(page, server, loaded):
    page.click("#btn-free")
    page.until(lambda: len(listed(page, "goes")) == 3, "the preview")
    page.click("#btn-free-ok")
    page.shown("[data-test=toast][data-receipt]")
    assert set(resident(server).values()) <= {0}
    assert used(server) == 0
    assert executed(server, drawing()) == set(drawing())


def test_kept_models_stay_and_are_said_to(page, server, loaded):
    page.click(
        f"[data-test=model][data-model='{loaded['unet']}'] [data-test=retention][value=keep]"
    )
    page.until(
        lambda: server.get(f"/berth/models/{loaded['unet']}").json()["retention"] == "keep", "keep"
    )
    page.click("#btn-unload")
    page.until(lambda: listed(page, "stays") == [loaded["unet"]], "the kept one stays")
    assert sorted(listed(page, "goes")) == sorted([loaded["clip"], loaded["vae"]])
    page.click("#btn-free-ok")
    page.shown("[data-test=toast][data-receipt]")
    after = resident(server)
    assert after[loaded["unet"]] > 0 and not any(n for i, n in after.items() if i != loaded["unet"])


def test_only_marked_models_go_when_some_are_marked(page, server, loaded):
    page.click(
        f"[data-test=model][data-model='{loaded['vae']}'] [data-test=retention][value=eject]"
    )
    page.until(
        lambda: server.get(f"/berth/models/{loaded['vae']}").json()["retention"] == "eject", "eject"
    )
    page.click("#btn-unload")
    page.until(lambda: listed(page, "goes") == [loaded["vae"]], "the marked one, and nothing else")
    page.click("#btn-free-cancel")


def test_receipts_can_be_opened_again(page, server, loaded):
    def listed():
        return page.js(
            "return [...document.querySelectorAll('#receipts-list [data-test=receipt]')].map((e) "
            "=> +e.dataset.serial)"
        )

    last = server.get("/berth/receipts").json()["receipts"][0]["serial"]
    for button in ("#btn-unload", "#btn-free"):
        page.click(button)
        page.shown("#free-preview")
        page.click("#btn-free-ok")
        page.gone("#dlg-free")
    page.click("#btn-receipts")
    page.until(lambda: listed()[:2] == [last + 2, last + 1], "two more receipts, the newest first")
    assert "cuda:0" in page.text("#receipts-list") and "tiny · unet" in page.text("#receipts-list")
    server.post(
        "/free", {"unload_models": True, "reason": "a shell", "wait": True}
    )  # somebody else, while it is open
    page.until_text(f"#receipts-list [data-serial='{last + 3}']", "a shell")
    page.click("#btn-receipts-close")
    page.gone("#dlg-receipts")
    arrive(page, server)
    page.click("#btn-receipts")
    page.until(lambda: listed()[:3] == [last + 3, last + 2, last + 1], "the same after a reload")
    assert "tiny · unet" in page.text("#receipts-list")
    page.click("#btn-receipts-close")


def test_a_toast_can_be_closed(page, server, loaded):
    page.click("#btn-unload")
    page.shown("#free-preview")
    page.click("#btn-free-ok")
    page.shown("[data-test=toast][data-receipt]")
    page.click("[data-test=toast][data-receipt] [data-test=toast-close]")
    page.gone("[data-test=toast][data-receipt]")


def test_escape_frees_nothing(page, server, loaded):
    page.click("#btn-free")
    page.shown("#free-preview")
    page.keys(Keys.ESCAPE)
    page.gone("#dlg-free")
    assert all(resident(server).values())
