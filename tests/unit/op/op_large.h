/* op_large: cases that only matter on a card: more rows than a grid has blocks in its second
 * dimension, sums in more pieces than one block adds up, tiles by the dozen, the widths of Flux.
 * The reference takes seconds for them, so host-visible devices go without unless BERTH_TEST_LARGE
 * says otherwise. */
#ifndef UNIT_OP_OP_LARGE_H
#define UNIT_OP_OP_LARGE_H

#include "unit/op/op_cases.h"

enum { LARGE = 100000 }; /* their numbers begin here */

static inline bool large_linear(struct bag *b, size_t i, union any *a)
{
    static const struct {
        uint64_t m, k, n;
        enum dtype t;
    } at[] = { { 300, 3072, 1000, DT_BF16 },
               { 1, 3072, 18432, DT_BF16 },
               { 1, 3072, 9216, DT_Q8_0 },
               { 70, 3072, 3080, DT_Q4_K },
               { 130, 4096, 520, DT_F8_E4M3 } };
    if (i >= sizeof at / sizeof *at)
        return false;
    a->linear = (struct op_linear) { .x = tensor(b, S2(at[i].m, at[i].k)),
                                     .w = tensor_of(b, at[i].t, S2(at[i].n, at[i].k)),
                                     .bias = param(b, S1(at[i].n)),
                                     .y = tensor(b, S2(at[i].m, at[i].n)),
                                     .after = i % 2 ? OP_AFTER_NONE : OP_AFTER_GELU_TANH };
    return true;
}

static inline bool large_conv2d(struct bag *b, size_t i, union any *a)
{
    static const uint64_t at[][5] = { /* channels in, out, height, width, filter */
                                      { 128, 128, 64, 64, 3 },
                                      { 320, 64, 32, 33, 3 },
                                      { 512, 96, 40, 40, 1 }
    };
    if (i >= sizeof at / sizeof *at)
        return false;
    const uint64_t *d = at[i];
    uint32_t pad = (uint32_t)d[4] / 2;
    a->conv2d = (struct op_conv2d) { .x = tensor(b, S4(1, d[0], d[2], d[3])),
                                     .w = tensor_of(b, DT_F16, S4(d[1], d[0], d[4], d[4])),
                                     .bias = param(b, S1(d[1])),
                                     .y = tensor(b, S4(1, d[1], d[2], d[3])),
                                     .top = pad,
                                     .left = pad,
                                     .bottom = pad,
                                     .right = pad };
    if (i == 1)
        a->conv2d.add = a->conv2d.y;
    return true;
}

static inline bool large_attention(struct bag *b, size_t i, union any *a)
{
    static const uint64_t at[][4] = { /* heads, queries, keys, D */
                                      { 4, 600, 600, 128 },
                                      { 1, 1030, 1030, 512 },
                                      { 24, 130, 130, 128 },
                                      { 8, 1024, 77, 40 }
    };
    if (i >= sizeof at / sizeof *at)
        return false;
    const uint64_t *d = at[i];
    a->attention = (struct op_attention) { .q = tensor(b, S4(1, d[1], d[0], d[3])),
                                           .k = tensor(b, S4(1, d[2], d[0], d[3])),
                                           .v = tensor(b, S4(1, d[2], d[0], d[3])),
                                           .y = tensor(b, S4(1, d[1], d[0], d[3])) };
    return true;
}

static inline bool large_group_norm(struct bag *b, size_t i, union any *a)
{
    static const struct shape at[] = { { 4, { 1, 2, 1100, 1001 } }, { 3, { 70000, 2, 3 } } };
    if (i >= sizeof at / sizeof *at)
        return false;
    a->group_norm = (struct op_group_norm) { .x = tensor(b, at[i]),
                                             .w = param(b, S1(2)),
                                             .b = param(b, S1(2)),
                                             .y = tensor(b, at[i]),
                                             .groups = 1,
                                             .eps = 1e-6f,
                                             .silu = i == 0 };
    return true;
}

static inline bool large_channel_norm(struct bag *b, size_t i, union any *a)
{
    static const struct shape at[] = { { 4, { 1, 2, 1100, 1001 } }, { 3, { 70000, 2, 3 } } };
    if (i >= sizeof at / sizeof *at)
        return false;
    a->channel_norm = (struct op_channel_norm) { .x = tensor(b, at[i]),
                                                 .w = param(b, S1(2)),
                                                 .y = tensor(b, at[i]),
                                                 .eps = 1e-12f,
                                                 .silu = i == 0 };
    return true;
}

static const struct shape large_rows[] = { { 3, { 1, 1536, 3072 } },
                                           { 3, { 2, 35000, 24 } },
                                           { 3, { 1, 70001, 9 } } };
enum { LARGE_ROWS = sizeof large_rows / sizeof *large_rows };

static inline bool large_row_norm(struct bag *b, size_t i, union any *a)
{
    if (i >= LARGE_ROWS)
        return false;
    struct shape s = large_rows[i], item = S2(s.dim[0], s.dim[2]);
    a->row_norm = (struct op_row_norm) { .x = tensor(b, s),
                                         .y = tensor(b, s),
                                         .scale = side(b, item),
                                         .shift = side(b, item),
                                         .eps = 1e-6f };
    return true;
}

static inline bool large_gate(struct bag *b, size_t i, union any *a)
{
    if (i >= LARGE_ROWS)
        return false;
    struct shape s = large_rows[i];
    struct view x = tensor(b, s);
    a->gate = (struct op_gate) {
        .x = x, .z = tensor(b, s), .y = x, .gate = side(b, S2(s.dim[0], s.dim[2]))
    };
    return true;
}

static inline bool large_qk_rope(struct bag *b, size_t i, union any *a)
{
    static const uint64_t at[][3] = { { 600, 24, 128 }, { 35001, 2, 8 } };
    if (i >= sizeof at / sizeof *at)
        return false;
    struct shape s = S4(1, at[i][0], at[i][1], at[i][2]);
    a->qk_rope = (struct op_qk_rope) { .q = tensor(b, s),
                                       .k = tensor(b, s),
                                       .wq = param(b, S1(s.dim[3])),
                                       .wk = param(b, S1(s.dim[3])),
                                       .table = tensor_of(b, DT_F32, S3(s.dim[1], s.dim[3] / 2, 2)),
                                       .eps = 1e-6f };
    return true;
}

static inline bool large_unary(struct bag *b, size_t i, union any *a)
{
    a->unary = (struct op_unary) { .kind = OP_SILU, .x = tensor(b, S2(3, 1000003)) };
    a->unary.y = tensor(b, a->unary.x.shape);
    return i == 0;
}

static inline bool large_geglu(struct bag *b, size_t i, union any *a)
{
    a->geglu = (struct op_geglu) { .x = tensor(b, S2(70001, 22)), .y = tensor(b, S2(70001, 11)) };
    return i == 0;
}

static inline bool large_binary(struct bag *b, size_t i, union any *a)
{
    a->binary = (struct op_binary) { .kind = OP_MUL,
                                     .a = tensor(b, S3(70001, 3, 7)),
                                     .b = tensor(b, S3(70001, 1, 7)),
                                     .y = tensor(b, S3(70001, 3, 7)) };
    return i == 0;
}

static inline bool large_copy(struct bag *b, size_t i, union any *a)
{
    static const struct shape at[] = { { 3, { 1, 70001, 17 } },
                                       { 3, { 70001, 3, 5 } },
                                       { 3, { 1, 1000, 2049 } } };
    berth_err err;
    if (i >= sizeof at / sizeof *at)
        return false;
    struct view x = tensor(b, at[i]);
    assert_ok(view_permute(&x, (int[]) { 0, 2, 1 }, &x, &err), err);
    a->copy = (struct op_copy) { .x = x, .y = tensor(b, x.shape) };
    return true;
}

static inline bool large_concat(struct bag *b, size_t i, union any *a)
{
    struct view *x = bag_get(b, 2 * sizeof *x, HELD_OTHER, DT_NONE);
    x[0] = tensor(b, S3(1, 70001, 5));
    x[1] = tensor(b, S3(1, 70001, 8));
    a->concat = (struct op_concat) { .x = x, .n = 2, .axis = 2, .y = tensor(b, S3(1, 70001, 13)) };
    return i == 0;
}

static inline bool large_resize2d(struct bag *b, size_t i, union any *a)
{
    a->resize2d = (struct op_resize2d) { .kind = OP_NEAREST,
                                         .x = tensor(b, S4(1, 35001, 3, 2)),
                                         .y = tensor(b, S4(1, 35001, 6, 4)) };
    return i == 0;
}

static inline bool large_pad2d(struct bag *b, size_t i, union any *a)
{
    a->pad2d = (struct op_pad2d) { .x = tensor(b, S4(1, 70001, 2, 2)),
                                   .y = tensor(b, S4(1, 70001, 3, 3)) };
    return i == 0;
}

static inline bool large_embedding(struct bag *b, size_t i, union any *a)
{
    static const enum dtype at[] = { DT_F16, DT_Q8_0, DT_Q4_K };
    if (i >= sizeof at / sizeof *at)
        return false;
    a->embedding = (struct op_embedding) { .table = tensor_of(b, at[i], S2(300, 4096)),
                                           .ids = tensor_of(b, DT_I32, S1(512)),
                                           .y = tensor(b, S2(512, 4096)) };
    for (size_t k = 0; k < 512; k++)
        ((int32_t *)a->embedding.ids.data)[k] = (int32_t)rng_below(&b->rng, 300);
    return true;
}

/* Of an op's maker, the one of its large cases. */
static const struct {
    bool (*of)(struct bag *b, size_t i, union any *a, double *tol);
    bool (*make)(struct bag *b, size_t i, union any *a);
} large[] = {
    { make_linear, large_linear },       { make_conv2d, large_conv2d },
    { make_attention, large_attention }, { make_group_norm, large_group_norm },
    { make_row_norm, large_row_norm },   { make_gate, large_gate },
    { make_qk_rope, large_qk_rope },     { make_unary, large_unary },
    { make_geglu, large_geglu },         { make_binary, large_binary },
    { make_copy, large_copy },           { make_concat, large_concat },
    { make_resize2d, large_resize2d },   { make_pad2d, large_pad2d },
    { make_embedding, large_embedding }, { make_channel_norm, large_channel_norm },
};

/* As rig_make(), of case LARGE + i. */
static inline bool rig_make_large(struct rig *r, const struct op_case *op, size_t i)
{
    *r = (struct rig) { .op = op, .i = LARGE + i, .bag.rng.state = i * 7919 + 1042 };
    for (size_t k = 0; k < sizeof large / sizeof *large; k++)
        if (large[k].of == op->make && large[k].make(&r->bag, i, &r->a)) {
            rig_keep(r);
            return true;
        }
    bag_empty(&r->bag);
    return false;
}

#endif
