/* Choosing an engine of cuDNN and keeping the plan, with a small stand-in for the library: it
 * counts what lives, names the configs a test wants and refuses the k-th call. What real engines
 * compute is looked at by the loop over all ops, on a card. */
#include "op/cuda/dnn.h"

#include "support/oom.h"
#include "unit/device/cuda_rig.h"

/* ---- the stand-in ---- */

struct config { /* of one heuristics mode, best first */
    int64_t engine, workspace;
    int notes[2]; /* -1: none */
    bool broken;  /* does not become a plan */
};

enum { CONFIGS = 6 };

static struct {
    struct config a[CONFIGS], fallback[CONFIGS];
    size_t as, fallbacks;
    long live, calls, fail; /* fail: which call is refused; -1: none */
    int plans_made;
    cudnnStatus_t broken_with; /* what a broken config answers; 0: that it is not for the shape */
    bool full;                 /* the card: plans are not made for want of memory */
    cudnnStatus_t create_with; /* what cudnnCreate answers */
    CUstream stream;           /* that the handle has */
    int handles;
    int64_t compiled; /* the engine that is compiled first; 0: none */
} fake;

struct desc {
    cudnnBackendDescriptorType_t type;
    cudnnBackendHeurMode_t mode;
    const struct config *config;
};

static bool refuse(void)
{
    return fake.calls++ == fake.fail;
}

static cudnnStatus_t create(cudnnBackendDescriptorType_t type, dnn_desc *out)
{
    if (refuse())
        return CUDNN_STATUS_ALLOC_FAILED;
    struct desc *d = test_calloc(1, sizeof *d);
    d->type = type;
    fake.live++;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(dnn_desc d)
{
    assert_non_null(d);
    fake.live--;
    test_free(d);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set(dnn_desc to, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t n, const void *p)
{
    (void)type, (void)n;
    struct desc *d = to;
    if (refuse())
        return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE)
        d->mode = *(const cudnnBackendHeurMode_t *)p;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        d->config = ((struct desc *)*(const dnn_desc *)p)->config;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize(dnn_desc what)
{
    struct desc *d = what;
    if (refuse())
        return CUDNN_STATUS_NOT_SUPPORTED;
    if (d->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
        return CUDNN_STATUS_SUCCESS;
    fake.plans_made++;
    if (fake.full)
        return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    assert_null(fake.stream); /* one that is gone, as far as cuDNN knows */
    if (!d->config->broken)
        return CUDNN_STATUS_SUCCESS;
    return fake.broken_with ? fake.broken_with : CUDNN_STATUS_NOT_SUPPORTED_SHAPE;
}

/* Mode B knows nothing here. */
static int64_t results(const struct desc *d, int64_t room, dnn_desc *out)
{
    bool a = d->mode == CUDNN_HEUR_MODE_A;
    if (!a && d->mode != CUDNN_HEUR_MODE_FALLBACK)
        return 0;
    int64_t n = (int64_t)(a ? fake.as : fake.fallbacks);
    for (int64_t i = 0; out && i < n && i < room; i++)
        ((struct desc *)out[i])->config = (a ? fake.a : fake.fallback) + i;
    return n;
}

static cudnnStatus_t get(cudnnBackendDescriptor_t const from, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t room, int64_t *n, void *out)
{
    (void)type;
    const struct desc *d = from;
    if (refuse())
        return CUDNN_STATUS_NOT_SUPPORTED;
    *n = 1;
    switch ((int)name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        *n = results(d, room, out);
        break;
    case CUDNN_ATTR_ENGINECFG_ENGINE:
        (*(struct desc **)out)->config = d->config;
        break;
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
        *(int64_t *)out = d->config->engine;
        break;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)out = d->config->workspace;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *n = 0;
        for (int i = 0; i < 2; i++)
            if (d->config->notes[i] >= 0)
                ((cudnnBackendNumericalNote_t *)out)[(*n)++] =
                    (cudnnBackendNumericalNote_t)d->config->notes[i];
        break;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        ((cudnnBackendBehaviorNote_t *)out)[0] = CUDNN_BEHAVIOR_NOTE_REQUIRES_BIAS_INT8x32_REORDER;
        ((cudnnBackendBehaviorNote_t *)out)[1] = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        *n = d->config->engine == fake.compiled ? 2 : 1;
        break;
    default:
        fail_msg("attribute %d", (int)name);
    }
    return CUDNN_STATUS_SUCCESS;
}

static const char *error_string(cudnnStatus_t s)
{
    return s == CUDNN_STATUS_NOT_SUPPORTED_SHAPE ? "THAT_SHAPE" : "REFUSED";
}

static void last_error(char *buf, size_t n)
{
    snprintf(buf, n, "in its own words");
}

static cudnnStatus_t set_stream(cudnnHandle_t h, cudaStream_t s)
{
    (void)h;
    fake.stream = (CUstream)s;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t handle_new(cudnnHandle_t *out)
{
    static int one;
    if (fake.create_with)
        return fake.create_with;
    *out = (cudnnHandle_t)(void *)&one;
    fake.handles++;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t handle_free(cudnnHandle_t h)
{
    assert_non_null(h);
    assert_null(fake.stream);
    fake.handles--;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(cudnnHandle_t h, dnn_desc plan, dnn_desc pointers)
{
    assert_true(h && plan && pointers && fake.stream);
    return fake.broken_with;
}

static struct dnn *dnn_new(void)
{
    static struct dnn d;
    d = (struct dnn) { .api = { .cudnnCreate = handle_new,
                                .cudnnDestroy = handle_free,
                                .cudnnSetStream = set_stream,
                                .cudnnBackendExecute = execute,
                                .cudnnGetErrorString = error_string,
                                .cudnnGetLastErrorString = last_error,
                                .cudnnBackendCreateDescriptor = create,
                                .cudnnBackendDestroyDescriptor = destroy,
                                .cudnnBackendFinalize = finalize,
                                .cudnnBackendSetAttribute = set,
                                .cudnnBackendGetAttribute = get },
                       .version = 91900 };
    return &d;
}

static void name_a(struct config c)
{
    fake.a[fake.as++] = c;
}

static int reset(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.fail = -1;
    return 0;
}

/* ---- a graph to choose for ---- */

/* v[1] of its key says whether it is exact, v[2] how many descriptions are refused, v[4] whether
 * the first is only for engines that need not be compiled. */
static bool build(struct dnn_graph *g, const struct dnn_key *key, int attempt)
{
    if (attempt > key->v[2])
        return false;
    g->exact = key->v[1];
    g->ready = key->v[4] && attempt == 0;
    struct dnn_tensor t = { .uid = 1, .dim = { 1, 1, 1, 8 }, .stride = { 8, 8, 8, 1 } };
    dnn_desc x = dnn_tensor(g, &t), y = dnn_between(g, CUDNN_DATA_FLOAT, t.dim);
    dnn_pointwise(g, CUDNN_POINTWISE_EXP, CUDNN_DATA_FLOAT, 0, x, NULL, NULL, y);
    if (attempt < key->v[2])
        g->bad = true;
    return true;
}

static const struct dnn_plan *plan(struct dnn *d, bool exact, int refusals, int64_t other)
{
    struct dnn_key key = { { DNN_CONV, exact, refusals, other } };
    const struct dnn_plan *p = NULL;
    berth_err err = { 0 };
    assert_ok(dnn_plan(d, &key, build, &p, &err), err);
    return p;
}

static void end(struct dnn *d)
{
    dnn_forget(d);
    assert_int_equal(fake.live, 0);
    assert_int_equal(d->plans.n, 0);
}

/* ---- tests ---- */

static void first_that_keeps_the_promises(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) { 1, 0, { CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, -1 }, false });
    name_a((struct config) {
        2,
        0,
        { CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION },
        false });
    name_a((struct config) { 3, DNN_WORKSPACE + 1, { -1, -1 }, false });
    name_a((struct config) { 4, 0, { -1, -1 }, true });
    name_a((struct config) { 5, 77, { CUDNN_NUMERICAL_NOTE_TENSOR_CORE, -1 }, false });
    name_a((struct config) { 6, 0, { -1, -1 }, false });
    const struct dnn_plan *p = plan(d, false, 0, 0);
    assert_non_null(p->plan);
    assert_int_equal(p->engine, 5);
    assert_int_equal(p->workspace, 77);
    assert_string_equal(p->why, "");
    assert_int_equal(plan(d, true, 0, 0)->engine, 6); /* F32: no tensor cores */
    end(d);
}

static void winograd_only_with_digits_to_spare(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) {
        1, 0, { CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 }, false });
    name_a((struct config) {
        2, 0, { CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 }, false });
    name_a((struct config) { 3, 0, { CUDNN_NUMERICAL_NOTE_FFT, -1 }, false });
    name_a((struct config) { 4, 0, { -1, -1 }, false });
    assert_int_equal(plan(d, true, 0, 0)->engine, 2);
    assert_int_equal(plan(d, false, 0, 0)->engine, 4);
    end(d);
}

static void large_workspace_only_without_another(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) { 1, DNN_WORKSPACE_MOST + 1, { -1, -1 }, false });
    name_a((struct config) { 2, DNN_WORKSPACE_MOST, { -1, -1 }, false });
    assert_int_equal(plan(d, false, 0, 0)->engine, 2);
    fake.fallback[fake.fallbacks++] = (struct config) { 3, DNN_WORKSPACE, { -1, -1 }, false };
    assert_int_equal(plan(d, false, 0, 1)->engine,
                     3); /* another shape: the fallback list is asked first */
    end(d);
}

static void kept(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    const struct dnn_plan *p = plan(d, false, 0, 0);
    long calls = fake.calls;
    assert_ptr_equal(plan(d, false, 0, 0), p);
    assert_int_equal(fake.calls, calls);
    assert_ptr_not_equal(plan(d, false, 0, 1), p);
    assert_int_equal(d->plans.n, 2);
    end(d);
}

static void nothing_is_an_answer(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) { 1, 0, { -1, -1 }, true });
    const struct dnn_plan *p = plan(d, false, 0, 0);
    assert_null(p->plan);
    assert_non_null(strstr(p->why, "THAT_SHAPE"));
    assert_non_null(strstr(p->why, "in its own words"));
    assert_int_equal(fake.live, 0); /* nothing is left of it */
    long calls = fake.calls;
    assert_ptr_equal(plan(d, false, 0, 0), p); /* and it is not asked again */
    assert_int_equal(fake.calls, calls);
    end(d);
}

static void next_description(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    assert_non_null(plan(d, false, 2, 0)->plan);
    assert_int_equal(plan(d, false, 2, 0)->attempt, 2);
    assert_int_equal(plan(d, false, 0, 0)->attempt, 0);
    end(d);
}

static void another_description_rather_than_compiling(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    struct dnn_key any = { { DNN_CONV, false, 0, 0, false } };
    struct dnn_key ready = { { DNN_CONV, false, 0, 0, true } };
    struct dnn_key both = { { DNN_CONV, false, 1, 0, true } };
    const struct dnn_plan *p = NULL;
    berth_err err = { 0 };
    fake.compiled = 1;
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    assert_ok(dnn_plan(d, &any, build, &p, &err), err);
    assert_int_equal(p->engine, 1);
    assert_ok(dnn_plan(d, &ready, build, &p, &err), err);
    assert_null(p->plan);
    assert_ok(dnn_plan(d, &both, build, &p, &err), err);
    assert_int_equal(p->attempt, 1);
    dnn_forget(d);
    name_a((struct config) { 2, 0, { -1, -1 }, false });
    assert_ok(dnn_plan(d, &ready, build, &p, &err), err);
    assert_int_equal(p->engine, 2);
    end(d);
}

/* Whatever cuDNN refuses, nothing stays behind, and the answer is a plan, a reason, or an error
 * when it was memory. */
static void every_call_may_fail(void **state)
{
    (void)state;
    size_t errors = 0;
    for (long k = 0;; k++) {
        reset(NULL);
        struct dnn *d = dnn_new();
        struct dnn_key key = { { DNN_CONV } };
        const struct dnn_plan *p = NULL;
        berth_err err = { 0 };
        name_a((struct config) { 1, 0, { CUDNN_NUMERICAL_NOTE_FFT, -1 }, false });
        name_a((struct config) { 2, 0, { -1, -1 }, false });
        name_a((struct config) { 3, 0, { -1, -1 }, false });
        fake.fallback[fake.fallbacks++] = (struct config) { 4, 0, { -1, -1 }, false };
        fake.fail = k;
        berth_status s = dnn_plan(d, &key, build, &p, &err);
        if (s) {
            assert_true(s == BERTH_ENOMEM && !p && err.msg[0]);
            assert_int_equal(fake.live, 0);
            errors++;
        } else {
            assert_true(p->plan ? !p->why[0] : p->why[0]);
        }
        bool reached = fake.calls > k;
        end(d);
        if (!reached)
            break;
    }
    assert_true(errors > 0);
}

/* A plan that could not be made for want of memory is not remembered as one that cannot be. */
static void short_of_memory_is_no_answer(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    struct dnn_key key = { { DNN_CONV } };
    const struct dnn_plan *p = NULL;
    berth_err err = { 0 };
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    name_a((struct config) { 2, 0, { -1, -1 }, false });
    fake.full = true;
    assert_fails(dnn_plan(d, &key, build, &p, &err), err, BERTH_ENODEVMEM, "in its own words");
    assert_int_equal(fake.live, 0);
    assert_int_equal(d->plans.n, 0);
    assert_int_equal(fake.plans_made, 1); /* the second config was not taken for the first */
    fake.full = false;
    assert_int_equal(plan(d, false, 0, 0)->engine, 1);
    end(d);
}

/* ---- with a card ---- */

struct card {
    struct rig rig;
    struct devset *set;
    struct dev_stream *stream;
    struct op_env env;
    struct cuda_card *c;
    struct dnn *d;
    berth_err err;
};

/* Its cuDNN is the stand-in, without a handle so far. */
static void card_open(struct card *c)
{
    memset(c, 0, sizeof *c);
    fake_rig(&c->rig);
    c->rig.fake->total = (size_t)1 << 30;
    c->set = open_devices("cuda:0", &c->rig.env);
    c->stream = stream_of(devset_at(c->set, 0));
    c->env.stream = c->stream;
    assert_ok(cuda_card(&c->env, &c->c, &c->err), c->err);
    c->d = malloc(sizeof *c->d);
    assert_non_null(c->d);
    *c->d = *dnn_new();
    c->d->phys = c->c->phys;
    c->c->keep[CUDA_SLOT_DNN] = (struct cuda_keep) { c->d, dnn_close };
}

static void card_close(struct card *c)
{
    end(c->d);
    dev_stream_free(c->stream);
    close_clean(&c->rig, c->set);
    assert_int_equal(fake.handles, 0);
}

/* A handle that cannot be made now is no missing library. */
static void handles_are_tried_again(void **state)
{
    (void)state;
    static const struct {
        cudnnStatus_t says;
        size_t total;
        berth_status is;
    } at[] = {
        { CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED, 1 << 30, BERTH_ENODEVMEM },
        { CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 1 << 30, BERTH_ENOMEM },
        { CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 200 << 20, BERTH_ENODEVMEM },
        { CUDNN_STATUS_NOT_INITIALIZED, 200 << 20, BERTH_ENODEVMEM },
        { CUDNN_STATUS_NOT_INITIALIZED, 1 << 30, BERTH_EUNSUPPORTED },
        { CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, 200 << 20, BERTH_EUNSUPPORTED },
    };
    struct card c;
    struct dnn *d = NULL;
    card_open(&c);
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        c.rig.fake->total = at[i].total;
        fake.create_with = at[i].says;
        assert_fails(dnn_of(c.c, &d, &c.err), c.err, at[i].is, "cudnnCreate: REFUSED");
        assert_non_null(strstr(c.err.msg, "in its own words"));
    }
    fake.create_with = CUDNN_STATUS_SUCCESS;
    assert_ok(dnn_of(c.c, &d, &c.err), c.err);
    assert_ok(dnn_of(c.c, &d, &c.err), c.err);
    assert_ptr_equal(d, c.d);
    assert_int_equal(fake.handles, 1);
    card_close(&c);
}

/* cuDNN works in the context that is current. */
static void its_context_is_current(void **state)
{
    (void)state;
    struct card c;
    struct dnn *d = NULL;
    size_t left, total;
    card_open(&c);
    const struct cuda_api *api = c.d->phys->api;
    assert_int_equal(api->cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_not_equal(api->cuMemGetInfo(&left, &total), CUDA_SUCCESS);
    assert_ok(dnn_of(c.c, &d, &c.err), c.err);
    assert_int_equal(d->version, 91900);
    assert_int_equal(api->cuMemGetInfo(&left, &total), CUDA_SUCCESS);
    card_close(&c);
}

/* The next config is one that fails inside with room to spare, never one that had no room. */
static void engines_are_not_chosen_by_pressure(void **state)
{
    (void)state;
    static const cudnnStatus_t says[] = { CUDNN_STATUS_INTERNAL_ERROR,
                                          CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED,
                                          CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER };
    for (size_t i = 0; i < ARRAY_LEN(says); i++) {
        struct card c;
        struct dnn_key key = { { DNN_CONV } };
        const struct dnn_plan *p = NULL;
        reset(NULL);
        card_open(&c);
        fake.broken_with = says[i];
        name_a((struct config) { 1, 0, { -1, -1 }, true });
        name_a((struct config) { 2, 0, { -1, -1 }, false });
        c.rig.fake->total = 200 << 20;
        assert_fails(dnn_plan(c.d, &key, build, &p, &c.err), c.err, BERTH_ENODEVMEM, "own words");
        assert_int_equal(fake.plans_made, 1);
        assert_int_equal(c.d->plans.n, 0);
        c.rig.lose(0, CUDA_ERROR_ILLEGAL_ADDRESS);
        c.rig.fake->total = (size_t)1 << 30;
        assert_fails(dnn_plan(c.d, &key, build, &p, &c.err), c.err, BERTH_EDEVICE, "own words");
        assert_int_equal(c.d->plans.n, 0);
        card_close(&c);
        card_open(&c);
        assert_ok(dnn_plan(c.d, &key, build, &p, &c.err), c.err);
        assert_int_equal(p->engine, 2);
        card_close(&c);
    }
}

/* The handle's stream is the one of the run, plans are made with none. */
static void streams_of_the_handle(void **state)
{
    (void)state;
    struct card c;
    struct dnn *d = NULL;
    const int64_t uid = 1;
    void *const at = &c;
    card_open(&c);
    assert_ok(dnn_of(c.c, &d, &c.err), c.err);
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    for (int i = 0; i < 3; i++) {
        const struct dnn_plan *p = plan(d, false, 0, i); /* finalize() looks at it */
        assert_ok(dnn_run(&c.env, d, p, 1, &uid, &at, NULL, &c.err), c.err);
        assert_ptr_equal(fake.stream, cuda_stream(c.stream));
    }
    fake.stream = NULL; /* as if another had set it: runs do not rely on what they once said */
    const struct dnn_plan *p = plan(d, false, 0, 0);
    assert_ok(dnn_run(&c.env, d, p, 1, &uid, &at, NULL, &c.err), c.err);
    fake.broken_with = CUDNN_STATUS_EXECUTION_FAILED;
    assert_fails(dnn_run(&c.env, d, p, 1, &uid, &at, NULL, &c.err), c.err, BERTH_EDEVICE,
                 "cudnnBackendExecute");
    c.rig.fake->total = 200 << 20;
    assert_fails(dnn_run(&c.env, d, p, 1, &uid, &at, NULL, &c.err), c.err, BERTH_ENODEVMEM,
                 "cudnnBackendExecute");
    card_close(&c);
}

/* Dry runs hear of a want of memory: scratch cannot say it. */
static void making_ready_reports(void **state)
{
    (void)state;
    struct card c;
    struct view v = { .dtype = DT_F32,
                      .shape = { .ndim = 4, .dim = { 1, 8, 4, 4 } },
                      .stride = { 512, 64, 16, 4 } };
    struct op_conv2d conv = { .x = v, .y = v, .w = v };
    conv.w.shape = (struct shape) { .ndim = 4, .dim = { 8, 8, 1, 1 } };
    memcpy(conv.w.stride, (size_t[]) { 32, 4, 4, 4 }, 4 * sizeof(size_t));
    struct view h = { .dtype = DT_BF16,
                      .shape = { .ndim = 4, .dim = { 1, 4, 2, 8 } },
                      .stride = { 128, 32, 16, 2 } };
    struct op_attention attention = { .q = h, .k = h, .v = h, .y = h };
    card_open(&c);
    fake.create_with = CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    assert_fails(cuda_conv2d_ready(&c.env, &conv, &c.err), c.err, BERTH_ENODEVMEM, "cudnnCreate");
    assert_fails(cuda_attention_ready(&c.env, &attention, &c.err), c.err, BERTH_ENODEVMEM,
                 "cudnnCreate");
    fake.create_with = CUDNN_STATUS_SUCCESS;
    fake.full = true;
    name_a((struct config) { 1, 4096, { -1, -1 }, false });
    assert_fails(cuda_conv2d_ready(&c.env, &conv, &c.err), c.err, BERTH_ENODEVMEM, "conv2d");
    assert_fails(cuda_attention_ready(&c.env, &attention, &c.err), c.err, BERTH_ENODEVMEM,
                 "attention");
    fake.full = false;
    assert_ok(cuda_conv2d_ready(&c.env, &conv, &c.err), c.err);
    assert_ok(cuda_attention_ready(&c.env, &attention, &c.err), c.err);
    assert_int_equal(cuda_conv2d_scratch(&c.env, &conv), 4096);
    assert_int_equal(cuda_attention_scratch(&c.env, &attention), 4096);
    card_close(&c);
}

static void survives_oom(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    struct dnn_key key = { { DNN_CONV } };
    const struct dnn_plan *p = NULL;
    berth_err err = { 0 };
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    oom_after(0);
    berth_status s = dnn_plan(d, &key, build, &p, &err);
    oom_off();
    assert_int_equal(s, BERTH_ENOMEM);
    assert_null(p);
    assert_int_equal(fake.live, 0);
    assert_non_null(plan(d, false, 0, 0)->plan);
    end(d);
}

static void too_many_are_forgotten(void **state)
{
    (void)state;
    struct dnn *d = dnn_new();
    name_a((struct config) { 1, 0, { -1, -1 }, false });
    for (int i = 0; i < DNN_PLANS; i++)
        plan(d, false, 0, i);
    assert_int_equal(d->plans.n, DNN_PLANS);
    assert_int_equal(fake.plans_made, DNN_PLANS);
    plan(d, false, 0, DNN_PLANS);
    assert_int_equal(d->plans.n, 1);
    plan(d, false, 0, 0); /* made anew, and the same */
    assert_int_equal(fake.plans_made, DNN_PLANS + 2);
    end(d);
}

int main(void)
{
#define TEST(x) cmocka_unit_test_setup(x, reset)
    const struct CMUnitTest tests[] = {
        TEST(first_that_keeps_the_promises),
        TEST(winograd_only_with_digits_to_spare),
        TEST(large_workspace_only_without_another),
        TEST(kept),
        TEST(nothing_is_an_answer),
        TEST(next_description),
        TEST(another_description_rather_than_compiling),
        TEST(every_call_may_fail),
        TEST(short_of_memory_is_no_answer),
        TEST(survives_oom),
        TEST(too_many_are_forgotten),
        TEST(handles_are_tried_again),
        TEST(its_context_is_current),
        TEST(engines_are_not_chosen_by_pressure),
        TEST(streams_of_the_handle),
        TEST(making_ready_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
