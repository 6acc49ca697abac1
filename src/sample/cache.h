/* cache: steps whose answer is close enough to the last one's (EasyCache, LazyCache).
 *
 * How far an answer moves follows from how far the question does: the rate between the two is
 * measured at every step that is computed. While the estimated change since the last one of these
 * stays below a threshold, the answer is the question plus the difference that was kept.
 *
 * Words      part     one conditioning's share of a call, told apart by its key
 *            watched  the part whose values are compared, every 8th of both axes: the first one
 * Numbers    float32 values, means in double.
 * Threads    Executor. */
#pragma once

#include "base/err.h"
#include "base/vec.h"

#include <stdbool.h>

struct step_cache { /* of one run; the first five are set by the caller, the rest is zero */
    double threshold;
    double from, to;  /* noise levels: used from this one down, until above that one */
    bool whole;       /* LazyCache: watches from the first step on */
    uint64_t skipped; /* calls that were not computed */
    struct vec kept;  /* struct step_kept: of each key */
    const void *watched;
    float *x, *out; /* [n] of the watched part at the last step that was computed */
    size_t n;
    double norm, rate, sum; /* mean size of answers; of changes; estimated since then */
    bool known, rated;      /* norm and rate */
    bool skipping;          /* the watched part said so */
    size_t each;            /* what a part's size was */
};
struct step_cache_call {
    float sigma;
    bool first;             /* of the calls of a step */
    size_t parts;           /* each [.., h, w] of `each` values, one behind the other */
    const void *const *key; /* [parts] */
    size_t each, h, w;
    const float *x;
    float *out;
};
/* *skip: out is there. */
berth_status step_cache_begin(struct step_cache *c, const struct step_cache_call *k, bool *skip,
                              berth_err *err);
/* After computing out, where there was no skip. */
berth_status step_cache_end(struct step_cache *c, const struct step_cache_call *k, berth_err *err);
void step_cache_release(struct step_cache *c); /* zeroed is fine */
