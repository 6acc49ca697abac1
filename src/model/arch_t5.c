/* T5 and umT5 encoders, under their HF names and under GGUF's. */
#include "model/arch.h"

static const char *const words[] = {
    "transformer", /* in all-in-one files in front of the rest */
    "shared",
    "token_embd",
    "encoder",
    "enc",
    "embed_tokens",
    "block",
    "blk",
    "final_layer_norm",
    "output_norm",
    /* a block, HF */
    "layer",
    "layer_norm",
    "SelfAttention",
    "DenseReluDense",
    "q",
    "k",
    "v",
    "relative_attention_bias",
    "o",
    "wi_0",
    "wi_1",
    "wo",
    /* a block, GGUF */
    "attn_norm",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_rel_b",
    "attn_o",
    "ffn_norm",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

static bool embedding(const char *block, size_t n)
{
    return arch_ends_with(block, n, "shared") || arch_ends_with(block, n, "embed_tokens") ||
           arch_ends_with(block, n, "token_embd");
}

static bool detect(const struct weights *w, const char *prefix)
{
    return arch_has(w, prefix, NULL, "encoder.block.0.layer.0.SelfAttention.q.weight") ||
           arch_has(w, prefix, "transformer.", "encoder.block.0.layer.0.SelfAttention.q.weight") ||
           arch_has(w, prefix, NULL, "enc.blk.0.attn_q.weight");
}

const struct arch arch_t5 = {
    .base = { .name = "t5",
              .about = "T5 and umT5 encoder",
              .embedding = embedding,
              .order = order },
    .detect = detect,
};
