/* patches.c: what nodes can change inside networks (patch.h). */
#include "model/patch.h"

#include "model/families.h"
#include "op/resize.h"
#include "sample/guide.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846

/* ---- FreeU: more of a UNet's backbone, less of the slow changes in what it kept ---- */

enum { B1, B2, S1, S2 }; /* p[] */

/* plane [h, w]: what is in the four frequencies around 0 (0 and -1 along both axes) times `scale`.
 * The reference takes the real part of the inverse transform. */
static void filter_slow(const float *x, float *y, size_t h, size_t w, double scale)
{
    size_t n = h * w;
    for (size_t i = 0; i < n; i++)
        y[i] = x[i];
    for (int f = 0; f < 4; f++) {
        /* A side of 1 has the frequency 0 alone, and the reference's cut is then empty there. */
        double fy = h > 1 ? -(f & 1) : 0, fx = w > 1 ? -(f >> 1) : 0, re = 0, im = 0;
        if (h < 2 || w < 2)
            return;
        for (size_t i = 0; i < n; i++) {
            double a =
                2 * PI * (fy * (double)(i / w) / (double)h + fx * (double)(i % w) / (double)w);
            re += (double)x[i] * cos(a);
            im -= (double)x[i] * sin(a);
        }
        for (size_t i = 0; i < n; i++) {
            double a =
                2 * PI * (fy * (double)(i / w) / (double)h + fx * (double)(i % w) / (double)w);
            y[i] += (float)((scale - 1) * (re * cos(a) - im * sin(a)) / (double)n);
        }
    }
}

static void scale_low(const float *x, const struct shape *s, float *y, double scale)
{
    size_t h = (size_t)s->dim[2], w = (size_t)s->dim[3], planes = (size_t)(s->dim[0] * s->dim[1]);
    for (size_t i = 0; i < planes; i++)
        filter_slow(x + i * h * w, y + i * h * w, h, w, scale);
}

static void slow_1(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                   const void *user)
{
    (void)ys;
    scale_low(x, xs, y, ((const struct net_patch *)user)->p[S1]);
}

static void slow_2(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                   const void *user)
{
    (void)ys;
    scale_low(x, xs, y, ((const struct net_patch *)user)->p[S2]);
}

/* The first half of the channels of one item times b; or, by the mean over its channels spread
 * over 0..1, times 1..b. mean [pixels]: scratch in y. */
static void strengthen(const float *x, const struct shape *s, float *y, double b, bool by_mean)
{
    size_t c = (size_t)s->dim[1], each = (size_t)(s->dim[2] * s->dim[3]);
    for (size_t i = 0; i < s->dim[0]; i++, x += c * each, y += c * each) {
        float low = HUGE_VALF, high = -HUGE_VALF;
        memcpy(y, x, c * each * sizeof *y);
        for (size_t k = 0; by_mean && k < each; k++) {
            double sum = 0;
            for (size_t ch = 0; ch < c; ch++)
                sum += (double)x[ch * each + k];
            float mean = (float)(sum / (double)c);
            low = fminf(low, mean);
            high = fmaxf(high, mean);
        }
        for (size_t k = 0; k < each; k++) {
            double sum = 0;
            for (size_t ch = 0; by_mean && ch < c; ch++)
                sum += (double)x[ch * each + k];
            float mean = ((float)(sum / (double)c) - low) / (high - low);
            float by = by_mean ? (float)(b - 1) * mean + 1 : (float)b;
            for (size_t ch = 0; ch < c / 2; ch++)
                y[ch * each + k] = x[ch * each + k] * by;
        }
    }
}

#define STRENGTHEN(name, which, mean)                                                              \
    static void name(const float *x, const struct shape *xs, float *y, const struct shape *ys,     \
                     const void *user)                                                             \
    {                                                                                              \
        (void)ys;                                                                                  \
        strengthen(x, xs, y, ((const struct net_patch *)user)->p[which], mean);                    \
    }
STRENGTHEN(strong_1, B1, false)
STRENGTHEN(strong_2, B2, false)
STRENGTHEN(mean_1, B1, true)
STRENGTHEN(mean_2, B2, true)

static bool free_u_at(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                      struct act h, struct act skip, struct act *new_h, struct act *new_skip,
                      net_host_fn *const strong[2])
{
    uint64_t c = h.shape.ndim == 4 ? h.shape.dim[1] : 0;
    if (!c || (c != 4 * at->width && c != 2 * at->width))
        return false;
    bool second = c == 2 * at->width;
    *new_h = net_host(r, h, &h.shape, strong[second], p);
    *new_skip = net_host(r, skip, &skip.shape, second ? slow_2 : slow_1, p);
    return true;
}

static bool free_u(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                   struct act h, struct act skip, struct act *new_h, struct act *new_skip)
{
    static net_host_fn *const strong[] = { strong_1, strong_2 };
    return free_u_at(r, p, at, h, skip, new_h, new_skip, strong);
}

static bool free_u_2(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                     struct act h, struct act skip, struct act *new_h, struct act *new_skip)
{
    static net_host_fn *const strong[] = { mean_1, mean_2 };
    return free_u_at(r, p, at, h, skip, new_h, new_skip, strong);
}

const struct net_patch_kind patch_free_u = { .name = "FreeU",
                                             .places = PATCH_UNET_BLOCKS,
                                             .output = free_u };
const struct net_patch_kind patch_free_u_2 = { .name = "FreeU_V2",
                                               .places = PATCH_UNET_BLOCKS,
                                               .output = free_u_2 };

/* ---- Deep Shrink: inner blocks see a smaller picture in the first steps ---- */

enum { BLOCK, FACTOR, FROM, TO, DOWN, UP }; /* p[]; the last two: enum resize */

/* NaN where there is no memory: the pass ends with it. */
static void resized(enum resize how, const float *x, const struct shape *xs, float *y,
                    const struct shape *ys)
{
    berth_err err;
    struct resize_shape s = { .n = (size_t)(xs->dim[0] * xs->dim[1]),
                              .h = (size_t)xs->dim[2],
                              .w = (size_t)xs->dim[3],
                              .c = 1,
                              .oh = (size_t)ys->dim[2],
                              .ow = (size_t)ys->dim[3] };
    berth_status st;
    if (how == RESIZE_BISLERP) {
        s.n = (size_t)xs->dim[0];
        s.c = (size_t)xs->dim[1];
        st = op_bislerp(&s, x, y, NULL, NULL, &err);
    } else {
        st = op_resize(how, &s, x, y, NULL, NULL, &err);
    }
    for (size_t i = 0; st && i < (size_t)(ys->dim[0] * ys->dim[1] * ys->dim[2] * ys->dim[3]); i++)
        y[i] = NAN;
}

static void resize_down(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                        const void *user)
{
    resized((enum resize)((const struct net_patch *)user)->p[DOWN], x, xs, y, ys);
}

static void resize_up(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                      const void *user)
{
    resized((enum resize)((const struct net_patch *)user)->p[UP], x, xs, y, ys);
}

static bool shrink(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                   const struct family_batch *b, struct act h, struct act *out)
{
    struct shape s = h.shape;
    double sigma = (double)b->sigma;
    if (s.ndim != 4 || at->part != PATCH_INPUT || (double)at->block != p->p[BLOCK] ||
        !(sigma <= p->p[FROM] && sigma >= p->p[TO]))
        return false;
    for (int i = 2; i < 4; i++) {
        double side = nearbyint((double)s.dim[i] * (1.0 / p->p[FACTOR]));
        s.dim[i] = side >= 1 ? (uint64_t)side : 1;
    }
    *out = net_host(r, h, &s, resize_down, p);
    return true;
}

static bool grow(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                 struct act h, struct act skip, struct act *new_h, struct act *new_skip)
{
    struct shape s = h.shape;
    (void)at;
    (void)new_skip;
    if (s.ndim != 4 || skip.shape.ndim != 4 || s.dim[2] == skip.shape.dim[2])
        return false;
    s.dim[2] = skip.shape.dim[2];
    s.dim[3] = skip.shape.dim[3];
    *new_h = net_host(r, h, &s, resize_up, p);
    return true;
}

const struct net_patch_kind patch_shrink = { .name = "PatchModelAddDownscale",
                                             .places = PATCH_UNET_BLOCKS,
                                             .after_kept = shrink,
                                             .output = grow };
const struct net_patch_kind patch_shrink_kept = {
    .name = "PatchModelAddDownscale", .places = PATCH_UNET_BLOCKS, .kept = shrink, .output = grow
};

/* ---- perturbed attention: the middle block's self-attention gives its values ---- */

static bool in_middle(const struct net_patch *p, const struct patch_at *at)
{
    (void)p;
    return at->part == PATCH_MIDDLE;
}

const struct net_patch_kind patch_blind_middle = { .name = "PerturbedAttentionGuidance",
                                                   .places = PATCH_SELF_ATTENTION,
                                                   .blind = in_middle };

/* ---- self-attention guidance: what the negative looks at in the middle block ---- */

struct seeing { /* one head of one item, in place in the host's memory */
    const float *q, *k;
    size_t tokens, width, stride;
};

/* sum[j] += share * softmax(q . k)[i, j] over all queries i. row [tokens]: scratch. */
static void add_attention(const struct seeing *s, double share, double *row, float *sum)
{
    double scale = 1 / sqrt((double)s->width);
    for (size_t i = 0; i < s->tokens; i++) {
        double top = -HUGE_VAL, all = 0;
        for (size_t j = 0; j < s->tokens; j++) {
            double dot = 0;
            for (size_t d = 0; d < s->width; d++)
                dot += (double)s->q[i * s->stride + d] * (double)s->k[j * s->stride + d];
            row[j] = dot * scale;
            top = fmax(top, row[j]);
        }
        for (size_t j = 0; j < s->tokens; j++)
            all += row[j] = exp(row[j] - top);
        for (size_t j = 0; j < s->tokens; j++)
            sum[j] += (float)(share * row[j] / all);
    }
}

/* x [B, T, 2C]: queries and keys. What the negatives among them look at goes to the patch's
 * memory, those of the first negative prompt alone. */
static void see(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                const void *user)
{
    const struct family_batch *b = user;
    const size_t T = (size_t)xs->dim[1], C = (size_t)xs->dim[2] / 2, heads = (size_t)ys->dim[1];
    const struct net_patch *p = NULL;
    memset(y, 0, (size_t)(ys->dim[0] * ys->dim[1]) * sizeof *y);
    for (size_t i = 0; i < b->patches.n; i++)
        p = b->patches.at[i].is == &patch_sees_middle ? &b->patches.at[i] : p;
    struct guide_seen *seen = p ? p->seen : NULL;
    double *row = malloc(T * sizeof *row);
    size_t first = 0, n = 0;
    for (size_t i = 0; i < b->shape.dim[0] && !n; i++)
        if (b->negative && b->negative[i]) {
            first = i;
            n = b->chunk;
        }
    float *of = n && row && seen ? calloc(n * T, sizeof *of) : NULL;
    for (size_t i = 0; of && i < n; i++)
        for (size_t h = 0; h < heads; h++) {
            const float *q = x + (first + i) * T * 2 * C + h * (C / heads);
            add_attention(&(struct seeing) { q, q + C, T, C / heads, 2 * C }, 1 / (double)heads,
                          row, of + i * T);
        }
    free(row);
    if (!of)
        return;
    free(seen->of);
    *seen = (struct guide_seen) { .of = of, .items = n, .tokens = T };
}

static void sees(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                 const struct family_batch *b, struct act q, struct act k, uint64_t heads)
{
    struct act pair[2] = { q, k };
    struct shape none = { .ndim = 2, .dim = { 1, heads } };
    if (!in_middle(p, at) || !p->seen)
        return;
    if (q.shape.dim[0] != b->shape.dim[0] || q.shape.dim[1] != k.shape.dim[1]) {
        net_fail(r, BERTH_EUNSUPPORTED,
                 "SelfAttentionGuidance cannot see tokens that another node tiled or merged");
        return;
    }
    struct act both = net_concat(r, pair, 2, 2);
    struct act y = net_host(r, both, &none, see, b);
    net_drop(r, &both);
    net_drop(r, &y);
}

const struct net_patch_kind patch_sees_middle = {
    .name = "SelfAttentionGuidance", .places = PATCH_SELF_ATTENTION, .pairs = true, .seen = sees
};

/* ---- normalized attention guidance ---- */

enum { SCALE, ALPHA, TAU }; /* p[] */

static double absolute_sum(const float *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs((double)v[i]);
    return sum;
}

/* pos and neg: one token [n] of each; into pos, away from neg as far as tau allows. z [n]. */
static void guided(const struct net_patch *p, float *pos, const float *neg, float *z, size_t n)
{
    float scale = (float)p->p[SCALE], alpha = (float)p->p[ALPHA];
    for (size_t i = 0; i < n; i++)
        z[i] = pos[i] * scale - neg[i] * (float)(p->p[SCALE] - 1);
    float was = fmaxf((float)absolute_sum(pos, n), 1e-6f);
    float is = fmaxf((float)absolute_sum(z, n), 1e-6f), ratio = is / was;
    float by = fminf(ratio, (float)p->p[TAU]) / ratio;
    for (size_t i = 0; i < n; i++)
        pos[i] = z[i] * by * alpha + pos[i] * (float)(1 - p->p[ALPHA]);
}

/* The first positive prompt's items against the first negative's; tokens from `from` on. */
static void nag(const float *x, const struct shape *s, float *y, const struct family_batch *b,
                size_t from, bool both)
{
    const size_t B = (size_t)s->dim[0], T = (size_t)s->dim[1], C = (size_t)s->dim[2];
    size_t pos = B, neg = B;
    memcpy(y, x, B * T * C * sizeof *y);
    for (size_t i = B; b->negative && i-- > 0;)
        *(b->negative[i] ? &neg : &pos) = i;
    float *z = malloc(C * sizeof *z);
    for (size_t k = 0; k < b->patches.n; k++) {
        const struct net_patch *p = &b->patches.at[k];
        if (p->is != &patch_nag || pos == B || neg == B)
            continue;
        for (size_t i = 0; i < b->chunk * T; i++) {
            float *a = y + (pos * T + i) * C, *n = y + (neg * T + i) * C;
            if (i % T < from)
                continue;
            if (z)
                guided(p, a, n, z, C);
            else
                a[0] = NAN; /* no memory: the pass ends with it */
            if (both)
                memcpy(n, a, C * sizeof *n);
        }
    }
    free(z);
}

static void nag_plain(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                      const void *user)
{
    (void)ys;
    nag(x, xs, y, user, 0, false);
}

static void nag_joint(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                      const void *user)
{
    (void)ys;
    const struct family_batch *b = user;
    nag(x, xs, y, user, b->tokens + b->tokens_before_n, true);
}

const struct net_patch_kind patch_nag = { .name = "NAGuidance",
                                          .places = PATCH_SELF_ATTENTION | PATCH_JOINT_ATTENTION,
                                          .pairs = true,
                                          .attended = nag_plain,
                                          .attended_joint = nag_joint };

/* ---- skip layer guidance ---- */

static bool leaves_out(const struct net_patch *p, const struct patch_at *at)
{
    uint64_t blocks = at->part == PATCH_DOUBLE   ? p->blocks[0]
                      : at->part == PATCH_SINGLE ? p->blocks[1]
                                                 : 0;
    return at->block < 64 && blocks >> at->block & 1;
}

const struct net_patch_kind patch_leave_out = { .name = "SkipLayerGuidance",
                                                .places = PATCH_STREAM_BLOCKS,
                                                .leaves_out = leaves_out };

/* ---- ScaleROPE ---- */

static void move(const struct net_patch *p, struct patch_positions *out)
{
    *out = (struct patch_positions) { p->p[0], p->p[1], p->p[2], p->p[3], p->p[4], p->p[5] };
}

const struct net_patch_kind patch_positions = { .name = "ScaleROPE",
                                                .places = PATCH_POSITIONS,
                                                .positions = move };

/* ---- FluxKVCache ---- */

const struct net_patch_kind patch_keep_refs = { .name = "FluxKVCache",
                                                .places = PATCH_REFS,
                                                .keeps_refs = true };
