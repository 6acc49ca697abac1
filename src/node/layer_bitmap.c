/* layer_bitmap.c: a layer as 8 bits, resized and turned as Pillow does it. */
#include "node/layers.h"

#include <math.h>
#include <string.h>

struct layer_bounds layer_bounds(const struct layer_place *p)
{
    double c = cos(p->rotation), s = sin(p->rotation), hw = p->w / 2, hh = p->h / 2;
    double x0 = 0, x1 = 0, y0 = 0, y1 = 0;
    for (int i = 0; i < 4; i++) {
        double dx = i == 1 || i == 2 ? hw : -hw, dy = i >= 2 ? hh : -hh;
        double x = p->x + hw + dx * c - dy * s, y = p->y + hh + dx * s + dy * c;
        x0 = !i || x < x0 ? x : x0;
        x1 = !i || x > x1 ? x : x1;
        y0 = !i || y < y0 ? y : y0;
        y1 = !i || y > y1 ? y : y1;
    }
    struct layer_bounds b = { floor(x0), floor(y0), 0, 0 };
    b.w = ceil(x1) - b.x > 1 ? ceil(x1) - b.x : 1;
    b.h = ceil(y1) - b.y > 1 ? ceil(y1) - b.y : 1;
    return b;
}

/* ---- bits ---- */

static float bits(float v) /* rounded to 8 of them */
{
    return nearbyintf(clamp01(v) * 255.0f) / 255.0f;
}

static berth_status as_rgba(const struct htensor *frame, const struct htensor *alpha,
                            struct htensor **out, berth_err *err)
{
    size_t ch = dim(frame, 3);
    berth_status s = image_tensor(1, dim(frame, 1), dim(frame, 2), 4, out, err);
    for (size_t i = 0, n = s ? 0 : htensor_count(*out) / 4; i < n; i++) {
        for (size_t k = 0; k < 3; k++)
            (*out)->data[4 * i + k] = bits(frame->data[i * ch + k]);
        (*out)->data[4 * i + 3] = alpha ? bits(alpha->data[i]) : 1.0f;
    }
    return s;
}

/* ---- turning: 8-bit samples, colours times alpha, cubic ---- */

struct turn {
    const struct htensor *src; /* values k/255, premultiplied */
    double m[6];               /* from the result's pixels to the source's */
};

static double sample(const struct turn *t, ptrdiff_t y, ptrdiff_t x, size_t k)
{
    ptrdiff_t h = (ptrdiff_t)dim(t->src, 1), w = (ptrdiff_t)dim(t->src, 2);
    y = y < 0 ? 0 : y >= h ? h - 1 : y;
    x = x < 0 ? 0 : x >= w ? w - 1 : x;
    return (double)t->src->data[(size_t)(y * w + x) * 4 + k] * 255;
}

static double cubic(const double v[4], double d)
{
    double a = v[1], b = v[2] - v[0], c = 2 * (v[0] - v[1]) + v[2] - v[3];
    return a + d * (b + d * (c + d * (v[1] - v[0] - v[2] + v[3])));
}

/* The pixel of the source at (x, y); nothing outside. */
static void turned_pixel(const struct turn *t, double x, double y, float *out)
{
    memset(out, 0, 4 * sizeof *out);
    if (!(x >= 0 && y >= 0 && x < (double)dim(t->src, 2) && y < (double)dim(t->src, 1)))
        return;
    ptrdiff_t x0 = (ptrdiff_t)floor(x - 0.5), y0 = (ptrdiff_t)floor(y - 0.5);
    double dx = x - 0.5 - (double)x0, dy = y - 0.5 - (double)y0;
    for (size_t k = 0; k < 4; k++) {
        double row[4];
        for (int r = 0; r < 4; r++) {
            double v[4];
            for (int i = 0; i < 4; i++)
                v[i] = sample(t, y0 - 1 + r, x0 - 1 + i, k);
            row[r] = cubic(v, dx);
        }
        double v = cubic(row, dy);
        out[k] = (float)(v <= 0 ? 0 : v >= 255 ? 255 : floor(v)) / 255.0f;
    }
}

static void premultiply(struct htensor *t)
{
    for (size_t i = 0, n = htensor_count(t); i < n; i += 4)
        for (size_t k = 0; k < 3; k++) {
            int v = (int)nearbyintf(t->data[i + k] * 255.0f) *
                        (int)nearbyintf(t->data[i + 3] * 255.0f) +
                    128;
            t->data[i + k] = (float)(((v >> 8) + v) >> 8) / 255.0f;
        }
}

static void unmultiply(struct htensor *t)
{
    for (size_t i = 0, n = htensor_count(t); i < n; i += 4) {
        int a = (int)nearbyintf(t->data[i + 3] * 255.0f);
        for (size_t k = 0; k < 3 && a && a < 255; k++) {
            int v = 255 * (int)nearbyintf(t->data[i + k] * 255.0f) / a;
            t->data[i + k] = (float)(v < 255 ? v : 255) / 255.0f;
        }
    }
}

/* Quarters of a turn are exact: 1, 2, 3; 0: another angle. */
static int quarters(double degrees)
{
    return degrees == 90 ? 1 : degrees == 180 ? 2 : degrees == 270 ? 3 : 0;
}

static berth_status turn_exactly(const struct htensor *t, int quarter, struct htensor **out,
                                 berth_err *err)
{
    pixel_from_fn *const from[] = { from_turned_270, from_turned_180, from_turned_90 };
    size_t h = dim(t, 1), w = dim(t, 2);
    bool swap = quarter != 2;
    berth_status s = image_tensor(1, swap ? w : h, swap ? h : w, 4, out, err);
    if (!s) /* counter-clockwise */
        move_pixels(t->data, 1, h, w, 4, swap, from[quarter - 1], (*out)->data);
    return s;
}

static double apply(const double *m, double x, double y)
{
    return m[0] * x + m[1] * y + m[2];
}

static double rounded15(double v)
{
    return nearbyint(v * 1e15) / 1e15;
}

/* By `degrees`, counter-clockwise, in a picture that holds all of it. */
static berth_status turn(struct node_call *call, struct htensor *t, double degrees,
                         struct htensor **out, berth_err *err)
{
    double w = (double)dim(t, 2), h = (double)dim(t, 1), a = -degrees * acos(-1.0) / 180;
    double c = rounded15(cos(a)), s = rounded15(sin(a)), lo[2] = { 0 }, hi[2] = { 0 };
    struct turn k = { .src = t, .m = { c, s, 0, -s, c, 0 } };
    double x = apply(k.m, -w / 2, -h / 2), y = apply(k.m + 3, -w / 2, -h / 2);
    k.m[2] = x + w / 2;
    k.m[5] = y + h / 2;
    for (int i = 0; i < 4; i++)
        for (int axis = 0; axis < 2; axis++) {
            double v = apply(k.m + 3 * axis, i == 1 || i == 2 ? w : 0, i >= 2 ? h : 0);
            lo[axis] = !i || v < lo[axis] ? v : lo[axis];
            hi[axis] = !i || v > hi[axis] ? v : hi[axis];
        }
    double nw = ceil(hi[0]) - floor(lo[0]), nh = ceil(hi[1]) - floor(lo[1]);
    x = apply(k.m, -(nw - w) / 2, -(nh - h) / 2);
    y = apply(k.m + 3, -(nw - w) / 2, -(nh - h) / 2);
    k.m[2] = x;
    k.m[5] = y;
    berth_status st = image_tensor(1, (size_t)nh, (size_t)nw, 4, out, err);
    if (st)
        return st;
    premultiply(t);
    float *to = (*out)->data;
    for (size_t row = 0; row < dim(*out, 1) && !(st = call_check(call, err)); row++)
        for (size_t i = 0; i < dim(*out, 2); i++, to += 4) {
            double px = (double)i + 0.5, py = (double)row + 0.5;
            turned_pixel(&k, apply(k.m, px, py), apply(k.m + 3, px, py), to);
        }
    if (!st)
        unmultiply(*out);
    return htensor_made(st, out);
}

/* ---- all of it ---- */

/* *t becomes what `s` made; it goes when that failed. */
static berth_status step(berth_status s, struct htensor **t, struct htensor *made)
{
    htensor_unref(*t);
    *t = s ? NULL : made;
    return s;
}

static berth_status flipped(struct htensor **t, pixel_from_fn *from, berth_err *err)
{
    struct htensor *o = NULL;
    berth_status s = htensor_new(&(*t)->shape, &o, err);
    if (!s)
        move_pixels((*t)->data, 1, dim(*t, 1), dim(*t, 2), 4, false, from, o->data);
    return step(s, t, o);
}

berth_status layer_bitmap(struct node_call *c, const struct htensor *frame,
                          const struct htensor *alpha, const struct layer_place *p,
                          struct htensor **out, berth_err *err)
{
    struct htensor *t = NULL, *made = NULL;
    double rw = nearbyint(p->w), rh = nearbyint(p->h);
    size_t w = rw > 1 ? (size_t)rw : 1, h = rh > 1 ? (size_t)rh : 1;
    double degrees = fmod(-p->rotation * 180 / acos(-1.0), 360);
    degrees = degrees < 0 ? degrees + 360 : degrees;
    *out = NULL;
    berth_status s = as_rgba(frame, alpha, &t, err);
    if (!s && p->flip_h)
        s = flipped(&t, from_flipped_columns, err);
    if (!s && p->flip_v)
        s = flipped(&t, from_flipped_rows, err);
    if (!s && (dim(t, 1) != h || dim(t, 2) != w)) {
        s = scale_image(c, t, w, h, "lanczos", false, &made, err);
        s = step(s, &t, made);
    }
    if (!s && degrees != 0) {
        s = quarters(degrees) ? turn_exactly(t, quarters(degrees), &made, err)
                              : turn(c, t, degrees, &made, err);
        s = step(s, &t, made);
    }
    *out = t;
    return s;
}
