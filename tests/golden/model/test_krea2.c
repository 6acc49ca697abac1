/* The Krea 2 transformers of the golden files: every krea2_<model> of the manifest
 * (support/dit_cases.h). */
#include "support/dit_cases.h"

#include "model/krea2/krea2.h"

/* What was read from shapes is what the reference was built with. */
static void compare_config(const struct weights *w, const json_t *c)
{
    struct krea2_net f;
    berth_err err = { 0 };
    assert_ok(krea2_detect(w, "", &f, &err), err);
    assert_int_equal(f.in_channels, dit_number(c, "channels"));
    assert_int_equal(f.out_channels, dit_number(c, "channels"));
    assert_int_equal(f.hidden, dit_number(c, "features"));
    assert_int_equal(f.heads.q, dit_number(c, "heads"));
    assert_int_equal(f.heads.kv, dit_number(c, "kvheads"));
    assert_int_equal(f.heads.q * f.heads.wide, f.hidden);
    assert_int_equal(f.depth, dit_number(c, "layers"));
    assert_int_equal(f.text_dim, dit_number(c, "txtdim"));
    assert_int_equal(f.text_heads.q, dit_number(c, "txtheads"));
    assert_int_equal(f.text_heads.kv, dit_number(c, "txtkvheads"));
    assert_int_equal(f.taps, dit_number(c, "txtlayers"));
    assert_int_equal(KREA2_PATCH, dit_number(c, "patch"));
    assert_int_equal(KREA2_TIME_WIDTH, dit_number(c, "tdim"));
}

static void transformers_equal_the_golden_files(void **state)
{
    (void)state;
    where_or_skip();
    dit_models("krea2_", compare_config, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(transformers_equal_the_golden_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
