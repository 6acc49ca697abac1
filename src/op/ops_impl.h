/* ops_impl: what ops and kernels share about operands. For this folder, its backends,
 * tests and benchmarks. */
#pragma once

#include "base/sz.h"
#include "op/ops.h"

/* Rows [from, to) of the result, counted over all planes: for backends that only spread them.
 * args: struct op_resize2d, struct op_pad2d. */
void ref_resize2d_rows(const void *args, size_t from, size_t to);
void ref_pad2d_rows(const void *args, size_t from, size_t to);

/* Rows [from, to) of y, on this thread. */
berth_status ref_decode_rows(const struct op_decode *a, size_t from, size_t to, berth_err *err);
/* What a->how says, with the addresses and columns of the operands. */
static inline struct coded coded_of(const struct op_decode *a)
{
    struct coded c = a->how;
    c.codes = a->codes.data;
    c.cols = a->codes.shape.ndim == 2 ? a->codes.shape.dim[1] : 0;
    c.rows = a->rows.data;
    c.blocks = a->blocks.data;
    return c;
}

static inline struct coded int_coded_of(const struct op_int_linear *a)
{
    return coded_of(&(struct op_decode) {
        .codes = a->codes, .rows = a->rows, .blocks = a->blocks, .how = a->how });
}
/* n values, turned first, as whole numbers of 8 bits; returns what one is worth. */
float ref_int_row(float *x, size_t n, uint32_t turn, int8_t *q);

/* y of a copy under x's shape; where they differ, y has no gaps. */
berth_status op_copy_target(const struct op_copy *a, struct view *y, berth_err *err);
/* Concatenation as copies of one operand after the other into its part of y. */
typedef berth_status op_copy_fn(const struct op_env *env, const struct op_copy *a, berth_err *err);
berth_status op_concat_by(const struct op_env *env, const struct op_concat *a, op_copy_fn *copy,
                          berth_err *err);

/* An optional operand that is there. Before there are addresses, its shape says so. */
static inline bool op_has(const struct view *v)
{
    return v->data || v->shape.ndim;
}

/* The last dimension; 1 of a scalar. */
static inline size_t op_row(const struct view *v)
{
    return v->shape.ndim ? (size_t)v->shape.dim[v->shape.ndim - 1] : 1;
}

/* Elements. pre: checked, so that the product fits. */
size_t op_count(const struct view *v);
/* Product of dimensions [from, to). */
size_t op_count_of(const struct view *v, int from, int to);

/* All dimensions but the last as one: how many rows, and bytes from one to the next. False: the
 * strides are not even. A single row has the stride 0. */
bool op_rows(const struct view *v, size_t *rows, size_t *stride);

/* Sizes of scratch: SIZE_MAX where the product does not fit. */
static inline size_t op_mul(size_t a, size_t b)
{
    size_t n;
    return sz_mul(a, b, &n) ? n : SIZE_MAX;
}

/* 0 means 1, as scales of several ops have it. */
static inline float op_scale(float s)
{
    return s == 0 ? 1 : s;
}

static inline uint32_t op_or_one(uint32_t n)
{
    return n ? n : 1;
}

/* Somebody wants the call to end. */
static inline bool op_cancelled(const struct op_env *env)
{
    return env->cancel && atomic_load_explicit(env->cancel, memory_order_relaxed);
}

/* pre: F32. */
static inline float *op_f32(const struct view *v)
{
    return (float *)v->data;
}

static inline float *op_bytes_on(const struct view *v, size_t bytes)
{
    return (float *)(void *)((char *)v->data + bytes);
}

/* v[i, 0] and v[b, t, h, 0]. */
static inline float *op_row_at(const struct view *v, size_t i)
{
    return op_bytes_on(v, i * v->stride[0]);
}

static inline float *op_head_at(const struct view *v, size_t b, size_t t, size_t h)
{
    return op_bytes_on(v, b * v->stride[0] + t * v->stride[1] + h * v->stride[2]);
}
