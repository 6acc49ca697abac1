/* AutoencoderKL. The decoder's levels are numbered as the encoder's and run backwards. */
#include "model/arch.h"

static const struct arch_word words[] = {
    ARCH_WORD("encoder"),
    ARCH_WORD("quant_conv"),
    ARCH_WORD("post_quant_conv"),
    ARCH_WORD("decoder"),
    /* both ways; each has one of down and up */
    ARCH_WORD("conv_in"),
    ARCH_WORD("down"),
    ARCH_WORD("mid"),
    ARCH_DOWN("up"),
    ARCH_WORD("norm_out"),
    ARCH_WORD("conv_out"),
    /* a level, the middle */
    ARCH_WORD("block"),
    ARCH_WORD("downsample"),
    ARCH_WORD("upsample"),
    ARCH_WORD("block_1"),
    ARCH_WORD("attn_1"),
    ARCH_WORD("block_2"),
    /* a res block, its shortcut first as in a UNet's */
    ARCH_WORD("nin_shortcut"),
    ARCH_WORD("norm1"),
    ARCH_WORD("conv1"),
    ARCH_WORD("norm2"),
    ARCH_WORD("conv2"),
    /* attention, and the steps between levels */
    ARCH_WORD("norm"),
    ARCH_WORD("q"),
    ARCH_WORD("k"),
    ARCH_WORD("v"),
    ARCH_WORD("proj_out"),
    ARCH_WORD("conv"),
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
    return arch_find(w, root, "decoder.conv_in.weight") &&
           arch_find(w, root, "decoder.mid.block_1.conv1.weight");
}

const struct arch arch_vae = {
    .base = { .name = "vae",
              .about = "AutoencoderKL: the VAE of SD1, SDXL, SD3, Flux",
              .order = order,
              .key = key,
              .aliases = arch_aliases },
    .role = "vae",
    .detect = detect,
};
