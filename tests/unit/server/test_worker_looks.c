/* Looking at models without changing them: blocks that are published, plans that nobody applies. */
#include "support/worker_rig.h"

static json_t *parsed(const struct str *text)
{
    json_t *v;
    berth_err err = { 0 };
    assert_ok(js_parse(str_c(text), text->n, NULL, &v, &err), err);
    return v;
}

/* The model of `Hold`, loaded. */
static uint64_t held_model(struct world *x)
{
    x->retention = RES_KEEP;
    add(x, "held", "Hold");
    expect(x, "held", "\"status_str\":\"success\"");
    json_decref(receipt(x, (struct worker_free) { .dry_run = true }));
    json_t *list = models(x);
    uint64_t id = number(json_array_get(list, 0), "id");
    json_decref(list);
    return id;
}

static void post_look(struct world *x, uint64_t model, const char *allocation, struct answer *a)
{
    struct worker_change c = { .model = model, .allocation = strdup(allocation) };
    *a = (struct answer) { .world = x };
    worker_post_look(x->server, &c, on_answer, a);
}

/* Bytes of the blocks whose `key` is that device; "": null. */
static uint64_t bytes_on(struct world *x, uint64_t id, const char *key, const char *device)
{
    struct str text = { 0 };
    uint64_t sum = 0;
    size_t i;
    json_t *b;
    assert_true(worker_model_json(x->server, id, true, &text));
    json_t *v = parsed(&text), *list = json_object_get(v, "blocks");
    assert_int_equal(json_array_size(list), 4);
    json_array_foreach(list, i, b)
    {
        const char *name = json_string_value(json_object_get(b, "name"));
        char want[32];
        snprintf(want, sizeof want, "layers.%zu", i);
        assert_string_equal(name, want);
        const char *on = json_string_value(json_object_get(b, key));
        sum += strcmp(on ? on : "", device) == 0 ? number(b, "bytes") : 0;
    }
    json_decref(v);
    str_release(&text);
    return sum;
}

static void blocks_are_where_they_are(void **state)
{
    struct world *x = *state;
    struct answer a = { 0 };
    struct str text = { 0 };
    uint64_t id = held_model(x);
    assert_int_equal(bytes_on(x, id, "device", "null:0"), 256 << 10);
    change(x, (struct worker_change) { .model = id, .allocation = strdup("cpu,50%;null:0,50%") },
           &a);
    assert_int_equal(a.status, BERTH_OK);
    assert_int_equal(bytes_on(x, id, "device", "cpu"), 128 << 10);
    assert_int_equal(bytes_on(x, id, "planned", "cpu"), 128 << 10);
    change(x, (struct worker_change) { .model = id, .eject = true, .force = true }, &a);
    assert_int_equal(bytes_on(x, id, "device", ""), 256 << 10); /* nowhere, and still planned */
    assert_int_equal(bytes_on(x, id, "planned", "null:0"), 128 << 10);
    assert_false(worker_model_json(x->server, id + 1, true, &text));
    assert_int_equal(text.n, 0);
    str_release(&a.text);
}

static void a_look_changes_nothing(void **state)
{
    struct world *x = *state;
    struct answer a;
    uint64_t id = held_model(x);
    post_look(x, id, "cpu,50%;null:0,50%", &a);
    wait_answer(&a);
    if (a.status)
        fail_msg("%s", a.msg);
    json_t *v = parsed(&a.text);
    assert_int_equal(number(v, "moves"), 128 << 10);
    assert_int_equal(number(json_object_get(v, "now"), "null:0"), 256 << 10);
    assert_int_equal(number(json_object_get(v, "after"), "cpu"), 128 << 10);
    assert_int_equal(json_array_size(json_object_get(v, "blocks")), 4);
    json_decref(v);
    str_release(&a.text);
    assert_int_equal(bytes_on(x, id, "device", "null:0"), 256 << 10);
    post_look(x, id, "cuda:9,*", &a);
    wait_answer(&a);
    assert_int_equal(a.status, BERTH_EINVAL);
    post_look(x, id + 1, "", &a);
    wait_answer(&a);
    assert_int_equal(a.status, BERTH_ENOTFOUND);
}

/* Two nodes that wait: when the first has gone the answer comes, while the second is inside. */
static void a_look_is_answered_between_nodes(void **state)
{
    struct world *x = *state;
    struct answer a;
    uint64_t id = held_model(x);
    add_job(x, "two",
            "{\"1\":{\"class_type\":\"Wait\",\"inputs\":{\"job\":1}},"
            "\"2\":{\"class_type\":\"Wait\",\"inputs\":{\"job\":2}}}",
            "[\"1\",\"2\"]");
    sem_wait(&x->entered);
    post_look(x, id, "cpu,*", &a);
    sem_post(&x->go);
    wait_answer(&a); /* would never come if it waited for the prompt: nobody lets that go on */
    assert_int_equal(a.status, BERTH_OK);
    str_release(&a.text);
    sem_post(&x->go);
    expect(x, "two", "\"status_str\":\"success\"");
}

/* Nobody who asked waits for ever: what is left when the server ends is canceled. */
static void a_look_is_canceled_at_the_end(void **state)
{
    struct world *x = *state;
    struct answer a;
    uint64_t id = held_model(x);
    add(x, "w", "Wait");
    sem_wait(&x->entered);
    post_look(x, id, "cpu,*", &a);
    close_server(x);
    wait_answer(&a);
    assert_true(a.status == BERTH_ECANCELED || a.status == BERTH_OK); /* parked: its node ended */
    str_release(&a.text);
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(blocks_are_where_they_are),
        WITH(a_look_changes_nothing),
        WITH(a_look_is_answered_between_nodes),
        WITH(a_look_is_canceled_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
