/* product: linear and matmul, rows of one operand times rows or columns of the other, which is the
 * fixed side. Rows are turned so that they are columns. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"

struct operands {
    const float *x;
    size_t ld_x;        /* elements */
    struct gemm_rows w; /* pack_columns: its first byte alone counts */
    size_t cols;        /* of a row there */
};

static void pack_x(const void *user, size_t batch, size_t at, size_t rows, size_t k0, size_t kn,
                   float *dst)
{
    const struct operands *o = user;
    (void)batch;
    o->w.level->transpose(o->x + at * o->ld_x + k0, o->ld_x, rows, kn, dst, rows, rows);
}

static void pack_rows(const void *user, size_t batch, size_t at, size_t cols, size_t k0, size_t kn,
                      float *dst)
{
    const struct operands *o = user;
    (void)batch;
    gemm_pack_rows(&o->w, at, cols, k0, kn, dst, o->w.level->nr, o->w.level->nr);
}

static void pack_columns(const void *user, size_t batch, size_t at, size_t cols, size_t k0,
                         size_t kn, float *dst)
{
    const struct operands *o = user;
    const float *b = (const float *)(const void *)o->w.data;
    size_t nr = o->w.level->nr;
    (void)batch;
    for (size_t k = 0; k < kn; k++, dst += nr) {
        memcpy(dst, b + (k0 + k) * o->cols + at, cols * sizeof *dst);
        memset(dst + cols, 0, (nr - cols) * sizeof *dst);
    }
}

static struct gemm product(const struct op_env *env, size_t m, size_t n, size_t k)
{
    return (struct gemm) { .level = gemm_level(cpu_kernels(env)),
                           .m = m,
                           .n = n,
                           .k = k,
                           .batch = 1,
                           .pack_a = pack_x,
                           .pack_b = pack_rows,
                           .scale = 1 };
}

/* ---- linear ---- */

static struct gemm linear(const struct op_env *env, const struct op_linear *a)
{
    size_t rows = 0, stride = 0;
    op_rows(&a->y, &rows, &stride);
    return product(env, rows, op_row(&a->y), op_row(&a->x));
}

size_t cpu_linear_scratch(const struct op_env *env, const struct op_linear *a)
{
    struct gemm g = linear(env, a);
    return gemm_scratch(env, &g);
}

berth_status cpu_linear(const struct op_env *env, const struct op_linear *a, berth_err *err)
{
    struct gemm g = linear(env, a);
    const struct dtype_desc *t = dtype_desc(a->w.dtype);
    size_t rows, of_x = 0, of_y = 0, of_add = 0;
    op_rows(&a->x, &rows, &of_x);
    op_rows(&a->y, &rows, &of_y);
    op_rows(&a->add, &rows, &of_add);
    struct operands o = { .x = op_f32(&a->x),
                          .ld_x = of_x / sizeof(float),
                          .w = { g.level, a->w.dtype, a->w.data, g.k / t->elems * t->bytes } };
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

/* ---- matmul: one product after the other ---- */

static struct gemm matmul(const struct op_env *env, const struct op_matmul *a)
{
    const uint64_t *y = a->y.shape.dim;
    return product(env, (size_t)y[1], (size_t)y[2], (size_t)a->a.shape.dim[2]);
}

size_t cpu_matmul_scratch(const struct op_env *env, const struct op_matmul *a)
{
    struct gemm g = matmul(env, a);
    return gemm_scratch(env, &g);
}

berth_status cpu_matmul(const struct op_env *env, const struct op_matmul *a, berth_err *err)
{
    struct gemm g = matmul(env, a);
    struct operands o = { .ld_x = g.k, .w = { g.level, DT_F32, NULL, g.k * sizeof(float) } };
    o.cols = g.n;
    if (!a->b_transposed)
        g.pack_b = pack_columns;
    g.user = &o;
    g.ld_c = g.n;
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < a->y.shape.dim[0] && !s; i++) {
        o.x = op_f32(&a->a) + i * g.m * g.k;
        o.w.data = (const uint8_t *)(op_f32(&a->b) + i * g.k * g.n);
        g.c = op_f32(&a->y) + i * g.m * g.n;
        s = gemm_run(env, &g, err);
    }
    return s;
}
