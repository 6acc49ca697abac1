/* matmul: one product after the other; b is the fixed side of each. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"
#include "op/ops_impl.h"

#include <string.h>

struct operands {
    const struct gemm_level *level;
    const float *a, *b;
    size_t k, n;
};

static void pack_a(const void *user, size_t batch, size_t at, size_t rows, size_t k0, size_t kn,
                   float *dst)
{
    const struct operands *o = user;
    (void)batch;
    o->level->turn(o->a + at * o->k + k0, o->k, rows, kn, dst, rows, rows);
}

static void pack_b(const void *user, size_t batch, size_t at, size_t cols, size_t k0, size_t kn,
                   float *dst)
{
    const struct operands *o = user;
    size_t nr = o->level->nr;
    (void)batch;
    for (size_t k = 0; k < kn; k++, dst += nr) {
        memcpy(dst, o->b + (k0 + k) * o->n + at, cols * sizeof *dst);
        memset(dst + cols, 0, (nr - cols) * sizeof *dst);
    }
}

static void pack_b_turned(const void *user, size_t batch, size_t at, size_t cols, size_t k0,
                          size_t kn, float *dst)
{
    const struct operands *o = user;
    (void)batch;
    struct gemm_rows rows = { .level = o->level,
                              .dtype = DT_F32,
                              .data = (const uint8_t *)o->b,
                              .row_bytes = o->k * sizeof(float) };
    gemm_turn_rows(&rows, at, cols, k0, kn, dst, o->level->nr, o->level->nr);
}

static struct gemm sizes(const struct gemm_level *l, const struct op_matmul *a)
{
    const uint64_t *x = a->a.shape.dim, *y = a->y.shape.dim;
    return (struct gemm) {
        .level = l, .m = (size_t)y[1], .n = (size_t)y[2], .k = (size_t)x[2], .batch = 1
    };
}

size_t cpu_matmul_scratch(const struct op_env *env, const struct op_matmul *a)
{
    const struct gemm_level *l = gemm_level(cpu_kernels(env));
    struct gemm g = sizes(l, a);
    return gemm_scratch(env, &g);
}

berth_status cpu_matmul(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    const struct gemm_level *l = gemm_level(cpu_kernels(env));
    struct gemm g = sizes(l, a);
    struct operands o = { .level = l, .k = g.k, .n = g.n };
    g.pack_a = pack_a;
    g.pack_b = a->b_transposed ? pack_b_turned : pack_b;
    g.user = &o;
    g.ld_c = g.n;
    g.scale = 1;
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < a->y.shape.dim[0] && !s; i++) {
        o.a = op_f32(&a->a) + i * g.m * g.k;
        o.b = op_f32(&a->b) + i * g.k * g.n;
        g.c = op_f32(&a->y) + i * g.m * g.n;
        s = gemm_run(env, &g, err);
    }
    return s;
}
