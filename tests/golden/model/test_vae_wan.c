/* The VAEs of Wan's kind in the golden files: every wan21_vae_<model> and wan22_vae_<model> of the
 * manifest, its weights made from the keys file it names, or from <model>_keys.json. Pictures are
 * videos of one frame; a file may have one beside its video, as z1, decoded1, image, encoded1.
 *
 * Each is decoded and encoded whole, and as nodes have pictures, which is the same but for their
 * range and order. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/vae_wan/vae_wan.h"

static float *tensor(const struct weights *w, const char *name, struct shape *s, size_t *n)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        fail_msg("no '%s'", name);
    assert_int_equal(e->shape.ndim, 5);
    *s = e->shape;
    return golden_floats(w, e, n);
}

static void decode_case(struct vae_job *j, const struct weights *w, const char *file,
                        const char *latent, const char *decoded)
{
    const struct where at = where_from_env();
    struct shape zs, xs;
    size_t n, zn;
    float *z = tensor(w, latent, &zs, &zn), *want = tensor(w, decoded, &xs, &n);
    float *out = calloc(n, sizeof *out), *image = calloc(n, sizeof *image);
    const size_t planes = (size_t)(xs.dim[2] * xs.dim[3] * xs.dim[4]);
    const struct shape made = vae_decoded(j->vae, &zs);
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(out && image && shape_eq(&made, &xs));
    assert_ok(vae_predict(j, true, &zs, &peak, &err), err);
    assert_ok(vae_decode(j, z, &zs, out, &err), err);
    assert_int_equal(net_report(j->net).peak, peak);
    assert_near(decoded, out, want, n, where_limit(&at, WHERE_MODULE, file, decoded));
    assert_ok(vae_decode_image(j, z, &zs, image, &err), err);
    for (size_t i = 0; i < n; i++) {
        float v = (out[i] + 1.0f) / 2.0f;
        assert_true(image[i % planes * j->vae->colours + i / planes] == (v < 0   ? 0
                                                                         : v > 1 ? 1
                                                                                 : v));
    }
    free(z), free(want), free(out), free(image);
}

static void encode_case(struct vae_job *j, const struct weights *w, const char *file,
                        const char *from, const char *encoded)
{
    const struct where at = where_from_env();
    struct shape xs, zs;
    size_t n, xn;
    float *x = tensor(w, from, &xs, &xn), *want = tensor(w, encoded, &zs, &n);
    float *out = calloc(n, sizeof *out);
    const struct shape made = vae_encoded(j->vae, &xs);
    uint64_t peak;
    berth_err err = { 0 };
    assert_true(out && shape_eq(&made, &zs));
    assert_ok(vae_predict(j, false, &xs, &peak, &err), err);
    assert_ok(vae_encode(j, x, &xs, out, &err), err);
    assert_int_equal(net_report(j->net).peak, peak);
    assert_near(encoded, out, want, n, where_limit(&at, WHERE_MODULE, file, encoded));
    free(x), free(want), free(out);
}

static uint64_t number(const json_t *config, const char *name)
{
    uint64_t v = 0;
    assert_true(js_get_u64(json_object_get(config, name), &v));
    return v;
}

static void compare_config(const struct vae_net *v, const json_t *c)
{
    const json_t *down = json_object_get(c, "temperal_downsample");
    const size_t levels = json_array_size(json_object_get(c, "dim_mult"));
    uint32_t frames = 1;
    for (size_t i = 0; i < json_array_size(down); i++)
        frames <<= json_is_true(json_array_get(down, i));
    assert_int_equal(v->latent.channels, number(c, "z_dim"));
    assert_int_equal(v->colours, json_object_get(c, "image_channels") ? number(c, "image_channels")
                                                                      : 3);
    assert_int_equal(v->latent.rank, 3);
    const bool stages = vae_wan_in(v)->stages; /* as many as levels, and pixels are folded */
    assert_int_equal(stages, json_object_get(c, "dec_dim") != NULL);
    assert_int_equal(v->latent.ratio, (stages ? 2 : 1) << (levels - 1));
    assert_int_equal(v->latent.time_ratio, frames);
    assert_int_equal(vae_wan_in(v)->enc_blocks,
                     stages ? levels : levels * number(c, "num_res_blocks") + levels - 1);
}

static void run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    const char *keys = json_string_value(json_object_get(about, "keys"));
    struct keys k = { 0 };
    struct net_rig g;
    struct vae_net v;
    struct net *net;
    char file[96];
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    assert_ok(keys_read(golden_path(keys ? keys : file), &k, &err), err);
    net_rig_open(&g, at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, NULL);
    keys_release(&k);
    assert_ok(tpool_new(2, &g.pool, &err), err);
    struct net_args a = net_rig_args(&g);
    a.act = at.act;
    assert_ok(vae_open(&a, NULL, &v, &net, &err), err);
    compare_config(&v, json_object_get(about, "config"));
    struct vae_job j = { .net = net, .vae = &v };
    print_message("%s\n", name);
    const bool video = weights_find(w, "video", 5);
    decode_case(&j, w, name, "z", "decoded");
    encode_case(&j, w, name, video ? "video" : "image", "encoded");
    if (weights_find(w, "z1", 2)) {
        decode_case(&j, w, name, "z1", "decoded1");
        encode_case(&j, w, name, "image", "encoded1");
    }
    assert_false(j.tiled);
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
        if (strncmp(name, "wan21_vae_", 10) != 0 && strncmp(name, "wan22_vae_", 10) != 0)
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
