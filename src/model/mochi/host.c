/* What a pass of Mochi takes from the host: patches of latents, positions as angles, text. */
#include "model/mochi/mochi.h"

#include "model/families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TIMES 1000.0f /* noise levels, before they are embedded */
#define AREA 36864.0  /* that rows and columns are spread over */
#define PIXELS (MOCHI_PATCH * MOCHI_PATCH)

berth_status mochi_sizes(const struct family_batch *b, struct mochi_sizes *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    *out = (struct mochi_sizes) { .text = b->tokens, .picture = tokens_count(&b->shape) };
    if (!tokens_moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    for (size_t i = 0; b->hidden && i < b->tokens; i++)
        out->text -= b->hidden[i];
    if (b->shape.dim[3] % MOCHI_PATCH || b->shape.dim[4] % MOCHI_PATCH)
        return err_set(err, BERTH_EINVAL,
                       "latents %s: Mochi's sides are even, those of its pictures multiples of 16",
                       shape_text(&b->shape, text));
    return out->text ? BERTH_OK
                     : err_set(err, BERTH_EINVAL, "a text of which nothing is to be seen");
}

/* ---- positions ---- */

/* Cosines and sines of one axis at a place, [heads * half, 2]. */
static void turn(const struct mochi_net *f, size_t axis, float at, float *out)
{
    const size_t n = (size_t)(f->hidden / 2);
    for (size_t i = 0; i < n; i++) {
        const double angle = (double)at * (double)f->frequency[axis * n + i];
        out[2 * i] = (float)cos(angle);
        out[2 * i + 1] = (float)sin(angle);
    }
}

/* out = a turned by b, pair by pair. */
static void turn_on(const float *a, const float *b, size_t pairs, float *out)
{
    for (size_t i = 0; i < 2 * pairs; i += 2) {
        const float c = a[i] * b[i] - a[i + 1] * b[i + 1];
        out[i + 1] = a[i] * b[i + 1] + a[i + 1] * b[i];
        out[i] = c;
    }
}

/* Where the middle of cell i of n is. */
static float centre(uint64_t i, uint64_t n, double scale)
{
    return (float)(((double)i + 0.5 - (double)n / 2) * scale);
}

static berth_status fill_table(struct mochi_host *host, const struct mochi_net *f,
                               const struct family_batch *b, berth_err *err)
{
    const uint64_t T = b->shape.dim[2], h = b->shape.dim[3] / MOCHI_PATCH,
                   w = b->shape.dim[4] / MOCHI_PATCH;
    const size_t pairs = (size_t)(f->hidden / 2), each = 2 * pairs;
    const double scale = sqrt(AREA / ((double)w * (double)h));
    if (!tokens_room(&host->axes, T + h + w + 1, each, 1))
        return err_set(err, BERTH_ENOMEM, "positions of a latent");
    float *frame = host->axes.p, *row = frame + T * each, *column = row + h * each;
    float *both = column + w * each, *out = host->table.p;
    for (uint64_t i = 0; i < T; i++)
        turn(f, 0, (float)i, frame + i * each);
    for (uint64_t i = 0; i < h; i++)
        turn(f, 1, centre(i, h, scale), row + i * each);
    for (uint64_t i = 0; i < w; i++)
        turn(f, 2, centre(i, w, scale), column + i * each);
    for (uint64_t t = 0; t < T; t++)
        for (uint64_t y = 0; y < h; y++) {
            turn_on(frame + t * each, row + y * each, pairs, both);
            for (uint64_t x = 0; x < w; x++, out += each)
                turn_on(both, column + x * each, pairs, out);
        }
    return BERTH_OK;
}

/* ---- text ---- */

/* What is to be seen of a text, behind its mean. */
static void fill_context(const struct mochi_net *f, const struct family_batch *b,
                         const struct mochi_sizes *s, float *out)
{
    const size_t wide = (size_t)f->context_dim;
    for (size_t i = 0; i < (size_t)b->shape.dim[0]; i++) {
        const float *text = b->context + i * b->tokens * wide;
        float *mean = out;
        memset(mean, 0, wide * sizeof *mean);
        out += wide;
        for (size_t n = 0; n < b->tokens; n++) {
            if (b->hidden && b->hidden[n])
                continue;
            memcpy(out, text + n * wide, wide * sizeof *out);
            for (size_t c = 0; c < wide; c++)
                mean[c] += out[c] / (float)s->text;
            out += wide;
        }
    }
}

/* ---- buffers ---- */

void mochi_host_release(struct mochi_host *host)
{
    free(host->table.p);
    free(host->axes.p);
    free(host->patches.p);
    free(host->result.p);
    free(host->context.p);
    free(host->time.p);
    *host = (struct mochi_host) { .table = { NULL, 0 } };
}

berth_status mochi_host_fill(struct mochi_host *host, const struct mochi_net *f,
                             const struct family_batch *b, const struct mochi_sizes *s,
                             berth_err *err)
{
    const uint64_t n = b->shape.dim[0];
    char text[SHAPE_TEXT_MAX];
    if (!tokens_room(&host->table, s->picture, f->hidden, 1) ||
        !tokens_room(&host->patches, n, s->picture, f->channels * PIXELS) ||
        !tokens_room(&host->result, n, s->picture, f->channels * PIXELS) ||
        !tokens_room(&host->context, n, 1 + s->text, f->context_dim) ||
        !tokens_room(&host->time, n, 1, 1))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    tokens_from_batch(b, 0, host->patches.p);
    fill_context(f, b, s, host->context.p);
    for (size_t i = 0; i < n; i++)
        host->time.p[i] = (1.0f - b->t[i]) * TIMES;
    return fill_table(host, f, b, err);
}

/* The network's patches have their channels last, and its sign is the other one. */
void mochi_host_give(const struct mochi_host *host, const struct mochi_net *f,
                     const struct family_batch *b)
{
    const uint64_t *d = b->shape.dim, h = d[3], w = d[4], frames = d[0] * d[2];
    const float *from = host->result.p;
    for (uint64_t n = 0; n < frames; n++)
        for (uint64_t y = 0; y < h; y += MOCHI_PATCH)
            for (uint64_t x = 0; x < w; x += MOCHI_PATCH)
                for (uint64_t k = 0; k < PIXELS; k++)
                    for (uint64_t c = 0; c < f->channels; c++)
                        b->out[(((n / d[2] * f->channels + c) * d[2] + n % d[2]) * h + y +
                                k / MOCHI_PATCH) *
                                   w +
                               x + k % MOCHI_PATCH] = -*from++;
}
