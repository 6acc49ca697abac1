#include "base/utf8.h"

#include <stdbool.h>
#include <string.h>

size_t utf8_get(const char *s, size_t n, uint32_t *c)
{
    size_t len = utf8_step(s, n);
    *c = (uint8_t)s[0] & (len > 1 ? 0xffu >> (len + 1) : 0xffu);
    for (size_t i = 1; i < len; i++)
        *c = *c << 6 | ((uint8_t)s[i] & 0x3fu);
    return len ? len : 1;
}

size_t utf8_put(uint32_t c, char out[4])
{
    size_t len = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(len == 1 ? c : 0xf00u >> len | c);
    return len;
}

/* p: a well-formed sequence of len bytes. */
static bool drives_a_terminal(const uint8_t *p, size_t len)
{
    if (len == 1)
        return p[0] < 0x20 || p[0] == 0x7f;
    if (len == 2)
        return p[0] == 0xc2 && p[1] < 0xa0; /* U+0080 .. U+009F */
    if (len == 3 && p[0] == 0xe2)
        return (p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) || /* U+202A .. U+202E */
               (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);   /* U+2066 .. U+2069 */
    return false;
}

void utf8_sanitize(char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_step(s + i, n - i);
        if (len == 0) {
            s[i++] = '?';
            continue;
        }
        if (drives_a_terminal((const uint8_t *)s + i, len))
            memset(s + i, '?', len);
        i += len;
    }
}

size_t utf8_mark_cut(char *s, size_t cap, size_t wanted)
{
    if (wanted < cap)
        return wanted;
    size_t n = cap - 4; /* room for the dots and the NUL */
    while (n > 0 && ((uint8_t)s[n] & 0xc0) == 0x80)
        n--; /* s[n] continues a character: drop its beginning too */
    memcpy(s + n, "...", 4);
    return n + 3;
}
