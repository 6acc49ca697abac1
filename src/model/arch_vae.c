/* AutoencoderKL. The decoder's levels are numbered as the encoder's and run backwards. */
#include "model/arch.h"

static const char *const words[] = {
    "encoder",
    "quant_conv",
    "post_quant_conv",
    "decoder",
    /* both ways; each has one of down and up */
    "conv_in",
    "down",
    "mid",
    "up.<",
    "norm_out",
    "conv_out",
    /* a level, the middle */
    "block",
    "downsample",
    "upsample",
    "block_1",
    "attn_1",
    "block_2",
    /* a res block */
    "norm1",
    "conv1",
    "norm2",
    "conv2",
    "nin_shortcut",
    /* attention, and the steps between levels */
    "norm",
    "q",
    "k",
    "v",
    "proj_out",
    "conv",
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

static bool detect(const struct weights *w, const char *prefix)
{
    return arch_has(w, prefix, NULL, "decoder.conv_in.weight") &&
           arch_has(w, prefix, NULL, "decoder.mid.block_1.conv1.weight");
}

const struct arch arch_vae = {
    .base = { .name = "vae",
              .about = "AutoencoderKL: the VAE of SD1, SDXL, SD3, Flux",
              .order = order },
    .detect = detect,
};
