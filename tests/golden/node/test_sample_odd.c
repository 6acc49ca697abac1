/* Runs 1, 3, 5 ... of sample_sd15_tiny. */
#include "runs.h"

static void odd_runs(void **state)
{
    (void)state;
    where_or_skip();
    tokenizer_or_skip("clip");
    every_second_run(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
