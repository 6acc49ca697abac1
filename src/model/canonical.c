#include "model/canonical.h"

#include "model/arch.h"

#include <stdarg.h>
#include <stdio.h>

const struct weights_entry *canonical_find(const struct canonical *c, const char *fmt, ...)
{
    struct net_source at;
    char name[sizeof at.name];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof name)
        return NULL;
    bool other = c->names && c->names(c->user, name, &at);
    return arch_find(c->w, c->root, other ? at.name : name);
}
