/* worker_rig: a worker's thread with a whole server around it: jobs go in through the store,
 * requests through worker.h; nobody connects. The nodes are the tests' own: one that waits to be
 * let go, one that runs out of memory, one that holds a model. */
#ifndef SUPPORT_WORKER_RIG_H
#define SUPPORT_WORKER_RIG_H

#include "base/json.h"
#include "server/worker_impl.h"
#include "support/models.h"

#include <semaphore.h>
#include <unistd.h>

struct world {
    berth_ctx *ctx;
    struct folders *folders;
    struct server *server;
    pthread_t loop;
    atomic_bool stop;
    sem_t entered, go; /* the node `Wait`: it is inside, it may leave */
    sem_t answered;
    char model[256]; /* file that `Hold` opens */
    enum res_retention retention;
    struct res_model *held; /* by `Hold`, in place of a cached output */
};
static struct world *here; /* nodes have no user data */

/* ---- nodes ---- */

static inline berth_status run_wait(struct node_call *c, berth_err *err)
{
    sem_post(&here->entered);
    while (sem_trywait(&here->go) != 0) {
        if (call_check(c, err))
            return err->code;
        usleep(1000);
    }
    return ui_add(c, "done", json_true(), err);
}

static inline berth_status run_hungry(struct node_call *c, berth_err *err)
{
    (void)c;
    return err_set(err, BERTH_ENODEVMEM, "null:0 is full");
}

/* Opens, loads and uses a model, and keeps the handle. */
static inline berth_status run_hold(struct node_call *c, berth_err *err)
{
    struct res_open_args a = {
        .path = here->model, .name = "held", .plan.alloc = "null:0,*", .retention = here->retention
    };
    struct res_model *m;
    if (res_open(c->env->res, &a, &m, NULL, err))
        return err->code;
    berth_status st = res_load(m, NULL, NULL, err);
    if (!st)
        st = res_use_begin(m, err);
    if (!st)
        res_use_end(m);
    res_unref(here->held);
    here->held = m;
    return st ? st : ui_add(c, "done", json_true(), err);
}

static inline berth_status run_hold_wait(struct node_call *c, berth_err *err)
{
    berth_status st = run_hold(c, err);
    return st ? st : run_wait(c, err);
}

static const struct node_input nothing[1];
static const struct node_class class_wait = { .name = "Wait",
                                              .category = "test",
                                              .module = "nodes",
                                              .flags = NODE_OUTPUT | NODE_NOT_IDEMPOTENT,
                                              .in = nothing,
                                              .run = run_wait };
static const struct node_class class_hungry = { .name = "Hungry",
                                                .category = "test",
                                                .module = "nodes",
                                                .flags = NODE_OUTPUT,
                                                .in = nothing,
                                                .run = run_hungry };
static const struct node_class class_hold = { .name = "Hold",
                                              .category = "test",
                                              .module = "nodes",
                                              .flags = NODE_OUTPUT,
                                              .in = nothing,
                                              .run = run_hold };

static const struct node_class class_hold_wait = { .name = "HoldWait",
                                                   .category = "test",
                                                   .module = "nodes",
                                                   .flags = NODE_OUTPUT,
                                                   .in = nothing,
                                                   .run = run_hold_wait };

static inline const struct node_class *find(const char *name)
{
    const struct node_class *const all[] = { &class_wait, &class_hungry, &class_hold,
                                             &class_hold_wait };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

/* ---- the world ---- */

static inline void *loop_main(void *arg)
{
    struct world *x = arg;
    berth_err err = { 0 };
    assert_ok(server_run(x->server, &x->stop, &err), err);
    return NULL;
}

static inline void open_server(struct world *x)
{
    berth_err err = { 0 };
    struct server_config cfg = {
        .ctx = x->ctx, .folders = x->folders, .database = tmp_path("state.db"), .grace_s = 1
    };
    assert_ok(server_new(&cfg, &x->server, &err), err);
    engine_set_classes(x->server->engine, find); /* no job was added yet */
    atomic_store(&x->stop, false);
    assert_int_equal(pthread_create(&x->loop, NULL, loop_main, x), 0);
}

static inline void close_server(struct world *x)
{
    atomic_store(&x->stop, true);
    server_wake(x->server);
    pthread_join(x->loop, NULL);
    server_free(x->server);
    x->server = NULL;
}

static inline int setup(void **state)
{
    struct world *x = calloc(1, sizeof *x);
    berth_err err = { 0 };
    berth_config cfg = { .size = sizeof cfg,
                         .devices = "cpu=64m,null:0=64m",
                         .pressure_percent = 101 };
    struct folders_config folders = { .base = tmp_dir() };
    if (!x)
        return -1;
    sem_init(&x->entered, 0, 0);
    sem_init(&x->go, 0, 0);
    sem_init(&x->answered, 0, 0);
    assert_ok(berth_ctx_new(&cfg, &x->ctx, &err), err);
    assert_ok(folders_new(&folders, &x->folders, &err), err);
    snprintf(x->model, sizeof x->model, "%s", model_file("held", 4, 64 << 10));
    here = x;
    open_server(x);
    *state = x;
    return 0;
}

static inline int teardown(void **state)
{
    struct world *x = *state;
    if (x->server)
        close_server(x);
    res_unref(x->held); /* the worker is no more */
    folders_free(x->folders);
    berth_ctx_free(x->ctx);
    sem_destroy(&x->entered);
    sem_destroy(&x->go);
    sem_destroy(&x->answered);
    free(x);
    return tmp_clear();
}

static inline void added(void *user, berth_status st, const berth_err *err)
{
    (void)user, (void)err;
    assert_int_equal(st, BERTH_OK);
}

static inline void add_job(struct world *x, const char *id, const char *prompt, const char *outputs)
{
    struct store_job job = { .id = strdup(id),
                             .number = strdup("0"),
                             .prompt = strdup(prompt),
                             .extra_data = strdup("{}"),
                             .outputs = strdup(outputs) };
    berth_err err = { 0 };
    assert_ok(store_add(x->server->store, &job, added, NULL, &err), err);
}

static inline void add_text(struct world *x, const char *id, const char *prompt)
{
    add_job(x, id, prompt, "[\"1\"]");
}

/* The input nobody declares is part of the key: no two jobs are cached for each other. */
static inline void add(struct world *x, const char *id, const char *class)
{
    char prompt[200];
    snprintf(prompt, sizeof prompt, "{\"1\":{\"class_type\":\"%s\",\"inputs\":{\"job\":\"%s\"}}}",
             class, id);
    add_text(x, id, prompt);
}

/* status_str of the entry, when it is there; the text stays good until the next call. */
static inline const char *ended(struct world *x, const char *id)
{
    static struct str text;
    berth_err err = { 0 };
    for (int i = 0; i < 20000; i++) {
        str_clear(&text);
        assert_ok(store_history_one(x->server->store, id, &text, &err), err);
        if (text.n > 2)
            return text.p;
        usleep(1000);
    }
    fail_msg("'%s' did not end", id);
    return NULL;
}

static inline void expect(struct world *x, const char *id, const char *word)
{
    const char *entry = ended(x, id);
    if (!strstr(entry, word))
        fail_msg("%s: no %s in %s", id, word, entry);
}

/* ---- requests and their answers ---- */

struct answer {
    struct world *world;
    berth_status status;
    char msg[512];
    struct str text;
    unsigned times;
};

static inline void on_answer(struct server *s, void *user, berth_status st, const berth_err *err,
                             struct str *text)
{
    struct answer *a = user;
    (void)s;
    a->status = st;
    a->times++;
    if (st)
        snprintf(a->msg, sizeof a->msg, "%s", err->msg);
    str_release(&a->text);
    a->text = *text;
    *text = (struct str) { 0 };
    sem_post(&a->world->answered);
}

static inline void ask_free(struct world *x, struct worker_free f, struct answer *a)
{
    *a = (struct answer) { .world = x };
    worker_post_free(x->server, &f, on_answer, a);
}

static inline void wait_answer(struct answer *a)
{
    sem_wait(&a->world->answered);
    assert_int_equal(a->times, 1);
}

/* Does a free and returns its receipt; json_decref() it. */
static inline json_t *receipt(struct world *x, struct worker_free f)
{
    struct answer a;
    json_t *v;
    berth_err err = { 0 };
    f.wait = true;
    ask_free(x, f, &a);
    wait_answer(&a);
    if (a.status)
        fail_msg("free: %s", a.msg);
    assert_ok(js_parse(a.text.p, a.text.n, NULL, &v, &err), err);
    str_release(&a.text);
    return v;
}

static inline json_t *models(struct world *x)
{
    struct str text = { 0 };
    json_t *v, *list;
    berth_err err = { 0 };
    worker_models_json(x->server, &text);
    assert_ok(js_parse(text.p, text.n, NULL, &v, &err), err);
    list = json_incref(json_object_get(v, "models"));
    json_decref(v);
    str_release(&text);
    return list;
}

static inline uint64_t number(const json_t *v, const char *key)
{
    uint64_t n = 0;
    if (!js_get_u64(json_object_get(v, key), &n))
        fail_msg("'%s' is no number", key);
    return n;
}

static inline struct worker_free flags(bool unload, bool memory)
{
    return (struct worker_free) { .unload_models = unload, .free_memory = memory };
}

static inline uint64_t frees(struct world *x)
{
    json_t *r = receipt(x, (struct worker_free) { .tiers = RES_TIER_STAGING }); /* does nothing */
    uint64_t n = number(r, "serial");
    json_decref(r);
    return n;
}

static inline void change(struct world *x, struct worker_change c, struct answer *a)
{
    str_release(&a->text); /* of the one before */
    *a = (struct answer) { .world = x };
    worker_post_change(x->server, &c, on_answer, a);
    wait_answer(a);
}

#endif
