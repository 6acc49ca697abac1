/* umT5 of the golden files: every umt5_<x> of the manifest. Token ids go in as the reference's
 * prompts had them, padded; p<n>/cond comes out, with zeros where the padding stood.
 *
 * Error: largest absolute difference over the largest absolute value of the reference, at most
 * 1e-4; 1e-3 on a card. */
#include "support/clips.h"
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/where.h"

#include "base/json.h"

static void check_config(const struct t5_net *t, const json_t *config)
{
#define NUMBER(key) ((uint64_t)json_integer_value(json_object_get(config, key)))
    assert_int_equal(t->width, NUMBER("d_model"));
    assert_int_equal(t->mlp, NUMBER("d_ff"));
    assert_int_equal(t->heads, NUMBER("num_heads"));
    assert_int_equal(t->inner, NUMBER("num_heads") * NUMBER("d_kv"));
    assert_int_equal(t->layers, NUMBER("num_layers"));
    assert_int_equal(t->vocab, NUMBER("vocab_size"));
#undef NUMBER
    assert_true(t->own_bias);
}

/* As the set cuts and pads prompts; `times` of them, which must not change what each gives. */
static bool prompt(struct clip_rig *g, const struct weights *w, const char *name, size_t times)
{
    const struct where at = where_from_env();
    const struct text_use *use = &text_set_wan.use[0];
    const struct text_encoder *e = &g->enc[0];
    const size_t width = (size_t)e->is->size(e->config).width;
    char q[64], what[96];
    struct arena mem = { 0 };
    berth_err err = { 0 };
    size_t n, len = use->min_length;
    int64_t *id = arena_array(&mem, len, sizeof *id);
    struct token *t = arena_array(&mem, len, sizeof *t),
                 **chunk = arena_array(&mem, times, sizeof *chunk);
    size_t *length = arena_array(&mem, times, sizeof *length);
    float *z = arena_array(&mem, times * len * width, sizeof *z);
    assert_true(id && t && chunk && length && z);
    snprintf(q, sizeof q, "%s/tokens", name);
    const struct weights_entry *ids = weights_find(w, q, strlen(q));
    assert_true(ids && ids->dtype == DT_I64 && ids->size == len * sizeof *id);
    assert_ok(weights_read(w, ids, 0, id, ids->size, &err), err);
    for (size_t i = 0; i < len; i++)
        t[i] = (struct token) { .id = (int32_t)id[i], .weight = 1 };
    for (size_t i = 0; i < times; i++) {
        chunk[i] = t;
        length[i] = len;
    }
    const struct chunks in = {
        .chunk = chunk, .len = length, .n = times, .rules = { .start = -1, .end = 1, .pad = 0 }
    };
    memset(z, 0xff, times * len * width * sizeof *z);
    assert_ok(text_encoder_run(e, &in, &use->want, z, NULL, NULL, &err), err);
    snprintf(q, sizeof q, "%s/cond", name);
    const struct weights_entry *cond = weights_find(w, q, strlen(q));
    assert_non_null(cond);
    float *want = golden_floats(w, cond, &n);
    assert_int_equal(n, len * width);
    snprintf(what, sizeof what, "%s, number %zu", q, times);
    bool same = is_near(what, z + (times - 1) * n, want, n, where_limit_f32(&at, WHERE_MODULE));
    if (!at.card)
        assert_memory_equal(z, z + (times - 1) * n, n * sizeof *z);
    for (size_t i = n; want[i - 1] == 0.0f; i--)
        assert_true(z[i - 1] == 0.0f);
    free(want);
    arena_release(&mem);
    return same;
}

static size_t run_model(const char *name, const json_t *about)
{
    const struct where at = where_from_env();
    struct keys k = { 0 };
    struct clip_rig g;
    char file[96];
    size_t cases = 0, wrong = 0;
    berth_err err = { 0 };
    snprintf(file, sizeof file, "%s.safetensors", name);
    struct weights *w = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    assert_ok(keys_read(golden_path(file), &k, &err), err);
    clip_rig_open_on(&g, at.devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, 0);
    keys_release(&k);
    assert_int_equal(g.n, 1);
    assert_ptr_equal(g.enc[0].is, &encoder_umt5);
    check_config(g.enc[0].config, json_object_get(about, "config"));
    for (size_t i = 0; i < weights_count(w); i++) {
        const char *slash = strchr(weights_at(w, i)->name, '/');
        char prefix[32];
        if (!slash || strcmp(slash, "/cond") != 0)
            continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)strcspn(weights_at(w, i)->name, "/"),
                 weights_at(w, i)->name);
        for (size_t times = 1; times <= 3; times += 2)
            wrong += !prompt(&g, w, prefix, times);
        cases++;
    }
    assert_true(cases > 0);
    clip_rig_close(&g);
    weights_close(w);
    return wrong;
}

static void every_model(void **state)
{
    (void)state;
    where_or_skip();
    berth_err err = { 0 };
    json_t *manifest, *about;
    const char *name;
    size_t models = 0, wrong = 0;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (strncmp(name, "umt5_", 5) != 0)
            continue;
        wrong += run_model(name, about);
        models++;
    }
    assert_true(models > 0);
    assert_int_equal(wrong, 0);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
