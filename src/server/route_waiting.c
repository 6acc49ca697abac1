/* The queue for those who show it: what waits, in order, without graphs, of which one may have
 * megabytes; and the graph of one prompt, wherever that prompt is by now. */
#include "server/routes.h"

#define LISTED 100 /* unless somebody says otherwise */
#define LISTED_MAX 1000

/* ---- a list ---- */

struct waiting {
    struct later base;
    size_t most, seen;        /* waiting prompts: to list, met */
    struct str running, list; /* JSON; list: without its brackets */
};

static void waiting_release(struct later *l)
{
    struct waiting *x = (struct waiting *)l;
    str_release(&x->running);
    str_release(&x->list);
}

static void add_item(const struct store_job *j, struct jsonout *out)
{
    jo_open(out, NULL, '{');
    jo_str(out, "prompt_id", j->id);
    jo_raw(out, "number", j->number, strlen(j->number));
    jo_i64(out, "create_time", j->created_ms);
    jo_close(out, '}');
}

static bool see_job(void *user, const struct store_job *j, bool running)
{
    struct waiting *x = user;
    struct jsonout out = { .out = running ? &x->running : &x->list, .depth = 1 };
    if (running ? !x->running.n : x->seen++ < x->most) /* of those that run, the first one */
        add_item(j, &out);
    return true;
}

static void waiting_work(struct later *l)
{
    struct waiting *x = (struct waiting *)l;
    l->failed = store_each_job(l->server->store, false, see_job, x, &l->err);
    struct jsonout j = { .out = &l->body };
    l->body.bad |= x->running.bad || x->list.bad;
    jo_open(&j, NULL, '{');
    jo_fmt(&j, "running", "%s", x->running.n ? x->running.p : "null");
    jo_open(&j, "waiting", '[');
    if (x->list.n)
        jo_raw(&j, NULL, x->list.p, x->list.n);
    jo_close(&j, ']');
    jo_u64(&j, "total", x->seen);
    jo_close(&j, '}');
}

void route_waiting_get(struct http_req *r)
{
    bool given;
    int64_t most = LISTED;
    if (!query_int(r, "limit", &given, &most) || most < 0 || most > LISTED_MAX) {
        reply_wrong(r, "limit must be from 0 to 1000");
        return;
    }
    struct waiting *x = later_new(r, sizeof *x, AUX_LISTS, waiting_work);
    if (!x)
        return;
    x->base.release = waiting_release;
    x->most = (size_t)most;
    later_run(&x->base);
}

/* ---- one graph ---- */

static bool take_graph(void *user, const struct store_entry *e)
{
    str_adds(user, e->job.prompt);
    return false;
}

/* Gone is no error: the one who asks saw it in a list a moment ago. */
void later_graph_get(struct later *l)
{
    struct store *st = l->server->store;
    const char *id = str_c(&l->r->param[0]);
    struct store_job j = { 0 };
    bool running;
    berth_err err = { 0 };
    berth_status s = BERTH_OK;
    struct jsonout w = { .out = &l->body };
    jo_open(&w, NULL, '{');
    jo_raw(&w, "prompt", "", 0);
    size_t empty = l->body.n;
    if (store_job_get(st, id, &j, &running))
        str_adds(&l->body, j.prompt);
    else
        s = store_entry_get(st, id, take_graph, &l->body, &err);
    store_job_release(&j);
    if (l->body.n == empty)
        str_adds(&l->body, "null");
    jo_close(&w, '}');
    if (s && s != BERTH_ENOTFOUND)
        later_err_json(l, 0, &err);
}
