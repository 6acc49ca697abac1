#include "support/test.h"

#include "base/hash.h"

/* Published vectors: FNV-1a 64 by its authors, XXH64 by the reference implementation's own sanity
 * check, whose buffer is bytes of a multiplicative generator. */
static void fnv_vectors(void **state)
{
    (void)state;
    assert_true(hash_fnv1a64("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(hash_fnv1a64(NULL, 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(hash_fnv1a64("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(hash_fnv1a64("b", 1) == UINT64_C(0xaf63df4c8601f1a5));
    assert_true(hash_fnv1a64("foobar", 6) == UINT64_C(0x85944171f73967e8));
    assert_true(hash_fnv1a64("chongo was here!\n", 17) == UINT64_C(0x46810940eff5f915));
}

static void xxh64_vectors(void **state)
{
    (void)state;
    enum { PRIME32 = 2654435761u };
    uint8_t b[222];
    uint64_t gen = PRIME32;
    for (size_t i = 0; i < sizeof b; i++) {
        b[i] = (uint8_t)(gen >> 56);
        gen *= UINT64_C(11400714785074694797);
    }
    static const struct {
        size_t n;
        uint64_t seed, hash;
    } t[] = {
        { 0, 0, UINT64_C(0xef46db3751d8e999) },
        { 0, PRIME32, UINT64_C(0xac75fda2929b17ef) },
        { 1, 0, UINT64_C(0xe934a84adb052768) },
        { 1, PRIME32, UINT64_C(0x5014607643a9b4c3) },
        { 4, 0, UINT64_C(0x9136a0dca57457ee) },
        { 14, 0, UINT64_C(0x8282dcc4994e35c8) },
        { 14, PRIME32, UINT64_C(0xc3bd6bf63deb6df0) },
        { 222, 0, UINT64_C(0xb641ae8cb691c174) },
        { 222, PRIME32, UINT64_C(0x20cb8ab7ae10c14a) },
    };
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        if (hash_xxh64(b, t[i].n, t[i].seed) != t[i].hash)
            fail_msg("%zu bytes, seed %llx", t[i].n, (unsigned long long)t[i].seed);
    assert_true(hash_xxh64(NULL, 0, 0) == UINT64_C(0xef46db3751d8e999));
    assert_true(hash_xxh64("abc", 3, 0) == UINT64_C(0x44bc2cf5ad770999));
}

/* The value depends on the bytes, not on where they lie, and on every byte. */
static void xxh64_everywhere(void **state)
{
    (void)state;
    uint8_t raw[128 + 8];
    for (size_t n = 0; n <= 128; n++) {
        uint64_t first = 0;
        for (size_t shift = 0; shift < 8; shift++) {
            for (size_t i = 0; i < n; i++)
                raw[shift + i] = (uint8_t)(i * 7 + 1);
            uint64_t h = hash_xxh64(raw + shift, n, 1);
            if (shift == 0)
                first = h;
            assert_true(h == first);
        }
        for (size_t i = 0; i < n; i++) {
            raw[7 + i] ^= 1;
            assert_true(hash_xxh64(raw + 7, n, 1) != first);
            raw[7 + i] ^= 1;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fnv_vectors),
        cmocka_unit_test(xxh64_vectors),
        cmocka_unit_test(xxh64_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
