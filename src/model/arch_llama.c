/* Language models used as text encoders (Qwen2.5, Llama), under their HF names and under GGUF's. */
#include "model/arch.h"

static const struct arch_word words[] = {
    /* in front; the picture tower, where there is one, runs first */
    ARCH_WORD("transformer"),
    ARCH_WORD("visual"),
    ARCH_WORD("token_embd"),
    ARCH_WORD("model"),
    ARCH_WORD("embed_tokens"),
    ARCH_WORD("layers"),
    ARCH_WORD("blk"),
    ARCH_WORD("norm"),
    ARCH_WORD("output_norm"),
    ARCH_WORD("lm_head"),
    ARCH_WORD("output"),
    /* a layer, HF */
    ARCH_WORD("input_layernorm"),
    ARCH_WORD("self_attn"),
    ARCH_WORD("post_attention_layernorm"),
    ARCH_WORD("mlp"),
    ARCH_WORD("q_proj"),
    ARCH_WORD("q_norm"),
    ARCH_WORD("k_proj"),
    ARCH_WORD("k_norm"),
    ARCH_WORD("v_proj"),
    ARCH_WORD("o_proj"),
    ARCH_WORD("gate_proj"),
    ARCH_WORD("up_proj"),
    ARCH_WORD("down_proj"),
    /* a layer, GGUF */
    ARCH_WORD("attn_norm"),
    ARCH_WORD("attn_q"),
    ARCH_WORD("attn_q_norm"),
    ARCH_WORD("attn_k"),
    ARCH_WORD("attn_k_norm"),
    ARCH_WORD("attn_v"),
    ARCH_WORD("attn_output"),
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
    return arch_ends_with(block, n, "embed_tokens") || arch_ends_with(block, n, "token_embd");
}

static bool detect(const struct weights *w, const char *prefix)
{
    return arch_has(w, prefix, NULL, "model.layers.0.self_attn.q_proj.weight") ||
           arch_has(w, prefix, "transformer.", "model.layers.0.self_attn.q_proj.weight") ||
           arch_has(w, prefix, NULL, "blk.0.attn_q.weight");
}

const struct arch arch_llama = {
    .base = { .name = "llama",
              .about = "language model as text encoder (Qwen2.5, Llama)",
              .embedding = embedding,
              .order = order },
    .detect = detect,
};
