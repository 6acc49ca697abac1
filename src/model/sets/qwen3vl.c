/* Language models without a diffusion model of their own: what they are loaded as where no type
 * asks for more (llm-encoders.md 1.6), to write text above all. */
#include "model/encoder.h"

static const char *const qwen_begins[] = { "<|im_start|>", NULL };
static const struct chat_template quick = { .before = CHAT_QWEN_USER,
                                            .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
                                            .unless = qwen_begins };
static const struct chat_template quick_seen = { .before = CHAT_QWEN_USER CHAT_QWEN_IMAGE,
                                                 .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
                                                 .unless = qwen_begins };
static const struct text_wording qwen3vl = { .chat = &quick,
                                             .chat_seen = &quick_seen,
                                             .embeddings = true };

#define QWEN3VL(x)                                                                                 \
    const struct text_set text_set_qwen3vl_##x = { .name = "Qwen3-VL",                             \
                                                   .use = { { &encoder_qwen3vl_##x,                \
                                                              { .layer = -1 },                     \
                                                              .cond = true,                        \
                                                              .min_length = 1,                     \
                                                              .wording = &qwen3vl,                 \
                                                              .mask = true } },                    \
                                                   .join = text_join_columns }
QWEN3VL(4b);
QWEN3VL(8b);

static const struct text_wording as_it_is = { .chat = NULL };

const struct text_set text_set_gemma3_4b = {
    .name = "Gemma 3",
    .any_type = true,
    .use = { { &encoder_gemma3_4b,
               { .layer = -2 },
               .cond = true,
               .min_length = 1,
               .wording = &as_it_is,
               .mask = true } },
    .join = text_join_columns,
};
