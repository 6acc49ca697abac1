"""docs/coverage.md says which nodes of ComfyUI's templates run: the program must agree."""

import json
import re
import subprocess

from markdown import ROOT
from sandbox import BINARY

PAGE = (ROOT / "docs/coverage.md").read_text()


def running():
    nodes = json.loads(subprocess.check_output([BINARY, "nodes", "--json"]))
    return {n["class"] for n in nodes if n["runs"]}


def test_nodes_are_as_the_page_says():
    said = dict(re.findall(r"^\| `([^`]+)` \| [\d.]+ % \| (runs)? ?\|$", PAGE, re.M))
    assert len(said) > 200
    runs = running()
    wrong = [c for c in said if (said[c] == "runs") != (c in runs)]
    assert not wrong, f"run tools/templates.py again: {', '.join(wrong)}"


def test_templates_lack_what_the_nodes_lack():
    runs = running()
    rows = re.findall(r"^\| (\S+) \| [\d.]+ % \| ([^|]*) \| [^|]* \| [^|]* \|$", PAGE, re.M)
    assert len(rows) > 200
    for name, missing in rows:
        stale = [c for c in missing.split(", ") if c in runs]
        assert not stale, f"{name}: {', '.join(stale)} runs; run tools/templates.py again"
