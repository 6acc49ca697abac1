/* encoders.c: the language models that are text encoders. Those of one kind have the same names;
 * their width tells them apart, and a checkpoint's name for the place where one stands. */
#include "model/lm/lm.h"
#include "model/lm/presets.h"
#include "model/lm/vision.h"

#include "model/lora_names.h"

#include <string.h>

/* ---- kinds ---- */

static const int32_t qwen_stop[] = { 151643, 151645, -1 }; /* <|endoftext|>, <|im_end|> */

#define QWEN .eps = 1e-6f, .act = OP_SILU
static const struct lm_kind qwen3 = { QWEN, .name = "Qwen3", .theta = 1e6, .stop = qwen_stop };
static const struct lm_kind qwen25 = { QWEN, .name = "Qwen2.5", .theta = 1e6, .head_dim = 128,
                                       .axis = { 16, 24, 24 } };
static const struct lm_kind qwen3vl = { QWEN,
                                        .name = "Qwen3-VL",
                                        .theta = 5e6,
                                        .axis = { 24, 20, 20 },
                                        .interleaved = true,
                                        .stop = qwen_stop };

/* <|endoftext|>, <|im_end|> of its own vocabulary. A quarter of a head turns. */
static const struct lm_kind qwen35 = { QWEN,
                                       .name = "Qwen3.5",
                                       .theta = 1e7,
                                       .from_one = true,
                                       .turns_part = 4,
                                       .axis = { 11, 11, 10 },
                                       .interleaved = true,
                                       .speaks_flat = true,
                                       .stop = (const int32_t[]) { 248044, 248046, -1 } };

#define LLAMA .eps = 1e-5f, .head_dim = 128, .act = OP_SILU
static const struct lm_kind llama3 = { LLAMA, .name = "Llama 3", .theta = 5e5 };
static const struct lm_kind mistral3 = { LLAMA, .name = "Mistral 3", .theta = 1e9 };
static const struct lm_kind ministral3 = { LLAMA, .name = "Ministral 3", .theta = 1e6,
                                           .stop = (const int32_t[]) { 2, -1 } };

/* Neither caps nor windows of Gemma 2's own: the reference has none (llm-encoders.md 1.1). */
#define GEMMA                                                                                      \
    .eps = 1e-6f, .act = OP_GELU_TANH, .head_dim = 256, .from_one = true, .sandwich = true,        \
    .scaled = true
static const struct lm_kind gemma2 = { GEMMA, .name = "Gemma 2", .theta = 1e4,
                                       .stop = (const int32_t[]) { 1, -1 } };
#define GEMMA3                                                                                     \
    GEMMA, .name = "Gemma 3", .theta = 1e6, .stretch = 8, .window = 1024, .full_every = 6,         \
           .window_theta = 1e4
static const struct lm_kind gemma3 = { GEMMA3, .stop = (const int32_t[]) { 1, 106, -1 } };
static const struct lm_kind gemma3_large = { GEMMA3, .stop = (const int32_t[]) { 106, -1 } };

/* ---- telling them apart ---- */

static bool has(const struct weights *w, const char *root, const char *name)
{
    return lm_entry(w, root, name) != NULL;
}

#define LAYER "model.layers.0."

static uint64_t dim_at(const struct weights *w, const char *root, int i)
{
    return arch_dim(lm_entry(w, root, "model.embed_tokens.weight"), i);
}

/* Of those without a mark of their own: Mistral's vocabulary and widths are no Llama's. */
static const struct lm_kind *plain_kind(const struct weights *w, const char *root)
{
    enum { MISTRAL_VOCAB = 131072, MISTRAL_WIDTH = 5120, MINISTRAL_WIDTH = 3072 };
    uint64_t width = dim_at(w, root, 1);
    return width == MINISTRAL_WIDTH                                        ? &ministral3
           : width == MISTRAL_WIDTH || dim_at(w, root, 0) == MISTRAL_VOCAB ? &mistral3
                                                                           : &llama3;
}

/* The kind whose tensors are behind root; NULL: none that can be computed. Gemma 4 has a scale for
 * each layer. */
static const struct lm_kind *kind_at(const struct weights *w, const char *root)
{
    bool qk_norm = has(w, root, LAYER "self_attn.q_norm.weight");
    if (has(w, root, LAYER "linear_attn.A_log") && has(w, root, LAYER "mlp.gate_proj.weight"))
        return &qwen35;
    if (lm_style(w, root) == LM_NONE || !has(w, root, LAYER "self_attn.q_proj.weight") ||
        !has(w, root, LAYER "mlp.gate_proj.weight") || has(w, root, LAYER "layer_scalar"))
        return NULL;
    if (has(w, root, LAYER "post_feedforward_layernorm.weight"))
        return qk_norm ? &gemma3 : &gemma2;
    if (has(w, root, "visual.deepstack_merger_list.0.norm.weight"))
        return &qwen3vl;
    if (has(w, root, LAYER "self_attn.k_proj.bias"))
        return &qwen25;
    return qk_norm ? &qwen3 : plain_kind(w, root);
}

/* What ComfyUI calls the encoder behind root: of its kind, the one of this size. One that has no
 * size of ComfyUI's is like the first of its kind. */
static const char *key_at(const struct weights *w, const char *root)
{
    const struct lm_kind *k = kind_at(w, root);
    uint64_t width = dim_at(w, root, 1);
    if (k == &qwen3)
        return width == 1024   ? "qwen3_06b"
               : width == 2048 ? "qwen3_2b"
               : width == 4096 ? "qwen3_8b"
                               : "qwen3_4b";
    if (k == &qwen35)
        return width == 1024   ? "qwen35_08b"
               : width == 2560 ? "qwen35_4b"
               : width == 4096 ? "qwen35_9b"
               : width == 5120 ? "qwen35_27b"
                               : "qwen35_2b";
    if (k == &qwen25)
        return width == 2048 ? "qwen25_3b" : "qwen25_7b";
    if (k == &qwen3vl) /* 5120: a part of the 32B, whose norms are not there */
        return width == 4096 ? "qwen3vl_8b" : width == 5120 ? "" : "qwen3vl_4b";
    if (k == &gemma3)
        return arch_layers(w, root, lm_list(lm_style(w, root))) >= 48 ? "gemma3_12b" : "gemma3_4b";
    return k == &gemma2       ? "gemma2_2b"
           : k == &mistral3   ? "mistral3_24b"
           : k == &ministral3 ? "ministral3_3b"
           : k == &llama3     ? "llama"
                              : "";
}

/* ---- descriptors ---- */

/* kind: what it is; key: which one of them. */
#define LM(key_, kind_, name_, family_, ...)                                                       \
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
                                                  .family = family_,                               \
                                                  .what = "a " family_ " text encoder",            \
                                                  .te = LORA_TE,                                   \
                                                  .te_beside = LORA_TE,                            \
                                                  .own_type = true,                                \
                                                  .config_bytes = sizeof(struct lm_net),           \
                                                  .pick = is_##key_,                               \
                                                  .configure = configure_##key_,                   \
                                                  .size = lm_size,                                 \
                                                  .names = lm_names,                               \
                                                  .prepare = lm_prepare,                           \
                                                  .hides_pads = true,                              \
                                                  .forward = lm_forward,                           \
                                                  .speech = &lm_speech,                            \
                                                  __VA_ARGS__ }

#define DETECT(kind_)                                                                              \
    static bool kind_##_at(const struct weights *w, const char *root)                              \
    {                                                                                              \
        return kind_at(w, root) == &kind_;                                                         \
    }
DETECT(qwen3)
DETECT(qwen25)
DETECT(qwen3vl)
DETECT(qwen35)
DETECT(llama3)
DETECT(mistral3)
DETECT(ministral3)
DETECT(gemma2)
DETECT(gemma3)

#define ARCH(kind_, name_, about_)                                                                 \
    ENCODER_ARCH(name_, about_), .detect = kind_##_at, .lora = lm_lora

#define QWEN3 ARCH(qwen3, "qwen3", "Qwen3 language model")
LM(qwen3_4b, qwen3, "Qwen3 4B", "Qwen3", .arch = { QWEN3, .presets = qwen3_presets },
   .tokenizer = &tokenizer_qwen25);
LM(qwen3_8b, qwen3, "Qwen3 8B", "Qwen3", .arch = { QWEN3 }, .tokenizer = &tokenizer_qwen25);
LM(qwen3_06b, qwen3, "Qwen3 0.6B", "Qwen3", .arch = { QWEN3 }, .tokenizer = &tokenizer_qwen25);
LM(qwen3_2b, qwen3, "Qwen3 2B", "Qwen3", .arch = { QWEN3 }, .tokenizer = &tokenizer_qwen25);

#define QWEN25 ARCH(qwen25, "qwen25", "Qwen2.5 and Qwen2.5-VL language model")
LM(qwen25_7b, qwen25, "Qwen2.5-VL 7B", "Qwen2.5", .arch = { QWEN25, .presets = qwen25_presets },
   .tokenizer = &tokenizer_qwen25, .sight = &lm_sight);
LM(qwen25_3b, qwen25, "Qwen2.5 3B", "Qwen2.5", .arch = { QWEN25 }, .tokenizer = &tokenizer_qwen25);

#define QWEN3VL ARCH(qwen3vl, "qwen3vl", "Qwen3-VL language model")
LM(qwen3vl_4b, qwen3vl, "Qwen3-VL 4B", "Qwen3-VL", .arch = { QWEN3VL, .presets = qwen3vl_presets },
   .tokenizer = &tokenizer_qwen25, .sight = &lm_sight);
LM(qwen3vl_8b, qwen3vl, "Qwen3-VL 8B", "Qwen3-VL", .arch = { QWEN3VL },
   .tokenizer = &tokenizer_qwen25, .sight = &lm_sight);

#define QWEN35 ARCH(qwen35, "qwen35", "Qwen3.5 language model")
#define QWEN35_REST .tokenizer = &tokenizer_qwen35, .sight = &lm_sight_35
LM(qwen35_2b, qwen35, "Qwen3.5 2B", "Qwen3.5", .arch = { QWEN35, .presets = qwen35_presets },
   QWEN35_REST);
LM(qwen35_08b, qwen35, "Qwen3.5 0.8B", "Qwen3.5", .arch = { QWEN35 }, QWEN35_REST);
LM(qwen35_4b, qwen35, "Qwen3.5 4B", "Qwen3.5", .arch = { QWEN35 }, QWEN35_REST);
LM(qwen35_9b, qwen35, "Qwen3.5 9B", "Qwen3.5", .arch = { QWEN35 }, QWEN35_REST);
LM(qwen35_27b, qwen35, "Qwen3.5 27B", "Qwen3.5", .arch = { QWEN35 }, QWEN35_REST);

LM(llama, llama3, "Llama 3", "Llama 3",
   .arch = { ARCH(llama3, "llama", "Llama 3 language model"), .presets = llama3_presets },
   .tokenizer = &tokenizer_llama3);
LM(mistral3_24b, mistral3, "Mistral 3 24B", "Mistral 3",
   .arch = { ARCH(mistral3, "mistral3", "Mistral 3 language model"), .presets = mistral3_presets },
   .tokenizer = &tokenizer_tekken);
LM(ministral3_3b, ministral3, "Ministral 3 3B", "Ministral 3",
   .arch = { ARCH(ministral3, "ministral3", "Ministral 3 language model") },
   .tokenizer = &tokenizer_tekken);

LM(gemma2_2b, gemma2, "Gemma 2 2B", "Gemma 2",
   .arch = { ARCH(gemma2, "gemma2", "Gemma 2 language model"), .presets = gemma_presets },
   .tokenizer = &tokenizer_gemma2);
#define GEMMA3_ARCH ARCH(gemma3, "gemma3", "Gemma 3 language model")
LM(gemma3_4b, gemma3, "Gemma 3 4B", "Gemma 3", .arch = { GEMMA3_ARCH },
   .tokenizer = &tokenizer_gemma3);
LM(gemma3_12b, gemma3_large, "Gemma 3 12B", "Gemma 3", .arch = { GEMMA3_ARCH },
   .tokenizer = &tokenizer_gemma3);
