/* The upscale models in the golden files: every upscale_<model> of the manifest, its weights made
 * from the keys file it names. The network alone, then pictures as nodes have them: small ones that
 * are mirrored up to the size it takes, and wide ones that go in tiles. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/upscaler.h"

static float *tensor(const struct weights *w, const char *name, struct shape *s, size_t *n)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        fail_msg("no '%s'", name);
    assert_int_equal(e->shape.ndim, 4);
    *s = e->shape;
    return golden_floats(w, e, n);
}

static double limit(void) /* upscalers compute in F32 */
{
    const struct where at = where_from_env();
    return where_limit_f32(&at, WHERE_MODULE);
}

static void network_case(struct upscaler_job *j, const struct weights *w)
{
    struct shape xs, ys;
    size_t n, xn;
    float *x = tensor(w, "x", &xs, &xn), *want = tensor(w, "y", &ys, &n);
    float *out = calloc(n, sizeof *out);
    struct upscaler_pass p = { .up = j->up, .shape = xs, .in = x, .out = out };
    uint64_t peak;
    berth_err err = { 0 };
    assert_non_null(out);
    assert_int_equal(ys.dim[2], xs.dim[2] * j->up->scale);
    assert_int_equal(ys.dim[3], xs.dim[3] * j->up->scale);
    assert_ok(net_predict(j->net, j->up->family->forward, &p, &peak, &err), err);
    assert_ok(net_forward(j->net, j->up->family->forward, &p, &err), err);
    assert_int_equal(net_report(j->net).peak, peak);
    assert_near("y", out, want, n, limit());
    free(x), free(want), free(out);
}

static size_t picture_case(struct upscaler_job *j, const struct weights *w, const char *from,
                           const char *to)
{
    struct shape xs, ys;
    size_t n, xn;
    float *x = tensor(w, from, &xs, &xn), *want = tensor(w, to, &ys, &n);
    float *out = malloc(n * sizeof *out);
    berth_err err = { 0 };
    assert_non_null(out);
    assert_int_equal(n, xn * j->up->scale * j->up->scale);
    assert_ok(upscaler_image(j, x, &xs, out, &err), err);
    assert_near(to, out, want, n, limit());
    assert_int_equal(j->tile, UPSCALE_TILE);
    free(x), free(want), free(out);
    return j->tiles;
}

static void run_model(const char *name, const json_t *about, size_t *tiled)
{
    const struct where at = where_from_env();
    const char *keys = json_string_value(json_object_get(about, "keys"));
    struct keys k = { 0 };
    struct net_rig g;
    struct upscaler_net up;
    struct net *net;
    char file[96];
    uint64_t scale = 0;
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    assert_non_null(keys);
    assert_ok(keys_read(golden_path(keys), &k, &err), err);
    net_rig_open(&g, at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    struct net_args a = net_rig_args(&g);
    const char *unused;
    assert_ok(upscaler_open(&a, NULL, &up, &net, &err), err);
    assert_int_equal(net_unused(net, &unused), 0);
    assert_true(js_get_u64(json_object_get(about, "scale"), &scale));
    assert_int_equal(up.scale, scale);
    struct upscaler_job j = { .net = net, .up = &up };
    print_message("%s\n", name);
    network_case(&j, w);
    assert_int_equal(picture_case(&j, w, "image", "upscaled"), 1);
    if (weights_find(w, "wide", 4) && picture_case(&j, w, "wide", "wide_upscaled") > 1)
        ++*tiled;
    net_close(net);
    net_rig_close(&g);
    weights_close(w);
}

static void upscalers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    json_t *manifest, *about;
    const char *name;
    size_t models = 0, tiled = 0;
    berth_err err;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, "upscale_", 8) != 0)
            continue;
        run_model(name, about, &tiled);
        models++;
    }
    assert_true(models > 0 && tiled > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(upscalers_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
