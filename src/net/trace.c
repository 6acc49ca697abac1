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
#include "op/op_def.h"

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

/* What an op reads and writes: its cost, unless it multiplies (below). */
static uint64_t cost_moved(const void *a, const struct op_operand *operand)
{
    uint64_t n = 0;
    for (size_t i = 0; i < OP_OPERANDS_MAX && operand[i].how; i++)
        if (!(operand[i].how & OP_LIST)) /* joined in one that is there, too */
            n = plus(n, elements((const struct view *)((const char *)a + operand[i].at)));
    return plus(LAUNCH, times(READ_ACT, n));
}

/* A weight [out, ...] for so many multiplications with each of its elements as y has rows. */
static uint64_t cost_weight(const struct view *w, const struct view *y, uint64_t each)
{
    uint64_t out = w->shape.ndim ? w->shape.dim[0] : 0;
    uint64_t rows = times(each, out ? elements(y) / out : 0);
    return plus(LAUNCH, times(elements(w), rows > READ_WEIGHT ? rows : READ_WEIGHT));
}

static uint64_t cost_linear(const void *args, const struct op_operand *operand)
{
    const struct op_linear *a = args;
    (void)operand;
    return cost_weight(&a->w, &a->y, 1);
}

static uint64_t cost_conv2d(const void *args, const struct op_operand *operand)
{
    const struct op_conv2d *a = args;
    (void)operand;
    return cost_weight(&a->w, &a->y, CONVOLVE);
}

static uint64_t cost_matmul(const void *args, const struct op_operand *operand)
{
    const struct op_matmul *a = args;
    uint64_t inner = a->a.shape.ndim ? a->a.shape.dim[a->a.shape.ndim - 1] : 0;
    return plus(cost_moved(a, operand), times(elements(&a->y), inner));
}

static uint64_t cost_attention(const void *args, const struct op_operand *operand)
{
    const struct op_attention *a = args;
    uint64_t keys = a->k.shape.ndim == 4 ? a->k.shape.dim[1] : 0;
    return plus(cost_moved(a, operand), times(2, times(elements(&a->q), keys)));
}

static uint64_t cost_embedding(const void *args, const struct op_operand *operand)
{
    const struct op_embedding *a = args; /* some rows of the table, not all of it */
    (void)operand;
    return plus(LAUNCH, times(2 * READ_ACT, elements(&a->y)));
}

/* Counted at the layer whose weight the op has, with what ran since the last such layer. */
static void count(struct net_run *r, uint64_t cost)
{
    struct net *n = r->n;
    n->pending = plus(n->pending, cost);
    if (r->layer == NET_NO_LAYER)
        return;
    uint64_t *work = &n->trace->use[r->layer].work;
    *work = plus(*work, n->pending);
    n->pending = 0;
}

/* clang-format off */
#define COST_OF(a)                                                                                 \
    _Generic((a),                                                                                  \
        const struct op_linear *: cost_linear,                                                     \
        const struct op_conv2d *: cost_conv2d,                                                     \
        const struct op_matmul *: cost_matmul,                                                     \
        const struct op_attention *: cost_attention,                                               \
        const struct op_embedding *: cost_embedding,                                               \
        default: cost_moved)
/* clang-format on */
#define OP(x)                                                                                      \
    void trace_op_##x(struct net_run *r, const struct op_##x *a)                                   \
    {                                                                                              \
        count(r, COST_OF(a)(a, op_##x##_def.operand));                                             \
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
