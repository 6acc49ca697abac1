/* engine: runs prompts. `berth run`, the server's worker and berth_run() all go through it.
 *
 * Calls      engine_new() -> engine_check() for each prompt, on any thread -> engine_run(), on one
 *            thread at a time -> engine_free(). Results of nodes are cached between runs.
 * A run      1 events.event   START, CACHED, then what each node reports (graph.h)
 *            2 events.ended   the result is there: write it down and tell clients
 *            3                models held only by this prompt are released; if a node ran out of
 *                             device memory, or with unload_after_prompt, all evictable models go
 *            4                what was requested during the prompt (res_request()), then the free
 *                             at its end (res_prompt_end())
 *            events.receipt gets the receipt of each free in 3 and 4 that is not a request's own.
 * Threads    The engine belongs to the thread that runs prompts, except engine_check() and
 *            engine_env(), which any thread may call. Events arrive on that thread.
 * Files      engine.c */
#pragma once

#include "graph/graph.h"
#include "residency/residency.h"

struct engine_config { /* zero: the default of every field. Borrowed until engine_free() */
    struct residency *res;
    struct devset *devices;
    struct tpool *pool;
    struct folders *folders;
    const char *const *tokenizers; /* folders, see struct node_env */
    size_t tokenizers_n;
    const char *media_helper;  /* see struct node_env; NULL: none */
    const struct clock *clock; /* NULL: the system's */
    const struct log *log;     /* may be NULL */
    struct node_numbers numbers;
    bool disable_metadata;
    bool unload_after_prompt; /* models go with every prompt, keep ones stay */
    bool alone, hide_folders; /* executor_config's */
    enum cache_mode cache;
    size_t cache_lru;
    double cache_ram_gb;
};

struct engine;
/* One engine per registry: it is the registry's reset callback until it is freed. */
berth_status engine_new(const struct engine_config *cfg, struct engine **out, berth_err *err);
void engine_free(struct engine *e); /* NULL is fine */
/* Drops every cached result, and with them the models they hold. */
void engine_reset(struct engine *e);

/* For validation and for questions about nodes: any thread, no models. */
const struct node_env *engine_env(const struct engine *e);
struct executor_info engine_info(const struct engine *e);
/* For tests: runs look up node classes with `find` from now on. */
void engine_set_classes(struct engine *e, const struct node_class *(*find)(const char *name));

/* What clients post and files hold: the nodes themselves, or {"prompt": nodes, "extra_data": ...}
 * around them. *prompt and *extra (may be NULL) are new references. BERTH_EUNSUPPORTED: the
 * editor's own format, with how to export the other. */
berth_status engine_unwrap(json_t *all, json_t **prompt, json_t **extra, berth_err *err);
/* graph_validate() in this engine's environment. */
berth_status engine_check(const struct engine *e, json_t *prompt, const json_t *targets,
                          struct validation *out, berth_err *err);

struct engine_events { /* functions may be NULL */
    void *user;
    bool previews; /* pictures of sampling steps are wanted */
    exec_event_fn *event;
    void (*ended)(void *user, const struct exec_result *r);
    void (*receipt)(void *user, struct res_receipt *x); /* x may be taken: then it is zeroed */
};
/* Runs a prompt that was checked. BERTH_OK whatever the prompt did: *out says it. An error is our
 * own trouble (BERTH_ENOMEM), and then *out is a failed result that says so. exec_result_release()
 * always. */
berth_status engine_run(struct engine *e, const struct exec_request *q,
                        const struct engine_events *events, struct exec_result *out,
                        berth_err *err);
/* The same course for a prompt that cannot begin: its result is the failure `why`. */
void engine_refuse(struct engine *e, const char *prompt_id, const berth_err *why,
                   const struct engine_events *events, struct exec_result *out);

/* One item of a node's outputs that is a file, {"filename","subfolder","type"}: appends its path.
 * False: it is none. */
bool engine_file_path(const struct folders *f, const json_t *item, struct str *out);
