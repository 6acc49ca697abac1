/* What a language model says next: each rule alone on a few logits, against sums done here. Whole
 * texts with seeds are held to ComfyUI's in golden.model.lm. */
#include "model/speech.h"
#include "support/oom.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { VOCAB = 6 };
static const float logits[VOCAB] = { 1, 3, 2.9f, -1, 0, 2 };

/* How often each is said in n draws with these rules. */
static void draw(struct speech_how how, const struct vec *said, size_t n, unsigned count[VOCAB])
{
    struct speech s;
    berth_err err = { 0 };
    how.sample = true;
    how.temperature = how.temperature != 0 ? how.temperature : 1; /* what is not said is off */
    how.top_p = how.top_p != 0 ? how.top_p : 1;
    how.repetition = how.repetition != 0 ? how.repetition : 1;
    memset(count, 0, VOCAB * sizeof *count);
    assert_ok(speech_init(&s, &how, VOCAB, &err), err);
    for (size_t i = 0; i < n; i++) {
        float z[VOCAB];
        memcpy(z, logits, sizeof z);
        int32_t id = speech_next(&s, z, said);
        assert_true(id >= 0 && id < VOCAB);
        count[id]++;
    }
    speech_release(&s);
}

#define HOW(...) ((struct speech_how) { __VA_ARGS__ })
static const struct vec nothing = { .elem = sizeof(int32_t) };

static void likeliest(void **state)
{
    (void)state;
    struct speech s;
    berth_err err = { 0 };
    float z[VOCAB];
    const struct speech_how plain = { .most = 1 }, cold = { .sample = true, .temperature = 0 };
    memcpy(z, logits, sizeof z);
    assert_ok(speech_init(&s, &plain, VOCAB, &err), err);
    assert_int_equal(speech_next(&s, z, &nothing), 1);
    speech_release(&s);
    assert_ok(speech_init(&s, &cold, VOCAB, &err), err);
    assert_int_equal(speech_next(&s, z, &nothing), 1);
    speech_release(&s);
}

/* Shares of many draws are those of softmax. */
static void shares(void **state)
{
    (void)state;
    enum { N = 20000 };
    unsigned count[VOCAB];
    for (int hot = 1; hot <= 2; hot++) {
        double sum = 0;
        draw(HOW(.temperature = hot, .seed = 5), &nothing, N, count);
        for (size_t i = 0; i < VOCAB; i++)
            sum += exp((double)logits[i] / hot);
        for (size_t i = 0; i < VOCAB; i++)
            assert_true(fabs((double)count[i] / N - exp((double)logits[i] / hot) / sum) < 0.015);
    }
}

static bool only(const unsigned count[VOCAB], const char *which)
{
    for (size_t i = 0; i < VOCAB; i++)
        if ((count[i] > 0) != (strchr(which, (char)('0' + i)) != NULL))
            return false;
    return true;
}

static void cut_off(void **state)
{
    (void)state;
    unsigned count[VOCAB];
    draw(HOW(.top_k = 1), &nothing, 200, count);
    assert_true(only(count, "1"));
    draw(HOW(.top_k = 3), &nothing, 2000, count);
    assert_true(only(count, "125"));
    draw(HOW(.top_k = 100), &nothing, 20000, count);
    assert_true(only(count, "012345"));
    /* of 40, 37, 15 per cent and the rest: a share below so much of the largest is out */
    draw(HOW(.min_p = 0.5), &nothing, 2000, count);
    assert_true(only(count, "12"));
    draw(HOW(.min_p = 0.3), &nothing, 2000, count);
    assert_true(only(count, "125"));
    /* the one that crosses the line is out, the first never is */
    draw(HOW(.top_p = 0.1), &nothing, 200, count);
    assert_true(only(count, "1"));
    draw(HOW(.top_p = 0.7), &nothing, 200, count);
    assert_true(only(count, "1"));
    draw(HOW(.top_p = 0.85), &nothing, 2000, count);
    assert_true(only(count, "12"));
    draw(HOW(.top_p = 0.85, .top_k = 4), &nothing, 2000, count);
    assert_true(only(count, "12"));
}

/* What was said counts less, once however often; below 0 it is multiplied. */
static void penalties(void **state)
{
    (void)state;
    unsigned count[VOCAB];
    struct vec said = { .elem = sizeof(int32_t) };
    static const int32_t ids[] = { 1, 2, 1, 1, 2, 3 };
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        assert_true(vec_push(&said, &ids[i]));
    draw(HOW(.top_k = 1, .repetition = 2), &said, 10, count); /* 1.5, 1.45: 2 of token 5 is more */
    assert_true(only(count, "5"));
    draw(HOW(.top_k = 1, .presence = 1.05), &said, 10, count); /* 1.95, 1.85 */
    assert_true(only(count, "5"));
    draw(HOW(.top_k = 1, .presence = 0.9), &said, 10, count); /* 2.1: once, not thrice */
    assert_true(only(count, "1"));
    vec_release(&said);
}

static void seeds(void **state)
{
    (void)state;
    unsigned a[VOCAB], b[VOCAB], c[VOCAB];
    draw(HOW(.seed = 9), &nothing, 500, a);
    draw(HOW(.seed = 9), &nothing, 500, b);
    draw(HOW(.seed = 10), &nothing, 500, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
}

static void failing_allocations(void **state)
{
    (void)state;
    struct speech s;
    berth_err err = { 0 };
    const struct speech_how how = { .most = 1 };
    oom_after(0);
    berth_status st = speech_init(&s, &how, VOCAB, &err);
    oom_off();
    assert_int_equal(st, BERTH_ENOMEM);
    speech_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(likeliest), cmocka_unit_test(shares),
        cmocka_unit_test(cut_off),   cmocka_unit_test(penalties),
        cmocka_unit_test(seeds),     cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
