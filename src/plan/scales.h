/* scales: the number beside an fp8 weight that its codes are multiplied by, as files call it.
 * Before the name comes that of the layer and a dot, as before "weight". */
#ifndef PLAN_SCALES_H
#define PLAN_SCALES_H

#include "base/str.h"

#include <string.h>

static const char *const scale_names[] = { "scale_weight", "weight_scale" };

static inline bool is_scale(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(scale_names); i++) {
        size_t n = strlen(scale_names[i]);
        if (len > n && name[len - n - 1] == '.' && str_ends(name, len, scale_names[i]))
            return true;
    }
    return false;
}

#endif
