/* matmul.c: a . b of activations, matrix by matrix. */
#include "op/op_def.h"

static void check(struct op_check *c, const struct op_matmul *a)
{
    want_dense(c, "a", &a->a);
    want_dense(c, "b", &a->b);
    want_dense(c, "y", &a->y);
    want_dims(c, "a", &a->a, 3);
    want_dims(c, "b", &a->b, 3);
    want_dims(c, "y", &a->y, 3);
    if (c->s)
        return;
    const uint64_t *x = a->a.shape.dim, *b = a->b.shape.dim, *y = a->y.shape.dim;
    uint64_t k = a->b_transposed ? b[2] : b[1], n = a->b_transposed ? b[1] : b[2];
    if (x[0] != b[0] || x[2] != k)
        REFUSE(c, "a %s does not fit b %s%s", SHAPE(&a->a), SHAPE(&a->b),
               a->b_transposed ? " transposed" : "");
    if (y[0] != x[0] || y[1] != x[1] || y[2] != n)
        REFUSE(c, "y %s is not that of a %s and b %s", SHAPE(&a->y), SHAPE(&a->a), SHAPE(&a->b));
    if (k == 0)
        REFUSE(c, "a %s sums over nothing", SHAPE(&a->a));
    want_apart(c, "y", &a->y, "a", &a->a);
    want_apart(c, "y", &a->y, "b", &a->b);
}

static berth_status reference(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    size_t B = (size_t)a->y.shape.dim[0], M = (size_t)a->y.shape.dim[1],
           N = (size_t)a->y.shape.dim[2], K = (size_t)a->a.shape.dim[2];
    size_t by_k = a->b_transposed ? 1 : N, by_n = a->b_transposed ? K : 1;
    for (size_t i = 0; i < B * M; i++) {
        if (op_cancelled(env))
            return ref_cancelled("matmul", err);
        const float *x = op_f32(&a->a) + i * K, *b = op_f32(&a->b) + i / M * K * N;
        for (size_t j = 0; j < N; j++) {
            double s = 0;
            for (size_t k = 0; k < K; k++)
                s += (double)x[k] * (double)b[k * by_k + j * by_n];
            op_f32(&a->y)[i * N + j] = (float)s;
        }
    }
    return BERTH_OK;
}

OP_DEFINE(matmul, .operand = { IN(op_matmul, a), IN(op_matmul, b), OUT(op_matmul, y) });
