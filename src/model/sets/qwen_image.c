/* Qwen-Image: Qwen2.5-VL 7B, its result from the user's words on (qwen-image.md). */
#include "model/encoder.h"
#include "model/lm/cuts.h"

static const struct text_wording wording = { .chat = &chat_qwen_image,
                                             .chat_seen = &chat_qwen_edit };

const struct text_set text_set_qwen_image = {
    .name = "Qwen-Image",
    .types = { "qwen_image" },
    .any_type = true,
    .but = { "hunyuan_image", "longcat_image" },
    .use = { { &encoder_qwen25_7b,
               { .layer = 0 },
               .cond = true,
               .min_length = 1,
               .wording = &wording,
               .cut = lm_cut_qwen,
               .mask = true } },
    .join = text_join_columns,
};
