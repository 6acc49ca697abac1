/* numbers: options about the numbers networks compute in and are held in, by ComfyUI's names. */
#pragma once

#include "app/app.h"
#include "node/node.h"

/* What people try for opts.guess. */
#define FP8_GUESS                                                                                  \
    {                                                                                              \
        "fp8|fp8-unet|fp8_unet",                                                                   \
            "diffusion models are held as fp8 with --fp8_e4m3fn-unet, or --fp8_e5m2-unet"          \
    }

struct number_options {
    bool force_fp32, force_fp16, fp32_unet, fp16_unet, bf16_unet, fp32_vae, fp16_vae, bf16_vae,
        fp16_text, fp32_text, e4m3_unet, e5m2_unet, e4m3_text, e5m2_text, cpu_noise;
    const char *fast; /* names with commas between, or "": all of them */
};

#define NUMBER_OPTIONS(o)                                                                          \
    opt_flag("force-fp32", "compute everything in F32", &(o)->force_fp32),                         \
        opt_flag("force-fp16", "compute diffusion models in F16", &(o)->force_fp16),               \
        opt_flag("fp32-unet",                                                                      \
                 "compute diffusion models in F32 (default on cards: F16 or BF16, "                \
                 "whichever the model was made for)",                                              \
                 &(o)->fp32_unet),                                                                 \
        opt_flag("fp16-unet", "... in F16", &(o)->fp16_unet),                                      \
        opt_flag("bf16-unet", "... in BF16", &(o)->bf16_unet),                                     \
        opt_flag("fp8_e4m3fn-unet",                                                                \
                 "hold diffusion models as F8_E4M3, unless a loader names a type",                 \
                 &(o)->e4m3_unet),                                                                 \
        opt_flag("fp8_e5m2-unet", "... as F8_E5M2", &(o)->e5m2_unet),                              \
        opt_flag("fp32-vae", "compute VAEs in F32 (default: BF16 on cards)", &(o)->fp32_vae),      \
        opt_flag("fp16-vae", "... in F16", &(o)->fp16_vae),                                        \
        opt_flag("bf16-vae", "... in BF16", &(o)->bf16_vae),                                       \
        opt_text("fast", "WHAT",                                                                   \
                 "fp8_matrix_mult: multiply fp8 weights in fp8, on cards that can", &(o)->fast),   \
        opt_flag("cpu-noise", "samplers draw noise as on the cpu, even for models on a card",      \
                 &(o)->cpu_noise),                                                                 \
        opt_flag("fp8_e4m3fn-text-enc", "hold text encoders as F8_E4M3", &(o)->e4m3_text),         \
        opt_flag("fp8_e5m2-text-enc", "... as F8_E5M2", &(o)->e5m2_text),                          \
        opt_flag("fp16-text-enc", "hold F32 text encoders as F16 (the default, as in ComfyUI)",    \
                 &(o)->fp16_text),                                                                 \
        opt_flag("fp32-text-enc", "hold text encoders as they are in their files, even F32",       \
                 &(o)->fp32_text)

/* Returns 0 or the exit code of what it named. */
int app_numbers(struct app *a, const struct number_options *o, struct node_numbers *out);
