/* contract: what backend.h asks of every backend, through store.h. A test hands in where to open a
 * store nobody has opened before, and runs CONTRACT_TESTS. */
#ifndef UNIT_STORE_CONTRACT_H
#define UNIT_STORE_CONTRACT_H

#include "base/json.h"
#include "support/stores.h"

static const char *(*contract_place)(void); /* a new one with each call; valid until the next */

static inline bool list_ids(void *user, const struct store_job *j, bool running)
{
    str_addf(user, "%s%s ", j->id, running ? ":" : "");
    return true;
}

static inline void queue_is_at(struct store *s, const char *want, int line)
{
    struct str got = { 0 }, text = { 0 };
    json_t *v;
    berth_err err = { 0 };
    assert_ok(store_each_job(s, false, list_ids, &got, &err), err);
    if (strcmp(str_c(&got), want) != 0)
        fail_msg("line %d: queue '%s', wanted '%s'", line, str_c(&got), want);
    assert_ok(store_queue_json(s, &text, &err), err);
    assert_ok(js_parse(text.p, text.n, NULL, &v, &err), err);
    assert_int_equal(json_array_size(json_object_get(v, "queue_running")) +
                         json_array_size(json_object_get(v, "queue_pending")),
                     store_remaining(s));
    json_decref(v);
    str_release(&text);
    str_release(&got);
}
#define queue_is(s, want) queue_is_at(s, want, __LINE__)

static inline void page_is_at(struct store *s, struct store_page p, const char *want, int line)
{
    struct str text = { 0 }, got = { 0 };
    json_t *v, *item;
    const char *key;
    berth_err err = { 0 };
    assert_ok(store_history_json(s, &p, &text, &err), err);
    assert_ok(js_parse(text.p, text.n, NULL, &v, &err), err);
    json_object_foreach(v, key, item)
    {
        assert_int_equal(json_object_size(item), 4);
        assert_int_equal(json_array_size(json_object_get(item, "prompt")), 5);
        str_addf(&got, "%s ", key);
    }
    if (strcmp(str_c(&got), want) != 0)
        fail_msg("line %d: history '%s', wanted '%s'", line, str_c(&got), want);
    json_decref(v);
    str_release(&text);
    str_release(&got);
}
#define page_is(s, want, ...) page_is_at(s, (struct store_page) { __VA_ARGS__ }, want, __LINE__)
#define history_is(s, want) page_is(s, want, .max = 0)

static inline void nothing_to_take(struct store *s)
{
    struct store_job j;
    bool got = true;
    berth_err err = { 0 };
    assert_ok(store_take(s, &took.wakes, 0, &j, &got, &err), err);
    assert_false(got);
}

/* ---- the queue ---- */

static inline void contract_order(void **state)
{
    (void)state;
    struct store *s = open_store(contract_place());
    struct store_job j;
    bool running;
    berth_err err = { 0 };
    add(s, "b", 1);
    add(s, "c", 2.5);
    add(s, "front", -7);
    add(s, "b2", 1); /* the same number: arrival decides */
    add(s, "a", 1);
    queue_is(s, "front b b2 a c ");
    take(s, "front", 1);
    take(s, "b", 1);
    queue_is(s, "front: b: b2 a c ");
    assert_int_equal(store_pending(s), 3);
    assert_true(store_job_get(s, "b", &j, &running) && running && j.attempts == 1 && j.attempt);
    assert_string_equal(j.prompt, "{\"1\":{\"class_type\":\"b\"}}");
    store_job_release(&j);
    assert_true(store_job_get(s, "c", &j, &running) && !running && !j.attempt && j.created_ms);
    store_job_release(&j);
    assert_false(store_job_get(s, "x", &j, &running));
    assert_ok(store_move(s, "c", "b2", &err), err);
    queue_is(s, "front: b: c b2 a ");
    assert_ok(store_move(s, "b2", NULL, &err), err);
    queue_is(s, "front: b: c a b2 ");
    assert_fails(store_move(s, "b", NULL, &err), err, BERTH_ENOTFOUND, "'b'");
    assert_ok(store_pause(s, true, &err), err);
    assert_true(store_paused(s));
    nothing_to_take(s);
    assert_ok(store_pause(s, false, &err), err);
    take(s, "c", 1);
    store_close(s);
}

static inline void contract_removal(void **state)
{
    (void)state;
    static const char *const ids[] = { "a", "none", "b", "run" };
    static const char *const twice[] = { "c", "c", "a" };
    struct store *s = open_store(contract_place());
    berth_err err = { 0 };
    add(s, "run", 0);
    take(s, "run", 1);
    add(s, "a", 1);
    add(s, "b", 2);
    add(s, "a", 3);
    add(s, "c", 4);
    assert_int_equal(store_delete(s, ids, 4, &err), 2); /* the first "a", and nothing that runs */
    queue_is(s, "run: a c ");
    add(s, "c", 9);
    add(s, "c", 8);
    assert_int_equal(store_delete(s, twice, 3, &err), 3);
    queue_is(s, "run: c ");
    add(s, "d", -1);
    assert_int_equal(store_clear(s, &err), 2);
    assert_int_equal(store_clear(s, &err), 0);
    queue_is(s, "run: ");
    finish(s);
    queue_is(s, "");
    history_is(s, "run ");
    store_close(s);
}

static inline void contract_limits(void **state)
{
    (void)state;
    struct store_config cfg = { .path = contract_place(), .max_pending = 2, .max_bytes = 1000 };
    struct store *s;
    berth_err err = { 0 };
    assert_ok(store_open(&cfg, &s, &err), err);
    add(s, "a", 0);
    take(s, "a", 1);
    add(s, "b", 0);
    add(s, "c", 0);
    assert_fails(try_add(s, job_of("d", 0), &err), err, BERTH_ELIMIT, "no more than 2");
    finish(s);
    take(s, "b", 1);
    struct store_job big = job_of("big", 0);
    free(big.prompt);
    big.prompt = text_of("{\"%1000d\":0}", 0);
    assert_fails(try_add(s, big, &err), err, BERTH_ELIMIT, "over 1000");
    finish(s);
    for (int i = 0; i < 40; i++) { /* what went counts no more */
        add(s, "d", 0);
        assert_int_equal(store_clear(s, &err), i ? 1 : 2);
    }
    store_close(s);
}

/* ---- attempts ---- */

/* Only the attempt that runs a job ends it, however often it was put back, and ends it once. */
static inline void contract_attempts(void **state)
{
    (void)state;
    struct store *s = open_store(contract_place());
    uint64_t seen = 0, seq = 0;
    berth_err err = { 0 };
    add(s, "a", 1);
    add(s, "b", 2);
    for (int i = 0; i < 3; i++) {
        take(s, "a", 1); /* parking is not a start */
        assert_true(took.attempt > seen);
        if (seen) {
            assert_fails(store_finish(s, took.seq, seen, &fine, &err), err, BERTH_EINVAL,
                         "is over: attempt");
            assert_fails(store_park(s, took.seq, seen, &err), err, BERTH_EINVAL, "is over");
            assert_fails(store_renew(s, took.seq, seen, &err), err, BERTH_EINVAL, "is over");
        }
        assert_ok(store_renew(s, took.seq, took.attempt, &err), err);
        seen = took.attempt;
        seq = took.seq;
        if (i < 2)
            assert_ok(try_park(s, &err), err);
    }
    take(s, "b", 1); /* a second worker */
    assert_true(took.attempt != seen && took.seq != seq);
    queue_is(s, "a: b: ");
    assert_fails(store_finish(s, seq, took.attempt, &fine, &err), err, BERTH_EINVAL, "is over");
    assert_fails(store_finish(s, took.seq + 1, took.attempt, &fine, &err), err, BERTH_EINVAL,
                 "no attempt at it is running");
    finish(s);
    assert_ok(store_finish(s, seq, seen, &fine, &err), err);
    assert_fails(store_finish(s, seq, seen, &fine, &err), err, BERTH_EINVAL, "no attempt");
    queue_is(s, "");
    history_is(s, "b a ");
    store_close(s);
}

/* Whoever is told "accepted" is told before the job runs. */
static inline void contract_told_first(void **state)
{
    (void)state;
    struct store *s = open_store(contract_place());
    for (int i = 0; i < 20; i++) {
        struct told t = TOLD_INIT;
        struct store_job j = job_of("x", -i);
        berth_err err = { 0 };
        assert_ok(store_add(s, &j, told_done, &t, &err), err);
        take(s, "x", 1);
        pthread_mutex_lock(&t.lock);
        assert_int_equal(t.n, 1);
        pthread_mutex_unlock(&t.lock);
        finish(s);
    }
    store_close(s);
}

/* ---- the history ---- */

static inline bool count_brief(void *user, const struct store_entry *e)
{
    struct store *s = ((void **)user)[0];
    size_t *n = ((void **)user)[1];
    assert_true(e->job.seq && e->job.id && e->job.number[0]);
    assert_string_equal(e->status, fine.status);
    store_history_count(s); /* no lock is held */
    return ++*n < 3;
}

static inline bool is_fine(void *user, const struct store_entry *e)
{
    (void)user;
    assert_string_equal(e->outputs, fine.outputs);
    assert_string_equal(e->meta, fine.meta);
    return true;
}

static inline void contract_history(void **state)
{
    (void)state;
    static const char *const ids[] = { "a", "b", "c", "d", "e" }, *const gone[] = { "c", "none" };
    struct store *s = open_store(contract_place());
    berth_err err = { 0 };
    size_t seen = 0;
    for (size_t i = 0; i < 5; i++)
        run_through(s, ids[i]);
    history_is(s, "a b c d e ");
    page_is(s, "d e ", .has_max = true, .max = 2);
    page_is(s, "a b c d e ", .has_max = true, .max = INT64_MAX);
    page_is(s, "a b c d e ", .has_max = true, .max = 5);
    page_is(s, "", .has_max = true, .max = 0);
    page_is(s, "", .has_max = true, .max = -1);
    page_is(s, "b c ", .has_max = true, .max = 2, .has_offset = true, .offset = 1);
    page_is(s, "a b ", .has_max = true, .max = 2, .has_offset = true, .offset = 0);
    page_is(s, "e ", .has_max = true, .max = 2, .has_offset = true, .offset = 4);
    page_is(s, "", .has_max = true, .max = 2, .has_offset = true, .offset = 5);
    page_is(s, "", .has_offset = true, .offset = INT64_MAX);
    page_is(s, "a b c d e ", .has_offset = true, .offset = -3);
    page_is(s, "d e ", .has_max = true, .max = 2, .has_offset = true, .offset = -3);
    page_is(s, "c d e ", .has_offset = true, .offset = 2);
    run_through(s, "b"); /* overwrites, in its place */
    history_is(s, "a b c d e ");
    assert_ok(store_each_brief(s, false, count_brief, (void *[]) { s, &seen }, &err), err);
    assert_int_equal(seen, 3);
    assert_ok(store_entry_get(s, "d", is_fine, NULL, &err), err);
    assert_fails(store_entry_get(s, "x", is_fine, NULL, &err), err, BERTH_ENOTFOUND, "'x'");
    assert_ok(store_history_delete(s, gone, 2, &err), err);
    history_is(s, "a b d e ");
    assert_int_equal(store_history_count(s), 4);
    assert_ok(store_history_clear(s, &err), err);
    assert_int_equal(store_history_count(s), 0);
    run_through(s, "z");
    history_is(s, "z ");
    store_close(s);
}

/* ---- opened again ---- */

static inline void contract_again(void **state)
{
    (void)state;
    char path[512];
    struct str text = { 0 };
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s", contract_place());
    struct store *s = open_store(path);
    assert_int_equal(store_next_number(s), 0);
    run_through(s, "x");
    add(s, "a", 1);
    add(s, "b", 2);
    assert_ok(store_pause(s, true, &err), err);
    store_close(s);
    s = open_store(path);
    assert_true(store_paused(s));
    assert_int_equal(store_next_number(s), 1);
    assert_ok(store_pause(s, false, &err), err);
    queue_is(s, "a b ");
    for (unsigned i = 1; i <= STORE_ATTEMPTS; i++) { /* its process dies each time */
        uint64_t seen = took.attempt;
        take(s, "a", i);
        assert_true(took.attempt > seen);
        seen = took.attempt;
        store_close(s);
        s = open_store(path);
        assert_fails(store_finish(s, took.seq, seen, &fine, &err), err, BERTH_EINVAL, "is over");
    }
    queue_is(s, "b ");
    history_is(s, "x a ");
    assert_ok(store_history_one(s, "a", &text, &err), err);
    assert_non_null(strstr(str_c(&text), "died 2 times"));
    str_release(&text);
    store_close(s);
}

#define CONTRACT_TESTS                                                                             \
    cmocka_unit_test(contract_order), cmocka_unit_test(contract_removal),                          \
        cmocka_unit_test(contract_limits), cmocka_unit_test(contract_attempts),                    \
        cmocka_unit_test(contract_told_first), cmocka_unit_test(contract_history),                 \
        cmocka_unit_test(contract_again)

#endif
