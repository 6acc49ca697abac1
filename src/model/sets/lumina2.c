/* Lumina 2: Gemma 2 2B, what leaves its last layer but one (z-image.md 3). Words are weighted. */
#include "model/sets/lm.h"

static const struct text_wording wording = { .weights = true };

const struct text_set text_set_lumina2 = {
    .name = "Lumina 2",
    .types = { "lumina2" },
    .any_type = true,
    .but = { "pixeldit" },
    LM_STATES(encoder_gemma2_2b, -2, wording),
    .speech = &lm_speech_bare,
};
