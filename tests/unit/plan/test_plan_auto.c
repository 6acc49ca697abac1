/* Plans nobody wrote: the compute device up to its budget less the reserve, then donors by
 * speed. */
#include "support/plans.h"

/* n blocks of `each` bytes */
static struct blocks even(size_t n, uint64_t each)
{
    struct blocks b;
    struct block_spec *spec = calloc(n, sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < n; i++)
        spec[i] = (struct block_spec) { "x", each, false };
    assert_true(blocks_from_specs(spec, n, &b));
    free(spec);
    return b;
}

static struct plan_devices devices(size_t n, const char *const *name, const uint64_t *gib)
{
    struct plan_devices d = { .n = n };
    for (size_t i = 0; i < n; i++) {
        snprintf(d.at[i].name, sizeof d.at[i].name, "%s", name[i]);
        d.at[i].total = d.at[i].budget = gib[i] * GIB;
        d.at[i].host = strcmp(name[i], "cpu") == 0;
    }
    return d;
}

static bool noted(const struct quotas *q, bool warn, const char *text)
{
    for (size_t i = 0; i < q->notes; i++)
        if (strstr(q->note[i], text) && q->warn[i] == warn)
            return true;
    return false;
}

static void all_on_compute_when_it_fits(void **state)
{
    (void)state;
    struct blocks b = even(20, GIB);
    struct quotas q;
    berth_err err = { 0 };
    assert_ok(plan_auto(&b, &machine, NULL, UINT64_MAX, &q, &err), err);
    assert_int_equal(q.compute, CUDA0);
    assert_int_equal(q.orphans, CUDA0);
    assert_int_equal(q.n, 1);
    assert_int_equal(q.at[0].bytes, b.bytes);
    assert_true(noted(&q, false, "cuda:0 takes all of 20.0 GiB, 1.19 GiB kept free"));
    blocks_release(&b);
    b = even(24, GIB); /* the budget itself holds it, the reserve does not */
    assert_ok(plan_auto(&b, &machine, "cuda:1", UINT64_MAX, &q, &err), err);
    assert_int_equal(q.compute, CUDA1);
    assert_int_equal(quota_on(&q, CUDA1), 24 * GIB - PLAN_RESERVE_DEFAULT);
    assert_int_equal(quota_on(&q, CUDA0), PLAN_RESERVE_DEFAULT);
    assert_ok(plan_auto(&b, &machine, "cuda:1", 0, &q, &err), err);
    assert_int_equal(quota_on(&q, CUDA1), 24 * GIB);
    assert_ok(plan_auto(&b, &machine, "cpu", UINT64_MAX, &q, &err), err); /* no reserve on a host */
    assert_int_equal(quota_on(&q, CPU), 24 * GIB);
    assert_fails(plan_auto(&b, &machine, "cuda:4", 0, &q, &err), err, BERTH_EINVAL,
                 "unknown device cuda:4");
    assert_null(strstr(err.msg, "expert_mode_allocations")); /* nobody wrote one */
    blocks_release(&b);
}

/* A donor is not filled to its last byte while another has room, the host no more than a card. */
static void donors_keep_a_little(void **state)
{
    (void)state;
    static const char *const name[] = { "cpu", "cuda:1", "cuda:0" };
    static const uint64_t gib[] = { 1, 2, 4 };
    struct blocks b = even(50, 102 * MIB);
    struct plan_devices d = devices(3, name, gib);
    struct quotas q;
    berth_err err = { 0 };
    d.at[0].speed = 50e9;
    assert_ok(plan_auto(&b, &d, "cuda:0", 0, &q, &err), err);
    assert_int_equal(q.n, 3);
    assert_int_equal(q.at[1].device, 0);
    assert_true(q.at[1].bytes > 0 && q.at[1].bytes <= 1024 * MIB / 32 * 31);
    assert_true(q.at[2].bytes > 0);
    blocks_release(&b);
}

static void donors_in_order_of_speed(void **state)
{
    (void)state;
    static const char *const name[] = { "cpu", "xpu:0", "cuda:10", "cuda:2", "cuda:0" };
    static const uint64_t gib[] = { 1, 1, 1, 1, 4 };
    struct blocks b = even(80, 102 * MIB);
    struct plan_devices d = devices(5, name, gib);
    struct quotas q;
    berth_err err = { 0 };
    /* nothing measured: relatives by number, strangers, the host */
    assert_ok(plan_auto(&b, &d, "cuda:0", 0, &q, &err), err);
    static const size_t unmeasured[] = { 4, 3, 2, 1, 0 };
    assert_int_equal(q.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(q.at[i].device, unmeasured[i]);
    /* measured ones first, the fastest of all first, the host too */
    d.at[0].speed = 50e9;
    d.at[2].speed = 100e9;
    assert_ok(plan_auto(&b, &d, "cuda:0", 0, &q, &err), err);
    static const size_t measured[] = { 4, 2, 0, 3, 1 };
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(q.at[i].device, measured[i]);
    assert_true(noted(&q, false, "cuda:10 takes 1.00 GiB, measured 100.0 GB/s"));
    assert_true(noted(&q, false, "cuda:2 takes 1.00 GiB, speed not measured"));
    uint64_t sum = 0;
    for (size_t i = 0; i < q.n; i++)
        sum += q.at[i].bytes;
    assert_int_equal(sum, b.bytes);
    blocks_release(&b);
}

static void the_last_donor_with_room_takes_orphans(void **state)
{
    (void)state;
    static const char *const name[] = { "cuda:0", "cuda:1", "cpu" };
    static const uint64_t gib[] = { 4, 4, 16 };
    struct plan_devices d = devices(3, name, gib);
    struct quotas q;
    berth_err err = { 0 };
    struct blocks b = even(60, GIB / 10);
    assert_ok(plan_auto(&b, &d, NULL, 0, &q, &err), err);
    assert_int_equal(q.n, 2); /* 4 + 2 GiB: cuda:1 has room for what compute leaves open */
    assert_int_equal(q.orphans, CUDA1);
    blocks_release(&b);
    b = even(80, GIB / 10);
    assert_ok(plan_auto(&b, &d, NULL, 0, &q, &err), err);
    assert_int_equal(q.orphans, CPU); /* 4 + 4 GiB: cuda:1 is full, cpu gets leftovers only */
    struct plan p;
    assert_ok(plan_make(&b, &d, &q, PLAN_SPREAD, &p, &err), err);
    plan_release(&p);
    blocks_release(&b);
}

static void too_big_for_all_is_an_error_with_numbers(void **state)
{
    (void)state;
    static const char *const name[] = { "cuda:0", "cpu" };
    static const uint64_t gib[] = { 4, 4 };
    struct plan_devices d = devices(2, name, gib);
    struct quotas q;
    berth_err err = { 0 };
    struct blocks b = even(81, 102 * MIB);
    assert_fails(plan_auto(&b, &d, NULL, 7, &q, &err), err, BERTH_ELIMIT,
                 "the model has 8.07 GiB; cuda:0 has 4.00 GiB, of which 7 B are kept free for "
                 "activations, and the other devices have cpu 4.00 GiB: give them more");
    d.n = 1;
    assert_fails(plan_auto(&b, &d, NULL, 0, &q, &err), err, BERTH_ELIMIT,
                 "other devices have nothing");
    d.n = 0;
    assert_fails(plan_auto(&b, &d, NULL, 0, &q, &err), err, BERTH_EINVAL, "there are none");
    blocks_release(&b);
}

static void embeddings_and_tiny_blocks_count_on_compute(void **state)
{
    (void)state;
    struct block_spec spec[102] = { { "emb", 2 * GIB, true }, { "norm", 1000, false } };
    for (size_t i = 2; i < 102; i++)
        spec[i] = (struct block_spec) { "x", GIB / 10, false };
    struct blocks b;
    berth_err err = { 0 };
    assert_true(blocks_from_specs(spec, 102, &b));
    static const char *const name[] = { "cuda:0", "cpu" };
    static const uint64_t gib[] = { 4, 16 };
    struct plan_devices d = devices(2, name, gib);
    struct plan p;
    struct plan_args args = { .reserve = GIB };
    assert_ok(plan_from_args(&b, &d, &args, &p, &err), err);
    assert_true(p.share[0].bytes <= 3 * GIB && p.share[0].bytes > 3 * GIB - GIB / 10);
    assert_int_equal(p.device[0], 0);
    assert_int_equal(p.device[1], 0);
    plan_release(&p);
    /* They stay even where they eat into the reserve, and people hear of it. */
    args.reserve = 3 * GIB;
    assert_ok(plan_from_args(&b, &d, &args, &p, &err), err);
    assert_int_equal(p.share[0].bytes, 2 * GIB + 1000);
    assert_true(noted(&p.quotas, true, "2.00 GiB of embeddings and tiny blocks leave cuda:0 less"));
    plan_release(&p);
    d.at[0].budget = GIB; /* and beyond the budget it is an error */
    assert_fails(plan_from_args(&b, &d, &args, &p, &err), err, BERTH_ELIMIT,
                 "cuda:0 would hold 2.00 GiB");
    assert_non_null(strstr(err.msg, "; cpu would hold 10.0 GiB, its budget is 16.0 GiB"));
    plan_release(&p);
    blocks_release(&b);
}

/* Every block of 1000 bytes takes 1024: a budget of exactly the bytes is not enough. */
static void alignment_counts(void **state)
{
    (void)state;
    static const char *const name[] = { "cuda:0", "cpu" };
    static const uint64_t gib[] = { 0, 1 };
    struct plan_devices d = devices(2, name, gib);
    struct quotas q;
    struct plan p;
    berth_err err = { 0 };
    struct blocks b = even(100, 1000);
    d.at[0].total = d.at[0].budget = 100 * 1024;
    assert_ok(plan_auto(&b, &d, NULL, 0, &q, &err), err);
    assert_int_equal(q.n, 1);
    assert_ok(plan_make(&b, &d, &q, PLAN_TAIL, &p, &err), err);
    assert_int_equal(p.share[0].held, 100 * 1024);
    plan_release(&p);
    d.at[0].total = d.at[0].budget = 100 * 1000;
    assert_fails(plan_make(&b, &d, &q, PLAN_TAIL, &p, &err), err, BERTH_ELIMIT, "102400 bytes");
    assert_ok(plan_auto(&b, &d, NULL, 0, &q, &err), err);
    assert_ok(plan_make(&b, &d, &q, PLAN_TAIL, &p, &err), err);
    assert_true(p.share[0].blocks > 90 && p.share[0].held <= 100 * 1000);
    plan_release(&p);
    blocks_release(&b);
}

static void a_small_card_keeps_a_quarter_free(void **state)
{
    (void)state;
    assert_int_equal(plan_reserve_default(24 * GIB, false), PLAN_RESERVE_DEFAULT);
    assert_int_equal(plan_reserve_default(2 * GIB, false), GIB / 2);
    assert_int_equal(plan_reserve_default(2 * GIB, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alignment_counts),
        cmocka_unit_test(a_small_card_keeps_a_quarter_free),
        cmocka_unit_test(all_on_compute_when_it_fits),
        cmocka_unit_test(donors_keep_a_little),
        cmocka_unit_test(donors_in_order_of_speed),
        cmocka_unit_test(the_last_donor_with_room_takes_orphans),
        cmocka_unit_test(too_big_for_all_is_an_error_with_numbers),
        cmocka_unit_test(embeddings_and_tiny_blocks_count_on_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
