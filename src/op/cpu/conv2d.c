/* conv2d: filters times windows. The filters are the fixed side, one row each; the columns are the
 * windows of the picture, gathered panel by panel where they are needed, never all at once. 3x3
 * filters at stride 1 go to winograd.c where that is faster. */
#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"
#include "op/cpu/winograd.h"

struct windows { /* of one group of channels */
    struct gemm_rows w;
    const float *x;
    size_t step;     /* elements from picture to picture */
    size_t h, width; /* of the picture */
    size_t kh, kw, out_w;
    size_t stride, top, left;
};

static void pack_w(const void *user, size_t batch, size_t at, size_t rows, size_t k0, size_t kn,
                   float *dst)
{
    const struct windows *o = user;
    (void)batch;
    gemm_pack_rows(&o->w, at, rows, k0, kn, dst, rows, rows);
}

/* n values of a row of the picture from column x on (which may lie left of it), every stride-th. */
static void take_row(const float *row, size_t width, ptrdiff_t x, size_t stride, size_t n,
                     float *dst)
{
    size_t i = 0;
    for (; i < n && x < 0; i++, x += (ptrdiff_t)stride)
        dst[i] = 0;
    size_t live = (size_t)x < width ? (width - (size_t)x - 1) / stride + 1 : 0;
    live = live < n - i ? i + live : n;
    if (stride == 1) {
        memcpy(dst + i, row + x, (live - i) * sizeof *dst);
        i = live;
    } else
        for (; i < live; i++, x += (ptrdiff_t)stride)
            dst[i] = row[x];
    for (; i < n; i++)
        dst[i] = 0;
}

struct piece { /* columns of a panel that lie side by side in a row of the result */
    size_t at, n;
    ptrdiff_t y, x; /* of the first one's window: its upper left corner in the picture */
};

static size_t pieces_of(const struct windows *o, size_t at, size_t cols, struct piece *p)
{
    size_t n = 0;
    for (size_t j = 0; j < cols; j += p[n++].n) {
        size_t oy = (at + j) / o->out_w, ox = (at + j) % o->out_w;
        p[n] = (struct piece) { .at = j,
                                .n = o->out_w - ox < cols - j ? o->out_w - ox : cols - j,
                                .y = (ptrdiff_t)(oy * o->stride) - (ptrdiff_t)o->top,
                                .x = (ptrdiff_t)(ox * o->stride) - (ptrdiff_t)o->left };
    }
    return n;
}

/* Tap (ky, kx) of a piece in the plane x. */
static void take_piece(const struct windows *o, const struct piece *p, const float *x, size_t ky,
                       size_t kx, float *dst)
{
    ptrdiff_t y = p->y + (ptrdiff_t)ky, left = p->x + (ptrdiff_t)kx;
    dst += p->at;
    if (y < 0 || (size_t)y >= o->h) {
        memset(dst, 0, p->n * sizeof *dst);
        return;
    }
    x += (size_t)y * o->width;
    if (o->stride == 1 && left >= 0 && (size_t)left + p->n <= o->width) {
        if (p->n == GEMM_NR_MAX) /* so often that a copy of known size pays */
            memcpy(dst, x + left, GEMM_NR_MAX * sizeof *dst);
        else
            memcpy(dst, x + left, p->n * sizeof *dst);
    } else
        take_row(x, o->width, left, o->stride, p->n, dst);
}

static void pack_x(const void *user, size_t batch, size_t at, size_t cols, size_t k0, size_t kn,
                   float *dst)
{
    const struct windows *o = user;
    struct piece piece[GEMM_NR_MAX];
    size_t nr = o->w.level->nr, taps = o->kh * o->kw, pieces = pieces_of(o, at, cols, piece);
    size_t channel = k0 / taps, ky = k0 % taps / o->kw, kx = k0 % o->kw;
    const float *x = o->x + batch * o->step + channel * o->h * o->width;
    for (size_t k = 0; k < kn; k++, dst += nr) {
        for (size_t j = 0; j < pieces; j++)
            take_piece(o, &piece[j], x, ky, kx, dst);
        if (cols < nr)
            memset(dst + cols, 0, (nr - cols) * sizeof *dst);
        if (++kx < o->kw)
            continue;
        kx = 0;
        if (++ky < o->kh)
            continue;
        ky = 0;
        x += o->h * o->width;
    }
}

static struct gemm sizes(const struct gemm_level *l, const struct op_conv2d *a)
{
    const uint64_t *w = a->w.shape.dim, *y = a->y.shape.dim;
    return (struct gemm) { .level = l,
                           .m = (size_t)(w[0] / op_or_one(a->groups)),
                           .n = (size_t)(y[2] * y[3]),
                           .k = (size_t)(w[1] * w[2] * w[3]),
                           .batch = (size_t)y[0],
                           .fixed_rows = true };
}

static struct windows windows(const struct gemm_level *l, const struct op_conv2d *a)
{
    const uint64_t *w = a->w.shape.dim, *x = a->x.shape.dim, *y = a->y.shape.dim;
    const struct dtype_desc *t = dtype_desc(a->w.dtype);
    struct windows o = { .w = { .level = l,
                                .dtype = a->w.dtype,
                                .data = a->w.data,
                                .row_bytes = (size_t)(w[1] * w[2] * w[3]) / t->elems * t->bytes },
                         .x = op_f32(&a->x),
                         .step = (size_t)(x[1] * x[2] * x[3]),
                         .h = (size_t)x[2],
                         .width = (size_t)x[3],
                         .kh = (size_t)w[2],
                         .kw = (size_t)w[3],
                         .out_w = (size_t)y[3],
                         .stride = op_or_one(a->stride),
                         .top = a->top,
                         .left = a->left };
    if (o.kh * o.kw == 1 && o.stride == 1 && y[2] == x[2] && y[3] == x[3] && !o.top && !o.left) {
        o.width = o.out_w = o.h * o.width; /* a picture is one long row then */
        o.h = 1;
    }
    return o;
}

size_t cpu_conv2d_scratch(const struct op_env *env, const struct op_conv2d *a)
{
    const struct gemm_level *l = gemm_level(cpu_kernels(env));
    if (winograd_suits(a))
        return winograd_scratch(l, env, a);
    struct gemm g = sizes(l, a);
    return gemm_scratch(env, &g);
}

berth_status cpu_conv2d(const struct op_env *env, const struct op_conv2d *a, berth_err *err)
{
    const struct gemm_level *l = gemm_level(cpu_kernels(env));
    if (winograd_suits(a))
        return winograd_run(l, env, a, err);
    struct gemm g = sizes(l, a);
    struct windows o = windows(l, a);
    size_t pixels = g.n, channels = (size_t)a->w.shape.dim[1];
    g.pack_a = pack_w;
    g.pack_b = pack_x;
    g.user = &o;
    g.c = op_f32(&a->y);
    g.add = a->add.data;
    g.bias = a->bias.data;
    g.ld_c = g.ld_add = pixels;
    g.step_c = g.step_add = (size_t)a->y.shape.dim[1] * pixels;
    g.bias_rows = true;
    g.scale = a->scaled ? a->scale : 1;
    berth_status s = BERTH_OK;
    for (uint32_t i = 0; i < op_or_one(a->groups) && !s; i++) {
        s = gemm_run(env, &g, err);
        o.w.data += g.m * o.w.row_bytes;
        o.x += channels * (size_t)(a->x.shape.dim[2] * a->x.shape.dim[3]);
        g.c += g.m * pixels;
        g.add = g.add ? g.add + g.m * pixels : NULL;
        g.bias = g.bias ? g.bias + g.m : NULL;
    }
    return s;
}
