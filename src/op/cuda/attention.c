/* attention.c: libraries for what they are best at, the kernels of attention.cu for everything
 * else.
 *
 * Library    cuDNN: F16 and BF16 without mask, heads of a multiple of 8 up to CUDNN_HEAD, all of it
 *            aligned to 16 bytes, cards from sm_80 on. The graph is the one its fused engines
 *            recognise: a product, a scale, [-inf for later keys], softmax step by step, a product;
 *            where no engine takes that, attention as one operation.
 *            cuBLASLt: wide heads that cuDNN does not take, as two products (attention_wide.c).
 * Own        F32, masks, any other head or stride, other cards; also where there is no cuDNN: the
 *            result is the same to rounding, only slower, so that is a choice and no error.
 *            cuda_attention_how() says which it is. */
#include "op/cuda/attention_args.h"
#include "op/cuda/attention_wide.h"
#include "op/cuda/dnn.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CUDNN_HEAD = 512, CUDNN_SM = 80 };
static_assert(sizeof(((struct dnn *)0)->attention_fell) == sizeof(((struct dnn_plan *)0)->why),
              "copied");

static float scale_of(const struct op_attention *a)
{
    return a->scale == 0 ? (float)(1 / sqrt((double)a->q.shape.dim[3])) : a->scale;
}

/* ---- with cuDNN ---- */

enum { UID_Q = 1, UID_K, UID_V, UID_Y, UID_SCALE, UID_NOTHING, UIDS = UID_NOTHING };

/* Numbers of a key. */
enum {
    KEY_KIND,
    KEY_TYPE,
    KEY_CAUSAL,
    KEY_B,
    KEY_H,
    KEY_TQ,
    KEY_TK,
    KEY_D,
    KEY_STRIDES, /* of q, k, v, y: each B, H, T */
    KEY_END = KEY_STRIDES + 12
};
static_assert((int)KEY_END <= (int)DNN_KEY, "a key holds them");

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
    if ((t != DT_F16 && t != DT_BF16) || op_has(&a->mask) || q[3] % 8 || q[3] > CUDNN_HEAD)
        return false;
    *key = (struct dnn_key) { { [KEY_KIND] = DNN_SDPA,
                                [KEY_TYPE] = t,
                                [KEY_CAUSAL] = a->causal,
                                [KEY_B] = (int64_t)q[0],
                                [KEY_H] = (int64_t)q[2],
                                [KEY_TQ] = (int64_t)q[1],
                                [KEY_TK] = (int64_t)a->k.shape.dim[1],
                                [KEY_D] = (int64_t)q[3] } };
    int64_t *s = key->v + KEY_STRIDES;
    return strides_of(&a->q, s) && strides_of(&a->k, s + 3) && strides_of(&a->v, s + 6) &&
           strides_of(&a->y, s + 9);
}

/* [B, H, T, D] with strides i of the key; turned: [B, H, D, T]. */
static dnn_desc operand(struct dnn_graph *g, const struct dnn_key *key, int64_t uid, int i,
                        int64_t T, bool turned)
{
    const int64_t *v = key->v, *s = v + KEY_STRIDES + 3 * i;
    int row = turned ? 3 : 2, column = turned ? 2 : 3;
    struct dnn_tensor t = { .uid = uid,
                            .kind = DNN_REAL,
                            .type = dnn_type((enum dtype)v[KEY_TYPE]),
                            .dim = { v[KEY_B], v[KEY_H] },
                            .stride = { s[0], s[1] } };
    t.dim[row] = T;
    t.stride[row] = s[2];
    t.dim[column] = v[KEY_D];
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
    const int64_t *n = key->v;
    const int64_t dim[DNN_DIMS] = { n[KEY_B], n[KEY_H], n[KEY_TQ], n[KEY_TK] };
    if (attempt == ATTEMPTS || (attempt == AS_ONE && n[KEY_CAUSAL]))
        return false;
    dnn_desc q = operand(g, key, UID_Q, 0, n[KEY_TQ], false);
    dnn_desc k = operand(g, key, UID_K, 1, n[KEY_TK], attempt != AS_ONE);
    dnn_desc v = operand(g, key, UID_V, 2, n[KEY_TK], false);
    dnn_desc y = operand(g, key, UID_Y, 3, n[KEY_TQ], false);
    dnn_desc scale = value(g, UID_SCALE);
    if (attempt == AS_ONE) {
        dnn_sdpa(g, q, k, v, scale, y);
        return true;
    }
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    dnn_desc product = dnn_between(g, f, dim), scores = dnn_between(g, f, dim);
    dnn_matmul(g, q, k, product);
    dnn_pointwise(g, CUDNN_POINTWISE_MUL, f, 0, product, scale, NULL, scores);
    if (n[KEY_CAUSAL])
        scores = hide_later(g, dim, scores);
    dnn_desc weights =
        softmax(g, dim, dnn_type((enum dtype)n[KEY_TYPE]), scores, attempt == WITH_LOG);
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
    int sm = cuda_card_phys(c)->sm;
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
    else if (!wide_fits(a))
        memcpy((*d)->attention_fell, p->why, sizeof p->why);
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
                                .scale = scale_of(a) };
    steps(&a->q, g.qs);
    steps(&a->k, g.ks);
    steps(&a->v, g.vs);
    steps(&a->y, g.ys);
    if (a->mask.data) {
        g.mask_kind = a->mask.dtype == DT_F32 ? ATTENTION_MASK_F32 : ATTENTION_MASK_LIKE_Q;
        steps(&a->mask, g.ms); /* of [1 or B, 1 or H, Tq, Tk] */
    }
    void *args[] = { &g };
    return cuda_launch(env,
                       &(struct cuda_launch) { .module = CUDA_MODULE_attention,
                                               .kernel = width[w].kernel,
                                               .type = a->q.dtype,
                                               .grid = { (unsigned)blocks },
                                               .block = { ATTENTION_THREADS },
                                               .args = args },
                       err);
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

const char *cuda_attention_how(struct cuda_card *c, char buf[400])
{
    char text[240];
    struct dnn *d = NULL;
    berth_err err;
    if (cuda_card_phys(c)->sm < CUDNN_SM)
        snprintf(buf, 400, "own kernels: cuDNN has none for sm_%d", cuda_card_phys(c)->sm);
    else if (dnn_of(c, &d, &err))
        snprintf(buf, 400, "own kernels: %s", dnn_text(c, text));
    else if (d->attention_fell[0])
        snprintf(buf, 400, "%s; own kernels for some: %s", dnn_text(c, text), d->attention_fell);
    else
        snprintf(buf, 400, "%s", dnn_text(c, text));
    return buf;
}
