/* T5 of the golden files: every t5_<x> of the manifest with its prompts, through tokenizer, network
 * and weighting, in the set of Flux (whose CLIP-L is that of the SD1.5 model; its part in the
 * conditioning, the pooled output, is not in these files).
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
#include "text/unigram.h"

struct model {
    const char *name;
    struct where at;
    struct weights *want;
    struct clip_rig t5, clip;
    struct text_encoder enc[2];
    struct bpe *bpe;
    struct unigram *unigram;
};

static void open_rig(struct clip_rig *g, const struct where *at, const char *keys, const char *name,
                     uint32_t heads)
{
    struct keys k = { 0 };
    berth_err err = { 0 };
    assert_ok(keys_read(golden_path(keys), &k, &err), err);
    clip_rig_open_on(g, at->devices, keys_file(&k, name, DT_F32, "safetensors", NULL), NULL, heads);
    keys_release(&k);
    assert_int_equal(g->n, 1);
}

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
    assert_string_equal(json_string_value(json_object_get(config, "dense_act_fn")),
                        "gelu_pytorch_tanh");
}

static bool prompt(struct model *m, size_t i, const char *text)
{
    struct arena mem = { 0 };
    struct text_cond got;
    berth_err err = { 0 };
    char name[64], what[128];
    size_t n;
    snprintf(name, sizeof name, "p%zu/cond", i);
    const struct weights_entry *e = weights_find(m->want, name, strlen(name));
    assert_non_null(e);
    float *want = golden_floats(m->want, e, &n);
    struct text_args a = { .set = &text_set_flux, .enc = m->enc, .encoders = 2 };
    assert_ok(encode_texts(&a, text, NULL, &mem, &got, &err), err);
    assert_int_equal(got.pooled_n, clip_of(&m->enc[1])->width);
    snprintf(what, sizeof what, "%s %s", m->name, name);
    bool same = got.tokens * got.width == n;
    if (!same)
        print_message("%s: %zu values, not %zu: WRONG\n", what, got.tokens * got.width, n);
    same = same && is_near(what, got.cond, want, n, where_limit_f32(&m->at, WHERE_MODULE));
    free(want);
    arena_release(&mem);
    return same;
}

static size_t run_model(const char *name, const json_t *entry)
{
    struct model m = { .name = name, .at = where_from_env() };
    char file[96];
    berth_err err = { 0 };
    const json_t *prompts = json_object_get(entry, "prompts");
    snprintf(file, sizeof file, "%s.safetensors", name);
    m.want = golden_open(file);
    snprintf(file, sizeof file, "%s_keys.json", name);
    open_rig(&m.t5, &m.at, file, name, 0);
    open_rig(&m.clip, &m.at, "sd15_tiny_clip_keys.json", "clip", 0);
    m.enc[0] = m.t5.enc[0];
    m.enc[1] = m.clip.enc[0];
    check_config(t5_of(&m.enc[0]), json_object_get(entry, "config"));
    assert_ok(text_encoder_check(&m.enc[0], &err), err);
    assert_ok(bpe_open(tokenizer_dir("clip"), &m.bpe, &err), err);
    assert_ok(unigram_open(tokenizer_dir("t5"), &m.unigram, &err), err);
    m.enc[0].tok = m.unigram;
    m.enc[1].tok = m.bpe;
    size_t i, wrong = 0;
    json_t *text;
    json_array_foreach(prompts, i, text) wrong += !prompt(&m, i, json_string_value(text));
    assert_int_equal(i, weights_count(m.want)); /* nothing in the file was passed over */
    bpe_close(m.bpe);
    unigram_close(m.unigram);
    clip_rig_close(&m.t5);
    clip_rig_close(&m.clip);
    weights_close(m.want);
    return wrong;
}

static void every_model(void **state)
{
    (void)state;
    where_or_skip();
    tokenizer_or_skip("clip");
    tokenizer_or_skip("t5");
    berth_err err = { 0 };
    json_t *manifest, *entry;
    const char *name;
    size_t models = 0, wrong = 0;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, entry)
    {
        if (strncmp(name, "t5_", 3) == 0 && json_object_get(entry, "prompts")) {
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
