/* The VAE of Wan's kind: what files it is read from, video piece by piece, pictures that may be
 * transparent, tiles, placements, memory. Its numbers are in tests/golden/model/test_vae_wan.c. */
#include "support/sparse.h"
#include "support/video_vae.h"

#include "model/vae_wan/presets.h"
#include "model/vae_wan/vae_wan.h"

static const struct vae_wan_config small = { .dim = 8, .z_channels = 16, .colours = 3 };

static void list_keys(struct keys *k, const void *c)
{
    keys_vae_wan(k, c);
}

static const struct vv_kind kind = { .keys = list_keys, .config = &small };

/* ---- config ---- */

static void config_is_read_from_shapes(void **state)
{
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=64m", vv_file(&kind, "config", DT_F16), NULL);
    assert_ptr_equal(r.v.family, &vae_wan);
    assert_true(r.v.encoder && r.v.decoder && r.v.colours == 3);
    assert_int_equal(r.v.latent.channels, 16);
    assert_int_equal(r.v.latent.ratio, 8);
    assert_int_equal(r.v.latent.time_ratio, 4);
    assert_int_equal(vae_wan_in(&r.v)->enc_blocks, 11);
    assert_int_equal(vae_wan_in(&r.v)->dec_blocks, 15);
    vv_close(&r);
}

/* Wan 2.2's, whose lists are stages and whose pixels are folded. */
static const struct vae_wan_config staged = {
    .dim = 8, .dec_dim = 16, .z_channels = 48, .colours = 3
};
static const struct vv_kind stages = { .keys = list_keys, .config = &staged };

static void stages_are_told_from_blocks(void **state)
{
    struct vv_rig r;
    const struct shape z = { 5, { 1, 48, 3, 2, 3 } };
    const struct shape want = { 5, { 1, 3, 9, 32, 48 } };
    (void)state;
    vv_open(&r, "cpu=64m", vv_file(&stages, "stages", DT_F16), NULL);
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
    vv_close(&r);
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
        berth_err err = { 0 };
        const char *path = tmp_path("other.safetensors");
        keys_vae_wan(&k, &list[i].c);
        if (list[i].more)
            keys_tensor(&k, list[i].more, 8, 0, 0, 0);
        assert_ok(sparse_keys(path, &k, DT_F16, &err), err);
        vv_refused(path, list[i].said);
        keys_release(&k);
    }
}

/* A half that is not there, or not whole, does not hinder the other. */
static void each_half_alone(void **state)
{
    const struct shape z = { 5, { 1, 16, 1, 2, 3 } }, x = { 5, { 1, 3, 1, 16, 24 } };
    static const struct vv_edit missing[] = { { "encoder.middle.1.to_qkv.weight", .axis = -1 },
                                              { "decoder.upsamples.3.time_conv.bias", .axis = -1 },
                                              { "decoder.upsamples.5.residual.3.gamma",
                                                .axis = -1 } };
    float *in = noise_floats(1, 4096), *out = calloc(4096, sizeof *out);
    (void)state;
    assert_non_null(out);
    for (size_t i = 0; i < ARRAY_LEN(missing); i++) {
        struct vv_rig r;
        berth_err err = { 0 };
        bool enc = missing[i].name[0] == 'e', video = strstr(missing[i].name, "time_conv");
        vv_open(&r, "cpu=64m", vv_file_changed(&kind, "half", vv_edited, &missing[i]), NULL);
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
        vv_close(&r);
    }
    free(in), free(out);
}

/* ---- video ---- */

/* Frames know those before them and none behind. */
static void time_goes_one_way(void **state)
{
    const struct shape three = { 5, { 1, 16, 3, 2, 3 } };
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=64m", vv_file(&kind, "video", DT_F32), NULL);
    vv_looks_back(&r, true, three);
    vv_looks_back(&r, false, (struct shape) { 5, { 1, 3, 9, 16, 24 } });
    /* a change of the last latent frame changes its four pictures alone */
    float *z = noise_floats(2, vv_values(&three)), *all = vv_run(&r, true, z, &three);
    for (size_t c = 0; c < 16; c++)
        z[c * 18 + 12] += 1;
    float *changed = vv_run(&r, true, z, &three);
    for (size_t c = 0; c < 3; c++) {
        assert_memory_equal(all + c * 9 * 384, changed + c * 9 * 384, 5 * 384 * sizeof *all);
        assert_memory_not_equal(all + (c * 9 + 5) * 384, changed + (c * 9 + 5) * 384,
                                384 * sizeof *all);
    }
    free(z), free(all), free(changed);
    vv_close(&r);
}

static void the_same_wherever_blocks_live(void **state)
{
    (void)state;
    vv_same_wherever(&kind, (struct shape) { 5, { 1, 16, 3, 4, 4 } },
                     (struct shape) { 5, { 1, 3, 5, 32, 32 } });
    vv_same_wherever(&stages, (struct shape) { 5, { 1, 48, 3, 2, 2 } },
                     (struct shape) { 5, { 1, 3, 9, 32, 32 } });
}

/* Tiles of frames begin anew: each is what it would be alone, and they are blended. */
static void tiles_of_frames(void **state)
{
    const struct shape z = { 5, { 1, 16, 5, 8, 8 } };
    struct vv_rig r;
    berth_err err = { 0 };
    (void)state;
    vv_open(&r, "cpu=64m", vv_file(&kind, "frames", DT_F32), NULL);
    const struct shape made = vae_decoded(&r.v, &z);
    float *in = noise_floats(6, vv_values(&z)), *whole = vv_run(&r, true, in, &z);
    r.j.tile_x = r.j.tile_y = 8;
    r.j.overlap = 2;
    r.j.tile_t = 9; /* all of them: nothing changes */
    r.j.overlap_t = 1;
    float *same = vv_run(&r, true, in, &z);
    assert_memory_equal(same, whole, vv_values(&made) * sizeof *same);
    r.j.tile_t = 3;
    float *tiled = vv_run(&r, true, in, &z);
    for (size_t c = 0; c < 3; c++) /* the first tile's own frames, which no other reaches */
        assert_true(rel_error(tiled + c * 17 * 4096, whole + c * 17 * 4096, 8 * 4096) < 1e-6);
    assert_true(rel_error(tiled, whole, vv_values(&made)) > 1e-4);
    r.j.overlap_t = 3;
    assert_fails(vae_decode(&r.j, in, &z, tiled, &err), err, BERTH_EINVAL,
                 "tiles of 3 latent frames overlapping by 3");
    free(in), free(whole), free(same), free(tiled);
    vv_close(&r);
}

/* A long video takes hardly more than a short one. */
static void memory_is_that_of_a_piece(void **state)
{
    static const struct vv_kind *const list[] = { &kind, &stages };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        for (int decode = 0; decode < 2; decode++) {
            const struct vae_wan_config *c = list[i]->config;
            struct vv_rig r;
            uint64_t peak[2];
            vv_open(&r, "cpu=64m", vv_file(list[i], "long", DT_F16), NULL);
            for (uint64_t k = 0; k < 2; k++) {
                const uint64_t t = k ? 300 : 12;
                const struct shape z = { 5, { 1, c->z_channels, t, 4, 6 } };
                const struct shape x = { 5, { 1, 3, 4 * t - 3, 64, 96 } };
                peak[k] = vv_predicted(&r, decode, decode ? &z : &x);
            }
            assert_true(peak[1] <= peak[0] * 5 / 4); /* places in memory do not fit as well */
            vv_close(&r);
        }
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    vv_every_stored_type_computes(&kind, (struct shape) { 5, { 1, 16, 2, 2, 3 } }, 0.5);
}

/* ---- pictures ---- */

/* RGBA: what does not say how opaque it is is so altogether; more channels are left out. */
static void pictures_may_be_transparent(void **state)
{
    struct vae_wan_config c = small;
    const struct shape four = { 5, { 1, 1, 16, 16, 4 } }, three = { 5, { 1, 1, 16, 16, 3 } };
    float rgba[16 * 16 * 4], rgb[16 * 16 * 3], a[16 * 4], b[16 * 4];
    struct vv_rig r;
    berth_err err = { 0 };
    (void)state;
    c.colours = 4;
    const struct vv_kind four_colours = { .keys = list_keys, .config = &c };
    vv_open(&r, "cpu=64m", vv_file(&four_colours, "rgba", DT_F32), NULL);
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
    vv_close(&r);
}

/* One cover of tiles, where pictures of other VAEs have the mean of three: a tile that is all of it
 * is the whole, and far from seams the rest is near it. */
static void tiles(void **state)
{
    const struct shape z = { 5, { 1, 16, 1, 24, 20 } };
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "tiles", DT_F32), NULL);
    float *in = noise_floats(6, vv_values(&z));
    const size_t n = 3 * 192 * 160;
    float *whole = vv_run(&r, true, in, &z);
    r.j.tile_x = r.j.tile_y = 24;
    r.j.overlap = 8;
    float *one = vv_run(&r, true, in, &z);
    assert_memory_equal(whole, one, n * sizeof *one);
    r.j.tile_x = r.j.tile_y = 18;
    uint64_t before = net_report(r.net).passes;
    float *some = vv_run(&r, true, in, &z);
    assert_int_equal(net_report(r.net).passes - before, 2 * 2);
    assert_memory_not_equal(whole, some, n * sizeof *some);
    free(in), free(whole), free(one), free(some);
    vv_close(&r);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    vv_no_memory_is_survived(&kind, (struct shape) { 5, { 1, 16, 2, 2, 2 } });
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
