/* op_rounding: a backend of the host that has activations of 16 bits. It does nothing but widen
 * what it is given to F32, ask the reference and round the result once (and weights and biases of
 * products before that, as cards do): what kernels are meant to do, and a network in 16 bits
 * without a card.
 * Operands of 16 bits are widened, weights too; quants are read by the reference as they are. */
#ifndef UNIT_OP_OP_ROUNDING_H
#define UNIT_OP_OP_ROUNDING_H

#include "unit/op/op_cases.h"

/* f: the result without gaps. */
static void rounding_put(const struct view *v, float *f)
{
    size_t n = op_count(v), bytes = dtype_desc(v->dtype)->bytes;
    char *narrow = malloc(n * bytes);
    berth_err err;
    assert_true(n && narrow);
    assert_ok(convert(DT_F32, f, v->dtype, narrow, n, &err), err);
    for (size_t e = 0, run = run_of(v); e < n; e += run)
        memcpy(element(v, e), narrow + e * bytes, run * bytes);
    free(narrow);
}

static struct {
    berth_status (*before)(const struct op_env *env, berth_err *err); /* each call; may be NULL */
    void (*put)(const struct view *v, float *f);                      /* may change f */
} rounding_by = { .put = rounding_put };

/* The view as F32 without gaps. */
static struct view widen_view(const struct view *v)
{
    size_t n = op_count(v);
    float *f = malloc(n * sizeof *f + 1);
    struct view out;
    berth_err err;
    assert_non_null(f);
    values_of(v, f);
    assert_ok(view_init(DT_F32, &v->shape, f, n * sizeof *f, &out, &err), err);
    return out;
}

static bool of_16_or_32(const struct view *v)
{
    return v->data && (v->dtype == DT_F32 || v->dtype == DT_F16 || v->dtype == DT_BF16);
}

/* As type t has them; quants are not widened and stay. */
static void round_to(enum dtype t, const struct view *wide)
{
    size_t n = op_count(wide);
    if (!of_16_or_32(wide))
        return;
    void *narrow = malloc(n * dtype_desc(t)->bytes);
    berth_err err;
    assert_non_null(narrow);
    assert_ok(convert(DT_F32, wide->data, t, narrow, n, &err), err);
    assert_ok(convert(t, narrow, DT_F32, wide->data, n, &err), err);
    free(narrow);
}

static berth_status rounding(const struct op_case *op, const struct op_env *env, const union any *a,
                             berth_err *err)
{
    union any wide = *a;
    struct view list[8], *w;
    if (rounding_by.before && rounding_by.before(env, err))
        return err->code;
    for (const struct operand *o = op->operand; o->name; o++)
        if (w = operand(&wide, o), of_16_or_32(w))
            *w = widen_view(w);
    if (env->fp8)
        round_to(DT_F8_E4M3, &wide.linear.x);
    if (op->make == make_linear) {
        round_to(a->linear.x.dtype, &wide.linear.w);
        round_to(a->linear.y.dtype, &wide.linear.bias);
    }
    if (op->make == make_conv2d) {
        round_to(a->conv2d.x.dtype, &wide.conv2d.w);
        round_to(a->conv2d.y.dtype, &wide.conv2d.bias);
    }
    for (size_t i = 0; op->make == make_concat && i < a->concat.n; i++)
        list[i] = widen_view(&a->concat.x[i]);
    if (op->make == make_concat)
        wide.concat.x = list;
    berth_status s = run_on_host(op, &wide, (struct op_env) { 0 }, err);
    for (const struct operand *o = op->operand; o->name; o++) {
        const struct view *v = operand(a, o);
        if (!s && o->how & WRITTEN)
            rounding_by.put(v, operand(&wide, o)->data);
        if (of_16_or_32(v))
            free(operand(&wide, o)->data);
    }
    for (size_t i = 0; op->make == make_concat && i < a->concat.n; i++)
        free(list[i].data);
    return s;
}

enum {
#define OP(x) AT_##x,
#include "op/ops.def"
#undef OP
};
#define OP(x)                                                                                      \
    static berth_status rounding_##x(const struct op_env *env, const struct op_##x *a,             \
                                     berth_err *err)                                               \
    {                                                                                              \
        union any any = { .x = *a };                                                               \
        return rounding(&ops[AT_##x], env, &any, err);                                             \
    }                                                                                              \
    static size_t rounding_##x##_scratch(const struct op_env *env, const struct op_##x *a)         \
    {                                                                                              \
        (void)a;                                                                                   \
        return env->thrifty ? 64 : 128;                                                            \
    }
#include "op/ops.def"
#undef OP
static const struct op_backend op_rounding = {
    .name = "rounding",
    .acts = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
    .params = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
#define OP(x) .x = rounding_##x, .x##_scratch = rounding_##x##_scratch,
#include "op/ops.def"
#undef OP
};

#endif
