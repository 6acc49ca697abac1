/* Language models that encode texts: T5 and umT5, which text/ computes, and those used whole
 * (Qwen2.5, Llama), which are placed by the words of their HF and GGUF names. */
#include "model/arch.h"

#include "model/lora_names_impl.h"
#include "model/preset.h"
#include "text/t5/t5.h"

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
    /* GGUF */
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

static bool embedding(const char *block, size_t n)
{
    return arch_ends_with(block, n, "embed_tokens") || arch_ends_with(block, n, "token_embd");
}

static bool is_t5(const struct weights *w, const char *root)
{
    return t5_detect(w, root, NULL);
}

static bool is_llama(const struct weights *w, const char *root)
{
    return arch_find(w, root, "model.layers.0.self_attn.q_proj.weight") ||
           arch_find(w, root, "blk.0.attn_q.weight");
}

static const char *const leads[] = { "", "transformer.", NULL }; /* all-in-one files */

static const struct preset *const presets[] = { &preset_t5_tiny, &preset_t5xxl, NULL };

const struct arch arch_t5 = {
    .base = { .name = "t5",
              .about = "T5 and umT5 encoder",
              .trace = arch_trace,
              .aliases = arch_aliases },
    .trace = arch_trace_text,
    .lora = lora_t5,
    .presets = presets,
    .word = "t5xxl",
    .te = LORA_TE2 | LORA_TE3,
    .role = "clip",
    .detect = is_t5,
    .lead = leads,
};

static bool is_text(const struct weights *w, const char *root)
{
    struct text_found found;
    return text_find_at(w, root, &found);
}

/* Any other encoder of text/encoders.def: a pass tells all that placing it takes. */
const struct arch arch_text = {
    .base = { .name = "text",
              .about = "text encoder",
              .trace = arch_trace,
              .aliases = arch_aliases },
    .trace = arch_trace_text,
    .role = "clip",
    .detect = is_text,
    .lead = leads,
};

const struct arch arch_llama = {
    .base = { .name = "llama",
              .about = "language model as text encoder (Qwen2.5, Llama)",
              .trace = arch_trace,
              .aliases = arch_aliases },
    .words = words,
    .words_n = ARRAY_LEN(words),
    .embedding = embedding,
    .role = "clip",
    .detect = is_llama,
    .lead = leads,
};
