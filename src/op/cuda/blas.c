/* blas.c: the library, its choices, products. */
#include "op/cuda/blas.h"

#include "base/map.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <inttypes.h>

#define MIB ((size_t)1 << 20)

enum {
    ALIGN_MAX = 256,
};

struct api {
#define BLAS_FN(name) __typeof__(&name) name;
#include "op/cuda/blas_api.def"
#undef BLAS_FN
};

/* Compared and hashed as bytes: made by key_of() alone, which zeroes it first. */
struct key {
    uint64_t m, n, k, batch;
    uint64_t ld_x, ld_w, ld_add, ld_y;
    uint64_t of_x, of_w, of_add, of_y;
    uint8_t type, to, w_turned, bias, gelu, add;
    uint8_t align_x, align_w, align_add, align_y; /* bytes / 2: up to ALIGN_MAX fit */
};

struct choice {
    struct key key;
    cublasLtMatmulDesc_t op;           /* the bias pointer in it is set before each run */
    cublasLtMatrixLayout_t w, x, c, y; /* c: as y, but of add */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    bool refused;
};

struct blas { /* owner: executor; in CUDA_SLOT_BLAS of a card */
    struct cuda_phys *phys;
    void *library;
    struct api api;
    cublasLtHandle_t handle;
    struct map choices; /* struct key -> struct choice *, owned */
};

/* ---- the library ---- */

/* What is wrong, apart from what was asked being wrong. */
static berth_status status_of(struct blas *b, cublasStatus_t r, size_t *left, size_t *total)
{
    if (r == CUBLAS_STATUS_ARCH_MISMATCH)
        return BERTH_EUNSUPPORTED;
    if (r == CUBLAS_STATUS_NOT_SUPPORTED || r == CUBLAS_STATUS_INVALID_VALUE)
        return BERTH_EDEVICE;
    if (cuda_short(b->phys, left, total))
        return BERTH_ENODEVMEM;
    return r == CUBLAS_STATUS_ALLOC_FAILED ? BERTH_ENOMEM : BERTH_EDEVICE;
}

static berth_status check(struct blas *b, cublasStatus_t r, const char *what, berth_err *err)
{
    size_t left = 0, total = 0;
    if (r == CUBLAS_STATUS_SUCCESS)
        return BERTH_OK;
    berth_status s = status_of(b, r, &left, &total);
    char more[100] = "";
    if (s == BERTH_ENODEVMEM)
        snprintf(more, sizeof more, ", %zu of %zu bytes free", left, total);
    else if (s == BERTH_EUNSUPPORTED)
        snprintf(more, sizeof more, ": cuBLASLt %zu has no kernels for sm_%d, install another",
                 b->api.cublasLtGetVersion(), b->phys->sm);
    err_set(err, s, "%s: %.*s: %s (%s)%s", b->phys->base.name, (int)strcspn(what, "("), what,
            b->api.cublasLtGetStatusName(r), b->api.cublasLtGetStatusString(r), more);
    err->native = (int)r;
    return s;
}
#define TRY(b, call, err) check((b), (b)->api.call, #call, (err))
#define SET(b, kind, d, attr, v, err)                                                              \
    TRY(b, cublasLt##kind##SetAttribute(d, attr, &(v), sizeof(v)), err)

static void choice_free(struct blas *b, struct choice *c)
{
    if (c->op)
        b->api.cublasLtMatmulDescDestroy(c->op);
    cublasLtMatrixLayout_t layout[] = { c->w, c->x, c->c, c->y };
    for (size_t i = 0; i < ARRAY_LEN(layout); i++)
        if (layout[i])
            b->api.cublasLtMatrixLayoutDestroy(layout[i]);
    free(c);
}

static void blas_close(void *p)
{
    struct blas *b = p;
    if (!b)
        return;
    const char *key;
    size_t it = 0, len;
    uint64_t at;
    while (map_next(&b->choices, &it, &key, &len, &at))
        choice_free(b, (struct choice *)(uintptr_t)at);
    map_release(&b->choices);
    if (b->handle)
        b->api.cublasLtDestroy(b->handle);
    if (b->library)
        dlclose(b->library);
    free(b);
}

static berth_status library_open(struct blas *b, berth_err *err)
{
    static const char *const names[] = { "libcublasLt.so.13", "libcublasLt.so.12",
                                         "libcublasLt.so" };
    char why[160] = "";
    for (size_t i = 0; i < ARRAY_LEN(names) && !b->library; i++) {
        /* It stays mapped: it has things of its own to do when the process ends. */
        b->library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *text = b->library ? NULL : dlerror();
        if (text && i == 0) /* the one that should be there */
            snprintf(why, sizeof why, "%s", text);
    }
    if (!b->library)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "no cuBLASLt: %s; install CUDA's libcublas 13 (or 12), or name its folder "
                       "in LD_LIBRARY_PATH",
                       why);
    const struct {
        const char *name;
        void *to; /* a pointer of ours to a function */
    } fn[] = {
#define BLAS_FN(name) { #name, &b->api.name },
#include "op/cuda/blas_api.def"
#undef BLAS_FN
    };
    for (size_t i = 0; i < ARRAY_LEN(fn); i++) {
        void *sym = dlsym(b->library, fn[i].name);
        if (!sym)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "cuBLASLt has no %s: its version is not 12 or "
                           "13",
                           fn[i].name);
        memcpy(fn[i].to, &sym, sizeof sym);
    }
    return BERTH_OK;
}

berth_status blas_library(berth_err *err)
{
    struct blas *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(err, BERTH_ENOMEM, "%zu bytes for cuBLASLt", sizeof *b);
    berth_status s = library_open(b, err);
    blas_close(b);
    return s ? err_add(err, "products fail") : BERTH_OK;
}

/* Of env's card, opened at the first call; the card's context is current then. */
static berth_status blas_get(const struct op_env *env, struct blas **out, berth_err *err)
{
    struct cuda_card *card;
    *out = NULL;
    if (cuda_card(env, &card, err))
        return err->code;
    struct cuda_keep *keep = &card->keep[CUDA_SLOT_BLAS];
    if (!keep->p) {
        struct blas *b = calloc(1, sizeof *b);
        if (!b)
            return err_set(err, BERTH_ENOMEM, "%zu bytes for cuBLASLt", sizeof *b);
        b->phys = card->phys;
        if (library_open(b, err) || TRY(b, cublasLtCreate(&b->handle), err)) {
            blas_close(b);
            return err->code;
        }
        *keep = (struct cuda_keep) { b, blas_close };
    }
    *out = keep->p;
    return BERTH_OK;
}

berth_status blas_open(const struct op_env *env, berth_err *err)
{
    struct blas *b;
    return blas_get(env, &b, err);
}

/* ---- keys ---- */

static uint8_t alignment(const void *p)
{
    uintptr_t at = (uintptr_t)p, low = at & (0 - at); /* the lowest bit that is set */
    return (uint8_t)((!low || low > ALIGN_MAX ? ALIGN_MAX : low) / 2);
}

static struct key key_of(const struct blas_product *p)
{
    struct key k;
    memset(&k, 0, sizeof k); /* padding, too */
    k.m = p->m, k.n = p->n, k.k = p->k, k.batch = p->batch;
    k.ld_x = p->ld_x, k.ld_w = p->ld_w, k.ld_y = p->ld_y;
    if (p->batch > 1)
        k.of_x = p->of_x, k.of_w = p->of_w, k.of_y = p->of_y;
    if (p->add) {
        k.add = 1;
        k.ld_add = p->ld_add;
        k.of_add = p->batch > 1 ? p->of_add : 0;
        k.align_add = alignment(p->add);
    }
    k.type = (uint8_t)p->type, k.to = (uint8_t)p->to;
    k.w_turned = p->w_turned;
    k.bias = p->bias != NULL;
    k.gelu = p->gelu;
    k.align_x = alignment(p->x), k.align_w = alignment(p->w), k.align_y = alignment(p->y);
    return k;
}

size_t blas_workspace(size_t m, size_t n, size_t batch)
{
    /* Parts of a sum, split at most 32 ways, in F32; small products need no more. */
    const size_t most = 32 * MIB, least = MIB / 4;
    size_t each = 32 * sizeof(float);
    if (m == 0 || n == 0 || batch == 0)
        return 0;
    if (n > most / m || batch > most / m / n || m * n * batch > most / each)
        return most;
    size_t bytes = (m * n * batch * each + ALIGN_MAX - 1) / ALIGN_MAX * ALIGN_MAX;
    return bytes < least ? least : bytes;
}

/* ---- descriptors of a choice ---- */

static cudaDataType data_type(enum dtype t)
{
    switch ((int)t) {
    case DT_F32:
        return CUDA_R_32F;
    case DT_F16:
        return CUDA_R_16F;
    case DT_BF16:
        return CUDA_R_16BF;
    case DT_F8_E4M3:
        return CUDA_R_8F_E4M3;
    }
    BUG("no products of %s", dtype_name(t));
}

static berth_status layout_new(struct blas *b, enum dtype t, uint64_t rows, uint64_t cols,
                               uint64_t ld, uint64_t batch, uint64_t of,
                               cublasLtMatrixLayout_t *out, berth_err *err)
{
    if (TRY(b, cublasLtMatrixLayoutCreate(out, data_type(t), rows, cols, (int64_t)ld), err))
        return err->code;
    if (batch == 1)
        return BERTH_OK;
    const int32_t count = (int32_t)batch;
    const int64_t stride = (int64_t)of;
    if (SET(b, MatrixLayout, *out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count, err))
        return err->code;
    return SET(b, MatrixLayout, *out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, err);
}

static berth_status op_new(struct blas *b, const struct key *k, cublasLtMatmulDesc_t *out,
                           berth_err *err)
{
    const cublasOperation_t turn_w = k->w_turned ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasLtEpilogue_t end =
        k->bias   ? k->gelu ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_BIAS
        : k->gelu ? CUBLASLT_EPILOGUE_GELU
                  : CUBLASLT_EPILOGUE_DEFAULT;
    /* F32 sums in any case, and F32 products of F32: not of their 19 bits that tensor cores take */
    if (TRY(b, cublasLtMatmulDescCreate(out, CUBLAS_COMPUTE_32F, CUDA_R_32F), err) ||
        SET(b, MatmulDesc, *out, CUBLASLT_MATMUL_DESC_TRANSA, turn_w, err))
        return err->code;
    return SET(b, MatmulDesc, *out, CUBLASLT_MATMUL_DESC_EPILOGUE, end, err);
}

static berth_status describe(struct blas *b, struct choice *c, berth_err *err)
{
    const struct key *k = &c->key;
    uint64_t w_rows = k->w_turned ? k->n : k->k, w_cols = k->w_turned ? k->k : k->n;
    enum dtype type = (enum dtype)k->type, to = (enum dtype)k->to;
    uint64_t ld_c = k->add ? k->ld_add : k->ld_y, of_c = k->add ? k->of_add : k->of_y;
    if (op_new(b, k, &c->op, err) ||
        layout_new(b, type, w_rows, w_cols, k->ld_w, k->batch, k->of_w, &c->w, err) ||
        layout_new(b, type, k->k, k->m, k->ld_x, k->batch, k->of_x, &c->x, err) ||
        layout_new(b, to, k->n, k->m, ld_c, k->batch, of_c, &c->c, err) ||
        layout_new(b, to, k->n, k->m, k->ld_y, k->batch, k->of_y, &c->y, err))
        return err->code;
    return BERTH_OK;
}

static cublasStatus_t set_bias(struct blas *b, struct choice *c, const void *bias)
{
    if (!c->key.bias)
        return CUBLAS_STATUS_SUCCESS;
    return b->api.cublasLtMatmulDescSetAttribute(c->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                 sizeof bias);
}

/* ---- choosing ---- */

static berth_status preference_new(struct blas *b, const struct key *k,
                                   cublasLtMatmulPreference_t *out, berth_err *err)
{
    const size_t most = blas_workspace(k->m, k->n, k->batch);
    const uint32_t reduce = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t w = 2u * k->align_w, x = 2u * k->align_x, y = 2u * k->align_y,
                   c = k->add ? 2u * k->align_add : y;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } set[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduce, sizeof reduce },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &w, sizeof w },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &x, sizeof x },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &y, sizeof y },
    };
    if (TRY(b, cublasLtMatmulPreferenceCreate(out), err))
        return err->code;
    for (size_t i = 0; i < ARRAY_LEN(set); i++)
        if (TRY(b,
                cublasLtMatmulPreferenceSetAttribute(*out, set[i].what, set[i].value, set[i].bytes),
                err)) {
            b->api.cublasLtMatmulPreferenceDestroy(*out);
            return err->code;
        }
    return BERTH_OK;
}

/* The library cannot do that, as against: something broke. Before an algorithm was chosen it calls
 * combinations that it does not have invalid, too. */
static bool is_refusal(cublasStatus_t r)
{
    return r == CUBLAS_STATUS_NOT_SUPPORTED || r == CUBLAS_STATUS_INVALID_VALUE;
}

static void refuse(const struct op_env *env, const struct blas *b, struct choice *c)
{
    const struct key *k = &c->key;
    const bool plain = !k->bias && !k->gelu; /* else it is asked for again without those */
    c->refused = true;
    log_event(env->log, plain ? LOG_WARN : LOG_INFO, "op.slow",
              "dev=%s product=%" PRIu64 "x%" PRIu64 "x%" PRIu64 " batch=%" PRIu64
              " type=%s to=%s bias=%d gelu=%d add=%d why=\"cuBLASLt %zu has no kernel for it\"",
              b->phys->base.name, k->m, k->n, k->k, k->batch, dtype_name((enum dtype)k->type),
              dtype_name((enum dtype)k->to), k->bias, k->gelu, k->add, b->api.cublasLtGetVersion());
}

static cublasStatus_t queue(struct blas *b, struct choice *c, const struct blas_product *p,
                            void *work, CUstream stream)
{
    const float beta = p->add ? 1.0f : 0.0f;
    return b->api.cublasLtMatmul(b->handle, c->op, &p->scale, p->w, c->w, p->x, c->x, &beta,
                                 p->add ? p->add : p->y, c->c, p->y, c->y, &c->algo, work,
                                 c->workspace, stream);
}

/* Fills c from the library's first proposal. */
static berth_status choose(struct blas *b, const struct op_env *env, struct choice *c,
                           berth_err *err)
{
    cublasLtMatmulPreference_t like = NULL;
    cublasLtMatmulHeuristicResult_t got;
    int n = 0;
    memset(&got, 0, sizeof got);
    if (describe(b, c, err) || preference_new(b, &c->key, &like, err))
        return err->code;
    cublasStatus_t r = b->api.cublasLtMatmulAlgoGetHeuristic(b->handle, c->op, c->w, c->x, c->c,
                                                             c->y, like, 1, &got, &n);
    b->api.cublasLtMatmulPreferenceDestroy(like);
    if (!is_refusal(r) && check(b, r, "cublasLtMatmulAlgoGetHeuristic", err))
        return err->code;
    if (r != CUBLAS_STATUS_SUCCESS || n < 1 || got.state != CUBLAS_STATUS_SUCCESS)
        refuse(env, b, c);
    c->algo = got.algo;
    c->workspace = got.workspaceSize;
    return BERTH_OK;
}

static berth_status choice_get(struct blas *b, const struct op_env *env,
                               const struct blas_product *p, struct choice **out, berth_err *err)
{
    const struct key k = key_of(p);
    uint64_t at;
    if (map_get(&b->choices, (const char *)&k, sizeof k, &at)) {
        *out = (struct choice *)(uintptr_t)at;
        return BERTH_OK;
    }
    struct choice *c = map_reserve(&b->choices, b->choices.n + 1) ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return err_set(err, BERTH_ENOMEM, "%zu bytes for the choice of a product", sizeof *c);
    memcpy(&c->key, &k, sizeof k);
    if (choose(b, env, c, err)) {
        choice_free(b, c);
        return err->code;
    }
    if (map_add(&b->choices, (const char *)&c->key, sizeof c->key, (uintptr_t)c) != MAP_ADDED)
        BUG("a product was chosen for twice");
    *out = c;
    return BERTH_OK;
}

berth_status blas_run(const struct op_env *env, const struct blas_product *p, void *work,
                      bool *refused, berth_err *err)
{
    struct blas *b = NULL;
    struct choice *c = NULL;
    *refused = false;
    if (p->batch > INT32_MAX) {
        *refused = true;
        return BERTH_OK;
    }
    if (blas_get(env, &b, err) || choice_get(b, env, p, &c, err))
        return err_add(err, "product of %zu x %zu x %zu in %s", p->m, p->n, p->k,
                       dtype_name(p->type));
    *refused = c->refused;
    if (c->refused)
        return BERTH_OK;
    cublasStatus_t r = set_bias(b, c, p->bias);
    if (r == CUBLAS_STATUS_SUCCESS)
        r = queue(b, c, p, work, cuda_stream(env->stream));
    if (r == CUBLAS_STATUS_NOT_SUPPORTED) { /* it proposed what it does not run: never again */
        refuse(env, b, c);
        *refused = true;
        return BERTH_OK;
    }
    if (check(b, r, "cublasLtMatmul", err))
        return err_add(err, "product of %zu x %zu x %zu in %s", p->m, p->n, p->k,
                       dtype_name(p->type));
    return BERTH_OK;
}
