/* bislerp: ComfyUI's way to enlarge latents, which rotates between neighbours.
 *
 * A pixel is the vector of its channels. Between two neighbours the direction goes along the great
 * circle and the length goes straight; first along x, then along y. Vectors that point the same way
 * are left as the first of them, opposite ones are mixed straight.
 *
 * Which neighbours, and how far between: the reference resamples the numbers 0 1 2 .. (and 1 2 3
 * .., the last one twice) with its bilinear filter and cuts the results to whole numbers. */
#include "op/resize_impl.h"

#include <math.h>

#define NEARLY 1e-5f /* how close to +-1 a cosine counts as "same" and "opposite" */

struct between {
    size_t a, b;
    float r; /* 0: a, 1: b */
};

static struct between between_at(const struct resize_axis *x, size_t i)
{
    struct resize_pair p = resize_pair_at(x, i);
    size_t last = x->in - 1;
    size_t n0 = p.i0 < last ? p.i0 + 1 : last, n1 = p.i1 < last ? p.i1 + 1 : last;
    float at = p.w0 * (float)p.i0 + p.w1 * (float)p.i1;
    float next = p.w0 * (float)n0 + p.w1 * (float)n1;
    return (struct between) { (size_t)at, (size_t)next, at - floorf(at) };
}

struct job {
    const struct resize_job *of; /* src [n][c][h][w], dst [n][c][oh][ow] */
    float *mid;                  /* [n][c][h][ow] */
    struct between *x, *y;
};

/* One pixel: c channels, `plane` floats apart in the source and dplane in the result. */
static void slerp(const float *a, const float *b, float r, size_t c, size_t plane, float *d,
                  size_t dplane)
{
    float aa = 0, bb = 0, dot = 0;
    for (size_t k = 0; k < c; k++) {
        aa += a[k * plane] * a[k * plane];
        bb += b[k * plane] * b[k * plane];
    }
    float na = sqrtf(aa), nb = sqrtf(bb);
    for (size_t k = 0; k < c; k++) {
        float ua = na == 0 ? 0 : a[k * plane] / na, ub = nb == 0 ? 0 : b[k * plane] / nb;
        dot += ua * ub;
    }
    if (dot > 1 - NEARLY) {
        for (size_t k = 0; k < c; k++)
            d[k * dplane] = a[k * plane];
        return;
    }
    if (dot < NEARLY - 1) {
        for (size_t k = 0; k < c; k++)
            d[k * dplane] = a[k * plane] * (1 - r) + b[k * plane] * r;
        return;
    }
    float omega = acosf(dot), so = sinf(omega), length = na * (1 - r) + nb * r;
    float wa = sinf((1 - r) * omega) / so, wb = sinf(r * omega) / so;
    for (size_t k = 0; k < c; k++) {
        float ua = na == 0 ? 0 : a[k * plane] / na, ub = nb == 0 ? 0 : b[k * plane] / nb;
        d[k * dplane] = (wa * ua + wb * ub) * length;
    }
}

static void x_row(void *user, size_t i, size_t worker) /* i: picture and source row */
{
    (void)worker;
    const struct job *j = user;
    const struct resize_shape *s = j->of->s;
    size_t n = i / s->h, y = i % s->h, plane = s->h * s->w, dplane = s->h * s->ow;
    const float *row = j->of->src + n * s->c * plane + y * s->w;
    float *d = j->mid + n * s->c * dplane + y * s->ow;
    for (size_t x = 0; x < s->ow; x++)
        slerp(row + j->x[x].a, row + j->x[x].b, j->x[x].r, s->c, plane, d + x, dplane);
}

static void y_row(void *user, size_t i, size_t worker) /* i: picture and result row */
{
    (void)worker;
    const struct job *j = user;
    const struct resize_shape *s = j->of->s;
    size_t n = i / s->oh, y = i % s->oh, plane = s->h * s->ow, dplane = s->oh * s->ow;
    const float *a = j->mid + n * s->c * plane + j->y[y].a * s->ow;
    const float *b = j->mid + n * s->c * plane + j->y[y].b * s->ow;
    float *d = j->of->dst + n * s->c * dplane + y * s->ow;
    for (size_t x = 0; x < s->ow; x++)
        slerp(a + x, b + x, j->y[y].r, s->c, plane, d + x, dplane);
}

static struct between *axis(size_t in, size_t out)
{
    struct resize_axis a = resize_axis(in, out);
    struct between *t = malloc(out * sizeof *t);
    for (size_t i = 0; t && i < out; i++)
        t[i] = between_at(&a, i);
    return t;
}

berth_status resize_bislerp(const struct resize_job *of, berth_err *err)
{
    const struct resize_shape *s = of->s;
    size_t mid;
    if (!resize_bytes(s->n, s->h, s->ow, s->c, &mid))
        return resize_failed(s, BERTH_ELIMIT, err);
    struct job j = { of, malloc(mid), axis(s->w, s->ow), axis(s->h, s->oh) };
    berth_status st = BERTH_OK;
    if (j.mid && j.x && j.y) {
        resize_rows(of, s->n * s->h, s->n * s->h * s->ow * s->c, x_row, &j);
        resize_rows(of, s->n * s->oh, s->n * s->oh * s->ow * s->c, y_row, &j);
    } else
        st = resize_failed(s, BERTH_ENOMEM, err);
    free(j.mid);
    free(j.x);
    free(j.y);
    return st;
}
