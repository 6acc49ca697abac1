/* Krea 2: Qwen3-VL 4B, what enters every third of its layers, from the user's words on
 * (krea2.md). */
#include "model/encoder.h"
#include "model/lm/cuts.h"

static const struct chat_template with_picture = { .before = CHAT_QWEN_USER CHAT_QWEN_IMAGE,
                                                   .after = CHAT_QWEN_END,
                                                   .unless = (const char *const[]) { "<|im_start|>",
                                                                                     NULL } };
static const struct text_wording wording = { .chat = &chat_qwen_image,
                                             .chat_seen = &with_picture,
                                             .embeddings = true };
static const uint32_t taps[] = { 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35 };

static const struct text_speech speech = {
    .before =
        "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, "
        "quantity, text, spatial relationships of the objects and "
        "background:<|im_end|>\n" CHAT_QWEN_USER,
    .seen = CHAT_QWEN_USER,
    .picture = CHAT_QWEN_IMAGE,
    .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
    .after_thinking = CHAT_QWEN_END,
    .unless = (const char *const[]) { "<|im_start|>", NULL },
};

const struct text_set text_set_krea2 = {
    .name = "Krea 2",
    .types = { "krea2" },
    .use = { { &encoder_qwen3vl_4b,
               { .tap = taps, .taps = ARRAY_LEN(taps) },
               .cond = true,
               .min_length = 1,
               .wording = &wording,
               .cut = lm_cut_qwen,
               .mask = true } },
    .join = text_join_taps,
    .speech = &speech,
};
