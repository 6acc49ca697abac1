/* dnn_graph.c: graphs of cuDNN as descriptors, and which of its engines computes one. */
#include "op/cuda/dnn.h"

/* ---- descriptors ---- */

/* Remembers the first refusal, in cuDNN's own words. */
static bool refused(struct dnn_graph *g, cudnnStatus_t s, const char *what)
{
    if (s == CUDNN_STATUS_SUCCESS)
        return false;
    dnn_words(g->d, s, what, g->p->why, sizeof g->p->why);
    g->bad = true;
    if (!g->broke)
        g->broke = dnn_trouble(g->d, s);
    return true;
}

/* NULL after a refusal. The caller destroys it. */
static dnn_desc create(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    dnn_desc out = NULL;
    if (g->bad || refused(g, g->d->api.cudnnBackendCreateDescriptor(type, &out),
                          "cudnnBackendCreateDescriptor"))
        return NULL;
    return out;
}

/* The same for one that belongs to the plan. */
static dnn_desc make(struct dnn_graph *g, cudnnBackendDescriptorType_t type)
{
    if (g->p->owns >= DNN_DESCS)
        BUG("more than %zu descriptors in a graph", g->p->owns);
    dnn_desc out = create(g, type);
    if (out)
        g->p->own[g->p->owns++] = out;
    return out;
}

static void set_named(struct dnn_graph *g, dnn_desc d, cudnnBackendAttributeName_t attr,
                      const char *name, cudnnBackendAttributeType_t type, int64_t n, const void *p)
{
    if (!g->bad)
        refused(g, g->d->api.cudnnBackendSetAttribute(d, attr, type, n, p), name);
}
#define set(g, d, attr, type, n, p) set_named(g, d, attr, #attr, type, n, p)

/* How many values of up to `room` there are goes to *n. False: it was refused. */
static bool get_named(struct dnn_graph *g, dnn_desc d, cudnnBackendAttributeName_t attr,
                      const char *name, cudnnBackendAttributeType_t type, int64_t room, int64_t *n,
                      void *p)
{
    return !g->bad &&
           !refused(g, g->d->api.cudnnBackendGetAttribute(d, attr, type, room, n, p), name);
}
#define get(g, d, attr, type, room, n, p) get_named(g, d, attr, #attr, type, room, n, p)

#define set_desc(g, d, attr, p) set(g, d, attr, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, p)

static void finish(struct dnn_graph *g, dnn_desc d, const char *what)
{
    if (!g->bad)
        refused(g, g->d->api.cudnnBackendFinalize(d), what);
}

/* finish(), for an operation of the graph. */
static void finish_op(struct dnn_graph *g, dnn_desc d, const char *what)
{
    finish(g, d, what);
    if (g->bad)
        return;
    if (g->ops == DNN_OPS)
        BUG("more than %d operations in a graph", DNN_OPS);
    g->op[g->ops++] = d;
}

cudnnDataType_t dnn_type(enum dtype t)
{
    return t == DT_F16 ? CUDNN_DATA_HALF : t == DT_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

dnn_desc dnn_tensor(struct dnn_graph *g, const struct dnn_tensor *t)
{
    dnn_desc d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t align = t->align ? t->align : DNN_ALIGN;
    bool yes = true;
    set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t->type);
    set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_DIMS, t->dim);
    set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_DIMS, t->stride);
    set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &t->uid);
    set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    if (t->kind == DNN_VIRTUAL)
        set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (t->kind == DNN_VALUE)
        set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finish(g, d, "a tensor");
    return d;
}

dnn_desc dnn_between(struct dnn_graph *g, cudnnDataType_t type, const int64_t *dim)
{
    struct dnn_tensor t = { .uid = DNN_UID_VIRTUAL + g->uid++, .kind = DNN_VIRTUAL, .type = type };
    int64_t stride = 1;
    for (int i = DNN_DIMS; i-- > 0;) {
        t.dim[i] = dim[i];
        t.stride[i] = stride;
        stride *= dim[i];
    }
    return dnn_tensor(g, &t);
}

void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                   int64_t axis, dnn_desc x, dnn_desc b, dnn_desc t, dnn_desc y)
{
    dnn_desc how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(g, how, "a pointwise function");

    dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &how);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x);
    if (b)
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, &b);
    if (t)
        set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, &t);
    set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y);
    finish_op(g, op, "a pointwise operation");
}

void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t how, dnn_desc x, dnn_desc y)
{
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
    dnn_desc r = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(g, r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    set(g, r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &how);
    finish(g, r, "a reduction");

    dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, &r);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &y);
    finish_op(g, op, "a reducing operation");
}

void dnn_matmul(struct dnn_graph *g, dnn_desc a, dnn_desc b, dnn_desc c)
{
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
    dnn_desc m = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(g, m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    finish(g, m, "a product");

    dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, &a);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, &b);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, &c);
    set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, &m);
    finish_op(g, op, "a product's operation");
}

void dnn_conv(struct dnn_graph *g, const struct dnn_conv *how, dnn_desc x, dnn_desc w, dnn_desc y)
{
    cudnnDataType_t math = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t spatial = 2, dilation[2] = { 1, 1 };
    float alpha = 1, beta = 0;
    dnn_desc c = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    set(g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, how->before);
    set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, how->after);
    set(g, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    set(g, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, how->stride);
    finish(g, c, "a convolution");

    dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set_desc(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, &x);
    set_desc(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, &w);
    set_desc(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, &y);
    set_desc(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, &c);
    set(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &alpha);
    set(g, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &beta);
    finish_op(g, op, "a convolution's operation");
}

void dnn_sdpa(struct dnn_graph *g, dnn_desc q, dnn_desc k, dnn_desc v, dnn_desc scale, dnn_desc y)
{
#if CUDNN_VERSION >= 91301
    if (g->d->version >= 91301) {
        dnn_desc op = make(g, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
        set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, &q);
        set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, &k);
        set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, &v);
        set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &scale);
        set_desc(g, op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, &y);
        finish_op(g, op, "attention as one operation");
        return;
    }
#else
    (void)q, (void)k, (void)v, (void)scale, (void)y;
#endif
    refused(g, CUDNN_STATUS_NOT_SUPPORTED, "attention as one operation");
}

/* ---- choosing ---- */

/* Numerical notes that no config may have. */
static bool note_refused(cudnnBackendNumericalNote_t note, bool exact)
{
    switch (note) {
    case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
    case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
    case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
    case CUDNN_NUMERICAL_NOTE_FFT:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return true;
    case CUDNN_NUMERICAL_NOTE_WINOGRAD:
    case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        return !exact; /* its transforms lose what 16 bits cannot spare */
    case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return exact;
    default:
        return false;
    }
}

/* Whether the engine's kernels come with cuDNN. */
static bool comes_compiled(struct dnn_graph *g, dnn_desc engine)
{
    cudnnBackendBehaviorNote_t note[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT + 8];
    int64_t notes = 0, room = ARRAY_LEN(note);
    if (!get(g, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, room, &notes,
             note) ||
        notes > room)
        return false;
    for (int64_t i = 0; i < notes; i++)
        if (note[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return false;
    return true;
}

/* Asks the config's engine for its number and notes. False: it may not be chosen. */
static bool allowed(struct dnn_graph *g, dnn_desc config, int64_t *number)
{
    const struct dnn_api *f = &g->d->api;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT + 8];
    int64_t n = 0, notes = 0, room = ARRAY_LEN(note);
    g->bad = false;
    dnn_desc engine = create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine)
        return false;
    bool good = get(g, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                    &engine) &&
                get(g, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, room,
                    &notes, note) &&
                notes <= room;
    *number = -1;
    if (good && f->cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX,
                                            CUDNN_TYPE_INT64, 1, &n, number))
        *number = -1; /* only messages have it */
    for (int64_t i = 0; good && i < notes; i++)
        good = !note_refused(note[i], g->exact);
    good = good && (!g->ready || comes_compiled(g, engine));
    f->cudnnBackendDestroyDescriptor(engine);
    return good;
}

/* Makes a plan of the config if it wants at most `most` bytes. */
static bool try_config(struct dnn_graph *g, dnn_desc config, int64_t most)
{
    struct dnn_plan *p = g->p;
    int64_t bytes = 0, n = 0;
    g->bad = false;
    dnn_desc plan = create(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (!plan)
        return false;
    set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &config);
    finish(g, plan, "a plan");
    if (get(g, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes) &&
        (bytes < 0 || bytes > most)) {
        snprintf(p->why, sizeof p->why, "engine %lld wants %lld bytes of workspace",
                 (long long)p->engine, (long long)bytes);
        g->bad = true;
        g->large = true;
    }
    if (g->bad) {
        g->d->api.cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    p->workspace = bytes;
    p->plan = plan;
    return true;
}

/* The configs that one heuristics mode names, best first. Returns how many; the caller destroys
 * them. */
static int64_t ask(struct dnn_graph *g, dnn_desc graph, cudnnBackendHeurMode_t mode,
                   dnn_desc config[DNN_CONFIGS])
{
    int64_t want = 0, n = 0, made = 0;
    g->bad = false;
    dnn_desc heur = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!heur)
        return 0;
    set_desc(g, heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &graph);
    set(g, heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(g, heur, "heuristics");
    get(g, heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &want, NULL);
    if (want > DNN_CONFIGS)
        want = DNN_CONFIGS;
    while (made < want && (config[made] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)))
        made++;
    if (made)
        get(g, heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &n,
            config);
    if (g->bad || n < 0)
        n = 0;
    if (n > made)
        n = made;
    for (int64_t i = n; i < made; i++)
        g->d->api.cudnnBackendDestroyDescriptor(config[i]);
    g->d->api.cudnnBackendDestroyDescriptor(heur);
    return n;
}

/* One walk over all configs of all modes. */
static bool walk(struct dnn_graph *g, dnn_desc graph, int64_t most)
{
    static const cudnnBackendHeurMode_t mode[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK };
    struct dnn_plan *p = g->p;
    bool found = false;
    for (size_t m = 0; m < sizeof mode / sizeof *mode && !found && !g->broke; m++) {
        dnn_desc config[DNN_CONFIGS];
        int64_t n = ask(g, graph, mode[m], config);
        for (int64_t i = 0; i < n; i++) {
            if (!found && !g->broke && allowed(g, config[i], &p->engine) &&
                try_config(g, config[i], most)) {
                p->own[p->owns++] = config[i];
                found = true;
                continue;
            }
            g->d->api.cudnnBackendDestroyDescriptor(config[i]);
        }
    }
    return found;
}

bool dnn_choose(struct dnn_graph *g)
{
    struct dnn_plan *p = g->p;
    dnn_desc graph = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, (int64_t)g->ops,
        g->op);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->d->handle);
    finish(g, graph, "a graph");
    if (g->bad)
        return false;
    /* Heuristics that name nothing do not say why. What is missing then is mostly this: */
    snprintf(p->why, sizeof p->why, "no engine for it (fused ones need libnvrtc of the same CUDA)");
    bool found = walk(g, graph, DNN_WORKSPACE) ||
                 (g->large && !g->broke && walk(g, graph, DNN_WORKSPACE_MOST));
    if (found)
        p->why[0] = 0;
    return found;
}
