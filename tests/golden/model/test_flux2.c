/* The Flux.2 transformers of the golden files: every model of the manifest that says it is one, its
 * weights made from <model>_keys.json.
 *
 * A case is an "out..." of the file. "out" is what x gives; "out_ref/<method>" looks at ref, placed
 * by that method, and "out_ref2/<method>" at ref and ref2. The network alone is asked: around it a
 * text is filled up with zeros. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/families.h"
#include "model/flux2/flux2.h"

#define REFS 2

static float *tensor(const struct weights *w, const char *name, struct shape *s)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    size_t n;
    if (!e)
        fail_msg("no '%s'", name);
    *s = e->shape;
    return golden_floats(w, e, &n);
}

static uint64_t number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    assert_true(js_get_u64(json_object_get(config, name), &v));
    return v;
}

static enum diffusion_ref_method method_of(const char *name)
{
    static const char *const list[] = { [REF_OFFSET] = "offset",
                                        [REF_INDEX] = "index",
                                        [REF_INDEX_TIMESTEP_ZERO] = "index_timestep_zero",
                                        [REF_UXO] = "uxo" };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (list[i] && !strcmp(list[i], name))
            return (enum diffusion_ref_method)i;
    fail_msg("no method '%s'", name);
    return REF_OWN;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct flux2_net *f, const json_t *c)
{
    const json_t *axes = json_object_get(c, "axes_dim");
    assert_int_equal(f->in_channels, number(c, "in_channels"));
    assert_int_equal(f->out_channels, number(c, "out_channels"));
    assert_int_equal(f->hidden, number(c, "hidden_size"));
    assert_int_equal(f->context_dim, number(c, "context_in_dim"));
    assert_int_equal(f->heads, number(c, "num_heads"));
    assert_int_equal(f->depth, number(c, "depth"));
    assert_int_equal(f->depth_single, number(c, "depth_single_blocks"));
    assert_int_equal(f->guidance, json_is_true(json_object_get(c, "guidance_embed")));
    assert_int_equal(json_array_size(axes), FLUX2_AXES);
    for (size_t i = 0; i < FLUX2_AXES; i++)
        assert_int_equal(f->axis, json_integer_value(json_array_get(axes, i)));
}

static void run_case(struct net *net, const struct flux2_net *f, const struct weights *w,
                     const char *file, const char *name)
{
    const struct where at = where_from_env();
    const char *method = strchr(name, '/');
    struct shape xs, cs, os, s;
    float *x = tensor(w, "x", &xs), *context = tensor(w, "context", &cs), *t = tensor(w, "t", &s);
    float *guidance = f->guidance ? tensor(w, "guidance", &s) : NULL, *want = tensor(w, name, &os);
    struct diffusion_ref ref[REFS] = { 0 };
    float *r[REFS] = { NULL };
    const size_t refs = !method ? 0 : strncmp(name, "out_ref2/", 9) ? 1 : 2;
    const size_t n = (size_t)(os.dim[0] * os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    struct flux2_host host = { 0 };
    uint64_t peak = 0;
    berth_err err = { 0 };
    assert_true(out && shape_eq(&xs, &os));
    for (size_t i = 0; i < refs; i++)
        ref[i].x = r[i] = tensor(w, i ? "ref2" : "ref", &ref[i].shape);
    struct family_batch b = { .shape = xs,
                              .x = x,
                              .t = t,
                              .context = context,
                              .tokens = (size_t)cs.dim[1],
                              .ref = ref,
                              .refs = refs,
                              .ref_method = method ? method_of(method + 1) : REF_OWN,
                              .guidance = guidance,
                              .exact_guidance = true,
                              .out = out };
    assert_ok(flux2_forward(net, f, &b, &host, &peak, &err), err);
    assert_ok(flux2_forward(net, f, &b, &host, NULL, &err), err);
    assert_int_equal(net_report(net).peak, peak);
    assert_near(name, out, want, n, where_limit(&at, WHERE_MODULE, file, name));
    flux2_host_release(&host);
    free(x), free(context), free(t), free(guidance), free(want), free(r[0]), free(r[1]), free(out);
}

static size_t run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    struct net_rig g;
    struct net *net;
    struct flux2_net f;
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
    assert_ok(flux2_detect(res_weights(g.m), "", &f, &err), err);
    compare_config(&f, json_object_get(about, "config"));
    struct net_args args = net_rig_args(&g);
    args.names = flux2_names(&f);
    args.names_user = &f;
    args.act = at.act;
    assert_ok(net_open(&args, &net, &err), err);
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_at(w, i)->name, "out", 3)) {
            run_case(net, &f, w, name, weights_at(w, i)->name);
            cases++;
        }
    net_close(net);
    net_rig_close(&g);
    weights_close(w);
    return cases;
}

static void transformers_equal_the_golden_files(void **state)
{
    json_t *manifest, *about;
    const char *name;
    size_t cases = 0;
    berth_err err;
    (void)state;
    where_or_skip();
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        const json_t *config = json_object_get(about, "config");
        const char *is = json_string_value(json_object_get(config, "image_model"));
        cases += is && !strcmp(is, "flux2") ? run_model(name, about) : 0;
    }
    assert_true(cases > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
