/* Ids of mixes: equal ones have equal effect, so whatever changes the effect changes them. */
#include "support/test.h"

#include "node/weight_mix.h"

static uint64_t id(const struct mix_args *a)
{
    struct res_adapter *x;
    berth_err err = { 0 };
    assert_ok(weight_mix_new(a, &x, &err), err);
    uint64_t got = x->id;
    res_adapter_unref(x);
    return got;
}

static void ids_tell_all_apart(void **state)
{
    (void)state;
    static const struct mix_rule two[] = { { "ab", 2 }, { "c", 2 } },
                                 other[] = { { "a", 2 }, { "bc", 2 } }, one[] = { { "ab", 2 } },
                                 more[] = { { "ab", 3 } };
    const struct mix_args row[] = {
        { .kind = MIX_SCALE, .rule = one, .rules = 1, .name = "x" },
        { .kind = MIX_SCALE, .rule = more, .rules = 1, .name = "x" },
        { .kind = MIX_SCALE, .rule = one, .rules = 1, .name = "x", .endings = true },
        { .kind = MIX_SCALE, .rule = one, .rules = 1, .name = "x", .front = "model." },
        { .kind = MIX_SCALE, .rule = one, .rules = 1, .name = "x", .front = "m." },
        { .kind = MIX_SCALE, .rule = one, .rules = 1, .name = "x", .otherwise = 2 },
        { .kind = MIX_SCALE, .rule = two, .rules = 2, .name = "x" },
        { .kind = MIX_SCALE, .rule = other, .rules = 2, .name = "x" },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (size_t k = 0; k < ARRAY_LEN(row); k++)
            if ((id(&row[i]) == id(&row[k])) != (i == k))
                fail_msg("mixes %zu and %zu", i, k);
    struct mix_args renamed = row[0];
    renamed.name = "y"; /* for messages only */
    assert_true(id(&renamed) == id(&row[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ids_tell_all_apart) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
