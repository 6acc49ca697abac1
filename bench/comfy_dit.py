#!/usr/bin/env python3
"""A step of Qwen-Image or Z-Image in ComfyUI itself, for `berth bench stream` to be held against.

    python3 bench/comfy_dit.py --comfyui ~/ComfyUI --berth build/berth --model qwen-image,z-image

runs Berth with its weights on the card and with all of them in RAM, then ComfyUI's own network of
the same size on the same card with its weights there, and prints both with their ratio. Random
weights and inputs, bf16, batch 1: nothing here draws pictures. --tiny runs small networks on the
CPU, to see that the program works. With --json the rows come as JSON.
"""
import argparse
import json
import subprocess
import sys
import time

MODELS = {  # module, class, arguments, preset of Berth, pixels, tokens, width of the text's rows
    "qwen-image": ("comfy.ldm.qwen_image.model", "QwenImageTransformer2DModel", {
        "num_layers": 60, "attention_head_dim": 128, "num_attention_heads": 24,
        "joint_attention_dim": 3584}, "qwen-image", 1328, 128, 3584),
    "z-image": ("comfy.ldm.lumina.model", "NextDiT", {
        "in_channels": 16, "dim": 3840, "n_layers": 30, "n_heads": 30, "n_kv_heads": 30,
        "axes_dims": [32, 48, 48], "axes_lens": [1536, 512, 512], "rope_theta": 256.0,
        "ffn_dim_multiplier": 8.0 / 3.0, "qk_norm": True, "cap_feat_dim": 2560,
        "z_image_modulation": True, "time_scale": 1000.0, "pad_tokens_multiple": 32},
        "z-image-turbo", 1024, 128, 2560),
}
TINY = {
    "qwen-image": {"num_layers": 2, "num_attention_heads": 2, "joint_attention_dim": 64},
    "z-image": {"dim": 256, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2, "cap_feat_dim": 64},
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--comfyui", required=True, help="a checkout of ComfyUI 0.33")
    p.add_argument("--berth", help="the program; without it ComfyUI runs alone")
    p.add_argument("--model", default="qwen-image,z-image")
    p.add_argument("--dir", default="/dev/shm", help="where Berth's weights are written meanwhile")
    p.add_argument("--steps", type=int, default=9)
    p.add_argument("--tiny", action="store_true")
    p.add_argument("--json", action="store_true")
    return p.parse_args()


def step_of_comfyui(args, name):
    """Median milliseconds of a pass of ComfyUI's network, weights on the card."""
    import importlib
    import torch
    import comfy.ops
    module, cls, config, _, side, tokens, width = MODELS[name]
    device, dtype = ("cpu", torch.float32) if args.tiny else ("cuda", torch.bfloat16)
    if args.tiny:
        config, side, width = {**config, **TINY[name]}, 64, 64
    with torch.inference_mode():
        net = getattr(importlib.import_module(module), cls)(
            **config, dtype=dtype, device=device, operations=comfy.ops.disable_weight_init)
        for p in net.parameters():
            p.normal_(std=0.02)
        picture = [1, 16, side // 8, side // 8]
        x = torch.randn(picture if name == "z-image" else picture[:2] + [1] + picture[2:],
                        device=device, dtype=dtype)
        text = torch.randn(1, tokens, width, device=device, dtype=dtype)
        t = torch.full((1,), 0.5, device=device)
        more = {"num_tokens": tokens} if name == "z-image" else {}

        def step():
            start = time.perf_counter()
            net(x, t, text, transformer_options={}, **more)
            if device == "cuda":
                torch.cuda.synchronize()
            return 1000 * (time.perf_counter() - start)

        for _ in range(3):
            step()
        took = sorted(step() for _ in range(args.steps))[args.steps // 2]
        del net
        if device == "cuda":
            torch.cuda.empty_cache()
    return took


def rows_of_berth(args, name):
    """Its rows: everything on the card, everything in RAM."""
    _, _, _, preset, side, tokens, _ = MODELS[name]
    out = subprocess.run([args.berth, "bench", "stream", "--preset", preset, "--dtype", "bf16",
                          "--width", str(side), "--height", str(side), "--tokens", str(tokens),
                          "--offload", "0,100", "--steps", str(args.steps), "--warmup", "3",
                          "--dir", args.dir, "--pin-budget", "60g", "--json"],
                         stdout=subprocess.PIPE, text=True)
    got = json.loads(out.stdout) if out.stdout.strip() else {}
    if out.returncode:
        sys.exit(f"comfy_dit.py: berth bench stream --preset {preset}: {got.get('error', '')}")
    return got["rows"]


def main():
    args = arguments()
    all_rows = []
    ours = {n: rows_of_berth(args, n) for n in args.model.split(",")} if args.berth else {}
    sys.argv = sys.argv[:1] + (["--cpu"] if args.tiny else [])  # ComfyUI reads it, too
    sys.path.insert(0, args.comfyui)
    import comfy.options
    comfy.options.enable_args_parsing()
    for name in args.model.split(","):
        resident = step_of_comfyui(args, name)
        row = {"model": name, "comfyui_ms": resident}
        for r in ours.get(name, []):
            row[f"berth_ms_{r['offload']:.0f}"] = r["ms"]
            row[f"link_ms_{r['offload']:.0f}"] = r["limit_ms"]
        all_rows.append(row)
        if args.json:
            continue
        print(f"{name}: ComfyUI {resident:.1f} ms", end="")
        for r in ours.get(name, []):
            print(f"; Berth with {r['offload']:.0f} % in RAM {r['ms']:.1f} ms "
                  f"({resident / r['ms']:.2f} x ComfyUI's speed, link {r['limit_ms']:.1f} ms)",
                  end="")
        print(flush=True)
    if args.json:
        print(json.dumps(all_rows, indent=2))


if __name__ == "__main__":
    main()
