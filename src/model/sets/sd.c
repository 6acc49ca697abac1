/* sd.c: the sets of SD1, SD2, SDXL and its refiner (text-encoders.md 6). */
#include "model/encoder.h"

const struct text_set text_set_sd1 = {
    .name = "SD1",
    .any_type = true,
    .but = { "sd3", "hidream" },
    .use = { { &encoder_clip_l, { .norm_hidden = true }, .cond = true, .pooled = true } },
    .join = text_join_columns,
};

const struct text_set text_set_sd2 = {
    .name = "SD2",
    .any_type = true,
    .use = { { &encoder_clip_h,
               { .layer = -2, .norm_hidden = true, .project = true },
               .cond = true,
               .pooled = true } },
    .join = text_join_columns,
};

const struct text_set text_set_refiner = {
    .name = "SDXL refiner",
    .any_type = true,
    .but = { "stable_cascade", "sd3", "hidream" },
    .use = { { &encoder_clip_g, { .layer = -2, .project = true }, .cond = true, .pooled = true } },
    .join = text_join_columns,
};

const struct text_set text_set_sdxl = {
    .name = "SDXL",
    .types = { "sdxl" },
    .use = { { &encoder_clip_l, { .layer = -2 }, .cond = true },
             { &encoder_clip_g, { .layer = -2, .project = true }, .cond = true, .pooled = true } },
    .fill_up = true,
    .join = text_join_columns,
};
