/* pointwise.c: element by element. Loops over vmath.h, compiled for every level. */
#include "op/cpu/vmath.h"

/* ---- unary ---- */

#define UNARY(f, value)                                                                            \
    INLINE_BODY void f##_body(const bool fused, const float *x, float *y, size_t n)                \
    {                                                                                              \
        (void)fused;                                                                               \
        VM_LOOP                                                                                    \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = value;                                                                          \
    }                                                                                              \
    CLONES(f, (const float *x, float *y, size_t n), x, y, n)
UNARY(silu, vm_silu(fused, x[i]))
UNARY(gelu, vm_gelu(fused, x[i]))
UNARY(gelu_tanh, vm_gelu_tanh(fused, x[i]))
UNARY(quick_gelu, x[i] / (1 + vm_exp(fused, -1.702f * x[i])))
UNARY(relu, vm_pick(x[i] < 0, 0, x[i])) /* NaN stays */
UNARY(tanh, vm_tanh(fused, x[i]))
UNARY(sigmoid, vm_sigmoid(fused, x[i]))

typedef void unary_fn(const float *x, float *y, size_t n);

void (*cpu_gelu_tanh(enum cpu_level l))(const float *x, float *y, size_t n)
{
    return gelu_tanh_levels[l];
}

static unary_fn *const *const unary[OP_UNARY_COUNT] = {
    [OP_SILU] = silu_levels,           [OP_GELU] = gelu_levels,
    [OP_GELU_TANH] = gelu_tanh_levels, [OP_QUICK_GELU] = quick_gelu_levels,
    [OP_RELU] = relu_levels,           [OP_TANH] = tanh_levels,
    [OP_SIGMOID] = sigmoid_levels,
};

struct unary_job {
    unary_fn *fn;
    const float *x;
    float *y;
};

static void unary_range(const void *user, size_t from, size_t to)
{
    const struct unary_job *j = user;
    j->fn(j->x + from, j->y + from, to - from);
}

berth_status cpu_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    (void)err;
    struct unary_job j = { unary[a->kind][cpu_kernels(env)], op_f32(&a->x), op_f32(&a->y) };
    cpu_ranges(env, op_count(&a->x), 1, unary_range, &j);
    return BERTH_OK;
}

/* ---- binary ---- */

/* A run of elements: b is as long, or one number for all of them. */
#define BINARY(f, value)                                                                           \
    INLINE_BODY void f##_body(const bool fused, const float *a, const float *b, bool one,          \
                              float scale, float *y, size_t n)                                     \
    {                                                                                              \
        (void)fused;                                                                               \
        if (one) {                                                                                 \
            float v = b[0] * scale;                                                                \
            VM_LOOP                                                                                \
            for (size_t i = 0; i < n; i++)                                                         \
                y[i] = value;                                                                      \
        } else {                                                                                   \
            VM_LOOP                                                                                \
            for (size_t i = 0; i < n; i++) {                                                       \
                float v = b[i] * scale;                                                            \
                y[i] = value;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    CLONES(f, (const float *a, const float *b, bool one, float scale, float *y, size_t n), a, b,   \
           one, scale, y, n)
BINARY(add, a[i] + v)
BINARY(sub, a[i] - v)
BINARY(mul, a[i] * v)
BINARY(silu_mul, vm_silu(fused, a[i]) * v)
BINARY(leak, a[i] < 0 ? a[i] * v : a[i])

typedef void binary_fn(const float *a, const float *b, bool one, float scale, float *y, size_t n);

struct binary_job {
    binary_fn *fn;
    const struct op_binary *op;
    int outer;  /* dimensions in front of a run */
    size_t run; /* elements of one */
    bool one;
};

/* Where run r of a begins in b: dimensions of 1 repeat. */
static size_t b_at(const struct binary_job *j, size_t r)
{
    const struct shape *s = &j->op->a.shape, *t = &j->op->b.shape;
    size_t at = 0, step = j->one ? 1 : j->run;
    for (int d = j->outer - 1; d >= 0; d--) {
        at += t->dim[d] > 1 ? r % (size_t)s->dim[d] * step : 0;
        r /= (size_t)s->dim[d];
        step *= (size_t)t->dim[d];
    }
    return at;
}

static void binary_range(const void *user, size_t from, size_t to)
{
    const struct binary_job *j = user;
    for (size_t at = from, n; at < to; at += n) {
        size_t in = at % j->run; /* of its run */
        n = cpu_least(j->run - in, to - at);
        const float *b = op_f32(&j->op->b) + b_at(j, at / j->run) + (j->one ? 0 : in);
        j->fn(op_f32(&j->op->a) + at, b, j->one, op_scale(j->op->scale), op_f32(&j->op->y) + at, n);
    }
}

berth_status cpu_binary(const struct op_env *env, const struct op_binary *a, berth_err *err)
{
    (void)err;
    static binary_fn *const *const fn[] = { [OP_ADD] = add_levels,
                                            [OP_SUB] = sub_levels,
                                            [OP_MUL] = mul_levels,
                                            [OP_SILU_MUL] = silu_mul_levels,
                                            [OP_LEAK] = leak_levels };
    const struct shape *s = &a->a.shape, *t = &a->b.shape;
    enum cpu_level l = cpu_kernels(env);
    struct binary_job j = { .op = a, .outer = s->ndim, .run = 1 };
    j.fn = fn[a->kind][l];
    /* The longest tail over which b is whole, or over which it is one number. */
    j.one = s->ndim > 0 && t->dim[s->ndim - 1] == 1;
    while (j.outer > 0 &&
           (j.one ? t->dim[j.outer - 1] == 1 : t->dim[j.outer - 1] == s->dim[j.outer - 1]))
        j.run *= (size_t)s->dim[--j.outer];
    cpu_ranges(env, op_count(&a->a), 1, binary_range, &j);
    return BERTH_OK;
}

/* ---- gate ---- */

INLINE_BODY void gate_body(const bool fused, const float *x, const float *gate, const float *z,
                           float *y, size_t n)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = vm_fma(fused, gate[i], z[i], x[i]);
}
CLONES(gate, (const float *x, const float *gate, const float *z, float *y, size_t n), x, gate, z, y,
       n)

struct gate_job {
    const struct op_gate *op;
    enum cpu_level level;
    size_t per_item;   /* rows with one gate */
    size_t sx, sz, sy; /* bytes from row to row */
};

static void gate_rows(const void *user, size_t from, size_t to)
{
    const struct gate_job *j = user;
    const struct op_gate *a = j->op;
    for (size_t r = from; r < to; r++)
        gate_levels[j->level](op_bytes_on(&a->x, r * j->sx), op_row_at(&a->gate, r / j->per_item),
                              op_bytes_on(&a->z, r * j->sz), op_bytes_on(&a->y, r * j->sy),
                              op_row(&a->y));
}

berth_status cpu_gate(const struct op_env *env, const struct op_gate *a, berth_err *err)
{
    (void)err;
    struct gate_job j = { .op = a, .level = cpu_kernels(env) };
    size_t rows;
    op_rows(&a->x, &rows, &j.sx);
    op_rows(&a->z, &rows, &j.sz);
    op_rows(&a->y, &rows, &j.sy);
    j.per_item = rows / (size_t)a->x.shape.dim[0];
    cpu_ranges(env, rows, op_row(&a->y), gate_rows, &j);
    return BERTH_OK;
}

/* ---- geglu ---- */

INLINE_BODY void geglu_body(const bool fused, const float *x, const float *g, float *y, size_t n)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * vm_gelu(fused, g[i]);
}
CLONES(geglu, (const float *x, const float *g, float *y, size_t n), x, g, y, n)

INLINE_BODY void geglu_tanh_body(const bool fused, const float *x, const float *g, float *y,
                                 size_t n)
{
    VM_LOOP
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * vm_gelu_tanh(fused, g[i]);
}
CLONES(geglu_tanh, (const float *x, const float *g, float *y, size_t n), x, g, y, n)

struct geglu_job {
    const struct op_geglu *op;
    void (*fn)(const float *x, const float *g, float *y, size_t n);
};

static void geglu_rows(const void *user, size_t from, size_t to)
{
    const struct geglu_job *j = user;
    size_t n = op_row(&j->op->y);
    for (size_t r = from; r < to; r++) {
        const float *x = op_f32(&j->op->x) + r * 2 * n;
        j->fn(x, x + n, op_f32(&j->op->y) + r * n, n);
    }
}

berth_status cpu_geglu(const struct op_env *env, const struct op_geglu *a, berth_err *err)
{
    (void)err;
    struct geglu_job j = { a, (a->tanh ? geglu_tanh_levels : geglu_levels)[cpu_kernels(env)] };
    size_t n = op_row(&a->y);
    cpu_ranges(env, op_count(&a->y) / n, n, geglu_rows, &j);
    return BERTH_OK;
}
