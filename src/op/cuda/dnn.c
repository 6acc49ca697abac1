/* dnn.c: cuDNN of a card: the library, its handle, the plans that were made. */
#include "op/cuda/dnn.h"

#include <assert.h>
#include <dlfcn.h>

/* ---- the library ---- */

/* dlsym gives an object pointer; C says nothing of making it a function's, POSIX does. */
static bool find(void *library, const char *name, void *slot, size_t bytes)
{
    void *f = dlsym(library, name);
    memcpy(slot, &f, bytes);
    return f != NULL;
}

static bool library_open(struct dnn *d)
{
    void *library = dlopen(DNN_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(d->missing, sizeof d->missing, "%.150s", why ? why : DNN_LIBRARY " does not open");
        return false;
    }
#define DNN_FIND(name)                                                                             \
    static_assert(sizeof d->api.name == sizeof(void *), #name);                                    \
    if (!find(library, #name, &d->api.name, sizeof d->api.name)) {                                 \
        snprintf(d->missing, sizeof d->missing, "%s has no %s", DNN_LIBRARY, #name);               \
        return false;                                                                              \
    }
    DNN_API(DNN_FIND)
#undef DNN_FIND
    d->version = d->api.cudnnGetVersion();
    return true;
}

berth_status dnn_library(berth_err *err)
{
    struct dnn *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, BERTH_ENOMEM, "%zu bytes for cuDNN", sizeof *d);
    berth_status s = BERTH_OK;
    if (!library_open(d))
        s = err_set(err, BERTH_EUNSUPPORTED,
                    "convolutions fail, attention is slow: no cuDNN 9: %s; install NVIDIA's cuDNN "
                    "9 for the CUDA of the driver, or name its folder in LD_LIBRARY_PATH",
                    d->missing);
    free(d);
    return s;
}

void dnn_words(const struct dnn *d, cudnnStatus_t s, const char *what, char *buf, size_t cap)
{
    char text[120] = "";
    d->api.cudnnGetLastErrorString(text, sizeof text);
    text[sizeof text - 1] = 0;
    snprintf(buf, cap, "%s: %s (%d)%s%s", what, d->api.cudnnGetErrorString(s), (int)s,
             text[0] ? ": " : "", text);
}

berth_status dnn_trouble(const struct dnn *d, cudnnStatus_t s)
{
    size_t left = 0, total = 1;
    int class = (int)s / 1000 * 1000;
    if (s == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
        return BERTH_ENODEVMEM;
    if (s != CUDNN_STATUS_NOT_INITIALIZED && class != CUDNN_STATUS_INTERNAL_ERROR &&
        class != CUDNN_STATUS_EXECUTION_FAILED)
        return BERTH_OK;
    if (d->phys && cuda_short(d->phys, &left, &total))
        return BERTH_ENODEVMEM;
    if (s == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
        return BERTH_ENOMEM;
    return total ? BERTH_OK : BERTH_EDEVICE; /* 0: the card does not even say that */
}

static berth_status start(struct dnn *d, berth_err *err)
{
    char words[200];
    cudnnStatus_t r = d->api.cudnnCreate(&d->handle);
    if (!r)
        return BERTH_OK;
    d->handle = NULL;
    dnn_words(d, r, DNN_LIBRARY ": cudnnCreate", words, sizeof words);
    berth_status s = dnn_trouble(d, r);
    return err_set_at(err, __FILE__, __LINE__, s ? s : BERTH_EUNSUPPORTED, (int)r, "%s: %s",
                      d->phys->base.name, words);
}

static void plan_release(struct dnn *d, struct dnn_plan *p)
{
    if (p->plan)
        d->api.cudnnBackendDestroyDescriptor(p->plan);
    p->plan = NULL;
    while (p->owns)
        d->api.cudnnBackendDestroyDescriptor(p->own[--p->owns]);
}

void dnn_forget(struct dnn *d)
{
    const char *key;
    size_t it = 0, len;
    uint64_t at;
    while (map_next(&d->plans, &it, &key, &len, &at)) {
        struct dnn_plan *p = (struct dnn_plan *)(uintptr_t)at;
        plan_release(d, p);
        free(p);
    }
    map_release(&d->plans);
}

void dnn_close(void *p)
{
    struct dnn *d = p;
    if (!d)
        return;
    dnn_forget(d);
    if (d->handle) {
        (void)d->api.cudnnSetStream(d->handle, NULL); /* the one it has may be gone */
        (void)d->api.cudnnDestroy(d->handle);
    }
    free(d);
}

berth_status dnn_of(struct cuda_card *c, struct dnn **out, berth_err *err)
{
    struct cuda_keep *keep = &c->keep[CUDA_SLOT_DNN];
    struct cuda_phys *phys = c->phys;
    *out = NULL;
    if (cuda_current(phys, err))
        return err->code;
    struct dnn *d = keep->p;
    if (!d) { /* made even where the library is missing, so that it is looked for once */
        if (!(d = calloc(1, sizeof *d)))
            return err_set(err, BERTH_ENOMEM, "cuDNN of %s", phys->base.name);
        d->phys = phys;
        library_open(d);
        *keep = (struct cuda_keep) { .p = d, .close = dnn_close };
    }
    if (d->missing[0])
        return err_set(
            err, BERTH_EUNSUPPORTED,
            "%s needs cuDNN 9 and has none: %s. Install NVIDIA's cuDNN 9 for CUDA %d where the "
            "loader finds it (or name its folder in LD_LIBRARY_PATH)",
            phys->base.name, d->missing, phys->api->driver / 1000);
    if (!d->handle && start(d, err))
        return err->code;
    *out = d;
    return BERTH_OK;
}

/* ---- plans ---- */

/* Tries one description after the other. Leaves p without a plan when none is taken, and with the
 * reason of the first, which is the one that counts. An error: g.broke. */
static berth_status make(struct dnn *d, struct dnn_plan *p, dnn_build *build)
{
    char why[sizeof p->why] = "";
    for (int attempt = 0;; attempt++) {
        struct dnn_graph g = { .d = d, .p = p };
        p->attempt = attempt;
        if (!build(&g, &p->key, attempt))
            break;
        if (!g.bad && dnn_choose(&g))
            return BERTH_OK;
        plan_release(d, p);
        if (g.broke)
            return g.broke;
        if (attempt == 0)
            memcpy(why, p->why, sizeof why);
    }
    memcpy(p->why, why, sizeof why);
    return BERTH_OK;
}

/* Work that is queued may still run a plan: it is done before plans go. */
static berth_status make_room(struct dnn *d, berth_err *err)
{
    if (d->plans.n < DNN_PLANS)
        return BERTH_OK;
    if (d->phys && CUDA_TRY(d->phys, cuCtxSynchronize(), err))
        return err_add(err, "forgetting plans of cuDNN");
    dnn_forget(d);
    return BERTH_OK;
}

berth_status dnn_plan(struct dnn *d, const struct dnn_key *key, dnn_build *build,
                      const struct dnn_plan **out, berth_err *err)
{
    uint64_t at;
    *out = NULL;
    if (map_get(&d->plans, (const char *)key, sizeof *key, &at)) {
        *out = (const struct dnn_plan *)(uintptr_t)at;
        return BERTH_OK;
    }
    if (make_room(d, err))
        return err->code;
    struct dnn_plan *p = calloc(1, sizeof *p);
    if (!p || !map_reserve(&d->plans, d->plans.n + 1)) {
        free(p);
        return err_set(err, BERTH_ENOMEM, "a plan of cuDNN");
    }
    p->key = *key;
    cudnnStatus_t r = d->api.cudnnSetStream(d->handle, NULL);
    berth_status s = r ? BERTH_EDEVICE : BERTH_OK;
    if (r)
        dnn_words(d, r, "cudnnSetStream", p->why, sizeof p->why);
    else
        s = make(d, p, build);
    if (s) {
        err_set(err, s, "a plan of cuDNN: %s", p->why);
        free(p);
        return s;
    }
    if (map_add(&d->plans, (const char *)&p->key, sizeof p->key, (uintptr_t)p) != MAP_ADDED)
        BUG("a plan of cuDNN was made twice");
    *out = p;
    return BERTH_OK;
}

/* ---- running ---- */

static berth_status failed(struct dnn *d, cudnnStatus_t s, const struct dnn_plan *p,
                           const char *call, berth_err *err)
{
    char words[200];
    dnn_words(d, s, call, words, sizeof words);
    berth_status trouble = dnn_trouble(d, s);
    return err_set_at(err, __FILE__, __LINE__, trouble ? trouble : BERTH_EDEVICE, (int)s,
                      "%s: engine %lld of cuDNN %zu: %s", d->phys->base.name, (long long)p->engine,
                      d->version, words);
}

/* Says where everything is. The pack is the caller's to destroy, made or not. */
static cudnnStatus_t pack(const struct dnn_api *f, size_t n, const int64_t *uid, void *const *at,
                          void *workspace, dnn_desc *out)
{
    cudnnStatus_t s = f->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, out);
    if (!s)
        s = f->cudnnBackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, (int64_t)n, at);
    if (!s)
        s = f->cudnnBackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                        (int64_t)n, uid);
    if (!s)
        s = f->cudnnBackendSetAttribute(*out, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &workspace);
    return s ? s : f->cudnnBackendFinalize(*out);
}

berth_status dnn_run(const struct op_env *env, struct dnn *d, const struct dnn_plan *p, size_t n,
                     const int64_t *uid, void *const *at, void *workspace, berth_err *err)
{
    const struct dnn_api *f = &d->api;
    if (!p->plan)
        BUG("a plan that was not made is to run");
    dnn_desc pointers = NULL;
    const char *call = "cudnnSetStream";
    cudnnStatus_t s = f->cudnnSetStream(d->handle, cuda_stream(env->stream));
    if (!s) {
        call = "a variant pack";
        s = pack(f, n, uid, at, workspace, &pointers);
    }
    if (!s) {
        call = "cudnnBackendExecute";
        s = f->cudnnBackendExecute(d->handle, p->plan, pointers);
    }
    if (s) /* before other calls change cuDNN's last words */
        failed(d, s, p, call, err);
    if (pointers)
        f->cudnnBackendDestroyDescriptor(pointers);
    return s ? err->code : BERTH_OK;
}
