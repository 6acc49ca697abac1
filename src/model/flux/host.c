/* What a pass of Flux takes from the host: patches of latents, positions as angles. */
#include "model/flux/flux.h"

#include "model/families.h"

#include "base/sz.h"
#include "tensor/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define THETA 10000.0
#define GUIDANCE_AND_TIME 2

void flux_host_release(struct flux_host *host)
{
    free(host->table);
    free(host->patches);
    free(host->result);
    free(host->number);
    *host = (struct flux_host) { 0 };
}

static float rounded(float x, enum dtype t)
{
    unsigned char raw[sizeof(double)];
    const struct dtype_desc *d = dtype_desc(t);
    d->from_f32(&x, raw, 1);
    d->to_f32(raw, &x, 1);
    return x;
}

float flux_guidance(float guidance, enum dtype act)
{
    return rounded(FLUX_TIMES * rounded(guidance, act), act);
}

/* ---- patches ---- */

void flux_patchify(const float *x, const struct shape *s, float *out)
{
    const size_t n = (size_t)s->dim[0], channels = (size_t)s->dim[1], h = (size_t)s->dim[2];
    const size_t w = (size_t)s->dim[3], rows = (size_t)flux_side(h), cols = (size_t)flux_side(w);
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++)
                for (size_t c = 0; c < channels; c++) {
                    const float *from = x + (b * channels + c) * h * w;
                    for (size_t p = i * FLUX_PATCH; p < (i + 1) * FLUX_PATCH; p++)
                        for (size_t q = j * FLUX_PATCH; q < (j + 1) * FLUX_PATCH; q++)
                            *out++ = from[p % h * w + q % w];
                }
}

void flux_unpatchify(const float *patches, const struct shape *s, float *out)
{
    const size_t n = (size_t)s->dim[0], channels = (size_t)s->dim[1], h = (size_t)s->dim[2];
    const size_t w = (size_t)s->dim[3], rows = (size_t)flux_side(h), cols = (size_t)flux_side(w);
    for (size_t b = 0; b < n; b++)
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++)
                for (size_t c = 0; c < channels; c++) {
                    float *to = out + (b * channels + c) * h * w;
                    for (size_t p = i * FLUX_PATCH; p < (i + 1) * FLUX_PATCH; p++)
                        for (size_t q = j * FLUX_PATCH; q < (j + 1) * FLUX_PATCH; q++, patches++)
                            if (p < h && q < w)
                                to[p * w + q] = *patches;
                }
}

/* ---- positions ---- */

/* Cosine and sine of one axis at a position, in double as the reference has them: dim / 2 pairs. */
static void fill_angles(double position, uint32_t dim, float *out)
{
    for (uint32_t j = 0; j < dim / 2; j++) {
        double angle = position * (1.0 / pow(THETA, 2.0 * j / dim));
        out[2 * j] = (float)cos(angle);
        out[2 * j + 1] = (float)sin(angle);
    }
}

/* Text is at the origin; patch (i, j) of the picture at (0, i, j), or where a node puts it. Each
 * axis looks at one number only, so the first row and the first column have all angles. */
static void fill_table(const struct flux_net *f, size_t tokens, size_t rows, size_t cols,
                       const struct patch_positions *to, float *table)
{
    const size_t wide = f->head_dim, a0 = f->axis[0], a1 = f->axis[1], a2 = f->axis[2];
    for (size_t t = 0; t < tokens; t++)
        for (size_t k = 0; k < wide; k++)
            table[t * wide + k] = k % 2 ? 0.0f : 1.0f;
    float *first = table + tokens * wide;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float *at = first + (i * cols + j) * wide;
            fill_angles(to->shift_t, f->axis[0], at);
            if (j == 0)
                fill_angles((double)i * to->scale_y + to->shift_y, f->axis[1], at + a0);
            else
                memcpy(at + a0, first + i * cols * wide + a0, a1 * sizeof *at);
            if (i == 0)
                fill_angles((double)j * to->scale_x + to->shift_x, f->axis[2], at + a0 + a1);
            else
                memcpy(at + a0 + a1, first + j * wide + a0 + a1, a2 * sizeof *at);
        }
}

/* ---- buffers ---- */

/* *p has room for n floats; what was in it is gone. */
static bool room(float **p, size_t *cap, size_t n)
{
    size_t bytes;
    if (n <= *cap)
        return true;
    free(*p);
    *cap = 0;
    *p = sz_mul(n, sizeof(float), &bytes) ? malloc(bytes) : NULL;
    if (*p)
        *cap = n;
    return *p != NULL;
}

static berth_status make_table(struct flux_host *host, const struct flux_net *f,
                               const struct family_batch *b, berth_err *err)
{
    const uint64_t h = b->shape.dim[2], w = b->shape.dim[3];
    const size_t rows = (size_t)flux_side(h), cols = (size_t)flux_side(w);
    const size_t picture = rows * cols; /* fits: patches do */
    size_t all, count, bytes;
    struct patch_positions to = { .scale_x = 1, .scale_y = 1, .scale_t = 1 };
    patch_moves(b, &to);
    if (host->table && host->tokens == b->tokens && host->h == h && host->w == w &&
        memcmp(&host->to, &to, sizeof to) == 0)
        return BERTH_OK;
    free(host->table);
    host->table = NULL;
    if (!sz_add(picture, b->tokens, &all) || !sz_mul(all, f->head_dim, &count) ||
        !sz_mul(count, sizeof(float), &bytes) || !(host->table = malloc(bytes)))
        return err_set(err, BERTH_ENOMEM, "positions of %zu tokens and %zu patches", b->tokens,
                       picture);
    fill_table(f, b->tokens, rows, cols, &to, host->table);
    host->to = to;
    host->tokens = b->tokens;
    host->h = h;
    host->w = w;
    return BERTH_OK;
}

/* Floats of patches of latents with so many channels. */
static bool patch_floats(const struct shape *s, uint64_t channels, size_t *out)
{
    size_t picture;
    return sz_mul((size_t)flux_side(s->dim[2]), (size_t)flux_side(s->dim[3]), &picture) &&
           sz_mul(picture, (size_t)s->dim[0], out) &&
           sz_mul(*out, (size_t)channels * FLUX_PATCH * FLUX_PATCH, out);
}

berth_status flux_host_fill(struct flux_host *host, const struct flux_net *f,
                            const struct family_batch *b, berth_err *err)
{
    struct shape in = b->shape;
    size_t patches, result, numbers;
    char text[SHAPE_TEXT_MAX];
    in.dim[1] = f->in_channels;
    if (!patch_floats(&in, f->in_channels, &patches) ||
        !patch_floats(&in, f->out_channels, &result) ||
        !sz_mul((size_t)in.dim[0], GUIDANCE_AND_TIME, &numbers) ||
        !room(&host->patches, &host->patches_cap, patches) ||
        !room(&host->result, &host->result_cap, result) ||
        !room(&host->number, &host->number_cap, numbers))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&in, text));
    flux_patchify(b->x, &in, host->patches);
    return make_table(host, f, b, err);
}
