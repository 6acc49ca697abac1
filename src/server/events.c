/* events: executor events to messages. */
#include "server/events.h"

#include "base/json.h"

#include <math.h>

struct events_node {
    char *id;   /* key of the map */
    char *rest; /* what never changes of its entry: ids, and the closing brace */
    double value, max;
    bool finished, ticked;
};

/* ---- pieces of JSON ---- */

static void add_text(struct str *out, const char *before, const char *text)
{
    str_adds(out, before);
    if (text)
        js_write_string(text, strlen(text), out);
    else
        str_adds(out, "null");
}

/* Steps are whole numbers and written as such; what nobody ticked is 0.0 of 1.0. */
static void add_number(struct str *out, double v, bool ticked)
{
    if (!isfinite(v)) {
        str_adds(out, "null");
    } else if (v == floor(v) && fabs(v) < 9007199254740992.0) {
        str_addf(out, ticked ? "%.0f" : "%.1f", v);
    } else {
        json_t *real = json_real(v);
        if (real)
            js_write(real, 0, out);
        else
            out->bad = true;
        json_decref(real);
    }
}

static void begin(struct str *m, const char *type)
{
    str_addf(m, "{\"type\":\"%s\",\"data\":", type);
}

/* ---- sending ---- */

static void send(struct events *e, const char *sid, struct str *m)
{
    if (m->bad) {
        e->dropped++;
        str_release(m);
        return;
    }
    e->out.text(e->out.user, sid, m);
    str_release(m); /* whoever took it left it empty */
}

static void to_client(struct events *e, struct str *m)
{
    if (e->client_id)
        send(e, e->client_id, m);
    else
        str_release(m);
}

static void to_client_or_all(struct events *e, struct str *m)
{
    send(e, e->client_id, m);
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
    add_text(&s, "\"node_id\":", x->node);
    add_text(&s, ",\"prompt_id\":", e->prompt_id);
    add_text(&s, ",\"display_node_id\":", x->display_node ? x->display_node : x->node);
    add_text(&s, ",\"parent_node_id\":", x->parent_node);
    add_text(&s, ",\"real_node_id\":", x->real_node ? x->real_node : x->node);
    str_addc(&s, '}');
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

static void send_progress_state(struct events *e)
{
    struct str m = { 0 };
    begin(&m, "progress_state");
    add_text(&m, "{\"prompt_id\":", e->prompt_id);
    str_adds(&m, ",\"nodes\":{");
    for (size_t i = 0; i < e->node.n; i++) {
        const struct events_node *n = vec_at(&e->node, i);
        add_text(&m, i ? "," : "", n->id);
        str_adds(&m, ":{\"value\":");
        add_number(&m, n->finished ? n->max : n->value, n->ticked);
        str_adds(&m, ",\"max\":");
        add_number(&m, n->max, n->ticked);
        str_addf(&m, ",\"state\":\"%s\",%s", n->finished ? "finished" : "running", n->rest);
    }
    str_adds(&m, "}}}");
    to_client_or_all(e, &m);
}

/* ---- one event each ---- */

/* A message whose data the executor has ready. */
static void send_data(struct events *e, const char *type, const json_t *data, bool or_all)
{
    struct str m = { 0 };
    if (!or_all && !e->client_id)
        return;
    begin(&m, type);
    if (data)
        js_write(data, 0, &m);
    else
        str_adds(&m, "{}");
    str_addc(&m, '}');
    send(e, e->client_id, &m);
}

static void node_began(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_of(e, x);
    if (n) { /* a node that waited for lazy inputs begins again */
        n->value = 0;
        n->max = 1;
        n->finished = n->ticked = false;
    }
    send_progress_state(e);
    struct str m = { 0 };
    begin(&m, "executing");
    add_text(&m, "{\"node\":", x->node);
    add_text(&m, ",\"display_node\":", x->display_node ? x->display_node : x->node);
    add_text(&m, ",\"prompt_id\":", e->prompt_id);
    str_adds(&m, "}}");
    to_client(e, &m);
}

static void node_ticked(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_of(e, x);
    if (n) {
        n->value = x->value;
        n->max = x->max;
        n->ticked = true;
    }
    send_progress_state(e);
    struct str m = { 0 };
    begin(&m, "progress");
    str_adds(&m, "{\"value\":");
    add_number(&m, x->value, true);
    str_adds(&m, ",\"max\":");
    add_number(&m, x->max, true);
    add_text(&m, ",\"prompt_id\":", e->prompt_id);
    add_text(&m, ",\"node\":", x->node);
    str_adds(&m, "}}");
    to_client_or_all(e, &m);
}

static void node_ended(struct events *e, const struct exec_event *x)
{
    struct events_node *n = entry_of(e, x);
    if (n)
        n->finished = true;
    send_progress_state(e);
}

static void send_executed(struct events *e, const struct exec_event *x)
{
    struct str m = { 0 };
    if (!e->client_id)
        return;
    begin(&m, "executed");
    add_text(&m, "{\"node\":", x->node);
    add_text(&m, ",\"display_node\":", x->display_node ? x->display_node : x->node);
    str_adds(&m, ",\"output\":");
    if (x->output)
        js_write(x->output, 0, &m);
    else
        str_adds(&m, "null");
    add_text(&m, ",\"prompt_id\":", e->prompt_id);
    str_adds(&m, "}}");
    to_client(e, &m);
}

static void send_preview(struct events *e, const struct exec_event *x)
{
    berth_err err = { 0 };
    struct hub_preview p = { .node = x->node,
                             .display_node = x->display_node ? x->display_node : x->node,
                             .parent_node = x->parent_node,
                             .real_node = x->real_node ? x->real_node : x->node,
                             .prompt_id = e->prompt_id,
                             .png = x->png };
    if (preview_encode(x->picture, x->png, e->preview_size, e->pool, &p.bytes, &err))
        e->dropped++; /* a run does not fail for want of a look at it */
    else
        e->out.preview(e->out.user, e->client_id, &p);
    str_release(&p.bytes);
}

void events_send(struct events *e, const struct exec_event *x)
{
    switch (x->kind) {
    case EXEC_START:
        send_data(e, "execution_start", x->data, false);
        break;
    case EXEC_CACHED:
        send_data(e, "execution_cached", x->data, false);
        break;
    case EXEC_NODE_START:
        node_began(e, x);
        break;
    case EXEC_PROGRESS:
        node_ticked(e, x);
        break;
    case EXEC_PREVIEW:
        send_preview(e, x);
        break;
    case EXEC_TEXT:
        e->out.label(e->out.user, x->node, x->text, x->text_n);
        break;
    case EXEC_EXECUTED:
        send_executed(e, x);
        break;
    case EXEC_NODE_DONE:
        node_ended(e, x);
        break;
    case EXEC_SUCCESS:
        send_data(e, "execution_success", x->data, false);
        break;
    case EXEC_ERROR:
        send_data(e, "execution_error", x->data, false);
        break;
    case EXEC_INTERRUPTED:
        send_data(e, "execution_interrupted", x->data, true);
        break;
    }
}

void events_end(struct events *e)
{
    struct str m = { 0 };
    begin(&m, "executing");
    add_text(&m, "{\"node\":null,\"prompt_id\":", e->prompt_id);
    str_adds(&m, "}}");
    to_client(e, &m);
    for (size_t i = 0; i < e->node.n; i++) {
        struct events_node *n = vec_at(&e->node, i);
        free(n->id);
        free(n->rest);
    }
    vec_release(&e->node);
    map_release(&e->index);
}
