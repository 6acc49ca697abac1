#!/usr/bin/env python3
"""What ComfyUI's Mochi computes: its transformer and its VAE, with synthetic weights.

usage: mochi.py FOLDER COMFYUI [--seed N] [--text N] [--seen N] [--size T H W] [--steps N] [--cfg X]
                [--sampler NAME] [--scheduler NAME] [--vae-size H W] [--vae-frames N ...]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks are run as they are, but smaller, on weights made by the rule of
tests/golden/data/README.md. Inputs are drawn from --seed. Writes

    mochi_tiny.safetensors        x [2, 12, t, h, w], t, context, negative, attention_mask -> out,
                                  whose text is as long as --seen says, and
                                  sample/<sampler>/<scheduler>/<steps>: a run from an empty latent
                                  of the size of x
    vae_mochi_tiny.safetensors    <n>/z -> <n>/decoded -> <n>/encoded, of n latent frames
    mochi_tiny_keys.json, vae_mochi_tiny_keys.json
                                  names and shapes of their tensors

and manifest.json, which says how each was made. tests/golden/model/test_mochi.c reads any such
folder:

    tools/golden/mochi.py /tmp/fresh ../ComfyUI --seed 77 --size 3 4 6 --text 9 --seen 5 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*mochi
"""
import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

# the width of the video's feed-forward is asserted to be the real one's, whatever the rest
CONFIG = dict(image_model="mochi_preview", depth=2, num_heads=2, hidden_size_x=64, hidden_size_y=32,
              mlp_ratio_x=1536 * 8 / 64, mlp_ratio_y=4.0, learn_sigma=False, in_channels=12,
              qk_norm=True, qkv_bias=False, out_bias=True, patch_size=2, patch_embed_bias=True,
              timestep_mlp_bias=True, timestep_scale=1000.0, t5_feat_dim=64, t5_token_length=256,
              rope_theta=10000.0, posenc_preserve_area=True, attend_to_padding=False, attn_drop=0.0,
              use_t5=True)


def fill(net):
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return net.eval().float()


def model_of(comfy):
    about = comfy.supported_models.GenmoMochi(dict(CONFIG))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    fill(model.diffusion_model)
    return model.eval().float()


def cases(net, args, draw):
    mask = (torch.arange(args.text) < args.seen).long()[None]
    out = {"x": draw(2, 12, *args.size), "t": torch.tensor([0.7, 0.35]),
           "context": draw(2, args.text, 64), "negative": draw(2, args.text, 64),
           "attention_mask": mask}
    out["out"] = net(out["x"], out["t"], out["context"], mask.expand(2, -1), num_tokens=args.seen)
    return out


def sample(comfy, model, args, t):
    cpu = torch.device("cpu")
    patcher = comfy.model_patcher.ModelPatcher(model, cpu, cpu)
    latent = torch.zeros_like(t["x"][:1])
    noise = comfy.sample.prepare_noise(latent, args.seed)
    prompt = [[[t[name][:1], {"attention_mask": t["attention_mask"]}]]
              for name in ("context", "negative")]
    return comfy.sample.sample(patcher, noise, args.steps, args.cfg, args.sampler, args.scheduler,
                               *prompt, latent, seed=args.seed, disable_pbar=True)


def vae_of():
    from comfy.ldm.genmo.vae import model
    net = torch.nn.Module()
    net.encoder = model.Encoder(
        in_channels=15, base_channels=32, channel_multipliers=[1, 2, 3, 4],
        num_res_blocks=[3, 1, 1, 1, 1], latent_dim=12, temporal_reductions=[1, 2, 3],
        spatial_reductions=[2, 2, 2], prune_bottlenecks=[False] * 5,
        has_attentions=[False, True, True, True, True], affine=True, bias=True,
        input_is_conv_1x1=True, padding_mode="replicate")
    net.decoder = model.Decoder(
        out_channels=3, base_channels=32, channel_multipliers=[1, 2, 3, 4],
        temporal_expansions=[1, 2, 3], spatial_expansions=[2, 2, 2],
        num_res_blocks=[1, 1, 1, 2, 1], latent_dim=12, has_attention=[False] * 5,
        padding_mode="replicate", output_norm=False, nonlinearity="silu",
        output_nonlinearity="silu", causal=True)
    return fill(net)


def note(args, tensors, about):
    kind = {torch.int64: "int64"}
    return about | {"seed": args.seed, "cfg": args.cfg,
                    "tensors": {k: [kind.get(v.dtype, "float32"), list(v.shape)]
                                for k, v in tensors.items()}}


def keys(path, net):
    with open(path, "w") as f:
        json.dump({k: list(v.shape) for k, v in net.state_dict().items()}, f)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=11)
    parse.add_argument("--text", type=int, default=8)
    parse.add_argument("--seen", type=int, default=5)
    parse.add_argument("--size", type=int, nargs=3, default=[2, 4, 6])
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--cfg", type=float, default=3.0)
    parse.add_argument("--sampler", default="euler")
    parse.add_argument("--scheduler", default="simple")
    parse.add_argument("--vae-size", type=int, nargs=2, default=[2, 3])
    parse.add_argument("--vae-frames", type=int, nargs="+", default=[1, 2, 3])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    torch.set_grad_enabled(False)
    manifest = {}
    generator = torch.Generator().manual_seed(args.seed)
    model = model_of(comfy)
    t = cases(model.diffusion_model, args, lambda *s: torch.randn(*s, generator=generator))
    t[f"sample/{args.sampler}/{args.scheduler}/{args.steps}"] = sample(comfy, model, args, t)
    write(f"{args.folder}/mochi_tiny.safetensors", t)
    keys(f"{args.folder}/mochi_tiny_keys.json", model.diffusion_model)
    manifest["mochi_tiny"] = note(args, t, {"config": CONFIG})
    generator = torch.Generator().manual_seed(args.seed)
    vae, t = vae_of(), {}
    for n in args.vae_frames:
        t[f"{n}/z"] = torch.randn(1, 12, n, *args.vae_size, generator=generator)
        t[f"{n}/decoded"] = vae.decoder(t[f"{n}/z"])
        t[f"{n}/encoded"] = vae.encoder(t[f"{n}/decoded"]).mean
    write(f"{args.folder}/vae_mochi_tiny.safetensors", t)
    keys(f"{args.folder}/vae_mochi_tiny_keys.json", vae)
    manifest["vae_mochi_tiny"] = note(args, t, {"config": {"latents": 12}})
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
