/* The UNet of SD1.x, SD2 and SDXL: down, middle, up. */
#include "model/arch.h"

static const struct arch_word words[] = {
    ARCH_WORD("time_embed"),
    ARCH_WORD("label_emb"),
    ARCH_WORD("input_blocks"),
    ARCH_WORD("middle_block"),
    ARCH_WORD("output_blocks"),
    ARCH_WORD("out"),
    /* a res block, or a step between levels; the shortcut first: what it reads goes away then */
    ARCH_WORD("skip_connection"),
    ARCH_WORD("in_layers"),
    ARCH_WORD("emb_layers"),
    ARCH_WORD("out_layers"),
    ARCH_WORD("op"),
    ARCH_WORD("conv"),
    /* a transformer and its blocks */
    ARCH_WORD("norm"),
    ARCH_WORD("proj_in"),
    ARCH_WORD("transformer_blocks"),
    ARCH_WORD("proj_out"),
    ARCH_WORD("norm1"),
    ARCH_WORD("attn1"),
    ARCH_WORD("norm2"),
    ARCH_WORD("attn2"),
    ARCH_WORD("norm3"),
    ARCH_WORD("ff"),
    ARCH_WORD("to_q"),
    ARCH_WORD("to_k"),
    ARCH_WORD("to_v"),
    ARCH_WORD("to_out"),
    ARCH_WORD("net"),
    ARCH_WORD("proj"),
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

static size_t key(const char *name, size_t n, uint64_t *out, size_t cap)
{
    return arch_key(words, ARRAY_LEN(words), name, n, out, cap);
}

static bool detect(const struct weights *w, const char *root)
{
    return arch_find(w, root, "input_blocks.0.0.weight") &&
           arch_find(w, root, "time_embed.0.weight") &&
           arch_find(w, root, "out.2.weight"); /* a ControlNet has none */
}

const struct arch arch_sd_unet = {
    .base = { .name = "sd-unet",
              .about = "UNet of SD1.x, SD2, SDXL",
              .order = order,
              .key = key,
              .aliases = arch_aliases },
    .naming = ARCH_DIFFUSION,
    .role = "unet",
    .detect = detect,
};
