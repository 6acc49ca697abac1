/* latent_operation: what ComfyUI's LATENT_OPERATION nodes do to a latent, or to a prediction.
 *
 * Vectors    Both look at the channels of a latent pixel as one vector: its direction and its
 *            length.
 * Numbers    Sums in double, results in float32: within 1e-5 of the reference.
 * Threads    Any; no state. */
#pragma once

#include "base/err.h"
#include "tensor/shape.h"

struct latent_operation {
    enum latent_operation_kind {
        LATENT_TONEMAP, /* Reinhard: lengths beyond what is usual are drawn in */
        LATENT_SHARPEN, /* directions, as ImageSharpen does it to pixels */
    } kind;
    double multiplier;   /* tonemap */
    double sigma, alpha; /* sharpen */
    unsigned radius;     /* sharpen: 1..31 */
};
/* x, out: [n, c, ...]; out may be x. BERTH_EINVAL: sharpen wants [n, c, h, w] with sides longer
 * than the radius. */
berth_status latent_operation_run(const struct latent_operation *op, const struct shape *s,
                                  const float *x, float *out, berth_err *err);

/* As numbers of a guide_patch, LATENT_OPERATION_NUMBERS of them, and back. */
#define LATENT_OPERATION_NUMBERS 5
void latent_operation_put(const struct latent_operation *op, double *p);
struct latent_operation latent_operation_get(const double *p);
