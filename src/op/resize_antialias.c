/* Bicubic with antialiasing, as torch has it: along x, then along y. A pixel's taps are all that
 * lie in the reach of the kernel, which grows with the source where that is the larger one. */
#include "op/resize_impl.h"

#include "base/sz.h"

#include <math.h>
#include <stdlib.h>

#define REACH 2.0f /* of the kernel, in pixels of the coarser side */
#define GROUP 4    /* products whose sum torch's build does not fuse */

/* Keys' cubic with a = -1/2. Fused where torch's build fuses: pixels are rounded to 8 bits behind
 * this, and the last bit decides some of them. */
static float kernel(float x)
{
    const float a = -0.5f;
    x = fabsf(x);
    if (x < 1.0f)
        return fmaf(fmaf(a + 2.0f, x, -(a + 3.0f)) * x, x, 1.0f);
    return x < 2.0f ? fmaf(fmaf(x - 5.0f, x, 8.0f), x, -4.0f) * a : 0.0f;
}

struct taps {    /* of every pixel of a side */
    size_t most; /* of one */
    size_t *first, *n;
    float *w; /* [pixels, most] */
};

static void taps_release(struct taps *t)
{
    free(t->first);
    free(t->n);
    free(t->w);
    *t = (struct taps) { 0 };
}

static void fill_pixel(const struct taps *t, size_t in, float scale, size_t i)
{
    const float reach = scale >= 1.0f ? REACH * scale : REACH;
    const float by = scale >= 1.0f ? 1.0f / scale : 1.0f, center = scale * ((float)i + 0.5f);
    const float low = center - reach + 0.5f, high = center + reach + 0.5f;
    const size_t from = low > 0 ? (size_t)low : 0, to = (size_t)high < in ? (size_t)high : in;
    float *w = t->w + i * t->most, sum = 0;
    t->first[i] = from;
    t->n[i] = to - from;
    for (size_t k = 0; k < to - from; k++) {
        w[k] = kernel(((float)(k + from) - center + 0.5f) * by);
        sum += w[k];
    }
    for (size_t k = 0; k < to - from; k++)
        w[k] /= sum;
}

static berth_status taps_init(struct taps *t, size_t in, size_t out, berth_err *err)
{
    const float scale = (float)in / (float)out;
    size_t count, bytes;
    *t = (struct taps) { .most = (size_t)ceilf(2 * (scale >= 1.0f ? REACH * scale : REACH)) + 2 };
    t->first = calloc(out, sizeof *t->first);
    t->n = calloc(out, sizeof *t->n);
    if (sz_mul(out, t->most, &count) && sz_mul(count, sizeof *t->w, &bytes))
        t->w = malloc(bytes);
    if (!t->first || !t->n || !t->w)
        return err_set(err, BERTH_ENOMEM, "weights for %zu pixels", out);
    for (size_t i = 0; i < out; i++)
        fill_pixel(t, in, scale, i);
    return BERTH_OK;
}

static float weighted(const float *at, size_t apart, const float *w, size_t n)
{
    float sum = at[0] * w[0];
    size_t k = 1;
    for (; n - k >= GROUP; k += GROUP)
        for (size_t q = k; q < k + GROUP; q++)
            sum += at[q * apart] * w[q];
    for (; k < n; k++)
        sum = fmaf(at[k * apart], w[k], sum);
    return sum;
}

struct job {
    const struct resize_job *of;
    struct taps x, y;
    float *between; /* [n, h, ow, c] */
};

static void along_x(void *user, size_t i, size_t worker)
{
    const struct job *j = user;
    const struct resize_shape *s = j->of->s;
    const float *row = j->of->src + i * s->w * s->c;
    float *d = j->between + i * s->ow * s->c;
    (void)worker;
    for (size_t x = 0; x < s->ow; x++)
        for (size_t k = 0; k < s->c; k++)
            *d++ =
                weighted(row + j->x.first[x] * s->c + k, s->c, j->x.w + x * j->x.most, j->x.n[x]);
}

static void along_y(void *user, size_t i, size_t worker)
{
    const struct job *j = user;
    const struct resize_shape *s = j->of->s;
    const size_t y = i % s->oh, row = s->ow * s->c;
    const float *from = j->between + (i / s->oh * s->h + j->y.first[y]) * row;
    float *d = j->of->dst + i * row;
    (void)worker;
    for (size_t k = 0; k < row; k++)
        d[k] = weighted(from + k, row, j->y.w + y * j->y.most, j->y.n[y]);
}

berth_status resize_antialias(const struct resize_job *of, berth_err *err)
{
    const struct resize_shape *s = of->s;
    struct job j = { .of = of };
    size_t bytes;
    berth_status st = taps_init(&j.x, s->w, s->ow, err);
    if (!st)
        st = taps_init(&j.y, s->h, s->oh, err);
    if (!st && (!resize_bytes(s->n, s->h, s->ow, s->c, &bytes) || !(j.between = malloc(bytes))))
        st = resize_failed(s, BERTH_ENOMEM, err);
    if (!st) {
        resize_rows(of, s->n * s->h, s->n * s->h * s->ow * s->c * j.x.most, along_x, &j);
        resize_rows(of, s->n * s->oh, s->n * s->oh * s->ow * s->c * j.y.most, along_y, &j);
    }
    free(j.between);
    taps_release(&j.x);
    taps_release(&j.y);
    return st;
}
