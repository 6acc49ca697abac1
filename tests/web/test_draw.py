"""Drawing with more than a checkpoint: diffusion models with their encoders and VAE, LoRAs; what a
reload keeps, names, keys. What was posted is looked at, and what came out. Pictures and masks:
test_mask.py."""

import json
import os

import pytest

from browser import Keys
from conftest import Server, api, arrive, load, synth
from test_page import NAMELESS, contrast

pngs = load("../e2e/api/pngs.py", "pngs")

LORA = "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn1_to_q"
FILES = {
    "checkpoints/tiny.safetensors": "sd15-tiny",
    "diffusion_models/flux1-dev.safetensors": "flux-tiny",
    "diffusion_models/flux1-schnell-Q8_0.gguf": "flux-schnell-tiny",
    "diffusion_models/sd15-unet.safetensors": "sd15-unet-tiny",
    "diffusion_models/sdxl-unet.safetensors": "sdxl-tiny",
    "checkpoints/z-inpainting.safetensors": "sd15-inpaint-tiny",
    "text_encoders/a-clip.safetensors": "clip-l-tiny",  # names do not tell what they are
    "text_encoders/b-encoder.gguf": "t5-tiny",
    "text_encoders/c-big.safetensors": "clip-g-tiny",
    "vae/first.safetensors": "vae-tiny",
    "vae/second.safetensors": "flux-tiny-vae",
}
UNKNOWN = {"double_stream.0.weight": [4, 4]}


def keys_file(path, keys):
    """A file of tensors with these names and shapes."""
    os.makedirs(path.parent, exist_ok=True)
    listed = path.with_suffix(".json")
    listed.write_text(json.dumps(keys))
    api.subprocess.run(
        [api.BINARY, "synth", "--keys", str(listed), "--output", str(path), "--force"],
        check=True,
        stdout=api.subprocess.DEVNULL,
    )
    listed.unlink()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("draw") / "base"
    for name, preset in FILES.items():
        synth(str(base / "models" / name), preset, "--dtype", "q8_0" if "Q8_0" in name else "f16")
    for name in ("soft", "strong"):
        keys_file(
            base / f"models/loras/{name}.safetensors",
            {f"{LORA}.lora_up.weight": [128, 4], f"{LORA}.lora_down.weight": [4, 128]},
        )
    keys_file(base / "models/diffusion_models/who-knows.safetensors", UNKNOWN)
    api.subprocess.run(
        [api.BINARY, "synth", "--tokenizer", str(base / "tokenizers")],
        check=True,
        stdout=api.subprocess.DEVNULL,
    )
    return base


@pytest.fixture(scope="module")
def server(base):
    with Server(base, "--devices", "cpu=4g") as s:
        yield s
        assert s.process.poll() is None, "the server died"


# -- helpers


def value(page, name):
    return page.js("return document.getElementById('f-' + arguments[0]).value", name)


def draw(page, text="a boat", size=64, steps=1):
    page.fill("#f-prompt", text)
    for name, n in (("steps", steps), ("width", size), ("height", size)):
        page.fill(f"#f-{name}", n)
    page.click("#btn-submit")


def drawn(page, server):
    """(what was posted, the picture's pixels) of the newest prompt, when it is done."""
    page.until(lambda: page.all("[data-test=card]"), "a card")
    server.until_idle()
    item = list(server.get("/history").json().values())[-1]
    assert item["status"]["status_str"] == "success", item["status"]
    (images,) = [o["images"] for o in item["outputs"].values()]
    return item["prompt"][2], [pngs.read(server.get("/view", params=i).content)[:4] for i in images]


def only(graph, kind):
    """The inputs of the only node of a class."""
    found = [n["inputs"] for n in graph.values() if n["class_type"] == kind]
    assert len(found) == 1, (kind, [n["class_type"] for n in graph.values()])
    return found[0]


def kinds(graph):
    return {n["class_type"] for n in graph.values()}


def source_of(graph, link):
    return graph[link[0]]["class_type"]


def gradient(width=64, height=64, hole=None):
    """A picture of many colours; hole: (x, y, w, h) is transparent."""
    rows = bytearray()
    for y in range(height):
        for x in range(width):
            inside = hole and hole[0] <= x < hole[0] + hole[2] and hole[1] <= y < hole[1] + hole[3]
            rows += bytes((4 * x % 256, 4 * y % 256, (x + y) % 256)) + (
                bytes((0 if inside else 255,)) if hole else b""
            )
    return pngs.write(width, height, 4 if hole else 3, bytes(rows))


def begin_with(page, path):
    """Sends a picture as the file dialog would, and waits until it is shown."""
    if not page.js("return document.querySelector('#more-source').open"):
        page.click("#more-source summary")
    page.shown("#btn-source")
    page.one("#source-file").send_keys(str(path))
    page.shown("#source-image")
    page.until(
        lambda: page.js(
            "const i = document.querySelector('#source-image'); return i.complete && "
            "i.naturalWidth > 0"
        ),
        "the picture",
    )


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "colours.png"
    path.write_bytes(gradient())
    return path


# -- diffusion models


def test_flux_draws_with_its_encoders_and_vae(page, server):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(
        lambda: [value(page, n) for n in ("encoder1", "encoder2", "vae")]
        == ["b-encoder.gguf", "a-clip.safetensors", "second.safetensors"],
        "the right files",
    )
    assert [
        value(page, n)
        for n in ("steps", "cfg", "guidance", "sampler", "scheduler", "width", "height")
    ] == ["20", "1", "3.5", "euler", "simple", "1024", "1024"]
    page.fill("#f-guidance", "2.5")
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "UNETLoader") == {
        "unet_name": "flux1-dev.safetensors",
        "weight_dtype": "default",
    }
    assert only(graph, "DualCLIPLoaderGGUF") == {
        "clip_name1": "b-encoder.gguf",
        "clip_name2": "a-clip.safetensors",
        "type": "flux",
    }
    assert only(graph, "VAELoader") == {"vae_name": "second.safetensors"}
    assert only(graph, "FluxGuidance")["guidance"] == 2.5
    sampler = only(graph, "KSampler")
    assert (
        source_of(graph, sampler["positive"]) == "FluxGuidance"
        and source_of(graph, sampler["latent_image"]) == "EmptySD3LatentImage"
    )
    assert [p[:2] for p in pictures] == [(64, 64)]


def test_a_gguf_model_has_its_own_loader(page, server):
    page.choose("#f-model", "unet_gguf:flux1-schnell-Q8_0.gguf")
    page.until(
        lambda: value(page, "steps") == "4"
        and page.all("#f-vae")
        and value(page, "vae") == "second.safetensors",
        "its settings",
    )
    assert not page.one("#f-guidance").is_displayed()
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "UnetLoaderGGUF") == {"unet_name": "flux1-schnell-Q8_0.gguf"}
    assert "FluxGuidance" not in kinds(graph) and len(pictures) == 1


def test_an_sd_unet_needs_one_encoder(page, server):
    page.choose("#f-model", "diffusion_models:sd15-unet.safetensors")
    page.until(
        lambda: page.all("#f-vae")
        and value(page, "encoder1") == "a-clip.safetensors"
        and value(page, "vae") == "first.safetensors",
        "the right files",
    )
    assert not page.one("#f-encoder2").is_displayed()
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "CLIPLoader") == {
        "clip_name": "a-clip.safetensors",
        "type": "stable_diffusion",
    }
    assert (
        source_of(graph, only(graph, "KSampler")["latent_image"]) == "EmptyLatentImage"
        and len(pictures) == 1
    )
    page.choose("#f-model", "tiny.safetensors")
    page.gone("#f-vae")
    draw(page, "a checkpoint again")
    page.until(lambda: len(page.all("[data-test=card]")) == 2, "its picture")
    assert only(drawn(page, server)[0], "CheckpointLoaderSimple") == {
        "ckpt_name": "tiny.safetensors"
    }


def test_sdxl_gets_both_clips(page, server):
    """Also when the button is pressed before the server has said what the model is. Looked at while
    it waits: it is the largest of the tiny ones."""
    server.post("/berth/queue", {"paused": True})
    page.js("""
        const real = fetch, held = new Promise((resolve) => { window.release = resolve; });
        window.fetch = (url, ...more) => (url.includes('sdxl-unet') ? held
            : Promise.resolve()).then(() => real(url, ...more));""")
    page.choose("#f-model", "diffusion_models:sdxl-unet.safetensors")
    page.click("#btn-submit")
    page.until(
        lambda: page.one("#btn-submit").get_attribute("aria-disabled") == "true", "the press"
    )
    page.js("release()")
    page.shown("[data-test=waiting]")
    graph = server.get("/queue").json()["queue_pending"][0][2]
    assert only(graph, "DualCLIPLoader") == {
        "clip_name1": "a-clip.safetensors",
        "clip_name2": "c-big.safetensors",
        "type": "sdxl",
    }
    assert only(graph, "VAELoader") == {"vae_name": "first.safetensors"}
    assert only(graph, "EmptyLatentImage") == {"width": 1024, "height": 1024, "batch_size": 1}


def test_what_a_model_lacks_is_said_at_the_field(page, server, base):
    kept = base / "models/text_encoders/b-encoder.gguf"
    away = kept.rename(base / "away.gguf")
    try:
        page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
        assert "No T5 text encoder" in page.shown("#err-encoder1").text
        assert page.one("#f-encoder1").get_attribute("aria-invalid") == "true"
    finally:
        away.rename(kept)
    page.choose("#f-model", "diffusion_models:who-knows.safetensors")
    page.until(lambda: "cannot run" in page.text("#err-model"), "a word on it")
    page.click("#btn-submit")
    page.until(lambda: page.js("return document.activeElement.id") == "f-model", "the field")
    assert server.get("/history").json() == {}


def test_a_wrong_file_is_refused_at_its_field(page, server):
    """Both encoders of one kind: the loader fails when it runs, and its field says why."""
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(
        lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files"
    )
    page.choose("#f-encoder1", "c-big.safetensors")
    draw(page)
    page.until(
        lambda: "T5" in page.text("#err-encoder1") or "T5" in page.text("#err-encoder2"), "why"
    )


# -- LoRAs


def test_loras_are_a_list_with_strengths(page, server):
    page.click("#more-loras summary")
    for row, (name, strength) in enumerate(
        (("strong.safetensors", "0.5"), ("soft.safetensors", "-1.25")), 1
    ):
        page.click("#btn-lora")
        page.until(
            lambda: page.js("return document.activeElement.tagName") == "SELECT", "the new row"
        )
        page.choose(f"[data-test=lora]:nth-child({row}) select", name)
        page.fill(f"[data-test=lora]:nth-child({row}) input", strength)
    page.click("#btn-lora")
    page.click("[data-test=lora]:nth-child(3) [data-test=lora-remove]")
    draw(page)
    graph, pictures = drawn(page, server)
    first, second = [n["inputs"] for n in graph.values() if n["class_type"] == "LoraLoader"]
    assert (first["lora_name"], first["strength_model"], first["strength_clip"]) == (
        "strong.safetensors",
        0.5,
        0.5,
    )
    assert (second["lora_name"], second["strength_model"]) == ("soft.safetensors", -1.25)
    assert (
        source_of(graph, first["model"]) == "CheckpointLoaderSimple"
        and source_of(graph, second["model"]) == "LoraLoader"
    )
    assert source_of(graph, only(graph, "KSampler")["model"]) == "LoraLoader" and len(pictures) == 1
    page.fill("[data-test=lora]:nth-child(2) input", "500")
    page.click("#btn-submit")
    assert "from -100 to 100" in page.shown("#loras .field-error").text


def test_a_lora_that_is_gone_is_said_at_its_field(page, server, base):
    gone = base / "models/loras/gone.safetensors"
    gone.write_bytes((base / "models/loras/soft.safetensors").read_bytes())
    page.click("#more-loras summary")
    page.click("#btn-lora")
    page.choose("[data-test=lora] select", "gone.safetensors")
    gone.unlink()
    page.js(
        "document.querySelector('#more-loras').open = false"
    )  # it opens by itself when something in it is wrong
    draw(page)
    assert "not in list" in page.shown("#loras .field-error").text.lower()
    page.until(
        lambda: page.js("return document.activeElement.matches('#loras select')"), "the field"
    )
    page.forget()  # the 400 is in the console


# -- keys and screen readers


@pytest.mark.parametrize("dark", [False, True])
def test_all_of_it_is_named_and_can_be_read(page, server, picture, dark):
    page.scheme(dark)
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.shown("#f-vae")
    page.click("#more-loras summary")
    page.click("#btn-lora")
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    assert page.js(NAMELESS) == []
    ids = page.js("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
    for selector in (
        "#parts label",
        "#loras label",
        "#btn-lora",
        "#source legend",
        "#source label.inline",
        "[data-test=mask-paint]",
        "[data-test=mask-erase]",
        ".mask-tools p",
        "#btn-source",
    ):
        page.until(
            lambda: contrast(page, selector) >= 4.5,
            f"{selector}: {contrast(page, selector)}",
            patience=5,
        )


def test_tab_goes_through_it_as_it_is_read(page, server, picture):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(
        lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files"
    )
    page.click("#more-loras summary")
    page.click("#btn-lora")
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    page.js("document.querySelector('#f-model').focus()")
    seen = []
    for _ in range(40):
        page.keys(Keys.TAB)
        seen.append(
            page.js(
                "const e = document.activeElement; return e.id || e.dataset.test || e.name || "
                "e.tagName"
            )
        )
        if seen[-1] == "f-seed":
            break
    row = page.js("return document.querySelector('[data-test=lora]').dataset.row")
    want = [
        "f-encoder1",
        "f-encoder2",
        "f-vae",
        f"f-lora{row}",
        f"f-strength{row}",
        "lora-remove",
        "btn-lora",
        "f-source",
        "btn-source",
        "source-how",
        "f-mask",
        "mask-paint",
        "mask-erase",
        "f-denoise",
        "f-seed",
    ]
    assert [s for s in seen if s in want] == want, seen


# -- what is remembered


def test_a_reload_keeps_all_of_it(page, server, picture):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(
        lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files"
    )
    page.choose("#f-vae", "first.safetensors")
    page.click("#more-loras summary")
    page.click("#btn-lora")
    page.choose("[data-test=lora] select", "strong.safetensors")
    page.fill("[data-test=lora] input", "0.25")
    begin_with(page, picture)
    page.fill("#f-denoise", "0.4")
    page.fill("#f-steps", "7")
    arrive(page, server)
    page.shown("#source-image")
    page.until(
        lambda: page.all("[data-test=lora] select")
        and page.all("#f-vae")
        and value(page, "vae") == "first.safetensors",
        "its files",
    )
    got = page.js(
        "return ['#f-model', '[data-test=lora] select', '[data-test=lora] input', '#f-denoise', "
        "'#f-steps', '#f-source']"
        ".map((s) => document.querySelector(s).value)"
    )
    assert got == [
        "diffusion_models:flux1-dev.safetensors",
        "strong.safetensors",
        "0.25",
        "0.4",
        "7",
        "colours.png",
    ]


def test_a_press_right_after_a_reload_has_its_loras(page, server):
    """The list of LoRAs is held back until the button was pressed."""
    server.post("/berth/queue", {"paused": True})
    page.click("#more-loras summary")
    page.click("#btn-lora")
    page.choose("[data-test=lora] select", "strong.safetensors")
    held = page.cdp(
        "Page.addScriptToEvaluateOnNewDocument",
        source="""
        const real = fetch, held = new Promise((resolve) => { window.release = resolve; });
        window.fetch = (url, ...more) => (url.endsWith('/models/loras') ? held
            : Promise.resolve()).then(() => real(url, ...more));""",
    )
    try:
        arrive(page, server)
    finally:
        page.cdp("Page.removeScriptToEvaluateOnNewDocument", **held)
    page.until(lambda: value(page, "model") and value(page, "sampler"), "the lists")
    page.click("#btn-submit")
    page.until(
        lambda: page.one("#btn-submit").get_attribute("aria-disabled") == "true"
        or server.get("/queue").json()["queue_pending"],
        "the press",
    )
    page.js("release()")
    page.shown("[data-test=waiting]")
    graph = server.get("/queue").json()["queue_pending"][0][2]
    assert only(graph, "LoraLoader")["lora_name"] == "strong.safetensors"


def test_settings_of_a_picture_bring_its_files(page, server, picture):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(
        lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files"
    )
    page.click("#more-loras summary")
    page.click("#btn-lora")
    page.choose("[data-test=lora] select", "strong.safetensors")
    page.fill("[data-test=lora] input", "0.25")
    draw(page, "with all of it")
    drawn(page, server)
    page.click("[data-test=lora-remove]")
    page.choose("#f-model", "tiny.safetensors")
    page.gone("#f-vae")
    page.click("[data-test=card] [data-test=open]")
    page.click("#btn-use")
    page.until(
        lambda: value(page, "model") == "diffusion_models:flux1-dev.safetensors"
        and page.one("#f-vae").is_displayed(),
        "its model",
    )
    page.until(
        lambda: page.js(
            "return [...document.querySelectorAll('[data-test=lora] select, [data-test=lora] "
            "input')].map((e) => e.value)"
        )
        == ["strong.safetensors", "0.25"],
        "its LoRA",
    )


def test_what_is_not_used_is_not_fetched(page, server):
    page.cdp("Network.clearBrowserCache")
    page.leave()
    arrive(page, server)
    page.until(lambda: value(page, "model"), "the models")
    late = ("build", "loras", "mask", "now", "parts", "picture", "source", "workflowview")
    assert not [u for u in page.urls() if u.endswith(tuple(f"/{name}.js" for name in late))]
