/* null_bench: two null devices with streams, buffers and an ear for hazards, for tests of null. */
#ifndef UNIT_DEVICE_NULL_BENCH_H
#define UNIT_DEVICE_NULL_BENCH_H

#include "support/devices.h"
#include "support/oom.h"

#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

/* Two null devices, two streams and an event on the first, one buffer on each. Engine lazy, so that
 * nothing runs unless somebody waits. */
struct bench {
    struct devset *set;
    struct device *d, *d2;
    struct dev_stream *a, *b;
    struct dev_event *e;
    struct dev_owner *o, *o2;
    struct dev_mem m, n, far; /* n on d, far on d2 */
    char host[4096], back[4096];
    enum null_hazard kind; /* of the latest report */
    char text[512];
};

static inline void note(void *user, enum null_hazard kind, const char *text)
{
    struct bench *t = user;
    t->kind = kind;
    snprintf(t->text, sizeof t->text, "%s", text);
}

static inline struct bench *start(bool strict)
{
    struct bench *t = calloc(1, sizeof *t);
    assert_non_null(t);
    struct null_config cfg = {
        .seed = 7, .lazy = true, .strict = strict, .on_hazard = note, .user = t
    };
    struct dev_env env = { .null = &cfg };
    t->set = open_devices("null:0=64m,null:1=64m", &env);
    t->d = devset_at(t->set, 0);
    t->d2 = devset_at(t->set, 1);
    t->a = stream_of(t->d);
    t->b = stream_of(t->d);
    t->e = event_of(t->d);
    t->o = owner_of(t->d, "m", DEV_WEIGHTS);
    t->o2 = owner_of(t->d2, "m", DEV_WEIGHTS);
    t->m = alloc_on(t->d, t->o, 4096);
    t->n = alloc_on(t->d, t->o, 4096);
    t->far = alloc_on(t->d2, t->o2, 4096);
    for (size_t i = 0; i < sizeof t->host; i++)
        t->host[i] = (char)(i * 7);
    return t;
}

/* The same with something in every buffer, from operations 1 to 3 of streams that are gone. */
static inline struct bench *start_filled(bool strict)
{
    struct bench *t = start(strict);
    const struct dev_mem *m[] = { &t->m, &t->n, &t->far };
    for (size_t i = 0; i < ARRAY_LEN(m); i++) {
        struct dev_stream *s = stream_of(m[i]->dev);
        berth_err err = { 0 };
        assert_ok(dev_copy_h2d(s, m[i]->addr, t->host, 4096, &err), err);
        dev_stream_free(s);
    }
    return t;
}

static inline void stop(struct bench *t, uint64_t hazards)
{
    if (null_hazards(t->d) != hazards)
        fail_msg("%d hazards, last: %s", (int)null_hazards(t->d), null_last_hazard(t->d));
    null_run(t->d);
    dev_stream_free(t->a); /* the host then knows that all is done */
    dev_stream_free(t->b);
    dev_event_free(t->e);
    dev_free(&t->m);
    dev_free(&t->n);
    dev_free(&t->far);
    dev_owner_close(t->o);
    dev_owner_close(t->o2);
    assert_true(null_hazards(t->d) == hazards);
    devset_close(t->set);
    free(t);
}

#define ok(call)                                                                                   \
    do {                                                                                           \
        berth_err err_ = { 0 };                                                                    \
        berth_err *err = &err_;                                                                    \
        assert_ok(call, err_);                                                                     \
    } while (0)

static inline void *at(uint64_t addr) /* of the cpu device */
{
    return (void *)(uintptr_t)addr;
}

static inline void expect(struct bench *t, uint64_t count, enum null_hazard kind, const char *a,
                          const char *b)
{
    assert_true(null_hazards(t->d) == count);
    assert_int_equal(t->kind, kind);
    assert_true(null_hazards_of(t->d, kind) >= 1);
    assert_string_equal(t->text, null_last_hazard(t->d));
    if (!strstr(t->text, a) || !strstr(t->text, b))
        fail_msg("'%s' names not both '%s' and '%s'", t->text, a, b);
}

static inline void add_one(void *user, void *const *ptr)
{
    unsigned char *dst = ptr[0], *src = ptr[1];
    for (size_t i = 0; i < *(size_t *)user; i++)
        dst[i] = (unsigned char)(src[i] + 1);
}

#endif
