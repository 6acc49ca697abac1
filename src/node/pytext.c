/* pytext: the text Python gives a value. Validation messages are made of it, and clients compare
 * them: 'a', 3.0, 1e+16, True, None, ['a', 0], {'x': 1}. */
#include "base/jstok.h"
#include "base/utf8.h"
#include "node/py.h"

#include <math.h>
#include <string.h>

/* ---- strings ---- */

/* Code points str.isprintable() refuses: categories Cc, Cf, Co, Zl, Zp, and Zs except for the
 * space. Unassigned ones (Cn) are a moving target and are printed as they are. */
static const struct {
    uint32_t from, to;
} unprintable[] = {
    { 0x0, 0x1f },        { 0x7f, 0xa0 },       { 0xad, 0xad },       { 0x600, 0x605 },
    { 0x61c, 0x61c },     { 0x6dd, 0x6dd },     { 0x70f, 0x70f },     { 0x890, 0x891 },
    { 0x8e2, 0x8e2 },     { 0x1680, 0x1680 },   { 0x180e, 0x180e },   { 0x2000, 0x200f },
    { 0x2028, 0x202f },   { 0x205f, 0x2064 },   { 0x2066, 0x206f },   { 0x3000, 0x3000 },
    { 0xe000, 0xf8ff },   { 0xfeff, 0xfeff },   { 0xfff9, 0xfffb },   { 0x110bd, 0x110bd },
    { 0x110cd, 0x110cd }, { 0x13430, 0x13438 }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
    { 0xe0001, 0xe0001 }, { 0xe0020, 0xe007f }, { 0xf0000, 0xffffd }, { 0x100000, 0x10fffd },
};

static bool printable(uint32_t c)
{
    for (size_t i = 0; i < ARRAY_LEN(unprintable) && c >= unprintable[i].from; i++)
        if (c <= unprintable[i].to)
            return false;
    return true;
}

static void escaped(uint32_t c, struct str *out)
{
    if (c == '\n' || c == '\r' || c == '\t')
        str_adds(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    else if (c < 0x100)
        str_addf(out, "\\x%02x", c);
    else if (c < 0x10000)
        str_addf(out, "\\u%04x", c);
    else
        str_addf(out, "\\U%08x", c);
}

void py_repr_text(const char *s, size_t n, size_t max, struct str *out)
{
    /* Python prefers ' and takes " only when that saves escapes. */
    char quote = n && memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'';
    struct str all = { 0 };
    str_addc(&all, quote);
    for (size_t i = 0; i < n && !all.bad;) {
        uint32_t c;
        size_t len = utf8_get(s + i, n - i, &c);
        if (c == (uint8_t)quote || c == '\\')
            str_addf(&all, "\\%c", (char)c);
        else if (printable(c))
            str_add(&all, s + i, len);
        else
            escaped(c, &all);
        i += len;
    }
    str_addc(&all, quote);
    size_t keep = 0; /* bytes of the first `max` characters */
    for (size_t chars = 0; keep < all.n && chars < max; chars++) {
        size_t len = utf8_step(all.p + keep, all.n - keep);
        keep += len ? len : 1;
    }
    str_add(out, str_c(&all), keep);
    out->bad |= all.bad;
    str_release(&all);
}

/* ---- numbers ---- */

/* repr(float): the fewest digits that read back as v; an exponent below 1e-4 and from 1e16 on. */
void py_repr_f64(double v, struct str *out)
{
    if (!isfinite(v)) {
        str_adds(out, isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
        return;
    }
    js_write_f64(v, true, out);
}

/* ---- values ---- */

static void repr(const json_t *v, unsigned depth, struct str *out);

static void repr_array(const json_t *v, unsigned depth, struct str *out)
{
    str_addc(out, '[');
    for (size_t i = 0; i < json_array_size(v) && !out->bad; i++) {
        if (i)
            str_adds(out, ", ");
        repr(json_array_get(v, i), depth + 1, out);
    }
    str_addc(out, ']');
}

static void repr_object(const json_t *v, unsigned depth, struct str *out)
{
    json_t *o = (json_t *)(uintptr_t)v; /* jansson's iterators are not const */
    bool first = true;
    str_addc(out, '{');
    for (void *it = json_object_iter(o); it && !out->bad; it = json_object_iter_next(o, it)) {
        const char *key = json_object_iter_key(it);
        if (!first)
            str_adds(out, ", ");
        first = false;
        py_repr_text(key, strlen(key), SIZE_MAX, out);
        str_adds(out, ": ");
        repr(json_object_iter_value(it), depth + 1, out);
    }
    str_addc(out, '}');
}

static void repr(const json_t *v, unsigned depth, struct str *out)
{
    if (depth == JSTOK_DEPTH_MAX) { /* deeper than anything js_parse() reads */
        str_adds(out, "...");
        return;
    }
    switch (js_kind(v)) {
    case JS_NULL:
        str_adds(out, "None");
        break;
    case JS_BOOL:
        str_adds(out, json_is_true(v) ? "True" : "False");
        break;
    case JS_I64:
    case JS_U64:
        js_write(v, 0, out);
        break;
    case JS_F64:
        py_repr_f64(json_real_value(v), out);
        break;
    case JS_STRING:
        py_repr_text(json_string_value(v), json_string_length(v), SIZE_MAX, out);
        break;
    case JS_ARRAY:
        repr_array(v, depth, out);
        break;
    case JS_OBJECT:
        repr_object(v, depth, out);
        break;
    }
}

void py_repr(const json_t *v, struct str *out)
{
    repr(v, 0, out);
}

void py_str(const json_t *v, struct str *out)
{
    if (js_kind(v) == JS_STRING)
        str_add(out, json_string_value(v), json_string_length(v));
    else
        repr(v, 0, out);
}

const char *py_type(const json_t *v)
{
    static const char *const name[] = {
        [JS_NULL] = "NoneType", [JS_BOOL] = "bool",  [JS_I64] = "int",    [JS_U64] = "int",
        [JS_F64] = "float",     [JS_STRING] = "str", [JS_ARRAY] = "list", [JS_OBJECT] = "dict"
    };
    return name[js_kind(v)];
}

bool py_truth(const json_t *v) /* what is of another kind has no length, and NULL none at all */
{
    return json_is_true(v) || json_integer_value(v) != 0 || json_real_value(v) != 0 ||
           json_string_length(v) || json_array_size(v) || json_object_size(v);
}
