"""Node packs and Python packages of an installed ComfyUI, as browsers ask for them; no Python
runs."""

import hashlib
import os

import pytest

from conftest import Server

SITE = "venv/lib/python3.12/site-packages"


def put(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(scope="module")
def comfyui(tmp_path_factory):
    root = tmp_path_factory.mktemp("x") / "ComfyUI"
    (root / "models").mkdir(parents=True)
    put(
        root / SITE,
        {
            "comfyui_frontend_package/static/index.html": "<!doctype html><title>ComfyUI</title>",
            "comfyui_frontend_package/static/extensions/core/own.js": "1",
            "comfyui_workflow_templates/__init__.py": "",
            "comfyui_workflow_templates_json/templates/index.json": '[{"templates": []}]',
            "comfyui_workflow_templates_json/templates/index.fr.json": "[ ]",
            "comfyui_workflow_templates_json/templates/flow.json": '{"nodes": []}',
            "comfyui_workflow_templates_media_image/templates/flow-1.webp": "RIFF",
            "comfyui_embedded_docs/docs/KSampler/en.md": "# KSampler",
            "comfyui_embedded_docs-0.5.15.dist-info/METADATA": "",
            "comfyui_workflow_templates-0.11.44.dist-info/METADATA": "",
            "comfyui_workflow_templates_json-0.1.9.dist-info/METADATA": "",
            "comfyui_embedded_docs/secret.txt": "secret",
        },
    )
    put(
        root / "custom_nodes",
        {
            "Manager/__init__.py": "import os\nif not 'X' in os.environ:\n    WEB_DIRECTORY = "
            '"js"\n',
            "Manager/js/manager.js": "import './common.js'",
            "Manager/js/sub dir/common.js": "2",
            "Manager/js/style.css": "a{}",
            "Manager/js/module.mjs": "3",
            "Manager/js/notes.txt": "n",
            "Manager/secret.py": "key = 1",
            "Manager/js/.hidden.js": "4",
            "joined/__init__.py": "WEB_DIRECTORY = os.path.join(os.path.dirname(__file__), 'web', "
            "'js')",
            "joined/web/js/a.js": "5",
            "joined/example_workflows/one.json": '{"id": 1}',
            "joined/subgraphs/Sub.graph.json": '{"id": "\u00e9"}',
            "joined/subgraphs/notes.txt": "n",
            "joined/subgraphs/deep/no.json": "{}",
            "joined/examples/two.json": '{"id": 2}',
            "project/pyproject.toml": '[project]\nname = "my pack"\n[tool.comfy]\nweb = "dist"\n',
            "project/dist/p.js": "6",
            "outside/__init__.py": "WEB_DIRECTORY = '../../models'",
            "runs/__init__.py": "open('ran', 'w').write('x'); WEB_DIRECTORY = make()",
            "old.disabled/__init__.py": "WEB_DIRECTORY = 'js'",
            "old.disabled/js/o.js": "7",
            "single.py": "WEB_DIRECTORY = 'js'",
        },
    )
    put(root / "blueprints", {"Blur it.json": '{"id": 7}', "readme.md": "r"})
    os.symlink("/etc/hostname", root / "blueprints/host.json")
    os.symlink("/etc", root / "custom_nodes/Manager/js/etc")
    os.symlink("/etc/hostname", root / "custom_nodes/Manager/js/host.js")
    put(root / "elsewhere", {"out.json": "secret"})
    os.symlink(root / "elsewhere", root / "custom_nodes/Manager/workflows")
    return root


@pytest.fixture(scope="module")
def served(comfyui):
    with Server(comfyui, "--comfyui-dir", comfyui) as s:
        yield s


def test_scripts_are_listed(served):
    for prefix in ("", "/api"):
        listed = served.get(prefix + "/extensions").json()
        assert sorted(u for u in listed if "host.js" not in u) == [
            "/extensions/Manager/manager.js",
            "/extensions/Manager/sub dir/common.js",
            "/extensions/core/own.js",
            "/extensions/joined/a.js",
            "/extensions/my%20pack/p.js",
        ]
    assert not os.path.exists("ran")


@pytest.mark.parametrize(
    "path,type_,text",
    [
        ("/extensions/Manager/manager.js", "text/javascript", "import './common.js'"),
        ("/extensions/Manager/sub%20dir/common.js", "text/javascript", "2"),
        ("/extensions/Manager/style.css", "text/css", "a{}"),
        ("/extensions/Manager/module.mjs", "text/javascript", "3"),
        ("/extensions/Manager/notes.txt", "text/plain", "n"),
        ("/extensions/joined/a.js", "text/javascript", "5"),
        ("/extensions/my%20pack/p.js", "text/javascript", "6"),
        ("/extensions/core/own.js", "text/javascript", "1"),
        ("/templates/index.json", "application/json", '[{"templates": []}]'),
        ("/templates/flow.json", "application/json", '{"nodes": []}'),
        ("/templates/flow-1.webp", "image/webp", "RIFF"),
        ("/docs/KSampler/en.md", "text/markdown", "# KSampler"),
        ("/api/workflow_templates/joined/one.json", "application/json", '{"id": 1}'),
        ("/workflow_templates/joined/two.json", "application/json", '{"id": 2}'),
    ],
)
def test_files(served, path, type_, text):
    r = served.get(path)
    assert (r.status_code, r.headers["Content-Type"].split(";")[0], r.text) == (200, type_, text)
    assert r.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/extensions/Manager/../secret.py",
        "/extensions/Manager/%2e%2e/secret.py",
        "/extensions/Manager/..%2Fsecret.py",
        "/extensions/Manager/etc/hostname",
        "/extensions/Manager/host.js",
        "/extensions/Manager/",
        "/extensions/Manager",
        "/extensions/Manager/none.js",
        "/extensions/Manager//etc/hostname",
        "/extensions/outside/x",
        "/extensions/runs/x.js",
        "/extensions/old.disabled/o.js",
        "/extensions/../custom_nodes/Manager/secret.py",
        "/extensions/Manager/js/manager.js",
        "/extensions/%2e%2e/Manager/secret.py",
        "/extensions/Manager/manager.js%00.css",
        "/docs/../secret.txt",
        "/docs/%2e%2e/secret.txt",
        "/docs/",
        "/docs/KSampler",
        "/docs/None/en.md",
        "/templates/%2e%2e/__init__.py",
        "/templates/none.json",
        "/templates/",
        "/workflow_templates/joined/../__init__.py",
        "/workflow_templates/joined/%2e%2e/__init__.py",
        "/workflow_templates/none/one.json",
        "/workflow_templates/joined/",
        "/workflow_templates/..%2Fjoined/one.json",
        "/workflow_templates/Manager/out.json",
    ],
)
def test_nothing_else(served, path):
    """As it stands on the wire: requests would tidy it."""
    answer = served.raw(
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n"
        f"\r\n".encode()
    )
    assert int(answer.split()[1]) in (400, 403, 404), answer[:200]
    assert b"secret" not in answer.split(b"\r\n\r\n", 1)[1] and b"key = 1" not in answer


def test_example_workflows_are_listed(served):
    assert served.get("/api/workflow_templates").json() == {"joined": ["one", "two"]}


def test_the_demo_template_is_still_there(served):
    assert served.get("/templates/berth-demo.json").json()["nodes"]


def test_ours_comes_first_where_its_model_is(comfyui, tmp_path):
    with Server(
        tmp_path / "base",
        "--demo",
        "--front-end-root",
        comfyui / SITE / "comfyui_frontend_package/static",
    ) as s:
        names = [
            [t["name"] for t in group["templates"]]
            for group in s.get("/templates/index.json").json()
        ]
        assert names == [["berth-demo"], []]
        assert len(s.get("/templates/index.fr.json").json()) == 1  # theirs is empty


def test_startup_alerts(served):
    for prefix in ("", "/api"):
        assert served.get(prefix + "/manager/startup_alerts").json() == []


def test_packages_beside_a_frontend_that_was_given(comfyui, tmp_path):
    with Server(
        tmp_path / "base", "--front-end-root", comfyui / SITE / "comfyui_frontend_package/static"
    ) as s:
        assert s.get("/docs/KSampler/en.md").text == "# KSampler"
        assert s.get("/templates/flow.json").json() == {"nodes": []}
        assert s.get("/extensions").json() == ["/extensions/core/own.js"]


def test_packages_of_the_active_environment(comfyui, tmp_path):
    other = tmp_path / "ComfyUI"
    (other / "models").mkdir(parents=True)
    with Server(other, "--comfyui-dir", other, env={"VIRTUAL_ENV": str(comfyui / "venv")}) as s:
        assert "ComfyUI" in s.get("/").text
        assert s.get("/docs/KSampler/en.md").text == "# KSampler"


def test_versions_of_packages(served):
    system = served.get("/system_stats").json()["system"]
    assert system["installed_templates_version"] == "0.11.44"
    assert {p["name"]: p["installed"] for p in system["comfy_package_versions"]} == {
        "comfyui-frontend-package": None,
        "comfyui-workflow-templates": "0.11.44",
        "comfyui-embedded-docs": "0.5.15",
    }


def test_subgraphs(served, comfyui):
    """Blueprints of the installation and of packs, by ids that ComfyUI gives them, too."""

    def one(source, path, pack):
        path = os.path.realpath(comfyui / path)
        return hashlib.sha256(f"{source}{path}".encode()).hexdigest(), {
            "source": source,
            "name": os.path.basename(path)[: -len(".json")],
            "info": {"node_pack": pack},
        }

    sub, about_sub = one(
        "custom_node", "custom_nodes/joined/subgraphs/Sub.graph.json", "custom_nodes.joined"
    )
    blur, about_blur = one("templates", "blueprints/Blur it.json", "comfyui")
    listed = served.get("/global_subgraphs").json()
    assert {k: v for k, v in listed.items() if v["name"] != "host"} == {
        sub: about_sub,
        blur: about_blur,
    }
    assert served.get("/api/global_subgraphs").json() == listed
    assert served.get(f"/global_subgraphs/{sub}").json() == {
        **about_sub,
        "data": '{"id": "\u00e9"}',
    }
    assert served.get(f"/api/global_subgraphs/{blur}").json() == {**about_blur, "data": '{"id": 7}'}
    assert served.get("/global_subgraphs/" + "0" * 64).json() is None
    for out in (k for k, v in listed.items() if v["name"] == "host"):  # a link out of the folder
        assert served.get(f"/global_subgraphs/{out}").status_code >= 400
