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

void run_send(const struct run *r, const struct exec_event *e)
{
    if (r->x->cfg.event)
        r->x->cfg.event(r->x->cfg.event_user, e);
}

struct exec_event run_event_of(const struct run *r, enum exec_event_kind kind, size_t node)
{
    const struct wf_node *n = &r->wf.node[node];
    return (struct exec_event) {
        .kind = kind,
        .prompt_id = r->q->prompt_id,
        .node = n->id,
        .display_node = n->id,
        .real_node = n->id,
        .class_type = n->cls->name,
    };
}

void run_event(struct run *r, enum exec_event_kind kind, size_t node, const json_t *output)
{
    struct exec_event e = run_event_of(r, kind, node);
    e.output = output;
    run_send(r, &e);
}

berth_status run_ui(struct run *r, size_t node, const json_t *ui, berth_err *err)
{
    const char *id = r->wf.node[node].id;
    json_t *meta = json_pack("{s:s,s:s,s:n,s:s}", "node_id", id, "display_node", id, "parent_node",
                             "real_node_id", id);
    /* A copy of the ui: the cache keeps its own, and the result may go to another thread. */
    return json_object_set_new_nocheck(r->out->outputs, id, json_deep_copy(ui)) |
                   json_object_set_new_nocheck(r->out->meta, id, meta)
               ? no_memory(r, err)
               : BERTH_OK;
}

/* ---- messages ---- */

static const char *const event_names[] = {
    [EXEC_START] = "execution_start",
    [EXEC_CACHED] = "execution_cached",
    [EXEC_SUCCESS] = "execution_success",
    [EXEC_ERROR] = "execution_error",
    [EXEC_INTERRUPTED] = "execution_interrupted",
};

/* Adds the timestamp, then the message; sends it unless it is the last one. Takes data. */
static berth_status add_message(struct run *r, enum exec_event_kind kind, json_t *data,
                                berth_err *err)
{
    uint64_t ms = clock_wall_ns(r->x->cfg.env->clock) / 1000000;
    if (json_object_set_new_nocheck(data, "timestamp", json_integer((json_int_t)ms)) |
        json_array_append_new(r->messages,
                              json_pack("[s,o]", event_names[kind], json_deep_copy(data)))) {
        json_decref(data);
        return no_memory(r, err);
    }
    struct exec_event e = { .kind = kind, .prompt_id = r->q->prompt_id, .data = data };
    if (kind == EXEC_START || kind == EXEC_CACHED) {
        run_send(r, &e);
        json_decref(data);
    } else {
        json_decref(r->out->last_data);
        r->out->last_data = data;
        r->out->last = e;
    }
    return BERTH_OK;
}

static json_t *prompt_id(const struct run *r)
{
    return js_text(r->q->prompt_id, strlen(r->q->prompt_id));
}

berth_status run_start(struct run *r, berth_err *err)
{
    return add_message(r, EXEC_START, json_pack("{s:o}", "prompt_id", prompt_id(r)), err);
}

berth_status run_cached(struct run *r, berth_err *err)
{
    json_t *nodes = json_array();
    int bad = 0;
    for (size_t i = 0; i < r->wf.n && !bad; i++)
        if (cache_get(&r->x->cache, &r->key[i]))
            bad |= json_array_append_new(nodes, json_string_nocheck(r->wf.node[i].id));
    r->out->cached = json_array_size(nodes);
    if (bad) {
        json_decref(nodes);
        return no_memory(r, err);
    }
    return add_message(r, EXEC_CACHED,
                       json_pack("{s:o,s:o}", "nodes", nodes, "prompt_id", prompt_id(r)), err);
}

berth_status run_blocked(struct run *r, size_t node, const char *message, berth_err *err)
{
    const struct wf_node *n = &r->wf.node[node];
    json_t *data =
        json_pack("{s:o,s:s,s:s,s:o,s:o,s:s,s:[],s:[],s:[]}", "prompt_id", prompt_id(r), "node_id",
                  n->id, "node_type", n->cls->name, "executed", json_deep_copy(r->executed),
                  "exception_message", js_textf("Execution Blocked: %s", message), "exception_type",
                  "ExecutionBlocked", "traceback", "current_inputs", "current_outputs");
    if (!data)
        return no_memory(r, err);
    struct exec_event e = { .kind = EXEC_ERROR, .prompt_id = r->q->prompt_id, .data = data };
    run_send(r, &e);
    json_decref(data);
    return BERTH_OK;
}

berth_status run_success(struct run *r, berth_err *err)
{
    r->out->outcome = EXEC_OK;
    return add_message(r, EXEC_SUCCESS, json_pack("{s:o}", "prompt_id", prompt_id(r)), err);
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
        ok = trace_add(trace, k, k->in[in[i]].name);
    }
    ok = ok && trace_add(trace, &r->wf.node[node], NULL);
    if (ok && src)
        ok = !json_array_append_new(trace, js_textf("  %s, line %d\n", src, why->line));
    if (ok)
        return trace;
    json_decref(trace);
    return NULL;
}

/* What an execution_error has beside the fields of all failures; NULL: out of memory. */
static json_t *error_data(const struct run *r, size_t node, const berth_err *why, json_t *current)
{
    struct str text = { 0 };
    add_why(r, why, &text);
    if (why->code == BERTH_ENODEVMEM) /* a process that ends with its prompt keeps nothing */
        str_addf(&text, "%s%s%s", OUT_OF_MEMORY, r->x->cfg.alone ? "Give" : KEPT_MODELS,
                 MORE_MEMORY);
    return json_pack("{s:o,s:s,s:o,s:o,s:o}", "exception_message", js_take(&text), "exception_type",
                     r->raised ? r->raised : node_exception(why->code), "traceback",
                     traceback(r, node, why), "current_inputs", current, "current_outputs",
                     current_outputs(r));
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
    json_t *data =
        json_pack("{s:o,s:s?,s:s?,s:o}", "prompt_id", prompt_id(r), "node_id", n ? n->id : NULL,
                  "node_type", n ? n->cls->name : NULL, "executed", json_deep_copy(r->executed));
    if (stopped) {
        json_decref(current);
    } else if (json_object_update_new(
                   data, error_data(r, node, why, current ? current : json_object()))) {
        json_decref(data);
        return no_memory(r, err);
    }
    return add_message(r, stopped ? EXEC_INTERRUPTED : EXEC_ERROR, data, err);
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
    json_t *s = json_pack("{s:s,s:b,s:O}", "status_str", ok ? "success" : "error", "completed", ok,
                          "messages", r->messages);
    if (r->networks && /* ours: ComfyUI's clients pass over it */
        json_object_set_new_nocheck(s, "berth", json_pack("{s:O}", "networks", r->networks))) {
        json_decref(s);
        s = NULL;
    }
    r->out->status = s;
    return s ? BERTH_OK : no_memory(r, err);
}

void exec_result_release(struct exec_result *r)
{
    json_decref(r->last_data);
    json_decref(r->outputs);
    json_decref(r->meta);
    json_decref(r->status);
    *r = (struct exec_result) { 0 };
}
