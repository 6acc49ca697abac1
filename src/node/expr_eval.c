/* expr_eval: the value of a tree, with Python's rules for numbers: bool is an int, / gives floats,
 * // and % round down, integers and floats compare exactly. */
#include "node/expr_impl.h"
#include "node/py.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

berth_status expr_too_big(berth_err *err)
{
    return err_set(err, BERTH_ELIMIT,
                   "Math Expression: integers of more than 127 bits are not supported");
}

berth_status expr_no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a Math Expression");
}

/* ---- values ---- */

const char *ev_type(const struct ev *v)
{
    static const char *const name[] = {
        [EV_NONE] = "NoneType",   [EV_BOOL] = "bool", [EV_INT] = "int",  [EV_FLOAT] = "float",
        [EV_COMPLEX] = "complex", [EV_TEXT] = "str",  [EV_LIST] = "list"
    };
    return name[v->kind];
}

void ev_repr(const struct ev *v, struct str *out)
{
    switch (v->kind) {
    case EV_NONE:
        str_adds(out, "None");
        break;
    case EV_BOOL:
        str_adds(out, v->b ? "True" : "False");
        break;
    case EV_INT:
        py_add_int(v->i, out);
        break;
    case EV_FLOAT:
        py_repr_f64(v->f, out);
        break;
    case EV_COMPLEX: { /* (1.5+2j): without ".0" */
        struct str part = { 0 };
        py_repr_f64(v->z.re, &part);
        str_addf(&part, v->z.im < 0 || (v->z.im == 0 && signbit(v->z.im)) ? "" : "+");
        size_t at = part.n;
        py_repr_f64(v->z.im, &part);
        size_t re = at && part.p[at - 1] == '+' ? at - 1 : at;
        if (str_ends(part.p, re, ".0"))
            re -= 2;
        str_addc(out, '(');
        str_add(out, part.p, re);
        at = at && part.p[at - 1] == '+' ? at - 1 : at;
        str_add(out, part.p + at, part.n - at - (str_ends(part.p, part.n, ".0") ? 2 : 0));
        str_adds(out, "j)");
        out->bad = out->bad || part.bad;
        str_release(&part);
        break;
    }
    case EV_TEXT:
        py_repr_text(v->s.p, v->s.n, SIZE_MAX, out);
        break;
    case EV_LIST:
        str_addc(out, '[');
        for (size_t i = 0; i < v->list.n; i++) {
            str_adds(out, i ? ", " : "");
            ev_repr(&v->list.at[i], out);
        }
        str_addc(out, ']');
        break;
    }
}

struct ev ev_of_int(__int128 i)
{
    return (struct ev) { .kind = EV_INT, .i = i };
}
struct ev ev_of_f64(double f)
{
    return (struct ev) { .kind = EV_FLOAT, .f = f };
}
struct ev ev_of_bool(bool b)
{
    return (struct ev) { .kind = EV_BOOL, .b = b };
}

bool ev_truth(const struct ev *v)
{
    switch (v->kind) {
    case EV_NONE:
        return false;
    case EV_BOOL:
        return v->b;
    case EV_INT:
        return v->i != 0;
    case EV_FLOAT:
        return v->f != 0;
    case EV_COMPLEX:
        return v->z.re != 0 || v->z.im != 0;
    case EV_TEXT:
        return v->s.n > 0;
    case EV_LIST:
        return v->list.n > 0;
    }
    return false;
}

bool ev_int(const struct ev *v, __int128 *out)
{
    *out = v->kind == EV_BOOL ? v->b : v->kind == EV_INT ? v->i : 0;
    return v->kind == EV_BOOL || v->kind == EV_INT;
}

bool ev_is_number(const struct ev *v)
{
    return v->kind == EV_BOOL || v->kind == EV_INT || v->kind == EV_FLOAT;
}

double ev_f64(const struct ev *v)
{
    __int128 i;
    return ev_int(v, &i) ? (double)i : v->f;
}

berth_status ev_trunc(struct expr *x, double f, struct ev *out, berth_err *err)
{
    if (isnan(f))
        return expr_raise(x, "ValueError", err, "cannot convert float NaN to integer");
    if (isinf(f))
        return expr_raise(x, "OverflowError", err, "cannot convert float infinity to integer");
    if (!(f > -0x1p127 && f < 0x1p127))
        return expr_too_big(err);
    *out = ev_of_int((__int128)f);
    return BERTH_OK;
}

/* ---- comparisons ---- */

/* -1, 0, 1 of an integer and a float; 2: not comparable (NaN). */
static int compare_mixed(__int128 i, double f)
{
    if (isnan(f))
        return 2;
    if (f >= 0x1p127)
        return -1;
    if (f < -0x1p127)
        return 1;
    double whole = trunc(f);
    __int128 w = (__int128)whole;
    return i != w ? (i < w ? -1 : 1) : f > whole ? -1 : f < whole ? 1 : 0;
}

/* The same of two numbers. */
static int compare_numbers(const struct ev *a, const struct ev *b)
{
    __int128 i, k;
    bool ai = ev_int(a, &i), bi = ev_int(b, &k);
    if (ai && bi)
        return i < k ? -1 : i > k;
    if (ai)
        return compare_mixed(i, b->f);
    if (bi) {
        int c = compare_mixed(k, a->f);
        return c == 2 ? 2 : -c;
    }
    return isnan(a->f) || isnan(b->f) ? 2 : a->f < b->f ? -1 : a->f > b->f;
}

static int compare_texts(const struct ev *a, const struct ev *b) /* UTF-8 sorts as its points do */
{
    size_t n = a->s.n < b->s.n ? a->s.n : b->s.n;
    int c = n ? memcmp(a->s.p, b->s.p, n) : 0;
    return c ? (c < 0 ? -1 : 1) : a->s.n < b->s.n ? -1 : a->s.n > b->s.n;
}

static bool is_equal(const struct ev *a, const struct ev *b)
{
    if (ev_is_number(a) && ev_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a->kind != b->kind)
        return false;
    if (a->kind == EV_TEXT)
        return compare_texts(a, b) == 0;
    bool same = a->kind != EV_LIST || a->list.n == b->list.n;
    for (size_t i = 0; a->kind == EV_LIST && same && i < a->list.n; i++)
        same = is_equal(&a->list.at[i], &b->list.at[i]); /* of numbers: no lists in lists */
    return same && a->kind != EV_COMPLEX;
}

static bool compare_holds(enum expr_op op, int c)
{
    return c != 2 && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
}

static berth_status contains(struct expr *x, const struct ev *in, const struct ev *what, bool *out,
                             berth_err *err)
{
    *out = false;
    if (in->kind == EV_LIST) {
        for (size_t i = 0; i < in->list.n; i++)
            *out = *out || is_equal(&in->list.at[i], what);
        return BERTH_OK;
    }
    if (in->kind != EV_TEXT)
        return expr_raise(x, "TypeError", err, "argument of type '%s' is not iterable",
                          ev_type(in));
    if (what->kind != EV_TEXT)
        return expr_raise(x, "TypeError", err,
                          "'in <string>' requires string as left operand, not %s", ev_type(what));
    *out = !what->s.n || memmem(in->s.p, in->s.n, what->s.p, what->s.n);
    return BERTH_OK;
}

berth_status ev_compare(struct expr *x, enum expr_op op, const struct ev *a, const struct ev *b,
                        bool *out, berth_err *err)
{
    static const char *const sign[] = {
        [OP_LT] = "<", [OP_LE] = "<=", [OP_GT] = ">", [OP_GE] = ">="
    };
    berth_status s;
    switch (op) {
    case OP_EQ:
    case OP_NE:
        *out = is_equal(a, b) == (op == OP_EQ);
        return BERTH_OK;
    case OP_IS:
    case OP_IS_NOT:
        *out = (a->kind == b->kind && is_equal(a, b)) == (op == OP_IS);
        return BERTH_OK;
    case OP_IN:
    case OP_NOT_IN:
        s = contains(x, b, a, out, err);
        *out = *out == (op == OP_IN);
        return s;
    default:
        break;
    }
    if (ev_is_number(a) && ev_is_number(b)) {
        *out = compare_holds(op, compare_numbers(a, b));
        return BERTH_OK;
    }
    if (a->kind == EV_TEXT && b->kind == EV_TEXT) {
        *out = compare_holds(op, compare_texts(a, b));
        return BERTH_OK;
    }
    if (a->kind == EV_LIST && b->kind == EV_LIST) {
        size_t i = 0;
        while (i < a->list.n && i < b->list.n && is_equal(&a->list.at[i], &b->list.at[i]))
            i++;
        if (i < a->list.n && i < b->list.n)
            return ev_compare(x, op, &a->list.at[i], &b->list.at[i], out, err);
        *out = compare_holds(op, a->list.n < b->list.n ? -1 : a->list.n > b->list.n);
        return BERTH_OK;
    }
    return expr_raise(x, "TypeError", err, "'%s' not supported between instances of '%s' and '%s'",
                      sign[op], ev_type(a), ev_type(b));
}

/* ---- integers ---- */

static unsigned __int128 magnitude(__int128 i)
{
    return i < 0 ? -(unsigned __int128)i : (unsigned __int128)i;
}

static int leading_zeros(unsigned __int128 u)
{
    uint64_t high = (uint64_t)(u >> 64);
    return high ? __builtin_clzll(high) : 64 + __builtin_clzll((uint64_t)u);
}

/* a / b, rounded once. pre: b is not 0. */
static double divide(__int128 a, __int128 b)
{
    enum { BITS = 55 }; /* 53 of a double, and two that decide how it rounds */
    if (a == 0)
        return 0;
    unsigned __int128 r = magnitude(a), d = magnitude(b);
    int ra = leading_zeros(r), rb = leading_zeros(d), exponent = rb - ra;
    r = r << ra >> 1; /* both in [2^126, 2^127) */
    d = d << rb >> 1;
    if (r < d) {
        r <<= 1;
        exponent--;
    }
    uint64_t q = 0;
    for (int i = 0; i < BITS; i++) {
        bool bit = r >= d;
        r -= bit ? d : 0;
        q = q << 1 | bit;
        r <<= 1;
    }
    bool odd = q >> 2 & 1, more = r != 0 || (q & 1);
    uint64_t whole = q >> 2;
    whole += (q & 2) && (more || odd);
    double f = ldexp((double)whole, exponent - (BITS - 1) + 2);
    return (a < 0) != (b < 0) ? -f : f;
}

static berth_status int_power(struct expr *x, __int128 a, __int128 b, struct ev *out,
                              berth_err *err)
{
    if (b < 0) {
        if (a == 0)
            return expr_raise(x, "ZeroDivisionError", err,
                              "0.0 cannot be raised to a negative power");
        *out = ev_of_f64(pow((double)a, (double)b));
        return BERTH_OK;
    }
    __int128 r = 1;
    if (a == 0 || a == 1 || a == -1)
        r = b == 0 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : a;
    else /* ends at the 127th step at the latest */
        for (; b; b--)
            if (__builtin_mul_overflow(r, a, &r))
                return expr_too_big(err);
    *out = ev_of_int(r);
    return BERTH_OK;
}

static berth_status shift_left(__int128 a, __int128 b, struct ev *out, berth_err *err)
{
    if (a && (b > 126 || (magnitude(a) << b) >> b != magnitude(a) || (magnitude(a) << b) >> 127))
        return expr_too_big(err);
    *out = ev_of_int(a ? a * ((__int128)1 << b) : 0);
    return BERTH_OK;
}

static berth_status int_binary(struct expr *x, enum expr_op op, __int128 a, __int128 b,
                               struct ev *out, berth_err *err)
{
    __int128 r = 0;
    bool over = false;
    switch (op) {
    case OP_ADD:
        over = __builtin_add_overflow(a, b, &r);
        break;
    case OP_SUB:
        over = __builtin_sub_overflow(a, b, &r);
        break;
    case OP_MUL:
        over = __builtin_mul_overflow(a, b, &r);
        break;
    case OP_DIV:
        if (!b)
            return expr_raise(x, "ZeroDivisionError", err, "division by zero");
        *out = ev_of_f64(divide(a, b));
        return BERTH_OK;
    case OP_FLOORDIV:
    case OP_MOD:
        if (!b)
            return expr_raise(x, "ZeroDivisionError", err, "integer %s by zero",
                              op == OP_MOD ? "modulo" : "division or modulo");
        if (b == -1) { /* -2^127 / -1 */
            over = op == OP_FLOORDIV && __builtin_sub_overflow((__int128)0, a, &r);
            break;
        }
        r = a % b;
        if (op == OP_FLOORDIV)
            r = a / b - (r && (r < 0) != (b < 0)); /* downwards, not towards 0 */
        else
            r += r && (r < 0) != (b < 0) ? b : 0;
        break;
    case OP_POW:
        return int_power(x, a, b, out, err);
    case OP_BITAND:
        r = a & b;
        break;
    case OP_BITOR:
        r = a | b;
        break;
    case OP_BITXOR:
        r = a ^ b;
        break;
    case OP_LSHIFT:
    case OP_RSHIFT:
        if (b < 0)
            return expr_raise(x, "ValueError", err, "negative shift count");
        if (op == OP_LSHIFT)
            return shift_left(a, b, out, err);
        r = b > 126 ? (a < 0 ? -1 : 0) : a >> b;
        break;
    default:
        break;
    }
    *out = ev_of_int(r);
    return over ? expr_too_big(err) : BERTH_OK;
}

/* ---- floats ---- */

/* x // y and x % y of Python's float. pre: y is not 0. */
static void float_divmod(double x, double y, double *div, double *mod)
{
    *mod = fmod(x, y);
    *div = (x - *mod) / y;
    if (*mod != 0) {
        if ((y < 0) != (*mod < 0)) {
            *mod += y;
            *div -= 1;
        }
    } else {
        *mod = copysign(0, y);
    }
    if (*div != 0) {
        double whole = floor(*div);
        *div = *div - whole > 0.5 ? whole + 1 : whole;
    } else {
        *div = copysign(0, x / y);
    }
}

/* A negative float to a fraction: what Python makes of it, for the message. */
static struct ev complex_power(double a, double b)
{
    double length = pow(fabs(a), b), phase = atan2(0, a) * b;
    return (struct ev) { .kind = EV_COMPLEX, .z = { length * cos(phase), length * sin(phase) } };
}

static berth_status float_power(struct expr *x, double a, double b, struct ev *out, berth_err *err)
{
    if (a == 0 && b < 0)
        return expr_raise(x, "ZeroDivisionError", err, "0.0 cannot be raised to a negative power");
    if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b)) {
        *out = complex_power(a, b);
        return BERTH_OK;
    }
    double r = pow(a, b);
    if (isinf(r) && isfinite(a) && isfinite(b))
        return expr_raise(x, "OverflowError", err, "(34, 'Numerical result out of range')");
    *out = ev_of_f64(r);
    return BERTH_OK;
}

static berth_status float_binary(struct expr *x, enum expr_op op, double a, double b,
                                 struct ev *out, berth_err *err)
{
    double div = 0, mod = 0;
    static const char zero[] = "ZeroDivisionError";
    switch (op) {
    case OP_ADD:
        *out = ev_of_f64(a + b);
        break;
    case OP_SUB:
        *out = ev_of_f64(a - b);
        break;
    case OP_MUL:
        *out = ev_of_f64(a * b);
        break;
    case OP_DIV:
        if (b == 0)
            return expr_raise(x, zero, err, "float division by zero");
        *out = ev_of_f64(a / b);
        break;
    case OP_FLOORDIV:
    case OP_MOD:
        if (b == 0)
            return expr_raise(x, zero, err,
                              op == OP_MOD ? "float modulo" : "float floor division by zero");
        float_divmod(a, b, &div, &mod);
        *out = ev_of_f64(op == OP_MOD ? mod : div);
        break;
    case OP_POW:
        return float_power(x, a, b, out, err);
    default:
        break;
    }
    return BERTH_OK;
}

/* ---- operators ---- */

static const char *sign_of(enum expr_op op)
{
    static const char *const sign[] = {
        [OP_ADD] = "+",       [OP_SUB] = "-",    [OP_MUL] = "*",           [OP_DIV] = "/",
        [OP_FLOORDIV] = "//", [OP_MOD] = "%",    [OP_POW] = "** or pow()", [OP_LSHIFT] = "<<",
        [OP_RSHIFT] = ">>",   [OP_BITAND] = "&", [OP_BITOR] = "|",         [OP_BITXOR] = "^",
    };
    return sign[op];
}

static berth_status no_operator(struct expr *x, enum expr_op op, const struct ev *a,
                                const struct ev *b, berth_err *err)
{
    if (a->kind == EV_COMPLEX || b->kind == EV_COMPLEX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Math Expression '%.*s': complex numbers are not supported", EXPR_SHOWN(x));
    if (op == OP_ADD && a->kind == EV_TEXT)
        return expr_raise(x, "TypeError", err, "can only concatenate str (not \"%s\") to str",
                          ev_type(b));
    if (op == OP_ADD && a->kind == EV_LIST)
        return expr_raise(x, "TypeError", err, "can only concatenate list (not \"%s\") to list",
                          ev_type(b));
    return expr_raise(x, "TypeError", err, "unsupported operand type(s) for %s: '%s' and '%s'",
                      sign_of(op), ev_type(a), ev_type(b));
}

/* Guards of the library in front of **, << and >>. */
static berth_status check_size(struct expr *x, enum expr_op op, const struct ev *a,
                               const struct ev *b, berth_err *err)
{
    double fa = fabs(ev_f64(a)), fb = fabs(ev_f64(b));
    bool high = op == OP_POW ? fa > 4000000 || fb > 4000000 : fb > 10000;
    if (!high)
        return BERTH_OK;
    struct str text = { 0 };
    ev_repr(a, &text);
    str_addf(&text, " %s ", op == OP_POW ? "**" : sign_of(op));
    ev_repr(b, &text);
    expr_raise(x, "simpleeval.NumberTooHigh", err, "Sorry! I don't want to evaluate %s",
               str_c(&text));
    str_release(&text);
    return err->code;
}

#define EXPR_MEMORY ((size_t)16 << 20) /* of everything that one evaluation makes */

/* NULL: err says why. */
static void *room(struct expr *x, size_t n, size_t each, berth_err *err)
{
    void *p = x->mem.used <= EXPR_MEMORY ? arena_array(&x->mem, n, each) : NULL;
    if (!p && x->mem.used > EXPR_MEMORY)
        err_set(err, BERTH_ELIMIT, "Math Expression: its texts take more than %zu MiB",
                EXPR_MEMORY >> 20);
    else if (!p)
        expr_no_memory(err);
    return p;
}

static berth_status join(struct expr *x, const struct ev *a, const struct ev *b, struct ev *out,
                         berth_err *err)
{
    if (py_len(a->s.p, a->s.n) + py_len(b->s.p, b->s.n) > EXPR_TEXT_MAX)
        return expr_raise(x, "simpleeval.IterableTooLong", err,
                          "Sorry, adding those two together would make something too long.");
    char *p = room(x, a->s.n + b->s.n + 1, 1, err);
    if (!p)
        return err->code;
    memcpy(p, a->s.p, a->s.n);
    memcpy(p + a->s.n, b->s.p, b->s.n);
    *out = (struct ev) { .kind = EV_TEXT, .s = { p, a->s.n + b->s.n } };
    return BERTH_OK;
}

static berth_status join_lists(struct expr *x, const struct ev *a, const struct ev *b,
                               struct ev *out, berth_err *err)
{
    size_t n = a->list.n + b->list.n;
    if (n > EXPR_TEXT_MAX)
        return expr_raise(x, "simpleeval.IterableTooLong", err,
                          "Sorry, adding those two together would make something too long.");
    struct ev *at = room(x, n + 1, sizeof *at, err);
    if (!at)
        return err->code;
    memcpy(at, a->list.at, a->list.n * sizeof *at);
    memcpy(at + a->list.n, b->list.at, b->list.n * sizeof *at);
    *out = (struct ev) { .kind = EV_LIST, .list = { at, n } };
    return BERTH_OK;
}

/* A text or a list, so many times. */
static berth_status repeat(struct expr *x, const struct ev *what, __int128 times, struct ev *out,
                           berth_err *err)
{
    bool text = what->kind == EV_TEXT;
    size_t len = text ? py_len(what->s.p, what->s.n) : what->list.n;
    times = times < 0 ? 0 : times;
    if (len && times > EXPR_TEXT_MAX / (__int128)len)
        return expr_raise(x, "simpleeval.IterableTooLong", err,
                          "Sorry, I will not evaluate something that long.");
    size_t n = len ? (size_t)times : 0, one = text ? what->s.n : what->list.n * sizeof(struct ev);
    char *p = room(x, n * one + 1, 1, err);
    if (!p)
        return err->code;
    for (size_t i = 0; i < n; i++)
        memcpy(p + i * one, text ? (const void *)what->s.p : what->list.at, one);
    *out = *what;
    if (text)
        out->s.p = p, out->s.n = n * one;
    else
        out->list.at = (const struct ev *)(const void *)p, out->list.n = n * len;
    return BERTH_OK;
}

berth_status ev_binary(struct expr *x, enum expr_op op, const struct ev *a, const struct ev *b,
                       struct ev *out, berth_err *err)
{
    __int128 i, k;
    bool ai = ev_int(a, &i), bi = ev_int(b, &k);
    bool bits =
        op == OP_BITAND || op == OP_BITOR || op == OP_BITXOR || op == OP_LSHIFT || op == OP_RSHIFT;
    if (ev_is_number(a) && ev_is_number(b)) {
        if ((op == OP_POW || op == OP_LSHIFT || op == OP_RSHIFT) && check_size(x, op, a, b, err))
            return err->code;
        if (ai && bi) {
            if (int_binary(x, op, i, k, out, err))
                return err->code;
            if (a->kind == EV_BOOL && b->kind == EV_BOOL && bits && op != OP_LSHIFT &&
                op != OP_RSHIFT)
                *out = ev_of_bool(out->i != 0);
            return BERTH_OK;
        }
        if (!bits)
            return float_binary(x, op, ev_f64(a), ev_f64(b), out, err);
    }
    if (op == OP_ADD && a->kind == EV_TEXT && b->kind == EV_TEXT)
        return join(x, a, b, out, err);
    if (op == OP_ADD && a->kind == EV_LIST && b->kind == EV_LIST)
        return join_lists(x, a, b, out, err);
    if (op == OP_MUL && bi && (a->kind == EV_TEXT || a->kind == EV_LIST))
        return repeat(x, a, k, out, err);
    if (op == OP_MUL && ai && (b->kind == EV_TEXT || b->kind == EV_LIST))
        return repeat(x, b, i, out, err);
    if (op == OP_MOD && a->kind == EV_TEXT)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Math Expression '%.*s': formatting with %% is not supported",
                       EXPR_SHOWN(x));
    return no_operator(x, op, a, b, err);
}

static berth_status unary(struct expr *x, enum expr_op op, const struct ev *a, struct ev *out,
                          berth_err *err)
{
    __int128 i, r = 0;
    if (op == OP_NOT) {
        *out = ev_of_bool(!ev_truth(a));
        return BERTH_OK;
    }
    if (ev_int(a, &i)) {
        bool over = op == OP_NEG && __builtin_sub_overflow((__int128)0, i, &r);
        *out = ev_of_int(op == OP_NEG ? r : op == OP_POS ? i : ~i);
        return over ? expr_too_big(err) : BERTH_OK;
    }
    if (a->kind == EV_FLOAT && op != OP_INVERT) {
        *out = ev_of_f64(op == OP_NEG ? -a->f : a->f);
        return BERTH_OK;
    }
    return expr_raise(x, "TypeError", err, "bad operand type for unary %s: '%s'",
                      op == OP_NEG   ? "-"
                      : op == OP_POS ? "+"
                                     : "~",
                      ev_type(a));
}

/* ---- the tree ---- */

static berth_status eval(struct expr *x, const struct expr_tree *t, struct ev *out, berth_err *err);

static berth_status eval_name(struct expr *x, const char *name, struct ev *out, berth_err *err)
{
    for (size_t i = 0; i < x->names; i++)
        if (strcmp(x->name[i].name, name) == 0) {
            *out = x->name[i].value;
            return BERTH_OK;
        }
    if (expr_is_function(name))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Math Expression '%.*s': functions can only be called", EXPR_SHOWN(x));
    return expr_raise(x, "simpleeval.NameNotDefined", err,
                      "'%s' is not defined for expression '%.*s'", name, EXPR_SHOWN(x));
}

static berth_status eval_call(struct expr *x, const struct expr_tree *t, struct ev *out,
                              berth_err *err)
{
    if (!expr_is_function(t->text))
        return expr_raise(x, "simpleeval.FunctionNotDefined", err,
                          "Function '%s' not defined, for expression '%.*s'.", t->text,
                          EXPR_SHOWN(x));
    struct ev *arg = arena_array(&x->mem, t->args ? t->args : 1, sizeof *arg);
    if (!arg)
        return expr_no_memory(err);
    for (size_t i = 0; i < t->args; i++)
        if (eval(x, t->arg[i], &arg[i], err))
            return err->code;
    return expr_call(x, t->text, arg, t->args, out, err);
}

static berth_status eval_compare(struct expr *x, const struct expr_tree *t, struct ev *out,
                                 berth_err *err)
{
    struct ev left, right;
    bool holds = true;
    if (eval(x, t->arg[0], &right, err))
        return err->code;
    for (size_t i = 1; i < t->args && holds; i++) {
        left = right;
        if (eval(x, t->arg[i], &right, err) ||
            ev_compare(x, t->compare[i - 1], &left, &right, &holds, err))
            return err->code;
    }
    *out = ev_of_bool(holds);
    return BERTH_OK;
}

static size_t length_of(const struct ev *v)
{
    return v->kind == EV_TEXT ? py_len(v->s.p, v->s.n) : v->list.n;
}

static berth_status not_subscriptable(struct expr *x, const struct ev *v, berth_err *err)
{
    return expr_raise(x, "TypeError", err, "'%s' object is not subscriptable", ev_type(v));
}

static berth_status eval_index(struct expr *x, const struct expr_tree *t, struct ev *out,
                               berth_err *err)
{
    struct ev of, key;
    __int128 i;
    if (eval(x, t->arg[0], &of, err) || eval(x, t->arg[1], &key, err))
        return err->code;
    bool text = of.kind == EV_TEXT;
    if (!text && of.kind != EV_LIST)
        return not_subscriptable(x, &of, err);
    if (!ev_int(&key, &i))
        return expr_raise(x, "TypeError", err,
                          text ? "string indices must be integers, not '%s'"
                               : "list indices must be integers or slices, not %s",
                          ev_type(&key));
    __int128 n = (__int128)length_of(&of);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return expr_raise(x, "IndexError", err, "%s index out of range", text ? "string" : "list");
    if (!text) {
        *out = of.list.at[i];
        return BERTH_OK;
    }
    size_t from = py_offset(of.s.p, of.s.n, (size_t)i),
           to = py_offset(of.s.p, of.s.n, (size_t)i + 1);
    *out = (struct ev) { .kind = EV_TEXT, .s = { of.s.p + from, to - from } };
    return BERTH_OK;
}

/* A bound of a slice, cut to low .. high; not given: usual. */
static berth_status bound(struct expr *x, const struct expr_tree *t, __int128 n, __int128 low,
                          __int128 high, __int128 usual, __int128 *out, berth_err *err)
{
    struct ev v = { .kind = EV_NONE };
    if (t && eval(x, t, &v, err))
        return err->code;
    *out = usual;
    if (v.kind == EV_NONE)
        return BERTH_OK;
    if (!ev_int(&v, out))
        return expr_raise(x, "TypeError", err,
                          "slice indices must be integers or None or have an __index__ method");
    *out += *out < 0 ? n : 0;
    *out = *out < low ? low : *out > high ? high : *out;
    return BERTH_OK;
}

static berth_status slice_list(struct expr *x, const struct ev *of, __int128 from, __int128 to,
                               __int128 step, struct ev *out, berth_err *err)
{
    struct ev *at = room(x, of->list.n + 1, sizeof *at, err);
    size_t n = 0;
    if (!at)
        return err->code;
    for (__int128 i = from; step < 0 ? i > to : i < to; i += step)
        at[n++] = of->list.at[i];
    *out = (struct ev) { .kind = EV_LIST, .list = { at, n } };
    return BERTH_OK;
}

static berth_status slice_text(struct expr *x, const struct ev *of, __int128 from, __int128 to,
                               __int128 step, struct ev *out, berth_err *err)
{
    size_t points = py_len(of->s.p, of->s.n), n = 0;
    uint32_t *start = room(x, points + 1, sizeof *start, err); /* where each of them begins */
    char *p = start ? room(x, of->s.n + 1, 1, err) : NULL;
    if (!p)
        return err->code;
    for (size_t i = 0; i < points; i++)
        start[i + 1] = start[i] + (uint32_t)py_offset(of->s.p + start[i], of->s.n - start[i], 1);
    for (__int128 i = from; step < 0 ? i > to : i < to; i += step) {
        size_t bytes = start[i + 1] - start[i];
        memcpy(p + n, of->s.p + start[i], bytes);
        n += bytes;
    }
    *out = (struct ev) { .kind = EV_TEXT, .s = { p, n } };
    return BERTH_OK;
}

static berth_status eval_slice(struct expr *x, const struct expr_tree *t, struct ev *out,
                               berth_err *err)
{
    struct ev of, step_value = { .kind = EV_NONE };
    if (eval(x, t->arg[0], &of, err) || (t->arg[3] && eval(x, t->arg[3], &step_value, err)))
        return err->code;
    bool text = of.kind == EV_TEXT;
    if (!text && of.kind != EV_LIST)
        return not_subscriptable(x, &of, err);
    __int128 n = (__int128)length_of(&of), step = 1, from, to;
    if (step_value.kind != EV_NONE && !ev_int(&step_value, &step))
        return expr_raise(x, "TypeError", err,
                          "slice indices must be integers or None or have an __index__ method");
    if (!step)
        return expr_raise(x, "ValueError", err, "slice step cannot be zero");
    bool back = step < 0;
    step = step > n + 1 ? n + 1 : step < -n - 1 ? -n - 1 : step;
    __int128 low = back ? -1 : 0, high = back ? n - 1 : n;
    if (bound(x, t->arg[1], n, low, high, back ? high : low, &from, err) ||
        bound(x, t->arg[2], n, low, high, back ? low : high, &to, err))
        return err->code;
    return text ? slice_text(x, &of, from, to, step, out, err)
                : slice_list(x, &of, from, to, step, out, err);
}

static berth_status eval(struct expr *x, const struct expr_tree *t, struct ev *out, berth_err *err)
{
    struct ev a, b;
    switch (t->op) {
    case OP_VALUE:
        *out = t->value;
        return BERTH_OK;
    case OP_NAME:
        return eval_name(x, t->text, out, err);
    case OP_CALL:
        return eval_call(x, t, out, err);
    case OP_INDEX:
        return eval_index(x, t, out, err);
    case OP_SLICE:
        return eval_slice(x, t, out, err);
    case OP_COMPARE:
        return eval_compare(x, t, out, err);
    case OP_FEATURE:
        return expr_raise(x, "simpleeval.FeatureNotAvailable", err,
                          "Sorry, %s is not available in this evaluator", t->text);
    case OP_IF:
        if (eval(x, t->arg[0], &a, err))
            return err->code;
        return eval(x, t->arg[ev_truth(&a) ? 1 : 2], out, err);
    case OP_AND:
    case OP_OR:
        if (eval(x, t->arg[0], out, err))
            return err->code;
        return ev_truth(out) == (t->op == OP_OR) ? BERTH_OK : eval(x, t->arg[1], out, err);
    case OP_NOT:
    case OP_NEG:
    case OP_POS:
    case OP_INVERT:
        return eval(x, t->arg[0], &a, err) ? err->code : unary(x, t->op, &a, out, err);
    default:
        if (eval(x, t->arg[0], &a, err) || eval(x, t->arg[1], &b, err))
            return err->code;
        return ev_binary(x, t->op, &a, &b, out, err);
    }
}

berth_status expr_eval(struct expr *x, struct ev *out, berth_err *err)
{
    return eval(x, x->root, out, err);
}
