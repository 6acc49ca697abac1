/* brownian.c: a Brownian path over noise levels that is the same whatever the order it is asked in
 * (sampling.md 7).
 *
 * The interval is halved again and again, at times rounded to 6 decimals; a node's random numbers
 * are seeded by where it stands in that tree. W over [p, q] is the sum of the fewest nodes that
 * make up [p, q], left to right. Two walks from the root find them, one to p and one to q:
 *
 *                root                   left walk:  ends in the node that begins at p
 *              /      \                 right walk: ends in the node that ends at q
 *            .   [ m ]   .              they part at m: the sum is what hangs to the right of the
 *          /  \         /  \            left walk, deepest first, then what hangs to the left of
 *        p[=]          [=]q             the right walk, deepest last
 *
 * Walks are kept: samplers ask for neighbouring intervals, so the next ones share most of their
 * nodes. That is the cache: two walks of about 24 levels at SD's noise levels, of one array where
 * they go left and two where they go right. */
#include "sample/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEVELS 64
#define SIGMA_MAX 1e12 /* in steps of 1e-6 still fewer than LEVELS halvings, and keys of 64 bits */

struct level {
    uint64_t key; /* which node of this depth, 0 the leftmost */
    double a, b;  /* its interval */
    float *w;     /* [n] its increment; NULL: not allocated yet */
    float *left;  /* [n] its left child's; only where the walk goes right */
};

struct walk {
    struct level at[LEVELS];
    size_t levels; /* that hold numbers; 0 is the root */
};

struct brownian {
    uint64_t seed;
    size_t n;
    uint32_t cuda; /* threads of the card it grows on; 0: the cpu */
    float *noise;  /* [n] scratch */
    struct walk walk[2];
    int left; /* walk[left] is the one to p, walk[!left] the one to q */
    double p; /* of the last question; 0: none yet */
};

/* Python's round(x, 6): to the nearest decimal of the exact value, ties to even, which is how
 * printf() rounds. */
static double round6(double x)
{
    char text[64];
    snprintf(text, sizeof text, "%.6f", x);
    return strtod(text, NULL);
}

/* ---- seeds: the first word of numpy's SeedSequence(seed, spawn_key=(key, depth),
 *      pool_size=24) ---- */

#define POOL 24

static uint32_t seed_hash(uint32_t v, uint32_t *h)
{
    v ^= *h;
    *h *= 0x931e8875u;
    v *= *h;
    return v ^ v >> 16;
}

static uint32_t seed_mix(uint32_t x, uint32_t y)
{
    uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ r >> 16;
}

/* The words of x, lower first, 0 is one word. */
static size_t words_of(uint64_t x, uint32_t out[2])
{
    out[0] = (uint32_t)x;
    out[1] = (uint32_t)(x >> 32);
    return out[1] ? 2 : 1;
}

static uint32_t seed_of(uint64_t entropy, bool spawned, uint64_t key, uint32_t depth)
{
    uint32_t pool[POOL] = { 0 }, extra[3], h = 0x43b0d7e5u;
    size_t extras = 0;
    if (spawned) {
        extras = words_of(key, extra);
        extra[extras++] = depth;
    }
    words_of(entropy, pool);
    for (size_t i = 0; i < POOL; i++)
        pool[i] = seed_hash(pool[i], &h);
    for (size_t s = 0; s < POOL; s++)
        for (size_t d = 0; d < POOL; d++)
            if (d != s)
                pool[d] = seed_mix(pool[d], seed_hash(pool[s], &h));
    for (size_t i = 0; i < extras; i++)
        for (size_t d = 0; d < POOL; d++)
            pool[d] = seed_mix(pool[d], seed_hash(extra[i], &h));
    uint32_t v = pool[0] ^ 0x8b51f9ddu;
    v *= 0x8b51f9ddu * 0x58f38dedu;
    return v ^ v >> 16;
}

/* Every node has a generator of its own. */
static void randn(const struct brownian *b, float *out, uint32_t seed)
{
    struct torch_rng g;
    struct philox_rng card;
    if (b->cuda) {
        philox_seed(&card, seed, b->cuda);
        philox_randn(&card, out, b->n);
    } else {
        torch_seed(&g, seed);
        torch_randn(&g, out, b->n);
    }
}

/* ---- opening ---- */

static float *array_new(const struct brownian *b)
{
    return calloc(b->n ? b->n : 1, sizeof(float)); /* calloc() minds the product */
}

berth_status brownian_new(uint64_t seed, float lo, float hi, size_t n, uint32_t cuda,
                          struct brownian **out, berth_err *err)
{
    *out = NULL;
    if (!(lo > 0) || !(hi >= lo) || hi > (float)SIGMA_MAX)
        return err_set(err, BERTH_EINVAL, "a Brownian tree from sigma %g to %g", (double)lo,
                       (double)hi);
    struct brownian *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(err, BERTH_ENOMEM, "a Brownian tree");
    b->seed = seed;
    b->n = n;
    b->cuda = cuda;
    b->noise = array_new(b);
    bool ok = b->noise != NULL;
    for (int i = 0; ok && i < 2; i++) {
        struct level *root = &b->walk[i].at[0];
        *root = (struct level) { .a = round6(lo), .b = round6(hi), .w = array_new(b) };
        b->walk[i].levels = 1;
        ok = root->w != NULL;
    }
    if (!ok) {
        brownian_free(b);
        return err_set(err, BERTH_ENOMEM, "a Brownian tree over %zu numbers", n);
    }
    float *w = b->walk[0].at[0].w, scale = (float)sqrt((double)hi - (double)lo);
    randn(b, w, seed_of(seed, false, 0, 0));
    for (size_t i = 0; i < n; i++)
        w[i] *= scale;
    memcpy(b->walk[1].at[0].w, w, n * sizeof *w);
    *out = b;
    return BERTH_OK;
}

void brownian_free(struct brownian *b)
{
    if (!b)
        return;
    for (int i = 0; i < 2; i++)
        for (size_t d = 0; d < LEVELS; d++) {
            free(b->walk[i].at[d].w);
            free(b->walk[i].at[d].left);
        }
    free(b->noise);
    free(b);
}

/* ---- walking ---- */

static double middle(const struct level *v)
{
    return round6((v->a + v->b) / 2);
}

/* The left child's increment of the node at depth d. */
static void split(struct brownian *b, const struct level *v, size_t d, double mid, float *left)
{
    double l = mid - v->a, r = v->b - mid, h = 1 / (v->b - v->a);
    float fl = (float)l, fh = (float)h, spread = (float)sqrt(l * r * h);
    randn(b, b->noise, seed_of(b->seed, true, v->key, (uint32_t)d));
    for (size_t i = 0; i < b->n; i++)
        left[i] = v->w[i] * fl * fh + spread * b->noise[i];
}

static bool ensure_array(const struct brownian *b, float **array)
{
    if (!*array)
        *array = array_new(b);
    return *array != NULL;
}

/* One level down. What is there already from an earlier walk stays. */
static berth_status descend(struct brownian *b, struct walk *k, size_t d, bool right,
                            berth_err *err)
{
    struct level *v = &k->at[d], *c = v + 1;
    uint64_t key = 2 * v->key + right;
    if (k->levels > d + 1 && c->key == key)
        return BERTH_OK;
    k->levels = d + 1; /* until this one is made */
    double mid = middle(v);
    if (!ensure_array(b, &c->w) || (right && !ensure_array(b, &v->left)))
        return err_set(err, BERTH_ENOMEM, "level %zu of a Brownian tree over %zu numbers", d + 1,
                       b->n);
    split(b, v, d, mid, right ? v->left : c->w);
    for (size_t i = 0; right && i < b->n; i++)
        c->w[i] = v->w[i] - v->left[i];
    c->key = key;
    c->a = right ? mid : v->a;
    c->b = right ? v->b : mid;
    k->levels = d + 2;
    return BERTH_OK;
}

/* The left walk stops in the node that begins at t, the right one where a node ends at t. *last:
 * its depth. */
static berth_status walk_to(struct brownian *b, struct walk *k, double t, bool left, size_t *last,
                            berth_err *err)
{
    size_t d = 0;
    for (; t != (left ? k->at[d].a : k->at[d].b); d++) {
        double mid = middle(&k->at[d]);
        if (d + 1 == LEVELS)
            BUG("a Brownian tree deeper than %d levels at %.17g", LEVELS, t);
        if (descend(b, k, d, left ? t >= mid : t > mid, err))
            return err->code;
    }
    *last = d;
    return BERTH_OK;
}

/* sum += add, or sum = add for the first one. */
static void emit(const struct brownian *b, float *sum, const float *add, const float *less,
                 bool *any)
{
    for (size_t i = 0; i < b->n; i++) {
        float w = less ? add[i] - less[i] : add[i];
        sum[i] = *any ? sum[i] + w : w;
    }
    *any = true;
}

static void sum_nodes(const struct brownian *b, const struct walk *p, size_t p_last,
                      const struct walk *q, size_t q_last, float *out)
{
    size_t fork = 0; /* depth of the last node that both walks share */
    bool any = false;
    while (fork < p_last && fork < q_last && p->at[fork + 1].key == q->at[fork + 1].key)
        fork++;
    /* If both go on, the fork's own children are on the two walks, and neither is a sibling. */
    size_t first = p_last > fork && q_last > fork ? fork + 1 : fork;
    if (p_last > fork || q_last == fork)
        emit(b, out, p->at[p_last].w, NULL, &any);
    for (size_t d = p_last; d-- > first;)
        if (!(p->at[d + 1].key & 1)) /* went left: its sibling to the right is inside */
            emit(b, out, p->at[d].w, p->at[d + 1].w, &any);
    for (size_t d = first; d < q_last; d++)
        if (q->at[d + 1].key & 1)
            emit(b, out, q->at[d].left, NULL, &any);
    if (q_last > fork)
        emit(b, out, q->at[q_last].w, NULL, &any);
}

static double clamp(double t, const struct level *root)
{
    return t < root->a ? root->a : t > root->b ? root->b : t;
}

berth_status brownian_noise(struct brownian *b, float sigma, float sigma_next, float *out,
                            berth_err *err)
{
    const struct level *root = &b->walk[0].at[0];
    double p = round6(clamp(fminf(sigma, sigma_next), root));
    double q = round6(clamp(fmaxf(sigma, sigma_next), root));
    if (!isfinite(sigma) || !isfinite(sigma_next))
        return err_set(err, BERTH_EINVAL, "noise from sigma %g to %g", (double)sigma,
                       (double)sigma_next);
    if (p == q) { /* nothing happens in no time; the reference would divide by 0 */
        memset(out, 0, b->n * sizeof *out);
        return BERTH_OK;
    }
    /* Going down, this q is the last p: its walk is there already. */
    if (b->p == q)
        b->left = !b->left;
    struct walk *pw = &b->walk[b->left], *qw = &b->walk[!b->left];
    size_t p_last, q_last;
    if (walk_to(b, pw, p, true, &p_last, err) || walk_to(b, qw, q, false, &q_last, err))
        return err->code;
    b->p = p;
    sum_nodes(b, pw, p_last, qw, q_last, out);
    float by = sqrtf(fabsf(sigma_next - sigma)), sign = sigma > sigma_next ? -1.0f : 1.0f;
    for (size_t i = 0; i < b->n; i++)
        out[i] = out[i] * sign / by;
    return BERTH_OK;
}
