/* result: what a run tells, as events now and as history later. */
#include "graph/run.h"

#include "device/device.h"

/* The message has named the device, the bytes and who is in the way. */
static const char OUT_OF_MEMORY[] = "This error means that a device has no memory left for what "
                                    "was to go there.\n\nTIPS: A pass "
                                    "takes less for a smaller picture or batch. ";
static const char KEPT_MODELS[] =
    "Models that are kept leave only when told to: `berth free --force "
    "NAME#ID`, or POST /free with \"models\" and \"force\". Else "
    "give";
static const char MORE_MEMORY[] = " the device a larger budget (--devices; of cpu --ram-budget), "
                                  "or this model another allocation.";

static berth_status no_memory(const struct run *r, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "results of prompt %s", r->q->prompt_id);
}

void run_event(struct run *r, enum exec_event_kind kind, size_t node, const json_t *output)
{
    if (!r->x->cfg.event)
        return;
    const struct wf_node *n = &r->wf.node[node];
    r->x->cfg.event(r->x->cfg.event_user, &(struct exec_event) {
                                              .kind = kind,
                                              .prompt_id = r->q->prompt_id,
                                              .node = n->id,
                                              .display_node = n->id,
                                              .real_node = n->id,
                                              .class_type = n->cls->name,
                                              .output = output,
                                          });
}

berth_status run_ui(struct run *r, size_t node, const json_t *ui, berth_err *err)
{
    const char *id = r->wf.node[node].id;
    /* A copy: the cache keeps its own, and the result may go to another thread. */
    if (json_object_set_new_nocheck(r->out->outputs, id, json_deep_copy(ui)))
        return no_memory(r, err);
    json_t *meta = json_object();
    int bad = json_object_set_new_nocheck(meta, "node_id", json_string_nocheck(id)) |
              json_object_set_new_nocheck(meta, "display_node", json_string_nocheck(id)) |
              json_object_set_new_nocheck(meta, "parent_node", json_null()) |
              json_object_set_new_nocheck(meta, "real_node_id", json_string_nocheck(id));
    bad |= json_object_set_new_nocheck(r->out->meta, id, meta);
    return bad ? no_memory(r, err) : BERTH_OK;
}

/* ---- messages ---- */

static const char *event_name(enum exec_event_kind kind)
{
    switch (kind) {
    case EXEC_START:
        return "execution_start";
    case EXEC_CACHED:
        return "execution_cached";
    case EXEC_SUCCESS:
        return "execution_success";
    case EXEC_ERROR:
        return "execution_error";
    case EXEC_INTERRUPTED:
        return "execution_interrupted";
    default:
        BUG("event %d is no message of history", (int)kind);
    }
}

berth_status run_message(struct run *r, enum exec_event_kind kind, json_t *data, berth_err *err)
{
    const struct executor_config *cfg = &r->x->cfg;
    uint64_t ms = clock_wall_ns(cfg->env->clock) / 1000000;
    json_t *pair = json_array();
    int bad = json_object_set_new_nocheck(data, "timestamp", json_integer((json_int_t)ms)) |
              json_array_append_new(pair, json_string_nocheck(event_name(kind)));
    bad |= json_array_append_new(pair, json_deep_copy(data));
    bad |= json_array_append_new(r->messages, pair);
    if (bad) {
        json_decref(data);
        return no_memory(r, err);
    }
    struct exec_event e = { .kind = kind, .prompt_id = r->q->prompt_id, .data = data };
    if (kind == EXEC_START || kind == EXEC_CACHED) {
        if (cfg->event)
            cfg->event(cfg->event_user, &e);
        json_decref(data);
    } else {
        json_decref(r->out->last_data);
        r->out->last_data = data;
        r->out->last = e;
    }
    return BERTH_OK;
}

/* {"prompt_id": ...}, to be added to. NULL: no memory. */
static json_t *prompt_data(const struct run *r)
{
    const char *id = r->q->prompt_id;
    json_t *data = json_object();
    if (!json_object_set_new_nocheck(data, "prompt_id", js_text(id, strlen(id))))
        return data;
    json_decref(data);
    return NULL;
}

berth_status run_start(struct run *r, berth_err *err)
{
    return run_message(r, EXEC_START, prompt_data(r), err);
}

berth_status run_cached(struct run *r, berth_err *err)
{
    json_t *nodes = json_array(), *data = json_object();
    int bad = 0;
    for (size_t i = 0; i < r->wf.n && !bad; i++)
        if (cache_get(&r->x->cache, &r->key[i]))
            bad |= json_array_append_new(nodes, json_string_nocheck(r->wf.node[i].id));
    const char *id = r->q->prompt_id;
    bad |= json_object_set_new_nocheck(data, "nodes", nodes);
    bad |= json_object_set_new_nocheck(data, "prompt_id", js_text(id, strlen(id)));
    if (bad) {
        json_decref(data);
        return no_memory(r, err);
    }
    r->out->cached = json_array_size(nodes);
    return run_message(r, EXEC_CACHED, data, err);
}

berth_status run_success(struct run *r, berth_err *err)
{
    r->out->outcome = EXEC_OK;
    return run_message(r, EXEC_SUCCESS, prompt_data(r), err);
}

/* Every node of the prompt: the keys the cache looks for. */
static json_t *current_outputs(const struct run *r)
{
    json_t *ids = json_array();
    int bad = 0;
    for (size_t i = 0; i < r->wf.n && r->x->cfg.cache != CACHE_NONE; i++)
        bad |= json_array_append_new(ids, json_string_nocheck(r->wf.node[i].id));
    if (!bad)
        return ids;
    json_decref(ids);
    return NULL;
}

/* People read the beginning: which device is full comes first, in a line of its own, and then what
 * was being done. Clients of a server hear which file it was, and not where on this machine. */
static void add_why(const struct run *r, const berth_err *why, struct str *out)
{
    if (why->device[0]) {
        err_cause_first(why, !r->x->cfg.hide_folders, out);
        return;
    }
    if (r->x->cfg.hide_folders)
        err_without_folders(why, out);
    else
        str_adds(out, why->msg);
    str_addc(out, '\n');
}

#define TRACE_MAX 32 /* nodes */

/* The first node that takes what this one gives, and with which input; SIZE_MAX: none. */
static size_t taker_of(const struct workflow *w, size_t node, unsigned *in)
{
    for (size_t i = 0; i < w->n; i++)
        for (size_t l = w->node[i].link; l < w->node[i].link + w->node[i].links; l++)
            if (w->link[l].from == node) {
                *in = w->link[l].in;
                return i;
            }
    return SIZE_MAX;
}

/* What the node was for, an output first, as Python has the latest call last; then where in our
 * source it was noticed. NULL: out of memory. */
static json_t *traceback(const struct run *r, size_t node, const berth_err *why)
{
    json_t *trace = json_array();
    size_t chain[TRACE_MAX], n = 0, at = node;
    unsigned in[TRACE_MAX];
    const char *src = why->file ? strstr(why->file, "src/") : NULL;
    bool ok = trace != NULL;
    if (node >= r->wf.n)
        return trace;
    while (n < TRACE_MAX && (at = taker_of(&r->wf, at, &in[n])) != SIZE_MAX)
        chain[n++] = at;
    for (size_t i = n; i-- > 0 && ok;) {
        const struct wf_node *k = &r->wf.node[chain[i]];
        ok = trace_add(trace, k, k->cls->in[in[i]].name);
    }
    ok = ok && trace_add(trace, &r->wf.node[node], NULL);
    if (ok && src)
        ok = !json_array_append_new(trace, js_textf("  %s, line %d\n", src, why->line));
    if (ok)
        return trace;
    json_decref(trace);
    return NULL;
}

static int add_error(const struct run *r, size_t node, json_t *data, const berth_err *why,
                     json_t *current)
{
    struct str text = { 0 };
    add_why(r, why, &text);
    if (why->code == BERTH_ENODEVMEM) /* a process that ends with its prompt keeps nothing */
        str_addf(&text, "%s%s%s", OUT_OF_MEMORY, r->x->cfg.alone ? "Give" : KEPT_MODELS,
                 MORE_MEMORY);
    json_t *message = text.bad ? NULL : js_text(str_c(&text), text.n);
    str_release(&text);
    const char *type = node_exception(why->code);
    return json_object_set_new_nocheck(data, "exception_message", message) |
           json_object_set_new_nocheck(data, "exception_type", json_string_nocheck(type)) |
           json_object_set_new_nocheck(data, "traceback", traceback(r, node, why)) |
           json_object_set_new_nocheck(data, "current_inputs", current) |
           json_object_set_new_nocheck(data, "current_outputs", current_outputs(r));
}

berth_status run_failure(struct run *r, size_t node, const berth_err *why, json_t *current,
                         berth_err *err)
{
    bool stopped = why->code == BERTH_ECANCELED;
    const struct wf_node *n = node < r->wf.n ? &r->wf.node[node] : NULL;
    r->out->outcome = stopped ? EXEC_STOPPED : EXEC_FAILED;
    r->out->code = why->code;
    r->out->why = *why;
    r->out->out_of_memory = why->code == BERTH_ENODEVMEM;
    json_t *data = prompt_data(r);
    int bad =
        json_object_set_new_nocheck(data, "node_id", n ? json_string_nocheck(n->id) : json_null()) |
        json_object_set_new_nocheck(data, "node_type",
                                    n ? json_string_nocheck(n->cls->name) : json_null()) |
        json_object_set_new_nocheck(data, "executed", json_deep_copy(r->executed));
    if (stopped)
        json_decref(current);
    else
        bad |= add_error(r, node, data, why, current ? current : json_object());
    if (bad) {
        json_decref(data);
        return no_memory(r, err);
    }
    return run_message(r, stopped ? EXEC_INTERRUPTED : EXEC_ERROR, data, err);
}

#define NETWORKS_MAX 256 /* of one prompt: its history stays small */

void run_network(struct run *r, json_t *taken)
{
    if (!r->networks)
        r->networks = json_array();
    if (json_array_size(r->networks) < NETWORKS_MAX)
        json_array_append_new(r->networks, taken); /* takes it, also when it fails */
    else
        json_decref(taken);
}

berth_status run_status(struct run *r, berth_err *err)
{
    bool ok = r->out->outcome == EXEC_OK;
    json_t *s = json_object();
    int bad = json_object_set_new_nocheck(s, "status_str",
                                          json_string_nocheck(ok ? "success" : "error")) |
              json_object_set_new_nocheck(s, "completed", json_boolean(ok)) |
              json_object_set_nocheck(s, "messages", r->messages);
    if (r->networks) /* ours: ComfyUI's clients pass over it */
        bad |= json_object_set_new_nocheck(s, "berth", json_pack("{s:O}", "networks", r->networks));
    if (bad) {
        json_decref(s);
        return no_memory(r, err);
    }
    r->out->status = s;
    return BERTH_OK;
}

void exec_result_release(struct exec_result *r)
{
    json_decref(r->last_data);
    json_decref(r->outputs);
    json_decref(r->meta);
    json_decref(r->status);
    *r = (struct exec_result) { 0 };
}
