/* qk_rope.c: queries and keys normed and rotated by position. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_qk_rope *a)
{
    want_heads(c, "q", &a->q);
    want_heads(c, "k", &a->k);
    if (c->s)
        return;
    const uint64_t *q = a->q.shape.dim, *k = a->k.shape.dim;
    if (q[0] != k[0] || q[1] != k[1] || q[3] != k[3])
        REFUSE(c, "q %s does not fit k %s", SHAPE(&a->q), SHAPE(&a->k));
    if (q[3] % 2 || q[3] > OP_HEAD_MAX)
        REFUSE(c, "q %s: heads of an even size up to %d", SHAPE(&a->q), OP_HEAD_MAX);
    if (op_has(&a->wq) != op_has(&a->wk))
        REFUSE(c, "wq and wk come together");
    if (op_has(&a->wq)) {
        want_param(c, "wq", &a->wq, q[3]);
        want_param(c, "wk", &a->wk, q[3]);
    }
    want_f32(c, "table", &a->table);
    want_packed(c, "table", &a->table);
    want_dims(c, "table", &a->table, 3);
    const uint64_t *t = a->table.shape.dim;
    if (!c->s && (t[0] != q[1] || t[1] != q[3] / 2 || t[2] != 2))
        REFUSE(c, "table %s is not that of q %s", SHAPE(&a->table), SHAPE(&a->q));
    want_apart(c, "q", &a->q, "k", &a->k);
}

/* One head of one token. */
static void rope(const struct op_qk_rope *a, float *x, const float *w, const float *table)
{
    size_t D = op_row(&a->q);
    double mean, inv = 1, from = a->from_one ? 1 : 0;
    if (w)
        ref_moments(x, D, (double)a->eps, true, &mean, &inv);
    for (size_t p = 0; p < D / 2; p++) {
        size_t i = a->halves ? p : 2 * p, j = a->halves ? p + D / 2 : 2 * p + 1;
        double c = (double)table[2 * p], s = (double)table[2 * p + 1];
        double u = (double)x[i] * inv * (w ? from + (double)w[i] : 1);
        double v = (double)x[j] * inv * (w ? from + (double)w[j] : 1);
        x[i] = (float)(c * u - s * v);
        x[j] = (float)(s * u + c * v);
    }
}

static void rope_heads(const struct op_qk_rope *a, const struct view *x, const float *w)
{
    size_t B = (size_t)x->shape.dim[0], T = (size_t)x->shape.dim[1], H = (size_t)x->shape.dim[2];
    for (size_t i = 0; i < B * T * H; i++) {
        size_t b = i / H / T, t = i / H % T, h = i % H;
        rope(a, op_head_at(x, b, t, h), w, op_f32(&a->table) + t * op_row(x));
    }
}

static berth_status reference(const struct op_env *env, const struct op_qk_rope *a, berth_err *err)
{
    (void)env, (void)err;
    rope_heads(a, &a->q, a->wq.data);
    rope_heads(a, &a->k, a->wk.data);
    return BERTH_OK;
}

OP_DEFINE(qk_rope, .operand = { INOUT(op_qk_rope, q), INOUT(op_qk_rope, k), IN(op_qk_rope, wq),
                                IN(op_qk_rope, wk), IN(op_qk_rope, table) });
