/* rng: random numbers as PyTorch's CPU generator makes them on x86, and the Brownian tree of the
 * SDE samplers (sampling.md 1.1, 7). Everything in float32 as the reference has it.
 *
 * Numbers torch_randn() and the tree's increments equal the reference to the bit, on every machine.
 *         What brownian_noise() divides by is a correctly rounded root; torch has it from MKL,
 *         which is one bit off for every sixth number.
 * Threads one owner each.
 * Files   rng.c, brownian.c; rng_impl.h is for rng.c and its test. */
#ifndef SAMPLE_RNG_H
#define SAMPLE_RNG_H

#include "base/err.h"
#include "base/mt19937.h"

#include <stdbool.h>

struct torch_rng {
    struct mt19937 mt;
    double cached; /* second half of a double Box-Muller pair; survives big draws in between */
    bool has_cached;
};
void torch_seed(struct torch_rng *g, uint64_t seed); /* manual_seed(): the lower 32 bits count */
void torch_randn(struct torch_rng *g, float *out, size_t n); /* one call of torch.randn(shape) */
void torch_rand(struct torch_rng *g, float *out, size_t n);  /* uniform [0, 1) */

/* noise(sigma, sigma_next) over an interval, as torchsde's BrownianTree under k-diffusion's
 * wrapper. It holds up to four arrays of n for each halving: about 70 in all at SD's noise
 * levels. */
struct brownian;
/*   n       elements of the latent; seed: as the sampler has it
 *   lo, hi  smallest positive and largest sigma, up to 1e12; BERTH_EINVAL: others */
berth_status brownian_new(uint64_t seed, float lo, float hi, size_t n, struct brownian **out,
                          berth_err *err);
void brownian_free(struct brownian *b); /* NULL is fine */
/* out [n]. Levels outside of the interval count as its ends; 0 where there is no way between them.
 * After BERTH_ENOMEM it may be asked again. */
berth_status brownian_noise(struct brownian *b, float sigma, float sigma_next, float *out,
                            berth_err *err);

#endif
