/* Ernie: Ministral 3 3B, what leaves its last layer but one (llm-encoders.md 3.7). */
#include "model/sets/lm.h"

static const struct text_wording wording = { .embeddings = true };

const struct text_set text_set_ernie = {
    .name = "Ernie",
    .types = { "ernie" },
    .any_type = true,
    LM_STATES(encoder_ministral3_3b, -2, wording),
    .speech = &lm_speech_bare,
};
