#include "tensor/tensor.h"

#include "base/sz.h"

#include <inttypes.h>

/* Steps along dimension i: its elements, or its blocks where the blocks of a quant lie. */
static uint64_t steps(const struct view *v, int i)
{
    return i == v->shape.ndim - 1 ? v->shape.dim[i] / dtype_desc(v->dtype)->elems : v->shape.dim[i];
}

static bool is_empty(const struct view *v)
{
    for (int i = 0; i < v->shape.ndim; i++)
        if (v->shape.dim[i] == 0)
            return true;
    return false;
}

/* Row-major strides, and the bytes the whole takes. */
static berth_status lay_out(struct view *v, size_t *bytes, berth_err *err)
{
    const struct shape *s = &v->shape;
    const struct dtype_desc *d = dtype_desc(v->dtype);
    char text[SHAPE_TEXT_MAX];
    uint64_t last = s->ndim ? s->dim[s->ndim - 1] : 1;
    if (last % d->elems)
        return err_set(err, BERTH_EINVAL, "%s %s: the last dimension is no multiple of %u", d->name,
                       shape_text(s, text), d->elems);
    size_t n = d->bytes;
    for (int i = s->ndim - 1; i >= 0; i--) {
        v->stride[i] = n;
        uint64_t count = steps(v, i);
        if (!sz_mul(n, count ? count : 1, &n)) /* strides must fit even when nothing is inside */
            return err_set(err, BERTH_EINVAL, "%s %s is too large", d->name, shape_text(s, text));
    }
    *bytes = is_empty(v) ? 0 : n;
    return BERTH_OK;
}

berth_status view_init(enum dtype t, const struct shape *s, void *data, size_t bytes,
                       struct view *out, berth_err *err)
{
    struct view v = { .dtype = t, .shape = *s, .data = data };
    size_t need = 0;
    if (lay_out(&v, &need, err))
        return err->code;
    if (need > bytes) {
        char text[SHAPE_TEXT_MAX];
        return err_set(err, BERTH_EINVAL, "%s %s needs %zu bytes, there are %zu", dtype_name(t),
                       shape_text(s, text), need, bytes);
    }
    *out = v;
    return BERTH_OK;
}

bool view_contiguous(const struct view *v)
{
    if (is_empty(v))
        return true;
    size_t want = dtype_desc(v->dtype)->bytes;
    for (int i = v->shape.ndim - 1; i >= 0; i--) {
        uint64_t n = steps(v, i);
        if (n != 1 && v->stride[i] != want)
            return false;
        want *= n; /* fits: it is the size of memory that exists */
    }
    return true;
}

size_t view_span(const struct view *v)
{
    if (is_empty(v))
        return 0;
    size_t n = dtype_desc(v->dtype)->bytes;
    for (int i = 0; i < v->shape.ndim; i++)
        n += v->stride[i] * (steps(v, i) - 1);
    return n;
}

berth_status view_permute(const struct view *v, const int *axis, struct view *out, berth_err *err)
{
    int ndim = v->shape.ndim;
    unsigned seen = 0;
    struct view p = *v;
    for (int i = 0; i < ndim; i++) {
        int a = axis[i];
        if (a < 0 || a >= ndim || seen & 1u << a)
            return err_set(err, BERTH_EINVAL, "permute: axis %d at place %d of %d", a, i, ndim);
        seen |= 1u << a;
        p.shape.dim[i] = v->shape.dim[a];
        p.stride[i] = v->stride[a];
    }
    if (ndim && dtype_is_quant(v->dtype) && axis[ndim - 1] != ndim - 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "permute: blocks of %s lie along the last dimension", dtype_name(v->dtype));
    *out = p;
    return BERTH_OK;
}

berth_status view_slice(const struct view *v, int axis, uint64_t begin, uint64_t end,
                        struct view *out, berth_err *err)
{
    int ndim = v->shape.ndim;
    if (axis < 0 || axis >= ndim)
        return err_set(err, BERTH_EINVAL, "slice: axis %d of %d", axis, ndim);
    if (begin > end || end > v->shape.dim[axis])
        return err_set(err, BERTH_EINVAL, "slice: [%" PRIu64 ", %" PRIu64 ") of %" PRIu64, begin,
                       end, v->shape.dim[axis]);
    uint64_t unit = axis == ndim - 1 ? dtype_desc(v->dtype)->elems : 1;
    if (begin % unit || end % unit)
        return err_set(err, BERTH_EINVAL,
                       "slice: [%" PRIu64 ", %" PRIu64 ") does not fall on blocks of %s", begin,
                       end, dtype_name(v->dtype));
    struct view s = *v;
    s.shape.dim[axis] = end - begin;
    if (!is_empty(&s)) /* an empty slice may begin behind the end: leave the address alone */
        s.data = (uint8_t *)v->data + begin / unit * v->stride[axis];
    *out = s;
    return BERTH_OK;
}
