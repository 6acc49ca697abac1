/* Tokenizers of language models: ids of texts, and the text that ids are decoded to, exactly. Of
 * every <kind>_ids.json in data/, which tools/golden/lm_tokens.py made of data/lm_prompts.json and
 * of random texts with the libraries that ComfyUI uses; and prompts in templates (qwen_tokens.json
 * of the golden folder). Those called tiny_ are of data/tiny, which tools/golden/tiny_tokenizers.py
 * made: they always run. All texts that differ are named. */
#include "support/golden.h"
#include "support/json_file.h"
#include "support/test.h"
#include "support/tokenizer.h"

#include "base/json.h"
#include "text/chat.h"
#include "text/lmbpe.h"
#include "text/tokenizer.h"
#include "text/unigram.h"

#define DATA BERTH_SOURCE_DIR "/tests/golden/text/data/"

struct opened {
    const struct tokenizer *is;
    void *tok;
};

static bool same_ids(const char *text, const int32_t *got, size_t n, const json_t *want)
{
    bool same = n == json_array_size(want);
    for (size_t i = 0; same && i < n; i++)
        same = got[i] == json_integer_value(json_array_get(want, i));
    if (same)
        return true;
    print_message("'%.80s':", text);
    for (size_t i = 0; i < n; i++)
        print_message(" %d", (int)got[i]);
    print_message(", not");
    for (size_t i = 0; i < json_array_size(want); i++)
        print_message(" %d", (int)json_integer_value(json_array_get(want, i)));
    print_message("\n");
    return false;
}

static bool same_text(const struct opened *o, const json_t *ids, const json_t *want)
{
    struct text_decoder d = { .is = o->is, .tok = o->tok };
    struct str got = { 0 };
    if (!want)
        return true; /* only ids */
    for (size_t i = 0; i < json_array_size(ids); i++)
        text_decode(&d, (int32_t)json_integer_value(json_array_get(ids, i)), &got);
    text_decode_end(&d, &got);
    assert_false(got.bad);
    bool same = got.n == json_string_length(want) &&
                memcmp(str_c(&got), json_string_value(want), got.n) == 0;
    if (!same)
        print_message("decoded '%s', not '%s'\n", str_c(&got), json_string_value(want));
    str_release(&got);
    return same;
}

static bool same_case(const struct opened *o, const json_t *one)
{
    struct vec got = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    const json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
    assert_ok(o->is->encode(o->tok, json_string_value(text), json_string_length(text), &got, &err),
              err);
    bool same = same_ids(json_string_value(text), got.p, got.n, ids) &&
                same_text(o, ids, json_object_get(one, "decoded"));
    vec_release(&got);
    return same;
}

/* Opens what is at `path` and compares with DATA<name>_ids.json. */
static void compare(const struct tokenizer *is, const char *path, const char *name)
{
    struct opened o = { .is = is };
    char file[512];
    berth_err err = { 0 };
    json_t *cases, *one;
    size_t i, wrong = 0;
    assert_ok(is->open(path, &o.tok, &err), err);
    snprintf(file, sizeof file, DATA "%s_ids.json", name);
    assert_ok(js_parse_file(file, NULL, &cases, &err), err);
    assert_true(json_array_size(cases) > 0);
    json_array_foreach(cases, i, one) wrong += !same_case(&o, one);
    print_message("%s: %zu of %zu texts differ\n", name, wrong, json_array_size(cases));
    json_decref(cases);
    is->close(o.tok);
    assert_int_equal(wrong, 0);
}

static void qwen25(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    compare(&tokenizer_qwen25, tokenizer_dir("qwen25"), "qwen25");
}

/* ---- tiny ones ---- */

/* What no encoder has, but files may say. */
static const struct lmbpe_kind any_kind = {
    .name = "any", .split = &split_qwen2, .must = (const char *const[]) { NULL }, .pad = ""
};

static berth_status open_any(const char *path, void **out, berth_err *err)
{
    struct lmbpe *t;
    berth_status s = lmbpe_open(path, &any_kind, &t, err);
    *out = t;
    return s;
}

static const struct tokenizer any_pairs = {
    .open = open_any, .close = lmbpe_close, .encode = lmbpe_encode, .bytes = lmbpe_bytes
};

static berth_status open_pieces(const char *path, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_open_proto(path, &t, err);
    *out = t;
    return s;
}

static void close_pieces(void *tok)
{
    unigram_close(tok);
}

static berth_status encode_pieces(const void *tok, const char *s, size_t n, struct vec *out,
                                  berth_err *err)
{
    return unigram_encode(tok, s, n, out, err);
}

static const struct tokenizer any_pieces = { .open = open_pieces,
                                             .close = close_pieces,
                                             .encode = encode_pieces,
                                             .bytes = unigram_bytes,
                                             .each_byte = true };

/* SentencePiece's BPE as T5 of AuraFlow has it; ComfyUI keeps the file in a folder of this name. */
static void t5_pile(void **state)
{
    (void)state;
    tokenizer_or_skip("t5_pile_tokenizer");
    compare(&any_pieces, tokenizer_dir("t5_pile_tokenizer"), "t5_pile");
}

struct tiny {
    const char *name;
    const struct tokenizer *is;
};
static const struct tiny tiny_list[] = {
    { "qwen", &tokenizer_qwen25 },   { "llama3", &tokenizer_llama3 },
    { "gpt2", &any_pairs },          { "flags", &any_pairs },
    { "llama2", &any_pairs },        { "gemma4", &tokenizer_gemma4 },
    { "tekken", &tokenizer_tekken }, { "gemma", &tokenizer_gemma3 },
    { "spm", &any_pieces },          { "rules", &any_pieces },
};

static void tiny_ones(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(tiny_list); i++) {
        char path[512], name[64];
        snprintf(path, sizeof path, DATA "tiny/%s", tiny_list[i].name);
        snprintf(name, sizeof name, "tiny_%s", tiny_list[i].name);
        compare(tiny_list[i].is, path, name);
    }
}

/* ---- prompts in templates ---- */

static const struct {
    const char *key;
    const struct chat_template *chat;
} templates[] = {
    { "z_image", &chat_qwen },
    { "qwen_image", &chat_qwen_image },
    { "klein", &chat_qwen_quick },
};

/* Unpadded, and padded as the case says ("klein_padded_to"). */
static bool same_prompt(const struct opened *o, const json_t *one, size_t which)
{
    struct arena mem = { 0 };
    struct chunks got;
    struct str whole = { 0 };
    berth_err err = { 0 };
    char padded[64];
    const json_t *text = json_object_get(one, "text");
    const json_t *ids = json_object_get(one, templates[which].key);
    snprintf(padded, sizeof padded, "%s_padded_to", templates[which].key);
    size_t want = json_array_size(ids),
           min = (size_t)json_integer_value(json_object_get(one, padded));
    const struct chunk_rules rules = { .start = -1,
                                       .end = -1,
                                       .pad = o->is->ids(o->tok).pad,
                                       .min_length = (uint32_t)min,
                                       .plain = true };
    chat_fill(templates[which].chat, json_string_value(text), json_string_length(text), &whole);
    assert_ok(text_chunks(str_c(&whole), whole.n, o->is->encode, o->tok, &rules, "", NULL, &mem,
                          &got, &err),
              err);
    assert_int_equal(got.n, 1);
    assert_int_equal(got.len[0], want > min ? want : min);
    int32_t *flat = arena_array(&mem, got.len[0], sizeof *flat);
    assert_non_null(flat);
    for (size_t i = 0; i < got.len[0]; i++) {
        flat[i] = got.chunk[0][i].id;
        assert_true(got.chunk[0][i].weight == 1.0);
        assert_true(i < want || flat[i] == rules.pad);
    }
    bool same = same_ids(str_c(&whole), flat, want, ids);
    str_release(&whole);
    arena_release(&mem);
    return same;
}

static void qwen_templates(void **state)
{
    (void)state;
    tokenizer_or_skip("qwen25");
    struct opened o = { .is = &tokenizer_qwen25 };
    berth_err err = { 0 };
    json_t *cases, *one;
    size_t i, wrong = 0;
    assert_ok(o.is->open(tokenizer_dir("qwen25"), &o.tok, &err), err);
    assert_ok(js_parse_file(golden_path("qwen_tokens.json"), NULL, &cases, &err), err);
    assert_true(json_array_size(cases) > 0);
    json_array_foreach(cases, i, one) for (size_t t = 0; t < ARRAY_LEN(templates); t++) wrong +=
        !same_prompt(&o, one, t);
    json_decref(cases);
    o.is->close(o.tok);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(qwen25), cmocka_unit_test(qwen_templates),
                                        cmocka_unit_test(t5_pile), cmocka_unit_test(tiny_ones) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
