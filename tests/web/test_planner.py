"""Models: what is kept and what may go, and the plan editor, which shows before it moves."""

import pytest
import requests

from conftest import drawing


@pytest.fixture
def unet(page, server):
    server.run(drawing())
    page.until(lambda: len(page.all("#models [data-test=model]")) == 3, "three models")
    return next(
        m["id"] for m in server.get("/berth/models").json()["models"] if m["role"] == "unet"
    )


def model(server, id):
    return server.get(f"/berth/models/{id}").json()


def row(id, what=""):
    return f"[data-test=model][data-model='{id}'] {what}".strip()


def edit(page, id, mode=None):
    page.click(row(id, "[data-test=plan]"))
    page.shown("#dlg-plan")
    if mode:
        page.click(f"#dlg-plan input[name=plan-mode][value={mode}]")


def bars(page, which):
    """{device: bytes} of a preview's side, devices that hold nothing left out."""
    found = page.js(
        "return [...document.querySelectorAll(`#plan-result [data-test=${arguments[0]}]`)].map(e "
        "=> [e.dataset.device, +e.dataset.bytes])",
        which,
    )
    return {d: n for d, n in found if n}


def test_a_model_says_where_it_is(page, server, unet):
    m = model(server, unet)
    assert "cuda:0" in page.until_text(row(unet), "MiB")
    assert (
        int(page.one(row(unet, "[data-test=bytes]")).get_attribute("data-resident"))
        == m["resident"]
    )
    assert m["state"] in page.text(row(unet, "[data-test=state]"))


@pytest.mark.parametrize("retention", ["keep", "eject", "auto"])
def test_retention_is_a_switch(page, server, unet, retention):
    other = "auto" if retention != "auto" else "keep"
    for value in (other, retention):
        page.click(row(unet, f"[data-test=retention][value={value}]"))
        page.until(lambda: model(server, unet)["retention"] == value, value)
    page.until(
        lambda: page.one(row(unet, f"[data-test=retention][value={retention}]")).is_selected(),
        "the switch",
    )
    group = page.js(
        "const r = document.querySelector(arguments[0]); return [r.name, !!r.closest('fieldset, "
        "[role=radiogroup]')]",
        row(unet, "[data-test=retention]"),
    )
    assert group[0] and group[1]


def test_retention_that_others_set_is_seen(page, server, unet):
    assert (
        requests.patch(
            f"{server.url}/berth/models/{unet}", json={"retention": "keep"}, timeout=60
        ).status_code
        == 200
    )
    page.until(
        lambda: page.one(row(unet, "[data-test=retention][value=keep]")).is_selected(), "keep"
    )


def test_unload_takes_this_one_only(page, server, unet):
    page.click(row(unet, "[data-test=unload]"))
    page.click("#btn-confirm-ok")
    page.until(lambda: model(server, unet).get("resident", 0) == 0, "no bytes")
    page.shown("[data-test=toast][data-receipt]")
    assert sum(m["resident"] > 0 for m in server.get("/berth/models").json()["models"]) == 2


def test_unload_of_a_kept_one_says_so_first(page, server, unet):
    page.click(row(unet, "[data-test=retention][value=keep]"))
    page.until(lambda: model(server, unet)["retention"] == "keep", "keep")
    page.click(row(unet, "[data-test=unload]"))
    page.shown("#dlg-confirm")
    assert "keep" in page.text("#confirm-text")
    page.click("#btn-confirm-cancel")
    page.gone("#dlg-confirm")
    assert model(server, unet)["resident"] > 0
    page.click(row(unet, "[data-test=unload]"))
    page.click("#btn-confirm-ok")
    page.until(lambda: model(server, unet).get("resident", 0) == 0, "no bytes")


def test_a_plan_is_previewed_before_it_is_applied(page, server, unet):
    before = model(server, unet)["devices"]
    edit(page, unet, "allocation")
    assert not page.one("#btn-plan-apply").is_enabled()
    page.fill("#plan-allocation", "cuda:0,40%;cuda:1,30%;cpu,*")
    assert not page.one("#btn-plan-apply").is_enabled()  # not without a look
    page.click("#btn-plan-preview")
    page.shown("#plan-result")
    page.until(lambda: bars(page, "plan-now") == before, f"now: {before}")
    after = bars(page, "plan-after")
    moves = int(page.one("#plan-result").get_attribute("data-moves"))
    assert (
        len(after) == 3
        and sum(after.values()) == sum(before.values())
        and moves == sum(before.values()) - after["cuda:0"]
    )
    assert model(server, unet)["devices"] == before  # nothing moved yet
    page.click("#btn-plan-apply")
    page.until(lambda: model(server, unet)["devices"] == after, f"what was shown: {after}")
    assert model(server, unet)["moved"] == moves
    for device, bytes in after.items():
        page.until(
            lambda: page.js(
                "return +document.querySelector(arguments[0])?.dataset.bytes",
                f"[data-test=device][data-device='{device}'] "
                f"[data-test=segment][data-model='{unet}']",
            )
            == bytes,
            f"{bytes} in the bar of {device}",
        )


def test_other_values_want_another_preview(page, server, unet):
    edit(page, unet, "allocation")
    page.fill("#plan-allocation", "cpu,*")
    page.click("#btn-plan-preview")
    page.until(lambda: page.one("#btn-plan-apply").is_enabled(), "Apply")
    page.fill("#plan-allocation", "cuda:1,*")
    page.until(
        lambda: not page.one("#btn-plan-apply").is_enabled(), "no Apply for what was not looked at"
    )
    page.click("#dlg-plan input[name=plan-layout][value=tail]")
    page.click("#btn-plan-preview")
    page.until(
        lambda: page.one("#btn-plan-apply").is_enabled() and "cpu" not in bars(page, "plan-after"),
        "the new plan",
    )
    assert bars(page, "plan-after")["cuda:1"] > 0
    page.click("#btn-plan-close")
    page.gone("#dlg-plan")


def test_what_is_typed_first_replaces_the_plan_there_was(page, server, unet):
    edit(page, unet)
    assert page.js("return document.querySelector('#plan-allocation').value")
    page.keys("cpu,*")
    assert page.js("return document.querySelector('#plan-allocation').value") == "cpu,*"
    page.click("#btn-plan-close")


def test_a_wrong_allocation_is_said_in_the_servers_words(page, server, unet):
    """But for one, the name of the nodes' input: the field is called Allocation here."""
    edit(page, unet, "allocation")
    page.fill("#plan-allocation", "cuda:7,*")
    page.click("#btn-plan-preview")
    error = page.until_text("#plan-error", "cuda:7")
    assert "Allocation: unknown device" in error and "expert_mode" not in error
    assert not page.one("#btn-plan-apply").is_enabled()
    page.click("#btn-plan-close")
    page.forget()  # the 400 is in the console


def test_examples_fill_the_field(page, server, unet):
    edit(page, unet, "allocation")
    count = len(page.until(lambda: page.all("#plan-examples [data-test=plan-example]"), "examples"))
    for i in range(count):
        page.js(
            "document.querySelectorAll('#plan-examples "
            "[data-test=plan-example]')[arguments[0]].click()",
            i,
        )
        assert page.js("return document.querySelector('#plan-allocation').value")
        page.click("#btn-plan-preview")
        page.until(
            lambda: page.one("#btn-plan-apply").is_enabled(),
            f"example {i} is a plan: {page.text('#plan-error')}",
        )
    page.click("#btn-plan-close")


def test_virtual_vram_on_a_donor(page, server, unet):
    edit(page, unet, "virtual")
    page.fill("#plan-virtual", "0.01")
    page.choose("#plan-donor", "cpu")
    page.choose("#plan-compute", "cuda:0")
    page.click("#btn-plan-preview")
    page.until(lambda: set(bars(page, "plan-after")) == {"cuda:0", "cpu"}, "both")
    after = bars(page, "plan-after")
    page.click("#btn-plan-apply")
    page.until(lambda: model(server, unet)["devices"] == after, f"{after}")


def test_the_compute_device_is_no_donor(page, server, unet):
    def donors():
        return page.js(
            "return [...document.querySelector('#plan-donor').options].map((o) => o.value)"
        )

    edit(page, unet, "virtual")
    page.choose("#plan-compute", "cuda:0")
    assert donors() == ["cpu", "cuda:1"]
    page.choose("#plan-donor", "cuda:1")
    page.choose("#plan-compute", "cuda:1")
    assert donors() == ["cpu", "cuda:0"] and page.one("#plan-donor").get_property("value") == "cpu"
    page.click("#btn-plan-close")


def test_a_plan_of_one_that_is_not_loaded_is_for_its_next_load(page, server, unet):
    requests.delete(f"{server.url}/berth/models/{unet}", timeout=60)
    page.until(
        lambda: page.one(row(unet, "[data-test=bytes]")).get_attribute("data-resident") == "0",
        "nothing of it",
    )
    edit(page, unet, "allocation")
    page.fill("#plan-allocation", "cuda:0,50%;cuda:1,25%")
    page.click("#btn-plan-preview")
    page.until_text("#plan-result", "Not loaded", "the shares make 75 %")
    assert "next load" in page.text("#plan-hint")
    after = bars(page, "plan-after")
    page.click("#btn-plan-apply")
    page.until_text("[data-test=toast]", "when it is loaded next")
    assert model(server, unet)["resident"] == 0
    server.run(drawing(seed=4))
    assert model(server, unet)["devices"] == after


@pytest.mark.parametrize("value", ["", "abc"])
def test_virtual_vram_that_is_no_number_is_not_nothing(page, server, unet, value):
    edit(page, unet, "virtual")
    page.fill("#plan-virtual", value)
    page.click("#btn-plan-preview")
    page.until_text("#plan-error", "number")
    assert page.one("#plan-virtual").get_attribute("aria-invalid") == "true"
    assert not page.one("#btn-plan-apply").is_enabled()
    page.click("#btn-plan-close")


def test_what_is_wrong_is_said_by_the_fields_label(page, server, unet):
    edit(page, unet, "virtual")
    page.fill("#plan-virtual", "500")
    page.click("#btn-plan-preview")
    assert page.until_text("#plan-error", "from 0 to 128").startswith(
        "GiB that live elsewhere: not a number"
    )
    page.click("#btn-plan-close")
    edit(page, unet, "allocation")
    page.fill("#plan-allocation", "cuda:0,4tb")
    page.click("#btn-plan-preview")
    page.until_text("#plan-error", 'unknown unit "tb", not b, kb, mb, gb or %')
    page.click("#btn-plan-close")
    page.forget()  # the 400s are in the console


def test_automatic_and_another_compute_device(page, server, unet):
    edit(page, unet, "auto")
    page.choose("#plan-compute", "cuda:1")
    page.click("#btn-plan-preview")
    page.until(lambda: page.one("#btn-plan-apply").is_enabled(), "Apply")
    page.click("#btn-plan-apply")
    page.until(lambda: model(server, unet)["plan"]["compute"] == "cuda:1", "it computes on cuda:1")
    assert server.run(drawing(seed=3))["status"]["status_str"] == "success"
