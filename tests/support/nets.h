/* nets: files of synthetic weights made from key lists, and models over devices to run networks on.
 *
 *     struct keys k = { 0 };  preset_keys(...) or keys_read(...)
 *     const char *path = keys_file(&k, "tiny", DT_F16, "safetensors");
 *     struct net_rig g;
 *     net_rig_open(&g, "cpu=512m", path, "model.diffusion_model.", NULL);
 *     ... diffusion_open(&(struct diffusion_args) { .res = g.f.r, .m = g.m, .part = g.part }, ...)
 *     net_rig_close(&g);                                           nothing leaked */
#ifndef SUPPORT_NETS_H
#define SUPPORT_NETS_H

#include "model/arch.h"
#include "model/synth.h"
#include "net/net.h"
#include "support/models.h"
#include "support/norm.h"

#include <math.h>

/* Writes <name>.<ext of the format>; hiprec as in struct preset. Its path is good as tmp_path()
 * is. */
static inline const char *keys_file(const struct keys *k, const char *name, enum dtype dtype,
                                    const char *format, const char *const *hiprec)
{
    const struct weights_writer *writer = weights_writer_find(format);
    struct synth synth;
    char file[128], ext[16];
    berth_err err = { 0 };
    assert_non_null(writer);
    assert_ok(synth_init(&synth, k, dtype, writer, hiprec, NULL, &err), err);
    snprintf(ext, sizeof ext, "%.*s", (int)strcspn(writer->ext, " "), writer->ext);
    snprintf(file, sizeof file, "%s.%s", name, ext[0] == '.' ? ext + 1 : ext);
    const char *path = tmp_path(file);
    struct weights_write_args args = { .format = format,
                                       .path = path,
                                       .spec = synth.spec,
                                       .count = k->n,
                                       .fill = synth_weights_fill,
                                       .user = &synth };
    assert_ok(weights_write(&args, &err), err);
    synth_release(&synth);
    return path;
}

/* A change of one tensor on its way into a file: name and shape (the elements stay). False: it is
 * left out. */
typedef bool keys_change_fn(const void *user, const struct key *key, char *name, size_t cap,
                            struct shape *shape);
struct keys_changed {
    const struct key **from;
    struct weights_spec *spec;
};

static inline berth_status keys_changed_fill(void *user, size_t i, uint64_t off, void *dst,
                                             size_t n, berth_err *err)
{
    const struct keys_changed *c = user;
    const struct key *k = c->from[i];
    (void)err;
    synth_fill(k->name, k->name_len, &k->shape, off / sizeof(float), n / sizeof(float), dst);
    return BERTH_OK;
}

/* <name>.safetensors, F32: the values of the key list under other names. */
static inline const char *keys_file_changed(const struct keys *k, const char *name,
                                            keys_change_fn *change, const void *user)
{
    struct keys_changed c = { calloc(k->n, sizeof *c.from), calloc(k->n, sizeof *c.spec) };
    char(*names)[192] = calloc(k->n, sizeof *names), file[128];
    size_t n = 0;
    berth_err err = { 0 };
    assert_true(c.from && c.spec && names);
    for (size_t i = 0; i < k->n; i++) {
        struct shape s = k->at[i].shape;
        snprintf(names[n], sizeof names[n], "%s", k->at[i].name);
        if (!change(user, &k->at[i], names[n], sizeof names[n], &s))
            continue;
        c.from[n] = &k->at[i];
        c.spec[n] = (struct weights_spec) { .name = names[n], .dtype = DT_F32, .shape = s };
        n++;
    }
    snprintf(file, sizeof file, "%s.safetensors", name);
    const char *path = tmp_path(file);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = c.spec,
                                       .count = n,
                                       .fill = keys_changed_fill,
                                       .user = &c };
    assert_ok(weights_write(&args, &err), err);
    free(c.from), free(c.spec), free(names);
    return path;
}

/* Element i of a tensor, where the test makes up its own network. */
typedef float keys_value_fn(const struct key *key, uint64_t i);
struct keys_made {
    const struct keys *k;
    keys_value_fn *value;
};

static inline berth_status keys_made_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                          berth_err *err)
{
    const struct keys_made *m = user;
    float *v = dst;
    (void)err;
    for (size_t q = 0; q < n / sizeof *v; q++)
        v[q] = m->value(&m->k->at[i], off / sizeof *v + q);
    return BERTH_OK;
}

/* <name>.safetensors, F32. */
static inline const char *keys_file_made(const struct keys *k, const char *name,
                                         keys_value_fn *value)
{
    struct weights_spec *spec = calloc(k->n, sizeof *spec);
    struct keys_made m = { k, value };
    char file[128];
    berth_err err = { 0 };
    assert_non_null(spec);
    for (size_t i = 0; i < k->n; i++)
        spec[i] = (struct weights_spec) { k->at[i].name, DT_F32, k->at[i].shape };
    snprintf(file, sizeof file, "%s.safetensors", name);
    const char *path = tmp_path(file);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = k->n,
                                       .fill = keys_made_fill,
                                       .user = &m };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
    return path;
}

/* Convolutions that only look at their own place: channel o of the result is channel o % in. */
static inline float keys_tap(const struct key *key, uint64_t i)
{
    const uint64_t *d = key->shape.dim, side = d[2] * d[3];
    return i % side == side / 2 && i / side % d[1] == i / side / d[1] % d[1];
}

/* (x - mean) / sqrt(var + eps) over n values, in double. */
static inline void plain_norm(const float *x, size_t n, double eps, double *out)
{
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        out[i] = (x[i] - mean) / sqrt(var + eps);
}

struct net_rig {
    struct fixture f;
    struct res_model *m;
    struct tpool
        *pool; /* none: networks are so small here that handing out work takes longer. Who sets it
                           after opening has it freed with the rig */
    const char *part;
};

/* alloc: a plan's allocation string; NULL: automatic. The model is loaded. */
static inline void net_rig_open(struct net_rig *g, const char *devices, const char *path,
                                const char *part, const char *alloc)
{
    berth_err err = { 0 };
    *g = (struct net_rig) { .part = part };
    fixture_open(&g->f, devices, NULL);
    struct res_open_args args = {
        .path = path, .part = part, .arch = arch_blocks, .plan.alloc = alloc
    };
    assert_ok(res_open(g->f.r, &args, &g->m, NULL, &err), err);
    assert_ok(res_load(g->m, NULL, NULL, &err), err);
}

static inline struct net_args net_rig_args(const struct net_rig *g)
{
    return (struct net_args) { .res = g->f.r, .m = g->m, .pool = g->pool };
}

static inline void net_rig_close(struct net_rig *g)
{
    res_unref(g->m);
    tpool_free(g->pool);
    fixture_close(&g->f);
}

/* Largest difference, relative to the largest value of what is wanted. */
static inline double rel_error(const float *got, const float *want, size_t n)
{
    double worst = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)got[i] - (double)want[i]), a = fabs((double)want[i]);
        if (!(d <= worst)) /* NaN too */
            worst = d;
        if (a > most)
            most = a;
    }
    return most > 0 ? worst / most : worst;
}

/* Limits of 1e-2 and more are those of networks that round every activation to 16 bits: they hold
 * the norm, because of many values one is always off by several roundings. */
static inline bool is_near(const char *what, const float *got, const float *want, size_t n,
                           double limit)
{
    double e = limit >= 1e-2 ? norm_error(got, want, n) : rel_error(got, want, n);
    print_message("%-40s %8zu values, relative error %.2e, at most %.0e%s\n", what, n, e, limit,
                  e <= limit ? "" : ": WRONG");
    return e <= limit;
}

static inline void assert_near(const char *what, const float *got, const float *want, size_t n,
                               double limit)
{
    if (!is_near(what, got, want, n, limit))
        fail_msg("%s: relative error above %.1e", what, limit);
}

/* n values in -1..1 that follow from the seed. */
static inline float *noise_floats(uint64_t seed, size_t n)
{
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        uint64_t z = seed * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xd1b54a32d192ed03);
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        v[i] = (float)((double)(z >> 40) / (1 << 23) - 1.0);
    }
    return v;
}

#endif
