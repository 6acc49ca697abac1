/* dnn: cuDNN 9's graphs for a card: describing them, choosing an engine, keeping what was chosen.
 *
 * Words      graph      operations on tensors, described by descriptors of cuDNN's backend API; a
 *                       tensor is real (an address when it runs), virtual (between two operations,
 *                       never in memory) or a value (one number of the host)
 *            engine     cuDNN's code for a graph; a config is an engine with its knobs set
 *            plan       a graph with the config that was chosen for it, ready to run
 *            key        everything that shapes a graph: equal keys are the same graph
 * Flow       dnn_of() -> dnn_plan(key, build) -> [the first time: build() describes the graph with
 *            dnn_tensor(), dnn_pointwise() ..., heuristics name configs, one is chosen] ->
 *            dnn_run()
 * Choice     The first config of heuristics mode A, then B, then the fallback list, that
 *            (1) has no numerical note that is refused: results that differ from run to run, sums
 *                of 16 bits, transforms that lose digits; for F32 also tensor cores (TF32)
 *            (2) wants no more than DNN_WORKSPACE bytes; if there is none, DNN_WORKSPACE_MOST
 *            (3) need not be compiled first, where another description is left (dnn_graph.ready)
 *            (4) becomes a plan, which proves that it can run here.
 *            It follows from the key, the card and the version of cuDNN alone, so that a placement
 *            never changes bits.
 * Errors     That no engine takes a graph is an answer, and kept (dnn_plan.plan is NULL, `why` has
 *            cuDNN's words). A lost card is an error, and so is memory that was short while a plan
 *            was made: then nothing is kept, and the next try may choose what the first should
 *            have. It was short if cuDNN says so, or if cuDNN failed inside while the card had
 *            little left. A config that fails inside with room to spare always fails; the next one
 *            is taken.
 * Library    libcudnn.so.9, by dlopen when first asked for, never closed: it does not survive that.
 *            That it is missing is kept; a handle that it could not make is tried again.
 * Stream     The handle has the stream of the latest dnn_run(), which its owner may destroy: plans
 *            are made, and the handle is closed, with none.
 * Threads    Executor.
 * Files      dnn.c the library, the plans; dnn_graph.c descriptors, choosing */
#pragma once

#include "base/map.h"
#include "op/cuda/cuda_op.h"

#include <cudnn_graph.h>

#define DNN_LIBRARY "libcudnn.so.9"
#define DNN_WORKSPACE ((int64_t)256 << 20)
#define DNN_WORKSPACE_MOST ((int64_t)1 << 30)
enum {
    DNN_DIMS = 4,
    DNN_KEY = 24,     /* numbers of a key */
    DNN_DESCS = 64,   /* descriptors of a graph */
    DNN_OPS = 20,     /* operations of a graph */
    DNN_CONFIGS = 64, /* of a heuristics mode that are tried */
    DNN_PLANS = 2048, /* more shapes than that: all of them are forgotten */
    DNN_ALIGN = 16    /* bytes; what addresses and rows of real tensors are aligned to */
};

/* The functions of libcudnn this program calls. */
#define DNN_API(X)                                                                                 \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnSetStream)                                                                              \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendExecute)
struct dnn_api {
#define DNN_FIELD(name) __typeof__(&name) name;
    DNN_API(DNN_FIELD)
#undef DNN_FIELD
};

typedef cudnnBackendDescriptor_t dnn_desc;

struct dnn_key {
    int64_t v[DNN_KEY]; /* the first is an enum dnn_kind; the rest is 0 where not used */
};
enum dnn_kind { DNN_NOTHING, DNN_CONV, DNN_SDPA };

struct dnn_plan {
    struct dnn_key key;
    dnn_desc plan;     /* NULL: no engine takes the graph, for the reason in `why` */
    int64_t workspace; /* bytes */
    int64_t engine;    /* its number in cuDNN, for messages */
    int attempt;       /* which description of the graph it is a plan of, as dnn_build counts */
    dnn_desc
        own[DNN_DESCS + 1]; /* what it is made of, in the order it was made: all live as long */
    size_t owns;
    char why[160];
};

struct dnn {
    struct dnn_api api;
    struct cuda_phys *phys; /* borrowed; NULL in tests */
    cudnnHandle_t handle;   /* NULL: not made yet */
    size_t version;         /* 91900 */
    struct map plans;       /* struct dnn_key -> struct dnn_plan *, owned */
    char missing[200];      /* why there is no cuDNN here; "": there is */
};

/* Whether the library can be opened here; no card is needed. */
berth_status dnn_library(berth_err *err);
/* The card's cuDNN, opened at the first call; the card's context is current then. Without it every
 * call says the same, BERTH_EUNSUPPORTED with the library's name, the loader's text and what to
 * install. BERTH_ENODEVMEM, BERTH_ENOMEM, BERTH_EDEVICE: it is there, but not now. */
berth_status dnn_of(struct cuda_card *c, struct dnn **out, berth_err *err);
void dnn_close(void *d); /* struct dnn, from the heap: cuda_keep.close; NULL is fine */

/* ---- describing a graph ---- */

/* Sticky: after the first refusal nothing more is done and `why` says what it was. */
struct dnn_graph {
    struct dnn *d;
    struct dnn_plan *p; /* gets the descriptors */
    dnn_desc op[DNN_OPS];
    size_t ops;
    int64_t uid; /* of the latest virtual tensor */
    bool bad;
    bool exact;         /* F32: no tensor cores */
    bool ready;         /* no engine that is compiled first: that takes a second for a shape */
    berth_status broke; /* memory was short or the card is lost; then nothing was chosen */
    bool large;         /* some config wanted more workspace than it was allowed */
};

enum dnn_tensor_kind { DNN_REAL, DNN_VIRTUAL, DNN_VALUE };
struct dnn_tensor {
    int64_t uid; /* of real ones and values: below DNN_UID_VIRTUAL, the caller's choice */
    enum dnn_tensor_kind kind;
    cudnnDataType_t type;
    int64_t dim[DNN_DIMS], stride[DNN_DIMS]; /* in elements */
    int64_t align;                           /* of its address, in bytes; 0 means DNN_ALIGN */
};
#define DNN_UID_VIRTUAL 1000 /* and above */

cudnnDataType_t dnn_type(enum dtype t); /* of F32, F16, BF16 */

/* All: NULL and g->bad when cuDNN refuses. What they return belongs to the plan. */
dnn_desc dnn_tensor(struct dnn_graph *g, const struct dnn_tensor *t);
/* A virtual one of four dimensions without gaps. */
dnn_desc dnn_between(struct dnn_graph *g, cudnnDataType_t type, const int64_t *dim);
/* y = mode(x), mode(x, b), or of a select x where t, else b. b, t may be NULL. axis: of
 * GEN_INDEX. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                   int64_t axis, dnn_desc x, dnn_desc b, dnn_desc t, dnn_desc y);
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t how, dnn_desc x, dnn_desc y);
void dnn_matmul(struct dnn_graph *g, dnn_desc a, dnn_desc b, dnn_desc c);
struct dnn_conv {
    int64_t before[2], after[2], stride[2]; /* rows, columns */
};
void dnn_conv(struct dnn_graph *g, const struct dnn_conv *how, dnn_desc x, dnn_desc w, dnn_desc y);
/* All of attention as one operation; cuDNN 9.13.1 and newer. */
void dnn_sdpa(struct dnn_graph *g, dnn_desc q, dnn_desc k, dnn_desc v, dnn_desc scale, dnn_desc y);

/* ---- plans ---- */

/* Describes the graph of `key`. Called again with the next `attempt` as long as no engine takes
 * what it described; false: there are no more ways to describe it. */
typedef bool dnn_build(struct dnn_graph *g, const struct dnn_key *key, int attempt);
/* The plan of `key`, built at the first call; (*out)->plan is NULL when no engine takes it. *out is
 * borrowed until the next call. An error: BERTH_ENOMEM, BERTH_ENODEVMEM, BERTH_EDEVICE. */
berth_status dnn_plan(struct dnn *d, const struct dnn_key *key, dnn_build *build,
                      const struct dnn_plan **out, berth_err *err);
/* What a failing call means. BERTH_OK: it is an answer about what was asked. d->phys may be NULL:
 * then the status alone counts. */
berth_status dnn_trouble(const struct dnn *d, cudnnStatus_t s);
/* "cudnnCreate: CUDNN_STATUS_... (4000): in cuDNN's own words". */
void dnn_words(const struct dnn *d, cudnnStatus_t s, const char *what, char *buf, size_t cap);
/* In dnn_graph.c: a config for the graph in g and its plan, into g->p. */
bool dnn_choose(struct dnn_graph *g);
/* Destroys all plans. pre: none is queued any more. */
void dnn_forget(struct dnn *d);

/* Queues it on env->stream. uid[n], at[n]: where each real tensor is, and each value on the host
 * (read by the call). workspace: p->workspace bytes of the card, aligned as its memory is. */
berth_status dnn_run(const struct op_env *env, struct dnn *d, const struct dnn_plan *p, size_t n,
                     const int64_t *uid, void *const *at, void *workspace, berth_err *err);
