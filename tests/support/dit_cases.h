/* dit_cases: the golden files of transformers over latents of pictures that look at others.
 *
 *     dit_models("krea2_", compare_config, NULL);
 *
 * runs every <model> of the manifest that begins so, its weights made from <model>_keys.json. A
 * case is an "out..." of the file. "out" and "out_odd" are what x and x_odd give; "out_masked"
 * hides the tokens of attention_mask that are 0; "out_ref/<method>" looks at ref, placed by that
 * method ("own" is the model's), and "out_ref2/<method>" at ref and ref2. Each runs alone, and in a
 * batch with itself and with another noise level, which does not change it. */
#ifndef SUPPORT_DIT_CASES_H
#define SUPPORT_DIT_CASES_H

#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"

#define DIT_REFS 2

static inline const struct weights_entry *dit_entry(const struct weights *w, const char *name)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        fail_msg("no '%s'", name);
    return e;
}

static inline float *dit_tensor(const struct weights *w, const char *name, struct shape *s)
{
    size_t n;
    *s = dit_entry(w, name)->shape;
    return golden_floats(w, dit_entry(w, name), &n);
}

static inline uint64_t dit_number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    assert_true(js_get_u64(json_object_get(config, name), &v));
    return v;
}

static inline enum diffusion_ref_method dit_method(const char *name)
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

struct dit_case {
    struct diffusion_cond cond;
    struct diffusion_ref ref[DIT_REFS];
    bool *hidden;
    float *x, *context, *want, t;
    struct shape shape;
    size_t n;
};

static inline bool *dit_hidden(const struct weights *w, size_t tokens)
{
    const struct weights_entry *e = dit_entry(w, "attention_mask");
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

static inline void dit_read(struct dit_case *c, const struct weights *w, const char *name)
{
    static const char *const ref[DIT_REFS] = { "ref", "ref2" };
    const char *method = strchr(name, '/');
    struct shape s;
    *c = (struct dit_case) { .n = 1 };
    c->want = dit_tensor(w, name, &c->shape);
    for (int i = 0; i < c->shape.ndim; i++)
        c->n *= (size_t)c->shape.dim[i];
    c->x = dit_tensor(w, strcmp(name, "out_odd") ? "x" : "x_odd", &s);
    assert_true(shape_eq(&s, &c->shape));
    c->context = dit_tensor(w, "context", &s);
    c->cond = (struct diffusion_cond) { .context = c->context,
                                        .tokens = (size_t)s.dim[1],
                                        .width = (size_t)s.dim[2] };
    float *t = dit_tensor(w, "t", &s);
    c->t = t[0];
    free(t);
    if (!strcmp(name, "out_masked"))
        c->cond.hidden = c->hidden = dit_hidden(w, c->cond.tokens);
    if (!method)
        return;
    c->cond.ref = c->ref;
    c->cond.ref_method = dit_method(method + 1);
    c->cond.refs = strncmp(name, "out_ref2/", 9) ? 1 : 2;
    for (size_t i = 0; i < c->cond.refs; i++)
        c->ref[i].x = dit_tensor(w, ref[i], &c->ref[i].shape);
}

static inline void dit_release(struct dit_case *c)
{
    for (size_t i = 0; i < c->cond.refs; i++)
        free((float *)(uintptr_t)c->ref[i].x);
    free(c->x), free(c->context), free(c->want), free(c->hidden);
}

#define DIT_TOGETHER 3

/* Three of it, the second at another noise level. */
static inline void dit_together(struct diffusion *d, const struct dit_case *c, const float *alone)
{
    const struct where at = where_from_env();
    const struct diffusion_cond *const list[DIT_TOGETHER] = { &c->cond, &c->cond, &c->cond };
    const float t[DIT_TOGETHER] = { c->t, c->t / 2, c->t };
    float *x = calloc(DIT_TOGETHER, c->n * sizeof *x),
          *out = calloc(DIT_TOGETHER, c->n * sizeof *out);
    struct diffusion_in in = { .shape = c->shape, .x = x, .t = t, .cond = list, .out = out };
    berth_err err = { 0 };
    assert_true(x && out);
    in.shape.dim[0] = DIT_TOGETHER;
    for (size_t i = 0; i < DIT_TOGETHER; i++)
        memcpy(x + i * c->n, c->x, c->n * sizeof *x);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_memory_not_equal(out + c->n, alone, c->n * sizeof *out);
    if (!at.card) { /* cards choose kernels by shape */
        assert_memory_equal(out, alone, c->n * sizeof *out);
        assert_memory_equal(out + 2 * c->n, alone, c->n * sizeof *out);
    }
    free(x), free(out);
}

static inline void dit_run(struct diffusion *d, const struct weights *w, const char *file,
                           const char *name)
{
    const struct where at = where_from_env();
    struct dit_case c;
    uint64_t peak;
    berth_err err = { 0 };
    dit_read(&c, w, name);
    const struct diffusion_cond *const list[] = { &c.cond };
    float *out = calloc(c.n, sizeof *out);
    struct diffusion_in in = { .shape = c.shape, .x = c.x, .t = &c.t, .cond = list, .out = out };
    assert_non_null(out);
    assert_ok(diffusion_predict(d, &in, &peak, &err), err);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_int_equal(diffusion_report(d).peak, peak);
    assert_near(name, out, c.want, c.n, where_limit(&at, WHERE_MODULE, file, name));
    dit_together(d, &c, out);
    free(out);
    dit_release(&c);
}

/* Holds what was read from a file's shapes to the config that the reference was built with. */
typedef void dit_config_fn(const struct weights *w, const json_t *config);
/* Cases of another kind, of the same model; returns how many. */
typedef size_t dit_more_fn(struct net_rig *g, const struct weights *golden, const char *model);

static inline void dit_model(const char *name, const json_t *about, dit_config_fn *config,
                             dit_more_fn *more)
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
    config(res_weights(g.m), json_object_get(about, "config"));
    struct diffusion_args args = { .res = g.f.r, .m = g.m, .pool = g.pool, .act = at.act };
    assert_ok(diffusion_open(&args, &d, &err), err);
    for (size_t i = 0; i < weights_count(w); i++)
        if (!strncmp(weights_at(w, i)->name, "out", 3) &&
            strncmp(weights_at(w, i)->name, "out_control", 11)) {
            dit_run(d, w, name, weights_at(w, i)->name);
            cases++;
        }
    assert_true(cases > 0);
    diffusion_close(d);
    if (more)
        more(&g, w, name);
    net_rig_close(&g);
    weights_close(w);
}

static inline void dit_models(const char *begins, dit_config_fn *config, dit_more_fn *more)
{
    json_t *manifest, *about;
    const char *name;
    size_t models = 0;
    berth_err err;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, begins, strlen(begins)) != 0)
            continue;
        dit_model(name, about, config, more);
        models++;
    }
    assert_true(models > 0);
    json_decref(manifest);
}

#endif
