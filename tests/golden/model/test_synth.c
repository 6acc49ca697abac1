/* The rule against synth.safetensors: every tensor in it, bit for bit. */
#include "support/golden.h"
#include "support/test.h"

#include "model/synth.h"

static void equals_the_golden_file(void **state)
{
    (void)state;
    struct weights *w;
    berth_err err;
    assert_ok(weights_open(golden_path("synth.safetensors"), NULL, &w, &err), err);
    assert_true(weights_count(w) > 0);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        assert_int_equal(e->dtype, DT_F32);
        size_t count = (size_t)(e->size / sizeof(float));
        float *want = malloc(e->size), *got = malloc(e->size);
        assert_true(want && got);
        assert_ok(weights_read(w, e, 0, want, e->size, &err), err);
        synth_fill(e->name, e->name_len, &e->shape, 0, count, got);
        for (size_t k = 0; k < count; k++)
            if (memcmp(&want[k], &got[k], sizeof(float)))
                fail_msg("'%s' element %zu: %a, golden %a", e->name, k, (double)got[k],
                         (double)want[k]);
        print_message("%-12s %zu values\n", e->name, count);
        free(want);
        free(got);
    }
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_golden_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
