#!/usr/bin/env python3
"""What ComfyUI's Qwen-Image transformers compute, with synthetic weights.

usage: qwen_image.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--odd H W]
                     [--refs H W H W] [--frames N] [--steps N] [--cfg X]
       (written with torch 2.11, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its network, samplers and schedules are run as they are, on weights made by
the rule of tests/golden/data/README.md. Inputs are drawn from --seed, which is the runs' seed, too;
--text has the lengths of the positive prompt and of the negative one, --size and --odd the sizes of
latents, --refs those of two latents to look at, --frames how many the layered model's latents have.
Writes for each model of MODELS

    <model>.safetensors   x, t, context -> out; x_odd -> out_odd; out_masked: with attention_mask;
                          out_ref/<method>, out_ref2/<method>: looking at ref, or at ref and ref2,
                          `own` being the model's own method;
                          sample/<sampler>/<scheduler>/<steps>: a run from an empty latent of the
                          size of x, prompts context and negative;
                          sample_ref/...: the same, both prompts looking at ref;
                          sample_kv/...: the same behind FluxKVCache
    <model>_keys.json     names and shapes of its tensors
    <model>_control_keys.json
                          the same of a network that steers it: out_control/<strength> is what it
                          makes of x with hint, out_control_ref/<strength> when looking at ref, too

and manifest.json, which says how each was made. tests/golden/{model,node}/test_qwen_image.c read
any such folder:

    tools/golden/qwen_image.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*qwen_image
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

PLAIN = dict(
    image_model="qwen_image",
    in_channels=64,
    num_layers=2,
    attention_head_dim=128,
    num_attention_heads=2,
    joint_attention_dim=192,
    patch_size=2,
    out_channels=16,
    axes_dims_rope=[16, 56, 56],
)
MODELS = {
    "qwen_image_tiny": PLAIN,
    "qwen_image_edit_tiny": PLAIN | dict(default_ref_method="index_timestep_zero"),
    "qwen_image_layered_tiny": PLAIN
    | dict(use_additional_t_cond=True, default_ref_method="negative_index"),
}
METHODS = ["index", "offset", "negative_index", "index_timestep_zero", "own"]
RUNS = [("euler", "simple")]


def model_of(comfy, config):
    """ComfyUI's own class around its network, with synthetic weights."""
    about = comfy.supported_models.QwenImage(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    net = model.diffusion_model
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return model.eval().float()


def cases(net, config, args, draw):
    width, (h, w), (oh, ow) = config["joint_attention_dim"], args.size, args.odd
    longer, shorter = args.text
    frames = args.frames if config.get("use_additional_t_cond") else 1
    mask = torch.ones(1, longer, dtype=torch.int64)
    mask[:, longer // 2 : longer // 2 + 2] = 0
    mask[:, -1] = 0
    out = {
        "x": draw(1, 16, frames, h, w),
        "x_odd": draw(1, 16, frames, oh, ow),
        "t": torch.tensor([0.6]),
        "context": draw(1, longer, width),
        "negative": draw(1, shorter, width),
        "attention_mask": mask,
        "ref": draw(1, 16, 1, *args.refs[:2]),
        "ref2": draw(1, 16, 1, *args.refs[2:]),
    }

    def run(x, **more):
        return net(x, out["t"], out["context"], **more)

    out["out"] = run(out["x"])
    out["out_odd"] = run(out["x_odd"])
    out["out_masked"] = run(out["x"], attention_mask=mask)
    for method in METHODS:
        how = {} if method == "own" else {"ref_latents_method": method}
        out[f"out_ref/{method}"] = run(out["x"], ref_latents=[out["ref"]], **how)
        out[f"out_ref2/{method}"] = run(out["x"], ref_latents=[out["ref"], out["ref2"]], **how)
    return out


def control_of(config):
    """DiffSynth's network that steers block by block, with synthetic weights."""
    import comfy.ops
    import comfy_extras.nodes_model_patch as patches

    width = config["attention_head_dim"] * config["num_attention_heads"]
    net = patches.QwenImageBlockWiseControlNet(
        num_layers=config["num_layers"], dim=width, operations=comfy.ops.disable_weight_init
    )
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return net.eval().float()


def steered(comfy, net, control, t, draw):
    """out_control/<strength>, and the same looking at ref: steered by a latent, `hint`."""
    raw = draw(1, 16, 1, *t["x"].shape[-2:])
    out = {"hint": comfy.latent_formats.Wan21().process_in(raw)}
    y = control.process_input_latent_image(raw.clone())
    for strength in (1.0, 0.5):

        def patch(a):
            a["img"][:, : y.shape[1]] += strength * control.control_block(
                a["img"][:, : y.shape[1]], y, a["block_index"]
            )
            return a

        more = {"transformer_options": {"patches": {"double_block": [patch]}}}
        out[f"out_control/{strength}"] = net(t["x"], t["t"], t["context"], **more)
        out[f"out_control_ref/{strength}"] = net(
            t["x"], t["t"], t["context"], ref_latents=[t["ref"]], **more
        )
    return out


def runs(comfy, model, args, t):
    import comfy_extras.nodes_flux as nodes

    plain = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    latent, out, looking = torch.zeros_like(t["x"]), {}, {"reference_latents": [t["ref"]]}
    for kind, more in (("sample", {}), ("sample_ref", looking), ("sample_kv", looking)):
        patcher = nodes.FluxKVCache.execute(plain)[0] if kind == "sample_kv" else plain
        for sampler, scheduler in RUNS:
            noise = comfy.sample.prepare_noise(latent, args.seed)
            out[f"{kind}/{sampler}/{scheduler}/{args.steps}"] = comfy.sample.sample(
                patcher,
                noise,
                args.steps,
                args.cfg,
                sampler,
                scheduler,
                [[t["context"], dict(more)]],
                [[t["negative"], dict(more)]],
                latent,
                seed=args.seed,
                disable_pbar=True,
            )
    return out


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=5)
    parse.add_argument("--text", type=int, nargs=2, default=[11, 8])
    parse.add_argument("--size", type=int, nargs=2, default=[10, 14])
    parse.add_argument("--odd", type=int, nargs=2, default=[11, 13])
    parse.add_argument("--refs", type=int, nargs=4, default=[8, 12, 6, 6])
    parse.add_argument("--frames", type=int, default=3)
    parse.add_argument("--steps", type=int, default=4)
    parse.add_argument("--cfg", type=float, default=2.5)
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    manifest = {}
    for name, config in MODELS.items():
        generator = torch.Generator().manual_seed(args.seed)

        def draw(*shape):
            return torch.randn(*shape, generator=generator)

        with torch.no_grad():
            model = model_of(comfy, config)
            tensors = cases(model.diffusion_model, config, args, draw)
            control = control_of(config)
            if args.size[0] % 2 == 0 and args.size[1] % 2 == 0:
                tensors |= steered(comfy, model.diffusion_model, control, tensors, draw)
            tensors |= runs(comfy, model, args, tensors)
        write(f"{args.folder}/{name}.safetensors", tensors)
        with open(f"{args.folder}/{name}_keys.json", "w") as f:
            json.dump({k: list(v.shape) for k, v in model.diffusion_model.state_dict().items()}, f)
        with open(f"{args.folder}/{name}_control_keys.json", "w") as f:
            json.dump({k: list(v.shape) for k, v in control.state_dict().items()}, f)
        about = {k: [str(v.dtype)[6:], list(v.shape)] for k, v in tensors.items()}
        manifest[name] = {
            "config": config,
            "seed": args.seed,
            "cfg": args.cfg,
            "shift": model.model_sampling.shift,
            "tensors": about,
        }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
