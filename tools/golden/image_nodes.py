#!/usr/bin/env python3
"""What ComfyUI's nodes of pictures, masks and latents make of small random tensors.

usage: image_nodes.py COMFYUI FOLDER [--seed N] [--size H W]   (ComfyUI 0.33.0, torch 2.15.0)

COMFYUI is a checkout whose own nodes are run on the CPU. Writes into FOLDER image_nodes.json, a
list of cases ("class", "inputs" as a prompt has them, "outputs", "eps"), and
image_nodes.safetensors with the tensors these name:
    {"tensor": key}                        a picture or a mask
    {"list": [key, ...]}                   a list of them
    {"latent": key, "mask": key, "index"}  a latent; the last two may be missing
    {"json": value}                        an object or a list
    {"node": class, "inputs": {...}}       the first output of another node
Outputs are such, or numbers and texts, or {"shape": dimensions} of a tensor. eps is how close
floats must be.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("comfyui")
    p.add_argument("folder")
    p.add_argument("--seed", type=int, default=33)
    p.add_argument("--size", type=int, nargs=2, default=(9, 13))
    return p.parse_args()


ARGS = parse()
ARGS.folder = os.path.abspath(ARGS.folder)
sys.path.insert(0, ARGS.comfyui)
os.chdir(ARGS.comfyui)
sys.argv = ["image_nodes.py", "--cpu"]

import comfy.options  # noqa: E402

comfy.options.enable_args_parsing()
import numpy as np  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

MODULES = (
    "images",
    "post_processing",
    "mask",
    "morphology",
    "compositing",
    "rebatch",
    "latent",
    "dataset",
    "curve",
    "color",
    "bounding_boxes",
    "compositor",
    "rtdetr",
    "sdpose",
    "kandinsky5",
)
TENSORS = {}
CASES = []
# Pillow 13 resizes along the cheaper axis first, older ones always along x: one step of 8 bits.
LANCZOS = 1.01 / 255


class Latent(dict):
    """A LATENT whose tensors have names in TENSORS."""


class Made:
    """What another node gives, and how it was made."""

    def __init__(self, found, cls, **inputs):
        self.node, self.inputs = cls, inputs
        given = {k: v.value if isinstance(v, Made) else v for k, v in inputs.items()}
        self.value = found[cls].execute(**given).args[0]


def classes():
    import nodes

    found = dict(nodes.NODE_CLASS_MAPPINGS)
    for name in MODULES:
        module = __import__(f"comfy_extras.nodes_{name}", fromlist=["comfy_entrypoint"])
        entry = asyncio.run(module.comfy_entrypoint())
        for cls in asyncio.run(entry.get_node_list()):
            found[cls.GET_SCHEMA().node_id] = cls
    return found


def name_of(t):
    for key, value in TENSORS.items():
        if value is t:
            return key
    raise KeyError("an input without a name")


def told(value):
    if isinstance(value, Latent):
        out = {"latent": name_of(value["samples"])}
        if "noise_mask" in value:
            out["mask"] = name_of(value["noise_mask"])
        if "batch_index" in value:
            out["index"] = value["batch_index"]
        return out
    if isinstance(value, Made):
        return {"node": value.node, "inputs": flat(value.inputs)}
    if isinstance(value, torch.Tensor):
        return {"tensor": name_of(value)}
    if isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
        return {"list": [name_of(t) for t in value]}
    if isinstance(value, (dict, list)):
        return {"json": value}
    return value


def result(case, i, value, is_list):
    def keep(t, suffix=""):
        key = f"{case}.{i}{suffix}"
        TENSORS[key] = t.float().contiguous().clone()
        return key

    if is_list:
        return {"list": [keep(t, f".{k}") for k, t in enumerate(value)]}
    if isinstance(value, torch.Tensor):
        return {"tensor": keep(value)}
    if isinstance(value, dict) and "samples" in value:
        out = {"latent": keep(value["samples"])}
        if "noise_mask" in value:
            out["mask"] = keep(value["noise_mask"], ".mask")
        if "batch_index" in value:
            out["index"] = value["batch_index"]
        return out
    return value if isinstance(value, (int, float, str)) else {"json": value}


def flat(inputs):
    """As a prompt has them: {"mode": {"mode": key, "x": 1}} is "mode": key, "mode.x": 1."""
    out = {}
    for name, value in inputs.items():
        if isinstance(value, dict) and not isinstance(value, Latent) and name in DYNAMIC:
            for k, v in value.items():
                out[name if k == name else f"{name}.{k}"] = told(v)
        else:
            out[name] = told(value)
    return out


DYNAMIC = ("resize_type", "source_stats", "images", "masks", "latents")


def run(found, cls, eps=1e-5, shapes=(), **inputs):
    """shapes: of these outputs only the shape counts."""
    case = f"{cls}.{sum(c['class'] == cls for c in CASES)}"
    node = found[cls]
    if hasattr(node, "GET_SCHEMA"):
        schema = node.GET_SCHEMA()
        given = {
            k: [v] if schema.is_input_list and not isinstance(v, list) else v
            for k, v in inputs.items()
        }
        given = {k: v.value if isinstance(v, Made) else v for k, v in given.items()}
        got = node.execute(**given)
        values = [got] if isinstance(got, (torch.Tensor, list)) else list(got.args)
        lists = [o.is_output_list for o in schema.outputs]
    else:
        values = list(getattr(node(), node.FUNCTION)(**inputs))
        lists = getattr(node, "OUTPUT_IS_LIST", [False] * len(values))
    outputs = [
        {"shape": list(v.shape)} if i in shapes else result(case, i, v, is_list)
        for i, (v, is_list) in enumerate(zip(values, lists))
    ]
    CASES.append({"class": cls, "inputs": flat(inputs), "outputs": outputs, "eps": eps})


def make(g):
    """Inputs by name; pictures have pixels beyond 0..1 nowhere, latents are normal."""
    h, w = ARGS.size

    def rand(name, *shape):
        TENSORS[name] = torch.rand(shape, generator=g)

    def randn(name, *shape):
        TENSORS[name] = torch.randn(shape, generator=g)

    rand("two", 2, h, w, 3)
    rand("one", 1, h, w, 3)
    rand("rgba", 1, h, w, 4)
    rand("small", 1, 4, 6, 3)
    rand("tall", 3, 17, 5, 3)
    rand("wide", 1, 14, 30, 3)
    rand("mask", 1, h, w)
    rand("masks", 2, h + 3, w - 2)
    randn("latent", 1, 4, 6, 8)
    randn("latents", 3, 4, 5, 4)
    randn("video", 2, 4, 5, 3, 4)
    randn("frames", 1, 4, 2, 3, 4)
    coarse = torch.randint(0, 6, (1, 13, 16, 3), generator=g).float() / 5
    TENSORS["coarse"] = coarse
    smooth = (
        torch.nn.functional.interpolate(
            torch.rand((2, 3, 4, 5), generator=g), size=(15, 12), mode="bicubic"
        )
        .clamp(0, 1)
        .movedim(1, -1)
        .contiguous()
    )
    TENSORS["smooth"] = smooth
    y, x = torch.meshgrid(torch.arange(15), torch.arange(12), indexing="ij")
    blob = (((y - 6) / 4.0) ** 2 + ((x - 7) / 3.0) ** 2 < 1).float()[None]
    TENSORS["blob"], TENSORS["hole"], TENSORS["nothing"] = blob, 1 - blob, blob * 0.5


def pictures(found):
    t = TENSORS
    for how in ("none", "90 degrees", "180 degrees", "270 degrees"):
        run(found, "ImageRotate", 0, image=t["two"], rotation=how)
    for how in ("x-axis: vertically", "y-axis: horizontally"):
        run(found, "ImageFlip", 0, image=t["two"], flip_method=how)
    run(found, "PrimitiveBoundingBox", x=3, y=1, width=5, height=70)
    for method in ("area", "bicubic", "nearest-exact", "bilinear", "lanczos"):
        run(
            found,
            "ResizeAndPadImage",
            LANCZOS if method == "lanczos" else 1e-5,
            image=t["two"],
            target_width=21,
            target_height=11,
            interpolation=method,
            padding_color="white" if method < "b" else "black",
        )
    run(
        found,
        "ResizeAndPadImage",
        image=t["rgba"],
        target_width=5,
        target_height=11,
        padding_color="white",
        interpolation="area",
    )
    for direction in ("right", "down", "left", "up"):
        for match, bar, color, b in (
            (True, 3, "green", "tall"),
            (False, 0, "white", "small"),
            (False, 4, "blue", "rgba"),
            (False, 2, "black", "tall"),
        ):
            run(
                found,
                "ImageStitch",
                LANCZOS if match else 1e-5,
                image1=t["two"],
                direction=direction,
                match_image_size=match,
                spacing_width=bar,
                spacing_color=color,
                image2=t[b],
            )
    run(
        found,
        "ImageStitch",
        image1=t["two"],
        direction="up",
        match_image_size=True,
        spacing_width=2,
        spacing_color="red",
    )
    run(found, "ImageAddNoise", image=t["two"], seed=7, strength=0.3)
    run(found, "ImageAddNoise", image=t["small"], seed=2**63 + 11, strength=1.0)
    run(found, "SplitImageToTileList", 0, image=t["wide"], tile_width=8, tile_height=8, overlap=3)
    run(found, "SplitImageToTileList", 0, image=t["wide"], tile_width=40, tile_height=8, overlap=90)
    tiles = found["SplitImageToTileList"].execute(t["wide"], 8, 9, 3).args[0]
    for i, tile in enumerate(tiles):
        TENSORS[f"tile{i}"] = tile = tile.contiguous()
        tiles[i] = tile
    for overlap in (3, 0):
        run(
            found,
            "ImageMergeTileList",
            image_list=tiles,
            final_width=30,
            final_height=14,
            overlap=overlap,
        )
    run(
        found,
        "ImageMergeTileList",
        image_list=[t["two"], t["two"]],
        final_width=20,
        final_height=16,
        overlap=3,
    )
    run(found, "RebatchImages", 0, images=[t["two"], t["one"], t["two"]], batch_size=2)
    run(found, "RebatchImages", 0, images=[t["two"], t["one"]], batch_size=9)
    run(found, "ImageHistogram", image=t["two"])
    run(found, "ColorToRGBInt", color="#80402010")
    run(found, "ColorToRGBInt", color="#ffA000")


def filters(found):
    t = TENSORS
    for mode in ("normal", "multiply", "screen", "overlay", "soft_light", "difference"):
        run(
            found, "ImageBlend", image1=t["two"], image2=t["one"], blend_factor=0.7, blend_mode=mode
        )
        run(
            found,
            "ImageBlend",
            image1=t["rgba"],
            image2=t["tall"],
            blend_factor=1.0,
            blend_mode=mode,
        )
    run(
        found,
        "ImageBlend",
        image1=t["small"],
        image2=t["rgba"],
        blend_factor=0.25,
        blend_mode="screen",
    )
    for radius, sigma, alpha in ((1, 1.0, 1.0), (3, 0.4, 0.2), (5, 2.5, 2.0)):
        run(
            found,
            "ImageSharpen",
            1e-4,
            image=t["two"],
            sharpen_radius=radius,
            sigma=sigma,
            alpha=alpha,
        )
        run(found, "ImageBlur", image=t["two"], blur_radius=radius, sigma=sigma)
    for op in ("erode", "dilate", "open", "close", "gradient", "bottom_hat", "top_hat"):
        for k in (3, 4, 40):
            run(found, "Morphology", 1e-6, image=t["two"], operation=op, kernel_size=k)
    run(found, "ImageRGBToYUV", image=t["two"])
    run(found, "ImageYUVToRGB", Y=t["two"], U=t["two"], V=t["two"])
    for mode in (
        "ADD",
        "CLEAR",
        "DARKEN",
        "DST",
        "DST_ATOP",
        "DST_IN",
        "DST_OUT",
        "DST_OVER",
        "LIGHTEN",
        "MULTIPLY",
        "OVERLAY",
        "SCREEN",
        "SRC",
        "SRC_ATOP",
        "SRC_IN",
        "SRC_OUT",
        "SRC_OVER",
        "XOR",
    ):
        run(
            found,
            "PorterDuffImageComposite",
            1e-4,
            source=t["tall"],
            source_alpha=t["masks"],
            destination=t["small"],
            destination_alpha=t["mask"],
            mode=mode,
        )
    for colors in (1, 2, 7, 64, 256):
        for dither in ("none", "floyd-steinberg", "bayer-2", "bayer-4", "bayer-8", "bayer-16"):
            which = "smooth" if colors in (7, 256) else "one"
            run(found, "ImageQuantize", 1e-6, image=t[which], colors=colors, dither=dither)
    run(found, "JoinImageWithAlpha", image=t["two"], alpha=t["mask"])
    run(found, "JoinImageWithAlpha", image=t["one"], alpha=t["masks"])
    run(found, "SplitImageWithAlpha", image=t["rgba"])


def sizes(found):
    t = TENSORS
    ways = [
        {"resize_type": "scale dimensions", "width": 7, "height": 11, "crop": "center"},
        {"resize_type": "scale dimensions", "width": 7, "height": 0, "crop": "disabled"},
        {"resize_type": "scale dimensions", "width": 0, "height": 0, "crop": "center"},
        {"resize_type": "scale by multiplier", "multiplier": 1.37},
        {"resize_type": "scale longer dimension", "longer_size": 6},
        {"resize_type": "scale shorter dimension", "shorter_size": 21},
        {"resize_type": "scale width", "width": 31},
        {"resize_type": "scale height", "height": 5},
        {"resize_type": "scale total pixels", "megapixels": 0.001},
        {"resize_type": "match size", "match": t["tall"], "crop": "center"},
        {"resize_type": "match size", "match": t["masks"], "crop": "disabled"},
        {"resize_type": "scale to multiple", "multiple": 4},
        {"resize_type": "scale to multiple", "multiple": 5},
        {"resize_type": "scale to multiple", "multiple": 100},
    ]
    for i, way in enumerate(ways):
        method = ("area", "bilinear", "nearest-exact", "bicubic", "lanczos")[i % 5]
        which = "small" if way["resize_type"] == "scale total pixels" else "two"
        for which in (which, "masks"):
            run(
                found,
                "ResizeImageMaskNode",
                LANCZOS if method == "lanczos" else 1e-5,
                input=t[which],
                resize_type=way,
                scale_method=method,
            )
    run(
        found,
        "BatchImagesNode",
        images={"image0": t["two"], "image1": t["tall"], "image3": t["rgba"]},
    )
    run(found, "BatchImagesNode", images={"image0": t["small"]})
    run(found, "BatchMasksNode", masks={"mask0": t["masks"], "mask1": t["mask"]})
    run(
        found,
        "ImageScaleToTotalPixels",
        image=t["small"],
        upscale_method="bilinear",
        megapixels=0.001,
        resolution_steps=8,
    )


def dataset(found):
    t = TENSORS
    run(found, "NormalizeImages", images=t["two"], mean=0.4, std=0.3)
    run(found, "AdjustBrightness", images=t["two"], factor=1.4)
    run(found, "AdjustContrast", images=t["two"], factor=1.7)
    run(found, "CenterCropImages", images=t["two"], width=5, height=20)
    for seed in (0, 3, 2**40 + 5):
        run(found, "RandomCropImages", images=t["smooth"], width=4, height=6, seed=seed)
        run(found, "ShuffleDataset", 0, images=[t["two"], t["small"], t["tall"]], seed=seed)
    run(found, "RandomCropImages", images=t["smooth"], width=40, height=6, seed=9)
    run(found, "ResizeImagesByLongerEdge", LANCZOS, images=t["smooth"], longer_edge=14)
    run(found, "ResizeImagesByShorterEdge", LANCZOS, images=t["smooth"], shorter_edge=11)
    run(found, "MergeImageLists", 0, images=[t["two"], t["small"]])
    run(
        found,
        "ImageDeduplication",
        0,
        images=[t["smooth"], t["two"], t["smooth"]],
        similarity_threshold=0.95,
    )
    run(
        found,
        "ImageGrid",
        LANCZOS,
        images=[t["smooth"], t["smooth"]],
        columns=3,
        cell_width=12,
        cell_height=10,
        padding=3,
    )


def colors(found):
    t = TENSORS
    for method in ("reinhard_lab", "mkl_lab", "histogram"):
        for stats in (
            {"source_stats": "per_frame"},
            {"source_stats": "uniform"},
            {"source_stats": "target_frame", "target_index": 1},
        ):
            for ref, strength in (("coarse", 1.0), ("tall", 0.6)):
                run(
                    found,
                    "ColorTransfer",
                    2e-4,
                    image_target=t["smooth"],
                    image_ref=t[ref],
                    method=method,
                    source_stats=stats,
                    strength=strength,
                )
    for pad, grow, size in ((1.0, 0, (16, 16)), (1.3, 2, (20, 14)), (1.1, -1, (16, 12))):
        for mask in ("blob", "hole", "nothing"):
            run(
                found,
                "ImageCropToMask",
                2.01 / 255,
                images=t["smooth"],
                masks=t[mask],
                width=size[0],
                height=size[1],
                pad_factor=pad,
                grow_mask=grow,
                background="#204080",
            )


def boxes(found):
    t = TENSORS
    drawn = [
        {
            "x": 10,
            "y": 20,
            "width": 30,
            "height": 44,
            "metadata": {
                "type": "text",
                "text": "Hi",
                "desc": "a sign",
                "palette": ["#ff8000", "", "#00ff00"],
            },
        },
        {"x": 63.5, "y": 2, "width": -30, "height": -1.5},
        7,
        {"x": 90, "width": 500},
    ]
    elements = [
        {"type": "obj", "bbox": [100, 50, 900, 455], "desc": "tree", "color_palette": ["#abcdef"]},
        {"type": "text", "bbox": [5, 9, 1, 2], "text": "x"},
    ]
    run(found, "CreateBoundingBoxes", width=64, height=80, editor_state=[])
    run(
        found,
        "CreateBoundingBoxes",
        LANCZOS,
        width=64,
        height=80,
        editor_state=[],
        background=t["smooth"],
    )
    some = {"width": 96, "height": 80, "shapes": (0,)}
    run(found, "CreateBoundingBoxes", editor_state=drawn, **some)
    run(found, "CreateBoundingBoxes", editor_state=drawn, bboxes=elements, **some)
    run(found, "CreateBoundingBoxes", editor_state=drawn, bboxes=json.dumps(elements[0]), **some)
    run(found, "CreateBoundingBoxes", editor_state=[], bboxes=[[drawn[0], drawn[1]]], **some)
    last = [{"x": 10.0, "y": 20, "width": 30, "height": 44, "metadata": drawn[0]["metadata"]}]
    run(found, "CreateBoundingBoxes", editor_state=[], bboxes=drawn[0], last_incoming=last, **some)


def found_boxes(found):
    """Without labels: texts are in another typeface here."""

    def box(x, y, w, h, **more):
        return {"x": x, "y": y, "width": w, "height": h, **more}

    three = TENSORS["tall"]
    one, two = box(1, 2, 3, 9), box(0.7, 4.2, 3.6, 6.9, score=0.3)
    run(found, "DrawBBoxes", bboxes=one, image=three)
    run(found, "DrawBBoxes", bboxes=[one, two], image=three)
    run(found, "DrawBBoxes", bboxes=[[one], [two, box(-3, -2, 30, 9, score=0.9)], []], image=three)
    run(found, "DrawBBoxes", bboxes=[[one, two]])
    size = dict(output_width=24, output_height=16)
    run(found, "CropByBBoxes", image=three, bboxes=one, padding=0, keep_aspect="stretch", **size)
    size["keep_aspect"] = "pad"
    run(found, "CropByBBoxes", image=three, bboxes=[[one, two], [], [two]], padding=1, **size)
    run(found, "CropByBBoxes", image=three, bboxes=[[box(50, 60, 2, 2)]], padding=0, **size)
    run(found, "CropByBBoxes", image=three, bboxes=[[]], padding=0, **size)


def layers(found):
    t = TENSORS

    def stack(*items):
        out = None
        for item in items:
            out = Made(found, "AddLayer", **item, **({"layers": out} if out else {}))
        return out

    below = {"image": t["smooth"][:1], "name": "below"}
    TENSORS["below"] = below["image"] = below["image"].clone()
    for mode in found["AddLayer"].GET_SCHEMA().inputs[7].options:
        run(
            found,
            "ImageCompositor",
            2e-5,
            compositor={},
            layers=stack(
                below, {"image": t["small"], "x": 2, "y": 3, "blend_mode": mode, "opacity": 0.8}
            ),
        )
    over = {"image": t["rgba"], "mask": t["mask"], "x": -3, "y": 4, "z_index": -1}
    for place in (
        {},
        {"width": 14, "height": 7, "image": t["smooth"]},
        {"rotation": 90.0},
        {"rotation": 180.0},
        {"rotation": -90.0, "flip_h": True},
        {"flip_v": True},
    ):
        eps = 2 * LANCZOS if "width" in place else 2e-5
        run(found, "ImageCompositor", eps, compositor={}, layers=stack(below, {**over, **place}))
    for angle in (30.0, -100.0, 271.0):
        run(
            found,
            "ImageCompositor",
            4 / 255,
            compositor={},
            layers=stack(below, {**over, "rotation": angle, "image": t["smooth"], "z_index": 3}),
        )
    frames = [
        {
            "x": 3,
            "y": 2,
            "width": 12,
            "height": 15,
            "metadata": {"desc": "one", "content_rect": [1, 2, 30, 4]},
        },
        {"x": 0, "y": 1, "width": 12, "height": 9, "metadata": {"z_index": -5}},
    ]
    for more in (
        {},
        {"crop_to_content": False},
        {"layers": stack(below)},
        {"canvas_width": 9, "canvas_height": 19},
    ):
        run(
            found,
            "ImageCompositor",
            2 * LANCZOS,
            compositor={},
            layers=Made(found, "LayersFromBoundingBoxes", image=t["smooth"], bboxes=frames, **more),
        )
    two = stack(below, over)
    prints = compositor_prints(two.value)
    state = {
        "version": 1,
        "canvas": {"w": 17, "h": 14},
        "inputs": prints,
        "order": [1, 0],
        "background": {"color": "#204060", "opacity": 0.5},
        "layers": [
            {"opacity": 0.7, "blend": "screen", "transform": {"x": 2, "y": 1}},
            {"transform": {"x": 1, "y": 1, "w": 9, "h": 13}, "flipH": True},
        ],
    }
    run(found, "ImageCompositor", 2e-5, compositor=state, layers=two)
    run(found, "ImageCompositor", 2e-5, compositor={**state, "inputs": ["a", "b"]}, layers=two)


def compositor_prints(document):
    from comfy_extras import nodes_compositor as n

    frames = n.expand_item_frames(n.document_items(document))
    return n.input_fingerprints(frames, [n.frame_alpha(f["tensor"], f["mask"]) for f in frames])


def latents(found):
    t = TENSORS
    one = Latent(samples=t["latent"], noise_mask=t["mask"])
    many = Latent(samples=t["latents"], batch_index=[4, 2, 9])
    video = Latent(samples=t["video"])
    for cls in ("LatentAdd", "LatentSubtract"):
        run(found, cls, samples1=one, samples2=many)
        run(found, cls, samples1=many, samples2=one)
    run(found, "LatentMultiply", samples=many, multiplier=-1.7)
    run(found, "LatentInterpolate", samples1=one, samples2=many, ratio=0.3)
    for dim in ("x", "-x", "y", "-y", "t", "-t"):
        run(found, "LatentConcat", 0, samples1=video, samples2=video, dim=dim)
    for dim, index, amount in (("x", 1, 2), ("y", -2, 9), ("t", 7, 1), ("t", -9, 2)):
        run(found, "LatentCut", 0, samples=video, dim=dim, index=index, amount=amount)
    for dim, size in (("t", 2), ("x", 9), ("y", 1)):
        run(found, "LatentCutToBatch", 0, samples=video, dim=dim, slice_size=size)
    run(found, "LatentCutToBatch", 0, samples=one, dim="t", slice_size=2)
    for how in ("random", "fixed"):
        run(found, "LatentBatchSeedBehavior", 0, samples=many, seed_behavior=how)
        run(found, "LatentBatchSeedBehavior", 0, samples=one, seed_behavior=how)
    frames = Latent(samples=t["frames"])
    for index in (0, 3, -2, 4):
        run(found, "ReplaceVideoLatentFrames", 0, destination=video, source=frames, index=index)
    run(found, "ReplaceVideoLatentFrames", 0, destination=video, index=2)
    run(
        found,
        "LatentCompositeMasked",
        destination=one,
        source=many,
        x=16,
        y=8,
        resize_source=False,
        mask=t["masks"],
    )
    run(found, "LatentCompositeMasked", destination=many, source=one, x=0, y=16, resize_source=True)
    for m in (1.0, 0.02, 7.5):
        op = Made(found, "LatentOperationTonemapReinhard", multiplier=m)
        run(found, "LatentApplyOperation", samples=many, operation=op)
        run(found, "LatentApplyOperation", samples=video, operation=op)
    for radius, sigma, alpha in ((2, 1.0, 0.1), (3, 0.3, 1.5)):
        op = Made(found, "LatentOperationSharpen", sharpen_radius=radius, sigma=sigma, alpha=alpha)
        run(found, "LatentApplyOperation", 1e-4, samples=many, operation=op)
    run(found, "BatchLatentsNode", latents={"latent0": many, "latent1": one})
    for start, reference in ((2, 2), (1, 9)):
        run(
            found,
            "NormalizeVideoLatentStart",
            latent=video,
            start_frame_count=start,
            reference_frame_count=reference,
        )
    run(found, "LatentFromBatch", 0, samples=many, batch_index=-2, length=5)
    run(found, "ImageFromBatch", 0, image=t["tall"], batch_index=-2, length=1)


def main():
    import folder_paths

    folder_paths.set_temp_directory(tempfile.mkdtemp())  # previews go there
    found = classes()
    make(torch.Generator().manual_seed(ARGS.seed))
    for group in (pictures, filters, sizes, dataset, colors, boxes, found_boxes, layers, latents):
        group(found)
    used = json.dumps(CASES)
    save_file(
        {k: v for k, v in TENSORS.items() if f'"{k}"' in used},
        f"{ARGS.folder}/image_nodes.safetensors",
    )
    with open(f"{ARGS.folder}/image_nodes.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in CASES) + "\n]\n")
    print(len(CASES), "cases")


main()
