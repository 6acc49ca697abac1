/* expr_fn: the functions that a Math Expression may call. */
#include "node/expr_impl.h"
#include "node/py.h"

#include <math.h>
#include <string.h>

typedef berth_status fn(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                        berth_err *err);

static berth_status not_real(struct expr *x, const struct ev *v, berth_err *err)
{
    return expr_raise(x, "TypeError", err, "must be real number, not %s", ev_type(v));
}

static berth_status domain(struct expr *x, berth_err *err)
{
    return expr_raise(x, "ValueError", err, "math domain error");
}

/* ---- of several values ---- */

/* f(list) is f of its members. */
static berth_status spread(struct expr *x, const char *name, const struct ev **arg, size_t *n,
                           berth_err *err)
{
    if (*n != 1)
        return *n ? BERTH_OK
                  : expr_raise(x, "TypeError", err, "%s expected at least 1 argument, got 0", name);
    if ((*arg)->kind == EV_LIST) {
        *n = (*arg)->list.n;
        *arg = (*arg)->list.at;
        return BERTH_OK;
    }
    if ((*arg)->kind == EV_TEXT)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Math Expression '%.*s': %s() of a text is not supported", EXPR_SHOWN(x),
                       name);
    return expr_raise(x, "TypeError", err, "'%s' object is not iterable", ev_type(*arg));
}

static berth_status best(struct expr *x, const char *name, enum expr_op better,
                         const struct ev *arg, size_t n, struct ev *out, berth_err *err)
{
    if (spread(x, name, &arg, &n, err))
        return err->code;
    if (!n)
        return expr_raise(x, "ValueError", err, "%s() arg is an empty sequence", name);
    *out = arg[0];
    for (size_t i = 1; i < n; i++) {
        bool is;
        if (ev_compare(x, better, &arg[i], out, &is, err))
            return err->code;
        if (is)
            *out = arg[i];
    }
    return BERTH_OK;
}

static berth_status fn_min(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    return best(x, "min", OP_LT, arg, n, out, err);
}

static berth_status fn_max(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    return best(x, "max", OP_GT, arg, n, out, err);
}

static berth_status fn_sum(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    if (n == 1 && arg->kind == EV_LIST) {
        n = arg->list.n;
        arg = arg->list.at;
    }
    *out = ev_of_int(0);
    for (size_t i = 0; i < n; i++) {
        struct ev sum = *out;
        if (ev_binary(x, OP_ADD, &sum, &arg[i], out, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- rounding ---- */

static berth_status fn_abs(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    __int128 i;
    (void)n;
    if (ev_int(arg, &i)) {
        bool over = i < 0 && __builtin_sub_overflow((__int128)0, i, &i);
        *out = ev_of_int(i);
        return over ? expr_too_big(err) : BERTH_OK;
    }
    if (arg->kind == EV_FLOAT) {
        *out = ev_of_f64(fabs(arg->f));
        return BERTH_OK;
    }
    if (arg->kind == EV_COMPLEX) {
        *out = ev_of_f64(hypot(arg->z.re, arg->z.im));
        return BERTH_OK;
    }
    return expr_raise(x, "TypeError", err, "bad operand type for abs(): '%s'", ev_type(arg));
}

/* i to the nearest multiple of 10^places, halves to even; above: something more than i is there.
 * False: the multiple is beyond our integers. */
static bool round_tens(__int128 i, int places, bool above, __int128 *out)
{
    __int128 unit = 1;
    *out = 0;
    for (int k = 0; k < places; k++)
        if (__builtin_mul_overflow(unit, 10, &unit))
            return true;
    __int128 rest = i % unit, size = rest < 0 ? -rest : rest, left = unit - size;
    bool odd = i / unit % 2 != 0;
    *out = i - rest;
    if (size > left || (size == left && (above || odd)))
        return !__builtin_add_overflow(*out, i < 0 ? -unit : unit, out);
    return true;
}

#define PLACES_MAX 400

static berth_status round_float(struct expr *x, double f, __int128 places, struct ev *out,
                                berth_err *err)
{
    *out = ev_of_f64(f);
    if (!isfinite(f) || places > PLACES_MAX)
        return BERTH_OK;
    if (places < 0) {
        if (!(fabs(f) < 0x1p120))
            return err_set(err, BERTH_EUNSUPPORTED,
                           "Math Expression '%.*s': rounding such a large float to tens is not "
                           "supported",
                           EXPR_SHOWN(x));
        double whole = trunc(f);
        __int128 i = 0;
        if (places >= -38 && !round_tens((__int128)whole, (int)-places, whole != f, &i))
            return expr_too_big(err);
        *out = ev_of_f64(copysign((double)(i < 0 ? -i : i), f));
        return BERTH_OK;
    }
    char text[PLACES_MAX + 320]; /* correctly rounded, as Python does it */
    int n = snprintf(text, sizeof text, "%.*f", (int)places, f);
    double rounded;
    if (str_parse_f64(text, (size_t)n, &rounded))
        *out = ev_of_f64(rounded);
    return BERTH_OK;
}

static berth_status fn_round(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                             berth_err *err)
{
    __int128 i, places = 0;
    bool given = n > 1 && arg[1].kind != EV_NONE;
    if (given && !ev_int(&arg[1], &places))
        return expr_raise(x, "TypeError", err, "'%s' object cannot be interpreted as an integer",
                          ev_type(&arg[1]));
    if (ev_int(arg, &i)) {
        __int128 r = places >= 0 ? i : 0;
        if (places < 0 && places >= -38 && !round_tens(i, (int)-places, false, &r))
            return expr_too_big(err);
        *out = ev_of_int(r);
        return BERTH_OK;
    }
    if (arg->kind == EV_FLOAT)
        return given ? round_float(x, arg->f, places, out, err)
                     : ev_trunc(x, rint(arg->f), out, err);
    return expr_raise(x, "TypeError", err, "type %s doesn't define __round__ method", ev_type(arg));
}

static berth_status to_whole(struct expr *x, const struct ev *v, double (*how)(double),
                             struct ev *out, berth_err *err)
{
    __int128 i;
    if (ev_int(v, &i)) {
        *out = ev_of_int(i);
        return BERTH_OK;
    }
    return v->kind == EV_FLOAT ? ev_trunc(x, how(v->f), out, err) : not_real(x, v, err);
}

static berth_status fn_ceil(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                            berth_err *err)
{
    (void)n;
    return to_whole(x, arg, ceil, out, err);
}

static berth_status fn_floor(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                             berth_err *err)
{
    (void)n;
    return to_whole(x, arg, floor, out, err);
}

/* ---- conversions ---- */

static berth_status fn_int(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    __int128 i = 0;
    bool minus;
    *out = ev_of_int(0);
    if (!n)
        return BERTH_OK;
    if (n > 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Math Expression '%.*s': int() with a base is not supported", EXPR_SHOWN(x));
    if (arg->kind == EV_FLOAT)
        return ev_trunc(x, arg->f, out, err);
    if (arg->kind == EV_TEXT) {
        struct str shown = { 0 };
        switch (py_parse_int(arg->s.p, arg->s.n, &i, NULL, &minus)) {
        case PY_INT:
            *out = ev_of_int(i);
            return BERTH_OK;
        case PY_INT_NO_MEMORY:
            return expr_no_memory(err);
        case PY_INT_BIG:
        case PY_INT_LONG:
            return expr_too_big(err);
        case PY_NO_INT:
            break;
        }
        py_repr_text(arg->s.p, arg->s.n, 200, &shown);
        expr_raise(x, "ValueError", err, "invalid literal for int() with base 10: %s",
                   str_c(&shown));
        str_release(&shown);
        return err->code;
    }
    if (!ev_int(arg, &i))
        return expr_raise(x, "TypeError", err,
                          "int() argument must be a string, a bytes-like object or a real number, "
                          "not '%s'",
                          ev_type(arg));
    *out = ev_of_int(i);
    return BERTH_OK;
}

static berth_status fn_float(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                             berth_err *err)
{
    double f = 0;
    *out = ev_of_f64(0);
    if (!n)
        return BERTH_OK;
    if (arg->kind == EV_TEXT) {
        struct str shown = { 0 };
        switch (py_parse_float(arg->s.p, arg->s.n, &f)) {
        case PY_FLOAT:
        case PY_INF:
            *out = ev_of_f64(f);
            return BERTH_OK;
        case PY_NAN:
            *out = ev_of_f64(NAN);
            return BERTH_OK;
        case PY_NO_MEMORY:
            return expr_no_memory(err);
        case PY_NO_FLOAT:
            break;
        }
        py_repr_text(arg->s.p, arg->s.n, 200, &shown);
        expr_raise(x, "ValueError", err, "could not convert string to float: %s", str_c(&shown));
        str_release(&shown);
        return err->code;
    }
    if (!ev_is_number(arg))
        return expr_raise(x, "TypeError", err,
                          "float() argument must be a string or a real number, not '%s'",
                          ev_type(arg));
    *out = ev_of_f64(ev_f64(arg));
    return BERTH_OK;
}

/* ---- powers and logarithms ---- */

static berth_status fn_pow(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    (void)n;
    if (!ev_is_number(&arg[1]))
        return expr_raise(x, "TypeError", err, "bad operand type for abs(): '%s'",
                          ev_type(&arg[1]));
    if (fabs(ev_f64(&arg[1])) > 4000) {
        struct str shown = { 0 };
        ev_repr(&arg[1], &shown);
        expr_raise(x, "ValueError", err, "Exponent %s exceeds maximum allowed (4000)",
                   str_c(&shown));
        str_release(&shown);
        return err->code;
    }
    /* The limit of ** does not hold here. */
    if (ev_is_number(arg) && fabs(ev_f64(arg)) > 4000000) {
        struct ev base = ev_of_f64(ev_f64(arg));
        __int128 b, e;
        if (ev_int(arg, &b) && ev_int(&arg[1], &e) && e >= 0) {
            __int128 r = 1;
            for (; e; e--)
                if (__builtin_mul_overflow(r, b, &r))
                    return expr_too_big(err);
            *out = ev_of_int(r);
            return BERTH_OK;
        }
        double r = pow(base.f, ev_f64(&arg[1]));
        if (isinf(r) && isfinite(base.f))
            return expr_raise(x, "OverflowError", err, "(34, 'Numerical result out of range')");
        if (isnan(r))
            return err_set(err, BERTH_EUNSUPPORTED,
                           "Math Expression '%.*s': complex numbers are not supported",
                           EXPR_SHOWN(x));
        *out = ev_of_f64(r);
        return BERTH_OK;
    }
    return ev_binary(x, OP_POW, arg, &arg[1], out, err);
}

/* how(v), as Python's math module guards it. */
static berth_status real_function(struct expr *x, const struct ev *v, double (*how)(double),
                                  struct ev *out, berth_err *err)
{
    if (!ev_is_number(v))
        return not_real(x, v, err);
    double f = ev_f64(v), r = how(f);
    if ((isnan(r) && !isnan(f)) || (isinf(r) && isfinite(f)))
        return domain(x, err);
    *out = ev_of_f64(r);
    return BERTH_OK;
}

#define REAL(name, how)                                                                            \
    static berth_status name(struct expr *x, const struct ev *arg, size_t n, struct ev *out,       \
                             berth_err *err)                                                       \
    {                                                                                              \
        (void)n;                                                                                   \
        return real_function(x, arg, how, out, err);                                               \
    }
REAL(fn_sqrt, sqrt)
REAL(fn_log2, log2)
REAL(fn_log10, log10)
REAL(fn_sin, sin)
REAL(fn_cos, cos)
REAL(fn_tan, tan)

static berth_status fn_log(struct expr *x, const struct ev *arg, size_t n, struct ev *out,
                           berth_err *err)
{
    struct ev of, base;
    if (real_function(x, arg, log, &of, err))
        return err->code;
    *out = of;
    if (n == 1)
        return BERTH_OK;
    if (real_function(x, &arg[1], log, &base, err))
        return err->code;
    return ev_binary(x, OP_DIV, &of, &base, out, err);
}

/* ---- all of them ---- */

#define ANY SIZE_MAX
static const struct function {
    const char *name;
    size_t least, most;
    fn *call;
} functions[] = {
    { "sum", 0, ANY, fn_sum }, { "min", 0, ANY, fn_min },   { "max", 0, ANY, fn_max },
    { "abs", 1, 1, fn_abs },   { "round", 1, 2, fn_round }, { "pow", 2, 2, fn_pow },
    { "sqrt", 1, 1, fn_sqrt }, { "ceil", 1, 1, fn_ceil },   { "floor", 1, 1, fn_floor },
    { "log", 1, 2, fn_log },   { "log2", 1, 1, fn_log2 },   { "log10", 1, 1, fn_log10 },
    { "sin", 1, 1, fn_sin },   { "cos", 1, 1, fn_cos },     { "tan", 1, 1, fn_tan },
    { "int", 0, 2, fn_int },   { "float", 0, 1, fn_float },
};

static const struct function *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}

bool expr_is_function(const char *name)
{
    return find(name);
}

berth_status expr_call(struct expr *x, const char *name, const struct ev *arg, size_t n,
                       struct ev *out, berth_err *err)
{
    const struct function *f = find(name);
    if (n < f->least || n > f->most)
        return expr_raise(x, "TypeError", err, "%s() takes %zu to %zu arguments (%zu given)", name,
                          f->least, f->most, n);
    return f->call(x, arg, n, out, err);
}
