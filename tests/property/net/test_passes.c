/* Many passes of one network while the world around it changes: memory is taken and given back,
 * other models come, stay and go, a donor's device fails a call, the net is closed and the model
 * loaded again. Every pass that ends gives the same bits; one that does not says that memory ran
 * out, and only when it did; nothing is lost, nothing leaks, no hazard. */
#include "unit/net/toy_net.h"

#include "support/rng.h"
#include "support/seed.h"

#include <signal.h>

#define CASES 24
#define STEPS 40
#define HOGS 4
#define OTHERS 3
#define BALLAST 12 /* blocks of 64 KiB that no layer reads */

static const char devices[] = "cuda:0@cpu=2m,cuda:1@cpu=1m,cpu=4m,null:0=8m";
static const char *const plans[] = {
    "cuda:0,*#cuda:0",
    "cuda:0,30%;cuda:1,30%;cpu,40%#cuda:0",
    "cuda:0,50%;null:0,50%#cuda:0",
    "null:0,*#cpu",
    "cpu,*",
    "cuda:1,20%;null:0,80%#cuda:1",
};

struct world {
    struct toy t;
    struct rng r;
    const char *path, *other_path;
    float want[TOY_OUT];
    struct dev_owner *owner[4];
    struct dev_mem hog[HOGS];
    struct res_model *other[OTHERS];
    uint64_t sum;
    unsigned good, short_of;
};

static const char *file(void)
{
    static struct toy_tensor all[ARRAY_LEN(toy_tensors) + BALLAST];
    static char name[BALLAST][32];
    memcpy(all, toy_tensors, sizeof toy_tensors);
    for (size_t i = 0; i < BALLAST; i++) {
        snprintf(name[i], sizeof name[i], "z.%zu.weight", i);
        all[ARRAY_LEN(toy_tensors) + i] = (struct toy_tensor) { name[i], { 2, { 128, 128 } } };
    }
    return toy_write((struct toy_file) {
        .name = "passes", .weight = DT_F32, .param = DT_F16, .tensor = all, .n = ARRAY_LEN(all) });
}

/* ---- what happens between passes ---- */

/* Takes a part of what is left of a device of host memory, mostly nearly all; or gives it back. */
static void hog(struct world *w)
{
    struct dev_mem *m = &w->hog[rng_below(&w->r, HOGS)];
    size_t d = rng_below(&w->r, 3);
    struct device *dev = devset_at(w->t.f.set, d);
    struct dev_stats s = stats_of(dev);
    uint64_t left = dev->budget - s.in_use - s.pinned, leave = rng_below(&w->r, 192 << 10);
    size_t n = left > leave && rng_below(&w->r, 3) ? (size_t)(left - leave)
                                                   : 1 + rng_below(&w->r, 1 << 18);
    berth_err err = { 0 };
    if (m->dev)
        dev_free(m);
    else if (dev_alloc(dev, w->owner[d], n, m, &err))
        *m = (struct dev_mem) { 0 };
}

static void other(struct world *w)
{
    static const enum res_retention kinds[] = { RES_AUTO, RES_KEEP, RES_EJECT };
    struct res_model **m = &w->other[rng_below(&w->r, OTHERS)];
    berth_err err = { 0 };
    if (*m) {
        res_set_retention(*m, RES_EJECT);
        res_unref(*m);
        *m = NULL;
        return;
    }
    struct res_open_args a = { .path = w->other_path,
                               .options = (const char *[]) { "a", "b", "c" }[m - w->other],
                               .plan = { .alloc = plans[rng_below(&w->r, ARRAY_LEN(plans))] },
                               .retention = kinds[rng_below(&w->r, ARRAY_LEN(kinds))] };
    if (res_open(w->t.f.r, &a, m, NULL, &err))
        *m = NULL;
    else
        (void)res_load(*m, NULL, NULL, &err); /* may find no room */
}

static void again(struct world *w)
{
    berth_err err = { 0 };
    net_close(w->t.net);
    w->t.net = NULL;
    (void)res_load(w->t.m, NULL, NULL, &err); /* what stepped aside comes home, if it can */
    berth_status s = net_open(&w->t.args, &w->t.net, &err);
    while (s == BERTH_ENODEVMEM) { /* not even a ring of one block: make some room */
        size_t i = 0;
        while (i < HOGS && !w->hog[i].dev)
            i++;
        if (i < HOGS)
            dev_free(&w->hog[i]);
        else
            other(w);
        s = net_open(&w->t.args, &w->t.net, &err);
    }
    assert_ok(s, err);
}

/* ---- a pass ---- */

static void pass(struct world *w)
{
    float out[TOY_OUT];
    berth_err err = { 0 };
    berth_status s = toy_try(&w->t, out, &err);
    if (s != BERTH_OK && s != BERTH_ENODEVMEM)
        fail_msg("%s: %s", berth_status_name(s), err.msg);
    if (s)
        w->short_of++;
    else if (w->good++ == 0)
        memcpy(w->want, out, sizeof out);
    if (!s && memcmp(w->want, out, sizeof out) != 0)
        fail_msg("pass %u: not the same bits", w->good);
    struct net_report rep = net_report(w->t.net);
    if (!s)
        assert_int_equal(rep.predicted, rep.peak);
    uint64_t left = res_compute(w->t.m)->budget, bytes[DEV_KIND_COUNT];
    dev_by_kind(res_compute(w->t.m), bytes);
    left -= bytes[DEV_WEIGHTS] + bytes[DEV_STAGING] + bytes[DEV_ACTIVATIONS] + bytes[DEV_PINNED];
    if (s && left >= rep.predicted + (64 << 10))
        fail_msg("no room for %llu, but %llu are left: %s", (unsigned long long)rep.predicted,
                 (unsigned long long)left, err.msg);
}

static void step(struct world *w)
{
    static const enum null_call calls[] = { NULL_COPY, NULL_EVENT_RECORD, NULL_STREAM_WAIT,
                                            NULL_STREAM_NEW, NULL_ALLOC };
    struct device *d = device_named(w->t.f.set, "null:0");
    switch (rng_below(&w->r, 8)) {
    case 0:
    case 1:
    case 2:
        hog(w);
        break;
    case 3:
        other(w);
        break;
    case 4:
        again(w);
        break;
    case 5: /* fails in the pass, or never */
        null_fail(d, calls[rng_below(&w->r, ARRAY_LEN(calls))], 1 + rng_below(&w->r, 12));
        break;
    default:
        break;
    }
    pass(w);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        null_fail(d, calls[i], 0);
    fixture_check(&w->t.f);
}

static void one_case(uint64_t seed, const char *path, const char *other_path, float *want)
{
    struct world w = { .r = { seed }, .path = path, .other_path = other_path };
    struct res_config cfg = { .reserve = 4096 };
    uint64_t sum;
    berth_err err = { 0 };
    fixture_open(&w.t.f, devices, &cfg);
    toy_load(&w.t, path, plans[rng_below(&w.r, ARRAY_LEN(plans))]);
    toy_net(&w.t);
    for (size_t i = 0; i < ARRAY_LEN(w.owner); i++)
        w.owner[i] = owner_of(devset_at(w.t.f.set, i), "hog", DEV_ACTIVATIONS);
    assert_ok(res_checksum(w.t.m, &w.sum, &err), err);
    pass(&w); /* an empty world has room */
    assert_int_equal(w.good, 1);
    for (size_t i = 0; i < STEPS; i++)
        step(&w);
    assert_ok(res_checksum(w.t.m, &sum, &err), err);
    assert_int_equal(sum, w.sum);
    if (want[0] == 0)
        memcpy(want, w.want, sizeof w.want);
    assert_memory_equal(want, w.want, sizeof w.want); /* whatever the plan was */
    for (size_t i = 0; i < HOGS; i++)
        dev_free(&w.hog[i]);
    for (size_t i = 0; i < OTHERS; i++) {
        if (w.other[i])
            res_set_retention(w.other[i], RES_EJECT);
        res_unref(w.other[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(w.owner); i++)
        dev_owner_close(w.owner[i]);
    toy_close(&w.t);
}

static void the_same_bits_whatever_happens(void **state)
{
    static float want[TOY_OUT];
    uint64_t seed = rng_seed();
    char path[512], other_path[512];
    (void)state;
    signal(SIGABRT, say_seed_and_die);
    snprintf(path, sizeof path, "%s", file());
    snprintf(other_path, sizeof other_path, "%s", model_file("other", 10, 48 << 10));
    for (size_t k = 0; k < CASES; k++) {
        running = seed + k;
        one_case(running, path, other_path, want);
    }
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_same_bits_whatever_happens, say_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
