/* Mochi in the golden files: the transformer of every mochi_<model>, and the VAE of every
 * vae_mochi_<model>, of the manifest. Cases are of two latents; each is also run alone. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"
#include "model/mochi/mochi.h"
#include "model/vae_mochi/vae_mochi.h"

/* To be freed; NULL: it is not there. */
static float *tensor(const struct weights *w, const char *of, const char *name, struct shape *s,
                     size_t *n)
{
    char full[96];
    size_t unread;
    snprintf(full, sizeof full, "%s%s%s", of, *of ? "/" : "", name);
    const struct weights_entry *e = weights_find(w, full, strlen(full));
    if (!e)
        return NULL;
    *s = e->shape;
    return golden_floats(w, e, n ? n : &unread);
}

static double number(const json_t *o, const char *name)
{
    double v = 0;
    js_get_f64(json_object_get(o, name), &v);
    return v;
}

struct open_model { /* a file made from a keys file */
    struct net_rig g;
    struct weights *golden;
};

static void open_file(struct open_model *m, const char *name)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    char file[96];
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    m->golden = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    net_rig_open(&m->g, at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(tpool_new(2, &m->g.pool, &err), err);
}

static void close_file(struct open_model *m)
{
    net_rig_close(&m->g);
    weights_close(m->golden);
}

/* ---- transformers ---- */

static void run_case(struct diffusion *d, const struct weights *w, const char *model)
{
    const struct where at = where_from_env();
    struct shape s, cs, ts;
    size_t n;
    float *want = tensor(w, "", "out", &s, &n), *x = tensor(w, "", "x", &ts, NULL);
    float *t = tensor(w, "", "t", &ts, NULL), *context = tensor(w, "", "context", &cs, NULL);
    float *out = calloc(n, sizeof *out);
    bool *hidden = calloc((size_t)cs.dim[1], sizeof *hidden);
    int64_t *seen = calloc((size_t)cs.dim[1], sizeof *seen);
    const struct weights_entry *e = weights_find(w, "attention_mask", strlen("attention_mask"));
    struct diffusion_cond cond[2];
    const struct diffusion_cond *list[2] = { &cond[0], &cond[1] };
    berth_err err = { 0 };
    assert_true(want && x && t && context && out && hidden && seen && e);
    assert_ok(weights_read(w, e, 0, seen, (size_t)e->size, &err), err);
    for (size_t i = 0; i < cs.dim[1]; i++)
        hidden[i] = !seen[i];
    for (size_t i = 0; i < 2; i++)
        cond[i] = (struct diffusion_cond) { .context = context + i * cs.dim[1] * cs.dim[2],
                                            .tokens = (size_t)cs.dim[1],
                                            .width = (size_t)cs.dim[2],
                                            .hidden = hidden };
    struct diffusion_in in = { .shape = s, .x = x, .t = t, .cond = list, .out = out };
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_near("out", out, want, n, where_limit(&at, WHERE_MODULE, model, "out"));
    const size_t each = n / 2;
    float *alone = calloc(each, sizeof *alone);
    for (size_t i = 0; i < 2; i++) {
        struct diffusion_in one = in;
        one.shape.dim[0] = 1;
        one.x = x + i * each;
        one.t = t + i;
        one.cond = list + i;
        one.out = alone;
        assert_ok(diffusion_forward(d, &one, &err), err);
        if (!at.card)
            assert_memory_equal(alone, out + i * each, each * sizeof *alone);
    }
    free(want), free(x), free(t), free(context), free(out), free(hidden), free(seen);
    free(alone);
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    const json_t *c = json_object_get(about, "config");
    struct open_model m;
    struct diffusion *d;
    struct mochi_net f;
    berth_err err = { 0 };
    open_file(&m, name);
    assert_ok(mochi_detect(res_weights(m.g.m), "", &f, &err), err);
    assert_int_equal(f.hidden, number(c, "hidden_size_x"));
    assert_int_equal(f.text_hidden, number(c, "hidden_size_y"));
    assert_int_equal(f.heads, number(c, "num_heads"));
    assert_int_equal(f.depth, number(c, "depth"));
    assert_int_equal(f.context_dim, number(c, "t5_feat_dim"));
    mochi_release(&f);
    struct diffusion_args args = { .res = m.g.f.r, .m = m.g.m, .pool = m.g.pool, .act = at.act };
    assert_ok(diffusion_open(&args, &d, &err), err);
    print_message("%s\n", name);
    run_case(d, m.golden, name);
    diffusion_close(d);
    close_file(&m);
}

/* ---- VAEs ---- */

static void vae_case(struct vae_job *j, const struct weights *w, const char *file, const char *of)
{
    const struct where at = where_from_env();
    struct shape zs, xs, es;
    size_t n, en;
    char full[32];
    uint64_t peak;
    float *z = tensor(w, of, "z", &zs, NULL), *want = tensor(w, of, "decoded", &xs, &n);
    float *encoded = tensor(w, of, "encoded", &es, &en);
    float *out = calloc(n, sizeof *out), *back = calloc(en, sizeof *back);
    const struct shape made = vae_decoded(j->vae, &zs), again = vae_encoded(j->vae, &xs);
    berth_err err = { 0 };
    assert_true(z && want && encoded && out && back);
    assert_true(shape_eq(&made, &xs) && shape_eq(&again, &es));
    assert_ok(vae_predict(j, true, &zs, &peak, &err), err);
    assert_ok(vae_decode(j, z, &zs, out, &err), err);
    assert_int_equal(net_report(j->net).peak, peak);
    snprintf(full, sizeof full, "%s/decoded", of);
    assert_near(full, out, want, n, where_limit(&at, WHERE_MODULE, file, full));
    assert_ok(vae_encode(j, want, &xs, back, &err), err);
    snprintf(full, sizeof full, "%s/encoded", of);
    assert_near(full, back, encoded, en, where_limit(&at, WHERE_MODULE, file, full));
    free(z), free(want), free(encoded), free(out), free(back);
}

static void run_vae(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct open_model m;
    struct vae_net v;
    struct net *net;
    char of[16], z[32];
    size_t ran = 0;
    berth_err err = { 0 };
    open_file(&m, name);
    struct net_args a = net_rig_args(&m.g);
    a.act = at.act;
    assert_ok(vae_open(&a, NULL, &v, &net, &err), err);
    assert_int_equal(v.latent.channels, number(json_object_get(about, "config"), "latents"));
    assert_int_equal(v.latent.ratio, 8);
    assert_int_equal(v.latent.time_ratio, 6);
    struct vae_job j = { .net = net, .vae = &v };
    print_message("%s\n", name);
    for (unsigned n = 1; n < 16; n++) {
        snprintf(of, sizeof of, "%u", n);
        snprintf(z, sizeof z, "%u/z", n);
        if (!weights_find(m.golden, z, strlen(z)))
            continue;
        vae_case(&j, m.golden, name, of);
        ran++;
    }
    assert_true(ran > 0 && !j.tiled);
    net_close(net);
    close_file(&m);
}

/* ---- all of the manifest ---- */

static void each_that_begins(const char *begins, void (*run)(const char *name, const json_t *about))
{
    json_t *manifest, *about;
    const char *name;
    size_t ran = 0;
    berth_err err;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, begins, strlen(begins)) != 0)
            continue;
        run(name, about);
        ran++;
    }
    assert_true(ran > 0);
    json_decref(manifest);
}

static void transformers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    each_that_begins("mochi_", run_model);
}

static void vaes_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    each_that_begins("vae_mochi_", run_vae);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files),
                                        cmocka_unit_test(vaes_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
