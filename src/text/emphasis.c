/* emphasis.c: (words:1.2) to parts with weights (text-encoders.md 1). */
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- float() of Python ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Digits of every script to ASCII, every space to a blank, as float() does first. Bytes written to
 * `out`, which has room for n; false: something in it is neither and not ASCII. */
static bool to_ascii(const char *s, size_t n, char *out, size_t *m)
{
    *m = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t c = uc_point(s + i, n - i, &len);
        int d = c < 127 ? -1 : uc_decimal(c);
        if (len == 0 || (c >= 127 && d < 0 && !uc_isspace(c)))
            return false;
        out[(*m)++] = c < 127 ? (char)c : d >= 0 ? (char)('0' + d) : ' ';
    }
    return true;
}

/* Takes out underscores between digits; false where one stands elsewhere. */
static bool drop_underscores(char *s, size_t *n)
{
    size_t to = 0;
    for (size_t i = 0; i < *n; i++) {
        if (s[i] != '_')
            s[to++] = s[i];
        else if (i == 0 || i + 1 == *n || !is_digit(s[i - 1]) || !is_digit(s[i + 1]))
            return false;
    }
    *n = to;
    return true;
}

static bool is_word(const char *s, size_t n, const char *lower)
{
    if (n != strlen(lower))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((s[i] | 0x20) != lower[i])
            return false;
    return true;
}

/* digits [. digits] [e [sign] digits]: moved together in place ("12.5e3" becomes "125e2"), because
 * strtod() would ask the locale what a point is. buf has room for 24 bytes behind n. */
static bool decimal(char *buf, size_t n, double *out)
{
    size_t i = 0, digits = 0;
    int64_t behind = 0, exp = 0;
    bool point = false;
    for (; i < n && (is_digit(buf[i]) || (buf[i] == '.' && !point)); i++) {
        if (buf[i] == '.') {
            point = true;
            continue;
        }
        behind += point;
        buf[digits++] = buf[i];
    }
    if (digits == 0)
        return false;
    if (i < n && (buf[i] | 0x20) == 'e') {
        bool minus = ++i < n && buf[i] == '-';
        i += i < n && (buf[i] == '-' || buf[i] == '+');
        size_t from = i;
        for (; i < n && is_digit(buf[i]); i++)
            if (exp < INT64_C(1000000000000))
                exp = exp * 10 + (buf[i] - '0');
        if (i == from)
            return false;
        exp = minus ? -exp : exp;
    }
    if (i != n)
        return false;
    snprintf(buf + digits, 24, "e%lld", (long long)(exp - behind));
    *out = strtod(buf, NULL);
    return true;
}

/* False: Python would raise ValueError. buf: n + 24 bytes. */
static bool py_float(const char *s, size_t n, char *buf, double *out)
{
    if (!to_ascii(s, n, buf, &n))
        return false;
    for (; n > 0 && is_space(buf[n - 1]);)
        n--;
    for (; n > 0 && is_space(*buf); n--)
        buf++;
    if (!drop_underscores(buf, &n))
        return false;
    bool minus = n > 0 && *buf == '-';
    if (minus || (n > 0 && *buf == '+'))
        buf++, n--;
    if (is_word(buf, n, "inf") || is_word(buf, n, "infinity"))
        *out = HUGE_VAL;
    else if (is_word(buf, n, "nan"))
        *out = NAN;
    else if (!decimal(buf, n, out))
        return false;
    *out = minus ? -*out : *out;
    return true;
}

/* ---- parentheses ---- */

struct level { /* a text in parentheses that is being cut */
    const char *s;
    size_t n, at; /* at: where the next part begins */
    int64_t depth;
    double weight;
};

/* The next part of a level: up to the parenthesis that closes what it opened, or up to one that
 * opens. A level that went below zero takes an opening one for text. */
static bool next_part(struct level *l, const char **part, size_t *n)
{
    size_t from = l->at;
    for (size_t i = from; i < l->n; i++) {
        if (l->s[i] == '(') {
            if (l->depth == 0 && i > from) { /* it opens the part behind this one */
                l->at = i;
                *part = l->s + from;
                *n = i - from;
                return true;
            }
            l->depth++;
        } else if (l->s[i] == ')' && --l->depth == 0) {
            l->at = i + 1;
            *part = l->s + from;
            *n = i + 1 - from;
            return true;
        }
    }
    l->at = l->n;
    *part = l->s + from;
    *n = l->n - from;
    return *n > 0;
}

/* \( and \) become two bytes that no rule looks at. */
static void escape(char *s, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++)
        if (s[i] == '\\' && (s[i + 1] == '(' || s[i + 1] == ')')) {
            s[i + 1] = s[i + 1] == ')' ? 1 : 2;
            s[i] = 0;
        }
}

static berth_status emit(const char *s, size_t n, double weight, struct arena *mem, struct vec *out,
                         berth_err *err)
{
    char *text = arena_strndup(mem, s, n);
    struct text_part *p = text ? vec_add(out) : NULL;
    if (!p)
        return err_set(err, BERTH_ENOMEM, "a prompt of %zu bytes", n);
    size_t to = 0;
    for (size_t i = 0; i < n; i++) {
        bool two = s[i] == 0 && i + 1 < n && (s[i + 1] == 1 || s[i + 1] == 2);
        text[to++] = !two ? s[i] : s[i + 1] == 1 ? ')' : '(';
        i += two;
    }
    text[to] = 0;
    *p = (struct text_part) { .text = text, .n = to, .weight = weight };
    return BERTH_OK;
}

/* What is inside the parentheses of a part, and its weight. */
static struct level inside(const char *part, size_t n, double weight, char *buf)
{
    struct level l = { .s = part + 1, .n = n - 2, .weight = weight * 1.1 };
    const char *colon = memrchr(l.s, ':', l.n);
    double w;
    if (colon && colon > l.s && py_float(colon + 1, l.n - (size_t)(colon + 1 - l.s), buf, &w)) {
        l.weight = w;
        l.n = (size_t)(colon - l.s);
    }
    return l;
}

static berth_status check_length(size_t n, berth_err *err)
{
    return n <= TEXT_PROMPT_MAX ? BERTH_OK
                                : err_set(err, BERTH_ELIMIT, "a prompt of %zu bytes, more than %u",
                                          n, TEXT_PROMPT_MAX);
}

berth_status text_whole(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err)
{
    if (check_length(n, err))
        return err->code;
    char *s = arena_strndup(mem, prompt, n);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "a prompt of %zu bytes", n);
    escape(s, n);
    return emit(s, n, 1.0, mem, out, err);
}

berth_status text_parts(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err)
{
    if (check_length(n, err))
        return err->code;
    char *s = arena_strndup(mem, prompt, n), *buf = arena_alloc(mem, n + 25);
    struct level *stack = malloc(TEXT_NESTING_MAX * sizeof *stack);
    berth_status st =
        s && buf && stack ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a prompt of %zu bytes", n);
    if (!st) {
        escape(s, n);
        stack[0] = (struct level) { .s = s, .n = n, .weight = 1.0 };
    }
    for (size_t depth = 1; !st && depth > 0;) {
        struct level *l = &stack[depth - 1];
        const char *part;
        size_t m;
        if (!next_part(l, &part, &m))
            depth--;
        else if (m < 2 || part[0] != '(' || part[m - 1] != ')')
            st = emit(part, m, l->weight, mem, out, err);
        else if (depth < TEXT_NESTING_MAX)
            stack[depth++] = inside(part, m, l->weight, buf);
        else
            st = err_set(err, BERTH_ELIMIT, "emphasis nested more than %d deep", TEXT_NESTING_MAX);
    }
    free(stack);
    return st;
}
