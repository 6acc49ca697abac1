/* Handles, anchors, retention, keys: who is alive, and what an open finds again. */
#include "support/models.h"

static void loads_and_goes(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=8m,null:0=4m", NULL);
    const char *path = model_file("a", 8, 64 << 10);
    struct res_model *m = model_open(&f, path, "null:0,256kb;cpu,*#null:0", RES_AUTO);
    struct res_load_result got = model_load(m);
    assert_int_equal(got.read, 8 * 65536);
    model_intact(m);
    fixture_check(&f);
    res_unref(m);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_and_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
