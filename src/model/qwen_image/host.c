/* What a pass of Qwen-Image takes from the host: patches of latents, positions as angles. */
#include "model/qwen_image/qwen_image.h"

#include "model/families.h"
#include "model/rope_table.h"

#include "base/sz.h"

#include <stdlib.h>
#include <string.h>

#define THETA 10000.0
#define TIMES 1000.0f /* noise levels, before they are embedded */
#define PATCH QWEN_IMAGE_PATCH

uint64_t qwen_image_side(uint64_t n)
{
    return (n + PATCH - 1) / PATCH;
}

uint64_t qwen_image_tokens(const struct shape *s)
{
    return s->dim[2] * qwen_image_side(s->dim[3]) * qwen_image_side(s->dim[4]);
}

/* ---- sizes ---- */

static uint64_t seen(const struct family_batch *b)
{
    uint64_t n = b->tokens;
    for (size_t i = 0; b->hidden && i < b->tokens; i++)
        n -= b->hidden[i];
    return n;
}

/* So that sums of a few of them fit. */
static bool moderate(const struct shape *s)
{
    uint64_t n;
    return shape_count(s, &n) && n <= UINT32_MAX && s->dim[3] <= INT32_MAX &&
           s->dim[4] <= INT32_MAX;
}

static enum diffusion_ref_method method(const struct qwen_image_net *q,
                                        const struct family_batch *b)
{
    return b->ref_method != REF_OWN        ? b->ref_method
           : patch_keeps_refs(&b->patches) ? REF_INDEX_TIMESTEP_ZERO
                                           : q->refs;
}

berth_status qwen_image_sizes(const struct qwen_image_net *q, const struct family_batch *b,
                              struct qwen_image_sizes *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    enum diffusion_ref_method how = method(q, b);
    *out = (struct qwen_image_sizes) { .text = seen(b), .picture = qwen_image_tokens(&b->shape) };
    if (!moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    if (!out->text)
        return err_set(err, BERTH_EINVAL, "a text of which nothing is to be seen");
    if (b->refs > QWEN_IMAGE_REFS_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu pictures to look at, more than %d", b->refs,
                       QWEN_IMAGE_REFS_MAX);
    for (size_t i = 0; i < b->refs; i++) {
        if (!moderate(&b->ref[i].shape))
            return err_set(err, BERTH_ELIMIT, "a latent %s to look at",
                           shape_text(&b->ref[i].shape, text));
        out->refs += qwen_image_tokens(&b->ref[i].shape);
    }
    out->zero = b->refs && how == REF_INDEX_TIMESTEP_ZERO;
    return BERTH_OK;
}

/* ---- patches ---- */

/* A token's features are ordered channel, row, column of its pixels. Odd sizes wrap around to the
 * first row and column. */
float *qwen_image_patchify(const float *x, const struct shape *s, float *out)
{
    const size_t channels = (size_t)s->dim[1], frames = (size_t)s->dim[2];
    const size_t h = (size_t)s->dim[3], w = (size_t)s->dim[4];
    for (size_t t = 0; t < frames; t++)
        for (size_t i = 0; i < h; i += PATCH)
            for (size_t j = 0; j < w; j += PATCH)
                for (size_t c = 0; c < channels; c++) {
                    const float *from = x + (c * frames + t) * h * w;
                    for (size_t p = i; p < i + PATCH; p++)
                        for (size_t q = j; q < j + PATCH; q++)
                            *out++ = from[p % h * w + q % w];
                }
    return out;
}

/* And back; what was wrapped around is left out. */
static const float *unpatchify(const float *patches, const struct shape *s, float *out)
{
    const size_t channels = (size_t)s->dim[1], frames = (size_t)s->dim[2];
    const size_t h = (size_t)s->dim[3], w = (size_t)s->dim[4];
    for (size_t t = 0; t < frames; t++)
        for (size_t i = 0; i < h; i += PATCH)
            for (size_t j = 0; j < w; j += PATCH)
                for (size_t c = 0; c < channels; c++) {
                    float *to = out + (c * frames + t) * h * w;
                    for (size_t p = i; p < i + PATCH; p++)
                        for (size_t q = j; q < j + PATCH; q++, patches++)
                            if (p < h && q < w)
                                to[p * w + q] = *patches;
                }
    return patches;
}

static void fill_patches(const struct family_batch *b, bool refs, float *out)
{
    const size_t n = (size_t)b->shape.dim[0], each = (size_t)shape_inner(&b->shape, 1);
    for (size_t i = 0; i < n; i++) {
        out = qwen_image_patchify(b->x + i * each, &b->shape, out);
        for (size_t k = 0; refs && k < b->refs; k++)
            out =
                qwen_image_patchify(b->ref[i * b->refs + k].x, &b->ref[i * b->refs + k].shape, out);
    }
}

/* ---- positions ---- */

struct place { /* of a picture: its layer, and where its middle is */
    double layer, row, column;
};

/* Every patch of a latent. Each axis looks at one number only, so the first row and the first
 * column of a frame have all angles there are. Returns what is behind the last. */
static float *fill_picture(const struct qwen_image_net *q, const struct shape *s, struct place at,
                           float *out)
{
    const size_t rows = (size_t)qwen_image_side(s->dim[3]),
                 cols = (size_t)qwen_image_side(s->dim[4]);
    const size_t wide = q->head_dim, a0 = q->axis[0], a1 = q->axis[1], a2 = q->axis[2];
    const double top = at.row - (double)(rows / 2), left = at.column - (double)(cols / 2);
    for (size_t t = 0; t < (size_t)s->dim[2]; t++) {
        float *first = out;
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++, out += wide) {
                if (!i && !j)
                    rope_angles(THETA, s->dim[2] > 1 ? (double)t : at.layer, q->axis[0], out);
                else
                    memcpy(out, first, a0 * sizeof *out);
                if (j)
                    memcpy(out + a0, first + i * cols * wide + a0, a1 * sizeof *out);
                else
                    rope_angles(THETA, top + (double)i, q->axis[1], out + a0);
                if (i)
                    memcpy(out + a0 + a1, first + j * wide + a0 + a1, a2 * sizeof *out);
                else
                    rope_angles(THETA, left + (double)j, q->axis[2], out + a0 + a1);
            }
    }
    return out;
}

/* Text is on the diagonal, behind the picture's corner. */
static float *fill_text(const struct qwen_image_net *q, const struct family_batch *b, float *out)
{
    const uint64_t rows = qwen_image_side(b->shape.dim[3]) / 2,
                   cols = qwen_image_side(b->shape.dim[4]) / 2;
    const uint64_t first = rows > cols ? rows : cols;
    for (size_t i = 0; i < b->tokens; i++) {
        if (b->hidden && b->hidden[i])
            continue;
        for (size_t a = 0; a < QWEN_IMAGE_AXES; out += q->axis[a++])
            rope_angles(THETA, (double)(first + i), q->axis[a], out);
    }
    return out;
}

/* Pictures to look at, one after the other (qwen-image-edit.md 2). Offsets are latent pixels. */
static void fill_refs(const struct qwen_image_net *q, const struct family_batch *b, float *out)
{
    enum diffusion_ref_method how = method(q, b);
    uint64_t H = 0, W = 0;
    for (size_t i = 0; i < b->refs; i++) {
        const struct shape *s = &b->ref[i].shape;
        const uint64_t h = s->dim[3], w = s->dim[4];
        struct place at = { .layer = (double)(i + 1) };
        if (how == REF_NEGATIVE_INDEX)
            at.layer = -at.layer;
        if (how == REF_OFFSET || how == REF_UXO) {
            const uint64_t x = h + H > w + W ? W : 0, y = h + H > w + W ? 0 : H;
            at = (struct place) { 1, (double)qwen_image_side(y), (double)qwen_image_side(x) };
            H = h + y > H ? h + y : H;
            W = w + x > W ? w + x : W;
        }
        out = fill_picture(q, s, at, out);
    }
}

/* ---- buffers ---- */

void qwen_image_host_release(struct qwen_image_host *host)
{
    free(host->table.p);
    free(host->patches.p);
    free(host->result.p);
    free(host->context.p);
    free(host->time.p);
    free(host->steer.p);
    ref_cache_release(&host->cache);
    *host = (struct qwen_image_host) { .table = { NULL, 0 } };
}

bool qwen_image_room(struct qwen_image_buffer *to, uint64_t a, uint64_t b, uint64_t c)
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

/* What of the text is to be seen. */
static void fill_context(const struct qwen_image_net *q, const struct family_batch *b, float *out)
{
    const size_t wide = (size_t)q->context_dim, n = (size_t)b->shape.dim[0] * b->tokens;
    for (size_t i = 0; i < n; i++) {
        if (b->hidden[i % b->tokens])
            continue;
        memcpy(out, b->context + i * wide, wide * sizeof *out);
        out += wide;
    }
}

berth_status qwen_image_host_fill(struct qwen_image_host *host, const struct qwen_image_net *q,
                                  const struct family_batch *b, const struct qwen_image_sizes *s,
                                  berth_err *err)
{
    const uint64_t n = b->shape.dim[0], wide = q->in_channels * PATCH * PATCH;
    char text[SHAPE_TEXT_MAX];
    if (!qwen_image_room(&host->table, s->text + s->picture + s->refs, q->head_dim, 1) ||
        !qwen_image_room(&host->patches, n, s->picture + s->refs, wide) ||
        !qwen_image_room(&host->result, n, s->picture, q->out_channels * PATCH * PATCH) ||
        !qwen_image_room(&host->time, n, 2, 1) ||
        (b->hidden && !qwen_image_room(&host->context, n, s->text, q->context_dim)))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    fill_patches(b, !s->kept, host->patches.p);
    float *at = fill_text(q, b, host->table.p);
    at = fill_picture(q, &b->shape, (struct place) { 0, 0, 0 }, at);
    fill_refs(q, b, at);
    if (b->hidden)
        fill_context(q, b, host->context.p);
    for (size_t i = 0; i < n; i++) {
        host->time.p[i] = b->t[i] * TIMES;
        host->time.p[n + i] = 0;
    }
    return BERTH_OK;
}

void qwen_image_host_give(const struct qwen_image_host *host, const struct qwen_image_net *q,
                          const struct family_batch *b)
{
    struct shape s = b->shape;
    s.dim[1] = q->out_channels;
    const size_t each = (size_t)shape_inner(&s, 1);
    const float *from = host->result.p;
    for (size_t i = 0; i < (size_t)s.dim[0]; i++)
        from = unpatchify(from, &s, b->out + i * each);
}
