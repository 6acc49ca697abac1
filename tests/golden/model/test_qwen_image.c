/* The Qwen-Image transformers of the golden files: every qwen_image_<model> of the manifest, its
 * weights made from <model>_keys.json.
 *
 * A case is an "out..." of the file. "out" and "out_odd" are what x and x_odd give; "out_masked"
 * hides the tokens of attention_mask that are 0; "out_ref/<method>" looks at ref, placed by that
 * method ("own" is the model's), and "out_ref2/<method>" at ref and ref2. Each runs alone, and in a
 * batch with itself and with another noise level, which does not change it. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"
#include "model/qwen_image/qwen_image.h"

#define REFS 2

static const struct weights_entry *entry(const struct weights *w, const char *name)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        fail_msg("no '%s'", name);
    return e;
}

static float *tensor(const struct weights *w, const char *name, struct shape *s)
{
    size_t n;
    *s = entry(w, name)->shape;
    return golden_floats(w, entry(w, name), &n);
}

static uint64_t number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    assert_true(js_get_u64(json_object_get(config, name), &v));
    return v;
}

static enum diffusion_ref_method method_of(const char *name)
{
    static const struct {
        const char *name;
        enum diffusion_ref_method is;
    } list[] = { { "index", REF_INDEX },
                 { "offset", REF_OFFSET },
                 { "negative_index", REF_NEGATIVE_INDEX },
                 { "index_timestep_zero", REF_INDEX_TIMESTEP_ZERO },
                 { "own", REF_OWN } };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (!strcmp(list[i].name, name))
            return list[i].is;
    fail_msg("no method '%s'", name);
    return REF_OWN;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct qwen_image_net *q, const json_t *c)
{
    const json_t *axes = json_object_get(c, "axes_dims_rope");
    const char *own = json_string_value(json_object_get(c, "default_ref_method"));
    assert_int_equal(q->refs, method_of(own ? own : "index"));
    assert_int_equal(q->layered, json_is_true(json_object_get(c, "use_additional_t_cond")));
    assert_int_equal(q->in_channels * QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH,
                     number(c, "in_channels"));
    assert_int_equal(q->out_channels, number(c, "out_channels"));
    assert_int_equal(q->context_dim, number(c, "joint_attention_dim"));
    assert_int_equal(q->heads, number(c, "num_attention_heads"));
    assert_int_equal(q->head_dim, number(c, "attention_head_dim"));
    assert_int_equal(q->depth, number(c, "num_layers"));
    assert_int_equal(number(c, "patch_size"), QWEN_IMAGE_PATCH);
    assert_int_equal(json_array_size(axes), QWEN_IMAGE_AXES);
    for (size_t i = 0; i < QWEN_IMAGE_AXES; i++)
        assert_int_equal(q->axis[i], json_integer_value(json_array_get(axes, i)));
}

struct golden_case {
    struct diffusion_cond cond;
    struct diffusion_ref ref[REFS];
    bool *hidden;
    float *x, *context, *want, t;
    struct shape shape;
    size_t n;
};

static bool *read_hidden(const struct weights *w, size_t tokens)
{
    const struct weights_entry *e = entry(w, "attention_mask");
    int64_t *mask = calloc(tokens, sizeof *mask);
    bool *hidden = calloc(tokens, sizeof *hidden);
    berth_err err = { 0 };
    assert_true(mask && hidden && e->size == tokens * sizeof *mask);
    assert_ok(weights_read(w, e, 0, mask, e->size, &err), err);
    for (size_t i = 0; i < tokens; i++)
        hidden[i] = mask[i] == 0;
    free(mask);
    return hidden;
}

static void case_read(struct golden_case *c, const struct weights *w, const char *name)
{
    static const char *const ref[REFS] = { "ref", "ref2" };
    const char *method = strchr(name, '/');
    struct shape s;
    *c = (struct golden_case) { .n = 1 };
    c->want = tensor(w, name, &c->shape);
    for (int i = 0; i < c->shape.ndim; i++)
        c->n *= (size_t)c->shape.dim[i];
    c->x = tensor(w, strcmp(name, "out_odd") ? "x" : "x_odd", &s);
    assert_true(shape_eq(&s, &c->shape));
    c->context = tensor(w, "context", &s);
    c->cond = (struct diffusion_cond) { .context = c->context,
                                        .tokens = (size_t)s.dim[1],
                                        .width = (size_t)s.dim[2] };
    float *t = tensor(w, "t", &s);
    c->t = t[0];
    free(t);
    if (!strcmp(name, "out_masked"))
        c->cond.hidden = c->hidden = read_hidden(w, c->cond.tokens);
    if (!method)
        return;
    c->cond.ref = c->ref;
    c->cond.ref_method = method_of(method + 1);
    c->cond.refs = strncmp(name, "out_ref2/", 9) ? 1 : 2;
    for (size_t i = 0; i < c->cond.refs; i++)
        c->ref[i].x = tensor(w, ref[i], &c->ref[i].shape);
}

static void case_release(struct golden_case *c)
{
    for (size_t i = 0; i < c->cond.refs; i++)
        free((float *)(uintptr_t)c->ref[i].x);
    free(c->x), free(c->context), free(c->want), free(c->hidden);
}

#define TOGETHER 3

/* Three of it, the second at another noise level. */
static void run_together(struct diffusion *d, const struct golden_case *c, const float *alone)
{
    const struct where at = where_from_env();
    const struct diffusion_cond *const list[TOGETHER] = { &c->cond, &c->cond, &c->cond };
    const float t[TOGETHER] = { c->t, c->t / 2, c->t };
    float *x = calloc(TOGETHER, c->n * sizeof *x), *out = calloc(TOGETHER, c->n * sizeof *out);
    struct diffusion_in in = { .shape = c->shape, .x = x, .t = t, .cond = list, .out = out };
    berth_err err = { 0 };
    assert_true(x && out);
    in.shape.dim[0] = TOGETHER;
    for (size_t i = 0; i < TOGETHER; i++)
        memcpy(x + i * c->n, c->x, c->n * sizeof *x);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_memory_not_equal(out + c->n, alone, c->n * sizeof *out);
    if (!at.card) { /* cards choose kernels by shape */
        assert_memory_equal(out, alone, c->n * sizeof *out);
        assert_memory_equal(out + 2 * c->n, alone, c->n * sizeof *out);
    }
    free(x), free(out);
}

static void run_case(struct diffusion *d, const struct weights *w, const char *file,
                     const char *name)
{
    const struct where at = where_from_env();
    struct golden_case c;
    uint64_t peak;
    berth_err err = { 0 };
    case_read(&c, w, name);
    const struct diffusion_cond *const list[] = { &c.cond };
    float *out = calloc(c.n, sizeof *out);
    struct diffusion_in in = { .shape = c.shape, .x = c.x, .t = &c.t, .cond = list, .out = out };
    assert_non_null(out);
    assert_ok(diffusion_predict(d, &in, &peak, &err), err);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_int_equal(diffusion_report(d).peak, peak);
    assert_near(name, out, c.want, c.n, where_limit(&at, WHERE_MODULE, file, name));
    run_together(d, &c, out);
    free(out);
    case_release(&c);
}

/* "out_control/<strength>" and "out_control_ref/<strength>" (looking at ref): steered by hint. */
static void run_control(struct net_rig *g, struct res_model *control, const struct weights *w,
                        const char *file, const char *name)
{
    const struct where at = where_from_env();
    struct golden_case c;
    struct diffusion *d;
    struct shape s;
    berth_err err = { 0 };
    case_read(&c, w, "out");
    free(c.want);
    c.want = tensor(w, name, &s);
    float *hint = tensor(w, "hint", &s), *out = calloc(c.n, sizeof *out);
    if (!strncmp(name, "out_control_ref/", 16)) {
        c.ref[0].x = tensor(w, "ref", &c.ref[0].shape);
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
    run_together(d, &c, out);
    diffusion_close(d);
    free(hint), free(out);
    case_release(&c);
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

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    struct net_rig g;
    struct diffusion *d;
    struct qwen_image_net q;
    char file[96];
    size_t cases = 0;
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    net_rig_open(&g, at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    assert_ok(qwen_image_detect(res_weights(g.m), "", &q, &err), err);
    compare_config(&q, json_object_get(about, "config"));
    struct diffusion_args args = { .res = g.f.r, .m = g.m, .pool = g.pool, .act = at.act };
    assert_ok(diffusion_open(&args, &d, &err), err);
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_at(w, i)->name, "out", 3) &&
            strncmp(weights_at(w, i)->name, "out_control", 11)) {
            run_case(d, w, name, weights_at(w, i)->name);
            cases++;
        }
    assert_true(cases > 0);
    diffusion_close(d);
    run_controls(&g, w, name);
    net_rig_close(&g);
    weights_close(w);
}

static void transformers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    json_t *manifest, *about;
    const char *name;
    size_t models = 0;
    berth_err err;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, "qwen_image_", 11) != 0)
            continue;
        run_model(name, about);
        models++;
    }
    assert_true(models > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
