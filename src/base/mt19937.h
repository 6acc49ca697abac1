/* mt19937: the Mersenne Twister with 32-bit output, as C++'s std::mt19937 and PyTorch's CPU
 * generator have it. Reproducing ComfyUI's numbers needs this one and no better. One owner. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MT19937_N 624

struct mt19937 {
    uint32_t state[MT19937_N];
    uint32_t next; /* of the words still to be handed out; MT19937_N: twist first */
};

/* torch's manual_seed() takes 64 bits and uses the lower half. */
void mt19937_init(struct mt19937 *g, uint32_t seed);
uint32_t mt19937_u32(struct mt19937 *g);
void mt19937_fill(struct mt19937 *g, uint32_t *out, size_t n); /* the next n */
