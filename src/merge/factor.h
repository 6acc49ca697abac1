/* factor: the two thin matrices whose product is nearest to a matrix: its largest singular values
 * with their vectors. What extracting an adapter from a difference of weights needs.
 *
 * Sums are double. Matrices whose smaller side is beyond a few hundred are looked at through a
 * subspace (block Krylov), which holds the largest values to far more digits than an adapter has.
 * Of two vectors that differ in sign alone, the left one's largest element is positive. */
#pragma once

#include "base/err.h"
#include "base/tpool.h"

#include <stdatomic.h>

struct factor_args {
    const float *a;            /* [rows, cols] */
    size_t rows, cols, rank;   /* rank <= both sides, >= 1 */
    struct tpool *pool;        /* may be NULL */
    const atomic_bool *cancel; /* may be NULL */
};
/* up [rows, rank] = vectors times values, down [rank, cols]. BERTH_EINVAL: values that are not
 * finite. BERTH_ECANCELED, BERTH_ENOMEM. */
berth_status factor(const struct factor_args *x, float *up, float *down, berth_err *err);
/* What q of the values are below (0..1), between two of them as torch.quantile() has it. Sorts
 * them. pre: n > 0 */
float factor_quantile(float *v, size_t n, double q);
