/* image_tiles.c: lists of pictures: cut into tiles and put together again, regrouped, in a grid. */
#include "base/sz.h"
#include "node/node_impl.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- tiles ----
 * A tile that would reach beyond the border is moved back, so that all have the same size. */

struct axis {
    size_t all, tile, stride;
};

static struct axis axis_of(size_t all, size_t tile, size_t overlap)
{
    double least = (double)tile * 0.25, far = (double)tile - (double)overlap;
    return (struct axis) { all, tile, (size_t)nearbyint(far > least ? far : least) };
}

static size_t axis_count(const struct axis *a)
{
    return a->all <= a->tile ? 1 : (a->all - a->tile + a->stride - 1) / a->stride + 1;
}

static size_t axis_start(const struct axis *a, size_t i)
{
    size_t last = a->all > a->tile ? a->all - a->tile : 0;
    return i * a->stride < last ? i * a->stride : last;
}

static berth_status split_run(struct node_call *c, berth_err *err)
{
    struct htensor *t;
    uint64_t tw, th, overlap;
    size_t floats, bytes;
    if (in_image(c, "image", &t, err) || in_u64(c, "tile_width", &tw, err) ||
        in_u64(c, "tile_height", &th, err) || in_u64(c, "overlap", &overlap, err))
        return err->code;
    size_t n = dim(t, 0), h = dim(t, 1), w = dim(t, 2), ch = dim(t, 3);
    if (tw < 4 || th < 4 || tw > SIDE_MAX || th > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "tiles of %" PRIu64 "x%" PRIu64, tw, th);
    struct axis x = axis_of(w, tw, overlap), y = axis_of(h, th, overlap);
    size_t across = axis_count(&x), down = axis_count(&y);
    struct part p = { .h = h < th ? h : th, .w = w < tw ? w : tw };
    if (!sz_mul(across * down, p.h * p.w, &floats) || !sz_mul(floats, n * ch, &floats) ||
        !sz_mul(floats, sizeof(float), &bytes) || bytes > HTENSOR_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu tiles of %zux%zu are more than %zu GiB",
                       across * down, p.w, p.h, HTENSOR_MAX >> 30);
    berth_status s = host_room("", bytes, err);
    for (size_t i = 0; !s && i < across * down; i++) {
        struct htensor *o;
        p.y = axis_start(&y, i / across);
        p.x = axis_start(&x, i % across);
        if (call_check(c, err) || image_tensor(n, p.h, p.w, ch, &o, err))
            return err->code;
        copy_part(t->data, h, w, ch, n, p, o->data);
        s = out_tensor(c, 0, o, err);
    }
    return s;
}

NODE_CLASS(SplitImageToTileList, .display = "Split Image into List of Tiles",
           .category = "image/batch", V3("images"),
           .description = "Cuts pictures into tiles that overlap.",
           INS(SOCKET("image", "IMAGE"), INT_IN("tile_width", 1024, 64, MAX_SIDE, 0),
               INT_IN("tile_height", 1024, 64, MAX_SIDE, 0), INT_IN("overlap", 128, 0, 4096, 0)),
           OUTS({ .type = "IMAGE", .is_list = true }), .run = split_run);

/* sin(pi * t) at i of n places from 0 to 1, never nothing. */
static float tile_weight(size_t i, size_t n)
{
    float step = n > 1 ? 1.0f / (float)(n - 1) : 0.0f;
    float t = i < n / 2 ? step * (float)i : 1.0f - step * (float)(n - 1 - i);
    float w = n > 1 ? (float)sin((double)((float)3.14159265358979323846 * t)) : 0.0f;
    return w > 1e-5f ? w : 1e-5f;
}

struct merge {
    struct htensor *canvas, *weights; /* [n,h,w,c], [1,h,w] */
    size_t th, tw;                    /* of the first tile */
    bool soft;
};

/* Tile t onto the canvas at (y, x). */
static void merge_tile(struct merge *m, const struct htensor *t, size_t y0, size_t x0)
{
    size_t H = dim(m->canvas, 1), W = dim(m->canvas, 2), C = dim(m->canvas, 3), ch = dim(t, 3);
    size_t h = m->th < H - y0 ? m->th : H - y0, w = m->tw < W - x0 ? m->tw : W - x0;
    h = h < dim(t, 1) ? h : dim(t, 1);
    w = w < dim(t, 2) ? w : dim(t, 2);
    for (size_t y = 0; y < h; y++)
        for (size_t x = 0; x < w; x++) {
            float by = m->soft ? tile_weight(y, m->th) * tile_weight(x, m->tw) : 1.0f;
            m->weights->data[(y0 + y) * W + x0 + x] += by;
            for (size_t i = 0; i < dim(m->canvas, 0); i++) {
                size_t from = dim(t, 0) == 1 ? 0 : i;
                const float *s = t->data + ((from * dim(t, 1) + y) * dim(t, 2) + x) * ch;
                float *d = m->canvas->data + ((i * H + y0 + y) * W + x0 + x) * C;
                for (size_t k = 0; k < C; k++)
                    d[k] += s[ch == 1 ? 0 : k] * by;
            }
        }
}

static void merge_divide(struct merge *m)
{
    size_t px = htensor_count(m->weights), c = dim(m->canvas, 3);
    for (size_t i = 0, n = htensor_count(m->canvas); i < n; i++) {
        float by = m->weights->data[i / c % px];
        m->canvas->data[i] /= by == 0.0f ? 1.0f : by;
    }
}

/* All tiles that the grid has a place for. */
static berth_status merge_all(struct node_call *c, struct merge *m, const struct values *tiles,
                              uint64_t overlap, berth_err *err)
{
    char text[SHAPE_TEXT_MAX], first[SHAPE_TEXT_MAX];
    struct axis x = axis_of(dim(m->canvas, 2), m->tw, overlap);
    struct axis y = axis_of(dim(m->canvas, 1), m->th, overlap);
    size_t across = axis_count(&x), n = across * axis_count(&y);
    for (size_t i = 0; i < n && i < tiles->n; i++) {
        const struct htensor *t = tiles->at[i]->tensor;
        if ((dim(t, 0) != 1 && dim(t, 0) != dim(m->canvas, 0)) ||
            (dim(t, 3) != 1 && dim(t, 3) != dim(m->canvas, 3)))
            return err_set(err, BERTH_EINVAL, "tile %zu is %s, the first one %s", i,
                           shape_text(&t->shape, text),
                           shape_text(&tiles->at[0]->tensor->shape, first));
        if (call_check(c, err))
            return err->code;
        merge_tile(m, t, axis_start(&y, i / across), axis_start(&x, i % across));
    }
    merge_divide(m);
    return BERTH_OK;
}

static berth_status merge_run(struct node_call *c, berth_err *err)
{
    struct image_list tiles;
    struct merge m = { 0 };
    uint64_t w, h, overlap;
    if (in_images(c, "image_list", &tiles, err) || in_u64(c, "final_width", &w, err) ||
        in_u64(c, "final_height", &h, err) || in_u64(c, "overlap", &overlap, err))
        return err->code;
    if (!tiles.n || !w || !h || w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "%zu tiles cannot become %" PRIu64 "x%" PRIu64 " pixels",
                       tiles.n, w, h);
    const struct htensor *first = tiles.all->at[0]->tensor;
    m.th = dim(first, 1);
    m.tw = dim(first, 2);
    m.soft = overlap > 0;
    if (m.th < 4 || m.tw < 4) /* a stride of nothing */
        return err_set(err, BERTH_EINVAL, "tiles of %zux%zu, at least 4x4 are wanted", m.tw, m.th);
    struct shape to = { .ndim = 4, .dim = { dim(first, 0), h, w, dim(first, 3) } };
    berth_status s = htensor_zeros(&to, &m.canvas, err);
    if (!s)
        s = htensor_zeros(&(struct shape) { .ndim = 3, .dim = { 1, h, w } }, &m.weights, err);
    if (!s)
        s = merge_all(c, &m, tiles.all, overlap, err);
    htensor_unref(m.weights);
    return give_tensor(c, s, m.canvas, err);
}

NODE_CLASS(ImageMergeTileList, .display = "Merge List of Tiles to Image", .category = "image/batch",
           .module = MOD("images"), .flags = NODE_V3 | NODE_INPUT_IS_LIST,
           INS(SOCKET("image_list", "IMAGE"), INT_IN("final_width", 1024, 64, 32768, 0),
               INT_IN("final_height", 1024, 64, 32768, 0), INT_IN("overlap", 128, 0, 4096, 0)),
           OUT(out_image), .run = merge_run);

/* ---- RebatchImages ---- */

static berth_status rebatch_run(struct node_call *c, berth_err *err)
{
    char ta[SHAPE_TEXT_MAX], tb[SHAPE_TEXT_MAX];
    struct image_list l;
    uint64_t size;
    berth_status s = BERTH_OK;
    if (in_images(c, "images", &l, err) || in_u64(c, "batch_size", &size, err))
        return err->code;
    size = size ? size : 1;
    for (size_t i = 0; !s && i < l.n; i += size) {
        size_t at, n = l.n - i < size ? l.n - i : size;
        const struct htensor *t = image_list_at(&l, i, &at), *first = t;
        size_t one = htensor_count(t) / dim(t, 0);
        struct htensor *o;
        if (image_tensor(n, dim(t, 1), dim(t, 2), dim(t, 3), &o, err))
            return err->code;
        for (size_t k = 0; !s && k < n; k++) {
            t = image_list_at(&l, i + k, &at);
            if (memcmp(t->shape.dim + 1, first->shape.dim + 1, 3 * sizeof *t->shape.dim))
                s = err_set(err, BERTH_EINVAL, "pictures %s and %s cannot be in one batch",
                            shape_text(&first->shape, ta), shape_text(&t->shape, tb));
            else
                memcpy(o->data + k * one, t->data + at * one, one * sizeof(float));
        }
        s = give_tensor(c, s, o, err);
        if (size >= l.n - i)
            break;
    }
    return s;
}

NODE_CLASS(RebatchImages, .display = "Rebatch Images", .category = "image/batch",
           .module = MOD("rebatch"), .flags = NODE_V3 | NODE_INPUT_IS_LIST,
           INS(SOCKET("images", "IMAGE"), BATCH_IN), OUTS({ .type = "IMAGE", .is_list = true }),
           .run = rebatch_run);

/* ---- ImageGrid: each picture stretched into a cell ---- */

struct grid {
    size_t columns, rows, w, h, gap;
};

/* Picture `at` of t into cell i of o, as 8 bits. */
static berth_status grid_cell(struct node_call *c, const struct grid *g, size_t i,
                              const struct htensor *t, size_t at, struct htensor *o, berth_err *err)
{
    struct htensor *one = NULL, *fit = NULL;
    size_t ch = dim(t, 3), W = dim(o, 2);
    berth_status s = tensor_slice(t, at, 1, &one, err);
    if (!s)
        s = scale_image(c, one, g->w, g->h, "lanczos", false, &fit, err);
    size_t y0 = i / g->columns * (g->h + g->gap), x0 = i % g->columns * (g->w + g->gap);
    for (size_t p = 0; !s && p < g->h * g->w; p++)
        for (size_t k = 0; k < 3; k++)
            o->data[((y0 + p / g->w) * W + x0 + p % g->w) * 3 + k] =
                fit->data[p * ch + (ch < 3 ? 0 : k)];
    htensor_unref(one);
    htensor_unref(fit);
    return s;
}

static berth_status grid_run(struct node_call *c, berth_err *err)
{
    struct image_list l;
    uint64_t columns, w, h, gap;
    struct htensor *o;
    if (in_images(c, "images", &l, err) || in_u64(c, "columns", &columns, err) ||
        in_u64(c, "cell_width", &w, err) || in_u64(c, "cell_height", &h, err) ||
        in_u64(c, "padding", &gap, err))
        return err->code;
    if (!l.n)
        return err_set(err, BERTH_EINVAL, "Cannot create grid from empty image list");
    if (!columns || !w || !h || columns > SIDE_MAX || w > SIDE_MAX || h > SIDE_MAX ||
        gap > SIDE_MAX)
        return err_set(err, BERTH_EINVAL,
                       "%" PRIu64 " columns of %" PRIu64 "x%" PRIu64 " with gaps of %" PRIu64,
                       columns, w, h, gap);
    struct grid g = { columns, (l.n + columns - 1) / columns, w, h, gap };
    struct shape to = { .ndim = 4,
                        .dim = { 1, g.rows * h + (g.rows - 1) * gap,
                                 columns * w + (columns - 1) * gap, 3 } };
    berth_status s = htensor_zeros(&to, &o, err);
    if (s)
        return s;
    for (size_t i = 0; !s && i < l.n; i++) {
        size_t at;
        const struct htensor *t = image_list_at(&l, i, &at);
        s = grid_cell(c, &g, i, t, at, o, err);
    }
    return give_tensor(c, s, o, err);
}

NODE_CLASS(ImageGrid, .display = "Make Image Grid", .category = "image/batch",
           .module = MOD("dataset"), .description = "Arranges pictures in a grid.",
           .flags = NODE_V3 | NODE_INPUT_IS_LIST | NODE_EXPERIMENTAL,
           INS(SOCKET("images", "IMAGE"), INT_IN("columns", 4, 1, 20, 0),
               INT_IN("cell_width", 256, 32, 2048, 0, .more = ADVANCED),
               INT_IN("cell_height", 256, 32, 2048, 0, .more = ADVANCED),
               INT_IN("padding", 4, 0, 50, 0, .more = ADVANCED)),
           OUTS({ .type = "IMAGE", .name = "images" }), .run = grid_run);
