/* The text encoders of the golden files: every clip_<x>_tiny of the manifest with its prompts,
 * through tokenizer, network and weighting. Its weights are made from <name>_keys.json, or where
 * that is not there from the keys of the SD1.5 model.
 *
 * Error: largest absolute difference over the largest absolute value of the reference, at most
 * 1e-4; 1e-3 on a card. */
#include "support/clips.h"
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/tokenizer.h"
#include "support/where.h"

#include "base/json.h"
#include "text/bpe.h"

#include <unistd.h>

struct model {
    const char *name;
    struct where at;
    struct weights *want;
    struct clip_rig g;
    struct bpe *bpe;
    size_t wrong; /* tensors; all are compared, then the test fails */
};

static const float *take(const struct model *m, const char *name, float **own, size_t *n)
{
    const struct weights_entry *e = weights_find(m->want, name, strlen(name));
    *own = e ? golden_floats(m->want, e, n) : NULL;
    return *own;
}

static void compare(struct model *m, const char *name, const float *got, size_t n)
{
    float *want;
    size_t have;
    char what[96];
    assert_non_null(take(m, name, &want, &have));
    snprintf(what, sizeof what, "%s %s", m->name, name);
    if (n != have)
        print_message("%s: %zu values, not %zu: WRONG\n", what, n, have);
    m->wrong += n != have || !is_near(what, got, want, n, where_limit_f32(&m->at, WHERE_MODULE));
    free(want);
}

static const struct text_set *set_of(const struct encoder_class *k)
{
    return k == &encoder_clip_l   ? &text_set_sd1
           : k == &encoder_clip_g ? &text_set_refiner
                                  : &text_set_sd2;
}

/* The golden pooled outputs are projected, CLIP-L's too, where the SD1 set gives the one before. */
static void pooled(struct model *m, const char *name, const char *text)
{
    const struct text_encoder *e = &m->g.enc[0];
    struct arena mem = { 0 };
    struct chunks in;
    berth_err err = { 0 };
    float got[4096];
    struct chunk_rules rules = { .start = tokenizer_clip.ids(m->bpe).start,
                                 .end = tokenizer_clip.ids(m->bpe).end,
                                 .pad =
                                     e->is == &encoder_clip_l ? tokenizer_clip.ids(m->bpe).end : 0,
                                 .max_length = (uint32_t)clip_of(e)->positions,
                                 .pad_to_max = true };
    assert_true(clip_of(e)->width <= ARRAY_LEN(got) && clip_of(e)->projection);
    assert_ok(text_chunks(text, strlen(text), tokenizer_clip.encode, m->bpe, &rules, "", NULL, &mem,
                          &in, &err),
              err);
    assert_ok(
        text_encoder_run(e, &in, &(struct encoder_want) { .project = true }, NULL, got, NULL, &err),
        err);
    compare(m, name, got, (size_t)clip_of(e)->width);
    arena_release(&mem);
}

static size_t prompt(struct model *m, size_t i, const char *text)
{
    static const int skip[] = { 0, -2 };
    size_t done = 0;
    berth_err err = { 0 };
    char name[64];
    for (size_t k = 0; k < ARRAY_LEN(skip); k++) {
        struct arena mem = { 0 };
        struct text_cond got;
        float *there;
        size_t n;
        snprintf(name, sizeof name, k ? "p%zu/skip2/cond" : "p%zu/cond", i);
        if (take(m, name, &there, &n)) {
            struct text_args a = {
                .set = set_of(m->g.enc[0].is), .enc = m->g.enc, .encoders = m->g.n, .skip = skip[k]
            };
            assert_ok(encode_texts(&a, text, NULL, &mem, &got, &err), err);
            compare(m, name, got.cond, got.tokens * got.width);
            done++;
        }
        free(there);
        arena_release(&mem);
    }
    snprintf(name, sizeof name, "p%zu/pooled", i);
    if (weights_find(m->want, name, strlen(name))) {
        pooled(m, name, text);
        done++;
    }
    return done;
}

static size_t run_model(const char *name, const json_t *entry)
{
    struct model m = { .name = name, .at = where_from_env() };
    char file[96];
    struct keys k = { 0 };
    berth_err err = { 0 };
    const json_t *prompts = json_object_get(entry, "prompts");
    const json_t *config = json_object_get(entry, "config");
    snprintf(file, sizeof file, "%s.safetensors", name);
    m.want = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    const char *keys = golden_path(file);
    if (access(keys, R_OK) != 0)
        keys = golden_path("sd15_tiny_clip_keys.json");
    assert_ok(keys_read(keys, &k, &err), err);
    uint32_t heads = (uint32_t)json_integer_value(json_object_get(config, "num_attention_heads"));
    const char *path = keys_file(&k, name, DT_F32, "safetensors", NULL);
    clip_rig_open_on(&m.g, m.at.devices, path, NULL, heads);
    keys_release(&k);
    const struct clip_net *c = clip_of(&m.g.enc[0]);
    assert_int_equal(m.g.n, 1);
    assert_int_equal(c->layers, json_integer_value(json_object_get(config, "num_hidden_layers")));
    assert_int_equal(c->mlp, json_integer_value(json_object_get(config, "intermediate_size")));
    assert_int_equal(c->quick_gelu, strcmp(json_string_value(json_object_get(config, "hidden_act")),
                                           "quick_gelu") == 0);
    assert_ok(bpe_open(tokenizer_dir("clip"), &m.bpe, &err), err);
    clip_rig_tokenizer(&m.g, m.bpe);
    size_t done = 0, i;
    json_t *text;
    json_array_foreach(prompts, i, text)
    {
        done += prompt(&m, i, json_string_value(text));
    }
    assert_int_equal(done, weights_count(m.want)); /* nothing in the file was passed over */
    bpe_close(m.bpe);
    clip_rig_close(&m.g);
    weights_close(m.want);
    return m.wrong;
}

static void every_model(void **state)
{
    (void)state;
    where_or_skip();
    tokenizer_or_skip("clip");
    berth_err err = { 0 };
    json_t *manifest, *entry;
    const char *name;
    size_t models = 0, wrong = 0;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, entry)
    {
        if (strncmp(name, "clip_", 5) == 0 && json_object_get(entry, "prompts")) {
            wrong += run_model(name, entry);
            models++;
        }
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
