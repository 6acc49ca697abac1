/* rng: random numbers as PyTorch's generators make them, the CPU's on x86 and the one on NVIDIA
 * cards, and the Brownian tree of the SDE samplers (sampling.md 1.1, 1.2, 7). Everything in float32
 * as the reference has it.
 *
 * Numbers torch_randn() and the tree's increments equal the reference to the bit, on every machine.
 *         What brownian_noise() divides by is a correctly rounded root; torch has it from MKL,
 *         which is one bit off for every sixth number. philox_randn() is within 4e-6 of a card's,
 *         which take their sines from a unit of its own with an error of that size; its bits are
 *         the same on every machine.
 * Threads one owner each.
 * Files   rng.c, philox.c, brownian.c; rng_impl.h is for them and their tests. */
#pragma once

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

/* torch.Generator("cuda"). A draw depends on the card beyond so many numbers as it has threads at
 * once: multiprocessors x threads of each. */
#define PHILOX_THREADS (132u * 2048u) /* H100, H200: where nobody says it */
struct philox_rng {
    uint64_t seed;
    uint64_t offset;  /* 4 for each count of every thread, as torch.Generator has it */
    uint32_t threads; /* at least 256 */
};
/* manual_seed(): all 64 bits count, the offset is 0. threads: multiples of 256 on all cards; 0:
 * PHILOX_THREADS. */
void philox_seed(struct philox_rng *g, uint64_t seed, uint32_t threads);
void philox_randn(struct philox_rng *g, float *out, size_t n); /* one torch.randn(device="cuda") */

/* noise(sigma, sigma_next) over an interval, as torchsde's BrownianTree under k-diffusion's
 * wrapper. It holds up to four arrays of n for each halving: about 70 in all at SD's noise
 * levels. */
struct brownian;
/*   n       elements of the latent; seed: as the sampler has it
 *   lo, hi  smallest positive and largest sigma, up to 1e12; BERTH_EINVAL: others
 *   cuda    0: it grows on the cpu; else on a card with so many threads (philox_seed()) */
berth_status brownian_new(uint64_t seed, float lo, float hi, size_t n, uint32_t cuda,
                          struct brownian **out, berth_err *err);
void brownian_free(struct brownian *b); /* NULL is fine */
/* out [n]. Levels outside of the interval count as its ends; 0 where there is no way between them.
 * After BERTH_ENOMEM it may be asked again. */
berth_status brownian_noise(struct brownian *b, float sigma, float sigma_next, float *out,
                            berth_err *err);
