/* pointwise.c: element by element. Loops over vmath.h, compiled for every level; pieces of
 * CPU_PIECE elements go to the pool. */
#include "op/cpu/vmath.h"
#include "op/ops_impl.h"

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

static unary_fn *const *unary_of(enum op_unary_kind kind)
{
    switch (kind) {
    case OP_SILU:
        return silu_levels;
    case OP_GELU:
        return gelu_levels;
    case OP_GELU_TANH:
        return gelu_tanh_levels;
    case OP_QUICK_GELU:
        return quick_gelu_levels;
    case OP_RELU:
        return relu_levels;
    case OP_TANH:
        return tanh_levels;
    case OP_SIGMOID:
        return sigmoid_levels;
    case OP_UNARY_COUNT:
        break;
    }
    BUG("unary kind %d", (int)kind);
}

struct unary_job {
    unary_fn *fn;
    const float *x;
    float *y;
    size_t n;
};

static void unary_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct unary_job *j = user;
    size_t at = i * CPU_PIECE, left = j->n - at;
    j->fn(j->x + at, j->y + at, left < CPU_PIECE ? left : CPU_PIECE);
}

berth_status cpu_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    (void)err;
    struct unary_job j = { unary_of(a->kind)[cpu_kernels(env)], op_f32(&a->x), op_f32(&a->y),
                           op_count(&a->x) };
    cpu_spread(env, (j.n + CPU_PIECE - 1) / CPU_PIECE, j.n, unary_task, &j);
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

typedef void binary_fn(const float *a, const float *b, bool one, float scale, float *y, size_t n);

struct binary_job {
    binary_fn *fn;
    const struct op_binary *op;
    int outer;           /* dimensions in front of a run */
    size_t run, runs;    /* elements of one, how many */
    size_t pieces, each; /* pieces per run (long runs), runs per task (short ones) */
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

static void binary_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct binary_job *j = user;
    size_t first = i / j->pieces * j->each, piece = i % j->pieces;
    for (size_t r = first; r < first + j->each && r < j->runs; r++) {
        size_t from = piece * CPU_PIECE, left = j->run - from;
        size_t n = j->pieces > 1 && left > CPU_PIECE ? CPU_PIECE : left;
        size_t at = r * j->run + from;
        const float *b = op_f32(&j->op->b) + b_at(j, r) + (j->one ? 0 : from);
        j->fn(op_f32(&j->op->a) + at, b, j->one, op_scale(j->op->scale), op_f32(&j->op->y) + at, n);
    }
}

berth_status cpu_binary(const struct op_env *env, const struct op_binary *a, berth_err *err)
{
    (void)err;
    const struct shape *s = &a->a.shape, *t = &a->b.shape;
    enum cpu_level l = cpu_kernels(env);
    struct binary_job j = { .op = a, .outer = s->ndim, .run = 1, .pieces = 1, .each = 1 };
    j.fn = a->kind == OP_ADD ? add_levels[l] : a->kind == OP_SUB ? sub_levels[l] : mul_levels[l];
    /* The longest tail over which b is whole, or over which it is one number. */
    j.one = s->ndim > 0 && t->dim[s->ndim - 1] == 1;
    while (j.outer > 0 &&
           (j.one ? t->dim[j.outer - 1] == 1 : t->dim[j.outer - 1] == s->dim[j.outer - 1]))
        j.run *= (size_t)s->dim[--j.outer];
    size_t total = op_count(&a->a);
    j.runs = total / j.run;
    if (j.run > CPU_PIECE)
        j.pieces = (j.run + CPU_PIECE - 1) / CPU_PIECE;
    else
        j.each = CPU_PIECE / j.run;
    cpu_spread(env, (j.runs + j.each - 1) / j.each * j.pieces, total, binary_task, &j);
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
    size_t rows, per_item, each; /* rows in all, with one gate, per task */
    size_t sx, sz, sy;           /* bytes from row to row */
};

static void gate_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct gate_job *j = user;
    const struct op_gate *a = j->op;
    for (size_t r = i * j->each; r < (i + 1) * j->each && r < j->rows; r++)
        gate_levels[j->level](op_bytes_on(&a->x, r * j->sx), op_row_at(&a->gate, r / j->per_item),
                              op_bytes_on(&a->z, r * j->sz), op_bytes_on(&a->y, r * j->sy),
                              op_row(&a->y));
}

berth_status cpu_gate(const struct op_env *env, const struct op_gate *a, berth_err *err)
{
    (void)err;
    struct gate_job j = { .op = a, .level = cpu_kernels(env) };
    op_rows(&a->x, &j.rows, &j.sx);
    op_rows(&a->z, &j.rows, &j.sz);
    op_rows(&a->y, &j.rows, &j.sy);
    j.per_item = j.rows / (size_t)a->x.shape.dim[0];
    j.each = CPU_PIECE / op_row(&a->y) + 1;
    cpu_spread(env, cpu_over(j.rows, j.each), op_count(&a->y), gate_task, &j);
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
    size_t n, rows, each; /* row of y, rows, rows per task */
};

static void geglu_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct geglu_job *j = user;
    for (size_t r = i * j->each; r < (i + 1) * j->each && r < j->rows; r++) {
        const float *x = op_f32(&j->op->x) + r * 2 * j->n;
        j->fn(x, x + j->n, op_f32(&j->op->y) + r * j->n, j->n);
    }
}

berth_status cpu_geglu(const struct op_env *env, const struct op_geglu *a, berth_err *err)
{
    (void)err;
    struct geglu_job j = { .op = a, .n = op_row(&a->y) };
    j.fn = (a->tanh ? geglu_tanh_levels : geglu_levels)[cpu_kernels(env)];
    j.rows = op_count(&a->y) / j.n;
    j.each = CPU_PIECE / j.n + 1;
    cpu_spread(env, (j.rows + j.each - 1) / j.each, j.rows * j.n, geglu_task, &j);
    return BERTH_OK;
}
