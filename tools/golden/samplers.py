#!/usr/bin/env python3
"""What ComfyUI's samplers make of a latent when the network is a formula.

usage: samplers.py FOLDER COMFYUI     (written with torch 2.15.0, torchsde 0.2.6, scipy 1.17.1,
                                      ComfyUI of 2026-01-04)

COMFYUI is a checkout; of it comfy/k_diffusion, comfy/extra_samplers and comfy/model_sampling.py are
run as they are.

    D(x, s) = x / (1 + s^2) + 0.1 tanh(x)        U(x, s) = 0.8 x / (1 + s^2) + 0.05 tanh(x)     (the
                                                 negative's)

The latent starts as randn(seed) * sigma[0]. Writes samplers.txt, one line a case:

    sampler model b c h w seed calls draws tolerance options sigma sigma ...

    model    eps: SD's table; flow: CONST with shift 3
    calls    of the network; draws: of noise by the sampler's own generator, -1: its noise is a
             Brownian tree
    tolerance  of the largest value
    options  name=value,... or -
    sigma    as C writes floats in hexadecimal

and samplers.bin, the results as little-endian float32, one after the other. A result may be NaN:
the reference's is.
"""

import math
import os
import sys
import types

import numpy as np
import torch

SHAPE = (2, 4, 4, 4)
SEED = 4321


def blank_module(name, **members):
    module = types.ModuleType(name)
    for k, v in members.items():
        setattr(module, k, v)
    sys.modules[name] = module


def post_cfg(options, fn, disable_cfg1_optimization=False):
    return {"post_cfg": fn}


def sqrt_linear(schedule, n, linear_start, linear_end, **rest):
    return torch.linspace(linear_start**0.5, linear_end**0.5, n, dtype=torch.float64) ** 2


def load(comfyui):
    blank_module("PIL", Image=None)
    blank_module("PIL.Image")
    blank_module("comfy.model_patcher", set_model_options_post_cfg_function=post_cfg)
    for package in ("comfy.ldm", "comfy.ldm.modules", "comfy.ldm.modules.diffusionmodules"):
        blank_module(package)
    blank_module("comfy.ldm.modules.diffusionmodules.util", make_beta_schedule=sqrt_linear)
    sys.path.insert(0, comfyui)
    import comfy

    comfy.model_patcher = sys.modules["comfy.model_patcher"]
    import comfy.model_sampling
    import comfy.k_diffusion.sampling
    import comfy.extra_samplers.uni_pc

    return comfy


class Network:
    """What the samplers see of a model: callable, and the paths they take to model_sampling."""

    def __init__(self, ms):
        self.calls = 0
        self.inner_model = self
        self.model_sampling = ms
        self.model_patcher = types.SimpleNamespace(get_model_object=lambda name: ms)

    def __call__(self, x, sigma, model_options=None, seed=None):
        self.calls += 1
        s = sigma.view(-1, 1, 1, 1)
        clean, squashed = (
            x / (1 + s * s),
            torch.tanh(x.double()).float(),
        )  # the same on every machine
        d, u = clean + 0.1 * squashed, 0.8 * clean + 0.05 * squashed
        if model_options and "post_cfg" in model_options:
            return model_options["post_cfg"]({"denoised": d, "uncond_denoised": u})
        return d


def models(comfy):
    m = comfy.model_sampling
    eps = type("Eps", (m.ModelSamplingDiscrete, m.EPS), {})()
    flow = type("Flow", (m.ModelSamplingDiscreteFlow, m.CONST), {})()
    flow.set_parameters(shift=3.0)
    return {"eps": eps, "flow": flow}


def lists(ms):
    """Noise levels: two schedules to 0, one that ends above it, and a single step."""
    lo, hi = float(ms["eps"].sigma_min), float(ms["eps"].sigma_max)

    def karras(n, rho):
        r = torch.linspace(0, 1, n)
        return torch.cat(
            [(hi ** (1 / rho) + r * (lo ** (1 / rho) - hi ** (1 / rho))) ** rho, torch.zeros(1)]
        )

    def simple(table, n):
        return torch.stack(
            [table[-(1 + int(i * len(table) / n))] for i in range(n)] + [torch.zeros(())]
        )

    e, f = ms["eps"].sigmas, ms["flow"].sigmas
    return [
        ("eps", karras(8, 7.0)),
        ("eps", simple(e, 4)),
        ("eps", karras(8, 7.0)[1:6].clone()),
        ("eps", torch.tensor([e[-1], 0.0])),
        ("flow", simple(f, 8)),
        ("flow", simple(f, 4)),
        ("flow", simple(f, 8)[1:6].clone()),
        ("flow", torch.tensor([0.9, 0.0])),
    ]


OPTIONS = [  # sampler, options of the node or function
    ("euler", {"s_churn": 3.0, "s_tmin": 0.05, "s_tmax": 10.0, "s_noise": 1.01}),
    ("heun", {"s_churn": 2.0}),
    ("dpm_2", {"s_churn": 2.0}),
    ("heunpp2", {"s_churn": 2.0}),
    ("euler_ancestral", {"eta": 0.5, "s_noise": 0.9}),
    ("euler_ancestral", {"eta": 0.0}),
    ("euler_ancestral_cfg_pp", {"eta": 0.3, "s_noise": 1.1}),
    ("dpm_2_ancestral", {"eta": 0.4}),
    ("dpmpp_2s_ancestral", {"eta": 0.6, "s_noise": 0.8}),
    ("dpmpp_sde", {"eta": 0.7, "s_noise": 0.95, "r": 0.3}),
    ("dpmpp_sde", {"eta": 0.0}),
    ("dpmpp_2m_sde", {"eta": 0.7, "s_noise": 0.9, "solver_type": "heun"}),
    ("dpmpp_2m_sde", {"eta": 0.0}),
    ("dpmpp_3m_sde", {"eta": 0.4}),
    ("lms", {"order": 1}),
    ("lms", {"order": 2}),
    ("lms", {"order": 7}),
    ("dpm_adaptive", {"order": 2}),
    ("dpm_adaptive", {"eta": 0.5, "s_noise": 0.9}),
    ("gradient_estimation", {"ge_gamma": 1.5}),
    ("er_sde", {"s_noise": 0.0}),
    ("seeds_2", {"eta": 0.6, "s_noise": 0.9, "r": 0.3}),
    ("seeds_3", {"eta": 0.5}),
    ("res_multistep_ancestral", {"eta": 0.5, "s_noise": 0.7}),
]
TOLERANCE = 1e-5
# From 14.6 to 0 in one step ddpm subtracts numbers 200 times as large as what is left, and torch's
# sqrt (MKL) is off by one unit in the last place now and then.
LOOSE = {("ddpm", "eps", 2): 1e-4}
OURS = {"solver_type": "heun", "ge_gamma": "gamma"}  # how struct sample_options calls them


def run(comfy, name, ms, sigmas, options):
    k = comfy.k_diffusion.sampling
    draws = [0]
    noise_of = k.default_noise_sampler

    def counted(x, seed=None):
        draw = noise_of(x, seed=seed)

        def one(*levels):
            draws[0] += 1
            return draw(*levels)

        return one

    net, used = Network(ms), sigmas.clone()
    noise = torch.randn(
        SHAPE, generator=torch.manual_seed(SEED)
    )  # the global generator, as comfy.sample has it
    args = dict(extra_args={"seed": SEED}, disable=True, **options)
    k.default_noise_sampler = counted
    try:
        if name in ("dpm_fast", "dpm_adaptive"):
            lo = sigmas[-2] if sigmas[-1] == 0 else sigmas[-1]
            rest = (len(sigmas) - 1,) if name == "dpm_fast" else ()
            x = getattr(k, "sample_" + name)(net, noise * sigmas[0], lo, sigmas[0], *rest, **args)
        elif name.startswith("uni_pc"):
            fn = (
                comfy.extra_samplers.uni_pc.sample_unipc_bh2
                if name.endswith("bh2")
                else comfy.extra_samplers.uni_pc.sample_unipc
            )
            x = fn(net, noise * sigmas[0], used, **args)
        else:
            x = getattr(k, "sample_" + ("euler" if name == "ddim" else name))(
                net, noise * sigmas[0], used, **args
            )
    finally:
        k.default_noise_sampler = noise_of
    return x, net.calls, -1 if "_sde" in name and name.startswith("dpmpp") else draws[0]


def main(folder, comfyui):
    comfy = load(comfyui)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(f"{here}/../../src/sample/samplers.def") as f:
        names = [line[8:-2] for line in f if line.startswith("SAMPLER(")]
    os.makedirs(folder, exist_ok=True)
    ms = models(comfy)
    cases = [(n, model, s, {}) for n in names for model, s in lists(ms)]
    cases += [(n, model, s, o) for n, o in OPTIONS for model, s in (lists(ms)[0], lists(ms)[4])]
    with open(f"{folder}/samplers.txt", "w") as index, open(
        f"{folder}/samplers.bin", "wb"
    ) as results:
        for name, model, sigmas, options in cases:
            x, calls, draws = run(comfy, name, ms[model], sigmas, options)
            text = (
                ",".join(
                    f"{OURS.get(k, k)}={1 if k == 'solver_type' else v}" for k, v in options.items()
                )
                or "-"
            )
            levels = " ".join(float(s).hex() for s in sigmas)
            tolerance = LOOSE.get((name, model, len(sigmas)), TOLERANCE)
            print(name, model, *SHAPE, SEED, calls, draws, tolerance, text, levels, file=index)
            results.write(x.numpy().astype("<f4").tobytes())
            if not math.isfinite(float(np.abs(x.numpy()).max())):
                print("not finite:", name, model, len(sigmas) - 1, text)
    print(len(cases), "cases")


if __name__ == "__main__":
    main(*sys.argv[1:])
