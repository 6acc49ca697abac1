/* worker_request: what others ask of the worker: frees, changes of models, looks at both. */
#include "server/worker_impl.h"

#include <inttypes.h>

static void release_texts(char **at, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(at[i]);
    free(at);
}

void worker_free_release(struct worker_free *f)
{
    release_texts(f->models, f->models_n);
    release_texts(f->devices, f->devices_n);
    free(f->reason);
    *f = (struct worker_free) { 0 };
}

void worker_change_release(struct worker_change *c)
{
    free(c->allocation);
    free(c->compute);
    *c = (struct worker_change) { 0 };
}

static bool changes_plan(const struct worker_change *c)
{
    return c->allocation || c->sets_layout || c->compute;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    worker_free_release(&r->f);
    worker_change_release(&r->c);
    str_release(&r->text);
    free(r);
}

/* On the loop: the answer, once. */
static void answer(struct server *s, void *arg)
{
    struct request *r = arg;
    if (r->status)
        str_clear(&r->text);
    r->done(s, r->user, r->status, &r->err, &r->text);
    request_free(r);
}

static void finish(struct request *r)
{
    if (r->text.bad && !r->status)
        r->status = err_set(&r->err, BERTH_ENOMEM, "the answer to what was done");
    if (r->done)
        loop_post(r->server, &r->post, answer, r);
    else
        request_free(r);
}

static void do_one(struct worker *w, struct request *r);

static void run(struct res_request *q, bool canceled)
{
    struct request *r = (struct request *)q;
    if (canceled)
        r->status = err_set(&r->err, BERTH_ECANCELED, "the server stops");
    else
        do_one(r->server->worker, r);
    finish(r);
}

/* r NULL: nothing but the flags of f. */
static void post(struct server *s, struct request *r, const struct worker_free *f)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    bool ended = w->ended;
    if (!ended && r)
        res_request(w->parts.res, &r->q);
    else if (!ended)
        res_request_free(w->parts.res, f->unload_models, f->free_memory, false);
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    if (ended && r)
        run(&r->q, true);
    store_wake(s->store);
}

static struct request *new_request(struct server *s, worker_done_fn *done, void *user)
{
    struct request *r = calloc(1, sizeof *r);
    if (r) {
        r->q.run = run;
        r->server = s;
        r->done = done;
        r->user = user;
        return r;
    }
    berth_err err;
    struct str none = { 0 };
    err_set(&err, BERTH_ENOMEM, "a request to the worker");
    if (done)
        done(s, user, err.code, &err, &none);
    return NULL;
}

void worker_post_free(struct server *s, struct worker_free *f, worker_done_fn *done, void *user)
{
    bool plain =
        !done && !f->wait && !f->dry_run && !f->force && !f->models_n && !f->devices_n && !f->tiers;
    struct request *r = plain ? NULL : new_request(s, done, user);
    if (plain && (f->unload_models || f->free_memory))
        post(s, NULL, f);
    if (!r) {
        worker_free_release(f);
        return;
    }
    r->kind = REQUEST_FREE;
    r->q.quick = f->dry_run;
    r->f = *f;
    *f = (struct worker_free) { 0 };
    post(s, r, NULL);
}

void worker_post_change(struct server *s, struct worker_change *taken, worker_done_fn *done,
                        void *user)
{
    struct request *r = new_request(s, done, user);
    if (!r) {
        worker_change_release(taken);
        return;
    }
    const struct worker_change *c = &r->c;
    r->kind = taken->look ? REQUEST_LOOK : REQUEST_CHANGE;
    r->c = *taken;
    *taken = (struct worker_change) { 0 };
    /* a mark acts at the end of the prompt */
    r->q.quick = c->look || (!c->eject && !changes_plan(c));
    r->q.model = c->look ? 0 : c->model;
    post(s, r, NULL);
}

/* ---- frees ---- */

/* After a free: it trims, as a collection does. */
static void freed(struct worker *w, const struct res_receipt *x)
{
    receipts_add(w, x);
    w->freed = w->owed = false;
    w->collected = worker_now(w);
    state_publish(w, "free", true);
}

static void free_now(struct worker *w, struct request *r, const struct res_free_args *args)
{
    struct res_receipt x = { 0 };
    r->status = res_free(w->parts.res, args, &x, &r->err);
    if (r->status && !r->done)
        log_warn(&w->server->log, "worker.free", "%s", r->err.msg);
    if (!r->status)
        res_receipt_json(&x, &r->text);
    if (!r->status && !args->dry_run)
        freed(w, &x);
    res_receipt_release(&x);
}

static void do_free(struct worker *w, struct request *r)
{
    const struct worker_free *f = &r->f;
    struct res_free_args args = { .unload_models = f->unload_models,
                                  .free_memory = f->free_memory,
                                  .force = f->force,
                                  .dry_run = f->dry_run,
                                  .after_prompt = f->dry_run,
                                  .wait = f->wait,
                                  .models = (const char *const *)f->models,
                                  .models_n = f->models_n,
                                  .devices = (const char *const *)f->devices,
                                  .devices_n = f->devices_n,
                                  .tiers = f->tiers,
                                  .reason = f->reason ? f->reason : "requested" };
    free_now(w, r, &args);
}

/* ---- changes ---- */

static void eject(struct worker *w, struct request *r, struct res_model *m)
{
    struct res_model_info info = res_info(m);
    char name[256 + 24];
    snprintf(name, sizeof name, "%.200s#%" PRIu64, info.name, info.id); /* as ledgers call it */
    if (info.retention == RES_KEEP && !r->c.force) {
        r->status = err_set(&r->err, BERTH_EBUSY,
                            "model %s is keep: change its retention first, or force", name);
        return;
    }
    const char *const names[] = { name };
    struct res_free_args args = { .unload_models = true,
                                  .force = r->c.force,
                                  .wait = true,
                                  .models = names,
                                  .models_n = 1,
                                  .reason = "ejected by request" };
    free_now(w, r, &args);
}

/* What the change leaves open stays as it is. A new compute device alone: an automatic plan there.
 * look NULL: apply it. */
static berth_status replan(struct res_model *m, const struct worker_change *c,
                           struct res_look *look, berth_err *err)
{
    const struct plan *now = res_plan(m); /* until the new one is there */
    struct str same = { 0 };
    char compute[DEV_NAME_MAX];
    struct plan_args args = { .layout = now->layout, .reserve = UINT64_MAX };
    if (c->sets_layout)
        args.layout = c->layout;
    if (!c->allocation && !c->compute)
        plan_string(now, &same);
    args.alloc = c->allocation ? c->allocation : str_c(&same);
    snprintf(compute, sizeof compute, "%s", now->devices.at[now->quotas.compute].name);
    args.compute = c->compute ? c->compute : compute; /* a string that names one goes before */
    berth_status st = same.bad ? err_set(err, BERTH_ENOMEM, "a new plan") : BERTH_OK;
    if (!st && look)
        st = res_replan_look(m, &args, look, err);
    else if (!st)
        st = res_replan(m, &args, NULL, err);
    if (!st && !look)
        res_plan_by_hand(m);
    str_release(&same);
    return st;
}

static struct res_model *find_model(struct worker *w, struct request *r)
{
    struct res_model *m = res_model_by_id(w->parts.res, r->c.model);
    if (!m)
        r->status = err_set(&r->err, BERTH_ENOTFOUND, "no model has the id %" PRIu64, r->c.model);
    return m;
}

/* Devices without any are left out. Compact inside of an indented text, as it has always been. */
static void add_bytes(struct jsonout *j, const char *device, uint64_t bytes)
{
    struct jsonout compact = { .out = j->out, .depth = j->depth };
    if (bytes)
        jo_u64(&compact, device, bytes);
}

static void look_json(const struct worker *w, const struct res_model *m, const struct res_look *x,
                      struct str *out)
{
    struct jsonout j = { .out = out, .indent = 2 };
    jo_open(&j, NULL, '{');
    plan_as_json(&x->plan, res_blocks(m), res_info(m).converted, &j);
    str_addc(out, '\n'); /* clients have always seen it here */
    jo_open_flat(&j, "now", '{');
    for (size_t d = 0; d < devset_count(w->parts.devices); d++)
        add_bytes(&j, devset_at(w->parts.devices, d)->name, res_bytes_on(m, d));
    jo_close(&j, '}');
    jo_open_flat(&j, "after", '{');
    for (size_t d = 0; d < x->plan.devices.n; d++)
        add_bytes(&j, x->plan.devices.at[d].name, x->after[d]);
    jo_close(&j, '}');
    jo_u64(&j, "moves", x->moves);
    jo_close(&j, '}');
}

static void do_look(struct worker *w, struct request *r)
{
    struct res_model *m = find_model(w, r);
    struct res_look x = { 0 };
    if (m)
        r->status = replan(m, &r->c, &x, &r->err);
    if (m && !r->status)
        look_json(w, m, &x, &r->text);
    plan_release(&x.plan);
}

static void do_change(struct worker *w, struct request *r)
{
    const struct worker_change *c = &r->c;
    struct res_model *m = find_model(w, r);
    if (!m)
        return;
    if (c->eject) {
        eject(w, r, m);
        return;
    }
    if (changes_plan(c))
        r->status = replan(m, c, NULL, &r->err);
    struct str name = { 0 };
    str_adds(&name, res_info(m).name);
    if (!r->status && c->sets_retention)
        res_set_retention(m, c->retention); /* the last step: it cannot fail, and m may be gone */
    state_publish(w, "change", true);
    if (!r->status && !worker_model_json(w->server, c->model, false, &r->text)) {
        struct jsonout j = { .out = &r->text };
        jo_open(&j, NULL, '{');
        jo_u64(&j, "id", c->model);
        jo_str(&j, "name", str_c(&name));
        jo_str(&j, "state", "gone");
        jo_close(&j, '}');
    }
    str_release(&name);
}

/* ---- all of them ---- */

static void do_one(struct worker *w, struct request *r)
{
    const atomic_bool *left = r->kind == REQUEST_FREE ? r->f.left : r->c.left;
    if (left && atomic_load(left))
        r->status = err_set(&r->err, BERTH_ECANCELED, "the client left before its turn");
    else if (r->kind == REQUEST_FREE)
        do_free(w, r);
    else if (r->kind == REQUEST_CHANGE)
        do_change(w, r);
    else
        do_look(w, r);
}

void worker_do_requests(struct worker *w)
{
    berth_status s = BERTH_OK;
    res_run_requests(w->parts.res);
    while (!s && res_has_requests(w->parts.res)) { /* a free is next, and pressure is looked at */
        struct res_receipt x;
        berth_err err = { 0 };
        s = res_settle(w->parts.res, &x, &err);
        if (s)
            log_warn(&w->server->log, "worker.free", "%s", err.msg);
        freed(w, &x);
        res_receipt_release(&x);
        res_run_requests(w->parts.res);
    }
}
