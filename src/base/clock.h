/* clock: time that is handed in, so that a test can hand in another. */
#pragma once

#include <stdint.h>

struct clock {
    uint64_t (*mono_ns)(const struct clock *c); /* never goes back, arbitrary origin */
    uint64_t (*wall_ns)(const struct clock *c); /* since 1970-01-01 UTC */
};

const struct clock *clock_system(void);

static inline uint64_t clock_mono_ns(const struct clock *c)
{
    return c->mono_ns(c);
}

static inline uint64_t clock_wall_ns(const struct clock *c)
{
    return c->wall_ns(c);
}
