/* The traces of comfyui-api.md 2.5, message by message. */
#include "base/json.h"
#include "server/events.h"
#include "support/oom.h"
#include "support/test.h"

/* ---- a hub that writes down what it is given: "<sid> <type> <detail>" a line ---- */

struct heard {
    struct str lines;
    struct str last; /* last text message, whole */
    struct str image;
    bool png;
    bool deaf; /* nobody listens */
    uint64_t run;
    struct str texts; /* all messages, one a line */
};

static bool hear_anything(struct server *user, const char *sid)
{
    (void)sid;
    return !((const struct heard *)(const void *)user)->deaf;
}

static void detail(const json_t *m, struct str *out)
{
    const json_t *data = json_object_get(m, "data"), *nodes = json_object_get(data, "nodes");
    const char *type = json_string_value(json_object_get(m, "type"));
    const char *id;
    json_t *v;
    if (strcmp(type, "progress_state") == 0) {
        json_object_foreach((json_t *)nodes, id, v)
        {
            str_addf(out, " %s:%s:", id, json_string_value(json_object_get(v, "state")));
            js_write(json_object_get(v, "value"), 0, out);
            str_addc(out, '/');
            js_write(json_object_get(v, "max"), 0, out);
        }
    } else if (strcmp(type, "executing") == 0 || strcmp(type, "executed") == 0) {
        str_addc(out, ' ');
        js_write(json_object_get(data, "node"), 0, out);
    } else if (strcmp(type, "progress") == 0) {
        str_addc(out, ' ');
        js_write(json_object_get(data, "value"), 0, out);
        str_addc(out, '/');
        js_write(json_object_get(data, "max"), 0, out);
    }
    if (strcmp(type, "executed") == 0) {
        str_addc(out, ' ');
        js_write(json_object_get(data, "output"), 0, out);
    }
}

static void hear_text(struct server *user, const char *sid, struct str *taken)
{
    struct heard *h = (void *)user;
    json_t *m;
    berth_err err = { 0 };
    assert_ok(js_parse(taken->p, taken->n, NULL, &m, &err), err);
    assert_int_equal(json_object_size(m), 2);
    str_addf(&h->lines, "%s %s", sid ? sid : "*", json_string_value(json_object_get(m, "type")));
    detail(m, &h->lines);
    str_addc(&h->lines, '\n');
    str_clear(&h->last);
    str_add(&h->last, taken->p, taken->n);
    str_addf(&h->texts, "%s\n", taken->p);
    json_decref(m);
    str_release(taken);
}

static void hear_state(struct server *user, const char *sid, uint64_t run, struct str *taken)
{
    struct heard *h = (void *)user;
    h->run = run;
    hear_text(user, sid, taken);
}

/* The message of its step comes with it. */
static void hear_preview(struct server *user, const char *sid, struct hub_preview *taken)
{
    struct heard *h = (void *)user;
    str_addf(&h->lines, "%s preview %s %s\n", sid ? sid : "*", taken->node,
             taken->png ? "png" : "jpeg");
    hear_text(user, sid, &taken->progress);
    str_release(&h->image);
    h->image = taken->bytes;
    h->png = taken->png;
    taken->bytes = (struct str) { 0 };
}

static void hear_label(struct server *user, const char *node, const char *p, size_t n)
{
    struct heard *h = (void *)user;
    str_addf(&h->lines, "* label %s %.*s\n", node, (int)n, p);
}

static struct events listen_to(struct heard *h, const char *client)
{
    *h = (struct heard) { 0 };
    return (struct events) {
        .out = { .server = (void *)h,
                 .listens = hear_anything,
                 .text = hear_text,
                 .state = hear_state,
                 .preview = hear_preview,
                 .label = hear_label },
        .run = 7,
        .prompt_id = "P",
        .client_id = client,
        .preview_size = 32,
    };
}

static void heard_release(struct heard *h)
{
    str_release(&h->lines);
    str_release(&h->last);
    str_release(&h->texts);
    str_release(&h->image);
}

static void heard_is(struct heard *h, const char *want)
{
    assert_string_equal(str_c(&h->lines), want);
    heard_release(h);
}

/* ---- what the executor would report ---- */

static void say(struct events *e, enum exec_event_kind kind, const char *node)
{
    json_t *data = json_pack("{s:s, s:i}", "prompt_id", "P", "timestamp", 1);
    json_t *ui = json_pack("{s:[{s:s}]}", "images", "filename", "a.png");
    struct exec_event x = { .kind = kind,
                            .prompt_id = "P",
                            .node = node,
                            .display_node = node,
                            .real_node = node,
                            .data = data,
                            .output = ui };
    events_send(e, &x);
    json_decref(data);
    json_decref(ui);
}

static void tick(struct events *e, const char *node, double value, double max)
{
    events_send(e, &(struct exec_event) {
                       .kind = EXEC_PROGRESS, .node = node, .value = value, .max = max });
}

static void success(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    (void)state;
    say(&e, EXEC_START, NULL);
    say(&e, EXEC_CACHED, NULL);
    say(&e, EXEC_NODE_START, "1");
    say(&e, EXEC_NODE_DONE, "1");
    say(&e, EXEC_NODE_START, "2");
    tick(&e, "2", 1, 2);
    tick(&e, "2", 2, 2);
    say(&e, EXEC_EXECUTED, "2");
    say(&e, EXEC_NODE_DONE, "2");
    say(&e, EXEC_SUCCESS, NULL);
    events_end(&e);
    heard_is(&h, "c execution_start\n"
                 "c execution_cached\n"
                 "c progress_state 1:running:0.0/1.0\n"
                 "c executing \"1\"\n"
                 "c progress_state 1:finished:1.0/1.0\n"
                 "c progress_state 1:finished:1.0/1.0 2:running:0.0/1.0\n"
                 "c executing \"2\"\n"
                 "c progress_state 1:finished:1.0/1.0 2:running:1/2\n"
                 "c progress 1/2\n"
                 "c progress_state 1:finished:1.0/1.0 2:running:2/2\n"
                 "c progress 2/2\n"
                 "c executed \"2\" {\"images\":[{\"filename\":\"a.png\"}]}\n"
                 "c progress_state 1:finished:1.0/1.0 2:finished:2/2\n"
                 "c execution_success\n"
                 "c executing null\n");
    assert_int_equal(e.dropped, 0);
}

static void messages_keep_their_bytes(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    (void)state;
    say(&e, EXEC_CACHED, NULL);
    say(&e, EXEC_NODE_START, "1");
    say(&e, EXEC_NODE_DONE, "1");
    tick(&e, "2", 0.5, 2);
    say(&e, EXEC_NODE_DONE, "2");
    events_send(&e, &(struct exec_event) { .kind = EXEC_EXECUTED, .node = "2" });
    events_end(&e);
    assert_string_equal(str_c(&h.texts),
                        "{\"type\":\"execution_cached\",\"data\":{\"prompt_id\":\"P\","
                        "\"timestamp\":1}}\n"
                        "{\"type\":\"progress_state\",\"data\":{\"prompt_id\":\"P\","
                        "\"nodes\":{\"1\":{\"value\":0.0,\"max\":1.0,\"state\":\"running\","
                        "\"node_id\":\"1\",\"prompt_id\":\"P\",\"display_node_id\":\"1\","
                        "\"parent_node_id\":null,\"real_node_id\":\"1\"}}}}\n"
                        "{\"type\":\"executing\",\"data\":{\"node\":\"1\",\"display_node\":\"1\","
                        "\"prompt_id\":\"P\"}}\n"
                        "{\"type\":\"progress_state\",\"data\":{\"prompt_id\":\"P\","
                        "\"nodes\":{\"1\":{\"value\":1.0,\"max\":1.0,\"state\":\"finished\","
                        "\"node_id\":\"1\",\"prompt_id\":\"P\",\"display_node_id\":\"1\","
                        "\"parent_node_id\":null,\"real_node_id\":\"1\"}}}}\n"
                        "{\"type\":\"progress_state\",\"data\":{\"prompt_id\":\"P\","
                        "\"nodes\":{\"1\":{\"value\":1.0,\"max\":1.0,\"state\":\"finished\","
                        "\"node_id\":\"1\",\"prompt_id\":\"P\",\"display_node_id\":\"1\","
                        "\"parent_node_id\":null,\"real_node_id\":\"1\"},\"2\":{\"value\":0.5,"
                        "\"max\":2,\"state\":\"running\",\"node_id\":\"2\",\"prompt_id\":\"P\","
                        "\"display_node_id\":\"2\",\"parent_node_id\":null,"
                        "\"real_node_id\":\"2\"}}}}\n"
                        "{\"type\":\"progress\",\"data\":{\"value\":0.5,\"max\":2,"
                        "\"prompt_id\":\"P\",\"node\":\"2\"}}\n"
                        "{\"type\":\"progress_state\",\"data\":{\"prompt_id\":\"P\","
                        "\"nodes\":{\"1\":{\"value\":1.0,\"max\":1.0,\"state\":\"finished\","
                        "\"node_id\":\"1\",\"prompt_id\":\"P\",\"display_node_id\":\"1\","
                        "\"parent_node_id\":null,\"real_node_id\":\"1\"},\"2\":{\"value\":2,"
                        "\"max\":2,\"state\":\"finished\",\"node_id\":\"2\",\"prompt_id\":\"P\","
                        "\"display_node_id\":\"2\",\"parent_node_id\":null,"
                        "\"real_node_id\":\"2\"}}}}\n"
                        "{\"type\":\"executed\",\"data\":{\"node\":\"2\",\"display_node\":\"2\","
                        "\"output\":null,\"prompt_id\":\"P\"}}\n"
                        "{\"type\":\"executing\",\"data\":{\"node\":null,\"prompt_id\":\"P\"}}\n");
    heard_release(&h);
}

/* Outputs of cached nodes are told, but nothing runs. */
static void fully_cached(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    (void)state;
    say(&e, EXEC_START, NULL);
    say(&e, EXEC_CACHED, NULL);
    events_send(&e, &(struct exec_event) { .kind = EXEC_EXECUTED, .node = "2" });
    say(&e, EXEC_NODE_DONE, "2");
    say(&e, EXEC_SUCCESS, NULL);
    events_end(&e);
    heard_is(&h, "c execution_start\n"
                 "c execution_cached\n"
                 "c executed \"2\" null\n"
                 "c progress_state 2:finished:1.0/1.0\n"
                 "c execution_success\n"
                 "c executing null\n");
}

/* The node that failed stays running. */
static void error_and_interrupt(void **state)
{
    static const struct {
        enum exec_event_kind kind;
        const char *type;
    } end[] = { { EXEC_ERROR, "execution_error" }, { EXEC_INTERRUPTED, "execution_interrupted" } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(end); i++) {
        struct heard h;
        struct events e = listen_to(&h, "c");
        char want[200];
        say(&e, EXEC_NODE_START, "1");
        say(&e, end[i].kind, "1");
        events_end(&e);
        snprintf(want, sizeof want,
                 "c progress_state 1:running:0.0/1.0\nc executing \"1\"\nc %s\nc executing null\n",
                 end[i].type);
        heard_is(&h, want);
    }
}

/* All sockets see progress and interrupts, nobody the rest. */
static void nobody_asked(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, NULL);
    (void)state;
    say(&e, EXEC_START, NULL);
    say(&e, EXEC_CACHED, NULL);
    say(&e, EXEC_NODE_START, "1");
    tick(&e, "1", 1, 4);
    say(&e, EXEC_EXECUTED, "1");
    say(&e, EXEC_NODE_DONE, "1");
    say(&e, EXEC_SUCCESS, NULL);
    say(&e, EXEC_ERROR, "1");
    say(&e, EXEC_INTERRUPTED, "1");
    events_end(&e);
    heard_is(&h, "* progress_state 1:running:0.0/1.0\n"
                 "* progress_state 1:running:1/4\n"
                 "* progress 1/4\n"
                 "* progress_state 1:finished:4/4\n"
                 "* execution_interrupted\n");
}

/* A client that gave an empty id, as the frontend does before it has one: a name like any other. */
static void empty_client_id(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "");
    (void)state;
    say(&e, EXEC_START, NULL);
    events_end(&e);
    heard_is(&h, " execution_start\n executing null\n");
}

/* A node that waited for lazy inputs begins twice and is one entry. */
static void lazy_again(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    (void)state;
    say(&e, EXEC_NODE_START, "1");
    tick(&e, "1", 1, 2);
    say(&e, EXEC_NODE_START, "1");
    events_end(&e);
    heard_is(&h, "c progress_state 1:running:0.0/1.0\nc executing \"1\"\n"
                 "c progress_state 1:running:1/2\nc progress 1/2\n"
                 "c progress_state 1:running:0.0/1.0\nc executing \"1\"\nc executing null\n");
}

static void state_has_every_member(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    (void)state;
    e.prompt_id = "P \"1\"";
    struct exec_event x = { .kind = EXEC_NODE_DONE,
                            .node = "5.0.0.1",
                            .display_node = "5",
                            .parent_node = "5",
                            .real_node = "7" };
    events_send(&e, &x);
    assert_string_equal(
        str_c(&h.last),
        "{\"type\":\"progress_state\",\"data\":{\"prompt_id\":\"P \\\"1\\\"\",\"nodes\":{"
        "\"5.0.0.1\":{\"value\":1.0,\"max\":1.0,\"state\":\"finished\",\"node_id\":\"5.0.0.1\","
        "\"prompt_id\":\"P \\\"1\\\"\",\"display_node_id\":\"5\",\"parent_node_id\":\"5\","
        "\"real_node_id\":\"7\"}}}}");
    tick(&e, "5.0.0.1", 0.5, 1.0 / 0.0); /* JSON has no infinity */
    assert_non_null(strstr(str_c(&h.last), "{\"value\":0.5,\"max\":null,"));
    events_end(&e);
    heard_release(&h);
}

/* ---- pictures ---- */

static struct image picture(uint32_t w, uint32_t h, unsigned channels)
{
    struct image im;
    berth_err err = { 0 };
    assert_ok(image_init(&im, w, h, channels, &err), err);
    for (size_t i = 0; i < (size_t)w * h * channels; i++)
        im.px[i] = (uint8_t)(i / channels % w * 255 / w);
    return im;
}

static void previews(void **state)
{
    static const struct {
        uint32_t w, h, want_w, want_h;
        bool png;
    } row[] = {
        { 64, 64, 32, 32, false }, { 8, 8, 32, 32, false },  { 100, 50, 32, 16, false },
        { 1, 300, 1, 32, false },  { 300, 1, 32, 1, false }, { 32, 32, 32, 32, false },
        { 33, 7, 33, 7, true },    { 5, 100, 2, 32, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct heard h;
        struct events e = listen_to(&h, "c");
        struct image im = picture(row[i].w, row[i].h, i % 2 ? 3 : 1);
        struct image_file got = { 0 };
        berth_err err = { 0 };
        events_send(&e, &(struct exec_event) { .kind = EXEC_PROGRESS,
                                               .node = "3",
                                               .value = 1,
                                               .max = 4,
                                               .picture = &im,
                                               .png = row[i].png });
        assert_int_equal(e.dropped, 0);
        char want[100];
        snprintf(want, sizeof want,
                 "c progress_state 3:running:1/4\nc preview 3 %s\nc progress 1/4\n",
                 row[i].png ? "png" : "jpeg");
        assert_string_equal(str_c(&h.lines), want);
        assert_ok(image_decode((const uint8_t *)h.image.p, h.image.n, NULL, &got, &err), err);
        assert_string_equal(got.format, row[i].png ? "png" : "jpeg");
        assert_int_equal(got.w, row[i].want_w);
        assert_int_equal(got.h, row[i].want_h);
        image_file_release(&got);
        image_release(&im);
        events_end(&e);
        heard_release(&h);
    }
}

/* Nobody listens: nothing is made, not even a picture; what happened meanwhile is in the state of
 * whoever comes later. */
static void nobody_listens(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    struct image im = picture(8, 8, 3);
    (void)state;
    h.deaf = true;
    say(&e, EXEC_START, NULL);
    say(&e, EXEC_NODE_START, "1");
    say(&e, EXEC_NODE_DONE, "1");
    events_send(&e, &(struct exec_event) {
                        .kind = EXEC_PROGRESS, .node = "2", .value = 1, .max = 2, .picture = &im });
    say(&e, EXEC_EXECUTED, "2");
    assert_int_equal(h.image.n, 0);
    h.deaf = false;
    say(&e, EXEC_NODE_DONE, "2");
    assert_int_equal(h.run, 7);
    events_end(&e);
    image_release(&im);
    heard_is(&h, "c executing \"1\"\n" /* a few bytes: not worth asking */
                 "c progress_state 1:finished:1.0/1.0 2:finished:2/2\nc executing null\n");
}

/* The text of what finished is kept, and given up when a node of it changes. */
static void states_are_whole_whatever_happened(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, NULL);
    (void)state;
    for (int i = 0; i < 4; i++) {
        char id[2] = { (char)('a' + i), '\0' };
        say(&e, EXEC_NODE_START, id);
        if (i != 2) /* c waits for the others */
            say(&e, EXEC_NODE_DONE, id);
    }
    say(&e, EXEC_NODE_DONE, "c");
    assert_int_equal(e.done_n, 4);
    str_clear(&h.lines);
    tick(&e, "b", 1, 3);
    say(&e, EXEC_NODE_START, "a");
    say(&e, EXEC_NODE_DONE, "b");
    say(&e, EXEC_NODE_DONE, "a");
    events_end(&e);
    heard_is(&h, "* progress_state a:finished:1.0/1.0 b:finished:3/3 c:finished:1.0/1.0 "
                 "d:finished:1.0/1.0\n"
                 "* progress 1/3\n"
                 "* progress_state a:running:0.0/1.0 b:finished:3/3 c:finished:1.0/1.0 "
                 "d:finished:1.0/1.0\n"
                 "* progress_state a:running:0.0/1.0 b:finished:3/3 c:finished:1.0/1.0 "
                 "d:finished:1.0/1.0\n"
                 "* progress_state a:finished:1.0/1.0 b:finished:3/3 c:finished:1.0/1.0 "
                 "d:finished:1.0/1.0\n");
}

static void labels(void **state)
{
    struct heard h;
    struct events e = listen_to(&h, "c");
    (void)state;
    events_send(&e, &(struct exec_event) {
                        .kind = EXEC_TEXT, .node = "3", .text = "half done", .text_n = 4 });
    events_end(&e);
    heard_is(&h, "* label 3 half\nc executing null\n");
}

/* What memory does not suffice for is left out and counted; what comes is whole. */
static void hear_whole(struct server *user, const char *sid, struct str *taken)
{
    unsigned *count = (void *)user;
    (void)sid;
    assert_false(taken->bad);
    assert_true(str_starts(taken->p, taken->n, "{\"type\":") && str_ends(taken->p, taken->n, "}}"));
    ++*count;
    str_release(taken);
}

static bool always(struct server *user, const char *sid)
{
    (void)user, (void)sid;
    return true;
}

static void hear_whole_state(struct server *user, const char *sid, uint64_t run, struct str *taken)
{
    (void)run;
    hear_whole(user, sid, taken);
}

static void survives_oom(void **state)
{
    unsigned heard, k = 0;
    struct events e;
    (void)state;
    do {
        heard = 0;
        e = (struct events) { .out = { .server = (void *)&heard,
                                       .listens = always,
                                       .text = hear_whole,
                                       .state = hear_whole_state },
                              .prompt_id = "P",
                              .client_id = "c" };
        struct exec_event x = { .kind = EXEC_NODE_START, .node = "1" };
        oom_after((long)k++);
        events_send(&e, &x);
        x.kind = EXEC_NODE_DONE;
        events_send(&e, &x);
        oom_off();
        size_t dropped = e.dropped;
        events_end(&e);
        e.dropped = dropped;
    } while (e.dropped && k < 200);
    assert_int_equal(heard, 4); /* with executing null */
    assert_true(k > 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success),
        cmocka_unit_test(messages_keep_their_bytes),
        cmocka_unit_test(fully_cached),
        cmocka_unit_test(error_and_interrupt),
        cmocka_unit_test(nobody_asked),
        cmocka_unit_test(empty_client_id),
        cmocka_unit_test(lazy_again),
        cmocka_unit_test(state_has_every_member),
        cmocka_unit_test(previews),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(states_are_whole_whatever_happened),
        cmocka_unit_test(labels),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
