/* Flux.2: Mistral 3 24B, whole or without its last layers: what enters three of them, side by side
 * (flux2.md). */
#include "model/encoder.h"

static const struct text_wording wording = { .chat = &chat_mistral, .embeddings = true };
static const uint32_t taps[] = { 10, 20, 30 };

const struct text_set text_set_flux2 = {
    .name = "Flux.2",
    .types = { "flux2" },
    .any_type = true,
    .use = { { &encoder_mistral3_24b,
               { .tap = taps, .taps = ARRAY_LEN(taps) },
               .cond = true,
               .min_length = 1,
               .wording = &wording } },
    .join = text_join_taps,
};
