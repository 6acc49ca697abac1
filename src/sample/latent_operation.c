#include "sample/latent_operation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RADIUS_MAX 31

struct item {      /* one of the batch */
    size_t c, px;  /* channels, pixels of each */
    float *length; /* [px] */
};

static void lengths(const struct item *it, const float *x, double more)
{
    for (size_t p = 0; p < it->px; p++) {
        double sum = 0;
        for (size_t k = 0; k < it->c; k++)
            sum += (double)x[k * it->px + p] * (double)x[k * it->px + p];
        it->length[p] = (float)(sqrt(sum) + more);
    }
}

/* ---- tonemap ---- */

static void tonemap(const struct item *it, double multiplier, const float *x, float *out)
{
    double sum = 0, squares = 0;
    lengths(it, x, 1e-10);
    for (size_t p = 0; p < it->px; p++)
        sum += (double)it->length[p];
    double mean = sum / (double)it->px;
    for (size_t p = 0; p < it->px; p++)
        squares += ((double)it->length[p] - mean) * ((double)it->length[p] - mean);
    double std = sqrt(squares / ((double)it->px - 1)); /* of one pixel: NaN, as in torch */
    double top = (5 * std + mean) * multiplier;
    for (size_t i = 0; i < it->c * it->px; i++) {
        double old = (double)it->length[i % it->px], m = old * (1 / top);
        out[i] = (float)((double)x[i] / old * (m / (m + 1) * top));
    }
}

/* ---- sharpen ---- */

struct taps {
    int radius;
    double at[2 * RADIUS_MAX + 1];
};

static void gaussian(unsigned radius, double sigma, struct taps *t)
{
    double sum = 0;
    t->radius = (int)radius;
    for (int i = 0; i <= 2 * t->radius; i++) { /* it reaches from -1 to 1 */
        double x = (double)(i - t->radius) / t->radius;
        sum += t->at[i] = exp(-x * x / (2 * sigma * sigma));
    }
    for (int i = 0; i <= 2 * t->radius; i++)
        t->at[i] /= sum;
}

static size_t mirror(ptrdiff_t i, size_t n) /* pre: |overshoot| < n */
{
    if (i < 0)
        return (size_t)-i;
    return (size_t)i < n ? (size_t)i : 2 * (n - 1) - (size_t)i;
}

/* `lines` lines of n values, `step` apart, the next line `next` behind. */
static void blur(const struct taps *t, const float *x, float *out, size_t lines, size_t next,
                 size_t n, size_t step)
{
    for (size_t l = 0; l < lines; l++)
        for (size_t i = 0; i < n; i++) {
            double sum = 0;
            for (int k = -t->radius; k <= t->radius; k++)
                sum +=
                    t->at[k + t->radius] * (double)x[l * next + mirror((ptrdiff_t)i + k, n) * step];
            out[l * next + i * step] = (float)sum;
        }
}

/* room: two planes. */
static void sharpen(const struct item *it, const struct latent_operation *op, size_t w,
                    const float *x, float *out, float *room)
{
    struct taps t;
    size_t h = it->px / w;
    float *plane = room, *half = room + it->px;
    gaussian(op->radius, op->sigma, &t);
    lengths(it, x, 1e-6);
    for (size_t k = 0; k < it->c; k++) {
        const float *from = x + k * it->px;
        float *to = out + k * it->px;
        for (size_t p = 0; p < it->px; p++)
            plane[p] = from[p] / it->length[p];
        blur(&t, plane, half, h, w, w, 1);
        for (size_t p = 0; p < it->px; p++)
            to[p] = plane[p];
        blur(&t, half, plane, w, 1, h, w);
        for (size_t p = 0; p < it->px; p++) {
            double d = (double)to[p];
            to[p] = (float)((d + 10 * op->alpha * (d - (double)plane[p])) * (double)it->length[p]);
        }
    }
}

static berth_status check(const struct latent_operation *op, const struct shape *s, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (s->ndim < 2)
        return err_set(err, BERTH_EINVAL, "a latent %s has no channels", shape_text(s, text));
    if (op->kind != LATENT_SHARPEN)
        return BERTH_OK;
    if (!op->radius || op->radius > RADIUS_MAX || !(op->sigma > 0))
        return err_set(err, BERTH_EINVAL, "a kernel of radius %u, sigma %g", op->radius, op->sigma);
    if (s->ndim != 4 || s->dim[2] <= op->radius || s->dim[3] <= op->radius)
        return err_set(
            err, BERTH_EINVAL,
            "sharpening with radius %u wants a latent [n, c, h, w] with longer sides and "
            "got %s",
            op->radius, shape_text(s, text));
    return BERTH_OK;
}

berth_status latent_operation_run(const struct latent_operation *op, const struct shape *s,
                                  const float *x, float *out, berth_err *err)
{
    size_t px = 1, n;
    if (check(op, s, err))
        return err->code;
    n = (size_t)s->dim[0];
    for (int i = 2; i < s->ndim; i++)
        px *= (size_t)s->dim[i];
    float *room = calloc(3 * (px ? px : 1), sizeof *room);
    if (!room)
        return err_set(err, BERTH_ENOMEM, "lengths of %zu latent pixels", px);
    struct item it = { .c = (size_t)s->dim[1], .px = px, .length = room };
    for (size_t i = 0; i < n; i++) {
        const float *from = x + i * it.c * px;
        float *to = out + i * it.c * px;
        if (op->kind == LATENT_TONEMAP)
            tonemap(&it, op->multiplier, from, to);
        else
            sharpen(&it, op, (size_t)s->dim[3], from, to, room + px);
    }
    free(room);
    return BERTH_OK;
}

void latent_operation_put(const struct latent_operation *op, double *p)
{
    double all[LATENT_OPERATION_NUMBERS] = { op->kind, op->multiplier, op->radius, op->sigma,
                                             op->alpha };
    memcpy(p, all, sizeof all);
}

struct latent_operation latent_operation_get(const double *p)
{
    return (struct latent_operation) { .kind = p[0] > 0 ? LATENT_SHARPEN : LATENT_TONEMAP,
                                       .multiplier = p[1],
                                       .radius = (unsigned)p[2],
                                       .sigma = p[3],
                                       .alpha = p[4] };
}
