"""Takes the pictures of the dashboard that the documents show: in the middle of a run, models on
three devices.

    python3 tests/web/screenshots.py [--binary build/berth] [--into docs] [--synthetic]

Draws with the demo model (`berth serve --demo`); --synthetic takes a tiny model of noise instead,
to try the script. Devices are logical ones in this machine's memory. Needs what tests/web needs:
tools/deps.sh test."""

import argparse
import json
import os
import pathlib
import sys
import tempfile

parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
parser.add_argument("--binary", default=os.environ.get("BERTH_BINARY", "build/berth"))
parser.add_argument("--into", default="docs", type=pathlib.Path)
parser.add_argument("--synthetic", action="store_true")
options = parser.parse_args()
os.environ["BERTH_BINARY"] = os.path.abspath(options.binary)

import browser  # noqa: E402
import palette  # noqa: E402
from conftest import MODEL, Server, arrive, base_with_model, drawing  # noqa: E402

# So that a small model is something to see, and a decode needs no tiles.
DEVICES = "cuda:0@cpu=64m,cuda:1@cpu=24m,cpu=64m"
SIZES = [
    ("wide", 1440, 900, False, "body"),
    ("wide-dark", 1440, 900, True, "body"),
    ("phone", 390, 844, False, "body"),
]
BYTES_MOST = 200 * 1000
STEPS = 240  # of the prompt that runs meanwhile; from half of them on its previews show something
SHEET = pathlib.Path(__file__).parents[2] / "examples/workflows/demo-sheet.json"
PLACES = {"expert_mode_allocations": "cuda:0,40%;cuda:1,35%;cpu,*", "keep_loaded": True}


def settings(server, model):
    """What the model's file says of itself, with the prompts of the demo's sheet."""
    found = (
        server.get("/view_metadata/checkpoints", params={"filename": model, "berth": 1})
        .json()
        .get("berth.settings")
    )
    if not found:
        return {
            "prompts": [f"noise, number {i}" for i in range(12)],
            "steps": 8,
            "width": 256,
            "cfg": 5.0,
        }
    with open(SHEET) as f:  # more of them than the file's own; other seeds, so other pictures
        prompts = [
            n["inputs"]["text"]
            for n in json.load(f).values()
            if n["class_type"] == "CLIPTextEncode"
        ]
    return {**json.loads(found), "prompts": [p for p in prompts if p]}


def workflow(model, good, number, steps=None):
    """The number-th of the example prompts, placed over three devices."""
    flow = drawing(
        good["prompts"][number % len(good["prompts"])],
        200 + number,
        steps or good["steps"],
        good["width"],
        model,
        cfg=good["cfg"],
        **PLACES,
    )
    for name in ("sampler_name", "scheduler"):
        flow["5"]["inputs"][name] = good.get(name, flow["5"]["inputs"][name])
    return flow


def prepare(page, server, model):
    """A gallery, a prompt in its middle with previews, two that wait."""
    good = settings(server, model)
    for i in range(9):
        server.run(workflow(model, good, i))
    arrive(page, server)
    me = page.js("return document.documentElement.dataset.client")
    for i in (10, 11, 12):
        id = server.queue(
            workflow(model, good, i, STEPS if i == 10 else None),
            client_id=me,
            extra_data={"preview_method": "latent2rgb"},
        )["prompt_id"]
        if i == 10:  # as if the page had sent it: a phone shows it below the button
            page.js(
                "const [id, width] = arguments; import('/berth/web/now.js').then((now) => "
                "now.follow(id, {prompt: '', width, height: width}, {}))",
                id,
                good["width"],
            )
    page.fill("#f-prompt", good["prompts"][10 % len(good["prompts"])])


def take(page, name, width, height, dark, top):
    page.size(width, height)
    if width < 500:
        page.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
        page.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=True,
        )
    page.scheme(dark)
    page.until(lambda: page.js("return innerWidth") == width, "the size")
    page.js(
        """document.activeElement.blur();
        const bar = document.querySelector('body > header'),
            at = document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY;
        scrollTo(0, at - 12 - (getComputedStyle(bar).position === 'sticky' ? bar.offsetHeight
            : 0))""",
        top,
    )
    page.until(
        lambda: page.js(
            "return [...document.images].filter(i => i.checkVisibility() && i.src && i.loading "
            "!== 'lazy')"
            ".every(i => i.complete)"
        ),
        "its pictures",
    )
    return page.screenshot()


def keep(page, name, png):
    """Writes it in few colours; false if it is too large for a repository all the same."""
    path = options.into / f"dashboard-{name}.png"
    path.write_bytes(palette.reduce(*page.pixels(png)))
    print(f"{path}: {path.stat().st_size} bytes, {len(png)} before")
    return path.stat().st_size <= BYTES_MOST


def main():
    lacking = browser.missing()
    if lacking:
        print(lacking, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        base = pathlib.Path(folder) / "base"
        model, flags = "berth-demo.safetensors", ["--demo"]
        if options.synthetic:
            base_with_model(base)
            model, flags = MODEL, []
        with Server(base, "--devices", DEVICES, *flags) as server, browser.Browser() as page:
            prepare(page, server, model)
            page.until(
                lambda: float(page.one("#running-progress").get_attribute("value") or 0)
                > STEPS / 2,
                "half of the steps",
            )
            taken = {size[0]: take(page, *size) for size in SIZES}
            server.post("/queue", {"clear": True})
            server.post("/interrupt", {})
            server.until_idle()
            small = all([keep(page, name, png) for name, png in taken.items()])
    if not small:
        print(f"larger than {BYTES_MOST} bytes: too much for a repository", file=sys.stderr)
    return 0 if small else 1


if __name__ == "__main__":
    sys.exit(main())
