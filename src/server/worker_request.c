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
    free(c->retention);
    free(c->allocation);
    free(c->layout);
    free(c->compute);
    *c = (struct worker_change) { 0 };
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

/* ---- the queue ---- */

bool request_queue(struct request **first, struct request ***last, struct request *r)
{
    if (r->kind == REQUEST_FLAGS)
        for (struct request *q = *first; q; q = q->next)
            if (q->kind == REQUEST_FLAGS) {
                q->f.unload_models |= r->f.unload_models;
                q->f.free_memory |= r->f.free_memory;
                return true;
            }
    r->next = NULL;
    **last = r;
    *last = &r->next;
    return false;
}

/* Does it leave a running prompt alone? Looks do, and marks, which act at its end. */
static bool is_quick(const struct request *r)
{
    const struct worker_change *c = &r->c;
    switch (r->kind) {
    case REQUEST_FLAGS:
        return false;
    case REQUEST_FREE:
        return r->f.dry_run;
    case REQUEST_CHANGE:
        return !c->eject && !c->allocation && !c->layout && !c->compute;
    case REQUEST_LOOK:
        return true;
    }
    return false;
}

/* Of two changes of a model the later one has the last word, so it must come last. */
static bool overtakes(const struct request *first, const struct request *r)
{
    for (const struct request *q = first; r->kind == REQUEST_CHANGE && q != r; q = q->next)
        if (q->kind == REQUEST_CHANGE && q->c.model == r->c.model)
            return true;
    return false;
}

struct request *request_take_quick(struct request **first, struct request ***last)
{
    struct request *list = NULL, **end = &list, **at = first;
    for (struct request *r; (r = *at);) {
        if (!is_quick(r) || overtakes(*first, r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = NULL;
        *end = r;
        end = &r->next;
    }
    *last = at;
    return list;
}

struct request *worker_take_requests(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct request *r = w->first;
    w->first = NULL;
    w->last = &w->first;
    pthread_mutex_unlock(&w->lock);
    return r;
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

static void cancel(struct request *r)
{
    r->status = err_set(&r->err, BERTH_ECANCELED, "the server stops");
    finish(r);
}

static void post(struct server *s, struct request *r)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    bool ended = w->ended;
    bool merged = !ended && request_queue(&w->first, &w->last, r);
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    if (ended)
        cancel(r);
    if (merged)
        request_free(r);
    store_wake(s->store);
}

static struct request *new_request(struct server *s, worker_done_fn *done, void *user)
{
    struct request *r = calloc(1, sizeof *r);
    if (r) {
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
    bool nothing = plain && !f->unload_models && !f->free_memory;
    struct request *r = nothing ? NULL : new_request(s, done, user);
    if (!r) {
        worker_free_release(f);
        return;
    }
    r->kind = plain ? REQUEST_FLAGS : REQUEST_FREE;
    r->f = *f;
    *f = (struct worker_free) { 0 };
    post(s, r);
}

static void post_change(struct server *s, struct worker_change *taken, bool look,
                        worker_done_fn *done, void *user)
{
    struct request *r = new_request(s, done, user);
    if (!r) {
        worker_change_release(taken);
        return;
    }
    r->kind = look ? REQUEST_LOOK : REQUEST_CHANGE;
    r->c = *taken;
    *taken = (struct worker_change) { 0 };
    post(s, r);
}

void worker_post_change(struct server *s, struct worker_change *taken, worker_done_fn *done,
                        void *user)
{
    post_change(s, taken, false, done, user);
}

void worker_post_look(struct server *s, struct worker_change *taken, worker_done_fn *done,
                      void *user)
{
    post_change(s, taken, true, done, user);
}

/* ---- frees ---- */

static void free_now(struct worker *w, struct request *r, const struct res_free_args *args)
{
    struct res_receipt x = { 0 };
    r->status = res_free(w->parts.res, args, &x, &r->err);
    if (r->status && !r->done)
        log_warn(&w->server->log, "worker.free", "%s", r->err.msg);
    if (!r->status)
        res_receipt_json(&x, &r->text);
    receipts_add(w, &x);
    res_receipt_release(&x);
    if (r->status || args->dry_run)
        return;
    w->owed = false; /* a free trims, as a collection does */
    w->collected = worker_now(w);
    state_publish(w, "free", true);
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

/* Flags go the registry's own way, which also looks at pressure. At the end of a prompt the last of
 * them is left to res_prompt_end(), in place of the automatic cleanup. */
static void do_flags(struct worker *w, struct request *r, bool ending, bool more)
{
    struct res_receipt x = { 0 };
    berth_err err = { 0 };
    if (ending && more) {
        do_free(w, r);
        return;
    }
    res_request_free(w->parts.res, r->f.unload_models, r->f.free_memory, false);
    if (ending)
        return;
    if (res_settle(w->parts.res, &x, &err))
        log_warn(&w->server->log, "worker.free", "%s", err.msg);
    receipts_add(w, &x);
    res_receipt_release(&x);
    w->owed = false;
    w->collected = worker_now(w);
    state_publish(w, "free", true);
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

/* What the change leaves open stays as it is. Another compute device alone: an automatic plan there.
 * look NULL: it is applied. */
static berth_status replan(struct res_model *m, const struct worker_change *c,
                           struct res_look *look, berth_err *err)
{
    const struct plan *now = res_plan(m); /* until the new one is there */
    struct str same = { 0 };
    char compute[DEV_NAME_MAX];
    struct plan_args args = { .layout = now->layout, .reserve = UINT64_MAX };
    if (c->layout && !plan_layout_parse(c->layout, strlen(c->layout), &args.layout))
        return err_set(err, BERTH_EINVAL, "layout '%.40s' is neither spread nor tail", c->layout);
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
    enum res_retention retention = RES_AUTO;
    if (!m)
        return;
    if (c->eject) {
        eject(w, r, m);
        return;
    }
    if (c->retention && !res_retention_parse(c->retention, &retention)) {
        r->status = err_set(&r->err, BERTH_EINVAL, "retention '%.40s' is none of keep, eject, auto",
                            c->retention);
        return;
    }
    if (c->allocation || c->layout || c->compute)
        r->status = replan(m, c, NULL, &r->err);
    struct str name = { 0 };
    js_write_string(res_info(m).name, strlen(res_info(m).name), &name);
    if (!r->status && c->retention)
        res_set_retention(m, retention); /* the last step: it cannot fail, and m may be gone */
    state_publish(w, "change", true);
    if (!r->status && !worker_model_json(w->server, c->model, false, &r->text))
        str_addf(&r->text, "{\"id\":%" PRIu64 ",\"name\":%s,\"state\":\"gone\"}", c->model,
                 name.p ? name.p : "\"\"");
    str_release(&name);
}

/* ---- all of them ---- */

static void do_one(struct worker *w, struct request *r, bool ending, bool more)
{
    const atomic_bool *left = r->kind == REQUEST_FREE ? r->f.left : r->c.left;
    if (left && atomic_load(left)) {
        r->status = err_set(&r->err, BERTH_ECANCELED, "the client left before its turn");
        return;
    }
    switch (r->kind) {
    case REQUEST_FLAGS:
        do_flags(w, r, ending, more);
        break;
    case REQUEST_FREE:
        do_free(w, r);
        break;
    case REQUEST_CHANGE:
        do_change(w, r);
        break;
    case REQUEST_LOOK:
        do_look(w, r);
        break;
    }
}

void worker_do_requests(struct worker *w, struct request *list, bool ending)
{
    for (struct request *r; (r = list);) {
        list = r->next;
        do_one(w, r, ending, list != NULL);
        finish(r);
    }
}

void worker_do_quick(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct request *list = request_take_quick(&w->first, &w->last);
    pthread_mutex_unlock(&w->lock);
    worker_do_requests(w, list, false);
}

void worker_cancel_requests(struct worker *w)
{
    struct request *list = worker_take_requests(w);
    for (struct request *r; (r = list);) {
        list = r->next;
        cancel(r);
    }
}
