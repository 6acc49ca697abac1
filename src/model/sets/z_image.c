/* Z-Image: Qwen3 4B, what leaves its last layer but one, as it is (z-image.md 3). */
#include "model/sets/lm.h"

static const struct text_wording wording = { .chat = &chat_qwen, .embeddings = true };

static const struct text_speech speech = { .before = CHAT_QWEN_USER,
                                           .after = CHAT_QWEN_END,
                                           .always = true };

const struct text_set text_set_z_image = {
    .name = "Z-Image",
    .types = { "lumina2" },
    .any_type = true,
    LM_STATES(encoder_qwen3_4b, -2, wording),
    .speech = &speech,
};
