/* plain: F32, F64, the integers and BOOL.
 *
 * Float to integer rounds to nearest, ties to even, and saturates; NaN becomes 0. To BOOL: false
 * for zero, true for everything else, NaN included. From BOOL: any byte but 0 is true. */
#include "tensor/convert_impl.h"

#include <math.h>

/* sizeof(float) and alignment allow a plain copy both ways */
static void f32_to_f32(const void *src, float *dst, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
}

static void f32_from_f32(const float *src, void *dst, size_t n)
{
    memcpy(dst, src, n * sizeof(float));
}

const struct dtype_desc dtype_f32 = {
    .name = "F32",
    .st_name = "F32",
    .ggml_id = 0,
    .elems = 1,
    .bytes = 4,
    .is_float = true,
    .to_f32 = f32_to_f32,
    .from_f32 = f32_from_f32,
};

static void f64_to_f32(const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v;
        memcpy(&v, (const uint8_t *)src + i * sizeof v, sizeof v);
        st_f32(dst, i, (float)v);
    }
}

static void f64_from_f32(const float *src, void *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = (double)ld_f32(src, i);
        memcpy((uint8_t *)dst + i * sizeof v, &v, sizeof v);
    }
}

const struct dtype_desc dtype_f64 = {
    .name = "F64",
    .st_name = "F64",
    .ggml_id = 28,
    .elems = 1,
    .bytes = 8,
    .is_float = true,
    .is_wide = true,
    .to_f32 = f64_to_f32,
    .from_f32 = f64_from_f32,
};

/* One integer type: its C type and limits, its GGML number, and whether it outgrows F32's 24 bits.
 * (double)MAX rounds up to a power of two for 64 bits, so every r below it fits. */
#define INT_DTYPE(id, NAME, T, MIN, MAX, GGML, WIDE)                                               \
    static void id##_to_f32(const void *src, float *dst, size_t n)                                 \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            T v;                                                                                   \
            memcpy(&v, (const uint8_t *)src + i * sizeof v, sizeof v);                             \
            st_f32(dst, i, (float)v);                                                              \
        }                                                                                          \
    }                                                                                              \
    static void id##_from_f32(const float *src, void *dst, size_t n)                               \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            double r = rint((double)ld_f32(src, i));                                               \
            T v = 0;                                                                               \
            if (r >= (double)(MAX))                                                                \
                v = MAX;                                                                           \
            else if (r <= (double)(MIN))                                                           \
                v = MIN;                                                                           \
            else if (r == r)                                                                       \
                v = (T)r;                                                                          \
            memcpy((uint8_t *)dst + i * sizeof v, &v, sizeof v);                                   \
        }                                                                                          \
    }                                                                                              \
    const struct dtype_desc dtype_##id = {                                                         \
        .name = NAME,                                                                              \
        .st_name = NAME,                                                                           \
        .ggml_id = GGML,                                                                           \
        .elems = 1,                                                                                \
        .bytes = sizeof(T),                                                                        \
        .is_wide = WIDE,                                                                           \
        .to_f32 = id##_to_f32,                                                                     \
        .from_f32 = id##_from_f32,                                                                 \
    };

INT_DTYPE(i64, "I64", int64_t, INT64_MIN, INT64_MAX, 27, true)
INT_DTYPE(i32, "I32", int32_t, INT32_MIN, INT32_MAX, 26, true)
INT_DTYPE(i16, "I16", int16_t, INT16_MIN, INT16_MAX, 25, false)
INT_DTYPE(i8, "I8", int8_t, INT8_MIN, INT8_MAX, 24, false)
INT_DTYPE(u64, "U64", uint64_t, 0, UINT64_MAX, -1, true)
INT_DTYPE(u32, "U32", uint32_t, 0, UINT32_MAX, -1, true)
INT_DTYPE(u16, "U16", uint16_t, 0, UINT16_MAX, -1, false)
INT_DTYPE(u8, "U8", uint8_t, 0, UINT8_MAX, -1, false)

static void bool_to_f32(const void *src, float *dst, size_t n)
{
    const uint8_t *s = src;
    for (size_t i = 0; i < n; i++)
        st_f32(dst, i, s[i] ? 1.0f : 0.0f);
}

static void bool_from_f32(const float *src, void *dst, size_t n)
{
    uint8_t *d = dst;
    for (size_t i = 0; i < n; i++)
        d[i] = ld_f32(src, i) != 0.0f;
}

const struct dtype_desc dtype_bool = {
    .name = "BOOL",
    .st_name = "BOOL",
    .ggml_id = -1,
    .elems = 1,
    .bytes = 1,
    .to_f32 = bool_to_f32,
    .from_f32 = bool_from_f32,
};
