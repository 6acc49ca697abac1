/* The VAE of Mochi's kind: what files it is read from, halves, pieces of a video, placements,
 * memory. Its numbers are in tests/golden/model/test_mochi.c. */
#include "support/video_vae.h"

#include "model/vae_mochi/presets.h"
#include "model/vae_mochi/vae_mochi.h"

static const struct vae_mochi_config small = {
    .encoder = 32, .decoder = 32, .latents = 8, .blocks = 1
};

static void list_keys(struct keys *k, const void *c)
{
    keys_vae_mochi(k, c);
}

static const struct vv_kind kind = { .keys = list_keys, .config = &small, .large = true };

/* ---- config ---- */

static void config_is_read_from_shapes(void **state)
{
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "config", DT_F16), NULL);
    assert_ptr_equal(r.v.family, &vae_mochi);
    assert_true(r.v.encoder && r.v.decoder && r.v.colours == 3);
    assert_int_equal(r.v.latent.channels, 8);
    assert_int_equal(r.v.latent.ratio, 8);
    assert_int_equal(r.v.latent.time_ratio, 6);
    assert_int_equal(vae_mochi_in(&r.v)->levels, 3);
    assert_memory_equal(vae_mochi_in(&r.v)->grow, ((const uint8_t[]) { 3, 2, 1 }), 3);
    assert_memory_equal(vae_mochi_in(&r.v)->shrink, ((const uint8_t[]) { 1, 2, 3 }), 3);
    vv_close(&r);
}

static void others_are_refused(void **state)
{
    static const struct vv_edit list[] = {
        { "decoder.blocks.0.0.weight", 1, 9, "halves differ" },
        { "decoder.output_proj.weight", 0, 4, "not of colours" },
        { "decoder.blocks.1.proj.weight", 0, 7 * 128, "makes cells of 7" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        vv_refused(vv_file_changed(&kind, "other", vv_edited, &list[i]), list[i].said);
}

/* One half, under names that do not say which it is. */
static bool bare(const void *user, const struct key *key, char *name, size_t cap, struct shape *s)
{
    snprintf(name, cap, "%s", key->name + strlen("decoder."));
    return vv_without(user, key, name, cap, s);
}

static void each_half_alone(void **state)
{
    const struct shape z = { 5, { 1, 8, 1, 2, 2 } }, x = { 5, { 1, 3, 1, 16, 16 } };
    (void)state;
    vv_each_half_alone(&kind, vv_without, z, x);
    vv_each_half_alone(&kind, bare, z, x);
}

/* ---- video ---- */

/* The decoder holds a latent frame at a time. */
static void memory_grows_little_with_the_video(void **state)
{
    struct shape z = { 5, { 1, 8, 6, 4, 4 } };
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "long", DT_F16), NULL);
    const uint64_t some = vv_predicted(&r, true, &z);
    z.dim[2] = 14;
    const uint64_t more = vv_predicted(&r, true, &z);
    const uint64_t pictures = 8 * 6 * 3 * 32 * 32 * sizeof(float);
    assert_true(more <= some + pictures + pictures / 4);
    vv_close(&r);
}

static void the_decoder_looks_back(void **state)
{
    struct vv_rig r;
    (void)state;
    vv_open(&r, "cpu=256m", vv_file(&kind, "back", DT_F32), NULL);
    vv_looks_back(&r, true, (struct shape) { 5, { 1, 8, 2, 2, 2 } });
    vv_close(&r);
}

static void the_same_wherever_blocks_live(void **state)
{
    const struct shape z = { 5, { 1, 8, 3, 2, 2 } }, x = { 5, { 1, 3, 7, 16, 16 } };
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
        cmocka_unit_test(the_decoder_looks_back),
        cmocka_unit_test(the_same_wherever_blocks_live),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
