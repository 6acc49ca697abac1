#!/usr/bin/env python3
"""What ComfyUI computes with ControlNets and T2I adapters beside models, with synthetic weights.

usage: controlnet.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--steps N]
                     [--only BASE ...]
       (written with torch 2.15 on a cpu, ComfyUI 0.33.0)

COMFYUI is a checkout; its networks, its control objects, nodes and samplers are run as they are, on
weights made by the rule of tests/golden/data/README.md. Inputs are drawn from --seed, which is the
runs' seed, too; --text has the lengths of the positive prompt and of the negative one, --size the
latents' size, --only those of BASES that are wanted. Writes

    controlnet.safetensors  <net>/x, t, context, pooled, hint -> <net>/out/<strength>: a pass of the
                            base of each net (NETS, ADAPTERS, INSTANTX, FLUX_NETS) with what it
                            gives;
                            run/<name>: the runs of RUNS, over prompts <base>/positive,
                            <base>/negative (and _pooled), the pictures image/<name>, the mask
                            beside them and the text that control nets are told, told
    controlnet_<net>_keys.json, controlnet_diffsynth_keys.json, controlnet_base_<base>_keys.json,
    controlnet_vae_<base>_keys.json
                            names and shapes of their tensors, as their files have them

and manifest.json, which says how each was made. tests/golden/{model,node}/test_controlnet.c read
any such folder:

    tools/golden/controlnet.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3
    BERTH_GOLDEN_DIR=/tmp/fresh ctest --preset dev -R golden.*controlnet
"""

import argparse
import json
import os
import sys
import types

import torch

import kontext
import wan_vae
import zimage
from tiny_models import synth, write

COMMON = dict(
    use_checkpoint=False,
    image_size=32,
    out_channels=4,
    use_spatial_transformer=True,
    legacy=False,
    in_channels=4,
    use_temporal_attention=False,
    use_temporal_resblock=False,
)
SD = dict(
    COMMON,
    num_res_blocks=[2, 2, 2, 2],
    channel_mult=[1, 2, 4, 4],
    transformer_depth=[1, 1, 1, 1, 1, 1, 0, 0],
    transformer_depth_middle=1,
    transformer_depth_output=[1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0],
    context_dim=64,
    adm_in_channels=None,
)
XL = dict(COMMON, num_classes="sequential", num_head_channels=64, use_linear_in_transformer=True)
BASES = {
    "sd15": (
        "SD15",
        dict(
            SD,
            model_channels=32,
            num_heads=8,
            num_head_channels=-1,
            use_linear_in_transformer=False,
        ),
    ),
    "inpaint": (
        "SD15",
        dict(
            SD,
            model_channels=32,
            num_heads=8,
            num_head_channels=-1,
            use_linear_in_transformer=False,
            in_channels=9,
        ),
    ),
    "sd2": (
        "SD20",
        dict(
            SD,
            model_channels=64,
            num_heads=-1,
            num_head_channels=64,
            use_linear_in_transformer=True,
        ),
    ),
    "sdxl": (
        "SDXL",
        dict(
            XL,
            model_channels=64,
            num_res_blocks=[2, 2, 2],
            channel_mult=[1, 2, 4],
            transformer_depth=[0, 0, 1, 1, 2, 2],
            transformer_depth_middle=2,
            transformer_depth_output=[0, 0, 0, 1, 1, 1, 2, 2, 2],
            context_dim=128,
            adm_in_channels=64 + 6 * 256,
        ),
    ),
    # A union net's transformer is 320 wide whatever the net is.
    "union": (
        "SDXL",
        dict(
            XL,
            model_channels=320,
            num_res_blocks=[1, 1],
            channel_mult=[1, 1],
            transformer_depth=[0, 1],
            transformer_depth_middle=1,
            transformer_depth_output=[0, 0, 1, 1],
            context_dim=64,
            adm_in_channels=32 + 6 * 256,
        ),
    ),
}
# base, what stands in front of names, diffusers' names, types of a union net
NETS = {
    "sd15": ("sd15", "control_model.", False, 0),
    "sd15_again": ("sd15", "", False, 0),
    "sd15_diffusers": ("sd15", "", True, 0),
    "sd2": ("sd2", "", False, 0),
    "sdxl": ("sdxl", "control_model.", False, 0),
    "sdxl_diffusers": ("sdxl", "", True, 0),
    "union": ("union", "", True, 6),
}
# base, diffusers' names, the class and its arguments
ADAPTERS = {
    "adapter": (
        "sd15",
        False,
        "Adapter",
        dict(
            cin=192,
            channels=[32, 64, 128, 128],
            nums_rb=2,
            ksize=1,
            sk=True,
            use_conv=False,
            xl=False,
        ),
    ),
    "adapter_diffusers": (
        "sd15",
        True,
        "Adapter",
        dict(
            cin=64,
            channels=[32, 64, 128, 128],
            nums_rb=2,
            ksize=1,
            sk=True,
            use_conv=False,
            xl=False,
        ),
    ),
    "adapter_light": (
        "sd15",
        False,
        "Adapter_light",
        dict(cin=192, channels=[32, 64, 128, 128], nums_rb=4),
    ),
    "adapter_sdxl": (
        "sdxl",
        False,
        "Adapter",
        dict(
            cin=768,
            channels=[64, 128, 256, 256],
            nums_rb=2,
            ksize=3,
            sk=True,
            use_conv=True,
            xl=True,
        ),
    ),
}
# InstantX's: blocks, channels beside those of a latent
QWEN = dict(
    image_model="qwen_image",
    in_channels=64,
    num_layers=4,
    attention_head_dim=128,
    num_attention_heads=2,
    joint_attention_dim=192,
    patch_size=2,
    out_channels=16,
    axes_dims_rope=[16, 56, 56],
)
BASES["qwen"] = ("QwenImage", QWEN)
INSTANTX = {"qwen": (2, 0), "qwen_uneven": (3, 0), "qwen_inpaint": (2, 1)}
FLUX = dict(
    image_model="flux",
    in_channels=16,
    out_channels=16,
    vec_in_dim=32,
    context_in_dim=64,
    hidden_size=256,
    mlp_ratio=4.0,
    num_heads=2,
    depth=3,
    depth_single_blocks=4,
    axes_dim=[16, 56, 56],
    theta=10000,
    patch_size=2,
    qkv_bias=True,
    guidance_embed=True,
    txt_ids_dims=[],
)
BASES["flux"] = ("Flux", FLUX)
# diffusers' names or XLabs', blocks of both kinds, channels beside those of a latent, types
FLUX_NETS = {
    "flux_union": (True, 2, 3, 0, 5),
    "flux_shakker": (True, 2, 0, 0, 0),
    "flux_inpaint": (True, 1, 2, 1, 0),
    "flux_xlabs": (False, 2, 0, 0, 0),
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
    "qwen/plain": dict(base="qwen", cfg=3.0, by=[by("qwen", vae=True)]),
    "qwen/two": dict(
        base="qwen",
        cfg=1.0,
        by=[by("qwen_uneven", vae=True), by("qwen", "tall", 0.5, end=0.6, vae=True)],
    ),
    "qwen/masked": dict(base="qwen", cfg=3.0, by=[by("qwen_inpaint", vae=True, mask=True)]),
    "qwen/unmasked": dict(base="qwen", cfg=1.0, by=[by("qwen_inpaint", vae=True)]),
    "qwen/diffsynth": dict(base="qwen", cfg=1.0, by=[], patch=dict(image="wide", strength=0.8)),
    "qwen/diffsynth_masked": dict(
        base="qwen", cfg=1.0, by=[], patch=dict(image="wide", strength=0.8, mask=True)
    ),
    "flux/union": dict(base="flux", cfg=1.0, by=[by("flux_union", vae=True, type="normal")]),
    "flux/auto": dict(base="flux", cfg=2.0, by=[by("flux_union", vae=True)]),
    "flux/two": dict(
        base="flux",
        cfg=1.0,
        batch=2,
        by=[by("flux_shakker", "pair", vae=True), by("flux_xlabs", "tall", 0.5)],
    ),
    "flux/masked": dict(base="flux", cfg=2.0, by=[by("flux_inpaint", vae=True, mask=True)]),
    "inpaint/plain": dict(base="inpaint", cfg=5.0, by=[by("sd15")]),
    "sd2/plain": dict(base="sd2", cfg=5.0, by=[by("sd2")]),
    "sdxl/plain": dict(base="sdxl", cfg=5.0, by=[by("sdxl")]),
    "sdxl/batch": dict(base="sdxl", cfg=5.0, batch=2, by=[by("sdxl_diffusers", "pair")]),
    "union/auto": dict(base="union", cfg=5.0, by=[by("union", type="auto")]),
    "union/depth": dict(base="union", cfg=5.0, by=[by("union", type="depth")]),
    "union/two": dict(
        base="union",
        cfg=5.0,
        by=[by("union", type="normal"), by("union", "tall", 0.5, type="openpose")],
    ),
}


def in_file(base, name):
    return kontext.in_file(name) if base == "flux" else name


def base_of(comfy, name):
    kind, config = BASES[name]
    model = zimage.model_of(comfy, kind, config)
    net = model.diffusion_model
    net.load_state_dict(
        {k: synth(in_file(name, k), list(v.shape)) for k, v in net.state_dict().items()}
    )
    return model


def diffusers_names(comfy, config, net):
    """{name in diffusers' files: ours}, for the tensors of a ControlNet."""
    import comfy.utils

    names = {
        k: v
        for k, v in comfy.utils.unet_to_diffusers(config).items()
        if not k.startswith("class_embedding.")
    }  # SDXL's files call it add_embedding
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
    net = comfy.cldm.cldm.ControlNet(
        hint_channels=3, operations=comfy.ops.manual_cast, **config, **more
    )
    names = (
        diffusers_names(comfy, BASES[base][1], net)
        if theirs
        else {front + k: k for k in net.state_dict()}
    )
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


def instantx_of(comfy, name):
    import comfy.ldm.qwen_image.controlnet
    import comfy.ops

    blocks, more = INSTANTX[name]
    net = comfy.ldm.qwen_image.controlnet.QwenImageControlNetModel(
        extra_condition_channels=4 * more,
        operations=comfy.ops.manual_cast,
        **dict(QWEN, num_layers=blocks),
    )
    net.main_model_double = QWEN["num_layers"]  # 60 for the model it was made for
    shapes = {k: list(v.shape) for k, v in net.state_dict().items()}
    net.load_state_dict({k: synth(k, s) for k, s in shapes.items()})
    return net.eval(), shapes


def flux_of(comfy, name):
    import comfy.ldm.flux.controlnet
    import comfy.ops
    import comfy.utils

    theirs, double, single, more, modes = FLUX_NETS[name]
    config = dict(FLUX, depth=double, depth_single_blocks=single)
    del config["image_model"]
    net = comfy.ldm.flux.controlnet.ControlNetFlux(
        latent_input=theirs,
        num_union_modes=modes,
        control_latent_channels=16 + more if theirs else None,
        operations=comfy.ops.manual_cast,
        **config,
    )
    net.main_model_double = FLUX["depth"]  # 19 and 38 for the model they were made for
    net.main_model_single = FLUX["depth_single_blocks"]
    mine = net.state_dict()
    parts = {kontext.in_file(k): (k, None) for k in mine}
    if theirs:
        known, covered = {}, set()
        for k, to in comfy.utils.flux_to_diffusers(config).items():
            to, at = (to, None) if isinstance(to, str) else (to[0], to[1])
            if to in mine and (at or to not in covered):  # the first of several names is diffusers'
                known[k] = (to, at)
                covered.add(to)
        parts = known | {k: (k, None) for k in mine if k not in covered}
    shapes, sd = {}, {k: torch.empty_like(v) for k, v in mine.items()}
    for k, (to, at) in parts.items():
        part = sd[to] if at is None else sd[to].narrow(*at)
        shapes[k] = list(part.shape)
        part.copy_(synth(k, shapes[k]))
    net.load_state_dict(sd)
    return net.eval(), shapes


class Vae:
    """What control nets ask of a VAE, around ComfyUI's network."""

    def __init__(self):
        import comfy.ldm.wan.vae

        self.net = comfy.ldm.wan.vae.WanVAE(**wan_vae.CONFIG, dim=16)
        self.keys = {k: list(v.shape) for k, v in self.net.state_dict().items()}
        self.net.load_state_dict({k: synth(k, s) for k, s in self.keys.items()})
        self.net.eval()

    def encode(self, pixels):
        return self.net.encode((pixels.movedim(-1, 1) * 2.0 - 1.0).movedim(1, 0).unsqueeze(0))

    def spacial_compression_encode(self):
        return 8


def object_of(comfy, net, mean=False):
    import comfy.controlnet
    import comfy.latent_formats

    if hasattr(net, "pos_embed_input"):
        wide = net.pos_embed_input.weight.shape[1]
        more = (
            dict(
                compression_ratio=1,
                latent_format=comfy.latent_formats.Flux(),
                concat_mask=wide == 68,
            )
            if net.latent_input
            else {}
        )
        return comfy.controlnet.ControlNet(
            net, load_device=torch.device("cpu"), extra_conds=["y", "guidance"], **more
        )
    if hasattr(net, "controlnet_x_embedder"):
        wide = net.controlnet_x_embedder.weight.shape[1]
        return comfy.controlnet.ControlNet(
            net,
            compression_ratio=1,
            latent_format=comfy.latent_formats.Wan21(),
            concat_mask=wide == 68,
            load_device=torch.device("cpu"),
            extra_conds=[],
        )
    if hasattr(net, "unshuffle_amount"):
        return comfy.controlnet.T2IAdapter(
            net, net.input_channels, 8, "nearest-exact", device=torch.device("cpu")
        )
    return comfy.controlnet.ControlNet(
        net, global_average_pooling=mean, load_device=torch.device("cpu")
    )


def values(control, strength):
    """A net's values as the base takes them, without the objects around it."""
    return {
        k: [None if x is None else x * strength for x in control.get(k, [])]
        for k in ("input", "middle", "output")
    }


def base_name(net):
    return "qwen" if net in INSTANTX else "flux" if net in FLUX_NETS else (NETS | ADAPTERS)[net][0]


def text_width(base):
    config = BASES[base][1]
    names = ("context_dim", "joint_attention_dim", "context_in_dim")
    return next(config[k] for k in names if config.get(k))


def pooled_width(base):
    config = BASES[base][1]
    return (
        config["adm_in_channels"] - 6 * 256
        if config.get("num_classes")
        else config.get("vec_in_dim")
    )


def latent(base, n, size):
    h, w = size
    if base == "flux":  # XLabs' nets want even sides
        return (n, 16, h + h % 2, w + w % 2)
    return (n, 16, 1, h, w) if base == "qwen" else (n, 4, h, w)


def hint_of(net, h, w, draw):
    if hasattr(net, "pos_embed_input") and net.latent_input:
        return draw(1, net.pos_embed_input.weight.shape[1] // 4, h, w)
    if hasattr(net, "controlnet_x_embedder"):
        return draw(1, net.controlnet_x_embedder.weight.shape[1] // 4, 1, h, w)
    fold = getattr(net, "unshuffle_amount", 8)
    return draw(
        1, getattr(net, "input_channels", 3), -(-h * 8 // fold) * fold, -(-w * 8 // fold) * fold
    ).sigmoid()


def passes(comfy, args, draw, nets, bases):
    out = {}
    for name, net in nets.items():
        base = bases[base_name(name)]
        config = BASES[base_name(name)][1]
        h, w = latent(base_name(name), 2, args.size)[-2:]
        times = [0.9, 0.35] if name in INSTANTX | FLUX_NETS else [801.0, 210.5]
        case = {
            "x": draw(*latent(base_name(name), 2, args.size)),
            "t": torch.tensor(times),
            "context": draw(2, args.text[1], text_width(base_name(name))),
            "hint": hint_of(net, h, w, draw),
        }
        more = {}
        if pooled_width(base_name(name)):
            case["pooled"] = draw(2, pooled_width(base_name(name)))
        if name in FLUX_NETS:
            more = {"y": case["pooled"], "guidance": torch.tensor([3.5, 3.5])}
        if config.get("num_classes"):
            more["y"] = base.encode_adm(pooled_output=case["pooled"], width=w * 8, height=h * 8)
        if name in ADAPTERS:
            given = net(case["hint"])
        else:
            types = {"control_type": [3]} if name in ("union", "flux_union") else {}
            hint = case["hint"].repeat(2, *[1] * (case["hint"].ndim - 1))
            given = net(
                x=case["x"],
                hint=hint,
                timesteps=case["t"],
                context=case["context"],
                **more,
                **types,
            )
        for s in STRENGTHS:
            case[f"out/{s:g}"] = base.diffusion_model(
                case["x"], case["t"], case["context"], control=values(given, s), **more
            )
        out |= {f"{name}/{k}": v for k, v in case.items()}
    return out


def prompts(base, args, draw):
    out = {
        f"{base}/positive": draw(1, args.text[0], text_width(base)),
        f"{base}/negative": draw(1, args.text[1], text_width(base)),
    }
    if pooled_width(base):
        for k in ("positive", "negative"):
            out[f"{base}/{k}_pooled"] = draw(1, pooled_width(base))
    return out


def conditioning(tensors, base, kind):
    said = {}
    if f"{base}/{kind}_pooled" in tensors:
        said["pooled_output"] = tensors[f"{base}/{kind}_pooled"]
    return [[tensors[f"{base}/{kind}"], said]]


def steer(run, tensors, objects, vae):
    """The prompts of a run, as ComfyUI's nodes leave them."""
    import nodes
    from comfy_extras.nodes_controlnet import (
        ControlNetInpaintingAliMamaApply,
        SetUnionControlNetType,
    )

    base = run["base"]
    positive, negative = (conditioning(tensors, base, k) for k in ("positive", "negative"))
    if "area" in run:
        h, w, y, x = run["area"]
        part = [
            [
                positive[0][0] * 0.5,
                dict(positive[0][1], strength=0.7, area=(h // 8, w // 8, y // 8, x // 8)),
            ]
        ]
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
            positive = nodes.ControlNetApply().apply_controlnet(
                positive, control, image, step["strength"]
            )[0]
        elif step.get("mask"):
            positive, negative = ControlNetInpaintingAliMamaApply.execute(
                positive,
                negative,
                control,
                vae,
                image,
                tensors["mask"],
                step["strength"],
                step["start"],
                step["end"],
            ).result
        else:
            positive, negative = nodes.ControlNetApplyAdvanced().apply_controlnet(
                positive,
                negative,
                control,
                image,
                step["strength"],
                step["start"],
                step["end"],
                vae=vae if step.get("vae") else None,
            )
    return positive, negative


def diffsynth_of(comfy):
    """DiffSynth's network for inpainting, which steers Qwen-Image block by block."""
    import comfy.ops
    import comfy_extras.nodes_model_patch as patches

    net = patches.QwenImageBlockWiseControlNet(
        num_layers=QWEN["num_layers"],
        additional_in_dim=4,
        dim=QWEN["attention_head_dim"] * QWEN["num_attention_heads"],
        operations=comfy.ops.disable_weight_init,
    )
    shapes = {k: list(v.shape) for k, v in net.state_dict().items()}
    net.load_state_dict({k: synth(k, s) for k, s in shapes.items()})
    return net.eval().float(), shapes


def patched(comfy, patcher, run, tensors, net, vae, kept):
    import comfy_extras.nodes_model_patch as patches

    if "patch" not in run:
        return patcher
    cpu = torch.device("cpu")
    held = comfy.model_patcher.ModelPatcher(net, cpu, cpu)
    kept.append(held)
    return patches.QwenImageDiffsynthControlnet().diffsynth_controlnet(
        patcher,
        held,
        vae,
        image=tensors["image/" + run["patch"]["image"]],
        strength=run["patch"]["strength"],
        mask=tensors["mask"] if run["patch"].get("mask") else None,
    )[0]


def runs(comfy, args, draw, nets, bases, vaes, diffsynth):
    import comfy.model_patcher

    out = {
        "mask": (draw(1, 50, 70) > 0).float(),
        "image/wide": draw(1, 72, 150, 3).sigmoid(),
        "image/tall": draw(1, 96, 40, 3).sigmoid(),
        "image/pair": draw(2, 64, 90, 3).sigmoid(),
        "told": draw(1, 11, 64),
    }
    for base in args.only:
        out |= prompts(base, args, draw)
    kept = []  # ComfyUI's list of loaded models wants all of them to be there
    for name, run in RUNS.items():
        if run["base"] not in args.only:
            continue
        comfy.model_management.current_loaded_models.clear()
        model = bases[run["base"]]
        patcher = comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))
        objects = {
            k: object_of(comfy, nets[k], run.get("mean", False))
            for k in {step["net"] for step in run["by"]}
        }
        kept += [patcher, objects]
        positive, negative = steer(run, out, objects, vaes.get(run["base"]))
        patcher = patched(comfy, patcher, run, out, diffsynth, vaes.get(run["base"]), kept)
        kept.append(patcher)
        even = [n + n % 2 for n in args.size]  # for networks that steer block by block
        empty = torch.zeros(
            *latent(run["base"], run.get("batch", 1), even if "patch" in run else args.size)
        )
        out[f"run/{name}"] = comfy.sample.sample(
            patcher,
            comfy.sample.prepare_noise(empty, args.seed),
            args.steps,
            run["cfg"],
            "euler",
            "normal",
            positive,
            negative,
            empty,
            seed=args.seed,
            disable_pbar=True,
        )
    return out


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=9)
    parse.add_argument("--text", type=int, nargs=2, default=[21, 7])
    parse.add_argument("--size", type=int, nargs=2, default=[8, 11])
    parse.add_argument("--steps", type=int, default=4)
    parse.add_argument("--only", nargs="*", default=list(BASES))
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
        bases = {k: base_of(comfy, k) for k in args.only}
        nets = {}
        for name, base in bases.items():
            shapes = {
                in_file(name, k): list(v.shape)
                for k, v in base.diffusion_model.state_dict().items()
            }
            with open(f"{args.folder}/controlnet_base_{name}_keys.json", "w") as f:
                json.dump(shapes, f)
        makers = {
            name: make
            for list_, make in (
                (NETS, net_of),
                (ADAPTERS, adapter_of),
                (INSTANTX, instantx_of),
                (FLUX_NETS, flux_of),
            )
            for name in list_
            if base_name(name) in args.only
        }
        for name, make in makers.items():
            nets[name], shapes = make(comfy, name)
            with open(f"{args.folder}/controlnet_{name}_keys.json", "w") as f:
                json.dump(shapes, f)
        tensors = passes(comfy, args, draw, nets, bases)
        vaes = {"qwen": Vae(), "flux": zimage.Vae(comfy)}
        for name, vae in vaes.items():
            with open(f"{args.folder}/controlnet_vae_{name}_keys.json", "w") as f:
                json.dump(vae.keys, f)
        diffsynth, shapes = diffsynth_of(comfy)
        with open(f"{args.folder}/controlnet_diffsynth_keys.json", "w") as f:
            json.dump(shapes, f)
        tensors |= runs(comfy, args, draw, nets, bases, vaes, diffsynth)
    write(f"{args.folder}/controlnet.safetensors", tensors)
    manifest = {
        "seed": args.seed,
        "steps": args.steps,
        "type": 3,
        "nets": {k: base_name(k) for k in makers},
        "runs": {k: v for k, v in RUNS.items() if v["base"] in args.only},
        "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()},
    }
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump({"controlnet": manifest}, f, indent=1)


if __name__ == "__main__":
    main()
