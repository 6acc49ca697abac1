/* What a pass of Z-Image takes from the host: patches of latents, positions as angles. */
#include "model/zimage/zimage.h"

#include "model/families.h"
#include "model/rope_table.h"

#include "base/sz.h"

#include <stdlib.h>
#include <string.h>

void zimage_host_release(struct zimage_host *host)
{
    free(host->table);
    free(host->patches);
    free(host->result);
    free(host->time);
    free(host->zeros);
    free(host->steer);
    *host = (struct zimage_host) { 0 };
}

/* ---- sizes ---- */

static uint64_t up_to(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static uint64_t side(uint64_t n)
{
    return up_to(n, ZIMAGE_PATCH) / ZIMAGE_PATCH;
}

berth_status zimage_sizes(const struct zimage_net *f, const struct family_batch *b,
                          struct zimage_sizes *out, berth_err *err)
{
    const uint64_t h = b->shape.dim[2], w = b->shape.dim[3];
    if (h > UINT32_MAX || w > UINT32_MAX || b->tokens > UINT32_MAX) /* so that sums fit */
        return err_set(err, BERTH_ELIMIT, "latents of %llu x %llu with %zu tokens",
                       (unsigned long long)w, (unsigned long long)h, b->tokens);
    *out = (struct zimage_sizes) { .B = b->shape.dim[0],
                                   .text = b->tokens,
                                   .L = up_to(b->tokens, f->pad_to),
                                   .rows = side(h),
                                   .cols = side(w) };
    out->picture = out->rows * out->cols;
    out->I = up_to(out->picture, f->pad_to);
    return BERTH_OK;
}

/* ---- patches ---- */

void zimage_patchify(const float *x, const struct shape *s, float *out)
{
    const size_t n = (size_t)s->dim[0], channels = (size_t)s->dim[1], h = (size_t)s->dim[2];
    const size_t w = (size_t)s->dim[3], rows = (size_t)side(h), cols = (size_t)side(w);
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++)
                for (size_t p = i * ZIMAGE_PATCH; p < (i + 1) * ZIMAGE_PATCH; p++)
                    for (size_t q = j * ZIMAGE_PATCH; q < (j + 1) * ZIMAGE_PATCH; q++)
                        for (size_t c = 0; c < channels; c++)
                            *out++ = x[((b * channels + c) * h + p % h) * w + q % w];
}

/* One patch of latents of h x w, from pixel (top, left) on; item: its first channel. */
static void put_patch(const float *patch, size_t channels, size_t h, size_t w, size_t top,
                      size_t left, float *item)
{
    for (size_t p = top; p < top + ZIMAGE_PATCH; p++)
        for (size_t q = left; q < left + ZIMAGE_PATCH; q++, patch += channels)
            for (size_t c = 0; c < channels && p < h && q < w; c++)
                item[(c * h + p) * w + q] = -patch[c];
}

void zimage_unpatchify(const float *result, uint64_t tokens, uint64_t first, const struct shape *s,
                       float *out)
{
    const size_t n = (size_t)s->dim[0], channels = (size_t)s->dim[1], h = (size_t)s->dim[2];
    const size_t w = (size_t)s->dim[3], rows = (size_t)side(h), cols = (size_t)side(w);
    const size_t wide = channels * ZIMAGE_PATCH * ZIMAGE_PATCH;
    for (size_t b = 0; b < n; b++) {
        const float *patches = result + (b * (size_t)tokens + (size_t)first) * wide;
        for (size_t k = 0; k < rows * cols; k++)
            put_patch(patches + k * wide, channels, h, w, k / cols * ZIMAGE_PATCH,
                      k % cols * ZIMAGE_PATCH, out + b * channels * h * w);
    }
}

/* ---- positions ---- */

static void fill_row(const struct zimage_net *f, double first, double row, double col, float *at)
{
    rope_angles(f->theta, first, f->axis[0], at);
    rope_angles(f->theta, row, f->axis[1], at + f->axis[0]);
    rope_angles(f->theta, col, f->axis[2], at + f->axis[0] + f->axis[1]);
}

/* Text counts from 1 on, pads included; the picture's patches are all behind it, at their row and
 * column; its pads at the origin. Each axis looks at one number only, so the first row and the
 * first column have all angles there are. */
static void fill_table(const struct zimage_net *f, const struct zimage_sizes *z, float *table)
{
    const size_t wide = f->head_dim, a0 = f->axis[0], a1 = f->axis[1], a2 = f->axis[2];
    const size_t cols = (size_t)z->cols, picture = (size_t)z->picture;
    for (size_t t = 0; t < z->L; t++)
        fill_row(f, (double)t + 1, 0, 0, table + t * wide);
    float *first = table + (size_t)z->L * wide;
    for (size_t k = 0; k < picture; k++) {
        size_t i = k / cols, j = k % cols;
        float *at = first + k * wide;
        if (i == 0 || j == 0) {
            fill_row(f, (double)z->L + 1, (double)i, (double)j, at);
            continue;
        }
        memcpy(at, first + i * cols * wide, (a0 + a1) * sizeof *at);
        memcpy(at + a0 + a1, first + j * wide + a0 + a1, a2 * sizeof *at);
    }
    for (size_t k = picture; k < z->I; k++)
        fill_row(f, 0, 0, 0, first + k * wide);
}

/* ---- buffers ---- */

/* *p has room for n of `each` bytes; what was in it is gone. */
static void *room(void *p, size_t *cap, size_t n, size_t each)
{
    size_t bytes;
    if (n <= *cap)
        return p;
    free(p);
    *cap = 0;
    p = sz_mul(n, each, &bytes) ? calloc(1, bytes) : NULL;
    if (p)
        *cap = n;
    return p;
}

bool zimage_host_steer(struct zimage_host *host, size_t n)
{
    host->steer = room(host->steer, &host->steer_cap, n, sizeof(float));
    return host->steer != NULL;
}

static berth_status make_table(struct zimage_host *host, const struct zimage_net *f,
                               const struct family_batch *b, const struct zimage_sizes *z,
                               berth_err *err)
{
    const uint64_t h = b->shape.dim[2], w = b->shape.dim[3];
    size_t count, bytes;
    if (host->table && host->tokens == b->tokens && host->h == h && host->w == w)
        return BERTH_OK;
    free(host->table);
    host->table = NULL;
    if (!sz_mul((size_t)(z->L + z->I), f->head_dim, &count) ||
        !sz_mul(count, sizeof(float), &bytes) || !(host->table = malloc(bytes)))
        return err_set(err, BERTH_ENOMEM, "positions of %llu tokens",
                       (unsigned long long)(z->L + z->I));
    fill_table(f, z, host->table);
    host->tokens = b->tokens;
    host->h = h;
    host->w = w;
    return BERTH_OK;
}

static bool make_room(struct zimage_host *host, const struct zimage_net *f,
                      const struct zimage_sizes *z)
{
    const size_t pixels = ZIMAGE_PATCH * ZIMAGE_PATCH, B = (size_t)z->B;
    size_t in, out,
        pads = (size_t)(z->L - z->text > z->I - z->picture ? z->L - z->text : z->I - z->picture);
    if (!sz_mul((size_t)z->picture, B, &in) || !sz_mul(in, (size_t)f->in_channels * pixels, &in) ||
        !sz_mul((size_t)(z->L + z->I), B, &out) ||
        !sz_mul(out, (size_t)f->out_channels * pixels, &out) || !sz_mul(pads, B, &pads))
        return false;
    host->patches = room(host->patches, &host->patches_cap, in, sizeof(float));
    host->result = room(host->result, &host->result_cap, out, sizeof(float));
    host->time = room(host->time, &host->time_cap, B, sizeof(float));
    host->zeros = room(host->zeros, &host->zeros_cap, pads, sizeof(int32_t));
    return host->patches && host->result && host->time && (host->zeros || !pads);
}

berth_status zimage_host_fill(struct zimage_host *host, const struct zimage_net *f,
                              const struct family_batch *b, berth_err *err)
{
    struct shape in = b->shape;
    struct zimage_sizes z;
    char text[SHAPE_TEXT_MAX];
    in.dim[1] = f->in_channels;
    if (zimage_sizes(f, b, &z, err))
        return err->code;
    if (!make_room(host, f, &z))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&in, text));
    zimage_patchify(b->x, &in, host->patches);
    for (size_t i = 0; i < z.B; i++)
        host->time[i] = (1.0f - b->t[i]) * f->time_scale;
    return make_table(host, f, b, &z, err);
}
