/* pynum: what int() and float() of Python read in a text. Digits are the ASCII ones. */
#include "base/utf8.h"
#include "node/py.h"

#include <math.h>
#include <string.h>
#include <strings.h>

bool py_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

void py_strip(const char **s, size_t *n, bool left, bool right)
{
    const char *p = *s;
    size_t from = 0, to = 0;
    bool begun = false;
    for (size_t i = 0, len; i < *n; i += len) {
        uint32_t c;
        len = utf8_get(p + i, *n - i, &c);
        if (py_is_space(c))
            continue;
        if (!begun)
            from = i;
        begun = true;
        to = i + len;
    }
    if (!begun) { /* nothing but space */
        from = left ? *n : 0;
        to = left || right ? from : *n;
    }
    from = left ? from : 0;
    to = right ? to : *n;
    *s = p + from;
    *n = to - from;
}

size_t py_digits(const char *s, size_t n, struct str *out)
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

/* 2^127 has 39 digits. */
static bool fold(const char *p, size_t n, bool minus, __int128 *out)
{
    __int128 i = 0;
    for (size_t k = 0; k < n; k++)
        if (__builtin_mul_overflow(i, 10, &i) ||
            __builtin_add_overflow(i, minus ? '0' - p[k] : p[k] - '0', &i))
            return false;
    *out = i;
    return true;
}

enum py_int py_parse_int(const char *s, size_t n, __int128 *out, struct str *plain, bool *minus)
{
    struct str digits = { 0 };
    py_strip(&s, &n, true, true);
    *minus = n && s[0] == '-';
    bool sign = *minus || (n && s[0] == '+');
    size_t used = py_digits(s + sign, n - sign, &digits), zeros = 0;
    bool whole = used && used == n - sign;
    enum py_int got = digits.bad ? PY_INT_NO_MEMORY : whole ? PY_INT : PY_NO_INT;
    if (got == PY_INT && digits.n > PY_INT_DIGITS_MAX)
        got = PY_INT_LONG;
    while (zeros + 1 < digits.n && digits.p[zeros] == '0')
        zeros++;
    if (got == PY_INT && !fold(digits.p + zeros, digits.n - zeros, *minus, out))
        got = PY_INT_BIG;
    if (plain)
        str_add(plain, str_c(&digits) + (got == PY_INT_LONG ? 0 : zeros),
                digits.n - (got == PY_INT_LONG ? 0 : zeros));
    str_release(&digits);
    return plain && plain->bad ? PY_INT_NO_MEMORY : got;
}

void py_add_int(__int128 i, struct str *out)
{
    char text[48];
    size_t at = sizeof text;
    bool minus = i < 0;
    unsigned __int128 u = minus ? -(unsigned __int128)i : (unsigned __int128)i;
    do
        text[--at] = (char)('0' + (int)(u % 10));
    while (u /= 10);
    if (minus)
        text[--at] = '-';
    str_add(out, text + at, sizeof text - at);
}

/* ---- float() ---- */

/* [digits][.digits][e[+-]digits] as JSON writes it, into `out`. False: it is not one. */
static bool float_grammar(const char *s, size_t n, struct str *out)
{
    size_t i = py_digits(s, n, out), got = i;
    if (!i)
        str_addc(out, '0');
    if (i < n && s[i] == '.') {
        str_addc(out, '.');
        size_t k = py_digits(s + i + 1, n - i - 1, out);
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
        size_t k = py_digits(s + i, n - i, out);
        got = k; /* an exponent wants its digits */
        i += k;
    }
    return got && i == n;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && strncasecmp(s, word, n) == 0;
}

enum py_float py_parse_float(const char *s, size_t n, double *out)
{
    py_strip(&s, &n, true, true);
    bool minus = n && s[0] == '-', sign = minus || (n && s[0] == '+');
    s += sign;
    n -= sign;
    struct str text = { 0 };
    double f = 0;
    bool number = float_grammar(s, n, &text), bad = text.bad;
    bool finite = number && !bad && str_parse_f64(text.p, text.n, &f);
    str_release(&text);
    if (bad)
        return PY_NO_MEMORY;
    *out = minus ? -f : f;
    if (finite)
        return PY_FLOAT;
    *out = minus ? -HUGE_VAL : HUGE_VAL;
    if (number || is_word(s, n, "inf") || is_word(s, n, "infinity"))
        return PY_INF;
    return is_word(s, n, "nan") ? PY_NAN : PY_NO_FLOAT;
}

/* ---- points ---- */

static size_t point_bytes(const char *s, size_t n)
{
    size_t len = utf8_step(s, n);
    return len ? len : 1;
}

size_t py_len(const char *s, size_t n)
{
    size_t points = 0;
    for (size_t i = 0; i < n; i += point_bytes(s + i, n - i))
        points++;
    return points;
}

size_t py_offset(const char *s, size_t n, size_t i)
{
    size_t at = 0;
    while (at < n && i--)
        at += point_bytes(s + at, n - at);
    return at;
}

void py_slice(const char *s, size_t n, int64_t start, int64_t end, struct str *out)
{
    int64_t len = (int64_t)py_len(s, n);
    start = start < 0 ? start + len : start;
    end = end < 0 ? end + len : end;
    start = start < 0 ? 0 : start > len ? len : start;
    end = end < 0 ? 0 : end > len ? len : end;
    if (start >= end)
        return;
    size_t from = py_offset(s, n, (size_t)start), to = py_offset(s, n, (size_t)end);
    str_add(out, s + from, to - from);
}
