/* The queue for those who show it: what waits, in order, without graphs, of which one may have
 * megabytes; and the graph of one prompt, wherever that prompt is by now. */
#include "server/routes.h"

#include <stdlib.h>
#include <string.h>

#define LISTED 100 /* unless somebody says otherwise */
#define LISTED_MAX 1000

/* ---- a list ---- */

struct waiting {
    struct later base;
    size_t most, seen, listed; /* waiting prompts: to list, met, listed */
    struct str running, list;  /* JSON */
};

static void waiting_release(struct later *l)
{
    struct waiting *x = (struct waiting *)l;
    str_release(&x->running);
    str_release(&x->list);
    free(x);
}

static void add_item(const struct store_job *j, struct str *out)
{
    str_adds(out, "{\"prompt_id\":");
    js_write_string(j->id, strlen(j->id), out);
    str_addf(out, ",\"number\":%s,\"create_time\":%lld}", j->number, (long long)j->created_ms);
}

static bool see_job(void *user, const struct store_job *j, bool running)
{
    struct waiting *x = user;
    if (running) {
        if (!x->running.n) /* the answer has room for one */
            add_item(j, &x->running);
    } else if (x->seen++ < x->most) {
        if (x->listed++)
            str_addc(&x->list, ',');
        add_item(j, &x->list);
    }
    return true;
}

static void waiting_work(struct later *l)
{
    struct waiting *x = (struct waiting *)l;
    berth_err err = { 0 };
    if (store_each_job(l->server->store, false, see_job, x, &err)) {
        later_err(l, 0, &err);
        return;
    }
    l->body.bad |= x->running.bad || x->list.bad;
    str_addf(&l->body, "{\"running\":%s,\"waiting\":[", x->running.n ? str_c(&x->running) : "null");
    str_adds(&l->body, str_c(&x->list));
    str_addf(&l->body, "],\"total\":%zu}", x->seen);
    later_made(l);
}

void route_waiting_get(struct http_req *r)
{
    bool given;
    int64_t most = LISTED;
    if (!query_int(r, "limit", &given, &most) || most < 0 || most > LISTED_MAX) {
        http_reply_json(r, 400, json_pack("{s:s}", "error", "limit must be from 0 to 1000"));
        return;
    }
    struct waiting *x = calloc(1, sizeof *x);
    if (!x) {
        http_reply_json(r, 500, NULL);
        return;
    }
    x->base.lane = AUX_LISTS;
    x->base.work = waiting_work;
    x->base.release = waiting_release;
    x->most = (size_t)most;
    later_run(r, &x->base);
}

/* ---- one graph ---- */

struct graph {
    struct later base;
    char *id;
};

static void graph_release(struct later *l)
{
    free(((struct graph *)l)->id);
    free(l);
}

static bool take_graph(void *user, const struct store_entry *e)
{
    str_adds(user, e->job.prompt);
    return false;
}

/* Gone is no error: the one who asks saw it in a list a moment ago. */
static void graph_work(struct later *l)
{
    struct store *st = l->server->store;
    const char *id = ((struct graph *)l)->id;
    struct store_job j = { 0 };
    bool running;
    berth_err err = { 0 };
    berth_status s = BERTH_OK;
    str_adds(&l->body, "{\"prompt\":");
    size_t empty = l->body.n;
    if (store_job_get(st, id, &j, &running))
        str_adds(&l->body, j.prompt);
    else
        s = store_entry_get(st, id, take_graph, &l->body, &err);
    store_job_release(&j);
    if (s && s != BERTH_ENOTFOUND) {
        later_err_json(l, 0, &err);
        return;
    }
    str_adds(&l->body, l->body.n == empty ? "null}" : "}");
    later_made(l);
}

void route_graph_get(struct http_req *r)
{
    struct graph *x = calloc(1, sizeof *x);
    if (!x || !(x->id = strdup(str_c(&r->param[0])))) {
        free(x);
        http_reply_json(r, 500, NULL);
        return;
    }
    x->base.lane = AUX_LISTS;
    x->base.work = graph_work;
    x->base.release = graph_release;
    later_run(r, &x->base);
}
