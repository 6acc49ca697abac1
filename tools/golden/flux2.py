#!/usr/bin/env python3
"""What ComfyUI's Flux.2 computes, with synthetic weights.

usage: flux2.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--refs H W H W] [--steps N]
                [--cfg X] [--prompt TEXT] [--negative TEXT]
       (written with torch 2.11, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks, nodes, samplers and schedules are run as they are but for their
size, on weights made by the rule of tests/golden/data/README.md. Inputs are drawn from --seed,
which is the runs' seed, too; --text has the lengths of the positive prompt and of the negative one,
--size the size of latents, --refs those of two latents to look at. Writes

    flux2_tiny, flux2_klein_tiny (.safetensors)
        x, t, context, guidance -> out; out_ref/<method>, out_ref2/<method>: looking at ref, or at
        ref and ref2. The network alone.
        sample/<sampler>/<scheduler>/<steps>: KSampler's run from an empty latent of the size of x,
        prompts context and negative; sample_ref/...: both prompts looking at ref, sample_ref2/...:
        at ref and ref2; sample_kv/..., sample_kv2/...: the same behind FluxKVCache
        scheduler/<steps>/<width>/<height>: Flux2Scheduler's sigmas
    vae_flux2_tiny, vae_flux2_small_tiny (.safetensors)
        z -> decoded, image -> encoded
    flux2_run.safetensors
        latent, image: --prompt and --negative through the text encoder of klein, Flux2Scheduler,
        CFGGuider and VAEDecode
    *_keys.json   names and shapes of their tensors

and manifest.json, which says how each was made. tests/golden/model/test_flux2.c, test_vae.c and
tests/golden/node/test_flux2.c read any such folder:

    tools/golden/flux2.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3 --prompt "a red boat" &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*flux2
"""

import argparse
import json
import os
import sys

import numpy as np
import torch

BASE = dict(
    image_model="flux2",
    patch_size=1,
    in_channels=128,
    out_channels=128,
    hidden_size=256,
    num_heads=2,
    axes_dim=[32, 32, 32, 32],
    theta=2000,
    context_in_dim=96,
    mlp_ratio=3.0,
    vec_in_dim=None,
    qkv_bias=False,
    ops_bias=False,
    mlp_silu_act=True,
    global_modulation=True,
    txt_ids_dims=[3],
    default_ref_method="index",
    ref_index_scale=10.0,
    yak_mlp=False,
    txt_norm=False,
)
MODELS = {
    "flux2_tiny": BASE | dict(depth=2, depth_single_blocks=2, guidance_embed=True),
    "flux2_klein_tiny": BASE | dict(depth=1, depth_single_blocks=2, guidance_embed=False),
}
METHODS = ["index", "index_timestep_zero", "uxo", "offset"]
GUIDANCE = 4.0
SIZES = [(1024, 1024), (1248, 832), (1920, 1088), (100, 37)]

VAE = dict(
    batch_norm_latent=True,
    double_z=True,
    z_channels=32,
    resolution=256,
    in_channels=3,
    out_ch=3,
    ch=32,
    ch_mult=[1, 2, 4, 4],
    num_res_blocks=2,
    attn_resolutions=[],
    dropout=0.0,
)
VAES = {"vae_flux2_tiny": (VAE, None), "vae_flux2_small_tiny": (VAE | dict(ch=64), VAE)}

TEXT = dict(
    vocab_size=151936,
    hidden_size=32,
    intermediate_size=96,
    num_hidden_layers=28,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def synth(name, shape):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.arange(n, dtype=np.uint64) + np.uint64(1)
        z = np.uint64(h) + z * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float64) / 2**24 * 2 - 1
    if len(shape) > 1:
        v = u * np.sqrt(3 / np.prod(shape[1:]))
    else:
        v = 0.1 * u + (1 if name.rsplit(".", 1)[-1] in ("weight", "scale", "running_var") else 0)
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def fill(net):
    """Synthetic weights, and what they are called."""
    keys = {k: v for k, v in net.state_dict().items() if v.ndim}
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in keys.items()}, strict=False)
    return {k: list(v.shape) for k, v in keys.items()}


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
    import comfy.samplers
    import comfy.supported_models

    return comfy


def model_of(comfy, config):
    """ComfyUI's own class around its network, with synthetic weights."""
    about = comfy.supported_models.Flux2(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    keys = fill(model.diffusion_model)
    return model.eval().float(), keys


def patcher_of(comfy, model):
    return comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))


def cfg_of(config, args):
    """ComfyUI has no batches of a model with guidance and references that are free of noise."""
    return 1.0 if config["guidance_embed"] else args.cfg


def cases(net, config, args, draw):
    width, (h, w) = config["context_in_dim"], args.size
    longer, shorter = args.text
    out = {
        "x": draw(1, 128, h, w),
        "t": torch.tensor([0.6]),
        "context": draw(1, longer, width),
        "negative": draw(1, shorter, width),
        "ref": draw(1, 128, *args.refs[:2]),
        "ref2": draw(1, 128, *args.refs[2:]),
    }
    more = {}
    if config["guidance_embed"]:
        more["guidance"] = out["guidance"] = torch.tensor([GUIDANCE])

    def run(**how):
        return net(out["x"], out["t"], out["context"], **more, **how)

    out["out"] = run()
    for method in METHODS:
        how = {"ref_latents_method": method}
        out[f"out_ref/{method}"] = run(ref_latents=[out["ref"]], **how)
        out[f"out_ref2/{method}"] = run(ref_latents=[out["ref"], out["ref2"]], **how)
    return out


def runs(comfy, model, config, args, t):
    import comfy_extras.nodes_flux as nodes

    latent, out = torch.zeros_like(t["x"]), {}
    one, two = {"reference_latents": [t["ref"]]}, {"reference_latents": [t["ref"], t["ref2"]]}
    for kind, more in (
        ("sample", {}),
        ("sample_ref", one),
        ("sample_ref2", two),
        ("sample_kv", one),
        ("sample_kv2", two),
    ):
        if config["guidance_embed"]:
            more = more | {"guidance": GUIDANCE}
        patcher = patcher_of(comfy, model)
        if "_kv" in kind:
            patcher = nodes.FluxKVCache.execute(patcher)[0]
        noise = comfy.sample.prepare_noise(latent, args.seed)
        out[f"{kind}/euler/simple/{args.steps}"] = comfy.sample.sample(
            patcher,
            noise,
            args.steps,
            cfg_of(config, args),
            "euler",
            "simple",
            [[t["context"], dict(more)]],
            [[t["negative"], dict(more)]],
            latent,
            seed=args.seed,
            disable_pbar=True,
        )
    for steps in (1, 4, 20, 50):
        for w, h in SIZES:
            out[f"scheduler/{steps}/{w}/{h}"] = nodes.Flux2Scheduler.execute(steps, w, h)[0]
    return out


def vae_of(config, decoder):
    from comfy.ldm.models.autoencoder import AutoencoderKL

    more = {} if decoder is None else {"decoder_ddconfig": decoder}
    net = AutoencoderKL(ddconfig=dict(config), embed_dim=config["z_channels"], **more)
    keys = fill(net)
    return net.eval().float(), keys


def vae_cases(net, draw):
    out = {"z": draw(1, 128, 2, 3), "image": draw(1, 3, 32, 48).clamp(-1, 1)}
    out["decoded"] = net.decode(out["z"])
    out["encoded"] = net.encode(out["image"])
    return out


def text_of(comfy):
    """klein's text encoder, as CLIPLoader makes it but for its size."""
    import comfy.text_encoders.flux as flux
    import comfy.text_encoders.llama as llama

    usual = llama.Qwen3_4BConfig.__init__

    def small(self, **given):
        usual(self, **(TEXT | given))

    llama.Qwen3_4BConfig.__init__ = small
    model = flux.klein_te(dtype_llama=torch.float32)(device="cpu", dtype=torch.float32)
    llama.Qwen3_4BConfig.__init__ = usual
    keys = fill(model.qwen3_4b.transformer)
    return flux.KleinTokenizer(), model.eval().float(), keys


def whole_run(comfy, model, args):
    import comfy_extras.nodes_flux as nodes

    tokenizer, text, keys = text_of(comfy)
    vae, _ = vae_of(*VAES["vae_flux2_tiny"])
    h, w = args.size

    def encode(prompt):
        cond, pooled, _ = text.encode_token_weights(tokenizer.tokenize_with_weights(prompt))
        return [[cond, {"pooled_output": pooled}]]

    guider = comfy.samplers.CFGGuider(patcher_of(comfy, model))
    guider.set_conds(encode(args.prompt), encode(args.negative))
    guider.set_cfg(args.cfg)
    sigmas = nodes.Flux2Scheduler.execute(args.steps, 16 * w, 16 * h)[0]
    empty = torch.zeros(1, 128, h, w)
    latent = guider.sample(
        comfy.sample.prepare_noise(empty, args.seed),
        empty,
        comfy.samplers.sampler_object("euler"),
        sigmas,
        disable_pbar=True,
        seed=args.seed,
    )
    image = ((vae.decode(latent) + 1) / 2).clamp(0, 1).movedim(1, -1)
    return {"latent": latent, "image": image}, keys


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=5)
    parse.add_argument("--text", type=int, nargs=2, default=[14, 9])
    parse.add_argument("--size", type=int, nargs=2, default=[5, 7])
    parse.add_argument("--refs", type=int, nargs=4, default=[4, 6, 3, 3])
    parse.add_argument("--steps", type=int, default=4)
    parse.add_argument("--cfg", type=float, default=2.5)
    parse.add_argument("--prompt", default="a lighthouse on a cliff, golden hour, 35mm")
    parse.add_argument("--negative", default="")
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    manifest = {}

    def save(name, tensors, keys_file, keys, **about):
        write(f"{args.folder}/{name}.safetensors", tensors)
        with open(f"{args.folder}/{keys_file}", "w") as f:
            json.dump(keys, f)
        manifest[name] = about | {
            "seed": args.seed,
            "tensors": {k: [str(v.dtype)[6:], list(v.shape)] for k, v in tensors.items()},
        }

    with torch.no_grad():
        for name, config in MODELS.items():
            generator = torch.Generator().manual_seed(args.seed)

            def draw(*shape):
                return torch.randn(*shape, generator=generator)

            model, keys = model_of(comfy, config)
            tensors = cases(model.diffusion_model, config, args, draw)
            tensors |= runs(comfy, model, config, args, tensors)
            save(
                name,
                tensors,
                f"{name}_keys.json",
                keys,
                config=config,
                cfg=cfg_of(config, args),
                guidance=GUIDANCE,
                shift=model.model_sampling.shift,
            )
        for name, (config, decoder) in VAES.items():
            net, keys = vae_of(config, decoder)
            save(name, vae_cases(net, draw), f"{name[4:]}_vae_keys.json", keys, config=config)
        tensors, keys = whole_run(comfy, model, args)
        save(
            "flux2_run",
            tensors,
            "flux2_run_text_keys.json",
            keys,
            cfg=args.cfg,
            steps=args.steps,
            prompt=args.prompt,
            negative=args.negative,
        )
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
