/* attention.c: softmax(q . k^T) . v, head by head. */
#include "op/op_def.h"

#include <math.h>

static void check(struct op_check *c, const struct op_attention *a)
{
    want_heads(c, "q", &a->q);
    want_heads(c, "k", &a->k);
    want_heads(c, "v", &a->v);
    want_heads(c, "y", &a->y);
    want_same_shape(c, "k", &a->k, "v", &a->v);
    want_same_shape(c, "q", &a->q, "y", &a->y);
    if (c->s)
        return;
    const uint64_t *q = a->q.shape.dim, *k = a->k.shape.dim;
    if (q[0] != k[0] || q[3] != k[3] || (k[2] ? q[2] % k[2] : q[2]))
        REFUSE(c, "q %s does not fit k %s", SHAPE(&a->q), SHAPE(&a->k));
    if (q[3] > OP_HEAD_MAX)
        REFUSE(c, "q %s: heads of up to %d", SHAPE(&a->q), OP_HEAD_MAX);
    if ((a->past || a->window) && !a->causal)
        REFUSE(c, "past and window are for causal attention");
    if (op_count(&a->q))
        want_filled(c, "k", &a->k);
    if (op_has(&a->mask)) {
        want_act_or_f32(c, "mask", &a->mask);
        want_packed_rows(c, "mask", &a->mask);
        want_whole_strides(c, "mask", &a->mask);
        want_dims(c, "mask", &a->mask, 4);
        const uint64_t *m = a->mask.shape.dim;
        if (!c->s && ((m[0] != 1 && m[0] != q[0]) || (m[1] != 1 && m[1] != q[2]) ||
                      (m[2] != 1 && m[2] != q[1]) || m[3] != k[1]))
            REFUSE(c, "mask %s is not that of q %s and k %s", SHAPE(&a->mask), SHAPE(&a->q),
                   SHAPE(&a->k));
    }
    want_apart(c, "y", &a->y, "q", &a->q);
    want_apart(c, "y", &a->y, "k", &a->k);
    want_apart(c, "y", &a->y, "v", &a->v);
}

static size_t scratch(const struct op_env *env, const struct op_attention *a)
{
    (void)env;
    return op_mul((size_t)a->k.shape.dim[1], sizeof(double));
}

/* The mask's row of scores [Tk] of query i, NULL without mask. */
static const float *mask_row(const struct view *m, size_t b, size_t h, size_t i)
{
    if (!m->data)
        return NULL;
    const uint64_t *n = m->shape.dim;
    return op_head_at(m, n[0] > 1 ? b : 0, n[1] > 1 ? h : 0, n[2] > 1 ? i : 0);
}

/* Scores of one query over the keys it sees, then their exponentials relative to the largest;
 * returns the sum of those, 0 when every key is hidden. of: head of k. */
static double softmax_row(const struct op_attention *a, size_t b, size_t i, size_t h, size_t of,
                          struct op_seen seen, double *s)
{
    size_t D = op_row(&a->q), first = (size_t)seen.first, end = (size_t)seen.end;
    double scale = a->scale == 0 ? 1 / sqrt((double)D) : (double)a->scale;
    const float *q = op_head_at(&a->q, b, i, h), *mask = mask_row(&a->mask, b, h, i);
    double most = -INFINITY, sum = 0;
    bool hidden = true;
    for (size_t t = first; t < end; t++) {
        s[t] = ref_dot(q, op_head_at(&a->k, b, t, of), D) * scale + (mask ? (double)mask[t] : 0);
        most = s[t] > most ? s[t] : most;
        hidden = hidden && s[t] == -INFINITY; /* a NaN is not hidden */
    }
    if (hidden)
        return 0;
    for (size_t t = first; t < end; t++)
        sum += s[t] = exp(s[t] - most);
    return sum;
}

static berth_status reference(const struct op_env *env, const struct op_attention *a,
                              berth_err *err)
{
    size_t B = (size_t)a->q.shape.dim[0], Tq = (size_t)a->q.shape.dim[1],
           H = (size_t)a->q.shape.dim[2], D = (size_t)a->q.shape.dim[3];
    double *s = env->scratch; /* [Tk] */
    for (size_t b = 0; b < B; b++)
        for (size_t h = 0; h < H; h++)
            for (size_t i = 0; i < Tq; i++) {
                if (op_cancelled(env))
                    return ref_cancelled("attention", err);
                size_t of = h / (H / (size_t)a->k.shape.dim[2]);
                struct op_seen seen = op_attention_seen(a, i);
                double sum = softmax_row(a, b, i, h, of, seen, s);
                float *y = op_head_at(&a->y, b, i, h);
                for (size_t d = 0; d < D; d++) {
                    double o = 0;
                    for (size_t t = (size_t)seen.first; sum != 0 && t < seen.end; t++)
                        o += s[t] * (double)op_head_at(&a->v, b, t, of)[d];
                    y[d] = sum != 0 ? (float)(o / sum) : 0;
                }
            }
    return BERTH_OK;
}

OP_DEFINE(attention, .scratch = scratch,
          .operand = { IN(op_attention, q), IN(op_attention, k), IN(op_attention, v),
                       IN(op_attention, mask), OUT(op_attention, y) });
