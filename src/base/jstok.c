#include "base/jstok.h"

#include "base/str.h"
#include "base/utf8.h"

#include <endian.h>

/* What may come next. */
enum expect {
    VALUE,        /* at the start, or behind a key */
    VALUE_OR_END, /* behind [ */
    KEY_OR_END,   /* behind { */
    COMMA_OR_END, /* behind a value in an array or object; then the next value or key */
    NOTHING,      /* behind the one value */
};

static const char ends_early[] = "the text ends early";

void jstok_init(struct jstok *t, const char *text, size_t len, unsigned max_depth)
{
    if (len == 0)
        text = ""; /* NULL is fine then */
    *t = (struct jstok) {
        .s = text,
        .text = text,
        .len = len,
        .max_depth = max_depth < JSTOK_DEPTH_MAX ? max_depth : JSTOK_DEPTH_MAX,
        .expect = VALUE,
    };
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        t->what = "a byte order mark, which JSON does not have";
}

static enum jstok_type bad(struct jstok *t, size_t at, const char *what)
{
    t->what = what;
    t->at = t->tok = at;
    t->s = t->text + at;
    t->n = 0;
    return JSTOK_ERROR;
}

static size_t skip_space(const struct jstok *t, size_t at)
{
    while (
        at < t->len && (uint8_t)t->text[at] <= ' ' &&
        (t->text[at] == ' ' || t->text[at] == '\n' || t->text[at] == '\r' || t->text[at] == '\t'))
        at++;
    return at;
}

static bool in_object(const struct jstok *t)
{
    unsigned top = t->depth - 1;
    return t->in_object[top / 8] >> (top % 8) & 1;
}

static enum jstok_type token(struct jstok *t, size_t at, size_t n, enum jstok_type type)
{
    t->tok = at;
    t->s = t->text + at;
    t->n = n;
    t->at = at + n;
    return type;
}

static enum jstok_type scalar(struct jstok *t, size_t at, size_t n, enum jstok_type type)
{
    t->expect = t->depth ? COMMA_OR_END : NOTHING;
    return token(t, at, n, type);
}

/* ---- strings ---- */

/* Non-zero where one of 8 bytes (lowest address in the lowest byte) needs a look: a quote, a
 * backslash, a control character, or not ASCII. Borrows can mark bytes above a marked one, never
 * below, so the lowest mark is right. */
static uint64_t marks(const char *p)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    uint64_t v;
    memcpy(&v, p, sizeof v);
    v = le64toh(v);
    uint64_t quote = (v ^ ones * '"') - ones, slash = (v ^ ones * '\\') - ones;
    return (quote | slash | (v - ones * ' ') | v) & ones * 0x80;
}

/* First byte at or behind `at` that is not plain ASCII text. */
static size_t plain_run(const struct jstok *t, size_t at)
{
    for (; t->len - at >= 8; at += 8) {
        uint64_t m = marks(t->text + at);
        if (m)
            return at + (size_t)__builtin_ctzll(m) / 8;
    }
    for (; at < t->len; at++) {
        uint8_t c = (uint8_t)t->text[at];
        if (c < ' ' || c >= 0x80 || c == '"' || c == '\\')
            break;
    }
    return at;
}

static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

/* Length of the escape whose backslash is at `at`; 0 when malformed. */
static size_t escape_len(const struct jstok *t, size_t at)
{
    size_t left = t->len - at;
    if (left < 2)
        return 0;
    char c = t->text[at + 1];
    if (c != 'u')
        return c && strchr(escapes, c) ? 2 : 0;
    for (size_t i = 2; i < 6; i++)
        if (left < 6 || str_hex(t->text[at + i]) < 0)
            return 0;
    return 6;
}

/* The string whose opening quote is at `at`: text between the quotes becomes the token, t->at moves
 * behind the closing one. */
static bool string(struct jstok *t, size_t at)
{
    size_t start = at + 1;
    t->has_escape = false;
    for (size_t i = start;;) {
        i = plain_run(t, i);
        if (i == t->len) {
            bad(t, i, "the text ends inside a string");
            return false;
        }
        uint8_t c = (uint8_t)t->text[i];
        if (c == '"') {
            t->tok = at;
            t->s = t->text + start;
            t->n = i - start;
            t->at = i + 1;
            return true;
        }
        size_t len = c == '\\'   ? escape_len(t, i)
                     : c >= 0x80 ? utf8_step(t->text + i, t->len - i)
                                 : 0;
        if (len == 0) {
            bad(t, i,
                c == '\\'   ? "malformed escape in a string"
                : c >= 0x80 ? "malformed UTF-8 in a string"
                            : "control character in a string");
            return false;
        }
        t->has_escape |= c == '\\';
        i += len;
    }
}

/* ---- numbers ---- */

static size_t digits(const struct jstok *t, size_t at)
{
    while (at < t->len && t->text[at] >= '0' && t->text[at] <= '9')
        at++;
    return at;
}

static enum jstok_type number(struct jstok *t, size_t at)
{
    size_t i = at + (t->text[at] == '-');
    size_t end = digits(t, i);
    enum jstok_type type = JSTOK_INT;
    if (end == i)
        return bad(t, i, i < t->len ? "expected a digit" : ends_early);
    if (t->text[i] == '0' && end - i > 1)
        return bad(t, i, "a number with a leading zero");
    if (end < t->len && t->text[end] == '.') {
        type = JSTOK_REAL;
        i = end + 1;
        end = digits(t, i);
        if (end == i)
            return bad(t, i, i < t->len ? "expected a digit behind '.'" : ends_early);
    }
    if (end < t->len && (t->text[end] == 'e' || t->text[end] == 'E')) {
        type = JSTOK_REAL;
        i = end + 1;
        if (i < t->len && (t->text[i] == '+' || t->text[i] == '-'))
            i++;
        end = digits(t, i);
        if (end == i)
            return bad(t, i, i < t->len ? "expected a digit in the exponent" : ends_early);
    }
    return scalar(t, at, end - at, type);
}

/* ---- the walk ---- */

static enum jstok_type word(struct jstok *t, size_t at, const char *w, enum jstok_type type)
{
    size_t n = strlen(w);
    if (n > t->len - at || memcmp(t->text + at, w, n) != 0)
        return bad(t, at, "expected a value");
    return scalar(t, at, n, type);
}

static enum jstok_type enter(struct jstok *t, size_t at, bool object)
{
    if (t->depth == t->max_depth) {
        t->too_deep = true;
        return bad(t, at, "nested too deeply");
    }
    unsigned bit = 1u << (t->depth % 8);
    uint8_t *byte = &t->in_object[t->depth / 8];
    *byte = (uint8_t)(object ? *byte | bit : *byte & ~bit);
    t->depth++;
    t->expect = object ? KEY_OR_END : VALUE_OR_END;
    return token(t, at, 1, object ? JSTOK_OBJECT : JSTOK_ARRAY);
}

static enum jstok_type leave(struct jstok *t, size_t at)
{
    enum jstok_type type = in_object(t) ? JSTOK_OBJECT_END : JSTOK_ARRAY_END;
    t->depth--;
    return scalar(t, at, 1, type);
}

static enum jstok_type value(struct jstok *t, size_t at)
{
    switch (t->text[at]) {
    case '"':
        if (!string(t, at))
            return JSTOK_ERROR;
        t->expect = t->depth ? COMMA_OR_END : NOTHING;
        return JSTOK_STRING;
    case '{':
        return enter(t, at, true);
    case '[':
        return enter(t, at, false);
    case 't':
        return word(t, at, "true", JSTOK_TRUE);
    case 'f':
        return word(t, at, "false", JSTOK_FALSE);
    case 'n':
        return word(t, at, "null", JSTOK_NULL);
    default:
        return strchr("-0123456789", t->text[at]) && t->text[at] ? number(t, at)
                                                                 : bad(t, at, "expected a value");
    }
}

static enum jstok_type key(struct jstok *t, size_t at)
{
    if (t->text[at] != '"')
        return bad(t, at, "expected a key in double quotes");
    if (!string(t, at))
        return JSTOK_ERROR;
    at = skip_space(t, t->at);
    if (at == t->len || t->text[at] != ':')
        return bad(t, at, at < t->len ? "expected ':' behind a key" : ends_early);
    t->at = at + 1;
    t->expect = VALUE;
    return JSTOK_KEY;
}

enum jstok_type jstok_next(struct jstok *t)
{
    if (t->what)
        return JSTOK_ERROR;
    size_t at = skip_space(t, t->at);
    if (t->expect == NOTHING)
        return at == t->len ? token(t, at, 0, JSTOK_END) : bad(t, at, "more text behind the value");
    if (at == t->len)
        return bad(t, at, t->depth || t->len ? ends_early : "the text is empty");
    char c = t->text[at];
    if (t->expect == COMMA_OR_END) {
        bool object = in_object(t);
        if (c == (object ? '}' : ']'))
            return leave(t, at);
        if (c != ',')
            return bad(t, at, object ? "expected ',' or '}'" : "expected ',' or ']'");
        at = skip_space(t, at + 1);
        if (at == t->len)
            return bad(t, at, ends_early);
        return object ? key(t, at) : value(t, at);
    }
    if ((t->expect == KEY_OR_END && c == '}') || (t->expect == VALUE_OR_END && c == ']'))
        return leave(t, at);
    return t->expect == KEY_OR_END ? key(t, at) : value(t, at);
}

bool jstok_skip(struct jstok *t)
{
    unsigned depth = t->depth;
    switch (jstok_next(t)) {
    case JSTOK_ERROR:
        return false;
    case JSTOK_END:
    case JSTOK_KEY:
    case JSTOK_ARRAY_END:
    case JSTOK_OBJECT_END:
        bad(t, t->tok, "expected a value");
        return false;
    default:
        while (t->depth > depth)
            if (jstok_next(t) == JSTOK_ERROR)
                return false;
        return true;
    }
}

/* ---- values of tokens ---- */

/* |value| of an integer token. */
static bool magnitude(const struct jstok *t, bool *negative, uint64_t *out)
{
    *negative = t->n && t->s[0] == '-';
    return str_parse_u64(t->s + *negative, t->n - *negative, out);
}

bool jstok_i64(const struct jstok *t, int64_t *out)
{
    bool negative;
    uint64_t v;
    if (!magnitude(t, &negative, &v) || v > (uint64_t)INT64_MAX + negative)
        return false;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return true;
}

bool jstok_u64(const struct jstok *t, uint64_t *out)
{
    bool negative;
    uint64_t v;
    if (!magnitude(t, &negative, &v) || (negative && v))
        return false;
    *out = v;
    return true;
}

bool jstok_f64(const struct jstok *t, double *out)
{
    return str_parse_f64(t->s, t->n, out);
}

/* The code unit of the \uXXXX at s. */
static uint32_t unit_at(const char *s)
{
    uint32_t u = 0;
    for (int i = 2; i < 6; i++)
        u = u << 4 | (uint32_t)str_hex(s[i]);
    return u;
}

/* Decodes the escape at s (validated by the walk, `left` bytes to the end of the string). Returns
 * the bytes read, 0 on a lone surrogate. */
static size_t unescape(const char *s, size_t left, char *out, size_t *n)
{
    if (s[1] != 'u') {
        out[(*n)++] = meant[strchr(escapes, s[1]) - escapes];
        return 2;
    }
    uint32_t c = unit_at(s);
    size_t used = 6;
    if (c >= 0xd800 && c <= 0xdfff) {
        if (c > 0xdbff || left < 12 || s[6] != '\\' || s[7] != 'u')
            return 0;
        uint32_t low = unit_at(s + 6);
        if (low < 0xdc00 || low > 0xdfff)
            return 0;
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        used = 12;
    }
    *n += utf8_put(c, out + *n);
    return used;
}

bool jstok_decode(const struct jstok *t, char *buf, size_t *n, bool *nul)
{
    *n = 0;
    if (nul)
        *nul = false;
    for (size_t i = 0; i < t->n;) {
        const char *slash = t->has_escape ? memchr(t->s + i, '\\', t->n - i) : NULL;
        size_t run = slash ? (size_t)(slash - t->s) - i : t->n - i;
        if (run)
            memcpy(buf + *n, t->s + i, run);
        *n += run;
        i += run;
        if (!slash)
            break;
        size_t used = unescape(slash, t->n - i, buf, n);
        if (used == 0 && !t->loose)
            return false;
        if (used == 0) {
            *n += utf8_put(0xfffd, buf + *n);
            used = 6;
        }
        if (nul && buf[*n - 1] == '\0')
            *nul = true;
        i += used;
    }
    return true;
}

berth_status jstok_fail(const struct jstok *t, const char *what, berth_err *err)
{
    size_t line = 1, column = 1, at = t->tok;
    for (size_t i = 0; i < at; i++) {
        if (t->text[i] == '\n') {
            line++;
            column = 1;
        } else if (((uint8_t)t->text[i] & 0xc0) != 0x80) {
            column++; /* characters, as an editor counts */
        }
    }
    size_t n = 0;
    while (n < 24 && at + n < t->len && t->text[at + n] != '\n')
        n++;
    while (n && at + n < t->len && ((uint8_t)t->text[at + n] & 0xc0) == 0x80)
        n--; /* no half character */
    const char *problem = t->what ? t->what : what;
    if (n == 0)
        return err_set(err, BERTH_EFORMAT, "line %zu, column %zu, byte %zu: %s", line, column, at,
                       problem);
    return err_set(err, BERTH_EFORMAT, "line %zu, column %zu, byte %zu: %s near '%.*s'", line,
                   column, at, problem, (int)n, t->text + at);
}
