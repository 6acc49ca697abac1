/* What waits for the end of a prompt: the queue, frees that were asked for, automatic cleanup. */
#include "support/res_rig.h"

#include <pthread.h>

#define DEVICES "cpu=256m,null:0=64m,null:1=64m"

/* ---- frees ---- */

static void *ask(void *user)
{
    res_request_free(user, true, true, false);
    return NULL;
}

static void a_request_acts_after_the_prompt(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_model *m = rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
    struct res_receipt x;
    berth_err err = { 0 };
    pthread_t t;
    (void)state;
    res_prompt_begin(g->r);
    assert_ok(res_use_begin(m, &err), err);
    assert_int_equal(pthread_create(&t, NULL, ask, g->r), 0);
    while (!res_has_requests(g->r)) /* as an executor might notice it between nodes */
        sched_yield();
    assert_ok(res_settle(g->r, &x, &err), err); /* not yet */
    assert_int_equal(x.serial, 0);
    assert_int_equal(res_info(m).state, RES_RESIDENT);
    res_use_end(m);
    pthread_join(t, NULL);
    assert_ok(res_prompt_end(g->r, &x, &err), err);
    assert_int_equal(x.serial, 1);
    assert_string_equal(x.reason, "requested");
    assert_true(x.unload_models && x.free_memory && !x.force && !x.automatic);
    assert_int_equal(res_model_count(g->r), 0);
    assert_false(res_has_requests(g->r));
    res_receipt_release(&x);
    assert_ok(res_settle(g->r, &x, &err), err); /* once */
    assert_int_equal(x.serial, 0);
    rig_close(g);
}

static void automatic_cleanup(void **state)
{
    berth_err err = { 0 };
    (void)state;
    for (int off = 0; off < 2; off++) {
        struct res_config cfg = { .no_auto_cleanup = off };
        struct rig *g = rig_open(DEVICES, NULL, &cfg);
        struct res_receipt x;
        struct res_model *e = rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
        struct res_model *a = rig_load(g, rig_tiny("m1", "null:0", RES_AUTO), NULL, NULL);
        res_prompt_begin(g->r); /* does not use the marked one */
        assert_ok(res_use_begin(a, &err), err);
        res_use_end(a);
        assert_ok(res_prompt_end(g->r, &x, &err), err);
        assert_int_equal(x.serial, 0);
        assert_int_equal(res_info(e).state, RES_RESIDENT);
        res_prompt_begin(g->r); /* does */
        assert_ok(res_use_begin(e, &err), err);
        res_use_end(e);
        assert_ok(res_prompt_end(g->r, &x, &err), err);
        assert_int_equal(res_info(e).state, off ? RES_RESIDENT : RES_EJECTED);
        assert_int_equal(res_info(a).state, RES_RESIDENT);
        assert_int_equal(x.automatic, !off);
        assert_int_equal(g->resets, 0); /* outputs stay cached: ejecting is enough */
        res_receipt_release(&x);
        assert_ok(res_load(e, NULL, NULL, &err), err);
        res_prompt_begin(g->r); /* what an earlier prompt used does not count */
        assert_ok(res_prompt_end(g->r, NULL, &err), err);
        assert_int_equal(res_info(e).state, RES_RESIDENT);
        rig_close(g);
    }
}

static void the_button(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct str line = { 0 };
    struct journal_entry e[4];
    berth_err err = { 0 };
    (void)state;
    rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
    rig_load(g, rig_tiny("m1", "null:0", RES_KEEP), NULL, NULL);
    assert_ok(res_force_full_cleanup(g->r, NULL, false, &line, &err), err); /* at once */
    assert_memory_equal(str_c(&line), "reason=manual models=2->1 cpu_delta_mb=", 39);
    assert_null(strstr(str_c(&line), "skipped"));
    assert_false(res_has_requests(g->r));
    assert_int_equal(g->resets, 1);
    assert_int_equal(res_model_count(g->r), 1); /* keep stays: the button is no force */
    assert_int_equal(journal_query(res_journal(g->r), 0, "full_cleanup", e, 4, NULL), 2);
    assert_string_equal(e[0].tag, "start:manual");
    assert_string_equal(e[1].tag, "requested:manual");
    str_release(&line);
    rig_close(g);
}

/* force decides whether it happens at all, never that it happens now. */
static void the_button_while_a_prompt_runs(void **state)
{
    berth_err err = { 0 };
    (void)state;
    for (int force = 0; force < 2; force++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        struct str line = { 0 };
        struct journal_entry e[4];
        struct res_receipt x;
        rig_load(g, rig_tiny("m0", "null:0", RES_AUTO), NULL, NULL);
        rig_load(g, rig_tiny("m1", "null:0", RES_KEEP), NULL, NULL);
        res_prompt_begin(g->r);
        assert_ok(res_force_full_cleanup(g->r, "manual", force, &line, &err), err);
        assert_memory_equal(str_c(&line), "reason=manual models=2->2 cpu_delta_mb=", 39);
        assert_int_equal(strstr(str_c(&line), " skipped: a prompt runs") == NULL, force);
        assert_int_equal(g->resets, 0); /* its outputs are still wanted */
        assert_int_equal(res_metrics(g->r).frees, 0);
        assert_int_equal(res_has_requests(g->r), force);
        assert_int_equal(journal_query(res_journal(g->r), 0, "full_cleanup", e, 4, NULL),
                         1 + force);
        assert_ok(res_prompt_end(g->r, &x, &err), err);
        assert_int_equal(g->resets, force);
        assert_true(x.serial == (uint64_t)force && !x.force);
        assert_int_equal(x.unload_models && x.free_memory, force);
        assert_int_equal(res_model_count(g->r), 2 - force); /* keep stays */
        res_receipt_release(&x);
        str_release(&line);
        rig_close(g);
    }
}

/* ---- the queue ---- */

static struct str trace;

struct named {
    struct res_request q; /* first */
    char name;
};

struct named_in {       /* a registry */
    struct named named; /* first */
    struct residency *r;
};

static void note(struct res_request *q, bool canceled)
{
    str_addf(&trace, "%s%c", canceled ? "-" : "", ((struct named *)q)->name);
}

static void expect_trace(const char *want)
{
    assert_string_equal(str_c(&trace), want);
    str_release(&trace);
}

/* In order, those that may do so during the prompt, but never before one about the same model. */
static void requests_in_order(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct named a = { { .run = note, .model = 1 }, 'a' },
                 b = { { .run = note, .quick = true }, 'b' },
                 c = { { .run = note, .quick = true, .model = 1 }, 'c' },
                 d = { { .run = note, .quick = true, .model = 2 }, 'd' },
                 e = { { .run = note }, 'e' };
    struct named *const all[] = { &a, &b, &c, &d, &e };
    berth_err err = { 0 };
    (void)state;
    res_prompt_begin(g->r);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        res_request(g->r, &all[i]->q);
    assert_true(res_has_requests(g->r));
    res_run_requests(g->r);
    expect_trace("bd");
    assert_ok(res_settle(g->r, NULL, &err), err); /* a prompt runs */
    expect_trace("");
    res_prompt_done(g->r);
    res_request(g->r, &b.q);
    res_request_free(g->r, true, false, false);
    assert_ok(res_prompt_end(g->r, NULL, &err), err);
    expect_trace("ace");
    assert_int_equal(res_metrics(g->r).frees, 0);
    res_run_requests(g->r);
    expect_trace("b");
    assert_true(res_has_requests(g->r)); /* the flags */
    assert_ok(res_settle(g->r, NULL, &err), err);
    assert_int_equal(res_metrics(g->r).frees, 1);
    assert_false(res_has_requests(g->r));
    rig_close(g);
}

static void note_frees(struct res_request *q, bool canceled)
{
    struct named_in *n = (struct named_in *)q;
    (void)canceled;
    str_addf(&trace, "%c%u", n->named.name, (unsigned)res_metrics(n->r).frees);
}

/* Whoever asks after a free, even for a look, sees what it did; who asked before it does not. */
static void a_free_keeps_its_place(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct named_in a = { { { .run = note_frees }, 'a' }, g->r },
                    b = { { { .run = note_frees }, 'b' }, g->r },
                    c = { { { .run = note_frees, .quick = true }, 'c' }, g->r };
    berth_err err = { 0 };
    (void)state;
    res_request(g->r, &a.named.q);
    res_request_free(g->r, true, false, false);
    res_request(g->r, &c.named.q);
    res_request(g->r, &b.named.q);
    res_request_free(g->r, true, false, false);
    res_run_requests(g->r);
    expect_trace("a0"); /* a free is next */
    assert_ok(res_settle(g->r, NULL, &err), err);
    assert_int_equal(res_metrics(g->r).frees, 1);
    assert_ok(res_settle(g->r, NULL, &err), err);
    expect_trace("c1b1");
    assert_int_equal(res_metrics(g->r).frees, 2);
    assert_false(res_has_requests(g->r));

    res_prompt_begin(g->r); /* a look during the prompt does not lose the free before it */
    res_request_free(g->r, true, false, false);
    res_request(g->r, &c.named.q);
    res_request(g->r, &a.named.q);
    res_run_requests(g->r);
    expect_trace("c2");
    res_request_free(g->r, true, false, false);
    assert_ok(res_prompt_end(g->r, NULL, &err), err);
    assert_int_equal(res_metrics(g->r).frees, 3);
    expect_trace("");
    assert_ok(res_settle(g->r, NULL, &err), err);
    expect_trace("a3");
    assert_int_equal(res_metrics(g->r).frees, 4);
    rig_close(g);
}

static void canceled_requests_are_told(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct named a = { { .run = note }, 'a' }, b = { { .run = note, .quick = true }, 'b' };
    (void)state;
    res_prompt_begin(g->r);
    res_request(g->r, &a.q);
    res_run_requests(g->r);
    res_request(g->r, &b.q);
    res_request_free(g->r, true, true, true);
    res_cancel_requests(g->r);
    expect_trace("-a-b");
    assert_false(res_has_requests(g->r));
    rig_close(g);
}

#define POSTS 1000
static atomic_uint ran;

static void count(struct res_request *q, bool canceled)
{
    (void)q;
    atomic_fetch_add(&ran, !canceled);
}

struct poster {
    struct residency *r;
    struct res_request q[POSTS];
};

static void *post_many(void *user)
{
    struct poster *p = user;
    for (size_t i = 0; i < POSTS; i++) {
        p->q[i].run = count;
        res_request(p->r, &p->q[i]);
    }
    return NULL;
}

static void any_thread_posts(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    static struct poster p[3];
    pthread_t t[ARRAY_LEN(p)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(p); i++) {
        p[i].r = g->r;
        assert_int_equal(pthread_create(&t[i], NULL, post_many, &p[i]), 0);
    }
    while (atomic_load(&ran) < POSTS)
        res_run_requests(g->r);
    for (size_t i = 0; i < ARRAY_LEN(p); i++)
        pthread_join(t[i], NULL);
    res_run_requests(g->r);
    assert_int_equal(atomic_load(&ran), ARRAY_LEN(p) * POSTS);
    rig_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_acts_after_the_prompt),
        cmocka_unit_test(automatic_cleanup),
        cmocka_unit_test(the_button),
        cmocka_unit_test(the_button_while_a_prompt_runs),
        cmocka_unit_test(requests_in_order),
        cmocka_unit_test(a_free_keeps_its_place),
        cmocka_unit_test(canceled_requests_are_told),
        cmocka_unit_test(any_thread_posts),
    };
    return cmocka_run_group_tests_name("prompt", tests, NULL, NULL);
}
