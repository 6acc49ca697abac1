/* convert: elements of one type into another.
 *
 * Every conversion between plain types rounds once, as if the exact value had been rounded: types
 * that F32 holds exactly (floats and integers up to 16 bits) pass through F32 in small blocks, F64
 * and the 32- and 64-bit integers go around it.
 *
 *   to F64 F32 F16 BF16   to nearest, ties to even; too large becomes infinity. NaN keeps its sign
 *                         and upper payload bits and becomes quiet (BF16 -> F32 moves bits only)
 *   to F8_E4M3 F8_E5M2    the same, but too large, infinities included, becomes the largest
 *                         finite value (448, 57344) with its sign; NaN stays NaN
 *   to F8_E8M0            the nearest power of two, ties to the even code; zero and below: 2^-127;
 *                         too large and +infinity: 2^127; NaN stays NaN
 *   to integers           to nearest, ties to even, then saturated; NaN becomes 0
 *   to BOOL               0 for zero, 1 for everything else; from BOOL any byte but 0 is 1
 *   from a quant          the exact product and sum in F32 arithmetic, then as above
 *   to a quant            through F32 and the type's quantiser; only some types have one:
 *                         NaN counts as 0, infinities as the largest finite F32
 *   same type             the bytes are copied
 *
 * Threads any. Nothing is allocated. Files: convert.c doors, wide.c around F32, minifloat.h the
 * small floats bit by bit, convert_impl.h one body for several processors; plain.c, small_floats.c,
 * f16.c and one file per quant. */
#pragma once

#include "base/err.h"
#include "tensor/dtype.h"

/* n elements, borrowed, aligned or not, not overlapping. EINVAL when n is no multiple of a block of
 * either type, EUNSUPPORTED when `to` has no quantiser. Nothing is written on error. */
berth_status convert(enum dtype from, const void *src, enum dtype to, void *dst, size_t n,
                     berth_err *err);

bool convert_possible(enum dtype from, enum dtype to); /* block multiples aside */
