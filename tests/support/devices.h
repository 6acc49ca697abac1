/* devices: a set of devices for a test, from its text. */
#ifndef SUPPORT_DEVICES_H
#define SUPPORT_DEVICES_H

#include "device/devset.h"
#include "support/null_hooks.h"
#include "support/test.h"

static inline berth_status try_devices(const char *text, const struct dev_env *env,
                                       struct devset **out, berth_err *err)
{
    struct spec spec;
    *out = NULL;
    if (spec_parse(text, strlen(text), false, &spec, err))
        return err->code;
    return devset_open(&spec, env, out, err);
}

/* env NULL: an empty one. Fails the test when the text does not open. */
static inline struct devset *open_devices(const char *text, const struct dev_env *env)
{
    static const struct dev_env none = { .cuda_library = "none: the same test everywhere" };
    struct devset *set;
    berth_err err = { 0 };
    assert_ok(try_devices(text, env ? env : &none, &set, &err), err);
    return set;
}

static inline struct device *device_named(const struct devset *set, const char *name)
{
    size_t i;
    berth_err err = { 0 };
    assert_ok(devset_find(set, name, strlen(name), &i, &err), err);
    return devset_at(set, i);
}

static inline struct dev_owner *owner_of(struct device *d, const char *name, enum dev_kind kind)
{
    struct dev_owner *o;
    berth_err err = { 0 };
    assert_ok(dev_owner_open(d, name, kind, &o, &err), err);
    return o;
}

static inline struct dev_stream *stream_of(struct device *d)
{
    struct dev_stream *s;
    berth_err err = { 0 };
    assert_ok(dev_stream_new(d, &s, &err), err);
    return s;
}

static inline struct dev_event *event_of(struct device *d)
{
    struct dev_event *e;
    berth_err err = { 0 };
    assert_ok(dev_event_new(d, &e, &err), err);
    return e;
}

static inline struct dev_mem alloc_on(struct device *d, struct dev_owner *o, size_t n)
{
    struct dev_mem m;
    berth_err err = { 0 };
    assert_ok(dev_alloc(d, o, n, &m, &err), err);
    return m;
}

static inline struct dev_stats stats_of(const struct device *d)
{
    struct dev_info info;
    berth_err err = { 0 };
    assert_ok(dev_info(d, &info, &err), err);
    return info.stats;
}

static inline void assert_sound(const struct device *d)
{
    berth_err err = { 0 };
    assert_ok(dev_check(d, &err), err);
}

#endif
