/* philox_randn() against what PyTorch drew on a card: data/philox.txt, as tools/golden/philox.py
 * writes it. */
#include "support/golden_tensors.h"

#include "sample/rng.h"

#include <inttypes.h>
#include <math.h>

#define FILE_NAME BERTH_SOURCE_DIR "/tests/golden/sample/data/philox.txt"
#define DRAWS 8
#define WITHIN 4e-6 /* a card's sines (sample/rng.h) */

/* The next number of a line, behind blanks or a comma. */
static uint64_t number(char **at)
{
    return strtoull(*at + (**at == ','), at, 10);
}

static size_t check_line(char *line, double *worst)
{
    struct philox_rng g;
    char *at = line;
    uint64_t seed = number(&at), threads = number(&at);
    size_t draw[DRAWS], draws = 0, total = 0, n = 0;
    do {
        assert_true(draws < DRAWS);
        draw[draws] = (size_t)number(&at);
        total += draw[draws++];
    } while (*at == ',');
    float *x = malloc(total * sizeof *x);
    assert_non_null(x);
    philox_seed(&g, seed, (uint32_t)threads);
    for (size_t i = 0, from = 0; i < draws; from += draw[i++])
        philox_randn(&g, x + from, draw[i]);
    while (*at == ' ') {
        size_t i = (size_t)number(&at);
        double want = strtod(at, &at);
        assert_true(i < total);
        double off = fabs((double)x[i] - want);
        if (!(off <= WITHIN))
            fail_msg("seed %" PRIu64 ", %zu draws, number %zu: %.9g, not %.9g", seed, draws, i,
                     (double)x[i], want);
        *worst = off > *worst ? off : *worst;
        n++;
    }
    free(x);
    return n;
}

static void as_on_a_card(void **state)
{
    (void)state;
    FILE *f = fopen(FILE_NAME, "r");
    char *line = NULL;
    size_t room = 0, values = 0;
    double worst = 0;
    if (!f) {
        print_message("skipped: no %s; tools/golden/philox.py writes it where there is a card\n",
                      FILE_NAME);
        skip();
    }
    while (getline(&line, &room, f) > 0)
        values += check_line(line, &worst);
    print_message("%zu values, worst %.2g\n", values, worst);
    assert_true(values > 0);
    free(line);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_on_a_card),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
