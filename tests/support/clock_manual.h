/* clock_manual: a clock that moves only when told; base first, so that &m->base is the clock. */
#ifndef SUPPORT_CLOCK_MANUAL_H
#define SUPPORT_CLOCK_MANUAL_H

#include "base/clock.h"

struct clock_manual {
    struct clock base;
    uint64_t mono, wall;
};

static inline uint64_t manual_mono(const struct clock *c)
{
    return ((const struct clock_manual *)c)->mono;
}

static inline uint64_t manual_wall(const struct clock *c)
{
    return ((const struct clock_manual *)c)->wall;
}

static inline void clock_manual_init(struct clock_manual *m, uint64_t mono_ns, uint64_t wall_ns)
{
    *m = (struct clock_manual) {
        .base = { .mono_ns = manual_mono, .wall_ns = manual_wall },
        .mono = mono_ns,
        .wall = wall_ns,
    };
}

static inline void clock_manual_advance(struct clock_manual *m, uint64_t ns)
{
    m->mono += ns;
    m->wall += ns;
}

#endif
