/* The VAE of HunyuanVideo's kind: what files it is read from, halves, pieces of a video,
 * placements, memory. Its numbers are in tests/golden/model/test_hunyuan_video.c. */
#include "support/video_vae.h"

#include "model/vae_hunyuan/presets.h"
#include "model/vae_hunyuan/vae_hunyuan.h"

static const struct vae_hunyuan_config small = { .ch = 32, .z_channels = 8, .blocks = 1 };

static void list_keys(struct keys *k, const void *c)
{
    keys_vae_hunyuan(k, c);
}

static const struct vv_kind kind = { .keys = list_keys, .config = &small, .large = true };

/* ---- config ---- */

static void config_is_read_from_shapes(void **state)
{
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "config", DT_F16), NULL);
    assert_ptr_equal(r.v.family, &vae_hunyuan);
    assert_true(r.v.encoder && r.v.decoder && r.v.colours == 3);
    assert_int_equal(r.v.latent.channels, 8);
    assert_int_equal(r.v.latent.ratio, 8);
    assert_int_equal(r.v.latent.time_ratio, 4);
    assert_int_equal(vae_hunyuan_in(&r.v)->levels, 4);
    assert_true(vae_hunyuan_in(&r.v)->quant);
    vv_close(&r);
}

static void others_are_refused(void **state)
{
    static const struct vv_edit list[] = {
        { "decoder.conv_in.conv.weight", 1, 32, "halves differ" },
        { "decoder.conv_out.conv.weight", 0, 4, "not of colours" },
        { "encoder.conv_in.conv.weight", 1, 4, "not of colours" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        vv_refused(vv_file_changed(&kind, "other", vv_edited, &list[i]), list[i].said);
}

static void each_half_alone(void **state)
{
    const struct shape z = { 5, { 1, 8, 1, 2, 2 } }, x = { 5, { 1, 3, 1, 16, 16 } };
    (void)state;
    vv_each_half_alone(&kind, vv_without, z, x);
}

/* ---- video ---- */

/* The middle is of all latent frames; what comes after grows by two of them at a time. */
static void memory_grows_little_with_the_video(void **state)
{
    struct shape z = { 5, { 1, 8, 6, 4, 4 } };
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "long", DT_F16), NULL);
    const uint64_t some = vv_predicted(&r, true, &z);
    z.dim[2] = 14;
    const uint64_t more = vv_predicted(&r, true, &z);
    const uint64_t pictures = 8 * 4 * 3 * 32 * 32 * sizeof(float);
    const uint64_t deep = 8 * 8 * 128 * 4 * 4 * sizeof(float); /* some activations in the middle */
    assert_true(more <= some + pictures + deep);
    vv_close(&r);
}

/* A piece of a video is not what the same frames are alone, but for its first picture. */
static void the_first_picture_is_a_piece(void **state)
{
    const struct shape nine = { 5, { 1, 3, 9, 16, 16 } }, first = { 5, { 1, 3, 1, 16, 16 } };
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "first", DT_F32), NULL);
    assert_int_equal(vae_encoded(&r.v, &nine).dim[2], 3);
    assert_int_equal(vae_encoded(&r.v, &first).dim[2], 1);
    float *x = noise_floats(4, vv_values(&nine)), *z = vv_run(&r, false, x, &nine);
    const struct shape zs = vae_encoded(&r.v, &nine);
    float *back = vv_run(&r, true, z, &zs);
    for (size_t i = 0; i < vv_values(&nine); i++)
        assert_true(isfinite(back[i]));
    free(x), free(z), free(back);
    vv_close(&r);
}

static void the_same_wherever_blocks_live(void **state)
{
    const struct shape z = { 5, { 1, 8, 3, 2, 2 } }, x = { 5, { 1, 3, 9, 16, 16 } };
    (void)state;
    vv_same_wherever(&kind, z, x);
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    vv_every_stored_type_computes(&kind, (struct shape) { 5, { 1, 8, 2, 2, 3 } }, 1.5);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    vv_no_memory_is_survived(&kind, (struct shape) { 5, { 1, 8, 2, 2, 2 } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(each_half_alone),
        cmocka_unit_test(memory_grows_little_with_the_video),
        cmocka_unit_test(the_first_picture_is_a_piece),
        cmocka_unit_test(the_same_wherever_blocks_live),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
