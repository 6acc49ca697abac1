/* Traces: a net over a file's header alone, and what its dry runs say about every tensor.
 *
 * Costs   in multiplications on a card that is busy with large products, as an H200 is that was
 *         measured: 360 * 10^12 of them a second in BF16; weights that few rows are multiplied with
 *         take as long as reading them does, at 2.8 TB/s. Estimates,
 *         to be compared among layers of one network: within a third for the layers of Flux at
 *         1024x1024 (tests/unit/model/test_arch.c). What runs between layers counts at the next
 *         layer that has a weight, which a stream has to bring by then. */
#include "net/use.h"

#include "base/sz.h"

#include <string.h>

enum {
    READ_WEIGHT = 256,         /* to read one element of a weight */
    READ_ACT = 128,            /* to read or write one element of an activation: caches help */
    CONVOLVE = 2,              /* a multiplication of a convolution */
    LAUNCH = INT32_C(1) << 29, /* to begin an op: 1.5 us */
};

/* ---- what ops cost; numbers that do not fit are the largest there is ---- */

static uint64_t plus(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return __builtin_mul_overflow(a, b, &a) ? UINT64_MAX : a;
}

static uint64_t elements(const struct view *v)
{
    uint64_t n = 0;
    return v->shape.ndim && !shape_count(&v->shape, &n) ? UINT64_MAX : n;
}

/* Of an op that reads and writes so many elements of activations. */
static uint64_t moved(uint64_t n)
{
    return plus(LAUNCH, times(READ_ACT, n));
}

static uint64_t cost_linear(const struct op_linear *a)
{
    uint64_t w = elements(&a->w), out = a->w.shape.ndim ? a->w.shape.dim[0] : 0;
    uint64_t rows = out ? elements(&a->y) / out : 0;
    return plus(LAUNCH, times(w, rows > READ_WEIGHT ? rows : READ_WEIGHT));
}

static uint64_t cost_matmul(const struct op_matmul *a)
{
    uint64_t inner = a->a.shape.ndim ? a->a.shape.dim[a->a.shape.ndim - 1] : 0;
    return plus(LAUNCH, times(elements(&a->y), inner));
}

static uint64_t cost_conv2d(const struct op_conv2d *a)
{
    uint64_t w = elements(&a->w), out = a->w.shape.ndim ? a->w.shape.dim[0] : 0;
    uint64_t each = times(CONVOLVE, out ? elements(&a->y) / out : 0);
    return plus(LAUNCH, times(w, each > READ_WEIGHT ? each : READ_WEIGHT));
}

static uint64_t cost_attention(const struct op_attention *a)
{
    uint64_t keys = a->k.shape.ndim == 4 ? a->k.shape.dim[1] : 0, q = elements(&a->q);
    return plus(moved(plus(times(2, q), times(2, elements(&a->k)))), times(2, times(q, keys)));
}

/* Ops that multiply little: what they read and write. */
#define MOVES(x, n)                                                                                \
    static uint64_t cost_##x(const struct op_##x *a)                                               \
    {                                                                                              \
        return moved(n);                                                                           \
    }
MOVES(group_norm, times(3, elements(&a->x))) /* read twice */
MOVES(row_norm, times(2, elements(&a->x)))
MOVES(unary, times(2, elements(&a->x)))
MOVES(binary, plus(times(2, elements(&a->a)), elements(&a->b)))
MOVES(geglu, plus(elements(&a->x), elements(&a->y)))
MOVES(embedding, times(2, elements(&a->y)))
MOVES(timestep, elements(&a->y))
MOVES(resize2d, plus(elements(&a->x), elements(&a->y)))
MOVES(concat, times(2, elements(&a->y)))
MOVES(pad2d, plus(elements(&a->x), elements(&a->y)))
MOVES(copy, plus(elements(&a->x), elements(&a->y)))
MOVES(qk_rope, times(2, plus(elements(&a->q), elements(&a->k))))
MOVES(gate, times(3, elements(&a->x)))
#undef MOVES

#define OP(x)                                                                                      \
    void trace_op_##x(struct net_run *r, const struct op_##x *a)                                   \
    {                                                                                              \
        struct net *n = r->n;                                                                      \
        n->pending = plus(n->pending, cost_##x(a));                                                \
        if (r->layer == NET_NO_LAYER)                                                              \
            return;                                                                                \
        uint64_t *work = &n->trace->use[r->layer].work;                                            \
        *work = plus(*work, n->pending);                                                           \
        n->pending = 0;                                                                            \
    }
#include "op/ops.def"
#undef OP

/* ---- what they do with tensors ---- */

void trace_tensor(struct net *n, size_t index)
{
    struct block_use *use = &n->trace->use[index];
    if (!use->when)
        use->when = ++n->trace->turns;
}

void trace_lookup(struct net *n, size_t index)
{
    n->trace->use[index].lookup = true;
}

berth_status net_trace_open(const struct net_trace_args *a, struct net **out, berth_err *err)
{
    *out = NULL;
    struct net *n = calloc(1, sizeof *n);
    const char *root = a->root ? a->root : "";
    if (!n || !(n->root = arena_strndup(&n->mem, root, strlen(root)))) {
        net_close(n);
        return err_set(err, BERTH_ENOMEM, "a trace of '%.120s'", weights_path(a->w));
    }
    n->w = a->w;
    n->names = a->names;
    n->names_user = a->names_user;
    n->trace = a->out;
    n->act = DT_F32;
    n->host = true;
    *out = n;
    return BERTH_OK;
}
