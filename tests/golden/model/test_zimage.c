/* The Z-Image and Lumina2 transformers of the golden files: every zimage_<x>, lumina2_<x> and
 * newbie_<x> of the manifest, its weights made from <model>_keys.json.
 *
 * A case is an "out<tail>" of the file: what x<tail>, t<tail>, context<tail> and, of NewBie, pooled
 * give, as one batch. Where there are ref<k><tail>, pictures to look at, with them, said<k><tail>,
 * texts around them, and seen<k><tail>, what an encoder saw of them.
 * Each runs as it is stored, and Z-Image as a file in diffusers' names, too. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/where.h"
#include "support/zimage_files.h"

#include "base/json.h"
#include "model/diffusion.h"
#include "model/zimage/zimage.h"

#define ITEMS_MAX 8
#define LOOKS_MAX 4

static float *tensor(const struct weights *w, const char *name, const char *tail, struct shape *s)
{
    char full[64];
    size_t n;
    int len = snprintf(full, sizeof full, "%s%s", name, tail);
    const struct weights_entry *e = weights_find(w, full, (size_t)len);
    *s = e ? e->shape : (struct shape) { 0 };
    return e ? golden_floats(w, e, &n) : NULL;
}

static double number(const json_t *config, const char *name, double otherwise)
{
    const json_t *v = json_object_get(config, name);
    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct zimage_net *f, const json_t *c)
{
    const json_t *axes = json_object_get(c, "axes_dims");
    assert_int_equal(f->in_channels, number(c, "in_channels", 0));
    assert_int_equal(f->hidden, number(c, "dim", 0));
    assert_int_equal(f->context_dim, number(c, "cap_feat_dim", 0));
    assert_int_equal(f->heads, number(c, "n_heads", 0));
    assert_int_equal(f->kv_heads, number(c, "n_kv_heads", 0));
    assert_int_equal(f->pooled_dim, number(c, "clip_text_dim", 0));
    assert_int_equal(f->siglip_dim, number(c, "siglip_feat_dim", 0));
    assert_int_equal(f->layers, number(c, "n_layers", 0));
    assert_int_equal(f->pad_to, number(c, "pad_tokens_multiple", 1));
    assert_int_equal(f->lumina, !json_is_true(json_object_get(c, "z_image_modulation")));
    assert_true(f->theta == number(c, "rope_theta", 0));
    assert_true((double)f->time_scale == number(c, "time_scale", 1));
    assert_int_equal(json_array_size(axes), ZIMAGE_AXES);
    for (size_t i = 0; i < ZIMAGE_AXES; i++)
        assert_int_equal(f->axis[i], json_integer_value(json_array_get(axes, i)));
}

struct looks { /* what is beside a case's latents; looks_release() */
    struct diffusion_ref ref[LOOKS_MAX];
    struct diffusion_rows text[LOOKS_MAX], seen[LOOKS_MAX];
    struct diffusion_beside beside;
    float *taken[3 * LOOKS_MAX];
    size_t refs, takens;
};

static float *take(struct looks *l, const struct weights *w, const char *name, size_t k,
                   const char *tail, struct shape *s)
{
    char full[32];
    snprintf(full, sizeof full, "%s%zu", name, k);
    float *x = tensor(w, full, tail, s);
    if (x)
        l->taken[l->takens++] = x;
    return x;
}

static void looks_open(struct looks *l, const struct weights *w, const char *tail)
{
    struct shape s;
    const float *x;
    *l = (struct looks) { .refs = 0 };
    for (; l->refs < LOOKS_MAX && (x = take(l, w, "ref", l->refs, tail, &s)); l->refs++)
        l->ref[l->refs] = (struct diffusion_ref) { .shape = s, .x = x };
    size_t *n = &l->beside.texts;
    for (; *n < LOOKS_MAX && (x = take(l, w, "said", *n, tail, &s)); (*n)++)
        l->text[*n] = (struct diffusion_rows) { .x = x, .n = s.dim[1], .width = s.dim[2] };
    n = &l->beside.seens;
    for (; *n < LOOKS_MAX && (x = take(l, w, "seen", *n, tail, &s)); (*n)++)
        l->seen[*n] = (struct diffusion_rows) {
            .x = x, .n = s.dim[1] * s.dim[2], .width = s.dim[3], .rows = s.dim[1], .cols = s.dim[2]
        };
    l->beside.text = l->text;
    l->beside.seen = l->seen;
}

static void looks_release(struct looks *l)
{
    while (l->takens)
        free(l->taken[--l->takens]);
}

static void run_case(struct diffusion *d, const struct weights *w, const char *what,
                     const char *file, const char *tail)
{
    const struct where at = where_from_env();
    struct shape xs, cs, ts, ps, os;
    float *x = tensor(w, "x", tail, &xs), *context = tensor(w, "context", tail, &cs),
          *t = tensor(w, "t", tail, &ts), *pooled = tensor(w, "pooled", tail, &ps),
          *want = tensor(w, "out", tail, &os);
    size_t items = (size_t)xs.dim[0], n = (size_t)(os.dim[0] * os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    struct diffusion_cond c[ITEMS_MAX];
    const struct diffusion_cond *list[ITEMS_MAX];
    struct looks look;
    char text[96], out_name[64];
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(x && context && t && want && out && shape_eq(&xs, &os));
    assert_true(items <= ITEMS_MAX && cs.dim[0] == items && ts.dim[0] == items);
    looks_open(&look, w, tail);
    for (size_t i = 0; i < items; i++) {
        size_t each = (size_t)(cs.dim[1] * cs.dim[2]);
        c[i] = (struct diffusion_cond) { .context = context + i * each,
                                         .tokens = (size_t)cs.dim[1],
                                         .width = (size_t)cs.dim[2],
                                         .pooled_n = (size_t)ps.dim[1],
                                         .ref = look.ref,
                                         .refs = look.refs,
                                         .beside = &look.beside };
        c[i].pooled = pooled ? pooled + i * c[i].pooled_n : NULL; /* NewBie */
        list[i] = &c[i];
    }
    struct diffusion_in in = { .shape = xs, .x = x, .t = t, .cond = list, .out = out };
    assert_ok(diffusion_predict(d, &in, &peak, &err), err);
    assert_ok(diffusion_forward(d, &in, &err), err);
    assert_int_equal(diffusion_report(d).peak, peak);
    snprintf(text, sizeof text, "%s out%s", what, tail);
    snprintf(out_name, sizeof out_name, "out%s", tail);
    assert_near(text, out, want, n, where_limit(&at, WHERE_MODULE, file, out_name));
    looks_release(&look);
    free(x), free(context), free(t), free(pooled), free(want), free(out);
}

/* ---- models ---- */

static void run_file(const char *path, const struct weights *w, const char *what, const char *file,
                     const json_t *about)
{
    const struct where at = where_from_env();
    struct net_rig g;
    struct diffusion *d;
    struct zimage_net f;
    size_t cases = 0;
    berth_err err = { 0 };
    net_rig_open(&g, at.devices, path, NULL, NULL);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    assert_ok(zimage_detect(res_weights(g.m), "", &f, &err), err);
    compare_config(&f, json_object_get(about, "config"));
    struct diffusion_args args = { .res = g.f.r, .m = g.m, .pool = g.pool, .act = at.act };
    assert_ok(diffusion_open(&args, &d, &err), err);
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *name = weights_at(w, i)->name;
        if (strncmp(name, "out", 3) != 0)
            continue;
        run_case(d, w, what, file, name + 3);
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
    if (strncmp(name, "zimage", 6) == 0)
        run_file(zimage_diffusers_file(&k, name), w, what, name, about);
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
        if (strncmp(name, "zimage_", 7) != 0 && strncmp(name, "lumina2_", 8) != 0 &&
            strncmp(name, "newbie_", 7) != 0)
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
