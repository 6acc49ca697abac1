/* LTX-Video through its nodes, on tiny models: every form of the loaders, a checkpoint of model and
 * VAE, videos that begin with a picture, guides. Numbers are held to ComfyUI's in tests/golden. */
#include "support/dit_scene.h"

#include "model/ltxv/ltxv.h"

#define WIDTH 64 /* of the tiny T5 */
#define T 3
#define SIDE 2 /* of latents */

static int setup(void **state)
{
    static struct scene s;
    s = (struct scene) { .type = "ltxv", .width = WIDTH };
    rig_open(&s.r, DIT_DEVICES);
    rig_preset(&s.r, "diffusion_models/ltxv.safetensors", "ltxv-tiny");
    rig_preset(&s.r, "diffusion_models/ltxv.gguf", "ltxv-tiny");
    rig_preset(&s.r, "checkpoints/ltxv.safetensors", "ltxv-checkpoint-tiny");
    rig_preset(&s.r, "vae/ltxv.safetensors", "ltxv-tiny-vae");
    scene_load(&s, &s.unet, "UNETLoader", "unet_name", "ltxv.safetensors", "");
    scene_load(&s, &s.vae, "VAELoader", "vae_name", "ltxv.safetensors", "");
    s.prompt[0] = scene_prompt(&s, 11);
    s.prompt[1] = scene_prompt(&s, 4);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    call_release(&s->unet);
    call_release(&s->vae);
    value_unref(s->prompt[0]);
    value_unref(s->prompt[1]);
    rig_close(&s->r);
    return 0;
}

/* ---- what the tests share ---- */

static struct value *empty_latent(struct scene *s)
{
    struct call x;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &x, "EmptyLTXVLatentVideo",
                      "{\"width\": 64, \"height\": 64, \"length\": 17, \"batch_size\": 1}", &err),
              err);
    struct value *v = value_ref(scene_output(&x));
    call_release(&x);
    return v;
}

static struct htensor *use_model(void *scene, struct value *model)
{
    struct scene *s = scene;
    struct value *latent = empty_latent(s);
    struct htensor *t = scene_sample(s, model, s->prompt[0], s->prompt[1], latent);
    value_unref(latent);
    return t;
}

static void add(struct scene *s, struct call *x, struct value *const cond[2], struct value *latent,
                struct value *image, const char *inputs)
{
    rig_call(&s->r, x, "LTXVAddGuide", inputs);
    call_give(x, "positive", cond[0]);
    call_give(x, "negative", cond[1]);
    call_give(x, "vae", scene_output(&s->vae));
    call_give(x, "latent", latent);
    call_give(x, "image", image);
}

static const struct cond_entry *entry(const struct call *x, size_t output)
{
    return scene_entry(x->out[output].at[0]);
}

/* ---- loaders ---- */

static void every_form_of_the_loaders(void **state)
{
    static const char *const models[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP", NULL };
    struct scene *s = *state;
    assert_int_equal(scene_forms(s, models, "unet_name", "ltxv", use_model), 12);
}

static void model_and_vae_in_one_file(void **state)
{
    static const char *const cls[] = { "CheckpointLoaderSimple", "CheckpointLoaderSimpleMultiGPU",
                                       "CheckpointLoaderSimpleDisTorch2MultiGPU" };
    static const char *const more[] = { "", ", \"device\": \"cuda:0\"",
                                        ", \"compute_device\": \"cuda:0\", "
                                        "\"virtual_vram_gb\": 0.001" };
    struct scene *s = *state;
    struct htensor *want = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cls); i++) {
        struct call x, pixels;
        scene_load(s, &x, cls[i], "ckpt_name", "ltxv.safetensors", more[i]);
        struct htensor *z = use_model(s, x.out[0].at[0]);
        struct htensor *got = htensor_ref(scene_decode(s, &pixels, x.out[2].at[0], z)->tensor);
        assert_true(dim(got, 0) == 17 && dim(got, 1) == 64 && dim(got, 2) == 64);
        assert_true(!want || form_same(got, want));
        htensor_unref(want);
        want = got;
        call_release(&pixels);
        call_release(&x);
    }
    htensor_unref(want);
}

/* ---- pictures ---- */

/* What the mask keeps comes out as it was put in. */
static void a_picture_is_kept(void **state)
{
    struct scene *s = *state;
    struct value *image = scene_picture(1, 40, 50, 3);
    struct call x;
    berth_err err = { 0 };
    rig_call(&s->r, &x, "LTXVImgToVideo",
             "{\"width\": 64, \"height\": 64, \"length\": 17, \"batch_size\": 2, \"strength\": 1}");
    call_give(&x, "positive", s->prompt[0]);
    call_give(&x, "negative", s->prompt[1]);
    call_give(&x, "vae", scene_output(&s->vae));
    call_give(&x, "image", image);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    const struct latent *l = &x.out[2].at[0]->latent;
    assert_true(dim(l->samples, 0) == 2 && dim(l->samples, 2) == T);
    assert_true(l->noise_mask->shape.ndim == 5 && dim(l->noise_mask, 3) == 1);
    for (size_t i = 0; i < 2 * T; i++)
        assert_true(l->noise_mask->data[i] == (i % T ? 1 : 0));
    struct htensor *t =
        scene_sample(s, scene_output(&s->unet), s->prompt[0], s->prompt[1], x.out[2].at[0]);
    const size_t plane = SIDE * SIDE;
    for (size_t i = 0; i < 2 * 128; i++) {
        for (size_t k = 0; k < plane; k++)
            assert_true(fabsf(t->data[i * T * plane + k] - l->samples->data[i * T * plane + k]) <=
                        1e-5f * (1 + fabsf(l->samples->data[i * T * plane + k])));
        assert_memory_not_equal(t->data + (i * T + 1) * plane,
                                l->samples->data + (i * T + 1) * plane, plane * sizeof *t->data);
    }
    htensor_unref(t);
    call_release(&x);
    value_unref(image);
}

static void too_many_pictures_are_refused(void **state)
{
    struct scene *s = *state;
    struct value *image = scene_picture(18, 64, 64, 3);
    struct call x;
    berth_err err = { 0 };
    rig_call(&s->r, &x, "LTXVImgToVideo",
             "{\"width\": 64, \"height\": 64, \"length\": 9, \"batch_size\": 1, \"strength\": 1}");
    call_give(&x, "positive", s->prompt[0]);
    call_give(&x, "negative", s->prompt[1]);
    call_give(&x, "vae", scene_output(&s->vae));
    call_give(&x, "image", image);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL,
                 "18 pictures are more than the 9 frames");
    call_release(&x);
    value_unref(image);
}

/* ---- guides ---- */

static void guides_come_and_go(void **state)
{
    struct scene *s = *state;
    struct value *one = scene_picture(1, 64, 64, 3), *many = scene_picture(16, 50, 70, 3);
    struct value *latent = empty_latent(s);
    struct call first, second, crop, pixels;
    berth_err err = { 0 };
    add(s, &first, s->prompt, latent, one, "{\"frame_idx\": -1, \"strength\": 0.75}");
    assert_ok(first.c.cls->run(&first.c, &err), err);
    const struct latent *l = &first.out[2].at[0]->latent;
    assert_true(dim(l->samples, 2) == T + 1 && dim(l->noise_mask, 2) == T + 1);
    assert_true(l->noise_mask->data[T - 1] == 1 && l->noise_mask->data[T] == 0.25f);
    const struct cond_guide *g = entry(&first, 0)->guide;
    assert_true(g && !g->before && g->at == 16 && g->frames == 1 && g->first && g->rows == SIDE);
    assert_true(entry(&first, 1)->guide && !scene_entry(s->prompt[0])->guide);
    /* in the middle, at a frame that begins a latent one: eight pictures each */
    struct value *const cond[2] = { first.out[0].at[0], first.out[1].at[0] };
    add(s, &second, cond, first.out[2].at[0], many, "{\"frame_idx\": 5, \"strength\": 1}");
    assert_ok(second.c.cls->run(&second.c, &err), err);
    l = &second.out[2].at[0]->latent;
    assert_true(dim(l->samples, 2) == T + 3 && l->noise_mask->data[T + 2] == 0);
    g = entry(&second, 0)->guide;
    assert_true(g && g->before && g->at == 1 && g->frames == 2 && !g->first);
    struct htensor *t = scene_sample(s, scene_output(&s->unet), second.out[0].at[0],
                                     second.out[1].at[0], second.out[2].at[0]);
    struct latent sampled = { .samples = t };
    struct value *v = value_latent(&sampled);
    rig_call(&s->r, &crop, "LTXVCropGuides", "{}");
    call_give(&crop, "positive", second.out[0].at[0]);
    call_give(&crop, "negative", second.out[1].at[0]);
    call_give(&crop, "latent", v);
    assert_ok(crop.c.cls->run(&crop.c, &err), err);
    l = &crop.out[2].at[0]->latent;
    assert_true(dim(l->samples, 2) == T && dim(l->noise_mask, 2) == T);
    assert_memory_equal(l->samples->data, t->data, T * SIDE * SIDE * sizeof *t->data);
    assert_true(!entry(&crop, 0)->guide && !entry(&crop, 1)->guide);
    assert_true(entry(&second, 0)->guide);
    const struct htensor *p =
        scene_decode(s, &pixels, scene_output(&s->vae), htensor_ref(l->samples))->tensor;
    assert_int_equal(dim(p, 0), 17);
    call_release(&pixels);
    call_release(&crop);
    call_release(&second);
    call_release(&first);
    value_unref(v);
    value_unref(latent);
    value_unref(one);
    value_unref(many);
}

/* The mask's pixels share out over latent pixels and frames. */
static void a_mask_weighs_a_guide(void **state)
{
    struct scene *s = *state;
    struct value *many = scene_picture(9, 64, 64, 3), *latent = empty_latent(s);
    struct htensor *m;
    struct call x;
    berth_err err = { 0 };
    const struct shape shape = { 3, { 9, 4, 4 } };
    assert_ok(htensor_new(&shape, &m, &err), err);
    for (size_t i = 0; i < htensor_count(m); i++)
        m->data[i] = i < 16 ? (i % 4 < 2 ? 1 : 0) : (float)(i / 16 % 2);
    struct value *mask = value_tensor(m);
    add(s, &x, s->prompt, latent, many, "{\"frame_idx\": 0, \"strength\": 1}");
    call_give(&x, "attention_mask", mask);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    const struct cond_guide *g = entry(&x, 0)->guide;
    assert_true(g && g->weight && g->first && g->frames == 2 && htensor_count(g->weight) == 8);
    static const float want[] = { 1, 0, 1, 0, 0.5f, 0.5f, 0.5f, 0.5f };
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        assert_true(g->weight->data[i] == want[i]);
    struct htensor *t =
        scene_sample(s, scene_output(&s->unet), x.out[0].at[0], x.out[1].at[0], x.out[2].at[0]);
    htensor_unref(t);
    call_release(&x);
    value_unref(mask);
    value_unref(latent);
    value_unref(many);
}

static void bad_guides_are_refused(void **state)
{
    static const struct {
        size_t pictures;
        const char *inputs, *said;
    } list[] = {
        { 9, "{\"frame_idx\": 17, \"strength\": 1}", "goes beyond the 3 of the video" },
        { 25, "{\"frame_idx\": 0, \"strength\": 1}", "goes beyond" },
        { 1, "{\"frame_idx\": 999, \"strength\": 1}", "goes beyond" },
    };
    struct scene *s = *state;
    struct value *latent = empty_latent(s);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct value *image = scene_picture(list[i].pictures, 64, 64, 3);
        struct call x;
        berth_err err = { 0 };
        add(s, &x, s->prompt, latent, image, list[i].inputs);
        assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, list[i].said);
        call_release(&x);
        value_unref(image);
    }
    value_unref(latent);
}

static void a_frame_rate_is_above_zero(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    rig_call(&s->r, &x, "LTXVConditioning", "{\"frame_rate\": 0}");
    call_give(&x, "positive", s->prompt[0]);
    call_give(&x, "negative", s->prompt[1]);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "a frame rate of 0");
    call_release(&x);
    rig_call(&s->r, &x, "LTXVConditioning", "{\"frame_rate\": 24}");
    call_give(&x, "positive", s->prompt[0]);
    call_give(&x, "negative", s->prompt[1]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    assert_true(entry(&x, 0)->frame_rate == 24 && entry(&x, 1)->frame_rate == 24);
    call_release(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_the_loaders),
        cmocka_unit_test(model_and_vae_in_one_file),
        cmocka_unit_test(a_picture_is_kept),
        cmocka_unit_test(too_many_pictures_are_refused),
        cmocka_unit_test(guides_come_and_go),
        cmocka_unit_test(a_mask_weighs_a_guide),
        cmocka_unit_test(bad_guides_are_refused),
        cmocka_unit_test(a_frame_rate_is_above_zero),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
