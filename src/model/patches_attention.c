/* patches_attention.c: what nodes can change in attention of UNets before its products (patch.h):
 * tokens in tiles, tokens merged. Both draw random numbers, one pass after the other. */
#include "model/families.h"
#include "model/patch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- HyperTile: each tile of a large picture looks at a part of it alone ---- */

enum { TILE, SWAP, DEPTH, SCALED }; /* p[] */
enum { TILE_ROWS, TILE_COLUMNS, ROWS, COLUMNS };

/* Is this how many tokens a level of the UNet has, at most `deepest` halvings down? */
static bool level_of(const struct family_batch *b, uint64_t tokens, double deepest, unsigned *level)
{
    double h = (double)shape_last(&b->shape, 2), w = (double)shape_last(&b->shape, 1);
    for (unsigned i = 0; i <= deepest && i < 32; i++)
        if ((double)tokens == h / ldexp(1, (int)i) * (w / ldexp(1, (int)i))) {
            *level = i;
            return true;
        }
    return false;
}

/* How many tiles a side is cut into: one of the first `most` divisors that are no smaller than a
 * tile. The reference never draws the last of them. */
static uint64_t tiles_of(uint64_t side, uint64_t least, uint64_t most, struct torch_rng *draws)
{
    uint64_t found = 0, pick;
    least = least < side ? least : side;
    for (uint64_t i = least; i <= side && found < most; i++)
        found += side % i == 0;
    pick = found > 1 ? mt19937_u32(&draws->mt) % (found - 1) : 0;
    for (uint64_t i = least; i <= side; i++)
        if (side % i == 0 && pick-- == 0)
            return side / i;
    return 1;
}

/* [B, nh, h, nw, w * C], or with nw before h, as [B', T', C] with the two swapped. */
static struct act swap_tiles(struct net_run *r, struct act x, const uint64_t at[3],
                             const uint64_t to[2])
{
    uint64_t C = x.shape.dim[2], all = x.shape.dim[0] * x.shape.dim[1];
    uint64_t part = at[0] * at[1] * at[2];
    struct shape s = { .ndim = 4, .dim = { all * C / part, at[0], at[1], at[2] } };
    struct shape back = { .ndim = 3, .dim = { to[0], to[1], C } };
    struct act y = net_permute(r, net_reshape(r, x, &s), (const int[]) { 0, 2, 1, 3 });
    return net_reshape(r, y, &back);
}

static void tile(struct net_run *r, const struct net_patch *p, const struct family_batch *b,
                 struct patch_attn *a)
{
    unsigned level;
    uint64_t B = a->q.shape.dim[0], T = a->q.shape.dim[1], C = a->q.shape.dim[2];
    if (!a->self || net_bad(r) || a->tiles[ROWS] || !level_of(b, T, p->p[DEPTH], &level))
        return;
    /* The reference takes the picture's width for its height, and so do its seeds. */
    double aspect = (double)shape_last(&b->shape, 1) / (double)shape_last(&b->shape, 2);
    uint64_t h = (uint64_t)nearbyint(sqrt((double)T * aspect));
    uint64_t w = (uint64_t)nearbyint(sqrt((double)T / aspect));
    uint64_t least = (uint64_t)(p->p[TILE] > 32 ? p->p[TILE] : 32) / 8;
    if (p->p[SCALED] != 0)
        least <<= level;
    uint64_t nh = tiles_of(h, least, (uint64_t)p->p[SWAP], a->draws);
    uint64_t nw = tiles_of(w, least, (uint64_t)p->p[SWAP], a->draws);
    if (nh * nw < 2)
        return;
    struct act y = swap_tiles(r, a->q, (const uint64_t[]) { h / nh, nw, w / nw * C },
                              (const uint64_t[]) { B * nh * nw, T / (nh * nw) });
    if (a->own_q)
        net_drop(r, &a->q);
    a->q = y;
    a->own_q = a->changed = true;
    memcpy(a->tiles, (const uint64_t[]) { nh, nw, h, w }, sizeof a->tiles);
}

static struct act untile(struct net_run *r, const struct family_batch *b, struct patch_attn *a,
                         struct act o)
{
    const uint64_t *t = a->tiles;
    (void)b;
    if (!t[ROWS] || net_bad(r))
        return o;
    uint64_t n = t[TILE_ROWS] * t[TILE_COLUMNS], C = o.shape.dim[2];
    struct act y = swap_tiles(r, o,
                              (const uint64_t[]) { t[TILE_COLUMNS], t[ROWS] / t[TILE_ROWS],
                                                   t[COLUMNS] / t[TILE_COLUMNS] * C },
                              (const uint64_t[]) { o.shape.dim[0] / n, o.shape.dim[1] * n });
    net_drop(r, &o);
    a->tiles[ROWS] = 0;
    return y;
}

const struct net_patch_kind patch_tiles = { .name = "HyperTile",
                                            .places = PATCH_SELF_ATTENTION,
                                            .pairs = true, /* a draw is for both */
                                            .attends = tile,
                                            .gives = untile };

/* ---- token merging: the queries most like another are left to that one ---- */

#define CELL 2 /* of so many tokens square one is never merged into others */

struct merging { /* for the host */
    const struct family_batch *b;
    const bool *kept; /* [tokens]: it is the one of its cell */
    size_t tokens, gone;
};
struct likeness { /* of a token that may be merged to the one most like it */
    float score;
    uint32_t token, to;
};

static int most_alike(const void *a, const void *b)
{
    const struct likeness *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static float dot(const float *a, const float *b, size_t n)
{
    float part[8] = { 0 };
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t k = 0; k < 8; k++)
            part[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        part[0] += a[i] * b[i];
    return ((part[0] + part[4]) + (part[1] + part[5])) +
           ((part[2] + part[6]) + (part[3] + part[7]));
}

/* unit [T, C]: x's tokens of length 1. */
static void to_units(const float *x, size_t tokens, size_t width, float *unit)
{
    for (size_t i = 0; i < tokens; i++) {
        float norm = sqrtf(dot(x + i * width, x + i * width, width));
        for (size_t k = 0; k < width; k++)
            unit[i * width + k] = x[i * width + k] / norm;
    }
}

/* row[t]: where token t is among those that are left. like [tokens], unit: scratch. */
static void choose(const struct merging *m, const float *x, size_t width, float *unit,
                   struct likeness *like, uint32_t *row)
{
    size_t n = 0;
    uint32_t next = 0;
    to_units(x, m->tokens, width, unit);
    for (uint32_t i = 0; i < m->tokens; i++) {
        struct likeness best = { -HUGE_VALF, i, 0 };
        for (uint32_t k = 0; !m->kept[i] && k < m->tokens; k++) {
            float score = m->kept[k] ? dot(unit + i * width, unit + k * width, width) : -HUGE_VALF;
            if (score > best.score)
                best = (struct likeness) { score, i, k };
        }
        if (!m->kept[i])
            like[n++] = best;
    }
    qsort(like, n, sizeof *like, most_alike);
    for (size_t i = 0; i < m->tokens; i++)
        row[i] = UINT32_MAX;
    for (size_t i = 0; i < m->gone; i++)
        row[like[i].token] = 0; /* not one of those that are left */
    for (size_t i = 0; i < m->tokens; i++)
        if (row[i] == UINT32_MAX)
            row[i] = next++;
    for (size_t i = 0; i < m->gone; i++)
        row[like[i].token] = row[like[i].to];
}

/* y [left, C]: means of the tokens that stand in one row. count [left]. */
static void average(const float *x, const uint32_t *row, size_t tokens, size_t left, size_t width,
                    uint32_t *count, float *y)
{
    memset(y, 0, left * width * sizeof *y);
    memset(count, 0, left * sizeof *count);
    for (size_t i = 0; i < tokens; i++, x += width) {
        count[row[i]]++;
        for (size_t k = 0; k < width; k++)
            y[row[i] * width + k] += x[k];
    }
    for (size_t i = 0; i < left; i++)
        for (size_t k = 0; count[i] > 1 && k < width; k++)
            y[i * width + k] /= (float)count[i];
}

static void merge_host(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                       const void *user)
{
    const struct merging *m = user;
    struct patch_run *run = m->b->patches.run;
    const size_t B = (size_t)xs->dim[0], T = m->tokens, C = (size_t)xs->dim[2];
    const size_t left = (size_t)ys->dim[1];
    float *unit = malloc(T * C * sizeof *unit);
    struct likeness *like = malloc(T * sizeof *like);
    uint32_t *count = malloc(T * sizeof *count);
    if (run->rows < B * T) {
        free(run->row);
        run->row = malloc(B * T * sizeof *run->row);
        run->rows = run->row ? B * T : 0;
    }
    bool room = unit && like && count && run->row;
    for (size_t i = 0; room && i < B; i++) {
        choose(m, x + i * T * C, C, unit, like, run->row + i * T);
        average(x + i * T * C, run->row + i * T, T, left, C, count, y + i * left * C);
    }
    for (size_t i = 0; !room && i < B * left * C; i++)
        y[i] = NAN; /* no memory: the pass ends with it */
    free(unit);
    free(like);
    free(count);
}

/* One of each cell is drawn. */
static void draw_kept(size_t h, size_t w, struct torch_rng *draws, bool *kept)
{
    for (size_t y = 0; y + CELL <= h; y += CELL)
        for (size_t x = 0; x + CELL <= w; x += CELL) {
            uint32_t at = mt19937_u32(&draws->mt) % (CELL * CELL);
            kept[(y + at / CELL) * w + x + at % CELL] = true;
        }
}

static void merge(struct net_run *r, const struct net_patch *p, const struct family_batch *b,
                  struct patch_attn *a)
{
    size_t h = (size_t)shape_last(&b->shape, 2), w = (size_t)shape_last(&b->shape, 1), T = h * w;
    size_t gone = (size_t)((double)T * p->p[0]), cells = (h / CELL) * (w / CELL);
    /* Of the largest level alone. */
    if (!a->self || net_bad(r) || a->q.shape.dim[1] != T || !gone || h < 2 || w < 2)
        return;
    bool *kept = calloc(T, sizeof *kept);
    if (!kept || !b->patches.run) {
        free(kept);
        net_fail(r, BERTH_ENOMEM, "%zu tokens to merge", T);
        return;
    }
    draw_kept(h, w, a->draws, kept);
    struct merging m = { b, kept, T, gone < T - cells ? gone : T - cells };
    struct shape s = a->q.shape;
    s.dim[1] = T - m.gone;
    struct act y = net_host(r, a->q, &s, merge_host, &m);
    free(kept);
    if (a->own_q)
        net_drop(r, &a->q);
    a->q = y;
    a->own_q = a->changed = true;
    a->merged = T;
}

static void unmerge_host(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                         const void *user)
{
    const struct patch_run *run = ((const struct family_batch *)user)->patches.run;
    const size_t B = (size_t)ys->dim[0], T = (size_t)ys->dim[1], C = (size_t)ys->dim[2];
    const size_t left = (size_t)xs->dim[1];
    for (size_t i = 0; i < B * T; i++)
        if (run->rows >= B * T)
            memcpy(y + i * C, x + (i / T * left + run->row[i]) * C, C * sizeof *y);
        else
            y[i * C] = NAN; /* there was no memory */
}

static struct act unmerge(struct net_run *r, const struct family_batch *b, struct patch_attn *a,
                          struct act o)
{
    if (!a->merged || net_bad(r))
        return o;
    struct shape s = o.shape;
    s.dim[1] = a->merged;
    struct act y = net_host(r, o, &s, unmerge_host, b);
    net_drop(r, &o);
    a->merged = 0;
    return y;
}

const struct net_patch_kind patch_merge = { .name = "TomePatchModel",
                                            .places = PATCH_SELF_ATTENTION,
                                            .pairs = true,
                                            .attends = merge,
                                            .gives = unmerge };
