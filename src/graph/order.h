/* order: which node runs next.
 *
 * Words      strong    a link whose value must be there before its node starts; those of lazy
 *                      inputs become strong when the node asks
 *            pending   to be run (or taken from the cache) in this prompt
 *            ready     pending, and nothing it waits for is missing
 * Choice     Of the ready ones: output nodes; those that feed one; those two steps before one; then
 *            the first discovered. Pictures appear early that way.
 * Cost       O(nodes + links) and a heap. A cycle shows as: none is ready, some are pending.
 * Threads    Executor. */
#pragma once

#include "graph/graph_impl.h"

struct order_node {
    bool pending, feeds; /* feeds: an output node waits for it */
    bool done;           /* its outputs are there; may be set before it is added */
    uint8_t rank;        /* 0 output, 1 feeds one, 2 feeds one that does, 3 */
    unsigned seq;        /* of discovery */
    unsigned missing;    /* strong links whose value is not there */
    size_t back, backs;  /* of order.back: links that come from it */
};
struct order {
    const struct workflow *wf;
    struct order_node *node;
    unsigned *consumer; /* per link: the node that has it */
    size_t *back;       /* links by the node they come from */
    bool *strong;       /* per link */
    unsigned *by_seq;   /* node */
    unsigned discovered;
    size_t pending;
    struct vec heap;  /* uint64_t: rank, seq; smallest first; may hold a node twice */
    struct vec stack; /* size_t */
    struct vec fresh; /* size_t: links that became strong */
};

/* wf and mem are borrowed. BERTH_ENOMEM from all of these. order_release() also after a failure. */
berth_status order_init(struct order *o, const struct workflow *wf, struct arena *mem,
                        berth_err *err);
void order_release(struct order *o);
/* A requested output, with everything upstream that is strong. pre: not pending. */
berth_status order_add(struct order *o, size_t node, berth_err *err);
/* The link behind lazy input `in` of the node that was staged is needed after all. */
berth_status order_need(struct order *o, size_t node, unsigned in, berth_err *err);
/* Will a node that runs in this prompt get output `slot` of the node, and give `type`? Those in
 * between hand it on: they give what they got, by its type or as "*". What nobody asked for yet
 * (lazy inputs) does not count; nor does anything when memory ran out. */
bool order_leads_to(struct order *o, size_t node, size_t slot, const char *type);
size_t order_next(struct order *o); /* SIZE_MAX: none is ready */
berth_status order_again(struct order *o, size_t node, berth_err *err); /* after order_need() */
berth_status order_done(struct order *o, size_t node, berth_err *err);
