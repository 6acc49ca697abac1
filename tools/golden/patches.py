#!/usr/bin/env python3
"""What ComfyUI's nodes that patch models, guide, schedule, sample, condition and merge make of the
tiny SD1.5 model.

usage: patches.py GOLDEN COMFYUI OUT [--seed 42] [--positive TEXT] [--negative TEXT] [--empty TEXT]
       (written with torch 2.15.0, ComfyUI 0.33.0)

GOLDEN is tests/golden/data: the tiny model's keys and its prompts as clip_l_tiny has them; TEXT is
one of those prompts. `other` is a model like the tiny one, with the weights of "other." before each
name. COMFYUI is a checkout whose packages are installed. Writes OUT/patches.json, the cases:

    {"name": [{"id": "m", "class": "CFGNorm", "inputs": {"model": ["model", 0], "strength": 0.5}},
    ...]}

each a few nodes in the order they run, whose links name an earlier one or an input of the file
(model, positive, negative, empty, latents), and OUT/patches.safetensors: in/<input>, and for every
case the tensor that output 0 of its last node is. OUT/windows.json has context windows by
themselves, OUT/hyper*.pt are hypernetworks.
"""

import argparse
import asyncio
import glob
import importlib
import inspect
import json
import re
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

MASK64 = (1 << 64) - 1


def synth(name, shape):
    """The rule of GOLDEN/README.md."""
    import numpy as np

    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & MASK64
    n = int(np.prod(shape)) if shape else 1
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, n + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float64) / 2**24 * 2 - 1
    if len(shape) >= 2:
        u = u * (3 / np.prod(shape[1:])) ** 0.5
    elif len(shape) == 1 and name.rsplit(".", 1)[-1] in ("weight", "scale"):
        u = 1 + 0.1 * u
    else:
        u = 0.1 * u
    return torch.from_numpy(u.astype(np.float32).reshape(shape))


# ---- cases ----


def node(id, cls, **inputs):
    return {"id": id, "class": cls, "inputs": inputs}


def model(cls, id="m", of="model", **inputs):
    return node(id, cls, model=[of, 0], **inputs)


def ksampler(
    of="m",
    seed=42,
    steps=6,
    cfg=7.0,
    sampler="euler",
    scheduler="normal",
    latent="latent",
    denoise=1.0,
):
    return node(
        "k",
        "KSampler",
        model=[of, 0],
        seed=seed,
        steps=steps,
        cfg=cfg,
        sampler_name=sampler,
        scheduler=scheduler,
        positive=["positive", 0],
        negative=["negative", 0],
        latent_image=[latent, 0],
        denoise=denoise,
    )


def custom(sampler, seed, steps=8, scheduler="karras", cfg=6.0, of="model", latent="latent"):
    """A SAMPLER node's steps."""
    return [
        sampler,
        node("s", "BasicScheduler", model=[of, 0], scheduler=scheduler, steps=steps, denoise=1.0),
        node(
            "c",
            "SamplerCustom",
            model=[of, 0],
            add_noise=True,
            noise_seed=seed,
            cfg=cfg,
            positive=["positive", 0],
            negative=["negative", 0],
            sampler=[sampler["id"], 0],
            sigmas=["s", 0],
            latent_image=[latent, 0],
        ),
    ]


def guided(guider, seed, steps=6, latent="latent", of="model"):
    return [
        guider,
        node("n", "RandomNoise", noise_seed=seed),
        node("e", "KSamplerSelect", sampler_name="euler"),
        node("s", "BasicScheduler", model=[of, 0], scheduler="normal", steps=steps, denoise=1.0),
        node(
            "c",
            "SamplerCustomAdvanced",
            noise=["n", 0],
            guider=[guider["id"], 0],
            sampler=["e", 0],
            sigmas=["s", 0],
            latent_image=[latent, 0],
        ),
    ]


def guidance_cases(seed):
    k = dict(seed=seed)
    flow = model("ModelSamplingSD3", id="f", shift=3.0)
    yield "rescale_cfg", [model("RescaleCFG", multiplier=0.7), ksampler(**k)]
    yield "rescale_cfg_flow", [flow, model("RescaleCFG", of="f", multiplier=0.6), ksampler(**k)]
    yield "cfg_zero_star", [model("CFGZeroStar"), ksampler(**k)]
    yield "cfg_norm", [model("CFGNorm", strength=0.9), ksampler(**k)]
    yield "cfg_norm_pre", [model("CFGNorm", strength=0.8, pre_cfg=True), ksampler(**k)]
    yield "apg", [model("APG", eta=0.4, norm_threshold=5.0, momentum=-0.5), ksampler(**k)]
    yield "apg_plain", [
        model("APG", eta=0.0, norm_threshold=0.0, momentum=0.0),
        ksampler(latent="batch", **k),
    ]
    yield "tcfg", [model("TCFG"), ksampler(latent="batch", **k)]
    yield "mahiro", [model("Mahiro"), ksampler(latent="batch", **k)]
    yield "fresca", [
        model("FreSca", scale_low=0.8, scale_high=1.3, freq_cutoff=3),
        ksampler(latent="wide", **k),
    ]
    yield "fresca_odd", [
        model("FreSca", scale_low=1.2, scale_high=0.7, freq_cutoff=2),
        ksampler(latent="odd", **k),
    ]
    yield "renorm_cfg", [model("RenormCFG", cfg_trunc=9.0, renorm_cfg=1.1), ksampler(**k)]
    yield "epsilon_scaling", [model("Epsilon Scaling", scaling_factor=1.02), ksampler(**k)]
    yield "tsr", [model("TemporalScoreRescaling", tsr_k=0.8, tsr_sigma=1.5), ksampler(**k)]
    yield "tsr_flow", [
        flow,
        model("TemporalScoreRescaling", of="f", tsr_k=0.8, tsr_sigma=1.5),
        ksampler(**k),
    ]
    yield "cfg_override", [
        model("CFGOverride", id="a", cfg=3.0, start_percent=0.0, end_percent=1.0),
        model("CFGOverride", of="a", cfg=1.0, start_percent=0.3, end_percent=0.8),
        ksampler(**k),
    ]
    yield "video_linear", [
        model("VideoLinearCFGGuidance", min_cfg=1.5),
        ksampler(latent="batch", **k),
    ]
    yield "video_triangle", [
        model("VideoTriangleCFGGuidance", min_cfg=1.5),
        ksampler(latent="batch", **k),
    ]
    yield "perp_neg", [
        node("m", "PerpNeg", model=["model", 0], empty_conditioning=["empty", 0], neg_scale=0.7),
        ksampler(**k),
    ]
    yield "perp_neg_guider", guided(
        node(
            "g",
            "PerpNegGuider",
            model=["model", 0],
            positive=["positive", 0],
            negative=["negative", 0],
            empty_conditioning=["empty", 0],
            cfg=6.0,
            neg_scale=1.3,
        ),
        seed,
    )
    yield "several", [
        model("RescaleCFG", id="a", multiplier=0.5),
        model("CFGNorm", id="b", of="a", strength=0.95),
        model("APG", id="d", of="b", eta=0.5, norm_threshold=3.0, momentum=0.0),
        model("CFGZeroStar", of="d"),
        ksampler(**k),
    ]
    yield "cfg_1", [
        model("APG", id="a", eta=0.5, norm_threshold=3.0, momentum=0.2),
        model("CFGZeroStar", of="a"),
        ksampler(cfg=1.0, **k),
    ]


def sampler_cases(seed):
    yield "lcm", custom(
        node("a", "SamplerLCM", s_noise=0.9, s_noise_end=0.4, noise_clip_std=1.5), seed
    )
    for i, (ratio, steps, method) in enumerate(
        ((1.5, -1, "bislerp"), (2.0, 3, "bilinear"), (0.75, 20, "area"))
    ):
        yield f"lcm_upscale_{i}", custom(
            node(
                "a",
                "SamplerLCMUpscale",
                scale_ratio=ratio,
                scale_steps=steps,
                upscale_method=method,
            ),
            seed,
            steps=5,
        )
    yield "euler_cfg_pp", custom(node("a", "SamplerEulerCFGpp", version="regular"), seed)
    yield "euler_pp", custom(node("a", "SamplerEulerCFGpp", version="alternative"), seed)
    yield "euler_ancestral_cfg_pp", custom(
        node("a", "SamplerEulerAncestralCFGPP", eta=0.6, s_noise=0.9), seed
    )
    yield "dpmpp_3m_sde", custom(
        node("a", "SamplerDPMPP_3M_SDE", eta=0.7, s_noise=0.9, noise_device="cpu"), seed
    )
    yield "dpmpp_sde", custom(
        node("a", "SamplerDPMPP_SDE", eta=0.7, s_noise=0.9, r=0.4, noise_device="cpu"), seed
    )
    yield "dpmpp_2s", custom(node("a", "SamplerDPMPP_2S_Ancestral", eta=0.5, s_noise=0.8), seed)
    more = dict(
        h_init=0.2, pcoeff=0.1, icoeff=0.9, dcoeff=0.05, accept_safety=0.7, eta=0.0, s_noise=1.0
    )
    yield "adaptive", custom(
        node("a", "SamplerDPMAdaptative", order=3, rtol=0.1, atol=0.02, **more), seed
    )
    yield "adaptive_2", custom(
        node("a", "SamplerDPMAdaptative", order=2, rtol=0.2, atol=0.05, **more), seed
    )
    for i, solver in enumerate(("ER-SDE", "Reverse-time SDE", "ODE")):
        yield f"er_sde_{i}", custom(
            node("a", "SamplerER_SDE", solver_type=solver, max_stage=3 - i, eta=0.8, s_noise=0.9),
            seed,
        )
    sa = dict(model=["model", 0], eta=0.8, sde_start_percent=0.1, sde_end_percent=0.7, s_noise=0.9)
    yield "sa_solver", custom(
        node(
            "a",
            "SamplerSASolver",
            predictor_order=2,
            corrector_order=3,
            use_pece=False,
            simple_order_2=False,
            **sa,
        ),
        seed,
    )
    yield "sa_solver_simple", custom(
        node(
            "a",
            "SamplerSASolver",
            predictor_order=2,
            corrector_order=2,
            use_pece=True,
            simple_order_2=True,
            **sa,
        ),
        seed,
    )
    yield "sa_solver_no_corrector", custom(
        node(
            "a",
            "SamplerSASolver",
            predictor_order=1,
            corrector_order=0,
            use_pece=False,
            simple_order_2=False,
            **sa,
        ),
        seed,
    )
    for solver in ("phi_1", "phi_2"):
        yield f"seeds_2_{solver}", custom(
            node("a", "SamplerSEEDS2", solver_type=solver, eta=0.5, s_noise=0.9, r=0.6), seed
        )
    noisy = [
        model("ModelSamplingSD3", id="f", shift=3.0),
        model("ModelNoiseScale", of="f", noise_scale=1.5),
    ]
    yield "noise_scale", noisy + [ksampler(seed=seed)]
    yield "noise_scale_ancestral", noisy + [ksampler(seed=seed, sampler="euler_ancestral")]
    yield "noise_scale_er_sde", noisy + [ksampler(seed=seed, sampler="er_sde")]
    yield "continuous_v", [
        model("ModelSamplingContinuousV", sampling="v_prediction", sigma_max=300.0, sigma_min=0.03),
        ksampler(seed=seed),
    ]
    yield "img_to_img_flow", [
        model("ModelSamplingDiscrete", sampling="img_to_img_flow", zsnr=False),
        ksampler(seed=seed, latent="painted", cfg=1.0),
    ]


def sigma_cases():
    yield "laplace", [
        node("s", "LaplaceScheduler", steps=13, sigma_max=14.6, sigma_min=0.03, mu=0.3, beta=0.6)
    ]
    for i, (steps, w, h, mu, std) in enumerate(
        ((20, 1024, 1024, 0.0, 1.75), (7, 640, 1536, 0.5, 0.8), (1, 256, 256, -2.0, 5.0))
    ):
        yield f"ideogram_{i}", [
            node("s", "Ideogram4Scheduler", steps=steps, width=w, height=h, mu=mu, std=std)
        ]
    yield "vp", [node("s", "VPScheduler", steps=11, beta_d=19.9, beta_min=0.1, eps_s=0.001)]
    for m, steps, denoise in (
        ("FLUX", 10, 1.0),
        ("FLUX", 17, 0.6),
        ("Wan", 20, 0.5),
        ("Chroma", 26, 1.0),
    ):
        yield f"optimal_{m}_{steps}", [
            node("s", "OptimalStepsScheduler", model_type=m, steps=steps, denoise=denoise)
        ]
    for coeff, steps, denoise in ((0.8, 2, 1.0), (1.2, 10, 1.0), (1.15, 20, 0.7), (1.5, 33, 0.9)):
        yield f"gits_{steps}", [
            node("s", "GITSScheduler", coeff=coeff, steps=steps, denoise=denoise)
        ]
    for spacing in ("linear", "cosine", "sine"):
        yield f"extend_{spacing}", [
            node("a", "KarrasScheduler", steps=7, sigma_max=14.6, sigma_min=0.03, rho=7.0),
            node(
                "s",
                "ExtendIntermediateSigmas",
                sigmas=["a", 0],
                steps=4,
                start_at_sigma=10.0,
                end_at_sigma=0.2,
                spacing=spacing,
            ),
        ]
    for percent in (0.0, 0.35, 1.0):
        yield f"percent_{percent}", [
            model("SamplingPercentToSigma", sampling_percent=percent, return_actual_sigma=True)
        ]


def conditioning_cases(seed):
    yield "multiply", [
        node("p", "ConditioningMultiply", conditioning=["positive", 0], multiplier=-0.3)
    ]
    half = [
        node(
            "p",
            "ConditioningSetAreaPercentage",
            conditioning=["positive", 0],
            width=0.5,
            height=1.0,
            x=0.0,
            y=0.0,
            strength=1.0,
        ),
        node("q", "ConditioningSetAreaStrength", conditioning=["p", 0], strength=0.4),
        node("r", "ConditioningCombine", conditioning_1=["q", 0], conditioning_2=["empty", 0]),
    ]
    k = ksampler(of="model", seed=seed, latent="wide")
    k["inputs"]["positive"] = ["r", 0]
    yield "area_strength", half + [k]
    video = node(
        "q",
        "ConditioningSetAreaPercentageVideo",
        conditioning=["positive", 0],
        width=0.3,
        height=0.5,
        temporal=0.75,
        x=0.1,
        y=0.25,
        z=0.25,
        strength=0.9,
    )
    yield "area_video", [video] + half[2:] + [k]


def network_cases(seed):
    k = dict(seed=seed, latent="wide")
    yield "free_u", [model("FreeU", b1=1.1, b2=1.2, s1=0.9, s2=0.2), ksampler(**k)]
    yield "free_u_odd", [
        model("FreeU", b1=1.3, b2=0.8, s1=0.4, s2=0.6),
        ksampler(seed=seed, latent="odd"),
    ]
    yield "free_u_2", [model("FreeU_V2", b1=1.3, b2=1.4, s1=0.9, s2=0.2), ksampler(**k)]
    yield "pag", [model("PerturbedAttentionGuidance", scale=2.0), ksampler(**k)]
    yield "sag", [model("SelfAttentionGuidance", scale=0.7, blur_sigma=2.0), ksampler(**k)]
    yield "sag_batch", [
        model("SelfAttentionGuidance", scale=0.5, blur_sigma=1.2),
        ksampler(seed=seed, latent="painted"),
    ]
    yield "nag", [
        model("NAGuidance", nag_scale=4.0, nag_alpha=0.4, nag_tau=1.8),
        ksampler(seed=seed, latent="batch"),
    ]
    yield "nag_cfg_1", [
        model("NAGuidance", nag_scale=4.0, nag_alpha=0.4, nag_tau=1.8),
        ksampler(cfg=1.0, **k),
    ]
    shrink = dict(block_number=3, downscale_factor=2.0, start_percent=0.0, end_percent=0.6)
    yield "shrink", [
        model(
            "PatchModelAddDownscale",
            downscale_after_skip=True,
            downscale_method="bicubic",
            upscale_method="bicubic",
            **shrink,
        ),
        ksampler(**k),
    ]
    cascade = model("ModelSamplingStableCascade", shift=2.0)
    yield "cascade", [cascade, ksampler(seed=seed)]
    yield "cascade_normal", [
        model("ModelSamplingStableCascade", shift=1.0),
        ksampler(seed=seed, scheduler="karras", denoise=0.6, latent="painted"),
    ]
    yield "cascade_percent", [
        cascade,
        model(
            "SamplingPercentToSigma", id="s", of="m", sampling_percent=0.3, return_actual_sigma=True
        ),
    ]
    yield "ltxv_sampling", [
        node(
            "m",
            "ModelSamplingLTXV",
            model=["model", 0],
            max_shift=2.05,
            base_shift=0.95,
            latent=["wide", 0],
        ),
        ksampler(seed=seed),
    ]
    yield "temporal_attention", [
        model(
            "UNetTemporalAttentionMultiply",
            self_structural=1.2,
            self_temporal=0.5,
            cross_structural=0.7,
            cross_temporal=2.0,
        ),
        ksampler(seed=seed),
    ]
    yield "shrink_kept", [
        model(
            "PatchModelAddDownscale",
            downscale_after_skip=False,
            downscale_method="area",
            upscale_method="bislerp",
            **shrink,
        ),
        ksampler(**k),
    ]
    yield "pag_free_u", [
        model("FreeU", id="a", b1=1.1, b2=1.2, s1=0.9, s2=0.2),
        model("PerturbedAttentionGuidance", of="a", scale=1.5),
        ksampler(**k),
    ]
    hyper = dict(hypernetwork_name="hyper.pt", strength=0.8)
    yield "hypernetwork", [model("HypernetworkLoader", **hyper), ksampler(**k)]
    yield "hypernetwork_norm", [
        model("HypernetworkLoader", hypernetwork_name="hyper_norm.pt", strength=1.0),
        ksampler(seed=seed, latent="batch"),
    ]
    yield "hypernetwork_tiles", [
        model("HypernetworkLoader", id="a", **hyper),
        model("HyperTile", of="a", tile_size=1, swap_size=2, max_depth=0, scale_depth=False),
        ksampler(**k),
    ]
    tiles = dict(tile_size=40, swap_size=3, max_depth=0, scale_depth=False)
    yield "hyper_tile", [model("HyperTile", **tiles), ksampler(**k)]
    yield "hyper_tile_deep", [
        model(
            "HyperTile", **(tiles | dict(tile_size=1, max_depth=2, scale_depth=True, swap_size=5))
        ),
        ksampler(seed=seed + 1, latent="painted", denoise=0.7),
    ]
    yield "tome", [model("TomePatchModel", ratio=0.4), ksampler(**(k | {"seed": seed + 7}))]
    yield "tome_odd", [model("TomePatchModel", ratio=0.9), ksampler(seed=seed, latent="odd")]
    yield "tome_tiles", [
        model("TomePatchModel", id="a", ratio=0.3),
        model("HyperTile", of="a", **(tiles | dict(max_depth=1))),
        ksampler(seed=seed, latent="painted"),
    ]
    yield "tiles_pag", [
        model("HyperTile", id="a", **tiles),
        model("PerturbedAttentionGuidance", of="a", scale=2.0),
        ksampler(**k),
    ]
    cache = dict(reuse_threshold=0.3, start_percent=0.1, end_percent=0.95, verbose=False)
    yield "easy_cache", [model("EasyCache", **cache), ksampler(steps=16, **k)]
    yield "easy_cache_cfg_1", [model("EasyCache", **cache), ksampler(steps=16, cfg=1.0, **k)]
    yield "lazy_cache", [model("LazyCache", **cache), ksampler(steps=16, **k)]
    yield "lazy_cache_pp", [
        model("LazyCache", **cache),
        ksampler(steps=16, sampler="euler_cfg_pp", **k),
    ]


def flux_cases(seed):
    def k(**more):
        s = ksampler(seed=seed, latent="flux_latent", scheduler="simple", **more)
        s["inputs"].update(positive=["flux_positive", 0], negative=["flux_negative", 0])
        return s

    skip = dict(double_layers="1", single_layers="0, 2", start_percent=0.1, end_percent=0.7)
    yield "flux_slg", [
        model("SkipLayerGuidanceDiT", of="flux", scale=2.5, rescaling_scale=0.3, **skip),
        k(cfg=3.0),
    ]
    yield "flux_slg_simple", [model("SkipLayerGuidanceDiTSimple", of="flux", **skip), k(cfg=3.0)]
    yield "flux_nag", [
        model("NAGuidance", of="flux", nag_scale=4.0, nag_alpha=0.4, nag_tau=1.8),
        k(cfg=1.0),
    ]
    yield "flux_rope", [
        model(
            "ScaleROPE",
            of="flux",
            scale_x=1.5,
            shift_x=2.0,
            scale_y=0.5,
            shift_y=-1.0,
            scale_t=1.0,
            shift_t=3.0,
        ),
        k(cfg=2.0),
    ]
    yield "flux_zero_star", [model("CFGZeroStar", of="flux"), k(cfg=2.0)]


def merge_cases(seed):
    two, k = dict(model1=["model", 0], model2=["other", 0]), ksampler(seed=seed)
    yield "merge_simple", [node("m", "ModelMergeSimple", ratio=0.6, **two), k]
    yield "merge_subtract", [
        node("a", "ModelMergeSubtract", multiplier=0.4, **two),
        node("m", "ModelMergeAdd", model1=["other", 0], model2=["a", 0]),
        k,
    ]
    yield "merge_blocks", [node("m", "ModelMergeBlocks", input=0.8, middle=0.3, out=0.5, **two), k]
    sd1 = {
        n: round(0.1 + 0.8 * i / 30, 3)
        for i, n in enumerate(
            ["time_embed.", "label_emb."]
            + [f"input_blocks.{i}." for i in range(12)]
            + [f"middle_block.{i}." for i in range(3)]
            + [f"output_blocks.{i}." for i in range(12)]
            + ["out."]
        )
    }
    yield "merge_sd1", [node("m", "ModelMergeSD1", **two, **sd1), k]
    yield "merge_self", [
        node("m", "ModelMergeSimple", model1=["model", 0], model2=["model", 0], ratio=0.3),
        k,
    ]
    yield "self_attention", [model("UNetSelfAttentionMultiply", q=1.2, k=0.9, v=0.8, out=1.1), k]
    yield "cross_attention", [model("UNetCrossAttentionMultiply", q=0.7, k=1.3, v=1.2, out=0.9), k]


def guider_cases(seed):
    two = dict(positive=["positive", 0], negative=["negative", 0], model=["model", 0])
    yield "two_models", guided(
        node("g", "DualModelGuider", cfg=4.0, model_negative=["other", 0], **two), seed
    )
    yield "two_models_norm", [model("CFGNorm", strength=0.9)] + guided(
        node(
            "g",
            "DualModelGuider",
            cfg=4.0,
            model_negative=["other", 0],
            **(two | {"model": ["m", 0]}),
        ),
        seed,
    )
    yield "one_of_two_models", guided(node("g", "DualModelGuider", cfg=4.0, **two), seed)


def window_cases(seed):
    def windows(**more):
        return model(
            "ContextWindowsManual",
            **(
                dict(
                    context_length=3,
                    context_overlap=1,
                    context_schedule="standard_static",
                    context_stride=1,
                    closed_loop=False,
                    fuse_method="pyramid",
                    dim=0,
                    freenoise=False,
                    cond_retain_index_list="",
                    split_conds_to_windows=False,
                    latent_retain_index_list="",
                    causal_window_fix=False,
                )
                | more
            ),
        )

    k = ksampler(seed=seed, latent="long")
    yield "windows", [windows(), k]
    yield "windows_causal", [
        windows(causal_window_fix=True, fuse_method="overlap-linear", context_overlap=2),
        k,
    ]
    yield "windows_uniform", [
        windows(context_schedule="standard_uniform", context_stride=2, fuse_method="flat"),
        k,
    ]
    yield "windows_looped", [
        windows(
            context_schedule="looped_uniform",
            closed_loop=True,
            fuse_method="relative",
            context_stride=2,
        ),
        k,
    ]
    yield "windows_batched", [
        windows(context_schedule="batched", context_length=4, freenoise=True),
        k,
    ]
    yield "windows_free", [windows(freenoise=True, latent_retain_index_list="0"), k]
    both = node(
        "both", "ConditioningCombine", conditioning_1=["positive", 0], conditioning_2=["empty", 0]
    )
    split = ksampler(seed=seed, latent="long")
    split["inputs"]["positive"] = ["both", 0]
    yield "windows_split", [windows(split_conds_to_windows=True), both, split]


def hook_cases(seed):
    lora = node(
        "h",
        "CreateHookLora",
        lora_name="tiny_lora.safetensors",
        strength_model=0.8,
        strength_clip=0.0,
    )
    props = dict(strength=1.0, set_cond_area="default", hooks=["h", 0])

    def k(positive, negative="negative", **more):
        s = ksampler(of="model", seed=seed, **more)
        s["inputs"].update(positive=[positive, 0], negative=[negative, 0])
        return s

    new = node("p", "ConditioningSetProperties", cond_NEW=["positive", 0], **props)
    yield "hook", [lora, new, k("p")]
    both = node("q", "ConditioningSetProperties", cond_NEW=["negative", 0], **props)
    yield "hook_both", [lora, new, both, k("p", "q")]
    frames = [
        node("f", "CreateHookKeyframe", strength_mult=0.5, start_percent=0.0),
        node(
            "g", "CreateHookKeyframe", strength_mult=1.5, start_percent=0.5, prev_hook_kf=["f", 0]
        ),
        node("t", "SetHookKeyframes", hooks=["h", 0], hook_kf=["g", 0]),
    ]
    timed = node(
        "p", "ConditioningSetProperties", cond_NEW=["positive", 0], **(props | {"hooks": ["t", 0]})
    )
    yield "hook_keyframes", [lora] + frames + [timed, k("p", steps=8)]
    eased = [
        node(
            "g",
            "CreateHookKeyframesInterpolated",
            strength_start=1.0,
            strength_end=0.0,
            interpolation="ease_in_out",
            start_percent=0.1,
            end_percent=0.9,
            keyframes_count=5,
        ),
        node("t", "SetHookKeyframes", hooks=["h", 0], hook_kf=["g", 0]),
    ]
    yield "hook_eased", [lora] + eased + [timed, k("p", steps=8)]
    text = node(
        "t",
        "CreateHookLora",
        lora_name="tiny_text_lora.safetensors",
        strength_model=0.0,
        strength_clip=0.7,
    )
    said = dict(clip=["clip", 0], text="a photo of a cat")
    set_clip = dict(clip=["clip", 0], hooks=["t", 0])
    yield "clip_hook", [
        text,
        node("c", "SetClipHooks", apply_to_conds=True, schedule_clip=False, **set_clip),
        node("e", "CLIPTextEncode", **(said | {"clip": ["c", 0]})),
    ]
    two = [
        lora,
        node("a", "CombineHooks2", hooks_A=["h", 0], hooks_B=["t", 0]),
        node("b", "CombineHooks2", hooks_A=["a", 0], hooks_B=["t", 0]),
    ]
    scheduled = frames[:2] + [
        node("d", "SetHookKeyframes", hooks=["b", 0], hook_kf=["g", 0]),
        node(
            "c",
            "SetClipHooks",
            clip=["clip", 0],
            hooks=["d", 0],
            apply_to_conds=True,
            schedule_clip=True,
        ),
        node("p", "CLIPTextEncode", **(said | {"clip": ["c", 0]})),
    ]
    yield "clip_hook_scheduled", [text] + two + scheduled + [k("p", steps=8)]
    other = node(
        "h",
        "CreateHookModelAsLora",
        ckpt_name="tiny_other.safetensors",
        strength_model=0.4,
        strength_clip=0.6,
    )
    yield "hook_model", [other, new, k("p")]
    yield "hook_model_clip", [
        other,
        node(
            "c",
            "SetClipHooks",
            clip=["clip", 0],
            hooks=["h", 0],
            apply_to_conds=False,
            schedule_clip=False,
        ),
        node("e", "CLIPTextEncode", **(said | {"clip": ["c", 0]})),
    ]
    only = node(
        "h",
        "CreateHookModelAsLoraModelOnly",
        ckpt_name="tiny_other.safetensors",
        strength_model=0.4,
    )
    loaded = node(
        "l",
        "LoraLoaderModelOnly",
        model=["model", 0],
        lora_name="tiny_lora.safetensors",
        strength_model=0.5,
    )
    mixed = k("p")
    mixed["inputs"]["model"] = ["l", 0]
    yield "hook_model_lora", [only, loaded, new, mixed]
    area = node(
        "a",
        "ConditioningSetAreaPercentage",
        conditioning=["positive", 0],
        width=0.5,
        height=0.75,
        x=0.0,
        y=0.25,
        strength=0.8,
    )
    rest = node("p", "ConditioningSetDefaultCombine", cond=["a", 0], cond_DEFAULT=["empty", 0])
    yield "cond_default", [area, rest, k("p", latent="wide")]
    pair = node(
        "p",
        "PairConditioningSetDefaultCombine",
        positive=["a", 0],
        negative=["negative", 0],
        positive_DEFAULT=["empty", 0],
        negative_DEFAULT=["empty", 0],
        hooks=["h", 0],
    )
    sampled = k("p", latent="wide")
    sampled["inputs"]["negative"] = ["p", 1]
    yield "cond_default_pair", [lora, area, pair, sampled]
    span = node("r", "ConditioningTimestepsRange", start_percent=0.0, end_percent=0.4)
    two = node(
        "c",
        "ConditioningSetPropertiesAndCombine",
        cond=["empty", 0],
        cond_NEW=["positive", 0],
        timesteps=["r", 0],
        **props,
    )
    yield "hook_range", [lora, span, two, k("c", steps=8)]


def cases(seed):
    yield from hook_cases(seed)
    yield from window_cases(seed)
    yield from guider_cases(seed)
    yield from merge_cases(seed)
    yield from flux_cases(seed)
    yield from network_cases(seed)
    yield from guidance_cases(seed)
    yield from sampler_cases(seed)
    yield from sigma_cases()
    yield from conditioning_cases(seed)


# ---- ComfyUI ----


def hyper(dims, inner, norm=False, **settings):
    """A hypernetwork as trainers wrote them."""

    def net(dim, which):
        layers, out = [(dim, inner), (inner, dim)], {}
        for i, (a, b) in enumerate(layers):
            at = 2 * i if norm else i
            out[f"linear.{at}.weight"] = (
                synth(f"hyper.{dim}.{which}.{at}.weight", (b, a)) * 0.3
            ).half()
            out[f"linear.{at}.bias"] = synth(f"hyper.{dim}.{which}.{at}.bias", (b,)).half()
            if norm:
                out[f"linear.{at + 1}.weight"] = synth(
                    f"hyper.{dim}.{which}.{at + 1}.weight", (b,)
                ).half()
                out[f"linear.{at + 1}.bias"] = synth(
                    f"hyper.{dim}.{which}.{at + 1}.bias", (b,)
                ).half()
        return out

    return {
        **{d: [net(d, 0), net(d, 1)] for d in dims},
        "step": 100,
        "name": "tiny",
        "is_layer_norm": norm,
        **settings,
    }


def text_lora(rank=4, width=64):
    """Of the text encoder's first layers."""
    out = {}
    for layer in range(2):
        for what in ("q_proj", "v_proj"):
            base = f"lora_te_text_model_encoder_layers_{layer}_self_attn_{what}"
            for name, shape in (
                (f"{base}.lora_up.weight", (width, rank)),
                (f"{base}.lora_down.weight", (rank, width)),
            ):
                out[name] = synth(name, shape)
    return out


class Reference:
    def __init__(self, comfyui, golden, out):
        sys.path.insert(0, comfyui)
        sys.argv = [sys.argv[0], "--cpu"]
        import comfy.options

        comfy.options.enable_args_parsing()
        import comfy.model_patcher
        import comfy.supported_models

        self.comfy, self.path, self.golden, self.found = comfy, comfyui, golden, {}
        import folder_paths

        loras = tempfile.mkdtemp()
        tensors = load_file(f"{golden}/lora_sd15_tiny.safetensors")
        save_file(
            {k[5:]: v for k, v in tensors.items() if k.startswith("lora/")},
            f"{loras}/tiny_lora.safetensors",
        )
        save_file(text_lora(), f"{loras}/tiny_text_lora.safetensors")
        folder_paths.add_model_folder_path("loras", loras)
        torch.save(hyper((32, 64), 40, activation_func="linear"), f"{out}/hyper.pt")
        torch.save(
            hyper((64,), 24, norm=True, activation_func="mish", activate_output=True),
            f"{out}/hyper_norm.pt",
        )
        folder_paths.add_model_folder_path("hypernetworks", out)

    def unet(self, family, config, keys, prefix, front=""):
        """Weights are those of names with `front` before them."""
        with open(f"{self.golden}/manifest.json") as f:
            config = json.load(f)[config]["config"]
        with open(f"{self.golden}/{keys}") as f:
            keys = json.load(f)
        settings = getattr(self.comfy.supported_models, family)(dict(config))
        settings.set_inference_dtype(torch.float32, None)
        net = settings.get_model({}, "", device="cpu")
        names = {k: k[len(prefix) :] for k in keys if k.startswith(prefix)}
        own = (
            net.diffusion_model.state_dict()
        )  # newer checkouts call the scale of a norm its weight
        names = {k: n if n in own else re.sub(r"scale$", "weight", n) for k, n in names.items()}
        net.diffusion_model.load_state_dict(
            {n: synth(front + k, keys[k]) for k, n in names.items()}
        )
        net.diffusion_model.eval()
        cpu = torch.device("cpu")
        return self.comfy.model_patcher.ModelPatcher(net, cpu, cpu)

    def clip(self, front=""):
        import types
        import comfy.sd
        import comfy.sd1_clip as sd1

        with open(f"{self.golden}/manifest.json") as f:
            config = json.load(f)["clip_l_tiny"]["config"]
        with open(f"{self.golden}/sd15_tiny_clip_keys.json") as f:
            keys = json.load(f)
        target = types.SimpleNamespace(params={}, clip=sd1.SD1ClipModel, tokenizer=sd1.SD1Tokenizer)
        clip = comfy.sd.CLIP(
            target, model_options={"clip_l_model_config": config, "dtype": torch.float32}
        )
        own = clip.cond_stage_model.state_dict()
        names = {k.replace("cond_stage_model.", "clip_l."): k for k in keys}
        for n, k in names.items():
            if n in own:
                own[n].copy_(synth(front + k, keys[k]))
        return clip

    def cls(self, name):
        """A node's class by the name that workflows have."""
        if name not in self.found:
            for path in sorted(glob.glob(f"{self.path}/comfy_extras/nodes_*.py")) + [
                f"{self.path}/nodes.py"
            ]:
                with open(path) as f:
                    text = f.read()
                if not re.search(
                    r'node_id\s*=\s*"{0}"|"{0}"\s*:|NodeId = .{0}.'.format(re.escape(name)), text
                ):
                    continue
                module = importlib.import_module(path[len(self.path) + 1 : -3].replace("/", "."))
                old = getattr(module, "NODE_CLASS_MAPPINGS", {})
                if name in old:
                    self.found[name] = old[name]
                for c in vars(module).values():
                    if (
                        inspect.isclass(c)
                        and hasattr(c, "define_schema")
                        and c.__module__ == module.__name__
                    ):
                        if c.define_schema().node_id == name:
                            self.found[name] = c
                if name in self.found:
                    break
        return self.found[name]

    def run(self, name, inputs):
        c = self.cls(name)
        if hasattr(c, "define_schema"):
            out = c.execute(**inputs)
            out = asyncio.run(out) if inspect.isawaitable(out) else out
            return out.args if hasattr(out, "args") else out
        return getattr(c(), c.FUNCTION)(**inputs)


def write_windows(path):
    """Context windows by themselves: their frames, weights, and noise shuffled for them."""
    import types
    import comfy.context_windows as cw

    rows = []
    for schedule in ("standard_static", "standard_uniform", "looped_uniform", "batched"):
        for frames, length, overlap, stride, closed in (
            (9, 4, 1, 1, False),
            (17, 5, 2, 2, True),
            (33, 8, 3, 3, False),
            (8, 7, 0, 1, False),
            (21, 6, 5, 1, True),
        ):
            for step in (0, 1, 2, 5):
                h = types.SimpleNamespace(
                    context_length=length,
                    context_overlap=overlap,
                    context_stride=stride,
                    closed_loop=closed,
                    _step=step,
                )
                windows = [[int(i) for i in w] for w in cw.CONTEXT_MAPPING[schedule](frames, h, {})]
                weights = {
                    f: [
                        [
                            float(v)
                            for v in cw.FUSE_MAPPING[f](
                                len(w), full_length=frames, idxs=w, context_overlap=overlap
                            )
                        ]
                        for w in windows
                    ]
                    for f in ("pyramid", "flat", "overlap-linear")
                    if f != "overlap-linear" or (overlap and len(windows[-1]) == length)
                }
                noise = torch.arange(frames, dtype=torch.float32).reshape(1, 1, frames, 1, 1)
                cw.apply_freenoise(noise, 2, length, overlap, 7 + step)
                rows.append(
                    {
                        "schedule": schedule,
                        "frames": frames,
                        "length": length,
                        "overlap": overlap,
                        "stride": stride,
                        "closed": closed,
                        "step": step,
                        "seed": 7 + step,
                        "windows": windows,
                        "weights": weights,
                        "noise": noise.flatten().tolist(),
                    }
                )
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


def tensor_of(v):
    return (
        v["samples"]
        if isinstance(v, dict)
        else (
            v[0][0]
            if isinstance(v, list)
            else (
                torch.tensor([float(v)])
                if isinstance(v, (int, float))
                else v.reshape(1) if v.dim() == 0 else v
            )
        )
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("golden")
    p.add_argument("comfyui")
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--positive", default="a photo of a cat")
    p.add_argument("--negative", default="")
    p.add_argument(
        "--empty", default="A (red:1.3) circle on a ((blue)) background, [dim], masterpiece"
    )
    p.add_argument(
        "--new",
        action="store_true",
        help="run only what OUT does not have, or has with other nodes",
    )
    a = p.parse_args()
    torch.set_num_threads(1)  # passes are tiny
    ref = Reference(a.comfyui, a.golden, a.out)
    with open(f"{a.golden}/manifest.json") as f:
        texts = json.load(f)["clip_l_tiny"]["prompts"]
    clip = load_file(f"{a.golden}/clip_l_tiny.safetensors")
    generator = torch.Generator().manual_seed(a.seed)
    given = {
        f"{w}": clip[f"p{texts.index(getattr(a, w))}/cond"]
        for w in ("positive", "negative", "empty")
    }
    latents = {
        "latent": torch.zeros(1, 4, 8, 8),
        "batch": torch.zeros(3, 4, 8, 8),
        "wide": torch.zeros(1, 4, 16, 24),
        "odd": torch.zeros(1, 4, 9, 15),
        "long": torch.zeros(8, 4, 8, 8),
        "painted": torch.randn(2, 4, 16, 16, generator=generator),
    }
    sd15 = ("SD15", "unet_sd15_tiny", "sd15_tiny_unet_keys.json", "model.diffusion_model.")
    base = {
        "clip": [ref.clip()],
        "model": [ref.unet(*sd15)],
        "other": [ref.unet(*sd15, front="other.")],
        "flux": [ref.unet("Flux", "flux_tiny", "flux_tiny_keys.json", "")],
    }
    import comfy.sd
    import folder_paths

    comfy.sd.load_checkpoint_guess_config = lambda *_, **__: (
        base["other"][0],
        ref.clip(front="other."),
        None,
    )
    folder_paths.get_full_path = folder_paths.get_full_path_or_raise = (
        lambda find: lambda kind, name: name if kind == "checkpoints" else find(kind, name)
    )(folder_paths.get_full_path)
    flux = load_file(f"{a.golden}/flux_tiny.safetensors")
    given["flux_positive"], given["flux_negative"] = flux["context"], flux["context"] * 0.5
    pooled = {"flux_positive": flux["vec"], "flux_negative": flux["vec"] * 0.5}
    latents["flux_latent"] = torch.zeros(1, 16, 8, 12)
    base.update(
        {k: [[[v, {"pooled_output": pooled[k]} if k in pooled else {}]]] for k, v in given.items()}
    )
    base.update({k: [{"samples": v}] for k, v in latents.items()})
    out = {f"in/{k}": v.clone().contiguous() for k, v in (given | latents).items()}
    out.update({f"pooled/{k}": v.clone().contiguous() for k, v in pooled.items()})
    had, kept = {}, {}
    if a.new:
        with open(f"{a.out}/patches.json") as f:
            had = json.load(f)
        before = load_file(f"{a.out}/patches.safetensors")
    for name, steps in cases(a.seed):
        if had.get(name) == steps:
            out[name], kept[name] = before[name], steps
            continue
        values = dict(base)
        with torch.inference_mode():
            for s in steps:
                inputs = {
                    k: values[v[0]][v[1]] if isinstance(v, list) else v
                    for k, v in s["inputs"].items()
                }
                values[s["id"]] = ref.run(s["class"], inputs)
        result = tensor_of(values[steps[-1]["id"]][0]).float().contiguous().clone()
        if not torch.isfinite(result).all():
            sys.exit(f"{name}: {result}")
        out[name], kept[name] = result, steps
        print(name, tuple(result.shape), float(result.abs().max()) if result.numel() else 0)
    write_windows(f"{a.out}/windows.json")
    save_file(out, f"{a.out}/patches.safetensors")
    with open(f"{a.out}/patches.json", "w") as f:
        f.write(
            "{\n"
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in kept.items())
            + "\n}\n"
        )


if __name__ == "__main__":
    main()
