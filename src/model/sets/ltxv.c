/* ltxv.c: T5 as LTX-Video's and Mochi's set: what pads a prompt is hidden from it, and from the
 * model (ltxv.md 5, mochi.md 5). */
#include "model/encoder.h"

#define T5_SET(x, name_, least)                                                                    \
    const struct text_set text_set_##x = { .name = name_,                                          \
                                           .types = { #x },                                        \
                                           .use = { { &encoder_t5,                                 \
                                                      { .norm_hidden = true },                     \
                                                      .cond = true,                                \
                                                      .min_length = least,                         \
                                                      .mask = true,                                \
                                                      .hides_pads = true } },                      \
                                           .join = text_join_columns }
T5_SET(ltxv, "LTX-Video", 128);
T5_SET(mochi, "Mochi", 256);
