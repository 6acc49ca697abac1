/* speech: which token a language model says next (llm-encoders.md 5.2).
 *
 * Numbers   as torch on a cpu has them: floats, and one draw of an exponential for each candidate,
 *           from the Mersenne Twister. A card of ComfyUI's draws other ones.
 * Memory    of the caller's: a list of candidates as long as the vocabulary, once. */
#pragma once

#include "base/err.h"
#include "base/mt19937.h"
#include "base/vec.h"

#include <stdbool.h>

#define SPEECH_ROOM 1024

struct speech_how {
    uint32_t most; /* tokens */
    uint32_t room; /* tokens for which memory is taken at a time; 0: SPEECH_ROOM */
    bool sample;   /* false: the likeliest each time; the numbers below are not looked at */
    double temperature;
    uint32_t top_k; /* 0: any */
    double top_p, min_p, repetition, presence;
    uint64_t seed;
    /* What was said, one by one; not BERTH_OK: no more. May be NULL. */
    berth_status (*said)(void *user, int32_t id, berth_err *err);
    void *user;
};

struct speech { /* speech_release() */
    const struct speech_how *how;
    struct mt19937 dice;
    struct candidate {
        float z, p; /* logit, what it counts */
        int32_t id;
        bool out; /* not to be said */
    } * list;
    size_t vocab;
};
berth_status speech_init(struct speech *s, const struct speech_how *how, size_t vocab,
                         berth_err *err);
void speech_release(struct speech *s);
/* The next token. logits: [vocab], changed; said: int32_t, what came before. */
int32_t speech_next(struct speech *s, float *logits, const struct vec *said);
