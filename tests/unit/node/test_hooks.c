/* Hooks and keyframes at their limits, and without memory: two errors, not one. */
#include "support/loader_rig.h"
#include "support/oom.h"

#include "node/hooks.h"

static struct hooks many(size_t n)
{
    static struct hook one[200];
    for (size_t i = 0; i < ARRAY_LEN(one); i++)
        one[i] = (struct hook) { .path = (char *)(uintptr_t) "p", .name = (char *)(uintptr_t) "n" };
    assert_true(n <= ARRAY_LEN(one));
    return (struct hooks) { .refs = 1, .at = one, .n = n };
}

static void joined(void **state)
{
    (void)state;
    const struct hooks a = many(200), b = many(100), c = many(3);
    struct hooks *out;
    berth_err err = { 0 };
    assert_fails(hooks_join(&a, &b, &out, &err), err, BERTH_ELIMIT, "300 hooks, more than 256");
    assert_null(out);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        assert_true(k < 100);
        oom_once(k);
        s = hooks_join(&c, &c, &out, &err);
        oom_off();
        assert_true(!s || s == BERTH_ENOMEM);
    }
    assert_int_equal(out->n, 6);
    hooks_unref(out);
}

/* CreateHookKeyframesFromFloats of so many numbers. */
static berth_status from_floats(struct rig *r, json_t *list, long fail, berth_err *err)
{
    struct call x;
    rig_call(r, &x, "CreateHookKeyframesFromFloats",
             "{\"start_percent\": 0, \"end_percent\": 1, \"print_keyframes\": false}");
    struct value *v = value_from_json(list);
    call_give(&x, "floats_strength", v);
    value_unref(v);
    if (fail >= 0)
        oom_once(fail);
    berth_status s = x.c.cls->run(&x.c, err);
    oom_off();
    call_release(&x);
    return s;
}

static void keyframes(void **state)
{
    (void)state;
    struct rig r;
    json_t *list = json_array(), *words = json_pack("[s]", "one");
    berth_err err = { 0 };
    rig_open(&r, "cpu=16m");
    for (size_t i = 0; i < 9; i++)
        json_array_append_new(list, json_real(0.5));
    assert_ok(from_floats(&r, list, -1, &err), err);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        assert_true(k < 100);
        s = from_floats(&r, list, k, &err);
        assert_true(!s || s == BERTH_ENOMEM);
    }
    assert_fails(from_floats(&r, words, -1, &err), err, BERTH_EINVAL,
                 "input 'floats_strength' must be numbers");
    while (json_array_size(list) <= 4096)
        json_array_append_new(list, json_real(0.5));
    assert_fails(from_floats(&r, list, -1, &err), err, BERTH_ELIMIT,
                 "4097 keyframes, more than 4096");
    json_decref(list);
    json_decref(words);
    rig_close(&r);
}

/* A run always has a span: hooks that leave none, because there are no hooks or because the only
 * keyframe begins at the end, are refused. */
static void spans(void **state)
{
    (void)state;
    struct keyframe frame = { .percent = 1, .strength = 1 };
    struct hooks h = many(1);
    struct arena mem = { 0 };
    struct vec out = { 0 };
    berth_err err = { 0 };
    h.at[0].frames.at = &frame;
    h.at[0].frames.n = 1;
    assert_fails(hooks_spans(&h, &mem, &out, &err), err, BERTH_EINVAL, "none of the 1 hooks acts");
    frame.percent = 0.5;
    assert_ok(hooks_spans(&h, &mem, &out, &err), err);
    assert_int_equal(out.n, 2); /* before it, and from it on */
    h.n = 0;
    assert_fails(hooks_spans(&h, &mem, &out, &err), err, BERTH_EINVAL, "none of the 0 hooks acts");
    vec_release(&out);
    arena_release(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(joined), cmocka_unit_test(keyframes),
                                        cmocka_unit_test(spans) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
