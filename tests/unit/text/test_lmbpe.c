/* Tokenizers of language models: words, added tokens, files of every kind, good and bad, and the
 * way back. What real texts become is in tests/golden/text. */
#include "lmbpe_files.h"
#include "support/oom.h"
#include "support/tmp.h"

#include "format/weights.h"

#include <sys/stat.h>

/* ---- words ---- */

static void words_are(const struct split_rule *r, const char *text, const char *want)
{
    struct str got = { 0 };
    size_t n = strlen(text);
    for (size_t i = 0, len; i < n; i += len) {
        len = split_word(r, text + i, n - i);
        assert_true(len > 0 && len <= n - i);
        str_adds(&got, i ? "|" : "");
        str_add(&got, text + i, len);
    }
    assert_string_equal(str_c(&got), want);
    str_release(&got);
}

static void words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *gpt2, *qwen2, *llama3;
    } w[] = {
        { "", "", "", "" },
        { "ab cd", "ab| cd", "ab| cd", "ab| cd" },
        { "don't I'LL 's", "don|'t| I|'|LL| '|s", "don|'t| I|'LL| '|s", "don|'t| I|'LL| '|s" },
        { "'sx''ve", "'s|x|''|ve", "'s|x|''|ve", "'s|x|''|ve" },
        { "'\xc5\xbfx", "'|\xc5\xbfx", "'\xc5\xbf|x", "'\xc5\xbf|x" }, /* the long s */
        { "1234 5", "1234| 5", "1|2|3|4| |5", "123|4| |5" },
        { "x.y!\n\nz", "x|.|y|!|\n|\n|z", "x|.y|!\n\n|z", "x|.y|!\n\n|z" },
        { "a  b", "a| | b", "a| | b", "a| | b" },
        { "a   ", "a|   ", "a|   ", "a|   " },
        { " \n \n  b", " \n \n | b", " \n \n| | b", " \n \n| | b" },
        { "\t\tx", "\t|\t|x", "\t|\tx", "\t|\tx" },
        { "\xc2\xa0\xe3\x80\x80x", "\xc2\xa0|\xe3\x80\x80|x", "\xc2\xa0|\xe3\x80\x80x",
          "\xc2\xa0|\xe3\x80\x80x" },
        { " ?! ?", " ?!| ?", " ?!| ?", " ?!| ?" },
        { "\xe4\xb8\x80\xe5\x8f\xaa 2", "\xe4\xb8\x80\xe5\x8f\xaa| 2",
          "\xe4\xb8\x80\xe5\x8f\xaa| |2", "\xe4\xb8\x80\xe5\x8f\xaa| |2" },
    };
    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        words_are(&split_gpt2, w[i].text, w[i].gpt2);
        words_are(&split_qwen2, w[i].text, w[i].qwen2);
        words_are(&split_llama3, w[i].text, w[i].llama3);
    }
    static const struct split_rule whole = { .whole = true };
    words_are(&whole, "a b c", "a b c");
    assert_null(split_of_regex("x", 1));
    assert_null(split_of_regex("", 0));
}

/* ---- one that is open ---- */

/* ids: ends with -1 */
static void tokens_are(const void *t, const char *text, size_t n, const int32_t *ids)
{
    struct vec got = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    size_t want = 0;
    while (ids[want] >= 0)
        want++;
    assert_ok(lmbpe_encode(t, text, n, &got, &err), err);
    if (got.n != want || (want && memcmp(got.p, ids, want * sizeof *ids) != 0)) {
        for (size_t i = 0; i < got.n; i++)
            print_message("%d ", *(int32_t *)vec_at(&got, i));
        fail_msg("'%s': %zu tokens", text, got.n);
    }
    vec_release(&got);
}
#define IDS(t, text, ...) tokens_are(t, text, sizeof(text) - 1, (int32_t[]) { __VA_ARGS__, -1 })

static void check_tokens(const struct lmbpe *t)
{
    IDS(t, "", -1);
    IDS(t, "abc", MERGED(1));
    IDS(t, "bc", MERGED(2));
    IDS(t, "abcab", MERGED(1), MERGED(0));
    IDS(t, " ab a", ' ', MERGED(0), MERGED(3)); /* "ab" comes first */
    IDS(t, "12", '1', '2');                     /* two words */
    IDS(t, "\n\n\n", MERGED(7), '\n');
    IDS(t, "e\xcc\x81", MERGED(6)); /* composed */
    IDS(t, "a\0b", 'a', 0, 'b');
    IDS(t, "a\xff", 'a', 0xef, 0xbf, 0xbd); /* replaced */
    IDS(t, "<|start|>ab<|end|><|end", IM_START, MERGED(0), IM_END, '<', '|', 'e', 'n', 'd');
    IDS(t, " <think> ", ' ', THINK, ' ');
    assert_int_equal(lmbpe_ids(t).start, IM_START);
    assert_int_equal(lmbpe_ids(t).end, -1);
    assert_int_equal(lmbpe_ids(t).pad, PAD);
    assert_int_equal(lmbpe_find(t, "<|end|>"), IM_END);
    assert_int_equal(lmbpe_find(t, "abc"), MERGED(1));
    assert_int_equal(lmbpe_find(t, "nothing"), -1);
}

static struct lmbpe *from_json(const char *normal, const char *words_, bool pairs)
{
    struct str json = { 0 };
    struct lmbpe *t;
    berth_err err = { 0 };
    put_tokenizer(&json, normal, words_, pairs);
    assert_ok(lmbpe_from_json(json.p, json.n, "here", &any_kind, &t, &err), err);
    str_release(&json);
    return t;
}

static void tokenizer_json(void **state)
{
    (void)state;
    for (int pairs = 0; pairs < 2; pairs++) {
        struct lmbpe *t = from_json("{\"type\":\"NFC\"}", QWEN_WORDS, pairs);
        check_tokens(t);
        lmbpe_close(t);
    }
    struct lmbpe *t = from_json(
        "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}", false);
    IDS(t, "12", MERGED(5)); /* GPT-2 keeps numbers together */
    IDS(t, "e\xcc\x81", 'e', 0xcc, 0x81);
    lmbpe_close(t);
}

static void write_files(const char *folder, bool config)
{
    struct str vocab = { 0 }, merges = { 0 };
    char name[256];
    mkdir(tmp_path(folder), 0777);
    put_vocab(&vocab);
    str_adds(&merges, "#version: 0.2\n");
    put_merges(&merges, "", " ", "\r\n");
    snprintf(name, sizeof name, "%s/vocab.json", folder);
    tmp_write(name, vocab.p, vocab.n);
    snprintf(name, sizeof name, "%s/merges.txt", folder);
    tmp_write(name, merges.p, merges.n);
    static const char text[] =
        "{\"x\":[{}],\"added_tokens_decoder\":{\"300\":{\"content\":\"<|start|>\",\"special\":true}"
        ",\"301\":{\"content\":\"<|end|>\",\"special\":true},\"302\":{\"content\":\"<think>\"},"
        "\"303\":{\"content\":\"<pad>\",\"special\":true}}}";
    snprintf(name, sizeof name, "%s/tokenizer_config.json", folder);
    if (config)
        tmp_write(name, text, sizeof text - 1);
    str_release(&vocab);
    str_release(&merges);
}

static void three_files(void **state)
{
    (void)state;
    struct lmbpe *t;
    berth_err err = { 0 };
    write_files("three", true);
    assert_ok(lmbpe_open(tmp_path("three"), &any_kind, &t, &err), err);
    check_tokens(t);
    lmbpe_close(t);
    write_files("two", false);
    assert_fails(lmbpe_open(tmp_path("two"), &any_kind, &t, &err), err, BERTH_EFORMAT,
                 "tokenizer_config.json");
    assert_null(t);
    struct str json = { 0 };
    put_tokenizer(&json, "{\"type\":\"NFC\"}", QWEN_WORDS, false);
    tmp_write("two/tokenizer.json", json.p, json.n);
    assert_ok(lmbpe_open(tmp_path("two"), &any_kind, &t, &err), err);
    check_tokens(t);
    lmbpe_close(t);
    assert_ok(lmbpe_open(tmp_path("two/tokenizer.json"), &any_kind, &t, &err), err);
    lmbpe_close(t);
    str_release(&json);
    mkdir(tmp_path("hollow"), 0777);
    assert_fails(lmbpe_open(tmp_path("hollow"), &any_kind, &t, &err), err, BERTH_ENOTFOUND,
                 "neither");
    assert_fails(lmbpe_open(tmp_path("nowhere"), &any_kind, &t, &err), err, BERTH_ENOTFOUND,
                 "nowhere");
}

static void bad_configs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
        berth_status s;
    } bad[] = {
        { "[]", "no object", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":[]}", "no object", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"x\":{}}}", "no id", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"1\":3}}", "no object", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"300\":{}}}", "without content", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"1048576\":{\"content\":\"x\"}}}", "2^20", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"300\":{\"content\":\"\"}}}", "0 bytes", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"300\":{\"content\":\"a\"}}}", "twice", BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"300\":{\"content\":\"x\",\"lstrip\":1}}}", "neither true",
          BERTH_EFORMAT },
        { "{\"added_tokens_decoder\":{\"300\":{\"content\":\"x<\"},\"301\":{\"content\":\"x<\"}}}",
          "'x<' appears twice", BERTH_EFORMAT },
        /* what a terminal would obey is not printed */
        { "{\"added_tokens_decoder\":{\"300\":{\"content\":\"\\u001b[2J\"},"
          "\"301\":{\"content\":\"\\u001b[2J\"}}}",
          "'?[2J' appears twice", BERTH_EFORMAT },
        { "{}", "no <|start|> among its tokens", BERTH_EFORMAT },
    };
    write_files("config", false);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct lmbpe *t;
        berth_err err = { 0 };
        tmp_write("config/tokenizer_config.json", bad[i].text, strlen(bad[i].text));
        assert_fails(lmbpe_open(tmp_path("config"), &any_kind, &t, &err), err, bad[i].s,
                     bad[i].why);
        assert_null(t);
    }
}

/* What a tokenizer.json may say that we do not do. */
static void refused_steps(void **state)
{
    (void)state;
    static const struct {
        const char *normal, *words, *why;
        berth_status s;
    } bad[] = {
        { "{\"type\":\"Lowercase\"}", QWEN_WORDS, "'Lowercase'", BERTH_EUNSUPPORTED },
        { "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},\"content\":\"y\"}", QWEN_WORDS,
          "'Replace'", BERTH_EUNSUPPORTED },
        { "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"y\"}", QWEN_WORDS,
          "'Replace'", BERTH_EUNSUPPORTED },
        { "{}", QWEN_WORDS, "without type", BERTH_EFORMAT },
        { "[]", QWEN_WORDS, "no object", BERTH_EFORMAT },
        { "null", "{\"type\":\"Whitespace\"}", "'Whitespace'", BERTH_EUNSUPPORTED },
        { "null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", "ByteLevel",
          BERTH_EUNSUPPORTED },
        { "null", "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x+\"},\"behavior\":\"Isolated\"}",
          "'x+'", BERTH_EUNSUPPORTED },
        { "null",
          "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" QWEN_REGEX
          "\"},\"behavior\":\"Removed\"}",
          "cut words", BERTH_EUNSUPPORTED },
        { "null", "{\"type\":\"Split\",\"pattern\":{\"String\":\" \"}}", "cut words",
          BERTH_EUNSUPPORTED },
        { "null", "{\"type\":\"Split\",\"pattern\":{\"Glob\":\" \"}}", "neither Regex",
          BERTH_EFORMAT },
        { "null",
          "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"use_regex\":true},"
          "{\"type\":\"ByteLevel\"}]}",
          "behind ByteLevel", BERTH_EUNSUPPORTED },
        { "null", "{\"type\":\"Sequence\",\"pretokenizers\":{}}", "without steps", BERTH_EFORMAT },
        { "null", "null", "neither all bytes", BERTH_EUNSUPPORTED }, /* characters, none unknown */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct str json = { 0 };
        struct lmbpe *t;
        berth_err err = { 0 };
        put_tokenizer(&json, bad[i].normal, bad[i].words, false);
        assert_fails(lmbpe_from_json(json.p, json.n, "here", &any_kind, &t, &err), err, bad[i].s,
                     bad[i].why);
        assert_null(t);
        str_release(&json);
    }
}

static void refused_json(void **state)
{
    (void)state;
    static const struct {
        const char *json, *why;
        berth_status s;
    } bad[] = {
        { "", "", BERTH_EFORMAT },
        { "{}", "no \"model\"", BERTH_EFORMAT },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "'Unigram'", BERTH_EUNSUPPORTED },
        { "{\"model\":{\"vocab\":{\"a\":0}}}", "of no type", BERTH_EUNSUPPORTED },
        { "{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}}", "</w>",
          BERTH_EUNSUPPORTED },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0}}}", "an id twice",
          BERTH_EFORMAT },
        { "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":"
          "{\"a\":0}}}",
          "not every byte", BERTH_EFORMAT },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
          "what it makes", BERTH_EFORMAT },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"\",\"a\"]]}}",
          "not two pieces", BERTH_EFORMAT },
        { "{\"model\":{\"type\":\"B\\u0000E\"}}", "NUL", BERTH_EFORMAT },
        { "{\"model\":{\"type\":\"BPE\"},\"added_tokens\":{}}", "no array", BERTH_EFORMAT },
        { "{\"model\":{\"type\":\"BPE\"}} x", "", BERTH_EFORMAT },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct lmbpe *t;
        berth_err err = { 0 };
        assert_fails(lmbpe_from_json(bad[i].json, strlen(bad[i].json), "here", &any_kind, &t, &err),
                     err, bad[i].s, bad[i].why);
        assert_null(t);
    }
}

/* Pairs of characters: unknown ones are one token together, or their bytes. */
static void characters(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":9,\"content\":\"<|start|>\"},{\"id\":10,\"content\":\"x y\","
        "\"normalized\":true}],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
        "\"Prepend\",\"prepend\":\"\\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
        "\"content\":\"\\u2581\"}]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":"
        "\" \"},\"behavior\":\"MergedWithPrevious\"},\"model\":{\"type\":\"BPE\",\"unk_token\":"
        "\"<unk>\",\"fuse_unk\":%s,\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"\\u2581\":1,"
        "\"a\":2,\"b\":3,\"ab\":4,\"\\u2581a\":5},\"merges\":[\"a b\",\"\\u2581 a\"]}}";
    for (int fuse = 0; fuse < 2; fuse++) {
        struct str text = { 0 };
        struct lmbpe *t;
        berth_err err = { 0 };
        size_t at = (size_t)(strstr(json, "%s") - json);
        str_add(&text, json, at);
        str_adds(&text, fuse ? "true" : "false");
        str_adds(&text, json + at + 2);
        assert_ok(lmbpe_from_json(text.p, text.n, "here", &any_kind, &t, &err), err);
        IDS(t, "ab", 1, 4);
        IDS(t, "a a", 5, 5);
        IDS(t, "<|start|>a", 9, 5);
        if (fuse)
            IDS(t,
                "aQ\xc3\xa9"
                "b",
                5, 0, 3); /* not all bytes are there: unknown */
        else
            IDS(t,
                "aQ\xc3\xa9"
                "b",
                5, 0, 0, 3);
        IDS(t, "", -1);
        struct str out = { 0 };
        static const struct tokenizer is = { .bytes = lmbpe_bytes };
        struct text_decoder d = { .is = &is, .tok = t };
        static const int32_t ids[] = { 9, 5, 1, 4, 1, 10 };
        for (size_t i = 0; i < ARRAY_LEN(ids); i++)
            text_decode(&d, ids[i], &out);
        /* no blank in front but that which is written; "<|start|>" is not special here */
        assert_string_equal(str_c(&out), "<|start|> a ab x y");
        str_release(&out);
        str_release(&text);
        lmbpe_close(t);
    }
}

/* ---- tekken ---- */

static struct lmbpe *from_tekken(const char *format, berth_status want, const char *why)
{
    struct str json = { 0 };
    struct lmbpe *t;
    berth_err err = { 0 };
    for (const char *c = format; *c; c++) {
        if (*c == 'C')
            str_adds(&json, TEKKEN_CONFIG);
        else if (*c == 'V')
            put_tekken_vocab(&json);
        else if (*c == 'S')
            str_adds(&json, TEKKEN_SPECIAL);
        else
            str_addc(&json, *c);
    }
    berth_status s = lmbpe_from_tekken(json.p, json.n, "here", &any_kind, &t, &err);
    if (s != want || (s && !strstr(err.msg, why)))
        fail_msg("'%s': %s '%s'", format, berth_status_name(s), err.msg);
    str_release(&json);
    return t;
}

static void tekken(void **state)
{
    (void)state;
    static const char *const order[] = { "{C,V,S}", "{S,V,C}", "{V,\"x\":[1,{}],S,C}" };
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        struct lmbpe *t = from_tekken(order[i], BERTH_OK, "");
        IDS(t, "ab", 4 + MERGED(0));
        IDS(t, " ab\n\n", 4 + MERGED(4), 4 + MERGED(7));
        IDS(t, "a\0\xff", 4 + 'a', 4, 4 + 0xef, 4 + 0xbf, 4 + 0xbd);
        IDS(t, "<|start|><pad>", 1, 2);
        IDS(t, "abc", 4 + MERGED(1)); /* a special token's text, but an ordinary one has it too */
        IDS(t, "beyond", 4 + 'b', 4 + 'e', 4 + 'y', 4 + 'o', 4 + 'n',
            4 + 'd'); /* too high a rank */
        assert_int_equal(lmbpe_ids(t).start, 1);
        assert_int_equal(lmbpe_ids(t).pad, 2);
        lmbpe_close(t);
    }
}

static void bad_tekken(void **state)
{
    (void)state;
    static const struct {
        const char *format, *why;
        berth_status s;
    } bad[] = {
        { "", "", BERTH_EFORMAT },
        { "[]", "no object", BERTH_EFORMAT },
        { "{V,S}", "no \"config\"", BERTH_EFORMAT },
        { "{C,S}", "no \"vocab\"", BERTH_EFORMAT },
        { "{C,V}", "no \"special_tokens\"", BERTH_EFORMAT },
        { "{C,V,S} x", "", BERTH_EFORMAT },
        { "{C,\"vocab\":{},S}", "no array", BERTH_EFORMAT },
        { "{C,\"vocab\":[1],S}", "no object", BERTH_EFORMAT },
        { "{C,\"vocab\":[{}],S}", "without rank", BERTH_EFORMAT },
        { "{C,\"vocab\":[{\"rank\":-1}],S}", "no number", BERTH_EFORMAT },
        { "{C,\"vocab\":[{\"rank\":1,\"token_str\":\"a\"}],S}", "without bytes", BERTH_EFORMAT },
        { "{C,\"vocab\":[{\"rank\":1,\"token_bytes\":\"\"}],S}", "without bytes", BERTH_EFORMAT },
        { "{C,\"vocab\":[{\"rank\":1,\"token_bytes\":\"a\"}],S}", "base64", BERTH_EFORMAT },
        { "{C,\"vocab\":[{\"rank\":1,\"token_bytes\":\"YQ==\"}],S}", "not every byte",
          BERTH_EFORMAT },
        { "{C,\"vocab\":[{\"rank\":1,\"token_bytes\":\"YQ==\"},{\"rank\":2,\"token_bytes\":"
          "\"YQ==\"}],S}",
          "twice", BERTH_EFORMAT },
        { "{\"config\":{},V,S}", "without a size", BERTH_EFORMAT },
        { "{\"config\":{\"default_vocab_size\":2097152},V,S}", "2^20", BERTH_EFORMAT },
        { "{\"config\":{\"default_vocab_size\":5,\"default_num_special_tokens\":5},V,S}", "size",
          BERTH_EFORMAT },
        { "{C,V,\"special_tokens\":[{\"rank\":1048576,\"token_str\":\"a\"}]}", "2^20",
          BERTH_EFORMAT },
        { "{C,V,\"special_tokens\":[{\"rank\":1,\"token_str\":\"\"}]}", "0 bytes", BERTH_EFORMAT },
        { "{C,V,\"special_tokens\":[]}", "no <|start|>", BERTH_EFORMAT },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_null(from_tekken(bad[i].format, bad[i].s, bad[i].why));
}

/* ---- model files ---- */

static void from_gguf(void **state)
{
    (void)state;
    static const struct {
        const char *model, *pre, *why;
        bool merges;
        berth_status s;
    } file[] = { { "gpt2", "qwen2", "", true, BERTH_OK },
                 { "llama", "qwen2", "'llama'", true, BERTH_EUNSUPPORTED },
                 { "gpt2", "other", "'other'", true, BERTH_EUNSUPPORTED },
                 { "gpt2", "qwen2", "merges is no list", false, BERTH_EFORMAT } };
    for (size_t i = 0; i < ARRAY_LEN(file); i++) {
        struct str g = { 0 };
        struct weights *w;
        struct lmbpe *t;
        berth_err err = { 0 };
        put_gguf(&g, file[i].model, file[i].pre, file[i].merges);
        assert_ok(weights_open(tmp_write("lm.gguf", g.p, g.n), NULL, &w, &err), err);
        berth_status s = lmbpe_from_gguf(w, &any_kind, &t, &err);
        assert_int_equal(s, file[i].s);
        if (!s) {
            check_tokens(t);
            assert_int_equal(t->ids, PAD + 1);
        } else {
            assert_null(t);
            assert_non_null(strstr(err.msg, file[i].why));
        }
        lmbpe_close(t);
        weights_close(w);
        str_release(&g);
    }
}

/* A tensor of bytes, by itself or in a whole checkpoint. */
static void carried_along(void **state)
{
    (void)state;
    static const char *const name[] = { "tekken_model", "text_encoders.tekken_model", "other" };
    struct str json = { 0 };
    str_adds(&json, "{" TEKKEN_CONFIG ",\"special_tokens\":[{\"rank\":0,\"token_str\":\"</s>\"},"
                    "{\"rank\":1,\"token_str\":\"<s>\"},{\"rank\":2,\"token_str\":\"<pad>\"}],");
    put_tekken_vocab(&json);
    str_adds(&json, "}");
    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        struct str file = { 0 };
        struct weights *w;
        void *t;
        berth_err err = { 0 };
        put_safetensors(&file, name[i], json.p, json.n);
        assert_ok(weights_open(tmp_write("m.safetensors", file.p, file.n), NULL, &w, &err), err);
        if (i < 2) {
            assert_ok(tokenizer_tekken.carried(w, &t, &err), err);
            IDS(t, "<s>ab", 1, 4 + MERGED(0));
        } else {
            assert_fails(tokenizer_tekken.carried(w, &t, &err), err, BERTH_ENOTFOUND,
                         "tekken_model");
            assert_fails(tokenizer_gemma4.carried(w, &t, &err), err, BERTH_ENOTFOUND,
                         "tokenizer_json");
            assert_null(t);
        }
        tokenizer_tekken.close(t);
        weights_close(w);
        str_release(&file);
    }
    str_release(&json);
}

/* ---- ids to text ---- */

/* What each id adds, parted by |. */
static void decoded_is(const struct lmbpe *t, bool special, bool each, const int32_t *ids,
                       const char *want)
{
    const struct tokenizer is = { .bytes = lmbpe_bytes, .each_byte = each };
    struct text_decoder d = { .is = &is, .tok = t, .special = special };
    struct str out = { 0 };
    for (; *ids >= 0; ids++) {
        text_decode(&d, *ids, &out);
        str_adds(&out, "|");
    }
    text_decode_end(&d, &out);
    assert_string_equal(str_c(&out), want);
    str_release(&out);
}
#define DECODED(special, each, want, ...)                                                          \
    decoded_is(t, special, each, (int32_t[]) { __VA_ARGS__, -1 }, want)

static void decoding(void **state)
{
    (void)state;
    struct lmbpe *t = from_json("null", QWEN_WORDS, false);
    DECODED(false, false, " ab|c|\n|", MERGED(4), 'c', '\n');
    DECODED(false, false, "|<think>|||a|", IM_START, THINK, PAD, IM_END, 'a');
    DECODED(true, false, "<|start|>|<pad>|", IM_START, PAD);
    DECODED(false, false, "|\xc3\xa9|\xc3\xa9|", 0xc3, 0xa9, MERGED(6)); /* held, then whole */
    DECODED(false, false, "|||\xf0\x9f\x90\x88|", 0xf0, 0x9f, 0x90, 0x88);
    DECODED(false, false,
            "||\xef\xbf\xbd"
            "a|",
            0xf0, 0x9f, 'a'); /* one for a broken character */
    DECODED(false, true,
            "||\xef\xbf\xbd\xef\xbf\xbd"
            "a|",
            0xf0, 0x9f, 'a');
    DECODED(false, false, "|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd|", 0xe0, 0x80,
            0xff);                                       /* overlong */
    DECODED(false, false, "||\xef\xbf\xbd", 0xe2, 0x96); /* the text ends */
    DECODED(false, true, "||\xef\xbf\xbd\xef\xbf\xbd", 0xe2, 0x96);
    DECODED(false, false, "||a|", 99999, 299, 'a'); /* ids that it does not have */
    lmbpe_close(t);
}

/* Bytes of a text come back whatever they are merged to. */
static void there_and_back(void **state)
{
    (void)state;
    struct lmbpe *t = from_json("null", QWEN_WORDS, false);
    static const struct tokenizer is = { .bytes = lmbpe_bytes };
    struct text_decoder d = { .is = &is, .tok = t, .special = true };
    struct vec ids = { .elem = sizeof(int32_t) };
    struct str text = { 0 }, out = { 0 };
    berth_err err = { 0 };
    for (uint32_t c = 1; c < 0x3000; c++) {
        char utf8[4];
        str_add(&text, utf8, utf8_put(c, utf8));
        str_adds(&text, c % 7 ? "" : " ab<think>");
    }
    assert_ok(lmbpe_encode(t, text.p, text.n, &ids, &err), err);
    for (size_t i = 0; i < ids.n; i++)
        text_decode(&d, *(int32_t *)vec_at(&ids, i), &out);
    text_decode_end(&d, &out);
    assert_int_equal(out.n, text.n);
    assert_memory_equal(out.p, text.p, text.n);
    vec_release(&ids);
    str_release(&text);
    str_release(&out);
    lmbpe_close(t);
}

/* ---- limits ---- */

static void open_survives_oom(void **state)
{
    (void)state;
    struct str json = { 0 }, tekken_text = { 0 }, gguf = { 0 };
    struct weights *w;
    berth_err err = { 0 };
    write_files("oom", true);
    put_tokenizer(&json, "{\"type\":\"NFC\"}", QWEN_WORDS, true);
    str_adds(&tekken_text, "{" TEKKEN_CONFIG "," TEKKEN_SPECIAL ",");
    put_tekken_vocab(&tekken_text);
    str_adds(&tekken_text, "}");
    put_gguf(&gguf, "gpt2", "qwen2", true);
    assert_ok(weights_open(tmp_write("oom.gguf", gguf.p, gguf.n), NULL, &w, &err), err);
    for (int kind = 0; kind < 4; kind++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            struct lmbpe *t = NULL;
            berth_err e = { 0 };
            oom_after(k);
            s = kind == 0   ? lmbpe_open(tmp_path("oom"), &any_kind, &t, &e)
                : kind == 1 ? lmbpe_from_json(json.p, json.n, "here", &any_kind, &t, &e)
                : kind == 2 ? lmbpe_from_tekken(tekken_text.p, tekken_text.n, "", &any_kind, &t, &e)
                            : lmbpe_from_gguf(w, &any_kind, &t, &e);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !t && e.msg[0]));
            lmbpe_close(t);
        }
    }
    weights_close(w);
    str_release(&json);
    str_release(&tekken_text);
    str_release(&gguf);
}

static void encode_survives_oom(void **state)
{
    (void)state;
    static const char text[] = "a photo e\xcc\x81\xcc\x96\xcc\x80 <|end|> abcabc\xff <think>\n\n";
    struct lmbpe *t = from_json("{\"type\":\"NFC\"}", QWEN_WORDS, false);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct vec out = { .elem = sizeof(int32_t) };
        berth_err err = { 0 };
        oom_after(k);
        s = lmbpe_encode(t, text, sizeof text - 1, &out, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        vec_release(&out);
    }
    static const struct tokenizer is = { .bytes = lmbpe_bytes };
    struct text_decoder d = { .is = &is, .tok = t };
    struct str out = { 0 };
    oom_after(0);
    text_decode(&d, MERGED(1), &out);
    oom_off();
    assert_true(out.bad);
    lmbpe_close(t);
}

/* A word as long as a prompt may be: time that grew with the square would be minutes. */
static void a_very_long_word(void **state)
{
    (void)state;
    struct lmbpe *t = from_json("{\"type\":\"NFC\"}", QWEN_WORDS, false);
    size_t n = TEXT_PROMPT_MAX;
    char *text = malloc(n + 1);
    struct vec out = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = "ab"[i % 2];
    assert_ok(lmbpe_encode(t, text, n, &out, &err), err);
    assert_int_equal(out.n, n / 2);
    out.n = 0;
    memset(text, '<', n); /* where a token might begin */
    assert_ok(lmbpe_encode(t, text, n, &out, &err), err);
    assert_int_equal(out.n, n);
    memset(text, ' ', n);
    out.n = 0;
    assert_ok(lmbpe_encode(t, text, n, &out, &err), err);
    assert_fails(lmbpe_encode(t, text, n + 1, &out, &err), err, BERTH_ELIMIT, "1048577 bytes");
    vec_release(&out);
    free(text);
    lmbpe_close(t);
}

/* A step that makes a prompt a thousand times as long. */
static void a_step_that_grows(void **state)
{
    (void)state;
    struct str normal = { 0 }, json = { 0 };
    struct lmbpe *t;
    struct vec out = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    str_adds(&normal, "{\"type\":\"Sequence\",\"normalizers\":[");
    for (int i = 0; i < 3; i++) {
        str_addf(&normal, "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"",
                 i ? "," : "");
        str_pad(&normal, 'a', normal.n + 1000);
        str_adds(&normal, "\"}");
    }
    str_adds(&normal, "]}");
    put_tokenizer(&json, normal.p, QWEN_WORDS, false);
    assert_ok(lmbpe_from_json(json.p, json.n, "here", &any_kind, &t, &err), err);
    assert_fails(lmbpe_encode(t, "aaa", 3, &out, &err), err, BERTH_ELIMIT, "16777216 bytes");
    assert_ok(lmbpe_encode(t, "bc", 2, &out, &err), err);
    assert_int_equal(out.n, 1);
    vec_release(&out);
    lmbpe_close(t);
    str_release(&normal);
    str_release(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words),
        cmocka_unit_test(tokenizer_json),
        cmocka_unit_test(three_files),
        cmocka_unit_test(bad_configs),
        cmocka_unit_test(refused_steps),
        cmocka_unit_test(refused_json),
        cmocka_unit_test(characters),
        cmocka_unit_test(tekken),
        cmocka_unit_test(bad_tekken),
        cmocka_unit_test(from_gguf),
        cmocka_unit_test(carried_along),
        cmocka_unit_test(decoding),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(encode_survives_oom),
        cmocka_unit_test(a_very_long_word),
        cmocka_unit_test(a_step_that_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
