/* plan_same: do two plans say the same? */
#ifndef SUPPORT_PLAN_SAME_H
#define SUPPORT_PLAN_SAME_H

#include "plan/plan.h"

#include <string.h>

/* The same device for every block. */
static inline bool plan_same(const struct plan *a, const struct plan *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->devices.at[a->device[i]].name, b->devices.at[b->device[i]].name) == 0;
    return same;
}

#endif
