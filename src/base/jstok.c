#include "base/jstok.h"

#include "base/utf8.h"

#include <math.h>

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
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
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

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Length of the escape whose backslash is at `at`; 0 when malformed. */
static size_t escape_len(const struct jstok *t, size_t at)
{
    size_t left = t->len - at;
    if (left < 2)
        return 0;
    switch (t->text[at + 1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't':
        return 2;
    case 'u':
        if (left < 6)
            return 0;
        for (size_t i = 2; i < 6; i++)
            if (hex_value(t->text[at + i]) < 0)
                return 0;
        return 6;
    default:
        return 0;
    }
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
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return number(t, at);
    default:
        return bad(t, at, "expected a value");
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

size_t jstok_offset(const struct jstok *t)
{
    return t->tok;
}

/* ---- values of tokens ---- */

/* |value| of an integer token. */
static bool magnitude(const struct jstok *t, bool *negative, uint64_t *out)
{
    uint64_t v = 0;
    *negative = t->n && t->s[0] == '-';
    if (t->n == *negative)
        return false;
    for (size_t i = *negative; i < t->n; i++)
        if (t->s[i] < '0' || t->s[i] > '9' || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(t->s[i] - '0'), &v))
            return false;
    *out = v;
    return true;
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

/* A decimal number taken apart: 0.<digit> * 10^point, leading zeros dropped. No double lies so
 * close to a tie that more than 768 digits decide, and of the rest it matters only whether they are
 * all zero; the last digit kept says so. */
enum { DIGITS_MAX = 800 };
struct decimal {
    char digit[DIGITS_MAX + 32]; /* + 32: exponent, for strtod */
    size_t n;
    int64_t point;
};

static void decimal_add(struct decimal *d, char c)
{
    if (d->n == 0 && c == '0')
        return;
    if (d->n < DIGITS_MAX)
        d->digit[d->n++] = c;
    else if (c != '0')
        d->digit[DIGITS_MAX - 1] = '1'; /* sticky: a bit more than what was kept */
}

/* The exponent digits s[0..n), saturated far beyond any length of text. */
static int64_t exponent(const char *s, size_t n)
{
    bool negative = n && s[0] == '-';
    int64_t e = 0;
    for (size_t i = n && (s[0] == '-' || s[0] == '+'); i < n; i++)
        if (e < INT64_C(1) << 56)
            e = e * 10 + (s[i] - '0');
    return negative ? -e : e;
}

static void decimal_read(struct decimal *d, const char *s, size_t n)
{
    size_t i = 0;
    bool behind_point = false;
    for (; i < n && s[i] != 'e' && s[i] != 'E'; i++) {
        if (s[i] == '.') {
            behind_point = true;
            continue;
        }
        bool before = d->n > 0;
        decimal_add(d, s[i]);
        if (!behind_point && d->n > 0)
            d->point++; /* one more digit in front of the point */
        else if (behind_point && !before && d->n == 0)
            d->point--; /* 0.0... */
    }
    if (i < n)
        d->point += exponent(s + i + 1, n - i - 1);
}

/* Exact powers of ten: with at most 15 digits, one rounding gives the correct result. */
static bool decimal_fast(const struct decimal *d, double *out)
{
    static const double pow10[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    int64_t e = d->point - (int64_t)d->n;
    if (d->n > 15 || e < -22 || e > 22)
        return false;
    uint64_t m = 0;
    for (size_t i = 0; i < d->n; i++)
        m = m * 10 + (uint64_t)(d->digit[i] - '0');
    *out = e < 0 ? (double)m / pow10[-e] : (double)m * pow10[e];
    return true;
}

bool jstok_f64(const struct jstok *t, double *out)
{
    struct decimal d; /* the digits are not cleared: 800 bytes for every "0.5" */
    d.n = 0;
    d.point = 0;
    bool negative = t->n && t->s[0] == '-';
    decimal_read(&d, t->s + negative, t->n - negative);
    double v;
    if (d.n == 0) {
        v = 0; /* whatever the exponent */
    } else if (!decimal_fast(&d, &v)) {
        /* strtod rounds correctly. Digits and an exponent, no point: nothing a locale could change.
         */
        int64_t e = d.point - (int64_t)d.n;
        e = e > 99999 ? 99999 : e < -99999 ? -99999 : e;
        snprintf(d.digit + d.n, sizeof d.digit - d.n, "e%d", (int)e);
        v = strtod(d.digit, NULL);
    }
    *out = negative ? -v : v;
    return isfinite(v);
}

/* The code unit of the \uXXXX at s. */
static uint32_t unit_at(const char *s)
{
    uint32_t u = 0;
    for (int i = 2; i < 6; i++)
        u = u << 4 | (uint32_t)hex_value(s[i]);
    return u;
}

static size_t put_utf8(char *p, uint32_t c)
{
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        p[0] = (char)(0xc0 | c >> 6);
        p[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        p[0] = (char)(0xe0 | c >> 12);
        p[1] = (char)(0x80 | (c >> 6 & 0x3f));
        p[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    p[0] = (char)(0xf0 | c >> 18);
    p[1] = (char)(0x80 | (c >> 12 & 0x3f));
    p[2] = (char)(0x80 | (c >> 6 & 0x3f));
    p[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Decodes the escape at s (validated by the walk, `left` bytes to the end of the string). Returns
 * the bytes read, 0 on a lone surrogate. */
static size_t unescape(const char *s, size_t left, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s[1] != 'u') {
        out[(*n)++] = to[strchr(from, s[1]) - from];
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
    *n += put_utf8(out + *n, c);
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
            *n += put_utf8(buf + *n, 0xfffd);
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
