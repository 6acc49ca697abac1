/* worker: the thread, its start and its end. */
#include "server/worker_impl.h"

#include <errno.h>
#include <malloc.h>

#define IDLE_NS (UINT64_C(1000) * 1000000000) /* nothing is due: look around now and then */
#define TROUBLE_NS (UINT64_C(1000) * 1000000) /* between tries when the store cannot write */
#define HURRY_NS (UINT64_C(100) * 1000000)    /* between looks at server.hurry: a signal sets it */

/* ---- where messages of prompts go ---- */

static void out_state(struct server *s, const char *sid, uint64_t run, struct str *taken)
{
    hub_wait(s, sid, &s->worker->patience_ms);
    hub_send_state(s, sid, run, taken);
}

static void out_preview(struct server *s, const char *sid, struct hub_preview *taken)
{
    hub_wait(s, sid, &s->worker->patience_ms);
    hub_send_preview(s, sid, taken);
}

/* ---- executor events ---- */

static void node_now(struct worker *w, const struct exec_event *x)
{
    pthread_mutex_lock(&w->lock);
    w->value = w->max = 0;
    snprintf(w->node, sizeof w->node, "%s", x->node);
    snprintf(w->display_node, sizeof w->display_node, "%s",
             x->display_node ? x->display_node : x->node);
    pthread_mutex_unlock(&w->lock);
}

static void step_now(struct worker *w, const struct exec_event *x)
{
    pthread_mutex_lock(&w->lock);
    w->value = x->value;
    w->max = x->max;
    pthread_mutex_unlock(&w->lock);
}

void worker_on_event(void *user, const struct exec_event *x)
{
    struct worker *w = user;
    if (x->kind == EXEC_NODE_START)
        node_now(w, x);
    else if (x->kind == EXEC_PROGRESS)
        step_now(w, x);
    events_send(&w->events, x);
    res_run_requests(w->parts.res);
    if (x->kind == EXEC_NODE_DONE)
        state_publish(w, "node", false);
    else if (x->kind == EXEC_PROGRESS)
        state_tick(w);
}

/* ---- the loop ---- */

/* Idle memory goes back to drivers and the OS; memory that queued work has let go of is freed. */
static void collect(struct worker *w)
{
    for (size_t i = 0; i < devset_count(w->parts.devices); i++) {
        struct device *d = devset_at(w->parts.devices, i);
        berth_err err = { 0 };
        if (dev_poll(d, NULL, &err))
            log_warn(&w->server->log, "worker.collect", "dev=%s %s", d->name, err.msg);
        dev_trim(d);
    }
    malloc_trim(0);
    w->owed = false;
    w->collected = worker_now(w);
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* When the worker has something to do though nobody asks for it. */
static uint64_t next_due(struct worker *w)
{
    uint64_t due, now = worker_now(w);
    state_tell(w, &due);
    if (w->owed)
        due = sooner(due, w->collected + WORKER_COLLECT_NS);
    return sooner(due, now + IDLE_NS);
}

static bool is_stopping(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    bool yes = w->stopping;
    pthread_mutex_unlock(&w->lock);
    return yes;
}

/* Waits for the condition, at most ns; under the lock. */
static void wait_for(struct worker *w, uint64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t at = (uint64_t)t.tv_nsec + ns;
    t.tv_sec += (time_t)(at / 1000000000);
    t.tv_nsec = (long)(at % 1000000000);
    pthread_cond_clockwait(&w->cond, &w->lock, CLOCK_MONOTONIC, &t);
}

/* A store that cannot write now (a full disk) is asked again later. */
static void take_failed(struct worker *w, const berth_err *err)
{
    if (!w->complained)
        log_error(&w->server->log, "worker.take", "%s", err->msg);
    w->complained = true;
    pthread_mutex_lock(&w->lock);
    if (!w->stopping && !res_has_requests(w->parts.res))
        wait_for(w, TROUBLE_NS);
    pthread_mutex_unlock(&w->lock);
}

static void run_once(struct worker *w)
{
    struct store_job job = { 0 };
    bool got = false;
    berth_err err = { 0 };
    if (store_take(w->server->store, &w->wakes, next_due(w), &job, &got, &err))
        take_failed(w, &err);
    else
        w->complained = false;
    if (got)
        worker_run_job(w, &job);
    store_job_release(&job);
    worker_do_requests(w);
    if (w->owed && worker_now(w) >= w->collected + WORKER_COLLECT_NS)
        collect(w);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    state_publish(w, "start", true);
    while (!is_stopping(w))
        run_once(w);
    engine_reset(w->server->engine); /* models go on the thread that has the devices */
    pthread_mutex_lock(&w->lock);
    w->ended = true; /* from here on requests are canceled by whoever posts them */
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    res_cancel_requests(w->parts.res);
    return NULL;
}

/* ---- start and end ---- */

berth_status worker_start(struct server *s, berth_err *err)
{
    struct worker *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, BERTH_ENOMEM, "the worker");
    s->worker = w;
    w->server = s;
    w->clock = s->cfg.clock ? s->cfg.clock : clock_system();
    w->parts = ctx_parts(s->cfg.ctx);
    w->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    w->cond = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    w->models.elem = sizeof(struct model_text);
    w->collected = worker_now(w);
    w->events.out = (struct events_out) { .server = s,
                                          .listens = hub_listens,
                                          .text = hub_send,
                                          .state = out_state,
                                          .preview = out_preview,
                                          .label = hub_send_text };
    w->events.preview_size = s->cfg.preview_size ? s->cfg.preview_size : 512;
    w->events.pool = w->parts.pool;
    berth_status st = res_plan_devices(w->parts.res, NULL, false, &w->plan_devices, err);
    int n = st ? 0 : pthread_create(&w->thread, NULL, worker_main, w);
    w->started = !st && !n;
    if (w->started)
        return BERTH_OK;
    if (n)
        err_sys(err, BERTH_ELIMIT, n, "the worker's thread");
    worker_close(s);
    return err_add(err, "starting the worker");
}

void worker_stop(struct server *s, unsigned grace_s)
{
    struct worker *w = s->worker;
    if (!w || !w->started)
        return;
    uint64_t end = worker_now(w) + (uint64_t)grace_s * 1000000000, now;
    pthread_mutex_lock(&w->lock);
    w->stopping = true;
    bool running = w->job != NULL;
    pthread_cond_broadcast(&w->cond);
    pthread_mutex_unlock(&w->lock);
    store_wake(s->store);
    if (running && grace_s && !atomic_load(&s->hurry)) /* else the silence looks like a hang */
        log_info(&s->log, "worker.grace",
                 "why=\"waiting up to %u s for the running prompt; Ctrl-C again stops now\"",
                 grace_s);
    pthread_mutex_lock(&w->lock);
    while (!w->ended && w->job && !atomic_load(&s->hurry) && (now = worker_now(w)) < end)
        wait_for(w, sooner(end - now, HURRY_NS));
    bool cut = w->job != NULL;
    w->park = true; /* also of a prompt that was taken just now and has not begun */
    atomic_store(&w->cancel, true);
    pthread_mutex_unlock(&w->lock);
    if (cut)
        log_info(&s->log, "worker.park", "grace_s=%u", grace_s);
    pthread_join(w->thread, NULL);
    w->started = false;
}

void worker_close(struct server *s)
{
    struct worker *w = s->worker;
    if (!w)
        return;
    worker_stop(s, 0);
    state_release(w);
    free(w->early);
    free(w);
    s->worker = NULL;
}

/* ---- from other threads ---- */

/* Is it taken, whether or not its run has begun? id NULL: is any? */
static bool is_taken(struct store *st, const char *id)
{
    struct store_job job;
    bool running;
    if (!id)
        return store_running(st) > 0;
    running = store_job_get(st, id, &job, &running) && running;
    store_job_release(&job);
    return running;
}

/* A prompt that was taken and whose run has not begun shows as running already. Then its id is
 * remembered ("": any), and the run ends before its first node. */
bool worker_interrupt(struct server *s, const char *prompt_id)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    bool begun = w->job;
    pthread_mutex_unlock(&w->lock);
    bool taken = !begun && is_taken(s->store, prompt_id);
    pthread_mutex_lock(&w->lock);
    bool running = w->job && (!prompt_id || strcmp(w->job->id, prompt_id) == 0);
    if (running) {
        atomic_store(&w->cancel, true);
    } else if (taken && !w->job) {
        free(w->early);
        w->early = strdup(prompt_id ? prompt_id : "");
        running = w->early != NULL;
    }
    pthread_mutex_unlock(&w->lock);
    return running;
}

bool worker_executing_json(struct server *s, const char *sid, const char *key, struct jsonout *j)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    bool is = w->job && w->node[0] && w->job->client_id && strcmp(w->job->client_id, sid) == 0;
    if (is) {
        jo_open(j, key, '{');
        jo_str(j, "node", w->node);
        jo_str(j, "display_node", w->display_node);
        jo_str(j, "prompt_id", w->job->id);
        jo_close(j, '}');
    }
    pthread_mutex_unlock(&w->lock);
    return is;
}

void worker_running_json(struct server *s, const char *key, struct jsonout *j)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    if (w->job && w->node[0]) {
        jo_open(j, key, '{');
        jo_str(j, "prompt_id", w->job->id);
        jo_str(j, "node", w->node);
        jo_str(j, "display_node", w->display_node);
        jo_fmt(j, "value", "%.0f", w->value);
        jo_fmt(j, "max", "%.0f", w->max);
        jo_close(j, '}');
    } else {
        jo_str(j, key, NULL);
    }
    pthread_mutex_unlock(&w->lock);
}

void worker_plan_devices(struct server *s, struct plan_devices *out)
{
    struct worker *w = s->worker;
    pthread_mutex_lock(&w->lock);
    *out = w->plan_devices;
    pthread_mutex_unlock(&w->lock);
}
