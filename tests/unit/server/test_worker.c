/* The worker's thread with a whole server around it: prompts, frees, changes, what is published. */
#include "support/oom.h"
#include "support/worker_rig.h"

/* ---- jobs ---- */

static void jobs_end_and_are_stored(void **state)
{
    struct world *x = *state;
    sem_post(&x->go);
    add(x, "a", "Wait");
    expect(x, "a", "\"status_str\":\"success\"");
    add_text(x, "bad", "{\"1\":");
    expect(x, "bad", "\"execution_error\"");
    add_text(x, "list", "[1,2]");
    expect(x, "list", "\"status_str\":\"error\"");
    sem_post(&x->go);
    add(x, "b", "Wait"); /* the worker lives on */
    expect(x, "b", "\"status_str\":\"success\"");
    assert_int_equal(store_remaining(x->server->store), 0);
}

static void interrupts(void **state)
{
    struct world *x = *state;
    assert_false(worker_interrupt(x->server, NULL)); /* idle: no later effect */
    assert_false(worker_interrupt(x->server, "a"));
    add(x, "a", "Wait");
    sem_wait(&x->entered);
    assert_false(worker_interrupt(x->server, "b"));
    assert_true(worker_interrupt(x->server, "a"));
    expect(x, "a", "\"execution_interrupted\"");
    sem_post(&x->go);
    add(x, "b", "Wait");
    expect(x, "b", "\"execution_success\"");
    sem_wait(&x->entered);
    add(x, "c", "Wait");
    sem_wait(&x->entered);
    assert_true(worker_interrupt(x->server, NULL));
    expect(x, "c", "\"execution_interrupted\"");
}

/* Taken from the queue, but its run has not begun: the worker that would begin it is gone. */
static void interrupts_before_a_run_begins(void **state)
{
    struct world *x = *state;
    struct store_job job = { 0 };
    bool got = false;
    uint64_t wakes = 0;
    berth_err err = { 0 };
    worker_stop(x->server, 0);
    add(x, "a", "Wait");
    while (!got) /* the first call may return for the wake that stopped the worker */
        assert_ok(store_take(x->server->store, &wakes, UINT64_MAX, &job, &got, &err), err);
    assert_false(worker_interrupt(x->server, "b"));
    assert_null(x->server->worker->early);
    assert_true(worker_interrupt(x->server, "a"));
    assert_string_equal(x->server->worker->early, "a");
    assert_true(worker_interrupt(x->server, NULL));
    assert_string_equal(x->server->worker->early, "");
    store_job_release(&job);
}

static void add_for(struct world *x, const char *id, const char *client)
{
    struct store_job job = { .id = strdup(id),
                             .number = strdup("0"),
                             .prompt = strdup("{\"1\":{\"class_type\":\"Wait\",\"inputs\":{}}}"),
                             .extra_data = strdup("{}"),
                             .outputs = strdup("[\"1\"]"),
                             .client_id = strdup(client) };
    berth_err err = { 0 };
    assert_ok(store_add(x->server->store, &job, added, NULL, &err), err);
}

static void executing_is_told_to_its_client(void **state)
{
    struct world *x = *state;
    struct str text = { 0 };
    struct jsonout j = { .out = &text };
    add_for(x, "a", "me");
    sem_wait(&x->entered);
    assert_false(worker_executing_json(x->server, "you", NULL, &j));
    assert_true(worker_executing_json(x->server, "me", NULL, &j));
    assert_string_equal(str_c(&text),
                        "{\"node\":\"1\",\"display_node\":\"1\",\"prompt_id\":\"a\"}");
    sem_post(&x->go);
    ended(x, "a");
    str_release(&text);
}

static atomic_int told_late; /* 1: success was told when the history had it, -1: before */

static void look_at_success(struct server *s, const char *sid, struct str *taken)
{
    (void)sid;
    if (strstr(str_c(taken), "execution_success")) {
        struct str entry = { 0 };
        berth_err err = { 0 };
        store_history_one(s->store, "a", &entry, &err);
        atomic_store(&told_late, entry.n > 2 ? 1 : -1);
        str_release(&entry);
    }
    str_release(taken);
}

static bool somebody_listens(struct server *user, const char *sid)
{
    (void)user, (void)sid;
    return true;
}

static void history_comes_before_success(void **state)
{
    struct world *x = *state;
    atomic_store(&told_late, 0);
    x->server->worker->events.out.listens = somebody_listens;
    x->server->worker->events.out.text = look_at_success;
    sem_post(&x->go);
    add_for(x, "a", "me");
    while (!atomic_load(&told_late))
        usleep(1000);
    assert_int_equal(atomic_load(&told_late), 1);
}

static atomic_int told_end; /* messages that a prompt ended */

static void count_ends(struct server *user, const char *sid, struct str *taken)
{
    (void)user, (void)sid;
    if (strstr(str_c(taken), "\"node\":null") || strstr(str_c(taken), "execution_interrupted"))
        atomic_fetch_add(&told_end, 1);
    str_release(taken);
}

/* Grace runs out: the prompt is parked, and runs when there is a worker again. Nobody is told that
 * it ended before it does. */
static void parked_and_run_again(void **state)
{
    struct world *x = *state;
    struct answer a;
    berth_err err = { 0 };
    atomic_store(&told_end, 0);
    x->server->worker->events.out.listens = somebody_listens;
    x->server->worker->events.out.text = count_ends;
    add_for(x, "a", "me");
    sem_wait(&x->entered);
    ask_free(x, flags(true, false), &a); /* waits for the prompt, then nobody is there any more */
    /* until the next worker has the nodes of this test */
    assert_ok(store_pause(x->server->store, true, &err), err);
    close_server(x);
    assert_int_equal(a.times, 1);
    assert_true(a.status == BERTH_ECANCELED || a.status == BERTH_OK);
    assert_int_equal(atomic_load(&told_end), 0);
    str_release(&a.text);
    open_server(x);
    sem_post(&x->go);
    assert_ok(store_pause(x->server->store, false, &err), err);
    expect(x, "a", "\"execution_success\"");
    assert_int_equal(store_history_count(x->server->store), 1);
}

/* A worker that cannot start leaves nothing behind; the next try does. */
static void start_survives_oom(void **state)
{
    struct world *x = *state;
    berth_status st = BERTH_ENOMEM;
    long k = 0;
    worker_close(x->server);
    for (; st && k < 1000; k++) {
        berth_err err = { 0 };
        oom_after(k);
        st = worker_start(x->server, &err);
        oom_off();
        assert_true(!st == !!x->server->worker);
        assert_true(!st || (st == BERTH_ENOMEM && err.msg[0]));
    }
    assert_true(k > 1);
    sem_post(&x->go);
    add(x, "a", "Wait");
    expect(x, "a", "\"execution_success\"");
}

/* ---- frees ---- */

/* During a run nothing happens, right after it everything, flags once. */
static void a_free_waits_for_the_prompt(void **state)
{
    struct world *x = *state;
    struct worker_free f;
    struct answer a;
    uint64_t before = frees(x);
    add(x, "a", "Wait");
    sem_wait(&x->entered);
    for (int i = 0; i < 3; i++) {
        f = flags(true, i == 1);
        worker_post_free(x->server, &f, NULL, NULL);
    }
    f = flags(false, false); /* nothing at all */
    worker_post_free(x->server, &f, NULL, NULL);
    ask_free(x, (struct worker_free) { .tiers = RES_TIER_STAGING, .wait = true }, &a);
    usleep(20000);
    assert_int_equal(a.times, 0);
    sem_post(&x->go);
    wait_answer(&a);
    assert_int_equal(a.status, BERTH_OK);
    assert_non_null(strstr(str_c(&a.text), "\"tiers\":[\"staging\"]"));
    str_release(&a.text);
    ended(x, "a");
    assert_int_equal(frees(x), before + 3); /* the flags, the one above, and this one */
}

static void a_selector_that_names_nothing(void **state)
{
    struct world *x = *state;
    struct answer a;
    char **names = calloc(1, sizeof *names);
    assert_non_null(names);
    names[0] = strdup("nobody");
    ask_free(x, (struct worker_free) { .models = names, .models_n = 1, .wait = true }, &a);
    wait_answer(&a);
    assert_int_equal(a.status, BERTH_ENOTFOUND);
    assert_non_null(strstr(a.msg, "nobody"));
}

/* Out of device memory: whatever may go, marked or not; keep stays. */
static void out_of_memory_unloads(void **state)
{
    struct world *x = *state;
    x->retention = RES_AUTO;
    add(x, "a", "Hold");
    expect(x, "a", "\"status_str\":\"success\"");
    json_t *r = receipt(x, (struct worker_free) { .dry_run = true });
    assert_int_equal(json_array_size(json_object_get(r, "models")), 1);
    json_decref(r);
    add(x, "b", "Hungry");
    expect(x, "b", "\"status_str\":\"error\"");
    json_decref(receipt(x, (struct worker_free) { .dry_run = true })); /* the worker is through */
    json_t *list = models(x);
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(number(json_array_get(list, 0), "resident"), 0);
    json_decref(list);
}

/* A prompt that used a model marked eject throws it out, and who saw its end finds it gone. */
static void marked_models_go_with_their_prompt(void **state)
{
    struct world *x = *state;
    x->retention = RES_EJECT;
    add(x, "a", "Hold");
    ended(x, "a");
    json_t *r = receipt(x, (struct worker_free) { .dry_run = true });
    assert_int_equal(json_array_size(json_object_get(r, "models")), 0);
    json_decref(r);
    json_t *list = models(x);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "state")),
                        "ejected");
    json_decref(list);
}

/* A free that was asked for during the prompt takes the place of that cleanup: it is the one that
 * finds the model marked eject. */
static void asked_before_the_end(void **state)
{
    struct world *x = *state;
    struct answer a;
    x->retention = RES_EJECT;
    add(x, "a", "HoldWait");
    sem_wait(&x->entered);
    struct worker_free f = flags(true, false);
    f.wait = true;
    ask_free(x, f, &a);
    sem_post(&x->go);
    wait_answer(&a);
    assert_int_equal(a.status, BERTH_OK);
    assert_non_null(strstr(str_c(&a.text), "\"verdict\":\"ejected\",\"why\":\"marked eject\""));
    str_release(&a.text);
    uint64_t n = frees(x);
    assert_int_equal(n, 2); /* that one and the question; no automatic cleanup */
}

/* ---- models ---- */

static void models_are_shown_and_changed(void **state)
{
    struct world *x = *state;
    struct answer a = { 0 };
    json_t *list, *m;
    x->retention = RES_KEEP;
    add(x, "a", "Hold");
    expect(x, "a", "\"status_str\":\"success\"");
    json_decref(receipt(x, (struct worker_free) { .dry_run = true }));
    list = models(x);
    assert_int_equal(json_array_size(list), 1);
    m = json_array_get(list, 0);
    uint64_t id = number(m, "id");
    assert_int_equal(number(m, "bytes"), 256 << 10);
    assert_int_equal(number(m, "resident"), 256 << 10);
    assert_int_equal(number(json_object_get(m, "devices"), "null:0"), 256 << 10);
    assert_int_equal(number(m, "loads"), 1);
    assert_string_equal(json_string_value(json_object_get(m, "retention")), "keep");
    assert_string_equal(json_string_value(json_object_get(m, "state")), "resident");
    assert_string_equal(json_string_value(json_object_get(json_object_get(m, "plan"), "compute")),
                        "null:0");
    json_decref(list);

    change(x, (struct worker_change) { .model = id, .eject = true }, &a);
    assert_int_equal(a.status, BERTH_EBUSY); /* keep */
    change(x, (struct worker_change) { .model = id + 1, .eject = true }, &a);
    assert_int_equal(a.status, BERTH_ENOTFOUND);
    change(x, (struct worker_change) { .model = id, .allocation = strdup("cpu,50%;null:0,50%") },
           &a);
    if (a.status)
        fail_msg("%s", a.msg);
    assert_non_null(strstr(str_c(&a.text), "\"devices\":{\"cpu\":131072,\"null:0\":131072}"));
    change(x, (struct worker_change) { .model = id, .sets_layout = true, .layout = PLAN_TAIL }, &a);
    assert_int_equal(a.status, BERTH_OK);
    assert_non_null(strstr(str_c(&a.text), "\"layout\":\"tail\""));
    change(x, (struct worker_change) { .model = id, .allocation = strdup("cuda:9,*") }, &a);
    assert_int_equal(a.status, BERTH_EINVAL);
    change(x, (struct worker_change) { .model = id, .sets_retention = true, .retention = RES_AUTO },
           &a);
    assert_int_equal(a.status, BERTH_OK);
    assert_non_null(strstr(str_c(&a.text), "\"retention\":\"auto\""));
    change(x, (struct worker_change) { .model = id, .eject = true }, &a);
    assert_int_equal(a.status, BERTH_OK);
    assert_non_null(strstr(str_c(&a.text), "\"verdict\":\"ejected\""));
    str_release(&a.text);
    list = models(x);
    assert_int_equal(number(json_array_get(list, 0), "resident"), 0); /* still held */
    json_decref(list);
}

static void texts_are_json(void **state)
{
    struct world *x = *state;
    struct str text = { 0 };
    json_t *v;
    berth_err err = { 0 };
    add(x, "a", "Hold");
    ended(x, "a");
    json_decref(receipt(x, flags(true, true)));
    void (*const all[])(struct server *, struct str *) = { worker_models_json, worker_devices_json,
                                                           worker_stats_json,
                                                           worker_receipts_json };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        str_clear(&text);
        all[i](x->server, &text);
        assert_ok(js_parse(text.p, text.n, NULL, &v, &err), err);
        json_decref(v);
    }
    for (uint64_t after = 0; after < 4; after++) {
        str_clear(&text);
        worker_memory_json(x->server, after == 3 ? UINT64_MAX : after, 2, &text);
        assert_ok(js_parse(text.p, text.n, NULL, &v, &err), err);
        const json_t *line = json_object_get(v, "timeline");
        assert_int_equal(json_array_size(line), 2);
        if (after == 3)
            assert_int_equal(number(json_array_get(line, 1), "seq"), number(v, "last"));
        else
            assert_int_equal(number(json_array_get(line, 0), "seq"), after + 1);
        json_decref(v);
    }
    str_release(&text);
}

/* ---- /metrics ---- */

static bool is_name(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && (s[i] == '_' || (s[i] >= 'a' && s[i] <= 'z')))
        i++;
    return n && i == n;
}

/* name[{label="value",...}] number, below the HELP and TYPE of its name; no line twice. */
static void metrics_are_well_formed(void **state)
{
    struct world *x = *state;
    struct str text = { 0 }, seen = { 0 };
    char family[100] = "";
    size_t samples = 0;
    add(x, "a", "Hold");
    ended(x, "a");
    json_decref(receipt(x, flags(true, true)));
    worker_metrics_text(x->server, &text);
    assert_true(text.n && text.p[text.n - 1] == '\n');
    for (char *line = text.p, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        if (strncmp(line, "# HELP ", 7) == 0) {
            size_t n = strcspn(line + 7, " ");
            assert_true(is_name(line + 7, n) && n < sizeof family && line[7 + n] && line[8 + n]);
            snprintf(family, sizeof family, "%.*s", (int)n, line + 7);
            end[0] = '\n';
            assert_true(strncmp(end + 1, "# TYPE ", 7) == 0);
            end = strchr(end + 1, '\n');
            continue;
        }
        size_t n = strcspn(line, "{ ");
        double v;
        char rest;
        assert_true(is_name(line, n) && strlen(family) == n && strncmp(family, line, n) == 0);
        const char *space = strrchr(line, ' ');
        assert_non_null(space);
        assert_int_equal(sscanf(space, " %lf%c", &v, &rest), 1);
        if (line[n] == '{')
            assert_true(space[-1] == '}');
        char key[300];
        snprintf(key, sizeof key, "\n%.*s ", (int)(space - line), line);
        if (strstr(str_c(&seen), key))
            fail_msg("twice: %s", line);
        str_adds(&seen, key);
        samples++;
    }
    assert_true(samples > 30);
    assert_non_null(strstr(seen.p, "\nberth_prompts_total{outcome=\"success\"} "));
    assert_non_null(strstr(seen.p, "\nberth_device_bytes{device=\"null:0\",tier=\"weights\"} "));
    str_release(&text);
    str_release(&seen);
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(jobs_end_and_are_stored),
        WITH(interrupts),
        WITH(interrupts_before_a_run_begins),
        WITH(executing_is_told_to_its_client),
        WITH(history_comes_before_success),
        WITH(parked_and_run_again),
        WITH(start_survives_oom),
        WITH(a_free_waits_for_the_prompt),
        WITH(a_selector_that_names_nothing),
        WITH(out_of_memory_unloads),
        WITH(marked_models_go_with_their_prompt),
        WITH(asked_before_the_end),
        WITH(models_are_shown_and_changed),
        WITH(texts_are_json),
        WITH(metrics_are_well_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
