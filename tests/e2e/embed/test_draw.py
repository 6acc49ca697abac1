"""examples/draw.c and examples/draw.py: the demo model draws a picture inside another program.

BERTH_DRAW is the C example as it was built, BERTH_LIBRARY the library that the Python one opens.
In sanitizer builds the library wants its runtime loaded first: BERTH_PRELOAD."""

import ctypes
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e/api"))
import pngs  # noqa: E402

SIDE, STEPS = 128, 4
EXAMPLES = {"c": [os.environ["BERTH_DRAW"]],
            "python": [sys.executable, str(ROOT / "examples/draw.py")]}


def workflow(**sampler):
    nodes = json.loads((ROOT / "examples/workflows/demo.json").read_text())
    nodes["4"]["inputs"].update(width=SIDE, height=SIDE)
    nodes["5"]["inputs"].update(steps=STEPS, **sampler)
    return nodes


def run(command, base, nodes):
    """What it printed, what it complained about, and its exit code."""
    file = base / "workflow.json"
    file.write_text(json.dumps(nodes))
    env = dict(os.environ)
    if command[0] == sys.executable and env.get("BERTH_PRELOAD"):
        # the interpreter leaks a lot by itself
        env.update(LD_PRELOAD=env["BERTH_PRELOAD"], ASAN_OPTIONS="detect_leaks=0")
    done = subprocess.run([*command, str(base), str(file), str(ROOT / "assets/demo"), "cpu=1g"],
                          capture_output=True, text=True, env=env, timeout=600)
    return done.stdout.splitlines(), done.stderr, done.returncode


def draw(example, base, nodes):
    return run(EXAMPLES[example], base, nodes)


def words(lines, first):
    return [line.split()[1:] for line in lines if line.split()[0] == first]


@pytest.fixture(params=sorted(EXAMPLES))
def example(request):
    return request.param


def test_draws_a_picture(example, tmp_path):
    lines, said, code = draw(example, tmp_path, workflow())
    assert code == 0, said
    path = pathlib.Path(words(lines, "file")[0][0])
    assert path.parent == tmp_path / "output"
    width, height, channels, pixels, text = pngs.read(path.read_bytes())
    assert (width, height, channels) == (SIDE, SIDE, 3)
    for c in range(3): # a yellow background and two shapes: no channel is flat
        assert max(pixels[c::3]) - min(pixels[c::3]) > 64
    assert json.loads(text["prompt"])["5"]["inputs"]["steps"] == STEPS


def test_reads_a_large_workflow(example, tmp_path):
    nodes = workflow()
    nodes["0"] = {"class_type": "PreviewAny", "inputs": {"source": "x" * (3 << 19)}}
    nodes = dict(sorted(nodes.items())) # the long one comes first
    lines, said, code = draw(example, tmp_path, nodes)
    assert code == 0 and words(lines, "file"), said


def test_hears_what_happens(example, tmp_path):
    lines, said, code = draw(example, tmp_path, workflow())
    assert code == 0, said
    began = words(lines, "node")
    assert began[0][0] == "1" and [node for node, _ in began[-3:]] == ["5", "6", "7"]
    assert ["5", "KSampler"] in began and len(began) == 7
    steps = [event for event in words(lines, "progress") if event[0] == "5"]
    assert [int(event[1]) for event in steps] == list(range(1, STEPS + 1))
    assert all(int(event[-1]) == STEPS for event in steps)
    assert len(words(lines, "preview")) == STEPS
    assert [event[0] for event in words(lines, "executed")] == ["7"]
    assert not words(lines, "error")


def test_says_which_node_failed(example, tmp_path):
    (tmp_path / "input").mkdir()
    (tmp_path / "input/bad.png").write_text("no picture")
    nodes = {"load": {"class_type": "LoadImage", "inputs": {"image": "bad.png"}},
             "show": {"class_type": "PreviewImage", "inputs": {"images": ["load", 0]}}}
    lines, said, code = draw(example, tmp_path, nodes)
    assert code == 1 and "node load (LoadImage): " in said
    assert [event[0] for event in words(lines, "error")] == ["load"]
    assert not words(lines, "file")


def test_refuses_a_workflow(example, tmp_path):
    lines, said, code = draw(example, tmp_path, workflow(sampler_name="brush"))
    assert code == 1 and "node 5 (KSampler): " in said and "brush" in said
    assert words(lines, "error") == [["5", "value_not_in_list"]]
    assert not words(lines, "node")


def test_mirrors_the_header(tmp_path):
    sys.path.insert(0, str(ROOT / "examples"))
    import draw as example  # noqa: PLC0415
    mirrors = {"berth_err": example.Err, "berth_engine_config": example.EngineConfig,
               "berth_node": example.Node, "berth_picture": example.Picture,
               "berth_run_error": example.RunError, "berth_events": example.Events,
               "berth_run_config": example.RunConfig, "berth_output_file": example.OutputFile}
    lines = [f'printf("{name}.{field[0]} %zu\\n", offsetof({name}, {field[0]}));'
             for name, mirror in mirrors.items() for field in mirror._fields_]
    lines += [f'printf("{name} %zu\\n", sizeof({name}));' for name in mirrors]
    source = tmp_path / "sizes.c"
    source.write_text("#include <berth/berth.h>\n#include <stdio.h>\nint main(void) {\n"
                      + "\n".join(lines) + "\n}\n")
    subprocess.run([os.environ.get("CC", "cc"), "-I", str(ROOT / "include"), str(source),
                    "-o", str(tmp_path / "sizes")], check=True)
    said = subprocess.run([str(tmp_path / "sizes")], capture_output=True, text=True, check=True)
    want = dict(line.split() for line in said.stdout.splitlines())
    have = {name: str(ctypes.sizeof(mirror)) for name, mirror in mirrors.items()}
    have |= {f"{name}.{field[0]}": str(getattr(mirror, field[0]).offset)
             for name, mirror in mirrors.items() for field in mirror._fields_}
    assert have == want


STOP = """
import sys
sys.path.insert(0, %r)
import draw
seen = []
def hear(*event):
    seen.append(event)
    return event[:3] == ("progress", "5", 2)
with draw.Engine(sys.argv[1], *sys.argv[3:]) as engine:
    prompt = open(sys.argv[2]).read()
    try:
        engine.run(prompt, hear)
    except draw.BerthError as e:
        print(e.code, sum(event[:2] == ("progress", "5") for event in seen), e)
    print(len(engine.run(prompt)), "file")
"""


def test_stops_in_the_middle(tmp_path):
    program = [sys.executable, "-c", STOP % str(ROOT / "examples")]
    lines, said, code = run(program, tmp_path, workflow())
    assert code == 0, said
    assert lines[0].startswith("ECANCELED 2 ") and "node 5 (KSampler)" in lines[0]
    assert lines[1] == "1 file"  # the engine goes on
