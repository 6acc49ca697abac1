/* rng: seeded random numbers for property tests. The seed comes from BERTH_SEED or from the clock;
 * a test prints it when it fails, so that the failure can be had again. */
#ifndef SUPPORT_RNG_H
#define SUPPORT_RNG_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_seed(void)
{
    const char *s = getenv("BERTH_SEED");
    if (s && *s)
        return strtoull(s, NULL, 0);
    struct timespec t = { 0 };
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000007) ^ (uint64_t)t.tv_nsec;
}

static inline uint64_t rng_u64(struct rng *r) /* splitmix64 */
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline size_t rng_below(struct rng *r, size_t n) /* n > 0; a small bias does not matter */
{
    return (size_t)(rng_u64(r) % n);
}

#endif
