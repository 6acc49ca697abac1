/* Language models used as text encoders (Qwen2.5, Llama), under their HF names and under GGUF's. */
#include "model/arch.h"

static const char *const words[] = {
    /* in front; the picture tower, where there is one, runs first */
    "transformer",
    "visual",
    "token_embd",
    "model",
    "embed_tokens",
    "layers",
    "blk",
    "norm",
    "output_norm",
    "lm_head",
    "output",
    /* a layer, HF */
    "input_layernorm",
    "self_attn",
    "post_attention_layernorm",
    "mlp",
    "q_proj",
    "q_norm",
    "k_proj",
    "k_norm",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
    /* a layer, GGUF */
    "attn_norm",
    "attn_q",
    "attn_q_norm",
    "attn_k",
    "attn_k_norm",
    "attn_v",
    "attn_output",
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
