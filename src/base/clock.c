#include "base/clock.h"

#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec t = { 0 };
    clock_gettime(id, &t); /* cannot fail for the two clocks below */
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static uint64_t system_mono(const struct clock *c)
{
    (void)c;
    return read_ns(CLOCK_MONOTONIC);
}

static uint64_t system_wall(const struct clock *c)
{
    (void)c;
    return read_ns(CLOCK_REALTIME);
}

const struct clock *clock_system(void)
{
    static const struct clock c = { .mono_ns = system_mono, .wall_ns = system_wall };
    return &c;
}

static uint64_t manual_mono(const struct clock *c)
{
    return ((const struct clock_manual *)c)->mono;
}

static uint64_t manual_wall(const struct clock *c)
{
    return ((const struct clock_manual *)c)->wall;
}

void clock_manual_init(struct clock_manual *m, uint64_t mono_ns, uint64_t wall_ns)
{
    *m = (struct clock_manual) {
        .base = { .mono_ns = manual_mono, .wall_ns = manual_wall },
        .mono = mono_ns,
        .wall = wall_ns,
    };
}

void clock_manual_advance(struct clock_manual *m, uint64_t ns)
{
    m->mono += ns;
    m->wall += ns;
}
