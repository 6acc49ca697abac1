/* server: the ComfyUI API and Berth's own, over HTTP/1.1 and WebSocket. libwebsockets and zlib stop
 * here.
 *
 * Words      loop     the one thread that owns sockets, sessions and replies
 *            worker   the thread that owns engine, residency and devices; one prompt at a time
 *            aux      a thread per kind of slow work, its lane: prompts, lists, files, pictures
 *            hub      the WebSocket clients by clientId
 *            sid      clientId of a socket
 * Flow       bytes -> loop.c -> http1.c request -> guard.c (origin, token) -> router.c, routes.def
 *            -> route_*.c -> reply -> bytes.
 *            POST /prompt -> graph_validate() -> store_add() -> 200 once durable -> worker ->
 *            events.c -> hub.c.
 * Why raw    libwebsockets provides the event loop, TLS and timers. We parse requests ourselves:
 *            routes match the path as sent (libwebsockets decodes it), bodies may be chunked,
 *            clients may expect 100-continue. http1.h, wsframe.h and multipart.h do no I/O and are
 *            fuzzed.
 * Threads    Each struct names its owner. Other threads reach the loop with loop_post() and the
 *            worker with worker_*(); ownership moves with what is passed. Locks are leaves.
 * Safe       127.0.0.1 by default; beyond loopback a token is required (or `insecure`). Origin
 *            guard; limits on heads, bodies, JSON, queue, sockets, uploads; idle and slow clients
 *            time out; unread output is bounded.
 * Files      conn.c one connection; http.c requests and replies; static.c files; web.c the
 *            dashboard; packs.c scripts of node packs; ws.c one WebSocket; aux.c lanes; routes.c,
 *            body.c, tree.c shared by routes; state.c, meter.c, metrics.c what can be seen of the
 *            worker. The others are named above, or after what they do. */
#pragma once

#include "berth/berth.h"
#include "graph/graph.h"

#include <stdatomic.h>

struct server;

struct server_config { /* borrowed until server_free(), except for what says otherwise */
    berth_ctx *ctx; /* the worker takes its registry over: nobody else calls into ctx meanwhile */
    struct folders *folders;
    const char *const *tokenizers; /* folders, see struct node_env */
    size_t tokenizers_n;
    const char *media_helper; /* see struct node_env; NULL: none */
    const char *const *listen; /* addresses; 0 of them: 127.0.0.1 */
    size_t listens;
    unsigned port; /* 0: any free one, server_port() tells */
    const char *tls_key, *tls_cert;
    const char *token;                            /* NULL: none */
    bool insecure;                                /* beyond loopback without a token */
    const char *cors_origin;                      /* NULL: origin guard */
    const char *frontend;                         /* folder; NULL: the dashboard is at / too */
    const char *packages;                         /* folder of Python packages; NULL: none */
    const char *comfyui;                          /* folder of a ComfyUI; NULL: none */
    const char *database;                         /* file of the store */
    uint64_t max_upload;                          /* bytes; 0: 100 MiB */
    size_t max_pending, max_history, max_sockets; /* 0: 10000, 10000, 4096 */
    bool compress, multi_user, disable_metadata;
    struct node_numbers numbers;
    bool unload_after_prompt; /* --disable-smart-memory: models go with every prompt, keep ones
                                 stay */
    enum cache_mode cache;
    size_t cache_lru;
    double cache_ram_gb;
    const char *preview_method; /* NULL: "none"; a prompt may say another */
    unsigned preview_size;      /* 0: 512 */
    const char *const *flags;   /* feature flags for clients, "KEY" or "KEY=VALUE" */
    size_t flags_n;
    const char *const *argv; /* for /system_stats */
    size_t argc;
    unsigned grace_s; /* at SIGTERM: how long the running prompt may go on before it is parked */
    void (*stopping)(void *user); /* on the loop's thread, when it shall stop; NULL: nobody asks */
    void *user;                   /* its */
    const struct log *log;
    const struct clock *clock; /* NULL: system */
};

/* Opens store, folders' state and sockets; starts worker, writer, aux. Listens when it returns. */
berth_status server_new(const struct server_config *cfg, struct server **out, berth_err *err);
unsigned server_port(const struct server *s);
/* The calling thread is the loop until *stop (any thread, or a signal handler that then calls
 * server_wake()) is set. Then: no new connections, the running prompt ends or is parked, meanwhile
 * clients are served; then they are closed (WebSockets with 1001), within two seconds or so. */
berth_status server_run(struct server *s, const atomic_bool *stop, berth_err *err);
/* After server_run(): prompts that are kept on disk and start again with the next server. */
size_t server_kept(const struct server *s);
void server_wake(struct server *s); /* any thread, and signal handlers */
/* A second thought while it stops: the running prompt is parked now, and nobody is waited for. What
 * is on disk is safe as ever. Any thread, and signal handlers. */
void server_hurry(struct server *s);
void server_free(struct server *s); /* NULL is fine */

/* Feature flags that frontends know, with types and defaults, as JSON. */
void server_flags_json(struct str *out);
/* Why a text cannot be among `flags`, where it would be left out; NULL: it can. */
const char *server_flag_wrong(const char *text);
