/* A model's own blocks step aside for what it computes, and come home. */
#include "residency/residency_impl.h"
#include "support/models.h"

/* As in test_room.c: a layer takes 65,792 bytes of a device. */
enum { BYTES = 64 << 10, LAYER = 65792 };

static struct res_model *opened(struct fixture *f, const char *alloc, enum res_retention retention)
{
    struct res_model *m = model_open(f, model_file("m", 6, BYTES), alloc, retention);
    model_load(m);
    return m;
}

static void the_last_blocks_leave_and_come_home(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct fixture f;
        berth_err err = { 0 };
        struct res_load_result got;
        fixture_open(&f, "cpu=1m,null:0=514k", NULL); /* eight layers */
        struct res_model *m = opened(&f, "#null:0", keep ? RES_KEEP : RES_AUTO);
        /* Two layers are free already; spans count without the rounding of the device. */
        uint64_t freed = res_evict_own(m, 4 * LAYER - 1024);
        assert_true(freed >= 2 * BYTES && freed < 3 * BYTES);
        assert_int_equal(res_info(m).demoted, 2);
        assert_int_equal(m->block[5].device, 0);
        assert_int_equal(m->block[4].device, 0);
        assert_int_equal(m->block[3].device, 1);
        /* There is room now, so whoever asks again lacks some other bytes, or pieces are in the
         * way. */
        freed = res_evict_own(m, 4 * LAYER - 1024);
        assert_true(freed >= BYTES && freed < 2 * BYTES);
        assert_int_equal(res_info(m).demoted, 3);
        fixture_check(&f);
        model_intact(m);
        assert_ok(res_load(m, NULL, &got, &err), err);
        assert_true(got.was_resident && got.read == 0);
        assert_int_equal(res_info(m).demoted, 0);
        model_intact(m);
        res_set_retention(m, RES_AUTO);
        res_unref(m);
        fixture_close(&f);
    }
}

static void all_of_them_if_need_be(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k,null:1=257k", NULL);
    struct res_model *m = opened(&f, "null:0,*;null:1,1kb#null:0", RES_AUTO);
    assert_int_equal(res_evict_own(m, 9 * LAYER), 0); /* more than there is: why move */
    assert_int_equal(res_info(m).demoted, 0);
    assert_true(res_evict_own(m, 8 * LAYER) >= 6 * BYTES);
    assert_int_equal(res_bytes_on(m, 1), 0);
    assert_true(res_bytes_on(m, 2) > 0 && res_bytes_on(m, 0) > 0); /* the plan's donor first */
    assert_int_equal(res_info(m).resident, res_info(m).bytes);
    assert_int_equal(res_evict_own(m, 8 * LAYER), 0); /* nothing is left to go */
    model_intact(m);
    res_unref(m);
    fixture_close(&f);
}

/* Where the blocks go it is full, too: an idle model leaves for them, a kept one does not. */
static void others_leave_the_shelter(void **state)
{
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        struct fixture f;
        berth_err err = { 0 };
        fixture_open(&f, "cpu=514k,null:0=514k", NULL);
        struct res_model *m = opened(&f, "#null:0", RES_AUTO);
        struct res_model *o =
            model_open(&f, model_file("o", 7, BYTES), "cpu,*", keep ? RES_KEEP : RES_AUTO);
        model_load(o);
        assert_true(res_left_on(f.r, 0) < LAYER);
        uint64_t freed = res_evict_own(m, 4 * LAYER - 1024);
        assert_int_equal(res_info(m).demoted, keep ? 0 : 1); /* one that pushed: ask again */
        assert_true(keep ? freed == 0 : freed >= BYTES);
        assert_int_equal(res_info(o).state, keep ? RES_RESIDENT : RES_EJECTED);
        freed = res_evict_own(m, 4 * LAYER - 1024);
        assert_int_equal(res_info(m).demoted, keep ? 0 : 2);
        assert_true(keep || res_left_on(f.r, 1) >= 4 * LAYER - 1024);
        fixture_check(&f);
        model_intact(m);
        /* In use, and all the same in the way: nobody is pushed who may not move. */
        res_set_retention(o, RES_AUTO);
        if (keep) {
            assert_ok(res_use_begin(o, &err), err);
            assert_int_equal(res_evict_own(m, 4 * LAYER - 1024), 0);
            res_use_end(o);
        }
        res_unref(o), res_unref(m);
        fixture_close(&f);
    }
}

static void nobody_moves_who_is_used_or_has_nowhere_to_go(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=1m,null:0=514k", NULL);
    struct res_model *m = opened(&f, "#null:0", RES_AUTO);
    assert_ok(res_use_begin(m, &err), err);
    assert_int_equal(res_evict_own(m, 8 * LAYER), 0);
    res_use_end(m);
    assert_ok(res_eject(m, &err), err);
    assert_int_equal(res_evict_own(m, 8 * LAYER), 0);
    res_unref(m);
    fixture_close(&f);
    fixture_open(&f, "cpu=514k", NULL);
    m = opened(&f, "cpu,*", RES_AUTO);
    assert_int_equal(res_evict_own(m, 8 * LAYER), 0);
    model_intact(m);
    assert_string_equal(res_compute(m)->name, "cpu");
    assert_ptr_equal(res_devices(f.r), f.set);
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_blocks_leave_and_come_home),
        cmocka_unit_test(all_of_them_if_need_be),
        cmocka_unit_test(others_leave_the_shelter),
        cmocka_unit_test(nobody_moves_who_is_used_or_has_nowhere_to_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
