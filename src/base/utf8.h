/* utf8: one strict decoder step, shared by everything here that looks at outside text. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bytes (1 to 4) of the well-formed sequence at s, at most n long; 0 when there is none: n is 0, a
 * stray or missing continuation byte, an overlong form, a surrogate, or above U+10FFFF. */
static inline size_t utf8_step(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (len > n)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* The code point at s and its bytes; n > 0. A byte that is not UTF-8 counts as itself. */
size_t utf8_get(const char *s, size_t n, uint32_t *c);
size_t utf8_put(uint32_t c, char out[4]); /* returns the bytes written */

/* Makes text safe for a terminal, in place and without changing its length: each byte of a control
 * character (C0, DEL, C1, and the marks that reorder a line) and of malformed UTF-8 becomes '?'. */
void utf8_sanitize(char *s, size_t n);

/* For text that snprintf put into s: when `wanted` (its return value) did not fit into cap bytes,
 * cuts at a whole character and ends with "...". cap: at least 4. Returns the length. */
size_t utf8_mark_cut(char *s, size_t cap, size_t wanted);
