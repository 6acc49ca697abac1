/* Wan's: umT5's result, 512 rows at least (text-encoders.md 3). */
#include "model/encoder.h"

const struct text_set text_set_wan = {
    .name = "Wan",
    .types = { "wan" },
    .use = { { &encoder_umt5, { .norm_hidden = true }, .cond = true, .min_length = 512 } },
    .join = text_join_columns,
};
