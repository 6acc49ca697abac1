#include "model/canonical.h"

#include "model/arch.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print(char *to, size_t cap, const char *fmt, va_list ap)
{
    int n = vsnprintf(to, cap, fmt, ap);
    return n > 0 && (size_t)n < cap;
}

bool name_print(char *to, size_t cap, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool fits = print(to, cap, fmt, ap);
    va_end(ap);
    return fits;
}

bool name_numbered(const char **s, const char *list, unsigned most, unsigned *number)
{
    size_t n = strlen(list);
    const char *at = *s + n + 1;
    char *end;
    if (strncmp(*s, list, n) != 0 || (*s)[n] != '.' || *at < '0' || *at > '9')
        return false;
    unsigned long v = strtoul(at, &end, 10);
    if (v >= most || *end != '.')
        return false;
    *number = (unsigned)v;
    *s = end + 1;
    return true;
}

const char *const *name_pair(const char *const (*list)[2], int side, const char **s)
{
    for (; list[0][0]; list++)
        if (strncmp(*s, list[0][side], strlen(list[0][side])) == 0) {
            *s += strlen(list[0][side]);
            return list[0];
        }
    return NULL;
}

const struct weights_entry *canonical_find(const struct canonical *c, const char *fmt, ...)
{
    struct net_source at;
    char name[sizeof at.name];
    va_list ap;
    va_start(ap, fmt);
    bool fits = print(name, sizeof name, fmt, ap);
    va_end(ap);
    if (!fits)
        return NULL;
    bool other = c->names && c->names(c->user, name, &at);
    return arch_find(c->w, c->root, other ? at.name : name);
}
