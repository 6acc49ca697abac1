/* server_impl: what the files of server/ share: the parts of a server, and who owns them. */
#pragma once

#include "engine/engine.h"
#include "server/http.h"
#include "server/hub.h"
#include "server/meter.h"
#include "server/server.h"
#include "server/worker.h"
#include "store/store.h"

#include <pthread.h>

struct loop;   /* loop.c */
struct hub;    /* hub.c */
struct aux;    /* aux.c */
struct worker; /* worker.c */
struct logs;   /* logs.c */
struct web;    /* web.c */
struct packs;  /* packs.c */

struct server {
    struct server_config cfg; /* constant; with defaults filled in */
    struct engine *engine;    /* the worker's; engine_check() and engine_env() are anybody's */
    struct store *store;      /* any thread */
    struct loop *loop;
    struct hub *hub; /* loop */
    struct aux *aux;
    struct worker *worker;
    struct logs *logs;      /* any thread, own lock */
    struct meter meter;     /* loop */
    struct web *web;        /* loop; NULL until somebody asks for the dashboard */
    struct packs *packs;    /* constant */
    struct log log;         /* handed to all parts: logs, then cfg.log */
    uint64_t started_ns;    /* clock_mono_ns */
    uint64_t started_ms;    /* since 1970 */
    uint64_t http_requests; /* loop; for /metrics */
    pthread_mutex_t ids_lock;
    struct incoming *ids; /* of prompts on their way into the queue; route_prompt.c */
    atomic_bool stopping;
    atomic_bool hurry; /* server_hurry() */
};

/* The parts, made and unmade by server.c in this order. *_close() of NULL is fine. */
berth_status logs_open(struct server *s, berth_err *err);
void logs_close(struct server *s);
/* Appends " key=value", up to the value's first line break, quoted and escaped where needed:
 * clients choose some values, and must not be able to add pairs. */
void logs_pair(struct str *out, const char *key, const char *value);
/* Any thread; append. The last events as lines, and as {"entries":[{"t","m"}],"size":{...}}. */
void logs_text(struct server *s, struct str *out);
void logs_json(struct server *s, struct str *out);
berth_status loop_open(struct server *s, berth_err *err); /* listens */
berth_status loop_run(struct server *s, const atomic_bool *stop, berth_err *err);
void loop_stop_listening(struct server *s);
void loop_drain(struct server *s);  /* says goodbye to every client, within a few seconds */
void loop_wake(struct server *s);   /* any thread, and signal handlers */
void loop_settle(struct server *s); /* after loop_run(): calls what was posted */
void loop_close(struct server *s);  /* closes every connection, calls what was posted */
unsigned loop_port(const struct server *s);
berth_status hub_open(struct server *s, berth_err *err);
void hub_close(struct server *s);
berth_status aux_open(struct server *s, berth_err *err);
void aux_close(struct server *s);
