/* T5's tokenizer: its files, good and bad, how text becomes normal, what pieces words become. */
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"
#include "support/tokenizer.h"
#include "unigram_files.h"

#include "format/weights.h"
#include "text/unicode.h"
#include "text/unigram_impl.h"

#include <sys/stat.h>

#define META "\xe2\x96\x81"

static struct unigram *from_text(const char *json)
{
    struct unigram *t;
    berth_err err = { 0 };
    assert_ok(unigram_from_memory(json, strlen(json), &t, &err), err);
    return t;
}

/* ids: ends with -1 */
static void tokens_are(const struct unigram *t, const char *text, size_t n, const int32_t *ids)
{
    struct vec got = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    size_t want = 0;
    while (ids[want] >= 0)
        want++;
    assert_ok(unigram_encode(t, text, n, &got, &err), err);
    if (got.n != want || (want && memcmp(got.p, ids, want * sizeof *ids) != 0)) {
        for (size_t i = 0; i < got.n; i++)
            print_message("%d ", *(int32_t *)vec_at(&got, i));
        fail_msg("'%s': %zu tokens", text, got.n);
    }
    vec_release(&got);
}
#define TOKENS(t, text, ...) tokens_are(t, text, sizeof(text) - 1, (int32_t[]) { __VA_ARGS__, -1 })

static void normal_is(const struct unigram *t, const char *text, bool first, const char *want)
{
    struct str got = { 0 };
    berth_err err = { 0 };
    assert_ok(unigram_normalize(t, text, strlen(text), first, &got, &err), err);
    assert_string_equal(str_c(&got), want);
    str_release(&got);
}

/* ---- pieces ---- */

#define STEPS                                                                                      \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["                                      \
    "{\"type\":\"Strip\",\"strip_left\":false,\"strip_right\":true},"                              \
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\"\\u2581\"}]},"
#define WORDS                                                                                      \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","                       \
    "\"add_prefix_space\":true,\"prepend_scheme\":\"first\"},"
#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":1,\"content\":\"</s>\"},{\"id\":20,\"content\":\"<x>\"},"           \
    "{\"id\":21,\"content\":\"<x><y>\",\"lstrip\":true,\"rstrip\":true}],"
/* ids:    0 <pad>  1 </s>  2 <unk>  3 _  4 a  5 b  6 ab  7 _a  8 _ab  9 abb  10 c  11 bc */
#define PIECES                                                                                     \
    "[[\"<pad>\",0.0],[\"</s>\",0],[\"<unk>\",0.0],[\"\\u2581\",-2.0],[\"a\",-4.0],[\"b\",-4.0],"  \
    "[\"ab\",-5.0],[\"\\u2581a\",-3.0],[\"\\u2581ab\",-9.5],[\"abb\",-9.0],[\"c\",-1e1],"          \
    "[\"bc\",-5.0]]"
#define MODEL(more) "\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"vocab\":" PIECES more "}"
#define FILE_TEXT "{" ADDED STEPS WORDS MODEL("") "}"

static void best_pieces(void **state)
{
    (void)state;
    struct unigram *t = from_text(FILE_TEXT);
    assert_int_equal(t->vocab, 22);
    assert_int_equal(tokenizer_t5.ids(t).end, 1);
    assert_int_equal(tokenizer_t5.ids(t).pad, 0);
    TOKENS(t, "a", 7);
    TOKENS(t, "b", 3, 5);
    TOKENS(t, "ab", 3, 6);   /* _ ab: -7, and so has _a b, which comes later; _ab: -9.5 */
    TOKENS(t, "abb", 3, 9);  /* _ abb: -11; _ ab b and _a b b as well, and later */
    TOKENS(t, "abc", 7, 11); /* _a bc */
    TOKENS(t, "c", 3, 10);
    TOKENS(t, "a b", 7, 3, 5);
    TOKENS(t, "ab  ab", 3, 6, 3, 6);
    TOKENS(t, "xy", 3, 2); /* neighbours that nobody knows are one */
    TOKENS(t, "xay", 3, 2, 4, 2);
    TOKENS(t, "x y", 3, 2, 3, 2); /* of one word */
    TOKENS(t,
           "\xff\xc3"
           "a",
           3, 2, 4);
    TOKENS(t, "", -1);
    TOKENS(t, " \t ", -1);
    TOKENS(t, " a ", 7);
    TOKENS(t, META "a", 7);
    TOKENS(t, META " a", 3, 7);
    unigram_close(t);
}

static void special_tokens(void **state)
{
    (void)state;
    struct unigram *t = from_text(FILE_TEXT);
    TOKENS(t, "</s>", 1);
    TOKENS(t, "a</s>a", 7, 1, 4); /* the prefix is for the very beginning */
    TOKENS(t, "</s>a", 1, 4);
    TOKENS(t, "a </s> a", 7, 1, 7);
    TOKENS(t, "<x>", 20);
    TOKENS(t, "<x><x><y>a", 20, 21, 4);     /* the longest */
    TOKENS(t, "a \t<x><y> \n a", 7, 21, 4); /* white space around goes with it */
    TOKENS(t, "<x", 3, 2);
    unigram_close(t);
    t = from_text(
        "{" ADDED
        "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"}," MODEL("") "}");
    TOKENS(t, "</s>a", 1, 7); /* older files: everywhere */
    unigram_close(t);
    t = from_text(
        "{" ADDED "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\","
        "\"add_prefix_space\":false,\"prepend_scheme\":\"never\",\"split\":false}," MODEL("") "}");
    TOKENS(t, "a a", 4, 7);
    unigram_close(t);
    t = from_text(
        "{" ADDED "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"WhitespaceSplit\"},{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\"}"
        "]}," MODEL("") "}");
    TOKENS(t, " a\t\n a</s> a", 7, 7, 1, 7);
    unigram_close(t);
}

static void bytes_for_what_is_unknown(void **state)
{
    (void)state;
    struct str json = { 0 };
    str_adds(&json,
             "{\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"byte_fallback\":true,\"vocab\":[["
             "\"<pad>\",0],[\"</s>\",0],[\"<unk>\",0],[\"a\",-1]");
    for (unsigned i = 0; i < 256; i++)
        str_addf(&json, ",[\"<0x%02X>\",0]", i);
    struct str less = { 0 };
    str_add(&less, json.p, json.n - strlen(",[\"<0xFF>\",0]"));
    str_adds(&json, "]}}");
    str_adds(&less, "]}}");
    struct unigram *t = from_text(json.p), *u = from_text(less.p);
    TOKENS(t,
           "a\xc3\xa4"
           "a",
           3, 4 + 0xc3, 4 + 0xa4, 3);
    TOKENS(u,
           "a\xc3\xa4"
           "a",
           3, 2, 3);
    unigram_close(t);
    unigram_close(u);
    str_release(&json);
    str_release(&less);
}

/* ---- normal text ---- */

static const struct rule rules[] = {
    { "\n", " " },
    { "\r", " " },
    { "\x01", "" },
    { "\xef\xac\x81", "fi" },                       /* U+FB01 */
    { "e\xcc\x82", "\xc3\xaa" },                    /* e, circumflex */
    { "e\xcc\x82\xcc\x81", "\xe1\xba\xbf" },        /* and acute */
    { "\xe3\x81\x8b\xe3\x82\x99", "\xe3\x81\x8c" }, /* ka, voiced mark */
    { "\xe3\x80\x80", " " },                        /* U+3000 */
    { "\xe2\x80\x8d", " " },                        /* ZWJ */
};

static struct unigram *with_map(bool sentencepiece)
{
    struct str map = { 0 }, json = { 0 };
    make_charsmap(rules, ARRAY_LEN(rules), &map);
    if (sentencepiece) {
        static const struct proto_piece p[] = {
            { "<pad>", 0, 3 }, { "</s>", 0, 3 }, { "<unk>", 0, 2 }, { "a", -1, 0 },
            { META, -2, 0 },   { "[M]", 0, 4 },  { "nope", 0, 5 },
        };
        put_pieces(&json, p, ARRAY_LEN(p));
        struct str spec = { 0 };
        put_bytes(&spec, 2, map.p, map.n);
        put_bytes(&json, 3, spec.p, spec.n);
        str_release(&spec);
    } else {
        str_adds(&json, "{" ADDED "\"normalizer\":{\"precompiled_charsmap\":\"");
        add_base64(&json, &map);
        str_adds(&json, "\",\"type\":\"Precompiled\"}," WORDS MODEL("") "}");
    }
    struct unigram *t;
    berth_err err = { 0 };
    assert_ok(unigram_from_memory(json.p, json.n, &t, &err), err);
    str_release(&map);
    str_release(&json);
    return t;
}

static void rules_by_grapheme(void **state)
{
    (void)state;
    struct unigram *t = with_map(false);
    normal_is(t, "", true, "");
    normal_is(t, "a\nb", true, META "a" META "b");
    normal_is(t, "a\nb", false, META "a" META "b");
    normal_is(t, "a\r\nb", false, META "a" META "b"); /* one grapheme */
    normal_is(t, "a\n\rb", false, META "a" META "b"); /* words, whatever is between them */
    normal_is(t,
              "\x01"
              "a\x01",
              false, META "a");
    normal_is(t, "\xef\xac\x81sh", false, META "fish");
    normal_is(t, "e\xcc\x82", false, META "\xc3\xaa");
    normal_is(t, "e\xcc\x82\xcc\x81", false,
              META "\xc3\xaa"); /* the shortest rule, for all of it */
    normal_is(t, "e\xcc\x81\xcc\x82", false, META "e\xcc\x81\xcc\x82");
    normal_is(t, "e\xcc\x82\xcc\x81\xcc\x81", false,
              META "e\xcc\x82\xcc\x81\xcc\x81");                            /* seven bytes */
    normal_is(t, "\xef\xac\x81\xcc\x81", false, META "fi");                 /* the acute is gone */
    normal_is(t, "\xef\xac\x81\xe3\x82\x99", false, META "fi\xe3\x82\x99"); /* six bytes */
    normal_is(t, "\xe3\x81\x8b\xe3\x82\x99", false, META "\xe3\x81\x8b\xe3\x82\x99");
    normal_is(t, "\xe3\x80\x80", false, "");
    normal_is(t, "\n\xcc\x81", false, META "\xcc\x81"); /* nothing joins a line end */
    /* Private use is joined, so that ZWJ and acute begin no grapheme: six bytes or more. */
    normal_is(t, "\xee\x96\x9a\xe2\x80\x8d\xcc\x81:", false, META "\xee\x96\x9a" META "\xcc\x81:");
    normal_is(t, "\xcd\xb8\xe2\x80\x8d\xcc\x81", false,
              META "\xcd\xb8" META "\xcc\x81");                                   /* not assigned */
    normal_is(t, "\xe2\x80\x8b\xe2\x80\x8d\xcc\x81", false, META "\xe2\x80\x8b"); /* a control */
    unigram_close(t);
}

static void rules_by_length(void **state)
{
    (void)state;
    struct unigram *t = with_map(true);
    normal_is(t, "", true, "");
    normal_is(t, " \n ", true, "");
    normal_is(t, "a", false, META "a");
    normal_is(t, "  a \n\xe3\x80\x80 b ", true, META "a" META "b");
    normal_is(t, "e\xcc\x82\xcc\x81", true, META "\xe1\xba\xbf");
    normal_is(t, "\xe3\x81\x8b\xe3\x82\x99", true, META "\xe3\x81\x8c");
    normal_is(t, "\x01", true, "");
    normal_is(t, "a\x01 \x01 b", true, META "a" META "b");
    TOKENS(t, "a [M]a", 4, 3, 4, 5, 3);
    TOKENS(t, "nope", 4, 2); /* unused: not looked for */
    TOKENS(t, "</s>", 4, 2); /* no piece for text */
    unigram_close(t);
}

/* Scores of users' pieces: their bytes times the highest score less 0.1, and the highest is never
 * below FLT_MIN: -0.1 here, not -2.1, which would make "abc" win. */
static void pieces_of_users(void **state)
{
    (void)state;
    static const struct proto_piece p[] = { { "</s>", 0, 3 }, { "<unk>", 0, 2 }, { "c", -1, 0 },
                                            { "abc", -2, 0 }, { META, -1, 0 },   { "ab", 0, 4 } };
    struct str proto = { 0 };
    struct unigram *t;
    berth_err err = { 0 };
    put_pieces(&proto, p, ARRAY_LEN(p));
    assert_ok(unigram_from_proto(proto.p, proto.n, "users", &t, &err), err);
    TOKENS(t, "abc", 4, 5, 2);
    unigram_close(t);
    str_release(&proto);
}

/* ---- files ---- */

static void refused(const char *bytes, size_t n, berth_status s, const char *why)
{
    struct unigram *t;
    berth_err err = { 0 };
    assert_fails(unigram_from_memory(bytes, n, &t, &err), err, s, why);
    assert_null(t);
}
#define REFUSED(s, json, why) refused(json, sizeof(json) - 1, s, why)

static void bad_json(void **state)
{
    (void)state;
    const berth_status bad = BERTH_EFORMAT, other = BERTH_EUNSUPPORTED;
    REFUSED(bad, "{", "");
    REFUSED(bad, "not a tokenizer\n", "neither JSON nor a SentencePiece model");
    REFUSED(bad, "{}", "no \"model\"");
    REFUSED(bad, "{} {}", "");
    REFUSED(bad, "{\"model\":[]}", "no object");
    REFUSED(other, "{\"model\":{\"type\":\"BPE\"}}", "no tokenizer of T5");
    REFUSED(bad, "{\"model\":{\"vocab\":[]}}", "no pieces");
    REFUSED(bad, "{\"model\":{\"vocab\":[[\"a\",0]]}}", "unknown among its 1");
    REFUSED(bad, "{\"model\":{\"unk_id\":1,\"vocab\":[[\"a\",0]]}}", "unknown among its 1");
    REFUSED(bad, "{\"model\":{\"unk_id\":-1,\"vocab\":[[\"a\",0]]}}", "unk_id");
    REFUSED(bad, "{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\",0]]}}", "no '</s>' among its 1");
    REFUSED(bad, "{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\",0],[\"</s>\",0],[\"a\",1]]}}",
            "'a' appears twice");
    REFUSED(bad, "{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\"]]}}", "no number");
    REFUSED(bad, "{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\",1e999]]}}", "no number");
    REFUSED(bad, "{\"model\":{\"unk_id\":0,\"vocab\":[[\"a\",1,2]]}}", "more than a score");
    REFUSED(bad, "{\"model\":{\"unk_id\":0,\"vocab\":[\"a\"]}}", "no text with a score");
    REFUSED(bad, "{\"model\":{\"vocab\":[[\"a\",0]],\"vocab\":[]}}", "second vocabulary");
    REFUSED(other, "{\"normalizer\":{\"type\":\"NFC\"}}", "'NFC'");
    REFUSED(bad, "{\"normalizer\":{}}", "without type");
    REFUSED(bad, "{\"normalizer\":{\"type\":\"Precompiled\"}}", "without precompiled_charsmap");
    REFUSED(bad, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}}",
            "no base64");
    REFUSED(bad, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}}",
            "character map");
    REFUSED(bad, "{\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\"}}", "without pattern");
    REFUSED(
        other,
        "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"x\"}}",
        "'a+'");
    REFUSED(bad, "{\"normalizer\":{\"normalizers\":[{\"normalizers\":[]}]}}", "in normalizers");
    REFUSED(other, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "'ByteLevel'");
    REFUSED(other, "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}}", "'_'");
    REFUSED(other,
            "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"unk_id\":0,\"vocab\":["
            "[\"</s>\",0]]}}",
            "white space");
    REFUSED(bad, "{\"added_tokens\":[{\"id\":1}]}", "without content");
    REFUSED(bad, "{\"added_tokens\":[{\"content\":\"x\"}]}", "id -1");
    REFUSED(bad, "{\"added_tokens\":[{\"id\":9999999,\"content\":\"x\"}]}", "id");
    REFUSED(other, "{\"added_tokens\":[{\"id\":1,\"content\":\"x\",\"single_word\":true}]}",
            "single_word");
    struct str deep = { 0 };
    str_adds(&deep, "{\"model\":{\"vocab\":[[\"");
    str_pad(&deep, 'x', deep.n + UNIGRAM_PIECE_MAX + 1);
    str_adds(&deep, "\",0]]}}");
    refused(deep.p, deep.n, BERTH_ELIMIT, "a piece of 257 bytes");
    str_release(&deep);
}

static void bad_protos(void **state)
{
    (void)state;
    static const struct proto_piece p[] = { { "</s>", 0, 3 }, { "<unk>", 0, 2 }, { "a", -1, 0 } };
    struct str whole = { 0 }, bad = { 0 };
    struct unigram *t;
    berth_err err = { 0 };
    put_pieces(&whole, p, ARRAY_LEN(p));
    for (size_t n = 0; n < whole.n; n++) /* cut short anywhere: no pieces, no </s>, or malformed */
        if (!unigram_from_proto(whole.p, n, "cut", &t, &err))
            unigram_close(t);
        else
            assert_true(!t && strstr(err.msg, "'cut'"));
    assert_ok(unigram_from_proto(whole.p, whole.n, "whole", &t, &err), err);
    TOKENS(t, "ax", 1, 2, 1);
    unigram_close(t);
    static const struct {
        unsigned field, in, number;
        berth_status s;
        const char *why;
    } spec[] = { { 2, 3, 3, BERTH_EUNSUPPORTED, "kind 3" },
                 { 2, 24, 1, BERTH_EUNSUPPORTED, "behind its words" } };
    for (size_t i = 0; i < ARRAY_LEN(spec); i++) {
        struct str one = { 0 };
        str_clear(&bad);
        str_add(&bad, whole.p, whole.n);
        put_number(&one, spec[i].in, spec[i].number);
        put_bytes(&bad, spec[i].field, one.p, one.n);
        refused(bad.p, bad.n, spec[i].s, spec[i].why);
        str_release(&one);
    }
    REFUSED(BERTH_EFORMAT, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "malformed");
    REFUSED(BERTH_EFORMAT, "\x0a\x02\x18\x09", "malformed");             /* type 9 */
    REFUSED(BERTH_EFORMAT, "\x0a\x05\x15\x00\x00\xc0\x7f", "no number"); /* NaN */
    REFUSED(BERTH_EFORMAT, "\x03", "neither JSON nor");                  /* groups are not for us */
    str_release(&whole);
    str_release(&bad);
}

/* Maps whose numbers lead outside, or around in circles. */
static void bad_maps(void **state)
{
    (void)state;
    struct charsmap m;
    struct charsmap_hit hit;
    berth_err err = { 0 };
    struct str map = { 0 };
    char text[200];
    memset(text, 'a', sizeof text);
    make_charsmap(rules, ARRAY_LEN(rules), &map);
    char *leaf = map.p + 4 + 2 * 256 * 4; /* of the first rule: node 2 */
    memset(leaf, 0xff, 4);
    assert_ok(charsmap_init(&m, map.p, map.n, &err), err);
    assert_false(charsmap_find(&m, "\n", 1, true, &hit));
    charsmap_release(&m);
    memset(leaf, 0, 3);
    assert_ok(charsmap_init(&m, map.p, map.n, &err), err);
    assert_false(charsmap_find(&m, "\n", 1, true, &hit)); /* 0x7f000000 */
    charsmap_release(&m);
    leaf[3] = (char)0x80;
    assert_ok(charsmap_init(&m, map.p, map.n, &err), err);
    assert_true(charsmap_find(&m, "\n", 1, true, &hit) && hit.len == 1 && hit.n == 1);
    charsmap_release(&m);
    for (size_t i = 4; i < map.n; i += 3) { /* every unit spoilt in one of its bytes */
        char was = map.p[i];
        map.p[i] = (char)~was;
        assert_ok(charsmap_init(&m, map.p, map.n, &err), err);
        for (unsigned c = 1; c < 256; c++) {
            text[0] = (char)c;
            for (int longest = 0; longest < 2; longest++)
                if (charsmap_find(&m, text, sizeof text, longest, &hit))
                    assert_true(hit.len <= 64 && hit.to >= m.text &&
                                hit.to + hit.n <= m.text + m.text_n);
        }
        charsmap_release(&m);
        map.p[i] = was;
        i += i % 7 * 40; /* enough of them */
    }
    static const uint32_t self[] = { 0, 'a' }; /* a unit that is its own child */
    str_clear(&map);
    put_u32(&map, 256 * 4);
    for (uint32_t i = 0; i < 256; i++)
        put_u32(&map, i == 'a' ? (uint32_t)'a' << 10 | 1u << 8 | self[1] : 0);
    str_add(&map, "x", 1);
    assert_ok(charsmap_init(&m, map.p, map.n, &err), err);
    memset(text, 'a', sizeof text);
    assert_true(!charsmap_find(&m, text, sizeof text, true, &hit) || hit.len <= 64);
    charsmap_release(&m);
    assert_fails(charsmap_init(&m, "\x04\0\0\0\0\0", 6, &err), err, BERTH_EFORMAT, "6 bytes");
    assert_fails(charsmap_init(&m, "\x05\0\0\0\0\0\0\0\0", 9, &err), err, BERTH_EFORMAT, "has 5");
    assert_fails(charsmap_init(&m, "\0\0\0\0", 4, &err), err, BERTH_EFORMAT, "has 0");
    str_release(&map);
}

static const char *gguf_file(const char *model, size_t scores, bool map)
{
    static const struct proto_piece p[] = {
        { "<pad>", 0, 3 }, { "</s>", 0, 3 }, { "<unk>", 0, 2 },
        { META, -2, 1 },   { "a", -1, 1 },   { META "a", -1.5f, 1 },
    };
    struct str g = { 0 }, m = { 0 };
    make_charsmap(rules, ARRAY_LEN(rules), &m);
    str_adds(&g, "GGUF");
    put_u32(&g, 3);
    put_u64(&g, 0);
    put_u64(&g, 5 + map);
    put_key(&g, "tokenizer.ggml.model", GGUF_STRING);
    put_text(&g, model);
    put_array(&g, "tokenizer.ggml.tokens", GGUF_STRING, ARRAY_LEN(p));
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        put_text(&g, p[i].text);
    put_array(&g, "tokenizer.ggml.scores", GGUF_F32, scores);
    for (size_t i = 0; i < scores; i++)
        put_float(&g, p[i].score);
    put_array(&g, "tokenizer.ggml.token_type", GGUF_I32, ARRAY_LEN(p));
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        put_u32(&g, p[i].type);
    put_key(&g, "tokenizer.ggml.add_space_prefix", GGUF_BOOL);
    str_addc(&g, 0);
    if (map) {
        put_array(&g, "tokenizer.ggml.precompiled_charsmap", GGUF_I8, m.n);
        str_add(&g, m.p, m.n);
    }
    str_pad(&g, 0, (g.n + 31) / 32 * 32);
    const char *path = tmp_write("tokens.gguf", g.p, g.n);
    str_release(&g);
    str_release(&m);
    return path;
}

static void from_gguf(void **state)
{
    (void)state;
    struct weights *w;
    struct unigram *t;
    berth_err err = { 0 };
    assert_ok(weights_open(gguf_file("t5", 6, true), NULL, &w, &err), err);
    assert_ok(unigram_from_gguf(w, "t5", &t, &err), err);
    normal_is(t, "a\n a", true, "a" META "a"); /* no prefix, it says */
    TOKENS(t, "a\n x", 4, 3, 2);
    TOKENS(t, "a a", 4, 5);
    unigram_close(t);
    weights_close(w);
    static const struct {
        const char *model;
        size_t scores;
        berth_status s;
        const char *why;
    } bad[] = { { "llama", 6, BERTH_EUNSUPPORTED, "'llama'" },
                { "t5", 5, BERTH_EFORMAT, "scores is not there for each of its 6" } };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_ok(weights_open(gguf_file(bad[i].model, bad[i].scores, false), NULL, &w, &err), err);
        assert_fails(unigram_from_gguf(w, "t5", &t, &err), err, bad[i].s, bad[i].why);
        assert_null(t);
        weights_close(w);
    }
}

static void places(void **state)
{
    (void)state;
    struct unigram *t;
    berth_err err = { 0 };
    assert_fails(unigram_open(tmp_path("nowhere"), &t, &err), err, BERTH_ENOTFOUND, "nowhere");
    mkdir(tmp_path("folder"), 0777);
    assert_fails(unigram_open(tmp_path("folder"), &t, &err), err, BERTH_ENOTFOUND,
                 "neither tokenizer.json nor spiece.model");
    struct str proto = { 0 };
    static const struct proto_piece p[] = { { "</s>", 0, 3 }, { "<unk>", 0, 2 }, { "a", -1, 0 } };
    put_pieces(&proto, p, ARRAY_LEN(p));
    tmp_write("folder/spiece.model", proto.p, proto.n);
    assert_ok(unigram_open(tmp_path("folder"), &t, &err), err);
    assert_int_equal(t->vocab, 3);
    unigram_close(t);
    tmp_write("folder/tokenizer.json", FILE_TEXT, sizeof FILE_TEXT - 1);
    assert_ok(unigram_open(tmp_path("folder"), &t, &err), err);
    assert_int_equal(t->vocab, 22);
    unigram_close(t);
    assert_ok(unigram_open(tmp_path("folder/spiece.model"), &t, &err), err);
    unigram_close(t);
    tmp_write("folder/tokenizer.json", "{", 1);
    assert_fails(unigram_open(tmp_path("folder"), &t, &err), err, BERTH_EFORMAT, "tokenizer.json");
    str_release(&proto);
}

static void survives_oom(void **state)
{
    (void)state;
    mkdir(tmp_path("oom"), 0777);
    tmp_write("oom/tokenizer.json", FILE_TEXT, sizeof FILE_TEXT - 1);
    const char *gguf = gguf_file("t5", 6, true);
    struct weights *w;
    berth_err err = { 0 };
    assert_ok(weights_open(gguf, NULL, &w, &err), err);
    for (int kind = 0; kind < 2; kind++) {
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s != BERTH_OK; k++) {
            struct unigram *t = NULL;
            err = (berth_err) { 0 };
            oom_after(k);
            s = kind ? unigram_from_gguf(w, "t5", &t, &err)
                     : unigram_open(tmp_path("oom"), &t, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !t && err.msg[0]));
            unigram_close(t);
        }
    }
    weights_close(w);
    struct unigram *t = with_map(false);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct vec out = { .elem = sizeof(int32_t) };
        err = (berth_err) { 0 };
        oom_after(k);
        s = unigram_encode(t, "ab \n x </s>a\xcc\x81 b", 17, &out, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        vec_release(&out);
    }
    unigram_close(t);
}

/* As long as a prompt may be, as one word: time that grew with the square would be hours. */
static void a_very_long_word(void **state)
{
    (void)state;
    struct unigram *t = from_text(FILE_TEXT);
    size_t n = TEXT_PROMPT_MAX;
    char *text = malloc(n + 1);
    struct vec out = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i <= n; i++)
        text[i] = "ab"[i % 2];
    assert_ok(unigram_encode(t, text, n, &out, &err), err);
    assert_int_equal(out.n, n / 2 + 1); /* _ ab ab ... */
    assert_fails(unigram_encode(t, text, n + 1, &out, &err), err, BERTH_ELIMIT, "1048577 bytes");
    vec_release(&out);
    free(text);
    unigram_close(t);
}

/* A rule that makes text longer than memory should hold ends with an error. */
static void text_that_explodes(void **state)
{
    (void)state;
    struct str json = { 0 };
    str_adds(&json,
             "{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
    str_pad(&json, 'b', json.n + 200);
    str_adds(&json, "\"}," MODEL("") "}");
    struct unigram *t = from_text(json.p);
    char *text = malloc(TEXT_PROMPT_MAX);
    struct vec out = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    assert_non_null(text);
    memset(text, 'a', TEXT_PROMPT_MAX);
    assert_fails(unigram_encode(t, text, TEXT_PROMPT_MAX, &out, &err), err, BERTH_ELIMIT,
                 "normal form");
    vec_release(&out);
    free(text);
    unigram_close(t);
    str_release(&json);
}

/* What people without T5's files get: its ids for what is special, letters, no words. */
static void stand_in(void **state)
{
    (void)state;
    struct unigram *t;
    berth_err err = { 0 };
    mkdir(tmp_path("stand"), 0777);
    assert_ok(unigram_write_stand_in(tmp_path("stand"), &err), err);
    assert_ok(unigram_open(tmp_path("stand"), &t, &err), err);
    assert_true(t->vocab == 32100 && tokenizer_t5.ids(t).end == 1 && tokenizer_t5.ids(t).pad == 0);
    TOKENS(t, "A\n \t\"\\!", 3, 4 + 'A' - '!', 3, 4 + '"' - '!', 4 + '\\' - '!', 4);
    TOKENS(t, "\xe4\xb8\x96", 3, 2);
    TOKENS(t, "<extra_id_0><extra_id_99></s>", 32099, 32000, 1);
    unigram_close(t);
    assert_fails(unigram_write_stand_in(tmp_path("nowhere"), &err), err, BERTH_ENOTFOUND,
                 "nowhere");
}

static void the_real_one(void **state)
{
    (void)state;
    tokenizer_or_skip("t5");
    struct unigram *t;
    berth_err err = { 0 };
    assert_ok(unigram_open(tokenizer_dir("t5"), &t, &err), err);
    assert_int_equal(t->vocab, 32100);
    TOKENS(t, "a photo of a cat", 3, 9, 1202, 13, 3, 9, 1712);
    TOKENS(t, "<extra_id_0> a</s>", 32099, 3, 9, 1);
    TOKENS(t, "\xee\x96\x9a\xe2\x80\x8d\xcc\x81:", 3, 2, 3, 2, 10); /* private use, ZWJ, acute */
    /* nmt_nfkc: ligatures, full width, no-break and ideographic blanks, what has no width */
    normal_is(t, "\xef\xac\x81n", false, META "fin");
    normal_is(t,
              "\xef\xbc\xa1\xc2\xa0\xe3\x80\x80"
              "b",
              false, META "A" META "b");
    normal_is(t,
              "a\tb\r\nc\x07"
              "d",
              false, META "a" META "b" META "cd");
    normal_is(t,
              "a\xe2\x80\x8b"
              "b",
              false, META "a" META "b");
    normal_is(t, "e\xcc\x81", false, META "\xc3\xa9");
    normal_is(t, "e\xcc\x82\xcc\x81", false, META "\xc3\xaa");
    TOKENS(t, "a<extra_id_0>b", 3, 9, 32099, 3, 115); /* a blank behind each special token */
    normal_is(t, "x  ", true, META "x");
    unigram_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_pieces),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(bytes_for_what_is_unknown),
        cmocka_unit_test(rules_by_grapheme),
        cmocka_unit_test(pieces_of_users),
        cmocka_unit_test(rules_by_length),
        cmocka_unit_test(bad_json),
        cmocka_unit_test(bad_protos),
        cmocka_unit_test(bad_maps),
        cmocka_unit_test(from_gguf),
        cmocka_unit_test(places),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(a_very_long_word),
        cmocka_unit_test(text_that_explodes),
        cmocka_unit_test(stand_in),
        cmocka_unit_test(the_real_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
