/* UpscaleModelLoader and ImageUpscaleWithModel: pictures, what is told, what is refused. Numbers:
 * tests/golden/model/test_upscaler.c. */
#include "support/loader_rig.h"

#include "node/compute.h"

static struct value *picture(uint64_t n, uint64_t h, uint64_t w, uint64_t c)
{
    const struct shape s = { 4, { n, h, w, c } };
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 31 % 101) / 100;
    return value_tensor(t);
}

struct scene {
    struct rig r;
    struct call loader;
};

static void scene_open(struct scene *s, const char *devices, const char *preset)
{
    char file[80], inputs[120];
    berth_err err = { 0 };
    *s = (struct scene) { .r = { .base = "" } };
    rig_open(&s->r, devices);
    snprintf(file, sizeof file, "upscale_models/%s.safetensors", preset);
    rig_preset(&s->r, file, preset);
    snprintf(inputs, sizeof inputs, "{\"model_name\": \"%s.safetensors\"}", preset);
    assert_ok(rig_run(&s->r, &s->loader, "UpscaleModelLoader", inputs, &err), err);
}

static void scene_close(struct scene *s)
{
    call_release(&s->loader);
    rig_close(&s->r);
}

static void call(struct scene *s, struct call *x, struct value *taken)
{
    rig_call(&s->r, x, "ImageUpscaleWithModel", "{}");
    call_give(x, "upscale_model", s->loader.out[0].at[0]);
    call_give(x, "image", taken);
    value_unref(taken);
}

static void pictures_are_made_larger(void **state)
{
    static const char *const preset[] = { "esrgan-tiny", "esrgan-compact-tiny" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(preset); i++) {
        struct scene s;
        struct call x;
        const struct shape want = { 4, { 2, 28, 44, 3 } };
        berth_err err = { 0 };
        size_t inside = 0;
        scene_open(&s, "cpu=256m", preset[i]);
        assert_string_equal(res_info(call_model(&s.loader, 0)->part[0]).role, "upscale");
        call(&s, &x, picture(2, 7, 11, 3));
        assert_ok(x.c.cls->run(&x.c, &err), err);
        const struct htensor *t = x.out[0].at[0]->tensor;
        assert_true(shape_eq(&t->shape, &want));
        for (size_t k = 0; k < htensor_count(t); k++) {
            assert_true(t->data[k] >= 0 && t->data[k] <= 1);
            inside += t->data[k] > 0 && t->data[k] < 1;
        }
        assert_true(inside > htensor_count(t) / 10);
        call_release(&x);
        scene_close(&s);
    }
}

struct told {
    char text[80];
    json_t *network;
    double at, of;
};

static void hear_text(void *user, const char *s, size_t n)
{
    struct told *t = user;
    if (!strncmp(s, "in ", 3)) /* others are about loading */
        snprintf(t->text, sizeof t->text, "%.*s", (int)n, s);
}

static void hear_network(void *user, json_t *taken)
{
    struct told *t = user;
    json_decref(t->network);
    t->network = taken;
}

/* A device without room for a large tile: smaller ones, told while it works and in the history. */
static void tiles_for_want_of_memory_are_told(void **state)
{
    static const char *const devices[] = { "cpu=256m", "cpu=48m" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(devices); i++) {
        struct scene s;
        struct call x;
        struct told told = { .text = "" };
        berth_err err = { 0 };
        scene_open(&s, devices[i], "esrgan-tiny");
        call(&s, &x, picture(1, 200, 300, 3));
        x.host = (struct node_host) { .user = &told, .text = hear_text, .network = hear_network };
        assert_ok(x.c.cls->run(&x.c, &err), err);
        assert_string_equal(told.text, i ? "in tiles of 128 pixels for want of memory" : "");
        assert_string_equal(json_string_value(json_object_get(told.network, "network")), "upscale");
        assert_int_equal(json_integer_value(json_object_get(told.network, "rungs")) > 0, i);
        assert_int_equal(json_integer_value(json_object_get(told.network, "passes")), i ? 6 : 1);
        json_decref(told.network);
        call_release(&x);
        scene_close(&s);
    }
}

static void wrong_things_are_refused(void **state)
{
    struct scene s;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "cpu=256m", "esrgan-tiny");
    call(&s, &x, picture(1, 8, 8, 4));
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "a picture of 4 channels"));
    call_release(&x);
    rig_preset(&s.r, "upscale_models/vae.safetensors", "vae-tiny");
    assert_int_equal(
        rig_run(&s.r, &x, "UpscaleModelLoader", "{\"model_name\": \"vae.safetensors\"}", &err),
        BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "'vae.safetensors' holds no upscale model: it is a VAE"));
    call_release(&x);
    scene_close(&s);
}

/* A canceled prompt ends between tiles. */
static void cancel_is_heard(void **state)
{
    struct scene s;
    struct call x;
    atomic_bool cancel = true;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "cpu=256m", "esrgan-compact-tiny");
    call(&s, &x, picture(1, 8, 8, 3));
    x.host.cancel = &cancel;
    x.c.host = &x.host;
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ECANCELED);
    call_release(&x);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_made_larger),
        cmocka_unit_test(tiles_for_want_of_memory_are_told),
        cmocka_unit_test(wrong_things_are_refused),
        cmocka_unit_test(cancel_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
