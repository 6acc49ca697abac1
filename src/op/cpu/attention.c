#include "op/cpu/attention.h"

#include <math.h>

/* Floats that qT and oT of a piece may take: they, a block of keys and its scores stay in the
 * second-level cache. */
enum { PIECE_FLOATS = 128 << 10, PIECE_GROUPS = 8 };

static const struct attn_kernel *kernel_of(const struct op_env *env)
{
    switch (cpu_kernels(env)) {
#if CPU_X86
    case CPU_AVX512:
        return &attn_avx512;
    case CPU_AVX2:
        return &attn_avx2;
#endif
    default:
        return &attn_plain;
    }
}

/* Queries of a piece: whole groups, so that pieces of every size have the same ones. */
static size_t piece_queries(const struct op_env *env, const struct op_attention *a)
{
    const uint64_t *q = a->q.shape.dim;
    size_t lanes = kernel_of(env)->lanes, all = ((size_t)q[1] + lanes - 1) / lanes;
    if (env->thrifty)
        return lanes;
    size_t groups = PIECE_FLOATS / (2 * (size_t)q[3] * lanes);
    groups = groups > PIECE_GROUPS ? PIECE_GROUPS : groups;
    groups = groups > all ? all : groups;
    size_t heads = (size_t)(q[0] * q[2]); /* work for everyone, rather than large pieces */
    while (groups > 1 && heads * ((all + groups - 1) / groups) < 3 * cpu_workers(env))
        groups--;
    return (groups ? groups : 1) * lanes;
}

size_t cpu_attention_scratch(const struct op_env *env, const struct op_attention *a)
{
    size_t lanes = kernel_of(env)->lanes;
    size_t n = attn_scratch(lanes, piece_queries(env, a), (size_t)a->q.shape.dim[3]);
    return cpu_workers(env) * ((n * sizeof(float) + 63) & ~(size_t)63);
}

struct job {
    const struct op_env *env;
    const struct op_attention *a;
    const struct attn_kernel *kernel;
    size_t chunk, chunks; /* queries per piece; pieces per head */
    size_t scratch;       /* bytes per worker */
};

static void piece(void *user, size_t i, size_t worker)
{
    const struct job *j = user;
    const struct op_attention *a = j->a;
    if (op_cancelled(j->env))
        return;
    size_t H = (size_t)a->q.shape.dim[2], Tq = (size_t)a->q.shape.dim[1];
    size_t first = i % j->chunks * j->chunk, h = i / j->chunks % H, b = i / j->chunks / H;
    size_t of = h / (H / (size_t)a->k.shape.dim[2]); /* head of k and v */
    const struct view *m = &a->mask;
    struct attn_piece p = {
        .q = op_head_at(&a->q, b, first, h),
        .k = op_head_at(&a->k, b, 0, of),
        .v = op_head_at(&a->v, b, 0, of),
        .y = op_head_at(&a->y, b, first, h),
        .ldq = a->q.stride[1] / sizeof(float),
        .ldk = a->k.stride[1] / sizeof(float),
        .ldv = a->v.stride[1] / sizeof(float),
        .ldy = a->y.stride[1] / sizeof(float),
        .first = a->past + first,
        .n = Tq - first < j->chunk ? Tq - first : j->chunk,
        .keys = (size_t)a->k.shape.dim[1],
        .dim = (size_t)a->q.shape.dim[3],
        .window = a->window,
        .scale = a->scale,
        .causal = a->causal,
        .scratch = (float *)(void *)((char *)j->env->scratch + worker * j->scratch),
    };
    if (a->scale == 0)
        p.scale = (float)(1 / sqrt((double)p.dim));
    if (m->data) {
        const uint64_t *n = m->shape.dim;
        p.ldm = n[2] > 1 ? m->stride[2] / sizeof(float) : 0;
        p.mask = op_head_at(m, n[0] > 1 ? b : 0, n[1] > 1 ? h : 0, n[2] > 1 ? first : 0);
    }
    j->kernel->run(&p);
}

berth_status cpu_attention(const struct op_env *env, const struct op_attention *a, berth_err *err)
{
    struct job j = { .env = env, .a = a, .kernel = kernel_of(env), .chunk = piece_queries(env, a) };
    j.chunks = ((size_t)a->q.shape.dim[1] + j.chunk - 1) / j.chunk;
    j.scratch = cpu_attention_scratch(env, a) / cpu_workers(env);
    size_t n = (size_t)a->q.shape.dim[0] * (size_t)a->q.shape.dim[2] * j.chunks;
    cpu_for(env, n, piece, &j);
    return op_cancelled(env) ? err_set(err, BERTH_ECANCELED, "attention: cancelled") : BERTH_OK;
}
