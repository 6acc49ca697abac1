/* What a pass of Qwen-Image takes from the host: patches of latents, positions as angles. */
#include "model/qwen_image/qwen_image.h"

#include "model/families.h"
#include "model/rope_table.h"

#include <stdlib.h>
#include <string.h>

#define THETA 10000.0
#define TIMES 1000.0f /* noise levels, before they are embedded */
#define PATCH QWEN_IMAGE_PATCH

/* ---- sizes ---- */

static uint64_t seen(const struct family_batch *b)
{
    uint64_t n = b->tokens;
    for (size_t i = 0; b->hidden && i < b->tokens; i++)
        n -= b->hidden[i];
    return n;
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
    *out = (struct qwen_image_sizes) { .text = seen(b), .picture = tokens_count(&b->shape) };
    if (!tokens_moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    if (!out->text)
        return err_set(err, BERTH_EINVAL, "a text of which nothing is to be seen");
    if (b->refs > QWEN_IMAGE_REFS_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu pictures to look at, more than %d", b->refs,
                       QWEN_IMAGE_REFS_MAX);
    for (size_t i = 0; i < b->refs; i++) {
        if (!tokens_moderate(&b->ref[i].shape))
            return err_set(err, BERTH_ELIMIT, "a latent %s to look at",
                           shape_text(&b->ref[i].shape, text));
        out->refs += tokens_count(&b->ref[i].shape);
    }
    out->zero = b->refs && how == REF_INDEX_TIMESTEP_ZERO;
    return BERTH_OK;
}

/* ---- positions ---- */

/* Every patch of a latent; at: its layer, and where its middle is. Returns what is behind the
 * last. */
static float *fill_picture(const struct qwen_image_net *q, const struct shape *s,
                           struct tokens_place at, float *out)
{
    at.row -= (double)(tokens_side(s->dim[3]) / 2);
    at.column -= (double)(tokens_side(s->dim[4]) / 2);
    return tokens_angles(THETA, q->axis, s, at, out);
}

/* Text is on the diagonal, behind the picture's corner. */
static float *fill_text(const struct qwen_image_net *q, const struct family_batch *b, float *out)
{
    const uint64_t rows = tokens_side(b->shape.dim[3]) / 2, cols = tokens_side(b->shape.dim[4]) / 2;
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
        struct tokens_place at = { .layer = (double)(i + 1) };
        if (how == REF_NEGATIVE_INDEX)
            at.layer = -at.layer;
        if (how == REF_OFFSET || how == REF_UXO) {
            const uint64_t x = h + H > w + W ? W : 0, y = h + H > w + W ? 0 : H;
            at = (struct tokens_place) { 1, (double)tokens_side(y), (double)tokens_side(x) };
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
    free(host->hint.p);
    ref_cache_release(&host->cache);
    *host = (struct qwen_image_host) { .table = { NULL, 0 } };
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
    if (!tokens_room(&host->table, s->text + s->picture + s->refs, q->head_dim, 1) ||
        !tokens_room(&host->patches, n, s->picture + s->refs, wide) ||
        !tokens_room(&host->result, n, s->picture, q->out_channels * PATCH * PATCH) ||
        !tokens_room(&host->time, n, 2, 1) ||
        (b->hidden && !tokens_room(&host->context, n, s->text, q->context_dim)))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    tokens_from_batch(b, s->kept ? 0 : b->refs, host->patches.p);
    float *at = fill_text(q, b, host->table.p);
    at = fill_picture(q, &b->shape, (struct tokens_place) { 0, 0, 0 }, at);
    fill_refs(q, b, at);
    if (b->hidden)
        fill_context(q, b, host->context.p);
    for (size_t i = 0; i < n; i++) {
        host->time.p[i] = b->t[i] * TIMES;
        host->time.p[n + i] = 0;
    }
    return BERTH_OK;
}
