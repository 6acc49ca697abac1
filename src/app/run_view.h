/* run_view: what berth run shows while a workflow runs: how much of all of it is done.
 *
 * Guess      How long a node takes is known once one of its class has run, or from how far the
 *            running one is. The time left is that, summed over the nodes that still wait. A class
 *            that has not run yet counts as the mean of the others. But sampling takes most of the
 *            time: with samplers in the workflow, nothing is shown before the first has reported
 *            steps, and classes that have not run count as nothing. The share never goes back.
 * Shown      On a terminal a line that is redrawn: bar, share, node, its steps, time left; never
 *            wider than the terminal. Elsewhere a line at once and then every VIEW_LOG_NS.
 * Threads    One: events come on the thread that runs the workflow, or listens to a server. */
#pragma once

#include "app/term.h"
#include "base/json.h"
#include "base/vec.h"
#include "graph/graph.h"
#include "node/node.h"

#define VIEW_LOG_NS UINT64_C(5000000000)

struct run_view { /* caller's storage; fields are the view's own */
    FILE *out;
    struct term term;
    const struct clock *clock;
    const json_t *prompt;                 /* borrowed; NULL: quiet */
    struct vec kind;                      /* struct view_kind: classes of the prompt */
    json_t *needed;                       /* {id: true} of the nodes that will run */
    size_t nodes, done;                   /* so many; finished or cached */
    uint64_t start_ns, node_ns, drawn_ns; /* of the first node, of this one; 0: not yet */
    double value, max, share;             /* of the node that runs, if it says so; of all */
    size_t at;                            /* its class in kind; SIZE_MAX: none runs */
    bool line;                            /* an unfinished line stands there */
    char label[64];
};

/* outputs: ids of the outputs that will run; NULL: the prompt's output nodes. Nodes that none of
 * them needs are not counted. quiet: nothing is ever shown. Without memory it is quiet too. */
void run_view_init(struct run_view *v, FILE *out, const struct term *term,
                   const struct clock *clock, const json_t *prompt, const json_t *outputs,
                   bool quiet);
void run_view_event(void *view, const struct exec_event *e); /* an exec_event_fn */
void run_view_clear(struct run_view *v); /* takes the line away: something else is printed now */
void run_view_release(struct run_view *v);

/* How much of all is done, 0..1, and the seconds that are left; -1: who knows. */
double run_view_share(const struct run_view *v, double *left);
