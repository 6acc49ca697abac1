/* Flux.1: double-stream blocks, then single-stream ones. The image and the text stream of a double
 * block take turns: both reach the attention before either goes on. */
#include "model/arch.h"

static const char *const words[] = {
    "img_in",
    "time_in",
    "guidance_in",
    "vector_in",
    "txt_in",
    "double_blocks",
    "single_blocks",
    "final_layer",
    /* embedders */
    "in_layer",
    "out_layer",
    /* a double block */
    "img_mod",
    "txt_mod",
    "img_attn.qkv",
    "img_attn.norm",
    "txt_attn.qkv",
    "txt_attn.norm",
    "img_attn.proj",
    "img_mlp",
    "txt_attn.proj",
    "txt_mlp",
    /* a single block */
    "modulation",
    "linear1",
    "norm",
    "linear2",
    /* inside norms and modulations */
    "query_norm",
    "key_norm",
    "lin",
    /* the final layer */
    "adaLN_modulation",
    "linear",
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

static bool detect(const struct weights *w, const char *prefix)
{
    /* Others with these blocks (Flux2, Chroma, Hunyuan) have more in front of them. */
    return arch_has(w, prefix, NULL, "double_blocks.0.img_attn.norm.key_norm.scale") &&
           arch_has(w, prefix, NULL, "img_in.weight") &&
           arch_has(w, prefix, NULL, "time_in.in_layer.weight") &&
           arch_has(w, prefix, NULL, "vector_in.in_layer.weight") &&
           arch_has(w, prefix, NULL, "txt_in.weight");
}

const struct arch arch_flux = {
    .base = { .name = "flux", .about = "Flux.1 transformer", .order = order },
    .detect = detect,
};
