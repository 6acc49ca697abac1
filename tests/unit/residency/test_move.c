/* Moving blocks: re-planning moves what differs and nothing else, demoted blocks come home. */
#include "residency/residency_impl.h"
#include "support/models.h"
#include "support/oom.h"
#include "support/plan_same.h"

#define DEVICES "cpu=8m,null:0=1m,null:1=1m,cuda:0@cpu=1m"
enum { LAYERS = 8, BYTES = 64 << 10 };

/* Every pair of places, there and back, pinned and not. */
static void every_pair(void **state)
{
    static const char *const place[] = { "#cpu", "#null:0", "#null:1", "#cuda:0", "cpu,*#null:0" };
    const char *path = model_file("a", LAYERS, BYTES);
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(place); i++)
        for (size_t k = 0; k < ARRAY_LEN(place); k++) {
            struct fixture f;
            berth_err err = { 0 };
            struct plan_args plan = { .alloc = place[k] };
            struct res_load_result got;
            fixture_open(&f, DEVICES, NULL);
            struct res_model *m = model_open(&f, path, place[i], RES_AUTO);
            model_load(m);
            bool stays = i == k || (i + k == 4 && i * k == 0); /* cpu is cpu, pinned or not */
            assert_ok(res_replan(m, &plan, &got, &err), err);
            assert_int_equal(got.moved, stays ? 0 : LAYERS * BYTES);
            assert_int_equal(got.read, 0);
            assert_true(got.was_resident);
            model_intact(m);
            assert_int_equal(res_info(m).demoted, 0);
            fixture_check(&f);
            res_unref(m);
            fixture_close(&f);
        }
}

/* Only blocks whose device differs move; the others keep their addresses. */
static void moves_only_what_differs(void **state)
{
    static const char *const plan[] = {
        "null:0,256kb;cpu,*#null:0",
        "null:0,128kb;cpu,*#null:0",
        "null:0,128kb;null:1,128kb;cpu,*#null:0",
        "null:1,512kb;cpu,*#null:0",
        "null:0,256kb;cpu,*#null:0",
        "#null:0",
    };
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    struct res_model *m = model_open(&f, model_file("a", LAYERS, BYTES), plan[0], RES_AUTO);
    model_load(m);
    uint64_t read = res_info(m).read;
    for (int tail = 0; tail < 2; tail++)
        for (size_t i = 0; i < ARRAY_LEN(plan); i++) {
            struct res_block_at was[LAYERS], now;
            struct plan_args args = { .alloc = plan[i], .layout = tail ? PLAN_TAIL : PLAN_SPREAD };
            struct res_load_result got;
            uint64_t differ = 0;
            for (size_t b = 0; b < LAYERS; b++)
                assert_ok(res_block_at(m, b, &was[b], &err), err);
            struct res_look seen;
            uint64_t before = res_info(m).moved;
            assert_ok(res_replan_look(m, &args, &seen, &err), err);
            assert_int_equal(res_info(m).moved, before);
            assert_ok(res_replan(m, &args, &got, &err), err);
            assert_true(plan_same(&seen.plan, res_plan(m)));
            assert_int_equal(seen.moves, got.moved);
            for (size_t d = 0; d < 4; d++)
                assert_int_equal(seen.after[d], res_bytes_on(m, d));
            plan_release(&seen.plan);
            for (size_t b = 0; b < LAYERS; b++) {
                struct res_block_place place = res_block_place(m, b);
                assert_true(place.device == res_plan(m)->device[b] && place.home == place.device);
                assert_int_equal(place.bytes, res_blocks(m)->at[b].bytes);
                assert_ok(res_block_at(m, b, &now, &err), err);
                assert_int_equal(now.device, res_plan(m)->device[b]);
                differ += now.device != was[b].device ? BYTES : 0;
                if (now.device == was[b].device)
                    assert_true(now.addr == was[b].addr);
            }
            assert_int_equal(got.moved, differ);
            model_intact(m);
            fixture_check(&f);
        }
    assert_int_equal(res_info(m).read, read);
    res_unref(m);
    fixture_close(&f);
}

/* Two devices that are both full: what leaves makes room for what comes. */
static void full_devices(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=2m,null:0=260k,null:1=260k", NULL);
    struct res_model *m =
        model_open(&f, model_file("a", LAYERS, BYTES), "null:0,256kb;cpu,*#null:0", RES_AUTO);
    model_load(m);
    struct plan_args args = { .alloc = "null:0,256kb;cpu,*#null:0", .layout = PLAN_TAIL };
    assert_ok(res_replan(m, &args, NULL, &err), err);
    model_intact(m);
    assert_int_equal(res_bytes_on(m, 1), 4 * BYTES);
    res_unref(m);
    fixture_close(&f);
}

/* Two cards change places and neither has a byte left: blocks step aside to the host meanwhile. */
static void full_devices_change_places(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct res_load_result got;
    (void)state;
    fixture_open(&f, "cpu=300k,null:0=257k,null:1=257k", NULL);
    struct res_model *m =
        model_open(&f, model_file("a", LAYERS, BYTES), "null:0,256kb;null:1,*#null:0", RES_AUTO);
    model_load(m);
    uint8_t was[LAYERS];
    memcpy(was, res_plan(m)->device, sizeof was);
    struct plan_args args = { .alloc = "null:1,256kb;null:0,*#null:1" };
    assert_ok(res_replan(m, &args, &got, &err), err);
    for (size_t i = 0; i < LAYERS; i++)
        assert_int_equal(res_plan(m)->device[i], 3 - was[i]);
    assert_true(got.read == 0 && got.moved > LAYERS * BYTES && got.moved <= 2 * LAYERS * BYTES);
    assert_int_equal(res_info(m).demoted, 0);
    assert_int_equal(res_bytes_on(m, 0), 0);
    model_intact(m);
    res_unref(m);
    fixture_close(&f);
}

static void refused(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=2m,null:0=1m", NULL);
    const char *path = model_file("a", LAYERS, BYTES);
    struct res_model *m = model_open(&f, path, "#cpu", RES_AUTO);
    struct res_model *other = model_open(&f, path, "null:0,128kb;cpu,*#null:0", RES_AUTO);
    struct plan_args bad = { .alloc = "cuda:7,*" },
                     taken = { .alloc = "null:0,128kb;cpu,*#null:0" },
                     plan = { .alloc = "#null:0" };
    model_load(m);
    const struct plan *was = res_plan(m);
    uint64_t key = res_info(m).key;
    assert_fails(res_replan(m, &bad, NULL, &err), err, BERTH_EINVAL, "cuda:7");
    assert_fails(res_replan(m, &taken, NULL, &err), err, BERTH_EBUSY, "a#2 has that plan");
    struct res_look seen;
    assert_fails(res_replan_look(m, &bad, &seen, &err), err, BERTH_EINVAL, "cuda:7");
    plan_release(&seen.plan);
    assert_fails(res_replan_look(m, &taken, &seen, &err), err, BERTH_EBUSY, "a#2 has that plan");
    plan_release(&seen.plan);
    assert_ok(res_use_begin(m, &err), err);
    assert_fails(res_replan(m, &plan, NULL, &err), err, BERTH_EBUSY, "in use");
    assert_ok(res_replan_look(m, &plan, &seen, &err), err); /* looking disturbs nobody */
    assert_int_equal(seen.moves, LAYERS * BYTES);
    plan_release(&seen.plan);
    res_use_end(m);
    assert_ptr_equal(res_plan(m), was);
    assert_int_equal(res_plan(m)->device[0], 0);
    assert_true(res_info(m).key == key);
    /* Without bytes a plan is only a plan. */
    plan.alloc = "null:0,64kb;cpu,*#null:0";
    assert_ok(res_replan(other, &plan, NULL, &err), err);
    assert_int_equal(res_info(other).moved, 0);
    assert_true(res_block_place(other, 0).device == RES_NO_DEVICE);
    assert_ok(res_replan_look(other, &plan, &seen, &err), err);
    assert_int_equal(seen.moves, 0);
    plan_release(&seen.plan);
    model_load(other);
    assert_int_equal(res_bytes_on(other, 1), BYTES);
    fixture_check(&f);
    res_unref(m);
    res_unref(other);
    fixture_close(&f);
}

/* Half-way: everything is somewhere, the old plan stands, a load brings the blocks home. */
static void failure_half_way(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=2m,null:0=1m", NULL);
    struct res_model *m = model_open(&f, model_file("a", LAYERS, BYTES), "#null:0", RES_AUTO);
    model_load(m);
    uint64_t key = res_info(m).key;
    struct plan_args plan = { .alloc = "#cpu" };
    null_fail(devset_at(f.set, 1), NULL_COPY, 5); /* layers are two copies each: weight, bias */
    assert_fails(res_replan(m, &plan, NULL, &err), err, BERTH_EDEVICE, "block 'layers.2'");
    assert_non_null(strstr(err.msg, "(64.0 KiB)"));
    assert_non_null(strstr(err.msg, "from null:0"));
    fixture_check(&f);
    assert_true(res_info(m).key == key && res_info(m).state == RES_RESIDENT);
    assert_int_equal(res_info(m).demoted, 2);
    assert_int_equal(res_bytes_on(m, 0), 2 * BYTES);
    model_intact(m);
    struct res_load_result got = model_load(m);
    assert_true(got.read == 0 && got.moved == 2 * BYTES);
    assert_int_equal(res_info(m).demoted, 0);
    model_intact(m);
    res_unref(m);
    fixture_close(&f);
}

static void replan_survives_oom(void **state)
{
    const char *path = model_file("a", LAYERS, BYTES);
    struct fixture f;
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    struct res_model *m = model_open(&f, path, "#null:0", RES_AUTO);
    model_load(m);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct plan_args plan = { .alloc = "cpu,*#null:0" };
        berth_err err = { 0 };
        oom_after(k);
        s = res_replan(m, &plan, NULL, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        assert_int_equal(res_info(m).state, RES_RESIDENT);
        fixture_check(&f);
    }
    model_intact(m);
    res_unref(m);
    fixture_close(&f);
}

/* Reading back: sizes are checked, the sum does not depend on where the blocks are. */
static void reading(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    unsigned char byte[100];
    uint64_t sum[3];
    static const char *const alloc[] = { "#cpu", "#null:0", "null:0,128kb;cpu,*#null:0" };
    (void)state;
    const char *path = model_file("a", LAYERS, BYTES);
    for (size_t i = 0; i < 3; i++) {
        fixture_open(&f, DEVICES, NULL);
        struct res_model *m = model_open(&f, path, alloc[i], RES_AUTO);
        assert_fails(res_checksum(m, &sum[i], &err), err, BERTH_EINVAL, "registered");
        assert_fails(res_tensor_read(m, 0, 0, byte, 1, &err), err, BERTH_EINVAL, "registered");
        model_load(m);
        assert_fails(res_tensor_read(m, 0, 1, byte, 99, &err), err, BERTH_EINVAL,
                     "has 100 bytes, not 99");
        assert_fails(res_tensor_read(m, 0, 2, byte, 1, &err), err, BERTH_EINVAL, "tensor 2");
        assert_fails(res_tensor_read(m, LAYERS, 0, byte, 1, &err), err, BERTH_EINVAL, "block 8");
        assert_ok(res_tensor_read(m, 3, 1, byte, 100, &err), err);
        assert_int_equal(byte[7], model_byte(7, 7));
        assert_ok(res_checksum(m, &sum[i], &err), err);
        res_unref(m);
        fixture_close(&f);
    }
    assert_true(sum[0] == sum[1] && sum[1] == sum[2]);
}

/* ---- speeds ---- */

struct ticking { /* each question costs a microsecond per call */
    struct clock base;
};

static uint64_t tick(const struct clock *c)
{
    static uint64_t now; /* the clock's own: it is const */
    (void)c;
    return now += 1000;
}

static void speeds(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct plan_devices d;
    struct ticking clock = { { tick, tick } };
    struct res_config cfg = { .clock = &clock.base };
    (void)state;
    fixture_open(&f, DEVICES, &cfg);
    assert_ok(res_plan_devices(f.r, "null:0", false, &d, &err), err);
    assert_int_equal(d.n, 4);
    for (size_t i = 0; i < d.n; i++)
        assert_true(d.at[i].speed == 0 && d.at[i].host == (i == 0));
    assert_true(d.at[0].total == 8 << 20 && d.at[1].budget == 1 << 20);
    assert_ok(res_plan_devices(f.r, "null:0", true, &d, &err), err);
    for (size_t i = 0; i < d.n; i++)
        assert_true((d.at[i].speed > 0) == (i != 1));
    uint64_t copies = null_calls(devset_at(f.set, 1), NULL_COPY);
    assert_ok(res_plan_devices(f.r, "null:0", true, &d, &err), err); /* remembered */
    assert_int_equal(null_calls(devset_at(f.set, 1), NULL_COPY), copies);
    assert_fails(res_plan_devices(f.r, "cuda:5", true, &d, &err), err, BERTH_ENOTFOUND, "cuda:5");
    /* What cannot be measured is no error. */
    null_fail(devset_at(f.set, 2), NULL_COPY, 1);
    assert_ok(res_plan_devices(f.r, "null:1", true, &d, &err), err);
    assert_true(d.at[0].speed == 0);
    assert_ok(res_plan_devices(f.r, "null:1", true, &d, &err), err);
    assert_true(d.at[0].speed > 0);
    fixture_close(&f);
}

/* Whoever asks first measures: what is seen is what is done, where a plan spills to one of several
 * donors, too. A prompt that runs is not disturbed, and the plan says what that means. */
static void looks_measure(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    struct ticking clock = { { tick, tick } };
    struct res_config cfg = { .clock = &clock.base };
    struct plan_args spills = { .compute = "null:0", .reserve = 900 << 10 };
    struct res_look seen;
    struct res_receipt x = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, &cfg);
    struct res_model *m = model_open(&f, model_file("a", LAYERS, BYTES), "#cpu", RES_AUTO);
    model_load(m);
    res_prompt_begin(f.r);
    assert_ok(res_replan_look(m, &spills, &seen, &err), err);
    assert_true(seen.plan.devices.at[0].speed == 0);
    assert_non_null(strstr(seen.plan.quotas.note[seen.plan.quotas.notes - 1], "may differ"));
    plan_release(&seen.plan);
    assert_ok(res_prompt_end(f.r, &x, &err), err);
    res_receipt_release(&x);
    assert_ok(res_replan_look(m, &spills, &seen, &err), err);
    assert_true(seen.plan.quotas.n > 1 && seen.plan.devices.at[0].speed > 0);
    for (size_t i = 0; i < seen.plan.quotas.notes; i++)
        assert_null(strstr(seen.plan.quotas.note[i], "may differ"));
    assert_ok(res_replan(m, &spills, NULL, &err), err);
    assert_true(plan_same(&seen.plan, res_plan(m)));
    plan_release(&seen.plan);
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair),
        cmocka_unit_test(moves_only_what_differs),
        cmocka_unit_test(full_devices),
        cmocka_unit_test(full_devices_change_places),
        cmocka_unit_test(refused),
        cmocka_unit_test(failure_half_way),
        cmocka_unit_test(replan_survives_oom),
        cmocka_unit_test(reading),
        cmocka_unit_test(speeds),
        cmocka_unit_test(looks_measure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
