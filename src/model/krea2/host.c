/* What a pass of Krea 2 takes from the host: patches of latents, positions as angles. */
#include "model/krea2/krea2.h"

#include "model/families.h"

#include <stdlib.h>
#include <string.h>

#define THETA 1000.0
#define TIMES 1000.0f /* noise levels, before they are embedded */
#define PIXELS (KREA2_PATCH * KREA2_PATCH)

/* ---- sizes ---- */

/* Text is not repeated for frames, so there is nothing that several of them could mean. */
static berth_status single(const struct shape *s, const char *what, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (s->dim[2] != 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Krea 2 knows single pictures: %s %s has %llu "
                       "frames",
                       what, shape_text(s, text), (unsigned long long)s->dim[2]);
    if (!tokens_moderate(s))
        return err_set(err, BERTH_ELIMIT, "%s %s", what, shape_text(s, text));
    return BERTH_OK;
}

berth_status krea2_sizes(const struct family_batch *b, struct krea2_sizes *out, berth_err *err)
{
    *out = (struct krea2_sizes) { .text = b->tokens,
                                  .picture = tokens_count(&b->shape),
                                  .looks = b->ref_method == REF_OWN ? 0 : b->refs,
                                  .zero = b->refs && b->ref_method == REF_INDEX_TIMESTEP_ZERO };
    if (b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "a text of %zu tokens", b->tokens);
    if (out->looks > KREA2_REFS_MAX)
        return err_set(err, BERTH_ELIMIT, "%zu pictures to look at, more than %d", out->looks,
                       KREA2_REFS_MAX);
    if (single(&b->shape, "a latent", err))
        return err->code;
    for (size_t i = 0; i < out->looks; i++) {
        if (single(&b->ref[i].shape, "a latent to look at", err))
            return err->code;
        out->refs += tokens_count(&b->ref[i].shape);
    }
    return BERTH_OK;
}

/* ---- positions ---- */

/* Positions that turn nothing: cosine 1, sine 0. */
static float *fill_still(uint64_t tokens, uint32_t wide, float *out)
{
    for (uint64_t i = 0; i < tokens * wide; i++)
        *out++ = i % 2 ? 0.0f : 1.0f;
    return out;
}

/* Text stands at 0; every picture counts its rows and columns from there, in a layer of its own. */
static void fill_table(const struct krea2_net *f, const struct family_batch *b, size_t looks,
                       float *out)
{
    out = fill_still(b->tokens, f->heads.wide, out);
    out = tokens_angles(THETA, f->axis, &b->shape, (struct tokens_place) { 0, 0, 0 }, out);
    for (size_t i = 0; i < looks; i++)
        out = tokens_angles(THETA, f->axis, &b->ref[i].shape,
                            (struct tokens_place) { (double)(i + 1), 0, 0 }, out);
}

/* ---- buffers ---- */

void krea2_host_release(struct krea2_host *host)
{
    free(host->table.p);
    free(host->still.p);
    free(host->patches.p);
    free(host->result.p);
    free(host->time.p);
    *host = (struct krea2_host) { .table = { NULL, 0 } };
}

berth_status krea2_host_fill(struct krea2_host *host, const struct krea2_net *f,
                             const struct family_batch *b, const struct krea2_sizes *s,
                             berth_err *err)
{
    const uint64_t n = b->shape.dim[0], still = s->text > f->taps ? s->text : f->taps;
    char text[SHAPE_TEXT_MAX];
    if (!tokens_room(&host->table, s->text + s->picture + s->refs, f->heads.wide, 1) ||
        !tokens_room(&host->still, still, f->text_heads.wide, 1) ||
        !tokens_room(&host->patches, n, s->picture + s->refs, f->in_channels * PIXELS) ||
        !tokens_room(&host->result, n, s->picture, f->out_channels * PIXELS) ||
        !tokens_room(&host->time, n, 2, 1))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    tokens_from_batch(b, s->looks, host->patches.p);
    fill_table(f, b, s->looks, host->table.p);
    fill_still(still, f->text_heads.wide, host->still.p);
    for (size_t i = 0; i < n; i++) {
        host->time.p[i] = b->t[i] * TIMES;
        host->time.p[n + i] = 0;
    }
    return BERTH_OK;
}
