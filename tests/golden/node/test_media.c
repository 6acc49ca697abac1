/* Clips as ComfyUI reads them (PyAV), and its nodes of sound: media.json names the cases, what they
 * are given and what they gave, media.safetensors has the tensors (tools/golden/media.py). */
#include "base/file.h"
#include "node/clips.h"
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/node_rig.h"

#include <math.h>

static struct weights *file;
static json_t *cases;
static char about[160]; /* the case, for messages */

static struct htensor *tensor_of(const char *key)
{
    berth_err err = { 0 };
    struct htensor *t;
    size_t n;
    const struct weights_entry *e = weights_find(file, key, strlen(key));
    if (!e)
        fail_msg("%s: no tensor '%s'", about, key);
    assert_ok(htensor_new(&e->shape, &t, &err), err);
    float *x = golden_floats(file, e, &n);
    memcpy(t->data, x, n * sizeof *x);
    free(x);
    return t;
}

static double number(const json_t *v, const char *key)
{
    double x = 0;
    return js_get_f64(json_object_get(v, key), &x) ? x : 0;
}

static const char *text(const json_t *v, const char *key)
{
    return json_string_value(json_object_get(v, key));
}

static void same(const struct htensor *got, const char *key, double eps)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    struct htensor *want = tensor_of(key);
    if (!shape_eq(&got->shape, &want->shape))
        fail_msg("%s: %s is %s, reference %s", about, key, shape_text(&got->shape, a),
                 shape_text(&want->shape, b));
    for (size_t i = 0; i < htensor_count(want); i++)
        if (!(fabs((double)got->data[i] - (double)want->data[i]) <= eps))
            fail_msg("%s: value %zu of %s is %.9g, reference %.9g", about, i, key,
                     (double)got->data[i], (double)want->data[i]);
    htensor_unref(want);
}

/* ---- clips ---- */

static struct value *load(struct node_rig *r, const json_t *one)
{
    const json_t *part = json_object_get(one, "slice");
    char path[300], *bytes;
    size_t n;
    snprintf(path, sizeof path, "input/%s", text(one, "file"));
    assert_ok(file_read_all(golden_path(text(one, "file")), 1 << 24, &bytes, &n, &r->err), r->err);
    tmp_write(path, bytes, n);
    free(bytes);
    rig_node(r, "LoadVideo");
    rig_text(r, "file", text(one, "file"));
    assert_ok(rig_run(r), r->err);
    struct value *v = value_ref(rig_out(r, 0));
    if (!json_is_array(part))
        return v;
    rig_node(r, "Video Slice");
    rig_set(r, "video", v);
    rig_float(r, "start_time", json_number_value(json_array_get(part, 0)));
    rig_float(r, "duration", json_number_value(json_array_get(part, 1)));
    assert_ok(rig_run(r), r->err);
    return value_ref(rig_out(r, 0));
}

static void clips_are_read_as_comfyui_reads_them(void **state)
{
    struct node_rig *r = *state;
    const json_t *all = json_object_get(cases, "clips");
    if (!media_built())
        skip();
    r->env.media_helper = BERTH_BINARY;
    assert_true(json_array_size(all) >= 8);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        snprintf(about, sizeof about, "clip %zu, %s", i, text(one, "file"));
        struct value *v = load(r, one);
        rig_node(r, "GetVideoComponents");
        rig_set(r, "video", v);
        if (rig_run(r))
            fail_msg("%s: %s", about, r->err.msg);
        same(rig_out(r, 0)->tensor, text(one, "frames"), number(one, "eps"));
        assert_true(rig_out(r, 2)->f == number(one, "fps"));
        assert_int_equal(rig_out(r, 3)->i, (int64_t)number(one, "bit_depth"));
        assert_string_equal(rig_out(r, 4)->s.p, text(one, "color_space"));
        if (!text(one, "sound")) {
            assert_int_equal(rig_out(r, 1)->kind, V_NULL);
            continue;
        }
        const struct audio *a = rig_out(r, 1)->object.obj;
        assert_int_equal(a->rate, (uint32_t)number(one, "rate"));
        same(a->wave, text(one, "sound"), number(one, "sound_eps"));
    }
}

/* ---- sounds ---- */

static struct value *given(const json_t *v)
{
    if (json_is_null(v))
        return value_null();
    if (!json_is_object(v))
        return value_from_json(v);
    return value_audio(tensor_of(text(v, "audio")), (uint32_t)number(v, "rate"));
}

static void sounds_become_what_comfyuis_do(void **state)
{
    struct node_rig *r = *state;
    const json_t *all = json_object_get(cases, "sounds");
    assert_true(json_array_size(all) >= 40);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *outs = json_object_get(one, "outputs");
        json_t *in = json_object_get(one, "inputs");
        snprintf(about, sizeof about, "sound %zu, %s", i, text(one, "class"));
        rig_node(r, text(one, "class"));
        for (void *at = json_object_iter(in); at; at = json_object_iter_next(in, at))
            rig_set(r, json_object_iter_key(at), given(json_object_iter_value(at)));
        if (rig_run(r))
            fail_msg("%s: %s", about, r->err.msg);
        assert_int_equal(json_array_size(outs), r->call.cls->outs);
        for (size_t k = 0; k < json_array_size(outs); k++) {
            const json_t *want = json_array_get(outs, k);
            const struct audio *a = rig_out(r, k)->object.obj;
            assert_int_equal(a->rate, (uint32_t)number(want, "rate"));
            same(a->wave, text(want, "audio"), number(one, "eps"));
        }
    }
}

static int setup(void **state)
{
    berth_err err;
    file = golden_open("media.safetensors");
    assert_ok(js_parse_file(golden_path("media.json"), NULL, &cases, &err), err);
    return rig_setup(state);
}

static int teardown(void **state)
{
    json_decref(cases);
    weights_close(file);
    return rig_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clips_are_read_as_comfyui_reads_them),
        cmocka_unit_test(sounds_become_what_comfyuis_do),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
