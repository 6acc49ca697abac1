/* Random conditionings, areas, masks, ranges and guides against the formula itself, pixel by pixel
 * in double. */
#include "support/rng.h"
#include "support/test.h"

#include "sample/guide.h"

#include <inttypes.h>
#include <math.h>

#define CONDS 5
#define SIDE 24

struct world {
    uint64_t seed;
    struct rng rng;
    size_t b, c, h, w;
    struct msampling ms;
    struct guide g;
    struct guide_cond cond[3][CONDS];
    double value[3][CONDS];
    float *mask[3][CONDS];
    float *x, *latent, *noise, *inpaint, *out, *uncond;
};

static double unit(struct rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

static bool coin(struct rng *r)
{
    return rng_u64(r) >> 63;
}

static float *fill(struct world *o, size_t n, double lo, double hi)
{
    float *p = malloc(n * sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(lo + (hi - lo) * unit(&o->rng));
    return p;
}

/* What the made-up network says, of a conditioning's number, the item and the input. */
static double says(double value, size_t item, double in)
{
    return value + 0.1 * (double)item + 0.5 * in;
}

static berth_status net(void *user, const struct guide_batch *b, berth_err *err)
{
    struct world *o = user;
    size_t each = (size_t)shape_inner(&b->shape, 1);
    (void)err;
    for (size_t i = 0; i < b->shape.dim[0]; i++) {
        if (b->item[i] >= o->b)
            fail_msg("seed %" PRIu64 ": item %zu of %zu", o->seed, b->item[i], o->b);
        for (size_t e = i * each; e < (i + 1) * each; e++)
            b->out[e] = (float)says(*(const double *)b->cond[i], b->item[i], (double)b->x[e]);
    }
    return BERTH_OK;
}

static void cond_random(struct world *o, int list, size_t i)
{
    struct guide_cond *c = &o->cond[list][i];
    struct rng *r = &o->rng;
    o->value[list][i] = unit(r) * 4 - 2;
    *c = (struct guide_cond) { .cond = &o->value[list][i],
                               .strength = coin(r) ? 1 : unit(r) * 3,
                               .mask_strength = coin(r) ? 1 : unit(r),
                               .sigma_start = coin(r) ? HUGE_VAL : unit(r) * 4,
                               .sigma_end = coin(r) ? 0 : unit(r) * 2 };
    if (coin(r)) {
        c->has_area = true;
        c->area = (struct guide_area) { .h = (uint32_t)rng_below(r, o->h + 4),
                                        .w = (uint32_t)rng_below(r, o->w + 4),
                                        .y = (uint32_t)rng_below(r, o->h + 2),
                                        .x = (uint32_t)rng_below(r, o->w + 2) };
    }
    if (coin(r)) {
        c->mask_n = coin(r) ? 1 : o->b;
        c->mask = o->mask[list][i] = fill(o, c->mask_n * o->h * o->w, 0, 1);
    }
}

static size_t list_random(struct world *o, int list, size_t least)
{
    size_t n = least + rng_below(&o->rng, CONDS + 1 - least);
    for (size_t i = 0; i < n; i++)
        cond_random(o, list, i);
    return n;
}

static void world_init(struct world *o, uint64_t seed)
{
    berth_err err;
    *o = (struct world) { .seed = seed, .rng = { seed } };
    struct rng *r = &o->rng;
    o->b = 1 + rng_below(r, 3), o->c = 1 + rng_below(r, 4);
    o->h = 1 + rng_below(r, SIDE), o->w = 1 + rng_below(r, SIDE);
    size_t n = o->b * o->c * o->h * o->w;
    assert_ok(ms_init(&o->ms, &(struct ms_config) { .type = coin(r) ? MS_EPS : MS_V }, &err), err);
    o->x = fill(o, n, -2, 2), o->latent = fill(o, n, -1, 1), o->noise = fill(o, n, -2, 2);
    o->inpaint = fill(o, n, 0, 1);
    o->out = fill(o, n, 0, 0), o->uncond = fill(o, n, 0, 0);
    o->g = (struct guide) { .ms = &o->ms,
                            .shape = { .ndim = 4, .dim = { o->b, o->c, o->h, o->w } },
                            .positive = o->cond[0],
                            .positives = list_random(o, 0, 1),
                            .negative = o->cond[1],
                            .negatives = list_random(o, 1, 0),
                            .cfg = coin(r) ? 1 : unit(r) * 8,
                            .always_uncond = coin(r),
                            .cfg_middle = coin(r) ? 1 : unit(r) * 8,
                            .nested = coin(r),
                            .net = net,
                            .user = o };
    if (coin(r)) {
        o->g.middle = o->cond[2];
        o->g.middles = list_random(o, 2, 1);
    }
    if (coin(r))
        o->g.mask = o->inpaint, o->g.latent = o->latent, o->g.noise = o->noise;
}

static void world_release(struct world *o)
{
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < CONDS; i++)
            free(o->mask[l][i]);
    free(o->x), free(o->latent), free(o->noise), free(o->inpaint), free(o->out), free(o->uncond);
    ms_release(&o->ms);
}

/* ---- the formula ---- */

static double edge(size_t at, size_t from, size_t size, size_t whole)
{
    size_t ramp = size / 4 < 8 ? size / 4 : 8, low = at - from, high = size - 1 - low;
    double m = 1;
    if (from > 0 && low < ramp)
        m *= (double)(low + 1) / (double)ramp;
    if (from + size < whole && high < ramp)
        m *= (double)(high + 1) / (double)ramp;
    return m;
}

static double weight(const struct world *o, const struct guide_cond *c, double sigma, size_t item,
                     size_t y, size_t x)
{
    size_t ay = 0, ax = 0, ah = o->h, aw = o->w;
    if (sigma > c->sigma_start || sigma < c->sigma_end)
        return 0;
    if (c->has_area) {
        ay = c->area.y, ax = c->area.x;
        ah = c->area.h, aw = c->area.w;
        if (ay >= o->h || ax >= o->w)
            return 0;
        ah = ah < o->h - ay ? ah : o->h - ay;
        aw = aw < o->w - ax ? aw : o->w - ax;
        if (y < ay || y >= ay + ah || x < ax || x >= ax + aw)
            return 0;
    }
    if (c->mask)
        return c->strength * c->mask_strength *
               (double)c->mask[(item % c->mask_n * o->h + y) * o->w + x];
    return c->strength * edge(y, ay, ah, o->h) * edge(x, ax, aw, o->w);
}

/* The mean of a list at one value of x; 0 where nobody counts. */
static double mean(const struct world *o, int list, size_t n, double sigma, size_t item, size_t y,
                   size_t px, double x)
{
    double sum = 0, count = 0, var = sigma * sigma + 1;
    for (size_t i = 0; i < n; i++) {
        double w = weight(o, &o->cond[list][i], sigma, item, y, px);
        double said = says(o->value[list][i], item, x / sqrt(var));
        double d = o->ms.cfg.type == MS_EPS ? x - said * sigma : x / var - said * sigma / sqrt(var);
        sum += w * d;
        count += w;
    }
    return count > 1e-30 ? sum / count : 0;
}

static double guided(const struct world *o, double pos, double neg, double mid)
{
    const struct guide *g = &o->g;
    bool none = !g->negatives;
    if (!g->middle)
        return none ? pos : neg + (pos - neg) * g->cfg;
    if (g->nested) {
        double text = mid + (pos - mid) * g->cfg;
        return none ? text : neg + g->cfg_middle * (text - neg);
    }
    return (none ? mid : neg + (mid - neg) * g->cfg_middle) + (pos - mid) * g->cfg;
}

/* asked: the negative's own prediction, too, which also means that it is never skipped. */
static void compare(const struct world *o, double sigma, bool asked)
{
    const struct guide *g = &o->g;
    for (size_t i = 0, item = 0; item < o->b; item++)
        for (size_t c = 0; c < o->c; c++)
            for (size_t y = 0; y < o->h; y++)
                for (size_t px = 0; px < o->w; px++, i++) {
                    double x = o->x[i], m = 1;
                    if (g->mask) {
                        m = o->inpaint[i];
                        x = x * m + (o->noise[i] * sigma + o->latent[i]) * (1 - m);
                    }
                    double pos = mean(o, 0, g->positives, sigma, item, y, px, x);
                    double neg = mean(o, 1, g->negatives, sigma, item, y, px, x);
                    double mid = mean(o, 2, g->middles, sigma, item, y, px, x);
                    double want = guided(o, pos, neg, mid);
                    if (g->mask)
                        want = want * m + o->latent[i] * (1 - m);
                    double u = g->middle && g->nested ? mid : neg;
                    if (!(fabs(o->out[i] - want) <= 2e-3) ||
                        (asked && !(fabs(o->uncond[i] - u) <= 1e-3)))
                        fail_msg("seed %" PRIu64 ", value %zu: %g and %g, not %g and %g", o->seed,
                                 i, (double)o->out[i], (double)o->uncond[i], want, u);
                }
}

static void as_the_formula_has_it(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    for (int i = 0; i < 300; i++, seed++) {
        struct world o;
        berth_err err;
        world_init(&o, seed);
        float sigma = (float)(0.05 + 4 * unit(&o.rng));
        bool asked = coin(&o.rng);
        assert_ok(guide_denoise(&o.g, o.x, sigma, o.out, asked ? o.uncond : NULL, &err), err);
        compare(&o, (double)sigma, asked);
        world_release(&o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_formula_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
