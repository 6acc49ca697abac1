/* ops_ref_move.c: looking up and moving, reference. */
#include "op/ops_impl.h"
#include "op/resize_impl.h"

#include <math.h>
#include <string.h>

berth_status ref_embedding(const struct op_env *env, const struct op_embedding *a, berth_err *err)
{
    (void)env;
    const struct dtype_desc *t = dtype_desc(a->table.dtype);
    size_t D = op_row(&a->y), rows = (size_t)a->table.shape.dim[0], bytes = D / t->elems * t->bytes;
    const int32_t *id = a->ids.data;
    for (size_t i = 0; i < (size_t)a->ids.shape.dim[0]; i++) {
        if (id[i] < 0 || (size_t)id[i] >= rows)
            return err_set(err, BERTH_EINVAL, "embedding: id %d at %zu, the table has %zu rows",
                           (int)id[i], i, rows);
        const char *row = (const char *)a->table.data + (size_t)id[i] * bytes;
        t->to_f32(row, op_f32(&a->y) + i * D, D);
    }
    return BERTH_OK;
}

/* Frequencies and angles are rounded to float where torch rounds them: an angle of 1000 moves by
 * 6e-5 with the last bit of its frequency. */
berth_status ref_timestep(const struct op_env *env, const struct op_timestep *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = (size_t)a->y.shape.dim[0], dim = (size_t)a->y.shape.dim[1], half = dim / 2;
    float log_period = (float)-log(a->period == 0 ? 10000.0 : (double)a->period);
    for (size_t i = 0; i < n; i++) {
        float t = op_f32(&a->t)[i], *y = op_f32(&a->y) + i * dim;
        for (size_t k = 0; k < half; k++) {
            float power = log_period * (float)k / (float)half;
            float angle = t * (float)exp((double)power);
            y[a->sin_first ? half + k : k] = (float)cos((double)angle);
            y[a->sin_first ? k : half + k] = (float)sin((double)angle);
        }
        if (dim % 2)
            y[dim - 1] = 0;
    }
    return BERTH_OK;
}

/* torch's "nearest": the position in float, rounded down. */
static size_t nearest(size_t i, size_t in, size_t out)
{
    size_t at = (size_t)floorf((float)i * ((float)in / (float)out));
    return at < in ? at : in - 1;
}

void ref_resize2d_rows(const struct op_resize2d *a, size_t from, size_t to)
{
    size_t h = (size_t)a->x.shape.dim[2], w = (size_t)a->x.shape.dim[3];
    size_t oh = (size_t)a->y.shape.dim[2], ow = (size_t)a->y.shape.dim[3];
    for (size_t r = from; r < to; r++) {
        const float *x = op_f32(&a->x) + r / oh * h * w;
        float *y = op_f32(&a->y) + r * ow;
        if (a->kind == OP_NEAREST) {
            x += nearest(r % oh, h, oh) * w;
            for (size_t j = 0; j < ow; j++)
                y[j] = x[nearest(j, w, ow)];
            continue;
        }
        const struct resize_axis down = resize_axis(h, oh), across = resize_axis(w, ow);
        struct resize_pair v = resize_pair_at(&down, r % oh);
        const float *row[2] = { x + v.i0 * w, x + v.i1 * w };
        for (size_t j = 0; j < ow; j++) {
            struct resize_pair u = resize_pair_at(&across, j);
            float upper = u.w0 * row[0][u.i0] + u.w1 * row[0][u.i1];
            float lower = u.w0 * row[1][u.i0] + u.w1 * row[1][u.i1];
            y[j] = v.w0 * upper + v.w1 * lower;
        }
    }
}

berth_status ref_resize2d(const struct op_env *env, const struct op_resize2d *a, berth_err *err)
{
    (void)env, (void)err;
    ref_resize2d_rows(a, 0, op_count_of(&a->y, 0, 3));
    return BERTH_OK;
}

/* x's elements into y under the same shape, any strides. */
static void copy_strided(const struct view *x, const struct view *y)
{
    int nd = x->shape.ndim;
    size_t row = op_row(x), rows = op_count(x) / row;
    size_t sx = nd ? x->stride[nd - 1] : 0, sy = nd ? y->stride[nd - 1] : 0;
    for (size_t r = 0; r < rows; r++) {
        const char *from = x->data;
        char *to = y->data;
        size_t rest = r;
        for (int d = nd - 2; d >= 0; d--) {
            size_t n = (size_t)x->shape.dim[d];
            from += rest % n * x->stride[d];
            to += rest % n * y->stride[d];
            rest /= n;
        }
        for (size_t i = 0; i < row; i++)
            memcpy(to + i * sy, from + i * sx, sizeof(float));
    }
}

berth_status ref_copy(const struct op_env *env, const struct op_copy *a, berth_err *err)
{
    (void)env;
    if (a->x.dtype != DT_F32) { /* without gaps on either side */
        dtype_desc(a->x.dtype)->to_f32(a->x.data, op_f32(&a->y), op_count(&a->y));
        return BERTH_OK;
    }
    struct view y = a->y;
    if (!shape_eq(&a->x.shape, &y.shape) && /* y has no gaps then */
        view_init(DT_F32, &a->x.shape, y.data, view_span(&y), &y, err))
        return err_add(err, "copy");
    copy_strided(&a->x, &y);
    return BERTH_OK;
}

berth_status ref_concat(const struct op_env *env, const struct op_concat *a, berth_err *err)
{
    (void)env;
    uint64_t at = 0;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t n = a->x[i].shape.dim[a->axis];
        struct view part;
        if (view_slice(&a->y, a->axis, at, at + n, &part, err))
            return err_add(err, "concat");
        if (op_count(&part))
            copy_strided(&a->x[i], &part);
        at += n;
    }
    return BERTH_OK;
}

void ref_pad2d_rows(const struct op_pad2d *a, size_t from, size_t to)
{
    int nd = a->x.shape.ndim;
    size_t h = (size_t)a->x.shape.dim[nd - 2], w = (size_t)a->x.shape.dim[nd - 1];
    size_t oh = (size_t)a->y.shape.dim[nd - 2], ow = (size_t)a->y.shape.dim[nd - 1];
    for (size_t r = from; r < to; r++) {
        const float *plane = op_f32(&a->x) + r / oh * h * w;
        float *y = op_f32(&a->y) + r * ow;
        size_t i = r % oh;
        for (size_t j = 0; j < ow; j++) {
            bool inside = i >= a->top && i - a->top < h && j >= a->left && j - a->left < w;
            if (inside)
                y[j] = plane[(i - a->top) * w + (j - a->left)];
            else if (a->circular) /* so many turns that nothing goes below 0 */
                y[j] = plane[(i + (a->top + h - 1) / h * h - a->top) % h * w +
                             (j + (a->left + w - 1) / w * w - a->left) % w];
            else
                y[j] = 0;
        }
    }
}

berth_status ref_pad2d(const struct op_env *env, const struct op_pad2d *a, berth_err *err)
{
    (void)env, (void)err;
    ref_pad2d_rows(a, 0, op_count(&a->y) / op_row(&a->y));
    return BERTH_OK;
}
