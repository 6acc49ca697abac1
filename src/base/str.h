/* str: a growable byte string with a sticky failure flag.
 *
 * A zeroed struct is an empty string. When memory runs out `bad` is set and further additions do
 * nothing, so that a long text may be built and checked once. `p` is always NUL-terminated when
 * not NULL; str_c() never returns NULL. */
#pragma once

#include "base/attr.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    char *p;
    size_t n, cap;
    bool bad;
};

/* What is added must not lie inside s, which may move. */
void str_add(struct str *s, const char *p, size_t n);
void str_adds(struct str *s, const char *z);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
void str_vaddf(struct str *s, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
void str_pad(struct str *s, char c, size_t width); /* appends c until s->n == width */
void str_clear(struct str *s);                     /* length 0 and not bad, memory kept */
void str_release(struct str *s);
/* Ownership moves out (free()), s is empty again. NULL when bad. */
WARN_UNUSED char *str_take(struct str *s);

static inline const char *str_c(const struct str *s)
{
    return s->p ? s->p : "";
}

/* Text helpers; outside text travels as (s, n). */
bool str_eq(const char *s, size_t n, const char *z);
bool str_starts(const char *s, size_t n, const char *z);
bool str_ends(const char *s, size_t n, const char *z);
bool str_is_utf8(const char *s, size_t n); /* strict: no overlong forms, surrogates, > U+10FFFF */

/* "23.8 GiB", binary units, three digits ("1023 KiB" has four), rounded to the nearest. */
#define STR_BYTES_MAX 24
const char *str_bytes(uint64_t n, char buf[STR_BYTES_MAX]);
/* Two that stand against each other in a sentence: to the byte, "25165825 B", where they are not
 * the same and would read so. */
void str_bytes_two(uint64_t n, uint64_t m, char buf[STR_BYTES_MAX], char other[STR_BYTES_MAX]);

/* number [space] unit, unit = g|gb|gib|m|mb|mib|k|kb|kib|b (any case, binary multiples) or none
 * (bytes). Exact: "2.5g" is 2684354560; a fraction of a byte rounds down. False when malformed or
 * beyond 2^64-1. Whole text must be consumed. */
WARN_UNUSED bool str_parse_bytes(const char *s, size_t n, uint64_t *out);

int str_hex(char c); /* of a hexadecimal digit, 0 to 15; -1: none */
/* Decimal digits only. False when malformed or out of range. */
WARN_UNUSED bool str_parse_u64(const char *s, size_t n, uint64_t *out);
/* "-12.5e3", correctly rounded, with a point in every locale. False when malformed or infinite. */
WARN_UNUSED bool str_parse_f64(const char *s, size_t n, double *out);
