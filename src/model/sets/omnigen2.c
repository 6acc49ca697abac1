/* OmniGen2: Qwen2.5 3B, its result (llm-encoders.md 3.7). Its words are weighted. */
#include "model/sets/lm.h"

static const struct chat_template chat = {
    .before = "<|im_start|>system\nYou are a helpful assistant that generates high-quality images "
              "based on user instructions.<|im_end|>\n" CHAT_QWEN_USER,
    .after = "<|im_end|>\n",
};
static const struct text_wording wording = { .chat = &chat, .weights = true };

const struct text_set text_set_omnigen2 = {
    .name = "OmniGen2",
    .types = { "omnigen2" },
    .any_type = true,
    LM_STATES(encoder_qwen25_3b, 0, wording),
};
