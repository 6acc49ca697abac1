/* The public context: only what include/berth/berth.h promises. */
#include "support/oom.h"
#include "support/test.h"

#include <pthread.h>

static berth_ctx *open_ctx(const char *devices)
{
    berth_config cfg = { .size = sizeof cfg, .devices = devices };
    berth_ctx *ctx;
    berth_err err = { 0 };
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    return ctx;
}

static berth_device_info info_of(berth_ctx *ctx, size_t i)
{
    berth_device_info info;
    berth_err err = { 0 };
    assert_ok(berth_ctx_device_info(ctx, i, &info, &err), err);
    return info;
}

static void lists_devices(void **state)
{
    berth_ctx *ctx = open_ctx("cpu=64m,null:0=24g,cuda:0@cpu=32m");
    (void)state;
    assert_int_equal(berth_ctx_device_count(ctx), 3);
    berth_device_info d = info_of(ctx, 0);
    assert_string_equal(d.name, "cpu");
    assert_string_equal(d.kind, "cpu");
    assert_string_equal(d.physical, "cpu");
    assert_string_equal(d.caps_text, "host-visible launch");
    assert_int_equal(d.caps, BERTH_CAP_HOST_VISIBLE | BERTH_CAP_LAUNCH);
    assert_true(d.budget == 64u << 20 && d.total >= d.budget && d.free <= d.total);
    assert_true(!d.in_use && !d.idle && !d.peak && !d.pinned);
    d = info_of(ctx, 1);
    assert_string_equal(d.name, "null:0");
    assert_true(d.total == UINT64_C(24) << 30 && d.free == d.total);
    assert_string_equal(d.caps_text, "async pinned peer launch");
    d = info_of(ctx, 2);
    assert_string_equal(d.name, "cuda:0");
    assert_string_equal(d.kind, "cpu");
    assert_string_equal(d.physical, "cpu");
    berth_err err = { 0 };
    size_t i;
    assert_fails(berth_ctx_device_info(ctx, 3, &d, &err), err, BERTH_EINVAL, "device 3 of 3");
    assert_ok(berth_ctx_device_find(ctx, "cuda:0", &i, &err), err);
    assert_int_equal(i, 2);
    assert_fails(berth_ctx_device_find(ctx, "cuda:9", &i, &err), err, BERTH_ENOTFOUND,
                 "cpu, null:0, cuda:0");
    berth_ctx_free(ctx);
}

static void defaults(void **state)
{
    berth_ctx *ctx;
    berth_err err = { 0 };
    (void)state;
    assert_ok(berth_ctx_new(NULL, &ctx, &err), err);
    assert_string_equal(info_of(ctx, 0).name, "cpu");
    berth_ctx_free(ctx);
    ctx = open_ctx("");
    assert_true(info_of(ctx, 0).budget == info_of(ctx, 0).total);
    berth_ctx_free(ctx);
    berth_ctx_free(NULL);
}

static void errors_reach_the_caller(void **state)
{
    static const struct {
        const char *devices;
        berth_status code;
        const char *why;
    } cases[] = {
        { "cuda:99", BERTH_EUNSUPPORTED, "there is: cpu" },
        { "cpu=99999t", BERTH_EINVAL, "not a budget" },
        { "cpu=9999999g", BERTH_ELIMIT, "cpu has" },
        { ",", BERTH_EINVAL, "entry 1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        berth_config cfg = { .size = sizeof cfg, .devices = cases[i].devices };
        berth_ctx *ctx;
        berth_err err = { 0 };
        assert_fails(berth_ctx_new(&cfg, &ctx, &err), err, cases[i].code, cases[i].why);
        assert_null(ctx);
    }
}

static void two_contexts_do_not_know_each_other(void **state)
{
    berth_ctx *a = open_ctx("null:0=1g,null:1=1g"), *b = open_ctx("null:0=2g");
    (void)state;
    assert_int_equal(berth_ctx_device_count(a), 2);
    assert_int_equal(berth_ctx_device_count(b), 1);
    assert_true(info_of(a, 0).total == UINT64_C(1) << 30);
    assert_true(info_of(b, 0).total == UINT64_C(2) << 30);
    berth_ctx_free(a);
    assert_true(info_of(b, 0).free == UINT64_C(2) << 30);
    berth_ctx_free(b);
}

struct seen {
    int n;
    char event[32], text[256];
    berth_log_level level;
};

static void note(void *user, berth_log_level level, uint64_t wall_ns, const char *event,
                 const char *text)
{
    struct seen *s = user;
    assert_true(wall_ns > 0);
    s->n++;
    s->level = level;
    snprintf(s->event, sizeof s->event, "%s", event);
    snprintf(s->text, sizeof s->text, "%s", text);
}

static void logs_to_the_sink(void **state)
{
    struct seen s = { 0 };
    berth_config cfg = {
        .size = sizeof cfg, .devices = "null:0=1g,cuda:0@null:0=2g", .log = note, .log_user = &s
    };
    berth_ctx *ctx;
    berth_err err = { 0 };
    (void)state;
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.level, BERTH_LOG_INFO);
    assert_string_equal(s.event, "dev.open");
    assert_string_equal(s.text, "dev=cuda:0 phys=null:0 budget=2147483648");
    berth_ctx_free(ctx);
    s.n = 0;
    cfg.log_level = BERTH_LOG_WARN;
    assert_ok(berth_ctx_new(&cfg, &ctx, &err), err);
    berth_ctx_free(ctx);
    assert_int_equal(s.n, 0);
}

static void *ask(void *user)
{
    berth_ctx *ctx = user;
    berth_device_info d;
    berth_err err = { 0 };
    size_t i;
    intptr_t bad = 0;
    for (int k = 0; k < 200; k++) {
        bad += berth_ctx_device_info(ctx, (size_t)k % 2, &d, &err) != BERTH_OK;
        bad += berth_ctx_device_find(ctx, "null:0", &i, &err) != BERTH_OK || i != 1;
    }
    return (void *)bad;
}

static void any_thread_may_ask(void **state)
{
    berth_ctx *ctx = open_ctx("cpu=1m,null:0=1g");
    pthread_t t[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&t[i], NULL, ask, ctx), 0);
    for (int i = 0; i < 4; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    berth_ctx_free(ctx);
}

static void survives_oom(void **state)
{
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        berth_config cfg = { .size = sizeof cfg, .devices = "cpu=1m,null:0=1g" };
        berth_ctx *ctx = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = berth_ctx_new(&cfg, &ctx, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !ctx && err.msg[0]));
        berth_ctx_free(ctx);
    }
}

/* A program and a library of different age. */
static void structs_may_grow(void **state)
{
    struct {
        berth_config cfg;
        uint64_t later;
    } newer = { .cfg = { .size = sizeof newer, .devices = "cpu=64m" } };
    berth_config older = { .size = offsetof(berth_config, log), .devices = "cpu=64m" };
    berth_config none = { .devices = "cpu=64m" };
    berth_err err = { 0 };
    berth_ctx *ctx;
    (void)state;
    assert_ok(berth_ctx_new(&newer.cfg, &ctx, &err), err);
    berth_ctx_free(ctx);
    newer.later = 1;
    assert_fails(berth_ctx_new(&newer.cfg, &ctx, &err), err, BERTH_EUNSUPPORTED, "this library");
    older.ram_budget = 1; /* behind its end: beside devices it would be refused */
    assert_ok(berth_ctx_new(&older, &ctx, &err), err);
    berth_ctx_free(ctx);
    assert_fails(berth_ctx_new(&none, &ctx, &err), err, BERTH_EINVAL, "sizeof(berth_config)");
    assert_null(ctx);
    if (sizeof(void *) == 8)
        assert_int_equal(sizeof(berth_err), 768); /* new fields come out of `reserved` */
}

static void words_for_codes(void **state)
{
    (void)state;
    assert_string_equal(berth_version(), BERTH_VERSION_STRING);
    assert_string_equal(berth_status_name(BERTH_ENODEVMEM), "ENODEVMEM");
    assert_string_equal(berth_status_text(BERTH_OK), "fine");
    assert_string_equal(berth_status_name((berth_status)999), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_devices),      cmocka_unit_test(defaults),
        cmocka_unit_test(logs_to_the_sink),   cmocka_unit_test(errors_reach_the_caller),
        cmocka_unit_test(any_thread_may_ask), cmocka_unit_test(two_contexts_do_not_know_each_other),
        cmocka_unit_test(survives_oom),       cmocka_unit_test(structs_may_grow),
        cmocka_unit_test(words_for_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
