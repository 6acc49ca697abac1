/* rng: random numbers as PyTorch's CPU generator makes them, to the bit on x86 (sampling.md 1.1), and the
 * Brownian tree of the SDE samplers (7). Everything in float32 as the reference has it.
 *
 * Files   rng.c, brownian.c. Threads: one owner. */
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

/* noise(sigma, sigma_next) over an interval, as torchsde's BrownianTree under k-diffusion's wrapper. */
struct brownian;
/*   n       elements of the latent; seed: as the sampler has it
 *   lo, hi  smallest positive and largest sigma */
berth_status brownian_new(uint64_t seed, float lo, float hi, size_t n, struct brownian **out,
                          berth_err *err);
void brownian_free(struct brownian *b); /* NULL is fine */
berth_status brownian_noise(struct brownian *b, float sigma, float sigma_next, float *out,
                            berth_err *err);

#endif
