/* torch_randn() against rng_torch_cpu.safetensors: every tensor, bit for bit. Names say what was
 * drawn: "seed42/1x4x8x8" one draw, "seed42/two_draws_16_then_40" several from one generator. */
#include "support/golden_tensors.h"

#include "sample/rng.h"

#include <inttypes.h>

/* The sizes of the draws behind a name; the shape's product is one draw. */
static size_t draws_of(const char *name, size_t total, size_t draw[8])
{
    const char *what = strchr(name, '/'), *at = strstr(name, "_draws_");
    assert_non_null(what);
    if (!at) {
        draw[0] = total;
        return 1;
    }
    size_t n = 0;
    for (at += strlen("_draws_"); n < 8; at += strlen("_then_")) {
        char *end;
        draw[n++] = strtoul(at, &end, 10);
        at = end;
        if (strncmp(at, "_then_", strlen("_then_")))
            break;
    }
    return n;
}

static void every_tensor_to_the_bit(void **state)
{
    (void)state;
    struct weights *w = golden_open("rng_torch_cpu.safetensors");
    size_t values = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint64_t seed;
        size_t n, draw[8], at = 0;
        assert_int_equal(sscanf(e->name, "seed%" SCNu64 "/", &seed), 1);
        float *want = golden_floats(w, e, &n), *got = calloc(n, sizeof *got);
        assert_non_null(got);
        struct torch_rng g;
        torch_seed(&g, seed);
        for (size_t k = 0, draws = draws_of(e->name, n, draw); k < draws; at += draw[k++]) {
            assert_true(draw[k] <= n - at);
            torch_randn(&g, got + at, draw[k]);
        }
        assert_int_equal(at, n);
        for (size_t k = 0; k < n; k++)
            if (memcmp(&want[k], &got[k], sizeof *got))
                fail_msg("'%s' value %zu: %a, golden %a", e->name, k, (double)got[k],
                         (double)want[k]);
        values += n;
        free(want);
        free(got);
    }
    print_message("%zu tensors, %zu values\n", weights_count(w), values);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_to_the_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
