/* nearest-exact, bilinear, bicubic: a few taps along each axis. area: the mean of a window. */
#include "op/resize_impl.h"

#include "base/sz.h"

#include <math.h>

#define TAPS_MAX 4
#define INLINE_ROW 16384 /* samples below which a pool costs more than it brings */

bool resize_parse(const char *name, enum resize *out)
{
    static const char *const names[] = { "nearest-exact", "bilinear", "area",
                                         "bicubic",       "lanczos",  "bislerp" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum resize)i;
            return true;
        }
    return false;
}

static bool canceled(const struct resize_job *j)
{
    return j->cancel && atomic_load_explicit(j->cancel, memory_order_relaxed);
}

struct rows {
    const struct resize_job *job;
    tpool_fn *fn;
    void *user;
};

static void row(void *user, size_t i, size_t worker)
{
    const struct rows *r = user;
    if (!canceled(r->job))
        r->fn(r->user, i, worker);
}

void resize_rows(const struct resize_job *j, size_t n, size_t samples, tpool_fn *fn, void *user)
{
    struct rows r = { j, fn, user };
    if (j->pool && samples >= INLINE_ROW)
        tpool_for(j->pool, n, row, &r);
    else
        for (size_t i = 0; i < n; i++)
            row(&r, i, 0);
}

/* ---- taps ---- */

/* The centre of pixel i, as a position in the source. One rounding: torch's build fuses the product
 * and the difference, and where the result is a whole number, the last bit decides which pixels are
 * neighbours. */
static float center(const struct resize_axis *a, size_t i)
{
    return fmaf(a->scale, (float)i + 0.5f, -0.5f);
}

struct taps { /* for every output position: `n` source positions and their weights */
    size_t n;
    size_t *at;
    float *w;
};

struct resize_pair resize_pair_at(const struct resize_axis *a, size_t i)
{
    float x = center(a, i);
    x = x < 0 ? 0 : x;
    size_t i0 = (size_t)x;
    i0 = i0 < a->in - 1 ? i0 : a->in - 1;
    float w1 = x - (float)i0;
    w1 = w1 < 0 ? 0 : w1 > 1 ? 1 : w1;
    return (struct resize_pair) { i0, i0 + 1 < a->in ? i0 + 1 : i0, 1 - w1, w1 };
}

static void nearest_at(const struct resize_axis *a, size_t i, size_t *at, float *w)
{
    float c = center(a, i);
    size_t x = (size_t)((c < 0 ? 0 : c) + 0.5f);
    *at = x < a->in - 1 ? x : a->in - 1;
    *w = 1;
}

static void nearest_direct_at(const struct resize_axis *a, size_t i, size_t *at, float *w)
{
    size_t x = (size_t)(float)(((double)i + 0.5) * (double)a->scale);
    *at = x < a->in - 1 ? x : a->in - 1;
    *w = 1;
}

static void bilinear_at(const struct resize_axis *a, size_t i, size_t *at, float *w)
{
    struct resize_pair p = resize_pair_at(a, i);
    at[0] = p.i0;
    at[1] = p.i1;
    w[0] = p.w0;
    w[1] = p.w1;
}

/* Cubic convolution (Keys) with A = -0.75. */
static float cubic_near(float x) /* 0 <= x <= 1 */
{
    const float A = -0.75f;
    return ((A + 2) * x - (A + 3)) * x * x + 1;
}

static float cubic_far(float x) /* 1 <= x <= 2 */
{
    const float A = -0.75f;
    return ((A * x - 5 * A) * x + 8 * A) * x - 4 * A;
}

static void bicubic_at(const struct resize_axis *a, size_t i, size_t *at, float *w)
{
    float x = center(a, i); /* may lie before the first pixel */
    float whole = floorf(x), t = x - whole;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    for (int k = 0; k < 4; k++) {
        float p = whole + (float)(k - 1);
        at[k] = p <= 0 ? 0 : (size_t)p < a->in ? (size_t)p : a->in - 1;
    }
    w[0] = cubic_far(t + 1);
    w[1] = cubic_near(t);
    w[2] = cubic_near(1 - t);
    w[3] = cubic_far(2 - t);
}

typedef void tap_fn(const struct resize_axis *a, size_t i, size_t *at, float *w);
static const struct {
    size_t n;
    tap_fn *at;
} tap_kinds[] = {
    [RESIZE_NEAREST] = { 1, nearest_at },
    [RESIZE_BILINEAR] = { 2, bilinear_at },
    [RESIZE_BICUBIC] = { 4, bicubic_at },
};

static berth_status taps_init(struct taps *t, enum resize method, bool direct, size_t in,
                              size_t out, berth_err *err)
{
    size_t n = tap_kinds[method].n, count;
    tap_fn *fill = direct && method == RESIZE_NEAREST ? nearest_direct_at : tap_kinds[method].at;
    struct resize_axis a = resize_axis(in, out);
    *t = (struct taps) { .n = n };
    if (sz_mul(out, n, &count) && count <= SIZE_MAX / sizeof *t->at) {
        t->at = malloc(count * sizeof *t->at);
        t->w = malloc(count * sizeof *t->w);
    }
    if (!t->at || !t->w)
        return err_set(err, BERTH_ENOMEM, "weights for %zu pixels", out);
    for (size_t i = 0; i < out; i++)
        fill(&a, i, t->at + i * n, t->w + i * n);
    return BERTH_OK;
}

static void taps_release(struct taps *t)
{
    free(t->at);
    free(t->w);
    *t = (struct taps) { 0 };
}

/* ---- rows ---- */

struct job {
    struct resize_job of;
    struct taps x, y;
};

/* One source row, resampled along x, times wy, set into or added to d. C and N are constants where
 * this is inlined. */
static inline __attribute__((always_inline)) void row_pass(const size_t C, const size_t N,
                                                           const struct job *j, const float *row,
                                                           float wy, bool add, float *d)
{
    const size_t *at = j->x.at;
    const float *w = j->x.w;
    for (size_t x = 0; x < j->of.s->ow; x++, at += N, w += N, d += C)
        for (size_t k = 0; k < C; k++) {
            float v = w[0] * row[at[0] * C + k];
            for (size_t i = 1; i < N; i++)
                v += w[i] * row[at[i] * C + k];
            d[k] = add ? d[k] + wy * v : wy * v;
        }
}

static void row_any(size_t C, const struct job *j, const float *row, float wy, bool add, float *d)
{
    size_t N = j->x.n;
#define CASE(c, n)                                                                                 \
    if (C == c && N == n)                                                                          \
    return row_pass(c, n, j, row, wy, add, d)
    CASE(1, 1);
    CASE(1, 2);
    CASE(1, 4);
    CASE(3, 1);
    CASE(3, 2);
    CASE(3, 4);
    CASE(4, 1);
    CASE(4, 2);
    CASE(4, 4);
#undef CASE
    row_pass(C, N, j, row, wy, add, d);
}

static void taps_row(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct job *j = user;
    const struct resize_shape *s = j->of.s;
    size_t plane = i / s->oh, y = i % s->oh;
    const float *src = j->of.src + plane * s->h * s->w * s->c;
    float *d = j->of.dst + i * s->ow * s->c;
    for (size_t k = 0; k < j->y.n; k++)
        row_any(s->c, j, src + j->y.at[y * j->y.n + k] * s->w * s->c, j->y.w[y * j->y.n + k], k > 0,
                d);
}

static berth_status by_taps(enum resize method, const struct resize_job *of, size_t samples,
                            berth_err *err)
{
    struct job j = { .of = *of };
    const struct resize_shape *s = of->s;
    /* torch has two ways to the nearest pixel, which differ where a centre falls between two; this
     * one is for small results, and for pictures whose channels lie side by side if they are more
     * than 3. */
    bool direct = s->oh + s->ow <= 128 || s->c > 3;
    berth_status st = taps_init(&j.x, method, direct, s->w, s->ow, err);
    if (!st)
        st = taps_init(&j.y, method, direct, s->h, s->oh, err);
    if (!st)
        resize_rows(of, s->n * s->oh, samples, taps_row, &j);
    taps_release(&j.x);
    taps_release(&j.y);
    return st;
}

/* ---- area ---- */

/* Output i of `out` covers the source pixels [start, end): those that it touches at all. */
struct window {
    size_t start, end;
};

static struct window window_of(size_t i, size_t in, size_t out)
{
    return (struct window) { i / out * in + i % out * in / out, 1 + ((i + 1) * in - 1) / out };
}

static void area_row(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct resize_job *j = user;
    const struct resize_shape *s = j->s;
    size_t plane = i / s->oh, c = s->c;
    struct window v = window_of(i % s->oh, s->h, s->oh);
    const float *src = j->src + plane * s->h * s->w * c;
    float *d = j->dst + i * s->ow * c;
    for (size_t x = 0; x < s->ow; x++) {
        struct window h = window_of(x, s->w, s->ow);
        for (size_t k = 0; k < c; k++) {
            float sum = 0;
            for (size_t r = v.start; r < v.end; r++)
                for (size_t q = h.start; q < h.end; q++)
                    sum += src[(r * s->w + q) * c + k];
            *d++ = sum / (float)(v.end - v.start) / (float)(h.end - h.start);
        }
    }
}

/* ---- the doors ---- */

bool resize_bytes(size_t n, size_t h, size_t w, size_t c, size_t *out)
{
    *out = sizeof(float);
    return sz_mul(*out, n, out) && sz_mul(*out, h, out) && sz_mul(*out, w, out) &&
           sz_mul(*out, c, out);
}

berth_status resize_failed(const struct resize_shape *s, berth_status code, berth_err *err)
{
    return err_set(err, code, "resizing %zu x %zu x %zu to %zu x %zu", s->w, s->h, s->c, s->ow,
                   s->oh);
}

static berth_status check(const struct resize_shape *s, berth_err *err)
{
    size_t bytes;
    if (!s->h || !s->w || !s->oh || !s->ow || !s->c)
        return resize_failed(s, BERTH_EINVAL, err);
    if (!resize_bytes(s->n, s->h, s->w, s->c, &bytes) ||
        !resize_bytes(s->n, s->oh, s->ow, s->c, &bytes))
        return resize_failed(s, BERTH_ELIMIT, err);
    /* torch counts in float, and so do we: sides beyond that have no exact positions. */
    if (s->h > RESIZE_SIDE_MAX || s->w > RESIZE_SIDE_MAX || s->oh > RESIZE_SIDE_MAX ||
        s->ow > RESIZE_SIDE_MAX)
        return err_set(err, BERTH_ELIMIT, "resizing %zu x %zu to %zu x %zu: a side is over %d",
                       s->w, s->h, s->ow, s->oh, RESIZE_SIDE_MAX);
    return BERTH_OK;
}

static berth_status resize(enum resize method, struct resize_job *j, berth_err *err)
{
    const struct resize_shape *s = j->s;
    if (check(s, err))
        return err->code;
    size_t samples = s->n * s->oh * s->ow * s->c;
    berth_status st = BERTH_OK;
    if (!s->n)
        return BERTH_OK;
    if (method == RESIZE_AREA)
        resize_rows(j, s->n * s->oh, samples, area_row, j);
    else
        st = method == RESIZE_LANCZOS     ? resize_lanczos(j, err)
             : method == RESIZE_BISLERP   ? resize_bislerp(j, err)
             : method == RESIZE_ANTIALIAS ? resize_antialias(j, err)
                                          : by_taps(method, j, samples, err);
    return !st && canceled(j) ? resize_failed(s, BERTH_ECANCELED, err) : st;
}

berth_status op_resize(enum resize method, const struct resize_shape *s, const float *src,
                       float *dst, struct tpool *pool, const atomic_bool *cancel, berth_err *err)
{
    struct resize_job j = { s, src, dst, pool, cancel };
    if (method == RESIZE_BISLERP)
        return err_set(err, BERTH_EINVAL, "bislerp works on planar data: op_bislerp()");
    return resize(method, &j, err);
}

berth_status op_bislerp(const struct resize_shape *s, const float *src, float *dst,
                        struct tpool *pool, const atomic_bool *cancel, berth_err *err)
{
    struct resize_job j = { s, src, dst, pool, cancel };
    return resize(RESIZE_BISLERP, &j, err);
}

/* x, so that what is left of `in` between x and in - x has the wanted aspect; never nothing. */
static size_t margin(size_t in, double keep)
{
    double m =
        rint(((double)in - (double)in * keep) / 2); /* halves to even, like Python's round() */
    return m * 2 < (double)in ? (size_t)m : (in - 1) / 2;
}

struct resize_crop resize_center(size_t w, size_t h, size_t ow, size_t oh)
{
    double have = (double)w / (double)h, want = (double)ow / (double)oh;
    size_t x = have > want ? margin(w, want / have) : 0;
    size_t y = have < want ? margin(h, have / want) : 0;
    return (struct resize_crop) { x, y, w - 2 * x, h - 2 * y };
}
