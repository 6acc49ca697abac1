/* Kernels of ours that elsewhere run beside NVIDIA's libraries, without them, on a card: so they
 * are tried with every shape, not those a library leaves to them, and compute-sanitizer, which
 * gives up inside the libraries, can watch them. cuBLASLt is the stand-in, which refuses all it is
 * asked for; cuDNN's place is taken by nothing: what is turned for it is turned back. Scores that a
 * product would have made are drawn. */
#include "support/fake_cublaslt.h"
#include "support/fake_symbol.h"
#include "unit/op/cuda_between.h"

/* ---- products ---- */

/* Opened first, by its path, it is the library that is found by name. */
static void refuse_products(void)
{
    fake_cublaslt_fn *control;
    fake_symbol(BERTH_FAKE_CUBLASLT, "fake_cublaslt", &control);
    control()->refuses = FAKE_REFUSES_ALL;
}

static void products_that_are_refused(void **state)
{
    static const char *const op[] = { "linear", "matmul" };
    bool run[ARRAY_LEN(op)];
    (void)state;
    refuse_products();
    for (size_t i = 0; i < ARRAY_LEN(op); i++) /* before it is set below */
        run[i] = wanted("BERTH_TEST_OP", op[i]);
    for (size_t i = 0; i < ARRAY_LEN(op); i++) {
        if (!run[i])
            continue;
        assert_int_equal(setenv("BERTH_TEST_OP", op[i], 1), 0);
        every_op_on("cuda", "cuda:0");
    }
}

/* ---- kernels between products and convolutions ---- */

static void kernels_between(void **state)
{
    const char *named = getenv("BERTH_TEST_DEVICE"), *asked = getenv("BERTH_TEST_BACKEND");
    const char *device = named && strncmp(named, "cuda", 4) == 0 ? named : "cuda:0";
    struct stand s;
    berth_err err = { 0 };
    (void)state;
    if (!wanted("BERTH_TEST_BACKEND", "cuda") || stand_open(&s, device, NULL, NULL, &err)) {
        if (asked && strcmp(asked, "cuda") == 0)
            fail_msg("%s does not open: %s", device, err.msg);
        print_message("skipped: no %s: %s\n", device, err.code ? err.msg : asked);
        skip();
    }
    check_pictures(&s);
    check_weights(&s);
    stand_close(&s);
}

int main(void)
{
    /* Products first: they run in processes of their own, which a driver that is open here does not
     * survive. */
    const struct CMUnitTest tests[] = { cmocka_unit_test(products_that_are_refused),
                                        cmocka_unit_test(kernels_between) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
