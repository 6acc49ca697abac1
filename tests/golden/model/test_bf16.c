/* What golden tests allow BF16 on a card: data/bf16.json names tensors that the golden files have, and
 * support/where.h makes limits of it. */
#include "support/golden_tensors.h"
#include "support/where.h"

#include "base/json.h"

/* Of all cases: the most is 2.12 times, and a limit of 0.0654. */
#define BF16_OVER_PRODUCTS 2.5
#define LIMIT_MAX 0.09

static const struct where card = { .device = "cuda:0", .card = true, .act = DT_BF16 };

static double number(const json_t *one, const char *name)
{
    const json_t *v = json_object_get(one, name);
    assert_true(json_is_real(v));
    return json_real_value(v);
}

static void limits_of_file(const char *file, const json_t *cases, size_t *measured, size_t *wider)
{
    char path[96];
    const char *tensor;
    json_t *one;
    snprintf(path, sizeof path, "%s.safetensors", file);
    struct weights *w = golden_open(path);
    json_object_foreach((json_t *)(uintptr_t)cases, tensor, one)
    {
        double theirs = number(one, "bf16"), products = number(one, "products");
        double limit = where_limit(&card, WHERE_RUN, file, tensor);
        if (!weights_find(w, tensor, strlen(tensor)))
            fail_msg("%s has no '%s'", path, tensor);
        assert_true(number(one, "weights") > 0 && products > 0 && theirs > 0);
        assert_true(limit == (theirs > 2e-2 ? theirs : 2e-2));
        /* a file with numbers made up, or measured on something broken, excuses nothing */
        if (theirs > BF16_OVER_PRODUCTS * products || limit >= LIMIT_MAX)
            fail_msg("%s %s: bf16 %g, products %g, limit %g", file, tensor, theirs, products,
                     limit);
        *wider += limit > 2e-2;
        ++*measured;
    }
    weights_close(w);
}

static void limits_follow_the_measurements(void **state)
{
    json_t *all, *cases;
    const char *file;
    size_t measured = 0, wider = 0;
    berth_err err = { 0 };
    (void)state;
    golden_or_skip();
    assert_ok(js_parse_file(BERTH_SOURCE_DIR "/tests/golden/data/bf16.json", NULL, &all, &err),
              err);
    json_object_foreach(all, file, cases) limits_of_file(file, cases, &measured, &wider);
    print_message("%zu cases, %zu of them with a limit of more than 2e-2\n", measured, wider);
    assert_true(wider > 0 && wider < measured);
    json_decref(all);
}

static void others_have_the_bar(void **state)
{
    struct where half = card, plain = card, cpu = card;
    (void)state;
    half.act = DT_F16;
    plain.act = DT_F32;
    cpu.card = false;
    const char *file = "unet_sdxl_tiny", *run = "sample_dpmpp_2m_karras_8";
    assert_true(where_limit(&card, WHERE_RUN, file, "no such tensor") == 2e-2);
    assert_true(where_limit(&card, WHERE_RUN, "no such file", run) == 2e-2);
    assert_true(where_limit(&card, WHERE_RUN, file, run) > 2e-2);
    assert_true(where_limit(&half, WHERE_RUN, file, run) == 2e-2);
    assert_true(where_limit(&plain, WHERE_RUN, file, run) == 1e-3);
    assert_true(where_limit(&cpu, WHERE_MODULE, file, run) == 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(limits_follow_the_measurements),
                                        cmocka_unit_test(others_have_the_bar) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
