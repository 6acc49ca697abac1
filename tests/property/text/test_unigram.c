/* Random vocabularies and texts: the pieces found spell the text, and no others sum up higher. */
#include "support/rng.h"
#include "support/seed.h"
#include "support/test.h"

#include "text/unigram_impl.h"

#include <math.h>

#define ROUNDS 3000
#define PIECES 24
#define TEXT 40

struct small_vocab {
    char text[PIECES][8];
    double score[PIECES];
    size_t n;
};
#define FIRST 3 /* ids of what is special come before */

static bool has(const struct small_vocab *v, const char *text)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->text[i], text) == 0)
            return true;
    return false;
}

/* "a", "b", "c" and longer ones of these letters; z is in some, but begins none: a z that nobody
 * takes is unknown, and so are those behind it. */
static void make_vocab(struct rng *r, struct small_vocab *v)
{
    *v = (struct small_vocab) { 0 };
    size_t want = 3 + rng_below(r, PIECES - 3);
    while (v->n < want) {
        char text[8] = { 0 };
        size_t n = v->n < 3 ? 1 : 1 + rng_below(r, 5);
        for (size_t i = 0; i < n; i++)
            text[i] = v->n < 3 ? "abc"[v->n] : "abcz"[rng_below(r, i ? 4 : 3)];
        if (has(v, text)) {
            want--; /* fewer, then */
            continue;
        }
        memcpy(v->text[v->n], text, sizeof text);
        v->score[v->n++] = -(double)(1 + rng_below(r, 64)) / 4; /* sums are exact in float, too */
    }
}

static struct unigram *make_tokenizer(const struct small_vocab *v, bool sentencepiece,
                                      double *unknown)
{
    struct unigram_load l;
    struct unigram *t;
    berth_err err = { 0 };
    static const char *const first[] = { "<pad>", "</s>", "<unk>" };
    double low = sentencepiece ? INFINITY : 0;
    assert_ok(unigram_load_init(&l, &err), err);
    l.t->sentencepiece = sentencepiece;
    l.unknown = 2;
    for (uint32_t i = 0; i < FIRST; i++)
        assert_ok(unigram_add_piece(&l, first[i], strlen(first[i]), 0,
                                    i == 2 ? PIECE_UNKNOWN : PIECE_CONTROL, &err),
                  err);
    for (size_t i = 0; i < v->n; i++) {
        low = v->score[i] < low ? v->score[i] : low;
        assert_ok(
            unigram_add_piece(&l, v->text[i], strlen(v->text[i]), v->score[i], PIECE_NORMAL, &err),
            err);
    }
    assert_ok(unigram_finish(&l, BERTH_OK, &t, &err), err);
    *unknown = low - 10;
    return t;
}

/* The highest sum of s[0..n), from its end. */
static double best(const struct small_vocab *v, double unknown, const char *s, size_t n)
{
    double sum[TEXT + 1] = { 0 };
    for (size_t i = n; i-- > 0;) {
        sum[i] = -INFINITY;
        if (s[i] == 'z')
            sum[i] = unknown + sum[i + 1];
        for (size_t k = 0; k < v->n; k++) {
            size_t len = strlen(v->text[k]);
            if (len <= n - i && memcmp(s + i, v->text[k], len) == 0 &&
                v->score[k] + sum[i + len] > sum[i])
                sum[i] = v->score[k] + sum[i + len];
        }
    }
    return sum[0];
}

/* The sum of what was found; fails where it does not spell the text. */
static double found(const struct small_vocab *v, double unknown, const char *s, size_t n,
                    const struct vec *ids)
{
    double sum = 0;
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        int32_t id = *(int32_t *)vec_at(ids, i);
        if (id == 2) {
            assert_true(at < n && s[at] == 'z');
            for (; at < n && s[at] == 'z'; at++) /* all of them are one */
                sum += unknown;
            continue;
        }
        assert_true(id >= FIRST && (size_t)id - FIRST < v->n);
        const char *text = v->text[id - FIRST];
        assert_true(strlen(text) <= n - at && memcmp(s + at, text, strlen(text)) == 0);
        at += strlen(text);
        sum += v->score[id - FIRST];
    }
    assert_int_equal(at, n);
    return sum;
}

static void best_of_all(void **state)
{
    (void)state;
    running = rng_seed();
    struct rng r = { running };
    for (int round = 0; round < ROUNDS; round++) {
        struct small_vocab v;
        char text[TEXT];
        double unknown;
        berth_err err = { 0 };
        struct vec ids = { .elem = sizeof(int32_t) };
        make_vocab(&r, &v);
        struct unigram *t = make_tokenizer(&v, round % 2, &unknown);
        size_t n = rng_below(&r, TEXT + 1);
        for (size_t i = 0; i < n; i++)
            text[i] = "aabbccz"[rng_below(&r, 7)];
        assert_ok(unigram_encode(t, text, n, &ids, &err), err);
        double got = found(&v, unknown, text, n, &ids), want = best(&v, unknown, text, n);
        if (got != want)
            fail_msg("round %d: '%.*s' has %g, not %g", round, (int)n, text, got, want);
        vec_release(&ids);
        unigram_close(t);
    }
    running = 0;
}

int main(void)
{
    signal(SIGABRT, say_seed_and_die);
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(best_of_all, say_seed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
