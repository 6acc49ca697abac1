/* Flux that looks at pictures: kontext_tiny of the golden files. "out_ref/<method>" looks at ref,
 * placed by that method ("own" is the model's), and "out_ref2/<method>" at ref and ref2. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "model/diffusion.h"

static float *tensor(const struct weights *w, const char *name, struct shape *s)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    size_t n;
    if (!e)
        fail_msg("no '%s'", name);
    *s = e->shape;
    return golden_floats(w, e, &n);
}

static enum diffusion_ref_method method_of(const char *name)
{
    static const char *const list[] = {
        [REF_OWN] = "own", [REF_OFFSET] = "offset", [REF_INDEX] = "index", [REF_UXO] = "uxo"
    };
    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        if (list[i] && !strcmp(list[i], name))
            return (enum diffusion_ref_method)i;
    fail_msg("no method '%s'", name);
    return REF_OWN;
}

static void run_case(struct diffusion *d, const struct weights *w, const char *name)
{
    const struct where at = where_from_env();
    struct shape xs, cs, ys, os, s;
    float *x = tensor(w, "x", &xs), *context = tensor(w, "context", &cs);
    float *y = tensor(w, "vec", &ys), *t = tensor(w, "t", &s),
          *guidance = tensor(w, "guidance", &s);
    float *want = tensor(w, name, &os);
    struct diffusion_ref ref[2];
    float *r1 = tensor(w, "ref", &ref[0].shape), *r2 = tensor(w, "ref2", &ref[1].shape);
    const size_t n = (size_t)(os.dim[0] * os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    berth_err err = { 0 };
    assert_true(out && shape_eq(&xs, &os));
    ref[0].x = r1;
    ref[1].x = r2;
    struct diffusion_cond c = { .context = context,
                                .tokens = (size_t)cs.dim[1],
                                .width = (size_t)cs.dim[2],
                                .pooled = y,
                                .pooled_n = (size_t)ys.dim[1],
                                .guided = 1,
                                .guidance = guidance[0],
                                .ref = ref,
                                .refs = strncmp(name, "out_ref2/", 9) ? 1 : 2,
                                .ref_method = method_of(strchr(name, '/') + 1) };
    const struct diffusion_cond *const list[] = { &c };
    struct diffusion_in in = { .shape = xs, .x = x, .t = t, .cond = list, .out = out };
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_near(name, out, want, n, where_limit(&at, WHERE_MODULE, "kontext_tiny", name));
    c.ref_method = REF_INDEX_TIMESTEP_ZERO;
    assert_fails(diffusion_forward(d, &in, &err), err, BERTH_EUNSUPPORTED, "index_timestep_zero");
    free(x), free(context), free(y), free(t), free(guidance), free(want), free(r1), free(r2);
    free(out);
}

static void flux_looks_at_pictures(void **state)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    struct net_rig g;
    struct diffusion *d;
    size_t cases = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    struct weights *w = golden_open("kontext_tiny.safetensors");
    assert_ok(keys_read(golden_path("kontext_tiny_keys.json"), &k, &err), err);
    net_rig_open(&g, at.devices, keys_file(&k, "kontext", DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    struct diffusion_args args = {
        .res = g.f.r, .m = g.m, .pool = g.pool, .act = at.act, .exact_guidance = true
    };
    assert_ok(diffusion_open(&args, &d, &err), err);
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_at(w, i)->name, "out_ref", 7)) {
            run_case(d, w, weights_at(w, i)->name);
            cases++;
        }
    assert_true(cases > 0);
    diffusion_close(d);
    net_rig_close(&g);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(flux_looks_at_pictures) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
