/* graph_impl: what the files of graph/ share. */
#pragma once

#include "base/hash.h"
#include "base/map.h"
#include "base/vec.h"
#include "graph/graph.h"

/* ---- convert.c: int(), float(), str(), bool() ---- */

enum convert_outcome {
    CONVERT_OK,
    CONVERT_REFUSED, /* text: what Python's exception says */
    CONVERT_SMALL,   /* below everything JSON can hold; text: the number, "-inf" */
    CONVERT_BIG,     /* beyond it */
};
struct conversion {
    enum convert_outcome outcome;
    json_t *value; /* owned; NULL: as it was */
    struct str text;
};
/* An error is BERTH_ENOMEM. conversion_release() always. */
berth_status py_convert(enum input_kind kind, const json_t *v, struct conversion *c,
                        berth_err *err);
void conversion_release(struct conversion *c);
json_t *js_int(node_int i);                      /* new; pre: -2^63 .. 2^64-1 */
bool js_get_int(const json_t *v, node_int *out); /* false: no integer */

/* ---- workflow.c: a prompt whose nodes have numbers ---- */

struct wf_link {
    unsigned in;   /* of the node's inputs */
    unsigned from; /* node */
    unsigned slot; /* output of that node */
};
struct wf_node { /* all borrowed from the prompt */
    const char *id;
    json_t *json;                 /* the node */
    json_t *inputs;               /* NULL: none, or no object */
    const json_t *class_type;     /* NULL: none */
    const struct node_class *cls; /* NULL: no such class */
    const struct node_input *in;  /* its inputs, dynamic ones as the prompt has them */
    size_t ins;
    size_t link, links; /* of workflow.link; in order of the inputs */
    bool broken;        /* no class, no inputs, or a link that leads nowhere */
};
struct workflow {
    struct wf_node *node; /* prompt order */
    size_t n;
    struct wf_link *link;
    size_t links;
    struct map by_id;
    struct arena mem; /* inputs of classes that have dynamic ones */
};
/* pre: an object of at most GRAPH_NODES_MAX members. Links of undeclared inputs do not count:
 * no node gets their values. BERTH_ENOMEM. */
berth_status workflow_load(const struct node_env *env, json_t *prompt, struct workflow *out,
                           berth_err *err);
void workflow_release(struct workflow *w);
size_t workflow_find(const struct workflow *w, const char *id); /* SIZE_MAX: none */
/* Calls visit for the node and all that is upstream of it, sources first, each once: those with
 * seen[] are passed over. Of a cycle every node is visited, in some order. Ends at the first
 * error. */
berth_status workflow_walk(const struct workflow *w, size_t node, bool *seen,
                           berth_status (*visit)(void *user, size_t node, berth_err *err),
                           void *user, berth_err *err);
/* May the node run without what this link brings? Then its class asks for it, or not. */
bool workflow_is_lazy(const struct wf_node *n, const struct wf_link *l);
const struct node_class *graph_class(const struct node_env *env, const char *name);
/* The value of a constant input: {"__value__": v} is v. NULL stays NULL. */
json_t *workflow_constant(json_t *v);

/* replace.c: nodes of classes that were given up become what does their work now. Changes the
 * prompt, an object. BERTH_ENOMEM. */
berth_status graph_replace(const struct node_env *env, json_t *prompt, berth_err *err);

/* What validation knows of a node. */
enum check_state { CHECK_NEW, CHECK_OPEN, CHECK_GOOD, CHECK_BAD };
struct checked {
    enum check_state state;
    size_t frame;   /* CHECK_OPEN: its place on validation's stack */
    bool wanted;    /* an output that is asked for */
    bool doomed;    /* it, or something it cannot do without, has a `why` */
    bool no_device; /* its validator named a device that is not there */
    json_t *errors; /* array or NULL; moves into the answer */
    json_t *why;    /* a reason of its own that it cannot be computed, or NULL */
};

/* ---- doom.c: what would stop a prompt that is otherwise right ---- */

/* A node whose sources were added before. good: it was found right; its files are only looked at
 * then. */
berth_status doom_add(struct checked *c, const struct node_env *env, const struct workflow *w,
                      size_t node, bool good, berth_err *err);
/* Outputs that are doomed become CHECK_BAD, and the reasons errors of their nodes. */
berth_status doom_judge(struct checked *c, const struct workflow *w, berth_err *err);

/* fit.c: false: the node decodes latents with a VAE that cannot; *why gets "input - words". */
bool fit_check(const struct node_env *env, const struct workflow *w, size_t node, struct str *why);

/* ---- verrors.c: what validation answers ---- */

json_t *js_text(const char *s, size_t n); /* new string; malformed UTF-8 becomes '?' */
json_t *js_textf(const char *fmt, ...) PRINTF_LIKE(1, 2);
json_t *js_take(struct str *text); /* the same of a text, which is released; NULL if it is bad */
/* {type, message, details, extra_info}; takes message, details and extra. NULL: out of memory, also
 * when one of them is NULL. */
json_t *reason_new(const char *type, json_t *message, json_t *details, json_t *extra);
/* Adds a line of a traceback: a node, and its input (NULL: none) that led to the next. False: out
 * of memory. */
bool trace_add(json_t *trace, const struct wf_node *n, const char *input);
/* The prompt is refused: error becomes such a reason without extra. Takes message and details. */
berth_status validation_refuse(struct validation *out, const char *type, json_t *message,
                               json_t *details, berth_err *err);

/* Fills out, whose arrays are there and empty. cycle: there is one. */
berth_status verdict_answer(const struct workflow *wf, struct checked *node, bool cycle,
                            struct validation *out, berth_err *err);
