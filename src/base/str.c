#include "base/str.h"

#include "base/sz.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` bytes and the NUL. */
static bool grow(struct str *s, size_t more)
{
    size_t need;
    if (s->bad)
        return false;
    if (!sz_add(s->n, more, &need) || !sz_add(need, 1, &need)) {
        s->bad = true;
        return false;
    }
    if (need <= s->cap)
        return true;
    size_t cap = s->cap < 32 ? 64 : s->cap > SIZE_MAX / 2 ? need : s->cap * 2;
    if (cap < need)
        cap = need;
    char *p = realloc(s->p, cap);
    if (!p) {
        s->bad = true;
        return false;
    }
    s->p = p;
    s->cap = cap;
    p[s->n] = '\0';
    return true;
}

void str_add(struct str *s, const char *p, size_t n)
{
    if (!grow(s, n))
        return;
    if (n)
        memcpy(s->p + s->n, p, n);
    s->n += n;
    s->p[s->n] = '\0';
}

void str_adds(struct str *s, const char *z)
{
    str_add(s, z, strlen(z));
}

void str_addc(struct str *s, char c)
{
    str_add(s, &c, 1);
}

void str_vaddf(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    size_t room = s->bad ? 0 : s->cap - s->n; /* s->p is NULL exactly when this is 0 */
    int n = vsnprintf(room ? s->p + s->n : NULL, room, fmt, ap);
    if (n < 0) {
        s->bad = true;
    } else if ((size_t)n < room) {
        s->n += (size_t)n;
    } else if (grow(s, (size_t)n)) {
        vsnprintf(s->p + s->n, (size_t)n + 1, fmt, again);
        s->n += (size_t)n;
    }
    if (s->p)
        s->p[s->n] = '\0'; /* takes back a half-written tail */
    va_end(again);
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(s, fmt, ap);
    va_end(ap);
}

void str_pad(struct str *s, char c, size_t width)
{
    if (s->n >= width || !grow(s, width - s->n))
        return;
    memset(s->p + s->n, c, width - s->n);
    s->n = width;
    s->p[width] = '\0';
}

void str_clear(struct str *s)
{
    s->n = 0;
    s->bad = false;
    if (s->p)
        s->p[0] = '\0';
}

void str_release(struct str *s)
{
    free(s->p);
    *s = (struct str) { 0 };
}

char *str_take(struct str *s)
{
    char *p = NULL;
    if (grow(s, 0)) /* an empty string is "" and not NULL */
        p = s->p;
    else
        free(s->p);
    *s = (struct str) { 0 };
    return p;
}

bool str_eq(const char *s, size_t n, const char *z)
{
    return n == strlen(z) && (n == 0 || memcmp(s, z, n) == 0);
}

bool str_starts(const char *s, size_t n, const char *z)
{
    size_t k = strlen(z);
    return k <= n && (k == 0 || memcmp(s, z, k) == 0);
}

bool str_ends(const char *s, size_t n, const char *z)
{
    size_t k = strlen(z);
    return k <= n && (k == 0 || memcmp(s + (n - k), z, k) == 0);
}

bool str_is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_step(s + i, n - i);
        if (len == 0)
            return false;
        i += len;
    }
    return true;
}

const char *str_bytes(uint64_t n, char buf[STR_BYTES_MAX])
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    if (n < 1024) {
        snprintf(buf, STR_BYTES_MAX, "%u B", (unsigned)n);
        return buf;
    }
    unsigned u = 1;
    while (u + 1 < ARRAY_LEN(unit) && n >> (10 * (u + 1)))
        u++;
    for (;; u++) {
        /* Rounded to the nearest 1/100, 1/10 or 1: as many decimals as leave three digits. */
        unsigned shift = 10 * u;
        unsigned __int128 half = (unsigned __int128)1 << (shift - 1);
        unsigned c = (unsigned)(((unsigned __int128)n * 100 + half) >> shift);
        unsigned d = (unsigned)(((unsigned __int128)n * 10 + half) >> shift);
        unsigned i = (unsigned)(((unsigned __int128)n + half) >> shift);
        if (c < 1000)
            snprintf(buf, STR_BYTES_MAX, "%u.%02u %s", c / 100, c % 100, unit[u]);
        else if (d < 1000)
            snprintf(buf, STR_BYTES_MAX, "%u.%u %s", d / 10, d % 10, unit[u]);
        else if (i < 1024 || u + 1 == ARRAY_LEN(unit))
            snprintf(buf, STR_BYTES_MAX, "%u %s", i, unit[u]);
        else
            continue; /* 1023.9 KiB reads better as 1.00 MiB */
        return buf;
    }
}

void str_bytes_two(uint64_t n, uint64_t m, char buf[STR_BYTES_MAX], char other[STR_BYTES_MAX])
{
    if (strcmp(str_bytes(n, buf), str_bytes(m, other)) != 0 || n == m)
        return;
    snprintf(buf, STR_BYTES_MAX, "%" PRIu64 " B", n);
    snprintf(other, STR_BYTES_MAX, "%" PRIu64 " B", m);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int str_hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool str_parse_u64(const char *s, size_t n, uint64_t *out)
{
    uint64_t v = 0;
    if (n == 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_digit(s[i]) || __builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    *out = v;
    return true;
}

bool str_parse_f64(const char *s, size_t n, double *out)
{
    char buf[128], *end, *text = n < sizeof buf ? buf : malloc(n + 1);
    if (!text)
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    bool plain = n && strspn(text, "+-.0123456789eE") == n; /* neither "0x1p3" nor "nan" */
    *out = plain ? strtod_l(text, &end, newlocale(LC_ALL_MASK, "C", (locale_t)0)) : 0;
    bool ok = plain && end == text + n && isfinite(*out);
    if (text != buf)
        free(text);
    return ok;
}

/* log2 of the unit's bytes, -1 when there is no such unit. */
static int unit_shift(const char *s, size_t n)
{
    static const char *const letters = "bkmg"; /* 2^0, 2^10, 2^20, 2^30 */
    if (n == 0)
        return 0;
    char low[3] = { 0 };
    if (n > sizeof low)
        return -1;
    for (size_t i = 0; i < n; i++)
        low[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] - 'A' + 'a') : s[i];
    const char *at = low[0] ? strchr(letters, low[0]) : NULL;
    if (!at || (at == letters && n > 1))
        return -1;
    if (n == 1 || (n == 2 && low[1] == 'b') || (n == 3 && low[1] == 'i' && low[2] == 'b'))
        return 10 * (int)(at - letters);
    return -1;
}

bool str_parse_bytes(const char *s, size_t n, uint64_t *out)
{
    size_t whole = 0; /* digits before the point */
    while (whole < n && is_digit(s[whole]))
        whole++;
    size_t at = whole, frac = 0; /* digits behind it */
    if (at < n && s[at] == '.') {
        at++;
        while (at + frac < n && is_digit(s[at + frac]))
            frac++;
        if (frac == 0)
            return false;
    }
    const char *digits = s + at;
    at += frac;
    if (at < n && s[at] == ' ' && ++at == n)
        return false; /* a space announces a unit */
    int shift = unit_shift(s + at, n - at);
    uint64_t v;
    if (shift < 0 || !str_parse_u64(s, whole, &v))
        return false;

    /* floor(0.d1 d2 d3... * unit), exactly, from the last digit to the first: as d * unit is whole,
     * floor((d * unit + x) / 10) == floor((d * unit + floor(x)) / 10). */
    uint64_t unit = UINT64_C(1) << shift, part = 0;
    for (size_t i = frac; i-- > 0;)
        part = ((uint64_t)(digits[i] - '0') * unit + part) / 10;
    return !__builtin_mul_overflow(v, unit, &v) && !__builtin_add_overflow(v, part, out);
}
