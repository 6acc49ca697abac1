/* events: executor events to messages. */
#include "server/events.h"

#include "base/json.h"

#include <math.h>

struct events_node {
    char *id;   /* key of the map */
    char *rest; /* what never changes of its entry: ids, and the closing brace */
    double value, max;
    size_t at; /* where its entry begins in events.done, if it is there */
    bool finished, ticked;
};

/* ---- pieces of JSON ---- */

/* Steps are whole numbers and written as such; what nobody ticked is 0.0 of 1.0. */
static void add_number(struct jsonout *j, const char *key, double v, bool ticked)
{
    if (!isfinite(v))
        jo_str(j, key, NULL);
    else if (v == floor(v) && fabs(v) < 9007199254740992.0)
        jo_fmt(j, key, ticked ? "%.0f" : "%.1f", v);
    else
        jo_f64(j, key, v);
}

/* An open message, whose "data" comes next. */
static struct jsonout begin(struct str *m, const char *type)
{
    struct jsonout j = { .out = m };
    jo_open(&j, NULL, '{');
    jo_str(&j, "type", type);
    return j;
}

/* Its data is an object, which is open now; end() closes both. */
static struct jsonout begin_object(struct str *m, const char *type)
{
    struct jsonout j = begin(m, type);
    jo_open(&j, "data", '{');
    return j;
}

static void end(struct jsonout *j)
{
    while (j->depth)
        jo_close(j, '}');
}

/* ---- sending ---- */

static bool anybody(const struct events *e)
{
    return e->out.listens(e->out.server, e->client_id);
}

/* True: go on and send it. */
static bool whole(struct events *e, struct str *m)
{
    if (!m->bad)
        return true;
    e->dropped++;
    str_release(m);
    return false;
}

static void send(struct events *e, const char *sid, struct str *m)
{
    if (whole(e, m))
        e->out.text(e->out.server, sid, m);
    str_release(m); /* whoever took it left it empty */
}

static void to_client(struct events *e, struct str *m)
{
    if (e->client_id)
        send(e, e->client_id, m);
    else
        str_release(m);
}

/* ---- nodes so far ---- */

static struct events_node *entry_find(struct events *e, const char *id)
{
    uint64_t at;
    if (!map_get(&e->index, id, strlen(id), &at))
        return NULL;
    return vec_at(&e->node, (size_t)at);
}

static char *entry_rest(const struct events *e, const struct exec_event *x)
{
    struct str s = { 0 };
    struct jsonout j = { .out = &s, .depth = 1 };
    jo_str(&j, "node_id", x->node);
    jo_str(&j, "prompt_id", e->prompt_id);
    jo_str(&j, "display_node_id", x->display_node ? x->display_node : x->node);
    jo_str(&j, "parent_node_id", x->parent_node);
    jo_str(&j, "real_node_id", x->real_node ? x->real_node : x->node);
    jo_close(&j, '}');
    char *text = str_take(&s);
    str_release(&s);
    return text;
}

/* The node's entry, a new one if need be; NULL: no memory. */
static struct events_node *entry_of(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_find(e, x->node);
    if (n)
        return n;
    e->node.elem = sizeof *n;
    char *id = strdup(x->node), *rest = entry_rest(e, x);
    if (id && rest && vec_reserve(&e->node, e->node.n + 1) &&
        map_add(&e->index, id, strlen(id), e->node.n) == MAP_ADDED)
        n = vec_add(&e->node);
    if (!n) {
        free(id);
        free(rest);
        e->dropped++;
        return NULL;
    }
    *n = (struct events_node) { .id = id, .rest = rest, .max = 1 };
    return n;
}

static void add_entry(const struct events_node *n, struct jsonout *j)
{
    jo_open(j, n->id, '{');
    add_number(j, "value", n->finished ? n->max : n->value, n->ticked);
    add_number(j, "max", n->max, n->ticked);
    jo_str(j, "state", n->finished ? "finished" : "running");
    jo_raw(j, NULL, n->rest, strlen(n->rest));
    j->depth--; /* closed by the rest */
}

/* Gathers what follows, up to the first node that did not finish. */
static void gather_done(struct events *e)
{
    struct jsonout j = { .out = &e->done, .depth = 1 };
    while (e->done_n < e->node.n) {
        struct events_node *n = vec_at(&e->node, e->done_n);
        size_t before = e->done.n;
        if (!n->finished)
            return;
        n->at = before;
        add_entry(n, &j);
        if (e->done.bad) { /* as far as it goes: the rest is written each time */
            e->done.n = before;
            e->done.bad = false;
            return;
        }
        e->done_n++;
    }
}

/* What was gathered of this node and of those behind it counts no more. */
static void forget_done(struct events *e, const struct events_node *n)
{
    size_t i = (size_t)(n - (const struct events_node *)vec_at(&e->node, 0));
    if (i < e->done_n) {
        e->done.n = n->at;
        e->done_n = i;
    }
}

static void send_progress_state(struct events *e)
{
    struct str m = { 0 };
    if (!anybody(e))
        return;
    gather_done(e);
    struct jsonout j = begin_object(&m, "progress_state");
    jo_str(&j, "prompt_id", e->prompt_id);
    jo_open(&j, "nodes", '{');
    if (e->done.n)
        jo_raw(&j, NULL, e->done.p, e->done.n);
    for (size_t i = e->done_n; i < e->node.n; i++)
        add_entry(vec_at(&e->node, i), &j);
    end(&j);
    if (whole(e, &m))
        e->out.state(e->out.server, e->client_id, e->run, &m);
    str_release(&m);
}

/* ---- one event each ---- */

/* A message whose data the executor has ready. */
static void send_data(struct events *e, const char *type, const json_t *data, bool or_all)
{
    struct str m = { 0 };
    if ((!or_all && !e->client_id) || !anybody(e))
        return;
    struct jsonout j = begin(&m, type);
    if (data)
        jo_value(&j, "data", data);
    else
        jo_raw(&j, "data", "{}", 2);
    end(&j);
    send(e, e->client_id, &m);
}

static void node_began(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_of(e, x);
    if (n) { /* a node that waited for lazy inputs begins again */
        forget_done(e, n);
        n->value = 0;
        n->max = 1;
        n->finished = n->ticked = false;
    }
    send_progress_state(e);
    struct str m = { 0 };
    struct jsonout j = begin_object(&m, "executing");
    jo_str(&j, "node", x->node);
    jo_str(&j, "display_node", x->display_node ? x->display_node : x->node);
    jo_str(&j, "prompt_id", e->prompt_id);
    end(&j);
    to_client(e, &m);
}

static void add_progress(const struct events *e, const struct exec_event *x, struct str *m)
{
    struct jsonout j = begin_object(m, "progress");
    add_number(&j, "value", x->value, true);
    add_number(&j, "max", x->max, true);
    jo_str(&j, "prompt_id", e->prompt_id);
    jo_str(&j, "node", x->node);
    end(&j);
}

/* The picture and the message of its step, which the hub puts in order for each client. */
static bool send_preview(struct events *e, const struct exec_event *x, struct str *progress)
{
    berth_err err = { 0 };
    struct hub_preview p = { .node = x->node,
                             .display_node = x->display_node ? x->display_node : x->node,
                             .parent_node = x->parent_node,
                             .real_node = x->real_node ? x->real_node : x->node,
                             .prompt_id = e->prompt_id,
                             .png = x->png };
    bool ok = !preview_encode(x->picture, x->png, e->preview_size, e->pool, &p.bytes, &err);
    if (ok) {
        p.progress = *progress;
        *progress = (struct str) { 0 };
        e->out.preview(e->out.server, e->client_id, &p);
    } else {
        e->dropped++; /* a run does not fail for want of a look at it */
    }
    str_release(&p.bytes);
    return ok;
}

static void node_ticked(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_of(e, x);
    struct str m = { 0 };
    if (n) {
        forget_done(e, n);
        n->value = x->value;
        n->max = x->max;
        n->ticked = true;
    }
    if (!anybody(e))
        return;
    send_progress_state(e);
    add_progress(e, x, &m);
    if (!x->picture || m.bad || !send_preview(e, x, &m))
        send(e, e->client_id, &m);
}

static void node_ended(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_of(e, x);
    if (n) {
        forget_done(e, n);
        n->finished = true;
    }
    send_progress_state(e);
}

static void send_executed(struct events *e, const struct exec_event *x)
{
    struct str m = { 0 };
    if (!e->client_id || !anybody(e))
        return;
    struct jsonout j = begin_object(&m, "executed");
    jo_str(&j, "node", x->node);
    jo_str(&j, "display_node", x->display_node ? x->display_node : x->node);
    jo_value(&j, "output", x->output);
    jo_str(&j, "prompt_id", e->prompt_id);
    end(&j);
    to_client(e, &m);
}

void events_send(struct events *e, const struct exec_event *x)
{
    static const char *const plain[] = { [EXEC_START] = "execution_start",
                                         [EXEC_CACHED] = "execution_cached",
                                         [EXEC_SUCCESS] = "execution_success",
                                         [EXEC_ERROR] = "execution_error",
                                         [EXEC_INTERRUPTED] = "execution_interrupted" };
    switch (x->kind) {
    case EXEC_NODE_START:
        node_began(e, x);
        break;
    case EXEC_PROGRESS:
        node_ticked(e, x);
        break;
    case EXEC_TEXT:
        e->out.label(e->out.server, x->node, x->text, x->text_n);
        break;
    case EXEC_EXECUTED:
        send_executed(e, x);
        break;
    case EXEC_NODE_DONE:
        node_ended(e, x);
        break;
    default:
        send_data(e, plain[x->kind], x->data, x->kind == EXEC_INTERRUPTED);
    }
}

void events_end(struct events *e)
{
    struct str m = { 0 };
    struct jsonout j = begin_object(&m, "executing");
    jo_str(&j, "node", NULL);
    jo_str(&j, "prompt_id", e->prompt_id);
    end(&j);
    to_client(e, &m);
    events_forget(e);
}

void events_forget(struct events *e)
{
    for (size_t i = 0; i < e->node.n; i++) {
        struct events_node *n = vec_at(&e->node, i);
        free(n->id);
        free(n->rest);
    }
    vec_release(&e->node);
    map_release(&e->index);
    str_release(&e->done);
    e->done_n = 0;
}
