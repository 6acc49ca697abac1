"""ComfyUI's own frontend, as PyPI has it, on this server: it comes up, loads a workflow, runs it
and shows the picture.

Its files are not part of this project. $BERTH_COMFYUI_FRONTEND names one or several, with a colon
between them, each of which these tests try: the folder that holds index.html, a wheel of
comfyui-frontend-package, or a version, which pip then downloads. Otherwise an installed
comfyui_frontend_package is used, and without one these tests are skipped. What the page shows is
asked by what every version since 1.35 has: window.app, the run button, templates by data-testid."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from browser import ActionChains
from conftest import DEVICES, LONG, Server

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = "berth-demo.safetensors"
PACKAGE = "comfyui-frontend-package"


def frontends():
    """What is to be tried, as it was named; none: nothing is there."""
    given = os.environ.get("BERTH_COMFYUI_FRONTEND")
    if given:
        return [x for x in given.split(os.pathsep) if x]
    spec = importlib.util.find_spec("comfyui_frontend_package")
    return [os.path.join(spec.submodule_search_locations[0], "static")] if spec else []


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
    return os.path.join(folder, "comfyui_frontend_package", "static")


def download(version, folder):
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "-d",
            folder,
            f"{PACKAGE}=={version}",
        ],
        check=True,
    )
    (wheel,) = [f for f in os.listdir(folder) if f.endswith(".whl")]
    return os.path.join(folder, wheel)


pytestmark = pytest.mark.skipif(
    not frontends(),
    reason=f"no frontend: pip install {PACKAGE}, "
    "or set BERTH_COMFYUI_FRONTEND to its static/ folder, a wheel or a version",
)


@pytest.fixture(scope="module", params=frontends())
def frontend(request, tmp_path_factory):
    """The folder with its index.html."""
    name = request.param
    if re.fullmatch(r"\d+(\.\d+)+", name):
        name = download(name, str(tmp_path_factory.mktemp("wheel")))
    if name.endswith(".whl"):
        name = unpack(name, str(tmp_path_factory.mktemp("frontend")))
    assert os.path.isfile(os.path.join(name, "index.html")), f"no frontend in {name}"
    return name


# What it asks for in vain, of ComfyUI as well: files of the user that are not there yet, and an
# icon.
ABSENT = ("/user.css", "/api/userdata", "/favicon.ico")


@pytest.fixture
def server(tmp_path, frontend):
    with Server(
        tmp_path / "base",
        "--demo",
        "--front-end-root",
        frontend,
        "--devices",
        DEVICES,
        "--preview-method",
        "latent2rgb",
    ) as s:
        yield s


@pytest.fixture
def page(chrome, server):
    chrome.leave()
    yield chrome
    failed = {
        u[len(server.url) :]
        for status, u in chrome.answers()
        if status >= 400 and u.startswith(server.url)
    }
    assert {u for u in failed if not u.startswith(ABSENT)} == set()
    assert "Uncaught" not in json.dumps(chrome.errors())


def dialogs(page):
    """Texts of dialogs and error toasts that are open."""
    return page.js("""return [...document.querySelectorAll(
            '[role=dialog], .p-dialog, .comfy-modal, .p-toast-message-error')]
        .filter(e => e.checkVisibility()).map(e => e.innerText)""")


def graph_is(page, *classes):
    """Waits until these are among the nodes on the canvas."""
    page.until(
        lambda: set(classes)
        <= set(page.js("return window.app?.graph?.nodes.map(n => n.type) ?? []")),
        f"{classes}",
    )


def watch(page):
    """From here on the page keeps what its title, its sampler node and its previews showed."""
    page.js("""
        const seen = window.seen = {titles: [], progress: [], previews: []};
        new MutationObserver(() => seen.titles.push(document.title))
            .observe(document.querySelector('title'), {childList: true, characterData: true,
                subtree: true});
        setInterval(() => {
            const sampler = app.graph.nodes.find(n => n.type === 'KSampler');
            if (sampler.progress != null
                && !seen.progress.includes(sampler.progress)) seen.progress.push(sampler.progress);
            const drawn = sampler.imgs?.[0];
            if (drawn?.naturalWidth
                && !seen.previews.includes(drawn.src)) seen.previews.push(drawn.src);
        }, 10);
    """)


def asked(page, server, *paths):
    """The paths of these that it has asked for, and how they were answered."""
    return {
        (p, status) for status, u in page.answers() for p in paths if u.startswith(server.url + p)
    }


RUN = "[data-testid=queue-button], button[aria-label=Run]"


def run_and_see(page, server):
    """Presses Run; then there were progress, previews in the sampler and the picture in the node
    that saved it."""
    assert dialogs(page) == []
    watch(page)
    page.click(RUN)
    picture = page.until(
        lambda: page.js(
            """
        const image = app.graph.nodes.find(n => n.type === 'SaveImage').imgs?.[0];
        return image?.naturalWidth ? [image.src, image.naturalWidth, image.naturalHeight] : null"""
        ),
        "the picture in SaveImage",
    )
    assert (
        picture[0].startswith(server.url)
        and "type=output" in picture[0]
        and picture[1:] == [256, 256]
    )
    seen = page.js("return window.seen")
    assert any(0 < p < 1 for p in seen["progress"]), seen
    assert any("KSampler" in t for t in seen["titles"]), seen
    assert seen["previews"] and all(p.startswith("blob:") for p in seen["previews"]), seen
    assert dialogs(page) == []
    (item,) = server.get("/history").json().values()
    assert item["status"]["status_str"] == "success"
    assert item["outputs"]


def test_a_newcomer_gets_a_picture_from_the_template(page, server):
    page.open(server.url)
    page.until(
        lambda: any("demo model" in d for d in dialogs(page)),
        "the Templates dialog with ours in it",
    )
    page.until(
        lambda: page.js(
            "return [...document.querySelectorAll('[data-testid=template-workflow-berth-demo] "
            "img')]"
            ".some(i => i.naturalWidth === 256)"
        ),
        "its picture",
    )
    page.click("[data-testid=template-workflow-berth-demo]")
    graph_is(
        page,
        "CheckpointLoaderSimple",
        "CLIPTextEncode",
        "EmptyLatentImage",
        "KSampler",
        "VAEDecode",
        "SaveImage",
    )
    page.until(lambda: dialogs(page) == [], "the dialog closed")
    run_and_see(page, server)


def click_widget(page, node, widget):
    """A click on a widget of the canvas, where LiteGraph drew it."""
    x, y = page.js(
        """
        const [type, name] = arguments, node = app.graph.nodes.find(n => n.type === type);
        const w = node.widgets.find(w => w.name === name), {scale, offset} = app.canvas.ds;
        const at = app.canvas.canvas.getBoundingClientRect();
        return [(node.pos[0] + node.size[0] / 2 + offset[0]) * scale + at.left,
                (node.pos[1] + (w.last_y ?? w.y) + 10 + offset[1]) * scale + at.top
            ].map(Math.round)""",
        node,
        widget,
    )
    chain = ActionChains(page.driver)
    chain.w3c_actions.pointer_action.move_to_location(x, y).click()
    chain.perform()


def test_the_default_graph_runs_on_the_model_its_list_offers(page, server):
    """Of somebody who was here before: no templates, the frontend's own default graph."""
    server.post("/settings", {"Comfy.TutorialCompleted": True})
    page.open(server.url)
    page.js("localStorage.clear(); sessionStorage.clear()")
    page.open(server.url)
    graph_is(page, "KSampler", "SaveImage")
    if "CheckpointLoaderSimple" not in page.js("return app.graph.nodes.map(n => n.type)"):
        # Z-Image, from 1.45 or so on, whose files are not here; but all of its nodes are.
        assert (
            page.js(
                "return app.graph.nodes.filter(n => !(n.type in "
                "LiteGraph.registered_node_types)).map(n => n.type)"
            )
            == []
        )
        return
    page.until(
        lambda: page.js(
            "return app.canvas.canvas.checkVisibility() && "
            "!document.querySelector('.p-progressspinner')"
        ),
        "the canvas",
    )
    click_widget(page, "CheckpointLoaderSimple", "ckpt_name")
    page.until(
        lambda: page.js(
            "return [...document.querySelectorAll('.litemenu-entry')].map(e => e.innerText)"
        )
        == [MODEL],
        "the list of checkpoints",
    )
    page.click(".litemenu-entry")
    assert (
        page.js(
            "return app.graph.nodes.find(n => n.type === 'CheckpointLoaderSimple').widgets[0].value"
        )
        == MODEL
    )
    # Small and short, as suits the model; and the whole graph in sight, for only what is drawn
    # loads its picture.
    page.js("""
        const set = (type, name, value) => {
            app.graph.nodes.find(n => n.type === type).widgets.find(w =>
                w.name === name).value = value;
        };
        set('EmptyLatentImage', 'width', 256);
        set('EmptyLatentImage', 'height', 256);
        set('KSampler', 'steps', 12);
        app.canvas.ds.scale = 0.6;
        app.canvas.ds.offset = [120, 120];
    """)
    run_and_see(page, server)


def set_steps(page, steps):
    page.js(
        "app.graph.nodes.find(n => n.type === 'KSampler').widgets.find(w => w.name === "
        "'steps').value = arguments[0]",
        steps,
    )


def test_a_run_is_canceled_and_what_was_made_is_among_the_assets(page, server):
    """Queue and history as its panels show them, by /api/jobs since 1.39 or so."""
    server.post("/settings", {"Comfy.TutorialCompleted": True})
    page.open(server.url)
    graph_is(page, "KSampler", "SaveImage")
    with open(os.path.join(HERE, "../../web/templates/berth-demo.json")) as f:
        page.js("app.loadGraphData(arguments[0])", json.load(f))
    graph_is(page, "CheckpointLoaderSimple", "KSampler", "SaveImage")
    set_steps(page, LONG)
    page.click(RUN)
    page.until(lambda: server.get("/api/jobs?status=in_progress").json()["jobs"], "the prompt runs")
    page.click("button[aria-label='Cancel current run']")
    page.until(
        lambda: server.get("/api/jobs?status=cancelled").json()["jobs"], "the prompt was canceled"
    )
    set_steps(page, 8)
    page.click(RUN)
    (job,) = page.until(
        lambda: server.get("/api/jobs?status=completed").json()["jobs"], "the next one ended"
    )
    page.click(".assets-tab-button, [data-testid=assets-tab-button]")
    picture = job["preview_output"]["filename"]
    page.until(
        lambda: page.js(
            "return [...document.querySelectorAll('img')].some(i => i.checkVisibility() && "
            "i.naturalWidth === 256 "
            "&& i.src.includes(arguments[0]))",
            picture,
        ),
        f"{picture} in the panel",
    )
    assert server.get("/api/jobs?status=failed").json()["jobs"] == []
    by_jobs, before = asked(page, server, "/api/jobs"), asked(
        page, server, "/api/queue", "/api/history"
    )
    assert (by_jobs == {("/api/jobs", 200)} and not before) or (
        before == {("/api/queue", 200), ("/api/history", 200)} and not by_jobs
    )
