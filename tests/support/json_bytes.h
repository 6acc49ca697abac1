/* json_bytes: text that is compared to the byte although some of it changes from run to run. */
#ifndef SUPPORT_JSON_BYTES_H
#define SUPPORT_JSON_BYTES_H

#include "support/test.h"

#include "base/str.h"

#include <string.h>

/* Releases text. To the byte, except that 0 stands for any number, and * before a quote for the
 * rest of a string. */
static inline void expect_bytes(struct str *text, const char *want)
{
    const char *p = str_c(text), *w = want;
    for (; *w && (*w == *p || *w == '0' || (*w == '*' && w[1] == '"')); w++) {
        size_t n = *w == '0'                  ? strspn(p, "0123456789")
                   : *w == '*' && w[1] == '"' ? strcspn(p, "\"")
                                              : 1;
        if (!n)
            break;
        p += n;
    }
    if (*w || *p)
        fail_msg("byte %zu: %s\nwanted: %s", (size_t)(p - str_c(text)), str_c(text), want);
    str_release(text);
}

#endif
