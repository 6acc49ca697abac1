/* Prompts: ids and weights, chunk by chunk, exactly. Of every <kind>_tokens.json in the golden
 * folder and in data/, which tools/golden/clip_tokens.py made of data/prompts.json (of
 * data/weight_prompts.json for language models and ByT5) and of random texts. A case that is
 * "unpadded" has no padding behind its chunks. All prompts that differ are named. */
#include "support/golden.h"
#include "support/json_file.h"
#include "support/test.h"
#include "support/tokenizer.h"

#include "base/json.h"
#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

#include <unistd.h>

#define DATA BERTH_SOURCE_DIR "/tests/golden/text/data/"

struct kind {
    const char *name; /* <name>_tokens.json; the key of its embeddings */
    text_encode_fn *encode;
    const void *tok;
    struct chunk_rules rules;
};

/* A chunk that says which token it wants where, or padding behind them. */
static bool same_chunk(const struct kind *k, const char *text, size_t c, const struct chunks *got,
                       const json_t *want, bool unpadded)
{
    size_t n = json_array_size(want), len = got->len[c];
    if (unpadded ? len < n : len != n) {
        print_message("'%.60s', chunk %zu: %zu tokens, not %zu\n", text, c, len, n);
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        const json_t *pair = json_array_get(want, i);
        int64_t id = pair ? json_integer_value(json_array_get(pair, 0)) : k->rules.pad;
        double weight = pair ? json_number_value(json_array_get(pair, 1)) : 1;
        const struct token *t = &got->chunk[c][i];
        if (t->id != id || t->weight != weight || t->vector) {
            print_message("'%.60s', chunk %zu, token %zu: %d * %.17g, not %d * %.17g\n", text, c, i,
                          (int)t->id, t->weight, (int)id, weight);
            return false;
        }
    }
    return true;
}

static bool same_prompt(const struct kind *k, const json_t *one)
{
    struct arena mem = { 0 };
    struct chunks got;
    berth_err err = { 0 };
    const json_t *prompt = json_object_get(one, "text"), *want = json_object_get(one, "tokens");
    const char *text = json_string_value(prompt);
    bool unpadded = json_is_true(json_object_get(one, "unpadded"));
    assert_non_null(text);
    assert_ok(text_chunks(text, json_string_length(prompt), k->encode, k->tok, &k->rules, k->name,
                          NULL, &mem, &got, &err),
              err);
    bool same = got.n == json_array_size(want);
    if (!same)
        print_message("'%.60s': %zu chunks, not %zu\n", text, got.n, json_array_size(want));
    for (size_t c = 0; same && c < got.n; c++)
        same = same_chunk(k, text, c, &got, json_array_get(want, c), unpadded);
    arena_release(&mem);
    return same;
}

static void compare_file(const struct kind *k, const char *path)
{
    berth_err err = { 0 };
    json_t *cases, *one;
    size_t i, wrong = 0;
    assert_ok(js_parse_file(path, NULL, &cases, &err), err);
    assert_true(json_array_size(cases) > 0);
    json_array_foreach(cases, i, one) wrong += !same_prompt(k, one);
    print_message("%s: %zu of %zu prompts differ\n", path, wrong, json_array_size(cases));
    json_decref(cases);
    assert_int_equal(wrong, 0);
}

/* The golden folder's file and ours; either may be missing. */
static void compare(const struct kind *k)
{
    char file[64], own[512];
    size_t files = 0;
    snprintf(file, sizeof file, "%s_tokens.json", k->name);
    snprintf(own, sizeof own, DATA "%s", file);
    const char *const path[] = { golden_path(file), own };
    for (size_t i = 0; i < ARRAY_LEN(path); i++)
        if (access(path[i], R_OK) == 0) {
            compare_file(k, path[i]);
            files++;
        }
    assert_true(files > 0);
}

/* CLIP-L pads with its end token, CLIP-G with 0. */
static void compare_clip(const char *name, bool pad_end)
{
    struct bpe *t;
    berth_err err = { 0 };
    assert_ok(bpe_open(tokenizer_dir("clip"), &t, &err), err);
    compare(&(struct kind) { .name = name,
                             .encode = tokenizer_clip.encode,
                             .tok = t,
                             .rules = { .start = tokenizer_clip.ids(t).start,
                                        .end = tokenizer_clip.ids(t).end,
                                        .pad = pad_end ? tokenizer_clip.ids(t).end : 0,
                                        .max_length = 77,
                                        .pad_to_max = true } });
    bpe_close(t);
}

static void clip_l(void **state)
{
    (void)state;
    tokenizer_or_skip("clip");
    compare_clip("clip_l", true);
}

static void clip_g(void **state)
{
    (void)state;
    tokenizer_or_skip("clip");
    compare_clip("clip_g", false);
}

static void t5(void **state)
{
    (void)state;
    tokenizer_or_skip("t5");
    struct unigram *t;
    berth_err err = { 0 };
    assert_ok(unigram_open(tokenizer_dir("t5"), &t, &err), err);
    compare(&(struct kind) { .name = "t5xxl",
                             .encode = tokenizer_t5.encode,
                             .tok = t,
                             .rules = { .start = -1,
                                        .end = tokenizer_t5.ids(t).end,
                                        .pad = tokenizer_t5.ids(t).pad,
                                        .min_length = 256 } });
    unigram_close(t);
}

/* Language models' prompts without their templates: one chunk, weights on or off. */
static void compare_qwen(const char *name, bool plain)
{
    void *t;
    berth_err err = { 0 };
    assert_ok(tokenizer_qwen25.open(tokenizer_dir("qwen25"), &t, &err), err);
    compare(&(struct kind) { .name = name,
                             .encode = tokenizer_qwen25.encode,
                             .tok = t,
                             .rules = { .start = -1,
                                        .end = -1,
                                        .pad = tokenizer_qwen25.ids(t).pad,
                                        .min_length = 1,
                                        .plain = plain } });
    tokenizer_qwen25.close(t);
}

static void qwen_without_weights(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    compare_qwen("qwen3_4b", true);
}

static void qwen_with_weights(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    compare_qwen("qwen25_3b", false);
}

static void byt5(void **state)
{
    (void)state;
    void *t;
    berth_err err = { 0 };
    assert_ok(tokenizer_byt5.open("", &t, &err), err);
    compare(&(struct kind) { .name = "byt5_small",
                             .encode = tokenizer_byt5.encode,
                             .tok = t,
                             .rules = { .start = tokenizer_byt5.ids(t).start,
                                        .end = tokenizer_byt5.ids(t).end,
                                        .pad = tokenizer_byt5.ids(t).pad,
                                        .min_length = 1 } });
    tokenizer_byt5.close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(clip_l),
                                        cmocka_unit_test(clip_g),
                                        cmocka_unit_test(t5),
                                        cmocka_unit_test(qwen_without_weights),
                                        cmocka_unit_test(qwen_with_weights),
                                        cmocka_unit_test(byt5) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
