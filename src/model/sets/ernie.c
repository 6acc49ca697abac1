/* Ernie: Ministral 3 3B, what leaves its last layer but one (llm-encoders.md 3.7). */
#include "model/encoder.h"

static const struct text_wording wording = { .embeddings = true };

static const struct text_speech speech = { .before = "", .after = "" };

const struct text_set text_set_ernie = {
    .name = "Ernie",
    .types = { "ernie" },
    .any_type = true,
    .use = { { &encoder_ministral3_3b,
               { .layer = -2 },
               .cond = true,
               .min_length = 1,
               .wording = &wording,
               .mask = true } },
    .join = text_join_columns,
    .speech = &speech,
};
