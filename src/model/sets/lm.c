/* Language models without a diffusion model of their own: what they are loaded as where no type
 * asks for more (llm-encoders.md 1.6), to write text above all. */
#include "model/sets/lm.h"

const struct text_speech lm_speech_bare = { .before = "", .after = "" };

static const char *const qwen_begins[] = { "<|im_start|>", NULL };
static const struct chat_template quick = { .before = CHAT_QWEN_USER,
                                            .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
                                            .unless = qwen_begins };
static const struct chat_template quick_seen = { .before = CHAT_QWEN_USER CHAT_QWEN_IMAGE,
                                                 .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
                                                 .unless = qwen_begins };
static const struct text_wording qwen3vl = { .chat = &quick,
                                             .chat_seen = &quick_seen,
                                             .embeddings = true };

static const struct text_speech speech = {
    .before = CHAT_QWEN_USER,
    .picture = CHAT_QWEN_IMAGE,
    .after = CHAT_QWEN_END CHAT_QWEN_NO_THOUGHT,
    .after_thinking = CHAT_QWEN_END,
    .unless = qwen_begins,
};

#define QWEN3VL(x, ...)                                                                            \
    const struct text_set text_set_qwen3vl_##x = { .name = "Qwen3-VL",                             \
                                                   .any_type = true,                               \
                                                   .but = { __VA_ARGS__ },                         \
                                                   LM_STATES(encoder_qwen3vl_##x, -1, qwen3vl),    \
                                                   .speech = &speech }
QWEN3VL(4b, "mage", "flux", "flux2");
QWEN3VL(8b, "ideogram4", "boogu", "joyimage", "flux", "flux2");

/* Qwen3.5 thinks in lines of its own. */
#define QWEN35_NO_THOUGHT "<think>\n</think>\n"
static const struct chat_template quick35 = { .before = CHAT_QWEN_USER,
                                              .after = CHAT_QWEN_END QWEN35_NO_THOUGHT,
                                              .unless = qwen_begins };
static const struct chat_template quick35_seen = { .before = CHAT_QWEN_USER CHAT_QWEN_IMAGE,
                                                   .after = CHAT_QWEN_END QWEN35_NO_THOUGHT,
                                                   .unless = qwen_begins };
static const struct text_wording qwen35 = { .chat = &quick35,
                                            .chat_seen = &quick35_seen,
                                            .embeddings = true };
static const struct text_speech speech35 = {
    .before = CHAT_QWEN_USER,
    .picture = CHAT_QWEN_IMAGE,
    .after = CHAT_QWEN_END QWEN35_NO_THOUGHT,
    .after_thinking = CHAT_QWEN_END,
    .unless = qwen_begins,
    .always = true,
};

#define QWEN35(x)                                                                                  \
    const struct text_set text_set_qwen35_##x = { .name = "Qwen3.5",                               \
                                                  .any_type = true,                                \
                                                  LM_STATES(encoder_qwen35_##x, -2, qwen35),       \
                                                  .speech = &speech35 }
QWEN35(08b);
QWEN35(2b);
QWEN35(4b);
QWEN35(9b);
QWEN35(27b);

static const struct text_wording as_it_is = { .chat = NULL };

#define GEMMA_TURN                                                                                 \
    .before = "<start_of_turn>system\nYou are a helpful assistant.<end_of_turn>\n"                 \
              "<start_of_turn>user\n",                                                             \
    .after = "<end_of_turn>\n<start_of_turn>model\n", .unless = (const char *const[])              \
    {                                                                                              \
        "<start_of_turn>", NULL                                                                    \
    }
static const struct text_speech gemma3 = { GEMMA_TURN };
/* Its prompts are padded also where it writes, and the padding counts (llm-encoders.md 5.3). */
static const struct text_speech gemma3_12b = { GEMMA_TURN, .min_length = 1024 };

/* What it gives is LTX-2's to join. */
static berth_status no_join(const struct text_result *r, size_t n, struct arena *mem,
                            struct text_cond *out, berth_err *err)
{
    (void)r, (void)n, (void)mem, (void)out;
    return err_set(err, BERTH_EUNSUPPORTED,
                   "Gemma 3 12B alone makes no conditioning: it is for writing text");
}

const struct text_set text_set_gemma3_12b = {
    .name = "Gemma 3 12B",
    .any_type = true,
    .use = { { &encoder_gemma3_12b,
               { .layer = 0 },
               .cond = true,
               .min_length = 1024,
               .pad_left = true,
               .wording = &as_it_is } },
    .join = no_join,
    .speech = &gemma3_12b,
};

const struct text_set text_set_gemma3_4b = {
    .name = "Gemma 3",
    .any_type = true,
    LM_STATES(encoder_gemma3_4b, -2, as_it_is),
    .speech = &gemma3,
};
