/* The runs of sample_sd15_tiny with the karras schedule. */
#include "runs.h"

static void karras(void **state)
{
    (void)state;
    golden_or_skip();
    where_or_skip();
    tokenizer_or_skip("clip");
    every_run("karras", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(karras),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
