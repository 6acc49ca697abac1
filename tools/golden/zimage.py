#!/usr/bin/env python3
"""What ComfyUI's Z-Image, Lumina2 and NewBie transformers compute, with synthetic weights.

usage: zimage.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--odd H W] [--refs H W H W]
                 [--steps N]
       (written with torch 2.15 on a cpu, ComfyUI 0.33.0)

COMFYUI is a checkout; its networks, samplers and schedules are run as they are, on weights made by
the rule of tests/golden/data/README.md. Inputs are drawn from --seed, which is the runs' seed, too;
--text has the lengths of the positive prompt and of the negative one, --size and --odd the sizes of
latents, --refs those of pictures to look at. Writes for each model of MODELS

    <model>.safetensors  x, t, context -> out, the same with _odd; NewBie's pooled text with the
                         first; <kind>/<sampler>/<scheduler>/<steps>: a run from an empty latent of
                         the size of x, prompts sample/positive and sample/negative, cfg of that
                         kind. Of zimage_look_ and zimage_omni_tiny passes with each
                         of LOOKS, too: ref<k>, said<k> and seen<k> are what it is to look at,
                         texts around it and what an encoder saw of it; and such runs, sample<look>
    <model>_keys.json    names and shapes of its tensors

and for each network of CONTROLS, which steers zimage_steered (a zimage_tiny of more layers),

    <control>.safetensors  x, t, context, hint -> out/<strength>
    <control>_keys.json    its tensors; that of BLANK is all zeros where it counts as broken

    zcontrol.safetensors   runs of two steps with ZImageFunControlnet: <control>/<what it is given>
    zcontrol_vae_keys.json the VAE of those

and manifest.json, which says how each was made. tests/golden/{model,node}/test_zimage*.c read any
such folder:

    tools/golden/zimage.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3
    BERTH_GOLDEN_DIR=/tmp/fresh ctest --preset dev -R golden.*zimage
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

COMMON = dict(image_model="lumina2", patch_size=2, in_channels=16, qk_norm=True, n_layers=2)
ZIMAGE = dict(
    COMMON,
    dim=256,
    n_heads=2,
    n_kv_heads=2,
    cap_feat_dim=256,
    axes_dims=[32, 48, 48],
    axes_lens=[1536, 512, 512],
    rope_theta=256.0,
    ffn_dim_multiplier=8.0 / 3.0,
    z_image_modulation=True,
    time_scale=1000.0,
    pad_tokens_multiple=32,
)
LUMINA2 = dict(
    COMMON,
    dim=192,
    n_heads=4,
    n_kv_heads=2,
    cap_feat_dim=64,
    axes_dims=[16, 16, 16],
    axes_lens=[300, 512, 512],
    rope_theta=10000.0,
    ffn_dim_multiplier=4.0,
)
NEWBIE = dict(LUMINA2, n_layers=1, clip_text_dim=48)
LOOK = dict(ZIMAGE, cap_feat_dim=64)
OMNI = dict(LOOK, siglip_feat_dim=48)
# Pictures, texts, and what was seen (rows, columns): fewer and more than there are pictures.
LOOKS = {"_look": (1, [5, 33, 2], [(3, 5)]), "_looks": (2, [7], [(22, 2)]), "_bare": (1, [], [])}
MODELS = {
    "zimage_tiny": ("ZImage", ZIMAGE),
    "zimage_look_tiny": ("ZImage", LOOK),
    "zimage_omni_tiny": ("ZImage", OMNI),
    "lumina2_tiny": ("Lumina2", LUMINA2),
    "newbie_tiny": ("Lumina2", NEWBIE),
}
STEERED = dict(ZIMAGE, n_layers=11)
CONTROLS = {
    "zcontrol_3": dict(n_control_layers=3, additional_in_dim=17, refiner_control=True),
    "zcontrol_6": dict(n_control_layers=6),
    "zcontrol_15": dict(
        n_control_layers=15, additional_in_dim=17, refiner_control=True, broken=True
    ),
}
BLANK = "control_noise_refiner.0.after_proj.weight"
STRENGTHS = [1.0, -0.6]
CFG = {
    "sample": 1.0,
    "sample_cfg": 4.0,
    "sample_look": 3.0,
    "sample_looks": 1.0,
    "sample_bare": 2.0,
}
RUNS = [
    ("sample", "euler", "simple"),
    ("sample_cfg", "euler", "simple"),
    ("sample_cfg", "res_multistep", "simple"),
]


def model_of(comfy, kind, config):
    """ComfyUI's own class around its network, with synthetic weights."""
    about = getattr(comfy.supported_models, kind)(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    net = model.diffusion_model
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return model.eval().float()


def cases(net, config, args, draw):
    """A pass of two latents, and one of an odd size with a longer prompt."""
    width, (longer, shorter) = config["cap_feat_dim"], args.text
    out = {
        "x": draw(2, 16, *args.size),
        "t": torch.tensor([0.9, 0.35]),
        "context": draw(2, shorter, width),
        "x_odd": draw(1, 16, *args.odd),
        "t_odd": torch.tensor([0.6]),
        "context_odd": draw(1, longer, width),
    }
    if "clip_text_dim" in config:
        out["pooled"] = draw(2, config["clip_text_dim"])
    for tail in ("", "_odd"):
        x, t, context = (out[k + tail] for k in ("x", "t", "context"))
        out["out" + tail] = net(
            x, t, context, context.shape[1], clip_text_pooled=out.get("pooled" + tail)
        )
    return out


def looks(config, tail, args, draw, out):
    """What that case is to look at: into out, and as the network's arguments."""
    refs, texts, seen = LOOKS[tail]
    new = {f"ref{i}": draw(1, 16, *args.refs[2 * i : 2 * i + 2]) for i in range(refs)}
    new |= {f"said{i}": draw(1, n, config["cap_feat_dim"]) for i, n in enumerate(texts)}
    if "siglip_feat_dim" in config:
        new |= {f"seen{i}": draw(1, *s, config["siglip_feat_dim"]) for i, s in enumerate(seen)}
    out |= {k + tail: v for k, v in new.items()}
    return {
        to: [v for k, v in new.items() if k.startswith(start)]
        for to, start in (
            ("ref_latents", "ref"),
            ("ref_contexts", "said"),
            ("siglip_feats", "seen"),
        )
    }


def runs(comfy, model, config, args, draw):
    """The positive prompt has a pooled text where the model takes one, the negative has none."""
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    out = {
        "sample/positive": draw(1, args.text[0], config["cap_feat_dim"]),
        "sample/negative": draw(1, args.text[1], config["cap_feat_dim"]),
    }
    said = {}
    if "clip_text_dim" in config:
        out["sample/positive_pooled"] = draw(1, config["clip_text_dim"])
        said = {"pooled_output": out["sample/positive_pooled"]}
    latent = torch.zeros(1, 16, *args.size)
    for kind, sampler, scheduler in RUNS:
        noise = comfy.sample.prepare_noise(latent, args.seed)
        out[f"{kind}/{sampler}/{scheduler}/{args.steps}"] = comfy.sample.sample(
            patcher,
            noise,
            args.steps,
            CFG[kind],
            sampler,
            scheduler,
            [[out["sample/positive"], said]],
            [[out["sample/negative"], {}]],
            latent,
            seed=args.seed,
            disable_pbar=True,
        )
    return out


class Seen:
    """What ComfyUI's encoder of pictures gives, as far as the model asks."""

    def __init__(self, rows):
        self.image_sizes = [(3, rows.shape[1] * 16, rows.shape[2] * 16)]
        self.last_hidden_state = rows.reshape(1, -1, rows.shape[-1])


def omni(comfy, model, config, args, draw, prompts):
    """Passes that look at pictures, and runs whose positive prompt does."""
    width, shorter, out = config["cap_feat_dim"], args.text[1], {}
    net = model.diffusion_model
    for tail in LOOKS:
        n = 1 if len(LOOKS[tail][1]) > LOOKS[tail][0] else 2  # texts left over want one latent
        out |= {
            "x" + tail: draw(n, 16, *args.size),
            "t" + tail: torch.tensor([0.8, 0.45][:n]),
            "context" + tail: draw(n, shorter, width),
        }
        look = looks(config, tail, args, draw, out)
        out["out" + tail] = net(*(out[k + tail] for k in ("x", "t", "context")), shorter, **look)
        patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
        latent = torch.zeros(1, 16, *args.size)
        said = {"reference_latents": look["ref_latents"]}
        if look["ref_contexts"]:
            said["reference_latents_text_embeds"] = look["ref_contexts"]
        if look["siglip_feats"]:
            said["clip_vision_outputs"] = [Seen(s) for s in look["siglip_feats"]]
        out[f"sample{tail}/euler/simple/2"] = comfy.sample.sample(
            patcher,
            comfy.sample.prepare_noise(latent, args.seed),
            2,
            CFG["sample" + tail],
            "euler",
            "simple",
            [[prompts["sample/positive"], said]],
            [[prompts["sample/negative"], {}]],
            latent,
            seed=args.seed,
            disable_pbar=True,
        )
    return out


class Encoder:
    """In a VAE's place: latents that were drawn, whatever the picture."""

    def __init__(self, *latents):
        self.latents = list(latents)

    def encode(self, pixels):
        return self.latents.pop(0)

    def spacial_compression_encode(self):
        return 8


def control_of(comfy, config):
    import comfy.ldm.lumina.controlnet
    import comfy.ops

    net = comfy.ldm.lumina.controlnet.ZImage_Control(
        dim=STEERED["dim"], n_heads=2, n_kv_heads=2, operations=comfy.ops.manual_cast, **config
    )
    blank = BLANK if config.get("broken") else None
    net.load_state_dict(
        {k: synth(k, list(v.shape)) * (0 if k == blank else 1) for k, v in net.state_dict().items()}
    )
    return net.eval()


def steered(comfy, args, draw):
    """Passes of the transformer with ComfyUI's own patch around each control network."""
    import comfy_extras.nodes_model_patch as nodes

    net = model_of(comfy, "ZImage", STEERED).diffusion_model
    yield "zimage_steered", net, None, STEERED
    for name, config in CONTROLS.items():
        control = control_of(comfy, config)
        holder = type("Patch", (), {"model": control})()
        h, w = args.size
        out = {
            "x": draw(2, 16, h, w),
            "t": torch.tensor([0.9, 0.35]),
            "context": draw(2, args.text[1], STEERED["cap_feat_dim"]),
        }
        picture = torch.zeros(1, h * 8, w * 8, 3)
        latents = [draw(1, 16, h, w) for _ in range(2)]
        for strength in STRENGTHS:
            patch = nodes.ZImageControlPatch(holder, Encoder(*latents), picture, strength)
            out["hint"] = patch.encoded_image
            options = {"patches": {"noise_refiner": [patch], "double_block": [patch]}}
            out[f"out/{strength:g}"] = net(
                out["x"], out["t"], out["context"], args.text[1], transformer_options=options
            )
        yield name, control, out, config


# Pictures that are grey all over are left out: a tiny VAE's norms blow their rounding errors up (by
# 5 % of the latent between ComfyUI's own float32 and float64).
VAE = dict(
    double_z=True,
    z_channels=16,
    resolution=256,
    in_channels=3,
    out_ch=3,
    ch=64,
    ch_mult=[1, 1, 1, 1],
    num_res_blocks=2,
    attn_resolutions=[],
    dropout=0.0,
)


class Vae:
    """What the node asks of a VAE, around ComfyUI's network."""

    def __init__(self, comfy):
        import comfy.ldm.models.autoencoder

        parts = "comfy.ldm.modules.diffusionmodules.model."
        self.net = comfy.ldm.models.autoencoder.AutoencodingEngine(
            regularizer_config={
                "target": "comfy.ldm.models.autoencoder." "DiagonalGaussianRegularizer",
                "params": {"sample": False},
            },
            encoder_config={"target": parts + "Encoder", "params": VAE},
            decoder_config={"target": parts + "Decoder", "params": VAE},
        )
        self.keys = {k: list(v.shape) for k, v in self.net.state_dict().items()}
        self.net.load_state_dict({k: synth(k, s) for k, s in self.keys.items()})
        self.net.eval()

    def encode(self, pixels):
        return self.net.encode(pixels.movedim(-1, 1) * 2.0 - 1.0)

    def spacial_compression_encode(self):
        return 8


def pictures(comfy, args, draw):
    """Runs with ComfyUI's nodes: a picture of another size, a mask, one to fill in."""
    import comfy.model_patcher
    import comfy_extras.nodes_model_patch as nodes

    vae = Vae(comfy)
    with open(f"{args.folder}/zcontrol_vae_keys.json", "w") as f:
        json.dump(vae.keys, f)
    model = model_of(comfy, "ZImage", STEERED)
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    out = {
        "positive": draw(1, args.text[0], STEERED["cap_feat_dim"]),
        "image": draw(1, 72, 120, 3).sigmoid(),
        "inpaint": draw(1, 80, 112, 3).sigmoid(),
        "mask": (draw(1, 60, 90) > 0).float(),
    }
    both = dict(image=out["image"], inpaint_image=out["inpaint"])
    given = {
        "image": dict(image=out["image"]),
        "both": both,
        "masked": both | {"mask": out["mask"]},
    }
    latent = torch.zeros(1, 16, *args.size)
    kept = []  # ComfyUI's list of loaded models holds none of them, and wants all to be there
    comfy.model_management.current_loaded_models.clear()
    for name, config in CONTROLS.items():
        if config.get("broken"):
            continue
        control = control_of(comfy, config)
        held = comfy.model_patcher.ModelPatcher(control, torch.device("cpu"), torch.device("cpu"))
        for kind, inputs in given.items():
            if (kind == "image") == ("additional_in_dim" in config):
                continue
            steered = nodes.ZImageFunControlnet().diffsynth_controlnet(
                patcher, held, vae, strength=0.8, **inputs
            )[0]
            kept += [steered, held]
            prompt = [[out["positive"], {}]]
            out[f"{name}/{kind}"] = comfy.sample.sample(
                steered,
                comfy.sample.prepare_noise(latent, args.seed),
                2,
                1.0,
                "euler",
                "simple",
                prompt,
                prompt,
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
    parse.add_argument("--text", type=int, nargs=2, default=[37, 9])
    parse.add_argument("--size", type=int, nargs=2, default=[10, 14])
    parse.add_argument("--odd", type=int, nargs=2, default=[11, 13])
    parse.add_argument("--refs", type=int, nargs=4, default=[6, 10, 12, 4])
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
            tensors = cases(model.diffusion_model, config, args, draw)
            tensors |= runs(comfy, model, config, args, draw)
            if name in ("zimage_look_tiny", "zimage_omni_tiny"):
                tensors |= omni(comfy, model, config, args, draw, tensors)
        write(f"{args.folder}/{name}.safetensors", tensors)
        with open(f"{args.folder}/{name}_keys.json", "w") as f:
            json.dump({k: list(v.shape) for k, v in model.diffusion_model.state_dict().items()}, f)
        manifest[name] = {
            "config": config,
            "seed": args.seed,
            "cfg": CFG,
            "shift": model.model_sampling.shift,
            "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()},
        }
    generator = torch.Generator().manual_seed(args.seed + 1)
    with torch.no_grad():
        for name, net, tensors, config in steered(
            comfy, args, lambda *shape: torch.randn(*shape, generator=generator)
        ):
            with open(f"{args.folder}/{name}_keys.json", "w") as f:
                json.dump({k: list(v.shape) for k, v in net.state_dict().items()}, f)
            if tensors is None:
                continue
            write(f"{args.folder}/{name}.safetensors", tensors)
            manifest[name] = {
                "config": config,
                "base": "zimage_steered",
                "seed": args.seed,
                "blank": BLANK if config.get("broken") else "",
                "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()},
            }
        tensors = pictures(comfy, args, lambda *s: torch.randn(*s, generator=generator))
    write(f"{args.folder}/zcontrol.safetensors", tensors)
    manifest["zcontrol"] = {
        "base": "zimage_steered",
        "seed": args.seed,
        "steps": 2,
        "strength": 0.8,
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
