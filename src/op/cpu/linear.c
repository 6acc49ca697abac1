/* linear: rows of x times rows of w. The weight is the fixed side, turned so that its rows are
 * columns. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"
#include "op/ops_impl.h"

struct operands {
    struct gemm_rows w;
    const float *x;
    size_t ld_x; /* elements */
};

static void pack_x(const void *user, size_t batch, size_t at, size_t rows, size_t k0, size_t kn,
                   float *dst)
{
    const struct operands *o = user;
    (void)batch;
    o->w.level->turn(o->x + at * o->ld_x + k0, o->ld_x, rows, kn, dst, rows, rows);
}

static void pack_w(const void *user, size_t batch, size_t at, size_t cols, size_t k0, size_t kn,
                   float *dst)
{
    const struct operands *o = user;
    (void)batch;
    gemm_turn_rows(&o->w, at, cols, k0, kn, dst, o->w.level->nr, o->w.level->nr);
}

static struct gemm sizes(const struct gemm_level *l, const struct op_linear *a)
{
    size_t rows = 0, stride = 0;
    op_rows(&a->y, &rows, &stride);
    return (
        struct gemm) { .level = l, .m = rows, .n = op_row(&a->y), .k = op_row(&a->x), .batch = 1 };
}

size_t cpu_linear_scratch(const struct op_env *env, const struct op_linear *a)
{
    const struct gemm_level *l = gemm_level(cpu_kernels(env));
    struct gemm g = sizes(l, a);
    return gemm_scratch(env, &g);
}

berth_status cpu_linear(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    const struct gemm_level *l = gemm_level(cpu_kernels(env));
    struct gemm g = sizes(l, a);
    const struct dtype_desc *t = dtype_desc(a->w.dtype);
    struct operands o = { .w = { .level = l,
                                 .dtype = a->w.dtype,
                                 .data = a->w.data,
                                 .row_bytes = g.k / t->elems * t->bytes },
                          .x = op_f32(&a->x) };
    size_t rows, of_x = 0, of_y = 0, of_add = 0;
    op_rows(&a->x, &rows, &of_x);
    op_rows(&a->y, &rows, &of_y);
    op_rows(&a->add, &rows, &of_add);
    o.ld_x = of_x / sizeof(float);
    g.pack_a = pack_x;
    g.pack_b = pack_w;
    g.user = &o;
    g.c = op_f32(&a->y);
    g.ld_c = of_y / sizeof(float);
    g.add = a->add.data;
    g.ld_add = of_add / sizeof(float);
    g.bias = a->bias.data;
    g.scale = a->scaled ? a->scale : 1;
    if (a->after == OP_AFTER_GELU_TANH)
        g.after = cpu_gelu_tanh(cpu_kernels(env));
    return gemm_run(env, &g, err);
}
