/* wide: conversions whose source may hold what F32 cannot: F64 and integers of 32 and 64 bits.
 *
 * Going through an F32 rounded to nearest would round twice on the way to a smaller type. Integers
 * and F64 therefore take the number whole; for floats of 16 and 8 bits the number is first rounded
 * *to odd* into an F32 (cut off, and the last bit set if anything was lost). F32 has more than two
 * bits beyond each of them, so rounding that to nearest gives what rounding the number itself
 * would have given. */
#include "base/err.h"
#include "tensor/convert_impl.h"
#include "tensor/minifloat.h"

#include <math.h>

typedef __int128 wide_int; /* every int64 and uint64 */

struct num {
    bool is_int;
    wide_int i;
    double f;
};

/* The integers, signed and unsigned: enum suffix, C type, lowest, highest. */
#define INT_TYPES(X)                                                                               \
    X(I64, int64_t, INT64_MIN, INT64_MAX)                                                          \
    X(I32, int32_t, INT32_MIN, INT32_MAX)                                                          \
    X(I16, int16_t, INT16_MIN, INT16_MAX)                                                          \
    X(I8, int8_t, INT8_MIN, INT8_MAX)                                                              \
    X(U64, uint64_t, 0, UINT64_MAX)                                                                \
    X(U32, uint32_t, 0, UINT32_MAX)                                                                \
    X(U16, uint16_t, 0, UINT16_MAX)                                                                \
    X(U8, uint8_t, 0, UINT8_MAX)

static struct num num_load(enum dtype t, const void *p)
{
    struct num v = { .is_int = true };
    switch ((int)t) {
#define LOAD(ID, T, lo, hi)                                                                        \
    case DT_##ID: {                                                                                \
        T x;                                                                                       \
        memcpy(&x, p, sizeof x);                                                                   \
        v.i = x;                                                                                   \
        return v;                                                                                  \
    }
        INT_TYPES(LOAD)
#undef LOAD
    case DT_F64:
        v.is_int = false;
        memcpy(&v.f, p, sizeof v.f);
        return v;
    }
    BUG("%s is not a wide type", dtype_name(t));
}

/* To the nearest integer, ties to even; NaN to 0; far outside any integer type stays outside. */
static wide_int num_int(const struct num *v)
{
    if (v->is_int)
        return v->i;
    double r = rint(v->f);
    double far = 0x1p65;
    return r != r ? 0 : (wide_int)(r > far ? far : r < -far ? -far : r);
}

/* Rounded to odd; see above. */
static float num_odd(const struct num *v)
{
    float f = v->is_int ? (float)v->i : (float)v->f;
    bool exact, above; /* above: rounding moved it away from zero */
    if (v->is_int) {
        wide_int back = (wide_int)f;
        exact = back == v->i;
        above = v->i < 0 ? back < v->i : back > v->i;
    } else {
        exact = (double)f == v->f || v->f != v->f;
        above = fabs((double)f) > fabs(v->f);
    }
    return exact ? f : f32_from_bits((f32_bits(f) - above) | 1);
}

static void num_store(const struct num *v, enum dtype t, void *p)
{
    switch ((int)t) {
#define STORE(ID, T, lo, hi)                                                                       \
    case DT_##ID: {                                                                                \
        wide_int i = num_int(v);                                                                   \
        T x = (T)(i < (wide_int)(lo) ? (wide_int)(lo) : i > (wide_int)(hi) ? (wide_int)(hi) : i);  \
        memcpy(p, &x, sizeof x);                                                                   \
        return;                                                                                    \
    }
        INT_TYPES(STORE)
#undef STORE
    case DT_BOOL:
        *(uint8_t *)p = v->is_int ? v->i != 0 : v->f != 0;
        return;
    case DT_F64: {
        double f = v->is_int ? (double)v->i : v->f;
        memcpy(p, &f, sizeof f);
        return;
    }
    }
    float odd = num_odd(v);
    dtype_desc(t)->from_f32(&odd, p, 1);
}

void wide_convert(enum dtype from, const void *src, enum dtype to, void *dst, size_t n)
{
    size_t in = dtype_desc(from)->bytes, out = dtype_desc(to)->bytes;
    for (size_t i = 0; i < n; i++) {
        struct num v = num_load(from, (const uint8_t *)src + i * in);
        num_store(&v, to, (uint8_t *)dst + i * out);
    }
}
