/* CLIP text encoders, under their HF names and under OpenCLIP's. Checkpoints put one to three words
 * in front of them. */
#include "model/arch.h"

#include "base/str.h"
#include "model/lora_names_impl.h"
#include "model/preset.h"

static const struct arch_word words[] = {
    /* in front */
    ARCH_WORD("embedders"),
    ARCH_WORD("transformer"),
    ARCH_WORD("model"),
    ARCH_WORD("text_model"),
    /* the way through: HF, and OpenCLIP, whose stacked q, k, v are tensors of "attn" itself */
    ARCH_WORD("embeddings"),
    ARCH_WORD("token_embedding"),
    ARCH_WORD("position_embedding"),
    ARCH_WORD("positional_embedding"),
    ARCH_WORD("encoder"),
    ARCH_WORD("transformer.resblocks"),
    ARCH_WORD("final_layer_norm"),
    ARCH_WORD("ln_final"),
    ARCH_WORD("text_projection"),
    /* a layer */
    ARCH_WORD("layers"),
    ARCH_WORD("layer_norm1"),
    ARCH_WORD("ln_1"),
    ARCH_WORD("self_attn"),
    ARCH_WORD("attn"),
    ARCH_WORD("layer_norm2"),
    ARCH_WORD("ln_2"),
    ARCH_WORD("mlp"),
    ARCH_WORD("q_proj"),
    ARCH_WORD("k_proj"),
    ARCH_WORD("v_proj"),
    ARCH_WORD("out_proj"),
    ARCH_WORD("fc1"),
    ARCH_WORD("c_fc"),
    ARCH_WORD("fc2"),
    ARCH_WORD("c_proj"),
};

/* In a checkpoint OpenCLIP's table of positions shares a block with the output projection: that one
 * is multiplied through, so the block, called as the model itself, is no embedding. */
static bool embedding(const char *block, size_t n)
{
    return !str_starts(block, n, "vision_model.") &&
           (arch_ends_with(block, n, "token_embedding") ||
            arch_ends_with(block, n, "position_embedding") ||
            arch_ends_with(block, n, "positional_embedding"));
}

static const struct weights_entry *first_norm(const struct weights *w, const char *root)
{
    static const char *const name[] = {
        "text_model.encoder.layers.0.layer_norm1.weight",
        "encoder.layers.0.layer_norm1.weight", /* SD1 checkpoints of the first days */
        "transformer.resblocks.0.ln_1.weight",
    };
    const struct weights_entry *e = NULL;
    for (size_t i = 0; !e && i < ARRAY_LEN(name); i++)
        e = arch_find(w, root, name[i]);
    return e;
}

uint64_t arch_clip_width(const struct weights *w, const char *root)
{
    const struct weights_entry *e = first_norm(w, root);
    return e && e->shape.ndim ? e->shape.dim[0] : 0;
}

bool arch_clip_is_bare(const struct weights *w, const char *root)
{
    return arch_find(w, root, "encoder.layers.0.layer_norm1.weight");
}

static bool detect(const struct weights *w, const char *root)
{
    return first_norm(w, root);
}

static const char *const leads[] = { "",
                                     "transformer.",
                                     "model.",
                                     "model.transformer.",
                                     "embedders.0.transformer.", /* "conditioner." alone */
                                     "embedders.0.model.",
                                     "embedders.1.model.",
                                     "embedders.1.model.transformer.",
                                     NULL };

static const struct preset *const presets[] = { &preset_clip_l_tiny, &preset_clip_g_tiny, NULL };

const struct arch arch_clip = {
    .base = { .name = "clip",
              .about = "CLIP text encoder (L, G, H)",
              .trace = arch_trace,
              .aliases = arch_aliases },
    .words = words,
    .words_n = ARRAY_LEN(words),
    .embedding = embedding,
    .lora = lora_clip,
    .presets = presets,
    .word = "clip_l",
    .te = LORA_TE | LORA_TE1,
    .role = "clip",
    .detect = detect,
    .lead = leads,
};
