#!/usr/bin/env python3
"""What ComfyUI's language models compute as text encoders, with synthetic weights.

usage: lm.py FOLDER COMFYUI [--seed N] [--prompt "ID ID ..."] [--only MODEL]
       (written with torch 2.15 on a cpu, ComfyUI 0.33.0)

COMFYUI is a checkout; its networks are run as they are but for their size, on weights made by the
rule of tests/golden/data/README.md. Token ids and pictures are drawn from --seed; --prompt adds a
prompt of these ids to every model. Writes for each model of MODELS

    <model>.safetensors  p<n>/tokens -> p<n>/cond: as the manifest's `want` says, or `wants` of that
                         prompt; p<n>/attention_mask; p<n>/image<k> [h, w, 3]: in the place of the
                         k-th placeholder, and p<n>/rows<k>, what the network sees of it;
                         g<n>/tokens -> g<n>/ids: generated as `generate` says
    <model>_keys.json    names and shapes of its tensors

and adds them to manifest.json, behind clip_g_tiny where there is one.
tests/golden/model/test_lm.c reads any such folder:

    tools/golden/lm.py /tmp/fresh ../ComfyUI --seed 77
    BERTH_GOLDEN_DIR=/tmp/fresh ctest --preset dev -R golden.model.lm
"""

import argparse
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file

IMAGE_PAD, IMAGE_PAD_35 = 151655, 248056
SMALL = dict(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
)
WIDE = dict(SMALL, num_attention_heads=2, num_key_value_heads=1)
LINEAR, FULL = "linear_attention", "full_attention"
QWEN35 = dict(
    WIDE,
    num_hidden_layers=8,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    layer_types=([LINEAR] * 3 + [FULL]) * 2,
)
# Prompts: lengths; a number below 0 is as many pads; lists of sizes are pictures (height, width).
MODELS = {
    "qwen25vl_tiny": dict(
        cls="Qwen25_7BVLI",
        encoder="qwen25_7b",
        config=SMALL,
        pad=500,
        want={"layer": 0},
        prompts=[[3, (56, 56), 4], [2, (90, 143), 5, (168, 112), 2], [5, (61, 140), 3, -4]],
    ),
    "qwen3vl_tiny": dict(
        cls="Qwen3VL",
        encoder="qwen3vl_4b",
        config=SMALL,
        pad=500,
        want={"layer": -1},
        wants={"p2": {"taps": [0, 2, 3]}},
        prompts=[[7], [3, (64, 64), 4], [2, (100, 150), 5, (200, 70), 2]],
        generate=dict(g0=dict(n=6, max_length=10)),
    ),
    "qwen35_tiny": dict(
        cls="Qwen35",
        encoder="qwen35_2b",
        config=QWEN35,
        pad=500,
        want={"layer": -2},
        wants={"p1": {"taps": "all"}},
        prompts=[[7], [70], [3, (64, 64), 4], [2, (100, 150), 5, (200, 70), 2]],
        generate=dict(
            g0=dict(n=6, max_length=20),
            g1=dict(n=2, max_length=6),
            g2=dict(parts=[3, (70, 100), 4], max_length=12),
        ),
    ),
    "gemma2_tiny": dict(
        cls="Gemma2_2B",
        encoder="gemma2_2b",
        config=WIDE,
        pad=0,
        want={"layer": -2},
        prompts=[[9], [20, -3]],
        generate=dict(g0=dict(n=5, max_length=10)),
    ),
    "gemma3_tiny": dict(
        cls="Gemma3_4B",
        encoder="gemma3_4b",
        config=dict(WIDE, num_hidden_layers=7),
        window=4,
        pad=0,
        want={"layer": -2},
        wants={"p2": {"taps": "all", "left": 6}},
        prompts=[[3], [14], [-6, 9]],
        generate=dict(g0=dict(n=9, max_length=10)),
    ),
    "llama_tiny": dict(
        cls="Llama2",
        encoder="llama",
        config=dict(SMALL, num_hidden_layers=3),
        pad=500,
        want={"layer": -3},
        wants={"p1": {"taps": "all"}},
        prompts=[[9], [12, -4]],
    ),
    "mistral_tiny": dict(
        cls="Mistral3Small24B",
        encoder="mistral3_24b",
        config=dict(SMALL, vocab_size=131072, num_key_value_heads=4, final_norm=False),
        pad=0,
        want={"taps": [1, 2, 3]},
        prompts=[[9], [30]],
    ),
    "qwen3_gen_tiny": dict(
        cls="Qwen3_4B",
        encoder="qwen3_4b",
        config=SMALL,
        pad=500,
        want={"layer": 0},
        prompts=[[5]],
        generate=dict(
            g0=dict(n=6, max_length=16),
            g1=dict(
                n=6,
                max_length=16,
                do_sample=True,
                temperature=0.7,
                top_k=64,
                top_p=0.95,
                min_p=0.05,
                repetition_penalty=1.05,
                seed=3,
            ),
            g2=dict(
                n=4,
                max_length=12,
                do_sample=True,
                temperature=1.3,
                top_k=0,
                top_p=0.9,
                min_p=0.0,
                repetition_penalty=1.0,
                seed=12345678901,
                presence_penalty=0.5,
            ),
            g3=dict(
                n=4,
                max_length=12,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                min_p=0.0,
                repetition_penalty=1.2,
                seed=7,
            ),
            g4=dict(n=9, max_length=40, stop=6),
        ),
    ),
}


def synthetic(name, shape):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z = z ^ z >> np.uint64(31)
    u = (z >> np.uint64(40)).astype(np.float64) / 2**24 * 2 - 1
    if len(shape) >= 2:
        v = u * np.sqrt(3 / np.prod(shape[1:]))
    elif name.split(".")[-1] in ("weight", "scale"):
        v = 1 + 0.1 * u
    else:
        v = 0.1 * u
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def build(name, m, llama, qwen3vl, qwen35, qwen_vl, ops):
    if m["cls"] == "Qwen35":
        qwen35.QWEN35_MODELS["qwen35_2b"] = dict(
            vision=dict(hidden_size=128, intermediate_size=96, depth=3, num_position_embeddings=36)
        )
        return qwen35.Qwen35
    if m["cls"] == "Qwen3VL":
        qwen3vl.QWEN3VL_VISION["qwen3vl_4b"] = dict(
            hidden_size=128, intermediate_size=96, depth=4, deepstack_visual_indexes=[0, 1, 2]
        )
        qwen3vl.QWEN3VL_VISION_COMMON["num_position_embeddings"] = 36
        return qwen3vl._make_qwen3vl_model("qwen3vl_4b")
    cls = getattr(llama, m["cls"])
    if m["cls"] == "Qwen25_7BVLI":

        def small(hidden_size, output_hidden_size, device, dtype, ops):
            return tower(
                hidden_size=128,
                output_hidden_size=output_hidden_size,
                intermediate_size=96,
                num_layers=9,
                device=device,
                dtype=dtype,
                ops=ops,
            )

        tower = qwen_vl.Qwen2VLVisionTransformer

        class Small(cls):
            def __init__(self, *a, **kw):
                qwen_vl.Qwen2VLVisionTransformer = small
                super().__init__(*a, **kw)
                qwen_vl.Qwen2VLVisionTransformer = tower

        return Small
    if m.get("window"):
        llama.Gemma3_4B_Config.sliding_attention = [m["window"]] * 5 + [False]
    return cls


def draw(parts, m, rng):
    """Ids with None in the place of pictures, and the pictures."""
    ids, pictures = [], []
    for p in parts:
        if isinstance(p, tuple):
            pictures.append(torch.from_numpy(rng.random((*p, 3), dtype=np.float32)))
            ids.append(None)
        elif p < 0:
            ids += [m["pad"]] * -p
        else:
            ids += [int(i) for i in rng.integers(3, min(m["config"]["vocab_size"], 499), p)]
    return ids, pictures


def encode(clip, ids, pictures, want, layers):
    clip.layer, clip.layer_idx = "last", None
    if "taps" in want:
        clip.layer = want["taps"]
    elif want["layer"] < 0:
        clip.layer, clip.layer_idx = "hidden", want["layer"]
    left = iter(pictures)
    tokens = [i if i is not None else {"type": "image", "data": next(left)[None]} for i in ids]
    z, _, extra = clip([tokens])
    if "taps" in want:  # [1, taps, rows, width]: the taps of a row side by side
        z = z.permute(0, 2, 1, 3).reshape(1, z.shape[2], -1)
    return z.contiguous(), extra["attention_mask"]


def generate(clip, ids, pictures, how, out):
    how = {k: v for k, v in how.items() if k not in ("n", "parts")}
    stop = how.pop("stop", [])
    if stop:  # a number of tokens: what comes then is to end it
        first, _ = generate(clip, ids, pictures, dict(how, max_length=stop), out)
        how["stop"] = stop = [first[-1]]
    left = iter(pictures)
    tokens = [i if i is not None else {"type": "image", "data": next(left)[None]} for i in ids]
    embeds = clip.process_tokens([tokens], "cpu")[0]
    args = dict(
        do_sample=False,
        temperature=1.0,
        top_k=50,
        top_p=1.0,
        min_p=0.0,
        repetition_penalty=1.0,
        seed=0,
    )
    args.update({k: v for k, v in how.items() if k != "stop"})
    return (
        clip.transformer.generate(embeds, stop_tokens=stop, execution_dtype=torch.float32, **args),
        how,
    )


def run_model(name, m, options, modules):
    llama, qwen3vl, qwen35, qwen_vl, sd1_clip, ops = modules
    pad = IMAGE_PAD_35 if m["cls"] == "Qwen35" else IMAGE_PAD
    rng = np.random.default_rng(options.seed)
    cls = build(name, m, llama, qwen3vl, qwen35, qwen_vl, ops)
    clip = sd1_clip.SDClipModel(
        device="cpu",
        layer="last",
        textmodel_json_config=dict(m["config"]),
        dtype=torch.float32,
        special_tokens={"pad": m["pad"]},
        layer_norm_hidden_state=False,
        model_class=cls,
        enable_attention_masks=True,
        return_attention_masks=True,
    )
    model = clip.transformer
    keys = {k: list(v.shape) for k, v in model.state_dict().items()}
    model.load_state_dict({k: synthetic(k, s) for k, s in keys.items()})
    out, entry = {}, dict(encoder=m["encoder"], pad=m["pad"], seed=options.seed, want=m["want"])
    config = dict(m["config"], head_dim=model.model.config.head_dim)
    if m.get("window"):
        config["window"] = m["window"]
    prompts = list(m["prompts"])
    for i, parts in enumerate(prompts + ([None] if options.prompt else [])):
        want = m.get("wants", {}).get(f"p{i}", m["want"])
        ids, pictures = draw(parts, m, rng) if parts else (options.prompt, [])
        z, mask = encode(clip, ids, pictures, want, m["config"]["num_hidden_layers"])
        out[f"p{i}/tokens"] = torch.tensor([pad if t is None else t for t in ids])
        out[f"p{i}/cond"], out[f"p{i}/attention_mask"] = z, mask
        for k, p in enumerate(pictures):
            rows, extra = model.preprocess_embed({"type": "image", "data": p[None]}, "cpu")
            if isinstance(extra, dict):
                rows = torch.cat([rows] + list(extra["deepstack"]))
            out[f"p{i}/image{k}"], out[f"p{i}/rows{k}"] = p, rows.contiguous()
    for g, how in m.get("generate", {}).items():
        ids, pictures = draw(how.get("parts") or [how["n"]], m, rng)
        got, how = generate(clip, ids, pictures, how, out)
        out[f"{g}/tokens"] = torch.tensor([pad if t is None else t for t in ids])
        out[f"{g}/ids"] = torch.tensor(got)
        out |= {f"{g}/image{k}": p for k, p in enumerate(pictures)}
        entry.setdefault("generate", {})[g] = how
    if "wants" in m:
        entry["wants"] = m["wants"]
    entry["config"] = {k: v for k, v in config.items() if k not in ("final_norm", "layer_types")}
    entry["tensors"] = {k: [str(v.dtype).split(".")[1], list(v.shape)] for k, v in out.items()}
    save_file(out, os.path.join(options.folder, f"{name}.safetensors"))
    with open(os.path.join(options.folder, f"{name}_keys.json"), "w") as f:
        json.dump(keys, f)
    return entry


def add_to_manifest(folder, new):
    path = os.path.join(folder, "manifest.json")
    old = json.load(open(path)) if os.path.exists(path) else {}
    out = {}
    for k, v in old.items():
        if k not in new:
            out[k] = v
        if k == "clip_g_tiny":
            out.update(new)
    out.update({k: v for k, v in new.items() if k not in out})
    with open(path, "w") as f:
        f.write(json.dumps(out, indent=1))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("comfyui")
    p.add_argument("--seed", type=int, default=21)
    p.add_argument("--prompt", type=lambda s: [int(i) for i in s.split()], default=[])
    p.add_argument("--only")
    options = p.parse_args()
    options.comfyui = os.path.abspath(options.comfyui)
    sys.path.insert(0, options.comfyui)
    sys.argv = ["lm.py", "--cpu"]
    import comfy.options

    comfy.options.enable_args_parsing()
    import comfy.ops
    from comfy import sd1_clip
    from comfy.text_encoders import llama, qwen3vl, qwen35, qwen_vl

    torch.set_grad_enabled(False)
    os.makedirs(options.folder, exist_ok=True)
    modules = llama, qwen3vl, qwen35, qwen_vl, sd1_clip, comfy.ops.manual_cast
    add_to_manifest(
        options.folder,
        {
            name: run_model(name, m, options, modules)
            for name, m in MODELS.items()
            if options.only in (None, name)
        },
    )


if __name__ == "__main__":
    main()
