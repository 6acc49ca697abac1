"""Drawing that begins with a picture, whole or behind a mask. What was posted is looked at, and
which pixels changed."""

import pathlib
import struct

import pytest

from browser import ActionBuilder, Keys, PointerInput
from conftest import arrive
from test_draw import (
    base,
    begin_with,
    draw,
    drawn,
    gradient,
    kinds,
    only,
    picture,
    pngs,
    server,
    source_of,
    value,
)  # noqa: F401, F811

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
    assert (
        sampler["denoise"] == 0.5
        and source_of(graph, sampler["latent_image"]) == "RepeatLatentBatch"
    )
    assert "ImageScale" not in kinds(graph) and "EmptyLatentImage" not in kinds(graph)
    assert len(pictures) == 2 and pictures[0] != pictures[1]


def test_a_picture_of_another_size_is_scaled(page, server, tmp_path):
    path = tmp_path / "wide.png"
    path.write_bytes(gradient(100, 60))
    begin_with(page, path)
    assert [value(page, n) for n in ("width", "height")] == ["104", "64"]
    page.click("#btn-submit")
    graph, pictures = drawn(page, server)
    assert {k: only(graph, "ImageScale")[k] for k in ("width", "height", "crop")} == {
        "width": 104,
        "height": 64,
        "crop": "center",
    }
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


def sides(page):
    return [value(page, n) for n in ("width", "height")]


def test_a_picture_takes_its_size_along(page, server, tmp_path, picture):
    wide = tmp_path / "wide.png"
    wide.write_bytes(gradient(100, 60))
    assert sides(page) == ["512", "512"]
    begin_with(page, wide)
    page.until(lambda: sides(page) == ["104", "64"], "its size")
    begin_with(page, picture)  # of another size: the model's still is what it is measured by
    page.until(lambda: sides(page) == ["64", "64"], "the other's size")
    arrive(page, server)
    page.shown("#source-image")
    page.choose("#f-source", "")
    page.until(lambda: sides(page) == ["512", "512"], "what was there before")
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")  # which nobody typed
    page.until(lambda: sides(page) == ["1024", "1024"], "another model's size")


def test_a_model_chosen_beside_a_picture_has_its_size_after_it(page, server, picture):
    begin_with(page, picture)
    page.choose("#f-model", "diffusion_models:flux1-dev.safetensors")
    page.until(lambda: value(page, "scheduler") == "simple", "its settings")
    assert sides(page) == ["64", "64"]
    page.choose("#f-source", "")
    page.until(lambda: sides(page) == ["1024", "1024"], "the model's size")


def test_a_size_that_was_typed_outlives_the_picture(page, server, picture):
    page.fill("#f-width", 128)
    begin_with(page, picture)
    page.choose("#f-source", "")
    page.until(lambda: sides(page) == ["128", "512"], "what was typed before")
    page.choose("#f-source", "colours.png")
    page.until(lambda: sides(page) == ["64", "64"], "its size")
    page.fill("#f-width", 256)
    page.choose("#f-source", "")
    page.gone("#source-image")
    assert sides(page) == ["256", "64"]


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
    data = page.until(
        lambda: server.get("/view", params={"filename": "photo.png", "type": "input"}).content,
        "the file",
    )
    assert data[:4] == b"\x89PNG" and pngs.struct.unpack(">II", data[16:24]) == (2048, 1024)
    page.until(
        lambda: int(value(page, "width")) * int(value(page, "height")) <= 1.6 * 512 * 512
        and value(page, "width") > value(page, "height"),
        "a size the model can do",
    )


def test_what_is_no_picture_is_refused(page, server, tmp_path):
    path = tmp_path / "notes.jpg"
    path.write_bytes(b"a boat")
    page.click("#more-source summary")
    page.shown("#btn-source")
    page.one("#source-file").send_keys(str(path))
    assert "no picture" in page.shown("#err-source").text
    draw(page)
    page.until(lambda: page.js("return document.activeElement.id") == "f-source", "the field")
    assert (
        "notes.jpg is no picture" in page.shown("#err-source").text
        and server.get("/history").json() == {}
    )
    page.choose("#f-source", "")
    page.gone("#err-source")
    draw(page)
    assert "LoadImage" not in kinds(drawn(page, server)[0])


def tiff(width, height):
    """An RGB TIFF of one strip, not packed: what no Chromium reads."""
    pixels = bytes(
        v % 256 for y in range(height) for x in range(width) for v in (4 * x, 4 * y, x + y)
    )
    bits = 8 + 2 + 10 * 12 + 4  # where the three numbers of BitsPerSample are
    tags = [
        (256, 3, 1, width),
        (257, 3, 1, height),
        (258, 3, 3, bits),
        (259, 3, 1, 1),
        (262, 3, 1, 2),
        (273, 4, 1, bits + 6),
        (277, 3, 1, 3),
        (278, 3, 1, height),
        (279, 4, 1, len(pixels)),
        (284, 3, 1, 1),
    ]
    return (
        struct.pack("<2sHIH", b"II", 42, 8, len(tags))
        + b"".join(struct.pack("<HHII", *t) for t in tags)
        + struct.pack("<I", 0)
        + struct.pack("<3H", 8, 8, 8)
        + pixels
    )


@pytest.mark.parametrize("way", ["input folder", "file dialog"])
def test_what_only_the_server_reads_is_shown_by_it_and_used(page, server, tmp_path, way):
    folder = pathlib.Path(server.base) / "input" if way == "input folder" else tmp_path
    name = f"{way[:4]}.tiff"
    (folder / name).write_bytes(tiff(100, 60))
    page.click("#more-source summary")
    page.shown("#btn-source")
    if way == "input folder":
        page.choose("#f-source", name)
    else:
        page.one("#source-file").send_keys(str(folder / name))
    page.shown("#source-image")
    page.until(
        lambda: page.js("return document.querySelector('#source-image').naturalWidth") == 100,
        "the picture",
    )
    page.until(lambda: value(page, "width") == "104", "its size")
    assert value(page, "source") == name and not page.one("#err-source").is_displayed()
    draw(page)
    graph, pictures = drawn(page, server)
    assert only(graph, "LoadImage") == {"image": name} and "EmptyLatentImage" not in kinds(graph)


@pytest.mark.parametrize(
    "name, data, why",
    [
        ("broken.tiff", tiff(64, 64)[:200], "broken.tiff"),
        ("words.png", b"a boat", "words.png"),
        ("gone.png", None, "it is gone"),
    ],
    ids=["cut", "words", "gone"],
)
def test_a_chosen_picture_that_cannot_be_used_is_not_drawn_without(page, server, name, data, why):
    path = pathlib.Path(server.base) / "input" / name
    path.write_bytes(data or gradient())
    page.click("#more-source summary")
    page.until(lambda: name in page.text("#f-source"), "it in the list")
    if data is None:
        path.unlink()
    page.choose("#f-source", name)
    page.until_text("#err-source", "cannot be used", why)
    draw(page)
    page.until(lambda: page.js("return document.activeElement.id") == "f-source", "the field")
    page.until_text("#err-source", "cannot be used", why)
    assert value(page, "source") == name
    assert (
        server.get("/queue").json()["queue_running"] == [] and server.get("/history").json() == {}
    )
    page.choose("#f-source", "")
    page.gone("#err-source")
    path.unlink(missing_ok=True)
    page.forget()  # the 4xx of the picture is in the console


# -- masks


def stroke(page, points, kind="mouse"):
    """Presses, moves and lifts a pointer over the mask; points are parts of its sides."""
    page.js("document.querySelector('[data-test=mask]').scrollIntoView({block: 'center'})")
    x, y, w, h = page.js(
        "const r = document.querySelector('[data-test=mask]').getBoundingClientRect(); return "
        "[r.x, r.y, r.width, r.height]"
    )
    builder = ActionBuilder(page.driver, mouse=PointerInput(kind, kind), duration=20)
    for i, (px, py) in enumerate(points):
        builder.pointer_action.move_to_location(int(x + px * w), int(y + py * h))
        if i == 0:
            builder.pointer_action.pointer_down()
    builder.pointer_action.pointer_up()
    builder.perform()


def painted(page):
    """The part of the mask that is painted."""
    return page.js("""const c = document.querySelector('[data-test=mask]');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 127;
        return n / (c.width * c.height)""")


def mask_on_the_server(server, graph):
    """Which pixels are masked, as a list."""
    folder, name = only(graph, "LoadImageMask")["image"].split("/")
    width, height, channels, data = pngs.read(
        server.get("/view", params={"filename": name, "subfolder": folder, "type": "input"}).content
    )[:4]
    assert (width, height) == (64, 64)
    return [data[i * channels] for i in range(width * height)]


def only_masked_pixels_changed(before, after, mask):
    before, after = pngs.read(before), after
    assert before[:2] == after[:2]
    step, changed = before[2], 0
    for i, m in enumerate(mask):
        a, b = before[3][i * step : i * step + 3], after[3][i * after[2] : i * after[2] + 3]
        if not m:
            assert a == b, (i % before[0], i // before[0])
        changed += a != b
    assert changed > sum(m > 127 for m in mask) / 2


@pytest.mark.parametrize(
    "kind, denoise, node",
    [("mouse", None, "VAEEncodeForInpaint"), ("touch", "0.7", "SetLatentNoiseMask")],
)
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
    assert (
        abs(painted(page) - first) < 0.002
    )  # edges are smoothed: painted at once they are a little thinner
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
    assert "Paint over" in page.shown("#err-mask").text
    assert (
        page.js("return document.activeElement.matches('[data-test=mask]')")
        and not page.one("#err-source").is_displayed()
    )
    assert (
        page.js("return document.querySelector('#source-frame').nextElementSibling.id")
        == "err-mask"
    )
    assert server.get("/history").json() == {}
    page.keys(Keys.SPACE)
    page.gone("#err-mask")


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
    assert source_of(
        graph, only(graph, "VAEEncodeForInpaint")["mask"]
    ) == "LoadImage" and "LoadImageMask" not in kinds(graph)
    inside = [255 if 16 <= i % 64 < 48 and 24 <= i // 64 < 40 else 0 for i in range(64 * 64)]
    only_masked_pixels_changed(path.read_bytes(), after, inside)


@pytest.mark.parametrize(
    "model, node",
    [
        ("z-inpainting.safetensors", "InpaintModelConditioning"),
        ("diffusion_models:flux1-dev.safetensors", "VAEEncodeForInpaint"),
    ],
)
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
    differ = [
        i for i in range(3 * 104 * 20) if pictures[0][3][i] != pictures[1][3][i]
    ]  # rows above the hole
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
    assert (
        only(drawn(page, server)[0], "LoadImageMask")["image"] == mask
    )  # it is on the server already
