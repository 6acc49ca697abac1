"""The prompt box, and workflows that come as files: dropped, or chosen."""

import json
import struct
import zlib

import pytest

from browser import Keys
from conftest import MODEL, Server, arrive, base_with_model, drawing, image_prompt, synth

SMALL = (("#f-steps", 2), ("#f-width", 64), ("#f-height", 64))


def fill(page, text, *more):
    page.fill("#f-prompt", text)
    for field, value in (*SMALL, *more):
        page.fill(field, value)


def the_only(server):
    """The workflow of the only prompt the server remembers, when it has ended."""
    server.until_idle()
    (item,) = server.get("/history").json().values()
    return item["prompt"][2], item


def nodes(workflow, kind):
    return [n["inputs"] for n in workflow.values() if n["class_type"] == kind]


def test_everything_that_was_filled_in_is_in_the_workflow(page, server):
    fill(page, "a red boat", ("#f-cfg", 3.5), ("#f-batch", 2))
    page.click("#more-negative summary")
    page.fill("#f-negative", "fog")
    page.choose("#f-model", MODEL)
    page.choose("#f-sampler", "dpmpp_2m")
    page.choose("#f-scheduler", "karras")
    if page.one("#f-seed-random").is_selected():
        page.click("#f-seed-random")
    page.fill("#f-seed", "18446744073709551615")  # all of a seed's 64 bits, which a double has not
    page.click("#btn-submit")
    page.shown("[data-test=card][data-status=completed]")
    workflow, item = the_only(server)
    (sampler,) = nodes(workflow, "KSampler")
    assert sampler["seed"] == 18446744073709551615
    assert (sampler["steps"], sampler["cfg"], sampler["sampler_name"], sampler["scheduler"]) == (
        2,
        3.5,
        "dpmpp_2m",
        "karras",
    )
    assert workflow[sampler["positive"][0]]["inputs"]["text"] == "a red boat"
    assert workflow[sampler["negative"][0]]["inputs"]["text"] == "fog"
    assert nodes(workflow, "EmptyLatentImage") == [{"width": 64, "height": 64, "batch_size": 2}]
    assert nodes(workflow, "CheckpointLoaderSimple") == [{"ckpt_name": MODEL}]
    assert sum(len(o["images"]) for o in item["outputs"].values()) == 2


def test_the_button_is_in_view_and_follows_the_prompt(page, server):
    bottom = page.js("return document.querySelector('#btn-submit').getBoundingClientRect().bottom")
    assert bottom < page.js("return innerHeight")
    page.click("#f-prompt")
    page.keys(Keys.TAB)
    assert page.js("return document.activeElement.id") == "btn-submit"


def test_a_random_seed_is_another_each_time(page, server):
    fill(page, "dice")
    assert page.one("#f-seed-random").is_selected()
    for n in (1, 2):
        page.click("#btn-submit")
        page.until(lambda: len(page.all("[data-test=card]")) == n, f"picture {n}")
    seeds = {
        nodes(i["prompt"][2], "KSampler")[0]["seed"] for i in server.get("/history").json().values()
    }
    assert len(seeds) == 2


def test_a_seed_that_is_held_gives_the_same_picture(page, server):
    fill(page, "the same")
    page.click("#f-seed-random")
    page.fill("#f-seed", "7")
    for n in (1, 2):
        page.click("#btn-submit")
        page.until(lambda: len(page.all("[data-test=card]")) == n, f"picture {n}")
    assert {
        nodes(i["prompt"][2], "KSampler")[0]["seed"] for i in server.get("/history").json().values()
    } == {7}


def test_control_enter_submits(page, server):
    fill(page, "by keys")
    page.one("#f-prompt").send_keys(Keys.CONTROL, Keys.ENTER)
    page.shown("[data-test=card][data-status=completed]")
    assert nodes(the_only(server)[0], "CLIPTextEncode")[0]["text"] == "by keys"


def test_a_key_that_is_held_submits_once(page, server):
    server.post("/berth/queue", {"paused": True})
    fill(page, "held")
    page.js("""const box = document.querySelector('#f-prompt');
        for (let i = 0; i < 20; i++)
            box.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', ctrlKey: true,
                repeat: i > 0, bubbles: true, cancelable: true}));""")
    page.until(lambda: page.all("[data-test=waiting]"), "one")
    page.until(lambda: page.one("#btn-submit").get_attribute("aria-disabled") is None, "the answer")
    assert server.get("/berth/queue").json()["pending"] == 1


def test_a_seed_is_there_to_be_held(page):
    page.js("document.querySelector('#f-seed').value = ''")
    assert page.one("#f-seed-random").is_selected()
    page.click("#f-seed-random")
    assert page.js("return document.querySelector('#f-seed').value").isdigit()


def test_a_model_that_comes_later_can_be_chosen(chrome, tmp_path):
    base = base_with_model(tmp_path / "base")
    with Server(base, "--devices", "cpu=2g") as server:
        chrome.leave()
        arrive(chrome, server)
        synth(str(base / "models/checkpoints/later.safetensors"), "sd15-tiny", "--dtype", "f16")
        chrome.until(
            lambda: "later.safetensors" in server.get("/models/checkpoints").json(),
            "the server's list",
        )
        chrome.js("document.querySelector('#f-model').focus()")
        chrome.choose("#f-model", "later.safetensors")
        assert chrome.errors() == []


@pytest.mark.parametrize(
    "field, value, says",
    [("steps", "0", "1"), ("width", "7", ""), ("batch", "", ""), ("seed", "many", "")],
)
def test_a_wrong_value_is_said_at_its_field(page, server, field, value, says):
    fill(page, "wrong")
    if field == "seed":
        page.click("#f-seed-random")
    page.fill(f"#f-{field}", value)
    page.click("#btn-submit")
    error = page.shown(f"#err-{field}")
    assert says in error.text and error.text.strip()
    assert page.one(f"#f-{field}").get_attribute("aria-invalid") == "true"
    assert (
        server.get("/queue").json()["queue_running"] == [] and server.get("/history").json() == {}
    )
    page.fill(f"#f-{field}", {"seed": "5"}.get(field, 64 if field == "width" else 2))
    page.click("#btn-submit")
    page.shown("[data-test=card][data-status=completed]")
    assert not page.one(f"#err-{field}").is_displayed()


def test_sides_come_in_steps_of_8(page, server):
    """Said when the field is left, not only when it is drawn."""
    fill(page, "odd")
    page.fill("#f-width", "250")
    page.one("#f-prompt").click()
    assert page.shown("#err-width").text == "In steps of 8: 248 or 256"
    page.click("#btn-submit")
    page.until(lambda: page.js("return document.activeElement.id") == "f-width", "the field")
    assert (
        server.get("/queue").json()["queue_running"] == [] and server.get("/history").json() == {}
    )
    page.fill("#f-width", "64")
    page.one("#f-prompt").click()
    page.gone("#err-width")


def test_what_the_server_refuses_is_said_in_its_words(page, server):
    """A model that is gone since the list was made."""
    fill(page, "gone")
    page.js(
        "const s = document.querySelector('#f-model'); s.add(new Option('gone.safetensors', "
        "'gone.safetensors')); s.value = 'gone.safetensors';"
        "s.dispatchEvent(new Event('input', {bubbles: true})); s.dispatchEvent(new "
        "Event('change', {bubbles: true}))"
    )
    page.click("#btn-submit")
    page.until(
        lambda: "not in list"
        in page.text("#compose-error").lower() + page.text("#err-model").lower(),
        "the server's reason",
    )
    page.forget()  # the 400 is in the console


def set_metadata(path, settings):
    """Writes berth.settings into a checkpoint; another file of the same name, for the old one may
    be mapped."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    header["__metadata__"] = {
        **header.get("__metadata__", {}),
        "berth.settings": json.dumps(settings),
    }
    text = json.dumps(header).encode()
    new = path.with_suffix(".new")
    new.write_bytes(struct.pack("<Q", len(text)) + text + data)
    new.replace(path)


def test_settings_of_a_model_are_taken_from_its_file(chrome, tmp_path):
    """berth.settings in a checkpoint: size, steps, sampler and example prompts."""
    settings = {
        "width": 96,
        "height": 64,
        "steps": 3,
        "cfg": 2.5,
        "sampler_name": "dpmpp_2m",
        "scheduler": "karras",
        "prompts": ["a tiny harbour", "<b>two</b> boats"],
        "negative": "rust",
    }
    base = base_with_model(tmp_path / "base", "plain.safetensors", "set.safetensors")
    path = base / "models/checkpoints/set.safetensors"
    set_metadata(path, settings)
    with Server(base, "--devices", "cpu=2g") as server:
        chrome.leave()
        arrive(chrome, server)
        chrome.choose("#f-model", "set.safetensors")
        values = {
            "#f-width": "96",
            "#f-height": "64",
            "#f-steps": "3",
            "#f-cfg": "2.5",
            "#f-sampler": "dpmpp_2m",
            "#f-scheduler": "karras",
            "#f-negative": "rust",
        }
        chrome.until(
            lambda: {
                k: chrome.js("return document.querySelector(arguments[0]).value", k) for k in values
            }
            == values,
            "its settings",
        )
        chrome.until(lambda: len(chrome.all("#examples [data-test=example]")) == 2, "its examples")
        assert chrome.all("#examples [data-test=example]")[1].text.strip() == "<b>two</b> boats"
        typed = {"#f-prompt": "a red boat", "#f-steps": "7", "#f-seed": "42"}
        for field, value in typed.items():
            chrome.fill(field, value)
        chrome.choose("#f-sampler", "heun")
        arrive(chrome, server)  # a reload: what was typed counts, not what the file says
        chrome.until(lambda: len(chrome.all("#examples [data-test=example]")) == 2, "its examples")
        values = {
            **values,
            "#f-steps": "7",
            "#f-seed": "42",
            "#f-sampler": "heun",
            "#f-model": "set.safetensors",
        }
        assert chrome.js("return document.querySelector('#f-prompt').value") == typed["#f-prompt"]
        assert {
            k: chrome.js("return document.querySelector(arguments[0]).value", k) for k in values
        } == values
        assert not chrome.one("#f-seed-random").is_selected()
        chrome.click("#examples [data-test=example]")
        assert chrome.js("return document.querySelector('#f-prompt').value") == "a tiny harbour"
        chrome.click("#btn-submit")
        chrome.shown("[data-test=card][data-status=completed]")
        workflow, _ = the_only(server)
        assert nodes(workflow, "EmptyLatentImage") == [{"width": 96, "height": 64, "batch_size": 1}]
        wrong = {
            "width": 1e9,
            "height": 64.5,
            "steps": 0,
            "cfg": "7",
            "prompts": ["x" * 5000, 7, "a short one"],
        }
        set_metadata(path, wrong)
        chrome.choose("#f-model", "plain.safetensors")
        chrome.choose("#f-model", "set.safetensors")
        chrome.until(
            lambda: [e.text for e in chrome.all("#examples [data-test=example]")]
            == ["a short one"],
            "what can be used of them",
        )
        values = {
            **values,
            "#f-width": "512",
            "#f-height": "512",
            "#f-steps": "20",
            "#f-cfg": "7",
            "#f-sampler": "euler",
            "#f-scheduler": "normal",
        }
        # beyond the limits, so not taken: what suits its family instead
        assert {
            k: chrome.js("return document.querySelector(arguments[0]).value", k) for k in values
        } == values
        chrome.choose("#f-model", "plain.safetensors")
        chrome.until(
            lambda: not any(e.is_displayed() for e in chrome.all("#examples [data-test=example]")),
            "no examples of the plain one",
        )
        assert chrome.errors() == []


def test_what_was_typed_outlives_another_model(chrome, tmp_path):
    """Fields that were changed since a model was chosen stay with the next one; the others follow
    it."""
    base = base_with_model(tmp_path / "base", "a.safetensors", "b.safetensors")
    for name, steps, cfg in (("a", 3, 2), ("b", 5, 4)):
        set_metadata(
            base / f"models/checkpoints/{name}.safetensors",
            {"steps": steps, "cfg": cfg, "sampler_name": "heun", "prompts": [name]},
        )

    def values(steps, cfg):
        chrome.until(
            lambda: chrome.js(
                "return ['steps', 'cfg'].map((f) => document.getElementById('f-' + f).value)"
            )
            == [steps, cfg],
            f"{steps} steps, cfg {cfg}",
        )

    with Server(base, "--devices", "cpu=2g") as server:
        chrome.leave()
        arrive(chrome, server)
        values("3", "2")
        assert "prompts like" in chrome.shown("#examples-hint").text
        chrome.fill("#f-steps", "9")
        chrome.choose("#f-sampler", "euler")
        chrome.choose("#f-model", "b.safetensors")
        values("9", "4")
        assert chrome.js("return document.querySelector('#f-sampler').value") == "euler"
        chrome.choose("#f-model", "a.safetensors")
        values("3", "2")
        chrome.fill("#f-cfg", "6")
        arrive(chrome, server)  # over a reload, too
        chrome.until(lambda: chrome.all("#examples [data-test=example]"), "its examples")
        chrome.choose("#f-model", "b.safetensors")
        values("5", "6")
        assert chrome.errors() == []


# -- files


def png(chunks=()):
    """A small PNG with further chunks after its head."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + b"".join(chunk(k, d) for k, d in chunks)
        + chunk(b"IDAT", zlib.compress(b"\0\0\0\0"))
        + chunk(b"IEND", b"")
    )


def queue_it(page, server, kinds):
    page.shown("#dlg-workflow")
    page.until(lambda: len(page.all("#dlg-workflow [data-test=workflow-node]")) > 0, "its nodes")
    text = page.text("#dlg-workflow")
    assert all(k in text for k in kinds), text
    page.click("#btn-workflow-queue")
    page.gone("#dlg-workflow")
    page.shown("[data-test=card][data-status=completed]")


WORKFLOW = drawing("dropped", seed=11)


def test_a_dropped_workflow_is_shown_then_queued(page, server):
    page.drop("body", "flow.json", json.dumps(WORKFLOW).encode())
    assert server.get("/history").json() == {}
    page.shown("#dlg-workflow")
    assert (
        page.text("#workflow-facts [data-fact=prompt]") == "dropped"
        and page.text("#workflow-facts [data-fact=seed]") == "11"
    )
    queue_it(page, server, ["KSampler", "SaveImage", MODEL])
    assert the_only(server)[0] == WORKFLOW


def test_a_workflow_as_scripts_post_it(page, server):
    page.drop("#devices", "body.json", json.dumps({"prompt": WORKFLOW, "client_id": "x"}).encode())
    queue_it(page, server, ["KSampler"])
    assert the_only(server)[0] == WORKFLOW


@pytest.mark.parametrize("kind", ["tEXt", "iTXt", "zTXt", "packed iTXt"])
def test_a_dropped_png_brings_its_workflow(page, server, kind):
    text = json.dumps(WORKFLOW).encode()
    chunk = {
        "tEXt": (b"tEXt", b"prompt\0" + text),
        "zTXt": (b"zTXt", b"prompt\0\0" + zlib.compress(text)),
        "iTXt": (b"iTXt", b"prompt\0\0\0\0\0" + text),
        "packed iTXt": (b"iTXt", b"prompt\0\1\0\0\0" + zlib.compress(text)),
    }[kind]
    others = [
        (b"tEXt", b"other\0x"),
        (b"zTXt", b"more\0\0not packed at all"),
    ]  # of no interest, so not read
    page.drop("body", "picture.png", png([*others, chunk]), "image/png")
    queue_it(page, server, ["KSampler"])
    assert the_only(server)[0] == WORKFLOW


def test_a_picture_from_here_goes_round(page, server):
    server.run(WORKFLOW)
    (item,) = server.get("/history").json().values()
    (image,) = item["outputs"]["7"]["images"]
    data = server.get("/view", params=image).content
    server.post("/history", {"clear": True})
    page.until(lambda: not page.all("[data-test=card]"), "an empty gallery")
    page.drop("main", image["filename"], data, "image/png")
    queue_it(page, server, ["KSampler"])
    assert the_only(server)[0] == WORKFLOW


def test_the_file_button_does_the_same(page, server, tmp_path):
    file = tmp_path / "chosen.json"
    file.write_text(json.dumps(WORKFLOW))
    page.shown("#btn-open-file")
    page.js(
        "document.querySelector('#file-input').addEventListener('click', e => { window.asked = "
        "true; e.preventDefault(); }, {once: true})"
    )
    page.click("#btn-open-file")
    assert (
        page.js("return window.asked") is True
    )  # the button opens the dialog, which a test cannot use
    page.one("#file-input").send_keys(str(file))
    queue_it(page, server, ["KSampler"])
    assert the_only(server)[0] == WORKFLOW


def test_the_veil_is_there_only_while_something_is_dragged(page):
    page.js("""
        const files = new DataTransfer();
        files.items.add(new File(['{}'], 'x.json', {type: 'application/json'}));
        window.send = kind => document.body.dispatchEvent(new DragEvent(kind, {bubbles: true,
            cancelable: true, dataTransfer: files}));
        send('dragenter'); send('dragover');""")
    page.shown("#drop-veil")
    page.js("send('dragleave')")
    page.gone("#drop-veil")


def test_a_workflow_can_be_saved_and_its_settings_used(page, server):
    page.drop("body", "flow.json", json.dumps(WORKFLOW).encode())
    page.shown("#dlg-workflow")
    page.js("""
        window.saved = {};
        const make = URL.createObjectURL;
        URL.createObjectURL = blob => { blob.text().then(t => { saved.text = t; });
            return make(blob); };
        HTMLAnchorElement.prototype.click = function () { saved.name = this.download; };""")
    page.click("#btn-workflow-save")
    assert json.loads(page.until(lambda: page.js("return saved.text"), "the file")) == WORKFLOW
    assert page.js("return saved.name").endswith(".json")
    page.click("#btn-workflow-use")
    page.gone("#dlg-workflow")
    assert page.js(
        "return ['f-prompt', 'f-seed', 'f-steps'].map(i => document.getElementById(i).value)"
    ) == ["dropped", "11", "2"]


def test_what_is_missing_here_is_named(page, server):
    flow = {
        **drawing(model="not-here.safetensors"),
        "9": {"class_type": "NoSuchNode", "inputs": {}},
    }
    page.drop("body", "flow.json", json.dumps(flow).encode())
    page.shown("#workflow-missing")
    missing = " ".join(e.text for e in page.all("#workflow-missing [data-test=missing]"))
    assert "NoSuchNode" in missing and "not-here.safetensors" in missing
    page.click("#btn-workflow-close")
    page.gone("#dlg-workflow")
    assert server.get("/history").json() == {}


UI_FORMAT = {
    "last_node_id": 1,
    "nodes": [{"id": 1, "type": "KSampler", "widgets_values": []}],
    "links": [],
    "version": 0.4,
}


@pytest.mark.parametrize(
    "name, data, hint",
    [
        ("ui.json", json.dumps(UI_FORMAT).encode(), "API"),
        ("broken.json", b'{"1": ', "no JSON"),
        ("list.json", b"[1, 2]", "class_type"),
        ("plain.png", png(), "no workflow"),
        ("ui.png", png([(b"tEXt", b"workflow\0" + json.dumps(UI_FORMAT).encode())]), "API"),
        ("cut.png", png([(b"tEXt", b"prompt\0{}")])[:60], "cut short"),
        (
            "length.png",
            b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 0xFFFFFFFF) + b"tEXt" + b"prompt\0{}",
            "cut short",
        ),
        # a good workflow, and 40 MB of spaces that are 40 KB in the file
        (
            "bomb.png",
            png(
                [
                    (
                        b"zTXt",
                        b"prompt\0\0"
                        + zlib.compress(json.dumps(WORKFLOW).encode() + b" " * 40_000_000),
                    )
                ]
            ),
            "too large",
        ),
        ("photo.jpg", b"\xff\xd8\xff\xe0 not a workflow", "Only PNG"),
        ("notes.txt", b"a boat", "An API workflow (.json) or a PNG"),
        ("big.safetensors", b"\x08\0\0\0\0\0\0\0{}      ", "models/checkpoints"),
    ],
    ids=lambda v: v if isinstance(v, str) and "." in v else "",
)
def test_what_is_no_workflow_is_refused_with_a_reason(page, server, name, data, hint):
    page.drop(
        "body",
        name,
        data,
        (
            "image/png"
            if name.endswith("png")
            else "image/jpeg" if name.endswith("jpg") else "application/json"
        ),
    )
    toast = page.shown("[data-test=toast][data-kind=error]")
    assert name in toast.text and hint in toast.text
    assert not page.one("#dlg-workflow").is_displayed()
    assert server.get("/history").json() == {}


def test_a_workflow_the_server_refuses_says_why_and_where(page, server):
    flow = drawing()
    flow["5"]["inputs"]["steps"] = -3
    page.drop("body", "flow.json", json.dumps(flow).encode())
    page.shown("#dlg-workflow")
    page.click("#btn-workflow-queue")
    page.until(lambda: "steps" in page.text("#workflow-error"), "the reason")
    assert server.get("/history").json() == {}
    page.forget()  # the 400 is in the console


def test_what_is_left_out_of_a_workflow_is_named(page, server):
    flow = {
        **drawing(),
        "20": {"class_type": "LoadImage", "inputs": {"image": "nowhere.png"}},
        "21": {"class_type": "SaveImage", "inputs": {"images": ["20", 0], "filename_prefix": "x"}},
    }
    page.drop("body", "flow.json", json.dumps(flow).encode())
    page.shown("#dlg-workflow")
    page.click("#btn-workflow-queue")
    text = page.until_text(
        "[data-test=toast][data-kind=error]", "Queued, but", "LoadImage (node 20)", "nowhere.png"
    )
    assert "node 7" not in text
    page.shown("[data-test=card][data-status=completed]")


def test_reasons_are_joined_as_sentences(page, server):
    flow = {**drawing(), "99": {"class_type": "NoSuchNode", "inputs": {}}}
    page.drop("body", "flow.json", json.dumps(flow).encode())
    page.shown("#dlg-workflow")
    page.click("#btn-workflow-queue")
    text = page.until_text("#workflow-error", "#99")
    assert ".:" not in text and ": Node ID '#99'" in text
    page.forget()  # the 400 is in the console


def test_a_workflow_without_a_model_runs_too(page, server):
    page.drop("body", "flat.json", json.dumps(image_prompt(color=255)).encode())
    page.shown("#dlg-workflow")
    assert not page.one("#workflow-facts").is_displayed()
    queue_it(page, server, ["EmptyImage"])
    assert the_only(server)[0] == image_prompt(color=255)
