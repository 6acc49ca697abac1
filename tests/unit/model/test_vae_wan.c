/* The VAE of Wan's kind: what files it is read from, video piece by piece, pictures that may be
 * transparent, tiles, placements, memory. Its numbers are in tests/golden/model/test_vae_wan.c. */
#include "support/nets.h"
#include "support/oom.h"
#include "support/sparse.h"

#include "model/vae_wan/presets.h"
#include "model/vae_wan/vae_wan.h"

static const struct vae_wan_config small = { .dim = 8, .z_channels = 16, .colours = 3 };

static const char *file_of(const struct vae_wan_config *c, const char *name, enum dtype dtype)
{
    struct keys k = { 0 };
    keys_vae_wan(&k, c);
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
    uint64_t peak;
    berth_err err = { 0 };
    assert_non_null(out);
    assert_ok(vae_predict(&r->j, decode, s, &peak, &err), err);
    assert_ok((decode ? vae_decode : vae_encode)(&r->j, x, s, out, &err), err);
    return out;
}

/* ---- config ---- */

struct edit { /* one tensor, left out or of another shape */
    const char *name;
    int axis; /* -1: left out */
    uint64_t to;
};

static bool edited(const void *user, const struct key *key, char *name, size_t cap, struct shape *s)
{
    const struct edit *e = user;
    (void)name, (void)cap;
    if (strcmp(key->name, e->name) != 0)
        return true;
    if (e->axis >= 0)
        s->dim[e->axis] = e->to;
    return e->axis >= 0;
}

static void config_is_read_from_shapes(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&small, "config", DT_F16), NULL);
    assert_ptr_equal(r.v.family, &vae_wan);
    assert_true(r.v.encoder && r.v.decoder && r.v.colours == 3);
    assert_int_equal(r.v.latent.channels, 16);
    assert_int_equal(r.v.latent.ratio, 8);
    assert_int_equal(r.v.latent.time_ratio, 4);
    assert_int_equal(vae_wan_in(&r.v)->enc_blocks, 11);
    assert_int_equal(vae_wan_in(&r.v)->dec_blocks, 15);
    rig_close(&r);
}

/* Wan 2.2's, whose lists are stages and whose pixels are folded. */
static const struct vae_wan_config staged = {
    .dim = 8, .dec_dim = 16, .z_channels = 48, .colours = 3
};

static void stages_are_told_from_blocks(void **state)
{
    struct rig r;
    const struct shape z = { 5, { 1, 48, 3, 2, 3 } };
    const struct shape want = { 5, { 1, 3, 9, 32, 48 } };
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&staged, "stages", DT_F16), NULL);
    assert_string_equal(r.v.latent.name, "the Wan 2.2 kind");
    assert_int_equal(r.v.latent.channels, 48);
    assert_int_equal(r.v.latent.ratio, 16);
    assert_int_equal(r.v.latent.time_ratio, 4);
    assert_int_equal(r.v.colours, 3);
    assert_true(vae_wan_in(&r.v)->stages);
    assert_int_equal(vae_wan_in(&r.v)->enc_blocks, 4);
    assert_int_equal(vae_wan_in(&r.v)->dec_blocks, 4);
    assert_int_equal(net_unused(r.net, &(const char *) { NULL }), 0);
    const struct shape made = vae_decoded(&r.v, &z), back = vae_encoded(&r.v, &want);
    assert_true(shape_eq(&made, &want) && shape_eq(&back, &z));
    rig_close(&r);
}

static void others_are_refused(void **state)
{
    static const struct {
        const char *more; /* a tensor beside its own */
        struct vae_wan_config c;
        const char *said;
    } list[] = {
        { NULL, { .dim = 8, .z_channels = 16, .colours = 5 }, "pictures have 5 channels" },
        { "decoder.upsamples.70.residual.0.gamma",
          { .dim = 8, .z_channels = 16, .colours = 3 },
          "has 71 blocks" },
        { "encoder.downsamples.11.resample.1.weight",
          { .dim = 8, .z_channels = 16, .colours = 3 },
          "halves differ" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys k = { 0 };
        struct weights *w;
        struct vae_net v;
        berth_err err = { 0 };
        const char *path = tmp_path("other.safetensors");
        keys_vae_wan(&k, &list[i].c);
        if (list[i].more)
            keys_tensor(&k, list[i].more, 8, 0, 0, 0);
        assert_ok(sparse_keys(path, &k, DT_F16, &err), err);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        berth_status s = vae_detect(w, "", &v, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
        weights_close(w);
        keys_release(&k);
    }
}

/* A half that is not there, or not whole, does not hinder the other. */
static void each_half_alone(void **state)
{
    const struct shape z = { 5, { 1, 16, 1, 2, 3 } }, x = { 5, { 1, 3, 1, 16, 24 } };
    static const struct edit missing[] = { { "encoder.middle.1.to_qkv.weight", -1, 0 },
                                           { "decoder.upsamples.3.time_conv.bias", -1, 0 },
                                           { "decoder.upsamples.5.residual.3.gamma", -1, 0 } };
    float *in = noise_floats(1, 4096), *out = calloc(4096, sizeof *out);
    struct keys k = { 0 };
    (void)state;
    assert_non_null(out);
    keys_vae_wan(&k, &small);
    for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
        struct rig r;
        berth_err err = { 0 };
        bool enc = missing[i].name[0] == 'e', video = strstr(missing[i].name, "time_conv");
        rig_open(&r, "cpu=64m", keys_file_changed(&k, "half", edited, &missing[i]), NULL);
        berth_status e = vae_encode(&r.j, in, &x, out, &err);
        assert_int_equal(e, enc ? BERTH_ENOTFOUND : BERTH_OK);
        berth_status d = vae_decode(&r.j, in, &z, out, &err);
        assert_int_equal(d, enc || video ? BERTH_OK : BERTH_ENOTFOUND);
        if (video) { /* a picture does without */
            const struct shape two = { 5, { 1, 16, 2, 2, 3 } };
            float *more = calloc(3 * 5 * 16 * 24, sizeof *more);
            assert_fails(vae_decode(&r.j, in, &two, more, &err), err, BERTH_ENOTFOUND,
                         missing[i].name);
            free(more);
        }
        rig_close(&r);
    }
    keys_release(&k);
    free(in), free(out);
}

/* ---- video ---- */

/* Frames know those before them and none behind. */
static void time_goes_one_way(void **state)
{
    const struct shape three = { 5, { 1, 16, 3, 2, 3 } }, one = { 5, { 1, 16, 1, 2, 3 } };
    const struct shape nine = { 5, { 1, 3, 9, 16, 24 } }, first = { 5, { 1, 3, 1, 16, 24 } };
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&small, "video", DT_F32), NULL);
    float *z = noise_floats(2, count(&three)), *z1 = calloc(count(&one), sizeof *z1);
    float *x = noise_floats(3, count(&nine)), *x1 = calloc(count(&first), sizeof *x1);
    assert_true(z1 && x1);
    for (size_t c = 0; c < 16; c++)
        memcpy(z1 + c * 6, z + c * 18, 6 * sizeof *z);
    for (size_t c = 0; c < 3; c++)
        memcpy(x1 + c * 384, x + c * 9 * 384, 384 * sizeof *x);
    float *all = run(&r, true, z, &three), *alone = run(&r, true, z1, &one);
    for (size_t c = 0; c < 3; c++)
        assert_memory_equal(all + c * 9 * 384, alone + c * 384, 384 * sizeof *all);
    float *latents = run(&r, false, x, &nine), *latent = run(&r, false, x1, &first);
    for (size_t c = 0; c < 16; c++)
        assert_memory_equal(latents + c * 18, latent + c * 6, 6 * sizeof *latent);
    /* a change of the last latent frame changes its four pictures alone */
    for (size_t c = 0; c < 16; c++)
        z[c * 18 + 12] += 1;
    float *changed = run(&r, true, z, &three);
    for (size_t c = 0; c < 3; c++) {
        assert_memory_equal(all + c * 9 * 384, changed + c * 9 * 384, 5 * 384 * sizeof *all);
        assert_memory_not_equal(all + (c * 9 + 5) * 384, changed + (c * 9 + 5) * 384,
                                384 * sizeof *all);
    }
    free(z), free(z1), free(x), free(x1);
    free(all), free(alone), free(latents), free(latent), free(changed);
    rig_close(&r);
}

static void same_wherever(const char *path, const struct shape z, const struct shape x)
{
    static const struct {
        const char *devices, *alloc;
    } row[] = { { "cpu=64m", NULL },
                { "cuda:0@cpu=32m,cpu=64m,null:0=32m", "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" },
                { "cpu=32m,null:0=64m", "null:0,*#cpu" } };
    float *in = noise_floats(4, count(&x)), *want[2] = { NULL, NULL };
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

static void the_same_wherever_blocks_live(void **state)
{
    (void)state;
    same_wherever(file_of(&small, "placed", DT_F32), (struct shape) { 5, { 1, 16, 3, 4, 4 } },
                  (struct shape) { 5, { 1, 3, 5, 32, 32 } });
    same_wherever(file_of(&staged, "placed22", DT_F32), (struct shape) { 5, { 1, 48, 3, 2, 2 } },
                  (struct shape) { 5, { 1, 3, 9, 32, 32 } });
}

/* Tiles of frames begin anew: each is what it would be alone, and they are blended. */
static void tiles_of_frames(void **state)
{
    const struct shape z = { 5, { 1, 16, 5, 8, 8 } };
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&small, "frames", DT_F32), NULL);
    const struct shape made = vae_decoded(&r.v, &z);
    float *in = noise_floats(6, count(&z)), *whole = run(&r, true, in, &z);
    r.j.tile_x = r.j.tile_y = 8;
    r.j.overlap = 2;
    r.j.tile_t = 9; /* all of them: nothing changes */
    r.j.overlap_t = 1;
    float *same = run(&r, true, in, &z);
    assert_memory_equal(same, whole, count(&made) * sizeof *same);
    r.j.tile_t = 3;
    float *tiled = run(&r, true, in, &z);
    for (size_t c = 0; c < 3; c++) /* the first tile's own frames, which no other reaches */
        assert_true(rel_error(tiled + c * 17 * 4096, whole + c * 17 * 4096, 8 * 4096) < 1e-6);
    assert_true(rel_error(tiled, whole, count(&made)) > 1e-4);
    r.j.overlap_t = 3;
    assert_fails(vae_decode(&r.j, in, &z, tiled, &err), err, BERTH_EINVAL,
                 "tiles of 3 latent frames overlapping by 3");
    free(in), free(whole), free(same), free(tiled);
    rig_close(&r);
}

/* A long video takes hardly more than a short one. */
static void memory_is_that_of_a_piece(void **state)
{
    static const struct vae_wan_config *const list[] = { &small, &staged };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        for (int decode = 0; decode < 2; decode++) {
            struct rig r;
            uint64_t peak[2];
            rig_open(&r, "cpu=64m", file_of(list[i], "long", DT_F16), NULL);
            for (uint64_t k = 0; k < 2; k++) {
                const uint64_t t = k ? 300 : 12;
                const struct shape z = { 5, { 1, list[i]->z_channels, t, 4, 6 } };
                const struct shape x = { 5, { 1, 3, 4 * t - 3, 64, 96 } };
                berth_err err = { 0 };
                assert_ok(vae_predict(&r.j, decode, decode ? &z : &x, &peak[k], &err), err);
            }
            assert_true(peak[1] <= peak[0] * 5 / 4); /* places in memory do not fit as well */
            rig_close(&r);
        }
}

static void every_stored_type_computes(void **state)
{
    static const struct {
        enum dtype dtype;
        double limit;
    } list[] = { { DT_F16, 5e-3 }, { DT_BF16, 4e-2 }, { DT_F8_E4M3, 0.5 } };
    const struct shape z = { 5, { 1, 16, 2, 2, 3 } };
    float *in = noise_floats(5, count(&z));
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=64m", file_of(&small, "exact", DT_F32), NULL);
    const struct shape made = vae_decoded(&r.v, &z);
    float *exact = run(&r, true, in, &z);
    rig_close(&r);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        rig_open(&r, "cpu=64m", file_of(&small, dtype_name(list[i].dtype), list[i].dtype), NULL);
        float *got = run(&r, true, in, &z);
        assert_near(dtype_name(list[i].dtype), got, exact, count(&made), list[i].limit);
        free(got);
        rig_close(&r);
    }
    free(in), free(exact);
}

/* ---- pictures ---- */

/* RGBA: what does not say how opaque it is is so altogether; more channels are left out. */
static void pictures_may_be_transparent(void **state)
{
    struct vae_wan_config c = small;
    const struct shape four = { 5, { 1, 1, 16, 16, 4 } }, three = { 5, { 1, 1, 16, 16, 3 } };
    float rgba[16 * 16 * 4], rgb[16 * 16 * 3], a[16 * 4], b[16 * 4];
    struct rig r;
    berth_err err = { 0 };
    (void)state;
    c.colours = 4;
    rig_open(&r, "cpu=64m", file_of(&c, "rgba", DT_F32), NULL);
    assert_int_equal(r.v.colours, 4);
    for (size_t i = 0; i < 16 * 16; i++) {
        for (size_t k = 0; k < 3; k++)
            rgb[3 * i + k] = rgba[4 * i + k] = (float)((i * 7 + k * 5) % 11) / 10.0f;
        rgba[4 * i + 3] = 1;
    }
    assert_ok(vae_encode_image(&r.j, rgba, &four, a, &err), err);
    assert_ok(vae_encode_image(&r.j, rgb, &three, b, &err), err);
    assert_memory_equal(a, b, sizeof a);
    rgba[3] = 0;
    assert_ok(vae_encode_image(&r.j, rgba, &four, b, &err), err);
    assert_memory_not_equal(a, b, sizeof a);
    const struct shape z = { 5, { 1, 16, 1, 2, 2 } };
    assert_ok(vae_decode_image(&r.j, a, &z, rgba, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(rgba); i++)
        assert_true(rgba[i] >= 0 && rgba[i] <= 1);
    rig_close(&r);
}

/* One cover of tiles, where pictures of other VAEs have the mean of three: a tile that is all of it
 * is the whole, and far from seams the rest is near it. */
static void tiles(void **state)
{
    const struct shape z = { 5, { 1, 16, 1, 24, 20 } };
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=256m", file_of(&small, "tiles", DT_F32), NULL);
    float *in = noise_floats(6, count(&z));
    const size_t n = 3 * 192 * 160;
    float *whole = run(&r, true, in, &z);
    r.j.tile_x = r.j.tile_y = 24;
    r.j.overlap = 8;
    float *one = run(&r, true, in, &z);
    assert_memory_equal(whole, one, n * sizeof *one);
    r.j.tile_x = r.j.tile_y = 18;
    uint64_t before = net_report(r.net).passes;
    float *some = run(&r, true, in, &z);
    assert_int_equal(net_report(r.net).passes - before, 2 * 2);
    assert_memory_not_equal(whole, some, n * sizeof *some);
    free(in), free(whole), free(one), free(some);
    rig_close(&r);
}

static void no_memory_is_survived(void **state)
{
    const struct shape z = { 5, { 1, 16, 2, 2, 2 } };
    struct net_rig g;
    float *in = noise_floats(7, count(&z)), *out = calloc(3 * 5 * 256, sizeof *out);
    berth_status s = BERTH_ENOMEM;
    (void)state;
    assert_non_null(out);
    net_rig_open(&g, "cpu=64m", file_of(&small, "oom", DT_F32), NULL, NULL);
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
        net_close(net);
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    net_rig_close(&g);
    free(in), free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(stages_are_told_from_blocks),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(each_half_alone),
        cmocka_unit_test(time_goes_one_way),
        cmocka_unit_test(the_same_wherever_blocks_live),
        cmocka_unit_test(tiles_of_frames),
        cmocka_unit_test(memory_is_that_of_a_piece),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(pictures_may_be_transparent),
        cmocka_unit_test(tiles),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
