/* pointwise.c: element-wise ops in units of 16 bytes where layouts allow it. */
#include "op/cuda/own.h"

#include <assert.h>
#include <math.h>

#define SAME(x) ((int)OP_##x == (int)CUDA_##x)
static_assert(SAME(SILU) && SAME(GELU) && SAME(GELU_TANH) && SAME(QUICK_GELU) && SAME(RELU) &&
                  SAME(TANH) && SAME(SIGMOID) && SAME(ADD) && SAME(SUB) && SAME(MUL) &&
                  SAME(SILU_MUL) && SAME(LEAK),
              "args.cuh counts as ops.h does");
static_assert(OP_UNARY_COUNT == 7 && OP_BINARY_COUNT == 5,
              "a new kind needs its case in pointwise.cu");

berth_status cuda_gate(const struct op_env *env, const struct op_gate *a, berth_err *err)
{
    size_t rows, sx, sz, sy, row = op_row(&a->x), per_unit = own_per_unit(a->x.dtype);
    op_rows(&a->x, &rows, &sx); /* even, says the check */
    op_rows(&a->z, &rows, &sz);
    op_rows(&a->y, &rows, &sy);
    struct gate_args k = { .x = a->x.data,
                           .z = a->z.data,
                           .y = a->y.data,
                           .sx = sx,
                           .sz = sz,
                           .sy = sy,
                           .gate = own_param(&a->gate),
                           .per_item = fast_div_of(rows / a->x.shape.dim[0]) };
    k.packed = row % per_unit == 0 && own_aligned(k.x) && own_aligned(k.z) && own_aligned(k.y) &&
               own_whole(sx) && own_whole(sz) && own_whole(sy) && own_param_whole(&k.gate);
    uint64_t units = k.packed ? row / per_unit : row;
    k.row = fast_div_of(units);
    k.n = rows * units;
    return own_launch(env, CUDA_MODULE_pointwise, "gate", a->x.dtype, k.n, &k, err);
}

berth_status cuda_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    struct unary_args k = {
        .x = a->x.data, .y = a->y.data, .n = op_count(&a->x), .kind = (int32_t)a->kind
    };
    k.packed = own_aligned(k.x) && own_aligned(k.y);
    size_t per_unit = k.packed ? own_per_unit(a->x.dtype) : 1;
    return own_launch(env, CUDA_MODULE_pointwise, "unary", a->x.dtype, k.n / per_unit + per_unit,
                      &k, err);
}

/* a's elements in order and b's under them: x of the layouts is b, with strides of 0 where it
 * repeats. */
static struct strided spread_of(const struct op_binary *a, size_t elem)
{
    struct strided s = { .nd = a->a.shape.ndim };
    uint64_t sa = elem, sb = elem;
    for (int i = s.nd - 1; i >= 0; i--) {
        s.dim[i] = a->a.shape.dim[i];
        s.sx[i] = a->b.shape.dim[i] > 1 ? sb : 0;
        s.sy[i] = sa;
        sa *= a->a.shape.dim[i];
        sb *= a->b.shape.dim[i];
    }
    strided_merge(&s);
    return s;
}

berth_status cuda_binary(const struct op_env *env, const struct op_binary *a, berth_err *err)
{
    enum dtype type = a->y.dtype;
    bool widens = a->b.dtype != type; /* 16 bits to F32; units are those of y */
    size_t elem = dtype_desc(type)->bytes, per_unit = own_per_unit(type);
    struct strided s = spread_of(a, elem);
    int last = s.nd - 1;
    struct binary_args k = { .a = a->a.data,
                             .b = a->b.data,
                             .y = a->y.data,
                             .n = op_count(&a->a),
                             .nd = s.nd,
                             .kind = (int32_t)a->kind,
                             .scale = op_scale(a->scale),
                             .a_type = own_type(a->a.dtype),
                             .b_type = own_type(a->b.dtype) };
    k.packed = own_aligned(k.a) && own_aligned(k.y) && s.dim[last] % per_unit == 0;
    if (s.sx[last]) { /* units of b lie together; they begin at whole ones */
        k.packed = k.packed && own_aligned(k.b);
        for (int i = 0; i < last; i++)
            k.packed = k.packed && own_whole(s.sx[i]);
    }
    if (k.packed) {
        k.n /= per_unit;
        s.dim[last] /= per_unit;
        s.sx[last] *= per_unit;
    }
    for (int i = 0; i < s.nd; i++) {
        k.dim[i] = fast_div_of(s.dim[i]);
        k.sb[i] = s.sx[i] / elem;
    }
    return own_launch(env, CUDA_MODULE_pointwise, widens ? "binary_to_f32" : "binary",
                      widens ? DT_NONE : type, k.n, &k, err);
}

berth_status cuda_geglu(const struct op_env *env, const struct op_geglu *a, berth_err *err)
{
    size_t row = op_row(&a->y), per_unit = own_per_unit(a->x.dtype);
    struct geglu_args k = { .x = a->x.data, .y = a->y.data, .n = op_count(&a->y), .tanh = a->tanh };
    k.packed = row % per_unit == 0 && own_aligned(k.x) && own_aligned(k.y);
    if (k.packed) {
        row /= per_unit;
        k.n /= per_unit;
    }
    k.row = fast_div_of(row);
    return own_launch(env, CUDA_MODULE_pointwise, "geglu", a->x.dtype, k.n, &k, err);
}

berth_status cuda_timestep(const struct op_env *env, const struct op_timestep *a, berth_err *err)
{
    uint64_t dim = a->y.shape.dim[1];
    struct timestep_args k = {
        .t = a->t.data,
        .y = a->y.data,
        .n = a->y.shape.dim[0],
        .dim = dim,
        .half = fast_div_of(dim > 1 ? dim / 2 : 1),
        .log_period = (float)-log(a->period == 0 ? 10000.0 : (double)a->period),
        .sin_first = a->sin_first,
    };
    return own_launch(env, CUDA_MODULE_pointwise, "timestep", a->y.dtype, k.n * dim, &k, err);
}
