#!/usr/bin/env python3
"""What ComfyUI's nodes for Wan say of pictures, and what its models then make, with synthetic
weights.

usage: wan.py FOLDER COMFYUI [--vae KEYS] [--seed N] [--text N N] [--size W H] [--length N]
              [--steps N] [--cfg X] [--cases CASE ...] [--tiles N N N N] [--latent T H W]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its nodes, networks and sampler are run as they are, on weights made by the
rule of tests/golden/data/README.md. --vae is a list of a VAE's tensors. Inputs are drawn from
--seed, which is the runs' seed, too; --text has the lengths of the positive prompt and of the
negative one, --size and --length those of the video. Writes for each case of CASES

    wan_node_<case>.safetensors
                          what the node is given; positive/<name>, negative/<name>: what it says;
                          latent: what it gives; out: a run over that latent by euler and simple
    wan_node_<case>_keys.json
                          names and shapes of the model's tensors

    wan_tiled.safetensors z -> image: a latent of the size --latent through VAEDecodeTiled, whose
                          sizes and overlaps in pixels and frames --tiles has

and manifest.json, which says how each was made. tests/golden/node/test_wan_nodes.c reads any such
folder:

    tools/golden/wan.py /tmp/fresh ../ComfyUI --seed 77 --length 5 &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*wan_nodes
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write

PLAIN = dict(
    model_type="t2v",
    dim=128,
    ffn_dim=192,
    num_heads=1,
    num_layers=2,
    text_dim=32,
    in_dim=16,
    out_dim=16,
)
SEES = PLAIN | dict(model_type="i2v", in_dim=36)
# the node; the model; pictures it is given, as frames; what CLIP vision saw, as tokens; more inputs
CASES = {
    "i2v": ("WanImageToVideo", SEES, {"start_image": 3}, {"clip_vision_output": 5}, {}),
    "flf2v": (
        "WanFirstLastFrameToVideo",
        SEES | dict(flf_pos_embed_token_number=12),
        {"start_image": 1, "end_image": 2},
        {"clip_vision_start_image": 4, "clip_vision_end_image": 5},
        {},
    ),
    "fun_inpaint": ("WanFunInpaintToVideo", SEES, {"end_image": 1}, {}, {}),
    "fun_control": (
        "WanFunControlToVideo",
        SEES | dict(in_dim=48, in_dim_ref_conv=16),
        {"start_image": 1, "control_video": 5},
        {"clip_vision_output": 5},
        {},
    ),
    "fun_control22": (
        "Wan22FunControlToVideo",
        PLAIN | dict(in_dim=52, in_dim_ref_conv=16),
        {"ref_image": 1, "control_video": 5},
        {},
        {},
    ),
    "vace": (
        "WanVaceToVideo",
        PLAIN | dict(model_type="vace", num_layers=4, vace_layers=2, vace_in_dim=96),
        {"control_video": 3, "reference_image": 1},
        {},
        {"strength": 0.7},
    ),
    "vace_masked": (
        "WanVaceToVideo",
        PLAIN | dict(model_type="vace", num_layers=3, vace_layers=1, vace_in_dim=96),
        {"control_video": 4},
        {},
        {"masks": 3},
    ),
    "phantom": ("WanPhantomSubjectToVideo", PLAIN, {"images": 2}, {}, {}),
    "camera": (
        "WanCameraImageToVideo",
        SEES | dict(model_type="camera", in_dim=32, in_dim_control_adapter=24),
        {"start_image": 1},
        {"clip_vision_output": 5},
        {"camera": {"camera_pose": "ClockWise (CW)", "speed": 1.5}},
    ),
    "camera22": (
        "WanCameraImageToVideo",
        PLAIN | dict(model_type="camera_2.2", in_dim=36, in_dim_control_adapter=24),
        {"start_image": 5},
        {},
        {"camera": {"camera_pose": "Zoom In", "speed": 0.7, "fx": 0.4}},
    ),
}
SAID = ["concat_latent_image", "concat_mask", "time_dim_concat"]
LISTS = ["vace_frames", "vace_mask", "reference_latents"]


def model_of(comfy, config):
    """The class that ComfyUI takes for such a file, with synthetic weights."""
    import comfy.ldm.wan.model as wan
    import comfy.ops

    kind = {
        "vace": wan.VaceWanModel,
        "camera": wan.CameraWanModel,
        "camera_2.2": wan.CameraWanModel,
    }.get(config["model_type"], wan.WanModel)
    net = kind(**config, operations=comfy.ops.disable_weight_init)
    weights = {k: synth(k, list(v.shape)) for k, v in net.state_dict().items()}
    about = comfy.model_detection.model_config_from_unet(weights, "")
    about.set_inference_dtype(torch.float32, None)
    about.unet_config["text_dim"] = config["text_dim"]  # which ComfyUI takes for 4096
    model = about.get_model(weights, "", device=torch.device("cpu"))
    model.diffusion_model.load_state_dict(weights)
    return model.eval().float(), {k: list(v.shape) for k, v in weights.items()}


def seen(comfy, states):
    import comfy.clip_vision

    out = comfy.clip_vision.Output()
    out["penultimate_hidden_states"] = states
    return out


def said(entry, who):
    """What the node said, tensors of the conditioning of one prompt."""
    out = {f"{who}/{k}": entry[k] for k in SAID if k in entry}
    for k in LISTS:
        for i, t in enumerate(entry.get(k, [])):
            out[f"{who}/{k}/{i}"] = t
    return out


def run(comfy, case, args, vae, draw):
    import comfy_extras.nodes_wan as nodes
    import comfy_extras.nodes_camera_trajectory as cameras

    cls, config, pictures, sights, more = case
    model, keys = model_of(comfy, config)
    longer, shorter = args.text
    w, h = args.size
    out = {
        "context": draw(1, longer, config["text_dim"]),
        "negative": draw(1, shorter, config["text_dim"]),
    }
    size = dict(width=w, height=h, length=args.length, batch_size=1)
    given = dict(size)
    for name, frames in pictures.items():
        out[name] = given[name] = draw(frames, h, w + 8, 3).sigmoid()
    for name, tokens in sights.items():
        out[name] = draw(1, tokens, 1280)
        given[name] = seen(comfy, out[name])
    if "masks" in more:
        out["control_masks"] = given["control_masks"] = draw(more["masks"], h, w).sigmoid()
    if "strength" in more:
        given["strength"] = more["strength"]
    elif cls == "WanVaceToVideo":
        given["strength"] = 1.0
    if "camera" in more:
        camera = cameras.WanCameraEmbedding.execute(
            width=w, height=h, length=args.length, **more["camera"]
        )
        out["camera_conditions"] = given["camera_conditions"] = camera[0]
    result = getattr(nodes, cls).execute(
        positive=[[out["context"], {}]], negative=[[out["negative"], {}]], vae=vae, **given
    )
    result = [
        result[i] for i in range(4 if cls in ("WanVaceToVideo", "WanPhantomSubjectToVideo") else 3)
    ]
    latent = next(r for r in result if isinstance(r, dict))["samples"]
    positive, negative = result[0], result[1]
    out |= said(positive[0][1], "positive") | said(negative[0][1], "negative")
    if cls == "WanPhantomSubjectToVideo":
        out |= said(result[2][0][1], "third")
    out["latent"] = latent
    patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
    noise = comfy.sample.prepare_noise(latent, args.seed)
    out["out"] = comfy.sample.sample(
        patcher,
        noise,
        args.steps,
        args.cfg,
        "euler",
        "simple",
        positive,
        negative,
        latent,
        seed=args.seed,
        disable_pbar=True,
    )
    about = {
        "node": cls,
        "inputs": size | {k: v for k, v in more.items() if k == "strength"},
        "camera": more.get("camera"),
        "pictures": list(pictures),
        "seen": list(sights),
        "seed": args.seed,
        "cfg": args.cfg,
        "steps": args.steps,
    }
    return {k: v.float().contiguous() for k, v in out.items()}, keys, about


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--vae", default=here + "/../../tests/golden/data/wan21_vae_tiny_keys.json")
    parse.add_argument("--seed", type=int, default=8)
    parse.add_argument("--text", type=int, nargs=2, default=[9, 6])
    parse.add_argument("--size", type=int, nargs=2, default=[48, 32])
    parse.add_argument("--length", type=int, default=9)
    parse.add_argument("--steps", type=int, default=2)
    parse.add_argument("--cfg", type=float, default=3.0)
    parse.add_argument("--cases", nargs="*", default=list(CASES))
    parse.add_argument("--tiles", type=int, nargs=4, default=[64, 16, 8, 4])
    parse.add_argument("--latent", type=int, nargs=3, default=[4, 5, 10])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    import comfy.sd
    import comfy.model_detection

    os.makedirs(args.folder, exist_ok=True)
    with open(args.vae) as f:
        shapes = json.load(f)
    with open(f"{args.folder}/wan_node_vae_keys.json", "w") as f:
        json.dump(shapes, f)
    vae = comfy.sd.VAE(sd={k: synth(k, s) for k, s in shapes.items()}, dtype=torch.float32)
    manifest = {}
    for name in args.cases:
        generator = torch.Generator().manual_seed(args.seed)
        with torch.no_grad():
            tensors, keys, about = run(
                comfy, CASES[name], args, vae, lambda *s: torch.randn(*s, generator=generator)
            )
        write(f"{args.folder}/wan_node_{name}.safetensors", tensors)
        with open(f"{args.folder}/wan_node_{name}_keys.json", "w") as f:
            json.dump(keys, f)
        manifest["wan_node_" + name] = about | {
            "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()}
        }
    import nodes

    z = torch.randn(1, 16, *args.latent, generator=torch.Generator().manual_seed(args.seed))
    names = ["tile_size", "overlap", "temporal_size", "temporal_overlap"]
    tiles = dict(zip(names, args.tiles))
    with torch.inference_mode():
        image = nodes.VAEDecodeTiled().decode(vae, {"samples": z}, **tiles)[0]
    write(f"{args.folder}/wan_tiled.safetensors", {"z": z, "image": image.clone()})
    manifest["wan_tiled"] = {
        "inputs": tiles,
        "tensors": {"z": ["float32", list(z.shape)], "image": ["float32", list(image.shape)]},
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
