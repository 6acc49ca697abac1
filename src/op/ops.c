/* ops.c: what every op asks of its arguments, and the way to the kernel that computes it. */
#include "op/ops_impl.h"

#include "base/sz.h"
#include "device/device.h"

#include <string.h>

/* ---- backends ---- */

#define BACKEND(x) extern const struct op_backend op_##x;
#include "op/backends.def"
#undef BACKEND

static const struct op_backend *const backends[] = {
#define BACKEND(x) &op_##x,
#include "op/backends.def"
#undef BACKEND
};

const struct op_backend *op_backend_for(const struct device *d)
{
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strcmp(backends[i]->name, d->phys->driver->name) == 0)
            return backends[i];
    return NULL;
}

uint64_t op_acts(const struct device *d)
{
    const struct op_backend *b = op_backend_for(d);
    return !b ? 0 : b->acts_of ? b->acts_of(d) & b->acts : b->acts;
}

bool op_library(const struct device *d, unsigned i, berth_err *why)
{
    const struct op_backend *b = op_backend_for(d);
    *why = (berth_err) { 0 };
    return b && b->library && b->library(i, why);
}

berth_status op_open(const struct op_env *env, berth_err *err)
{
    const struct op_backend *b = env->backend;
    return b && b->ready ? b->ready(env, err) : BERTH_OK;
}

/* ---- operands ---- */

size_t op_count_of(const struct view *v, int from, int to)
{
    size_t n = 1;
    for (int i = from; i < to; i++)
        n *= (size_t)v->shape.dim[i];
    return n;
}

size_t op_count(const struct view *v)
{
    return op_count_of(v, 0, v->shape.ndim);
}

bool op_rows(const struct view *v, size_t *rows, size_t *stride)
{
    bool first = true;
    *rows = 1;
    *stride = 0;
    for (int i = v->shape.ndim - 2; i >= 0; i--) { /* inner to outer */
        size_t n = (size_t)v->shape.dim[i];
        if (n == 1)
            continue;
        if (first)
            *stride = v->stride[i];
        else if (v->stride[i] != *stride * *rows)
            return false;
        first = false;
        *rows *= n;
    }
    return true;
}

/* Checks are sticky: the first that fails sets `s`, the rest say nothing. */
struct check {
    const char *op;
    berth_err *err;
    bool data; /* operands must have an address */
    berth_status s;
    /* what was found */
    const char *first; /* name of the first activation, NULL: none yet */
    enum dtype type;   /* of that one, and so of all */
    uint64_t params;   /* OP_TYPE() of biases and parameters */
    bool writes;       /* there is an element to compute */
};

#define FAIL(c, ...)                                                                               \
    do {                                                                                           \
        if (!(c)->s) {                                                                             \
            (c)->s = err_set((c)->err, BERTH_EINVAL, __VA_ARGS__);                                 \
            err_add((c)->err, "%s", (c)->op);                                                      \
        }                                                                                          \
    } while (0)

struct text { /* shapes of a message */
    char a[SHAPE_TEXT_MAX];
};
#define SHAPE(v) shape_text(&(v)->shape, (struct text) { { 0 } }.a)

static void present(struct check *c, const char *name, const struct view *v)
{
    uint64_t n;
    if (c->data && !v->data)
        FAIL(c, "%s has no memory", name);
    if (v->shape.ndim < 0 || v->shape.ndim > SHAPE_MAX_DIMS || !shape_count(&v->shape, &n))
        FAIL(c, "%s has an impossible shape", name);
    else if (n > SIZE_MAX / 8)
        FAIL(c, "%s %s is too large", name, SHAPE(v));
}

static bool of_three(enum dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16;
}

static void three(struct check *c, const char *name, const struct view *v)
{
    present(c, name, v);
    if (!of_three(v->dtype))
        FAIL(c, "%s is %s, not F32, F16 or BF16", name, dtype_name(v->dtype));
}

/* Activations are of one type. */
static void act(struct check *c, const char *name, const struct view *v)
{
    three(c, name, v);
    if (!c->first) {
        c->first = name;
        c->type = v->dtype;
    }
    if (v->dtype != c->type)
        FAIL(c, "%s is %s, but %s is %s", name, dtype_name(v->dtype), c->first,
             dtype_name(c->type));
}

/* What may be F32 beside activations of 16 bits: masks, modulation, sums. Activations come first. */
static void beside(struct check *c, const char *name, const struct view *v)
{
    present(c, name, v);
    if (v->dtype == DT_F32 || v->dtype == c->type)
        return;
    if (c->type == DT_F32)
        FAIL(c, "%s is %s, but %s is F32", name, dtype_name(v->dtype), c->first);
    else
        FAIL(c, "%s is %s, neither F32 nor %s as %s", name, dtype_name(v->dtype),
             dtype_name(c->type), c->first);
}

static void f32(struct check *c, const char *name, const struct view *v)
{
    present(c, name, v);
    if (v->dtype != DT_F32)
        FAIL(c, "%s is %s, not F32", name, dtype_name(v->dtype));
}

/* Layouts, of operands whose type has been looked at. */
static void packed(struct check *c, const char *name, const struct view *v)
{
    if (!c->s && !view_contiguous(v))
        FAIL(c, "%s %s is not contiguous", name, SHAPE(v));
}

static void packed_rows(struct check *c, const char *name, const struct view *v)
{
    if (c->s || v->shape.ndim == 0)
        return;
    int last = v->shape.ndim - 1;
    if (v->shape.dim[last] > 1 && v->stride[last] != dtype_desc(v->dtype)->bytes)
        FAIL(c, "rows of %s %s are not contiguous", name, SHAPE(v));
}

/* Kernels count strides in elements. */
static void whole_strides(struct check *c, const char *name, const struct view *v)
{
    for (int i = 0; i < v->shape.ndim && !c->s; i++)
        if (v->shape.dim[i] > 1 && v->stride[i] % dtype_desc(v->dtype)->bytes)
            FAIL(c, "strides of %s %s are not whole elements", name, SHAPE(v));
}

/* Activations by their layout: without gaps, or only their rows. */
static void dense(struct check *c, const char *name, const struct view *v)
{
    act(c, name, v);
    packed(c, name, v);
}

static void row_dense(struct check *c, const char *name, const struct view *v)
{
    act(c, name, v);
    packed_rows(c, name, v);
}

/* Rows without gaps and evenly apart, none in another. */
static void evenly(struct check *c, const char *name, const struct view *v)
{
    size_t rows, stride;
    packed_rows(c, name, v);
    whole_strides(c, name, v);
    if (c->s)
        return;
    if (!op_rows(v, &rows, &stride))
        FAIL(c, "rows of %s %s are not evenly apart", name, SHAPE(v));
    else if (rows > 1 && stride < op_row(v) * dtype_desc(v->dtype)->bytes)
        FAIL(c, "rows of %s %s are only %zu bytes apart", name, SHAPE(v), stride);
}

static void even_rows(struct check *c, const char *name, const struct view *v)
{
    act(c, name, v);
    evenly(c, name, v);
}

/* A weight of any type that becomes F32; a unit of `unit` elements (a row, a filter) is packed. */
static void weight(struct check *c, const char *name, const struct view *v, uint64_t unit)
{
    present(c, name, v);
    if (c->s)
        return;
    if (v->dtype >= DT_COUNT || !dtype_desc(v->dtype)->to_f32) {
        FAIL(c, "%s is %s, which does not become F32", name, dtype_name(v->dtype));
        return;
    }
    const struct dtype_desc *t = dtype_desc(v->dtype);
    if (unit % t->elems)
        FAIL(c, "%s %s is %s, in blocks of %u", name, SHAPE(v), t->name, t->elems);
    /* A quant under another shape than its rows' (a 1x1 convolution) has no strides of its own: it
     * is packed. */
    else if (op_row(v) % t->elems == 0 && !view_contiguous(v))
        FAIL(c, "%s %s is not contiguous", name, SHAPE(v));
}

static void dims(struct check *c, const char *name, const struct view *v, int n)
{
    if (!c->s && v->shape.ndim != n)
        FAIL(c, "%s %s has %d dimensions, not %d", name, SHAPE(v), v->shape.ndim, n);
}

static void dims_at_least(struct check *c, const char *name, const struct view *v, int n)
{
    if (!c->s && v->shape.ndim < n)
        FAIL(c, "%s %s has fewer than %d dimensions", name, SHAPE(v), n);
}

static void same(struct check *c, const char *na, const struct view *a, const char *nb,
                 const struct view *b)
{
    if (!c->s && !shape_eq(&a->shape, &b->shape))
        FAIL(c, "%s %s and %s %s differ", na, SHAPE(a), nb, SHAPE(b));
}

/* v is [n]. */
static void vector(struct check *c, const char *name, const struct view *v, uint64_t n)
{
    packed(c, name, v);
    if (!c->s && (v->shape.ndim != 1 || v->shape.dim[0] != n))
        FAIL(c, "%s %s is not [%llu]", name, SHAPE(v), (unsigned long long)n);
}

/* A bias or the parameters of a norm: [n]. */
static void param(struct check *c, const char *name, const struct view *v, uint64_t n)
{
    three(c, name, v);
    if (!c->s)
        c->params |= OP_TYPE(v->dtype);
    vector(c, name, v, n);
}

/* [B, row of x], B being x's first dimension; any stride between the rows. pre: x was looked at. */
static void per_item(struct check *c, const char *name, const struct view *v, const struct view *x)
{
    beside(c, name, v);
    packed_rows(c, name, v);
    if (!c->s)
        whole_strides(c, name, v);
    if (!c->s && (x->shape.ndim < 2 || v->shape.ndim != 2 || v->shape.dim[0] != x->shape.dim[0] ||
                  v->shape.dim[1] != op_row(x)))
        FAIL(c, "%s %s is not the first and last dimension of x %s", name, SHAPE(v), SHAPE(x));
}

static void filled(struct check *c, const char *name, const struct view *v)
{
    if (!c->s && op_count(v) == 0)
        FAIL(c, "%s %s is empty", name, SHAPE(v));
}

/* Outputs and inputs apart; of two that are slices of one buffer only the caller knows. */
static void apart(struct check *c, const char *ny, const struct view *y, const char *nx,
                  const struct view *x)
{
    if (c->s || !c->data || !x->data || !view_contiguous(y) || !view_contiguous(x))
        return;
    const char *a = y->data, *b = x->data;
    if (a < b + view_span(x) && b < a + view_span(y))
        FAIL(c, "%s %s overlaps %s %s", ny, SHAPE(y), nx, SHAPE(x));
}

/* Either the very same memory, or none of it. */
static void same_or_apart(struct check *c, const char *ny, const struct view *y, const char *nx,
                          const struct view *x)
{
    if (y->data != x->data)
        apart(c, ny, y, nx, x);
}

/* What the op writes; every check ends with it. */
static void output(struct check *c, const struct view *y)
{
    c->writes = !c->s && (c->writes || op_count(y) > 0);
}

/* ---- the ops' own ---- */

static void check_linear(struct check *c, const struct op_linear *a)
{
    even_rows(c, "x", &a->x);
    beside(c, "y", &a->y);
    evenly(c, "y", &a->y);
    dims_at_least(c, "x", &a->x, 1);
    dims(c, "w", &a->w, 2);
    if (c->s)
        return;
    uint64_t k = op_row(&a->x), n = a->w.shape.dim[0];
    weight(c, "w", &a->w, k);
    if (a->w.shape.dim[1] != k)
        FAIL(c, "x %s does not fit w %s", SHAPE(&a->x), SHAPE(&a->w));
    struct shape want = a->x.shape;
    want.dim[want.ndim - 1] = n;
    if (!shape_eq(&want, &a->y.shape))
        FAIL(c, "y %s is not that of x %s and w %s", SHAPE(&a->y), SHAPE(&a->x), SHAPE(&a->w));
    if (op_has(&a->bias))
        param(c, "bias", &a->bias, n);
    if (op_has(&a->add)) {
        present(c, "add", &a->add);
        if (a->add.dtype != a->y.dtype)
            FAIL(c, "add is %s, but y is %s", dtype_name(a->add.dtype), dtype_name(a->y.dtype));
        evenly(c, "add", &a->add);
        same(c, "add", &a->add, "y", &a->y);
        same_or_apart(c, "y", &a->y, "add", &a->add);
    }
    if ((unsigned)a->after > OP_AFTER_GELU_TANH)
        FAIL(c, "there is no function %u", (unsigned)a->after);
    if (a->after != OP_AFTER_NONE && op_has(&a->add))
        FAIL(c, "a function and something to add are not for one call");
    filled(c, "w", &a->w);
    apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

static void check_matmul(struct check *c, const struct op_matmul *a)
{
    dense(c, "a", &a->a);
    dense(c, "b", &a->b);
    dense(c, "y", &a->y);
    dims(c, "a", &a->a, 3);
    dims(c, "b", &a->b, 3);
    dims(c, "y", &a->y, 3);
    if (c->s)
        return;
    const uint64_t *x = a->a.shape.dim, *b = a->b.shape.dim, *y = a->y.shape.dim;
    uint64_t k = a->b_transposed ? b[2] : b[1], n = a->b_transposed ? b[1] : b[2];
    if (x[0] != b[0] || x[2] != k)
        FAIL(c, "a %s does not fit b %s%s", SHAPE(&a->a), SHAPE(&a->b),
             a->b_transposed ? " transposed" : "");
    if (y[0] != x[0] || y[1] != x[1] || y[2] != n)
        FAIL(c, "y %s is not that of a %s and b %s", SHAPE(&a->y), SHAPE(&a->a), SHAPE(&a->b));
    if (k == 0)
        FAIL(c, "a %s sums over nothing", SHAPE(&a->a));
    apart(c, "y", &a->y, "a", &a->a);
    apart(c, "y", &a->y, "b", &a->b);
    output(c, &a->y);
}

uint64_t op_conv_side(uint64_t n, uint32_t before, uint32_t after, uint64_t k, uint32_t stride)
{
    uint64_t around = (uint64_t)before + after, padded;
    if (__builtin_add_overflow(n, around, &padded) || padded < k)
        return 0;
    return (padded - k) / stride + 1;
}

static void check_conv2d(struct check *c, const struct op_conv2d *a)
{
    dense(c, "x", &a->x);
    dense(c, "y", &a->y);
    dims(c, "x", &a->x, 4);
    dims(c, "w", &a->w, 4);
    dims(c, "y", &a->y, 4);
    if (c->s)
        return;
    const uint64_t *x = a->x.shape.dim, *w = a->w.shape.dim, *y = a->y.shape.dim;
    uint32_t stride = op_or_one(a->stride), groups = op_or_one(a->groups);
    present(c, "w", &a->w);
    filled(c, "w", &a->w);
    filled(c, "x", &a->x);
    if (c->s)
        return;
    weight(c, "w", &a->w, w[1] * w[2] * w[3]);
    if (x[1] % groups || w[0] % groups || x[1] / groups != w[1])
        FAIL(c, "x %s does not fit w %s in %u groups", SHAPE(&a->x), SHAPE(&a->w), groups);
    if (y[0] != x[0] || y[1] != w[0] ||
        y[2] != op_conv_side(x[2], a->top, a->bottom, w[2], stride) ||
        y[3] != op_conv_side(x[3], a->left, a->right, w[3], stride))
        FAIL(c, "y %s is not that of x %s and w %s, stride %u, padding %u %u %u %u", SHAPE(&a->y),
             SHAPE(&a->x), SHAPE(&a->w), stride, a->top, a->left, a->bottom, a->right);
    if (op_has(&a->bias))
        param(c, "bias", &a->bias, w[0]);
    if (op_has(&a->add)) {
        dense(c, "add", &a->add);
        same(c, "add", &a->add, "y", &a->y);
        same_or_apart(c, "y", &a->y, "add", &a->add);
    }
    apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

enum { HEAD_MOST = 1 << 16 };

static void check_attention(struct check *c, const struct op_attention *a)
{
    row_dense(c, "q", &a->q);
    row_dense(c, "k", &a->k);
    row_dense(c, "v", &a->v);
    row_dense(c, "y", &a->y);
    dims(c, "q", &a->q, 4);
    dims(c, "k", &a->k, 4);
    same(c, "k", &a->k, "v", &a->v);
    same(c, "q", &a->q, "y", &a->y);
    if (c->s)
        return;
    const uint64_t *q = a->q.shape.dim, *k = a->k.shape.dim;
    if (q[0] != k[0] || q[2] != k[2] || q[3] != k[3])
        FAIL(c, "q %s does not fit k %s", SHAPE(&a->q), SHAPE(&a->k));
    if (q[3] > HEAD_MOST) /* it sizes scratch */
        FAIL(c, "q %s: heads of up to %d", SHAPE(&a->q), HEAD_MOST);
    whole_strides(c, "q", &a->q);
    whole_strides(c, "k", &a->k);
    whole_strides(c, "v", &a->v);
    whole_strides(c, "y", &a->y);
    if (op_count(&a->q))
        filled(c, "k", &a->k);
    if (op_has(&a->mask)) {
        beside(c, "mask", &a->mask);
        packed_rows(c, "mask", &a->mask);
        if (!c->s)
            whole_strides(c, "mask", &a->mask);
        dims(c, "mask", &a->mask, 4);
        const uint64_t *m = a->mask.shape.dim;
        if (!c->s && ((m[0] != 1 && m[0] != q[0]) || (m[1] != 1 && m[1] != q[2]) || m[2] != q[1] ||
                      m[3] != k[1]))
            FAIL(c, "mask %s is not that of q %s and k %s", SHAPE(&a->mask), SHAPE(&a->q),
                 SHAPE(&a->k));
    }
    apart(c, "y", &a->y, "q", &a->q);
    apart(c, "y", &a->y, "k", &a->k);
    apart(c, "y", &a->y, "v", &a->v);
    output(c, &a->y);
}

/* What a norm reads: y's type or F32, in y's place only if it is as large. pre: y was looked at. */
static void norm_input(struct check *c, const struct view *x, const struct view *y)
{
    beside(c, "x", x);
    packed(c, "x", x);
    same(c, "x", x, "y", y);
    if (x->dtype == y->dtype)
        same_or_apart(c, "y", y, "x", x);
    else
        apart(c, "y", y, "x", x);
}

static void check_group_norm(struct check *c, const struct op_group_norm *a)
{
    dense(c, "y", &a->y);
    norm_input(c, &a->x, &a->y);
    dims_at_least(c, "x", &a->x, 2);
    if (c->s)
        return;
    uint64_t channels = a->x.shape.dim[1];
    param(c, "w", &a->w, channels);
    param(c, "b", &a->b, channels);
    if (a->groups == 0 || channels % a->groups)
        FAIL(c, "x %s has no %u equal groups of channels", SHAPE(&a->x), a->groups);
    output(c, &a->y);
}

static void check_row_norm(struct check *c, const struct op_row_norm *a)
{
    dense(c, "y", &a->y);
    norm_input(c, &a->x, &a->y);
    dims_at_least(c, "x", &a->x, 1);
    if (c->s)
        return;
    if (op_has(&a->w))
        param(c, "w", &a->w, op_row(&a->x));
    if (op_has(&a->b))
        param(c, "b", &a->b, op_row(&a->x));
    if (op_has(&a->scale) != op_has(&a->shift))
        FAIL(c, "scale and shift come together");
    if (op_has(&a->scale) && (op_has(&a->w) || op_has(&a->b)))
        FAIL(c, "scale and shift are not for one call with w or b");
    if (op_has(&a->scale)) {
        per_item(c, "scale", &a->scale, &a->x);
        per_item(c, "shift", &a->shift, &a->x);
        apart(c, "y", &a->y, "scale", &a->scale);
        apart(c, "y", &a->y, "shift", &a->shift);
    }
    output(c, &a->y);
}

static void check_qk_rope(struct check *c, const struct op_qk_rope *a)
{
    row_dense(c, "q", &a->q);
    row_dense(c, "k", &a->k);
    dims(c, "q", &a->q, 4);
    same(c, "q", &a->q, "k", &a->k);
    if (c->s)
        return;
    whole_strides(c, "q", &a->q);
    whole_strides(c, "k", &a->k);
    const uint64_t *q = a->q.shape.dim;
    if (q[3] % 2 || q[3] > HEAD_MOST)
        FAIL(c, "q %s: heads of an even size up to %d", SHAPE(&a->q), HEAD_MOST);
    if (op_has(&a->wq) != op_has(&a->wk))
        FAIL(c, "wq and wk come together");
    if (op_has(&a->wq)) {
        param(c, "wq", &a->wq, q[3]);
        param(c, "wk", &a->wk, q[3]);
    }
    f32(c, "table", &a->table);
    packed(c, "table", &a->table);
    dims(c, "table", &a->table, 3);
    const uint64_t *t = a->table.shape.dim;
    if (!c->s && (t[0] != q[1] || t[1] != q[3] / 2 || t[2] != 2))
        FAIL(c, "table %s is not that of q %s", SHAPE(&a->table), SHAPE(&a->q));
    apart(c, "q", &a->q, "k", &a->k);
    output(c, &a->q);
}

static void check_gate(struct check *c, const struct op_gate *a)
{
    even_rows(c, "x", &a->x);
    even_rows(c, "z", &a->z);
    even_rows(c, "y", &a->y);
    dims_at_least(c, "x", &a->x, 2);
    same(c, "x", &a->x, "z", &a->z);
    same(c, "x", &a->x, "y", &a->y);
    per_item(c, "gate", &a->gate, &a->x);
    same_or_apart(c, "y", &a->y, "x", &a->x);
    apart(c, "y", &a->y, "z", &a->z);
    apart(c, "y", &a->y, "gate", &a->gate);
    output(c, &a->y);
}

static void check_unary(struct check *c, const struct op_unary *a)
{
    dense(c, "x", &a->x);
    dense(c, "y", &a->y);
    same(c, "x", &a->x, "y", &a->y);
    if ((unsigned)a->kind >= OP_UNARY_COUNT)
        FAIL(c, "there is no kind %u", (unsigned)a->kind);
    same_or_apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

static void check_binary(struct check *c, const struct op_binary *a)
{
    dense(c, "b", &a->b);
    beside(c, "a", &a->a);
    packed(c, "a", &a->a);
    beside(c, "y", &a->y);
    packed(c, "y", &a->y);
    if (a->y.dtype != DT_F32 && a->a.dtype != a->y.dtype)
        FAIL(c, "y is %s, but a is F32", dtype_name(a->y.dtype));
    same(c, "a", &a->a, "y", &a->y);
    dims(c, "b", &a->b, a->a.shape.ndim);
    if (c->s)
        return;
    for (int i = 0; i < a->b.shape.ndim; i++)
        if (a->b.shape.dim[i] != 1 && a->b.shape.dim[i] != a->a.shape.dim[i])
            FAIL(c, "b %s does not spread over a %s", SHAPE(&a->b), SHAPE(&a->a));
    if ((unsigned)a->kind > OP_MUL)
        FAIL(c, "there is no kind %u", (unsigned)a->kind);
    if (a->a.dtype == a->y.dtype)
        same_or_apart(c, "y", &a->y, "a", &a->a);
    else
        apart(c, "y", &a->y, "a", &a->a);
    if (shape_eq(&a->a.shape, &a->b.shape) && a->b.dtype == a->y.dtype)
        same_or_apart(c, "y", &a->y, "b", &a->b);
    else /* elements of b are read again and again, or lie elsewhere */
        apart(c, "y", &a->y, "b", &a->b);
    output(c, &a->y);
}

static void check_geglu(struct check *c, const struct op_geglu *a)
{
    dense(c, "x", &a->x);
    dense(c, "y", &a->y);
    dims_at_least(c, "x", &a->x, 1);
    if (c->s)
        return;
    struct shape want = a->x.shape;
    uint64_t *row = &want.dim[want.ndim - 1];
    if (*row % 2)
        FAIL(c, "x %s has no halves", SHAPE(&a->x));
    *row /= 2;
    if (!shape_eq(&want, &a->y.shape))
        FAIL(c, "y %s is not half of x %s", SHAPE(&a->y), SHAPE(&a->x));
    apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

static void check_embedding(struct check *c, const struct op_embedding *a)
{
    dense(c, "y", &a->y);
    present(c, "ids", &a->ids);
    dims(c, "table", &a->table, 2);
    dims(c, "ids", &a->ids, 1);
    dims(c, "y", &a->y, 2);
    if (c->s)
        return;
    if (a->ids.dtype != DT_I32 || !view_contiguous(&a->ids))
        FAIL(c, "ids %s is %s, not I32 without gaps", SHAPE(&a->ids), dtype_name(a->ids.dtype));
    weight(c, "table", &a->table, a->table.shape.dim[1]);
    if (a->y.shape.dim[0] != a->ids.shape.dim[0] || a->y.shape.dim[1] != a->table.shape.dim[1])
        FAIL(c, "y %s is not that of ids %s and table %s", SHAPE(&a->y), SHAPE(&a->ids),
             SHAPE(&a->table));
    apart(c, "y", &a->y, "ids", &a->ids);
    apart(c, "y", &a->y, "table", &a->table);
    output(c, &a->y);
}

static void check_timestep(struct check *c, const struct op_timestep *a)
{
    dense(c, "y", &a->y);
    dims(c, "y", &a->y, 2);
    f32(c, "t", &a->t);
    if (!c->s)
        vector(c, "t", &a->t, a->y.shape.dim[0]);
    if (!(a->period >= 0))
        FAIL(c, "a period of %g", (double)a->period);
    apart(c, "y", &a->y, "t", &a->t);
    output(c, &a->y);
}

static void check_resize2d(struct check *c, const struct op_resize2d *a)
{
    dense(c, "x", &a->x);
    dense(c, "y", &a->y);
    dims(c, "x", &a->x, 4);
    dims(c, "y", &a->y, 4);
    if (c->s)
        return;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    if (x[0] != y[0] || x[1] != y[1])
        FAIL(c, "x %s and y %s are not as many planes", SHAPE(&a->x), SHAPE(&a->y));
    if (op_count(&a->y))
        filled(c, "x", &a->x);
    for (int i = 2; i < 4; i++) /* coordinates are floats, as in the reference */
        if (x[i] > 1 << 22 || y[i] > 1 << 22)
            FAIL(c, "x %s to y %s: sides up to %d", SHAPE(&a->x), SHAPE(&a->y), 1 << 22);
    if ((unsigned)a->kind > OP_BILINEAR)
        FAIL(c, "there is no kind %u", (unsigned)a->kind);
    apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

static void check_concat(struct check *c, const struct op_concat *a)
{
    act(c, "y", &a->y);
    if (!c->s)
        whole_strides(c, "y", &a->y);
    if (a->n == 0 || a->axis < 0 || a->axis >= a->y.shape.ndim)
        FAIL(c, "%zu operands along axis %d of y %s", a->n, a->axis, SHAPE(&a->y));
    uint64_t sum = 0;
    for (size_t i = 0; i < a->n && !c->s; i++) {
        act(c, "x", &a->x[i]);
        if (!c->s)
            whole_strides(c, "x", &a->x[i]);
        dims(c, "x", &a->x[i], a->y.shape.ndim);
        if (c->s)
            return;
        struct shape rest = a->x[i].shape;
        sum += rest.dim[a->axis];
        rest.dim[a->axis] = a->y.shape.dim[a->axis];
        if (!shape_eq(&rest, &a->y.shape))
            FAIL(c, "x[%zu] %s does not fit y %s", i, SHAPE(&a->x[i]), SHAPE(&a->y));
        apart(c, "y", &a->y, "x", &a->x[i]);
    }
    if (!c->s && sum != a->y.shape.dim[a->axis])
        FAIL(c, "operands have %llu of y %s along axis %d", (unsigned long long)sum, SHAPE(&a->y),
             a->axis);
    output(c, &a->y);
}

static void check_pad2d(struct check *c, const struct op_pad2d *a)
{
    dense(c, "x", &a->x);
    dense(c, "y", &a->y);
    dims_at_least(c, "x", &a->x, 2);
    dims(c, "y", &a->y, a->x.shape.ndim);
    if (c->s)
        return;
    int n = a->x.shape.ndim;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    for (int i = 0; i < n - 2; i++)
        if (x[i] != y[i])
            FAIL(c, "x %s does not fit y %s", SHAPE(&a->x), SHAPE(&a->y));
    if (y[n - 2] < a->top || y[n - 2] - a->top < x[n - 2] || y[n - 1] < a->left ||
        y[n - 1] - a->left < x[n - 1])
        FAIL(c, "x %s with %u above and %u to the left does not fit y %s", SHAPE(&a->x), a->top,
             a->left, SHAPE(&a->y));
    if (a->circular && op_count(&a->y))
        filled(c, "x", &a->x);
    apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

static void check_copy(struct check *c, const struct op_copy *a)
{
    act(c, "y", &a->y);
    present(c, "x", &a->x);
    if (c->s)
        return;
    bool plain = a->x.dtype == a->y.dtype;
    whole_strides(c, "y", &a->y);
    if (plain)
        whole_strides(c, "x", &a->x);
    else
        weight(c, "x", &a->x, op_row(&a->x));
    if (!shape_eq(&a->x.shape, &a->y.shape) &&
        (!view_contiguous(&a->y) || op_count(&a->x) != op_count(&a->y)))
        FAIL(c, "x %s does not fit y %s", SHAPE(&a->x), SHAPE(&a->y));
    if (!plain && !c->s && (!view_contiguous(&a->x) || !view_contiguous(&a->y)))
        FAIL(c, "x %s of %s or y %s of %s has gaps", SHAPE(&a->x), dtype_name(a->x.dtype),
             SHAPE(&a->y), dtype_name(a->y.dtype));
    apart(c, "y", &a->y, "x", &a->x);
    output(c, &a->y);
}

/* ---- the doors ---- */

static berth_status enough(const struct op_env *env, const char *op, size_t need, berth_err *err)
{
    if (need > (env->scratch ? env->scratch_bytes : 0))
        return err_set(err, BERTH_EINVAL, "%s: needs %zu bytes of scratch, there are %zu", op, need,
                       env->scratch ? env->scratch_bytes : 0);
    if (need && (uintptr_t)env->scratch % OP_SCRATCH_ALIGN)
        return err_set(err, BERTH_EINVAL, "%s: scratch is not aligned to %d bytes", op,
                       OP_SCRATCH_ALIGN);
    return BERTH_OK;
}

/* Whether backend b has kernels for the types of a call that was checked. `own`: it is the one that
 * was asked for, not the reference in its place. */
static berth_status able(const struct check *c, const struct op_env *env,
                         const struct op_backend *b, bool own, berth_err *err)
{
    if (!own && env->stream) /* the reference would follow addresses of a card */
        return err_set(err, BERTH_EUNSUPPORTED, "%s: %s has no kernel for it", c->op,
                       env->backend ? env->backend->name : "no backend");
    if (c->first && c->type != DT_F32 && !(b->acts & OP_TYPE(c->type)))
        return err_set(err, BERTH_EUNSUPPORTED, "%s: %s is %s, the activations of %s are F32",
                       c->op, c->first, dtype_name(c->type), b->name);
    uint64_t other = c->params & ~(b->params | OP_TYPE(DT_F32));
    for (unsigned t = 0; t < DT_COUNT; t++)
        if (other & OP_TYPE(t))
            return err_set(err, BERTH_EUNSUPPORTED, "%s: a parameter is %s, those of %s are F32",
                           c->op, dtype_name((enum dtype)t), b->name);
    return BERTH_OK;
}

/* A backend without a kernel of its own takes the reference's, and that one's scratch. Nothing to
 * write: nothing to do. */
#define OP(x)                                                                                      \
    berth_status op_##x##_check(const struct op_##x *a, berth_err *err)                            \
    {                                                                                              \
        struct check c = { .op = #x, .err = err };                                                 \
        check_##x(&c, a);                                                                          \
        return c.s;                                                                                \
    }                                                                                              \
    berth_status op_##x##_ready(const struct op_env *env, const struct op_##x *a, berth_err *err)  \
    {                                                                                              \
        struct check c = { .op = #x, .err = err };                                                 \
        check_##x(&c, a);                                                                          \
        bool own = env->backend && env->backend->x;                                                \
        const struct op_backend *b = own ? env->backend : &op_ref;                                 \
        if (c.s || able(&c, env, b, own, err))                                                     \
            return err->code;                                                                      \
        if (!c.writes)                                                                             \
            return BERTH_OK;                                                                       \
        if (b->ready && b->ready(env, err))                                                        \
            return err->code;                                                                      \
        return b->x##_ready ? b->x##_ready(env, a, err) : BERTH_OK;                                \
    }                                                                                              \
    size_t op_##x##_scratch(const struct op_env *env, const struct op_##x *a)                      \
    {                                                                                              \
        berth_err err;                                                                             \
        struct check c = { .op = #x, .err = &err };                                                \
        check_##x(&c, a);                                                                          \
        bool own = env->backend && env->backend->x;                                                \
        const struct op_backend *b = own ? env->backend : &op_ref;                                 \
        if (c.s || !c.writes || !b->x##_scratch || able(&c, env, b, own, &err))                    \
            return 0;                                                                              \
        return b->x##_scratch(env, a);                                                             \
    }                                                                                              \
    berth_status op_##x(const struct op_env *env, const struct op_##x *a, berth_err *err)          \
    {                                                                                              \
        struct check c = { .op = #x, .err = err, .data = true };                                   \
        check_##x(&c, a);                                                                          \
        bool own = env->backend && env->backend->x;                                                \
        const struct op_backend *b = own ? env->backend : &op_ref;                                 \
        if (c.s || able(&c, env, b, own, err))                                                     \
            return err->code;                                                                      \
        if (!c.writes)                                                                             \
            return BERTH_OK;                                                                       \
        if (op_cancelled(env))                                                                     \
            return err_set(err, BERTH_ECANCELED, "%s: cancelled", #x);                             \
        if (enough(env, #x, b->x##_scratch ? b->x##_scratch(env, a) : 0, err))                     \
            return err->code;                                                                      \
        return b->x(env, a, err);                                                                  \
    }
#include "op/ops.def"
#undef OP
