/* The runs of every qwen_image_<model> of the manifest (support/dit_runs.h). */
#include "support/dit_runs.h"

static void every_run(void **state)
{
    (void)state;
    where_or_skip();
    dit_runs("qwen_image_");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
