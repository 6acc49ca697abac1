/* norm: how far two lists of numbers are apart, all of them together. */
#ifndef SUPPORT_NORM_H
#define SUPPORT_NORM_H

#include <math.h>
#include <stddef.h>

/* The norm of the difference over the norm of what was wanted. */
static inline double norm_error(const float *got, const float *want, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        off += d * d;
        all += (double)want[i] * (double)want[i];
    }
    return all > 0 ? sqrt(off / all) : sqrt(off);
}

#endif
