#!/usr/bin/env python3
"""Which of ComfyUI's own templates Berth runs, and what the others lack: docs/coverage.md.

    pip install comfyui-workflow-templates
    python3 tools/templates.py --berth build/berth --output docs/coverage.md

A template is local if no online service computes it (`openSource` of the package's index). It is
covered if every class of its nodes can be computed (`berth nodes`) and every model file that it
names is of a family that Berth has (FAMILIES below, held against `berth synth --list`). How often
people run a template is the index's `usage`. In which type a file stores its weights is counted
apart: the same model can be had in others. Muted and bypassed nodes do not count, nor do notes.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

# Nodes that only the frontend knows.
FRONTEND = {"MarkdownNote", "Note", "Reroute", "PrimitiveNode", "workflow>"}

# (what files are called, the family, a preset of it in `berth synth --list`; None: Berth does not
# have it). The first that matches counts, so special names stand before general ones.
FAMILIES = [
    (r"minimax_music", "MiniMax Music", None),
    (r"minimax|fasth3|_h3_", "MiniMax H3", None),
    (r"qwen_image_2\.1|qwen_image_2_1", "Qwen-Image 2.1", None),
    (r"qwen.?image_layered.*vae", "Qwen-Image layered VAE", "wan-rgba-tiny-vae"),
    (r"qwen_image_vae|wan_?2[._]1_vae", "VAE of Wan 2.1 and Qwen-Image", "wan-vae"),
    (r"qwen[_-]image.*(instantx|inpaint.*control)", "InstantX's control nets", "controlnet-qwen"),
    (r"qwen[_-]image.*fun.*control", "Fun-Control of Qwen-Image", None),
    (r"qwen[_-]image|firered", "Qwen-Image", "qwen-image"),
    (r"qwen3[._]5", "Qwen3.5", "qwen35-4b"),
    (r"qwen3_?vl_32b", "Qwen3-VL 32B", None),
    (r"qwen3_?vl", "Qwen3-VL", "qwen3vl-4b"),
    (r"qwen_2\.5_vl|qwen2\.5.?vl", "Qwen2.5-VL", "qwen25vl-7b"),
    (r"qwen_3_|qwen3_", "Qwen3", "qwen3-4b"),
    (r"z[_-]image", "Z-Image", "z-image-turbo"),
    (r"lumina", "Lumina 2", "lumina2"),
    (r"krea2|krea_2", "Krea 2", "krea2"),
    (r"flux3", "Flux.3", None),
    (r"flux[-_.]?2.*vae|full_encoder_small_decoder", "VAE of Flux.2", "flux2-vae"),
    (r"flux[-_.]?2|klein", "Flux.2", "flux2-dev"),
    (r"flux.*kontext", "Flux.1 Kontext", "flux-dev"),
    (r"flux.*redux", "Flux.1 Redux", "flux-redux"),
    (r"flux.*uso|uso-flux", "USO", "flux-uso"),
    (r"flux.*(fill|canny|depth)", "Flux.1 tools", "flux-fill-dev"),
    (r"flux", "Flux.1", "flux-dev"),
    (r"^ae\.|flux.*vae", "VAE of Flux.1", "flux-vae"),
    (r"ltx-?video|ltxv", "LTX-Video", "ltxv-2b"),
    (r"ltx", "LTX-2", None),
    (r"gemma4", "Gemma 4", None),
    (r"gemma.?3", "Gemma 3", "gemma3-12b"),
    (r"gemma.?2", "Gemma 2", "gemma2-2b"),
    (r"umt5", "umT5", "umt5-xxl"),
    (r"wan.?2[._]2.*vae", "VAE of Wan 2.2", "wan22-vae"),
    (r"wan.*(animate|s2v|humo|infinite|multitalk|dancer|scail)", "Relatives of Wan", None),
    (r"wan.*vace", "VACE of Wan", "wan-vace-14b"),
    (r"wan.*camera", "Camera control of Wan", "wan22-camera-14b"),
    (r"wan", "Wan", "wan-t2v-14b"),
    (r"t5xxl|t5-?v1|t5_xxl", "T5-XXL", "t5xxl"),
    (r"clip_l|clip-?vit-l", "CLIP-L", "clip-l-tiny"),
    (r"clip_g", "CLIP-G", "clip-g-tiny"),
    (r"dino", "DINO", None),
    (r"clip_vision|sigclip", "CLIP vision", "clip-vision-h"),
    (r"sd_?xl|sdxl|illustrious|noob", "SDXL", "sdxl"),
    (r"v1-5|sd1\.?5|dreamshaper_8|512-inpainting|v2-1|768-v", "SD1.x and SD2.x", "sd15"),
    (r"sd3", "SD3", None),
    (r"mistral", "Mistral 3", "mistral3-24b"),
    (r"hunyuan_?video_(t2v|vae)", "HunyuanVideo", "hunyuan-video"),
    (r"llava_llama3", "Llama 3", "llama3-8b"),
    (r"hunyuan", "Hunyuan", None),
    (r"mochi", "Mochi", "mochi"),
    (r"esrgan|4x[-_]?ultrasharp", "ESRGAN", "esrgan-x4"),
    (r"lora", "adapters", "sd15"),
]
# What a file's name says of how its weights are stored, where Berth cannot read that.
STORED = [
    (r"svdq", "SVDQuant"), (r"bnb|nf4", "bitsandbytes"),
]


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--berth", default="build/berth", help="the program")
    p.add_argument("--templates", type=pathlib.Path,
                   help="folder with index.json; default: of the installed package")
    p.add_argument("--package", help="its version, for the page; default: as installed")
    p.add_argument("--output", type=pathlib.Path, help="the page; default: standard output")
    return p.parse_args()


def installed():
    """Folder and version of the package that is installed for this Python."""
    import importlib.metadata
    import importlib.util
    for name in ("comfyui_workflow_templates_json", "comfyui_workflow_templates"):
        spec = importlib.util.find_spec(name)
        for place in (spec.submodule_search_locations or []) if spec else []:
            folder = pathlib.Path(place) / "templates"
            if (folder / "index.json").is_file():
                return folder, importlib.metadata.version("comfyui-workflow-templates")
    sys.exit("templates.py: comfyui-workflow-templates is not installed; say --templates DIR")


def asked(*command):
    """What the program answers with --json."""
    return json.loads(subprocess.check_output([*command, "--json"]))


def local(folder):
    """The local templates of the index, each once."""
    found = {}
    for group in json.loads((folder / "index.json").read_text()):
        for t in group["templates"]:
            if t.get("openSource", True) is not False:
                found.setdefault(t["name"], t)
    return [t for t in found.values() if (folder / f"{t['name']}.json").is_file()]


def read(path):
    """Classes and model files of a workflow, subgraphs included."""
    flow = json.loads(path.read_text())
    inner = {s["id"]: s["nodes"] for s in flow.get("definitions", {}).get("subgraphs", [])}
    classes, files, waiting, seen = set(), set(), [flow["nodes"]], set()
    while waiting:
        for n in waiting.pop():
            if n.get("mode", 0) in (2, 4):
                continue
            if n["type"] in inner:
                if n["type"] not in seen:
                    waiting.append(inner[n["type"]])
                seen.add(n["type"])
                continue
            if n["type"] not in FRONTEND:
                classes.add(n["type"])
            for m in (n.get("properties") or {}).get("models") or []:
                files.add((m.get("directory", ""), m["name"]))
    return classes, files


def family(directory, name):
    if directory == "loras":
        return None  # adapters go with their model
    low = name.lower()
    for pattern, what, preset in FAMILIES:
        if re.search(pattern, low):
            return what, preset
    return f"other ({directory})", None


def stored(name):
    return next((what for pattern, what in STORED if re.search(pattern, name.lower())), None)


def judge(t, folder, runs, presets):
    """The template with what it uses and lacks."""
    classes, files = read(folder / f"{t['name']}.json")
    named = {f for f in (family(*x) for x in files) if f}
    return {
        "name": t["name"], "usage": t["usage"], "classes": classes,
        "families": {what for what, _ in named},
        "nodes_missing": sorted(c for c in classes if not runs.get(c)),
        "families_missing": sorted({what for what, preset in named if preset not in presets}),
        "stored": sorted({s for s in (stored(n) for _, n in files) if s}),
    }


def tally(rows, key):
    """{thing: usage of the templates that have it}, largest first."""
    sums = {}
    for r in rows:
        for x in r[key]:
            sums[x] = sums.get(x, 0) + r["usage"]
    return sorted(sums.items(), key=lambda i: (-i[1], i[0]))


def page(rows, runs, presets, version):
    total = sum(r["usage"] for r in rows) or 1

    def share(some):
        return f"{100 * sum(r['usage'] for r in some) / total:.1f} %"

    nodes = [r for r in rows if not r["nodes_missing"]]
    both = [r for r in nodes if not r["families_missing"]]
    whole = [r for r in both if not r["stored"]]
    there = {what: preset in presets for _, what, preset in FAMILIES}
    yield "# What is covered\n"
    yield "<!-- made by tools/templates.py; a test holds its nodes against the program -->\n"
    yield ("ComfyUI's own templates, and what each of them lacks here. A template is local if no\n"
           "online service computes it; runs are the `usage` of the package's index.\n")
    yield f"Package: comfyui-workflow-templates {version}, {len(rows)} local templates.\n"
    yield "| | templates | of runs |\n|---|---|---|"
    yield f"| every node is there | {len(nodes)} | {share(nodes)} |"
    yield f"| every node and every family of models | {len(both)} | **{share(both)}** |"
    yield f"| and in the types that its files are named after | {len(whole)} | {share(whole)} |\n"
    yield "## Families\n\n| family | of runs | |\n|---|---|---|"
    for what, usage in tally(rows, "families"):
        yield f"| {what} | {100 * usage / total:.1f} % | {'runs' if there.get(what) else ''} |"
    yield "\n## Nodes\n\n| class | of runs | |\n|---|---|---|"
    for c, usage in tally(rows, "classes"):
        yield f"| `{c}` | {100 * usage / total:.1f} % | {'runs' if runs.get(c) else ''} |"
    yield "\n## Templates\n"
    yield "| template | of runs | nodes missing | families missing | types that cannot be read |"
    yield "|---|---|---|---|---|"
    for r in sorted(rows, key=lambda r: (-r["usage"], r["name"])):
        cells = [", ".join(r[k]) for k in ("nodes_missing", "families_missing", "stored")]
        yield f"| {r['name']} | {100 * r['usage'] / total:.2f} % | {' | '.join(cells)} |"


def main():
    args = arguments()
    folder, version = (args.templates, args.package or "") if args.templates else installed()
    runs = {n["class"]: n["runs"] for n in asked(args.berth, "nodes")}
    presets = {p["preset"] for p in asked(args.berth, "synth", "--list")}
    rows = [judge(t, folder, runs, presets) for t in local(folder)]
    text = "\n".join(page(rows, runs, presets, version)) + "\n"
    if args.output:
        args.output.write_text(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
