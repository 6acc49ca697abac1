/* convert: what Python's int(), float(), str() and bool() make of a JSON value, and what they say
 * when they refuse. Two differences, because the result goes back into JSON: integers end at
 * -2^63 and 2^64-1, and there is no NaN and no infinity (CONVERT_SMALL, CONVERT_BIG). Digits are
 * the ASCII ones. */
#include "base/utf8.h"
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

/* ---- numbers in text ---- */

static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Cuts white space off both ends. */
static void strip(const char **s, size_t *n)
{
    const char *p = *s, *from = NULL, *to = *s;
    for (size_t i = 0, len; i < *n; i += len) {
        uint32_t c;
        len = utf8_get(p + i, *n - i, &c);
        if (is_space(c))
            continue;
        if (!from)
            from = p + i;
        to = p + i + len;
    }
    *s = from ? from : p;
    *n = from ? (size_t)(to - from) : 0;
}

/* Digits at s with single underscores between them, added to `out` without these. How many bytes
 * that were; 0: none. */
static size_t digits(const char *s, size_t n, struct str *out)
{
    size_t i = 0;
    while (i < n && (is_digit(s[i]) ||
                     (s[i] == '_' && i && s[i - 1] != '_' && i + 1 < n && is_digit(s[i + 1])))) {
        if (s[i] != '_')
            str_addc(out, s[i]);
        i++;
    }
    return i;
}

/* ---- int() ---- */

#define INT_DIGITS_MAX 4300 /* CPython's, since 3.11 */

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
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    strip(&s, &n);
    bool minus = n && s[0] == '-', sign = minus || (n && s[0] == '+');
    struct str plain = { 0 };
    size_t used = digits(s + sign, n - sign, &plain);
    bool bad = plain.bad, whole = used && used == n - sign;
    size_t zeros = 0;
    while (zeros + 1 < plain.n && plain.p[zeros] == '0')
        zeros++;
    bool fits = plain.n - zeros <= 20;
    node_int i = 0;
    for (size_t k = zeros; fits && k < plain.n; k++)
        i = i * 10 + (plain.p[k] - '0');
    i = minus ? -i : i;
    fits = fits && i >= INT_LOW && i <= INT_HIGH;
    bool huge = whole && plain.n > INT_DIGITS_MAX;
    if (huge) {
        str_addf(&c->text,
                 "Exceeds the limit (%d digits) for integer string conversion: value has %zu "
                 "digits; use sys.set_int_max_str_digits() to increase the limit",
                 INT_DIGITS_MAX, plain.n);
    } else if (whole && !fits) {
        str_adds(&c->text, minus ? "-" : "");
        str_adds(&c->text, str_c(&plain) + zeros);
    }
    str_release(&plain);
    if (bad)
        return no_memory(err);
    if (huge)
        return refuse(c, CONVERT_REFUSED, err);
    if (whole)
        return fits ? set_value(c, js_int(i), err)
                    : refuse(c, minus ? CONVERT_SMALL : CONVERT_BIG, err);
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

/* [digits][.digits][e[+-]digits] as JSON writes it, into `out`. False: it is not one. */
static bool float_grammar(const char *s, size_t n, struct str *out)
{
    size_t i = digits(s, n, out), got = i;
    if (!i)
        str_addc(out, '0');
    if (i < n && s[i] == '.') {
        str_addc(out, '.');
        size_t k = digits(s + i + 1, n - i - 1, out);
        if (!k)
            str_addc(out, '0');
        got += k;
        i += 1 + k;
    }
    if (got && i < n && (s[i] == 'e' || s[i] == 'E')) {
        str_addc(out, 'e');
        i++;
        if (i < n && (s[i] == '-' || s[i] == '+'))
            str_addc(out, s[i++]);
        size_t k = digits(s + i, n - i, out);
        got = k; /* an exponent wants its digits */
        i += k;
    }
    return got && i == n;
}

static bool is_infinity(const char *s, size_t n)
{
    return (n == 3 && strncasecmp(s, "inf", 3) == 0) ||
           (n == 8 && strncasecmp(s, "infinity", 8) == 0);
}

static berth_status float_from_text(struct conversion *c, const json_t *v, berth_err *err)
{
    const char *s = json_string_value(v);
    size_t n = json_string_length(v);
    strip(&s, &n);
    bool minus = n && s[0] == '-', sign = minus || (n && s[0] == '+');
    s += sign;
    n -= sign;
    struct str text = { 0 };
    double f = 0;
    bool number = float_grammar(s, n, &text), bad = text.bad;
    bool finite = number && !bad && str_parse_f64(text.p, text.n, &f);
    str_release(&text);
    if (bad)
        return no_memory(err);
    if (finite)
        return set_value(c, json_real(minus ? -f : f), err);
    if (number || is_infinity(s, n)) {
        str_adds(&c->text, minus ? "-inf" : "inf");
        return refuse(c, minus ? CONVERT_SMALL : CONVERT_BIG, err);
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

bool py_truth(const json_t *v) /* what is of another kind has no length, and NULL none at all */
{
    return json_is_true(v) || json_integer_value(v) != 0 || json_real_value(v) != 0 ||
           json_string_length(v) || json_array_size(v) || json_object_size(v);
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
