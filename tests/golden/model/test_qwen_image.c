/* The Qwen-Image transformers of the golden files: every qwen_image_<model> of the manifest
 * (support/dit_cases.h), and the networks that steer them. */
#include "support/dit_cases.h"

#include "model/qwen_image/qwen_image.h"

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct weights *w, const json_t *c)
{
    struct qwen_image_net net, *q = &net;
    berth_err err = { 0 };
    assert_ok(qwen_image_detect(w, "", &net, &err), err);
    const json_t *axes = json_object_get(c, "axes_dims_rope");
    const char *own = json_string_value(json_object_get(c, "default_ref_method"));
    assert_int_equal(q->refs, dit_method(own ? own : "index"));
    assert_int_equal(q->layered, json_is_true(json_object_get(c, "use_additional_t_cond")));
    assert_int_equal(q->in_channels * QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH,
                     dit_number(c, "in_channels"));
    assert_int_equal(q->out_channels, dit_number(c, "out_channels"));
    assert_int_equal(q->context_dim, dit_number(c, "joint_attention_dim"));
    assert_int_equal(q->heads, dit_number(c, "num_attention_heads"));
    assert_int_equal(q->head_dim, dit_number(c, "attention_head_dim"));
    assert_int_equal(q->depth, dit_number(c, "num_layers"));
    assert_int_equal(dit_number(c, "patch_size"), QWEN_IMAGE_PATCH);
    assert_int_equal(json_array_size(axes), QWEN_IMAGE_AXES);
    for (size_t i = 0; i < QWEN_IMAGE_AXES; i++)
        assert_int_equal(q->axis[i], json_integer_value(json_array_get(axes, i)));
}

/* "out_control/<strength>" and "out_control_ref/<strength>" (looking at ref): steered by hint. */
static void run_control(struct net_rig *g, struct res_model *control, const struct weights *w,
                        const char *file, const char *name)
{
    const struct where at = where_from_env();
    struct dit_case c;
    struct diffusion *d;
    struct shape s;
    berth_err err = { 0 };
    dit_read(&c, w, "out");
    free(c.want);
    c.want = dit_tensor(w, name, &s);
    float *hint = dit_tensor(w, "hint", &s), *out = calloc(c.n, sizeof *out);
    if (!strncmp(name, "out_control_ref/", 16)) {
        c.ref[0].x = dit_tensor(w, "ref", &c.ref[0].shape);
        c.cond.ref = c.ref;
        c.cond.refs = 1;
    }
    struct diffusion_args args = { .res = g->f.r, .m = g->m, .pool = g->pool, .act = at.act };
    struct diffusion_control by = { .m = control,
                                    .hint = hint,
                                    .h = s.dim[3],
                                    .w = s.dim[4],
                                    .strength = strtof(strchr(name, '/') + 1, NULL) };
    const struct diffusion_cond *const list[] = { &c.cond };
    struct diffusion_in in = { .shape = c.shape, .x = c.x, .t = &c.t, .cond = list, .out = out };
    assert_ok(diffusion_open(&args, &d, &err), err);
    assert_ok(diffusion_add_control(d, &by, &err), err);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_near(name, out, c.want, c.n, where_limit(&at, WHERE_MODULE, file, name));
    dit_together(d, &c, out);
    diffusion_close(d);
    free(hint), free(out);
    dit_release(&c);
}

static size_t run_controls(struct net_rig *g, const struct weights *w, const char *name)
{
    struct keys k = { 0 };
    struct res_model *control;
    char file[96];
    size_t cases = 0;
    berth_err err = { 0 };
    if (!weights_find(w, "hint", 4))
        return 0;
    snprintf(file, sizeof file, "%s_control_keys.json", name);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    struct res_open_args args = { .path = keys_file(&k, "control", DT_F32, "safetensors", NULL) };
    keys_release(&k);
    assert_ok(res_open(g->f.r, &args, &control, NULL, &err), err);
    assert_ok(res_load(control, NULL, NULL, &err), err);
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_at(w, i)->name, "out_control", 11)) {
            run_control(g, control, w, name, weights_at(w, i)->name);
            cases++;
        }
    res_unref(control);
    return cases;
}

static void transformers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    dit_models("qwen_image_", compare_config, run_controls);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
