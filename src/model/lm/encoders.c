/* encoders.c: the language models that are text encoders. Those of one kind have the same names;
 * their width tells them apart, and a checkpoint's name for the place where one stands. */
#include "model/lm/lm.h"
#include "model/lm/presets.h"

#include "model/lora_names.h"

#include <string.h>

/* ---- kinds ---- */

static const int32_t qwen_stop[] = { 151643, 151645, -1 }; /* <|endoftext|>, <|im_end|> */
enum { IMAGE_PAD = 151655 };

static const struct lm_kind qwen3 = {
    .name = "Qwen3", .eps = 1e-6f, .theta = 1e6, .act = OP_SILU, .stop = qwen_stop
};
static const struct lm_kind qwen25 = { .name = "Qwen2.5",
                                       .eps = 1e-6f,
                                       .theta = 1e6,
                                       .head_dim = 128,
                                       .act = OP_SILU,
                                       .axis = { 16, 24, 24 },
                                       .picture = IMAGE_PAD };

/* ---- telling them apart ---- */

static bool has(const struct weights *w, const char *root, const char *name)
{
    return lm_entry(w, root, name) != NULL;
}

#define LAYER "model.layers.0."

/* The kind whose tensors are behind root; NULL: none that can be computed. Gemma 4 has a scale for
 * each layer, Qwen 3.5 layers without attention. */
static const struct lm_kind *kind_at(const struct weights *w, const char *root)
{
    bool qk_norm = has(w, root, LAYER "self_attn.q_norm.weight");
    if (lm_style(w, root) == LM_NONE || !has(w, root, LAYER "self_attn.q_proj.weight") ||
        !has(w, root, LAYER "mlp.gate_proj.weight") || has(w, root, LAYER "layer_scalar") ||
        has(w, root, LAYER "post_feedforward_layernorm.weight") ||
        has(w, root, "visual.deepstack_merger_list.0.norm.weight"))
        return NULL;
    return has(w, root, LAYER "self_attn.k_proj.bias") ? &qwen25 : qk_norm ? &qwen3 : NULL;
}

static uint64_t width_at(const struct weights *w, const char *root)
{
    return arch_dim(lm_entry(w, root, "model.embed_tokens.weight"), 1);
}

/* Of one kind, the encoder of this width; other: no encoder has it, so any. */
static const char *qwen3_key(uint64_t width)
{
    return width == 1024   ? "qwen3_06b"
           : width == 2048 ? "qwen3_2b"
           : width == 4096 ? "qwen3_8b"
                           : "qwen3_4b";
}

static const char *qwen25_key(uint64_t width)
{
    return width == 2048 ? "qwen25_3b" : "qwen25_7b";
}

/* What ComfyUI calls the encoder behind root. */
static const char *key_at(const struct weights *w, const char *root)
{
    const struct lm_kind *k = kind_at(w, root);
    uint64_t width = width_at(w, root);
    return k == &qwen3 ? qwen3_key(width) : k == &qwen25 ? qwen25_key(width) : "";
}

/* ---- descriptors ---- */

/* kind: what it is; key: which one of them. */
#define LM(key_, kind_, name_, ...)                                                                \
    static bool is_##key_(const struct weights *w, const char *root, const char *place)            \
    {                                                                                              \
        return strcmp(place ? place : key_at(w, root), #key_) == 0;                                \
    }                                                                                              \
    static berth_status configure_##key_(const struct weights *w, const char *root, void *config,  \
                                         berth_err *err)                                           \
    {                                                                                              \
        return lm_configure(&kind_, w, root, config, err);                                         \
    }                                                                                              \
    const struct encoder_class encoder_##key_ = { .name = name_,                                   \
                                                  .key = #key_,                                    \
                                                  .family = "language model",                      \
                                                  .what = "a language model",                      \
                                                  .te = LORA_TE,                                   \
                                                  .te_beside = LORA_TE,                            \
                                                  .config_bytes = sizeof(struct lm_net),           \
                                                  .pick = is_##key_,                               \
                                                  .configure = configure_##key_,                   \
                                                  .size = lm_size,                                 \
                                                  .names = lm_names,                               \
                                                  .prepare = lm_prepare,                           \
                                                  .hides_pads = true,                              \
                                                  .forward = lm_forward,                           \
                                                  __VA_ARGS__ }

#define DETECT(kind_)                                                                              \
    static bool kind_##_at(const struct weights *w, const char *root)                              \
    {                                                                                              \
        return kind_at(w, root) == &kind_;                                                         \
    }
DETECT(qwen3)
DETECT(qwen25)

#define ARCH(kind_, name_, about_)                                                                 \
    ENCODER_ARCH(name_, about_), .detect = kind_##_at, .lora = lm_lora

#define QWEN3 ARCH(qwen3, "qwen3", "Qwen3 language model")
LM(qwen3_4b, qwen3, "Qwen3 4B", .arch = { QWEN3, .presets = qwen3_presets },
   .tokenizer = &tokenizer_qwen25);
LM(qwen3_8b, qwen3, "Qwen3 8B", .arch = { QWEN3 }, .tokenizer = &tokenizer_qwen25);
LM(qwen3_06b, qwen3, "Qwen3 0.6B", .arch = { QWEN3 }, .tokenizer = &tokenizer_qwen25);
LM(qwen3_2b, qwen3, "Qwen3 2B", .arch = { QWEN3 }, .tokenizer = &tokenizer_qwen25);

#define QWEN25 ARCH(qwen25, "qwen25", "Qwen2.5 and Qwen2.5-VL language model")
LM(qwen25_7b, qwen25, "Qwen2.5-VL 7B", .arch = { QWEN25, .presets = qwen25_presets },
   .tokenizer = &tokenizer_qwen25);
LM(qwen25_3b, qwen25, "Qwen2.5 3B", .arch = { QWEN25 }, .tokenizer = &tokenizer_qwen25);
