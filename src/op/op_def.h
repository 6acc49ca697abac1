/* op_def: what the file of an op, op/<x>.c, is made of.
 *
 *     static void check(struct op_check *c, const struct op_gate *a);       refuses bad arguments
 *     static berth_status reference(env, a, err);                           plain C, on the host
 *     static size_t scratch(env, a);                                        if it needs some
 *     OP_DEFINE(gate, .scratch = scratch, .operand = { IN(op_gate, x), ... });
 *
 * and OP(gate) in ops.def; op_gate(), op_gate_ready() ... follow from it in ops.c.
 * References are what kernels are held against, so clarity comes first: plain loops, sums in
 * double, on the calling thread. They take F32 activations and parameters only, trust their
 * arguments and are not called when there is nothing to write.
 * Only for the files of ops, ops.c and check.c. */
#pragma once

#include "op/ops_impl.h"

#include <math.h>

/* ---- checks ---- */

/* Sticky: the first want_*() that fails sets `s`, the ones after it do nothing. */
struct op_check {
    const char *op;
    berth_err *err;
    bool data; /* operands must have an address */
    berth_status s;
    /* found on the way */
    const char *first; /* name of the first activation, NULL: none yet */
    enum dtype type;   /* of that one, and so of all */
    uint64_t params;   /* OP_TYPE() of biases and parameters */
};

#define REFUSE(c, ...)                                                                             \
    do {                                                                                           \
        if (!(c)->s) {                                                                             \
            (c)->s = err_set((c)->err, BERTH_EINVAL, __VA_ARGS__);                                 \
            err_add((c)->err, "%s", (c)->op);                                                      \
        }                                                                                          \
    } while (0)

struct op_shape_text {
    char a[SHAPE_TEXT_MAX];
};
#define SHAPE(v) shape_text(&(v)->shape, (struct op_shape_text) { { 0 } }.a) /* for messages */

enum { OP_HEAD_MAX = 1 << 16 }; /* elements of a head: it sizes scratch */

/* An operand of any type that is there, with a possible shape. All others begin with this one. */
void want_operand(struct op_check *c, const char *name, const struct view *v);
/* Types. Activations are of one type; what may be F32 beside activations of 16 bits (masks,
 * modulation, sums) is checked after them. */
void want_float(struct op_check *c, const char *name, const struct view *v); /* F32, F16, BF16 */
void want_act(struct op_check *c, const char *name, const struct view *v);
void want_act_or_f32(struct op_check *c, const char *name, const struct view *v);
void want_f32(struct op_check *c, const char *name, const struct view *v);
/* Layouts, of operands whose type was checked: no gaps; none inside rows; rows without gaps and
 * evenly apart, none in another; strides that are whole elements. */
void want_packed(struct op_check *c, const char *name, const struct view *v);
void want_packed_rows(struct op_check *c, const char *name, const struct view *v);
void want_even_rows(struct op_check *c, const char *name, const struct view *v);
void want_whole_strides(struct op_check *c, const char *name, const struct view *v);
/* Activations with a layout. */
void want_dense(struct op_check *c, const char *name, const struct view *v);
void want_heads(struct op_check *c, const char *name, const struct view *v); /* [B, T, H, D] */
void want_even_act(struct op_check *c, const char *name, const struct view *v);
/* A weight of any type that becomes F32; a unit of `unit` elements (a row, a filter) is packed. */
void want_weight(struct op_check *c, const char *name, const struct view *v, uint64_t unit);
/* Shapes. */
void want_dims(struct op_check *c, const char *name, const struct view *v, int n);
void want_dims_at_least(struct op_check *c, const char *name, const struct view *v, int n);
void want_same_shape(struct op_check *c, const char *na, const struct view *a, const char *nb,
                     const struct view *b);
void want_vector(struct op_check *c, const char *name, const struct view *v, uint64_t n); /* [n] */
void want_filled(struct op_check *c, const char *name, const struct view *v); /* not empty */
/* A bias or the parameters of a norm: [n]. */
void want_param(struct op_check *c, const char *name, const struct view *v, uint64_t n);
/* [B, row of x], B being x's first dimension; any stride between the rows. pre: x was checked. */
void want_per_item(struct op_check *c, const char *name, const struct view *v,
                   const struct view *x);
/* What a norm reads: y's type or F32, in y's place only if it is as large. pre: y was checked. */
void want_norm_input(struct op_check *c, const struct view *x, const struct view *y);
/* Outputs and inputs do not overlap, or are the very same memory. Of two that are slices of one
 * buffer only the caller knows. */
void want_apart(struct op_check *c, const char *ny, const struct view *y, const char *nx,
                const struct view *x);
void want_same_or_apart(struct op_check *c, const char *ny, const struct view *y, const char *nx,
                        const struct view *x);

/* ---- definitions ---- */

enum { OP_READ = 1, OP_WRITE = 2, OP_LIST = 4 };
struct op_operand {
    unsigned how;
    size_t at;    /* of its struct view in the arguments; OP_LIST: of the pointer to several */
    size_t count; /* OP_LIST: of their number, a size_t */
};
#define OPERAND(how, s, view, count)                                                               \
    {                                                                                              \
        how, offsetof(struct s, view), count                                                       \
    }
#define IN(s, view) OPERAND(OP_READ, s, view, 0)
#define OUT(s, view) OPERAND(OP_WRITE, s, view, 0) /* all of it, without reading it */
#define INOUT(s, view) OPERAND(OP_READ | OP_WRITE, s, view, 0)
#define LIST(s, views, n) OPERAND(OP_READ | OP_LIST, s, views, offsetof(struct s, n))
#define OP_OPERANDS_MAX 7

#define OP(x)                                                                                      \
    struct op_##x##_def {                                                                          \
        void (*check)(struct op_check * c, const struct op_##x *a);                                \
        berth_status (*reference)(const struct op_env *env, const struct op_##x *a,                \
                                  berth_err *err);                                                 \
        size_t (*scratch)(const struct op_env *env, const struct op_##x *a); /* NULL: none */      \
        size_t size;                                /* of the arguments */                         \
        struct op_operand operand[OP_OPERANDS_MAX]; /* every view in them */                       \
    };                                                                                             \
    extern const struct op_##x##_def op_##x##_def;
#include "op/ops.def"
#undef OP
#define OP_DEFINE(x, ...)                                                                          \
    const struct op_##x##_def op_##x##_def = {                                                     \
        .check = check, .reference = reference, .size = sizeof(struct op_##x), __VA_ARGS__         \
    }

/* ---- what references share ---- */

static inline berth_status ref_cancelled(const char *op, berth_err *err)
{
    return err_set(err, BERTH_ECANCELED, "%s: cancelled", op);
}

/* Unit i of a weight, `n` elements packed behind one another, as F32. So that scratch is the same
 * for every type, F32 weights are copied, too. */
static inline void ref_widen(const struct view *w, size_t i, size_t n, float *out)
{
    const struct dtype_desc *t = dtype_desc(w->dtype);
    t->to_f32((const char *)w->data + i * (n / t->elems) * t->bytes, out, n);
}

static inline double ref_dot(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += (double)a[i] * (double)b[i];
    return s;
}

static inline double ref_silu(double x)
{
    return x / (1 + exp(-x));
}

static inline double ref_gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}

static inline double ref_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

/* Mean and 1 / sqrt(variance + eps) of n values; rms: as if the mean were 0. */
static inline void ref_moments(const float *x, size_t n, double eps, bool rms, double *mean,
                               double *inv)
{
    double s = 0, q = 0;
    for (size_t i = 0; i < n && !rms; i++)
        s += (double)x[i];
    *mean = s / (double)n;
    for (size_t i = 0; i < n; i++)
        q += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *inv = 1 / sqrt(q / (double)n + eps);
}
