/* The VAE of Mochi's kind: what files it is read from, halves, pieces of a video, placements,
 * memory. Its numbers are in tests/golden/model/test_mochi.c. */
#include "support/nets.h"
#include "support/oom.h"
#include "support/sparse.h"

#include "model/vae_mochi/presets.h"
#include "model/vae_mochi/vae_mochi.h"

static const struct vae_mochi_config small = {
    .encoder = 32, .decoder = 32, .latents = 8, .blocks = 1
};

static const char *file_of(const struct vae_mochi_config *c, const char *name, enum dtype dtype)
{
    struct keys k = { 0 };
    keys_vae_mochi(&k, c);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, "safetensors", NULL);
    keys_release(&k);
    return path;
}

struct rig {
    struct net_rig g;
    struct vae_net v;
    struct net *net;
    struct vae_job j;
};

static void rig_open(struct rig *r, const char *devices, const char *path, const char *alloc)
{
    berth_err err = { 0 };
    *r = (struct rig) { .net = NULL };
    net_rig_open(&r->g, devices, path, NULL, alloc);
    struct net_args a = net_rig_args(&r->g);
    assert_ok(vae_open(&a, NULL, &r->v, &r->net, &err), err);
    r->j = (struct vae_job) { .net = r->net, .vae = &r->v };
}

static void rig_close(struct rig *r)
{
    net_close(r->net);
    net_rig_close(&r->g);
}

static size_t count(const struct shape *s)
{
    uint64_t n = 0;
    assert_true(shape_count(s, &n));
    return (size_t)n;
}

/* Decoded, or encoded; to be freed. x: of shape s. */
static float *run(struct rig *r, bool decode, const float *x, const struct shape *s)
{
    const struct shape made = decode ? vae_decoded(&r->v, s) : vae_encoded(&r->v, s);
    float *out = calloc(count(&made), sizeof *out);
    berth_err err = { 0 };
    assert_non_null(out);
    assert_ok((decode ? vae_decode : vae_encode)(&r->j, x, s, out, &err), err);
    return out;
}

/* ---- config ---- */

static void config_is_read_from_shapes(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "config", DT_F16), NULL);
    assert_ptr_equal(r.v.family, &vae_mochi);
    assert_true(r.v.encoder && r.v.decoder && r.v.colours == 3);
    assert_int_equal(r.v.latent.channels, 8);
    assert_int_equal(r.v.latent.ratio, 8);
    assert_int_equal(r.v.latent.time_ratio, 6);
    assert_int_equal(vae_mochi_in(&r.v)->levels, 3);
    assert_memory_equal(vae_mochi_in(&r.v)->grow, ((const uint8_t[]) { 3, 2, 1 }), 3);
    assert_memory_equal(vae_mochi_in(&r.v)->shrink, ((const uint8_t[]) { 1, 2, 3 }), 3);
    rig_close(&r);
}

struct change { /* of one tensor's shape */
    const char *name;
    int axis;
    uint64_t to;
};

static bool changed(const void *user, const struct key *key, char *name, size_t cap,
                    struct shape *s)
{
    const struct change *c = user;
    (void)name, (void)cap;
    if (!strcmp(key->name, c->name))
        s->dim[c->axis] = c->to;
    return true;
}

static void others_are_refused(void **state)
{
    static const struct {
        struct change to;
        const char *said;
    } list[] = { { { "decoder.blocks.0.0.weight", 1, 9 }, "halves differ" },
                 { { "decoder.output_proj.weight", 0, 4 }, "not of colours" },
                 { { "decoder.blocks.1.proj.weight", 0, 7 * 128 }, "makes cells of 7" } };
    struct keys k = { 0 };
    (void)state;
    keys_vae_mochi(&k, &small);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct weights *w;
        struct vae_net v;
        berth_err err = { 0 };
        assert_ok(
            weights_open(keys_file_changed(&k, "other", changed, &list[i].to), NULL, &w, &err),
            err);
        berth_status s = vae_detect(w, "", &v, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
        weights_close(w);
    }
    keys_release(&k);
}

struct half {
    const char *begins;
};

/* One half, under names that do not say which it is. */
static bool bare(const void *user, const struct key *key, char *name, size_t cap, struct shape *s)
{
    const struct half *h = user;
    const size_t n = strlen(h->begins);
    (void)s;
    if (!strncmp(key->name, h->begins, n))
        return false;
    snprintf(name, cap, "%s", key->name + strlen("decoder."));
    return true;
}

static bool not_of(const void *user, const struct key *key, char *name, size_t cap, struct shape *s)
{
    const struct half *h = user;
    (void)name, (void)cap, (void)s;
    return strncmp(key->name, h->begins, strlen(h->begins)) != 0;
}

static void each_half_alone(void **state)
{
    static const struct half half[] = { { "decoder." }, { "encoder." } };
    const struct shape z = { 5, { 1, 8, 1, 2, 2 } }, x = { 5, { 1, 3, 1, 16, 16 } };
    float *in = noise_floats(1, count(&x)), *out = calloc(count(&x), sizeof *out);
    struct keys k = { 0 };
    (void)state;
    assert_non_null(out);
    keys_vae_mochi(&k, &small);
    for (size_t n = 0; n < 2 * ARRAY_LEN(half); n++) {
        const size_t i = n / 2;
        struct rig r;
        berth_err err = { 0 };
        rig_open(&r, "cpu=256m", keys_file_changed(&k, "half", n % 2 ? bare : not_of, &half[i]),
                 NULL);
        assert_int_equal(vae_encode(&r.j, in, &x, out, &err), i ? BERTH_EUNSUPPORTED : BERTH_OK);
        assert_int_equal(vae_decode(&r.j, in, &z, out, &err), i ? BERTH_OK : BERTH_EUNSUPPORTED);
        rig_close(&r);
    }
    keys_release(&k);
    free(in), free(out);
}

/* ---- video ---- */

/* The decoder holds a latent frame at a time. */
static void memory_grows_little_with_the_video(void **state)
{
    struct shape z = { 5, { 1, 8, 6, 4, 4 } };
    struct rig r;
    uint64_t some, more;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "long", DT_F16), NULL);
    assert_ok(vae_predict(&r.j, true, &z, &some, &err), err);
    z.dim[2] = 14;
    assert_ok(vae_predict(&r.j, true, &z, &more, &err), err);
    const uint64_t pictures = 8 * 6 * 3 * 32 * 32 * sizeof(float);
    assert_true(more <= some + pictures + pictures / 4);
    rig_close(&r);
}

/* Frames know those before them and none behind. */
static void the_decoder_looks_back(void **state)
{
    const struct shape two = { 5, { 1, 8, 2, 2, 2 } }, one = { 5, { 1, 8, 1, 2, 2 } };
    const size_t plane = 16 * 16;
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "back", DT_F32), NULL);
    float *z = noise_floats(4, count(&two)), *z1 = calloc(count(&one), sizeof *z1);
    assert_non_null(z1);
    for (size_t c = 0; c < 8; c++)
        memcpy(z1 + c * 4, z + c * 8, 4 * sizeof *z);
    float *all = run(&r, true, z, &two), *alone = run(&r, true, z1, &one);
    for (size_t c = 0; c < 3; c++)
        assert_memory_equal(all + c * 7 * plane, alone + c * plane, plane * sizeof *all);
    free(z), free(z1), free(all), free(alone);
    rig_close(&r);
}

static void the_same_wherever_blocks_live(void **state)
{
    static const struct {
        const char *devices, *alloc;
    } row[] = { { "cpu=256m", NULL },
                { "cuda:0@cpu=128m,cpu=128m,null:0=128m", "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" },
                { "cpu=64m,null:0=128m", "null:0,*#cpu" } };
    const struct shape z = { 5, { 1, 8, 3, 2, 2 } }, x = { 5, { 1, 3, 7, 16, 16 } };
    const char *path = file_of(&small, "placed", DT_F32);
    float *in = noise_floats(6, count(&x)), *want[2] = { NULL, NULL };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct rig r;
        rig_open(&r, row[i].devices, path, row[i].alloc);
        const struct shape made[2] = { vae_encoded(&r.v, &x), vae_decoded(&r.v, &z) };
        for (int decode = 0; decode < 2; decode++) {
            float *got = run(&r, decode, in, decode ? &z : &x);
            if (want[decode])
                assert_memory_equal(got, want[decode], count(&made[decode]) * sizeof *got);
            else
                want[decode] = got;
            if (got != want[decode])
                free(got);
        }
        rig_close(&r);
    }
    free(in), free(want[0]), free(want[1]);
}

static void every_stored_type_computes(void **state)
{
    static const struct {
        enum dtype dtype;
        double limit;
    } list[] = { { DT_F16, 5e-3 }, { DT_BF16, 4e-2 }, { DT_F8_E4M3, 1.5 } };
    const struct shape z = { 5, { 1, 8, 2, 2, 3 } };
    float *in = noise_floats(7, count(&z));
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "exact", DT_F32), NULL);
    const struct shape made = vae_decoded(&r.v, &z);
    float *exact = run(&r, true, in, &z);
    rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        rig_open(&r, "cpu=256m", file_of(&small, dtype_name(list[i].dtype), list[i].dtype), NULL);
        float *got = run(&r, true, in, &z);
        assert_near(dtype_name(list[i].dtype), got, exact, count(&made), list[i].limit);
        free(got);
        rig_close(&r);
    }
    free(in), free(exact);
}

static void no_memory_is_survived(void **state)
{
    const struct shape z = { 5, { 1, 8, 2, 2, 2 } };
    struct net_rig g;
    float *in = noise_floats(8, count(&z)), *out = calloc(3 * 9 * 64 * 64, sizeof *out);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    assert_non_null(out);
    net_rig_open(&g, "cpu=256m", file_of(&small, "oom", DT_F32), NULL, NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(each_half_alone),
        cmocka_unit_test(memory_grows_little_with_the_video),
        cmocka_unit_test(the_decoder_looks_back),
        cmocka_unit_test(the_same_wherever_blocks_live),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
