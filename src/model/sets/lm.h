/* What sets of one language model share. */
#pragma once

#include "model/encoder.h"

/* .use and .join: the states of one layer, as they are, for each token that is none of padding. */
#define LM_STATES(encoder_, layer_, wording_)                                                      \
    .use = { { &(encoder_),                                                                        \
               { .layer = (layer_) },                                                              \
               .cond = true,                                                                       \
               .min_length = 1,                                                                    \
               .wording = &(wording_),                                                             \
               .mask = true } },                                                                   \
    .join = text_join_columns

/* A question goes to the model as it stands. */
extern const struct text_speech lm_speech_bare;
