/* What op_x() refuses, with a message that names the op and the shapes, or the backend and the
 * type; scratch; cancelling; backends by device. */
#include "op/cpu/cpu_impl.h"
#include "op/op_def.h"
#include "support/devices.h"
#include "support/test.h"

#include <math.h>

#define S1(a) ((struct shape) { 1, { a } })
#define S2(a, b) ((struct shape) { 2, { a, b } })
#define S3(a, b, c) ((struct shape) { 3, { a, b, c } })
#define S4(a, b, c, d) ((struct shape) { 4, { a, b, c, d } })

enum { ROOM = 4096 };
static float memory[12][ROOM];
static size_t used;
static _Alignas(OP_SCRATCH_ALIGN) char scratch[1 << 16];
static const struct op_env env = { .scratch = scratch, .scratch_bytes = sizeof scratch };

static struct view of(enum dtype t, struct shape s)
{
    struct view v;
    berth_err err;
    assert_true(used < sizeof memory / sizeof *memory);
    assert_ok(view_init(t, &s, memory[used++], sizeof memory[0], &v, &err), err);
    return v;
}

static struct view f(struct shape s)
{
    return of(DT_F32, s);
}

/* op(args) fails before it computes, and so do its checks alone, unless it is about memory. */
#define REFUSED(op, text, ...)                                                                     \
    do {                                                                                           \
        berth_err err_ = { 0 };                                                                    \
        struct op_##op a_ = { __VA_ARGS__ };                                                       \
        assert_fails(op_##op(&env, &a_, &err_), err_, BERTH_EINVAL, text);                         \
        assert_non_null(strstr(err_.msg, #op ": "));                                               \
        used = 0;                                                                                  \
    } while (0)
#define TAKEN(op, ...)                                                                             \
    do {                                                                                           \
        berth_err err_ = { 0 };                                                                    \
        struct op_##op a_ = { __VA_ARGS__ };                                                       \
        assert_ok(op_##op##_ready(&env, &a_, &err_), err_);                                        \
        assert_ok(op_##op(&env, &a_, &err_), err_);                                                \
        used = 0;                                                                                  \
    } while (0)

static struct view strided(struct shape s) /* every second row element of something larger */
{
    struct view v = f(s);
    v.stride[s.ndim - 1] *= 2;
    return v;
}

static struct view apart_by(struct shape s, int dim, size_t stride)
{
    struct view v = f(s);
    v.stride[dim] = stride;
    return v;
}

/* Of things too large to be there. */
static struct view vast(struct shape s)
{
    struct view v = { .dtype = DT_F32, .shape = s };
    for (int i = s.ndim - 1; i >= 0; i--)
        v.stride[i] = i == s.ndim - 1 ? sizeof(float) : v.stride[i + 1] * s.dim[i + 1];
    return v;
}

static void scratch_that_does_not_fit_is_too_much(void **state)
{
    (void)state;
    const uint64_t k = UINT64_C(1) << 60, c = UINT64_C(1) << 55;
    struct op_env cpu = { .backend = &op_cpu_at[0] };
    struct op_linear l = { .x = vast(S2(1, k)), .w = vast(S2(1, k)), .y = vast(S2(1, 1)) };
    assert_true(op_linear_scratch(&cpu, &l) == SIZE_MAX);
    struct op_conv2d v = { .x = vast(S4(1, c, 6, 6)),
                           .w = vast(S4(1, c, 3, 3)),
                           .y = vast(S4(1, 1, 4, 4)) };
    assert_true(op_conv2d_scratch(&cpu, &v) == SIZE_MAX);
    v.x = v.w = vast(S4(1, 4 * c, 3, 3)); /* too small a picture for Winograd */
    v.y = vast(S4(1, 1, 1, 1));
    assert_true(op_conv2d_scratch(&cpu, &v) == SIZE_MAX);
}

/* Whatever way a convolution takes, and however many workers there are. */
static void thrifty_wants_no_more(void **state)
{
    (void)state;
    struct tpool *pool[] = { NULL, NULL };
    berth_err err;
    assert_ok(tpool_new(3, &pool[1], &err), err);
    for (uint64_t side = 8; side <= 512; side *= 2)
        for (uint64_t ic = 16; ic <= 2048; ic *= 2)
            for (uint64_t oc = 4; oc <= 2048; oc *= 2)
                for (int i = 0; i < 2 * CPU_LEVELS; i++) {
                    struct op_conv2d a = { .x = vast(S4(1, ic, side + 2, side + 2)),
                                           .w = vast(S4(oc, ic, 3, 3)),
                                           .y = vast(S4(1, oc, side, side)) };
                    struct op_env e = { .backend = &op_cpu_at[i / 2], .pool = pool[i % 2] };
                    size_t usual = op_conv2d_scratch(&e, &a);
                    e.thrifty = true;
                    if (op_conv2d_scratch(&e, &a) > usual)
                        fail_msg("%d to %d channels, side %d, %s: %zu bytes, else %zu", (int)ic,
                                 (int)oc, (int)side, e.backend->name, op_conv2d_scratch(&e, &a),
                                 usual);
                }
    tpool_free(pool[1]);
}

static void strides_and_rows(void **state)
{
    (void)state;
    const struct shape q = S4(1, 3, 2, 4);
    REFUSED(linear, "rows of y [3, 5] are only 16 bytes apart", .x = f(S2(3, 4)), .w = f(S2(5, 4)),
            .y = apart_by(S2(3, 5), 0, 16));
    REFUSED(linear, "strides of x [3, 4] are not whole elements", .x = apart_by(S2(3, 4), 0, 18),
            .w = f(S2(5, 4)), .y = f(S2(3, 5)));
    REFUSED(linear, "rows of x [2, 3, 4]", .x = apart_by(S3(2, 3, 4), 1, 0), .w = f(S2(5, 4)),
            .y = f(S3(2, 3, 5)));
    REFUSED(linear, "rows of add [3, 5] are only 0 bytes apart", .x = f(S2(3, 4)), .w = f(S2(5, 4)),
            .y = f(S2(3, 5)), .add = apart_by(S2(3, 5), 0, 0));
    REFUSED(attention, "strides of mask [1, 1, 3, 3]", .q = f(q), .k = f(q), .v = f(q), .y = f(q),
            .mask = apart_by(S4(1, 1, 3, 3), 2, 14));
    REFUSED(copy, "strides of x [3, 4]", .x = apart_by(S2(3, 4), 0, 17), .y = f(S2(3, 4)));
    struct view x = apart_by(S2(3, 4), 0, 17);
    REFUSED(concat, "strides of x [3, 4]", .x = &x, .n = 1, .axis = 0, .y = f(S2(3, 4)));
    x = f(S2(3, 4));
    struct view ids = of(DT_I32, S1(3));
    memset(ids.data, 0, 12);
    REFUSED(embedding, "y [3, 4] overlaps table [3, 4]", .table = x, .ids = ids, .y = x);
}

static void products(void **state)
{
    (void)state;
    TAKEN(linear, .x = f(S2(3, 4)), .w = f(S2(5, 4)), .y = f(S2(3, 5)));
    REFUSED(linear, "x [3, 4] does not fit w [5, 6]", .x = f(S2(3, 4)), .w = f(S2(5, 6)),
            .y = f(S2(3, 5)));
    REFUSED(linear, "y [3, 6] is not that of", .x = f(S2(3, 4)), .w = f(S2(5, 4)),
            .y = f(S2(3, 6)));
    REFUSED(linear, "bias [4] is not [5]", .x = f(S2(3, 4)), .w = f(S2(5, 4)), .y = f(S2(3, 5)),
            .bias = f(S1(4)));
    REFUSED(linear, "y is F16, but x is F32", .x = f(S2(3, 4)), .w = f(S2(5, 4)),
            .y = of(DT_F16, S2(3, 5)));
    REFUSED(linear, "y is F16, neither F32 nor BF16 as x", .x = of(DT_BF16, S2(3, 4)),
            .w = f(S2(5, 4)), .y = of(DT_F16, S2(3, 5)));
    REFUSED(linear, "add is F16, but y is F32", .x = of(DT_F16, S2(3, 4)), .w = f(S2(5, 4)),
            .y = f(S2(3, 5)), .add = of(DT_F16, S2(3, 5)));
    REFUSED(linear, "there is no function 7", .x = f(S2(3, 4)), .w = f(S2(5, 4)), .y = f(S2(3, 5)),
            .after = (enum op_after)7);
    REFUSED(linear, "something to add are not for one call", .x = f(S2(3, 4)), .w = f(S2(5, 4)),
            .y = f(S2(3, 5)), .add = f(S2(3, 5)), .after = OP_AFTER_GELU_TANH);
    REFUSED(linear, "rows of x [3, 4] are not contiguous", .x = strided(S2(3, 4)), .w = f(S2(5, 4)),
            .y = f(S2(3, 5)));
    REFUSED(linear, "w has no memory", .x = f(S2(3, 4)),
            .w = { .dtype = DT_F32, .shape = S2(5, 4), .stride = { 16, 4 } }, .y = f(S2(3, 5)));
    struct view x = f(S2(4, 4));
    REFUSED(linear, "y [4, 4] overlaps x [4, 4]", .x = x, .w = f(S2(4, 4)), .y = x);
    REFUSED(matmul, "a [2, 3, 4] does not fit b [2, 5, 6]", .a = f(S3(2, 3, 4)),
            .b = f(S3(2, 5, 6)), .y = f(S3(2, 3, 6)));
    REFUSED(matmul, "does not fit b [2, 4, 6] transposed", .a = f(S3(2, 3, 4)), .b = f(S3(2, 4, 6)),
            .y = f(S3(2, 3, 6)), .b_transposed = true);
    TAKEN(conv2d, .x = f(S4(1, 4, 5, 5)), .w = f(S4(6, 2, 3, 3)), .y = f(S4(1, 6, 2, 2)),
          .groups = 2, .stride = 2);
    REFUSED(conv2d, "in 3 groups", .x = f(S4(1, 4, 5, 5)), .w = f(S4(6, 2, 3, 3)),
            .y = f(S4(1, 6, 3, 3)), .groups = 3);
    REFUSED(conv2d, "y [1, 6, 5, 5] is not that of", .x = f(S4(1, 2, 5, 5)), .w = f(S4(6, 2, 3, 3)),
            .y = f(S4(1, 6, 5, 5)), .top = 1, .left = 1, .bottom = 1);
    REFUSED(conv2d, "is not that of", .x = f(S4(1, 2, 2, 2)), .w = f(S4(6, 2, 3, 3)),
            .y = f(S4(1, 6, 1, 1)));
    REFUSED(conv2d, "w [6, 2, 3, 3] is Q8_0, in blocks of 32", .x = f(S4(1, 2, 5, 5)),
            .w = { .dtype = DT_Q8_0, .shape = S4(6, 2, 3, 3), .data = memory[11] },
            .y = f(S4(1, 6, 3, 3)));
}

/* A 1x1 convolution whose weight was quantised as a matrix. */
static void quants_of_pixels(void **state)
{
    (void)state;
    memset(memory, 0, sizeof memory);
    struct view w = { .dtype = DT_Q8_0, .shape = S4(6, 32, 1, 1), .data = memory[11] };
    TAKEN(conv2d, .x = f(S4(1, 32, 5, 5)), .w = w, .y = f(S4(1, 6, 5, 5)));
}

static void attention(void **state)
{
    (void)state;
    struct shape q = S4(1, 3, 2, 4), k = S4(1, 5, 2, 4);
    TAKEN(attention, .q = f(q), .k = f(k), .v = f(k), .y = f(q), .mask = f(S4(1, 2, 3, 5)));
    TAKEN(attention, .q = f(q), .k = f(S4(1, 5, 1, 4)), .v = f(S4(1, 5, 1, 4)), .y = f(q),
          .mask = f(S4(1, 1, 1, 5)));
    TAKEN(attention, .q = f(q), .k = f(k), .v = f(k), .y = f(q), .causal = true, .past = 2,
          .window = 3);
    REFUSED(attention, "past and window are for causal", .q = f(q), .k = f(k), .v = f(k), .y = f(q),
            .window = 3);
    REFUSED(attention, "q [1, 3, 2, 4] does not fit k [1, 5, 3, 4]", .q = f(q),
            .k = f(S4(1, 5, 3, 4)), .v = f(S4(1, 5, 3, 4)), .y = f(q));
    REFUSED(attention, "q [1, 3, 2, 4] does not fit k [1, 5, 2, 3]", .q = f(q),
            .k = f(S4(1, 5, 2, 3)), .v = f(S4(1, 5, 2, 3)), .y = f(q));
    REFUSED(attention, "k [1, 5, 2, 4] and v [1, 3, 2, 4] differ", .q = f(q), .k = f(k), .v = f(q),
            .y = f(q));
    REFUSED(attention, "mask [1, 1, 5, 3]", .q = f(q), .k = f(k), .v = f(k), .y = f(q),
            .mask = f(S4(1, 1, 5, 3)));
    REFUSED(attention, "k [1, 0, 2, 4] is empty", .q = f(q), .k = f(S4(1, 0, 2, 4)),
            .v = f(S4(1, 0, 2, 4)), .y = f(q));
    struct shape huge = S4(1, 1, 1, UINT64_C(1) << 40);
    struct view long_head = { .dtype = DT_F32, .shape = huge, .data = memory[0] };
    long_head.stride[3] = sizeof(float);
    REFUSED(attention, "heads of up to 65536", .q = long_head, .k = long_head, .v = long_head,
            .y = long_head);
    REFUSED(attention, "rows of v", .q = f(q), .k = f(k), .v = strided(k), .y = f(q));
}

static void norms_and_functions(void **state)
{
    (void)state;
    struct shape s = S3(2, 6, 5);
    REFUSED(group_norm, "has no 4 equal groups", .x = f(s), .y = f(s), .w = f(S1(6)), .b = f(S1(6)),
            .groups = 4);
    REFUSED(group_norm, "has no 0 equal groups", .x = f(s), .y = f(s), .w = f(S1(6)),
            .b = f(S1(6)));
    REFUSED(group_norm, "w [5] is not [6]", .x = f(s), .y = f(s), .w = f(S1(5)), .b = f(S1(6)),
            .groups = 2);
    REFUSED(channel_norm, "w [5] is not [6]", .x = f(s), .y = f(s), .w = f(S1(5)));
    REFUSED(channel_norm, "x [2, 6, 5] and y [2, 5, 6] differ", .x = f(s), .y = f(S3(2, 5, 6)),
            .w = f(S1(6)));
    REFUSED(row_norm, "b [6] is not [5]", .x = f(s), .y = f(s), .b = f(S1(6)));
    REFUSED(unary, "there is no kind 99", .kind = (enum op_unary_kind)99, .x = f(s), .y = f(s));
    REFUSED(unary, "x [2, 6, 5] and y [2, 5, 6] differ", .x = f(s), .y = f(S3(2, 5, 6)));
    struct view x = f(s), y = x;
    y.data = op_f32(&x) + 1;
    REFUSED(unary, "overlaps", .x = x, .y = y);
    REFUSED(binary, "b [2, 3, 5] does not spread over a [2, 6, 5]", .a = f(s), .b = f(S3(2, 3, 5)),
            .y = f(s));
    REFUSED(binary, "b [5] has 1 dimensions, not 3", .a = f(s), .b = f(S1(5)), .y = f(s));
    REFUSED(geglu, "has no halves", .x = f(s), .y = f(s));
    REFUSED(geglu, "y [2, 6] is not half of x [2, 6]", .x = f(S2(2, 6)), .y = f(S2(2, 6)));
}

static void modulation(void **state)
{
    (void)state;
    struct shape s = S3(2, 6, 4), item = S2(2, 4);
    TAKEN(row_norm, .x = f(s), .y = f(s), .scale = f(item), .shift = f(item));
    TAKEN(row_norm, .x = f(s), .y = f(s), .scale = apart_by(item, 0, 96), .shift = f(item));
    TAKEN(row_norm, .x = f(s), .y = f(s), .scale = f(item));
    TAKEN(row_norm, .x = f(s), .y = f(s), .scale = f(item), .w = f(S1(4)));
    TAKEN(row_norm, .x = f(s), .y = f(s), .scale = f(item), .shift = f(item), .w = f(S1(4)));
    REFUSED(row_norm, "shift without scale", .x = f(s), .y = f(s), .shift = f(item));
    REFUSED(row_norm, "not for one call with b", .x = f(s), .y = f(s), .scale = f(item),
            .shift = f(item), .b = f(S1(4)));
    REFUSED(row_norm, "shift [2, 6] is not the first and last dimension of x [2, 6, 4]", .x = f(s),
            .y = f(s), .scale = f(item), .shift = f(S2(2, 6)));
    REFUSED(row_norm, "is not the first and last dimension of x [4]", .x = f(S1(4)), .y = f(S1(4)),
            .scale = f(S2(4, 4)), .shift = f(S2(4, 4)));
    REFUSED(row_norm, "rows of scale [2, 4]", .x = f(s), .y = f(s), .scale = strided(item),
            .shift = f(item));
    struct view x = f(s), over = x;
    over.shape = item;
    over.stride[0] = 16, over.stride[1] = 4;
    REFUSED(row_norm, "y [2, 6, 4] overlaps scale [2, 4]", .x = x, .y = x, .scale = over,
            .shift = f(item));

    TAKEN(gate, .x = f(s), .z = f(s), .y = f(s), .gate = f(item));
    REFUSED(gate, "x [2, 6, 4] and z [2, 6, 5] differ", .x = f(s), .z = f(S3(2, 6, 5)), .y = f(s),
            .gate = f(item));
    REFUSED(gate, "gate [6, 4] is not", .x = f(s), .z = f(s), .y = f(s), .gate = f(S2(6, 4)));
    REFUSED(gate, "fewer than 2 dimensions", .x = f(S1(4)), .z = f(S1(4)), .y = f(S1(4)),
            .gate = f(S2(1, 4)));
    x = f(s);
    REFUSED(gate, "y [2, 6, 4] overlaps z [2, 6, 4]", .x = f(s), .z = x, .y = x, .gate = f(item));
    REFUSED(gate, "rows of z [2, 6, 4] are not evenly apart", .x = f(s), .z = apart_by(s, 0, 112),
            .y = f(s), .gate = f(item));
}

static void rotation(void **state)
{
    (void)state;
    struct shape q = S4(1, 3, 2, 4), t = S3(3, 2, 2);
    TAKEN(qk_rope, .q = f(q), .k = f(q), .table = f(t));
    TAKEN(qk_rope, .q = f(q), .k = f(q), .table = f(t), .wq = f(S1(4)), .wk = f(S1(4)));
    TAKEN(qk_rope, .q = f(S4(0, 3, 2, 4)), .k = f(S4(0, 3, 2, 4)), .table = f(t));
    REFUSED(qk_rope, "q [1, 3, 2, 4] does not fit k [1, 5, 2, 4]", .q = f(q),
            .k = f(S4(1, 5, 2, 4)), .table = f(t));
    TAKEN(qk_rope, .q = f(q), .k = f(S4(1, 3, 1, 4)), .table = f(t), .halves = true);
    REFUSED(qk_rope, "heads of an even size", .q = f(S4(1, 3, 2, 5)), .k = f(S4(1, 3, 2, 5)),
            .table = f(t));
    REFUSED(qk_rope, "table [4, 2, 2] is not that of q [1, 3, 2, 4]", .q = f(q), .k = f(q),
            .table = f(S3(4, 2, 2)));
    REFUSED(qk_rope, "table is F16, not F32", .q = f(q), .k = f(q), .table = of(DT_F16, t));
    REFUSED(qk_rope, "wq and wk come together", .q = f(q), .k = f(q), .table = f(t),
            .wq = f(S1(4)));
    REFUSED(qk_rope, "wk [2] is not [4]", .q = f(q), .k = f(q), .table = f(t), .wq = f(S1(4)),
            .wk = f(S1(2)));
    struct view both = f(q);
    REFUSED(qk_rope, "q [1, 3, 2, 4] overlaps k", .q = both, .k = both, .table = f(t));
    REFUSED(qk_rope, "rows of k", .q = f(q), .k = strided(q), .table = f(t));
    REFUSED(qk_rope, "q has no memory", .q = vast(q), .k = f(q), .table = f(t));
}

/* Right by itself, but not what the backend has: the message names backend and type. */
#define UNABLE(op, env, text, ...)                                                                 \
    do {                                                                                           \
        berth_err err_ = { 0 };                                                                    \
        struct op_##op a_ = { __VA_ARGS__ };                                                       \
        struct op_check c_ = { .err = &err_ };                                                     \
        op_##op##_def.check(&c_, &a_);                                                             \
        assert_ok(c_.s, err_);                                                                     \
        assert_fails(op_##op(env, &a_, &err_), err_, BERTH_EUNSUPPORTED, text);                    \
        assert_int_equal(op_##op##_scratch(env, &a_), 0);                                          \
        used = 0;                                                                                  \
    } while (0)

static void types(void **state)
{
    (void)state;
    struct shape s = S2(3, 4);
    const struct op_env cpu = { .backend = &op_cpu_at[CPU_PLAIN] };
    UNABLE(linear, &env, "linear: x is BF16, the activations of the reference are F32",
           .x = of(DT_BF16, s), .w = f(S2(5, 4)), .y = of(DT_BF16, S2(3, 5)));
    UNABLE(linear, &cpu, "linear: x is F16, the activations of cpu-plain are F32",
           .x = of(DT_F16, s), .w = f(S2(5, 4)), .y = of(DT_F16, S2(3, 5)));
    UNABLE(linear, &cpu, "linear: a parameter is BF16, those of cpu-plain are F32", .x = f(s),
           .w = f(S2(5, 4)), .bias = of(DT_BF16, S1(5)), .y = f(S2(3, 5)));
    UNABLE(embedding, &cpu, "embedding: y is F16, the activations of the reference are F32",
           .table = f(S2(7, 4)), .ids = of(DT_I32, S1(3)), .y = of(DT_F16, s));
    UNABLE(copy, &env, "copy: y is F16", .x = f(s), .y = of(DT_F16, s));
    UNABLE(linear, &cpu, "linear: x is F16, the activations of cpu-plain are F32",
           .x = of(DT_F16, s), .w = f(S2(5, 4)), .y = f(S2(3, 5)), .add = f(S2(3, 5)));
    UNABLE(row_norm, &env, "row_norm: y is F16", .x = of(DT_F16, s), .y = of(DT_F16, s),
           .scale = f(s), .shift = of(DT_F16, s));
    UNABLE(row_norm, &env, "row_norm: y is BF16", .x = f(s), .y = of(DT_BF16, s));
    REFUSED(row_norm, "x is F16, but y is F32", .x = of(DT_F16, s), .y = f(s));
    struct view wide = f(s), narrow = of(DT_F16, s);
    narrow.data = wide.data;
    REFUSED(row_norm, "y [3, 4] overlaps x [3, 4]", .x = wide, .y = narrow);
    TAKEN(copy, .x = of(DT_F16, s), .y = f(s));
    TAKEN(add_product, .w = f(S2(3, 4)), .up = f(S2(3, 2)), .down = f(S2(2, 4)));
    REFUSED(add_product, "up [3, 2] and down [3, 4] do not make w [3, 4]", .w = f(S2(3, 4)),
            .up = f(S2(3, 2)), .down = f(S2(3, 4)));
    REFUSED(add_product, "w is F16", .w = of(DT_F16, S2(3, 4)), .up = f(S2(3, 2)),
            .down = f(S2(2, 4)));
    REFUSED(unary, "x is I32, not F32, F16 or BF16", .x = of(DT_I32, s), .y = f(s));
    REFUSED(unary, "x is Q8_0, not F32, F16 or BF16", .x = of(DT_Q8_0, S2(3, 32)), .y = f(s));
    REFUSED(binary, "a is BF16, neither F32 nor F16 as b", .a = of(DT_BF16, s), .b = of(DT_F16, s),
            .y = of(DT_BF16, s));
    REFUSED(binary, "y is F16, but a is F32", .a = f(s), .b = of(DT_F16, s), .y = of(DT_F16, s));
    REFUSED(binary, "a is F16, but b is F32", .a = of(DT_F16, s), .b = f(s), .y = f(s));
    REFUSED(binary, "y [3, 4] overlaps a [3, 4]", .a = narrow, .b = of(DT_F16, s), .y = wide);
    REFUSED(binary, "y [3, 4] overlaps b [3, 4]", .a = f(s), .b = narrow, .y = wide);
    UNABLE(binary, &env, "binary: b is F16", .a = f(s), .b = of(DT_F16, s), .y = f(s));
    REFUSED(group_norm, "y [3, 4] overlaps x [3, 4]", .x = wide, .y = narrow, .w = f(S1(4)),
            .b = f(S1(4)), .groups = 2);
    REFUSED(gate, "gate is F16, neither F32 nor BF16 as x", .x = of(DT_BF16, s),
            .z = of(DT_BF16, s), .y = of(DT_BF16, s), .gate = of(DT_F16, s));
    struct shape q = S4(1, 3, 2, 4);
    REFUSED(attention, "mask is F16, but q is F32", .q = f(q), .k = f(q), .v = f(q), .y = f(q),
            .mask = of(DT_F16, S4(1, 1, 3, 3)));
    REFUSED(timestep, "t is F16, not F32", .t = of(DT_F16, S1(3)), .y = of(DT_F16, s));
    REFUSED(row_norm, "w is F8_E4M3, not F32, F16 or BF16", .x = f(s), .y = f(s),
            .w = of(DT_F8_E4M3, S1(4)));
    struct view x = of(DT_F16, s);
    x.stride[0] = 11;
    REFUSED(linear, "strides of x [3, 4] are not whole elements", .x = x, .w = f(S2(5, 4)),
            .y = of(DT_F16, S2(3, 5)));
    x = of(DT_F16, s);
    x.stride[0] = 6;
    REFUSED(linear, "rows of x [3, 4] are only 6 bytes apart", .x = x, .w = f(S2(5, 4)),
            .y = of(DT_F16, S2(3, 5)));
    x = of(DT_F16, s);
    x.stride[0] = 10; /* five elements from row to row */
    UNABLE(linear, &env, "x is F16", .x = x, .w = f(S2(5, 4)), .y = of(DT_F16, S2(3, 5)));
}

/* The reference must not follow addresses of a device that has a stream: a device without a backend
 * does not compute. One with a backend bounces (test_adding.c). */
static void no_reference_behind_a_stream(void **state)
{
    (void)state;
    struct dev_stream stream = { 0 };
    const struct op_env e = { .stream = &stream };
    UNABLE(unary, &e, "unary: no backend has a kernel for it", .x = f(S2(3, 4)), .y = f(S2(3, 4)));
}

/* What was made ready is not checked again, but in builds that check everything. */
static void a_call_is_checked_once(void **state)
{
    (void)state;
    const struct op_env ready = { .checked = true };
    struct op_unary a = { .kind = OP_RELU, .x = f(S2(3, 4)), .y = f(S2(3, 3)) };
    berth_err err = { 0 };
    assert_fails(op_unary_ready(&ready, &a, &err), err, BERTH_EINVAL,
                 "unary: x [3, 4] and y [3, 3] differ");
#ifdef BERTH_CHECKS
    assert_fails(op_unary(&ready, &a, &err), err, BERTH_EINVAL,
                 "unary: x [3, 4] and y [3, 3] differ");
#else
    assert_ok(op_unary(&ready, &a, &err), err);
#endif
    used = 0;
}

static void moving(void **state)
{
    (void)state;
    struct shape s = S4(1, 2, 3, 4);
    REFUSED(embedding, "ids [3] is F32, not I32", .table = f(S2(7, 4)), .ids = f(S1(3)),
            .y = f(S2(3, 4)));
    struct view ids = of(DT_I32, S1(3));
    memcpy(ids.data, (int32_t[]) { 1, 7, 0 }, 12);
    REFUSED(embedding, "id 7 at 1, the table has 7 rows", .table = f(S2(7, 4)), .ids = ids,
            .y = f(S2(3, 4)));
    ids = of(DT_I32, S1(3));
    memcpy(ids.data, (int32_t[]) { 1, 2, -1 }, 12);
    REFUSED(embedding, "id -1 at 2", .table = f(S2(7, 4)), .ids = ids, .y = f(S2(3, 4)));
    REFUSED(timestep, "a period of -1", .t = f(S1(2)), .y = f(S2(2, 4)), .period = -1);
    REFUSED(resize2d, "are not as many planes", .x = f(s), .y = f(S4(1, 3, 3, 4)));
    REFUSED(resize2d, "x [1, 2, 0, 4] is empty", .x = f(S4(1, 2, 0, 4)), .y = f(s));
    REFUSED(pad2d, "does not fit y", .x = f(s), .y = f(s), .top = 1);
    REFUSED(copy, "x [1, 2, 3, 4] does not fit y [5]", .x = f(s), .y = f(S1(5)));
    REFUSED(copy, "has gaps", .x = of(DT_F16, S2(3, 4)), .y = strided(S2(3, 4)));
    struct view x[] = { f(s), f(S4(1, 2, 3, 5)) };
    REFUSED(concat, "x[1] [1, 2, 3, 5] does not fit", .x = x, .n = 2, .axis = 1,
            .y = f(S4(1, 4, 3, 4)));
    x[0] = f(s), x[1] = f(s);
    REFUSED(concat, "operands have 4 of y [1, 5, 3, 4] along axis 1", .x = x, .n = 2, .axis = 1,
            .y = f(S4(1, 5, 3, 4)));
    REFUSED(concat, "along axis 4", .x = x, .n = 2, .axis = 4, .y = f(s));
}

/* Nothing to write is fine, and asks for nothing. */
static void empty_results(void **state)
{
    (void)state;
    TAKEN(unary, .x = f(S2(0, 4)), .y = f(S2(0, 4)));
    TAKEN(linear, .x = f(S2(0, 4)), .w = f(S2(5, 4)), .y = f(S2(0, 5)));
    TAKEN(attention, .q = f(S4(0, 3, 2, 4)), .k = f(S4(0, 5, 2, 4)), .v = f(S4(0, 5, 2, 4)),
          .y = f(S4(0, 3, 2, 4)));
    used = 0;
}

/* Scratch is known without addresses, is asked for exactly, and must lie right. */
static void scratch_is_checked(void **state)
{
    (void)state;
    const struct op_backend *all[] = { NULL, &op_cpu_at[CPU_PLAIN] };
    for (size_t i = 0; i < 2; i++) {
        struct op_attention a = { .q = f(S4(1, 3, 2, 4)), .k = f(S4(1, 5, 2, 4)) };
        a.v = f(a.k.shape), a.y = f(a.q.shape);
        struct op_attention dry = a;
        dry.q.data = dry.k.data = dry.v.data = dry.y.data = NULL;
        struct op_env e = { .backend = all[i] };
        size_t need = op_attention_scratch(&e, &dry);
        berth_err err = { 0 };
        assert_true(need > 0 && need < sizeof scratch);
        assert_int_equal(need, op_attention_scratch(&e, &a));
        assert_fails(op_attention(&e, &a, &err), err, BERTH_EINVAL,
                     "bytes of scratch, there are 0");
        e.scratch = scratch, e.scratch_bytes = need - 1;
        assert_fails(op_attention(&e, &a, &err), err, BERTH_EINVAL, "bytes of scratch, there are");
        e.scratch = scratch + OP_SCRATCH_ALIGN / 2, e.scratch_bytes = need;
        assert_fails(op_attention(&e, &a, &err), err, BERTH_EINVAL, "not aligned");
        e.scratch = scratch;
        assert_ok(op_attention(&e, &a, &err), err);
        dry.k.shape.dim[3] = 3; /* refused: nothing is needed */
        assert_int_equal(op_attention_scratch(&e, &dry), 0);
        used = 0;
    }
}

/* A backend that wants something beside memory of the caller's, and may not get it. */
static berth_status no_room; /* what it says */
static unsigned asked, asked_of_shape;

static berth_status wants(const struct op_env *e, berth_err *err)
{
    assert_non_null(e->backend);
    asked++;
    return no_room ? err_set(err, no_room, "no room for modules") : BERTH_OK;
}

static berth_status wants_plan(const struct op_env *e, const struct op_unary *a, berth_err *err)
{
    (void)e, (void)a, (void)err;
    asked_of_shape++;
    return BERTH_OK;
}

static void making_ready(void **state)
{
    (void)state;
    struct op_backend b = { .name = "wanting", .unary = op_unary_def.reference };
    b.ready = wants, b.unary_ready = wants_plan;
    struct op_env e = { .backend = &b };
    struct op_unary a = { .kind = OP_SILU, .x = f(S2(2, 3)), .y = f(S2(2, 3)) };
    berth_err err = { 0 };
    a.x.data = a.y.data = NULL; /* not there yet */
    no_room = BERTH_ENODEVMEM;
    assert_fails(op_unary_ready(&e, &a, &err), err, BERTH_ENODEVMEM, "no room for modules");
    assert_true(asked == 1 && asked_of_shape == 0);
    no_room = BERTH_OK;
    assert_ok(op_unary_ready(&e, &a, &err), err);
    assert_true(asked == 2 && asked_of_shape == 1);
    struct op_unary none = a; /* nothing to compute: nothing is wanted */
    none.x.shape.dim[0] = none.y.shape.dim[0] = 0;
    assert_ok(op_unary_ready(&e, &none, &err), err);
    a.y.shape.dim[1] = 2;
    assert_fails(op_unary_ready(&e, &a, &err), err, BERTH_EINVAL, "unary");
    struct op_geglu g = { .x = f(S2(2, 4)), .y = f(S2(2, 2)) }; /* the reference's: as it is */
    assert_ok(op_geglu_ready(&e, &g, &err), err);
    g.x = of(DT_BF16, S2(2, 4)), g.y = of(DT_BF16, S2(2, 2));
    assert_fails(op_geglu_ready(&e, &g, &err), err, BERTH_EUNSUPPORTED, "BF16");
    assert_true(asked == 2 && asked_of_shape == 1);
    used = 0;
}

static void cancelling(void **state)
{
    (void)state;
    atomic_bool stop = true;
    struct op_env e = env;
    e.cancel = &stop;
    struct op_linear a = { .x = f(S2(3, 4)), .w = f(S2(5, 4)), .y = f(S2(3, 5)) };
    berth_err err = { 0 };
    assert_fails(op_linear(&e, &a, &err), err, BERTH_ECANCELED, "linear");
    used = 0;
}

static void backends_follow_the_hardware(void **state)
{
    (void)state;
    struct devset *set = open_devices("cpu=64m,cuda:0@cpu=64m,null:0=64m", NULL);
    const struct op_backend *cpu = op_backend_for(device_named(set, "cpu"));
    assert_non_null(cpu);
    assert_string_equal(cpu->name, "cpu");
    assert_ptr_equal(op_backend_for(device_named(set, "cuda:0")), cpu);
    assert_null(op_backend_for(device_named(set, "null:0"))); /* nor host-visible: cannot compute */
    devset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scratch_that_does_not_fit_is_too_much),
        cmocka_unit_test(a_call_is_checked_once),
        cmocka_unit_test(thrifty_wants_no_more),
        cmocka_unit_test(strides_and_rows),
        cmocka_unit_test(products),
        cmocka_unit_test(quants_of_pixels),
        cmocka_unit_test(attention),
        cmocka_unit_test(norms_and_functions),
        cmocka_unit_test(modulation),
        cmocka_unit_test(rotation),
        cmocka_unit_test(types),
        cmocka_unit_test(no_reference_behind_a_stream),
        cmocka_unit_test(moving),
        cmocka_unit_test(empty_results),
        cmocka_unit_test(scratch_is_checked),
        cmocka_unit_test(making_ready),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(backends_follow_the_hardware),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
