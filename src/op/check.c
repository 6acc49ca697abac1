/* check.c: what ops ask of their operands. */
#include "op/op_def.h"

void want_operand(struct op_check *c, const char *name, const struct view *v)
{
    uint64_t n;
    if (c->data && !v->data)
        REFUSE(c, "%s has no memory", name);
    if (v->shape.ndim < 0 || v->shape.ndim > SHAPE_MAX_DIMS || !shape_count(&v->shape, &n))
        REFUSE(c, "%s has an impossible shape", name);
    else if (n > SIZE_MAX / 8)
        REFUSE(c, "%s %s is too large", name, SHAPE(v));
}

static bool of_three(enum dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16;
}

void want_float(struct op_check *c, const char *name, const struct view *v)
{
    want_operand(c, name, v);
    if (!of_three(v->dtype))
        REFUSE(c, "%s is %s, not F32, F16 or BF16", name, dtype_name(v->dtype));
}

void want_act(struct op_check *c, const char *name, const struct view *v)
{
    want_float(c, name, v);
    if (!c->first) {
        c->first = name;
        c->type = v->dtype;
    }
    if (v->dtype != c->type)
        REFUSE(c, "%s is %s, but %s is %s", name, dtype_name(v->dtype), c->first,
               dtype_name(c->type));
}

void want_act_or_f32(struct op_check *c, const char *name, const struct view *v)
{
    want_operand(c, name, v);
    if (v->dtype == DT_F32 || v->dtype == c->type)
        return;
    if (c->type == DT_F32)
        REFUSE(c, "%s is %s, but %s is F32", name, dtype_name(v->dtype), c->first);
    else
        REFUSE(c, "%s is %s, neither F32 nor %s as %s", name, dtype_name(v->dtype),
               dtype_name(c->type), c->first);
}

void want_f32(struct op_check *c, const char *name, const struct view *v)
{
    want_operand(c, name, v);
    if (v->dtype != DT_F32)
        REFUSE(c, "%s is %s, not F32", name, dtype_name(v->dtype));
}

void want_packed(struct op_check *c, const char *name, const struct view *v)
{
    if (!c->s && !view_contiguous(v))
        REFUSE(c, "%s %s is not contiguous", name, SHAPE(v));
}

void want_packed_rows(struct op_check *c, const char *name, const struct view *v)
{
    if (c->s || v->shape.ndim == 0)
        return;
    int last = v->shape.ndim - 1;
    if (v->shape.dim[last] > 1 && v->stride[last] != dtype_desc(v->dtype)->bytes)
        REFUSE(c, "rows of %s %s are not contiguous", name, SHAPE(v));
}

/* Kernels count strides in elements. */
void want_whole_strides(struct op_check *c, const char *name, const struct view *v)
{
    for (int i = 0; i < v->shape.ndim && !c->s; i++)
        if (v->shape.dim[i] > 1 && v->stride[i] % dtype_desc(v->dtype)->bytes)
            REFUSE(c, "strides of %s %s are not whole elements", name, SHAPE(v));
}

void want_dense(struct op_check *c, const char *name, const struct view *v)
{
    want_act(c, name, v);
    want_packed(c, name, v);
}

void want_heads(struct op_check *c, const char *name, const struct view *v)
{
    want_act(c, name, v);
    want_packed_rows(c, name, v);
    want_dims(c, name, v, 4);
    want_whole_strides(c, name, v);
}

void want_even_rows(struct op_check *c, const char *name, const struct view *v)
{
    size_t rows, stride;
    want_packed_rows(c, name, v);
    want_whole_strides(c, name, v);
    if (c->s)
        return;
    if (!op_rows(v, &rows, &stride))
        REFUSE(c, "rows of %s %s are not evenly apart", name, SHAPE(v));
    else if (rows > 1 && stride < op_row(v) * dtype_desc(v->dtype)->bytes)
        REFUSE(c, "rows of %s %s are only %zu bytes apart", name, SHAPE(v), stride);
}

void want_even_act(struct op_check *c, const char *name, const struct view *v)
{
    want_act(c, name, v);
    want_even_rows(c, name, v);
}

void want_weight(struct op_check *c, const char *name, const struct view *v, uint64_t unit)
{
    want_operand(c, name, v);
    if (c->s)
        return;
    if (v->dtype >= DT_COUNT || !dtype_desc(v->dtype)->to_f32) {
        REFUSE(c, "%s is %s, which does not become F32", name, dtype_name(v->dtype));
        return;
    }
    const struct dtype_desc *t = dtype_desc(v->dtype);
    if (unit % t->elems)
        REFUSE(c, "%s %s is %s, in blocks of %u", name, SHAPE(v), t->name, t->elems);
    /* A quant under another shape than its rows' (a 1x1 convolution) has no strides of its own: it
     * is packed. */
    else if (op_row(v) % t->elems == 0 && !view_contiguous(v))
        REFUSE(c, "%s %s is not contiguous", name, SHAPE(v));
}

void want_dims(struct op_check *c, const char *name, const struct view *v, int n)
{
    if (!c->s && v->shape.ndim != n)
        REFUSE(c, "%s %s has %d dimensions, not %d", name, SHAPE(v), v->shape.ndim, n);
}

void want_dims_at_least(struct op_check *c, const char *name, const struct view *v, int n)
{
    if (!c->s && v->shape.ndim < n)
        REFUSE(c, "%s %s has fewer than %d dimensions", name, SHAPE(v), n);
}

void want_same_shape(struct op_check *c, const char *na, const struct view *a, const char *nb,
                     const struct view *b)
{
    if (!c->s && !shape_eq(&a->shape, &b->shape))
        REFUSE(c, "%s %s and %s %s differ", na, SHAPE(a), nb, SHAPE(b));
}

void want_vector(struct op_check *c, const char *name, const struct view *v, uint64_t n)
{
    want_packed(c, name, v);
    if (!c->s && (v->shape.ndim != 1 || v->shape.dim[0] != n))
        REFUSE(c, "%s %s is not [%llu]", name, SHAPE(v), (unsigned long long)n);
}

void want_param(struct op_check *c, const char *name, const struct view *v, uint64_t n)
{
    want_float(c, name, v);
    if (!c->s)
        c->params |= OP_TYPE(v->dtype);
    want_vector(c, name, v, n);
}

void want_per_item(struct op_check *c, const char *name, const struct view *v, const struct view *x)
{
    want_act_or_f32(c, name, v);
    want_packed_rows(c, name, v);
    want_whole_strides(c, name, v);
    if (!c->s && (x->shape.ndim < 2 || v->shape.ndim != 2 || v->shape.dim[0] != x->shape.dim[0] ||
                  v->shape.dim[1] != op_row(x)))
        REFUSE(c, "%s %s is not the first and last dimension of x %s", name, SHAPE(v), SHAPE(x));
}

void want_filled(struct op_check *c, const char *name, const struct view *v)
{
    if (!c->s && op_count(v) == 0)
        REFUSE(c, "%s %s is empty", name, SHAPE(v));
}

void want_apart(struct op_check *c, const char *ny, const struct view *y, const char *nx,
                const struct view *x)
{
    if (c->s || !y->data || !x->data || !view_contiguous(y) || !view_contiguous(x))
        return;
    const char *a = y->data, *b = x->data;
    if (a < b + view_span(x) && b < a + view_span(y))
        REFUSE(c, "%s %s overlaps %s %s", ny, SHAPE(y), nx, SHAPE(x));
}

void want_same_or_apart(struct op_check *c, const char *ny, const struct view *y, const char *nx,
                        const struct view *x)
{
    if (y->data != x->data)
        want_apart(c, ny, y, nx, x);
}

void want_norm_input(struct op_check *c, const struct view *x, const struct view *y)
{
    want_act_or_f32(c, "x", x);
    want_packed(c, "x", x);
    want_same_shape(c, "x", x, "y", y);
    if (x->dtype == y->dtype)
        want_same_or_apart(c, "y", y, "x", x);
    else
        want_apart(c, "y", y, "x", x);
}
