#!/usr/bin/env python3
"""What ComfyUI's LTX-Video computes: its transformer, its VAEs and a video from a prompt, with
synthetic weights.

usage: ltxv.py FOLDER COMFYUI [--seed N] [--text N] [--seen N] [--size T H W] [--steps N] [--cfg X]
               [--sampler NAME] [--positive TEXT] [--negative TEXT] [--vae-size H W]
               [--run-size T H W]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks are run as they are, on weights made by the rule of
tests/golden/data/README.md, but for per_channel_statistics.std-of-means, which is 1 + that. Inputs
are drawn from --seed. Writes for each model of MODELS

    <model>.safetensors   x [2, 128, t, h, w], t, context, attention_mask, masks and what they are
                          for: a case is <name>/out, with what is beside the inputs in the
                          manifest's "cases"
    <model>_keys.json     names and shapes of its tensors; their config is the manifest's, which
                          goes into the metadata of a file

for each VAE of VAES

    vae_<name>.safetensors, vae_<name>_keys.json
                          <n>/z -> <n>/decoded -> <n>/encoded, of n latent frames, without noise

and ltxv_run.safetensors: two prompts through T5, a run of ltxv_095_tiny, the video; and one that
goes on from a picture. tests/golden/model/test_ltxv.c and tests/golden/node/test_ltxv.c read any
such folder:

    tools/golden/ltxv.py /tmp/fresh ../ComfyUI --seed 77 --size 4 3 5 --positive "two dogs" &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*ltxv
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

PLAIN = dict(
    image_model="ltxv",
    num_layers=2,
    attention_head_dim=20,
    num_attention_heads=4,
    cross_attention_dim=80,
    caption_channels=64,
    in_channels=128,
    causal_temporal_positioning=False,
)
MODELS = {
    "ltxv_09_tiny": PLAIN,
    "ltxv_095_tiny": PLAIN
    | dict(causal_temporal_positioning=True, num_attention_heads=2, cross_attention_dim=40),
    "ltxv_middle_tiny": PLAIN
    | dict(
        causal_temporal_positioning=True,
        num_layers=1,
        use_middle_indices_grid=True,
        frequencies_precision="float64",
        positional_embedding_max_pos=[10, 1024, 2048],
    ),
}
RES = {"num_layers": 1}


def vae_config(encoder, decoder, **more):
    return dict(
        _class_name="CausalVideoAutoencoder",
        dims=3,
        in_channels=3,
        out_channels=3,
        latent_channels=128,
        encoder_blocks=encoder,
        decoder_blocks=decoder,
        patch_size=4,
        scaling_factor=1.0,
        norm_layer="pixel_norm",
        latent_log_var="uniform",
        use_quant_conv=False,
        causal_decoder=False,
        encoder_base_channels=8,
        decoder_base_channels=8,
        decode_noise_scale=0.0,
        **more,
    )


OLD = [
    ["res_x", RES],
    ["compress_all", {}],
    ["res_x_y", {}],
    ["res_x", RES],
    ["compress_all", {}],
    ["res_x_y", {}],
    ["res_x", RES],
    ["compress_all", {}],
    ["res_x", RES],
]
UP = ["compress_all", {"residual": True, "multiplier": 2}]
NEW_DECODER = [
    ["res_x", RES],
    UP,
    ["res_x", {"num_layers": 2}],
    UP,
    ["res_x", RES],
    UP,
    ["res_x", RES],
]
NEW_ENCODER = [
    ["res_x", RES],
    ["compress_space_res", {"multiplier": 2}],
    ["res_x", RES],
    ["compress_time_res", {"multiplier": 2}],
    ["res_x", RES],
    ["compress_all_res", {"multiplier": 2}],
    ["res_x", RES],
    ["compress_all_res", {"multiplier": 2}],
    ["res_x", RES],
]
VAES = {
    "ltxv_09": vae_config(OLD, OLD),
    "ltxv_091": vae_config(OLD, NEW_DECODER, timestep_conditioning=True),
    "ltxv_095": vae_config(
        NEW_ENCODER, NEW_DECODER, timestep_conditioning=True, decode_timestep=0.1
    ),
    "ltxv_edges": vae_config(NEW_ENCODER, NEW_DECODER, spatial_padding_mode="zeros")
    | dict(causal_decoder=True),
}
VAE_FRAMES = {"ltxv_09": [1, 2], "ltxv_091": [2], "ltxv_095": [1, 3], "ltxv_edges": [2]}


def weights(net, skip=()):
    out = {}
    for name, v in net.state_dict().items():
        value = synth(name, list(v.shape))
        out[name] = value + 1 if name.endswith("std-of-means") else value
    if "decoder.timestep_scale_multiplier" in out:
        out["decoder.timestep_scale_multiplier"] = torch.tensor(1000.0)
    return out


def fill(net):
    net.load_state_dict(weights(net))
    return net.eval().float()


def model_of(comfy, config):
    about = comfy.supported_models.LTXV(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    fill(model.diffusion_model)
    return model.eval().float()


def guided(args, draw, guides):
    """What LTXVAddGuide does with latents: frames at the end, their places, their masks."""
    from comfy_extras.nodes_lt import LTXVAddGuide, _append_guide_attention_entry

    t, h, w = args.size
    latent, mask = draw(1, 128, t, h, w), torch.ones(1, 1, t, 1, 1)
    cond = [[torch.zeros(1), {}]]
    for g in guides:
        factor = g.get("factor", 1)
        z = draw(1, 128, g["frames"], h // factor, w // factor)
        shape = list(z.shape[2:])
        z, cells = LTXVAddGuide.dilate_latent(z, factor)
        cond, _, latent, mask = LTXVAddGuide.append_keyframe(
            cond,
            cond,
            g["at"],
            latent,
            mask,
            z,
            g["strength"],
            (8, 32, 32),
            guide_mask=cells,
            latent_downscale_factor=factor,
            causal_fix=g["first"],
        )
        pixels = g.get("pixels")
        if pixels is not None:
            pixels = torch.linspace(0, 1, pixels * 16).view(pixels, 4, 4)
        cond, _ = _append_guide_attention_entry(
            cond, cond, z[0, 0].numel(), shape, g["strength"], pixels
        )
    about = cond[0][1]
    return latent, mask.expand(1, 1, *latent.shape[2:]).contiguous(), about


GUIDES = {
    "guides": [
        dict(frames=1, at=0, strength=1.0, first=True),
        dict(frames=2, at=9, strength=1.0, first=False),
    ],
    "weighed": [
        dict(frames=1, at=0, strength=0.5, first=True),
        dict(frames=2, at=17, strength=1.0, first=False, pixels=9),
        dict(frames=1, at=4, strength=0.0, first=True),
    ],
    "dilated": [dict(frames=2, at=1, strength=0.75, first=False, factor=2)],
}


def cases(model, args, draw):
    t, h, w = args.size
    net = model.diffusion_model
    out = {
        "x": draw(2, 128, t, h, w),
        "t": torch.tensor([0.7, 0.35]),
        "context": draw(2, args.text, net.caption_channels),
        "negative": draw(2, args.text, net.caption_channels),
        "attention_mask": (torch.arange(args.text) < args.seen).long()[None],
    }
    first = torch.ones(2, 1, t, h, w)
    first[:, :, :1] = 0
    many = torch.rand(2, 1, t, h, w, generator=torch.Generator().manual_seed(args.seed))
    many[:, :, -1] = 1
    about = {
        "plain": {},
        "rate": {"frame_rate": 30.0},
        "masked": {"attention_mask": True},
        "first": {"mask": True},
        "many": {"mask": True, "frame_rate": 12.5},
    }
    masks = {"first": first, "many": many}
    for name, a in about.items():
        mask = masks.get(name)
        when = out["t"] if mask is None else (mask * out["t"].view(2, 1, 1, 1, 1)).reshape(2, -1)
        if mask is not None:
            out[f"{name}/mask"] = mask
            when = model.process_timestep(out["t"], out["x"], denoise_mask=mask)
        seen = out["attention_mask"].expand(2, -1) if "attention_mask" in a else None
        out[f"{name}/out"] = net(
            out["x"], when, out["context"], seen, frame_rate=a.get("frame_rate", 25)
        )
    for name, guides in GUIDES.items():
        x, mask, more = guided(args, draw, guides)
        when = model.process_timestep(out["t"][:1], x, denoise_mask=mask)
        out[f"{name}/x"], out[f"{name}/mask"] = x, mask
        out[f"{name}/out"] = net(
            x,
            when,
            out["context"][:1],
            None,
            frame_rate=25,
            keyframe_idxs=more["keyframe_idxs"],
            denoise_mask=mask,
            guide_attention_entries=more["guide_attention_entries"],
        )
        for i, (g, e) in enumerate(zip(guides, more["guide_attention_entries"])):
            if e["pixel_mask"] is not None:
                out[f"{name}/weight{i}"] = net._downsample_mask_to_latent(
                    e["pixel_mask"], *e["latent_shape"]
                )
        about[name] = {"guides": guides, "mask": True}
    return out, about


def sample(comfy, model, args, latent, positive, negative, more, mask=None):
    cpu = torch.device("cpu")
    patcher = comfy.model_patcher.ModelPatcher(model, cpu, cpu)
    noise = comfy.sample.prepare_noise(latent, args.seed)
    return comfy.sample.sample(
        patcher,
        noise,
        args.steps,
        args.cfg,
        args.sampler,
        "simple",
        [[positive[0], positive[1] | more]],
        [[negative[0], negative[1] | more]],
        latent,
        noise_mask=mask,
        seed=args.seed,
        disable_pbar=True,
    )


def t5_of(comfy, width):
    from comfy.text_encoders import genmo, lt
    from comfy.text_encoders import sd3_clip
    import comfy.sd1_clip

    config = json.load(open(os.path.join(os.path.dirname(sd3_clip.__file__), "t5_config_xxl.json")))
    config |= dict(d_model=width, d_ff=96, d_kv=16, num_heads=4, num_layers=2)
    te = genmo.T5XXLModel(
        device="cpu", dtype=torch.float32, model_options={"t5xxl_model_config": config}
    )
    fill(te.transformer)
    return te, lt.LTXVT5Tokenizer()


def encode(te, tokenizer, text):
    tokens = tokenizer.tokenize_with_weights(text)["t5xxl"]
    cond, _, extra = te.encode_token_weights(tokens)
    return cond, {"attention_mask": extra["attention_mask"]}


def vae_of(name):
    from comfy.ldm.lightricks.vae.causal_video_autoencoder import VideoVAE

    return fill(VideoVAE(config=VAES[name]))


def whole_run(comfy, args):
    config = MODELS["ltxv_095_tiny"]
    model = model_of(comfy, config)
    te, tokenizer = t5_of(comfy, config["caption_channels"])
    vae = vae_of("ltxv_095")
    t, h, w = args.run_size
    positive, negative = (encode(te, tokenizer, x) for x in (args.positive, args.negative))
    more = {"frame_rate": 24.0}
    out = {"context": positive[0], "negative": negative[0]}
    out["latent"] = sample(
        comfy, model, args, torch.zeros(1, 128, t, h, w), positive, negative, more
    )
    video = vae.decode(out["latent"])
    out["video"] = ((video + 1) / 2).clamp(0, 1).movedim(1, -1)
    out["photo"] = torch.rand(
        1, 32 * h, 32 * w, 3, generator=torch.Generator().manual_seed(args.seed)
    )
    first = vae.encode(out["photo"].movedim(-1, 1)[:, :, None] * 2 - 1)
    start = torch.zeros(1, 128, t, h, w)
    start[:, :, :1] = first
    mask = torch.ones(1, 1, t, 1, 1)
    mask[:, :, :1] = 0.25
    out["from_picture"] = sample(comfy, model, args, start, positive, negative, more, mask)
    about = {
        "positive": args.positive,
        "negative": args.negative,
        "width": 32 * w,
        "height": 32 * h,
        "length": 8 * (t - 1) + 1,
        "steps": args.steps,
        "sampler": args.sampler,
        "scheduler": "simple",
        "frame_rate": 24.0,
        "strength": 0.75,
        "model": "ltxv_095_tiny",
        "vae": "vae_ltxv_095",
    }
    return out, te.transformer, about


def note(args, tensors, about):
    kind = {torch.int64: "int64"}
    return about | {
        "seed": args.seed,
        "cfg": args.cfg,
        "tensors": {k: [kind.get(v.dtype, "float32"), list(v.shape)] for k, v in tensors.items()},
    }


def keys(path, net):
    with open(path, "w") as f:
        json.dump({k: list(v.shape) for k, v in net.state_dict().items()}, f)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=7)
    parse.add_argument("--text", type=int, default=14)
    parse.add_argument("--seen", type=int, default=9)
    parse.add_argument("--size", type=int, nargs=3, default=[3, 2, 4])
    parse.add_argument("--run-size", type=int, nargs=3, default=[2, 2, 2])
    parse.add_argument("--steps", type=int, default=3)
    parse.add_argument("--cfg", type=float, default=3.0)
    parse.add_argument("--sampler", default="euler")
    parse.add_argument("--positive", default="a red fox runs")
    parse.add_argument("--negative", default="blurry")
    parse.add_argument("--vae-size", type=int, nargs=2, default=[2, 2])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    torch.set_grad_enabled(False)
    manifest = {}
    for name, config in MODELS.items():
        generator = torch.Generator().manual_seed(args.seed)
        model = model_of(comfy, config)
        t, about = cases(model, args, lambda *shape: torch.randn(*shape, generator=generator))
        how = f"{args.sampler}/simple/{args.steps}"
        mask = t["attention_mask"]
        t[f"sample/{how}"] = sample(
            comfy,
            model,
            args,
            torch.zeros_like(t["x"][:1]),
            [t["context"][:1], {"attention_mask": mask}],
            [t["negative"][:1], {"attention_mask": mask}],
            {},
        )
        write(f"{args.folder}/{name}.safetensors", t)
        keys(f"{args.folder}/{name}_keys.json", model.diffusion_model)
        manifest[name] = note(args, t, {"config": config, "cases": about})
    for name in VAES:
        generator = torch.Generator().manual_seed(args.seed)
        net, t = vae_of(name), {}
        h, w = args.vae_size
        for n in VAE_FRAMES[name]:
            t[f"{n}/z"] = torch.randn(1, 128, n, h, w, generator=generator)
            t[f"{n}/decoded"] = net.decode(t[f"{n}/z"])
            t[f"{n}/encoded"] = net.encode(t[f"{n}/decoded"])
        write(f"{args.folder}/vae_{name}.safetensors", t)
        keys(f"{args.folder}/vae_{name}_keys.json", net)
        manifest[f"vae_{name}"] = note(args, t, {"config": VAES[name]})
    t, t5, about = whole_run(comfy, args)
    write(f"{args.folder}/ltxv_run.safetensors", t)
    keys(f"{args.folder}/ltxv_run_t5_keys.json", t5)
    manifest["ltxv_run"] = note(args, t, about)
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
