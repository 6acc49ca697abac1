/* T5 and umT5 encoders, under their HF names and under GGUF's. */
#include "model/arch.h"

static const struct arch_word words[] = {
    ARCH_WORD("transformer"), /* in all-in-one files in front of the rest */
    ARCH_WORD("shared"),
    ARCH_WORD("token_embd"),
    ARCH_WORD("encoder"),
    ARCH_WORD("enc"),
    ARCH_WORD("embed_tokens"),
    ARCH_WORD("block"),
    ARCH_WORD("blk"),
    ARCH_WORD("final_layer_norm"),
    ARCH_WORD("output_norm"),
    /* a block, HF */
    ARCH_WORD("layer"),
    ARCH_WORD("layer_norm"),
    ARCH_WORD("SelfAttention"),
    ARCH_WORD("DenseReluDense"),
    ARCH_WORD("q"),
    ARCH_WORD("k"),
    ARCH_WORD("v"),
    ARCH_WORD("relative_attention_bias"),
    ARCH_WORD("o"),
    ARCH_WORD("wi_0"),
    ARCH_WORD("wi_1"),
    ARCH_WORD("wo"),
    /* a block, GGUF */
    ARCH_WORD("attn_norm"),
    ARCH_WORD("attn_q"),
    ARCH_WORD("attn_k"),
    ARCH_WORD("attn_v"),
    ARCH_WORD("attn_rel_b"),
    ARCH_WORD("attn_o"),
    ARCH_WORD("ffn_norm"),
    ARCH_WORD("ffn_gate"),
    ARCH_WORD("ffn_up"),
    ARCH_WORD("ffn_down"),
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
