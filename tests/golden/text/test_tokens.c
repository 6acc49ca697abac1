/* Prompts of clip_l_tokens.json and t5xxl_tokens.json: ids and weights, chunk by chunk, exactly. */
#include "support/golden.h"
#include "support/test.h"
#include "support/tokenizer.h"

#include "base/json.h"
#include "text/tokenizer.h"

static void same_chunk(const char *prompt, size_t c, const struct chunks *got, const json_t *want)
{
    if (got->len[c] != json_array_size(want))
        fail_msg("'%.60s', chunk %zu: %zu tokens, not %zu", prompt, c, got->len[c],
                 json_array_size(want));
    for (size_t i = 0; i < got->len[c]; i++) {
        const json_t *pair = json_array_get(want, i);
        int64_t id = json_integer_value(json_array_get(pair, 0));
        double weight = json_number_value(json_array_get(pair, 1));
        const struct token *t = &got->chunk[c][i];
        if (t->id != id || t->weight != weight || t->vector)
            fail_msg("'%.60s', chunk %zu, token %zu: %d * %.17g, not %d * %.17g", prompt, c, i,
                     (int)t->id, t->weight, (int)id, weight);
    }
}

/* Every prompt of a file. */
static void compare(const char *file, text_encode_fn *encode, const void *tok,
                    const struct chunk_rules *rules, const char *key)
{
    berth_err err = { 0 };
    json_t *cases, *one;
    size_t i;
    assert_ok(js_parse_file(golden_path(file), NULL, &cases, &err), err);
    assert_true(json_array_size(cases) > 0);
    json_array_foreach(cases, i, one)
    {
        struct arena mem = { 0 };
        struct chunks got;
        const json_t *prompt = json_object_get(one, "text"), *want = json_object_get(one, "tokens");
        const char *text = json_string_value(prompt);
        assert_ok(text_chunks(text, json_string_length(prompt), encode, tok, rules, key, NULL, &mem,
                              &got, &err),
                  err);
        if (got.n != json_array_size(want))
            fail_msg("'%.60s': %zu chunks, not %zu", text, got.n, json_array_size(want));
        for (size_t c = 0; c < got.n; c++)
            same_chunk(text, c, &got, json_array_get(want, c));
        arena_release(&mem);
    }
    json_decref(cases);
}

static void clip(void **state)
{
    (void)state;
    golden_or_skip();
    tokenizer_or_skip("clip");
    struct bpe *t;
    berth_err err = { 0 };
    assert_ok(bpe_open(tokenizer_dir("clip"), &t, &err), err);
    struct chunk_rules rules = { .start = bpe_start(t),
                                 .end = bpe_end(t),
                                 .pad = bpe_end(t),
                                 .max_length = 77,
                                 .pad_to_max = true };
    compare("clip_l_tokens.json", text_encode_bpe, t, &rules, "clip_l");
    bpe_close(t);
}

static void t5(void **state)
{
    (void)state;
    golden_or_skip();
    tokenizer_or_skip("t5");
    struct unigram *t;
    berth_err err = { 0 };
    assert_ok(unigram_open(tokenizer_dir("t5"), &t, &err), err);
    struct chunk_rules rules = {
        .start = -1, .end = unigram_end(t), .pad = unigram_pad(t), .min_length = 256
    };
    compare("t5xxl_tokens.json", text_encode_unigram, t, &rules, "t5xxl");
    unigram_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(clip), cmocka_unit_test(t5) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
