/* What need not wait for a prompt's end: blocks that are published, plans that nobody applies, dry
 * runs, marks. */
#include "support/json_bytes.h"
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
    struct worker_change c = { .model = model, .look = true, .allocation = strdup(allocation) };
    *a = (struct answer) { .world = x };
    worker_post_change(x->server, &c, on_answer, a);
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

/* ---- between the nodes of a prompt ---- */

/* A prompt of two nodes that wait; the first is inside. */
static void begin_two(struct world *x, const char *first)
{
    char prompt[256];
    snprintf(prompt, sizeof prompt,
             "{\"1\":{\"class_type\":\"%s\",\"inputs\":{\"job\":1}},"
             "\"2\":{\"class_type\":\"Wait\",\"inputs\":{\"job\":2}}}",
             first);
    add_job(x, "two", prompt, "[\"1\",\"2\"]");
    sem_wait(&x->entered);
}

/* The first ends and the second is entered: what may be answered in between has been. */
static void next_node(struct world *x)
{
    sem_post(&x->go);
    sem_wait(&x->entered);
}

static void end_two(struct world *x)
{
    sem_post(&x->go);
    expect(x, "two", "\"status_str\":\"success\"");
}

static void post_change(struct world *x, struct worker_change c, struct answer *a)
{
    *a = (struct answer) { .world = x };
    worker_post_change(x->server, &c, on_answer, a);
}

static const char *retention_of(const json_t *model)
{
    return json_string_value(json_object_get(model, "retention"));
}

static const char *state_of(struct world *x)
{
    static char state[32];
    json_t *list = models(x);
    const char *s = json_string_value(json_object_get(json_array_get(list, 0), "state"));
    snprintf(state, sizeof state, "%s", s ? s : "");
    json_decref(list);
    return state;
}

/* The dry run is answered between nodes and tells of the end; the free itself waits for it. */
static void a_dry_run_is_answered_between_nodes(void **state)
{
    struct world *x = *state;
    struct answer dry, real;
    x->retention = RES_AUTO;
    begin_two(x, "HoldWait");
    ask_free(x, (struct worker_free) { .unload_models = true, .wait = true }, &real);
    ask_free(x, (struct worker_free) { .unload_models = true, .wait = true, .dry_run = true },
             &dry);
    next_node(x);
    wait_answer(&dry);
    assert_int_equal(dry.status, BERTH_OK);
    assert_non_null(strstr(str_c(&dry.text), "\"verdict\":\"ejected\""));
    assert_non_null(strstr(str_c(&dry.text), "\"dry_run\":true"));
    assert_int_equal(sem_trywait(&x->answered), -1); /* that was the only one */
    assert_string_equal(state_of(x), "resident");
    end_two(x);
    wait_answer(&real);
    assert_int_equal(real.status, BERTH_OK);
    assert_string_equal(state_of(x), "ejected");
    str_release(&dry.text);
    str_release(&real.text);
}

/* A mark is set at once, and acts at the end of the prompt that used the model. */
static void a_mark_is_set_between_nodes(void **state)
{
    struct world *x = *state;
    struct answer a;
    x->retention = RES_KEEP;
    uint64_t id = held_model(x);
    begin_two(x, "HoldWait");
    post_change(
        x, (struct worker_change) { .model = id, .sets_retention = true, .retention = RES_EJECT },
        &a);
    next_node(x);
    wait_answer(&a);
    if (a.status)
        fail_msg("%s", a.msg);
    json_t *v = parsed(&a.text);
    assert_string_equal(retention_of(v), "eject");
    assert_string_equal(state_of(x), "resident"); /* the prompt goes on with it */
    json_decref(v);
    str_release(&a.text);
    end_two(x);
    json_decref(receipt(x, (struct worker_free) { .dry_run = true })); /* the worker is through */
    assert_string_equal(state_of(x), "ejected");
}

/* Who moves blocks waits, and a mark of the same model waits behind: the later word is the last. */
static void a_mark_does_not_overtake(void **state)
{
    struct world *x = *state;
    struct answer a, b, look;
    uint64_t id = held_model(x);
    begin_two(x, "Wait");
    post_change(x,
                (struct worker_change) { .model = id,
                                         .allocation = strdup("cpu,*"),
                                         .sets_retention = true,
                                         .retention = RES_AUTO },
                &a);
    post_change(
        x, (struct worker_change) { .model = id, .sets_retention = true, .retention = RES_KEEP },
        &b);
    post_look(x, id, "cpu,*", &look); /* behind both in the queue */
    next_node(x);
    wait_answer(&look);
    assert_int_equal(look.status, BERTH_OK);
    assert_int_equal(a.times + b.times, 0);
    assert_int_equal(bytes_on(x, id, "device", "null:0"), 256 << 10);
    end_two(x);
    sem_wait(&x->answered);
    sem_wait(&x->answered);
    assert_true(a.status == BERTH_OK && b.status == BERTH_OK);
    assert_int_equal(bytes_on(x, id, "device", "cpu"), 256 << 10);
    json_t *v = parsed(&b.text);
    assert_string_equal(retention_of(v), "keep");
    json_decref(v);
    str_release(&a.text);
    str_release(&b.text);
    str_release(&look.text);
}

/* What has not begun when its client goes is not done; a free is, for that has no `left`. */
static void who_leaves_is_dropped(void **state)
{
    struct world *x = *state;
    struct answer moved, stays = { 0 }, dry, freed;
    atomic_bool left = false;
    uint64_t id = held_model(x);
    begin_two(x, "Wait");
    post_change(
        x, (struct worker_change) { .model = id, .allocation = strdup("cpu,*"), .left = &left },
        &moved);
    ask_free(x, (struct worker_free) { .tiers = RES_TIER_IDLE, .wait = true }, &freed);
    next_node(x);
    ask_free(x, (struct worker_free) { .dry_run = true, .left = &left }, &dry);
    atomic_store(&left, true);
    end_two(x);
    for (int i = 0; i < 3; i++)
        sem_wait(&x->answered);
    assert_int_equal(moved.status, BERTH_ECANCELED);
    assert_int_equal(dry.status, BERTH_ECANCELED);
    assert_int_equal(freed.status, BERTH_OK);
    assert_non_null(strstr(str_c(&freed.text), "\"serial\":1,"));
    assert_int_equal(bytes_on(x, id, "device", "null:0"), 256 << 10);
    atomic_store(&left, false);
    change(x,
           (struct worker_change) {
               .model = id, .sets_retention = true, .retention = RES_AUTO, .left = &left },
           &stays);
    assert_int_equal(stays.status, BERTH_OK);
    str_release(&freed.text);
    str_release(&stays.text);
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

/* What clients read does not change when its writer does. */
static void texts_keep_their_bytes(void **state)
{
    struct world *x = *state;
    struct answer a;
    struct str text = { 0 };
    uint64_t id = held_model(x);
    worker_models_json(x->server, &text);
    expect_bytes(&text,
                 "{\"models\":[{\"id\":0,\"name\":\"held\",\"role\":\"model\",\"path\":\"*\","
                 "\"part\":\"\",\"converted\":null,\"state\":\"resident\","
                 "\"retention\":\"keep\",\"anchors\":[{\"reason\":\"marked keep\","
                 "\"count\":0}],\"handles\":0,\"uses\":0,\"bytes\":0,\"resident\":0,"
                 "\"devices\":{\"null:0\":0},\"demoted\":0,\"patches\":0,\"loads\":0,"
                 "\"read\":0,\"moved\":0,\"attached\":0,\"plan\":{\"allocation\":\"null:0,"
                 "0b*#null:0\",\"layout\":\"spread\",\"compute\":\"null:0\"},"
                 "\"last_use\":0,\"blocks\":0}]}");
    assert_true(worker_model_json(x->server, id, true, &text));
    expect_bytes(&text,
                 "{\"id\":0,\"name\":\"held\",\"role\":\"model\",\"path\":\"*\",\"part\":\"\","
                 "\"converted\":null,\"state\":\"resident\",\"retention\":\"keep\","
                 "\"anchors\":[{\"reason\":\"marked keep\",\"count\":0}],\"handles\":0,"
                 "\"uses\":0,\"bytes\":0,\"resident\":0,\"devices\":{\"null:0\":0},"
                 "\"demoted\":0,\"patches\":0,\"loads\":0,\"read\":0,\"moved\":0,"
                 "\"attached\":0,\"plan\":{\"allocation\":\"null:0,0b*#null:0\","
                 "\"layout\":\"spread\",\"compute\":\"null:0\"},\"last_use\":0,"
                 "\"blocks\":[{\"name\":\"layers.0\",\"bytes\":0,\"device\":\"null:0\","
                 "\"planned\":\"null:0\"},{\"name\":\"layers.0\",\"bytes\":0,"
                 "\"device\":\"null:0\",\"planned\":\"null:0\"},{\"name\":\"layers.0\","
                 "\"bytes\":0,\"device\":\"null:0\",\"planned\":\"null:0\"},"
                 "{\"name\":\"layers.0\",\"bytes\":0,\"device\":\"null:0\","
                 "\"planned\":\"null:0\"}]}");
    worker_devices_json(x->server, &text);
    expect_bytes(&text, "{\"started\":0,\"devices\":[{\"name\":\"cpu\",\"kind\":\"cpu\","
                        "\"physical\":\"cpu\",\"hypothetical\":false,\"total\":0,\"free\":0,"
                        "\"budget\":0,\"in_use\":0,\"idle\":0,\"peak\":0,\"pinned\":0,"
                        "\"can\":[\"host-visible\",\"launch\"],\"tiers\":{\"weights\":0,"
                        "\"staging\":0,\"activations\":0,\"pinned\":0,\"pool-idle\":0}},"
                        "{\"name\":\"null:0\",\"kind\":\"null\",\"physical\":\"null:0\","
                        "\"hypothetical\":false,\"total\":0,\"free\":0,\"budget\":0,\"in_use\":0,"
                        "\"idle\":0,\"peak\":0,\"pinned\":0,\"can\":[\"async\",\"pinned\",\"peer\","
                        "\"launch\"],\"tiers\":{\"weights\":0,\"staging\":0,\"activations\":0,"
                        "\"pinned\":0,\"pool-idle\":0}}]}");
    worker_memory_json(x->server, UINT64_MAX, 1, &text);
    expect_bytes(&text, "{\"devices\":[{\"device\":\"cpu\",\"total\":0,\"free\":0,\"budget\":0,"
                        "\"retired\":0,\"tiers\":{\"weights\":0,\"staging\":0,\"activations\":0,"
                        "\"pinned\":0,\"pool-idle\":0},\"owners\":[]},{\"device\":\"null:0\","
                        "\"total\":0,\"free\":0,\"budget\":0,\"retired\":0,"
                        "\"tiers\":{\"weights\":0,\"staging\":0,\"activations\":0,\"pinned\":0,"
                        "\"pool-idle\":0},\"owners\":[{\"tier\":\"weights\",\"owner\":\"held#0\","
                        "\"bytes\":0,\"requested\":0,\"count\":0},{\"tier\":\"pool-idle\","
                        "\"owner\":null,\"bytes\":0,\"requested\":0,\"count\":0}]}],\"last\":0,"
                        "\"timeline\":[{\"seq\":0,\"time\":\"0-0-0T0:0:0.0Z\","
                        "\"identifier\":\"model:*\",\"tag\":\"post-load\","
                        "\"devices\":[{\"device\":\"cpu\",\"used\":0,\"total\":0},"
                        "{\"device\":\"null:0\",\"used\":0,\"total\":0}]}]}");
    worker_stats_json(x->server, &text);
    expect_bytes(&text, "[{\"name\":\"null:0\",\"type\":\"null\",\"index\":0,\"vram_total\":0,"
                        "\"vram_free\":0,\"torch_vram_total\":0,\"torch_vram_free\":0}]");
    worker_receipts_json(x->server, &text);
    expect_bytes(&text, "{\"receipts\":[]}");
    post_look(x, id, "cpu,50%;null:0,50%", &a);
    wait_answer(&a);
    expect_bytes(&a.text,
                 "{\n"
                 "  \"total_bytes\": 0,\n"
                 "  \"converted\": null,\n"
                 "  \"compute\": \"null:0\",\n"
                 "  \"devices\": [\n"
                 "    {\"device\": \"cpu\", \"bytes\": 0, \"blocks\": 0, \"share\": 0.0},\n"
                 "    {\"device\": \"null:0\", \"bytes\": 0, \"blocks\": 0,"
                 " \"share\": 0.0}\n"
                 "  ],\n"
                 "  \"blocks\": [\n"
                 "    {\"name\": \"layers.0\", \"bytes\": 0, \"device\": \"null:0\"},\n"
                 "    {\"name\": \"layers.0\", \"bytes\": 0, \"device\": \"cpu\"},\n"
                 "    {\"name\": \"layers.0\", \"bytes\": 0, \"device\": \"null:0\"},\n"
                 "    {\"name\": \"layers.0\", \"bytes\": 0, \"device\": \"cpu\"}\n"
                 "  ],\n"
                 "  \"string\": \"cpu,0b;null:0,0b*#null:0\",\n"
                 "  \"layout\": \"spread\",\n"
                 "  \"notes\": []\n"
                 ",\n"
                 "  \"now\": {\"null:0\":0},\n"
                 "  \"after\": {\"cpu\":0,\"null:0\":0},\n"
                 "  \"moves\": 0\n"
                 "}");
}

int main(void)
{
#define WITH(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH(blocks_are_where_they_are),
        WITH(a_look_changes_nothing),
        WITH(texts_keep_their_bytes),
        WITH(a_look_is_answered_between_nodes),
        WITH(a_dry_run_is_answered_between_nodes),
        WITH(a_mark_is_set_between_nodes),
        WITH(a_mark_does_not_overtake),
        WITH(who_leaves_is_dropped),
        WITH(a_look_is_canceled_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
