#!/usr/bin/env python3
"""What ComfyUI's Krea 2 computes: its transformer, and a picture from a prompt, with synthetic
weights.

usage: krea2.py FOLDER COMFYUI [--seed N] [--text N N] [--size H W] [--odd H W] [--refs H W H W]
                [--steps N] [--cfg X] [--sampler NAME] [--scheduler NAME] [--positive TEXT]
                [--negative TEXT] [--pixels W H]
       (written with torch 2.15, ComfyUI 0.33.0, on a cpu)

COMFYUI is a checkout; its networks are run as they are, on weights made by the rule of
tests/golden/data/README.md. Inputs are drawn from --seed. Writes for each model of MODELS

    <model>.safetensors   x, x_odd [1, 16, 1, h, w], t, context, ref, ref2 -> out, out_odd;
                          out_ref/<method> and out_ref2/<method> look at ref, or at ref and ref2
                          ("own": no method is said, so they do not count);
                          sample/<sampler>/<scheduler>/<steps>: a run from an empty latent of the
                          size of x, prompts context and negative;
                          sample_ref_<method>/...: the same, both prompts looking at ref;
                          sample_nag/...: with NAGuidance, against negative_as_long
    <model>_keys.json     names and shapes of its tensors

and of a whole run of krea2_tiny with these prompts

    e2e_krea2_tiny.safetensors
                          context, negative -> latent -> image; and looking at photo, which prompts
                          show, too: edit_latent, of two steps
    qwen3vl_krea2_tiny_keys.json, wan21_vae_tiny_keys.json
                          names and shapes of the tensors of text encoder and VAE

and manifest.json, which says how each was made. tests/golden/model/test_krea2.c and
tests/golden/node/test_krea2.c read any such folder:

    tools/golden/krea2.py /tmp/fresh ../ComfyUI --seed 77 --text 40 3 --positive "two dogs" &&
        BERTH_GOLDEN_DIR=/tmp/fresh ctest -R golden.*krea2
"""

import argparse
import json
import os

import torch

from tiny_models import load_comfy, synth, write
from wan_vae import CONFIG as VAE

PLAIN = dict(
    image_model="krea2",
    features=256,
    tdim=256,
    txtdim=160,
    heads=2,
    kvheads=1,
    multiplier=4,
    layers=2,
    patch=2,
    channels=16,
    bias=False,
    theta=1000,
    txtlayers=12,
    txtheads=20,
    txtkvheads=20,
)
MODELS = {
    "krea2_tiny": PLAIN,
    "krea2_narrow_tiny": PLAIN
    | dict(heads=4, kvheads=2, txtdim=64, txtheads=2, txtkvheads=1, txtlayers=5),
}
TEXT = dict(hidden_size=160, intermediate_size=96, num_attention_heads=2, num_key_value_heads=1)
EYES = dict(hidden_size=64, intermediate_size=32, depth=4, deepstack_visual_indexes=[0, 1, 2])
METHODS = ["index", "index_timestep_zero", "offset", "own"]
RUN_METHODS = ["index", "index_timestep_zero"]


def fill(net):
    net.load_state_dict({k: synth(k, list(v.shape)) for k, v in net.state_dict().items()})
    return net.eval().float()


def model_of(comfy, config):
    """ComfyUI's own class around its network, with synthetic weights."""
    about = comfy.supported_models.Krea2(dict(config))
    about.set_inference_dtype(torch.float32, None)
    model = about.get_model({}, "", device=torch.device("cpu"))
    fill(model.diffusion_model)
    return model.eval().float()


def cases(net, config, args, draw):
    width = config["txtdim"] * config["txtlayers"]
    longer, shorter = args.text
    out = {
        "x": draw(1, 16, 1, *args.size),
        "x_odd": draw(1, 16, 1, *args.odd),
        "t": torch.tensor([0.6]),
        "context": draw(1, longer, width),
        "negative": draw(1, shorter, width),
        "negative_as_long": draw(1, longer, width),
        "ref": draw(1, 16, 1, *args.refs[:2]),
        "ref2": draw(1, 16, 1, *args.refs[2:]),
    }

    def run(x, **more):
        return net(x, out["t"], out["context"], **more)

    out["out"] = run(out["x"])
    out["out_odd"] = run(out["x_odd"])
    for method in METHODS:
        how = {} if method == "own" else {"ref_latents_method": method}
        out[f"out_ref/{method}"] = run(out["x"], ref_latents=[out["ref"]], **how)
        out[f"out_ref2/{method}"] = run(out["x"], ref_latents=[out["ref"], out["ref2"]], **how)
    return out


def sample(comfy, model, args, latent, positive, negative, more, patch=lambda patcher: patcher):
    cpu = torch.device("cpu")
    patcher = patch(comfy.model_patcher.ModelPatcher(model, cpu, cpu))
    latent = comfy.sample.fix_empty_latent_channels(patcher, latent)
    noise = comfy.sample.prepare_noise(latent, args.seed)
    return comfy.sample.sample(
        patcher,
        noise,
        args.steps,
        args.cfg,
        args.sampler,
        args.scheduler,
        [[positive, dict(more)]],
        [[negative, dict(more)]],
        latent,
        seed=args.seed,
        disable_pbar=True,
    )


def nag(patcher):
    from comfy_extras.nodes_nag import NAGuidance

    return NAGuidance.execute(patcher, nag_scale=4.0, nag_alpha=0.4, nag_tau=1.8).result[0]


def runs(comfy, model, args, t):
    out, how = {}, f"{args.sampler}/{args.scheduler}/{args.steps}"
    kinds = {"sample": {}} | {
        f"sample_ref_{m}": {"reference_latents": [t["ref"]], "reference_latents_method": m}
        for m in RUN_METHODS
    }
    for kind, more in kinds.items():
        out[f"{kind}/{how}"] = sample(
            comfy, model, args, torch.zeros_like(t["x"]), t["context"], t["negative"], more
        )
    out[f"sample_nag/{how}"] = sample(
        comfy, model, args, torch.zeros_like(t["x"]), t["context"], t["negative_as_long"], {}, nag
    )
    return out


def text_encoder():
    """ComfyUI's own, but for its width, and its tokenizer."""
    from comfy.text_encoders import krea2, qwen3vl

    large = qwen3vl.QWEN3VL_CONFIGS["qwen3vl_4b"]
    qwen3vl.QWEN3VL_CONFIGS["qwen3vl_4b"] = lambda **kw: large(**(TEXT | kw))
    qwen3vl.QWEN3VL_VISION["qwen3vl_4b"] = EYES
    qwen3vl.QWEN3VL_VISION_COMMON["num_position_embeddings"] = 16
    te = krea2.Krea2TEModel(device="cpu", dtype=torch.float32)
    return te, fill(te.qwen3vl_4b.transformer), krea2.Krea2Tokenizer()


class Clip:
    """What nodes ask of a text encoder."""

    def __init__(self):
        self.te, self.net, self.tokenizer = text_encoder()

    def tokenize(self, text, **more):
        return self.tokenizer.tokenize_with_weights(text, **more)

    def encode_from_tokens_scheduled(self, tokens):
        return [[self.te.encode_token_weights(tokens)[0], {}]]

    def encode(self, text):
        return self.encode_from_tokens_scheduled(self.tokenize(text))[0][0]


class Vae:
    """What nodes ask of a VAE."""

    def __init__(self, net):
        self.net = net

    def encode(self, pixels):  # [1, h, w, 3], 0 to 1
        return self.net.encode(pixels.permute(0, 3, 1, 2)[:, :, None] * 2 - 1)

    def decode(self, latent):
        pixels = self.net.decode(latent)[:, :, 0].permute(0, 2, 3, 1)
        return ((pixels + 1) / 2).clamp(0, 1)


def edit_run(comfy, model, args, clip, vae, photo):
    """The prompt of a node that shows it a picture, which the model looks at as well."""
    from comfy_extras.nodes_qwen import TextEncodeQwenImageEditPlus

    method = {"reference_latents_method": "index_timestep_zero"}
    positive, negative = (
        TextEncodeQwenImageEditPlus.execute(clip, text, vae, photo).result[0][0]
        for text in (args.positive, args.negative)
    )
    args = argparse.Namespace(**vars(args) | {"steps": 2})
    w, h = args.pixels
    return sample(
        comfy,
        model,
        args,
        torch.zeros(1, 16, h // 8, w // 8),
        positive[0],
        negative[0],
        positive[1] | method,
    )


def whole_run(comfy, args):
    import comfy.ldm.wan.vae

    model = model_of(comfy, PLAIN)
    clip = Clip()
    vae = Vae(fill(comfy.ldm.wan.vae.WanVAE(**VAE, dim=16, image_channels=3, conv_out_channels=3)))
    w, h = args.pixels
    t = {"context": clip.encode(args.positive), "negative": clip.encode(args.negative)}
    t["latent"] = sample(
        comfy, model, args, torch.zeros(1, 16, h // 8, w // 8), t["context"], t["negative"], {}
    )
    t["image"] = vae.decode(t["latent"])
    t["photo"] = torch.rand(1, 20, 28, 3, generator=torch.Generator().manual_seed(args.seed))
    t["edit_latent"] = edit_run(comfy, model, args, clip, vae, t["photo"])
    about = {
        "positive": args.positive,
        "negative": args.negative,
        "width": w,
        "height": h,
        "steps": args.steps,
        "sampler": args.sampler,
        "scheduler": args.scheduler,
        "config": PLAIN,
    }
    return t, {"qwen3vl_krea2_tiny": clip.net, "wan21_vae_tiny": vae.net}, about


def note(args, tensors, about):
    return about | {
        "seed": args.seed,
        "cfg": args.cfg,
        "tensors": {k: ["float32", list(v.shape)] for k, v in tensors.items()},
    }


def keys(path, net):
    with open(path, "w") as f:
        json.dump({k: list(v.shape) for k, v in net.state_dict().items()}, f)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("folder")
    parse.add_argument("comfyui")
    parse.add_argument("--seed", type=int, default=5)
    parse.add_argument("--text", type=int, nargs=2, default=[7, 4])
    parse.add_argument("--size", type=int, nargs=2, default=[6, 8])
    parse.add_argument("--odd", type=int, nargs=2, default=[5, 7])
    parse.add_argument("--refs", type=int, nargs=4, default=[6, 4, 3, 5])
    parse.add_argument("--steps", type=int, default=4)
    parse.add_argument("--cfg", type=float, default=2.5)
    parse.add_argument("--sampler", default="euler")
    parse.add_argument("--scheduler", default="simple")
    parse.add_argument("--positive", default="a red fox")
    parse.add_argument("--negative", default="blurry")
    parse.add_argument("--pixels", type=int, nargs=2, default=[64, 48])
    args = parse.parse_args()
    comfy = load_comfy(args.comfyui)
    os.makedirs(args.folder, exist_ok=True)
    torch.set_grad_enabled(False)
    manifest = {}
    for name, config in MODELS.items():
        generator = torch.Generator().manual_seed(args.seed)
        model = model_of(comfy, config)
        t = cases(
            model.diffusion_model,
            config,
            args,
            lambda *shape: torch.randn(*shape, generator=generator),
        )
        t |= runs(comfy, model, args, t)
        write(f"{args.folder}/{name}.safetensors", t)
        keys(f"{args.folder}/{name}_keys.json", model.diffusion_model)
        manifest[name] = note(args, t, {"config": config, "shift": model.model_sampling.shift})
    t, nets, about = whole_run(comfy, args)
    write(f"{args.folder}/e2e_krea2_tiny.safetensors", t)
    for name, net in nets.items():
        keys(f"{args.folder}/{name}_keys.json", net)
    manifest["e2e_krea2_tiny"] = note(args, t, about)
    with open(f"{args.folder}/manifest.json", "w") as f:
        json.dump(manifest, f, indent=1)


if __name__ == "__main__":
    main()
