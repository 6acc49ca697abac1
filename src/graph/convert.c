/* convert: what Python's int(), float(), str() and bool() make of a JSON value, and what they say
 * when they refuse. Two differences, because the result goes back into JSON: integers end at
 * -2^63 and 2^64-1, and there is no NaN and no infinity (CONVERT_SMALL, CONVERT_BIG). Digits are
 * the ASCII ones. */
#include "graph/graph_impl.h"

#include <math.h>

void conversion_release(struct conversion *c)
{
    json_decref(c->value);
    str_release(&c->text);
    *c = (struct conversion) { 0 };
}

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "converting an input value");
}

static berth_status set_value(struct conversion *c, json_t *value, berth_err *err)
{
    c->value = value;
    return value ? BERTH_OK : no_memory(err);
}

static berth_status refuse(struct conversion *c, enum convert_outcome outcome, berth_err *err)
{
    c->outcome = outcome;
    return c->text.bad ? no_memory(err) : BERTH_OK;
}

/* ---- int() ---- */

static const node_int INT_LOW = INT64_MIN, INT_HIGH = UINT64_MAX;

json_t *js_int(node_int i)
{
    return i < 0 ? json_integer((json_int_t)i) : js_u64((uint64_t)i);
}

static berth_status int_from_f64(struct conversion *c, double v, berth_err *err)
{
    v = trunc(v);
    if (v >= -0x1p63 && v < 0x1p64)
        return set_value(c, js_int((node_int)v), err);
    str_addf(&c->text, "%.0f", v);
    return refuse(c, v < 0 ? CONVERT_SMALL : CONVERT_BIG, err);
}

static berth_status int_from_text(struct conversion *c, const json_t *v, berth_err *err)
{
    struct str plain = { 0 };
    node_int i = 0;
    bool minus;
    enum py_int got = py_parse_int(json_string_value(v), json_string_length(v), &i, &plain, &minus);
    bool fits = got == PY_INT && i >= INT_LOW && i <= INT_HIGH;
    if (got == PY_INT_LONG)
        str_addf(&c->text,
                 "Exceeds the limit (%d digits) for integer string conversion: value has %zu "
                 "digits; use sys.set_int_max_str_digits() to increase the limit",
                 PY_INT_DIGITS_MAX, plain.n);
    else if (got == PY_INT_BIG || (got == PY_INT && !fits))
        str_addf(&c->text, "%s%s", minus ? "-" : "", str_c(&plain));
    str_release(&plain);
    switch (got) {
    case PY_INT_NO_MEMORY:
        return no_memory(err);
    case PY_INT_LONG:
        return refuse(c, CONVERT_REFUSED, err);
    case PY_INT:
    case PY_INT_BIG:
        return fits ? set_value(c, js_int(i), err)
                    : refuse(c, minus ? CONVERT_SMALL : CONVERT_BIG, err);
    case PY_NO_INT:
        break;
    }
    str_adds(&c->text, "invalid literal for int() with base 10: ");
    py_repr_text(json_string_value(v), json_string_length(v), 200, &c->text);
    return refuse(c, CONVERT_REFUSED, err);
}

static berth_status to_int(struct conversion *c, const json_t *v, berth_err *err)
{
    switch (js_kind(v)) {
    case JS_I64:
    case JS_U64:
        return BERTH_OK;
    case JS_BOOL:
        return set_value(c, json_integer(json_is_true(v)), err);
    case JS_F64:
        return int_from_f64(c, json_real_value(v), err);
    case JS_STRING:
        return int_from_text(c, v, err);
    default:
        str_addf(&c->text,
                 "int() argument must be a string, a bytes-like object or a real number, not '%s'",
                 py_type(v));
        return refuse(c, CONVERT_REFUSED, err);
    }
}

/* ---- float() ---- */

static berth_status float_from_text(struct conversion *c, const json_t *v, berth_err *err)
{
    double f = 0;
    switch (py_parse_float(json_string_value(v), json_string_length(v), &f)) {
    case PY_FLOAT:
        return set_value(c, json_real(f), err);
    case PY_INF:
        str_adds(&c->text, f < 0 ? "-inf" : "inf");
        return refuse(c, f < 0 ? CONVERT_SMALL : CONVERT_BIG, err);
    case PY_NO_MEMORY:
        return no_memory(err);
    case PY_NAN: /* JSON has none: it is refused in the same words */
    case PY_NO_FLOAT:
        break;
    }
    str_adds(&c->text, "could not convert string to float: ");
    py_repr_text(json_string_value(v), json_string_length(v), SIZE_MAX, &c->text);
    return refuse(c, CONVERT_REFUSED, err);
}

static berth_status to_float(struct conversion *c, const json_t *v, berth_err *err)
{
    double f;
    switch (js_kind(v)) {
    case JS_F64:
        return BERTH_OK;
    case JS_I64:
    case JS_U64:
        js_get_f64(v, &f);
        return set_value(c, json_real(f), err);
    case JS_BOOL:
        return set_value(c, json_real(json_is_true(v)), err);
    case JS_STRING:
        return float_from_text(c, v, err);
    default:
        str_addf(&c->text, "float() argument must be a string or a real number, not '%s'",
                 py_type(v));
        return refuse(c, CONVERT_REFUSED, err);
    }
}

/* ---- str() and bool() ---- */

static berth_status to_str(struct conversion *c, const json_t *v, berth_err *err)
{
    if (js_kind(v) == JS_STRING)
        return BERTH_OK;
    struct str text = { 0 };
    py_str(v, &text);
    berth_status s =
        text.bad ? no_memory(err) : set_value(c, json_stringn_nocheck(str_c(&text), text.n), err);
    str_release(&text);
    return s;
}

berth_status py_convert(enum input_kind kind, const json_t *v, struct conversion *c, berth_err *err)
{
    *c = (struct conversion) { 0 };
    switch (kind) {
    case IN_INT:
        return to_int(c, v, err);
    case IN_FLOAT:
        return to_float(c, v, err);
    case IN_STRING:
        return to_str(c, v, err);
    case IN_BOOLEAN:
        return json_is_boolean(v) ? BERTH_OK : set_value(c, json_boolean(py_truth(v)), err);
    case IN_SOCKET:
    case IN_COMBO:
    case IN_DYNCOMBO:
    case IN_AUTOGROW:
    case IN_DYNSLOT:
        break;
    }
    return BERTH_OK;
}

bool py_to_float(const json_t *v, double *out)
{
    struct conversion c;
    berth_err err;
    bool ok = !py_convert(IN_FLOAT, v, &c, &err) && c.outcome == CONVERT_OK &&
              js_get_f64(c.value ? c.value : v, out);
    conversion_release(&c);
    return ok;
}

bool js_get_int(const json_t *v, node_int *out)
{
    int64_t i;
    uint64_t u;
    if (js_get_i64(v, &i))
        *out = i;
    else if (js_get_u64(v, &u))
        *out = u;
    else
        return false;
    return true;
}
