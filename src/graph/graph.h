/* graph: a workflow from JSON to outputs.
 *
 * Words      prompt     {node_id: {class_type, inputs}} as clients send it, in their order
 *            link       ["node_id", slot] in place of a value
 *            key        a 128-bit hash of all that a node's outputs depend on (keys.c)
 * Flow       graph_validate() (server thread or CLI) -> store -> executor_run() (worker thread)
 * Limits     GRAPH_NODES_MAX nodes, GRAPH_INPUTS_MAX inputs each, ids up to GRAPH_ID_MAX bytes;
 *            depth of recursion never follows depth of graph: walks use a stack of their own.
 *            Answers of validation are bounded too: beyond 100,000 entries dependent_outputs end,
 *            and beyond 100,000 choices input_config is null.
 * Differs    from ComfyUI where comfyui-api.md section 12 says so, and: arrays in {"__value__":
 *            [...]} stay wrapped when stored back, negative slots and NaN are refused, links of
 *            undeclared inputs are constants (they run nothing), a class that tells no lazy() needs
 *            all its inputs, a replaced node keeps its inputs where nothing says what becomes of
 *            them, no class expands into a graph of its own, errors of a cycle name 32
 *            nodes of it.
 * Threads    Validation: any, with an env that has no residency. Executor: one thread.
 * Files      replace.c classes that are gone; workflow.c a prompt whose nodes have numbers;
 *            validate.c the rules, doom.c what cannot be computed, fit.c VAEs that do not fit,
 *            verrors.c what they answer; convert.c values as Python would convert them; keys.c
 *            signatures; cache.c; order.c which node next; executor.c the run, run_node.c one
 *            node, result.c events and history pieces */
#pragma once

#include "node/node.h"
#include "node/py.h"

#define GRAPH_NODES_MAX 10000
#define GRAPH_INPUTS_MAX 1000
#define GRAPH_ID_MAX 256

/* ---- validation: comfyui-api.md section 3 ---- */
struct validation {
    bool ok;             /* at least one output can run */
    json_t *error;       /* {type, message, details, extra_info}; NULL when ok */
    json_t *node_errors; /* object, maybe empty */
    json_t *outputs;     /* array of ids that will run, prompt order */
    json_t *no_device;   /* {id: true} of nodes that name a device which is not there */
};
/* Changes `prompt` in place: classes that were given up are replaced, converted values stored back.
 * targets: partial_execution_targets, NULL or JSON null: no filter. A prompt that is refused is
 * BERTH_OK with ok false; an error is our own trouble (BERTH_ENOMEM). */
berth_status graph_validate(const struct node_env *env, json_t *prompt, const json_t *targets,
                            struct validation *out, berth_err *err);
void validation_release(struct validation *v); /* zeroed is fine */
/* The 400 of a body without a prompt, A0; `body`, which may be NULL, may be the workflow itself. */
json_t *validation_no_prompt(json_t *body);
/* Classes that ComfyUI has given up and what is there instead, as GET /node_replacements answers
 * (comfyui-0.33.md 2.2). NULL: out of memory. */
json_t *graph_replacements(void);
/* A workflow as the editor saves it, with "nodes" and "links": no prompt. */
bool workflow_is_editors(const json_t *v);
#define WORKFLOW_OF_EDITOR "this is the editor's format; in ComfyUI choose Workflow > Export (API)"

/* float(v); false: none, or not finite */
WARN_UNUSED bool py_to_float(const json_t *v, double *out);

/* ---- the executor ---- */

enum cache_mode { CACHE_CLASSIC, CACHE_LRU, CACHE_RAM, CACHE_NONE };

enum exec_event_kind {
    EXEC_START,       /* data: wire data */
    EXEC_CACHED,      /* data */
    EXEC_NODE_START,  /* node begins: progress_state running, then executing */
    EXEC_PROGRESS,    /* value, max; picture, png: a look at this step, or NULL */
    EXEC_TEXT,        /* text */
    EXEC_EXECUTED,    /* output: ui, or NULL */
    EXEC_NODE_DONE,   /* progress_state finished */
    EXEC_SUCCESS,     /* data; not sent by the executor: executor_run() returns first, so that the
                         history can be stored before; see exec_result.last */
    EXEC_ERROR,       /* data; the same, except for a node that is blocked: the prompt goes on */
    EXEC_INTERRUPTED, /* data; the same */
};
struct exec_event { /* borrowed for the call */
    enum exec_event_kind kind;
    const char *prompt_id;
    const char *node, *display_node, *parent_node, *real_node; /* parent NULL: none */
    const char *class_type;
    double value, max;
    const json_t *data;   /* as on the wire */
    const json_t *output; /* EXEC_EXECUTED */
    const struct image *picture;
    bool png;
    const char *text;
    size_t text_n;
};
typedef void exec_event_fn(void *user, const struct exec_event *e);

struct executor_config {
    struct node_env *env; /* borrowed, outlives the executor */
    enum cache_mode cache;
    size_t lru;    /* CACHE_LRU: entries */
    double ram_gb; /* CACHE_RAM: free RAM to keep */
    /* CACHE_RAM: bytes of RAM that are free now; NULL: what the system says. */
    uint64_t (*ram_free)(void *user);
    void *ram_user;
    exec_event_fn *event; /* may be NULL */
    void *event_user;
    bool alone;        /* no server, and no models from before: advice is for that */
    bool hide_folders; /* errors name files alone, for clients elsewhere */
};
struct executor;
berth_status executor_new(const struct executor_config *cfg, struct executor **out, berth_err *err);
void executor_free(struct executor *x); /* NULL is fine */
/* Drops every cached output and node state, and with them their model handles. Also the residency's
 * reset callback (res_reset_fn). Not during a run: then it happens right after it. */
void executor_reset(void *executor);

struct exec_request { /* borrowed for the call */
    const char *prompt_id;
    json_t *prompt;            /* converted by validation; gets "is_changed" members */
    const json_t *extra_data;  /* object or NULL */
    const json_t *outputs;     /* ids */
    const atomic_bool *cancel; /* any thread sets it: the prompt is interrupted */
};
enum exec_outcome { EXEC_OK, EXEC_FAILED, EXEC_STOPPED };
struct exec_result {
    enum exec_outcome outcome;
    /* SUCCESS, ERROR or INTERRUPTED: the caller sends it when the history is stored. Its data is
     * last_data, its prompt_id the request's. */
    struct exec_event last;
    json_t *last_data;
    json_t *outputs;         /* {node_id: ui} */
    json_t *meta;            /* {node_id: {...}} */
    json_t *status;          /* {"status_str","completed","messages"}; "berth": docs/server.md */
    size_t executed, cached; /* nodes that ran; nodes of execution_cached */
    berth_status code;       /* EXEC_FAILED: of the node */
    berth_err why;           /* and the whole of it, for the log: clients hear no folders */
    bool out_of_memory;      /* device memory: the worker unloads all that may go */
};
/* BERTH_OK whatever the prompt did, a prompt that validation would have refused included; an error
 * is our own trouble (BERTH_ENOMEM), and then result is a failed one as far as there was memory for
 * it. Nothing in it is shared with the executor. exec_result_release() always. */
berth_status executor_run(struct executor *x, const struct exec_request *q, struct exec_result *out,
                          berth_err *err);
void exec_result_release(struct exec_result *r);

struct executor_info {
    size_t entries, states;
    size_t bytes; /* of cached host values, roughly */
    uint64_t hits, misses;
};
struct executor_info executor_info(const struct executor *x);
