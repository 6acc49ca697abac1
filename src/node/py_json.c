/* py_json.c: json.dumps(). Frontends and other tools read workflows back from pictures; with the same
 * text for the same prompt they cannot tell who wrote it. */
#include "base/jstok.h"
#include "base/utf8.h"
#include "node/node_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_unit(unsigned u, struct str *out)
{
    str_addf(out, "\\u%04x", u);
}

static void put_string(const char *s, size_t n, struct str *out)
{
    str_addc(out, '"');
    for (size_t i = 0; i < n;) {
        size_t len = utf8_step(s + i, n - i);
        unsigned char c = (unsigned char)s[i];
        uint32_t cp;
        if (len == 2)
            cp = (uint32_t)(c & 0x1f) << 6 | ((unsigned char)s[i + 1] & 0x3f);
        else if (len == 3)
            cp = (uint32_t)(c & 0x0f) << 12 | (uint32_t)((unsigned char)s[i + 1] & 0x3f) << 6 |
                 ((unsigned char)s[i + 2] & 0x3f);
        else if (len == 4)
            cp = (uint32_t)(c & 0x07) << 18 | (uint32_t)((unsigned char)s[i + 1] & 0x3f) << 12 |
                 (uint32_t)((unsigned char)s[i + 2] & 0x3f) << 6 | ((unsigned char)s[i + 3] & 0x3f);
        else
            cp = len ? c : 0xfffd;
        static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        const char *at = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
        if (at) {
            str_addc(out, '\\');
            str_addc(out, letter[at - plain]);
        } else if (cp >= 0x20 && cp < 0x7f) {
            str_addc(out, (char)cp);
        } else if (cp >= 0x10000) {
            put_unit(0xd800 + (unsigned)((cp - 0x10000) >> 10), out);
            put_unit(0xdc00 + (unsigned)((cp - 0x10000) & 0x3ff), out);
        } else { /* DEL, too */
            put_unit((unsigned)cp, out);
        }
        i += len ? len : 1;
    }
    str_addc(out, '"');
}

/* repr(float): the fewest digits that read back, exponents below -4 and from 16 on. */
void py_float(double v, struct str *out)
{
    char buf[40], digits[24];
    if (!isfinite(v)) {
        str_adds(out, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
        return;
    }
    int prec = 0; /* digits behind the first */
    do
        snprintf(buf, sizeof buf, "%.*e", prec, v);
    while (strtod(buf, NULL) != v && ++prec < 17);
    const char *e = strchr(buf, 'e');
    int exp = (int)strtol(e + 1, NULL, 10);
    size_t n = 0;
    for (const char *p = buf; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    if (signbit(v))
        str_addc(out, '-');
    if (exp < -4 || exp >= 16) {
        str_addc(out, digits[0]);
        if (n > 1) {
            str_addc(out, '.');
            str_add(out, digits + 1, n - 1);
        }
        str_addf(out, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        str_adds(out, "0.");
        for (int i = -1; i > exp; i--)
            str_addc(out, '0');
        str_add(out, digits, n);
    } else {
        for (size_t i = 0; i < n || i <= (size_t)exp; i++) {
            if (i == (size_t)exp + 1)
                str_addc(out, '.');
            str_addc(out, i < n ? digits[i] : '0');
        }
        if (n <= (size_t)exp + 1)
            str_adds(out, ".0");
    }
}

static void put_scalar(const json_t *v, struct str *out)
{
    uint64_t u;
    switch (js_kind(v)) {
    case JS_NULL:
        str_adds(out, "null");
        break;
    case JS_BOOL:
        str_adds(out, json_is_true(v) ? "true" : "false");
        break;
    case JS_I64:
        str_addf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JS_U64:
        if (js_get_u64(v, &u))
            str_addf(out, "%llu", (unsigned long long)u);
        break;
    case JS_F64:
        py_float(json_real_value(v), out);
        break;
    case JS_STRING:
        put_string(json_string_value(v), json_string_length(v), out);
        break;
    case JS_ARRAY:
    case JS_OBJECT:
        break;
    }
}

struct level {
    const json_t *v;
    void *iter;   /* of an object */
    size_t index; /* members written */
};

static void separate(const struct level *l, int indent, size_t depth, struct str *out)
{
    if (l->index)
        str_adds(out, indent ? "," : ", ");
    if (indent) {
        str_addc(out, '\n');
        str_pad(out, ' ', out->n + (size_t)indent * depth);
    }
}

/* The next member of the innermost container; NULL: it is at its end. */
static const json_t *next(struct level *l, int indent, size_t depth, struct str *out)
{
    const json_t *v = NULL;
    if (json_is_array(l->v)) {
        v = json_array_get(l->v, l->index);
        if (v)
            separate(l, indent, depth, out);
    } else if (l->iter) {
        separate(l, indent, depth, out);
        const char *key = json_object_iter_key(l->iter);
        put_string(key, strlen(key), out);
        str_adds(out, ": ");
        v = json_object_iter_value(l->iter);
        l->iter = json_object_iter_next((json_t *)(uintptr_t)l->v, l->iter);
    }
    l->index += v != NULL;
    return v;
}

static void close_level(const struct level *l, int indent, size_t depth, struct str *out)
{
    if (indent && l->index) {
        str_addc(out, '\n');
        str_pad(out, ' ', out->n + (size_t)indent * depth);
    }
    str_addc(out, json_is_array(l->v) ? ']' : '}');
}

void py_json(const json_t *v, int indent, struct str *out)
{
    struct level stack[JSTOK_DEPTH_MAX];
    size_t depth = 0;
    for (;;) {
        if (v && (json_is_array(v) || json_is_object(v))) {
            if (depth == JSTOK_DEPTH_MAX) { /* deeper than anything we read */
                out->bad = true;
                return;
            }
            stack[depth++] =
                (struct level) { .v = v, .iter = json_object_iter((json_t *)(uintptr_t)v) };
            str_addc(out, json_is_array(v) ? '[' : '{');
        } else if (v) {
            put_scalar(v, out);
        }
        while (depth && !(v = next(&stack[depth - 1], indent, depth, out))) {
            depth--;
            close_level(&stack[depth], indent, depth, out);
        }
        if (!depth)
            return;
    }
}
