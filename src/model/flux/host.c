/* What a pass of Flux takes from the host: patches of latents, positions as angles. */
#include "model/flux/flux.h"

#include "model/families.h"
#include "model/rope_table.h"

#include "base/sz.h"
#include "tensor/dtype.h"

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
    free(host->hint);
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

uint64_t flux_refs(const struct family_batch *b)
{
    uint64_t n = 0;
    for (size_t i = 0; i < b->refs; i++)
        n += flux_side(b->ref[i].shape.dim[2]) * flux_side(b->ref[i].shape.dim[3]);
    return n;
}

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

/* Every patch of a latent: patch (i, j) at (shift_t, i scale_y + shift_y, j scale_x + shift_x).
 * Each axis looks at one number only, so the first row and the first column have all angles there
 * are. Returns what is behind the last. */
static float *fill_picture(const struct flux_net *f, const struct shape *s,
                           const struct patch_positions *at, float *first)
{
    const size_t rows = (size_t)flux_side(s->dim[2]), cols = (size_t)flux_side(s->dim[3]);
    const size_t wide = f->head_dim, a0 = f->axis[0], a1 = f->axis[1], a2 = f->axis[2];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float *to = first + (i * cols + j) * wide;
            if (!i && !j)
                rope_angles(THETA, at->shift_t, f->axis[0], to);
            else
                memcpy(to, first, a0 * sizeof *to);
            if (j == 0)
                rope_angles(THETA, (double)i * at->scale_y + at->shift_y, f->axis[1], to + a0);
            else
                memcpy(to + a0, first + i * cols * wide + a0, a1 * sizeof *to);
            if (i == 0)
                rope_angles(THETA, (double)j * at->scale_x + at->shift_x, f->axis[2], to + a0 + a1);
            else
                memcpy(to + a0 + a1, first + j * wide + a0 + a1, a2 * sizeof *to);
        }
    return first + rows * cols * wide;
}

/* Moved so that the first patch is at these places; nodes move and scale on top of that. */
static struct patch_positions placed(const struct patch_positions *to, double layer, double row,
                                     double column)
{
    struct patch_positions at = *to;
    at.shift_t += layer;
    at.shift_y += row;
    at.shift_x += column;
    return at;
}

/* Pictures to look at, one after the other: in layers of their own, or in one, beside each other
 * along the shorter side; or (uxo) across the corner of the picture and of each other. */
static void fill_refs(const struct flux_net *f, const struct family_batch *b,
                      const struct patch_positions *to, float *out)
{
    uint64_t H = 0, W = 0; /* latent pixels that are taken */
    for (size_t i = 0; i < b->refs; i++) {
        const struct shape *s = &b->ref[i].shape;
        const uint64_t h = s->dim[2], w = s->dim[3];
        struct patch_positions at = placed(to, (double)(i + 1), 0, 0);
        if (b->ref_method == REF_UXO) {
            at = placed(to, 0, (double)(flux_side(b->shape.dim[2]) + flux_side(H)),
                        (double)(flux_side(b->shape.dim[3]) + flux_side(W)));
            H += h;
            W += w;
        } else if (b->ref_method != REF_INDEX) {
            const uint64_t x = h + H > w + W ? W : 0, y = h + H > w + W ? 0 : H;
            at = placed(to, 1, (double)flux_side(y), (double)flux_side(x));
            H = h + y > H ? h + y : H;
            W = w + x > W ? w + x : W;
        }
        out = fill_picture(f, s, &at, out);
    }
}

/* Text is at the origin; the picture too, or where nodes put it. */
static void fill_table(const struct flux_net *f, const struct family_batch *b,
                       const struct patch_positions *to, float *table)
{
    const size_t text = (b->tokens + b->tokens_before_n) * f->head_dim;
    for (size_t k = 0; k < text; k++)
        table[k] = k % 2 ? 0.0f : 1.0f;
    float *refs = fill_picture(f, &b->shape, to, table + text);
    fill_refs(f, b, to, refs);
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

/* Positions of a size are kept for the next pass; where there are pictures to look at, they are
 * made anew. */
static berth_status make_table(struct flux_host *host, const struct flux_net *f,
                               const struct family_batch *b, berth_err *err)
{
    const uint64_t h = b->shape.dim[2], w = b->shape.dim[3];
    size_t picture = (size_t)(flux_side(h) * flux_side(w) + flux_refs(b)); /* fits: patches do */
    size_t all, count, bytes;
    struct patch_positions to = { .scale_x = 1, .scale_y = 1, .scale_t = 1 };
    patch_moves(b, &to);
    const size_t text = b->tokens + b->tokens_before_n;
    if (host->table && !b->refs && host->tokens == text && host->h == h && host->w == w &&
        memcmp(&host->to, &to, sizeof to) == 0)
        return BERTH_OK;
    free(host->table);
    host->table = NULL;
    if (!sz_add(picture, text, &all) || !sz_mul(all, f->head_dim, &count) ||
        !sz_mul(count, sizeof(float), &bytes) || !(host->table = malloc(bytes)))
        return err_set(err, BERTH_ENOMEM, "positions of %zu tokens and %zu patches", text, picture);
    fill_table(f, b, &to, host->table);
    host->to = to;
    host->tokens = text;
    host->h = b->refs ? 0 : h;
    host->w = w;
    return BERTH_OK;
}

/* Floats of patches of latents with so many channels, and with `more` patches beside each. */
static bool patch_floats(const struct shape *s, uint64_t channels, uint64_t more, size_t *out)
{
    size_t picture;
    return sz_mul((size_t)flux_side(s->dim[2]), (size_t)flux_side(s->dim[3]), &picture) &&
           sz_add(picture, (size_t)more, &picture) && sz_mul(picture, (size_t)s->dim[0], out) &&
           sz_mul(*out, (size_t)channels * FLUX_PATCH * FLUX_PATCH, out);
}

/* Of each item its own, then those of what it looks at. */
static void fill_patches(const struct family_batch *b, const struct shape *s, float *out)
{
    const size_t each = (size_t)shape_inner(s, 1);
    struct shape one = *s;
    one.dim[0] = 1;
    for (size_t i = 0; i < (size_t)s->dim[0]; i++) {
        flux_patchify(b->x + i * each, &one, out);
        out += flux_side(one.dim[2]) * flux_side(one.dim[3]) * one.dim[1] * FLUX_PATCH * FLUX_PATCH;
        for (size_t k = 0; k < b->refs; k++) {
            const struct diffusion_ref *r = &b->ref[i * b->refs + k];
            flux_patchify(r->x, &r->shape, out);
            out += flux_side(r->shape.dim[2]) * flux_side(r->shape.dim[3]) * one.dim[1] *
                   FLUX_PATCH * FLUX_PATCH;
        }
    }
}

berth_status flux_host_fill(struct flux_host *host, const struct flux_net *f,
                            const struct family_batch *b, berth_err *err)
{
    struct shape in = b->shape;
    size_t patches, result, numbers;
    char text[SHAPE_TEXT_MAX];
    in.dim[1] = f->in_channels;
    if (!patch_floats(&in, f->in_channels, flux_refs(b), &patches) ||
        !patch_floats(&in, f->out_channels, 0, &result) ||
        !sz_mul((size_t)in.dim[0], GUIDANCE_AND_TIME, &numbers) ||
        !room(&host->patches, &host->patches_cap, patches) ||
        !room(&host->result, &host->result_cap, result) ||
        !room(&host->number, &host->number_cap, numbers))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&in, text));
    fill_patches(b, &in, host->patches);
    return make_table(host, f, b, err);
}
