#!/usr/bin/env python3
"""What ComfyUI's Z-Image and Lumina2 transformers compute, with synthetic weights.

usage: zimage.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--odd H W] [--steps N]
       (written with torch 2.11, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks, samplers and schedules are run as they are, on weights made by the rule of
tests/golden/data/README.md. Inputs are drawn from --seed, which is the runs' seed, too; --text has the lengths of the
positive prompt and of the negative one, --size and --odd the sizes of latents. Writes for each model of MODELS

    <model>.safetensors      x, t, context -> out; the same with _odd; <kind>/<sampler>/<scheduler>/<steps>: a run from an
                             empty latent of the size of x, prompts sample/positive and sample/negative, cfg of that kind
    <model>_keys.json        names and shapes of its tensors

and manifest.json, which says how each was made. tests/golden/{model,node}/test_zimage.c read any such folder:

    tools/golden/zimage.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3 && BERTH_GOLDEN_DIR=/tmp/fresh ctest -R zimage
"""
import argparse
import json
import os
import sys

import numpy as np
import torch

ZIMAGE = dict(image_model="lumina2", patch_size=2, in_channels=16, qk_norm=True, n_heads=2, n_kv_heads=2, n_layers=2, dim=256,
              cap_feat_dim=256, axes_dims=[32, 48, 48], axes_lens=[1536, 512, 512], rope_theta=256.0, ffn_dim_multiplier=8.0 / 3.0,
              z_image_modulation=True, time_scale=1000.0, pad_tokens_multiple=32)
LUMINA2 = dict(image_model="lumina2", patch_size=2, in_channels=16, qk_norm=True, n_heads=4, n_kv_heads=2, n_layers=2, dim=192,
               cap_feat_dim=64, axes_dims=[16, 16, 16], axes_lens=[300, 512, 512], rope_theta=10000.0, ffn_dim_multiplier=4.0)
MODELS = {"zimage_tiny": ("ZImage", ZIMAGE), "lumina2_tiny": ("Lumina2", LUMINA2)}
CFG = {"sample": 1.0, "sample_cfg": 4.0}
RUNS = [("sample", "euler", "simple"), ("sample_cfg", "euler", "simple"), ("sample_cfg", "res_multistep", "simple")]


def synth(name, shape):
    h = 0xcbf29ce484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001b3 % 2 ** 64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(h) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float64) / 2 ** 24 * 2 - 1
    if len(shape) > 1:
        v = u * np.sqrt(3 / np.prod(shape[1:]))
    else:
        v = 0.1 * u + (1 if name.rsplit(".", 1)[-1] in ("weight", "scale") else 0)
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def write(path, tensors):
    head, at, data = {}, 0, []
    for name, t in tensors.items():
        raw = t.detach().contiguous().float().numpy().tobytes()
        head[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        data.append(raw)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(data))


def load_comfy(path):
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1] + ["--cpu"]
    import comfy.options
    comfy.options.enable_args_parsing()
    import comfy.model_patcher
    import comfy.sample
    import comfy.supported_models
    return comfy


def model_of(comfy, kind, config):
    """ComfyUI's own class around its network, with synthetic weights."""
    about = getattr(comfy.supported_models, kind)(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    net = model.diffusion_model
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return model.eval().float()


def forward(net, x, t, context):
    return net(x, t, context, context.shape[1])


def cases(net, config, args, draw):
    """One pass of two latents, one of an odd size with a longer prompt."""
    width, (h, w), (oh, ow), (longer, shorter) = config["cap_feat_dim"], args.size, args.odd, args.text
    out = {"x": draw(2, 16, h, w), "t": torch.tensor([0.9, 0.35]), "context": draw(2, shorter, width),
           "x_odd": draw(1, 16, oh, ow), "t_odd": torch.tensor([0.6]), "context_odd": draw(1, longer, width)}
    for tail in ("", "_odd"):
        out["out" + tail] = forward(net, out["x" + tail], out["t" + tail], out["context" + tail])
    return out


def runs(comfy, model, config, args, draw):
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    out = {"sample/positive": draw(1, args.text[0], config["cap_feat_dim"]),
           "sample/negative": draw(1, args.text[1], config["cap_feat_dim"])}
    latent = torch.zeros(1, 16, *args.size)
    for kind, sampler, scheduler in RUNS:
        noise = comfy.sample.prepare_noise(latent, args.seed)
        out[f"{kind}/{sampler}/{scheduler}/{args.steps}"] = comfy.sample.sample(
            patcher, noise, args.steps, CFG[kind], sampler, scheduler, [[out["sample/positive"], {}]],
            [[out["sample/negative"], {}]], latent, seed=args.seed, disable_pbar=True)
    return out


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=5)
    parse.add_argument("--text", type=int, nargs=2, default=[37, 9])
    parse.add_argument("--size", type=int, nargs=2, default=[10, 14])
    parse.add_argument("--odd", type=int, nargs=2, default=[11, 13])
    parse.add_argument("--steps", type=int, default=4)
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    manifest = {}
    for name, (kind, config) in MODELS.items():
        generator = torch.Generator().manual_seed(args.seed)

        def draw(*shape):
            return torch.randn(*shape, generator=generator)

        with torch.no_grad():
            model = model_of(comfy, kind, config)
            tensors = cases(model.diffusion_model, config, args, draw) | runs(comfy, model, config, args, draw)
        write(f"{args.folder}/{name}.safetensors", tensors)
        with open(f"{args.folder}/{name}_keys.json", "w") as f:
            json.dump({k: list(v.shape) for k, v in model.diffusion_model.state_dict().items()}, f)
        manifest[name] = {"config": config, "seed": args.seed, "cfg": CFG, "shift": model.model_sampling.shift,
                          "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()}}
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
