/* Nodes that tell Wan of pictures, and runs over what they give: every wan_node_<case> of the
 * manifest (tools/golden/wan.py). A node gets the file's pictures and prompts, and a tiny VAE; what
 * it says of both prompts is held to positive/<name> and negative/<name>, the run behind it to
 * out. */
#include "support/tiny_runs.h"

#define LIMIT 1e-4 /* of what a node says: a VAE has made it */

struct scene {
    struct tiny t;
    struct call unet, vae, node;
    const json_t *about;
    size_t wrong;
};

static struct htensor *tensor_of(const struct scene *s, const char *who, const char *name)
{
    char q[96];
    snprintf(q, sizeof q, "%s/%s", who, name);
    return tiny_tensor(&s->t, q);
}

/* got: of the file; NULL: the file has none either. */
static void compare(struct scene *s, const char *who, const char *name, const struct htensor *got)
{
    struct htensor *want = tensor_of(s, who, name);
    if (!got || !want) {
        if (got || want) {
            print_message("%s %s/%s: said by one alone: WRONG\n", s->t.name, who, name);
            s->wrong++;
        }
        htensor_unref(want);
        return;
    }
    const double off = tiny_off(got, want);
    print_message("%s %s/%s: %.3g off, at most %g\n", s->t.name, who, name, off, LIMIT);
    s->wrong += !(off <= LIMIT);
    htensor_unref(want);
}

static void compare_said(struct scene *s, const char *who, size_t output)
{
    const struct value *v = s->node.out[output].at[0];
    const struct conditioning *x = v->object.obj;
    const struct cond_entry *e = &x->at[0];
    assert_int_equal(x->n, 1);
    compare(s, who, "concat_latent_image", e->concat_latent);
    compare(s, who, "concat_mask", e->concat_mask);
    compare(s, who, "time_dim_concat", e->extra[EXTRA_SUBJECTS]);
    compare(s, who, "vace_frames/0", e->vace ? e->vace->frames : NULL);
    compare(s, who, "vace_mask/0", e->vace ? e->vace->mask : NULL);
    compare(s, who, "reference_latents/0", e->ref ? e->ref->latent : NULL);
}

static void give(struct scene *s, const char *name, struct value *taken)
{
    call_give(&s->node, name, taken);
    value_unref(taken);
}

static struct value *seen(struct htensor *taken)
{
    struct vision_output *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->penultimate = taken;
    o->last = htensor_ref(taken);
    o->embeds = htensor_ref(taken);
    return value_object(&type_vision_output, o);
}

/* How our node for cameras sees it, which the file has under the same name. */
static void give_camera(struct scene *s)
{
    const json_t *camera = json_object_get(s->about, "camera");
    json_t *inputs = json_deep_copy(json_object_get(s->about, "inputs"));
    struct call x;
    berth_err err = { 0 };
    if (!json_is_object(camera)) {
        json_decref(inputs);
        return;
    }
    json_object_del(inputs, "batch_size");
    assert_int_equal(json_object_update(inputs, (json_t *)(uintptr_t)camera), 0);
    char *text = json_dumps(inputs, 0);
    assert_ok(rig_run(&s->t.r, &x, "WanCameraEmbedding", text, &err), err);
    struct htensor *want = tiny_tensor(&s->t, "camera_conditions");
    const double off = tiny_off(x.out[0].at[0]->tensor, want);
    print_message("%s camera: %.3g off, at most %g\n", s->t.name, off, LIMIT);
    s->wrong += !(off <= LIMIT);
    call_give(&s->node, "camera_conditions", x.out[0].at[0]);
    call_release(&x);
    htensor_unref(want);
    free(text);
    json_decref(inputs);
}

static void run_node(struct scene *s)
{
    char *inputs = json_dumps(json_object_get(s->about, "inputs"), 0);
    berth_err err = { 0 };
    size_t i;
    json_t *name;
    rig_call(&s->t.r, &s->node, tiny_text(s->about, "node"), inputs);
    give(s, "positive", tiny_given(&s->t, "context"));
    give(s, "negative", tiny_given(&s->t, "negative"));
    call_give(&s->node, "vae", s->vae.out[0].at[0]);
    json_array_foreach(json_object_get(s->about, "pictures"), i, name)
        give(s, json_string_value(name), value_tensor(tiny_tensor(&s->t, json_string_value(name))));
    json_array_foreach(json_object_get(s->about, "seen"), i, name)
        give(s, json_string_value(name), seen(tiny_tensor(&s->t, json_string_value(name))));
    if (weights_find(s->t.golden, "control_masks", 13))
        give(s, "control_masks", value_tensor(tiny_tensor(&s->t, "control_masks")));
    give_camera(s);
    assert_ok(s->node.c.cls->run(&s->node.c, &err), err);
    free(inputs);
}

/* The run behind it. */
static void run_model(struct scene *s)
{
    const size_t outputs = s->node.c.cls->outs;
    size_t latent = 0;
    char inputs[256];
    struct call x;
    while (latent < outputs && s->node.out[latent].at[0]->kind != V_LATENT)
        latent++;
    assert_true(latent < outputs);
    struct value *cond[2] = { s->node.out[0].at[0], s->node.out[1].at[0] };
    struct htensor *given = tiny_tensor(&s->t, "latent"), *want = tiny_tensor(&s->t, "out");
    assert_true(shape_eq(&given->shape, &call_latent(&s->node, latent)->shape));
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %.0f, \"steps\": %.0f, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}",
             tiny_number(s->about, "seed"), tiny_number(s->about, "steps"),
             tiny_number(s->about, "cfg"));
    tiny_ksample(&s->t, s->unet.out[0].at[0], cond, inputs, value_ref(s->node.out[latent].at[0]),
                 &x);
    const double off = tiny_off(call_latent(&x, 0), want), limit = tiny_limit(&s->t, "out");
    print_message("%s out: %.3g off, at most %g\n", s->t.name, off, limit);
    s->wrong += !(off <= limit);
    call_release(&x);
    htensor_unref(given);
    htensor_unref(want);
}

static size_t run_case(const char *name)
{
    static const char *const vae[] = { "wan_node_vae_keys.json" };
    struct scene s = { .wrong = 0 };
    berth_err err = { 0 };
    tiny_open(&s.t, name);
    s.about = s.t.settings;
    tiny_unet(&s.t, name, &s.unet);
    tiny_write(rig_path(&s.t.r, "vae/wan.safetensors"), vae, 1, 0);
    assert_ok(rig_run(&s.t.r, &s.vae, "VAELoader", "{\"vae_name\": \"wan.safetensors\"}", &err),
              err);
    run_node(&s);
    compare_said(&s, "positive", 0);
    compare_said(&s, "negative", 1);
    if (s.node.out[2].at[0]->kind == V_OBJECT)
        compare_said(&s, "third", 2);
    run_model(&s);
    call_release(&s.node);
    call_release(&s.unet);
    call_release(&s.vae);
    tiny_close(&s.t);
    return s.wrong;
}

static void every_case(void **state)
{
    (void)state;
    where_or_skip();
    json_t *manifest, *about;
    const char *name;
    size_t cases = 0, wrong = 0;
    berth_err err = { 0 };
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, "wan_node_", 9) != 0)
            continue;
        wrong += run_case(name);
        cases++;
    }
    assert_true(cases > 0);
    assert_int_equal(wrong, 0);
    json_decref(manifest);
}

/* A latent in tiles of pixels and of frames. */
static void tiles_of_frames(void **state)
{
    static const char *const keys[] = { "wan_node_vae_keys.json" };
    struct tiny t;
    struct call vae, x;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tiny_open(&t, "wan_tiled");
    char *inputs = json_dumps(json_object_get(t.settings, "inputs"), 0);
    struct value *z = tiny_latent(tiny_tensor(&t, "z"), NULL);
    struct htensor *want = tiny_tensor(&t, "image");
    tiny_write(rig_path(&t.r, "vae/wan.safetensors"), keys, 1, 0);
    assert_ok(rig_run(&t.r, &vae, "VAELoader", "{\"vae_name\": \"wan.safetensors\"}", &err), err);
    rig_call(&t.r, &x, "VAEDecodeTiled", inputs);
    call_give(&x, "samples", z);
    call_give(&x, "vae", vae.out[0].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    const double off = tiny_off(x.out[0].at[0]->tensor, want);
    print_message("tiles: %.3g off, at most %g\n", off, LIMIT);
    assert_true(off <= LIMIT);
    call_release(&x);
    call_release(&vae);
    value_unref(z);
    htensor_unref(want);
    free(inputs);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_case),
                                        cmocka_unit_test(tiles_of_frames) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
