/* server: wiring, start and stop; see server.h. */
#include "berth/ctx.h"
#include "server/conn.h"
#include "server/packs.h"
#include "server/web.h"

#include <pthread.h>

#define DEFAULT_UPLOAD (100u << 20)

/* ---- what was asked for ---- */

static void fill_config(struct server *s, const struct server_config *cfg)
{
    struct server_config *c = &s->cfg;
    *c = *cfg;
    c->max_upload = c->max_upload ? c->max_upload : DEFAULT_UPLOAD;
    c->max_pending = c->max_pending ? c->max_pending : 10000;
    c->max_history = c->max_history ? c->max_history : 10000;
    c->max_sockets = c->max_sockets ? c->max_sockets : 4096;
    c->preview_method = c->preview_method ? c->preview_method : "none";
    c->preview_size = c->preview_size ? c->preview_size : 512;
    c->clock = c->clock ? c->clock : clock_system();
}

static berth_status open_engine(struct server *s, berth_err *err)
{
    const struct ctx_parts parts = ctx_parts(s->cfg.ctx);
    const struct engine_config cfg = { .res = parts.res,
                                       .hide_folders = true,
                                       .devices = parts.devices,
                                       .pool = parts.pool,
                                       .folders = s->cfg.folders,
                                       .tokenizers = s->cfg.tokenizers,
                                       .tokenizers_n = s->cfg.tokenizers_n,
                                       .media_helper = s->cfg.media_helper,
                                       .clock = s->cfg.clock,
                                       .log = &s->log,
                                       .numbers = s->cfg.numbers,
                                       .disable_metadata = s->cfg.disable_metadata,
                                       .unload_after_prompt = s->cfg.unload_after_prompt,
                                       .cache = s->cfg.cache,
                                       .cache_lru = s->cfg.cache_lru,
                                       .cache_ram_gb = s->cfg.cache_ram_gb };
    return engine_new(&cfg, &s->engine, err);
}

/* Preview pictures live as long as the server. */
static void empty_temp(struct server *s)
{
    berth_err err;
    if (path_empty_dir(folders_own(s->cfg.folders, FOLDERS_TEMP), &err))
        log_warn(&s->log, "server.temp", "%s", err.msg);
}

static berth_status open_store(struct server *s, berth_err *err)
{
    struct store_config cfg = { .path = s->cfg.database,
                                .max_pending = s->cfg.max_pending,
                                .max_history = s->cfg.max_history,
                                .log = &s->log,
                                .clock = s->cfg.clock };
    berth_status st = store_open(&cfg, &s->store, err);
    if (!st) /* not earlier: another server may have been using the folder */
        empty_temp(s);
    return st;
}

/* ---- life ---- */

berth_status server_new(const struct server_config *cfg, struct server **out, berth_err *err)
{
    *out = NULL;
    if (guard_config(cfg, err))
        return err->code;
    struct server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, BERTH_ENOMEM, "the server");
    s->ids_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    fill_config(s, cfg);
    s->started_ns = clock_mono_ns(s->cfg.clock);
    s->started_ms = clock_wall_ns(s->cfg.clock) / 1000000;
    if (!packs_open(s)) {
        server_free(s);
        return err_set(err, BERTH_ENOMEM, "the list of node packs");
    }
    /* The hub comes before anything that logs from another thread. */
    if (logs_open(s, err) || hub_open(s, err) || open_engine(s, err) || loop_open(s, err) ||
        aux_open(s, err) || open_store(s, err) || worker_start(s, err)) {
        server_free(s);
        return err_add(err, "starting the server");
    }
    *out = s;
    return BERTH_OK;
}

/* Threads first, then what they posted, then what those calls use. */
void server_free(struct server *s)
{
    if (!s)
        return;
    atomic_store(&s->stopping, true);
    atomic_store(&s->hurry,
                 true); /* nobody waits for an answer any more: lanes only change files */
    worker_stop(s, 0);
    aux_close(s);
    if (s->loop)
        loop_settle(s);
    worker_close(s); /* cancels what is still asked of it */
    if (s->loop)
        loop_settle(s);
    if (s->store)
        empty_temp(s);
    store_close(s->store);
    loop_close(s);
    hub_close(s);
    web_close(s);
    packs_close(s);
    logs_close(s);
    engine_free(s->engine);
    free(s);
}

unsigned server_port(const struct server *s)
{
    return loop_port(s);
}

size_t server_kept(const struct server *s)
{
    return store_remaining(s->store);
}

void server_wake(struct server *s)
{
    loop_wake(s);
}

void server_hurry(struct server *s)
{
    atomic_store(&s->hurry, true);
    loop_wake(s);
}

/* ---- running and stopping ---- */

struct stopper {
    struct server *server;
    atomic_bool done;
};

/* On a thread of its own: during the grace period clients still follow the prompt. */
static void *stop_worker(void *arg)
{
    struct stopper *p = arg;
    worker_stop(p->server, p->server->cfg.grace_s);
    atomic_store(&p->done, true);
    loop_wake(p->server);
    return NULL;
}

berth_status server_run(struct server *s, const atomic_bool *stop, berth_err *err)
{
    struct stopper p = { .server = s };
    pthread_t thread;
    berth_status st = loop_run(s, stop, err);
    log_info(&s->log, "server.stop", "sockets=%zu pending=%zu", s->loop->conns_n,
             store_remaining(s->store));
    atomic_store(&s->stopping, true);
    if (s->cfg.stopping)
        s->cfg.stopping(s->cfg.user);
    loop_stop_listening(s);
    if (st || pthread_create(&thread, NULL, stop_worker, &p)) {
        worker_stop(s, st ? 0 : s->cfg.grace_s);
    } else {
        berth_err ignored;
        loop_run(s, &p.done, &ignored);
        pthread_join(thread, NULL);
    }
    if (!st)
        loop_drain(s);
    return st;
}
