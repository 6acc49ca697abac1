/* ops.c: backends, and the way of a call: its check, then the kernel that computes it. */
#include "op/bounce.h"

#include "device/device.h"

#include <assert.h>

/* ---- backends ---- */

static const struct op_backend *const backends[] = {
#define BACKEND(x) &op_##x,
#include "op/backends.def"
#undef BACKEND
};

const struct op_backend *op_backend_for(const struct device *d)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, d->phys->driver->name) == 0)
            return backends[i];
    return NULL;
}

uint64_t op_acts(const struct device *d)
{
    const struct op_backend *b = op_backend_for(d);
    return !b ? 0 : b->acts_of ? b->acts_of(d) & b->acts : b->acts;
}

bool op_library(const struct device *d, unsigned i, berth_err *why)
{
    const struct op_backend *b = op_backend_for(d);
    *why = (berth_err) { 0 };
    return b && b->library && b->library(i, why);
}

berth_status op_open(const struct op_env *env, berth_err *err)
{
    const struct op_backend *b = env->backend;
    return b && b->ready ? b->ready(env, err) : BERTH_OK;
}

/* ---- operands ---- */

size_t op_count_of(const struct view *v, int from, int to)
{
    size_t n = 1;
    for (int i = from; i < to; i++)
        n *= (size_t)v->shape.dim[i];
    return n;
}

size_t op_count(const struct view *v)
{
    return op_count_of(v, 0, v->shape.ndim);
}

bool op_rows(const struct view *v, size_t *rows, size_t *stride)
{
    bool first = true;
    *rows = 1;
    *stride = 0;
    for (int i = v->shape.ndim - 2; i >= 0; i--) { /* inner to outer */
        size_t n = (size_t)v->shape.dim[i];
        if (n == 1)
            continue;
        if (first)
            *stride = v->stride[i];
        else if (v->stride[i] != *stride * *rows)
            return false;
        first = false;
        *rows *= n;
    }
    return true;
}

/* ---- calls ---- */

/* Whether there is an element to compute. */
static bool has_output(const struct op_operand operand[OP_OPERANDS_MAX], const void *args)
{
    for (size_t i = 0; i < OP_OPERANDS_MAX; i++)
        if (operand[i].how & OP_WRITE &&
            op_count((const struct view *)(const void *)((const char *)args + operand[i].at)))
            return true;
    return false;
}

static berth_status check_scratch(const struct op_env *env, const char *op, size_t need,
                                  berth_err *err)
{
    if (need > (env->scratch ? env->scratch_bytes : 0))
        return err_set(err, BERTH_EINVAL, "%s: needs %zu bytes of scratch, there are %zu", op, need,
                       env->scratch ? env->scratch_bytes : 0);
    if (need && (uintptr_t)env->scratch % OP_SCRATCH_ALIGN)
        return err_set(err, BERTH_EINVAL, "%s: scratch is not aligned to %d bytes", op,
                       OP_SCRATCH_ALIGN);
    return BERTH_OK;
}

/* Whether somebody computes with the types of a call that was checked. own: the backend's kernel,
 * not the reference in its place, which is given F32 where it works on copies. */
static berth_status check_types(const struct op_check *c, const struct op_env *env, bool own,
                                berth_err *err)
{
    const char *name = own ? env->backend->name : "the reference";
    if (!env->backend && env->stream) /* not a device that computes */
        return err_set(err, BERTH_EUNSUPPORTED, "%s: no backend has a kernel for it", c->op);
    const bool any = own || env->stream;
    const uint64_t acts = any ? env->backend->acts : 0, params = any ? env->backend->params : 0;
    if (c->first && c->type != DT_F32 && !(acts & OP_TYPE(c->type)))
        return err_set(err, BERTH_EUNSUPPORTED, "%s: %s is %s, the activations of %s are F32",
                       c->op, c->first, dtype_name(c->type), name);
    uint64_t other = c->params & ~(params | OP_TYPE(DT_F32));
    for (unsigned t = 0; t < DT_COUNT; t++)
        if (other & OP_TYPE(t))
            return err_set(err, BERTH_EUNSUPPORTED, "%s: a parameter is %s, those of %s are F32",
                           c->op, dtype_name((enum dtype)t), name);
    return BERTH_OK;
}

/* Whether this call checks its arguments. */
static bool unchecked(const struct op_env *env)
{
#ifdef BERTH_CHECKS
    (void)env;
    return true;
#else
    return !env->checked;
#endif
}

enum {
#define OP(x) INDEX_##x,
#include "op/ops.def"
#undef OP
    OPS
};
static_assert(OPS <= 64, "phys.noted has a bit for each");

/* A backend without a kernel of its own takes the reference: with its scratch where the device's
 * memory is the host's, else on copies, whose scratch is the host's, too. Nothing to write: nothing
 * to do. */
#define OP(x)                                                                                      \
    static bool own_##x(const struct op_env *env)                                                  \
    {                                                                                              \
        return env->backend && env->backend->x;                                                    \
    }                                                                                              \
    static berth_status check_##x(const struct op_env *env, const struct op_##x *a, bool data,     \
                                  berth_err *err)                                                  \
    {                                                                                              \
        struct op_check c = { .op = #x, .err = err, .data = data };                                \
        op_##x##_def.check(&c, a);                                                                 \
        return c.s ? c.s : check_types(&c, env, own_##x(env), err);                                \
    }                                                                                              \
    static size_t scratch_##x(const struct op_env *env, const struct op_##x *a)                    \
    {                                                                                              \
        size_t (*fn)(const struct op_env *, const struct op_##x *) =                               \
            own_##x(env)  ? env->backend->x##_scratch                                              \
            : env->stream ? NULL                                                                   \
                          : op_##x##_def.scratch;                                                  \
        return fn ? fn(env, a) : 0;                                                                \
    }                                                                                              \
    static berth_status bounce_##x(const struct op_env *env, const struct op_##x *a,               \
                                   berth_err *err)                                                 \
    {                                                                                              \
        struct bounce b;                                                                           \
        struct bounce_call call = { #x, INDEX_##x, op_##x##_def.operand, op_##x##_def.size, 0 };   \
        if (op_##x##_def.scratch)                                                                  \
            call.scratch = op_##x##_def.scratch(env, a);                                           \
        if (bounce_in(&b, env, &call, a, err))                                                     \
            return err->code;                                                                      \
        return bounce_out(&b, op_##x##_def.reference(&b.env, b.host, err), err);                   \
    }                                                                                              \
    berth_status op_##x##_check(const struct op_env *env, const struct op_##x *a, berth_err *err)  \
    {                                                                                              \
        return check_##x(env, a, false, err);                                                      \
    }                                                                                              \
    berth_status op_##x##_ready(const struct op_env *env, const struct op_##x *a, berth_err *err)  \
    {                                                                                              \
        const struct op_backend *b = env->backend;                                                 \
        if (check_##x(env, a, false, err))                                                         \
            return err->code;                                                                      \
        if (!own_##x(env) || !has_output(op_##x##_def.operand, a))                                 \
            return BERTH_OK;                                                                       \
        if (b->ready && b->ready(env, err))                                                        \
            return err->code;                                                                      \
        return b->x##_ready ? b->x##_ready(env, a, err) : BERTH_OK;                                \
    }                                                                                              \
    size_t op_##x##_scratch(const struct op_env *env, const struct op_##x *a)                      \
    {                                                                                              \
        berth_err err;                                                                             \
        if ((unchecked(env) && check_##x(env, a, false, &err)) ||                                  \
            !has_output(op_##x##_def.operand, a))                                                  \
            return 0;                                                                              \
        return scratch_##x(env, a);                                                                \
    }                                                                                              \
    berth_status op_##x(const struct op_env *env, const struct op_##x *a, berth_err *err)          \
    {                                                                                              \
        if (unchecked(env) && check_##x(env, a, true, err))                                        \
            return err->code;                                                                      \
        if (!has_output(op_##x##_def.operand, a))                                                  \
            return BERTH_OK;                                                                       \
        if (op_cancelled(env))                                                                     \
            return err_set(err, BERTH_ECANCELED, "%s: cancelled", #x);                             \
        if (unchecked(env) && check_scratch(env, #x, scratch_##x(env, a), err))                    \
            return err->code;                                                                      \
        if (own_##x(env))                                                                          \
            return env->backend->x(env, a, err);                                                   \
        return env->stream ? bounce_##x(env, a, err) : op_##x##_def.reference(env, a, err);        \
    }
#include "op/ops.def"
#undef OP
