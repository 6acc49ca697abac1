/* The Wan transformers of the golden files: every wan<x> of the manifest that is one, its weights
 * made from <model>_keys.json. A case is an "out<suffix>" of the file: what x<suffix> gives, at
 * t<suffix>, with context<suffix>; where there is none of the suffix, the plain one. Channels of x
 * beyond the latent's are what is beside it.
 *
 *     out_no_clip    without clip_fea, where the file has it
 *     out_t_frames   every latent frame at its own time of t_frames, as a mask of it says
 *
 * Each item of a case also runs alone, which does not change it. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/wan/wan.h"

#include <math.h>

static uint64_t number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    assert_true(js_get_u64(json_object_get(config, name), &v));
    return v;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct weights *w, const json_t *c)
{
    struct wan_net f;
    berth_err err = { 0 };
    assert_ok(wan_detect(w, "", &f, &err), err);
    assert_int_equal(f.in_channels, number(c, "in_dim"));
    assert_int_equal(f.out_channels, number(c, "out_dim"));
    assert_int_equal(f.hidden, number(c, "dim"));
    assert_int_equal(f.mlp, number(c, "ffn_dim"));
    assert_int_equal(f.heads, number(c, "num_heads"));
    assert_int_equal(f.depth, number(c, "num_layers"));
    assert_int_equal(f.context_dim, number(c, "text_dim"));
    assert_int_equal(number(c, "freq_dim"), WAN_TIME_WIDTH);
    assert_int_equal(f.sees, !strcmp(json_string_value(json_object_get(c, "model_type")), "i2v"));
}

struct tensor {
    float *p;
    struct shape shape;
    size_t n;
};

/* <name><suffix>, or <name>; p NULL: neither. */
static struct tensor tensor(const struct weights *w, const char *name, const char *suffix)
{
    char q[64];
    struct tensor t = { .p = NULL };
    snprintf(q, sizeof q, "%s%s", name, suffix);
    const struct weights_entry *e = weights_find(w, q, strlen(q));
    e = e ? e : weights_find(w, name, strlen(name));
    if (!e)
        return t;
    t.shape = e->shape;
    t.p = golden_floats(w, e, &t.n);
    return t;
}

/* Item i of t, or t if it has one alone. */
static const float *item(const struct tensor *t, size_t i)
{
    const size_t n = (size_t)t->shape.dim[0];
    return t->p + i % n * (t->n / n);
}

/* x [n, latent + beside, ...] in two. */
static void part(const struct tensor *x, uint64_t latent, struct tensor *first, struct tensor *rest)
{
    const size_t n = (size_t)x->shape.dim[0], each = x->n / n;
    const size_t a = (size_t)latent * (size_t)shape_inner(&x->shape, 2), b = each - a;
    *first = *rest = *x;
    first->shape.dim[1] = latent;
    first->p = calloc(n, a * sizeof *first->p);
    rest->p = b ? calloc(n, b * sizeof *rest->p) : NULL;
    for (size_t i = 0; i < n; i++) {
        memcpy(first->p + i * a, x->p + i * each, a * sizeof *x->p);
        if (b)
            memcpy(rest->p + i * b, x->p + i * each + a, b * sizeof *x->p);
    }
    first->n = n * a;
    rest->n = n * b;
}

/* How much of each latent frame is noise, as a mask; *t becomes the latest time of all. */
static float *mask_of(const struct weights *w, const struct shape *x, struct tensor *t)
{
    struct tensor times = tensor(w, "t_frames", "");
    const size_t frames = (size_t)x->dim[2], hw = (size_t)(x->dim[3] * x->dim[4]);
    float *mask = calloc(frames, hw * sizeof *mask);
    assert_true(times.p && mask && x->dim[0] == 1 && t->n == 1 && times.n == frames);
    t->p[0] = 0;
    for (size_t i = 0; i < frames; i++)
        t->p[0] = fmaxf(t->p[0], times.p[i]);
    for (size_t i = 0; i < frames * hw; i++)
        mask[i] = times.p[i / hw] / t->p[0];
    free(times.p);
    return mask;
}

static void run_case(struct diffusion *d, const struct weights *w, const char *file,
                     const char *name)
{
    const struct where at = where_from_env();
    const char *suffix = name + strlen("out");
    struct tensor x = tensor(w, "x", suffix), t = tensor(w, "t", suffix);
    struct tensor context = tensor(w, "context", suffix), want = tensor(w, name, "");
    struct tensor seen = tensor(w, "clip_fea", suffix), latent, beside;
    const size_t n = (size_t)x.shape.dim[0];
    float *mask = strcmp(suffix, "_t_frames") ? NULL : mask_of(w, &x.shape, &t);
    const struct diffusion_extra sees = { .kind = EXTRA_SEEN, .shape = seen.shape, .x = seen.p };
    struct diffusion_cond cond[4];
    const struct diffusion_cond *list[4];
    char what[96];
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(n <= ARRAY_LEN(cond) && t.n == n);
    part(&x, diffusion_info(d)->latent.channels, &latent, &beside);
    for (size_t i = 0; i < n; i++) {
        cond[i] = (struct diffusion_cond) { .context = item(&context, i),
                                            .tokens = (size_t)context.shape.dim[1],
                                            .width = (size_t)context.shape.dim[2],
                                            .extra = &sees,
                                            .extras = seen.p && strcmp(suffix, "_no_clip") };
        list[i] = &cond[i];
    }
    float *out = calloc(want.n, sizeof *out), *alone = calloc(want.n, sizeof *alone);
    struct diffusion_in in = { .shape = latent.shape,
                               .x = latent.p,
                               .t = t.p,
                               .cond = list,
                               .concat = beside.p,
                               .mask = mask,
                               .out = out };
    assert_true(out && alone && latent.n == want.n);
    assert_ok(diffusion_predict(d, &in, &peak, &err), err);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_int_equal(diffusion_report(d).peak, peak);
    snprintf(what, sizeof what, "%s %s", file, name);
    assert_near(what, out, want.p, want.n, where_limit(&at, WHERE_MODULE, file, name));
    in.shape.dim[0] = 1;
    for (size_t i = 0; i < n && !at.card; i++) {
        in.x = latent.p + i * (latent.n / n);
        in.concat = beside.p ? beside.p + i * (beside.n / n) : NULL;
        in.t = t.p + i;
        in.cond = list + i;
        in.out = alone + i * (want.n / n);
        in.item = &i;
        assert_ok(diffusion_forward(d, &in, &err), err);
    }
    if (!at.card) /* cards choose kernels by shape */
        assert_memory_equal(alone, out, want.n * sizeof *out);
    free(out), free(alone), free(latent.p), free(beside.p), free(mask);
    free(x.p), free(t.p), free(context.p), free(want.p), free(seen.p);
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    struct net_rig g;
    struct diffusion *d;
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
    compare_config(res_weights(g.m), json_object_get(about, "config"));
    struct diffusion_args args = {
        .res = g.f.r, .m = g.m, .pool = g.pool, .act = at.card ? at.act : DT_F32
    };
    assert_ok(diffusion_open(&args, &d, &err), err);
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_at(w, i)->name, "out", 3)) {
            run_case(d, w, name, weights_at(w, i)->name);
            cases++;
        }
    assert_true(cases > 0);
    diffusion_close(d);
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
        const json_t *config = json_object_get(about, "config");
        const char *kind = json_string_value(json_object_get(config, "image_model"));
        if (!kind || strcmp(kind, "wan2.1") != 0)
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
