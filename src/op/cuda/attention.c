/* attention.c: libraries for what they are best at, the kernels of attention.cu for everything
 * else.
 *
 * Library    cuDNN: F16 and BF16 without mask, heads of a multiple of 8 up to CUDNN_HEAD, all of it
 *            aligned to 16 bytes, cards from sm_80 on. The graph is the one its fused engines
 *            recognise: a product, a scale, [-inf for later keys], softmax step by step, a product;
 *            where no engine takes that, attention as one operation.
 *            cuBLASLt: wide heads that cuDNN does not take, as two products.
 * Own        F32, masks, any other head or stride, other cards; also where there is no cuDNN: the
 *            result is the same to rounding, only slower, so that is a choice and no error. */
#include "op/cuda/args.cuh"
#include "op/cuda/blas.h"
#include "op/cuda/dnn.h"

#include <assert.h>
#include <float.h>
#include <math.h>

enum { CUDNN_HEAD = 512, CUDNN_SM = 80 };

static float scale_of(const struct op_attention *a)
{
    return a->scale == 0 ? (float)(1 / sqrt((double)a->q.shape.dim[3])) : a->scale;
}

/* ---- with cuDNN ---- */

enum { UID_Q = 1, UID_K, UID_V, UID_Y, UID_SCALE, UID_NOTHING, UIDS = UID_NOTHING };

struct sdpa_key {
    int64_t kind, type, causal, b, h, of, tq, tk, d; /* of: heads of k and v */
    int64_t stride[4][3];                            /* of q, k, v, y: each B, H, T */
};
static_assert(sizeof(struct sdpa_key) <= sizeof(struct dnn_key), "a key holds it");

/* Strides of v in elements, as cuDNN orders them: B, H, T. A dimension of 1 may have any in a view;
 * here it gets what it would have without gaps, so that equal graphs have equal keys. False: cuDNN
 * does not take it. */
static bool strides_of(const struct view *v, int64_t *out)
{
    static const int order[3] = { 2, 1, 0 }, place[3] = { 1, 2, 0 }; /* H, T, B of a view; in out */
    size_t bytes = dtype_desc(v->dtype)->bytes;
    int64_t next = (int64_t)v->shape.dim[3];
    if ((uintptr_t)v->data % DNN_ALIGN)
        return false;
    for (int i = 0; i < 3; i++) {
        int64_t n = (int64_t)v->shape.dim[order[i]], stride = next;
        if (n > 1) {
            stride = (int64_t)(v->stride[order[i]] / bytes);
            if (v->stride[order[i]] % DNN_ALIGN || stride > INT64_MAX / n)
                return false;
        }
        out[place[i]] = stride;
        if (stride * n > next)
            next = stride * n;
    }
    return true;
}

/* Whether cuDNN is to be asked, and what. Before there are addresses it is asked as if they were
 * aligned. */
static bool key_of(const struct op_attention *a, struct dnn_key *key)
{
    const uint64_t *q = a->q.shape.dim;
    enum dtype t = a->q.dtype;
    if ((t != DT_F16 && t != DT_BF16) || op_has(&a->mask) || q[3] % 8 || q[3] > CUDNN_HEAD ||
        a->past || a->window)
        return false;
    struct sdpa_key k = { .kind = DNN_SDPA,
                          .type = t,
                          .causal = a->causal,
                          .b = (int64_t)q[0],
                          .h = (int64_t)q[2],
                          .of = (int64_t)a->k.shape.dim[2],
                          .tq = (int64_t)q[1],
                          .tk = (int64_t)a->k.shape.dim[1],
                          .d = (int64_t)q[3] };
    bool taken = strides_of(&a->q, k.stride[0]) && strides_of(&a->k, k.stride[1]) &&
                 strides_of(&a->v, k.stride[2]) && strides_of(&a->y, k.stride[3]);
    *key = (struct dnn_key) { 0 };
    memcpy(key, &k, sizeof k);
    return taken;
}

/* [B, heads, T, D] with strides i of the key; turned: [B, heads, D, T]. */
static dnn_desc operand(struct dnn_graph *g, const struct sdpa_key *key, int64_t uid, int i,
                        int64_t heads, int64_t T, bool turned)
{
    const int64_t *s = key->stride[i];
    int row = turned ? 3 : 2, column = turned ? 2 : 3;
    struct dnn_tensor t = { .uid = uid,
                            .kind = DNN_REAL,
                            .type = dnn_type((enum dtype)key->type),
                            .dim = { key->b, heads },
                            .stride = { s[0], s[1] } };
    t.dim[row] = T;
    t.stride[row] = s[2];
    t.dim[column] = key->d;
    t.stride[column] = 1;
    return dnn_tensor(g, &t);
}

static dnn_desc value(struct dnn_graph *g, int64_t uid)
{
    return dnn_tensor(g, &(struct dnn_tensor) { .uid = uid,
                                                .kind = DNN_VALUE,
                                                .type = CUDNN_DATA_FLOAT,
                                                .dim = { 1, 1, 1, 1 },
                                                .stride = { 1, 1, 1, 1 } });
}

/* Scores of keys behind their query become -inf. */
static dnn_desc hide_later(struct dnn_graph *g, const int64_t *dim, dnn_desc scores)
{
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    dnn_desc row = dnn_between(g, CUDNN_DATA_INT32, dim),
             column = dnn_between(g, CUDNN_DATA_INT32, dim);
    dnn_desc seen = dnn_between(g, CUDNN_DATA_BOOLEAN, dim), out = dnn_between(g, f, dim);
    dnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, f, 2, scores, NULL, NULL, row);
    dnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, f, 3, scores, NULL, NULL, column);
    dnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, row, column, NULL, seen);
    dnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, f, 0, scores, value(g, UID_NOTHING), seen, out);
    return out;
}

/* Engines of some versions know softmax only with the logarithm of its sum made beside it, for a
 * training step that never comes; nobody reads it. */
static dnn_desc softmax(struct dnn_graph *g, const int64_t *dim, cudnnDataType_t type,
                        dnn_desc scores, bool with_log)
{
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    const int64_t per_row[DNN_DIMS] = { dim[0], dim[1], dim[2], 1 };
    dnn_desc top = dnn_between(g, f, per_row), less = dnn_between(g, f, dim);
    dnn_desc weight = dnn_between(g, f, dim), sum = dnn_between(g, f, per_row);
    dnn_desc out = dnn_between(g, type, dim);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, top);
    dnn_pointwise(g, CUDNN_POINTWISE_SUB, f, 0, scores, top, NULL, less);
    dnn_pointwise(g, CUDNN_POINTWISE_EXP, f, 0, less, NULL, NULL, weight);
    dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, weight, sum);
    if (with_log) {
        dnn_desc log = dnn_between(g, f, per_row), stats = dnn_between(g, f, per_row);
        dnn_pointwise(g, CUDNN_POINTWISE_LOG, f, 0, sum, NULL, NULL, log);
        dnn_pointwise(g, CUDNN_POINTWISE_ADD, f, 0, top, log, NULL, stats);
    }
    dnn_pointwise(g, CUDNN_POINTWISE_DIV, f, 0, weight, sum, NULL, out);
    return out;
}

static bool build(struct dnn_graph *g, const struct dnn_key *key, int attempt)
{
    enum { WITH_LOG, WITHOUT_LOG, AS_ONE, ATTEMPTS };
    struct sdpa_key n;
    memcpy(&n, key, sizeof n);
    const int64_t dim[DNN_DIMS] = { n.b, n.h, n.tq, n.tk };
    if (attempt == ATTEMPTS || (attempt == AS_ONE && n.causal))
        return false;
    dnn_desc q = operand(g, &n, UID_Q, 0, n.h, n.tq, false);
    dnn_desc k = operand(g, &n, UID_K, 1, n.of, n.tk, attempt != AS_ONE);
    dnn_desc v = operand(g, &n, UID_V, 2, n.of, n.tk, false);
    dnn_desc y = operand(g, &n, UID_Y, 3, n.h, n.tq, false);
    dnn_desc scale = value(g, UID_SCALE);
    if (attempt == AS_ONE) {
        dnn_sdpa(g, q, k, v, scale, y);
        return true;
    }
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    dnn_desc product = dnn_between(g, f, dim), scores = dnn_between(g, f, dim);
    dnn_matmul(g, q, k, product);
    dnn_pointwise(g, CUDNN_POINTWISE_MUL, f, 0, product, scale, NULL, scores);
    if (n.causal)
        scores = hide_later(g, dim, scores);
    dnn_desc weights = softmax(g, dim, dnn_type((enum dtype)n.type), scores, attempt == WITH_LOG);
    dnn_matmul(g, weights, v, y);
    return true;
}

/* Whether this version computes heads of D on this card. What it refuses by itself is not
 * listed. */
static bool trusted(const struct dnn *d, int sm, uint64_t D)
{
    if (d->version >= 91000 && d->version < 91002)
        return false; /* NVIDIA's own word: wrong results */
    return D <= (d->version >= 91002 ? CUDNN_HEAD : sm >= 90 ? 256 : 128);
}

/* The plan that computes it; NULL: our own kernels do. */
static berth_status plan_of(const struct op_env *env, const struct op_attention *a, struct dnn **d,
                            const struct dnn_plan **out, berth_err *err)
{
    struct dnn_key key;
    struct cuda_card *c = NULL;
    const struct dnn_plan *p = NULL;
    *out = NULL;
    if (cuda_card(env, &c, err))
        return err_add(err, "attention");
    int sm = c->phys->sm;
    if (!key_of(a, &key) || sm < CUDNN_SM)
        return BERTH_OK;
    if (dnn_of(c, d, err)) /* no cuDNN is no error */
        return err->code == BERTH_EUNSUPPORTED ? BERTH_OK : err_add(err, "attention");
    if (!trusted(*d, sm, a->q.shape.dim[3]))
        return BERTH_OK;
    if (dnn_plan(*d, &key, build, &p, err))
        return err_add(err, "attention");
    if (p->plan)
        *out = p;
    return BERTH_OK;
}

static berth_status with_cudnn(const struct op_env *env, const struct op_attention *a,
                               struct dnn *d, const struct dnn_plan *p, berth_err *err)
{
    float scale = scale_of(a);
    float nothing = d->version < 91000 ? -FLT_MAX : -INFINITY; /* of a hidden key */
    const int64_t uid[UIDS] = { UID_Q, UID_K, UID_V, UID_Y, UID_SCALE, UID_NOTHING };
    void *const at[UIDS] = { a->q.data, a->k.data, a->v.data, a->y.data, &scale, &nothing };
    char q[SHAPE_TEXT_MAX];
    if (dnn_run(env, d, p, a->causal ? UIDS : UIDS - 1, uid, at, env->scratch, err))
        return err_add(err, "attention of q %s, %llu keys, %s", shape_text(&a->q.shape, q),
                       (unsigned long long)a->k.shape.dim[1], dtype_name(a->q.dtype));
    return BERTH_OK;
}

/* ---- wide heads, as those of a VAE, with cuBLASLt ---- */

/* Scores of some queries, their weights, the weighted sum of values, then the next queries. 16,384
 * tokens and one head of 512 are 550 GFLOP for plain multiply-adds without it. The parts follow
 * from the shape alone. */
#define NARROW 256 /* a head up to this has kernels of cuDNN's, or ours in one go */
#define ROWS 1024  /* queries at a time, at most ... */
#define SCORES ((uint64_t)32 << 20) /* ... of this many bytes of scores */
#define ROWS_STEP 128
/* A row of F16 weights adds up to this, and the second product takes it back: of many keys each has
 * a weight that F16 has few bits for. A single one of it still fits. */
#define F16_SIZE 32768.0f

struct wide {
    const struct op_attention *a;
    size_t heads, queries, keys, D;
    size_t rows;                           /* queries at a time */
    size_t pitch;                          /* elements from row to row of scores and of weights */
    size_t in_scores, in_weights, in_work; /* bytes; no weights: they take the scores' place */
};

/* Whether it is for this one: every query sees every key, heads are not shared. */
static bool wide_fits(const struct op_attention *a)
{
    const uint64_t *q = a->q.shape.dim, Tk = a->k.shape.dim[1];
    return q[3] > NARROW && q[3] <= INT32_MAX && q[1] <= INT32_MAX && Tk <= INT32_MAX && Tk > 0 &&
           !a->causal && !op_has(&a->mask) && q[2] == a->k.shape.dim[2];
}

static struct wide wide_of(const struct op_attention *a)
{
    const uint64_t *q = a->q.shape.dim;
    size_t elem = dtype_desc(a->q.dtype)->bytes;
    struct wide w = { .a = a,
                      .heads = (size_t)q[2],
                      .queries = (size_t)q[1],
                      .keys = (size_t)a->k.shape.dim[1],
                      .D = (size_t)q[3] };
    w.pitch = blas_place(w.keys);
    size_t most = (size_t)(SCORES / sizeof(float) / w.pitch);
    most = most > ROWS ? ROWS : most > ROWS_STEP ? most / ROWS_STEP * ROWS_STEP : most ? most : 1;
    w.rows = w.queries < most ? w.queries : most;
    w.in_scores = w.rows * w.pitch * sizeof(float);
    w.in_weights = a->q.dtype == DT_F32 ? 0 : w.rows * w.pitch * elem;
    size_t first = blas_workspace(w.rows, w.keys, 1), second = blas_workspace(w.rows, w.D, 1);
    w.in_work = first > second ? first : second;
    return w;
}

static size_t wide_scratch(const struct op_attention *a)
{
    const struct wide w = wide_of(a);
    return w.in_scores + w.in_weights + w.in_work +
           BLAS_PLACE; /* scratch may begin between places */
}

/* Elements from one token to the next; a single one has any. */
static size_t leading(const struct view *v)
{
    size_t elem = dtype_desc(v->dtype)->bytes;
    return v->shape.dim[1] > 1 ? v->stride[1] / elem : (size_t)v->shape.dim[3];
}

static char *token(const struct view *v, size_t b, size_t h, size_t t)
{
    const uint64_t *n = v->shape.dim; /* dimensions of 1 may have any stride */
    return (char *)v->data + (n[0] > 1 ? b * v->stride[0] : 0) + (n[1] > 1 ? t * v->stride[1] : 0) +
           (n[2] > 1 ? h * v->stride[2] : 0);
}

static berth_status weigh(const struct op_env *env, const struct wide *w, size_t rows,
                          const void *scores, void *weights, float size, berth_err *err)
{
    struct attention_rows g = { .scores = scores,
                                .weights = weights,
                                .pitch = (int64_t)w->pitch,
                                .keys = (uint32_t)w->keys,
                                .size = size };
    return cuda_launch_blocks(env, CUDA_MODULE_attention, "attention_weights", w->a->q.dtype,
                              (unsigned)rows, ATTENTION_THREADS, &g, err);
}

/* The next queries of head h of picture b, from number `from` on; rows: how many there are. */
static berth_status attend(const struct op_env *env, const struct wide *w, float scale, size_t b,
                           size_t h, size_t from, size_t rows, bool *refused, berth_err *err)
{
    const struct op_attention *a = w->a;
    enum dtype type = a->q.dtype;
    char *scores = (char *)blas_place((uintptr_t)env->scratch);
    char *weights = w->in_weights ? scores + w->in_scores : scores;
    void *work = scores + w->in_scores + w->in_weights;
    float size = type == DT_F16 ? F16_SIZE : 1;
    const struct blas_product first = { .m = rows,
                                        .n = w->keys,
                                        .k = w->D,
                                        .batch = 1,
                                        .type = type,
                                        .to = DT_F32,
                                        .x = token(&a->q, b, h, from),
                                        .w = token(&a->k, b, h, 0),
                                        .y = scores,
                                        .ld_x = leading(&a->q),
                                        .ld_w = leading(&a->k),
                                        .ld_y = w->pitch,
                                        .scale = scale };
    const struct blas_product second = { .m = rows,
                                         .n = w->D,
                                         .k = w->keys,
                                         .batch = 1,
                                         .type = type,
                                         .to = type,
                                         .w_turned = true,
                                         .x = weights,
                                         .w = token(&a->v, b, h, 0),
                                         .y = token(&a->y, b, h, from),
                                         .ld_x = w->pitch,
                                         .ld_w = leading(&a->v),
                                         .ld_y = leading(&a->y),
                                         .scale = 1 / size };
    if (blas_run(env, &first, work, refused, err))
        return err->code;
    if (*refused)
        return BERTH_OK;
    if (weigh(env, w, rows, scores, weights, size, err))
        return err->code;
    return blas_run(env, &second, work, refused, err);
}

/* *refused: the library has no algorithm, and y is undefined: compute it another way. */
static berth_status wide_run(const struct op_env *env, const struct op_attention *a, float scale,
                             bool *refused, berth_err *err)
{
    const struct wide w = wide_of(a);
    *refused = false;
    for (size_t b = 0; b < a->q.shape.dim[0]; b++)
        for (size_t h = 0; h < w.heads; h++)
            for (size_t from = 0, rows; from < w.queries && !*refused; from += rows) {
                rows = w.queries - from < w.rows ? w.queries - from : w.rows;
                if (attend(env, &w, scale, b, h, from, rows, refused, err))
                    return err->code;
            }
    return BERTH_OK;
}

/* ---- with our own kernels ---- */

/* Elements from one B, T, H to the next. */
static void steps(const struct view *v, int64_t out[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = v->shape.dim[i] > 1 ? (int64_t)(v->stride[i] / dtype_desc(v->dtype)->bytes) : 0;
}

static berth_status own(const struct op_env *env, const struct op_attention *a, berth_err *err)
{
    static const struct {
        uint32_t columns;
        const char *kernel;
    } width[] = { { 64, "attention_64" }, { 128, "attention_128" }, { 256, "attention_256" } };
    const uint64_t *q = a->q.shape.dim;
    uint64_t Tk = a->k.shape.dim[1];
    size_t w = q[3] <= 64 ? 0 : q[3] <= 128 ? 1 : 2;
    uint64_t slices = (q[3] + width[w].columns - 1) / width[w].columns;
    uint64_t tiles = (q[1] + ATTENTION_QUERIES - 1) / ATTENTION_QUERIES, blocks;
    if (q[0] > INT32_MAX || q[1] > INT32_MAX || q[2] > INT32_MAX || Tk > INT32_MAX ||
        __builtin_mul_overflow(q[0] * q[2], tiles * slices, &blocks) || blocks > INT32_MAX) {
        char shape[SHAPE_TEXT_MAX];
        return err_set(err, BERTH_EUNSUPPORTED,
                       "attention: q %s and %llu keys are too many for a card",
                       shape_text(&a->q.shape, shape), (unsigned long long)Tk);
    }
    struct attention_args g = { .q = a->q.data,
                                .k = a->k.data,
                                .v = a->v.data,
                                .y = a->y.data,
                                .mask = a->mask.data,
                                .B = (uint32_t)q[0],
                                .H = (uint32_t)q[2],
                                .Tq = (uint32_t)q[1],
                                .Tk = (uint32_t)Tk,
                                .D = (uint32_t)q[3],
                                .tiles = (uint32_t)tiles,
                                .slices = (uint32_t)slices,
                                .causal = a->causal,
                                .past = a->past,
                                .window = a->window,
                                .group = (uint32_t)(q[2] / a->k.shape.dim[2]),
                                .scale = scale_of(a) };
    steps(&a->q, g.qs);
    steps(&a->k, g.ks);
    steps(&a->v, g.vs);
    steps(&a->y, g.ys);
    if (a->mask.data) {
        g.mask_kind = a->mask.dtype == DT_F32 ? ATTENTION_MASK_F32 : ATTENTION_MASK_LIKE_Q;
        steps(&a->mask, g.ms); /* of [1 or B, 1 or H, Tq, Tk] */
    }
    return cuda_launch_blocks(env, CUDA_MODULE_attention, width[w].kernel, a->q.dtype,
                              (unsigned)blocks, ATTENTION_THREADS, &g, err);
}

/* ---- doors ---- */

struct way { /* how it is computed; neither: by our own kernels */
    struct dnn *d;
    const struct dnn_plan *plan;
    bool wide;
};

/* A library that is missing is no error. */
static berth_status way_of(const struct op_env *env, const struct op_attention *a, struct way *w,
                           berth_err *err)
{
    *w = (struct way) { 0 };
    if (plan_of(env, a, &w->d, &w->plan, err))
        return err->code;
    if (w->plan || !wide_fits(a))
        return BERTH_OK;
    w->wide = !blas_open(env, err);
    return w->wide || err->code == BERTH_EUNSUPPORTED ? BERTH_OK : err_add(err, "attention");
}

static size_t scratch_of(const struct op_attention *a, const struct way *w)
{
    return w->plan ? (size_t)w->plan->workspace : w->wide ? wide_scratch(a) : 0;
}

berth_status cuda_attention(const struct op_env *env, const struct op_attention *a, berth_err *err)
{
    struct way w;
    bool refused = true;
    if (way_of(env, a, &w, err) || cuda_scratch_is_there(env, "attention", scratch_of(a, &w), err))
        return err->code;
    if (w.plan)
        return with_cudnn(env, a, w.d, w.plan, err);
    if (w.wide && wide_run(env, a, scale_of(a), &refused, err))
        return err_add(err, "attention");
    return refused ? own(env, a, err) : BERTH_OK;
}

berth_status cuda_attention_ready(const struct op_env *env, const struct op_attention *a,
                                  berth_err *err)
{
    struct way w;
    return way_of(env, a, &w, err);
}

size_t cuda_attention_scratch(const struct op_env *env, const struct op_attention *a)
{
    struct way w;
    berth_err err; /* cuda_attention_ready() says it */
    return way_of(env, a, &w, &err) ? 0 : scratch_of(a, &w);
}
