/* Chunks and references to embedding files: every rule of text-encoders.md 2 and 3. */
#include "support/oom.h"
#include "support/test.h"

#include "base/log.h"
#include "base/str.h"
#include "text/tokenizer.h"

/* A tokenizer that can be read: one token per byte that is no space, its value. */
static berth_status bytes(const void *tok, const char *s, size_t n, struct vec *out, berth_err *err)
{
    (void)tok;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ' || s[i] == '\n')
            continue;
        int32_t *id = vec_add(out);
        if (!id)
            return err_set(err, BERTH_ENOMEM, "ids");
        *id = (unsigned char)s[i];
    }
    return BERTH_OK;
}

static const struct chunk_rules rules = {
    .start = '<', .end = '>', .pad = '_', .max_length = 12, .pad_to_max = true
};

/* A folder of embeddings: "one" has a vector, "three" has three; "broken" cannot be read. */
struct files {
    struct str asked, warned;
    struct log log;
};

static berth_status find(void *user, const char *name, size_t n, const char *key, struct arena *mem,
                         const float **v, uint32_t *count, uint32_t *width, berth_err *err)
{
    static const float vectors[3][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
    struct files *f = user;
    (void)mem;
    assert_string_equal(key, "clip_x");
    str_addf(&f->asked, "%.*s;", (int)n, name);
    *v = vectors[0];
    *width = 2;
    *count = str_eq(name, n, "one") ? 1 : str_eq(name, n, "three") ? 3 : 0;
    if (str_eq(name, n, "broken"))
        return err_set(err, BERTH_EUNSUPPORTED, "a pickle");
    return *count ? BERTH_OK : err_set(err, BERTH_ENOTFOUND, "none");
}

static void note(void *user, enum log_level level, uint64_t ns, const char *event, const char *text)
{
    struct files *f = user;
    (void)ns;
    assert_int_equal(level, LOG_WARN);
    assert_string_equal(event, "text.embedding");
    str_addf(&f->warned, "%s;", text);
}

/* Chunks as text: tokens as their bytes, vectors as *, chunks parted by |, weights other than 1 in
 * braces behind. */
static void chunks_are(const char *prompt, const struct chunk_rules *r, struct files *f,
                       const char *want)
{
    struct arena mem = { 0 };
    struct chunks c;
    struct text_embeddings emb = { .find = find, .user = f };
    struct str got = { 0 };
    berth_err err = { 0 };
    if (f) {
        f->log = (struct log) { .level = LOG_DEBUG, .write = note, .user = f };
        emb.log = &f->log;
    }
    assert_ok(text_chunks(prompt, strlen(prompt), bytes, NULL, r, "clip_x", f ? &emb : NULL, &mem,
                          &c, &err),
              err);
    for (size_t i = 0; i < c.n; i++) {
        if (i)
            str_addc(&got, '|');
        for (size_t k = 0; k < c.len[i]; k++) {
            const struct token *t = &c.chunk[i][k];
            assert_true((t->id < 0) == (t->vector != NULL));
            str_addc(&got, t->vector ? '*' : (char)t->id);
            if (t->weight != 1.0)
                str_addf(&got, "{%g}", t->weight);
        }
    }
    assert_int_equal(c.rules.max_length, r->max_length);
    assert_string_equal(str_c(&got), want);
    str_release(&got);
    arena_release(&mem);
}

static void cutting(void **state)
{
    (void)state;
    chunks_are("", &rules, NULL, "<>__________");
    chunks_are("abc", &rules, NULL, "<abc>_______");
    chunks_are("abcdefghij", &rules, NULL, "<abcdefghij>");
    chunks_are("abcdefghijk", &rules, NULL, "<abcdefghij>|<k>_________");
    chunks_are("abcdefghijklmnopqrstuvwxy", &rules, NULL, "<abcdefghij>|<klmnopqrst>|<uvwxy>_____");
    chunks_are("(ab:2)c", &rules, NULL, "<a{2}b{2}c>_______");
}

/* Seven tokens stay together, eight may be cut. */
static void words_stay_together(void **state)
{
    (void)state;
    chunks_are("abcd(efghijk:2)", &rules, NULL, "<abcd>______|<e{2}f{2}g{2}h{2}i{2}j{2}k{2}>___");
    chunks_are("abcd(efghijkl:2)", &rules, NULL,
               "<abcde{2}f{2}g{2}h{2}i{2}j{2}>|<k{2}l{2}>________");
    chunks_are("abcdefghij(k:2)", &rules, NULL, "<abcdefghij>|<k{2}>_________");
    chunks_are(
        "abcdefghij(klmnopqr:2)", &rules, NULL,
        "<abcdefghij>|<k{2}l{2}m{2}n{2}o{2}p{2}q{2}r{2}>__"); /* none fits: the end at once */
}

static void other_rules(void **state)
{
    (void)state;
    struct chunk_rules t5 = { .start = -1, .end = '>', .pad = '_', .min_length = 8 };
    chunks_are("abc", &t5, NULL, "abc>____");
    chunks_are("abcdefghijklmnopqrst", &t5, NULL, "abcdefghijklmnopqrst>");
    t5.min_padding = 2;
    chunks_are("abc", &t5, NULL, "abc>____");
    chunks_are("abcdefg", &t5, NULL, "abcdefg>__");
    t5.min_length = 0;
    chunks_are("abc", &t5, NULL, "abc>__");
    struct chunk_rules qwen = { .start = -1, .end = -1, .pad = '_', .min_length = 1 };
    chunks_are("", &qwen, NULL, "_");
    chunks_are("ab", &qwen, NULL, "ab");
    struct chunk_rules left = {
        .start = '<', .end = -1, .pad = '_', .min_length = 6, .pad_left = 1
    };
    chunks_are("abc", &left, NULL, "__<abc");
    chunks_are("", &left, NULL, "_____<");
    chunks_are("abcdefgh", &left, NULL, "<abcdefgh");
    struct chunk_rules longer = rules;
    longer.min_length = 14;
    chunks_are("a", &longer, NULL, "<a>___________");
}

/* Where weights are not known, parentheses are text. Escapes go, and references are cut out. */
/* A part that is left out: as emphasis and embeddings cut the prompt. */
static void without_a_part(void **state)
{
    struct files f = { .asked.n = 0 };
    struct chunk_rules r = rules;
    (void)state;
    r.without = 1;
    chunks_are("ab cd", &r, NULL, "<>__________");
    r.without = 2;
    chunks_are("ab cd", &r, NULL, "<abcd>______");
    chunks_are("ab (cd:2) ef", &r, NULL, "<abef>______");
    chunks_are("ab embedding:one (x:3)", &r, &f, "<abx{3}>_______");
    r.without = 3;
    chunks_are("ab (cd:2) ef", &r, NULL, "<abc{2}d{2}>______");
    str_release(&f.asked);
    str_release(&f.warned);
}

static void without_weights(void **state)
{
    (void)state;
    struct chunk_rules plain = { .start = -1, .end = -1, .pad = '_', .plain = true };
    struct files f = { 0 };
    chunks_are("a (b:1.5) ((c)) (", &plain, NULL, "a(b:1.5)((c))(");
    chunks_are("\\(a\\) \\\\( \\x (b:nan)", &plain, NULL, "(a)\\(\\x(b:nan)");
    chunks_are("(x embedding:one y:2)", &plain, &f, "(x*y:2)");
    assert_string_equal(str_c(&f.asked), "one;");
    str_release(&f.asked);
    str_release(&f.warned);
    struct arena mem = { 0 };
    struct vec parts = { .elem = sizeof(struct text_part) };
    berth_err err = { 0 };
    assert_fails(text_whole("", TEXT_PROMPT_MAX + 1, &mem, &parts, &err), err, BERTH_ELIMIT,
                 "1048577 bytes");
    assert_ok(text_whole("", 0, &mem, &parts, &err), err);
    assert_int_equal(parts.n, 1);
    vec_release(&parts);
    arena_release(&mem);
}

static void refused(void **state)
{
    (void)state;
    struct arena mem = { 0 };
    struct chunks c;
    berth_err err = { 0 };
    struct chunk_rules bad = rules;
    bad.max_length = 8; /* start, seven tokens that stay together, end: put off for ever */
    assert_fails(text_chunks("a", 1, bytes, NULL, &bad, "", NULL, &mem, &c, &err), err,
                 BERTH_EINVAL, "8 tokens");
    bad.max_length = 10;
    size_t n = 8u * TEXT_CHUNKS_MAX + 1;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, 'a', n);
    assert_ok(text_chunks(text, n - 1, bytes, NULL, &bad, "", NULL, &mem, &c, &err), err);
    assert_int_equal(c.n, TEXT_CHUNKS_MAX);
    assert_fails(text_chunks(text, n, bytes, NULL, &bad, "", NULL, &mem, &c, &err), err,
                 BERTH_ELIMIT, "4096 chunks");
    free(text);
    arena_release(&mem);
}

/* float() of Python takes them; a prompt that weighs nan would be NaN altogether. */
static void weights_that_are_no_numbers(void **state)
{
    static const char *const prompt[][2] = { { "a (b:nan) c", "'(b:nan)'" },
                                             { "(b:-inf)", "'(b:-inf)'" },
                                             { "(b:1e39)", "'(b:1e+39)'" } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(prompt); i++) {
        struct arena mem = { 0 };
        struct chunks c;
        berth_err err = { 0 };
        assert_fails(text_chunks(prompt[i][0], strlen(prompt[i][0]), bytes, NULL, &rules, "clip_x",
                                 NULL, &mem, &c, &err),
                     err, BERTH_EINVAL, prompt[i][1]);
        arena_release(&mem);
    }
    chunks_are("(b:1e38)", &rules, NULL, "<b{1e+38}>_________");
}

static void references(void **state)
{
    (void)state;
    static const struct {
        const char *prompt, *want, *asked;
        bool warns;
    } t[] = {
        { "embedding:one", "<*>", "one;", false },
        { "a embedding:three b", "<a***b>", "three;", false },
        { "a\nembedding:one", "<a*>", "one;", false },
        { "aembedding:one", "<aembedding>|<:one>", "", false }, /* no blank before it: text */
        { "(embedding:three:2)", "<*{2}*{2}*{2}>", "three;", false },
        { "embedding:one embedding:three", "<****>", "one;three;", false },
        { "embedding:one  b  c", "<*bc>", "one;", false },
        { "embedding:none b", "<b>", "none;", true },
        { "embedding:one, b", "<*,b>", "one,;one;", false },
        { "embedding:,none, b", "<e,b>", ",none,;none;", true },
        { "embedding:", "<>", "", true },
        { "embedding: one", "<*>", "one;", false },
        { "\nembedding:one\n", "<*>", "one;", false },
        { "a\tembedding:one", "<a\t*>", "one;", false }, /* any white space, which stays */
        { "a\u3000embedding:one", "<a\u3000*>", "one;", false },
        { "embedding:one<|x|>y z", "<*<|x|>yz>", "one;", false }, /* a token ends the name */
        { "embedding:one[/I]", "<*[/I]>", "one;", false },
        { "embedding:none,<x", "<,<x>", "none,;none;", true },
        { "Embedding:one", "<Embedding:>|<one>", "", false },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct files f = { 0 };
        struct chunk_rules r = rules;
        r.pad_to_max = false;
        chunks_are(t[i].prompt, &r, &f, t[i].want);
        assert_string_equal(str_c(&f.asked), t[i].asked);
        assert_int_equal(f.warned.n > 0, t[i].warns);
        str_release(&f.asked);
        str_release(&f.warned);
    }
    chunks_are("embedding:o", &rules, NULL, "<embedding:>|<o>_________"); /* no folder: text */
}

/* One that is there and cannot be read: going on would draw another picture. */
static void unreadable_references_are_errors(void **state)
{
    (void)state;
    struct files f = { 0 };
    struct text_embeddings emb = { .find = find, .user = &f };
    struct arena mem = { 0 };
    struct chunks c;
    berth_err err = { 0 };
    static const char prompt[] = "a embedding:broken b";
    assert_fails(
        text_chunks(prompt, sizeof prompt - 1, bytes, NULL, &rules, "clip_x", &emb, &mem, &c, &err),
        err, BERTH_EUNSUPPORTED, "a pickle");
    assert_string_equal(str_c(&f.asked), "broken;");
    str_release(&f.asked);
    arena_release(&mem);
}

/* Eight vectors or more may be cut, fewer not. */
static void vectors_are_a_group(void **state)
{
    (void)state;
    struct files f = { 0 };
    chunks_are("abcdefghi embedding:three", &rules, &f, "<abcdefghi>_|<***>_______");
    str_release(&f.asked);
    str_release(&f.warned);
}

/* 4 MB of vectors, taken from the arena as a file's are. */
static berth_status find_large(void *user, const char *name, size_t n, const char *key,
                               struct arena *mem, const float **v, uint32_t *count, uint32_t *width,
                               berth_err *err)
{
    size_t *asked = user;
    (void)key, (void)n, (void)err;
    ++*asked;
    *count = name[0] == 'w' ? 16 : 1 << 17;
    *width = name[0] == 'w' ? 1 << 16 : 8;
    *v = arena_array(mem, *count, *width * sizeof **v);
    assert_non_null(*v);
    return name[0] == 'n' ? BERTH_ENOTFOUND : BERTH_OK;
}

/* A file is asked for once, and a prompt that is too long ends before it is a list of all its
 * tokens. */
static void many_references_are_one_file(void **state)
{
    static const char *const name[] = { "wide", "tall", "none" };
    const struct chunk_rules r = { .start = '<', .end = '>', .pad = '_', .max_length = 77 };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct str prompt = { 0 };
        struct arena mem = { 0 };
        struct chunks c;
        size_t asked = 0;
        struct text_embeddings emb = { .find = find_large, .user = &asked };
        berth_err err = { 0 };
        for (int i = 0; i < 700; i++)
            str_addf(&prompt, " embedding:%s", name[k]);
        berth_status s =
            text_chunks(prompt.p, prompt.n, bytes, NULL, &r, "clip_x", &emb, &mem, &c, &err);
        if (k == 1) /* 131072 tokens each: three of them are more than 4096 chunks */
            assert_fails(s, err, BERTH_ELIMIT, "more than 4096 chunks");
        else
            assert_ok(s, err);
        assert_int_equal(asked, 1);
        assert_true(mem.total < (12u << 20)); /* 4 MB of them, and 16 * 700 tokens */
        arena_release(&mem);
        str_release(&prompt);
    }
}

static void survives_oom(void **state)
{
    (void)state;
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct arena mem = { 0 };
        struct chunks c;
        struct files f = { 0 };
        struct text_embeddings emb = { .find = find, .user = &f };
        berth_err err = { 0 };
        oom_after(k);
        s = text_chunks("abcdefghijkl (b embedding:three, x:2)", 37, bytes, NULL, &rules, "clip_x",
                        &emb, &mem, &c, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        str_release(&f.asked);
        arena_release(&mem);
    }
}

static void empty_chunk(void **state)
{
    (void)state;
    struct arena mem = { 0 };
    struct token *t;
    berth_err err = { 0 };
    assert_ok(text_empty_chunk(&rules, 4, &mem, &t, &err), err);
    assert_true(t[0].id == '<' && t[1].id == '>' && t[2].id == '_' && t[3].id == '_');
    struct chunk_rules t5 = { .start = -1, .end = '>', .pad = '_' };
    assert_ok(text_empty_chunk(&t5, 2, &mem, &t, &err), err);
    assert_true(t[0].id == '>' && t[1].id == '_' && t[0].weight == 1.0);
    arena_release(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cutting),
        cmocka_unit_test(words_stay_together),
        cmocka_unit_test(other_rules),
        cmocka_unit_test(without_a_part),
        cmocka_unit_test(without_weights),
        cmocka_unit_test(refused),
        cmocka_unit_test(weights_that_are_no_numbers),
        cmocka_unit_test(references),
        cmocka_unit_test(unreadable_references_are_errors),
        cmocka_unit_test(many_references_are_one_file),
        cmocka_unit_test(vectors_are_a_group),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(empty_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
