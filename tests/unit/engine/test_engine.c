/* engine: the course of a run, the frees behind it, and what prompts may look like. */
#include "base/json.h"
#include "engine/engine.h"
#include "support/models.h"
#include "support/oom.h"

struct world {
    struct fixture f;
    struct folders *folders;
    struct engine *e;
    struct str trace; /* what was called back, a word each */
    struct res_model *held;
    enum res_retention retention;
    char model[256];
    atomic_bool cancel;
    bool previews; /* as the last node saw them */
};
static struct world *here; /* nodes have no user data */

/* ---- nodes ---- */

static berth_status run_hello(struct node_call *c, berth_err *err)
{
    here->previews = c->env->previews;
    return ui_add(c, "text", json_string("hello"), err);
}

static berth_status run_hungry(struct node_call *c, berth_err *err)
{
    (void)c;
    return err_set(err, BERTH_ENODEVMEM, "null:0 is full");
}

/* Opens, loads and uses a model, and keeps the handle. */
static berth_status run_hold(struct node_call *c, berth_err *err)
{
    const struct res_open_args a = {
        .path = here->model, .name = "held", .plan.alloc = "null:0,*", .retention = here->retention
    };
    if (res_open(c->env->res, &a, &here->held, NULL, err) ||
        res_load(here->held, NULL, NULL, err) || res_use_begin(here->held, err))
        return err->code;
    res_use_end(here->held);
    return ui_add(c, "done", json_true(), err);
}

static berth_status run_stop(struct node_call *c, berth_err *err)
{
    atomic_store(&here->cancel, true);
    return call_check(c, err);
}

static const struct node_input nothing[1];
#define OUTPUT(n, fn)                                                                              \
    {                                                                                              \
        .name = n, .category = "test", .module = "nodes", .flags = NODE_OUTPUT, .in = nothing,     \
        .run = fn                                                                                  \
    }
static const struct node_class classes[] = { OUTPUT("Hello", run_hello),
                                             OUTPUT("Hungry", run_hungry), OUTPUT("Hold", run_hold),
                                             OUTPUT("Stop", run_stop) };

static const struct node_class *find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (strcmp(classes[i].name, name) == 0)
            return &classes[i];
    return NULL;
}

/* ---- the world ---- */

static struct engine_config config(struct world *x)
{
    return (struct engine_config) { .res = x->f.r, .devices = x->f.set, .folders = x->folders };
}

static void open_engine(struct world *x, bool unload)
{
    struct engine_config cfg = config(x);
    berth_err err = { 0 };
    cfg.unload_after_prompt = unload;
    assert_ok(engine_new(&cfg, &x->e, &err), err);
    engine_set_classes(x->e, find);
}

static int setup(void **state)
{
    struct world *x = calloc(1, sizeof *x);
    berth_err err = { 0 };
    if (!x)
        return -1;
    fixture_open(&x->f, "cpu=64m,null:0=64m", &(struct res_config) { .pressure_percent = 101 });
    snprintf(x->model, sizeof x->model, "%s", model_file("held.safetensors", 4, 4096));
    assert_ok(folders_new(&(struct folders_config) { .base = tmp_dir() }, &x->folders, &err), err);
    open_engine(x, false);
    here = *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct world *x = *state;
    engine_free(x->e);
    res_unref(x->held);
    folders_free(x->folders);
    fixture_close(&x->f);
    str_release(&x->trace);
    free(x);
    return 0;
}

/* ---- events as words ---- */

static void on_event(void *user, const struct exec_event *e)
{
    static const char *const word[] = {
        [EXEC_START] = "start",     [EXEC_CACHED] = "cached",
        [EXEC_NODE_START] = "node", [EXEC_PROGRESS] = "progress",
        [EXEC_TEXT] = "text",       [EXEC_EXECUTED] = "executed",
        [EXEC_NODE_DONE] = "done",  [EXEC_SUCCESS] = "success",
        [EXEC_ERROR] = "error",     [EXEC_INTERRUPTED] = "interrupted",
    };
    str_addf(&((struct world *)user)->trace, "%s ", word[e->kind]);
}

static void on_ended(void *user, const struct exec_result *r)
{
    on_event(user, &r->last);
}

/* What others ask for during a prompt. */
struct asked {
    struct res_request q; /* first */
    struct world *world;
};

static void on_request(struct res_request *q, bool canceled)
{
    assert_false(canceled);
    str_adds(&((struct asked *)q)->world->trace, "request ");
}

static struct asked ask(struct world *x)
{
    return (struct asked) { .q.run = on_request, .world = x };
}

static void on_receipt(void *user, struct res_receipt *r)
{
    str_addf(&((struct world *)user)->trace, "receipt(%s) ", r->reason);
}

static struct engine_events events(struct world *x)
{
    return (struct engine_events) {
        .user = x, .event = on_event, .ended = on_ended, .receipt = on_receipt
    };
}

static void run(struct world *x, const char *class_type, struct exec_result *r)
{
    berth_err err = { 0 };
    const struct engine_events ev = events(x);
    json_t *prompt = json_pack("{s:{s:s, s:{}}}", "1", "class_type", class_type, "inputs");
    json_t *outputs = json_pack("[s]", "1");
    const struct exec_request q = {
        .prompt_id = "p", .prompt = prompt, .outputs = outputs, .cancel = &x->cancel
    };
    struct asked asked = ask(x);
    str_clear(&x->trace);
    res_request(x->f.r, &asked.q);
    assert_ok(engine_run(x->e, &q, &ev, r, &err), err);
    json_decref(prompt);
    json_decref(outputs);
}

static void expect(struct world *x, const char *class_type, enum exec_outcome outcome,
                   const char *trace)
{
    struct exec_result r;
    run(x, class_type, &r);
    assert_int_equal(r.outcome, outcome);
    assert_string_equal(str_c(&x->trace), trace);
    exec_result_release(&r);
}

/* ---- tests ---- */

/* What stores a result does so before the frees, and what others asked for comes before the
 * prompt's own. */
static void runs_in_order(void **state)
{
    expect(*state, "Hello", EXEC_OK, "start cached node executed done success request ");
    expect(*state, "Hello", EXEC_OK, "start cached executed done success request ");
}

static void automatic_free_is_last(void **state)
{
    struct world *x = *state;
    x->retention = RES_EJECT;
    struct exec_result r;
    run(x, "Hold", &r);
    assert_non_null(strstr(str_c(&x->trace), "success request receipt("));
    exec_result_release(&r);
}

static void ask_late(void *user, const struct exec_result *r)
{
    struct asked *late = user;
    (void)r;
    res_request(late->world->f.r, &late->q);
    res_request_free(late->world->f.r, true, false, false);
}

/* A request of somebody who has seen the prompt end is not served in place of its own cleanup. */
static void late_requests_wait(void **state)
{
    struct world *x = *state;
    struct asked late = ask(x);
    const struct engine_events ev = { .user = &late, .ended = ask_late };
    const berth_err why = { .code = BERTH_EFORMAT };
    struct exec_result r;
    struct res_receipt receipt;
    berth_err err = { 0 };
    engine_refuse(x->e, "p", &why, &ev, &r);
    assert_string_equal(str_c(&x->trace), "");
    assert_int_equal(res_metrics(x->f.r).frees, 0);
    assert_true(res_has_requests(x->f.r));
    assert_ok(res_settle(x->f.r, &receipt, &err), err);
    assert_string_equal(str_c(&x->trace), "request ");
    assert_int_equal(receipt.serial, 1);
    assert_false(res_has_requests(x->f.r));
    res_receipt_release(&receipt);
    exec_result_release(&r);
}

/* The next prompt finds room: what may go does, marked models first, then the others. */
static void out_of_memory_unloads(void **state)
{
    struct world *x = *state;
    berth_err err = { 0 };
    const struct res_open_args a = {
        .path = x->model, .name = "held", .plan.alloc = "null:0,*", .retention = RES_AUTO
    };
    assert_ok(res_open(x->f.r, &a, &x->held, NULL, &err), err);
    assert_ok(res_load(x->held, NULL, NULL, &err), err);
    expect(x, "Hungry", EXEC_FAILED, "start cached node error receipt(out of memory) request ");
    assert_int_equal(res_info(x->held).state, RES_EJECTED);
}

static void unloads_after_every_prompt(void **state)
{
    struct world *x = *state;
    engine_free(x->e);
    open_engine(x, true);
    expect(x, "Hello", EXEC_OK,
           "start cached node executed done success receipt(the prompt ended) request ");
}

static void stops(void **state)
{
    struct world *x = *state;
    expect(x, "Stop", EXEC_STOPPED, "start cached node interrupted request ");
}

static void previews_are_asked_for(void **state)
{
    struct world *x = *state;
    berth_err err = { 0 };
    json_t *prompt = json_pack("{s:{s:s, s:{}}}", "1", "class_type", "Hello", "inputs");
    json_t *outputs = json_pack("[s]", "1");
    const struct exec_request q = {
        .prompt_id = "p", .prompt = prompt, .outputs = outputs, .cancel = &x->cancel
    };
    for (int on = 0; on < 2; on++) {
        const struct engine_events ev = { .previews = on };
        struct exec_result r;
        assert_ok(engine_run(x->e, &q, &ev, &r, &err), err);
        assert_int_equal(x->previews, on);
        exec_result_release(&r);
        engine_reset(x->e); /* else the second one is cached */
    }
    struct exec_result r;
    assert_ok(engine_run(x->e, &q, NULL, &r, &err), err); /* nobody listens */
    exec_result_release(&r);
    json_decref(prompt);
    json_decref(outputs);
}

/* A prompt that cannot begin ends as one that failed, with the same words for clients. */
static void refuses(void **state)
{
    struct world *x = *state;
    const struct engine_events ev = events(x);
    berth_err why;
    struct exec_result r;
    struct str text = { 0 };
    err_set(&why, BERTH_EFORMAT, "prompt: not an object");
    struct asked asked = ask(x);
    res_request(x->f.r, &asked.q);
    engine_refuse(x->e, "p", &why, &ev, &r);
    assert_string_equal(str_c(&x->trace), "error request ");
    assert_int_equal(r.outcome, EXEC_FAILED);
    assert_int_equal(r.code, BERTH_EFORMAT);
    js_write(r.status, 0, &text);
    assert_non_null(strstr(str_c(&text), "\"exception_message\":\"prompt: not an object\\n\""));
    assert_non_null(strstr(str_c(&text), "[[\"execution_error\",{\"prompt_id\":\"p\""));
    str_release(&text);
    exec_result_release(&r);
}

/* A free with free_memory drops cached results; the engine that goes is not called any more. */
static void frees_reset(void **state)
{
    struct world *x = *state;
    berth_err err = { 0 };
    const struct res_free_args args = { .unload_models = true, .free_memory = true };
    expect(x, "Hello", EXEC_OK, "start cached node executed done success request ");
    assert_int_equal(engine_info(x->e).entries, 1);
    assert_ok(res_free(x->f.r, &args, NULL, &err), err);
    assert_int_equal(engine_info(x->e).entries, 0);
    engine_free(x->e);
    x->e = NULL;
    assert_ok(res_free(x->f.r, &args, NULL, &err), err);
}

static void unwraps(void **state)
{
    static const struct {
        const char *text;
        berth_status status;
        size_t nodes;
        bool extra;
    } row[] = {
        { "{\"1\":{\"class_type\":\"A\"}}", BERTH_OK, 1, false },
        { "{\"prompt\":{\"1\":{\"class_type\":\"A\"},\"2\":{}},\"extra_data\":{}}", BERTH_OK, 2,
          true },
        { "{\"prompt\":{\"class_type\":\"A\"}}", BERTH_OK, 1, false }, /* a node of that name */
        { "{\"nodes\":[],\"links\":[]}", BERTH_EUNSUPPORTED, 0, false },
        { "[1]", BERTH_EFORMAT, 0, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        json_t *all, *prompt, *extra;
        berth_err err = { 0 };
        assert_ok(js_parse(row[i].text, strlen(row[i].text), NULL, &all, &err), err);
        assert_int_equal(engine_unwrap(all, &prompt, &extra, &err), row[i].status);
        assert_int_equal(json_object_size(prompt), row[i].nodes);
        assert_int_equal(extra != NULL, row[i].extra);
        json_decref(prompt);
        json_decref(extra);
        json_decref(all);
    }
}

static void finds_files(void **state)
{
    struct world *x = *state;
    json_t *item =
        json_pack("{s:s, s:s, s:s}", "filename", "a.png", "subfolder", "b", "type", "output");
    struct str path = { 0 }, want = { 0 };
    str_addf(&want, "%s/b/a.png", folders_own(x->folders, FOLDERS_OUTPUT));
    assert_true(engine_file_path(x->folders, item, &path));
    assert_string_equal(str_c(&path), str_c(&want));
    json_object_set_new(item, "type", json_string("elsewhere"));
    assert_false(engine_file_path(x->folders, item, &path));
    assert_false(engine_file_path(x->folders, NULL, &path));
    json_decref(item);
    str_release(&path);
    str_release(&want);
}

static void opening_survives_oom(void **state)
{
    struct world *x = *state;
    const struct engine_config cfg = config(x);
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    engine_free(x->e);
    for (; s && k < 1000; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = engine_new(&cfg, &x->e, &err);
        oom_off();
        assert_true(!s == !!x->e);
        assert_true(!s || (s == BERTH_ENOMEM && err.msg[0]));
    }
    assert_true(k > 4);
}

/* Out of memory in the middle: always a result, and it says what was missing or that it worked. */
static void runs_survive_oom(void **state)
{
    struct world *x = *state;
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s && k < 1000; k++) {
        berth_err err = { 0 };
        json_t *prompt = json_pack("{s:{s:s, s:{}}}", "1", "class_type", "Hello", "inputs");
        json_t *outputs = json_pack("[s]", "1");
        const struct exec_request q = {
            .prompt_id = "p", .prompt = prompt, .outputs = outputs, .cancel = &x->cancel
        };
        struct exec_result r;
        engine_reset(x->e);
        oom_once(k);
        s = engine_run(x->e, &q, NULL, &r, &err);
        bool hit = oom_seen() > k;
        oom_off();
        assert_true(r.outcome == EXEC_OK || r.outcome == EXEC_FAILED);
        assert_true(!s || err.msg[0]);
        s = hit ? BERTH_ENOMEM : s; /* on until every allocation has failed once */
        exec_result_release(&r);
        json_decref(prompt);
        json_decref(outputs);
    }
    assert_int_equal(s, BERTH_OK);
}

int main(void)
{
#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(runs_in_order),
        TEST(automatic_free_is_last),
        TEST(late_requests_wait),
        TEST(out_of_memory_unloads),
        TEST(unloads_after_every_prompt),
        TEST(stops),
        TEST(previews_are_asked_for),
        TEST(refuses),
        TEST(frees_reset),
        TEST(unwraps),
        TEST(finds_files),
        TEST(opening_survives_oom),
        TEST(runs_survive_oom),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
