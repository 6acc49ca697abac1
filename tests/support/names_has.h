/* names_has: is a name in a list? */
#ifndef SUPPORT_NAMES_HAS_H
#define SUPPORT_NAMES_HAS_H

#include "paths/folders.h"

#include <string.h>

static inline bool names_has(const struct names *x, const char *s)
{
    bool has = false;
    for (size_t i = 0; i < x->n; i++)
        has |= strcmp(x->at[i], s) == 0;
    return has;
}

#endif
