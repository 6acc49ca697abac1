/* Lumina 2: Gemma 2 2B, what leaves its last layer but one (z-image.md 3). Words are weighted. */
#include "model/encoder.h"

static const struct text_wording wording = { .weights = true };

static const struct text_speech speech = { .before = "", .after = "" };

const struct text_set text_set_lumina2 = {
    .name = "Lumina 2",
    .types = { "lumina2" },
    .any_type = true,
    .but = { "pixeldit" },
    .use = { { &encoder_gemma2_2b,
               { .layer = -2 },
               .cond = true,
               .min_length = 1,
               .wording = &wording,
               .mask = true } },
    .join = text_join_columns,
    .speech = &speech,
};
