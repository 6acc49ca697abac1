/* flux.c: Flux's set: cond is T5's, pooled CLIP-L's (text-encoders.md 7). */
#include "model/encoder.h"

const struct text_set text_set_flux = {
    .name = "Flux",
    .types = { "flux" },
    .use = { { &encoder_t5, { .norm_hidden = true }, .cond = true, .min_length = 256 },
             { &encoder_clip_l, { .norm_hidden = true }, .pooled = true } },
    .join = text_join_columns,
};
