/* cuda_rig: cards for tests of device/cuda. Those of the fake library, which can be made to fail;
 * or those of this machine, where BERTH_TEST_CUDA is set: tests that need the fake are skipped
 * then. */
#ifndef UNIT_DEVICE_CUDA_RIG_H
#define UNIT_DEVICE_CUDA_RIG_H

#include "device/cuda/cuda.h"
#include "support/devices.h"
#include "support/fake_cuda.h"
#include "support/fake_symbol.h"

#define MIB ((size_t)1 << 20)

struct rig {
    struct dev_env env;
    struct fake_cuda *fake; /* NULL: the real one */
    fake_cuda_lose_fn *lose;
};

/* One plain card; the test changes what it wants before it opens a set. */
static inline void fake_rig(struct rig *r)
{
    fake_cuda_fn *control;
    fake_cuda_reset_fn *reset;
    memset(r, 0, sizeof *r);
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda", &control);
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda_reset", &reset);
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda_lose", &r->lose);
    reset();
    r->fake = control();
    r->env.cuda_library = BERTH_FAKE_CUDA;
}

static inline bool on_hardware(void)
{
    return getenv("BERTH_TEST_CUDA") != NULL;
}

/* The cards the tests of the contract run on. */
static inline void any_rig(struct rig *r)
{
    if (on_hardware())
        memset(r, 0, sizeof *r);
    else
        fake_rig(r);
}

#define FAKE_ONLY()                                                                                \
    if (on_hardware())                                                                             \
    skip()

/* Nothing of ours is left with the driver. */
static inline void assert_clean(const struct rig *r)
{
    const struct fake_cuda *f = r->fake;
    if (!f)
        return;
    assert_int_equal(f->contexts, 0);
    assert_int_equal(f->streams, 0);
    assert_int_equal(f->events, 0);
    assert_int_equal(f->handles, 0);
    assert_int_equal(f->mappings, 0);
    assert_int_equal(f->reservations, 0);
    assert_int_equal(f->plain, 0);
    assert_int_equal(f->hosts, 0);
    assert_int_equal(f->modules, 0);
    for (int i = 0; i < FAKE_CARDS; i++)
        assert_int_equal(f->used[i], 0);
}

static inline void close_clean(const struct rig *r, struct devset *set)
{
    devset_close(set);
    assert_clean(r);
}

static inline uint64_t free_on(struct device *d)
{
    uint64_t total, left;
    berth_err err = { 0 };
    assert_ok(d->phys->driver->info(d->phys, &total, &left, &err), err);
    return left;
}

#endif
