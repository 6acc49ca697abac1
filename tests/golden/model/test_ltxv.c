/* LTX-Video in the golden files: the transformer of every ltxv_<model>, and the VAE of every
 * vae_ltxv_<model>, of the manifest. Their configs go into the metadata of the files.
 *
 * A transformer's case is <name>/out. "x", "t" and "context" are of two latents; a case with an x
 * of its own is of one. <name>/mask is the noise mask; the manifest's "cases" say the rest: frame
 * rate, whether text is masked, guides. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/made_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"
#include "model/ltxv/ltxv.h"
#include "model/vae_ltxv/vae_ltxv.h"

#define GUIDES_MAX 4

static bool has(const struct weights *w, const char *name)
{
    return weights_find(w, name, strlen(name)) != NULL;
}

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

static double number(const json_t *o, const char *name, double otherwise)
{
    double v;
    return js_get_f64(json_object_get(o, name), &v) ? v : otherwise;
}

struct open_model { /* a file made from a keys file, and what was read of it */
    struct net_rig g;
    struct weights *golden;
};

static void open_file(struct open_model *m, const char *name, char *taken_config)
{
    const struct where at = where_from_env();
    char file[96], keys[96];
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    snprintf(keys, sizeof keys, "%s_keys.json", name);
    m->golden = golden_open(file);
    const struct made_part part = { keys, "" };
    const char *path = tmp_path(file);
    made_file(path, &part, 1, &(struct weights_meta_spec) { "config", taken_config }, 1);
    free(taken_config);
    net_rig_open(&m->g, at.devices, path, NULL, NULL);
    assert_ok(tpool_new(2, &m->g.pool, &err), err);
}

static void close_file(struct open_model *m)
{
    net_rig_close(&m->g);
    weights_close(m->golden);
}

/* ---- transformers ---- */

struct guides {
    struct diffusion_guide at[GUIDES_MAX];
    float *weight[GUIDES_MAX];
    size_t n;
};

static void read_guides(struct guides *g, const struct weights *w, const char *name,
                        const json_t *list, const struct shape *latent)
{
    char of[32];
    *g = (struct guides) { .n = json_array_size(list) };
    assert_true(g->n <= GUIDES_MAX);
    for (size_t i = 0; i < g->n; i++) {
        const json_t *about = json_array_get(list, i);
        struct shape s;
        size_t n = 0;
        snprintf(of, sizeof of, "weight%zu", i);
        g->weight[i] = tensor(w, name, of, &s, &n);
        g->at[i] = (struct diffusion_guide) {
            .frames = (uint64_t)number(about, "frames", 0),
            .rows = latent->dim[3],
            .columns = latent->dim[4],
            .at = (int64_t)number(about, "at", 0),
            .first = json_is_true(json_object_get(about, "first")),
            .spread = (uint32_t)number(about, "factor", 1),
            .strength = (float)number(about, "strength", 1),
            .weight = g->weight[i],
            .weights = n,
        };
    }
}

static void run_case(struct diffusion *d, const struct weights *w, const char *model,
                     const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct shape s, cs, ts;
    size_t n;
    struct guides guides;
    char full[96];
    float *want = tensor(w, name, "out", &s, &n), *own = tensor(w, name, "x", &ts, NULL);
    float *x = own ? own : tensor(w, "", "x", &ts, NULL), *t = tensor(w, "", "t", &cs, NULL);
    float *context = tensor(w, "", "context", &cs, NULL),
          *mask = tensor(w, name, "mask", &ts, NULL);
    float *out = calloc(n, sizeof *out);
    bool *hidden = calloc((size_t)cs.dim[1], sizeof *hidden);
    int64_t *seen = calloc((size_t)cs.dim[1], sizeof *seen);
    struct diffusion_cond cond[2];
    const struct diffusion_cond *list[2] = { &cond[0], &cond[1] };
    berth_err err = { 0 };
    const struct weights_entry *e = weights_find(w, "attention_mask", strlen("attention_mask"));
    assert_true(want && x && t && context && out && hidden && seen && e);
    assert_ok(weights_read(w, e, 0, seen, (size_t)e->size, &err), err);
    for (size_t i = 0; i < cs.dim[1]; i++)
        hidden[i] = !seen[i];
    read_guides(&guides, w, name, json_object_get(about, "guides"), &s);
    for (size_t i = 0; i < 2; i++)
        cond[i] = (struct diffusion_cond) {
            .context = context + i * cs.dim[1] * cs.dim[2],
            .tokens = (size_t)cs.dim[1],
            .width = (size_t)cs.dim[2],
            .hidden = json_is_true(json_object_get(about, "attention_mask")) ? hidden : NULL,
            .frame_rate = number(about, "frame_rate", 0),
            .guide = guides.at,
            .guides = guides.n,
        };
    struct diffusion_in in = { .shape = s, .x = x, .t = t, .cond = list, .mask = mask, .out = out };
    snprintf(full, sizeof full, "%s/out", name);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_near(name, out, want, n, where_limit(&at, WHERE_MODULE, model, full));
    /* each latent alone: the same */
    const size_t each = n / (size_t)s.dim[0], places = (size_t)shape_inner(&s, 2);
    float *alone = calloc(each, sizeof *alone);
    for (size_t i = 0; i < s.dim[0]; i++) {
        struct diffusion_in one = in;
        one.shape.dim[0] = 1;
        one.x = x + i * each;
        one.t = t + i;
        one.cond = list + i;
        one.mask = mask ? mask + i * places : NULL;
        one.out = alone;
        assert_ok(diffusion_forward(d, &one, &err), err);
        if (!at.card)
            assert_memory_equal(alone, out + i * each, each * sizeof *alone);
    }
    for (size_t i = 0; i < guides.n; i++)
        free(guides.weight[i]);
    free(want), free(own), free(t), free(context), free(mask), free(out), free(hidden), free(seen);
    free(alone);
    if (!own)
        free(x);
}

static void compare_config(const struct weights *w, const json_t *c)
{
    struct ltxv_net f;
    berth_err err = { 0 };
    assert_ok(ltxv_detect(w, "", &f, &err), err);
    assert_int_equal(f.heads, number(c, "num_attention_heads", 0));
    assert_int_equal(f.hidden / f.heads, number(c, "attention_head_dim", 0));
    assert_int_equal(f.depth, number(c, "num_layers", 0));
    assert_int_equal(f.context_dim, number(c, "caption_channels", 0));
    assert_int_equal(f.causal, json_is_true(json_object_get(c, "causal_temporal_positioning")));
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    const json_t *config = json_object_get(about, "config");
    struct open_model m;
    struct diffusion *d;
    const char *one;
    json_t *how;
    size_t ran = 0;
    berth_err err = { 0 };
    open_file(&m, name, made_config(config, NULL));
    compare_config(res_weights(m.g.m), config);
    struct diffusion_args args = { .res = m.g.f.r, .m = m.g.m, .pool = m.g.pool, .act = at.act };
    assert_ok(diffusion_open(&args, &d, &err), err);
    print_message("%s\n", name);
    json_object_foreach(json_object_get(about, "cases"), one, how)
    {
        run_case(d, m.golden, name, one, how);
        ran++;
    }
    assert_true(ran > 0);
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
    open_file(&m, name, made_config(NULL, json_object_get(about, "config")));
    struct net_args a = net_rig_args(&m.g);
    a.act = at.act;
    assert_ok(vae_open(&a, NULL, &v, &net, &err), err);
    struct vae_job j = { .net = net, .vae = &v };
    print_message("%s\n", name);
    for (unsigned n = 1; n < 16; n++) {
        snprintf(of, sizeof of, "%u", n);
        snprintf(z, sizeof z, "%u/z", n);
        if (!has(m.golden, z))
            continue;
        vae_case(&j, m.golden, name, of);
        ran++;
    }
    assert_true(ran > 0 && !j.tiled);
    net_close(net);
    close_file(&m);
}

/* ---- all of the manifest ---- */

static void each_that_begins(const char *begins, void (*run)(const char *name, const json_t *about),
                             const char *but)
{
    json_t *manifest, *about;
    const char *name;
    size_t ran = 0;
    berth_err err;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, begins, strlen(begins)) != 0 || (but && !strcmp(name, but)))
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
    each_that_begins("ltxv_", run_model, "ltxv_run");
}

static void vaes_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    each_that_begins("vae_ltxv_", run_vae, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files),
                                        cmocka_unit_test(vaes_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
