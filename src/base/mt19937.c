#include "base/mt19937.h"

#define M 397

void mt19937_init(struct mt19937 *g, uint32_t seed)
{
    g->state[0] = seed;
    for (uint32_t i = 1; i < MT19937_N; i++) {
        uint32_t x = g->state[i - 1];
        g->state[i] = 1812433253u * (x ^ x >> 30) + i;
    }
    g->next = MT19937_N;
}

static inline uint32_t mix(uint32_t upper, uint32_t lower)
{
    uint32_t x = (upper & 0x80000000u) | (lower & 0x7fffffffu);
    return x >> 1 ^ (0x9908b0dfu & -(lower & 1));
}

/* Two runs and the last word: no step reads a word that a nearby one wrote, so they vectorise. */
static void twist(struct mt19937 *g)
{
    uint32_t *s = g->state;
    uint32_t i = 0;
    for (; i < MT19937_N - M; i++)
        s[i] = s[i + M] ^ mix(s[i], s[i + 1]);
    for (; i < MT19937_N - 1; i++)
        s[i] = s[i + M - MT19937_N] ^ mix(s[i], s[i + 1]);
    s[i] = s[M - 1] ^ mix(s[i], s[0]);
    g->next = 0;
}

static inline uint32_t temper(uint32_t x)
{
    x ^= x >> 11;
    x ^= x << 7 & 0x9d2c5680u;
    x ^= x << 15 & 0xefc60000u;
    return x ^ x >> 18;
}

uint32_t mt19937_u32(struct mt19937 *g)
{
    uint32_t x;
    mt19937_fill(g, &x, 1);
    return x;
}

void mt19937_fill(struct mt19937 *g, uint32_t *out, size_t n)
{
    while (n) {
        if (g->next == MT19937_N)
            twist(g);
        size_t now = MT19937_N - g->next < n ? MT19937_N - g->next : n;
        for (size_t i = 0; i < now; i++)
            out[i] = temper(g->state[g->next + i]);
        g->next += (uint32_t)now;
        out += now;
        n -= now;
    }
}
