/* video_vae: a VAE of videos over made-up weights, and what every kind of them must keep: the same
 * bits wherever its blocks live, one half without the other, any stored type, and no harm when
 * allocations fail.
 *
 *     static void list_keys(struct keys *k, const void *c) { keys_vae_wan(k, c); }
 *     static const struct vv_kind kind = { .keys = list_keys, .config = &small };
 *     struct vv_rig r;
 *     vv_open(&r, "cpu=64m", vv_file(&kind, "tiny", DT_F32), NULL);
 *     float *video = vv_run(&r, true, latent, &shape);               to be freed
 *     vv_close(&r); */
#ifndef SUPPORT_VIDEO_VAE_H
#define SUPPORT_VIDEO_VAE_H

#include "support/nets.h"
#include "support/oom.h"

#include "model/vae.h"

struct vv_kind {
    void (*keys)(struct keys *k, const void *config);
    const void *config;
    bool large; /* it needs 256 MiB, not 64 */
};
struct vv_rig {
    struct net_rig g;
    struct vae_net v;
    struct net *net;
    struct vae_job j;
};

static inline const char *vv_room(const struct vv_kind *kind)
{
    return kind->large ? "cpu=256m" : "cpu=64m";
}

static inline const char *vv_file(const struct vv_kind *kind, const char *name, enum dtype dtype)
{
    struct keys k = { 0 };
    kind->keys(&k, kind->config);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, "safetensors", NULL);
    keys_release(&k);
    return path;
}

static inline const char *vv_file_changed(const struct vv_kind *kind, const char *name,
                                          keys_change_fn *change, const void *user)
{
    struct keys k = { 0 };
    kind->keys(&k, kind->config);
    assert_false(k.bad);
    const char *path = keys_file_changed(&k, name, change, user);
    keys_release(&k);
    return path;
}

static inline void vv_open(struct vv_rig *r, const char *devices, const char *path,
                           const char *alloc)
{
    berth_err err = { 0 };
    *r = (struct vv_rig) { .net = NULL };
    net_rig_open(&r->g, devices, path, NULL, alloc);
    struct net_args a = net_rig_args(&r->g);
    assert_ok(vae_open(&a, NULL, &r->v, &r->net, &err), err);
    r->j = (struct vae_job) { .net = r->net, .vae = &r->v };
}

static inline void vv_close(struct vv_rig *r)
{
    net_close(r->net);
    net_rig_close(&r->g);
}

static inline size_t vv_values(const struct shape *s)
{
    uint64_t n = 0;
    assert_true(shape_count(s, &n));
    return (size_t)n;
}

static inline uint64_t vv_predicted(struct vv_rig *r, bool decode, const struct shape *s)
{
    uint64_t peak;
    berth_err err = { 0 };
    assert_ok(vae_predict(&r->j, decode, s, &peak, &err), err);
    return peak;
}

/* Decoded, or encoded; to be freed. x: of shape s. */
static inline float *vv_run(struct vv_rig *r, bool decode, const float *x, const struct shape *s)
{
    const struct shape made = decode ? vae_decoded(&r->v, s) : vae_encoded(&r->v, s);
    float *out = calloc(vv_values(&made), sizeof *out);
    berth_err err = { 0 };
    assert_non_null(out);
    vv_predicted(r, decode, s);
    assert_ok((decode ? vae_decode : vae_encode)(&r->j, x, s, out, &err), err);
    return out;
}

/* ---- files ---- */

static inline berth_status vv_detect(const char *path, struct vae_net *v, berth_err *err)
{
    struct weights *w;
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = vae_detect(w, "", v, err);
    weights_close(w);
    return s;
}

static inline void vv_refused(const char *path, const char *said)
{
    struct vae_net v;
    berth_err err = { 0 };
    berth_status s = vv_detect(path, &v, &err);
    if (s == BERTH_OK || !strstr(err.msg, said))
        fail_msg("'%s' is not in '%s'", said, s ? err.msg : "it is fine");
}

struct vv_edit { /* one tensor, left out or of another shape */
    const char *name;
    int axis; /* -1: left out */
    uint64_t to;
    const char *said; /* of a file that has it so */
};

static inline bool vv_edited(const void *user, const struct key *key, char *name, size_t cap,
                             struct shape *s)
{
    const struct vv_edit *e = user;
    (void)name, (void)cap;
    if (strcmp(key->name, e->name) != 0)
        return true;
    if (e->axis >= 0)
        s->dim[e->axis] = e->to;
    return e->axis >= 0;
}

/* user: how names of what is left out begin. */
static inline bool vv_without(const void *user, const struct key *key, char *name, size_t cap,
                              struct shape *s)
{
    (void)name, (void)cap, (void)s;
    return strncmp(key->name, user, strlen(user)) != 0;
}

/* z and x: a latent of one frame, and its picture. without: vv_without(), or one that changes names
 * besides. */
static inline void vv_each_half_alone(const struct vv_kind *kind, keys_change_fn *without,
                                      const struct shape z, const struct shape x)
{
    static const char *const half[] = { "decoder.", "encoder." };
    float *in = noise_floats(1, vv_values(&x)), *out = calloc(vv_values(&x), sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < ARRAY_LEN(half); i++) {
        struct vv_rig r;
        berth_err err = { 0 };
        vv_open(&r, vv_room(kind), vv_file_changed(kind, "half", without, half[i]), NULL);
        assert_int_equal(vae_encode(&r.j, in, &x, out, &err), i ? BERTH_EUNSUPPORTED : BERTH_OK);
        assert_int_equal(vae_decode(&r.j, in, &z, out, &err), i ? BERTH_OK : BERTH_EUNSUPPORTED);
        vv_close(&r);
    }
    free(in), free(out);
}

/* ---- video ---- */

/* Frames know those before them and none behind: the first is what it is alone. */
static inline void vv_looks_back(struct vv_rig *r, bool decode, const struct shape several)
{
    struct shape one = several;
    one.dim[2] = 1;
    const struct shape made = decode ? vae_decoded(&r->v, &several) : vae_encoded(&r->v, &several);
    const size_t plane = (size_t)shape_inner(&several, 3), out = (size_t)shape_inner(&made, 3);
    float *x = noise_floats(4, vv_values(&several)), *x1 = calloc(vv_values(&one), sizeof *x1);
    assert_non_null(x1);
    for (size_t c = 0; c < several.dim[1]; c++)
        memcpy(x1 + c * plane, x + c * several.dim[2] * plane, plane * sizeof *x);
    float *all = vv_run(r, decode, x, &several), *alone = vv_run(r, decode, x1, &one);
    for (size_t c = 0; c < made.dim[1]; c++)
        assert_memory_equal(all + c * made.dim[2] * out, alone + c * out, out * sizeof *all);
    free(x), free(x1), free(all), free(alone);
}

/* z decoded, and x encoded. */
static inline void vv_same_wherever(const struct vv_kind *kind, const struct shape z,
                                    const struct shape x)
{
    static const struct {
        const char *devices[2], *alloc; /* small, large */
    } row[] = { { { "cpu=64m", "cpu=256m" }, NULL },
                { { "cuda:0@cpu=32m,cpu=64m,null:0=32m", "cuda:0@cpu=128m,cpu=128m,null:0=128m" },
                  "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" },
                { { "cpu=32m,null:0=64m", "cpu=64m,null:0=128m" }, "null:0,*#cpu" } };
    const char *path = vv_file(kind, "placed", DT_F32);
    float *in = noise_floats(6, vv_values(&x)), *want[2] = { NULL, NULL };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct vv_rig r;
        vv_open(&r, row[i].devices[kind->large], path, row[i].alloc);
        const struct shape made[2] = { vae_encoded(&r.v, &x), vae_decoded(&r.v, &z) };
        for (int decode = 0; decode < 2; decode++) {
            float *got = vv_run(&r, decode, in, decode ? &z : &x);
            if (want[decode])
                assert_memory_equal(got, want[decode], vv_values(&made[decode]) * sizeof *got);
            else
                want[decode] = got;
            if (got != want[decode])
                free(got);
        }
        vv_close(&r);
    }
    free(in), free(want[0]), free(want[1]);
}

/* float8: what its three bits of fraction may be off. */
static inline void vv_every_stored_type_computes(const struct vv_kind *kind, const struct shape z,
                                                 double float8)
{
    const struct {
        enum dtype dtype;
        double limit;
    } list[] = { { DT_F16, 5e-3 }, { DT_BF16, 4e-2 }, { DT_F8_E4M3, float8 } };
    float *in = noise_floats(7, vv_values(&z));
    struct vv_rig r;
    vv_open(&r, vv_room(kind), vv_file(kind, "exact", DT_F32), NULL);
    const struct shape made = vae_decoded(&r.v, &z);
    float *exact = vv_run(&r, true, in, &z);
    vv_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *name = dtype_name(list[i].dtype);
        vv_open(&r, vv_room(kind), vv_file(kind, name, list[i].dtype), NULL);
        float *got = vv_run(&r, true, in, &z);
        assert_near(name, got, exact, vv_values(&made), list[i].limit);
        free(got);
        vv_close(&r);
    }
    free(in), free(exact);
}

/* One is opened and decodes z, while each allocation fails in turn. */
static inline void vv_no_memory_is_survived(const struct vv_kind *kind, const struct shape z)
{
    const char *path = vv_file(kind, "oom", DT_F32);
    struct net_rig g;
    struct vae_net known;
    berth_err none = { 0 };
    berth_status s = BERTH_ENOMEM;
    assert_ok(vv_detect(path, &known, &none), none);
    const struct shape made = vae_decoded(&known, &z);
    float *in = noise_floats(8, vv_values(&z)), *out = calloc(vv_values(&made), sizeof *out);
    assert_non_null(out);
    net_rig_open(&g, vv_room(kind), path, NULL, NULL);
    for (long k = 0; s != BERTH_OK; k++) {
        struct net_args a = net_rig_args(&g);
        struct vae_net v;
        struct net *net = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = vae_open(&a, NULL, &v, &net, &err);
        struct vae_job j = { .net = net, .vae = &v };
        if (!s)
            s = vae_decode(&j, in, &z, out, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        net_close(net);
    }
    net_rig_close(&g);
    free(in), free(out);
}

#endif
