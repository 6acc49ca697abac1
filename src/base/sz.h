/* sz: size arithmetic that says when the answer does not fit. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All: false when the result does not fit; *out is then unspecified. */
static inline WARN_UNUSED bool sz_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline WARN_UNUSED bool sz_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline WARN_UNUSED bool sz_align(size_t n, size_t align, size_t *out)
{
    size_t up;
    if (!sz_add(n, align - 1, &up))
        return false;
    *out = up & ~(align - 1);
    return true;
}

static inline WARN_UNUSED bool sz_from_u64(uint64_t n, size_t *out)
{
    *out = (size_t)n;
    return *out == n;
}

static inline bool sz_is_pow2(size_t n)
{
    return n && !(n & (n - 1));
}
