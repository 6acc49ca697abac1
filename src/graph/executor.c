/* executor: a prompt from its first event to its result.
 *
 * Outputs are held by the run as long as somebody may ask for them: every node counts the links
 * that lead away from it to nodes which may still run (`want`), lazy ones too, so that no node runs
 * twice. When the last of them has run, or will never run, the run lets go; what the cache does not
 * keep is gone then, which is what keeps --cache-none small. */
#include "graph/run.h"

berth_status executor_new(const struct executor_config *cfg, struct executor **out, berth_err *err)
{
    *out = NULL;
    struct executor *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "executor");
    x->cfg = *cfg;
    cache_init(&x->cache, cfg);
    /* Not guessable from outside, so that nobody can make two prompts share a key. */
    uint64_t salt[4] = { clock_wall_ns(cfg->env->clock), clock_mono_ns(cfg->env->clock),
                         (uintptr_t)x, (uintptr_t)&salt };
    x->seed[0] = hash_xxh64(salt, sizeof salt, 1);
    x->seed[1] = hash_xxh64(salt, sizeof salt, 2);
    x->cache.entries.by_key.seed = x->cache.states.by_key.seed = hash_xxh64(salt, sizeof salt, 3);
    *out = x;
    return BERTH_OK;
}

void executor_free(struct executor *x)
{
    if (!x)
        return;
    if (x->running)
        BUG("the executor goes while it runs");
    cache_release(&x->cache);
    free(x);
}

void executor_reset(void *executor)
{
    struct executor *x = executor;
    if (x->running)
        x->reset_wanted = true;
    else
        cache_clear(&x->cache);
}

struct executor_info executor_info(const struct executor *x)
{
    return (struct executor_info) {
        .entries = x->cache.entries.item.n,
        .states = x->cache.states.item.n,
        .bytes = x->cache.bytes,
        .hits = x->cache.hits,
        .misses = x->cache.misses,
    };
}

/* ---- which outputs are still needed ---- */

static berth_status no_memory(const struct run *r, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "running %zu nodes", r->wf.n);
}

/* A node that may be needed: what the cache has is taken now, others need their own inputs. */
static bool reach(struct run *r, size_t node)
{
    r->want[node]++;
    if (r->reached[node])
        return true;
    r->reached[node] = true;
    struct entry *e = cache_get(&r->x->cache, &r->key[node]);
    if (e) {
        r->have[node] = entry_ref(e);
        r->order.node[node].done = true; /* without running it */
        return true;
    }
    return vec_push(&r->dead, &node);
}

static bool reach_all(struct run *r, size_t output)
{
    if (!reach(r, output))
        return false;
    while (r->dead.n) {
        const struct wf_node *n = &r->wf.node[*(size_t *)vec_at(&r->dead, r->dead.n - 1)];
        vec_pop(&r->dead);
        for (size_t l = n->link; l < n->link + n->links; l++)
            if (!reach(r, r->wf.link[l].from))
                return false;
    }
    return true;
}

/* One consumer less. Outputs without consumers are dropped; a node that has not run and has none
 * never will, so it no longer counts as a consumer of its own inputs. pre: room on `dead` for every
 * node, see run_prepare(). */
static void unwant(struct run *r, size_t node)
{
    if (--r->want[node])
        return;
    if (r->have[node]) {
        entry_unref(r->have[node]);
        r->have[node] = NULL;
    } else if (!vec_push(&r->dead, &node)) {
        BUG("no room where room was reserved");
    }
}

/* The node has run, or never will: it no longer needs its inputs. */
static void retire(struct run *r, size_t node)
{
    const struct wf_node *n = &r->wf.node[node];
    for (;;) {
        for (size_t l = n->link; l < n->link + n->links; l++)
            unwant(r, r->wf.link[l].from);
        if (!r->dead.n)
            return;
        n = &r->wf.node[*(size_t *)vec_at(&r->dead, r->dead.n - 1)];
        vec_pop(&r->dead);
    }
}

/* ---- a run ---- */

static berth_status run_init(struct run *r, berth_err *err)
{
    struct exec_result *out = r->out;
    out->outputs = json_object();
    out->meta = json_object();
    r->executed = json_array();
    r->messages = json_array();
    if (!out->outputs || !out->meta || !r->executed || !r->messages)
        return no_memory(r, err);
    if (json_object_size(r->q->prompt) > GRAPH_NODES_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu nodes; at most %d are run",
                       json_object_size(r->q->prompt), GRAPH_NODES_MAX);
    berth_status s = workflow_load(r->x->cfg.env, r->q->prompt, &r->wf, err);
    if (s)
        return s;
    size_t n = r->wf.n;
    r->key = arena_array(&r->mem, n, sizeof *r->key);
    r->have = arena_array(&r->mem, n, sizeof(struct entry *));
    r->want = arena_array(&r->mem, n, sizeof *r->want);
    r->reached = arena_array(&r->mem, n, sizeof *r->reached);
    r->asked = arena_array(&r->mem, n, sizeof *r->asked);
    r->ran = arena_array(&r->mem, n, sizeof *r->ran);
    if (!r->key || !r->have || !r->want || !r->reached || !r->asked || !r->ran ||
        !vec_reserve(&r->dead, n))
        return no_memory(r, err);
    return order_init(&r->order, &r->wf, &r->mem, err);
}

static void run_release(struct run *r)
{
    for (size_t i = 0; r->have && i < r->wf.n; i++)
        entry_unref(r->have[i]);
    order_release(&r->order);
    vec_release(&r->dead);
    arena_release(&r->mem);
    json_decref(r->messages);
    json_decref(r->networks);
    json_decref(r->executed);
    workflow_release(&r->wf);
    *r = (struct run) { 0 };
}

/* Requested outputs, each once, and what is upstream of them: first what may be needed, then what
 * runs. */
static berth_status add_outputs(struct run *r, berth_err *err)
{
    const json_t *ids = r->q->outputs;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const char *id = json_string_value(json_array_get(ids, i));
        size_t node = id ? workflow_find(&r->wf, id) : SIZE_MAX;
        if (node == SIZE_MAX)
            return err_set(err, BERTH_EINVAL, "output '%s' is not in the prompt", id ? id : "?");
        if (!r->asked[node] && !reach_all(r, node))
            return no_memory(r, err);
        r->asked[node] = true;
    }
    for (size_t i = 0; i < r->wf.n; i++) { /* validation sees to it; a stored prompt may be old */
        const struct wf_node *n = &r->wf.node[i];
        if (r->reached[i] && !r->have[i] && n->broken)
            return err_set(err, BERTH_EINVAL, "node %s cannot run: class or links are not there",
                           n->id);
    }
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < json_array_size(ids) && !s; i++) {
        size_t node = workflow_find(&r->wf, json_string_value(json_array_get(ids, i)));
        if (!r->order.node[node].pending)
            s = order_add(&r->order, node, err);
    }
    return s;
}

static berth_status run_prepare(struct run *r, berth_err *err)
{
    struct executor *x = r->x;
    berth_status s = run_start(r, err);
    if (!s && x->cfg.cache != CACHE_NONE)
        s = keys_make(x->cfg.env, &r->wf, x->seed, r->q->cancel, r->key, err);
    if (s)
        return s;
    cache_begin(&x->cache, &r->wf, r->key);
    s = run_cached(r, err);
    return s ? s : add_outputs(r, err);
}

/* From the cache, or from its twin that ran in this prompt. */
static enum run_step take_cached(struct run *r, size_t node, berth_err *err)
{
    const json_t *ui = r->have[node]->ui;
    r->x->cache.hits++;
    run_event(r, EXEC_EXECUTED, node, ui);
    if (ui && run_ui(r, node, ui, err))
        return RUN_BROKE;
    run_event(r, EXEC_NODE_DONE, node, NULL);
    return RUN_DONE;
}

static enum run_step step(struct run *r, size_t node, json_t **current, berth_err *err)
{
    *current = NULL;
    r->node = node;
    r->raised = NULL;
    if (!r->have[node]) {
        struct entry *twin = cache_get(&r->x->cache, &r->key[node]);
        r->have[node] = twin ? entry_ref(twin) : NULL;
    }
    if (r->have[node])
        return take_cached(r, node, err);
    enum run_step s = run_node(r, node, current, err);
    r->x->cache.misses += s == RUN_DONE;
    r->ran[node] = s == RUN_DONE;
    return s;
}

/* A node is done: those that waited for it may be ready, it no longer needs its inputs, and the
 * client has it. ran: in this prompt, so that its inputs were counted as needed. */
static berth_status complete(struct run *r, size_t node, bool ran, berth_err *err)
{
    if (order_done(&r->order, node, err))
        return err->code;
    if (ran)
        retire(r, node);
    if (r->asked[node])
        unwant(r, node);
    return BERTH_OK;
}

/* Nodes that show something and are no outputs: if the cache kept them from running, clients still
 * get to see it. */
static berth_status show_intermediate(struct run *r, berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < r->wf.n && !s; i++) {
        const struct node_class *cls = r->wf.node[i].cls;
        if (!cls || !(cls->flags & NODE_INTERMEDIATE) || r->ran[i])
            continue;
        const struct entry *e = cache_get(&r->x->cache, &r->key[i]);
        if (!e || !e->ui)
            continue;
        run_event(r, EXEC_EXECUTED, i, e->ui);
        s = run_ui(r, i, e->ui, err);
    }
    return s;
}

static berth_status run_loop(struct run *r, berth_err *err)
{
    size_t node;
    while ((node = order_next(&r->order)) != SIZE_MAX) {
        json_t *current;
        berth_err why = { 0 };
        bool had = r->have[node] != NULL; /* since the start: its inputs were never wanted */
        switch (step(r, node, &current, &why)) {
        case RUN_DONE:
            if (complete(r, node, !had, err))
                return err->code;
            break;
        case RUN_AGAIN:
            if (order_again(&r->order, node, err))
                return err->code;
            break;
        case RUN_ERROR:
            return run_failure(r, node, &why, current, err);
        case RUN_BROKE:
            *err = why;
            return err->code;
        }
        cache_relieve(&r->x->cache);
    }
    if (!r->order.pending)
        return show_intermediate(r, err) ? err->code : run_success(r, err);
    /* Validation finds cycles; this is for prompts that never saw it. */
    berth_err why = { 0 };
    err_set(&why, BERTH_EINVAL, "Dependency cycle detected");
    for (node = 0; !r->order.node[node].pending; node++)
        continue;
    return run_failure(r, node, &why, NULL, err);
}

berth_status executor_run(struct executor *x, const struct exec_request *q, struct exec_result *out,
                          berth_err *err)
{
    *out = (struct exec_result) {
        .outcome = EXEC_FAILED,
        .last = { .kind = EXEC_ERROR, .prompt_id = q->prompt_id },
    };
    struct run r = { .x = x, .q = q, .out = out, .dead.elem = sizeof(size_t), .node = SIZE_MAX };
    if (x->running)
        BUG("the executor runs already");
    x->running = true;
    berth_status s = run_init(&r, err);
    if (!s)
        s = run_prepare(&r, err);
    if (!s)
        s = run_loop(&r, err);
    berth_err why = *err;
    if (s && !run_failure(&r, r.node, &why, NULL, err) && s != BERTH_ENOMEM)
        s = BERTH_OK; /* the prompt's fault, and reported */
    if (run_status(&r, err) && !s)
        s = err->code;
    if (s) {
        out->outcome = EXEC_FAILED;
        *err = why.code ? why : *err;
    }
    run_release(&r);
    x->running = false;
    if (x->reset_wanted)
        cache_clear(&x->cache);
    x->reset_wanted = false;
    return s;
}
