/* A map against an array that is searched from end to end. */
#include "support/rng.h"
#include "support/test.h"

#include "base/map.h"

#include <inttypes.h>
#include <stdbool.h>

enum { KEYS = 400, STEPS = 40000 };

struct naive {
    bool there[KEYS];
    uint64_t value[KEYS];
    size_t n;
};

static void check(const struct map *m, const struct naive *a, char key[KEYS][8])
{
    const char *k;
    size_t len, it = 0, n = 0;
    for (uint64_t v; map_next(m, &it, &k, &len, &v); n++) {
        size_t i = (size_t)(k - key[0]) / sizeof key[0];
        assert_true(i < KEYS && a->there[i] && a->value[i] == v && len == strlen(key[i]));
    }
    assert_int_equal(n, a->n);
    assert_int_equal(m->n, a->n);
    for (size_t i = 0; i < KEYS; i++) {
        uint64_t v = 0;
        assert_int_equal(map_get(m, key[i], strlen(key[i]), &v), a->there[i]);
        if (a->there[i])
            assert_true(v == a->value[i]);
    }
}

static void step(struct rng *r, struct map *m, struct naive *a, char key[KEYS][8], size_t live)
{
    size_t i = rng_below(r, live), len = strlen(key[i]);
    uint64_t v = rng_u64(r);
    switch (rng_below(r, 8)) {
    case 0:
    case 1:
    case 2: {
        enum map_put_result got = map_add(m, key[i], len, v);
        assert_int_equal(got, a->there[i] ? MAP_EXISTS : MAP_ADDED);
        if (got == MAP_ADDED) {
            a->there[i] = true;
            a->value[i] = v;
            a->n++;
        }
        break;
    }
    case 3:
        assert_int_equal(map_set(m, key[i], len, v), a->there[i]);
        if (a->there[i])
            a->value[i] = v;
        break;
    case 4:
    case 5:
    case 6:
        assert_int_equal(map_del(m, key[i], len), a->there[i]);
        a->n -= a->there[i];
        a->there[i] = false;
        break;
    default:
        assert_true(map_reserve(m, a->n + rng_below(r, 50)));
        break;
    }
}

static void behaves_like_an_array(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    print_message("BERTH_SEED=%" PRIu64 "\n", seed);
    struct rng r = { seed };
    static char key[KEYS][8];
    for (size_t i = 0; i < KEYS; i++)
        snprintf(key[i], sizeof key[i], "%x", (unsigned)(i * 37));
    /* few keys: small tables, many wrap-arounds and long probe chains; many: growth */
    static const size_t live[] = { 3, 12, 13, 40, KEYS };
    for (size_t l = 0; l < ARRAY_LEN(live); l++) {
        struct map m = { .seed = rng_u64(&r) };
        struct naive a = { 0 };
        for (int i = 0; i < STEPS; i++) {
            step(&r, &m, &a, key, live[l]);
            if (i % 64 == 0)
                check(&m, &a, key);
        }
        check(&m, &a, key);
        map_release(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(behaves_like_an_array) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
