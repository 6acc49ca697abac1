/* The VAEs of LTX-Video's kind: what files and metadata they are read from, halves, pieces of a
 * video, noise, placements, memory. Their numbers are in tests/golden/model/test_ltxv.c. */
#include "support/nets.h"
#include "support/oom.h"
#include "support/sparse.h"

#include "model/vae_ltxv/presets.h"
#include "model/vae_ltxv/vae_ltxv.h"

static const struct vae_ltxv_config version[] = {
    { .base = 8, .latent = 16, .version = 0, .blocks = 1 },
    { .base = 8, .latent = 16, .version = 1, .blocks = 1 },
    { .base = 8, .latent = 16, .version = 2, .blocks = 1 },
};

static const char *file_of(const struct vae_ltxv_config *c, const char *name, enum dtype dtype)
{
    struct keys k = { 0 };
    keys_vae_ltxv(&k, c);
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
    enum { ALL = VAE_LTXV_TIME | VAE_LTXV_SPACE, STEP = VAE_LTXV_STRIDED, FOLD = VAE_LTXV_FOLDED };
    static const uint8_t enc[][10] = {
        { 0, STEP | ALL, 1, 0, STEP | ALL, 1, 0, STEP | ALL, 0, 0 },
        { 0, STEP | ALL, 1, 0, STEP | ALL, 1, 0, STEP | ALL, 0, 0 },
        { 0, FOLD | VAE_LTXV_SPACE, 0, FOLD | VAE_LTXV_TIME, 0, FOLD | ALL, 0, FOLD | ALL, 0 },
    };
    static const uint8_t dec[][10] = {
        { 0, 0, STEP | ALL, 0, 1, STEP | ALL, 0, 1, STEP | ALL, 0 },
        { 0, FOLD | ALL, 0, FOLD | ALL, 0, FOLD | ALL, 0 },
        { 0, FOLD | ALL, 0, FOLD | ALL, 0, FOLD | ALL, 0 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(version); i++) {
        struct rig r;
        rig_open(&r, "cpu=64m", file_of(&version[i], "config", DT_F16), NULL);
        const struct vae_ltxv *v = vae_ltxv_in(&r.v);
        assert_ptr_equal(r.v.family, &vae_ltxv);
        assert_true(r.v.encoder && r.v.decoder && r.v.colours == 3);
        assert_int_equal(r.v.latent.channels, 16);
        assert_int_equal(r.v.latent.ratio, 32);
        assert_int_equal(r.v.latent.time_ratio, 8);
        assert_int_equal(v->encs, i == 2 ? 9 : 10);
        assert_int_equal(v->decs, i ? 7 : 10);
        assert_memory_equal(v->enc, enc[i], v->encs);
        assert_memory_equal(v->dec, dec[i], v->decs);
        assert_int_equal(v->timed, i > 0);
        assert_int_equal(v->noisy, i == 1);
        assert_true(!v->causal && v->space == NET_MIRROR && v->enc_space == NET_ZEROS);
        rig_close(&r);
    }
}

static berth_status fill_zeros(void *user, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

static berth_status detect(const struct vae_ltxv_config *c, const char *metadata, struct vae_net *v,
                           berth_err *err)
{
    const char *path = tmp_path("metadata.safetensors");
    const struct weights_meta_spec meta = { "config", metadata };
    struct keys k = { 0 };
    struct weights *w;
    keys_vae_ltxv(&k, c);
    assert_false(k.bad);
    struct weights_spec *s = calloc(k.n, sizeof *s);
    assert_non_null(s);
    for (size_t i = 0; i < k.n; i++)
        s[i] = (struct weights_spec) { k.at[i].name, DT_F16, k.at[i].shape };
    struct weights_write_args a = { .format = "safetensors",
                                    .path = path,
                                    .spec = s,
                                    .count = k.n,
                                    .meta = &meta,
                                    .meta_count = 1,
                                    .fill = fill_zeros };
    assert_ok(weights_write(&a, err), *err);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status st = vae_detect(w, "", v, err);
    weights_close(w);
    keys_release(&k);
    free(s);
    return st;
}

static void metadata_counts_more(void **state)
{
    struct vae_net v;
    berth_err err = { 0 };
    (void)state;
    assert_ok(
        detect(&version[1],
               "{\"vae\": {\"spatial_padding_mode\": \"replicate\", \"causal_decoder\": true, "
               "\"decode_noise_scale\": 0.5, \"decode_timestep\": 0.25}}",
               &v, &err),
        err);
    const struct vae_ltxv *own = vae_ltxv_in(&v);
    assert_true(own->causal && own->space == NET_EDGE && own->enc_space == NET_EDGE);
    assert_true(own->noise == 0.5f && own->time == 0); /* times what the file has, 0 here */
}

static void others_are_refused(void **state)
{
    static const struct {
        int version;
        const char *metadata, *said;
    } list[] = {
        { 2, "{", "the metadata's \"config\"" },
        { 2, "{\"vae\": {\"norm_layer\": \"group_norm\"}}", "norms 'group_norm'" },
        { 2, "{\"vae\": {\"patch_size\": 2}}", "cells of 2 pixels" },
        { 2, "{\"vae\": {\"spatial_padding_mode\": \"circular\"}}", "go on as 'circular'" },
        { 2, "{\"vae\": {\"encoder_blocks\": [[\"res_x\", 1]]}}", "its metadata 1" },
        { 0, "{\"vae\": {\"blocks\": [[\"attn_res_x\", 1], 2, 3, 4, 5, 6, 7, 8, 9, 10]}}",
          "'attn_res_x'" },
        { 0, "{\"vae\": {\"blocks\": [[\"res_x\", 1], [\"res_x\", 1], 3, 4, 5, 6, 7, 8, 9, 10]}}",
          "'res_x', which it is not" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct vae_net v;
        berth_err err = { 0 };
        berth_status s = detect(&version[list[i].version], list[i].metadata, &v, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

struct half {
    const char *begins;
};

static bool not_of(const void *user, const struct key *key, char *name, size_t cap, struct shape *s)
{
    const struct half *h = user;
    (void)name, (void)cap, (void)s;
    return strncmp(key->name, h->begins, strlen(h->begins)) != 0;
}

static void each_half_alone(void **state)
{
    static const struct half half[] = { { "decoder." }, { "encoder." } };
    const struct shape z = { 5, { 1, 16, 1, 2, 2 } }, x = { 5, { 1, 3, 1, 64, 64 } };
    float *in = noise_floats(1, count(&x)), *out = calloc(count(&x), sizeof *out);
    (void)state;
    assert_non_null(out);
    for (size_t n = 0; n < ARRAY_LEN(version); n++)
        for (size_t i = 0; i < ARRAY_LEN(half); i++) {
            struct keys k = { 0 };
            struct rig r;
            berth_err err = { 0 };
            keys_vae_ltxv(&k, &version[n]);
            rig_open(&r, "cpu=64m", keys_file_changed(&k, "half", not_of, &half[i]), NULL);
            assert_int_equal(vae_encode(&r.j, in, &x, out, &err),
                             i ? BERTH_EUNSUPPORTED : BERTH_OK);
            assert_int_equal(vae_decode(&r.j, in, &z, out, &err),
                             i ? BERTH_OK : BERTH_EUNSUPPORTED);
            rig_close(&r);
            keys_release(&k);
        }
    free(in), free(out);
}

/* ---- video ---- */

/* Memory grows by the pictures that come out, and by latents, not with what layers hold. */
static void memory_does_not_grow_with_the_video(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        struct vae_ltxv_config c = version[n];
        struct shape z = { 5, { 1, 16, 13, 2, 4 } };
        struct rig r;
        uint64_t some, more;
        berth_err err = { 0 };
        c.base = 32;
        rig_open(&r, "cpu=256m", file_of(&c, "long", DT_F16), NULL);
        for (int decode = 0; decode < 2; decode++) {
            struct shape few = decode ? z : vae_decoded(&r.v, &z);
            z.dim[2] = 29;
            struct shape many = decode ? z : vae_decoded(&r.v, &z);
            z.dim[2] = 13;
            const struct shape a = vae_decoded(&r.v, &z);
            const uint64_t pictures = count(&a) / a.dim[2] * sizeof(float) * 8 * 16;
            assert_ok(vae_predict(&r.j, decode, &few, &some, &err), err);
            assert_ok(vae_predict(&r.j, decode, &many, &more, &err), err);
            if (more > some + pictures + pictures / 4)
                fail_msg("version %zu: %llu bytes, then %llu for %llu of pictures", n,
                         (unsigned long long)some, (unsigned long long)more,
                         (unsigned long long)pictures);
        }
        rig_close(&r);
    }
}

/* With little room pieces are smaller, and the result is the same. */
static void pieces_do_not_show(void **state)
{
    const struct shape z = { 5, { 1, 16, 4, 3, 2 } };
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        struct vae_ltxv_config c = version[n];
        c.base = 32;
        const char *path = file_of(&c, "pieces", DT_F32);
        float *in = noise_floats(3, count(&z)), *want = NULL;
        struct shape made = { 0 };
        struct rig r;
        char devices[64] = "cpu=256m";
        for (int less = 0; less < 2; less++) {
            rig_open(&r, devices, path, NULL);
            made = vae_decoded(&r.v, &z);
            float *got = run(&r, true, in, &z);
            const struct net_report now = net_report(r.net);
            assert_int_equal(now.thrifty, less);
            assert_false(r.j.tiled);
            snprintf(devices, sizeof devices, "cpu=%llu",
                     (unsigned long long)(res_info(r.g.m).bytes + (1 << 18) + now.peak * 7 / 8));
            if (want)
                assert_memory_equal(got, want, count(&made) * sizeof *got);
            else
                want = got;
            if (got != want)
                free(got);
            rig_close(&r);
        }
        free(in), free(want);
    }
}

/* Encoders look back alone. */
static void the_encoder_looks_back(void **state)
{
    const struct shape nine = { 5, { 1, 3, 9, 64, 64 } }, first = { 5, { 1, 3, 1, 64, 64 } };
    const size_t plane = 64 * 64, cells = 2 * 2;
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        struct rig r;
        rig_open(&r, "cpu=64m", file_of(&version[n], "back", DT_F32), NULL);
        float *x = noise_floats(4, count(&nine)), *one = calloc(count(&first), sizeof *one);
        assert_non_null(one);
        for (size_t c = 0; c < 3; c++)
            memcpy(one + c * plane, x + c * 9 * plane, plane * sizeof *x);
        float *all = run(&r, false, x, &nine), *alone = run(&r, false, one, &first);
        for (size_t c = 0; c < 16; c++)
            assert_memory_equal(all + c * 2 * cells, alone + c * cells, cells * sizeof *all);
        free(x), free(one), free(all), free(alone);
        rig_close(&r);
    }
}

/* Decoders that know noise levels get some: the same every time, and another amount shows. */
static void noise_is_the_same_every_time(void **state)
{
    const struct shape z = { 5, { 1, 16, 2, 2, 3 } };
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        struct rig r;
        rig_open(&r, "cpu=64m", file_of(&version[n], "noise", DT_F32), NULL);
        const struct shape made = vae_decoded(&r.v, &z);
        const size_t bytes = count(&made) * sizeof(float);
        float *in = noise_floats(5, count(&z));
        float *a = run(&r, true, in, &z), *b = run(&r, true, in, &z);
        assert_memory_equal(a, b, bytes);
        vae_ltxv_of(&r.v)->noise = 0;
        float *c = run(&r, true, in, &z);
        assert_int_equal(memcmp(a, c, bytes) != 0, n > 0);
        /* of the latents; of 0.9.1 two of every block at its size besides, 1 + 4 + 16 pixels */
        const size_t own[] = { 0, count(&z) + 2 * 6 * (1 + 4 + 16), count(&z) };
        assert_int_equal(vae_ltxv_noise(&r.v, &z) > own[n], n == 1); /* and the last level's */
        free(in), free(a), free(b), free(c);
        rig_close(&r);
    }
}

static void the_same_wherever_blocks_live(void **state)
{
    static const struct {
        const char *devices, *alloc;
    } row[] = { { "cpu=64m", NULL },
                { "cuda:0@cpu=32m,cpu=64m,null:0=32m", "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" },
                { "cpu=32m,null:0=64m", "null:0,*#cpu" } };
    const struct shape z = { 5, { 1, 16, 3, 2, 2 } }, x = { 5, { 1, 3, 9, 64, 64 } };
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        const char *path = file_of(&version[n], "placed", DT_F32);
        float *in = noise_floats(6, count(&x)), *want[2] = { NULL, NULL };
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
}

static void every_stored_type_computes(void **state)
{
    static const struct {
        enum dtype dtype;
        double limit;
    } list[] = { { DT_F16, 5e-3 }, { DT_BF16, 4e-2 }, { DT_F8_E4M3, 1.5 } };
    const struct shape z = { 5, { 1, 16, 2, 2, 3 } };
    float *in = noise_floats(7, count(&z));
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&version[2], "exact", DT_F32), NULL);
    const struct shape made = vae_decoded(&r.v, &z);
    float *exact = run(&r, true, in, &z);
    rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        rig_open(&r, "cpu=64m", file_of(&version[2], dtype_name(list[i].dtype), list[i].dtype),
                 NULL);
        float *got = run(&r, true, in, &z);
        assert_near(dtype_name(list[i].dtype), got, exact, count(&made), list[i].limit);
        free(got);
        rig_close(&r);
    }
    free(in), free(exact);
}

static void no_memory_is_survived(void **state)
{
    const struct shape z = { 5, { 1, 16, 2, 2, 2 } };
    struct net_rig g;
    float *in = noise_floats(8, count(&z)), *out = calloc(3 * 9 * 64 * 64, sizeof *out);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    assert_non_null(out);
    net_rig_open(&g, "cpu=64m", file_of(&version[1], "oom", DT_F32), NULL, NULL);
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
        cmocka_unit_test(metadata_counts_more),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(each_half_alone),
        cmocka_unit_test(memory_does_not_grow_with_the_video),
        cmocka_unit_test(pieces_do_not_show),
        cmocka_unit_test(the_encoder_looks_back),
        cmocka_unit_test(noise_is_the_same_every_time),
        cmocka_unit_test(the_same_wherever_blocks_live),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
