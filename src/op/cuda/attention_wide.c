#include "op/cuda/attention_wide.h"
#include "op/cuda/attention_args.h"

#define NARROW 256 /* a head up to this has kernels of cuDNN's, or ours in one go */
#define ROWS 1024  /* queries at a time, at most ... */
#define SCORES ((uint64_t)32 << 20) /* ... of this many bytes of scores */
#define ROWS_STEP 128
/* A row of F16 weights adds up to this, and the second product takes it back: of many keys each has
 * a weight that F16 has few bits for. A single one of it still fits. */
#define F16_SIZE 32768.0f
#define PLACE 256 /* of each part of scratch, and of a row of scores */

struct wide {
    const struct op_attention *a;
    size_t heads, queries, keys, D;
    size_t rows;                           /* queries at a time */
    size_t pitch;                          /* elements from row to row of scores and of weights */
    size_t in_scores, in_weights, in_work; /* bytes; no weights: they take the scores' place */
};

static size_t place(uint64_t bytes)
{
    return (size_t)((bytes + PLACE - 1) / PLACE * PLACE);
}

bool wide_fits(const struct op_attention *a)
{
    const uint64_t *q = a->q.shape.dim, Tk = a->k.shape.dim[1];
    return q[3] > NARROW && q[3] <= INT32_MAX && q[1] <= INT32_MAX && Tk <= INT32_MAX && Tk > 0 &&
           !a->causal && !op_has(&a->mask);
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
    w.pitch = place(w.keys);
    size_t most = (size_t)(SCORES / sizeof(float) / w.pitch);
    most = most > ROWS ? ROWS : most > ROWS_STEP ? most / ROWS_STEP * ROWS_STEP : most ? most : 1;
    w.rows = w.queries < most ? w.queries : most;
    w.in_scores = w.rows * w.pitch * sizeof(float);
    w.in_weights = a->q.dtype == DT_F32 ? 0 : w.rows * w.pitch * elem;
    size_t first = blas_workspace(w.rows, w.keys, 1), second = blas_workspace(w.rows, w.D, 1);
    w.in_work = first > second ? first : second;
    return w;
}

size_t wide_scratch(const struct op_attention *a)
{
    const struct wide w = wide_of(a);
    return w.in_scores + w.in_weights + w.in_work + PLACE; /* scratch may begin between places */
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
    void *args[] = { &g };
    return cuda_launch(env,
                       &(struct cuda_launch) { .module = CUDA_MODULE_attention,
                                               .kernel = "attention_weights",
                                               .type = w->a->q.dtype,
                                               .grid = { (unsigned)rows },
                                               .block = { ATTENTION_THREADS },
                                               .args = args },
                       err);
}

/* The next queries of head h of picture b, from number `from` on; rows: how many there are. */
static berth_status some(const struct op_env *env, const struct wide *w, float scale, size_t b,
                         size_t h, size_t from, size_t rows, bool *refused, berth_err *err)
{
    const struct op_attention *a = w->a;
    enum dtype type = a->q.dtype;
    char *scores = (char *)(((uintptr_t)env->scratch + PLACE - 1) / PLACE * PLACE);
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

berth_status wide_run(const struct op_env *env, const struct op_attention *a, float scale,
                      bool *refused, berth_err *err)
{
    const struct wide w = wide_of(a);
    *refused = false;
    for (size_t b = 0; b < a->q.shape.dim[0]; b++)
        for (size_t h = 0; h < w.heads; h++)
            for (size_t from = 0, rows; from < w.queries && !*refused; from += rows) {
                rows = w.queries - from < w.rows ? w.queries - from : w.rows;
                if (some(env, &w, scale, b, h, from, rows, refused, err))
                    return err->code;
            }
    return BERTH_OK;
}
