/* Flux.2 klein: Qwen3 4B or 8B, what enters three of its layers, side by side (flux2.md). */
#include "model/encoder.h"

static const struct text_wording wording = { .chat = &chat_qwen_quick, .embeddings = true };
static const struct text_speech speech = { .before = CHAT_QWEN_USER,
                                           .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
                                           .always = true };
static const uint32_t taps[] = { 9, 18, 27 };

#define KLEIN(x, ...)                                                                              \
    const struct text_set text_set_klein_##x = {                                                   \
        .name = "Flux.2 klein",                                                                    \
        .types = { "flux2", "flux" },                                                              \
        .use = { { &encoder_qwen3_##x,                                                             \
                   { .tap = taps, .taps = ARRAY_LEN(taps) },                                       \
                   .cond = true,                                                                   \
                   .min_length = 512,                                                              \
                   .wording = &wording,                                                            \
                   .mask = true } },                                                               \
        .join = text_join_taps,                                                                    \
        .speech = &speech,                                                                         \
        __VA_ARGS__                                                                                \
    }
KLEIN(4b, .any_type = false);
KLEIN(8b, .any_type = true, .but = { "ideogram4" });
