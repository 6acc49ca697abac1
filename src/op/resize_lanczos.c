/* lanczos: Pillow's 8-bit resampling, to the bit.
 *
 * Values are cut to 8 bits, then go through two passes, along x and along y, whose weights are
 * whole numbers with 22 bits behind the point; each pass rounds to 8 bits. A pass is left out where
 * the size stays. With alpha, colours are multiplied by it before and divided by it afterwards. */
#include "op/resize_impl.h"

#include "base/sz.h"

#include <math.h>

#define SUPPORT 3.0 /* half the width of the filter, in pixels of the larger picture */
#define BITS 22
#define HALF (1 << (BITS - 1))
#define BLOCK 256 /* samples of a row that the second pass sums at a time */

struct weights { /* of one axis */
    size_t most; /* per output position */
    size_t *start, *n;
    int32_t *w; /* [out][most] */
};

static double sinc(double x)
{
    const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(x * pi) / (x * pi);
}

static double lanczos(double x)
{
    return x >= -SUPPORT && x < SUPPORT ? sinc(x) * sinc(x / SUPPORT) : 0;
}

static void weights_release(struct weights *k)
{
    free(k->start);
    free(k->n);
    free(k->w);
    *k = (struct weights) { 0 };
}

/* One output position; v: room for k->most weights before they are rounded. */
static void weights_at(struct weights *k, size_t i, size_t in, double scale, double *v)
{
    double stretch = scale < 1 ? 1 : scale, support = SUPPORT * stretch;
    double center = ((double)i + 0.5) * scale, sum = 0;
    double first = center - support + 0.5, last = center + support + 0.5;
    size_t start = first < 0 ? 0 : (size_t)first;
    size_t end = last > (double)in ? in : (size_t)last;
    for (size_t x = start; x < end; x++) {
        double d = (double)(ptrdiff_t)x - center + 0.5;
        v[x - start] = lanczos(d * (1.0 / stretch));
        sum += v[x - start];
    }
    k->start[i] = start;
    k->n[i] = end - start;
    for (size_t x = 0; x < end - start; x++) {
        double w = sum != 0 ? v[x] / sum : v[x];
        k->w[i * k->most + x] = (int32_t)((w < 0 ? -0.5 : 0.5) + w * (1 << BITS));
    }
}

static berth_status weights_init(struct weights *k, size_t in, size_t out, berth_err *err)
{
    double scale = (double)in / (double)out;
    *k = (struct weights) { .most = (size_t)ceil(SUPPORT * (scale < 1 ? 1 : scale)) * 2 + 1 };
    size_t count;
    double *v = malloc(k->most * sizeof *v);
    k->start = malloc(out * sizeof *k->start);
    k->n = malloc(out * sizeof *k->n);
    if (sz_mul(k->most, out, &count) && sz_mul(count, sizeof *k->w, &count))
        k->w = malloc(count);
    berth_status s = BERTH_OK;
    if (!v || !k->start || !k->n || !k->w)
        s = err_set(err, BERTH_ENOMEM, "weights for %zu pixels", out);
    for (size_t i = 0; !s && i < out; i++)
        weights_at(k, i, in, scale, v);
    free(v);
    return s;
}

/* ---- passes ---- */

struct job { /* one picture */
    const struct resize_shape *s;
    const float *src; /* this picture's */
    float *dst;
    struct weights x, y;
    bool do_x, do_y;
    uint8_t *cut;  /* [h][w][c] */
    uint8_t *wide; /* [h][ow][c]; cut itself when the width stays */
    uint8_t *high; /* [oh][ow][c]; wide itself when the height stays */
};

static uint8_t clip(int32_t v)
{
    v >>= BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static uint8_t mul255(unsigned a, unsigned b) /* a * b / 255, rounded */
{
    unsigned t = a * b + 128;
    return (uint8_t)(((t >> 8) + t) >> 8);
}

/* Row i of the source to 8 bits: what is behind the point is cut off, as numpy does. */
static void cut_row(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct job *j = user;
    size_t n = j->s->w * j->s->c;
    const float *s = j->src + i * n;
    uint8_t *d = j->cut + i * n;
    for (size_t k = 0; k < n; k++) {
        float v = 255.0f * s[k];
        d[k] = v >= 255 ? 255 : v > 0 ? (uint8_t)v : 0; /* NaN: 0 */
    }
    if (j->s->c != 4 || !(j->do_x || j->do_y))
        return;
    for (size_t k = 0; k < n; k += 4)
        for (size_t b = 0; b < 3; b++)
            d[k + b] = mul255(d[k + b], d[k + 3]);
}

static inline __attribute__((always_inline)) void x_pass(const size_t C, const struct job *j,
                                                         const uint8_t *s, uint8_t *d)
{
    for (size_t x = 0; x < j->s->ow; x++, d += C) {
        const uint8_t *p = s + j->x.start[x] * C;
        const int32_t *w = j->x.w + x * j->x.most;
        int32_t sum[4] = { HALF, HALF, HALF, HALF };
        for (size_t t = 0; t < j->x.n[x]; t++, p += C)
            for (size_t b = 0; b < C; b++)
                sum[b] += p[b] * w[t];
        for (size_t b = 0; b < C; b++)
            d[b] = clip(sum[b]);
    }
}

static void x_row(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct job *j = user;
    const uint8_t *s = j->cut + i * j->s->w * j->s->c;
    uint8_t *d = j->wide + i * j->s->ow * j->s->c;
    if (j->s->c == 1)
        x_pass(1, j, s, d);
    else if (j->s->c == 3)
        x_pass(3, j, s, d);
    else
        x_pass(4, j, s, d);
}

static void y_row(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct job *j = user;
    size_t row = j->s->ow * j->s->c;
    const uint8_t *s = j->wide + j->y.start[i] * row;
    const int32_t *w = j->y.w + i * j->y.most;
    uint8_t *d = j->high + i * row;
    for (size_t at = 0; at < row; at += BLOCK) {
        size_t n = row - at < BLOCK ? row - at : BLOCK;
        int32_t sum[BLOCK];
        for (size_t k = 0; k < n; k++)
            sum[k] = HALF;
        for (size_t t = 0; t < j->y.n[i]; t++)
            for (size_t k = 0; k < n; k++)
                sum[k] += s[t * row + at + k] * w[t];
        for (size_t k = 0; k < n; k++)
            d[at + k] = clip(sum[k]);
    }
}

static void out_row(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct job *j = user;
    size_t n = j->s->ow * j->s->c;
    uint8_t *s = j->high + i * n;
    float *d = j->dst + i * n;
    if (j->s->c == 4 && (j->do_x || j->do_y))
        for (size_t k = 0; k < n; k += 4)
            for (size_t b = 0; s[k + 3] && b < 3; b++) {
                unsigned v = 255u * s[k + b] / s[k + 3];
                s[k + b] = (uint8_t)(v > 255 ? 255 : v);
            }
    for (size_t k = 0; k < n; k++)
        d[k] = (float)s[k] / 255.0f;
}

static void resize_picture(struct job *j, const struct resize_job *of)
{
    const struct resize_shape *s = j->s;
    resize_rows(of, s->h, s->h * s->w * s->c, cut_row, j);
    if (j->do_x)
        resize_rows(of, s->h, s->h * s->ow * s->c, x_row, j);
    if (j->do_y)
        resize_rows(of, s->oh, s->oh * s->ow * s->c, y_row, j);
    resize_rows(of, s->oh, s->oh * s->ow * s->c, out_row, j);
}

/* Memory for one picture, which all of them use in turn. */
static berth_status job_init(struct job *j, berth_err *err)
{
    const struct resize_shape *s = j->s;
    j->do_x = s->ow != s->w;
    j->do_y = s->oh != s->h;
    berth_status st = weights_init(&j->x, s->w, s->ow, err);
    if (!st)
        st = weights_init(&j->y, s->h, s->oh, err);
    if (st)
        return st;
    /* Sides up to RESIZE_SIDE_MAX and up to 4 channels: every product fits. */
    j->cut = malloc(s->h * s->w * s->c);
    j->wide = j->do_x ? malloc(s->h * s->ow * s->c) : j->cut;
    j->high = j->do_y ? malloc(s->oh * s->ow * s->c) : j->wide;
    if (!j->cut || !j->wide || !j->high)
        return resize_failed(s, BERTH_ENOMEM, err);
    return BERTH_OK;
}

static void job_release(struct job *j)
{
    if (j->do_y)
        free(j->high);
    if (j->do_x)
        free(j->wide);
    free(j->cut);
    weights_release(&j->x);
    weights_release(&j->y);
    *j = (struct job) { 0 };
}

berth_status resize_lanczos(const struct resize_job *of, berth_err *err)
{
    const struct resize_shape *s = of->s;
    if (s->c != 1 && s->c != 3 && s->c != 4)
        return err_set(err, BERTH_EINVAL, "lanczos of %zu channels: it takes 1, 3 or 4", s->c);
    struct job j = { .s = s };
    berth_status st = job_init(&j, err);
    for (size_t i = 0; !st && i < s->n; i++) {
        j.src = of->src + i * s->h * s->w * s->c;
        j.dst = of->dst + i * s->oh * s->ow * s->c;
        resize_picture(&j, of);
    }
    job_release(&j);
    return st;
}
