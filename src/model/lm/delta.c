/* delta.c: see delta.h. */
#include "model/lm/delta.h"

#include <math.h>
#include <string.h>

#define NORM_LEAST 1e-12f /* of the length of queries and keys */
#define SOFTPLUS_LINEAR 20.0f

static const int32_t first_row[] = { 0 };

bool lm_is_delta(const struct lm_net *c, uint32_t layer)
{
    return c->delta.heads && (layer + 1) % c->delta.full_every != 0;
}

static size_t values(const struct lm_net *c)
{
    return (size_t)c->delta.heads * c->delta.head_dim;
}

static size_t channels(const struct lm_net *c)
{
    return values(c) + 2 * (size_t)c->delta.key_heads * c->delta.head_dim;
}

static size_t matrix(const struct lm_net *c)
{
    return values(c) * c->delta.head_dim;
}

size_t lm_delta_floats(const struct lm_net *c)
{
    return matrix(c) + (c->delta.kernel - 1) * channels(c);
}

size_t lm_delta_row(const struct lm_net *c)
{
    return channels(c) + c->delta.head_dim;
}

/* ---- on the host ---- */

struct layer { /* what it gets, one behind the other, and weights */
    const float *qkv, *z, *beta, *alpha, *conv, *bias, *decay, *norm;
};

static float silu(float x)
{
    return x / (1.0f + expf(-x));
}

static float softplus(float x)
{
    return x > SOFTPLUS_LINEAR ? x : log1pf(expf(x));
}

/* Each channel over its last tokens: past [kernel - 1, channels], which moves on. */
static void convolve(const struct lm_net *c, const float *w, const float *x, float *past, float *y)
{
    const size_t n = channels(c), before = c->delta.kernel - 1;
    for (size_t i = 0; i < n; i++) {
        float sum = w[i * (before + 1) + before] * x[i];
        for (size_t k = 0; k < before; k++)
            sum += w[i * (before + 1) + k] * past[k * n + i];
        y[i] = silu(sum);
    }
    memmove(past, past + n, (before - 1) * n * sizeof *past);
    memcpy(past + (before - 1) * n, x, n * sizeof *past);
}

static void to_length(float *x, size_t n, float length)
{
    float sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    const float by = length / fmaxf(sqrtf(sum), NORM_LEAST);
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

/* A head's memory [d, d], keys by values, over a token; y: what its query reads. */
static void remember(float *m, size_t d, const float *q, const float *k, const float *v, float fade,
                     float beta, float *delta, float *y)
{
    for (size_t j = 0; j < d; j++)
        delta[j] = 0;
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            m[i * d + j] *= fade;
            delta[j] += k[i] * m[i * d + j];
        }
    for (size_t j = 0; j < d; j++) {
        delta[j] = (v[j] - delta[j]) * beta;
        y[j] = 0;
    }
    for (size_t i = 0; i < d; i++)
        for (size_t j = 0; j < d; j++) {
            m[i * d + j] += k[i] * delta[j];
            y[j] += q[i] * m[i * d + j];
        }
}

/* y = norm(y) * weight * silu(z) */
static void gate(const float *w, const float *z, size_t d, float eps, float *y)
{
    float sum = 0;
    for (size_t j = 0; j < d; j++)
        sum += y[j] * y[j];
    const float by = 1.0f / sqrtf(sum / (float)d + eps);
    for (size_t j = 0; j < d; j++)
        y[j] = y[j] * by * w[j] * silu(z[j]);
}

/* Token t of all texts. */
static void step(const struct lm_delta *p, const struct layer *l, size_t t, float *memory, float *y)
{
    const struct lm_net *c = p->net;
    const size_t d = c->delta.head_dim, H = c->delta.heads, K = c->delta.key_heads;
    float *x = p->row, *q = x, *k = q + K * d, *v = k + K * d, *delta = x + channels(c);
    convolve(c, l->conv, l->qkv + t * channels(c), memory + matrix(c), x);
    for (size_t h = 0; h < K; h++) {
        to_length(q + h * d, d, 1.0f / sqrtf((float)d));
        to_length(k + h * d, d, 1);
    }
    for (size_t h = 0; h < H; h++) {
        const size_t key = h / (H / K) * d;
        const float fade = expf(-expf(l->decay[h]) * softplus(l->alpha[t * H + h] + l->bias[h]));
        const float beta = 1.0f / (1.0f + expf(-l->beta[t * H + h]));
        float *to = y + (t * H + h) * d;
        remember(memory + h * d * d, d, q + key, k + key, v + h * d, fade, beta, delta, to);
        gate(l->norm, l->z + (t * H + h) * d, d, c->kind->eps, to);
    }
}

static void on_host(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                    const void *user)
{
    const struct lm_delta *p = user;
    const struct lm_net *c = p->net;
    const size_t rows = p->n * p->len, H = c->delta.heads;
    struct layer l = { .qkv = x };
    (void)xs, (void)ys;
    l.z = l.qkv + rows * channels(c);
    l.beta = l.z + rows * values(c);
    l.alpha = l.beta + rows * H;
    l.conv = l.alpha + rows * H;
    l.bias = l.conv + channels(c) * c->delta.kernel;
    l.decay = l.bias + H;
    l.norm = l.decay + H;
    for (size_t t = 0; t < rows; t++) {
        if (t % p->len == 0 && p->from)
            memcpy(p->to, p->from, lm_delta_floats(c) * sizeof *p->to);
        else if (t % p->len == 0)
            memset(p->to, 0, lm_delta_floats(c) * sizeof *p->to);
        step(p, &l, t, p->to, y);
    }
}

/* ---- in a pass ---- */

/* All of it as one row. Drops x. */
static struct act flat(struct net_run *r, struct act x)
{
    uint64_t n = 0;
    if (net_bad(r) || !shape_count(&x.shape, &n))
        return x;
    return net_reshape(r, x, &(struct shape) { .ndim = 2, .dim = { 1, n } });
}

/* x, flat: on_host() counts on its size, and a file's layers need not be as large as its first.
 * Weights have theirs by their names (names.c). */
static struct act sized(struct net_run *r, struct act x, const char *name, size_t want)
{
    x = flat(r, x);
    if (!net_bad(r) && x.shape.dim[1] != want)
        net_fail(r, BERTH_EFORMAT, "'%s' of a layer with a memory makes %llu values, not %zu", name,
                 (unsigned long long)x.shape.dim[1], want);
    return x;
}

struct act lm_delta_layer(struct net_run *r, const struct lm_net *c, const struct lm_delta *d,
                          size_t n, size_t len, struct act h)
{
    static const char *const product[] = { "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a" };
    static const char *const weight[] = { "conv1d", "dt_bias", "A_log", "norm" };
    const size_t wide[] = { channels(c), values(c), c->delta.heads, c->delta.heads };
    const struct shape s = { .ndim = 3, .dim = { n, len, values(c) } };
    struct act part[ARRAY_LEN(product) + ARRAY_LEN(weight)];
    size_t parts = 0;
    size_t mark = net_enter(r, "linear_attn.");
    for (size_t i = 0; i < ARRAY_LEN(product); i++)
        part[parts++] =
            sized(r, net_linear_no_bias(r, h, product[i]), product[i], n * len * wide[i]);
    for (size_t i = 0; i < ARRAY_LEN(weight); i++)
        part[parts++] = net_embedding(r, first_row, 1, weight[i]);
    struct act all = net_concat(r, part, parts, 1);
    for (size_t i = 0; i < parts; i++)
        net_drop(r, &part[i]);
    struct act y = net_host(r, all, &s, on_host, d);
    net_drop(r, &all);
    struct act o = net_linear_no_bias(r, y, "out_proj");
    net_drop(r, &y);
    net_leave(r, mark);
    return o;
}
