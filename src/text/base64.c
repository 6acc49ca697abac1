/* base64.c: digits to bytes. */
#include "text/base64.h"

#include <stdint.h>

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool base64_decode(char *s, size_t n, size_t *out)
{
    size_t to = 0;
    uint32_t bits = 0;
    if (n % 4)
        return false;
    while (n && s[n - 1] == '=' && n % 4 != 2)
        n--;
    for (size_t i = 0; i < n; i++) {
        int d = base64_digit(s[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (uint32_t)d;
        if (i % 4) /* 12, 18, 24 bits: one byte more each */
            s[to++] = (char)(bits >> (6 - 2 * (i % 4)) & 0xff);
    }
    *out = to;
    return true;
}
