/* LoraSave over the difference of two tiny models, against ComfyUI's (tools/golden/lora_save.py).
 * Vectors may have either sign, which also moves where values are cut off, so such are not
 * compared. */
#include "support/tiny_rig.h"

#include "tensor/convert.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/node/data/lora_save.safetensors"

static berth_status fill_other(void *user, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    const struct weights_spec *spec = (const struct weights_spec *)user + i;
    char name[256];
    (void)err;
    int len = snprintf(name, sizeof name, "other.%s", spec->name);
    synth_fill(name, (size_t)len, &spec->shape, off / sizeof(float), n / sizeof(float), dst);
    return BERTH_OK;
}

static float *floats(const struct weights *w, const struct weights_entry *e, size_t *n)
{
    uint64_t count;
    berth_err err = { 0 };
    assert_true(shape_count(&e->shape, &count));
    uint16_t *raw = malloc((size_t)e->size + 1);
    float *out = malloc((size_t)count * sizeof *out + 1);
    assert_true(raw && out && e->dtype == DT_F16);
    assert_ok(weights_read(w, e, 0, raw, (size_t)e->size, &err), err);
    assert_ok(convert(DT_F16, raw, DT_F32, out, (size_t)count, &err), err);
    free(raw);
    *n = (size_t)count;
    return out;
}

static float largest(const float *v, size_t n)
{
    float m = 0;
    for (size_t i = 0; i < n; i++)
        m = fmaxf(m, fabsf(v[i]));
    return m;
}

/* One of `vectors` after the other: its sign is free. Returns how many values were compared. */
static size_t compare_vectors(const char *name, const float *a, const float *b, size_t n,
                              size_t vectors, bool columns)
{
    size_t each = n / vectors, step = columns ? vectors : 1, compared = 0;
    float cut = fminf(largest(a, n), largest(b, n)) * 0.97f;
    for (size_t v = 0; v < vectors; v++) {
        const float *x = a + (columns ? v : v * each), *y = b + (columns ? v : v * each);
        double sum = 0;
        for (size_t i = 0; i < each; i++)
            sum += (double)x[i * step] * (double)y[i * step];
        float sign = sum < 0 ? -1.0f : 1.0f;
        for (size_t i = 0; i < each; i++) {
            float p = x[i * step], q = sign * y[i * step];
            if (fabsf(p) >= cut || fabsf(q) >= cut)
                continue;
            compared++;
            if (!(fabsf(p - q) <= 2e-3f * cut))
                fail_msg("%s, vector %zu, value %zu: %g, wanted %g", name, v, i, (double)p,
                         (double)q);
        }
    }
    return compared;
}

static size_t compare(const struct weights *got, const struct weights *want,
                      const struct weights_entry *e)
{
    const struct weights_entry *o = weights_find(got, e->name, e->name_len);
    size_t n, m;
    if (!o || !shape_eq(&o->shape, &e->shape))
        fail_msg("'%s' is not there so", e->name);
    float *a = floats(got, o, &n), *b = floats(want, e, &m);
    if (strstr(e->name, ".lora_up."))
        m = compare_vectors(e->name, a, b, n, (size_t)e->shape.dim[1], true);
    else if (strstr(e->name, ".lora_down."))
        m = compare_vectors(e->name, a, b, n, (size_t)e->shape.dim[0], false);
    else
        for (size_t i = 0; i < n; i++)
            if (!(fabsf(a[i] - b[i]) <= 1e-3f))
                fail_msg("%s[%zu]: %g, wanted %g", e->name, i, (double)a[i], (double)b[i]);
    free(a);
    free(b);
    return m;
}

/* Both have the same names. */
static void compare_names(const struct weights *got, const struct weights *want)
{
    const struct weights_meta *m = weights_meta_find(want, "names");
    size_t theirs = 0;
    assert_non_null(m);
    for (const char *s = m->str; *s;) {
        size_t n = strcspn(s, "\n");
        if (!weights_find(got, s, n))
            fail_msg("no '%.*s'", (int)n, s);
        theirs++;
        s += n + (s[n] == '\n');
    }
    assert_int_equal(weights_count(got), theirs);
}

static void mixed(struct tiny *t, struct call *x, const char *cls, const char *what,
                  const struct call *other, size_t out, const char *by)
{
    char inputs[64], name[16];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"multiplier\": %s}", by);
    rig_call(&t->r, x, cls, inputs);
    snprintf(name, sizeof name, "%s1", what);
    call_give(x, name, t->ckpt.out[out].at[0]);
    snprintf(name, sizeof name, "%s2", what);
    call_give(x, name, other->out[out].at[0]);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void an_adapter_is_extracted(void **state)
{
    static const char *const whole[] = { "sd15_tiny_clip_keys.json", "sd15_tiny_unet_keys.json" };
    static struct tiny t;
    static struct call other, model, clip, save;
    struct weights *want, *got;
    char path[1100], inputs[160];
    size_t compared = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tiny_open(&t, "sample_sd15_tiny");
    tiny_sd15_file(&t);
    const json_t *cfg = json_object_get(json_object_get(t.manifest, "clip_l_tiny"), "config");
    tiny_write_by(rig_path(&t.r, "checkpoints/other.safetensors"), whole, 2,
                  (int)tiny_number(cfg, "num_attention_heads"), fill_other);
    assert_ok(weights_open(DATA, NULL, &want, &err), err);
    assert_ok(rig_run(&t.r, &t.ckpt, "CheckpointLoaderSimple", "{\"ckpt_name\": \"" TINY_SD15 "\"}",
                      &err),
              err);
    assert_ok(rig_run(&t.r, &other, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"other.safetensors\"}", &err),
              err);
    const char *by = weights_meta_find(want, "multiplier")->str;
    mixed(&t, &model, "ModelMergeSubtract", "model", &other, 0, by);
    mixed(&t, &clip, "CLIPMergeSubtract", "clip", &other, 1, by);
    snprintf(inputs, sizeof inputs,
             "{\"filename_prefix\": \"tiny\", \"rank\": %s, \"lora_type\": \"standard\", "
             "\"bias_diff\": true}",
             weights_meta_find(want, "rank")->str);
    rig_call(&t.r, &save, "LoraSave", inputs);
    call_give(&save, "model_diff", model.out[0].at[0]);
    call_give(&save, "text_encoder_diff", clip.out[0].at[0]);
    assert_ok(save.c.cls->run(&save.c, &err), err);
    snprintf(path, sizeof path, "%s/output/tiny_00001_.safetensors", t.r.base);
    assert_ok(weights_open(path, NULL, &got, &err), err);
    compare_names(got, want);
    for (size_t i = 0; i < weights_count(want); i++)
        compared += compare(got, want, weights_at(want, i));
    print_message("%zu values compared\n", compared);
    assert_true(compared > 5000);
    weights_close(got);
    weights_close(want);
    struct call *const all[] = { &save, &model, &clip, &other };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(an_adapter_is_extracted) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
