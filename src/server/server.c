/* server: wiring, start and stop; see server.h. */
#include "server/conn.h"
#include "server/packs.h"
#include "server/web.h"

#include <pthread.h>
#include <sys/random.h>

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

static berth_status name_devices(struct server *s, berth_err *err)
{
    berth_device_info info;
    size_t n = berth_ctx_device_count(s->cfg.ctx);
    char **name = calloc(n + 1, sizeof *name);
    s->device_names = name;
    for (size_t i = 0; name && i < n; i++) {
        if (berth_ctx_device_info(s->cfg.ctx, i, &info, err))
            return err->code;
        name[i] = strdup(info.name);
        if (!name[i])
            break;
        s->env.devices_n++;
    }
    return s->env.devices_n == n && name ? BERTH_OK
                                         : err_set(err, BERTH_ENOMEM, "names of %zu devices", n);
}

static berth_status fill_env(struct server *s, berth_err *err)
{
    if (name_devices(s, err))
        return err->code;
    s->env.folders = s->cfg.folders;
    s->env.devices = (const char *const *)s->device_names;
    s->env.clock = s->cfg.clock;
    s->env.looks = node_looks_new();
    if (!s->env.looks)
        return err_set(err, BERTH_ENOMEM, "the server");
    s->env.log = &s->log;
    s->env.disable_metadata = s->cfg.disable_metadata;
    s->env.numbers = s->cfg.numbers;
    s->env.tokenizers = s->cfg.tokenizers;
    s->env.tokenizers_n = s->cfg.tokenizers_n;
    if (getrandom(&s->env.temp_seed, sizeof s->env.temp_seed, 0) < 0)
        s->env.temp_seed = clock_wall_ns(s->cfg.clock);
    return BERTH_OK;
}

/* Pictures of previews live as long as the server. */
static void empty_temp(struct server *s)
{
    berth_err err;
    if (path_empty_dir(folders_temp(s->cfg.folders), &err))
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
    if (!st) /* only now: before, the folder may have been another server's */
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
    pthread_mutex_init(&s->ids_lock, NULL);
    fill_config(s, cfg);
    s->started_ns = clock_mono_ns(s->cfg.clock);
    s->started_ms = clock_wall_ns(s->cfg.clock) / 1000000;
    if (!packs_open(s)) {
        server_free(s);
        return err_set(err, BERTH_ENOMEM, "the list of node packs");
    }
    /* The hub is there before anything that logs from another thread. */
    if (logs_open(s, err) || hub_open(s, err) || fill_env(s, err) || loop_open(s, err) ||
        aux_open(s, err) || open_store(s, err) || worker_start(s, err)) {
        server_free(s);
        return err_add(err, "starting the server");
    }
    *out = s;
    return BERTH_OK;
}

/* Threads first, then what they posted, then what that stands on. */
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
    for (size_t i = 0; i < s->env.devices_n; i++)
        free(s->device_names[i]);
    free(s->device_names);
    pthread_mutex_destroy(&s->ids_lock);
    node_looks_free(s->env.looks);
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

/* The worker may need its grace; clients go on hearing of the prompt meanwhile. */
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
    log_info(&s->log, "server.stop", "sockets=%zu pending=%zu", loop_conns(s),
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
