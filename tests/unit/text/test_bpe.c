/* CLIP's tokenizer: its files, good and bad, and what words become. */
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"
#include "support/tokenizer.h"

#include "text/bpe_impl.h"

#include <sys/stat.h>

#define VOCAB 532 /* of the tiny tokenizer: 512 bytes, 18 merges, 2 specials */
#define START (VOCAB - 2)
#define END (VOCAB - 1)

static struct bpe *tiny(void)
{
    struct bpe *t;
    berth_err err = { 0 };
    assert_int_equal(tiny_tokenizer_write(tmp_path("tiny"), false), VOCAB);
    assert_ok(bpe_open(tmp_path("tiny"), &t, &err), err);
    return t;
}

/* ids: ends with -1 */
static void tokens_are(const struct bpe *t, const char *text, size_t n, const int32_t *ids)
{
    struct vec got = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    size_t want = 0;
    while (ids[want] >= 0)
        want++;
    assert_ok(bpe_encode(t, text, n, &got, &err), err);
    if (got.n != want || (want && memcmp(got.p, ids, want * sizeof *ids) != 0)) {
        for (size_t i = 0; i < got.n; i++)
            print_message("%d ", *(int32_t *)vec_at(&got, i));
        fail_msg("'%s': %zu tokens", text, got.n);
    }
    vec_release(&got);
}
#define TOKENS(t, text, ...) tokens_are(t, text, sizeof(text) - 1, (int32_t[]) { __VA_ARGS__, -1 })
#define B(c) ((c) - '!')       /* a printing byte in the middle of a word */
#define W(c) (256 + (c) - '!') /* at its end */
#define M(i) (512 + (i))       /* a merge */

static void words_become_tokens(void **state)
{
    (void)state;
    struct bpe *t = tiny();
    assert_int_equal(t->vocab, VOCAB);
    assert_int_equal(tokenizer_clip.ids(t).start, START);
    assert_int_equal(tokenizer_clip.ids(t).end, END);
    TOKENS(t, "a photo of the cat", W('a'), M(8), M(4), M(3), M(1));
    TOKENS(t, "A PHOTO\tOf\n THE  Cat", W('a'), M(8), M(4), M(3), M(1));
    TOKENS(t, "cats", B('c'), B('a'), B('t'), W('s')); /* "at</w>" needs the end */
    TOKENS(t, "don't 12", M(13), W('n'), B('\''), W('t'), W('1'), W('2'));
    TOKENS(t, "dog's", M(14), B('\''), W('s'));
    TOKENS(t, "cat,dog!?", M(1), W(','), M(14), B('!'), W('?'));
    TOKENS(t, "", -1);
    TOKENS(t, " \t\n", -1);
    bpe_close(t);
}

/* "catcat" inside a word, and pairs of one rank left to right. */
static void merges_in_order(void **state)
{
    (void)state;
    static const char vocab[] = "{\"a\":0,\"a</w>\":1,\"aa\":2,\"aaa</w>\":3,\"aa</w>\":4,"
                                "\"<|startoftext|>\":5,\"<|endoftext|>\":6,\"aaaa</w>\":7}";
    static const char merges[] = "a a\naa a</w>\na a</w>\naa aa</w>\n";
    struct bpe *t;
    berth_err err = { 0 };
    assert_ok(bpe_from_text(vocab, sizeof vocab - 1, merges, sizeof merges - 1, &t, &err), err);
    TOKENS(t, "a", 1);
    TOKENS(t, "aa", 4);
    TOKENS(t, "aaa", 3);
    TOKENS(t, "aaaa", 7);      /* (aa) a a</w>, (aa) (aa</w>) */
    TOKENS(t, "aaaaa", 2, 3);  /* (aa) (aa) a</w> */
    TOKENS(t, "aba", 0, 6, 1); /* b is not in the vocabulary: the end token stands for it */
    bpe_close(t);
}

/* Id of any byte: printable ones first, then the others. */
static int32_t byte_id(unsigned b)
{
    return b <= 0x20  ? 188 + (int32_t)b
           : b < 0x7f ? (int32_t)b - '!'
           : b < 0xa1 ? 221 + (int32_t)b - 0x7f
           : b < 0xad ? 94 + (int32_t)b - 0xa1
           : b > 0xad ? 106 + (int32_t)b - 0xae
                      : 255;
}
#define BYTE(b) byte_id(b)

static void special_tokens(void **state)
{
    (void)state;
    struct bpe *t = tiny();
    TOKENS(t, "<|startoftext|>cat<|endoftext|>", START, M(1), END);
    TOKENS(t, "!!<|endoftext|>", B('!'), W('!'), END);     /* cut before punctuation is gathered */
    TOKENS(t, "a<|StartOfText|>a", W('a'), START, W('a')); /* looked for in lower case ... */
#define ENDOFTEXT B('e'), B('n'), M(13), B('f'), B('t'), B('e'), B('x'), W('t')
    TOKENS(t, "<|ENDOFTEXT|>", B('<'), W('|'), ENDOFTEXT, B('|'), W('>')); /* ... this one not */
    TOKENS(t, "!<|ENDOFTEXT|>", B('!'), B('<'), W('|'), ENDOFTEXT, B('|'), W('>'));
    TOKENS(t, "<|ENDOFTEXT|>!", B('<'), W('|'), ENDOFTEXT, B('|'), W('>'), W('!'));
    TOKENS(t, "|endoftext|>!", W('|'), ENDOFTEXT, B('|'), B('>'), W('!'));
    /* a stroke makes another sign of the last one, where it is looked at before the token is */
    TOKENS(t, "<|endoftext|>\xcc\xb8", END, BYTE(0xcc), 256 + BYTE(0xb8));
    TOKENS(t, "<|startoftext|>\xcc\xb8", B('<'), W('|'), B('s'), B('t'), B('a'), B('r'), B('t'),
           B('o'), B('f'), B('t'), B('e'), B('x'), W('t'), B('|'), BYTE(0xe2), BYTE(0x89),
           256 + BYTE(0xaf));
    TOKENS(t, "<|endof", B('<'), W('|'), B('e'), B('n'), B('d'), M(4));
    bpe_close(t);
}

/* Controls, formats and what is no UTF-8 are words of their own; ideographs are letters. */
static void cleaning(void **state)
{
    (void)state;
    struct bpe *t = tiny();
    TOKENS(t, "x\0y\x01z", W('x'), 256 + BYTE(0), W('y'), 256 + BYTE(1), W('z'));
    TOKENS(t, "x\xe2\x80\x8by", W('x'), BYTE(0xe2), BYTE(0x80), 256 + BYTE(0x8b), W('y'));
    TOKENS(t, "x\xff", W('x'), BYTE(0xef), BYTE(0xbf), 256 + BYTE(0xbd)); /* U+FFFD */
    TOKENS(t,
           "the\xc2\xa0"
           "cat\xe3\x80\x80of",
           M(3), M(1), M(4)); /* NBSP and wide space part words */
    TOKENS(t,
           "cat\xe2\x80\xa8"
           "cat\xc2\x85"
           "cat",
           M(1), M(1), M(1));                              /* line separator, next line */
    TOKENS(t, "x\x1cy", W('x'), 256 + BYTE(0x1c), W('y')); /* a space for Python alone */
    TOKENS(t, "e\xcc\x81", BYTE(0xc3), 256 + BYTE(0xa9));  /* composed */
    TOKENS(t,
           "\xe7\x8c\xab"
           "cat",
           BYTE(0xe7), BYTE(0x8c), BYTE(0xab), M(1));
    TOKENS(t, "x\xe7\x8c\xab", B('x'), BYTE(0xe7), BYTE(0x8c), 256 + BYTE(0xab));
    TOKENS(t, "\xce\x91\xce\xa3", BYTE(0xce), BYTE(0xb1), BYTE(0xcf),
           256 + BYTE(0x83));                                               /* no sigma is final */
    TOKENS(t, "a'\xc5\xbf", W('a'), W('\''), BYTE(0xc5), 256 + BYTE(0xbf)); /* no 's */
    bpe_close(t);
}

static void one_file_says_the_same(void **state)
{
    (void)state;
    struct bpe *t;
    berth_err err = { 0 };
    char file[600];
    assert_int_equal(tiny_tokenizer_write(tmp_path("one"), true), VOCAB);
    assert_ok(bpe_open(tmp_path("one"), &t, &err), err);
    TOKENS(t, "a photo of the cat", W('a'), M(8), M(4), M(3), M(1));
    bpe_close(t);
    snprintf(file, sizeof file, "%s/tokenizer.json", tmp_path("one"));
    assert_ok(bpe_open(file, &t, &err), err);
    assert_int_equal(t->vocab, VOCAB);
    bpe_close(t);
}

#define SPECIALS "\"<|startoftext|>\":5,\"<|endoftext|>\":6"

static void tokenizer_json(void **state)
{
    (void)state;
    static const char *const good[] = {
        /* merges as pairs, added tokens behind the model and again in the vocabulary */
        "{\"model\":{\"vocab\":{\"a\":0,\"b</w>\":1,\"ab</w>\":2," SPECIALS "},"
        "\"merges\":[[\"a\",\"b</w>\"]]},\"added_tokens\":[{\"id\":5,\"special\":true,"
        "\"content\":\"<|startoftext|>\"}]}",
        /* specials only among the added tokens, in front; a null suffix */
        "{\"added_tokens\":[{\"content\":\"<|startoftext|>\",\"id\":5},{\"id\":6,"
        "\"content\":\"<|endoftext|>\"}],\"x\":[1,{\"y\":null}],\"model\":{\"type\":\"BPE\","
        "\"end_of_word_suffix\":null,\"merges\":[\"a b</w>\"],\"vocab\":{\"a\":0,"
        "\"b</w>\":1,\"\\u0061b</w>\":2}}}",
    };
    berth_err err = { 0 };
    for (size_t i = 0; i < 2; i++) {
        struct bpe *t;
        assert_ok(bpe_from_text(good[i], strlen(good[i]), NULL, 0, &t, &err), err);
        TOKENS(t, "ab", 2);
        assert_int_equal(t->vocab, 7);
        bpe_close(t);
    }
}

static void bad_files(void **state)
{
    (void)state;
    static const struct {
        const char *vocab, *merges; /* merges NULL: tokenizer.json */
        berth_status want;
        const char *text;
    } bad[] = {
        { "", "", BERTH_EFORMAT, "" },
        { "[]", "", BERTH_EFORMAT, "no object" },
        { "{\"a\":0", "", BERTH_EFORMAT, "" },
        { "{\"a</w>\":0," SPECIALS "} x", "", BERTH_EFORMAT, "" },
        { "{\"a</w>\":-1}", "", BERTH_EFORMAT, "an id" },
        { "{\"a</w>\":\"1\"}", "", BERTH_EFORMAT, "an id" },
        { "{\"a</w>\":1048576}", "", BERTH_EFORMAT, "2^20" },
        { "{\"a</w>\":1,\"a</w>\":2}", "", BERTH_EFORMAT, "twice" },
        { "{\"a</w>\":0}", "", BERTH_EFORMAT, "<|startoftext|>" },
        { "{\"a</w>\":0,\"<|startoftext|>\":1}", "", BERTH_EFORMAT, "<|endoftext|>" },
        { "{\"a\":0," SPECIALS "}", "", BERTH_EFORMAT, "</w>" },
        { "{\"a</w>\":0," SPECIALS "}", "a", BERTH_EFORMAT, "merge 1 is not two" },
        { "{\"a</w>\":0," SPECIALS "}", "#version\n a", BERTH_EFORMAT, "merge 1 is not two" },
        { "{\"a</w>\":0," SPECIALS "}", "a b c", BERTH_EFORMAT, "merge 1 is not two" },
        { "{\"a</w>\":0," SPECIALS "}", "a a</w>", BERTH_EFORMAT, "its left piece" },
        { "{\"a\":1,\"a</w>\":0," SPECIALS "}", "\na a\n", BERTH_EFORMAT, "what it makes" },
        { "{\"a\":1,\"a</w>\":0," SPECIALS "}", "a b", BERTH_EFORMAT, "its right piece" },
        { "{}", NULL, BERTH_EFORMAT, "no \"model\"" },
        { "{\"model\":[]}", NULL, BERTH_EFORMAT, "no object" },
        { "{\"model\":{\"type\":\"Unigram\"}}", NULL, BERTH_EUNSUPPORTED, "no tokenizer of CLIP" },
        { "{\"model\":{\"end_of_word_suffix\":\"\"}}", NULL, BERTH_EUNSUPPORTED, "</w>" },
        { "{\"model\":{\"merges\":{}}}", NULL, BERTH_EFORMAT, "no array" },
        { "{\"model\":{\"merges\":[1]}}", NULL, BERTH_EFORMAT, "neither" },
        { "{\"model\":{\"merges\":[[\"a\"]]}}", NULL, BERTH_EFORMAT, "no pair" },
        { "{\"model\":{},\"added_tokens\":[1]}", NULL, BERTH_EFORMAT, "added token" },
        { "{\"model\":{},\"added_tokens\":[{\"id\":1}]}", NULL, BERTH_EFORMAT, "content" },
        { "{\"model\":{},\"added_tokens\":[{\"content\":\"a\"}]}", NULL, BERTH_EFORMAT, "2^20" },
        { "{\"model\":{\"vocab\":{\"a\":1}},\"added_tokens\":[{\"id\":2,\"content\":\"a\"}]}", NULL,
          BERTH_EFORMAT, "twice" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bpe *t = (struct bpe *)&bad;
        berth_err err = { 0 };
        berth_status s = bpe_from_text(bad[i].vocab, strlen(bad[i].vocab), bad[i].merges,
                                       bad[i].merges ? strlen(bad[i].merges) : 0, &t, &err);
        if (s != bad[i].want || !strstr(err.msg, bad[i].text) || t)
            fail_msg("%zu '%s': %s '%s'", i, bad[i].vocab, berth_status_name(s), err.msg);
    }
}

static void bad_places(void **state)
{
    (void)state;
    struct bpe *t;
    berth_err err = { 0 };
    assert_fails(bpe_open(tmp_path("nowhere"), &t, &err), err, BERTH_ENOTFOUND, "nowhere");
    mkdir(tmp_path("hollow"), 0777);
    assert_fails(bpe_open(tmp_path("hollow"), &t, &err), err, BERTH_ENOTFOUND,
                 "neither vocab.json");
    assert_int_equal(tiny_tokenizer_write(tmp_path("half"), false), VOCAB);
    remove(tmp_path("half/merges.txt"));
    assert_fails(bpe_open(tmp_path("half"), &t, &err), err, BERTH_ENOTFOUND, "merges.txt");
    tmp_write("half/merges.txt", "a b\nbad", 7);
    assert_fails(bpe_open(tmp_path("half"), &t, &err), err, BERTH_EFORMAT, "merges.txt");
}

static void open_survives_oom(void **state)
{
    (void)state;
    for (int one = 0; one < 2; one++) {
        berth_status s = BERTH_ENOMEM;
        assert_int_equal(tiny_tokenizer_write(tmp_path("oom"), one), VOCAB);
        for (long k = 0; s != BERTH_OK; k++) {
            struct bpe *t = NULL;
            berth_err err = { 0 };
            oom_after(k);
            s = bpe_open(tmp_path("oom"), &t, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !t && err.msg[0]));
            bpe_close(t);
        }
    }
    struct bpe *t = tiny();
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct vec out = { .elem = sizeof(int32_t) };
        berth_err err = { 0 };
        oom_after(k);
        s = bpe_encode(t, "a photo e\xcc\x81\xcc\x96\xcc\x80 <|endoftext|> cat", 33, &out, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        vec_release(&out);
    }
    bpe_close(t);
}

/* A word as long as a prompt may be: time that grew with the square would be minutes. */
static void a_very_long_word(void **state)
{
    (void)state;
    struct bpe *t = tiny();
    size_t n = TEXT_PROMPT_MAX;
    char *text = malloc(n + 1);
    struct vec out = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = "in"[i % 2];
    assert_ok(bpe_encode(t, text, n, &out, &err), err);
    assert_int_equal(out.n, n / 2 + 1); /* "in" everywhere but at the end: "i n</w>" */
    assert_fails(bpe_encode(t, text, n + 1, &out, &err), err, BERTH_ELIMIT, "1048577 bytes");
    vec_release(&out);
    free(text);
    bpe_close(t);
}

/* What people without CLIP's files get: its ids for bytes, no words. */
static void stand_in(void **state)
{
    (void)state;
    struct bpe *t;
    berth_err err = { 0 };
    mkdir(tmp_path("stand"), 0777);
    assert_ok(bpe_write_stand_in(tmp_path("stand"), &err), err);
    assert_ok(bpe_open(tmp_path("stand"), &t, &err), err);
    assert_int_equal(t->vocab, 49408);
    TOKENS(t, "a cat,", W('a'), B('c'), B('a'), W('t'), W(','));
    TOKENS(t, "<|startoftext|><|endoftext|>", 49406, 49407);
    for (size_t i = 0; i < 256; i++)
        assert_true(t->byte[i] >= 0 && t->byte_end[i] == t->byte[i] + 256);
    bpe_close(t);
    assert_fails(bpe_write_stand_in(tmp_path("nowhere"), &err), err, BERTH_ENOTFOUND, "nowhere");
}

static void the_real_one(void **state)
{
    (void)state;
    tokenizer_or_skip("clip");
    struct bpe *t;
    berth_err err = { 0 };
    assert_ok(bpe_open(tokenizer_dir("clip"), &t, &err), err);
    assert_int_equal(t->vocab, 49408);
    TOKENS(t, "a photo of a cat", 320, 1125, 539, 320, 2368);
    TOKENS(t, ",", 267);
    TOKENS(t, "<|startoftext|><|endoftext|>", 49406, 49407);
    bpe_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_become_tokens),
        cmocka_unit_test(merges_in_order),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(cleaning),
        cmocka_unit_test(one_file_says_the_same),
        cmocka_unit_test(tokenizer_json),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(bad_places),
        cmocka_unit_test(open_survives_oom),
        cmocka_unit_test(a_very_long_word),
        cmocka_unit_test(stand_in),
        cmocka_unit_test(the_real_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
