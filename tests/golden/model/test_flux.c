/* The Flux transformers of the golden files: every flux_<model> of the manifest, its weights made
 * from flux_<model>_keys.json.
 *
 * A case is an "out<tail>" of the file: what x<tail> gives, with the context and vec that all
 * share; its noise level stands in the note ("out: t=0.7 guidance 3.5; out_odd: t=0.25, ..."), its
 * guidance too where it is another than the case before has. Each runs as it is stored, and as a
 * file in diffusers' names. */
#include "support/flux_files.h"
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"
#include "model/flux/flux.h"

static float *tensor(const struct weights *w, const char *name, const char *tail, struct shape *s)
{
    char full[64];
    size_t n;
    int len = snprintf(full, sizeof full, "%s%s", name, tail);
    const struct weights_entry *e = weights_find(w, full, (size_t)len);
    *s = e ? e->shape : (struct shape) { 0 };
    return e ? golden_floats(w, e, &n) : NULL;
}

static uint64_t number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    return js_get_u64(json_object_get(config, name), &v) ? v : 0;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct flux_net *f, const json_t *c)
{
    const json_t *axes = json_object_get(c, "axes_dim");
    assert_int_equal(f->in_channels, number(c, "in_channels"));
    assert_int_equal(f->out_channels, number(c, "out_channels"));
    assert_int_equal(f->vec_dim, number(c, "vec_in_dim"));
    assert_int_equal(f->context_dim, number(c, "context_in_dim"));
    assert_int_equal(f->hidden, number(c, "hidden_size"));
    assert_int_equal(f->heads, number(c, "num_heads"));
    assert_int_equal(f->depth, number(c, "depth"));
    assert_int_equal(f->depth_single, number(c, "depth_single_blocks"));
    assert_true((double)f->mlp ==
                (double)f->hidden * json_number_value(json_object_get(c, "mlp_ratio")));
    assert_int_equal(f->guidance, json_is_true(json_object_get(c, "guidance_embed")));
    assert_int_equal(json_array_size(axes), FLUX_AXES);
    for (size_t i = 0; i < FLUX_AXES; i++)
        assert_int_equal(f->axis[i], json_integer_value(json_array_get(axes, i)));
}

/* "<name>: t=<number>[ guidance <number>]" */
static void read_note(const char *note, const char *name, float *t, float *guidance)
{
    char key[64];
    snprintf(key, sizeof key, "%s: t=", name);
    const char *at = note ? strstr(note, key) : NULL;
    if (!at || sscanf(at + strlen(key), "%f guidance %f", t, guidance) < 1)
        fail_msg("the note says nothing of '%s': %s", name, note ? note : "none");
}

static void run_case(struct diffusion *d, const struct weights *w, const char *what,
                     const char *file, const char *tail, float t, float guidance)
{
    const struct where at = where_from_env();
    struct shape xs, cs, ys, os;
    float *x = tensor(w, "x", tail, &xs), *context = tensor(w, "context", "", &cs),
          *y = tensor(w, "vec", "", &ys), *want = tensor(w, "out", tail, &os);
    size_t n = (size_t)(os.dim[0] * os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    char text[96], out_name[64];
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(x && context && y && want && out && xs.dim[0] == 1);
    struct diffusion_cond c = { .context = context,
                                .tokens = (size_t)cs.dim[1],
                                .width = (size_t)cs.dim[2],
                                .pooled = y,
                                .pooled_n = (size_t)ys.dim[1],
                                .guided = 1,
                                .guidance = guidance };
    const struct diffusion_cond *const list[] = { &c };
    struct diffusion_in in = { .shape = xs, .x = x, .t = &t, .cond = list, .out = out };
    assert_ok(diffusion_predict(d, &in, &peak, &err), err);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_int_equal(diffusion_report(d).peak, peak);
    snprintf(text, sizeof text, "%s out%s", what, tail);
    snprintf(out_name, sizeof out_name, "out%s", tail);
    assert_near(text, out, want, n, where_limit(&at, WHERE_MODULE, file, out_name));
    free(x), free(context), free(y), free(want), free(out);
}

/* ---- models ---- */

static void run_file(const char *path, const struct weights *w, const char *what, const char *file,
                     const json_t *about)
{
    const struct where at = where_from_env();
    const char *note = json_string_value(json_object_get(about, "note"));
    struct net_rig g;
    struct diffusion *d;
    struct flux_net f;
    float t = 0, guidance = 0;
    size_t cases = 0;
    berth_err err = { 0 };
    net_rig_open(&g, at.devices, path, NULL, NULL);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    assert_ok(flux_detect(res_weights(g.m), "", &f, &err), err);
    compare_config(&f, json_object_get(about, "config"));
    struct diffusion_args args = {
        .res = g.f.r, .m = g.m, .pool = g.pool, .act = at.act, .exact_guidance = true
    };
    assert_ok(diffusion_open(&args, &d, &err), err);
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *name = weights_at(w, i)->name;
        if (strncmp(name, "out", 3) != 0)
            continue;
        read_note(note, name, &t, &guidance);
        run_case(d, w, what, file, name + 3, t, guidance);
        cases++;
    }
    assert_true(cases > 0);
    diffusion_close(d);
    net_rig_close(&g);
}

static void run_model(const char *name, const json_t *about)
{
    struct keys k = { 0 };
    char file[96], what[96];
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    run_file(keys_file(&k, name, DT_F32, "safetensors", NULL), w, name, name, about);
    snprintf(what, sizeof what, "%s (diffusers)", name);
    run_file(flux_diffusers_file(&k, name), w, what, name, about);
    keys_release(&k);
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
        if (strncmp(name, "flux_", 5) != 0 || !json_object_get(about, "config"))
            continue; /* runs of several models have no config of their own */
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
