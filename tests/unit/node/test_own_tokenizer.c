/* Tokenizers inside model files: each model has its own, whatever else there is. */
#include "support/loader_rig.h"
#include "support/oom.h"
#include "support/tokenizer.h"

#include "base/file.h"
#include "node/compute.h"
#include "text/bpe.h"

/* The tiny tokenizer, which knows "cat", and the same without its merges: letters. */
struct texts {
    char *words, *letters;
};

struct scene {
    struct rig r;
    struct texts text;
    const char *folder[1];
    char path[512];
};

static void texts_make(struct texts *t)
{
    size_t n;
    json_t *v;
    struct str letters = { 0 };
    berth_err err = { 0 };
    assert_true(tiny_tokenizer_write(tmp_path("one_file"), true) > 0);
    assert_ok(file_read_all(tmp_path("one_file/tokenizer.json"), BPE_FILE_MAX, &t->words, &n, &err),
              err);
    assert_ok(js_parse(t->words, n, NULL, &v, &err), err);
    json_array_clear(json_object_get(json_object_get(v, "model"), "merges"));
    js_write(v, 0, &letters);
    json_decref(v);
    t->letters = str_take(&letters);
    assert_non_null(t->letters);
}

static void scene_open(struct scene *s)
{
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=1g");
    texts_make(&s->text);
    snprintf(s->path, sizeof s->path, "%s", tmp_path("folder"));
    assert_true(tiny_tokenizer_write(s->path, false) > 0);
    s->folder[0] = s->path;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

static void scene_close(struct scene *s)
{
    free(s->text.words);
    free(s->text.letters);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

/* tokenizer NULL: without. */
static void write_model(struct scene *s, const char *name, const char *preset,
                        const char *tokenizer)
{
    struct weights_meta_spec meta = { BPE_METADATA, tokenizer };
    preset_write_with(preset, DT_F16, rig_path(&s->r, name), tokenizer ? &meta : NULL);
}

static void load(struct scene *s, const char *name, struct call *x)
{
    char inputs[160];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s\"}", name);
    assert_ok(rig_run(&s->r, x, "CheckpointLoaderSimple", inputs, &err), err);
}

static berth_status try_encode(struct scene *s, struct value *clip, struct call *x, berth_err *err)
{
    rig_call(&s->r, x, "CLIPTextEncode", "{\"text\": \"photo of the cat\"}");
    call_give(x, "clip", clip);
    return x->c.cls->run(&x->c, err);
}

/* What the prompt becomes, as a number to compare. */
static uint32_t encode(struct scene *s, struct value *clip)
{
    struct call x;
    berth_err err = { 0 };
    assert_ok(try_encode(s, clip, &x, &err), err);
    const struct conditioning *c = x.out[0].at[0]->object.obj;
    const unsigned char *p = (const unsigned char *)c->at[0].cond->data;
    uint32_t sum = 1;
    for (size_t i = 0; i < htensor_count(c->at[0].cond) * sizeof(float); i++)
        sum = sum * 16777619u ^ p[i];
    call_release(&x);
    return sum;
}

static void each_model_has_its_own(void **state)
{
    struct scene s;
    struct call words, letters, plain, x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    write_model(&s, "checkpoints/words.safetensors", "sd15-tiny", s.text.words);
    write_model(&s, "checkpoints/letters.safetensors", "sd15-tiny", s.text.letters);
    write_model(&s, "checkpoints/plain.safetensors", "sd15-tiny", NULL);
    load(&s, "words.safetensors", &words);
    load(&s, "letters.safetensors", &letters);
    load(&s, "plain.safetensors", &plain);
    struct value *clip[] = { words.out[1].at[0], letters.out[1].at[0], plain.out[1].at[0] };
    /* in turns, so that one could get what another left; the folder's are words */
    uint32_t first = encode(&s, clip[0]), second = encode(&s, clip[1]);
    assert_int_not_equal(first, second);
    assert_int_equal(encode(&s, clip[2]), first);
    assert_int_equal(encode(&s, clip[1]), second);
    assert_int_equal(encode(&s, clip[0]), first);
    /* and where there is no folder, those that bring one do not miss it */
    node_assets_free(s.r.env.assets);
    s.r.env.assets = node_assets_new();
    s.r.env.tokenizers_n = 0;
    assert_int_equal(encode(&s, clip[0]), first);
    assert_int_equal(encode(&s, clip[1]), second);
    assert_fails(try_encode(&s, clip[2], &x, &err), err, BERTH_ENOTFOUND, "no CLIP tokenizer");
    call_release(&x);
    struct call *const all[] = { &words, &letters, &plain };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    scene_close(&s);
}

/* One that is there but broken is an error: another would give other pictures without a word. */
static void a_broken_one_is_named(void **state)
{
    struct scene s;
    struct call ckpt, x;
    berth_err err = { 0 };
    static const struct {
        const char *text, *why;
    } bad[] = {
        { "{\"model\": {\"vocab\": {\"a\": 1", "berth.tokenizer" },
        { "", "berth.tokenizer" },
        { "{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "no tokenizer of CLIP" },
    };
    (void)state;
    scene_open(&s);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char name[64], file[96];
        snprintf(name, sizeof name, "bad%zu.safetensors", i);
        snprintf(file, sizeof file, "checkpoints/%s", name);
        write_model(&s, file, "sd15-tiny", bad[i].text);
        load(&s, name, &ckpt);
        berth_status st = try_encode(&s, ckpt.out[1].at[0], &x, &err);
        assert_true(st == BERTH_EFORMAT || st == BERTH_EUNSUPPORTED);
        if (!strstr(err.msg, name) || !strstr(err.msg, bad[i].why))
            fail_msg("'%s' lacks '%s' or '%s'", err.msg, name, bad[i].why);
        call_release(&x);
        call_release(&ckpt);
    }
    scene_close(&s);
}

/* SDXL's two, each with its own; a loader of text encoders says before it loads what is missing. */
static void two_encoders_of_one_set(void **state)
{
    static const char inputs[] = "{\"clip_name1\": \"l.safetensors\", \"clip_name2\": "
                                 "\"g.safetensors\", \"type\": \"sdxl\"}";
    struct scene s;
    struct call clip;
    berth_err err = { 0 };
    uint32_t sum[2];
    (void)state;
    scene_open(&s);
    s.r.env.tokenizers_n = 0;
    write_model(&s, "text_encoders/l.safetensors", "clip-l-tiny", s.text.words);
    write_model(&s, "text_encoders/g.safetensors", "clip-g-tiny", NULL);
    assert_fails(rig_run(&s.r, &clip, "DualCLIPLoader", inputs, &err), err, BERTH_ENOTFOUND,
                 "no CLIP tokenizer");
    call_release(&clip);
    assert_int_equal(res_model_count(s.r.f.r), 0);
    for (size_t i = 0; i < 2; i++) {
        write_model(&s, "text_encoders/g.safetensors", "clip-g-tiny",
                    i ? s.text.letters : s.text.words);
        assert_ok(rig_run(&s.r, &clip, "DualCLIPLoader", inputs, &err), err);
        sum[i] = encode(&s, clip.out[0].at[0]);
        call_release(&clip);
    }
    assert_int_not_equal(sum[0], sum[1]);
    scene_close(&s);
}

static void survives_exhaustion(void **state)
{
    struct scene s;
    struct weights *w;
    berth_err err = { 0 };
    long k = 0;
    (void)state;
    scene_open(&s);
    s.r.env.tokenizers_n = 0;
    write_model(&s, "checkpoints/words.safetensors", "sd15-tiny", s.text.words);
    assert_ok(weights_open(rig_path(&s.r, "checkpoints/words.safetensors"), NULL, &w, &err), err);
    for (berth_status st = BERTH_ENOMEM; st; k++) {
        struct asset *clip;
        oom_after(k);
        st = asset_tokenizer(&s.r.env, &tokenizer_clip, w, &clip, &err);
        oom_off();
        if (st && st != BERTH_ENOMEM)
            fail_msg("allocation %ld: %s", k, err.msg);
        assert_true(!st == (clip && clip->refs == 1));
        asset_unref(clip);
    }
    assert_true(k > 5);
    weights_close(w);
    scene_close(&s);
}

/* Files that were replaced under the same name are another tokenizer. */
static void replaced_files_are_noticed(void **state)
{
    struct scene s;
    struct asset *first, *same, *other;
    berth_err err = { 0 };
    char merges[600];
    (void)state;
    scene_open(&s);
    assert_ok(asset_tokenizer(&s.r.env, &tokenizer_clip, NULL, &first, &err), err);
    assert_ok(asset_tokenizer(&s.r.env, &tokenizer_clip, NULL, &same, &err), err);
    assert_ptr_equal(first, same);
    snprintf(merges, sizeof merges, "%s/merges.txt", s.path);
    FILE *f = fopen(merges, "w"); /* none: letters */
    assert_true(f && fputs("#version: 0.2\n", f) >= 0 && fclose(f) == 0);
    assert_ok(asset_tokenizer(&s.r.env, &tokenizer_clip, NULL, &other, &err), err);
    assert_ptr_not_equal(first, other);
    asset_unref(first);
    asset_unref(same);
    asset_unref(other);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_model_has_its_own),     cmocka_unit_test(a_broken_one_is_named),
        cmocka_unit_test(two_encoders_of_one_set),    cmocka_unit_test(survives_exhaustion),
        cmocka_unit_test(replaced_files_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
