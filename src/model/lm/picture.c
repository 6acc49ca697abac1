/* picture.c: a picture as patches, where each of them is, and in which windows
 * (llm-encoders.md 2.1 - 2.3). */
#include "model/lm/vision.h"

#include "base/sz.h"
#include "op/resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 2, FRAMES = 2, COLOURS = 3, WINDOW = 4 };
#define PIXELS_LEAST 3136.0
#define PIXELS_MOST 12845056.0

/* Python's round() of a / b, halves to even. */
static double rounded(size_t a, size_t b)
{
    return nearbyint((double)a / (double)b);
}

void sight_sides(size_t high, size_t wide, uint32_t patch, size_t *to_high, size_t *to_wide)
{
    const double unit = (double)patch * CELL, h = (double)high, w = (double)wide;
    double oh = rounded(high, (size_t)unit) * unit, ow = rounded(wide, (size_t)unit) * unit;
    if (oh * ow > PIXELS_MOST) {
        double by = sqrt(h * w / PIXELS_MOST);
        oh = fmax(unit, floor(h / by / unit) * unit);
        ow = fmax(unit, floor(w / by / unit) * unit);
    } else if (oh * ow < PIXELS_LEAST) {
        double by = sqrt(PIXELS_LEAST / (h * w));
        oh = ceil(h * by / unit) * unit;
        ow = ceil(w * by / unit) * unit;
    }
    *to_high = (size_t)oh;
    *to_wide = (size_t)ow;
}

/* ---- order ---- */

/* Cells row by row, or window by window. */
static void order_cells(struct sight_host *h, bool windows)
{
    const uint32_t rows = h->high / CELL, columns = h->wide / CELL;
    const uint32_t side = windows ? WINDOW : (rows > columns ? rows : columns);
    uint32_t n = 0;
    h->runs = 0;
    for (uint32_t y = 0; y < rows; y += side)
        for (uint32_t x = 0; x < columns; x += side) {
            uint32_t from = n;
            for (uint32_t r = y; r < y + side && r < rows; r++)
                for (uint32_t c = x; c < x + side && c < columns; c++)
                    h->cell[n++] = r * columns + c;
            uint32_t size = (n - from) * CELL * CELL;
            struct sight_run *last = h->runs ? &h->run[h->runs - 1] : NULL;
            if (last && last->size == size)
                last->n++;
            else
                h->run[h->runs++] =
                    (struct sight_run) { .at = from * CELL * CELL, .size = size, .n = 1 };
        }
}

/* Row and column of patch i in the picture. */
static void place_of(const struct sight_host *h, uint32_t i, uint32_t *row, uint32_t *column)
{
    const uint32_t cell = h->cell[i / (CELL * CELL)], columns = h->wide / CELL;
    *row = cell / columns * CELL + i / CELL % CELL;
    *column = cell % columns * CELL + i % CELL;
}

/* ---- numbers ---- */

/* Half of a head turns by row, the other by column. */
static void fill_angles(struct sight_host *h, uint32_t head)
{
    const uint32_t half = head / 2, each = half / 2;
    for (uint32_t i = 0; i < h->patches; i++) {
        uint32_t at[2];
        place_of(h, i, &at[0], &at[1]);
        for (uint32_t k = 0; k < half; k++) {
            float power = (float)(2 * (k % each)) / (float)half;
            float angle = (float)at[k / each] * (1.0f / (float)pow(10000.0, (double)power));
            h->angles[((size_t)i * half + k) * 2] = cosf(angle);
            h->angles[((size_t)i * half + k) * 2 + 1] = sinf(angle);
        }
    }
}

/* Pixels of a patch, colour by colour; each frame is the same. */
static void fill_patches(struct sight_host *h, const struct lm_sight_net *s, const float *rgb)
{
    static const float clip_mean[] = { 0.48145466f, 0.4578275f, 0.40821073f },
                       clip_std[] = { 0.26862954f, 0.26130258f, 0.27577711f };
    const size_t p = s->patch, line = (size_t)h->wide * p;
    for (uint32_t i = 0; i < h->patches; i++) {
        uint32_t row, column;
        float *to = h->patch + (size_t)i * h->features;
        place_of(h, i, &row, &column);
        for (size_t c = 0; c < COLOURS; c++) {
            float mean = s->deep ? 0.5f : clip_mean[c], std = s->deep ? 0.5f : clip_std[c];
            float *frame = to + c * FRAMES * p * p;
            for (size_t y = 0; y < p; y++)
                for (size_t x = 0; x < p; x++)
                    frame[y * p + x] =
                        (rgb[((row * p + y) * line + column * p + x) * COLOURS + c] - mean) / std;
            memcpy(frame + p * p, frame, p * p * sizeof *frame);
        }
    }
}

/* Where n places lie on a side of the table, from its first to its last row, as torch.linspace
 * does it: from both ends. */
static float spread(uint32_t i, uint32_t n, uint32_t side)
{
    float step = n > 1 ? (float)(side - 1) / (float)(n - 1) : 0;
    return i < n / 2 || n == 1 ? step * (float)i : (float)(side - 1) - step * (float)(n - 1 - i);
}

/* The four rows of a table of side x side positions around each patch. */
static void fill_corners(struct sight_host *h, uint32_t side)
{
    for (uint32_t i = 0; i < h->patches; i++) {
        uint32_t at[2];
        place_of(h, i, &at[0], &at[1]);
        float y = spread(at[0], h->high, side), x = spread(at[1], h->wide, side);
        uint32_t y0 = (uint32_t)y, x0 = (uint32_t)x;
        uint32_t y1 = y0 + 1 < side ? y0 + 1 : side - 1, x1 = x0 + 1 < side ? x0 + 1 : side - 1;
        float dy = y - (float)y0, dx = x - (float)x0;
        const uint32_t row[] = { y0 * side + x0, y0 * side + x1, y1 * side + x0, y1 * side + x1 };
        const float share[] = { (1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx };
        for (size_t k = 0; k < 4; k++) {
            h->corner[k * h->patches + i] = (int32_t)row[k];
            h->share[k * h->patches + i] = share[k];
        }
    }
}

/* ---- memory ---- */

static struct sight_host *allocate(const struct lm_sight_net *s, uint32_t high, uint32_t wide)
{
    const size_t patches = (size_t)high * wide, cells = patches / (CELL * CELL);
    const size_t features = (size_t)COLOURS * FRAMES * s->patch * s->patch;
    const size_t head = (size_t)(s->width / s->heads);
    size_t floats = patches * (features + head + 8), more, bytes;
    if (!sz_mul(cells, sizeof(uint32_t) + sizeof(struct sight_run), &more) ||
        !sz_mul(floats, sizeof(float), &bytes))
        return NULL;
    struct sight_host *h = calloc(1, sizeof *h + bytes + more);
    if (!h)
        return NULL;
    h->high = high, h->wide = wide, h->patches = (uint32_t)patches, h->features = features;
    h->patch = (float *)(h + 1);
    h->angles = h->patch + patches * features;
    h->share = h->angles + patches * head;
    h->corner = (int32_t *)(h->share + 4 * patches);
    h->run = (struct sight_run *)(h->corner + 4 * patches);
    h->cell = (uint32_t *)(h->run + cells);
    return h;
}

/* The picture at the size it is looked at. */
static berth_status resized(const struct text_picture *p, size_t high, size_t wide, float **out,
                            berth_err *err)
{
    const struct resize_shape s = {
        .n = 1, .h = p->height, .w = p->width, .c = COLOURS, .oh = high, .ow = wide
    };
    *out = malloc(high * wide * COLOURS * sizeof **out); /* SIGHT_PATCHES_MAX bounds it */
    if (!*out)
        return err_set(err, BERTH_ENOMEM, "a picture of %zu x %zu", wide, high);
    return op_resize(RESIZE_BILINEAR, &s, p->rgb, *out, NULL, NULL, err);
}

berth_status sight_host_new(const struct lm_net *c, const struct text_picture *p,
                            struct sight_host **out, berth_err *err)
{
    const struct lm_sight_net *s = &c->sight;
    size_t high, wide;
    float *rgb = NULL;
    *out = NULL;
    if (!p->width || !p->height || p->width > 1u << 20 || p->height > 1u << 20)
        return err_set(err, BERTH_EINVAL, "a picture of %zu x %zu", p->width, p->height);
    sight_sides(p->height, p->width, s->patch, &high, &wide);
    high /= s->patch, wide /= s->patch;
    if (!high || !wide || high > SIGHT_PATCHES_MAX / wide)
        return err_set(err, BERTH_ELIMIT, "a picture of %zu x %zu is %zu x %zu patches", p->width,
                       p->height, wide, high);
    if (!(*out = allocate(s, (uint32_t)high, (uint32_t)wide)))
        return err_set(err, BERTH_ENOMEM, "a picture of %zu x %zu patches", wide, high);
    berth_status st = resized(p, high * s->patch, wide * s->patch, &rgb, err);
    if (!st) {
        order_cells(*out, !s->table);
        fill_angles(*out, (uint32_t)(s->width / s->heads));
        fill_patches(*out, s, rgb);
        if (s->table)
            fill_corners(*out, s->table);
    } else {
        free(*out);
        *out = NULL;
    }
    free(rgb);
    return st;
}
