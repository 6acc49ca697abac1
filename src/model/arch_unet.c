/* The UNet of SD1.x, SD2 and SDXL: down, middle, up. */
#include "model/arch.h"

static const char *const words[] = {
    "time_embed",
    "label_emb",
    "input_blocks",
    "middle_block",
    "output_blocks",
    "out",
    /* a res block, or a step between levels */
    "in_layers",
    "emb_layers",
    "out_layers",
    "skip_connection",
    "op",
    "conv",
    /* a transformer and its blocks */
    "norm",
    "proj_in",
    "transformer_blocks",
    "proj_out",
    "norm1",
    "attn1",
    "norm2",
    "attn2",
    "norm3",
    "ff",
    "to_q",
    "to_k",
    "to_v",
    "to_out",
    "net",
    "proj",
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

static bool detect(const struct weights *w, const char *prefix)
{
    return arch_has(w, prefix, NULL, "input_blocks.0.0.weight") &&
           arch_has(w, prefix, NULL, "time_embed.0.weight") &&
           arch_has(w, prefix, NULL, "out.2.weight"); /* a ControlNet has none */
}

const struct arch arch_sd_unet = {
    .base = { .name = "sd-unet", .about = "UNet of SD1.x, SD2, SDXL", .order = order },
    .detect = detect,
};
