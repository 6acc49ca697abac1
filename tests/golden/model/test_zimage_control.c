/* Networks that steer Z-Image, as the golden files have them: every zcontrol_<x> of the manifest,
 * with its weights from <name>_keys.json and those of the transformer from the list of its `base`.
 * The tensor `blank` is all zeros. A case is an out/<strength>: what x, t, context and hint give.
 * Each control network runs as it is stored, and in diffusers' names as its authors have it. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/where.h"
#include "support/zimage_files.h"

#include "base/json.h"
#include "model/diffusion.h"

#define ITEMS_MAX 8

static float *tensor(const struct weights *w, const char *name, struct shape *s)
{
    size_t n;
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        fail_msg("no '%s'", name);
    *s = e->shape;
    return golden_floats(w, e, &n);
}

/* Two models over one set of devices. */
struct pair {
    struct net_rig g; /* the transformer */
    struct res_model *control;
    struct diffusion *d;
};

static void pair_open(struct pair *p, const char *base, const char *control)
{
    const struct where at = where_from_env();
    berth_err err = { 0 };
    net_rig_open(&p->g, at.devices, base, NULL, NULL);
    assert_ok(tpool_new(2, &p->g.pool, &err), err);
    struct res_open_args args = { .path = control };
    assert_ok(res_open(p->g.f.r, &args, &p->control, NULL, &err), err);
    assert_ok(res_load(p->control, NULL, NULL, &err), err);
    struct diffusion_args open = { .res = p->g.f.r, .m = p->g.m, .pool = p->g.pool, .act = at.act };
    assert_ok(diffusion_open(&open, &p->d, &err), err);
}

static void pair_close(struct pair *p)
{
    diffusion_close(p->d);
    res_unref(p->control);
    net_rig_close(&p->g);
}

static void run_case(const char *base, const char *control, const struct weights *w,
                     const char *what, const char *file, const char *out_name)
{
    const struct where at = where_from_env();
    struct shape xs, cs, ts, hs, os;
    float *x = tensor(w, "x", &xs), *context = tensor(w, "context", &cs), *t = tensor(w, "t", &ts),
          *hint = tensor(w, "hint", &hs), *want = tensor(w, out_name, &os);
    size_t items = (size_t)xs.dim[0], n = (size_t)(os.dim[0] * os.dim[1] * os.dim[2] * os.dim[3]);
    float *out = calloc(n, sizeof *out);
    struct diffusion_cond c[ITEMS_MAX];
    const struct diffusion_cond *list[ITEMS_MAX];
    struct pair p;
    uint64_t channels;
    char text[96];
    berth_err err = { 0 };
    assert_true(out && items <= ITEMS_MAX && hs.dim[0] == 1);
    pair_open(&p, base, control);
    assert_ok(diffusion_control_channels(res_weights(p.control), NULL, &channels, &err), err);
    assert_int_equal(channels, hs.dim[1]);
    struct diffusion_control by = { .m = p.control,
                                    .hint = hint,
                                    .h = hs.dim[2],
                                    .w = hs.dim[3],
                                    .strength = strtof(strchr(out_name, '/') + 1, NULL) };
    assert_ok(diffusion_add_control(p.d, &by, &err), err);
    for (size_t i = 0; i < items; i++) {
        c[i] = (struct diffusion_cond) { .context = context + i * cs.dim[1] * cs.dim[2],
                                         .tokens = (size_t)cs.dim[1],
                                         .width = (size_t)cs.dim[2] };
        list[i] = &c[i];
    }
    struct diffusion_in in = { .shape = xs, .x = x, .t = t, .cond = list, .out = out };
    assert_ok(diffusion_forward(p.d, &in, &err), err);
    snprintf(text, sizeof text, "%s %s", what, out_name);
    assert_near(text, out, want, n, where_limit(&at, WHERE_MODULE, file, out_name));
    pair_close(&p);
    free(x), free(context), free(t), free(hint), free(want), free(out);
}

static void run_control(const char *name, const json_t *about)
{
    struct keys k = { 0 }, base = { 0 };
    char file[96], of[512], ours[512], theirs[512];
    size_t cases = 0;
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", json_string_value(json_object_get(about, "base")));
    assert_ok(keys_read(golden_path(file), &base, &err), err);
    snprintf(of, sizeof of, "%s", keys_file(&base, "base", DT_F32, "safetensors", NULL));
    snprintf(file, sizeof file, "%s_keys.json", name);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    zimage_blank = json_string_value(json_object_get(about, "blank"));
    snprintf(ours, sizeof ours, "%s", zimage_own_file(&k, "control"));
    snprintf(theirs, sizeof theirs, "%s", zimage_diffusers_file(&k, "control"));
    zimage_blank = NULL;
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *out = weights_at(w, i)->name;
        if (strncmp(out, "out/", 4) != 0)
            continue;
        snprintf(file, sizeof file, "%s (diffusers)", name);
        run_case(of, ours, w, name, name, out);
        run_case(of, theirs, w, file, name, out);
        cases++;
    }
    assert_true(cases > 0);
    keys_release(&k);
    keys_release(&base);
    weights_close(w);
}

static void controls_equal_the_golden_files(void **state)
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
        if (strncmp(name, "zcontrol_", 9) != 0)
            continue;
        run_control(name, about);
        models++;
    }
    assert_true(models > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(controls_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
