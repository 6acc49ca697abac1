/* omni: what stands in Z-Image's sequence beside a prompt and its picture (z-image.md 7).
 *
 * Pictures to look at come first to last, each with a text in front of it and, where the network
 * has a place for that, with what an encoder saw of it; then the prompt with the picture that is
 * made, then texts that are left over. Positions count on from one to the next: a text's tokens,
 * then one for its picture and one for what was seen of that. */
#include "model/zimage/zimage.h"

#include "model/families.h"
#include "model/rope_table.h"

#include <math.h>
#include <string.h>

#define SEEN_STEP 8 /* positions from patch to patch of what was seen */

static uint64_t up_to(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static size_t texts_of(const struct family_batch *b)
{
    return b->refs && b->beside ? b->beside->texts : 0;
}

size_t zimage_parts(const struct zimage_net *f, const struct family_batch *b, enum zimage_kind kind)
{
    const size_t texts = texts_of(b), left = texts > b->refs ? texts - b->refs : 0;
    if (kind == ZIMAGE_SEEN)
        return f->siglip_dim && b->refs ? b->refs + 1 : 0;
    return b->refs + 1 + (kind == ZIMAGE_TEXT ? left : 0);
}

/* The text that is the k-th of the sequence; NULL: it is the prompt, or there is none. */
static const struct diffusion_rows *text_at(const struct family_batch *b, size_t k)
{
    const size_t i = k < b->refs ? k : k - 1;
    return k != b->refs && i < texts_of(b) ? &b->beside->text[i] : NULL;
}

static const struct diffusion_rows *seen_at(const struct family_batch *b, size_t k)
{
    return k < b->refs && b->beside && k < b->beside->seens ? &b->beside->seen[k] : NULL;
}

/* Patches of a latent. */
static uint64_t patches(const struct shape *s)
{
    return up_to(s->dim[2], ZIMAGE_PATCH) / ZIMAGE_PATCH *
           (up_to(s->dim[3], ZIMAGE_PATCH) / ZIMAGE_PATCH);
}

static uint64_t rows_of(const struct family_batch *b, enum zimage_kind kind, size_t k)
{
    const struct diffusion_rows *r = kind == ZIMAGE_TEXT ? text_at(b, k) : seen_at(b, k);
    if (kind == ZIMAGE_PICTURE)
        return patches(k < b->refs ? &b->ref[k].shape : &b->shape);
    return kind == ZIMAGE_TEXT && k == b->refs ? b->tokens : r ? r->n : 0;
}

struct zimage_part zimage_part(const struct zimage_net *f, const struct family_batch *b,
                               enum zimage_kind kind, size_t k)
{
    const uint64_t n = rows_of(b, kind, k);
    return (struct zimage_part) { .rows = n, .tokens = n ? up_to(n, f->pad_to) : f->pad_to };
}

/* ---- positions ---- */

static void fill_row(const struct zimage_net *f, double first, double row, double col, float *at)
{
    rope_angles(f->theta, first, f->axis[0], at);
    rope_angles(f->theta, row, f->axis[1], at + f->axis[0]);
    rope_angles(f->theta, col, f->axis[2], at + f->axis[0] + f->axis[1]);
}

/* n pads at the origin. */
static float *fill_pads(const struct zimage_net *f, uint64_t n, float *out)
{
    for (; n; n--, out += f->head_dim)
        fill_row(f, 0, 0, 0, out);
    return out;
}

/* Where patch i of n that were seen lies, the last one on the last pixel of all: as torch.linspace
 * rounds it, from both ends. */
static double seen_place(size_t i, size_t n)
{
    const float last = (float)(n * SEEN_STEP - 1), step = n > 1 ? last / (float)(n - 1) : 0;
    return floor(
        (double)(i < n / 2 || n == 1 ? step * (float)i : last - step * (float)(n - 1 - i)));
}

/* rows x cols patches. Each axis looks at one number only, so the first row and the first column
 * have all angles there are. */
static float *fill_grid(const struct zimage_net *f, double first, size_t rows, size_t cols,
                        bool seen, float *out)
{
    const size_t wide = f->head_dim, a = f->axis[0] + f->axis[1];
    for (size_t k = 0; k < rows * cols; k++) {
        const size_t i = k / cols, j = k % cols;
        float *at = out + k * wide;
        if (i == 0 || j == 0) {
            fill_row(f, first, seen ? seen_place(i, rows) : (double)i,
                     seen ? seen_place(j, cols) : (double)j, at);
            continue;
        }
        memcpy(at, out + i * cols * wide, a * sizeof *at);
        memcpy(at + a, out + j * wide + a, f->axis[2] * sizeof *at);
    }
    return out + rows * cols * wide;
}

static float *fill_picture(const struct zimage_net *f, const struct family_batch *b, size_t k,
                           double first, float *out)
{
    const struct shape *s = k < b->refs ? &b->ref[k].shape : &b->shape;
    const struct zimage_part part = zimage_part(f, b, ZIMAGE_PICTURE, k);
    const size_t cols = (size_t)(up_to(s->dim[3], ZIMAGE_PATCH) / ZIMAGE_PATCH);
    out = fill_grid(f, first, (size_t)part.rows / cols, cols, false, out);
    return fill_pads(f, part.tokens - part.rows, out);
}

static float *fill_seen(const struct zimage_net *f, const struct family_batch *b, size_t k,
                        double first, float *out)
{
    const struct diffusion_rows *r = seen_at(b, k);
    const struct zimage_part part = zimage_part(f, b, ZIMAGE_SEEN, k);
    if (r)
        out = fill_grid(f, first, (size_t)r->rows, (size_t)r->cols, true, out);
    return fill_pads(f, part.tokens - part.rows, out);
}

void zimage_fill_table(const struct zimage_net *f, const struct family_batch *b, float *table)
{
    const size_t texts = zimage_parts(f, b, ZIMAGE_TEXT), seens = zimage_parts(f, b, ZIMAGE_SEEN);
    float *text = table, *seen = table, *picture;
    uint64_t at = 0;
    for (size_t k = 0; k < texts; k++)
        seen += zimage_part(f, b, ZIMAGE_TEXT, k).tokens * f->head_dim;
    picture = seen;
    for (size_t k = 0; k < seens; k++)
        picture += zimage_part(f, b, ZIMAGE_SEEN, k).tokens * f->head_dim;
    for (size_t k = 0; k < texts; k++) {
        const struct zimage_part part = zimage_part(f, b, ZIMAGE_TEXT, k);
        for (uint64_t i = 0; i < part.tokens; i++, text += f->head_dim)
            fill_row(f, (double)(at + i + 1), 0, 0, text);
        /* Where an encoder is asked, pads of text are not counted behind it. */
        at += seens || k > b->refs ? part.rows : part.tokens;
        if (k > b->refs)
            continue;
        if (seens)
            seen = fill_seen(f, b, k, (double)(at + 2), seen);
        picture = fill_picture(f, b, k, (double)(at + 1), picture);
        at += 2;
    }
}

/* ---- rows ---- */

void zimage_gather_texts(const struct zimage_net *f, const struct family_batch *b, size_t i,
                         float *out)
{
    const size_t texts = zimage_parts(f, b, ZIMAGE_TEXT), wide = (size_t)f->context_dim;
    for (size_t k = 0; k < texts; k++) {
        const struct diffusion_rows *r = text_at(b, k);
        const float *from = k == b->refs ? b->context + i * b->tokens * wide : r ? r->x : NULL;
        const size_t n = (size_t)rows_of(b, ZIMAGE_TEXT, k) * wide;
        if (from)
            memcpy(out, from, n * sizeof *out);
        out += n;
    }
}

/* The values of a picture that was seen are [rows, cols, width]; what the network was trained with
 * has them turned to [width, rows, cols] and then read as if they were not. */
static float *gather_seen(const struct diffusion_rows *r, float *out)
{
    const size_t n = (size_t)r->n, wide = (size_t)r->width;
    for (size_t c = 0; c < wide; c++)
        for (size_t k = 0; k < n; k++)
            *out++ = r->x[k * wide + c];
    return out;
}

void zimage_gather_seen(const struct zimage_net *f, const struct family_batch *b, float *out)
{
    for (size_t k = 0; f->siglip_dim && k < b->refs; k++)
        if (seen_at(b, k))
            out = gather_seen(seen_at(b, k), out);
}

/* ---- for all layers to be asked for ---- */

void zimage_usual_more(const struct zimage_net *f, struct family_batch *b)
{
    static const struct diffusion_rows text = { .n = 4 }, seen = { .n = 4, .rows = 2, .cols = 2 };
    static const struct diffusion_beside beside = {
        .text = &text, .texts = 1, .seen = &seen, .seens = 1
    };
    static const struct diffusion_ref ref = { .shape = { 4, { 1, 16, 4, 4 } } };
    if (!f->siglip_dim)
        return;
    b->ref = &ref;
    b->refs = 1;
    b->beside = &beside;
}
