/* run_node: one node called with its inputs.
 *
 * Everything travels as lists. A node is called once per index of its longest input, shorter lists
 * repeat their last value; a class that takes lists is called once. What the calls give is
 * appended: for a plain output one value per call, for a list output as many as it likes. A call
 * that would get a blocker (value_blocker()) is not made: every output gets one instead. */
#include "graph/run.h"

struct call {
    struct run *r;
    size_t node;
    const struct wf_node *n;
    struct node_host host;
    /* One per input: */
    struct values *full;  /* all its values, borrowed */
    struct value **own;   /* a constant: the one value, a reference */
    struct values *slice; /* what one call sees */
    bool *need;           /* lazy ones that were asked for */
    size_t longest;
    struct arena mem;    /* these arrays */
    struct entry *entry; /* what it gives */
    json_t *ui;
    char **state;
};

/* ---- what a node may tell while it runs ---- */

static berth_status check_cancel(const struct call *c, berth_err *err)
{
    const atomic_bool *cancel = c->r->q->cancel;
    if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
        return err_set(err, BERTH_ECANCELED, "node %s (%s) was interrupted", c->n->id,
                       c->n->cls->name);
    return BERTH_OK;
}

static berth_status host_progress(void *user, const struct node_step *s, berth_err *err)
{
    const struct call *c = user;
    if (check_cancel(c, err))
        return err->code;
    struct exec_event e = run_event_of(c->r, EXEC_PROGRESS, c->node);
    e.value = s->value;
    e.max = s->max;
    e.picture = s->picture;
    e.png = s->png;
    run_send(c->r, &e);
    return BERTH_OK;
}

static void host_text(void *user, const char *s, size_t n)
{
    const struct call *c = user;
    struct exec_event e = run_event_of(c->r, EXEC_TEXT, c->node);
    e.text = s;
    e.text_n = n;
    run_send(c->r, &e);
}

static void host_network(void *user, json_t *taken)
{
    run_network(((const struct call *)user)->r, taken);
}

static bool host_leads_to(void *user, size_t output, const char *type)
{
    const struct call *c = user;
    return order_leads_to(&c->r->order, c->node, output, type);
}

/* ---- inputs ---- */

/* The lists of all inputs that are there. */
static berth_status gather(struct call *c, berth_err *err)
{
    const struct node_input *in = c->n->in;
    const struct workflow *wf = &c->r->wf;
    for (size_t l = c->n->link; l < c->n->link + c->n->links; l++) {
        if (!c->r->order.strong[l])
            continue; /* a lazy one that was not asked for */
        const struct entry *e = c->r->have[wf->link[l].from];
        if (!e)
            BUG("node %s starts without its input '%s'", c->n->id, in[wf->link[l].in].name);
        c->full[wf->link[l].in] = e->out[wf->link[l].slot]; /* borrowed */
    }
    for (size_t i = 0; i < c->n->ins; i++) {
        json_t *v = json_object_get(c->n->inputs, in[i].name);
        if (v && !json_is_array(v)) {
            c->own[i] = value_from_json(workflow_constant(v));
            if (!c->own[i])
                return err_set(err, BERTH_ENOMEM, "input '%s' of node %s", in[i].name, c->n->id);
            c->full[i] = (struct values) { .at = &c->own[i], .n = 1 };
        }
        if (c->full[i].n > c->longest)
            c->longest = c->full[i].n;
    }
    return BERTH_OK;
}

static bool is_linked(const struct call *c, size_t in)
{
    for (size_t l = c->n->link; l < c->n->link + c->n->links; l++)
        if (c->r->wf.link[l].in == in)
            return c->r->order.strong[l];
    return false;
}

/* {name: [values as people read them]} */
static json_t *describe(const struct call *c)
{
    json_t *all = json_object();
    for (size_t i = 0; i < c->n->ins; i++) {
        if (!c->full[i].n && !is_linked(c, i))
            continue;
        json_t *list = json_array();
        int bad = json_object_set_new_nocheck(all, c->n->in[i].name, list);
        for (size_t k = 0; k < c->full[i].n && !bad; k++)
            bad |= json_array_append_new(list, value_describe(c->full[i].at[k]));
        if (bad) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

/* ---- calls ---- */

static bool takes_lists(const struct call *c)
{
    return c->n->cls->flags & NODE_INPUT_IS_LIST;
}

static size_t calls(const struct call *c)
{
    return takes_lists(c) || !c->longest ? 1 : c->longest;
}

/* Inputs of the k-th call. */
static berth_status slice(struct call *c, size_t k, berth_err *err)
{
    for (size_t i = 0; i < c->n->ins; i++) {
        const struct values *v = &c->full[i];
        c->slice[i] = *v;
        if (takes_lists(c))
            continue;
        if (!v->n && is_linked(c, i))
            return err_set(err, BERTH_EINVAL, "input '%s' got an empty list", c->n->in[i].name);
        if (v->n)
            c->slice[i] = (struct values) { .at = v->at + (k < v->n ? k : v->n - 1), .n = 1 };
    }
    return BERTH_OK;
}

static struct node_call node_call(struct call *c)
{
    const struct executor_config *cfg = &c->r->x->cfg;
    const struct node_class *cls = c->n->cls;
    const struct exec_request *q = c->r->q;
    return (struct node_call) {
        .env = cfg->env,
        .cls = cls,
        .host = &c->host,
        .id = c->n->id,
        .in = c->slice,
        .live = { .in = c->n->in, .n = c->n->ins },
        .raw = cls->flags & NODE_ANY_INPUT ? c->n->inputs : NULL,
        .prompt = cls->flags & NODE_PROMPT ? q->prompt : NULL,
        .extra_pnginfo = cls->flags & NODE_EXTRA_PNGINFO && q->extra_data
                             ? json_object_get(q->extra_data, "extra_pnginfo")
                             : NULL,
        .out = c->entry->out,
        .ui = c->ui,
        .state = c->state,
    };
}

/* Would the call get a blocker? *message: what it says, or NULL. */
static bool is_blocked(const struct call *c, const char **message)
{
    *message = NULL;
    for (size_t i = 0; i < c->n->ins; i++)
        for (size_t k = 0; k < c->slice[i].n; k++)
            if (value_is_blocker(c->slice[i].at[k], message))
                return true;
    return false;
}

/* Outputs of a call that is not made. The message goes to clients once: those behind get none. */
static berth_status block(struct call *c, const char *message, berth_err *err)
{
    berth_status s = message ? run_blocked(c->r, c->node, message, err) : BERTH_OK;
    for (size_t i = 0; i < c->n->cls->outs && !s; i++)
        s = values_add(&c->entry->out[i], value_blocker(NULL), err);
    return s;
}

/* Asks the class which lazy inputs it needs, once per call it will get; those that are not there
 * yet become strong. *asked: some did. */
static berth_status ask_lazy(struct call *c, bool *asked, berth_err *err)
{
    const struct node_class *cls = c->n->cls;
    berth_status s = BERTH_OK;
    *asked = false;
    for (size_t k = 0; k < calls(c) && !s; k++) {
        s = check_cancel(c, err);
        if (!s)
            s = slice(c, k, err);
        struct node_call nc = node_call(c);
        const char *ignored;
        if (!s && !is_blocked(c, &ignored))
            s = cls->lazy(&nc, c->need, err);
        c->ui = nc.ui;
    }
    for (size_t l = c->n->link; l < c->n->link + c->n->links && !s; l++) {
        unsigned in = c->r->wf.link[l].in;
        if (!c->need[in] || c->r->order.strong[l])
            continue;
        s = order_need(&c->r->order, c->node, in, err);
        *asked = true;
    }
    return s;
}

/* A plain output gives exactly one value per call. */
static berth_status check_outputs(const struct call *c, size_t made, berth_err *err)
{
    const struct node_class *cls = c->n->cls;
    for (size_t i = 0; i < cls->outs; i++)
        if (!cls->out[i].is_list && c->entry->out[i].n != made)
            return err_set(err, BERTH_EINVAL, "%s gave %zu values for output %zu in %zu calls",
                           cls->name, c->entry->out[i].n, i, made);
    return BERTH_OK;
}

static berth_status call_all(struct call *c, berth_err *err)
{
    for (size_t k = 0; k < calls(c); k++) {
        berth_status s = check_cancel(c, err);
        if (!s)
            s = slice(c, k, err);
        if (s)
            return s;
        const char *message;
        if (is_blocked(c, &message)) {
            if (block(c, message, err))
                return err->code;
            continue;
        }
        struct node_call nc = node_call(c);
        s = c->n->cls->run(&nc, err);
        c->r->raised = s ? nc.raised : NULL;
        c->ui = nc.ui; /* made by the first call that has something; the others add to its lists */
        if (!s)
            s = check_outputs(c, k + 1, err);
        if (s) {
            err->code = s; /* what it returned counts, whatever it wrote */
            return s;
        }
    }
    return BERTH_OK;
}

/* ---- the node ---- */

/* Its entry is the run's, and the cache's if it has a key. */
static enum run_step finish(struct call *c, berth_err *err)
{
    struct run *r = c->r;
    struct entry *e = c->entry;
    if (json_object_size(c->ui)) {
        e->ui = json_incref(c->ui);
        run_event(r, EXEC_EXECUTED, c->node, e->ui);
        if (run_ui(r, c->node, e->ui, err))
            return RUN_BROKE;
    }
    if (json_array_append_new(r->executed, json_string_nocheck(c->n->id))) {
        err_set(err, BERTH_ENOMEM, "executed nodes of prompt %s", r->q->prompt_id);
        return RUN_BROKE;
    }
    r->out->executed++;
    cache_put(&r->x->cache, e, &r->key[c->node]);
    r->have[c->node] = entry_ref(e);
    run_event(r, EXEC_NODE_DONE, c->node, NULL);
    return RUN_DONE;
}

static bool make_room(struct call *c)
{
    size_t n = c->n->ins;
    c->full = arena_array(&c->mem, n, sizeof *c->full);
    c->own = arena_array(&c->mem, n, sizeof(struct value *));
    c->slice = arena_array(&c->mem, n, sizeof *c->slice);
    c->need = arena_array(&c->mem, n, sizeof *c->need);
    return c->full && c->own && c->slice && c->need;
}

static enum run_step call_node(struct call *c, berth_err *err)
{
    const struct node_class *cls = c->n->cls;
    bool asked = false;
    if (gather(c, err))
        return RUN_ERROR;
    c->state = cache_state(&c->r->x->cache, c->n->id, cls->name);
    c->entry = entry_new(cls->outs);
    if (!c->state || !c->entry) {
        err_set(err, BERTH_ENOMEM, "calling node %s", c->n->id);
        return RUN_ERROR;
    }
    berth_status s = cls->lazy ? ask_lazy(c, &asked, err) : BERTH_OK;
    if (s) {
        err->code = s;
        return RUN_ERROR;
    }
    if (asked)
        return RUN_AGAIN;
    return call_all(c, err) ? RUN_ERROR : finish(c, err);
}

enum run_step run_node(struct run *r, size_t node, json_t **current, berth_err *err)
{
    struct call c = { .r = r, .node = node, .n = &r->wf.node[node] };
    c.host = (struct node_host) {
        .user = &c,
        .progress = host_progress,
        .text = host_text,
        .network = host_network,
        .leads_to = host_leads_to,
        .cancel = r->q->cancel,
    };
    *current = NULL;
    run_event(r, EXEC_NODE_START, node, NULL);
    if (!make_room(&c)) {
        arena_release(&c.mem);
        err_set(err, BERTH_ENOMEM, "inputs of node %s", c.n->id);
        return RUN_ERROR;
    }
    enum run_step s = call_node(&c, err);
    if (s == RUN_ERROR && err->code != BERTH_ECANCELED)
        *current = describe(&c);
    for (size_t i = 0; i < c.n->ins; i++)
        value_unref(c.own[i]);
    entry_unref(c.entry);
    json_decref(c.ui);
    arena_release(&c.mem);
    return s;
}
