"""Drawing with more than a checkpoint: diffusion models with their encoders and VAE, LoRAs, a picture to begin with, and a
mask over it. What was posted is looked at, and what came out."""

import json
import os

import pytest

from browser import ActionBuilder, Keys, PointerInput
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
    "checkpoints/for-inpainting.safetensors": "sd15-inpaint-tiny",
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
    api.subprocess.run([api.BINARY, "synth", "--keys", str(listed), "--output", str(path), "--force"], check=True,
                       stdout=api.subprocess.DEVNULL)
    listed.unlink()


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("draw") / "base"
    for name, preset in FILES.items():
        synth(str(base / "models" / name), preset, "--dtype", "q8_0" if "Q8_0" in name else "f16")
    for name in ("soft", "strong"):
        keys_file(base / f"models/loras/{name}.safetensors", {f"{LORA}.lora_up.weight": [128, 4], f"{LORA}.lora_down.weight": [4, 128]})
    keys_file(base / "models/diffusion_models/who-knows.safetensors", UNKNOWN)
    api.subprocess.run([api.BINARY, "synth", "--tokenizer", str(base / "tokenizers")], check=True, stdout=api.subprocess.DEVNULL)
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
            rows += bytes((4 * x % 256, 4 * y % 256, (x + y) % 256)) + (bytes((0 if inside else 255,)) if hole else b"")
    return pngs.write(width, height, 4 if hole else 3, bytes(rows))


def begin_with(page, path):
    """Sends a picture as the file dialog would, and waits until it is shown."""
    if not page.js("return document.querySelector('#more-source').open"):
        page.click("#more-source summary")
    page.shown("#btn-source")
    page.one("#source-file").send_keys(str(path))
    page.shown("#source-image")
    page.until(lambda: page.js("const i = document.querySelector('#source-image'); return i.complete && i.naturalWidth > 0"), "the picture")


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "colours.png"
    path.write_bytes(gradient())
    return path


# -- diffusion models

def test_flux_draws_with_its_encoders_and_vae(page, server):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(lambda: [value(page, n) for n in ("encoder1", "encoder2", "vae")] == ["b-encoder.gguf", "a-clip.safetensors", "second.safetensors"],
               "the right files")
    assert [value(page, n) for n in ("steps", "cfg", "guidance", "sampler", "scheduler", "width", "height")] == [
        "20", "1", "3.5", "euler", "simple", "1024", "1024"]
    page.fill("#f-guidance", "2.5")
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "UNETLoader") == {"unet_name": "flux1-dev.safetensors", "weight_dtype": "default"}
    assert only(graph, "DualCLIPLoaderGGUF") == {"clip_name1": "b-encoder.gguf", "clip_name2": "a-clip.safetensors", "type": "flux"}
    assert only(graph, "VAELoader") == {"vae_name": "second.safetensors"}
    assert only(graph, "FluxGuidance")["guidance"] == 2.5
    sampler = only(graph, "KSampler")
    assert source_of(graph, sampler["positive"]) == "FluxGuidance" and source_of(graph, sampler["latent_image"]) == "EmptySD3LatentImage"
    assert [p[:2] for p in pictures] == [(64, 64)]


def test_a_gguf_model_has_its_own_loader(page, server):
    page.choose("#f-model", "unet_gguf:flux1-schnell-Q8_0.gguf")
    page.until(lambda: value(page, "steps") == "4" and page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its settings")
    assert not page.one("#f-guidance").is_displayed()
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "UnetLoaderGGUF") == {"unet_name": "flux1-schnell-Q8_0.gguf"}
    assert "FluxGuidance" not in kinds(graph) and len(pictures) == 1


def test_an_sd_unet_needs_one_encoder(page, server):
    page.choose("#f-model", "diffusion_models:sd15-unet.safetensors")
    page.until(lambda: page.all("#f-vae") and value(page, "encoder1") == "a-clip.safetensors" and value(page, "vae") == "first.safetensors",
               "the right files")
    assert not page.one("#f-encoder2").is_displayed()
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "CLIPLoader") == {"clip_name": "a-clip.safetensors", "type": "stable_diffusion"}
    assert source_of(graph, only(graph, "KSampler")["latent_image"]) == "EmptyLatentImage" and len(pictures) == 1
    page.choose("#f-model", "tiny.safetensors")
    page.gone("#f-vae")
    draw(page, "a checkpoint again")
    page.until(lambda: len(page.all("[data-test=card]")) == 2, "its picture")
    assert only(drawn(page, server)[0], "CheckpointLoaderSimple") == {"ckpt_name": "tiny.safetensors"}


def test_sdxl_gets_both_clips(page, server):
    """Also when the button is pressed before the server has said what the model is. Looked at while it waits: it is the largest of
    the tiny ones."""
    server.post("/berth/queue", {"paused": True})
    page.js("""
        const real = fetch, held = new Promise((resolve) => { window.release = resolve; });
        window.fetch = (url, ...more) => (url.includes('sdxl-unet') ? held : Promise.resolve()).then(() => real(url, ...more));""")
    page.choose("#f-model", "diffusion_models:sdxl-unet.safetensors")
    page.click("#btn-submit")
    page.until(lambda: page.one("#btn-submit").get_attribute("aria-disabled") == "true", "the press")
    page.js("release()")
    page.shown("[data-test=waiting]")
    graph = server.get("/queue").json()["queue_pending"][0][2]
    assert only(graph, "DualCLIPLoader") == {"clip_name1": "a-clip.safetensors", "clip_name2": "c-big.safetensors", "type": "sdxl"}
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
    page.until(lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files")
    page.choose("#f-encoder1", "c-big.safetensors")
    draw(page)
    page.until(lambda: "T5" in page.text("#err-encoder1") or "T5" in page.text("#err-encoder2"), "why")


# -- LoRAs

def test_loras_are_a_list_with_strengths(page, server):
    page.click("#more-loras summary")
    for row, (name, strength) in enumerate((("strong.safetensors", "0.5"), ("soft.safetensors", "-1.25")), 1):
        page.click("#btn-lora")
        page.until(lambda: page.js("return document.activeElement.tagName") == "SELECT", "the new row")
        page.choose(f"[data-test=lora]:nth-child({row}) select", name)
        page.fill(f"[data-test=lora]:nth-child({row}) input", strength)
    page.click("#btn-lora")
    page.click("[data-test=lora]:nth-child(3) [data-test=lora-remove]")
    draw(page)
    graph, pictures = drawn(page, server)
    first, second = [n["inputs"] for n in graph.values() if n["class_type"] == "LoraLoader"]
    assert (first["lora_name"], first["strength_model"], first["strength_clip"]) == ("strong.safetensors", 0.5, 0.5)
    assert (second["lora_name"], second["strength_model"]) == ("soft.safetensors", -1.25)
    assert source_of(graph, first["model"]) == "CheckpointLoaderSimple" and source_of(graph, second["model"]) == "LoraLoader"
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
    page.js("document.querySelector('#more-loras').open = false")  # it opens by itself when something in it is wrong
    draw(page)
    assert "not in list" in page.shown("#loras .field-error").text.lower()
    page.until(lambda: page.js("return document.activeElement.matches('#loras select')"), "the field")
    page.forget()  # the 400 is in the console


# -- a picture to begin with

def test_a_picture_to_begin_with(page, server, picture):
    begin_with(page, picture)
    assert [value(page, n) for n in ("width", "height", "denoise")] == ["64", "64", "0.6"]
    page.fill("#f-denoise", "0.5")
    page.fill("#f-batch", "2")
    draw(page, steps=2)
    graph, pictures = drawn(page, server)
    assert only(graph, "LoadImage") == {"image": "colours.png"}
    sampler = only(graph, "KSampler")
    assert sampler["denoise"] == 0.5 and source_of(graph, sampler["latent_image"]) == "RepeatLatentBatch"
    assert "ImageScale" not in kinds(graph) and "EmptyLatentImage" not in kinds(graph)
    assert len(pictures) == 2 and pictures[0] != pictures[1]


def test_a_picture_of_another_size_is_scaled(page, server, tmp_path):
    path = tmp_path / "wide.png"
    path.write_bytes(gradient(100, 60))
    begin_with(page, path)
    assert [value(page, n) for n in ("width", "height")] == ["104", "64"]
    page.click("#btn-submit")
    graph, pictures = drawn(page, server)
    assert {k: only(graph, "ImageScale")[k] for k in ("width", "height", "crop")} == {"width": 104, "height": 64, "crop": "center"}
    assert [p[:2] for p in pictures] == [(104, 64)]


def test_a_picture_that_is_there_can_be_picked(page, server, picture):
    begin_with(page, picture)
    page.choose("#f-source", "")
    page.gone("#source-image")
    page.choose("#f-source", "colours.png")
    page.shown("#source-image")
    page.choose("#f-source", "")
    draw(page)
    assert "LoadImage" not in kinds(drawn(page, server)[0])


def test_a_photograph_becomes_what_the_page_shows(page, server):
    """A large JPEG: made smaller, sent as a PNG."""
    page.click("#more-source summary")
    page.shown("#btn-source")
    page.js("""
        const canvas = Object.assign(document.createElement('canvas'), {width: 3000, height: 1500});
        canvas.getContext('2d').fillRect(0, 0, 1500, 1500);
        canvas.toBlob(blob => {
            const files = new DataTransfer();
            files.items.add(new File([blob], 'photo.jpg', {type: 'image/jpeg'}));
            const input = document.querySelector('#source-file');
            input.files = files.files;
            input.dispatchEvent(new Event('change'));
        }, 'image/jpeg');""")
    page.until(lambda: value(page, "source") == "photo.png", "the picture in the list")
    data = page.until(lambda: server.get("/view", params={"filename": "photo.png", "type": "input"}).content, "the file")
    assert data[:4] == b"\x89PNG" and pngs.struct.unpack(">II", data[16:24]) == (2048, 1024)
    page.until(lambda: int(value(page, "width")) * int(value(page, "height")) <= 1.6 * 512 * 512 and value(page, "width") > value(page, "height"),
               "a size the model can do")


def test_what_is_no_picture_is_refused(page, server, tmp_path):
    path = tmp_path / "notes.jpg"
    path.write_bytes(b"a boat")
    page.click("#more-source summary")
    page.shown("#btn-source")
    page.one("#source-file").send_keys(str(path))
    assert "no picture" in page.shown("#err-source").text


# -- masks

def stroke(page, points, kind="mouse"):
    """Presses, moves and lifts a pointer over the mask; points are parts of its sides."""
    page.js("document.querySelector('[data-test=mask]').scrollIntoView({block: 'center'})")
    x, y, w, h = page.js("const r = document.querySelector('[data-test=mask]').getBoundingClientRect(); return [r.x, r.y, r.width, r.height]")
    builder = ActionBuilder(page.driver, mouse=PointerInput(kind, kind), duration=20)
    for i, (px, py) in enumerate(points):
        builder.pointer_action.move_to_location(int(x + px * w), int(y + py * h))
        if i == 0:
            builder.pointer_action.pointer_down()
    builder.pointer_action.pointer_up()
    builder.perform()


def painted(page):
    """The part of the mask that is painted."""
    return page.js("""const c = document.querySelector('[data-test=mask]'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 127; return n / (c.width * c.height)""")


def mask_on_the_server(server, graph):
    """Which pixels are masked, as a list."""
    folder, name = only(graph, "LoadImageMask")["image"].split("/")
    width, height, channels, data = pngs.read(server.get("/view", params={"filename": name, "subfolder": folder, "type": "input"}).content)[:4]
    assert (width, height) == (64, 64)
    return [data[i * channels] for i in range(width * height)]


def only_masked_pixels_changed(before, after, mask):
    before, after = pngs.read(before), after
    assert before[:2] == after[:2]
    step, changed = before[2], 0
    for i, m in enumerate(mask):
        a, b = before[3][i * step:i * step + 3], after[3][i * after[2]:i * after[2] + 3]
        if not m:
            assert a == b, (i % before[0], i // before[0])
        changed += a != b
    assert changed > sum(m > 127 for m in mask) / 2


@pytest.mark.parametrize("kind, denoise, node", [("mouse", None, "VAEEncodeForInpaint"), ("touch", "0.7", "SetLatentNoiseMask")])
def test_only_what_was_painted_is_drawn_anew(page, server, picture, kind, denoise, node):
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    assert painted(page) == 0
    stroke(page, [(0.3, 0.3), (0.5, 0.35), (0.7, 0.3)], kind)
    first = painted(page)
    assert 0.03 < first < 0.2
    stroke(page, [(0.3, 0.6), (0.6, 0.7)], kind)
    assert painted(page) > first
    page.click("[data-test=mask-undo]")
    assert abs(painted(page) - first) < 0.002  # edges are smoothed: painted at once they are a little thinner
    assert value(page, "denoise") == "1"
    if denoise:
        page.fill("#f-denoise", denoise)
    draw(page, "a hole")
    graph, (after,) = drawn(page, server)
    latent = only(graph, node)
    assert source_of(graph, latent["mask"]) == "LoadImageMask"
    assert source_of(graph, only(graph, "KSampler")["latent_image"]) == node
    mask = mask_on_the_server(server, graph)
    assert abs(sum(mask) / 255 / len(mask) - first) < 0.02
    only_masked_pixels_changed(picture.read_bytes(), after, mask)


def test_nothing_painted_is_said(page, server, picture):
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    draw(page)
    assert "Paint over" in page.shown("#err-source").text
    assert server.get("/history").json() == {}


def test_a_mask_can_be_painted_with_keys(page, server, picture):
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    page.js("document.querySelector('[data-test=mask]').focus()")
    page.keys(Keys.SPACE)
    dot = painted(page)
    assert dot > 0
    page.chord(Keys.SHIFT, Keys.ARROW_RIGHT)
    line = painted(page)
    assert line > dot and page.one("#source-frame .ring").is_displayed()
    page.keys(Keys.ARROW_DOWN)
    assert painted(page) == line
    page.click("[data-test=mask-erase]")
    page.click("[data-test=mask-all]")
    assert painted(page) == 1
    stroke(page, [(0.5, 0.5), (0.6, 0.5)])
    assert 0.8 < painted(page) < 1
    page.click("[data-test=mask-none]")
    assert painted(page) == 0


def test_what_is_transparent_is_drawn_anew(page, server, tmp_path, picture):
    begin_with(page, picture)
    assert not page.one("#source-alpha").is_displayed()
    path = tmp_path / "hole.png"
    path.write_bytes(gradient(hole=(16, 24, 32, 16)))
    begin_with(page, path)
    page.until(lambda: value(page, "source") == "hole.png", "the other picture")
    page.shown("#source-alpha")
    page.click("input[name=source-how][value=alpha]")
    draw(page, "through the hole")
    graph, (after,) = drawn(page, server)
    assert source_of(graph, only(graph, "VAEEncodeForInpaint")["mask"]) == "LoadImage" and "LoadImageMask" not in kinds(graph)
    inside = [255 if 16 <= i % 64 < 48 and 24 <= i // 64 < 40 else 0 for i in range(64 * 64)]
    only_masked_pixels_changed(path.read_bytes(), after, inside)


@pytest.mark.parametrize("model, node", [("for-inpainting.safetensors", "InpaintModelConditioning"),
                                         ("diffusion_models:flux1-dev.safetensors", "VAEEncodeForInpaint")])
def test_every_model_can_inpaint_at_another_size(page, server, tmp_path, model, node):
    path = tmp_path / "hole.png"
    path.write_bytes(gradient(100, 60, hole=(16, 24, 32, 16)))
    page.choose("#f-model", model)
    begin_with(page, path)
    page.click("input[name=source-how][value=alpha]")
    page.fill("#f-steps", 1)
    page.fill("#f-batch", 2)
    page.click("#btn-submit")
    graph, pictures = drawn(page, server)
    assert source_of(graph, only(graph, node)["mask"]) == "ImageToMask"
    assert [p[:2] for p in pictures] == [(104, 64)] * 2 and pictures[0] != pictures[1]
    differ = [i for i in range(3 * 104 * 20) if pictures[0][3][i] != pictures[1][3][i]]  # rows above the hole
    assert differ == []


def test_a_drawn_picture_can_be_begun_with(page, server):
    draw(page)
    page.click("[data-test=card] [data-test=open]")
    page.click("#btn-from")
    page.shown("#source-image")
    page.until(lambda: value(page, "source").startswith("berth_"), "the picture in the list")
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    page.click("[data-test=mask-all]")
    draw(page, "over it")
    page.until(lambda: len(page.all("[data-test=card]")) == 2, "the second")
    assert "ImageCompositeMasked" in kinds(drawn(page, server)[0])


def test_settings_of_a_picture_bring_its_mask(page, server, picture):
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    stroke(page, [(0.3, 0.3), (0.7, 0.3)])
    share = painted(page)
    draw(page)
    mask = only(drawn(page, server)[0], "LoadImageMask")["image"]
    page.choose("#f-source", "")
    page.click("[data-test=card] [data-test=open]")
    page.click("#btn-use")
    page.shown("[data-test=mask]")
    page.until(lambda: abs(painted(page) - share) < 0.002, "what was painted")
    draw(page, "again")
    page.until(lambda: len(page.all("[data-test=card]")) == 2, "the second")
    assert only(drawn(page, server)[0], "LoadImageMask")["image"] == mask  # it is on the server already


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
    for selector in ("#parts label", "#loras label", "#btn-lora", "#source legend", "#source label.inline", "[data-test=mask-paint]",
                     "[data-test=mask-erase]", ".mask-tools p", "#btn-source"):
        page.until(lambda: contrast(page, selector) >= 4.5, f"{selector}: {contrast(page, selector)}", patience=5)


def test_tab_goes_through_it_as_it_is_read(page, server, picture):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files")
    page.click("#more-loras summary")
    page.click("#btn-lora")
    begin_with(page, picture)
    page.click("input[name=source-how][value=paint]")
    page.shown("[data-test=mask]")
    page.js("document.querySelector('#f-model').focus()")
    seen = []
    for _ in range(40):
        page.keys(Keys.TAB)
        seen.append(page.js("const e = document.activeElement; return e.id || e.dataset.test || e.name || e.tagName"))
        if seen[-1] == "f-seed":
            break
    row = page.js("return document.querySelector('[data-test=lora]').dataset.row")
    want = ["f-encoder1", "f-encoder2", "f-vae", f"f-lora{row}", f"f-strength{row}", "lora-remove", "btn-lora", "f-source", "btn-source",
            "source-how", "mask", "mask-paint", "mask-erase", "f-denoise", "f-seed"]
    assert [s for s in seen if s in want] == want, seen


# -- what is remembered

def test_a_reload_keeps_all_of_it(page, server, picture):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files")
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
    page.until(lambda: page.all("[data-test=lora] select") and page.all("#f-vae") and value(page, "vae") == "first.safetensors", "its files")
    got = page.js("return ['#f-model', '[data-test=lora] select', '[data-test=lora] input', '#f-denoise', '#f-steps', '#f-source']"
                  ".map((s) => document.querySelector(s).value)")
    assert got == ["diffusion_models:flux1-dev.safetensors", "strong.safetensors", "0.25", "0.4", "7", "colours.png"]


def test_settings_of_a_picture_bring_its_files(page, server, picture):
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(lambda: page.all("#f-vae") and value(page, "vae") == "second.safetensors", "its files")
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
    page.until(lambda: value(page, "model") == "diffusion_models:flux1-dev.safetensors" and page.one("#f-vae").is_displayed(), "its model")
    page.until(lambda: page.js("return [...document.querySelectorAll('[data-test=lora] select, [data-test=lora] input')].map((e) => e.value)")
               == ["strong.safetensors", "0.25"], "its LoRA")


def test_what_is_not_used_is_not_fetched(page, server):
    page.cdp("Network.clearBrowserCache")
    page.leave()
    arrive(page, server)
    page.until(lambda: value(page, "model"), "the models")
    late = ("build", "loras", "mask", "now", "parts", "picture", "source", "workflowview")
    assert not [u for u in page.urls() if u.endswith(tuple(f"/{name}.js" for name in late))]
