/* synth_impl: the rule's inner loop in its variants, for synth.c and for the test that holds them
 * together. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rule with everything that does not depend on the element hoisted: value = offset + k * scale
 * with k = (z >> 40) - 2^23. u = k / 2^23 exactly, and a power of two moves through a product
 * without touching its rounding, so scale = s / 2^23 gives the same bits as u * s. offset 0 adds
 * nothing: no product is -0. */
struct synth_rule {
    uint64_t hash;
    double scale, offset;
};

struct synth_kernel {
    const char *name;
    bool (*here)(void); /* can this machine run it? */
    void (*fill)(struct synth_rule r, uint64_t first, size_t count, float *out);
};

/* synth_layout.c: the tensor of which tensor i is a part; *plain: it is that one, as a value. */
struct synth;
size_t synth_key_of(const struct synth *s, size_t i, bool *plain);
berth_status synth_layout_fill(const struct synth *s, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err);

/* Fastest first; the last one runs everywhere. */
extern const struct synth_kernel synth_kernels[];
extern const size_t synth_kernel_count;
