#!/usr/bin/env python3
"""What ComfyUI's HunyuanVideo 1.0 computes: its transformer and its VAE, with synthetic weights.

usage: hunyuan_video.py FOLDER COMFYUI [--seed N] [--text N] [--seen N] [--size T H W] [--steps N]
                        [--sampler NAME] [--scheduler NAME] [--guidance X] [--vae-size H W]
                        [--vae-frames N ...]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks are run as they are, on weights made by the rule of
tests/golden/data/README.md. Inputs are drawn from --seed. Writes for each model of MODELS

    <model>.safetensors       x [2, 16, t, h, w], t (noise levels times 1000), context, y,
                              attention_mask -> out; out_masked hides text; out_guided has another
                              guidance than the usual one; sample/<sampler>/<scheduler>/<steps>: a
                              run from an empty latent of the size of x
    <model>_keys.json         names and shapes of its tensors

and vae_hunyuan_video_tiny.safetensors with vae_hunyuan_video_tiny_keys.json: <n>/z -> <n>/decoded
-> <n>/encoded, of n latent frames; and manifest.json, which says how each was made.
tests/golden/model/test_hunyuan_video.c and tests/golden/node/test_hunyuan_video.c read any such
folder:

    tools/golden/hunyuan_video.py /tmp/fresh ../ComfyUI --seed 77 --size 3 4 5 --text 9 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*hunyuan
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

PLAIN = dict(
    image_model="hunyuan_video",
    in_channels=16,
    patch_size=[1, 2, 2],
    out_channels=16,
    vec_in_dim=48,
    context_in_dim=64,
    hidden_size=256,
    mlp_ratio=4.0,
    num_heads=2,
    depth=2,
    depth_single_blocks=2,
    axes_dim=[16, 56, 56],
    theta=256,
    qkv_bias=True,
    byt5=False,
    meanflow=False,
    meanflow_sum=False,
    use_cond_type_embedding=False,
    vision_in_dim=None,
    guidance_embed=True,
)
MODELS = {
    "hunyuan_video_tiny": PLAIN,
    "hunyuan_video_plain_tiny": PLAIN | dict(guidance_embed=False, vec_in_dim=None, depth=1),
}
VAE = dict(
    double_z=True,
    z_channels=16,
    resolution=256,
    in_channels=3,
    out_ch=3,
    ch=32,
    ch_mult=[1, 2, 4, 4],
    num_res_blocks=1,
    attn_resolutions=[],
    dropout=0.0,
    conv3d=True,
    time_compress=4,
)


def fill(net):
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return net.eval().float()


def model_of(comfy, config):
    """ComfyUI's own class around its network, with synthetic weights."""
    about = comfy.supported_models.HunyuanVideo(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    fill(model.diffusion_model)
    return model.eval().float()


def cases(net, config, args, draw):
    out = {
        "x": draw(2, 16, *args.size),
        "t": torch.tensor([700.0, 350.0]),
        "context": draw(2, args.text, config["context_in_dim"]),
        "y": draw(2, 48),
        "attention_mask": (torch.arange(args.text) < args.seen).long()[None],
    }
    usual = torch.tensor([6.0, 6.0])

    def run(mask=None, guidance=usual):
        return net(
            out["x"], out["t"], out["context"], out["y"], guidance=guidance, attention_mask=mask
        )

    out["out"] = run()
    out["out_masked"] = run(mask=out["attention_mask"])  # of both
    out["out_guided"] = run(guidance=torch.tensor([args.guidance] * 2))
    return out


def sample(comfy, model, args, t):
    cpu = torch.device("cpu")
    patcher = comfy.model_patcher.ModelPatcher(model, cpu, cpu)
    latent = torch.zeros_like(t["x"][:1])
    noise = comfy.sample.prepare_noise(latent, args.seed)
    prompt = [
        [t["context"][:1], {"pooled_output": t["y"][:1], "attention_mask": t["attention_mask"]}]
    ]
    return comfy.sample.sample(
        patcher,
        noise,
        args.steps,
        1.0,
        args.sampler,
        args.scheduler,
        prompt,
        prompt,
        latent,
        seed=args.seed,
        disable_pbar=True,
    )


def vae_of():
    from comfy.ldm.models.autoencoder import AutoencoderKL

    kl = AutoencoderKL(ddconfig=VAE, embed_dim=16)
    return fill(kl)


def note(args, tensors, about):
    kind = {torch.int64: "int64"}
    return about | {
        "seed": args.seed,
        "cfg": 1.0,
        "tensors": {k: [kind.get(v.dtype, "float32"), list(v.shape)] for k, v in tensors.items()},
    }


def keys(path, net):
    with open(path, "w") as f:
        json.dump({k: list(v.shape) for k, v in net.state_dict().items()}, f)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=9)
    parse.add_argument("--text", type=int, default=12)
    parse.add_argument("--seen", type=int, default=8)
    parse.add_argument("--size", type=int, nargs=3, default=[3, 4, 6])
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--sampler", default="euler")
    parse.add_argument("--scheduler", default="simple")
    parse.add_argument("--guidance", type=float, default=3.5)
    parse.add_argument("--vae-size", type=int, nargs=2, default=[3, 4])
    parse.add_argument("--vae-frames", type=int, nargs="+", default=[1, 2, 5])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    torch.set_grad_enabled(False)
    manifest = {}
    for name, config in MODELS.items():
        generator = torch.Generator().manual_seed(args.seed)
        model = model_of(comfy, config)
        t = cases(
            model.diffusion_model,
            config,
            args,
            lambda *shape: torch.randn(*shape, generator=generator),
        )
        t[f"sample/{args.sampler}/{args.scheduler}/{args.steps}"] = sample(comfy, model, args, t)
        write(f"{args.folder}/{name}.safetensors", t)
        keys(f"{args.folder}/{name}_keys.json", model.diffusion_model)
        manifest[name] = note(args, t, {"config": config, "guidance": args.guidance})
    generator = torch.Generator().manual_seed(args.seed)
    vae, t = vae_of(), {}
    for n in args.vae_frames:
        t[f"{n}/z"] = torch.randn(1, 16, n, *args.vae_size, generator=generator)
        t[f"{n}/decoded"] = vae.decode(t[f"{n}/z"])
        t[f"{n}/encoded"] = vae.quant_conv(vae.encoder(t[f"{n}/decoded"]))[:, :16]
    write(f"{args.folder}/vae_hunyuan_video_tiny.safetensors", t)
    keys(f"{args.folder}/vae_hunyuan_video_tiny_keys.json", vae)
    manifest["vae_hunyuan_video_tiny"] = note(args, t, {"config": VAE})
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
