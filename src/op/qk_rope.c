/* qk_rope.c: queries and keys normed and rotated by position. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_qk_rope *a)
{
    want_heads(c, "q", &a->q);
    want_heads(c, "k", &a->k);
    want_same_shape(c, "q", &a->q, "k", &a->k);
    if (c->s)
        return;
    const uint64_t *q = a->q.shape.dim;
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
static void rope(float *x, size_t D, const float *w, double eps, const float *table)
{
    double mean, inv = 1;
    if (w)
        ref_moments(x, D, eps, true, &mean, &inv);
    for (size_t i = 0; i < D; i += 2) {
        double c = (double)table[i], s = (double)table[i + 1];
        double u = (double)x[i] * inv * (w ? (double)w[i] : 1);
        double v = (double)x[i + 1] * inv * (w ? (double)w[i + 1] : 1);
        x[i] = (float)(c * u - s * v);
        x[i + 1] = (float)(s * u + c * v);
    }
}

static berth_status reference(const struct op_env *env, const struct op_qk_rope *a, berth_err *err)
{
    (void)env, (void)err;
    size_t B = (size_t)a->q.shape.dim[0], T = (size_t)a->q.shape.dim[1],
           H = (size_t)a->q.shape.dim[2], D = (size_t)a->q.shape.dim[3];
    for (size_t i = 0; i < B * T * H; i++) {
        size_t b = i / H / T, t = i / H % T, h = i % H;
        const float *table = op_f32(&a->table) + t * D;
        rope(op_head_at(&a->q, b, t, h), D, a->wq.data, (double)a->eps, table);
        rope(op_head_at(&a->k, b, t, h), D, a->wk.data, (double)a->eps, table);
    }
    return BERTH_OK;
}

OP_DEFINE(qk_rope, .operand = { INOUT(op_qk_rope, q), INOUT(op_qk_rope, k), IN(op_qk_rope, wq),
                                IN(op_qk_rope, wk), IN(op_qk_rope, table) });
