/* Whole networks in every layout of quantised files: each gives the same bits as the same weights
 * expanded beforehand, wherever its blocks lie, and the file's bytes are what it takes. Scaled fp8
 * is multiplied by its scale behind the sum, so that its bits are its own, and equal everywhere. */
#include "support/diffusion_rig.h"
#include "support/layout_files.h"

#include <math.h>

#define PLACES 4

static const struct {
    const char *preset;
    struct diff_spec spec;
} nets[] = {
    { "z-image-tiny", { .latent = { 4, { 1, 16, 6, 4 } }, .tokens = 5 } },
    { "flux-tiny", { .latent = { 4, { 1, 16, 6, 4 } }, .tokens = 5 } },
    { "qwen-image-tiny", { .latent = { 5, { 1, 16, 1, 6, 4 } }, .tokens = 5 } },
    { "krea2-tiny", { .latent = { 5, { 1, 16, 1, 6, 4 } }, .tokens = 5 } },
    { "flux2-klein-tiny", { .latent = { 4, { 1, 128, 4, 3 } }, .tokens = 5 } },
};

static void same_everywhere(size_t net, const char *layout)
{
    static const struct {
        const char *devices, *alloc;
    } place[PLACES] = { { "cpu=256m", NULL },
                        { "cpu=256m,null:0=64m", "null:0,*#cpu" },
                        { "cpu=256m,null:0=64m", "null:0,40%;cpu,60%#cpu" },
                        { "cuda:0@cpu=32m,cpu=256m,null:0=64m",
                          "cuda:0,30%;null:0,30%;cpu,*#cuda:0" } };
    char name[96];
    const bool after = strncmp(layout, "fp8", 3) == 0; /* scaled behind the sum */
    const struct diff_spec *spec = &nets[net].spec;
    snprintf(name, sizeof name, "%s-%s.safetensors", nets[net].preset, layout);
    const char *path = tmp_path(name), *values = tmp_path("values.safetensors");
    layout_write(nets[net].preset, layout, path);
    if (layout_expand(path, values) < 10)
        fail_msg("%s as %s has hardly any codes", nets[net].preset, layout);
    float *want = diff_run_file(spec, place[0].devices, values, place[0].alloc, 1, 0);
    for (size_t i = 0; i < PLACES; i++) {
        struct diff_rig r;
        diff_open(&r, spec, place[i].devices, path, place[i].alloc, 1);
        float *got = diff_run(&r);
        for (size_t k = 0; k < r.each; k++)
            if (after && i == 0 ? !(fabsf(want[k] - got[k]) <= 1e-4F)
                                : memcmp(want + k, got + k, sizeof *want) != 0)
                fail_msg("%s as %s, place %zu: %.9g at %zu, not %.9g", nets[net].preset, layout, i,
                         (double)got[k], k, (double)want[k]);
        assert_int_equal(diffusion_report(r.d).peak, diffusion_report(r.d).predicted);
        if (after && i == 0)
            memcpy(want, got, r.each * sizeof *want);
        free(got);
        diff_close(&r);
    }
    free(want);
}

/* Every layout with one network, every network with one layout of each kind. */
static void bits_are_those_of_the_values(void **state)
{
    static const char *const some[] = { "int8_convrot", "nvfp4", "fp8_scaled" };
    (void)state;
    for (size_t i = 0; i < synth_layouts_n; i++)
        same_everywhere(3, synth_layouts[i].name);
    for (size_t i = 0; i < ARRAY_LEN(nets); i++)
        for (size_t k = 0; k < ARRAY_LEN(some); k++)
            if (i != 3)
                same_everywhere(i, some[k]);
}

/* Plans count what is stored: four bits are an eighth of F32. */
static void bytes_are_those_of_the_file(void **state)
{
    struct net_rig nvfp4, f32;
    const char *path = tmp_path("n.safetensors"), *values = tmp_path("v.safetensors");
    (void)state;
    layout_write("z-image-tiny", "nvfp4", path);
    layout_expand(path, values);
    net_rig_open(&nvfp4, "cpu=256m", path, NULL, NULL);
    uint64_t codes = res_blocks(nvfp4.m)->bytes;
    net_rig_close(&nvfp4);
    net_rig_open(&f32, "cpu=256m", values, NULL, NULL);
    uint64_t wide = res_blocks(f32.m)->bytes;
    net_rig_close(&f32);
    assert_true(codes < wide / 6);
}

/* ---- adapters ---- */

/* Adds 0.05 to every weight of `key`. */
struct adding {
    struct res_adapter base;
    const char *key;
};

static bool adding_touches(const struct res_adapter *a, const char *key, size_t n)
{
    const struct adding *x = (const void *)a;
    return str_eq(key, n, x->key);
}

static berth_status adding_terms(const struct res_adapter *a, const char *key, size_t n,
                                 const struct shape *shape, float strength, struct arena *tmp,
                                 struct vec *out, berth_err *err)
{
    struct res_term t = { .kind = TERM_LOWRANK, .rank = 1, .scale = strength };
    (void)a, (void)key, (void)n, (void)err;
    t.rows = shape->dim[0];
    t.cols = shape->dim[1];
    float *up = arena_array(tmp, (size_t)t.rows, sizeof *up),
          *down = arena_array(tmp, (size_t)t.cols, sizeof *down);
    assert_true(up && down);
    for (size_t i = 0; i < t.rows; i++)
        up[i] = 0.5F;
    for (size_t i = 0; i < t.cols; i++)
        down[i] = 0.1F;
    t.up = up;
    t.down = down;
    assert_true(vec_push(out, &t));
    return BERTH_OK;
}

static void adding_free(struct res_adapter *a)
{
    (void)a;
}

static float *patched_run(const char *path, const char *alloc, const char *key, size_t *each)
{
    static const struct res_adapter_ops ops = { adding_touches, adding_terms, adding_free };
    struct adding add = { .base = { .ops = &ops, .refs = 1, .id = 7, .name = "adding" },
                          .key = key };
    struct diff_rig r;
    berth_err err = { 0 };
    diff_open(&r, &nets[0].spec, alloc ? "cpu=256m,null:0=64m" : "cpu=256m", path, alloc, 1);
    diffusion_close(r.d);
    const struct res_patch patch = { &add.base, 1 };
    assert_ok(res_set_patches(r.g.m, &patch, key ? 1 : 0, &err), err);
    assert_ok(res_load(r.g.m, NULL, NULL, &err), err);
    struct diffusion_args args = { .res = r.g.f.r, .m = r.g.m };
    assert_ok(diffusion_open(&args, &r.d, &err), err);
    float *out = diff_run(&r);
    *each = r.each;
    diff_close(&r);
    return out;
}

/* A merge into codes is that into their values, rounded to F16; the same bits in two places. */
static void adapters_are_merged_into_values(void **state)
{
    static const char *const layouts[] = { "int8_convrot", "nvfp4", "mxfp8", "w4a8" };
    static const char key[] = "diffusion_model.layers.0.feed_forward.w2.weight";
    const char *path = tmp_path("merged.safetensors"), *values = tmp_path("values.safetensors");
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++) {
        size_t n;
        double off = 0, change = 0;
        layout_write("z-image-tiny", layouts[i], path);
        layout_expand(path, values);
        float *plain = patched_run(path, NULL, NULL, &n),
              *want = patched_run(values, NULL, key, &n);
        float *got = patched_run(path, NULL, key, &n),
              *away = patched_run(path, "null:0,*#cpu", key, &n);
        for (size_t k = 0; k < n; k++) {
            off += fabs((double)(got[k] - want[k]));
            change += fabs((double)(plain[k] - want[k]));
        }
        if (!(change > 0.01 && off < 0.01 * change))
            fail_msg("%s: off by %g, the adapter makes %g", layouts[i], off, change);
        assert_memory_equal(got, away, n * sizeof *got);
        free(plain), free(want), free(got), free(away);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_values),
        cmocka_unit_test(bytes_are_those_of_the_file),
        cmocka_unit_test(adapters_are_merged_into_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
