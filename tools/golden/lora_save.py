#!/usr/bin/env python3
"""What ComfyUI's LoraSave makes of the difference of two tiny SD1.5 models.

usage: lora_save.py GOLDEN COMFYUI OUT [--rank 4] [--multiplier 0.7]
       (written with torch 2.15.0, ComfyUI 0.33.0)

GOLDEN, COMFYUI and the two models: as patches.py has them. Writes OUT/lora_save.safetensors: of the
adapter every tensor of some layers, under its own name. Its metadata has the rank, the multiplier
and all names. Takes minutes: the reference decomposes the tokens' embedding in full.
"""

import argparse
import glob
import tempfile

import torch
from safetensors.torch import load_file, save_file

import patches

KEPT = (
    "input_blocks.0.0",
    "input_blocks.1.1.transformer_blocks.0.attn1.to_q",
    "input_blocks.1.1.norm",
    "out.2",
    "input_blocks.2.0.emb_layers.1",
    "output_blocks.3.0.skip_connection",
    "middle_block.1.proj_in",
    "time_embed.0",
    "transformer.text_model.encoder.layers.1.mlp.fc1",
    "transformer.text_model.encoder.layers.0.layer_norm1",
)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("golden")
    p.add_argument("comfyui")
    p.add_argument("out")
    p.add_argument("--rank", type=int, default=4)
    p.add_argument("--multiplier", type=float, default=0.7)
    a = p.parse_args()
    ref = patches.Reference(a.comfyui, a.golden, a.out)
    import folder_paths

    folder = tempfile.mkdtemp()
    folder_paths.set_output_directory(folder)
    sd15 = ("SD15", "unet_sd15_tiny", "sd15_tiny_unet_keys.json", "model.diffusion_model.")
    with torch.inference_mode():
        two = dict(model1=ref.unet(*sd15), model2=ref.unet(*sd15, front="other."))
        (model,) = ref.run("ModelMergeSubtract", dict(multiplier=a.multiplier, **two))
        two = dict(clip1=ref.clip(), clip2=ref.clip(front="other."))
        (clip,) = ref.run("CLIPMergeSubtract", dict(multiplier=a.multiplier, **two))
        ref.run(
            "LoraSave",
            dict(
                filename_prefix="tiny",
                rank=a.rank,
                lora_type="standard",
                bias_diff=True,
                model_diff=model,
                text_encoder_diff=clip,
            ),
        )
    made = load_file(glob.glob(f"{folder}/tiny_*.safetensors")[0])
    out = {k: v for k, v in made.items() if any(f".{base}." in k for base in KEPT)}
    print(len(made), len(out))
    names = sorted(k for k in made if "logit_scale" not in k)
    save_file(
        out,
        f"{a.out}/lora_save.safetensors",
        {"rank": str(a.rank), "multiplier": str(a.multiplier), "names": "\n".join(names)},
    )


if __name__ == "__main__":
    main()
