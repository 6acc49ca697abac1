/* The VAEs of LTX-Video's kind: what files and metadata they are read from, halves, pieces of a
 * video, noise, placements, memory. Their numbers are in tests/golden/model/test_ltxv.c. */
#include "support/video_vae.h"

#include "model/vae_ltxv/presets.h"
#include "model/vae_ltxv/vae_ltxv.h"

static const struct vae_ltxv_config version[] = {
    { .base = 8, .latent = 16, .version = 0, .blocks = 1 },
    { .base = 8, .latent = 16, .version = 1, .blocks = 1 },
    { .base = 8, .latent = 16, .version = 2, .blocks = 1 },
};

static void list_keys(struct keys *k, const void *c)
{
    keys_vae_ltxv(k, c);
}

static const struct vv_kind kind[] = { { .keys = list_keys, .config = &version[0] },
                                       { .keys = list_keys, .config = &version[1] },
                                       { .keys = list_keys, .config = &version[2] } };

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
        struct vv_rig r;
        vv_open(&r, "cpu=64m", vv_file(&kind[i], "config", DT_F16), NULL);
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
        vv_close(&r);
    }
}

static berth_status fill_zeros(void *user, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

/* A file with this metadata. */
static const char *said_file(const struct vae_ltxv_config *c, const char *metadata)
{
    const char *path = tmp_path("metadata.safetensors");
    const struct weights_meta_spec meta = { "config", metadata };
    struct keys k = { 0 };
    berth_err err = { 0 };
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
    assert_ok(weights_write(&a, &err), err);
    keys_release(&k);
    free(s);
    return path;
}

static void metadata_counts_more(void **state)
{
    struct vae_net v;
    berth_err err = { 0 };
    (void)state;
    const char *path =
        said_file(&version[1],
                  "{\"vae\": {\"spatial_padding_mode\": \"replicate\", \"causal_decoder\": true, "
                  "\"decode_noise_scale\": 0.5, \"decode_timestep\": 0.25}}");
    assert_ok(vv_detect(path, &v, &err), err);
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
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        vv_refused(said_file(&version[list[i].version], list[i].metadata), list[i].said);
}

static void each_half_alone(void **state)
{
    const struct shape z = { 5, { 1, 16, 1, 2, 2 } }, x = { 5, { 1, 3, 1, 64, 64 } };
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(kind); n++)
        vv_each_half_alone(&kind[n], vv_without, z, x);
}

/* ---- video ---- */

/* Memory grows by the pictures that come out, and by latents, not with what layers hold. */
static void memory_does_not_grow_with_the_video(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        struct vae_ltxv_config c = version[n];
        struct shape z = { 5, { 1, 16, 13, 2, 4 } };
        struct vv_rig r;
        c.base = 32;
        const struct vv_kind wide = { .keys = list_keys, .config = &c };
        vv_open(&r, "cpu=256m", vv_file(&wide, "long", DT_F16), NULL);
        for (int decode = 0; decode < 2; decode++) {
            struct shape few = decode ? z : vae_decoded(&r.v, &z);
            z.dim[2] = 29;
            struct shape many = decode ? z : vae_decoded(&r.v, &z);
            z.dim[2] = 13;
            const struct shape a = vae_decoded(&r.v, &z);
            const uint64_t pictures = vv_values(&a) / a.dim[2] * sizeof(float) * 8 * 16;
            const uint64_t some = vv_predicted(&r, decode, &few);
            const uint64_t more = vv_predicted(&r, decode, &many);
            if (more > some + pictures + pictures / 4)
                fail_msg("version %zu: %llu bytes, then %llu for %llu of pictures", n,
                         (unsigned long long)some, (unsigned long long)more,
                         (unsigned long long)pictures);
        }
        vv_close(&r);
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
        const struct vv_kind wide = { .keys = list_keys, .config = &c };
        const char *path = vv_file(&wide, "pieces", DT_F32);
        float *in = noise_floats(3, vv_values(&z)), *want = NULL;
        struct shape made = { 0 };
        struct vv_rig r;
        char devices[64] = "cpu=256m";
        for (int less = 0; less < 2; less++) {
            vv_open(&r, devices, path, NULL);
            made = vae_decoded(&r.v, &z);
            float *got = vv_run(&r, true, in, &z);
            const struct net_report now = net_report(r.net);
            assert_int_equal(now.thrifty, less);
            assert_false(r.j.tiled);
            snprintf(devices, sizeof devices, "cpu=%llu",
                     (unsigned long long)(res_info(r.g.m).bytes + (1 << 18) + now.peak * 7 / 8));
            if (want)
                assert_memory_equal(got, want, vv_values(&made) * sizeof *got);
            else
                want = got;
            if (got != want)
                free(got);
            vv_close(&r);
        }
        free(in), free(want);
    }
}

/* Encoders look back alone. */
static void the_encoder_looks_back(void **state)
{
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(kind); n++) {
        struct vv_rig r;
        vv_open(&r, "cpu=64m", vv_file(&kind[n], "back", DT_F32), NULL);
        vv_looks_back(&r, false, (struct shape) { 5, { 1, 3, 9, 64, 64 } });
        vv_close(&r);
    }
}

/* Decoders that know noise levels get some: the same every time, and another amount shows. */
static void noise_is_the_same_every_time(void **state)
{
    const struct shape z = { 5, { 1, 16, 2, 2, 3 } };
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(version); n++) {
        struct vv_rig r;
        vv_open(&r, "cpu=64m", vv_file(&kind[n], "noise", DT_F32), NULL);
        const struct shape made = vae_decoded(&r.v, &z);
        const size_t bytes = vv_values(&made) * sizeof(float);
        float *in = noise_floats(5, vv_values(&z));
        float *a = vv_run(&r, true, in, &z), *b = vv_run(&r, true, in, &z);
        assert_memory_equal(a, b, bytes);
        vae_ltxv_of(&r.v)->noise = 0;
        float *c = vv_run(&r, true, in, &z);
        assert_int_equal(memcmp(a, c, bytes) != 0, n > 0);
        /* of the latents; of 0.9.1 two of every block at its size besides, 1 + 4 + 16 pixels */
        const size_t own[] = { 0, vv_values(&z) + 2 * 6 * (1 + 4 + 16), vv_values(&z) };
        assert_int_equal(vae_ltxv_noise(&r.v, &z) > own[n], n == 1); /* and the last level's */
        free(in), free(a), free(b), free(c);
        vv_close(&r);
    }
}

static void the_same_wherever_blocks_live(void **state)
{
    const struct shape z = { 5, { 1, 16, 3, 2, 2 } }, x = { 5, { 1, 3, 9, 64, 64 } };
    (void)state;
    for (size_t n = 0; n < ARRAY_LEN(kind); n++)
        vv_same_wherever(&kind[n], z, x);
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    vv_every_stored_type_computes(&kind[2], (struct shape) { 5, { 1, 16, 2, 2, 3 } }, 1.5);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    vv_no_memory_is_survived(&kind[1], (struct shape) { 5, { 1, 16, 2, 2, 2 } });
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
