/* Pictures made larger: whole where they are small, else in overlapping tiles. */
#include "model/upscaler.h"

#include "base/log.h"
#include "base/sz.h"
#include "model/tiles.h"

#include <stdlib.h>

struct work { /* all pictures of a job, with tiles of one size */
    struct upscaler_job *j;
    const float *image; /* the one at work, [h, w, 3] */
    float *out;         /* its result, [h * scale, w * scale, 3] */
    size_t h, w, tile;
    struct cover cy, cx;
    size_t done, total;        /* tiles of all pictures */
    float *tile_in, *tile_out; /* [3, th, tw] and what comes out of it */
    float *weight;             /* [h * scale, w * scale]; NULL: one tile is all of it */
};

/* Where the i-th of a row of n pixels comes from, that goes on behind its end as in a mirror, and
 * where the mirror ends with its last. */
static size_t mirrored(size_t i, size_t n)
{
    return i < n ? i : i <= 2 * n - 2 ? 2 * n - 2 - i : 0;
}

static float within(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

/* The tile [th, tw] at (y, x), as the network wants it: [3, ph, pw]. */
static void take(const struct work *k, size_t y, size_t x, size_t th, size_t tw, size_t ph,
                 size_t pw)
{
    for (size_t i = 0; i < ph; i++) {
        const float *row = k->image + ((y + mirrored(i, th)) * k->w + x) * UPSCALE_COLOURS;
        for (size_t q = 0; q < pw; q++)
            for (size_t c = 0; c < UPSCALE_COLOURS; c++)
                k->tile_in[(c * ph + i) * pw + q] = row[mirrored(q, tw) * UPSCALE_COLOURS + c];
    }
}

/* Adds what the network made of it; (y, x), th and tw are of the result, rows are pw apart. */
static void blend(const struct work *k, size_t y, size_t x, size_t th, size_t tw, size_t ph,
                  size_t pw)
{
    const size_t scale = k->j->up->scale, ow = k->w * scale, f = UPSCALE_OVERLAP * scale;
    for (size_t i = 0; i < th; i++) {
        float fy = feather(i, th, f);
        for (size_t q = 0; q < tw; q++) {
            size_t at = (y + i) * ow + x + q;
            float m = k->weight ? fy * feather(q, tw, f) : 1.0f;
            if (k->weight)
                k->weight[at] += m;
            for (size_t c = 0; c < UPSCALE_COLOURS; c++)
                k->out[at * UPSCALE_COLOURS + c] += within(k->tile_out[(c * ph + i) * pw + q]) * m;
        }
    }
}

static berth_status one_tile(struct work *k, size_t iy, size_t ix, berth_err *err)
{
    const struct upscaler_net *u = k->j->up;
    const size_t scale = u->scale;
    size_t th, tw, y = cover_at(&k->cy, iy, &th), x = cover_at(&k->cx, ix, &tw);
    size_t ph = upscaler_side(u, th), pw = upscaler_side(u, tw);
    struct upscaler_pass p = { .up = u,
                               .shape = { 4, { 1, UPSCALE_COLOURS, ph, pw } },
                               .in = k->tile_in,
                               .out = k->tile_out };
    take(k, y, x, th, tw, ph, pw);
    if (net_forward(k->j->net, u->family->forward, &p, err))
        return err->code;
    blend(k, y * scale, x * scale, th * scale, tw * scale, ph * scale, pw * scale);
    k->done++;
    return k->j->step ? k->j->step(k->j->user, k->done, k->total, err) : BERTH_OK;
}

static berth_status one_picture(struct work *k, berth_err *err)
{
    const size_t scale = k->j->up->scale, area = k->h * k->w * scale * scale;
    memset(k->out, 0, area * UPSCALE_COLOURS * sizeof(float));
    if (k->weight)
        memset(k->weight, 0, area * sizeof(float));
    for (size_t i = 0; i < k->cy.n; i++)
        for (size_t q = 0; q < k->cx.n; q++)
            if (one_tile(k, i, q, err))
                return err->code;
    for (size_t i = 0; k->weight && i < area; i++)
        for (size_t c = 0; c < UPSCALE_COLOURS; c++)
            k->out[i * UPSCALE_COLOURS + c] =
                within(k->out[i * UPSCALE_COLOURS + c] / k->weight[i]);
    return BERTH_OK;
}

static void work_release(struct work *k)
{
    free(k->tile_in);
    free(k->tile_out);
    free(k->weight);
    *k = (struct work) { 0 };
}

static size_t shorter(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Buffers for the largest tile, and for the weights of one picture. */
static berth_status work_init(struct work *k, size_t pictures, berth_err *err)
{
    const struct upscaler_net *u = k->j->up;
    const size_t square = (size_t)u->scale * u->scale;
    const size_t ph = upscaler_side(u, shorter(k->h, k->tile));
    const size_t pw = upscaler_side(u, shorter(k->w, k->tile));
    size_t in, out, area;
    k->cy = cover(k->h, k->tile, UPSCALE_OVERLAP);
    k->cx = cover(k->w, k->tile, UPSCALE_OVERLAP);
    if (!sz_mul(ph * pw, UPSCALE_COLOURS * sizeof(float), &in) || !sz_mul(in, square, &out) ||
        !sz_mul(k->h, k->w, &area) || !sz_mul(area, square * sizeof(float), &area) ||
        !sz_mul(k->cy.n * k->cx.n, pictures, &k->total))
        return err_set(err, BERTH_ELIMIT, "%zu x %zu is too large to upscale", k->w, k->h);
    k->tile_in = malloc(in);
    k->tile_out = malloc(out);
    const bool several = k->cy.n * k->cx.n > 1;
    k->weight = several ? malloc(area) : NULL;
    if (!k->tile_in || !k->tile_out || (several && !k->weight))
        return err_set(err, BERTH_ENOMEM,
                       "out of host memory: %zu bytes for tiles and their sums to upscale %zu x "
                       "%zu",
                       in + out + (several ? area : 0), k->w, k->h);
    return BERTH_OK;
}

static berth_status with_tiles(struct upscaler_job *j, const float *image, const struct shape *s,
                               float *out, berth_err *err)
{
    const size_t n = (size_t)s->dim[0];
    struct work k = { .j = j, .h = (size_t)s->dim[1], .w = (size_t)s->dim[2], .tile = j->tile };
    const size_t each = k.h * k.w * UPSCALE_COLOURS;
    berth_status st = work_init(&k, n, err);
    j->tiles = k.cy.n * k.cx.n;
    for (size_t i = 0; !st && i < n; i++) {
        k.image = image + i * each;
        k.out = out + i * each * j->up->scale * j->up->scale;
        st = one_picture(&k, err);
    }
    work_release(&k);
    return st;
}

static berth_status check(const struct shape *s, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    uint64_t n;
    if (s->ndim == 4 && s->dim[3] == UPSCALE_COLOURS && shape_count(s, &n) && n)
        return BERTH_OK;
    return err_set(err, BERTH_EINVAL, "a picture %s: [n, h, w, %d] can be upscaled",
                   shape_text(s, text), UPSCALE_COLOURS);
}

berth_status upscaler_image(struct upscaler_job *j, const float *image, const struct shape *s,
                            float *out, berth_err *err)
{
    if (check(s, err))
        return err->code;
    for (j->tile = UPSCALE_TILE;; j->tile /= 2) {
        berth_status st = with_tiles(j, image, s, out, err);
        if (st != BERTH_ENODEVMEM || j->tile / 2 < UPSCALE_TILE_MIN)
            return st;
        j->rungs++;
        log_warn(j->log, "upscale.tiled",
                 "width=%llu height=%llu tile=%zu why=\"no room for larger ones: the picture "
                 "differs where tiles meet\"",
                 (unsigned long long)s->dim[2], (unsigned long long)s->dim[1], j->tile / 2);
    }
}

berth_status upscaler_predict(struct upscaler_job *j, const struct shape *s, uint64_t *peak,
                              berth_err *err)
{
    if (check(s, err))
        return err->code;
    const size_t h = upscaler_side(j->up, shorter((size_t)s->dim[1], UPSCALE_TILE));
    const size_t w = upscaler_side(j->up, shorter((size_t)s->dim[2], UPSCALE_TILE));
    struct upscaler_pass p = { .up = j->up, .shape = { 4, { 1, UPSCALE_COLOURS, h, w } } };
    return net_predict(j->net, j->up->family->forward, &p, peak, err);
}
