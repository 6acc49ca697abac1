#!/usr/bin/env python3
"""What ComfyUI's encoders of pictures see, and what Flux makes of it through a style model.

usage: clip_vision.py FOLDER COMFYUI [--seed N] [--sizes H W ...] [--steps N] [--cfg X]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout whose packages are installed; its encoders, its style model, its node
StyleModelApply and its sampler are run as they are, on weights made by the rule of
tests/golden/data/README.md. Pictures of --sizes are drawn from --seed. Writes

    clip_vision.safetensors    image/<i>; for every model and picture <model>/<i>/<crop>/ with
                               pixels (of the first model alone), last, penultimate, embeds and,
                               of LLaVA's, projected;
                               style: context, vec, and for every case of the manifest tokens/<case>
                               (the prompt) and run/<case> (sampled from an empty latent)
    clip_vision_<model>_keys.json, clip_vision_redux_keys.json, clip_vision_flux_keys.json

and manifest.json. tests/golden/node/test_clip_vision.c reads any such folder:

    tools/golden/clip_vision.py /tmp/fresh ../ComfyUI --seed 77 --sizes 90 31 56 56 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R clip_vision
"""

import argparse
import json
import os

import torch

from kontext import CONFIG, in_file
from tiny_models import load_comfy, synth, write

HEADS = 4
PLAIN = dict(
    hidden_size=64,
    intermediate_size=160,
    num_attention_heads=HEADS,
    num_channels=3,
    num_hidden_layers=3,
    patch_size=14,
    image_size=56,
    hidden_act="quick_gelu",
    model_type="clip_vision_model",
    projection_dim=48,
)
SIGLIP = dict(
    PLAIN,
    model_type="siglip_vision_model",
    hidden_act="gelu_pytorch_tanh",
    image_mean=[0.5, 0.5, 0.5],
    image_std=[0.5, 0.5, 0.5],
)
del SIGLIP["projection_dim"]
MODELS = {  # "openclip": the file has the other names; "bare": without a projection
    "l": PLAIN,
    "openclip": PLAIN,
    "bare": PLAIN,
    "llava": dict(PLAIN, projector_type="llava3"),
    "h": dict(PLAIN, num_hidden_layers=31, hidden_size=32, hidden_act="gelu"),
    "siglip": dict(SIGLIP, image_size=64, patch_size=16),
    "siglip_384": dict(SIGLIP, image_size=384, hidden_size=32, num_hidden_layers=2),
}
LLAVA_WIDTH = 24
STYLES = {  # a list of (picture, strength, strength_type)
    "multiply": [(0, 0.6, "multiply")],
    "attn_bias": [(0, 0.4, "attn_bias")],
    "two": [(0, 0.3, "attn_bias"), (1, 1.7, "attn_bias")],
    "mixed": [(1, 0.5, "attn_bias"), (0, 0.8, "multiply")],
    "as_is": [(1, 1.0, "attn_bias")],
}


def openclip(name):
    """What OpenCLIP calls a tensor; q, k and v are stacked by the caller."""
    names = {
        "embeddings.patch_embedding": "conv1",
        "embeddings.class_embedding": "class_embedding",
        "embeddings.position_embedding.weight": "positional_embedding",
        "pre_layrnorm": "ln_pre",
        "post_layernorm": "ln_post",
        "encoder.layers": "transformer.resblocks",
        "layer_norm": "ln_",
        "self_attn.out_proj": "attn.out_proj",
        "mlp.fc1": "mlp.c_fc",
        "mlp.fc2": "mlp.c_proj",
        "self_attn.q_proj.": "attn.in_proj_",
    }
    name = name.replace("visual_projection.weight", "visual.proj")
    name = name.replace("vision_model.", "visual.")
    for ours, theirs in names.items():
        name = name.replace(ours, theirs)
    return name


def openclip_shapes(shapes):
    out = {}
    for name, shape in shapes.items():
        if ".k_proj" in name or ".v_proj" in name:
            continue
        shape = [3 * shape[0]] + shape[1:] if ".q_proj" in name else shape
        out[openclip(name)] = shape[::-1] if name == "visual_projection.weight" else shape
    return out


def encoder(comfy, name, config):
    import comfy.clip_model
    import comfy.clip_vision

    clip = comfy.clip_vision.ClipVisionModel(dict(config))
    if name == "llava":
        clip.model.multi_modal_projector = comfy.clip_model.LlavaProjector(
            config["hidden_size"], LLAVA_WIDTH, torch.float32, "cpu", comfy.ops.manual_cast
        )
    clip.model.float()
    shapes = {k: list(v.shape) for k, v in clip.model.state_dict().items()}
    if name == "bare":
        del shapes["visual_projection.weight"]
    if name == "openclip":
        shapes = openclip_shapes(shapes)
    weights = {k: synth(k, s) for k, s in shapes.items()}
    if name == "openclip":
        weights = comfy.clip_vision.convert_to_transformers(weights, "visual.")
    missing, unused = clip.load_sd(weights)
    assert not missing and not unused, (missing, unused)
    clip.model.float()
    return clip, shapes


def see(comfy, clip, images, first):
    out = {}
    for i, image in enumerate(images):
        for crop in ("center", "none"):
            seen = clip.encode_image(image, crop=crop == "center")
            at = f"{i}/{crop}/"
            if first:
                out[at + "pixels"] = comfy.clip_model.clip_preprocess(
                    image,
                    size=clip.image_size,
                    mean=clip.image_mean,
                    std=clip.image_std,
                    crop=crop == "center",
                )
            out[at + "last"] = seen.last_hidden_state
            out[at + "penultimate"] = seen.penultimate_hidden_states
            out[at + "embeds"] = seen.image_embeds
            if seen.mm_projected is not None:
                out[at + "projected"] = seen.mm_projected
    return {k: v.clone() for k, v in out.items()}


def styles(comfy, clip, images, draw, args):
    import comfy.ldm.flux.redux
    import comfy.sd
    import nodes

    redux = comfy.ldm.flux.redux.ReduxImageEncoder(clip.config["hidden_size"], 64).float()
    shapes = {k: list(v.shape) for k, v in redux.state_dict().items()}
    redux.load_state_dict({k: synth(k, s) for k, s in shapes.items()})
    about = comfy.supported_models.Flux(dict(CONFIG))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu")).eval().float()
    net = model.diffusion_model
    net.load_state_dict({k: synth(in_file(k), list(v.shape)) for k, v in net.state_dict().items()})
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    out = {"context": draw(1, 5, 64), "vec": draw(1, 32), "latent": torch.zeros(1, 16, 4, 6)}
    for name, list_of in STYLES.items():
        cond = [[out["context"], {"pooled_output": out["vec"]}]]
        for picture, strength, kind in list_of:
            seen = clip.encode_image(images[picture], crop=True)
            cond = nodes.StyleModelApply().apply_stylemodel(
                cond, comfy.sd.StyleModel(redux), seen, strength, kind
            )[0]
        out[f"tokens/{name}"] = cond[0][0].clone()
        noise = comfy.sample.prepare_noise(out["latent"], args.seed)
        out[f"run/{name}"] = comfy.sample.sample(
            patcher,
            noise,
            args.steps,
            args.cfg,
            "euler",
            "simple",
            cond,
            [[out["context"], {"pooled_output": out["vec"]}]],
            out["latent"],
            seed=args.seed,
            disable_pbar=True,
        )
    flux = {in_file(k): list(v.shape) for k, v in net.state_dict().items()}
    return out, {"redux": shapes, "flux": flux}


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=3)
    parse.add_argument("--sizes", type=int, nargs="+", default=[70, 41, 56, 56, 50, 120])
    parse.add_argument("--steps", type=int, default=2)
    parse.add_argument("--cfg", type=float, default=1.5)
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    generator = torch.Generator().manual_seed(args.seed)
    sizes = list(zip(args.sizes[::2], args.sizes[1::2]))
    # the last has how opaque it is, too
    images = [
        torch.rand(1 + (i == 0), h, w, 3 + (i == len(sizes) - 1), generator=generator)
        for i, (h, w) in enumerate(sizes)
    ]
    tensors = {f"image/{i}": image for i, image in enumerate(images)}
    os.makedirs(args.folder, exist_ok=True)

    def keys(name, shapes):
        with open(f"{args.folder}/clip_vision_{name}_keys.json", "w") as f:
            json.dump(shapes, f)

    with torch.no_grad():
        for i, (name, config) in enumerate(MODELS.items()):
            clip, shapes = encoder(comfy, name, config)
            few = images[:1] if name == "siglip_384" else images
            seen = see(comfy, clip, few, i == 0)
            if name == "siglip_384":  # its states are large: the corners
                seen = {k: v[:, ::56].clone() for k, v in seen.items()}
            tensors |= {f"{name}/{k}": v for k, v in seen.items()}
            keys(name, shapes)
            if name == "siglip":
                more, others = styles(
                    comfy, clip, images, lambda *s: torch.randn(*s, generator=generator), args
                )
                for other, of in others.items():
                    keys(other, of)
        tensors |= more
    write(f"{args.folder}/clip_vision.safetensors", tensors)
    manifest = {
        "models": list(MODELS),
        "heads": HEADS,
        "seed": args.seed,
        "steps": args.steps,
        "cfg": args.cfg,
        "every": {"siglip_384": 56},
        "styles": {k: [list(x) for x in v] for k, v in STYLES.items()},
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump({"clip_vision": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
