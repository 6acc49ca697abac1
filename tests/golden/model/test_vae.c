/* The VAEs of the golden files: every vae_<model> of the manifest, its weights made from
 * <model>_vae_keys.json.
 *
 * Error: largest absolute difference over the largest absolute value of the reference, at most what
 * support/where.h has for a module. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/vae_kl/vae_kl.h"

static float *tensor(const struct weights *w, const char *lead, const char *name, struct shape *s)
{
    char full[64];
    size_t n;
    int len = snprintf(full, sizeof full, "%s%s", lead, name);
    const struct weights_entry *e = weights_find(w, full, (size_t)len);
    *s = e ? e->shape : (struct shape) { 0 };
    return e ? golden_floats(w, e, &n) : NULL;
}

static size_t elements(const struct shape *s)
{
    uint64_t n = 0;
    assert_true(s->ndim == 4 && shape_count(s, &n));
    return (size_t)n;
}

/* Of <lead><name> of the golden file. */
static double limit_of(const char *file, const char *lead, const char *name)
{
    const struct where at = where_from_env();
    char tensor_name[64];
    snprintf(tensor_name, sizeof tensor_name, "%s%s", lead, name);
    return where_limit(&at, WHERE_MODULE, file, tensor_name);
}

static void decode_case(struct vae_job *j, const struct weights *w, const char *file,
                        const char *lead)
{
    struct shape zs, xs;
    float *z = tensor(w, lead, "z", &zs), *want = tensor(w, lead, "decoded", &xs);
    assert_true(z && want);
    size_t n = elements(&xs), hw = (size_t)(xs.dim[2] * xs.dim[3]);
    float *out = calloc(n, sizeof *out), *image = calloc(n, sizeof *image);
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(out && image);
    assert_ok(vae_predict(j, true, &zs, &peak, &err), err);
    assert_ok(vae_decode(j, z, &zs, out, &err), err);
    assert_int_equal(net_report(j->net).peak, peak);
    assert_near("decoded", out, want, n, limit_of(file, lead, "decoded"));
    /* as nodes see it: the same, clamped, colours together */
    assert_ok(vae_decode_image(j, z, &zs, image, &err), err);
    for (size_t i = 0; i < n; i++) {
        float v = (out[i / hw % 3 * hw + i / (3 * hw) * 3 * hw + i % hw] + 1.0f) / 2.0f;
        v = v < 0 ? 0 : v > 1 ? 1 : v;
        assert_true(image[i / (3 * hw) * 3 * hw + i % hw * 3 + i / hw % 3] == v);
    }
    free(z), free(want), free(out), free(image);
}

static void encode_case(struct vae_job *j, const struct weights *w, const char *file,
                        const char *lead)
{
    struct shape xs, zs;
    float *x = tensor(w, lead, "image", &xs), *want = tensor(w, lead, "encoded", &zs);
    if (!want) { /* a file with pictures for decoding alone */
        free(x);
        return;
    }
    size_t n = elements(&zs);
    float *out = calloc(n, sizeof *out);
    berth_err err = { 0 };
    assert_true(x && out);
    assert_ok(vae_encode(j, x, &xs, out, &err), err);
    assert_near("encoded", out, want, n, limit_of(file, lead, "encoded"));
    free(x), free(want), free(out);
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    struct net_rig g;
    struct vae_net v;
    struct net *net;
    char file[96];
    uint64_t z = 0;
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    snprintf(file, sizeof file, "%s_vae_keys.json", name + strlen("vae_"));
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    net_rig_open(&g, at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    struct net_args a = net_rig_args(&g);
    a.act = at.act;
    assert_ok(vae_open(&a, NULL, &v, &net, &err), err);
    const json_t *c = json_object_get(about, "config");
    const uint64_t pixels = json_is_true(json_object_get(c, "batch_norm_latent")) ? 4 : 1;
    assert_true(js_get_u64(json_object_get(c, "z_channels"), &z) &&
                v.latent.channels == pixels * z);
    assert_true(js_get_u64(json_object_get(c, "num_res_blocks"), &z) &&
                vae_kl_in(&v)->enc_blocks == z && vae_kl_in(&v)->dec_blocks == z + 1);
    assert_int_equal(vae_kl_in(&v)->levels, json_array_size(json_object_get(c, "ch_mult")));

    struct vae_job j = { .net = net, .vae = &v };
    size_t cases = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!str_ends(e->name, e->name_len, "/z") && strcmp(e->name, "z") != 0)
            continue;
        char lead[32];
        snprintf(lead, sizeof lead, "%.*s", (int)e->name_len - 1, e->name);
        print_message("%s %s\n", name, lead);
        decode_case(&j, w, name, lead);
        encode_case(&j, w, name, lead);
        cases++;
    }
    assert_true(cases > 0 && !j.tiled);
    net_close(net);
    net_rig_close(&g);
    weights_close(w);
}

static void vaes_equal_the_golden_files(void **state)
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
        if (strncmp(name, "vae_", 4) != 0)
            continue;
        char keys[96]; /* those of video have lists of other names, and tests beside this one */
        snprintf(keys, sizeof keys, "%s_vae_keys.json", name + 4);
        if (access(golden_path(keys), R_OK))
            continue;
        run_model(name, about);
        models++;
    }
    assert_true(models > 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(vaes_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
