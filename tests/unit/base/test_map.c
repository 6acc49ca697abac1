#include "support/oom.h"
#include "support/test.h"

#include "base/map.h"

static void adding_finding_deleting(void **state)
{
    (void)state;
    struct map m = { .seed = 7 };
    uint64_t v = 99;
    assert_false(map_get(&m, "a", 1, &v));
    assert_false(map_del(&m, "a", 1));
    assert_int_equal(map_add(&m, "a", 1, 1), MAP_ADDED);
    assert_int_equal(map_add(&m, "b", 1, 2), MAP_ADDED);
    assert_int_equal(map_add(&m, "a", 1, 3), MAP_EXISTS);
    assert_true(map_get(&m, "a", 1, &v) && v == 1); /* nothing changed */
    assert_true(map_get(&m, "a", 1, NULL));
    assert_true(map_set(&m, "b", 1, 5));
    assert_true(map_get(&m, "b", 1, &v) && v == 5);
    assert_false(map_set(&m, "c", 1, 5));
    assert_true(map_del(&m, "a", 1));
    assert_false(map_get(&m, "a", 1, NULL));
    assert_int_equal(m.n, 1);
    map_release(&m);
    assert_int_equal(m.seed, 7);
}

static void keys_are_bytes(void **state)
{
    (void)state;
    struct map m = { 0 };
    uint64_t v;
    assert_int_equal(map_add(&m, "a\0b", 3, 1), MAP_ADDED);
    assert_int_equal(map_add(&m, "a\0c", 3, 2), MAP_ADDED);
    assert_int_equal(map_add(&m, "a", 1, 3), MAP_ADDED);
    assert_int_equal(map_add(&m, NULL, 0, 4), MAP_ADDED);
    assert_int_equal(map_add(&m, "x", 0, 5), MAP_EXISTS);
    assert_true(map_get(&m, "a\0c", 3, &v) && v == 2);
    assert_true(map_get(&m, "", 0, &v) && v == 4);
    map_release(&m);
}

static void iteration_sees_each_key_once(void **state)
{
    (void)state;
    struct map m = { 0 };
    char keys[100][16];
    for (int i = 0; i < 100; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        assert_int_equal(map_add(&m, keys[i], strlen(keys[i]), (uint64_t)i), MAP_ADDED);
    }
    bool seen[100] = { 0 };
    const char *key;
    size_t it = 0, len, n = 0;
    for (uint64_t v; map_next(&m, &it, &key, &len, &v); n++) {
        assert_true(v < 100 && !seen[v]);
        seen[v] = true;
        assert_ptr_equal(key, keys[v]);
        assert_int_equal(len, strlen(keys[v]));
    }
    assert_int_equal(n, 100);
    map_release(&m);
}

static void exhaustion_loses_nothing(void **state)
{
    (void)state;
    struct map m = { 0 };
    char keys[64][16];
    oom_after(0);
    assert_int_equal(map_add(&m, "x", 1, 1), MAP_NOMEM);
    assert_false(map_reserve(&m, SIZE_MAX / 64));
    oom_off();
    assert_false(map_reserve(&m, SIZE_MAX));
    size_t failed = 0;
    for (uint64_t i = 0; i < 64; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", (int)i);
        oom_after(0);
        enum map_put_result r = map_add(&m, keys[i], strlen(keys[i]), i);
        oom_off();
        if (r == MAP_NOMEM) {
            failed++;
            r = map_add(&m, keys[i], strlen(keys[i]), i);
        }
        assert_int_equal(r, MAP_ADDED);
        for (uint64_t k = 0, v; k <= i; k++)
            assert_true(map_get(&m, keys[k], strlen(keys[k]), &v) && v == k);
    }
    assert_true(failed > 1);
    map_release(&m);
}

static void reserving_avoids_growth(void **state)
{
    (void)state;
    struct map m = { 0 };
    char keys[1000][16];
    assert_true(map_reserve(&m, 1000));
    oom_after(0);
    for (int i = 0; i < 1000; i++) {
        snprintf(keys[i], sizeof keys[i], "%d", i);
        assert_int_equal(map_add(&m, keys[i], strlen(keys[i]), 1), MAP_ADDED);
    }
    oom_off();
    map_release(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adding_finding_deleting),      cmocka_unit_test(keys_are_bytes),
        cmocka_unit_test(iteration_sees_each_key_once), cmocka_unit_test(exhaustion_loses_nothing),
        cmocka_unit_test(reserving_avoids_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
