/* resize_impl: what resize.c, resize_lanczos.c, resize_antialias.c and bislerp.c share; resize2d.c
 * takes the axes from here. */
#pragma once

#include "op/resize.h"

#define RESIZE_SIDE_MAX (1 << 22) /* floats count halves up to here */

/* Where pixel i of `out` looks in a row of `in`: its centre, as torch computes it in float with
 * align_corners=False. */
struct resize_axis {
    size_t in, out;
    float scale;
};

static inline struct resize_axis resize_axis(size_t in, size_t out)
{
    return (struct resize_axis) { in, out, (float)in / (float)out };
}

/* Two neighbours and the weight of the second; torch's bilinear. */
struct resize_pair {
    size_t i0, i1;
    float w0, w1;
};
struct resize_pair resize_pair_at(const struct resize_axis *a, size_t i);

struct resize_job {
    const struct resize_shape *s;
    const float *src;
    float *dst;
    struct tpool *pool;        /* may be NULL, as the next */
    const atomic_bool *cancel; /* checked before each row */
};

/* fn for every row in [0, n), on the pool when there is one and the work (samples in all) is worth
 * it. Each row is one call, so threads change no number. Rows after a cancel are
 * left out; the doors look once more at the end. */
void resize_rows(const struct resize_job *j, size_t n, size_t samples, tpool_fn *fn, void *user);
/* Bytes of [n, h, w, c] floats, false where they do not fit. */
bool resize_bytes(size_t n, size_t h, size_t w, size_t c, size_t *out);
/* "resizing 4 x 4 x 3 to 8 x 8". */
berth_status resize_failed(const struct resize_shape *s, berth_status code, berth_err *err);

berth_status resize_lanczos(const struct resize_job *j, berth_err *err);
berth_status resize_antialias(const struct resize_job *j, berth_err *err);
berth_status resize_bislerp(const struct resize_job *j, berth_err *err);
