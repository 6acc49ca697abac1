/* res_rig: a registry on test devices with an imaginary executor: node outputs are handles in a
 * cache that a reset drops. For unit tests of frees; random sequences have support/res_world.h. */
#ifndef SUPPORT_RES_RIG_H
#define SUPPORT_RES_RIG_H

#include "format/weights.h"
#include "journal/journal.h"
#include "residency/residency.h"
#include "support/devices.h"
#include "support/tmp.h"

#define MIB ((uint64_t)1 << 20)
#define RIG_CACHE 8

struct rig {
    struct devset *set;
    struct residency *r;
    struct res_model *cached[RIG_CACHE]; /* handles of node outputs */
    size_t cached_n;
    unsigned resets, errors; /* executor resets; ERROR lines in the log */
    char last_error[512];
    struct log log;
    void (*at_reset)(struct rig *g); /* may be NULL; after the cache was dropped */
};

static inline void rig_hear(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                            const char *text)
{
    struct rig *g = user;
    (void)wall_ns;
    if (level != LOG_ERROR)
        return;
    g->errors++;
    snprintf(g->last_error, sizeof g->last_error, "%s %s", event, text);
}

static inline void rig_reset(void *user) /* what an executor does: forget every output */
{
    struct rig *g = user;
    g->resets++;
    while (g->cached_n)
        res_unref(g->cached[--g->cached_n]);
    if (g->at_reset)
        g->at_reset(g);
}

/* env may be NULL. cfg (may be NULL): its devices, log and reset are filled in here; pressure is
 * off unless it has a percentage, a negative one being the registry's default. */
static inline struct rig *rig_open(const char *devices, const struct dev_env *env,
                                   const struct res_config *cfg)
{
    struct rig *g = calloc(1, sizeof *g);
    struct res_config own = cfg ? *cfg : (struct res_config) { 0 };
    berth_err err = { 0 };
    assert_non_null(g);
    g->set = open_devices(devices, env);
    g->log = (struct log) { .level = LOG_DEBUG, .write = rig_hear, .user = g };
    own.devices = g->set;
    own.log = &g->log;
    own.reset = rig_reset;
    own.reset_user = g;
    if (!(own.pressure_percent > 0)) /* how full the machine is does not matter to most tests */
        own.pressure_percent = own.pressure_percent < 0 ? 0 : 101;
    assert_ok(residency_new(&own, &g->r, &err), err);
    return g;
}

static inline void rig_close(struct rig *g)
{
    while (g->cached_n)
        res_unref(g->cached[--g->cached_n]);
    residency_free(g->r);
    for (size_t i = 0; i < devset_count(g->set); i++) {
        assert_int_equal(dev_ledger(devset_at(g->set, i), NULL, 0, NULL),
                         stats_of(devset_at(g->set, i)).idle ? 1 : 0); /* nobody has bytes */
        assert_sound(devset_at(g->set, i));
    }
    devset_close(g->set);
    free(g);
}

static inline berth_status rig_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                    berth_err *err)
{
    uint32_t *p = dst, seed = *(const uint32_t *)user + (uint32_t)i * 2654435761u;
    (void)err;
    for (size_t k = 0; k < n / 4; k++)
        p[k] = seed ^ (uint32_t)(off / 4 + k);
    return BERTH_OK;
}

/* A weight file of `blocks` equal layers, `bytes` (a multiple of 4 * blocks) in all. Its path stays
 * good; the same name gives the same file. */
static inline const char *rig_file(const char *name, size_t blocks, uint64_t bytes)
{
    static char path[16][256];
    static size_t paths;
    struct weights_spec spec[64];
    char names[64][40];
    berth_err err = { 0 };
    for (size_t i = 0; i < paths; i++)
        if (strcmp(strrchr(path[i], '/') + 1, name) == 0)
            return path[i];
    assert_true(blocks <= 64 && paths < 16);
    snprintf(path[paths], sizeof path[0], "%s", tmp_path(name));
    for (size_t i = 0; i < blocks; i++) {
        snprintf(names[i], sizeof names[i], "blocks.%zu.weight", i);
        spec[i] = (struct weights_spec) { names[i],
                                          DT_F32,
                                          { .ndim = 1, .dim = { bytes / blocks / 4 } } };
    }
    uint32_t seed = (uint32_t)paths * 7919 + 1;
    struct weights_write_args a = { .format = "safetensors",
                                    .path = path[paths],
                                    .spec = spec,
                                    .count = blocks,
                                    .fill = rig_fill,
                                    .user = &seed };
    assert_ok(weights_write(&a, &err), err);
    return path[paths++];
}

struct rig_model {
    const char *file;    /* of rig_file() */
    const char *alloc;   /* allocation string; NULL: all on `compute` */
    const char *compute; /* NULL: the default */
    enum res_retention retention;
};

#define RIG_TINY_SIZE MIB
#define RIG_TINY_BLOCKS 4
/* A model of that size, all on one device. */
static inline struct rig_model rig_tiny(const char *name, const char *device,
                                        enum res_retention retention)
{
    char file[32];
    snprintf(file, sizeof file, "%s.safetensors", name);
    return (struct rig_model) { rig_file(file, RIG_TINY_BLOCKS, RIG_TINY_SIZE), NULL, device,
                                retention };
}

/* A loader node: opens, loads, leaves the handle in the cache. result, attached may be NULL. */
static inline struct res_model *rig_load(struct rig *g, struct rig_model x,
                                         struct res_load_result *result, bool *attached)
{
    char alloc[64];
    struct res_model *m;
    berth_err err = { 0 };
    if (!x.alloc && x.compute) {
        snprintf(alloc, sizeof alloc, "%s,*", x.compute);
        x.alloc = alloc;
    }
    struct res_open_args a = { .path = x.file,
                               .plan = { .alloc = x.alloc, .compute = x.compute },
                               .retention = x.retention };
    assert_ok(res_open(g->r, &a, &m, attached, &err), err);
    assert_ok(res_load(m, NULL, result, &err), err);
    assert_true(g->cached_n < RIG_CACHE);
    g->cached[g->cached_n++] = m;
    return m;
}

static inline struct res_receipt rig_free(struct rig *g, struct res_free_args a)
{
    struct res_receipt x;
    berth_err err = { 0 };
    assert_ok(res_free(g->r, &a, &x, &err), err);
    assert_ok(res_check(g->r, &err), err);
    return x;
}

static inline uint64_t checksum_of(struct res_model *m)
{
    uint64_t sum;
    berth_err err = { 0 };
    assert_ok(res_checksum(m, &sum, &err), err);
    return sum;
}

/* The receipt's line about a model, by name; fails the test when there is none. */
static inline const struct res_receipt_model *line_of(const struct res_receipt *x, const char *name)
{
    for (size_t i = 0; i < x->models; i++)
        if (strcmp(x->model[i].name, name) == 0)
            return &x->model[i];
    fail_msg("no line about '%s'", name);
    return NULL;
}

static inline void assert_verdict(const struct res_receipt *x, const char *name,
                                  enum res_verdict want, const char *why)
{
    const struct res_receipt_model *line = line_of(x, name);
    if (line->verdict != want || !strstr(line->why, why))
        fail_msg("'%s' is %s: %s; wanted %s: %s", name, res_verdict_name(line->verdict), line->why,
                 res_verdict_name(want), why);
}

/* Bytes that a device's ledger has for a model, under any kind; owner: NULL for everybody. */
static inline uint64_t ledger_bytes(const struct device *d, const char *owner)
{
    struct dev_ledger_row row[64];
    uint64_t n = 0;
    size_t rows = dev_ledger(d, row, ARRAY_LEN(row), NULL);
    assert_true(rows <= ARRAY_LEN(row));
    for (size_t i = 0; i < rows; i++)
        if (row[i].kind != DEV_POOL_IDLE &&
            (!owner || strncmp(row[i].owner, owner, strlen(owner)) == 0))
            n += row[i].requested;
    return n;
}

#endif
