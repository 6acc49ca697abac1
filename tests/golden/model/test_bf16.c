/* What golden tests allow BF16 on a card: bf16.json names tensors of golden files, and
 * support/where.h makes limits of it. A golden folder that brings its own has all the tensors it
 * names; of the one in data/, a folder of other numbers may have any. */
#include "support/golden_tensors.h"
#include "support/where.h"

#include <math.h>
#include <unistd.h>

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

struct count {
    size_t measured, wider, there; /* there: the golden folder has it */
};

static void limits_of_file(const char *file, const json_t *cases, struct count *n)
{
    char path[96];
    const char *tensor;
    json_t *one;
    snprintf(path, sizeof path, "%s.safetensors", file);
    struct weights *w = access(golden_path(path), R_OK) == 0 ? golden_open(path) : NULL;
    json_object_foreach((json_t *)(uintptr_t)cases, tensor, one)
    {
        double theirs = number(one, "bf16"), products = number(one, "products");
        double limit = where_limit(&card, WHERE_RUN, file, tensor);
        assert_true(number(one, "weights") > 0 && products > 0 && theirs > 0);
        assert_true(limit == (theirs > 2e-2 ? theirs : 2e-2));
        /* a file with numbers made up, or measured on something broken, excuses nothing */
        if (theirs > BF16_OVER_PRODUCTS * products || limit >= LIMIT_MAX)
            fail_msg("%s %s: bf16 %g, products %g, limit %g", file, tensor, theirs, products,
                     limit);
        n->there += w && weights_find(w, tensor, strlen(tensor));
        n->wider += limit > 2e-2;
        n->measured++;
    }
    weights_close(w);
}

static void limits_follow_the_measurements(void **state)
{
    json_t *all, *cases;
    const char *file;
    struct count n = { 0 };
    (void)state;
    all = where_measured();
    json_object_foreach(all, file, cases) limits_of_file(file, cases, &n);
    print_message(
        "%zu cases, %zu of them with a limit of more than 2e-2; the golden folder has %zu\n",
        n.measured, n.wider, n.there);
    assert_true(n.measured > 0);
    if (access(golden_path("bf16.json"), R_OK) == 0)
        assert_int_equal(n.there, n.measured);
    json_decref(all);
}

static void has_the_bar(const char *file, const char *tensor, double theirs)
{
    struct where half = card, plain = card, cpu = card;
    half.act = DT_F16;
    plain.act = DT_F32;
    cpu.card = false;
    assert_true(where_limit(&card, WHERE_RUN, file, "no such tensor") == 2e-2);
    assert_true(where_limit(&card, WHERE_RUN, "no such file", tensor) == 2e-2);
    assert_true(where_limit(&card, WHERE_RUN, file, tensor) == fmax(theirs, 2e-2));
    assert_true(where_limit(&half, WHERE_RUN, file, tensor) == 2e-2);
    assert_true(where_limit(&plain, WHERE_RUN, file, tensor) == 1e-3);
    assert_true(where_limit(&cpu, WHERE_MODULE, file, tensor) == 1e-4);
}

/* Of each file the case that ComfyUI's BF16 does worst. */
static void others_have_the_bar(void **state)
{
    json_t *all = where_measured(), *cases, *one;
    const char *file, *tensor;
    (void)state;
    json_object_foreach(all, file, cases)
    {
        const char *worst = NULL;
        double most = 0;
        json_object_foreach(cases, tensor, one) if (number(one, "bf16") > most)
        {
            most = number(one, "bf16");
            worst = tensor;
        }
        assert_non_null(worst);
        has_the_bar(file, worst, most);
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(limits_follow_the_measurements),
                                        cmocka_unit_test(others_have_the_bar) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
