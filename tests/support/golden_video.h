/* golden_video: models of videos in the golden files: transformers and VAEs, of every model of the
 * manifest whose name begins so.
 *
 *     static void run_model(const char *name, const json_t *about) { ... gv_open(&m, name, NULL) }
 *     gv_each("mochi_", NULL, run_model); */
#ifndef SUPPORT_GOLDEN_VIDEO_H
#define SUPPORT_GOLDEN_VIDEO_H

#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/made_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/diffusion.h"
#include "model/vae.h"

/* Of <of>/<name>, or of <name> where of is "". To be freed; NULL: it is not there. n: NULL, or how
 * many values. */
static inline float *gv_tensor(const struct weights *w, const char *of, const char *name,
                               struct shape *s, size_t *n)
{
    char full[96];
    size_t unread;
    snprintf(full, sizeof full, "%s%s%s", of, *of ? "/" : "", name);
    const struct weights_entry *e = weights_find(w, full, strlen(full));
    *s = e ? e->shape : (struct shape) { 0 };
    if (!n)
        n = &unread;
    *n = 0;
    return e ? golden_floats(w, e, n) : NULL;
}

static inline double gv_number(const json_t *o, const char *name, double otherwise)
{
    double v;
    return js_get_f64(json_object_get(o, name), &v) ? v : otherwise;
}

struct gv_model { /* a file made from a keys file, and what was read of it */
    struct net_rig g;
    struct weights *golden;
};

/* config: of the file's metadata, which is freed; NULL: it has none. */
static inline void gv_open(struct gv_model *m, const char *name, char *config)
{
    const struct where at = where_from_env();
    char file[96], keys[96];
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    snprintf(keys, sizeof keys, "%s_keys.json", name);
    m->golden = golden_open(file);
    const struct made_part part = { keys, "" };
    const char *path = tmp_path(file);
    made_file(path, &part, 1, &(struct weights_meta_spec) { "config", config }, config != NULL);
    free(config);
    net_rig_open(&m->g, at.devices, path, NULL, NULL);
    assert_ok(tpool_new(2, &m->g.pool, &err), err);
}

static inline void gv_close(struct gv_model *m)
{
    net_rig_close(&m->g);
    weights_close(m->golden);
}

static inline void gv_each(const char *begins, const char *but,
                           void (*run)(const char *name, const json_t *about))
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

/* ---- transformers ---- */

/* Which of so many tokens "attention_mask" hides; to be freed. */
static inline bool *gv_hidden(const struct weights *w, size_t tokens)
{
    const struct weights_entry *e = weights_find(w, "attention_mask", strlen("attention_mask"));
    bool *hidden = calloc(tokens, sizeof *hidden);
    int64_t *seen = calloc(tokens, sizeof *seen);
    berth_err err = { 0 };
    assert_true(hidden && seen && e);
    assert_ok(weights_read(w, e, 0, seen, (size_t)e->size, &err), err);
    for (size_t i = 0; i < tokens; i++)
        hidden[i] = !seen[i];
    free(seen);
    return hidden;
}

/* All latents together are what tensor `name` of this model is, and each alone is the same. There
 * is one cond for each of them. */
static inline void gv_forward(struct diffusion *d, struct diffusion_in in,
                              const struct diffusion_cond *cond, const float *want,
                              const char *model, const char *name)
{
    const struct diffusion_cond *list[] = { &cond[0], &cond[1] };
    const struct where at = where_from_env();
    const size_t items = (size_t)in.shape.dim[0], each = (size_t)shape_inner(&in.shape, 1);
    const size_t places = (size_t)shape_inner(&in.shape, 2);
    float *out = calloc(items * each, sizeof *out), *alone = calloc(each, sizeof *alone);
    berth_err err = { 0 };
    assert_true(items && items <= ARRAY_LEN(list) && out && alone);
    in.cond = list;
    in.out = out;
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_near(name, out, want, items * each, where_limit(&at, WHERE_MODULE, model, name));
    for (size_t i = 0; i < items; i++) {
        struct diffusion_in one = in;
        one.shape.dim[0] = 1;
        one.x = in.x + i * each;
        one.t = in.t + i;
        one.cond = list + i;
        one.mask = in.mask ? in.mask + i * places : NULL;
        one.out = alone;
        assert_ok(diffusion_forward(d, &one, &err), err);
        if (!at.card)
            assert_memory_equal(alone, out + i * each, each * sizeof *alone);
    }
    free(out), free(alone);
}

/* ---- VAEs ---- */

static inline void gv_vae_case(struct vae_job *j, const struct weights *w, const char *file,
                               const char *of)
{
    const struct where at = where_from_env();
    struct shape zs, xs, es;
    size_t n, en;
    char full[32];
    uint64_t peak;
    float *z = gv_tensor(w, of, "z", &zs, NULL), *want = gv_tensor(w, of, "decoded", &xs, &n);
    float *encoded = gv_tensor(w, of, "encoded", &es, &en);
    assert_true(z && want && encoded);
    float *out = calloc(n, sizeof *out), *back = calloc(en, sizeof *back);
    const struct shape made = vae_decoded(j->vae, &zs), again = vae_encoded(j->vae, &xs);
    berth_err err = { 0 };
    assert_true(out && back && shape_eq(&made, &xs) && shape_eq(&again, &es));
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

/* Of every n that has <n>/z. config: as in gv_open(). */
static inline void gv_vae(const char *name, const json_t *about, char *config,
                          void (*compare)(const struct vae_net *v, const json_t *config))
{
    const struct where at = where_from_env();
    struct gv_model m;
    struct vae_net v;
    struct net *net;
    char of[16], z[32];
    size_t ran = 0;
    berth_err err = { 0 };
    gv_open(&m, name, config);
    struct net_args a = net_rig_args(&m.g);
    a.act = at.act;
    assert_ok(vae_open(&a, NULL, &v, &net, &err), err);
    if (compare)
        compare(&v, json_object_get(about, "config"));
    struct vae_job j = { .net = net, .vae = &v };
    print_message("%s\n", name);
    for (unsigned n = 1; n < 16; n++) {
        snprintf(of, sizeof of, "%u", n);
        snprintf(z, sizeof z, "%u/z", n);
        if (!weights_find(m.golden, z, strlen(z)))
            continue;
        gv_vae_case(&j, m.golden, name, of);
        ran++;
    }
    assert_true(ran > 0 && !j.tiled);
    net_close(net);
    gv_close(&m);
}

#endif
