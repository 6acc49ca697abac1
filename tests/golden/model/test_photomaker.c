/* PhotoMaker's encoder against ComfyUI's: photomaker_tiny of the manifest, its weights made from
 * the keys file it names. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/nets.h"
#include "support/where.h"

#include "base/json.h"
#include "model/photomaker.h"

static float *tensor(const struct weights *w, const char *name, struct shape *s, size_t *n)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    if (!e)
        fail_msg("no '%s'", name);
    *s = e->shape;
    return golden_floats(w, e, n);
}

/* The file's names, and those of files that have adapters beside them. */
static bool behind(const void *user, const struct key *key, char *name, size_t cap, struct shape *s)
{
    (void)s;
    snprintf(name, cap, "%s%s", (const char *)user, key->name);
    return true;
}

static void run(const char *lead, const struct keys *k, const struct weights *w, uint64_t word)
{
    const struct where at = where_from_env();
    struct net_rig g;
    struct photomaker p;
    struct net *net;
    struct shape is, ps;
    size_t in, pn, on;
    berth_err err = { 0 };
    /* synthetic weights follow from names: those without what stands before them */
    const char *path = keys_file_changed(k, "photomaker", behind, lead);
    net_rig_open(&g, at.devices, path, *lead ? lead : NULL, NULL);
    assert_string_equal(photomaker_part(res_weights(g.m)), lead);
    struct net_args a = net_rig_args(&g);
    assert_ok(photomaker_open(&a, lead, &p, &net, &err), err);
    float *image = tensor(w, "image", &is, &in), *prompt = tensor(w, "prompt", &ps, &pn);
    float *want = tensor(w, "out", &ps, &on);
    assert_int_equal(p.width, ps.dim[2]);
    const struct vision_job j = { .image = image,
                                  .n = (size_t)is.dim[0],
                                  .h = (size_t)is.dim[1],
                                  .w = (size_t)is.dim[2],
                                  .c = (size_t)is.dim[3],
                                  .crop = true };
    assert_ok(photomaker_fuse(net, &p, &j, prompt + word * p.width, &err), err);
    assert_near("out", prompt, want, on, where_limit_f32(&at, WHERE_MODULE));
    free(image), free(prompt), free(want);
    net_close(net);
    net_rig_close(&g);
}

static void a_person_equals_the_golden_file(void **state)
{
    (void)state;
    where_or_skip();
    json_t *manifest;
    struct keys k = { 0 };
    uint64_t word = 0;
    berth_err err = { 0 };
    struct weights *w = golden_open("photomaker_tiny.safetensors");
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    const json_t *about = json_object_get(manifest, "photomaker_tiny");
    assert_true(js_get_u64(json_object_get(about, "word"), &word));
    assert_ok(keys_read(golden_path(json_string_value(json_object_get(about, "keys"))), &k, &err),
              err);
    run("", &k, w, word);
    run("id_encoder.", &k, w, word);
    keys_release(&k);
    weights_close(w);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_person_equals_the_golden_file) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
