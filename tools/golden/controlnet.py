#!/usr/bin/env python3
"""What ComfyUI's UNets compute with ControlNets and T2I adapters, with synthetic weights.

usage: controlnet.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--steps N]
       (written with torch 2.15 on a cpu, ComfyUI 0.33.0)

COMFYUI is a checkout; its networks, its control objects, nodes and samplers are run as they are, on
weights made by the rule of tests/golden/data/README.md. Inputs are drawn from --seed, which is the
runs' seed, too; --text has the lengths of the positive prompt and of the negative one, --size the
latents' size. Writes

    controlnet.safetensors  <net>/x, t, context, pooled, hint -> <net>/out/<strength>: a pass of the
                            base of each net of NETS and ADAPTERS with what the net gives;
                            run/<name>: the runs of RUNS, over prompts <base>/positive,
                            <base>/negative (and _pooled), the pictures image/<name> and the text
                            that control nets are told, told
    controlnet_<net>_keys.json, controlnet_base_<base>_keys.json
                            names and shapes of their tensors, as their files have them

and manifest.json, which says how each was made. tests/golden/{model,node}/test_controlnet.c read any
such folder:

    tools/golden/controlnet.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3
    BERTH_GOLDEN_DIR=/tmp/fresh ctest --preset dev -R golden.*controlnet
"""
import argparse
import json
import os
import sys
import types

import torch

import zimage
from zimage import synth, write

COMMON = dict(use_checkpoint=False, image_size=32, out_channels=4, use_spatial_transformer=True,
              legacy=False, in_channels=4, use_temporal_attention=False,
              use_temporal_resblock=False)
SD = dict(COMMON, num_res_blocks=[2, 2, 2, 2], channel_mult=[1, 2, 4, 4],
          transformer_depth=[1, 1, 1, 1, 1, 1, 0, 0], transformer_depth_middle=1,
          transformer_depth_output=[1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0], context_dim=64,
          adm_in_channels=None)
XL = dict(COMMON, num_classes="sequential", num_head_channels=64, use_linear_in_transformer=True)
BASES = {
    "sd15": ("SD15", dict(SD, model_channels=32, num_heads=8, num_head_channels=-1,
                          use_linear_in_transformer=False)),
    "inpaint": ("SD15", dict(SD, model_channels=32, num_heads=8, num_head_channels=-1,
                             use_linear_in_transformer=False, in_channels=9)),
    "sd2": ("SD20", dict(SD, model_channels=64, num_heads=-1, num_head_channels=64,
                         use_linear_in_transformer=True)),
    "sdxl": ("SDXL", dict(XL, model_channels=64, num_res_blocks=[2, 2, 2], channel_mult=[1, 2, 4],
                          transformer_depth=[0, 0, 1, 1, 2, 2], transformer_depth_middle=2,
                          transformer_depth_output=[0, 0, 0, 1, 1, 1, 2, 2, 2], context_dim=128,
                          adm_in_channels=64 + 6 * 256)),
    # A union net's transformer is 320 wide whatever the net is.
    "union": ("SDXL", dict(XL, model_channels=320, num_res_blocks=[1, 1], channel_mult=[1, 1],
                           transformer_depth=[0, 1], transformer_depth_middle=1,
                           transformer_depth_output=[0, 0, 1, 1], context_dim=64,
                           adm_in_channels=32 + 6 * 256)),
}
# base, what stands in front of names, diffusers' names, types of a union net
NETS = {"sd15": ("sd15", "control_model.", False, 0), "sd15_again": ("sd15", "", False, 0),
        "sd15_diffusers": ("sd15", "", True, 0), "sd2": ("sd2", "", False, 0),
        "sdxl": ("sdxl", "control_model.", False, 0), "sdxl_diffusers": ("sdxl", "", True, 0),
        "union": ("union", "", True, 6)}
# base, diffusers' names, the class and its arguments
ADAPTERS = {
    "adapter": ("sd15", False, "Adapter", dict(cin=192, channels=[32, 64, 128, 128], nums_rb=2,
                                               ksize=1, sk=True, use_conv=False, xl=False)),
    "adapter_diffusers": ("sd15", True, "Adapter",
                          dict(cin=64, channels=[32, 64, 128, 128], nums_rb=2, ksize=1, sk=True,
                               use_conv=False, xl=False)),
    "adapter_light": ("sd15", False, "Adapter_light",
                      dict(cin=192, channels=[32, 64, 128, 128], nums_rb=4)),
    "adapter_sdxl": ("sdxl", False, "Adapter",
                     dict(cin=768, channels=[64, 128, 256, 256], nums_rb=2, ksize=3, sk=True,
                          use_conv=True, xl=True)),
}
STRENGTHS = [1.0, 0.6]


def by(net, image="wide", strength=0.8, start=0.0, end=1.0, **more):
    return dict(net=net, image=image, strength=strength, start=start, end=end, **more)


# What steers each, the first node first; old: ControlNetApply, which prompts against get by
# themselves.
RUNS = {
    "sd15/plain": dict(base="sd15", cfg=5.0, by=[by("sd15")]),
    "sd15/cfg1": dict(base="sd15", cfg=1.0, by=[by("sd15", "tall", 1.0)]),
    "sd15/range": dict(base="sd15", cfg=5.0, by=[by("sd15", start=0.3, end=0.7)]),
    "sd15/late": dict(base="sd15", cfg=5.0, by=[by("sd15", end=0.5), by("sd15_again", start=0.5)]),
    "sd15/old": dict(base="sd15", cfg=5.0, by=[by("sd15", old=True)]),
    "sd15/two": dict(base="sd15", cfg=5.0, by=[by("sd15"), by("sd15_again", "tall", 0.5)]),
    "sd15/twice": dict(base="sd15", cfg=5.0, by=[by("sd15"), by("sd15", "tall", 0.5)]),
    "sd15/batch": dict(base="sd15", cfg=5.0, batch=3, by=[by("sd15", "pair")]),
    "sd15/area": dict(base="sd15", cfg=5.0, area=[48, 64, 16, 0], by=[by("sd15")]),
    "sd15/told": dict(base="sd15", cfg=5.0, told=True, by=[by("sd15")]),
    "sd15/mean": dict(base="sd15", cfg=5.0, mean=True, by=[by("sd15")]),
    "adapter/plain": dict(base="sd15", cfg=5.0, by=[by("adapter")]),
    "adapter/light": dict(base="sd15", cfg=5.0, by=[by("adapter_light"), by("sd15", "tall", 0.5)]),
    "adapter/grey": dict(base="sd15", cfg=1.0, batch=2, by=[by("adapter_diffusers", "pair")]),
    "adapter/sdxl": dict(base="sdxl", cfg=5.0, by=[by("adapter_sdxl")]),
    "inpaint/plain": dict(base="inpaint", cfg=5.0, by=[by("sd15")]),
    "sd2/plain": dict(base="sd2", cfg=5.0, by=[by("sd2")]),
    "sdxl/plain": dict(base="sdxl", cfg=5.0, by=[by("sdxl")]),
    "sdxl/batch": dict(base="sdxl", cfg=5.0, batch=2, by=[by("sdxl_diffusers", "pair")]),
    "union/auto": dict(base="union", cfg=5.0, by=[by("union", type="auto")]),
    "union/depth": dict(base="union", cfg=5.0, by=[by("union", type="depth")]),
    "union/two": dict(base="union", cfg=5.0, by=[by("union", type="normal"),
                                                 by("union", "tall", 0.5, type="openpose")]),
}


def base_of(comfy, name):
    kind, config = BASES[name]
    return zimage.model_of(comfy, kind, config)


def diffusers_names(comfy, config, net):
    """{name in diffusers' files: ours}, for the tensors of a ControlNet."""
    import comfy.utils
    names = dict(comfy.utils.unet_to_diffusers(config))
    names |= {f"controlnet_mid_block.{s}": f"middle_block_out.0.{s}" for s in ("weight", "bias")}
    for i in range(len(net.zero_convs)):
        for s in ("weight", "bias"):
            names[f"controlnet_down_blocks.{i}.{s}"] = f"zero_convs.{i}.0.{s}"
    last = len(net.input_hint_block) // 2
    for i in range(last + 1):
        theirs = "conv_in" if i == 0 else "conv_out" if i == last else f"blocks.{i - 1}"
        for s in ("weight", "bias"):
            names[f"controlnet_cond_embedding.{theirs}.{s}"] = f"input_hint_block.{2 * i}.{s}"
    mine = net.state_dict()
    names = {k: v for k, v in names.items() if v in mine}
    known = set(names.values())
    for k in mine:
        if k not in known:
            names[k.replace(".attn.in_proj.", ".attn.in_proj_")] = k
    return names


def net_of(comfy, name):
    """ComfyUI's network, and its tensors as the file has them."""
    import comfy.cldm.cldm
    import comfy.ops
    base, front, theirs, types = NETS[name]
    config = {k: v for k, v in BASES[base][1].items() if k != "out_channels"}
    more = {"union_controlnet_num_control_type": types} if types else {}
    net = comfy.cldm.cldm.ControlNet(hint_channels=3, operations=comfy.ops.manual_cast, **config,
                                     **more)
    names = diffusers_names(comfy, BASES[base][1], net) if theirs else \
        {front + k: k for k in net.state_dict()}
    shapes = {k: list(net.state_dict()[v].shape) for k, v in names.items()}
    net.load_state_dict({v: synth(k, shapes[k]) for k, v in names.items()})
    return net.eval(), shapes


def adapter_of(comfy, name):
    import comfy.t2i_adapter.adapter
    base, theirs, kind, config = ADAPTERS[name]
    net = getattr(comfy.t2i_adapter.adapter, kind)(**config)
    names = {}
    for k in net.state_dict():
        block = k.split(".")
        if block[0] == "body":
            i = int(block[1])
            block[1] = str(i // 2) + (f".resnets.{i % 2}" if block[2].startswith("block") else "")
        names["adapter." + ".".join(block) if theirs else k] = k
    shapes = {k: list(net.state_dict()[v].shape) for k, v in names.items()}
    net.load_state_dict({v: synth(k, shapes[k]) for k, v in names.items()})
    return net.eval(), shapes


def object_of(comfy, net, mean=False):
    import comfy.controlnet
    if hasattr(net, "unshuffle_amount"):
        return comfy.controlnet.T2IAdapter(net, net.input_channels, 8, "nearest-exact",
                                           device=torch.device("cpu"))
    return comfy.controlnet.ControlNet(net, global_average_pooling=mean,
                                       load_device=torch.device("cpu"))


def values(control, strength):
    """A net's values as the base takes them, without the objects around it."""
    return {k: [None if x is None else x * strength for x in v] for k, v in control.items()}


def base_name(net):
    return (NETS | ADAPTERS)[net][0]


def hint_of(net, h, w, draw):
    fold = getattr(net, "unshuffle_amount", 8)
    return draw(1, getattr(net, "input_channels", 3), -(-h * 8 // fold) * fold,
                -(-w * 8 // fold) * fold).sigmoid()


def passes(comfy, args, draw, nets, bases):
    out = {}
    for name, net in nets.items():
        base = bases[base_name(name)]
        config = BASES[base_name(name)][1]
        h, w = args.size
        case = {"x": draw(2, 4, h, w), "t": torch.tensor([801.0, 210.5]),
                "context": draw(2, args.text[1], config["context_dim"]),
                "hint": hint_of(net, h, w, draw)}
        y = None
        if config.get("num_classes"):
            pooled = config["adm_in_channels"] - 6 * 256
            case["pooled"] = draw(2, pooled)
            y = base.encode_adm(pooled_output=case["pooled"], width=w * 8, height=h * 8)
            if y.shape[0] != 2:
                raise ValueError(y.shape)
        if name in ADAPTERS:
            given = net(case["hint"])
        else:
            more = {"control_type": [3]} if NETS[name][3] else {}
            given = net(case["x"], case["hint"].repeat(2, 1, 1, 1), case["t"], case["context"],
                        y=y, **more)
        for s in STRENGTHS:
            case[f"out/{s:g}"] = base.diffusion_model(case["x"], case["t"], case["context"], y=y,
                                                      control=values(given, s))
        out |= {f"{name}/{k}": v for k, v in case.items()}
    return out


def prompts(base, args, draw):
    config = BASES[base][1]
    out = {f"{base}/positive": draw(1, args.text[0], config["context_dim"]),
           f"{base}/negative": draw(1, args.text[1], config["context_dim"])}
    if config.get("num_classes"):
        for k in ("positive", "negative"):
            out[f"{base}/{k}_pooled"] = draw(1, config["adm_in_channels"] - 6 * 256)
    return out


def conditioning(tensors, base, kind):
    said = {}
    if f"{base}/{kind}_pooled" in tensors:
        said["pooled_output"] = tensors[f"{base}/{kind}_pooled"]
    return [[tensors[f"{base}/{kind}"], said]]


def steer(run, tensors, objects):
    """The prompts of a run, as ComfyUI's nodes leave them."""
    import nodes
    from comfy_extras.nodes_controlnet import SetUnionControlNetType
    base = run["base"]
    positive, negative = (conditioning(tensors, base, k) for k in ("positive", "negative"))
    if "area" in run:
        h, w, y, x = run["area"]
        part = [[positive[0][0] * 0.5, dict(positive[0][1], strength=0.7,
                                            area=(h // 8, w // 8, y // 8, x // 8))]]
        positive = positive + part
    if run.get("told"):
        for cond in (positive, negative):
            cond[0][1]["cross_attn_controlnet"] = tensors["told"]
    for step in run["by"]:
        control = objects[step["net"]]
        if "type" in step:
            control = SetUnionControlNetType.execute(control, step["type"])[0]
        image = tensors["image/" + step["image"]]
        if step.get("old"):
            positive = nodes.ControlNetApply().apply_controlnet(positive, control, image,
                                                                step["strength"])[0]
        else:
            positive, negative = nodes.ControlNetApplyAdvanced().apply_controlnet(
                positive, negative, control, image, step["strength"], step["start"], step["end"])
    return positive, negative


def runs(comfy, args, draw, nets, bases):
    import comfy.model_patcher
    out = {"image/wide": draw(1, 72, 150, 3).sigmoid(), "image/tall": draw(1, 96, 40, 3).sigmoid(),
           "image/pair": draw(2, 64, 90, 3).sigmoid(), "told": draw(1, 11, 64)}
    for base in BASES:
        out |= prompts(base, args, draw)
    kept = []  # ComfyUI's list of loaded models wants all of them to be there
    for name, run in RUNS.items():
        comfy.model_management.current_loaded_models.clear()
        model = bases[run["base"]]
        patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
        objects = {k: object_of(comfy, nets[k], run.get("mean", False))
                   for k in {step["net"] for step in run["by"]}}
        kept += [patcher, objects]
        positive, negative = steer(run, out, objects)
        latent = torch.zeros(run.get("batch", 1), 4, *args.size)
        out[f"run/{name}"] = comfy.sample.sample(
            patcher, comfy.sample.prepare_noise(latent, args.seed), args.steps, run["cfg"],
            "euler", "normal", positive, negative, latent, seed=args.seed, disable_pbar=True)
    return out


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=9)
    parse.add_argument("--text", type=int, nargs=2, default=[21, 7])
    parse.add_argument("--size", type=int, nargs=2, default=[8, 11])
    parse.add_argument("--steps", type=int, default=4)
    args = parse.parse_args()
    comfy = zimage.load_comfy(args.comfyui)
    # ComfyUI's nodes import it for sound, which is not wanted here.
    for name in ("torchaudio", "torchaudio.functional", "torchaudio.transforms"):
        sys.modules[name] = types.ModuleType(name)
    import nodes  # noqa: F401
    os.makedirs(args.folder, exist_ok=True)
    generator = torch.Generator().manual_seed(args.seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    with torch.no_grad():
        bases = {k: base_of(comfy, k) for k in BASES}
        nets = {}
        for name, base in bases.items():
            shapes = {k: list(v.shape) for k, v in base.diffusion_model.state_dict().items()}
            with open(f"{args.folder}/controlnet_base_{name}_keys.json", "w") as f:
                json.dump(shapes, f)
        for name in NETS | ADAPTERS:
            nets[name], shapes = (net_of if name in NETS else adapter_of)(comfy, name)
            with open(f"{args.folder}/controlnet_{name}_keys.json", "w") as f:
                json.dump(shapes, f)
        tensors = passes(comfy, args, draw, nets, bases)
        tensors |= runs(comfy, args, draw, nets, bases)
    write(f"{args.folder}/controlnet.safetensors", tensors)
    manifest = {"seed": args.seed, "steps": args.steps, "type": 3,
                "nets": {k: base_name(k) for k in NETS | ADAPTERS}, "runs": RUNS,
                "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()}}
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump({"controlnet": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
