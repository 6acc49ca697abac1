/* Latents: shapes, batches, geometry; numbers worked out by hand. */
#include "support/node_rig.h"

#define SHAPE5(a, b, c, d, e)                                                                      \
    5, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c, d, e                                                                              \
    }
#define SHAPE4(a, b, c, d)                                                                         \
    4, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c, d                                                                                 \
    }
#define SHAPE3(a, b, c)                                                                            \
    3, (size_t[])                                                                                  \
    {                                                                                              \
        a, b, c                                                                                    \
    }

static void empty_ones_have_their_shapes(void **state)
{
    struct node_rig *r = *state;
    static const struct {
        const char *cls;
        int64_t w, h, length;
        struct shape want;
    } t[] = {
        { "EmptyLatentImage", 520, 264, 0, { 4, { 2, 4, 33, 65 } } },
        { "EmptySD3LatentImage", 64, 32, 0, { 4, { 2, 16, 4, 8 } } },
        { "EmptyFlux2LatentImage", 64, 32, 0, { 4, { 2, 128, 2, 4 } } },
        { "EmptyHunyuanImageLatent", 96, 64, 0, { 4, { 2, 64, 2, 3 } } },
        { "EmptyMochiLatentVideo", 64, 32, 25, { 5, { 2, 12, 5, 4, 8 } } },
        { "EmptyHunyuanLatentVideo", 64, 32, 25, { 5, { 2, 16, 7, 4, 8 } } },
        { "EmptyHunyuanVideo15Latent", 64, 32, 25, { 5, { 2, 32, 7, 2, 4 } } },
        { "EmptyLTXVLatentVideo", 64, 64, 97, { 5, { 2, 128, 13, 2, 2 } } },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        rig_node(r, t[i].cls);
        rig_int(r, "width", t[i].w);
        rig_int(r, "height", t[i].h);
        rig_int(r, "batch_size", 2);
        if (t[i].length)
            rig_int(r, "length", t[i].length);
        assert_ok(rig_run(r), r->err);
        const struct latent *l = &rig_out(r, 0)->latent;
        if (!shape_eq(&l->samples->shape, &t[i].want))
            fail_msg("%s", t[i].cls);
        for (size_t k = 0; k < htensor_count(l->samples); k++)
            assert_true(l->samples->data[k] == 0.0f);
    }
}

static struct value *masked(const float *samples, const float *mask, const int64_t *index)
{
    struct latent l = { .samples = rig_htensor(SHAPE4(3, 1, 1, 1), samples) };
    if (mask)
        l.noise_mask = rig_htensor(SHAPE4(3, 1, 1, 1), mask);
    if (index) {
        l.batch_index = malloc(3 * sizeof *index);
        memcpy(l.batch_index, index, 3 * sizeof *index);
    }
    return value_latent(&l);
}

static void from_batch_keeps_mask_and_index(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "LatentFromBatch");
    rig_set(r, "samples", masked((float[]) { 1, 2, 3 }, (float[]) { 4, 5, 6 }, NULL));
    rig_int(r, "batch_index", 1);
    rig_int(r, "length", 5);
    assert_ok(rig_run(r), r->err);
    const struct latent *l = &rig_out(r, 0)->latent;
    rig_expect(l->samples, SHAPE4(2, 1, 1, 1), (float[]) { 2, 3 }, 0);
    rig_expect(l->noise_mask, SHAPE4(2, 1, 1, 1), (float[]) { 5, 6 }, 0);
    assert_true(l->batch_index[0] == 1 && l->batch_index[1] == 2);
    rig_node(r, "LatentFromBatch");
    rig_set(r, "samples", masked((float[]) { 1, 2, 3 }, NULL, (int64_t[]) { 10, 20, 30 }));
    rig_int(r, "batch_index", 63);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 0)->latent.batch_index[0], 30);
}

static void repeat_counts_on(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "RepeatLatentBatch");
    rig_set(r, "samples",
            masked((float[]) { 1, 2, 3 }, (float[]) { 4, 5, 6 }, (int64_t[]) { 2, 5, 3 }));
    rig_int(r, "amount", 2);
    assert_ok(rig_run(r), r->err);
    const struct latent *l = &rig_out(r, 0)->latent;
    rig_expect(l->samples, SHAPE4(6, 1, 1, 1), (float[]) { 1, 2, 3, 1, 2, 3 }, 0);
    rig_expect(l->noise_mask, SHAPE4(6, 1, 1, 1), (float[]) { 4, 5, 6, 4, 5, 6 }, 0);
    int64_t want[] = { 2, 5, 3, 6, 9, 7 }; /* span 5 - 2 + 1 = 4 */
    assert_memory_equal(l->batch_index, want, sizeof want);
}

static void batch_joins(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "LatentBatch");
    rig_set(r, "samples1", rig_latent(SHAPE4(1, 1, 1, 2), (float[]) { 1, 2 }));
    rig_set(r, "samples2", rig_latent(SHAPE4(2, 1, 1, 2), (float[]) { 3, 4, 5, 6 }));
    assert_ok(rig_run(r), r->err);
    const struct latent *l = &rig_out(r, 0)->latent;
    rig_expect(l->samples, SHAPE4(3, 1, 1, 2), (float[]) { 1, 2, 3, 4, 5, 6 }, 0);
    int64_t want[] = { 0, 0, 1 };
    assert_memory_equal(l->batch_index, want, sizeof want);
    rig_node(r, "LatentBatch");
    rig_set(r, "samples1", rig_latent(SHAPE4(1, 1, 1, 2), NULL));
    rig_set(r, "samples2", rig_latent(SHAPE4(1, 2, 1, 2), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "[1, 2, 1, 2]");
}

static void rebatch_regroups_the_list(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "RebatchLatents");
    rig_set(r, "latents", masked((float[]) { 1, 2, 3 }, NULL, NULL));
    rig_set(r, "latents", masked((float[]) { 4, 5, 6 }, (float[]) { 0, 1, 1 }, NULL));
    rig_set(r, "latents", rig_latent(SHAPE4(1, 1, 2, 2), (float[]) { 7, 7, 7, 7 }));
    rig_int(r, "batch_size", 2);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(r->out[0].n, 4);
    float want[4][4] = { { 1, 2 }, { 3, 4 }, { 5, 6 }, { 7, 7, 7, 7 } };
    for (size_t i = 0; i < 4; i++) {
        const struct latent *l = &r->out[0].at[i]->latent;
        assert_memory_equal(l->samples->data, want[i], (i < 3 ? 2 : 4) * sizeof(float));
        assert_true(l->batch_index[0] == (int64_t)(2 * i));
        assert_true((l->noise_mask != NULL) == (i == 1)); /* masks of ones go */
    }
    rig_expect(r->out[0].at[1]->latent.noise_mask, SHAPE4(2, 1, 1, 1), (float[]) { 1, 0 }, 0);
}

static void resized(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "LatentUpscale"); /* at least 64 pixels: 8 x 8 */
    rig_set(r, "samples", rig_latent(SHAPE4(1, 2, 1, 2), (float[]) { 1, 1, 2, 2 }));
    rig_int(r, "width", 8);
    rig_int(r, "height", 8);
    rig_text(r, "upscale_method", "nearest-exact");
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->latent.samples;
    assert_true(t->shape.dim[2] == 8 && t->shape.dim[3] == 8 && t->data[0] == 1.0f &&
                t->data[64] == 2.0f);
    rig_node(r, "LatentUpscale"); /* width by the ratio: 2 * 128 / 1 pixels */
    rig_set(r, "samples", rig_latent(SHAPE4(1, 1, 1, 2), NULL));
    rig_int(r, "width", 0);
    rig_int(r, "height", 128);
    rig_text(r, "upscale_method", "bislerp");
    assert_ok(rig_run(r), r->err);
    t = rig_out(r, 0)->latent.samples;
    assert_true(t->shape.dim[2] == 16 && t->shape.dim[3] == 32);
    rig_node(r, "LatentUpscaleBy"); /* video: each frame */
    rig_set(r, "samples", rig_latent(SHAPE5(1, 1, 2, 1, 1), (float[]) { 1, 2 }));
    rig_float(r, "scale_by", 2.0);
    rig_text(r, "upscale_method", "bilinear");
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE5(1, 1, 2, 2, 2),
               (float[]) { 1, 1, 1, 1, 2, 2, 2, 2 }, 1e-6f);
    rig_node(r, "LatentUpscaleBy");
    rig_set(r, "samples", rig_latent(SHAPE5(1, 2, 2, 1, 1), (float[]) { 1, 2, 3, 4 })); /* [c][t] */
    rig_float(r, "scale_by", 2.0);
    rig_text(r, "upscale_method", "bislerp");
    assert_ok(rig_run(r), r->err);
    float same[16];
    for (size_t i = 0; i < 16; i++)
        same[i] = (float)(1 + i / 4);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE5(1, 2, 2, 2, 2), same, 1e-5f);
}

static void turned(struct node_rig *r, const char *cls, const char *input, const char *how,
                   size_t h, size_t w, const float *want)
{
    rig_node(r, cls);
    rig_set(r, "samples", rig_latent(SHAPE4(1, 1, 2, 3), (float[]) { 1, 2, 3, 4, 5, 6 }));
    rig_text(r, input, how);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE4(1, 1, h, w), want, 0);
}

static void rotated_and_flipped(void **state)
{
    struct node_rig *r = *state;
    turned(r, "LatentRotate", "rotation", "none", 2, 3, (float[]) { 1, 2, 3, 4, 5, 6 });
    turned(r, "LatentRotate", "rotation", "90 degrees", 3, 2, (float[]) { 4, 1, 5, 2, 6, 3 });
    turned(r, "LatentRotate", "rotation", "180 degrees", 2, 3, (float[]) { 6, 5, 4, 3, 2, 1 });
    turned(r, "LatentRotate", "rotation", "270 degrees", 3, 2, (float[]) { 3, 6, 2, 5, 1, 4 });
    turned(r, "LatentFlip", "flip_method", "x-axis: vertically", 2, 3,
           (float[]) { 4, 5, 6, 1, 2, 3 });
    turned(r, "LatentFlip", "flip_method", "y-axis: horizontally", 2, 3,
           (float[]) { 3, 2, 1, 6, 5, 4 });
}

static void cropped(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "LatentCrop"); /* pixels are eighths; at least 8 x 8 stay */
    rig_set(r, "samples", rig_latent(SHAPE4(1, 1, 10, 12), NULL));
    rig_int(r, "width", 64);
    rig_int(r, "height", 512);
    rig_int(r, "x", 16384);
    rig_int(r, "y", 8);
    assert_ok(rig_run(r), r->err);
    const struct htensor *t = rig_out(r, 0)->latent.samples;
    assert_true(t->shape.dim[2] == 9 && t->shape.dim[3] == 8);
    assert_true(t->data[0] == (float)(1 * 12 + 4) / 64.0f);
}

static void composed(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "LatentComposite");
    rig_set(r, "samples_to", rig_latent(SHAPE4(1, 1, 1, 4), (float[]) { 0, 0, 0, 0 }));
    rig_set(r, "samples_from", rig_latent(SHAPE4(1, 1, 1, 2), (float[]) { 8, 9 }));
    rig_int(r, "x", 24);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE4(1, 1, 1, 4), (float[]) { 0, 0, 0, 8 }, 0);
    rig_node(r, "LatentComposite"); /* it fades only where there is something to fade into */
    rig_set(r, "samples_to", rig_latent(SHAPE4(1, 1, 1, 4), (float[]) { 0, 0, 0, 0 }));
    rig_set(r, "samples_from", rig_latent(SHAPE4(1, 1, 1, 3), (float[]) { 1, 1, 1 }));
    rig_int(r, "x", 8);
    rig_int(r, "feather", 16);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE4(1, 1, 1, 4), (float[]) { 0, 0.5f, 1, 1 }, 0);
    rig_node(r, "LatentComposite");
    rig_set(r, "samples_to", rig_latent(SHAPE4(1, 1, 1, 4), NULL));
    rig_set(r, "samples_from", rig_latent(SHAPE5(1, 1, 1, 1, 3), NULL));
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "[1, 1, 1, 1, 3]");
    rig_node(r, "LatentBlend");
    rig_set(r, "samples1", rig_latent(SHAPE4(1, 1, 1, 2), (float[]) { 1, 2 }));
    rig_set(r, "samples2", rig_latent(SHAPE4(1, 1, 1, 2), (float[]) { 5, 6 }));
    rig_float(r, "blend_factor", 0.25);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE4(1, 1, 1, 2), (float[]) { 4, 5 }, 1e-6f);
}

static void masked_and_trimmed(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "SetLatentNoiseMask");
    struct value *v = rig_latent(SHAPE4(1, 1, 1, 2), (float[]) { 1, 2 });
    rig_set(r, "samples", v);
    rig_set(r, "mask", rig_tensor(SHAPE3(2, 1, 2), (float[]) { 1, 2, 3, 4 }));
    assert_ok(rig_run(r), r->err);
    assert_ptr_equal(rig_out(r, 0)->latent.samples, v->latent.samples); /* shared */
    rig_expect(rig_out(r, 0)->latent.noise_mask, SHAPE4(2, 1, 1, 2), (float[]) { 1, 2, 3, 4 }, 0);
    rig_node(r, "TrimVideoLatent");
    rig_set(r, "samples", rig_latent(SHAPE5(1, 2, 3, 1, 1), (float[]) { 1, 2, 3, 4, 5, 6 }));
    rig_int(r, "trim_amount", 1);
    assert_ok(rig_run(r), r->err);
    rig_expect(rig_out(r, 0)->latent.samples, SHAPE5(1, 2, 2, 1, 1), (float[]) { 2, 3, 5, 6 }, 0);
    rig_node(r, "TrimVideoLatent");
    rig_set(r, "samples", rig_latent(SHAPE5(1, 1, 3, 1, 1), NULL));
    rig_int(r, "trim_amount", 3);
    assert_fails(rig_run(r), r->err, BERTH_EINVAL, "3 frames");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_ones_have_their_shapes),
        cmocka_unit_test(from_batch_keeps_mask_and_index),
        cmocka_unit_test(repeat_counts_on),
        cmocka_unit_test(batch_joins),
        cmocka_unit_test(rebatch_regroups_the_list),
        cmocka_unit_test(resized),
        cmocka_unit_test(rotated_and_flipped),
        cmocka_unit_test(cropped),
        cmocka_unit_test(composed),
        cmocka_unit_test(masked_and_trimmed),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
