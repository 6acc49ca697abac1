#include "support/null_hooks.h"

#include "device/null/null_impl.h"

static struct null_dev *of(const struct device *d)
{
    if (d->phys->driver != &driver_null)
        BUG("%s is no null device", d->name);
    return null_of(d->phys);
}

void null_fail(struct device *d, enum null_call call, uint64_t k)
{
    struct null_dev *n = of(d);
    atomic_store(&n->fail_at[call], k ? atomic_load(&n->calls[call]) + k : 0);
}

uint64_t null_calls(const struct device *d, enum null_call call)
{
    return atomic_load(&of(d)->calls[call]);
}

void null_seed(struct device *d, uint64_t seed)
{
    of(d)->world->rng = seed;
}

bool null_step(struct device *d)
{
    return sim_step(of(d)->world);
}

void null_run(struct device *d)
{
    sim_run(of(d)->world);
}

size_t null_queued(const struct device *d)
{
    return of(d)->world->queued;
}

uint64_t null_hazards(const struct device *d)
{
    uint64_t n = 0;
    for (int k = 0; k < NULL_HAZARD_COUNT; k++)
        n += of(d)->world->hazards[k];
    return n;
}

uint64_t null_hazards_of(const struct device *d, enum null_hazard kind)
{
    return of(d)->world->hazards[kind];
}

const char *null_last_hazard(const struct device *d)
{
    return of(d)->world->last;
}
