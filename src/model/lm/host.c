/* host.c: what a pass of the decoder needs from the host: angles of positions, and what is hidden
 * (llm-encoders.md 1.3, 1.4, 2.4). */
#include "model/lm/lm.h"

#include "base/sz.h"
#include "model/lm/delta.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* By which of the three axes frequency i goes. */
static int axis_of(const struct lm_kind *k, uint32_t i)
{
    if (k->interleaved) {
        uint32_t turn = i % 3;
        return turn && i < 3 * k->axis[turn] ? (int)turn : 0;
    }
    return i < k->axis[0] ? 0 : i < k->axis[0] + k->axis[1] ? 1 : 2;
}

/* In float, step by step as the reference computes it: at far positions the last bit of a
 * frequency is seen. */
static float frequency(double theta, double stretch, uint32_t i, uint32_t head_dim)
{
    float power = (float)(2 * i) / (float)head_dim;
    float f = 1.0f / (float)pow(theta, (double)power);
    return stretch != 0 ? f / (float)stretch : f;
}

void lm_angles(const struct lm_kind *kind, uint32_t head_dim, double theta, double stretch,
               const int64_t *position, size_t len, float *out)
{
    const uint32_t half = head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        const int64_t *at = position + (size_t)axis_of(kind, i) * len;
        float f = frequency(theta, stretch, i, head_dim);
        for (size_t t = 0; t < len; t++) {
            float angle = (float)at[t] * f;
            out[(t * half + i) * 2] = cosf(angle);
            out[(t * half + i) * 2 + 1] = sinf(angle);
        }
    }
}

/* A picture's rows share a time and go by row and column; text behind it goes on at a distance of
 * its longer side. Qwen2.5-VL does not count padding there, which stays at 1. */
static void place_tokens(const struct encoder_pass *p, bool counts_pads, int64_t *position)
{
    const size_t len = p->in.len, first = p->pictures ? p->picture[0].at : len;
    int64_t off = 0;
    for (size_t t = 0; t < len; t++)
        position[t] = position[len + t] = position[2 * len + t] = t < first ? (int64_t)t : 1;
    for (size_t i = 0; i < p->pictures; i++) {
        const struct picture_rows *pic = &p->picture[i];
        int64_t side = pic->high > pic->wide ? pic->high : pic->wide, from = (int64_t)pic->at + off;
        for (size_t k = 0; k < pic->n; k++) {
            position[pic->at + k] = from;
            position[len + pic->at + k] = from + (int64_t)(k / pic->wide);
            position[2 * len + pic->at + k] = from + (int64_t)(k % pic->wide);
        }
        int64_t next = from + side;
        for (size_t t = pic->at + pic->n; t < len; t++)
            if (counts_pads || !p->shown || p->shown[t])
                position[t] = position[len + t] = position[2 * len + t] = next++;
        off += side - (int64_t)pic->n;
    }
}

/* Lowest of a float / 4, as the reference has it: scores vanish beside it, so that a token with
 * nothing but hidden ones to see sees all of them alike. */
static void hide(const uint8_t *shown, size_t n, float *mask)
{
    for (size_t i = 0; i < n; i++)
        mask[i] = shown[i] ? 0 : -FLT_MAX / 4;
}

/* Of a head that turns in part: value j and the one half of them behind it are a pair, and each
 * has an angle of its own. `full` is for the first of them, crossed for the other. */
static void cross_angles(const struct lm_kind *k, uint32_t turned, const int64_t *position,
                         size_t len, float *full, float *crossed)
{
    const uint32_t half = turned / 2;
    for (uint32_t i = 0; i < turned; i++) {
        const int axis = i < 2 * k->axis[0] ? 0 : i < 2 * (k->axis[0] + k->axis[1]) ? 1 : 2;
        const float f = frequency(k->theta, 0, i % half, turned);
        for (size_t t = 0; t < len; t++) {
            const float angle = (float)position[(size_t)axis * len + t] * f;
            float *mine = (i < half ? full : crossed) + (t * half + i % half) * 2;
            float *others = (i < half ? crossed : full) + (t * half + i % half) * 2;
            mine[0] = cosf(angle);
            others[1] = sinf(angle);
        }
    }
}

static bool is_flat(const int64_t *position, size_t len)
{
    for (size_t t = 0; t < len; t++)
        if (position[t] != position[len + t] || position[t] != position[2 * len + t])
            return false;
    return true;
}

/* Layers with a memory: all write into the same place, unless somebody says otherwise. */
static void share_memory(const struct lm_net *c, size_t n, size_t len, struct lm_delta *d,
                         float *floats)
{
    for (uint32_t i = 0; i < c->layers; i++)
        d[i] = (struct lm_delta) {
            .net = c, .n = n, .len = len, .to = floats, .row = floats + lm_delta_floats(c)
        };
}

struct lm_host *lm_host_new(const struct lm_net *c, const int64_t *position, size_t len,
                            const uint8_t *shown, size_t n)
{
    const struct lm_kind *k = c->kind;
    const size_t memory = c->delta.heads ? lm_delta_floats(c) + lm_delta_row(c) : 0;
    const size_t layers = memory ? c->layers * sizeof(struct lm_delta) : 0;
    size_t angles, floats, bytes;
    struct lm_host *h;
    if (!sz_mul(len, c->head_dim, &angles) || !sz_mul(angles + n * len, 3, &floats) ||
        !sz_add(floats, memory, &floats) || !sz_mul(floats, sizeof(float), &bytes) ||
        !sz_add(bytes, sizeof *h + layers, &bytes) || !(h = calloc(1, bytes)))
        return NULL;
    struct lm_delta *delta = (struct lm_delta *)(h + 1);
    float *full = (float *)((char *)delta + layers), *local = full + angles, *mask = local + angles;
    float *still = mask + n * len;
    lm_angles(k, c->turned, k->theta, k->stretch, position, len, full);
    h->angles = full;
    if (c->turned < c->head_dim) {
        for (size_t i = 0; i < angles; i++)
            still[i] = i % 2 ? 0.0f : 1.0f;
        h->still = still;
    }
    if (c->turned < c->head_dim && !is_flat(position, len)) {
        cross_angles(k, c->turned, position, len, full, local);
        h->crossed = local;
    }
    if (memory) {
        share_memory(c, n, len, delta, still + angles);
        h->delta = delta;
    }
    if (k->window) {
        lm_angles(k, c->head_dim, k->window_theta, 0, position, len, local);
        h->local = local;
    }
    if (shown) {
        hide(shown, n * len, mask);
        h->mask = mask;
    }
    for (size_t axis = 0; axis < 3; axis++)
        h->last =
            position[(axis + 1) * len - 1] > h->last ? position[(axis + 1) * len - 1] : h->last;
    return h;
}

void *lm_prepare(const struct encoder_pass *p)
{
    const struct lm_net *c = p->config;
    int64_t *position = calloc(p->in.len, 3 * sizeof *position);
    if (!position)
        return NULL;
    place_tokens(p, c->kind->interleaved, position);
    struct lm_host *h = lm_host_new(c, position, p->in.len, p->shown, p->in.n);
    free(position);
    return h;
}
