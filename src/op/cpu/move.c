/* move.c: copies. Runs that are contiguous on both sides are copied as such; a dimension that is
 * contiguous in x and another one that is in y are transposed in tiles of TILE x TILE. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/transpose.h"
#include "op/ops_impl.h"

#include <string.h>

enum { TILE = 32 };

/* The same elements in two places, dimensions of 1 left out and neighbours joined where both
 * allow. */
struct plan {
    int ndim;
    size_t dim[SHAPE_MAX_DIMS], sx[SHAPE_MAX_DIMS], sy[SHAPE_MAX_DIMS]; /* strides in floats */
    const float *x;
    float *y;
    int across; /* transpose: the dimension that is contiguous in x; -1: none */
};

static void join(struct plan *p, const struct view *x, const struct view *y)
{
    for (int i = 0; i < x->shape.ndim; i++) {
        size_t n = (size_t)x->shape.dim[i];
        size_t sx = x->stride[i] / sizeof(float), sy = y->stride[i] / sizeof(float);
        if (n == 1)
            continue;
        int last = p->ndim - 1;
        if (last >= 0 && p->sx[last] == sx * n && p->sy[last] == sy * n) {
            p->dim[last] *= n;
            p->sx[last] = sx;
            p->sy[last] = sy;
            continue;
        }
        p->dim[p->ndim] = n;
        p->sx[p->ndim] = sx;
        p->sy[p->ndim++] = sy;
    }
    if (p->ndim == 0) {
        p->dim[0] = p->sx[0] = p->sy[0] = 1;
        p->ndim = 1;
    }
}

/* Where unit r begins. Dimensions of the run or the tile do not count, but for the band in the
 * band's. */
static void begin_of(const struct plan *p, size_t r, size_t *x, size_t *y, size_t *band)
{
    *x = *y = *band = 0;
    for (int d = p->ndim - 2; d >= 0; d--) {
        size_t n = p->dim[d], step = 1;
        if (d == p->across) {
            n = (n + TILE - 1) / TILE;
            step = TILE;
            *band = r % n * TILE;
        }
        *x += r % n * step * p->sx[d];
        *y += r % n * step * p->sy[d];
        r /= n;
    }
}

/* A band: up to TILE of the dimension that is contiguous in x, all of the last one. */
static void move_band(const struct plan *p, size_t x, size_t y, size_t band)
{
    int last = p->ndim - 1;
    size_t left = p->dim[p->across] - band, m = left < TILE ? left : TILE;
    for (size_t i = 0; i < p->dim[last]; i += TILE) {
        size_t n = p->dim[last] - i < TILE ? p->dim[last] - i : TILE;
        transpose(p->x + x + i * p->sx[last], p->sx[last], p->y + y + i, p->sy[p->across], n, m);
    }
}

/* Units [from, to): runs, or bands of TILE rows of a transpose. */
static void move_units(const void *user, size_t from, size_t to)
{
    const struct plan *p = user;
    int last = p->ndim - 1;
    for (size_t r = from; r < to; r++) {
        size_t x, y, band;
        begin_of(p, r, &x, &y, &band);
        if (p->across >= 0)
            move_band(p, x, y, band);
        else if (p->sx[last] == 1 && p->sy[last] == 1)
            memcpy(p->y + y, p->x + x, p->dim[last] * sizeof(float));
        else
            for (size_t k = 0; k < p->dim[last]; k++)
                p->y[y + k * p->sy[last]] = p->x[x + k * p->sx[last]];
    }
}

/* x's elements into y under the same shape. */
static void move(const struct op_env *env, const struct view *x, const struct view *y)
{
    struct plan p = { .x = x->data, .y = y->data, .across = -1 };
    size_t total = op_count(x);
    join(&p, x, y);
    int last = p.ndim - 1;
    if (p.sy[last] == 1 && p.sx[last] != 1)
        for (int d = 0; d < last; d++)
            if (p.sx[d] == 1)
                p.across = d;
    if (last == 0 && p.sx[0] == 1 && p.sy[0] == 1 && total > CPU_PIECE) { /* one long run */
        size_t whole = total / CPU_PIECE * CPU_PIECE;
        memcpy(p.y + whole, p.x + whole, (total - whole) * sizeof(float));
        p = (struct plan) { .ndim = 2, .x = p.x, .y = p.y, .across = -1 };
        p.dim[0] = whole / CPU_PIECE;
        p.dim[1] = p.sx[0] = p.sy[0] = CPU_PIECE;
        p.sx[1] = p.sy[1] = 1;
        last = 1;
    }
    size_t units = 1;
    for (int d = 0; d < last; d++)
        units *= d == p.across ? cpu_over(p.dim[d], TILE) : p.dim[d];
    cpu_ranges(env, units, cpu_over(total, units), move_units, &p);
}

struct widening {
    const struct dtype_desc *type;
    const char *x;
    float *y;
};

static void widen(const void *user, size_t from, size_t to)
{
    const struct widening *w = user;
    w->type->to_f32(w->x + from / w->type->elems * w->type->bytes, w->y + from, to - from);
}

berth_status cpu_copy(const struct op_env *env, const struct op_copy *a, berth_err *err)
{
    if (a->x.dtype != DT_F32) { /* no gaps on either side */
        struct widening w = { dtype_desc(a->x.dtype), a->x.data, op_f32(&a->y) };
        cpu_ranges(env, op_count(&a->y), 1, widen, &w);
        return BERTH_OK;
    }
    struct view y;
    if (op_copy_target(a, &y, err))
        return err->code;
    move(env, &a->x, &y);
    return BERTH_OK;
}

berth_status cpu_concat(const struct op_env *env, const struct op_concat *a, berth_err *err)
{
    return op_concat_by(env, a, cpu_copy, err);
}

/* ---- rows of pictures ---- */

/* Networks double, as a rule: a row of x becomes two of y. */
static void twice_rows(const void *user, size_t from, size_t to)
{
    const struct op_resize2d *a = user;
    size_t w = op_row(&a->x);
    for (size_t r = from; r < to; r++) {
        const float *x = op_f32(&a->x) + r * w;
        float *y = op_f32(&a->y) + r * 4 * w;
        for (size_t k = 0; k < w; k++)
            y[2 * k] = y[2 * k + 1] = x[k];
        memcpy(y + 2 * w, y, 2 * w * sizeof(float));
    }
}

berth_status cpu_resize2d(const struct op_env *env, const struct op_resize2d *a, berth_err *err)
{
    (void)err;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim;
    bool twice = a->kind == OP_NEAREST && y[2] == 2 * x[2] && y[3] == 2 * x[3];
    cpu_ranges(env, op_count_of(twice ? &a->x : &a->y, 0, 3), op_row(&a->y),
               twice ? twice_rows : ref_resize2d_rows, a);
    return BERTH_OK;
}

berth_status cpu_pad2d(const struct op_env *env, const struct op_pad2d *a, berth_err *err)
{
    (void)err;
    cpu_ranges(env, op_count(&a->y) / op_row(&a->y), op_row(&a->y), ref_pad2d_rows, a);
    return BERTH_OK;
}
