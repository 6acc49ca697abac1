/* CLIP text encoders, under their HF names and under OpenCLIP's. Checkpoints put one to three words
 * in front of them. */
#include "model/arch.h"

#include "base/str.h"

static const char *const words[] = {
    /* in front */
    "embedders",
    "transformer",
    "model",
    "text_model",
    /* the way through: HF, and OpenCLIP, whose stacked q, k, v are tensors of "attn" itself */
    "embeddings",
    "token_embedding",
    "position_embedding",
    "encoder",
    "transformer.resblocks",
    "final_layer_norm",
    "ln_final",
    "text_projection",
    /* a layer */
    "layers",
    "layer_norm1",
    "ln_1",
    "self_attn",
    "attn",
    "layer_norm2",
    "ln_2",
    "mlp",
    "q_proj",
    "k_proj",
    "v_proj",
    "out_proj",
    "fc1",
    "c_fc",
    "fc2",
    "c_proj",
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

/* OpenCLIP's table of positions is a bare tensor, in one block with the output projection: that one
 * is multiplied through, so it is no embedding. */
static bool embedding(const char *block, size_t n)
{
    return !str_starts(block, n, "vision_model.") &&
           (arch_ends_with(block, n, "token_embedding") ||
            arch_ends_with(block, n, "position_embedding"));
}

static bool detect(const struct weights *w, const char *prefix)
{
    static const char *const lead[] = { "",
                                        "transformer.",
                                        "model.",
                                        "model.transformer.",
                                        "embedders.0.transformer.", /* "conditioner." alone */
                                        "embedders.0.model.",
                                        "embedders.1.model.",
                                        "embedders.1.model.transformer." };
    static const char *const key[] = {
        "text_model.encoder.layers.0.layer_norm1.weight",
        "encoder.layers.0.layer_norm1.weight", /* SD1 checkpoints of the first days */
        "transformer.resblocks.0.ln_1.weight",
    };
    for (size_t i = 0; i < ARRAY_LEN(lead); i++)
        for (size_t k = 0; k < ARRAY_LEN(key); k++)
            if (arch_has(w, prefix, lead[i], key[k]))
                return true;
    return false;
}

const struct arch arch_clip = {
    .base = { .name = "clip",
              .about = "CLIP text encoder (L, G, H)",
              .embedding = embedding,
              .order = order },
    .detect = detect,
};
