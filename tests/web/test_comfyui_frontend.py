"""ComfyUI's own frontend, as PyPI has it, on this server: it comes up, runs its default graph and shows the picture.

Its files are not part of this project. They are looked for in $BERTH_COMFYUI_FRONTEND (the folder that holds
index.html), then in an installed comfyui_frontend_package; without them these tests are skipped."""

import importlib.util
import os

import pytest

from conftest import DEVICES, Server, base_with_model


def frontend():
    """The folder with the frontend's index.html, or None."""
    folder = os.environ.get("BERTH_COMFYUI_FRONTEND")
    if not folder:
        spec = importlib.util.find_spec("comfyui_frontend_package")
        folder = os.path.join(spec.submodule_search_locations[0], "static") if spec else None
    return folder if folder and os.path.isfile(os.path.join(folder, "index.html")) else None


pytestmark = pytest.mark.skipif(not frontend(), reason="no frontend: pip install comfyui-frontend-package, "
                                "or set BERTH_COMFYUI_FRONTEND to its static/ folder")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = base_with_model(tmp_path_factory.mktemp("berth") / "base", "v1-5-pruned-emaonly-fp16.safetensors")
    with Server(base, "--front-end-root", frontend(), "--devices", DEVICES, "--preview-method", "latent2rgb") as s:
        yield s
