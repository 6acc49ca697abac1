/* numbers: options about the numbers networks compute in and are held in, by ComfyUI's names. */
#ifndef APP_NUMBERS_H
#define APP_NUMBERS_H

#include "app/app.h"
#include "node/node.h"

/* What people try for opts.guess. */
#define FP8_UNET "diffusion models are held as fp8 with --fp8_e4m3fn-unet, or --fp8_e5m2-unet"
#define FP8_GUESSES                                                                                \
    { "fp8", FP8_UNET }, { "fp8-unet", FP8_UNET },                                                 \
    {                                                                                              \
        "fp8_unet", FP8_UNET                                                                       \
    }

struct number_options {
    bool force_fp32, force_fp16, fp32_unet, fp16_unet, bf16_unet, fp32_vae, fp16_vae, bf16_vae,
        fp16_text, fp32_text, e4m3_unet, e5m2_unet, e4m3_text, e5m2_text, cpu_noise;
    const char *fast; /* names with commas between, or "": all of them */
};

#define NUMBER_OPTIONS(o)                                                                          \
    { .name = "force-fp32", .help = "compute everything in F32", .to = &(o)->force_fp32 },         \
        { .name = "force-fp16",                                                                    \
          .help = "compute diffusion models in F16",                                               \
          .to = &(o)->force_fp16 },                                                                \
        { .name = "fp32-unet",                                                                     \
          .help = "compute diffusion models in F32 (default on cards: F16 or BF16, "               \
                  "whichever the model was made for)",                                             \
          .to = &(o)->fp32_unet },                                                                 \
        { .name = "fp16-unet", .help = "... in F16", .to = &(o)->fp16_unet },                      \
        { .name = "bf16-unet", .help = "... in BF16", .to = &(o)->bf16_unet },                     \
        { .name = "fp8_e4m3fn-unet",                                                               \
          .help = "hold diffusion models as F8_E4M3, unless a loader names a type",                \
          .to = &(o)->e4m3_unet },                                                                 \
        { .name = "fp8_e5m2-unet", .help = "... as F8_E5M2", .to = &(o)->e5m2_unet },              \
        { .name = "fp32-vae",                                                                      \
          .help = "compute VAEs in F32 (default: BF16 on cards)",                                  \
          .to = &(o)->fp32_vae },                                                                  \
        { .name = "fp16-vae", .help = "... in F16", .to = &(o)->fp16_vae },                        \
        { .name = "bf16-vae", .help = "... in BF16", .to = &(o)->bf16_vae },                       \
        { .name = "fast",                                                                          \
          .kind = OPT_TEXT,                                                                        \
          .value = "WHAT",                                                                         \
          .help = "fp8_matrix_mult: multiply fp8 weights in fp8, on cards that can",               \
          .to = &(o)->fast },                                                                      \
        { .name = "cpu-noise",                                                                     \
          .help = "samplers draw noise as on the cpu, even for models on a card",                  \
          .to = &(o)->cpu_noise },                                                                 \
        { .name = "fp8_e4m3fn-text-enc",                                                           \
          .help = "hold text encoders as F8_E4M3",                                                 \
          .to = &(o)->e4m3_text },                                                                 \
        { .name = "fp8_e5m2-text-enc", .help = "... as F8_E5M2", .to = &(o)->e5m2_text },          \
        { .name = "fp16-text-enc",                                                                 \
          .help = "hold F32 text encoders as F16 (the default, as in ComfyUI)",                    \
          .to = &(o)->fp16_text },                                                                 \
    {                                                                                              \
        .name = "fp32-text-enc",                                                                   \
        .help = "hold text encoders as they are in their files, even F32", .to = &(o)->fp32_text   \
    }

/* Returns 0 or the exit code of what it named. */
int app_numbers(struct app *a, const struct number_options *o, struct node_numbers *out);

#endif
