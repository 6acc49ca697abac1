/* conv2d.c: convolutions with cuDNN.
 *
 * Layout     F16 and BF16 go to tensor cores, which want the channels of a pixel side by side
 *            (NHWC): kernels of conv2d.cu bring pictures, filters and what is added into that form
 *            and the result back. Channels are filled up with zeros to whole 16 bytes. Everything
 *            else is computed as it lies (NCHW). conv_layout() decides.
 * Pieces     Copies of pictures take at most PIECE bytes: several pictures at a time, one, or bands
 *            of rows of one, with the rows that filters reach over to. How follows from the shape
 *            alone, and so do the bits.
 * Rounding   cuDNN's sums are F32. In NHWC bias and add are part of the graph: sum + add + bias in
 *            F32, rounded once; a bias of another type is rounded to the type of x before. cuDNN
 *            has kernels ready for that order and that type; others it compiles, which takes a
 *            second for each shape. Where it has none, and in NCHW, its result is rounded before
 *            bias and add come in (in F32) and again after.
 * Scratch    [ widened filters, later a piece of x | filters | piece of y | of add | bias | cuDNN's
 *            workspace ]; in NCHW [ filters | result before the addition | workspace ]. */
#include "op/cuda/conv2d_pieces.h"
#include "op/cuda/dnn.h"
#include "op/cuda/own.h"

#include <assert.h>

#define PIECE ((uint64_t)256 << 20)
#define ELEMENTS_MOST                                                                              \
    (UINT64_C(1) << 40) /* of an operand: keeps every product below within 64 bits */
enum { SIDE_MOST = 1 << 30, PICTURES_MOST = 65535 /* a grid's third dimension */ };

enum layout { NCHW, NHWC };

static enum layout conv_layout(const struct op_conv2d *a)
{
    return a->x.dtype != DT_F32 && op_or_one(a->groups) == 1 ? NHWC : NCHW;
}

static uint64_t up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* ---- the graph ---- */

enum { UID_X = 1, UID_W, UID_Y, UID_BIAS, UID_ADD, UIDS = UID_ADD };

/* What a graph adds to the convolution. */
enum inside { NOTHING_INSIDE, BIAS_INSIDE, BIAS_AND_ADD_INSIDE };

struct conv_key {
    int64_t kind, type, layout;
    int64_t n, ic, h, w, oc, oh, ow, kh, kw;
    int64_t stride, groups, top, left, bottom, right, align;
    int64_t inside; /* at the first attempt; the second is the convolution alone */
};
static_assert(sizeof(struct conv_key) <= sizeof(struct dnn_key), "a key holds it");

/* uid 0: virtual, F32. */
static dnn_desc operand(struct dnn_graph *g, const struct conv_key *key, int64_t uid, int64_t n,
                        int64_t c, int64_t h, int64_t w)
{
    struct dnn_tensor t = { .uid = uid,
                            .kind = DNN_REAL,
                            .type = dnn_type((enum dtype)key->type),
                            .dim = { n, c, h, w },
                            .align = key->align };
    bool nhwc = key->layout == NHWC;
    t.stride[0] = c * h * w;
    t.stride[1] = nhwc ? 1 : h * w;
    t.stride[2] = nhwc ? w * c : w;
    t.stride[3] = nhwc ? c : 1;
    if (!uid) {
        t.uid = DNN_UID_VIRTUAL + g->uid++;
        t.kind = DNN_VIRTUAL;
        t.type = CUDNN_DATA_FLOAT;
    }
    return dnn_tensor(g, &t);
}

/* A picture like y. */
static dnn_desc result(struct dnn_graph *g, const struct conv_key *key, int64_t uid)
{
    return operand(g, key, uid, key->n, key->oc, key->oh, key->ow);
}

static bool build(struct dnn_graph *g, const struct dnn_key *key, int attempt)
{
    struct conv_key k;
    memcpy(&k, key, sizeof k);
    const cudnnDataType_t f = CUDNN_DATA_FLOAT;
    if (attempt > (k.inside ? 1 : 0))
        return false;
    bool inside = k.inside && attempt == 0;
    g->exact = k.type == DT_F32;
    g->ready = inside;
    dnn_desc x = operand(g, &k, UID_X, k.n, k.ic, k.h, k.w);
    dnn_desc w = operand(g, &k, UID_W, k.oc, k.ic / k.groups, k.kh, k.kw);
    dnn_desc y = result(g, &k, UID_Y), sum = inside ? result(g, &k, 0) : y;
    dnn_conv(g,
             &(struct dnn_conv) { .before = { k.top, k.left },
                                  .after = { k.bottom, k.right },
                                  .stride = { k.stride, k.stride } },
             x, w, sum);
    if (!inside)
        return true;
    if (k.inside == BIAS_AND_ADD_INSIDE) {
        dnn_desc add = result(g, &k, UID_ADD), more = result(g, &k, 0);
        dnn_pointwise(g, CUDNN_POINTWISE_ADD, f, 0, sum, add, NULL, more);
        sum = more;
    }
    dnn_desc bias = operand(g, &k, UID_BIAS, 1, k.oc, 1, 1);
    dnn_pointwise(g, CUDNN_POINTWISE_ADD, f, 0, sum, bias, NULL, y);
    return true;
}

/* ---- dividing the work ---- */

struct job {
    const struct op_conv2d *a;
    enum layout layout;
    uint64_t IC, OC; /* as cuDNN sees them: filled up in NHWC */
    struct conv_cut cut;
    enum inside inside; /* the graph, if cuDNN has something for it */
    size_t widened, filters, x, y, add, bias, workspace,
        total;            /* where each begins in scratch; bytes in all */
    bool expand, reorder; /* filters have another type; another order or a scale */
};

static size_t put(size_t *end, uint64_t bytes)
{
    size_t at = *end;
    *end += (size_t)up(bytes, DEV_ALIGN_MIN);
    return at;
}

static bool job_of(const struct op_conv2d *a, enum layout layout, struct job *j)
{
    const uint64_t *x = a->x.shape.dim, *w = a->w.shape.dim, *y = a->y.shape.dim;
    uint64_t b = dtype_desc(a->x.dtype)->bytes, window = w[2] * w[3];
    for (int i = 0; i < 4; i++)
        if (x[i] > SIDE_MOST || w[i] > SIDE_MOST || y[i] > SIDE_MOST)
            return false;
    if (op_count(&a->x) > ELEMENTS_MOST || op_count(&a->w) > INT32_MAX ||
        op_count(&a->y) > ELEMENTS_MOST || a->top > SIDE_MOST || a->left > SIDE_MOST ||
        a->bottom > SIDE_MOST || a->right > SIDE_MOST)
        return false;
    *j = (struct job) { .a = a, .layout = layout, .IC = x[1], .OC = w[0] };
    j->expand = a->w.dtype != a->x.dtype;
    j->reorder = layout == NHWC || (a->scaled && a->scale != 1);
    uint64_t widened = j->expand ? op_count(&a->w) * b : 0;
    size_t end = 0;
    if (layout == NCHW) {
        j->cut = (struct conv_cut) { .pictures = x[0], .rows = y[2] };
        j->widened = put(&end, widened);
        j->filters = put(&end, j->reorder ? op_count(&a->w) * b : 0);
        j->y = put(&end, op_has(&a->add) ? op_count(&a->y) * b : 0); /* add may be y */
    } else {
        j->IC = up(x[1], 8);
        j->OC = up(w[0], 8);
        j->inside = op_has(&a->add)    ? BIAS_AND_ADD_INSIDE
                    : op_has(&a->bias) ? BIAS_INSIDE
                                       : NOTHING_INSIDE;
        bool adds = j->inside == BIAS_AND_ADD_INSIDE;
        j->cut = conv_cut_of(a, j->IC * b, j->OC * b * (adds ? 2 : 1), PIECE);
        if (j->cut.pictures > PICTURES_MOST)
            j->cut.pictures = PICTURES_MOST;
        uint64_t in = j->cut.pictures * conv_rows_in(a, j->cut.rows) * x[3] * j->IC * b;
        j->widened = j->x = put(&end, widened > in ? widened : in);
        j->filters = put(&end, j->OC * j->IC * window * b);
        uint64_t out = j->cut.pictures * j->cut.rows * y[3] * j->OC * b;
        j->y = put(&end, out);
        j->add = put(&end, adds ? out : 0);
        j->bias = put(&end, j->inside ? j->OC * b : 0);
    }
    j->workspace = j->total = end;
    return true;
}

/* What addresses are aligned to. Those in scratch are; operands that cuDNN sees as they lie nearly
 * always. */
static int64_t align_of(const struct job *j)
{
    const struct op_conv2d *a = j->a;
    uintptr_t all = (uintptr_t)a->x.data | (uintptr_t)a->y.data | (uintptr_t)a->w.data;
    return j->layout == NHWC || all % DNN_ALIGN == 0 ? DNN_ALIGN : dtype_desc(a->x.dtype)->bytes;
}

static void key_of(const struct job *j, const struct conv_piece *p, struct dnn_key *key)
{
    const struct op_conv2d *a = j->a;
    const uint64_t *x = a->x.shape.dim, *y = a->y.shape.dim, *w = a->w.shape.dim;
    const struct conv_key k = { .kind = DNN_CONV,
                                .type = a->x.dtype,
                                .layout = j->layout,
                                .n = (int64_t)p->n,
                                .ic = (int64_t)j->IC,
                                .h = (int64_t)p->i,
                                .w = (int64_t)x[3],
                                .oc = (int64_t)j->OC,
                                .oh = (int64_t)p->o,
                                .ow = (int64_t)y[3],
                                .kh = (int64_t)w[2],
                                .kw = (int64_t)w[3],
                                .stride = op_or_one(a->stride),
                                .groups = op_or_one(a->groups),
                                .top = p->top,
                                .left = a->left,
                                .bottom = p->bottom,
                                .right = a->right,
                                .align = align_of(j),
                                .inside = j->inside };
    *key = (struct dnn_key) { 0 };
    memcpy(key, &k, sizeof k);
}

static berth_status plan_of(struct dnn *d, const struct job *j, const struct conv_piece *p,
                            const struct dnn_plan **out, berth_err *err)
{
    struct dnn_key key;
    key_of(j, p, &key);
    return dnn_plan(d, &key, build, out, err);
}

/* A plan for every piece: their largest workspace is added to the total. *why: one has none, for
 * that reason; NULL: all have. */
static berth_status plans_of(struct dnn *d, struct job *j, const char **why, berth_err *err)
{
    const uint64_t *y = j->a->y.shape.dim;
    int64_t most = 0;
    *why = NULL;
    /* Pictures come in whole pieces except for the last, rows in a first, equal ones and a last. */
    for (uint64_t n0 = 0; n0 < y[0]; n0 += j->cut.pictures) {
        if (n0 && n0 + j->cut.pictures <= y[0])
            continue;
        for (uint64_t o0 = 0; o0 < y[2]; o0 += j->cut.rows) {
            struct conv_piece p = conv_piece_at(j->a, &j->cut, n0, o0);
            const struct dnn_plan *plan = NULL;
            if (plan_of(d, j, &p, &plan, err))
                return err->code;
            if (!plan->plan) {
                *why = plan->why;
                return BERTH_OK;
            }
            if (plan->workspace > most)
                most = plan->workspace;
        }
    }
    j->total = j->workspace + (size_t)most;
    return BERTH_OK;
}

/* How it will be done: in the layout of choice, or as it lies if cuDNN has nothing for that. */
static berth_status prepare(const struct op_env *env, const struct op_conv2d *a, struct dnn **d,
                            struct job *j, berth_err *err)
{
    char x[SHAPE_TEXT_MAX], w[SHAPE_TEXT_MAX];
    struct cuda_card *c = NULL;
    const char *why = NULL;
    if (cuda_card(env, &c, err) || dnn_of(c, d, err))
        return err_add(err, "conv2d");
    enum layout layout = conv_layout(a);
    for (;;) {
        if (!job_of(a, layout, j))
            return err_set(err, BERTH_EUNSUPPORTED,
                           "conv2d: x %s and w %s are too large for a card",
                           shape_text(&a->x.shape, x), shape_text(&a->w.shape, w));
        if (plans_of(*d, j, &why, err))
            return err_add(err, "conv2d");
        if (!why)
            return BERTH_OK;
        if (layout == NCHW)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "conv2d on %s: cuDNN %zu has nothing for x %s, w %s in %s: %s",
                           c->phys->base.name, (*d)->version, shape_text(&a->x.shape, x),
                           shape_text(&a->w.shape, w), dtype_name(a->x.dtype), why);
        layout = NCHW;
    }
}

/* ---- running ---- */

static void *in_scratch(const struct op_env *env, size_t at)
{
    return (char *)env->scratch + at;
}

static void *element(const struct view *v, uint64_t i)
{
    return (char *)v->data + i * dtype_desc(v->dtype)->bytes;
}

static berth_status launch(const struct op_env *env, const char *kernel, enum dtype type,
                           uint64_t gx, uint64_t gy, uint64_t gz, void *args, berth_err *err)
{
    if (gx > INT32_MAX || gy > 65535 || gz > 65535)
        return err_set(err, BERTH_EUNSUPPORTED, "conv2d: %s in %llu x %llu x %llu blocks", kernel,
                       (unsigned long long)gx, (unsigned long long)gy, (unsigned long long)gz);
    const struct cuda_launch l = {
        CUDA_MODULE_conv2d, kernel, type, { (unsigned)gx, (unsigned)gy, (unsigned)gz },
        { CONV_THREADS },   args
    };
    return cuda_launch(env, &l, err);
}

/* Filters in the type and order of the graph: *out. */
static berth_status filters(const struct op_env *env, const struct job *j, void **out,
                            berth_err *err)
{
    const struct op_conv2d *a = j->a;
    const uint64_t *w = a->w.shape.dim;
    *out = a->w.data;
    if (j->expand) {
        *out = in_scratch(env, j->widened);
        if (cuda_expand(env, a->w.dtype, a->w.data, a->x.dtype, *out, op_count(&a->w), err))
            return err_add(err, "conv2d: filters");
    }
    if (!j->reorder)
        return BERTH_OK;
    struct conv_filter f = { .src = *out,
                             .dst = in_scratch(env, j->filters),
                             .out = (uint32_t)w[0],
                             .in = (uint32_t)w[1],
                             .in_padded = (uint32_t)w[1],
                             .window = (uint32_t)(w[2] * w[3]),
                             .scale = a->scaled ? a->scale : 1 };
    f.n = (int64_t)op_count(&a->w);
    if (j->layout == NHWC) {
        f.in_padded = (uint32_t)j->IC;
        f.n = (int64_t)(j->OC * j->IC * f.window);
    } else { /* the order stays: one row of everything */
        f.out = 1;
        f.in = f.in_padded = (uint32_t)op_count(&a->w);
        f.window = 1;
    }
    *out = f.dst;
    return launch(env, "conv2d_filter", a->x.dtype,
                  ((uint64_t)f.n + CONV_THREADS - 1) / CONV_THREADS, 1, 1, &f, err);
}

/* Bias in the type and with as many channels as the graph has: *out. */
static berth_status bias_ready(const struct op_env *env, const struct job *j, void **out,
                               berth_err *err)
{
    const struct op_conv2d *a = j->a;
    *out = a->bias.data;
    if (!j->inside || (*out && a->bias.dtype == a->x.dtype && j->OC == a->w.shape.dim[0] &&
                       (uintptr_t)*out % DNN_ALIGN == 0))
        return BERTH_OK;
    struct conv_bias b = { .src = a->bias.data,
                           .dst = *out = in_scratch(env, j->bias),
                           .n = (uint32_t)a->w.shape.dim[0],
                           .padded = (uint32_t)j->OC,
                           .type = own_type(a->bias.dtype) };
    return launch(env, "conv2d_bias", a->x.dtype, (j->OC + CONV_THREADS - 1) / CONV_THREADS, 1, 1,
                  &b, err);
}

/* at: in the order of UIDs, as many as the graph has. */
static berth_status convolve(const struct op_env *env, struct dnn *d, const struct job *j,
                             const struct conv_piece *p, const struct dnn_plan *plan,
                             enum inside inside, void *const at[UIDS], berth_err *err)
{
    static const int64_t uid[UIDS] = { UID_X, UID_W, UID_Y, UID_BIAS, UID_ADD };
    const struct op_conv2d *a = j->a;
    char x[SHAPE_TEXT_MAX], w[SHAPE_TEXT_MAX];
    size_t n = (size_t)UID_Y + (size_t)inside;
    if (dnn_run(env, d, plan, n, uid, at, in_scratch(env, j->workspace), err))
        return err_add(err, "conv2d of x %s, w %s, %s, rows %llu to %llu",
                       shape_text(&a->x.shape, x), shape_text(&a->w.shape, w),
                       dtype_name(a->x.dtype), (unsigned long long)p->o0,
                       (unsigned long long)(p->o0 + p->o));
    return BERTH_OK;
}
static_assert(UID_BIAS == UID_Y + (int)BIAS_INSIDE && UID_ADD == UID_Y + (int)BIAS_AND_ADD_INSIDE,
              "what is inside says how many operands there are");

static berth_status run_nchw(const struct op_env *env, struct dnn *d, const struct job *j, void *w,
                             berth_err *err)
{
    const struct op_conv2d *a = j->a;
    const uint64_t *y = a->y.shape.dim;
    const struct dnn_plan *plan = NULL;
    struct conv_piece p = conv_piece_at(a, &j->cut, 0, 0);
    void *to = a->add.data ? in_scratch(env, j->y) : a->y.data;
    void *const at[UIDS] = { a->x.data, w, to };
    if (plan_of(d, j, &p, &plan, err) || convolve(env, d, j, &p, plan, NOTHING_INSIDE, at, err))
        return err->code;
    if (!a->add.data && !a->bias.data)
        return BERTH_OK;
    struct conv_finish f = { .src = to,
                             .dst = a->y.data,
                             .bias = a->bias.data,
                             .add = a->add.data,
                             .plane = (int64_t)(y[2] * y[3]),
                             .channels = (uint32_t)y[1],
                             .bias_type = own_type(a->bias.dtype) };
    f.runs = (uint32_t)((y[2] * y[3] + CONV_RUN - 1) / CONV_RUN);
    return launch(env, "conv2d_finish", a->y.dtype, y[0] * y[1] * f.runs, 1, 1, &f, err);
}

/* Rows [first, first + rows) of pictures like v from the n0-th on, and pixels of `padded` channels
 * in scratch. The caller says which is src, which is dst. */
static struct conv_turn turn_of(const struct view *v, const struct conv_piece *p, uint64_t first,
                                uint64_t rows, uint64_t padded)
{
    const uint64_t *n = v->shape.dim;
    struct conv_turn t = { .src = element(v, p->n0 * n[1] * n[2] * n[3]),
                           .plane = (int64_t)(n[2] * n[3]),
                           .from = (int64_t)(first * n[3]),
                           .pixels = (int64_t)(rows * n[3]),
                           .channels = (uint32_t)n[1],
                           .padded = (uint32_t)padded };
    t.pairs = (t.plane | t.from | t.pixels) % 2 == 0 && (uintptr_t)v->data % 4 == 0;
    return t;
}

static berth_status transpose(const struct op_env *env, const char *kernel, enum dtype type,
                              struct conv_turn *t, uint64_t channels, uint64_t pictures,
                              berth_err *err)
{
    return launch(env, kernel, type, up((uint64_t)t->pixels, CONV_TILE) / CONV_TILE,
                  up(channels, CONV_TILE) / CONV_TILE, pictures, t, err);
}

/* One piece: x and add to NHWC, the convolution, the result back. */
static berth_status run_nhwc(const struct op_env *env, struct dnn *d, const struct job *j,
                             const struct conv_piece *p, void *w, void *bias, berth_err *err)
{
    const struct op_conv2d *a = j->a;
    void *const at[UIDS] = { in_scratch(env, j->x), w, in_scratch(env, j->y), bias,
                             in_scratch(env, j->add) };
    const struct dnn_plan *plan = NULL;
    if (plan_of(d, j, p, &plan, err))
        return err->code;
    enum inside inside = plan->attempt == 0 ? j->inside : NOTHING_INSIDE;
    struct conv_turn x = turn_of(&a->x, p, p->i0, p->i, j->IC);
    x.dst = at[UID_X - 1];
    if (transpose(env, "conv2d_pack", DT_NONE, &x, j->IC, p->n, err))
        return err->code;
    if (inside == BIAS_AND_ADD_INSIDE) {
        struct conv_turn add = turn_of(&a->add, p, p->o0, p->o, j->OC);
        add.dst = at[UID_ADD - 1];
        if (transpose(env, "conv2d_pack", DT_NONE, &add, j->OC, p->n, err))
            return err->code;
    }
    if (convolve(env, d, j, p, plan, inside, at, err))
        return err->code;
    struct conv_turn y = turn_of(&a->y, p, p->o0, p->o, j->OC);
    y.dst = (void *)(uintptr_t)y.src;
    y.src = at[UID_Y - 1];
    if (!inside) {
        y.bias = a->bias.data;
        y.bias_type = own_type(a->bias.dtype);
        y.add = a->add.data ? turn_of(&a->add, p, p->o0, p->o, j->OC).src : NULL;
    }
    return transpose(env, "conv2d_unpack", a->y.dtype, &y, y.channels, p->n, err);
}

berth_status cuda_conv2d(const struct op_env *env, const struct op_conv2d *a, berth_err *err)
{
    struct dnn *d = NULL;
    struct job j;
    void *w = NULL, *bias = NULL;
    if (prepare(env, a, &d, &j, err) || cuda_scratch_is_there(env, "conv2d", j.total, err) ||
        filters(env, &j, &w, err) || bias_ready(env, &j, &bias, err))
        return err->code;
    if (j.layout == NCHW)
        return run_nchw(env, d, &j, w, err);
    for (uint64_t n0 = 0; n0 < a->y.shape.dim[0]; n0 += j.cut.pictures)
        for (uint64_t o0 = 0; o0 < a->y.shape.dim[2]; o0 += j.cut.rows) {
            struct conv_piece p = conv_piece_at(a, &j.cut, n0, o0);
            if (op_cancelled(env))
                return err_set(err, BERTH_ECANCELED, "conv2d: cancelled");
            if (run_nhwc(env, d, &j, &p, w, bias, err))
                return err->code;
        }
    return BERTH_OK;
}

berth_status cuda_conv2d_ready(const struct op_env *env, const struct op_conv2d *a, berth_err *err)
{
    struct dnn *d = NULL;
    struct job j;
    return prepare(env, a, &d, &j, err);
}

size_t cuda_conv2d_scratch(const struct op_env *env, const struct op_conv2d *a)
{
    struct dnn *d = NULL;
    struct job j;
    berth_err err; /* cuda_conv2d_ready() says it */
    return prepare(env, a, &d, &j, &err) ? 0 : j.total;
}
