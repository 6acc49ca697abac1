/* Flux.1: double-stream blocks, then single-stream ones. The image and the text stream of a double
 * block take turns: both reach the attention before either goes on. */
#include "model/arch.h"

static const struct arch_word words[] = {
    ARCH_WORD("img_in"),
    ARCH_WORD("time_in"),
    ARCH_WORD("guidance_in"),
    ARCH_WORD("vector_in"),
    ARCH_WORD("txt_in"),
    ARCH_WORD("double_blocks"),
    ARCH_WORD("single_blocks"),
    ARCH_WORD("final_layer"),
    /* embedders */
    ARCH_WORD("in_layer"),
    ARCH_WORD("out_layer"),
    /* a double block */
    ARCH_WORD("img_mod"),
    ARCH_WORD("txt_mod"),
    ARCH_WORD("img_attn.qkv"),
    ARCH_WORD("img_attn.norm"),
    ARCH_WORD("txt_attn.qkv"),
    ARCH_WORD("txt_attn.norm"),
    ARCH_WORD("img_attn.proj"),
    ARCH_WORD("img_mlp"),
    ARCH_WORD("txt_attn.proj"),
    ARCH_WORD("txt_mlp"),
    /* a single block */
    ARCH_WORD("modulation"),
    ARCH_WORD("linear1"),
    ARCH_WORD("norm"),
    ARCH_WORD("linear2"),
    /* inside norms and modulations */
    ARCH_WORD("query_norm"),
    ARCH_WORD("key_norm"),
    ARCH_WORD("lin"),
    /* the final layer */
    ARCH_WORD("adaLN_modulation"),
    ARCH_WORD("linear"),
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
    /* Others with these blocks (Flux2, Chroma, Hunyuan) have more in front of them. */
    return arch_find(w, root, "double_blocks.0.img_attn.norm.key_norm.scale") &&
           arch_find(w, root, "img_in.weight") && arch_find(w, root, "time_in.in_layer.weight") &&
           arch_find(w, root, "vector_in.in_layer.weight") && arch_find(w, root, "txt_in.weight");
}

const struct arch arch_flux = {
    .base = { .name = "flux",
              .about = "Flux.1 transformer",
              .order = order,
              .key = key,
              .aliases = arch_aliases },
    .naming = ARCH_DIFFUSION,
    .role = "unet",
    .detect = detect,
};
