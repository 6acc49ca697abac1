/* move.c: copies. Runs that are contiguous on both sides are copied as such; a dimension that is
 * contiguous in x and another one that is in y are transposed in tiles of TILE x TILE. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/transpose.h"
#include "op/index.h"

enum { TILE = 32 };
_Static_assert(STRIDED_DIMS >= SHAPE_MAX_DIMS, "every view has room");

struct plan {
    struct strided l; /* strides in floats */
    const float *x;
    float *y;
    int across; /* transpose: the dimension that is contiguous in x; -1: none */
};

/* Where unit r begins. Dimensions of the run or the tile do not count, except for the band in the
 * band's. */
static void begin_of(const struct plan *p, size_t r, size_t *x, size_t *y, size_t *band)
{
    *x = *y = *band = 0;
    for (int d = p->l.nd - 2; d >= 0; d--) {
        size_t n = p->l.dim[d], step = 1;
        if (d == p->across) {
            n = cpu_over(n, TILE);
            step = TILE;
            *band = r % n * TILE;
        }
        *x += r % n * step * p->l.sx[d];
        *y += r % n * step * p->l.sy[d];
        r /= n;
    }
}

/* A band: up to TILE of the dimension that is contiguous in x, all of the last one. */
static void move_band(const struct plan *p, size_t x, size_t y, size_t band)
{
    const struct strided *l = &p->l;
    int last = l->nd - 1;
    size_t m = cpu_least(TILE, l->dim[p->across] - band);
    for (size_t i = 0; i < l->dim[last]; i += TILE)
        transpose(p->x + x + i * l->sx[last], l->sx[last], p->y + y + i, l->sy[p->across],
                  cpu_least(TILE, l->dim[last] - i), m);
}

/* Units [from, to): runs, or bands of TILE rows of a transpose. */
static void move_units(const void *user, size_t from, size_t to)
{
    const struct plan *p = user;
    int last = p->l.nd - 1;
    size_t n = p->l.dim[last], sx = p->l.sx[last], sy = p->l.sy[last];
    for (size_t r = from; r < to; r++) {
        size_t x, y, band;
        begin_of(p, r, &x, &y, &band);
        if (p->across >= 0)
            move_band(p, x, y, band);
        else if (sx == 1 && sy == 1)
            memcpy(p->y + y, p->x + x, n * sizeof(float));
        else
            for (size_t k = 0; k < n; k++)
                p->y[y + k * sy] = p->x[x + k * sx];
    }
}

static void move_run(const void *user, size_t from, size_t to)
{
    const struct plan *p = user;
    memcpy(p->y + from, p->x + from, (to - from) * sizeof(float));
}

/* x's elements into y under the same shape. */
static void move(const struct op_env *env, const struct view *x, const struct view *y)
{
    struct plan p = { .l.nd = x->shape.ndim, .x = x->data, .y = y->data, .across = -1 };
    struct strided *l = &p.l;
    for (int i = 0; i < l->nd; i++) {
        l->dim[i] = x->shape.dim[i];
        l->sx[i] = x->stride[i] / sizeof(float);
        l->sy[i] = y->stride[i] / sizeof(float);
    }
    strided_merge(l);
    int last = l->nd - 1;
    if (last == 0 && (l->dim[0] == 1 || (l->sx[0] == 1 && l->sy[0] == 1))) { /* one run */
        cpu_ranges(env, l->dim[0], 1, move_run, &p);
        return;
    }
    size_t units = 1;
    for (int d = 0; d < last; d++) {
        if (l->sy[last] == 1 && l->sx[last] != 1 && l->sx[d] == 1)
            p.across = d;
        units *= l->dim[d];
    }
    if (p.across >= 0)
        units = units / l->dim[p.across] * cpu_over(l->dim[p.across], TILE);
    cpu_ranges(env, units, cpu_over(op_count(x), units), move_units, &p);
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

struct decoding {
    const struct op_decode *a;
    atomic_size_t bad; /* a row whose id is none, plus 1 */
};

static void decode_rows(const void *user, size_t from, size_t to)
{
    struct decoding *d = (void *)(uintptr_t)user;
    berth_err err;
    if (ref_decode_rows(d->a, from, to, &err))
        atomic_store(&d->bad, from + 1);
}

berth_status cpu_decode(const struct op_env *env, const struct op_decode *a, berth_err *err)
{
    struct decoding d = { .a = a };
    size_t rows = (size_t)a->y.shape.dim[0];
    cpu_ranges(env, rows, op_row(&a->y), decode_rows, &d);
    size_t bad = atomic_load(&d.bad);
    return bad ? ref_decode_rows(a, bad - 1, rows, err) : BERTH_OK;
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
