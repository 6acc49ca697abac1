"""The demo model at work: one `berth run` for a list of prompts."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "e2e", "api"))

import judge  # noqa: E402
import pngs  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("BERTH_BINARY", "build/dev/berth")
CHECKPOINT = "berth-demo.safetensors"


def prompts():
    with open(os.path.join(HERE, "prompts.json")) as f:
        return json.load(f)["prompts"]


def settings():
    """Those the model itself brings along."""
    with open(os.path.join(HERE, "..", "..", "assets", "demo", CHECKPOINT), "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
    return json.loads(header["__metadata__"]["berth.settings"])


def workflow(texts, seeds, how):
    """One graph: a loader, and for every text an encoder, a sampler, a decoder and a file."""
    graph = {
        "model": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": CHECKPOINT}},
        "size": {"class_type": "EmptyLatentImage", "inputs": {
            "width": how["width"], "height": how["height"], "batch_size": 1}},
        "negative": {"class_type": "CLIPTextEncode",
                     "inputs": {"text": how["negative"], "clip": ["model", 1]}},
    }
    for i, (text, seed) in enumerate(zip(texts, seeds)):
        graph[f"text{i}"] = {"class_type": "CLIPTextEncode",
                             "inputs": {"text": text, "clip": ["model", 1]}}
        graph[f"sampler{i}"] = {"class_type": "KSampler", "inputs": {
            "model": ["model", 0], "positive": [f"text{i}", 0], "negative": ["negative", 0],
            "latent_image": ["size", 0], "seed": seed, "steps": how["steps"], "cfg": how["cfg"],
            "sampler_name": how["sampler_name"], "scheduler": how["scheduler"], "denoise": 1}}
        graph[f"decode{i}"] = {"class_type": "VAEDecode",
                               "inputs": {"samples": [f"sampler{i}", 0], "vae": ["model", 2]}}
        graph[f"save{i}"] = {"class_type": "SaveImage", "inputs": {
            "images": [f"decode{i}", 0], "filename_prefix": f"p{i:03d}"}}
    return graph


def draw(folder, texts, seeds, how=None):
    """Pictures of texts, as judge.halve() gives them. The files stay in folder/output."""
    path = os.path.join(folder, "prompts.json")
    with open(path, "w") as f:
        json.dump(workflow(texts, seeds, how or settings()), f)
    out = os.path.join(folder, "output")
    subprocess.run([BINARY, "run", "--demo", "--quiet", "--base-directory", folder,
                    "--output-directory", out, path], check=True, stdout=subprocess.DEVNULL)
    made = []
    for i in range(len(texts)):
        with open(os.path.join(out, f"p{i:03d}_00001_.png"), "rb") as f:
            made.append(judge.halve(*pngs.read(f.read())[:4]))
    return made
