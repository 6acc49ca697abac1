/* What a pass of Flux.2 takes from the host: latents as tokens, positions as angles. */
#include "model/flux2/flux2.h"

#include "model/families.h"
#include "model/flux/flux.h"
#include "model/rope_table.h"

#include "base/sz.h"

#include <stdlib.h>
#include <string.h>

#define THETA 2000.0
#define REF_STEP 10.0 /* between layers of pictures to look at */

/* ---- sizes ---- */

/* So that sums of a few of them fit. */
static bool moderate(const struct shape *s)
{
    uint64_t n;
    return shape_count(s, &n) && n <= UINT32_MAX && s->dim[2] <= INT32_MAX &&
           s->dim[3] <= INT32_MAX;
}

static uint64_t pixels(const struct shape *s)
{
    return s->dim[2] * s->dim[3];
}

static enum diffusion_ref_method method(const struct family_batch *b)
{
    return b->ref_method != REF_OWN        ? b->ref_method
           : patch_keeps_refs(&b->patches) ? REF_INDEX_TIMESTEP_ZERO
                                           : REF_INDEX;
}

berth_status flux2_sizes(const struct family_batch *b, struct flux2_sizes *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    *out = (struct flux2_sizes) { .text = b->tokens, .picture = pixels(&b->shape) };
    if (!moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    if (b->refs > FLUX2_REFS_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu pictures to look at, more than %d", b->refs,
                       FLUX2_REFS_MAX);
    for (size_t i = 0; i < b->refs; i++) {
        if (!moderate(&b->ref[i].shape))
            return err_set(err, BERTH_ELIMIT, "a latent %s to look at",
                           shape_text(&b->ref[i].shape, text));
        out->refs += pixels(&b->ref[i].shape);
    }
    out->zero = b->refs && method(b) == REF_INDEX_TIMESTEP_ZERO;
    return BERTH_OK;
}

/* ---- tokens: the channels of a pixel side by side ---- */

static float *to_tokens(const float *x, const struct shape *s, float *out)
{
    const size_t channels = (size_t)s->dim[1], n = (size_t)pixels(s);
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < channels; c++)
            *out++ = x[c * n + i];
    return out;
}

static void fill_tokens(const struct family_batch *b, bool refs, float *out)
{
    const size_t n = (size_t)b->shape.dim[0], each = (size_t)shape_inner(&b->shape, 1);
    for (size_t i = 0; i < n; i++) {
        out = to_tokens(b->x + i * each, &b->shape, out);
        for (size_t k = 0; refs && k < b->refs; k++)
            out = to_tokens(b->ref[i * b->refs + k].x, &b->ref[i * b->refs + k].shape, out);
    }
}

void flux2_host_give(const struct flux2_host *host, const struct flux2_net *f,
                     const struct family_batch *b)
{
    const size_t n = (size_t)pixels(&b->shape), channels = (size_t)f->out_channels;
    const float *from = host->result.p;
    float *out = b->out;
    for (size_t k = 0; k < (size_t)b->shape.dim[0]; k++, out += n * channels)
        for (size_t i = 0; i < n; i++)
            for (size_t c = 0; c < channels; c++)
                out[c * n + i] = *from++;
}

/* ---- positions ---- */

/* A token at (layer, row, column, word); returns what is behind it. */
static float *fill_token(const struct flux2_net *f, const double at[FLUX2_AXES], float *out)
{
    for (size_t a = 0; a < FLUX2_AXES; a++, out += f->axis)
        rope_angles(THETA, at[a], f->axis, out);
    return out;
}

/* Every pixel of a latent: (i, j) at (shift_t, i scale_y + shift_y, j scale_x + shift_x, 0). Each
 * axis looks at one number only, so the first row and the first column have all angles there are.
 * Returns what is behind the last. */
static float *fill_picture(const struct flux2_net *f, const struct shape *s,
                           const struct patch_positions *at, float *first)
{
    const size_t rows = (size_t)s->dim[2], cols = (size_t)s->dim[3], wide = f->head_dim;
    const size_t row = f->axis, column = row + f->axis, bytes = f->axis * sizeof *first;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float *to = first + (i * cols + j) * wide;
            if (!i || !j) {
                fill_token(f,
                           (const double[]) { at->shift_t, (double)i * at->scale_y + at->shift_y,
                                              (double)j * at->scale_x + at->shift_x, 0 },
                           to);
                continue;
            }
            memcpy(to, first, wide * sizeof *to);
            memcpy(to + row, first + i * cols * wide + row, bytes);
            memcpy(to + column, first + j * wide + column, bytes);
        }
    return first + rows * cols * wide;
}

/* Moved so that the first pixel is at these places; nodes move and scale on top of that. */
static struct patch_positions placed(const struct patch_positions *to, double layer, double row,
                                     double column)
{
    struct patch_positions at = *to;
    at.shift_t += layer;
    at.shift_y += row;
    at.shift_x += column;
    return at;
}

/* Pictures to look at, one after the other: in layers of their own, ten apart, or in one, beside
 * each other along the shorter side; or (uxo) across the corner of the picture and of each
 * other. */
static void fill_refs(const struct flux2_net *f, const struct family_batch *b,
                      const struct patch_positions *to, float *out)
{
    const enum diffusion_ref_method how = method(b);
    uint64_t H = 0, W = 0; /* pixels that are taken */
    for (size_t i = 0; i < b->refs; i++) {
        const struct shape *s = &b->ref[i].shape;
        const uint64_t h = s->dim[2], w = s->dim[3];
        struct patch_positions at = placed(to, REF_STEP * (double)(i + 1), 0, 0);
        if (how == REF_UXO) {
            at = placed(to, 0, (double)(b->shape.dim[2] + H), (double)(b->shape.dim[3] + W));
            H += h;
            W += w;
        } else if (how != REF_INDEX && how != REF_INDEX_TIMESTEP_ZERO) {
            const uint64_t x = h + H > w + W ? W : 0, y = h + H > w + W ? 0 : H;
            at = placed(to, 1, (double)y, (double)x);
            H = h + y > H ? h + y : H;
            W = w + x > W ? w + x : W;
        }
        out = fill_picture(f, s, &at, out);
    }
}

static void fill_table(const struct flux2_net *f, const struct family_batch *b, float *out)
{
    struct patch_positions to = { .scale_x = 1, .scale_y = 1, .scale_t = 1 };
    patch_moves(b, &to);
    for (size_t i = 0; i < b->tokens; i++)
        out = fill_token(f, (const double[]) { 0, 0, 0, (double)i }, out);
    fill_refs(f, b, &to, fill_picture(f, &b->shape, &to, out));
}

/* ---- buffers ---- */

void flux2_host_release(struct flux2_host *host)
{
    free(host->table.p);
    free(host->tokens.p);
    free(host->result.p);
    free(host->number.p);
    ref_cache_release(&host->cache);
    *host = (struct flux2_host) { .table = { NULL, 0 } };
}

/* Room for a * b * c floats; what was in it is gone. */
static bool room(struct flux2_buffer *to, uint64_t a, uint64_t b, uint64_t c)
{
    size_t n, bytes;
    if (!sz_mul((size_t)a, (size_t)b, &n) || !sz_mul(n, (size_t)c, &n) ||
        !sz_mul(n, sizeof(float), &bytes))
        return false;
    if (n <= to->cap)
        return true;
    free(to->p);
    to->cap = 0;
    to->p = malloc(bytes);
    if (to->p)
        to->cap = n;
    return to->p != NULL;
}

static void fill_numbers(const struct family_batch *b, enum dtype act, float *out)
{
    const size_t n = (size_t)b->shape.dim[0];
    for (size_t i = 0; i < n; i++) {
        out[i] = b->t[i] * FLUX_TIMES;
        out[n + i] = 0;
        out[2 * n + i] =
            b->guidance ? flux_guidance(b->guidance[i], b->exact_guidance ? DT_F32 : act) : 0;
    }
}

berth_status flux2_host_fill(struct flux2_host *host, const struct flux2_net *f,
                             const struct family_batch *b, const struct flux2_sizes *s,
                             enum dtype act, berth_err *err)
{
    const uint64_t n = b->shape.dim[0];
    char text[SHAPE_TEXT_MAX];
    if (!room(&host->table, s->text + s->picture + s->refs, f->head_dim, 1) ||
        !room(&host->tokens, n, s->picture + s->refs, f->in_channels) ||
        !room(&host->result, n, s->picture, f->out_channels) || !room(&host->number, n, 3, 1))
        return err_set(err, BERTH_ENOMEM, "tokens of latents %s", shape_text(&b->shape, text));
    fill_tokens(b, !s->kept, host->tokens.p);
    fill_table(f, b, host->table.p);
    fill_numbers(b, act, host->number.p);
    return BERTH_OK;
}
