/* dtype: the element types weights are stored in, one descriptor each.
 *
 * Words   block: the smallest unit a type is stored in: 1 element for plain types, 32 or 256 for
 *         the GGML quants. A row of n elements takes n / elems * bytes bytes; n must be a multiple
 *         of elems. quant: a type whose blocks hold several elements.
 * Adding  one file with `const struct dtype_desc dtype_<x>` and one line in dtypes.def. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
#define DTYPE(ID, id) DT_##ID,
#include "tensor/dtypes.def"
#undef DTYPE
    DT_COUNT,
    DT_NONE = DT_COUNT
};

typedef void to_f32_fn(const void *src, float *dst, size_t n);
typedef void from_f32_fn(const float *src, void *dst, size_t n);

struct dtype_desc {
    const char *name;    /* "F16", "Q4_K": what people read, and what --dtype takes in any case */
    const char *st_name; /* name in safetensors headers; NULL: cannot be stored there */
    int ggml_id;         /* type number in GGUF; -1: cannot be stored there */
    uint16_t elems;      /* per block */
    uint16_t bytes;      /* per block */
    bool is_float;       /* plain floating point */
    bool is_wide;        /* has values that F32 cannot hold: convert() goes around F32 */
    /* n elements, a multiple of `elems`. Source and destination may be unaligned and do not
     * overlap. Rounds to nearest, ties to even; fp8 saturates. NULL: no such conversion.
     * convert.h has the rules in full, and the pairs that do not pass through F32. Any thread. */
    to_f32_fn *to_f32;
    from_f32_fn *from_f32;
    /* The same conversions one by one per enum cpu_level (cpu.h), [CPU_PLAIN] being the
     * reference, so that tests can hold them together. NULL: one version for every processor. */
    to_f32_fn *const *to_f32_levels;
    from_f32_fn *const *from_f32_levels;
};

const struct dtype_desc *dtype_desc(enum dtype t); /* BUG() on DT_NONE */
const char *dtype_name(enum dtype t);              /* "?" for DT_NONE */
enum dtype dtype_by_name(const char *s, size_t n); /* any case; DT_NONE when unknown */
enum dtype dtype_by_st_name(const char *s, size_t n);
enum dtype dtype_by_ggml_id(uint32_t id);
static inline bool dtype_is_quant(enum dtype t)
{
    return dtype_desc(t)->elems > 1;
}

/* Bytes of n elements. False when n is not a multiple of the block or the size does not fit. */
WARN_UNUSED bool dtype_bytes(enum dtype t, uint64_t n, uint64_t *out);
