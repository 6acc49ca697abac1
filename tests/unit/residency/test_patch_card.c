/* Merging on the device, by way of null, which runs functions in stream order as a card its
 * kernels: bands, rows of a weight, types, several adapters; and when the host does it. Cards take
 * the same road: test_cuda_simt_patch.c. */
#include "card_merge.h"

#include "device/null/null.h"
#include "support/null_hooks.h"
#include "support/oom.h"

static const struct card_file files[] = {
    { DT_F16, 70, 512 },  { DT_BF16, 70, 96 },    { DT_F32, 33, 130 },     { DT_Q4_0, 70, 512 },
    { DT_Q8_0, 70, 512 }, { DT_F16, 4200, 1024 }, { DT_Q8_0, 4200, 1024 },
};

/* How many launches it took is how many bands there are. */
static void bands_and_types(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        for (size_t adapters = 1; adapters <= 3; adapters++) {
            const struct card_file *f = &files[i];
            const uint64_t bands = f->rows * f->cols * 4 / ((uint64_t)16 << 20) + 1;
            struct fixture x;
            struct pairs p;
            struct res_patch patch[3];
            berth_err err = { 0 };
            pairs_init(&p);
            for (size_t k = 0; k < 3; k++)
                patch[k] = (struct res_patch) { &p.base, 0.5f - 0.75f * (float)k };
            fixture_open(&x, "cpu=256m,null:0=256m", NULL);
            struct device *d = device_named(x.set, "null:0");
            struct res_model *m = model_open(&x, card_write(f), "#null:0", RES_AUTO);
            const uint64_t before = null_calls(d, NULL_LAUNCH);
            assert_ok(res_set_patches(m, patch, adapters, &err), err);
            model_load(m);
            assert_int_equal(null_calls(d, NULL_LAUNCH) - before, bands);
            card_check(m, f, patch, adapters);
            patch[0].strength = 0.125f; /* into new memory, while the old one is there */
            assert_ok(res_set_patches(m, patch, adapters, &err), err);
            model_load(m);
            assert_int_equal(null_calls(d, NULL_LAUNCH) - before, 2 * bands);
            card_check(m, f, patch, adapters);
            res_unref(m);
            fixture_close(&x);
        }
}

/* No room for a band: the same bits by the host. */
static void no_room_for_scratch(void **state)
{
    (void)state;
    const struct card_file f = { DT_F16, 700, 1024 };
    struct fixture x;
    struct pairs p;
    berth_err err = { 0 };
    pairs_init(&p);
    const struct res_patch patch = { &p.base, 0.5f };
    fixture_open(&x, "cpu=256m,null:0=2m", NULL); /* 1.4 MiB of weights, a band of 2.7 */
    struct device *d = device_named(x.set, "null:0");
    struct res_model *m = model_open(&x, card_write(&f), "#null:0", RES_AUTO);
    assert_ok(res_set_patches(m, &patch, 1, &err), err);
    model_load(m);
    assert_int_equal(null_calls(d, NULL_LAUNCH), 0);
    card_check(m, &f, &patch, 1);
    res_unref(m);
    fixture_close(&x);
}

/* What the device has no step for: the host does it, and nothing is launched. */
static void other_kinds_are_the_hosts(void **state)
{
    (void)state;
    static const struct toy kinds[] = { { .kind = TERM_HADAMARD },
                                        { .kind = TERM_LOWRANK, .dora = DORA_ROWS },
                                        { .kind = TERM_MIX } };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct fixture x;
        struct toy toy = toy_of("layers.1.weight", 0.1f, 1);
        toy.kind = kinds[i].kind;
        toy.dora = kinds[i].dora;
        fixture_open(&x, "cpu=64m,null:0=64m", NULL);
        struct device *d = device_named(x.set, "null:0");
        const char *path = write_file("host", (struct stored)STORED(DT_F16, false));
        struct res_model *m = model_open(&x, path, "#null:0", RES_AUTO);
        set(m, &toy, 1);
        model_load(m);
        assert_int_equal(null_calls(d, NULL_LAUNCH), 0);
        res_unref(m);
        fixture_close(&x);
    }
}

static void survives_oom(void **state)
{
    (void)state;
    const struct card_file f = { DT_Q8_0, 70, 512 };
    char path[512];
    snprintf(path, sizeof path, "%s", card_write(&f));
    struct fixture x;
    struct pairs p;
    berth_err err = { 0 };
    pairs_init(&p);
    const struct res_patch patch = { &p.base, 0.5f };
    fixture_open(&x, "cpu=64m,null:0=64m", NULL);
    struct res_model *m = model_open(&x, path, "#null:0", RES_AUTO);
    model_load(m);
    assert_ok(res_set_patches(m, &patch, 1, &err), err);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        oom_after(k);
        s = res_load(m, NULL, NULL, &err);
        oom_off();
        if (s && s != BERTH_ENOMEM && s != BERTH_ENODEVMEM)
            fail_msg("allocation %ld: %s '%s'", k, berth_status_name(s), err.msg);
        fixture_check(&x);
    }
    card_check(m, &f, &patch, 1);
    res_unref(m);
    fixture_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bands_and_types),
        cmocka_unit_test(no_room_for_scratch),
        cmocka_unit_test(other_kinds_are_the_hosts),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
