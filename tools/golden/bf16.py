#!/usr/bin/env python3
"""How far ComfyUI's own BF16 is from its F32, on the cases of the golden files.

usage: bf16.py GOLDEN COMFYUI OUT.json     (written with torch 2.15.0 on a cpu, ComfyUI of
                                           2026-01-04)

GOLDEN is the folder of golden files, COMFYUI a checkout; its networks, samplers and schedules are
run as they are, on weights made by the rule of GOLDEN's README. A case that does not give the
golden numbers in F32 (1e-3) is an error: then nothing is measured. OUT.json holds for every file
and tensor the norm of the error over the norm of the golden tensor

    weights    when weights are rounded to BF16 and everything else stays F32
    products   when what is multiplied, weights and inputs of linear layers and convolutions, is
               rounded to BF16 and everything else stays F32: what is left of an engine that keeps
               every activation in F32 and multiplies BF16
    bf16       when ComfyUI computes in BF16, as --bf16-unet and --bf16-vae make it do

and for 8-bit pictures the largest difference of a pixel, over 255. Text encoders compute in F32, as
in Berth; so is guidance embedded, which ComfyUI multiplies by 1000 in BF16 (3500 becomes 3504,
another guidance rather than a rounding). Golden tests hold BF16 on a card to 2e-2; where `bf16` is
more than that, to `bf16` (tests/support/where.h).
"""

import json
import re
import sys

import numpy as np
import torch

PLAIN, WEIGHTS, PRODUCTS, BF16 = "f32", "weights", "products", "bf16"


# ---- golden files and their weights ----


def read_tensors(path):
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        head, data = json.loads(f.read(size)), f.read()
    types = {"F32": np.float32, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
    return {
        name: torch.from_numpy(
            np.frombuffer(data[slice(*e["data_offsets"])], types[e["dtype"]])
            .reshape(e["shape"])
            .copy()
        )
        for name, e in head.items()
        if name != "__metadata__"
    }


def synth(name, shape):
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = (h ^ b) * 0x100000001B3 % 2**64
    n = int(np.prod(shape))
    with np.errstate(over="ignore"):
        z = np.uint64(h) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    u = (z >> np.uint64(40)).astype(np.float64) / 2**24 * 2 - 1
    if len(shape) > 1:
        v = u * np.sqrt(3 / np.prod(shape[1:]))
    else:
        v = 0.1 * u + (1 if name.rsplit(".", 1)[-1] in ("weight", "scale") else 0)
    return torch.from_numpy(v.astype(np.float32).reshape(shape))


def weights_of(golden, keys, prefix):
    with open(f"{golden}/{keys}") as f:
        return {
            name[len(prefix) :]: synth(name, shape)
            for name, shape in json.load(f).items()
            if name.startswith(prefix)
        }


def fill(net, weights, how):
    """The weights into the network, rounded as `how` says."""
    net.load_state_dict(
        {k: v.bfloat16().float() for k, v in weights.items()}
        if how in (WEIGHTS, PRODUCTS)
        else weights
    )
    for module in net.modules() if how == PRODUCTS else ():
        if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)):
            module.register_forward_pre_hook(
                lambda m, args: tuple(x.bfloat16().float() for x in args)
            )
    return net.eval().to(torch.bfloat16 if how == BF16 else torch.float32)


# ---- ComfyUI ----


def load_comfy(path):
    sys.path.insert(0, path)
    sys.argv = sys.argv[:1]
    import comfy.cli_args

    comfy.cli_args.args.cpu = True
    comfy.cli_args.args.use_pytorch_cross_attention = True  # what it takes on a card
    import comfy.ldm.models.autoencoder
    import comfy.lora
    import comfy.model_base
    import comfy.model_patcher
    import comfy.sample
    import comfy.supported_models

    embedding = comfy.ldm.flux.model.timestep_embedding
    comfy.ldm.flux.model.timestep_embedding = lambda t, *more: embedding(t.float(), *more)
    return comfy


def make_model(comfy, family, config, weights, how):
    dtype = torch.bfloat16 if how == BF16 else torch.float32
    settings = getattr(comfy.supported_models, family)(dict(config))
    settings.set_inference_dtype(dtype, None)
    model = settings.get_model({}, "", device="cpu")
    fill(model.diffusion_model, weights, how)
    return comfy.model_patcher.ModelPatcher(model, torch.device("cpu"), torch.device("cpu"))


def make_vae(comfy, config, weights, how):
    vae = (
        comfy.ldm.models.autoencoder.AutoencodingEngine(
            regularizer_config={
                "target": "comfy.ldm.models.autoencoder.DiagonalGaussianRegularizer",
                "params": {"sample": False},
            },
            encoder_config={
                "target": "comfy.ldm.modules.diffusionmodules.model.Encoder",
                "params": config,
            },
            decoder_config={
                "target": "comfy.ldm.modules.diffusionmodules.model.Decoder",
                "params": config,
            },
        )
        if not any(k.startswith("quant_conv") for k in weights)
        else comfy.ldm.models.autoencoder.AutoencoderKL(
            ddconfig=config, embed_dim=config["z_channels"]
        )
    )
    return fill(vae, weights, how)


def ksampler(
    comfy, model, sampler, scheduler, steps, *, seed, cfg, positive, negative, latent, **more
):
    noise = comfy.sample.prepare_noise(latent, seed)
    return comfy.sample.sample(
        model,
        noise,
        steps,
        cfg,
        sampler,
        scheduler,
        positive,
        negative,
        latent,
        seed=seed,
        disable_pbar=True,
        **more,
    )


# ---- cases: each gives (golden file, tensor, result) ----


class Cases:
    def __init__(self, golden, comfy):
        self.golden, self.comfy = golden, comfy
        with open(f"{golden}/manifest.json") as f:
            self.manifest = json.load(f)
        self.tensors = {}

    def file(self, name):
        if name not in self.tensors:
            self.tensors[name] = read_tensors(f"{self.golden}/{name}.safetensors")
        return self.tensors[name]

    def unet(self, name, how):
        family = "SDXL" if "sdxl" in name else "SD15"
        return make_model(
            self.comfy,
            family,
            self.manifest[f"unet_{name}"]["config"],
            weights_of(self.golden, f"{name}_unet_keys.json", "model.diffusion_model."),
            how,
        )

    def vae(self, name, how):
        weights = weights_of(self.golden, f"{name}_vae_keys.json", "")
        return make_vae(
            self.comfy,
            self.manifest[f"vae_{name}"]["config"],
            {k.removeprefix("first_stage_model."): v for k, v in weights.items()},
            how,
        )

    def unets(self, how):
        dtype = torch.bfloat16 if how == BF16 else torch.float32
        for name in ("sd15_tiny", "sdxl_tiny"):
            net, w = self.unet(name, how).model.diffusion_model, self.file(f"unet_{name}")
            for key in [k for k in w if k.endswith("out")]:
                at = key[:-3]
                y = w[at + "adm"].to(dtype) if at + "adm" in w else None
                yield f"unet_{name}", key, net(
                    w[at + "x"].to(dtype), w[at + "t"], context=w[at + "context"].to(dtype), y=y
                )

    def vaes(self, how):
        dtype = torch.bfloat16 if how == BF16 else torch.float32
        for name in ("sd15_tiny", "flux_tiny"):
            vae, w = self.vae(name, how), self.file(f"vae_{name}")
            for key in w:
                if key.endswith("decoded"):
                    yield f"vae_{name}", key, vae.decode(w[key[:-7] + "z"].to(dtype))
                if key.endswith("encoded"):
                    yield f"vae_{name}", key, vae.encode(w[key[:-7] + "image"].to(dtype))

    def prompts(self):
        """Positive and negative of the SD1.5 runs, as the golden text encoder gave them in F32."""
        texts, w, about = (
            self.manifest["clip_l_tiny"]["prompts"],
            self.file("clip_l_tiny"),
            self.manifest["sample_sd15_tiny"],
        )
        found = []
        for which in ("positive", "negative"):
            i = texts.index(about[which])
            found.append([[w[f"p{i}/cond"], {"pooled_output": w[f"p{i}/pooled"]}]])
        return found

    def sd15_runs(self, how):
        w, about = self.file("sample_sd15_tiny"), self.manifest["sample_sd15_tiny"]
        model, (positive, negative) = self.unet("sd15_tiny", how), self.prompts()
        # seed and cfg of these stand nowhere; found by trial (tests/golden/node/runs.h)
        special = {
            "img2img/": (1, 5),
            "cfg1/": (3, 1),
            "ksampler_adv/": (9, 6),
            "inpaint/": (11, 6),
        }
        for key, want in w.items():
            kind = next((k for k in special if key.startswith(k)), "")
            m = re.fullmatch(
                r"([^/]+)/([^/]+)/(\d+)(?:/denoise([\d.]+)|/start(\d+)_end(\d+))?", key[len(kind) :]
            )
            if not m:
                continue
            seed, cfg = special.get(kind, (about["seed"], about["cfg"]))
            latent = torch.zeros_like(want)
            if kind and kind != "cfg1/":
                latent = w["img2img/latent"][: want.shape[0]].clone()
            more = {"denoise": float(m[4] or 1)}
            if m[5]:
                more.update(start_step=int(m[5]), last_step=int(m[6]), force_full_denoise=False)
            if kind == "inpaint/":
                more["noise_mask"] = w["inpaint/mask"]
            yield "sample_sd15_tiny", key, ksampler(
                self.comfy,
                model,
                m[1],
                m[2],
                int(m[3]),
                seed=seed,
                cfg=cfg,
                positive=positive,
                negative=negative,
                latent=latent,
                **more,
            )

    def lora_runs(self, how):
        w, about = self.file("lora_sd15_tiny"), self.manifest["lora_sd15_tiny"]
        seed, cfg = map(int, re.search(r"sample: seed (\d+), cfg (\d+)", about["note"]).groups())
        model = self.unet("sd15_tiny", how)
        names = self.comfy.lora.model_lora_keys_unet(model.model, {})
        adapter = {key.removeprefix("lora/"): v for key, v in w.items() if key.startswith("lora/")}
        model.add_patches(self.comfy.lora.load_lora(adapter, names), about["strength"])
        positive, negative = self.prompts()
        for key, want in w.items():
            m = re.fullmatch(r"sample/([^/]+)/([^/]+)/(\d+)", key)
            if m:
                yield "lora_sd15_tiny", key, ksampler(
                    self.comfy,
                    model,
                    m[1],
                    m[2],
                    int(m[3]),
                    seed=seed,
                    cfg=cfg,
                    positive=positive,
                    negative=negative,
                    latent=torch.zeros_like(want),
                )

    def sdxl_runs(self, how):
        w, note = self.file("unet_sdxl_tiny"), self.manifest["unet_sdxl_tiny"]["note"]
        m = re.search(
            r"seed (\d+), cfg (\d+), latent \d+x\d+, .* half of the positive, width=height=(\d+)",
            note,
        )
        seed, cfg, side = map(int, m.groups())
        model = self.unet("sdxl_tiny", how)
        size = {"width": side, "height": side, "target_width": side, "target_height": side}
        cond = [[[w["context"] * k, {"pooled_output": w["pooled"] * k, **size}]] for k in (1, 0.5)]
        for key, want in w.items():
            m = re.fullmatch(r"sample_(.+)_([a-z]+)_(\d+)", key)
            if m:
                yield "unet_sdxl_tiny", key, ksampler(
                    self.comfy,
                    model,
                    m[1],
                    m[2],
                    int(m[3]),
                    seed=seed,
                    cfg=cfg,
                    positive=cond[0],
                    negative=cond[1],
                    latent=torch.zeros_like(want),
                )

    def picture(self, how):
        about, latent = self.manifest["e2e_sd15_tiny"], torch.zeros_like(
            self.file("e2e_sd15_tiny")["latent"]
        )
        positive, negative = self.prompts()
        out = ksampler(
            self.comfy,
            self.unet("sd15_tiny", how),
            about["sampler"],
            about["scheduler"],
            about["steps"],
            seed=about["seed"],
            cfg=about["cfg"],
            positive=positive,
            negative=negative,
            latent=latent,
        )
        yield "e2e_sd15_tiny", "latent", out
        vae = self.vae("sd15_tiny", how)
        image = vae.decode(out.to(next(vae.parameters()).dtype)).float()
        image = ((image + 1) / 2).clamp(0, 1).movedim(1, -1)
        yield "e2e_sd15_tiny", "image", image
        yield "e2e_sd15_tiny", "image_u8", (image * 255).clamp(0, 255).to(torch.uint8)

    def flux(self, how):
        w, about = self.file("flux_tiny"), self.manifest["flux_tiny"]
        dtype = torch.bfloat16 if how == BF16 else torch.float32
        model = make_model(
            self.comfy,
            "Flux",
            about["config"],
            weights_of(self.golden, "flux_tiny_keys.json", ""),
            how,
        )
        net, guidance = model.model.diffusion_model, 3.5
        for key, t in re.findall(r"(out\w*): t=([\d.]+)", about["note"]):
            x = w["x" + key[3:]]
            yield "flux_tiny", key, net(
                x.to(dtype),
                torch.tensor([float(t)]),
                w["context"].to(dtype),
                w["vec"].to(dtype),
                torch.tensor([guidance], dtype=dtype),
            )
        seed, cfg = map(
            int, re.search(r"sample: seed (\d+), \d+ steps, cfg (\d+)", about["note"]).groups()
        )
        cond = [[w["context"], {"pooled_output": w["vec"]}]]
        for key, want in w.items():
            m = re.fullmatch(r"sample/([^/]+)/([^/]+)/(\d+)", key)
            if m:
                yield "flux_tiny", key, ksampler(
                    self.comfy,
                    model,
                    m[1],
                    m[2],
                    int(m[3]),
                    seed=seed,
                    cfg=cfg,
                    positive=cond,
                    negative=cond,
                    latent=torch.zeros_like(want),
                )

    def all(self, how):
        for kind in (
            self.unets,
            self.vaes,
            self.flux,
            self.sdxl_runs,
            self.lora_runs,
            self.picture,
            self.sd15_runs,
        ):
            yield from kind(how)


def error(got, want):
    if want.dtype == torch.uint8:
        return (got.int() - want.int()).abs().max().item() / 255
    return ((got.double() - want.double()).norm() / want.double().norm()).item()


def main():
    golden, comfyui, out = sys.argv[1:4]
    cases = Cases(golden, load_comfy(comfyui))
    found = {}
    with torch.no_grad():
        for how in (PLAIN, WEIGHTS, PRODUCTS, BF16):
            for file, tensor, result in cases.all(how):
                e = error(
                    result.float() if result.is_floating_point() else result,
                    cases.file(file)[tensor],
                )
                if how == PLAIN:
                    if not e <= (1 / 255 if tensor == "image_u8" else 1e-3):
                        sys.exit(
                            f"in F32 {file} {tensor} is {e:.2e} off: not the case the golden file "
                            f"has"
                        )
                else:
                    found.setdefault(file, {}).setdefault(tensor, {})[how] = float(f"{e:.3g}")
                    print(f"{how:8s} {file:18s} {tensor:40s} {e:.2e}", flush=True)
    with open(out, "w") as f:
        json.dump(found, f, indent=1, sort_keys=True)
        f.write("\n")


if __name__ == "__main__":
    main()
