#include "base/jsonout.h"

#include "base/json.h"
#include "base/jstok.h"
#include "base/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>

/* ---- strings ---- */

/* The character at s as one or two escapes. */
static void escape(const char *s, size_t len, struct str *out)
{
    uint32_t c;
    utf8_get(s, len, &c);
    if (c >= 0x10000) {
        str_addf(out, "\\u%04x", 0xd800 + ((c - 0x10000) >> 10));
        c = 0xdc00 + (c & 0x3ff);
    }
    str_addf(out, "\\u%04x", c);
}

static void write_string(const char *s, size_t n, bool ascii, struct str *out)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    str_addc(out, '"');
    for (size_t i = 0, run = 0; i < n; run = 0) {
        while (i + run < n && (uint8_t)s[i + run] >= ' ' && (uint8_t)s[i + run] < 0x7f &&
               s[i + run] != '"' && s[i + run] != '\\')
            run++;
        str_add(out, s + i, run);
        i += run;
        if (i == n)
            break;
        uint8_t c = (uint8_t)s[i];
        const char *at = c ? strchr(from, c) : NULL;
        size_t len = utf8_step(s + i, n - i);
        if (at)
            str_addf(out, "\\%c", to[at - from]);
        else if (len == 1)
            str_addf(out, "\\u%04x", c);
        else if (!len) /* not UTF-8, a file name perhaps */
            str_adds(out, ascii ? "\\ufffd" : "\xef\xbf\xbd");
        else if (ascii || (c == 0xc2 && (uint8_t)s[i + 1] < 0xa0)) /* C1 drive terminals too */
            escape(s + i, len, out);
        else
            str_add(out, s + i, len);
        i += len ? len : 1;
    }
    str_addc(out, '"');
}

void js_write_string(const char *s, size_t n, struct str *out)
{
    write_string(s, n, false, out);
}

/* ---- doubles ---- */

/* Digits of v, the fewest that read back, and its decimal exponent. Fifteen always survive in a
 * normal number, so whatever is shorter shows as zeros at their end. */
static size_t shortest(double v, char digits[24], int *exp)
{
    char buf[40];
    int prec = fabs(v) < DBL_MIN ? 0 : 14; /* digits after the first */
    do
        snprintf(buf, sizeof buf, "%.*e", prec, v);
    while (strtod(buf, NULL) != v && ++prec < 17); /* same locale on both sides */
    size_t n = 0;
    const char *p = buf;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') /* the locale's decimal point is left out */
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    *exp = (int)strtol(p + 1, NULL, 10);
    return n;
}

void js_write_f64(double v, bool python, struct str *out)
{
    if (!isfinite(v)) {
        const char *name = isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity";
        str_addf(out, python ? "%s" : "\"%s\"", name);
        return;
    }
    char digits[24];
    int exp;
    size_t n = shortest(v, digits, &exp);
    int from = python ? 16 : n > 15 ? (int)n : 15; /* exponents from here on; else as %g would */
    if (signbit(v))
        str_addc(out, '-');
    if (exp < -4 || exp >= from) {
        str_addc(out, digits[0]);
        str_adds(out, n > 1 ? "." : "");
        str_add(out, digits + 1, n - 1);
        str_addf(out, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        str_addf(out, "0.%.*s%.*s", -exp - 1, "000", (int)n, digits);
    } else {
        for (size_t i = 0; i < n || i <= (size_t)exp; i++) {
            str_adds(out, i == (size_t)exp + 1 ? "." : "");
            str_addc(out, i < n ? digits[i] : '0');
        }
        str_adds(out, n <= (size_t)exp + 1 ? ".0" : "");
    }
}

/* ---- pieces ---- */

static bool is_flat(const struct jsonout *j)
{
    return j->indent <= 0 || (j->flat && j->depth >= j->flat);
}

static bool is_spaced(const struct jsonout *j)
{
    return j->spaced || j->python || j->indent > 0;
}

static void newline(const struct jsonout *j)
{
    if (is_flat(j))
        return;
    str_addc(j->out, '\n');
    str_pad(j->out, ' ', j->out->n + (size_t)j->indent * (size_t)j->depth);
}

/* Is the innermost container still empty? */
static bool is_first(const struct str *out)
{
    return !out->n || out->p[out->n - 1] == '{' || out->p[out->n - 1] == '[';
}

/* What stands in front of every value: comma, line break, key. */
static void before(const struct jsonout *j, const char *key)
{
    if (j->depth) {
        if (!is_first(j->out))
            str_adds(j->out, is_flat(j) && is_spaced(j) ? ", " : ",");
        newline(j);
    }
    if (key) {
        write_string(key, strlen(key), j->python && !j->utf8, j->out);
        str_adds(j->out, is_spaced(j) ? ": " : ":");
    }
}

void jo_open(struct jsonout *j, const char *key, char bracket)
{
    before(j, key);
    str_addc(j->out, bracket);
    j->depth++;
}

void jo_open_flat(struct jsonout *j, const char *key, char bracket)
{
    jo_open(j, key, bracket);
    if (!j->flat)
        j->flat = j->depth;
}

void jo_close(struct jsonout *j, char bracket)
{
    bool flat = is_flat(j);
    if (j->flat == j->depth)
        j->flat = 0;
    j->depth--;
    if (!flat && !is_first(j->out))
        newline(j);
    str_addc(j->out, bracket);
}

void jo_text(struct jsonout *j, const char *key, const char *s, size_t n)
{
    before(j, key);
    write_string(s, n, j->python && !j->utf8, j->out);
}

void jo_str(struct jsonout *j, const char *key, const char *z)
{
    if (z)
        jo_text(j, key, z, strlen(z));
    else
        jo_raw(j, key, "null", 4);
}

void jo_u64(struct jsonout *j, const char *key, uint64_t v)
{
    jo_fmt(j, key, "%" PRIu64, v);
}

void jo_i64(struct jsonout *j, const char *key, int64_t v)
{
    jo_fmt(j, key, "%" PRId64, v);
}

void jo_f64(struct jsonout *j, const char *key, double v)
{
    before(j, key);
    js_write_f64(v, j->python, j->out);
}

void jo_bool(struct jsonout *j, const char *key, bool v)
{
    jo_fmt(j, key, "%s", v ? "true" : "false");
}

void jo_raw(struct jsonout *j, const char *key, const char *text, size_t n)
{
    before(j, key);
    str_add(j->out, text, n);
}

void jo_fmt(struct jsonout *j, const char *key, const char *fmt, ...)
{
    va_list ap;
    before(j, key);
    va_start(ap, fmt);
    str_vaddf(j->out, fmt, ap);
    va_end(ap);
}

/* ---- trees ---- */

static void write_members(struct jsonout *j, const json_t *v)
{
    json_t *o = (json_t *)(uintptr_t)v; /* jansson's iterators are not const */
    for (size_t i = 0; i < json_array_size(v) && !j->out->bad; i++)
        jo_value(j, NULL, json_array_get(v, i));
    for (void *it = json_object_iter(o); it && !j->out->bad; it = json_object_iter_next(o, it))
        jo_value(j, json_object_iter_key(it), json_object_iter_value(it));
}

void jo_value(struct jsonout *j, const char *key, const json_t *v)
{
    switch (v ? js_kind(v) : JS_NULL) {
    case JS_NULL:
        jo_str(j, key, NULL);
        break;
    case JS_BOOL:
        jo_bool(j, key, json_is_true(v));
        break;
    case JS_I64:
        jo_i64(j, key, json_integer_value(v));
        break;
    case JS_U64: /* its digits follow the tag */
        jo_raw(j, key, json_string_value(v) + 1, json_string_length(v) - 1);
        break;
    case JS_F64:
        jo_f64(j, key, json_real_value(v));
        break;
    case JS_STRING:
        jo_text(j, key, json_string_value(v), json_string_length(v));
        break;
    case JS_ARRAY:
    case JS_OBJECT:
        j->out->bad |= j->depth == JSTOK_DEPTH_MAX; /* our reader would refuse it */
        jo_open(j, key, json_is_array(v) ? '[' : '{');
        write_members(j, v);
        jo_close(j, json_is_array(v) ? ']' : '}');
        break;
    }
}

void js_write(const json_t *v, int indent, struct str *out)
{
    struct jsonout j = { .out = out, .indent = indent };
    jo_value(&j, NULL, v);
}
