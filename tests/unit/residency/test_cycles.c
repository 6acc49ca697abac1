/* Load and free, over and over: memory of the process and of every device stays where it was. */
#include "journal/journal.h"
#include "support/models.h"

#include <unistd.h>

enum { CYCLES = 500, WARM_UP = 50 };

/* Sanitizers keep what was freed, and a shadow of everything: RSS says nothing then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RSS_IS_OURS 0
#elif defined(__has_feature)
#define RSS_IS_OURS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define RSS_IS_OURS 1
#endif

static uint64_t rss(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*u %llu", &pages), 1);
    fclose(f);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t held(const struct fixture *f)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < devset_count(f->set); i++) {
        struct dev_stats s = stats_of(devset_at(f->set, i));
        sum += s.in_use + s.idle + s.pinned;
    }
    return sum;
}

/* One cycle: two models, a change of plan, a free that leaves nothing. */
static void cycle(struct fixture *f, const char *a, const char *b)
{
    berth_err err = { 0 };
    struct plan_args plan = { .alloc = "null:0,512kb;cpu,*#null:0" };
    struct res_receipt receipt;
    struct res_model *x = model_open(f, a, "null:0,1mb;cpu,*#null:0", RES_AUTO);
    struct res_model *y = model_open(f, b, "#cpu", RES_EJECT);
    model_load(x);
    model_load(y);
    assert_ok(res_replan(x, &plan, NULL, &err), err);
    res_unref(x);
    res_unref(y);
    struct res_free_args args = { .unload_models = true, .free_memory = true };
    assert_ok(res_free(f->r, &args, &receipt, &err), err);
    res_receipt_release(&receipt);
}

static void cycles_are_flat(void **state)
{
    struct fixture f;
    struct journal_config journal = { .ring = 16, .timeline = 64 }; /* full within the warm-up */
    struct res_config cfg = { .journal = &journal };
    (void)state;
    fixture_open(&f, "cpu=64m,null:0=64m", &cfg);
    /* Something that stays: a hundredth of RSS is then more than the allocator's whims. On null,
     * because the kernel may fill a huge page of cpu's up by itself at any time. */
    struct res_model *kept = model_open(&f, model_file("kept", 32, 1 << 20), "#null:0", RES_KEEP);
    model_load(kept);
    char a[300], b[300];
    snprintf(a, sizeof a, "%s", model_file("a", 32, 64 << 10));
    snprintf(b, sizeof b, "%s", model_file("b", 16, 64 << 10));
    uint64_t bytes = 0, resident = 0;
    for (int i = 0; i < CYCLES; i++) {
        cycle(&f, a, b);
        if (i == WARM_UP) {
            bytes = held(&f);
            resident = rss();
        }
        if (i > WARM_UP)
            assert_int_equal(held(&f), bytes);
    }
    uint64_t now = rss();
    if (RSS_IS_OURS && (now > resident + resident / 100 || now < resident - resident / 100))
        fail_msg("%llu bytes of RSS, %llu after the warm-up", (unsigned long long)now,
                 (unsigned long long)resident);
    model_intact(kept);
    res_unref(kept);
    fixture_close(&f);
}

/* The same without giving memory back to the system: pools must not grow either. */
static void attach_cycles_are_flat(void **state)
{
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=64m,null:0=16m", NULL);
    const char *path = model_file("a", 32, 64 << 10);
    struct res_model *m = model_open(&f, path, "null:0,1mb;cpu,*#null:0", RES_KEEP);
    model_load(m);
    uint64_t bytes = held(&f);
    for (int i = 0; i < CYCLES; i++) {
        res_unref(m);
        m = model_open(&f, path, "null:0,1mb;cpu,*#null:0", RES_KEEP);
        assert_int_equal(model_load(m).read, 0);
        assert_int_equal(held(&f), bytes);
    }
    assert_int_equal(res_info(m).attached, CYCLES);
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycles_are_flat),
        cmocka_unit_test(attach_cycles_are_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
