/* What a pass of HunyuanVideo takes from the host: patches of latents, positions as angles,
 * text. */
#include "model/hunyuan_video/hunyuan_video.h"

#include "model/families.h"
#include "model/flux/flux.h"
#include "model/rope_table.h"

#include <stdlib.h>
#include <string.h>

#define THETA 256.0
#define PIXELS (HUNYUAN_PATCH * HUNYUAN_PATCH)

berth_status hunyuan_sizes(const struct family_batch *b, struct hunyuan_sizes *out, berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    *out = (struct hunyuan_sizes) { .text = b->tokens, .picture = tokens_count(&b->shape) };
    if (!tokens_moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    for (size_t i = 0; b->hidden && i < b->tokens; i++)
        out->text -= b->hidden[i];
    return out->text ? BERTH_OK
                     : err_set(err, BERTH_EINVAL, "a text of which nothing is to be seen");
}

/* What is to be seen of texts, and the mean of all of each. */
static void fill_text(const struct hunyuan_net *f, const struct family_batch *b,
                      struct hunyuan_host *host)
{
    const size_t wide = (size_t)f->context_dim;
    float *out = host->context.p;
    for (size_t i = 0; i < (size_t)b->shape.dim[0]; i++) {
        const float *text = b->context + i * b->tokens * wide;
        for (size_t c = 0; c < wide; c++) {
            double sum = 0;
            for (size_t n = 0; n < b->tokens; n++)
                sum += (double)text[n * wide + c];
            host->mean.p[i * wide + c] = (float)(sum / (double)b->tokens);
        }
        for (size_t n = 0; n < b->tokens; n++) {
            if (b->hidden && b->hidden[n])
                continue;
            memcpy(out, text + n * wide, wide * sizeof *out);
            out += wide;
        }
    }
}

/* Text stands at 0, where nothing is turned. */
static void fill_table(const struct hunyuan_net *f, const struct family_batch *b,
                       const struct hunyuan_sizes *s, float *out)
{
    const uint64_t wide = f->axis[0] + f->axis[1] + f->axis[2];
    for (uint64_t i = 0; i < s->text * wide; i++)
        *out++ = i % 2 ? 0.0f : 1.0f;
    tokens_angles(THETA, f->axis, &b->shape, (struct tokens_place) { 0, 0, 0 }, out);
}

void hunyuan_host_release(struct hunyuan_host *host)
{
    free(host->table.p);
    free(host->patches.p);
    free(host->result.p);
    free(host->context.p);
    free(host->mean.p);
    free(host->number.p);
    *host = (struct hunyuan_host) { .table = { NULL, 0 } };
}

berth_status hunyuan_host_fill(struct hunyuan_host *host, const struct hunyuan_net *f,
                               const struct family_batch *b, const struct hunyuan_sizes *s,
                               enum dtype act, berth_err *err)
{
    const uint64_t n = b->shape.dim[0];
    char text[SHAPE_TEXT_MAX];
    if (!tokens_room(&host->table, s->text + s->picture, f->axis[0] + f->axis[1] + f->axis[2], 1) ||
        !tokens_room(&host->patches, n, s->picture, f->in_channels * PIXELS) ||
        !tokens_room(&host->result, n, s->picture, f->out_channels * PIXELS) ||
        !tokens_room(&host->context, n, s->text, f->context_dim) ||
        !tokens_room(&host->mean, n, f->context_dim, 1) || !tokens_room(&host->number, n, 2, 1))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    tokens_from_batch(b, 0, host->patches.p);
    fill_table(f, b, s, host->table.p);
    fill_text(f, b, host);
    for (size_t i = 0; i < n; i++) {
        host->number.p[i] = b->t[i];
        host->number.p[n + i] =
            b->guidance ? flux_guidance(b->guidance[i], b->exact_guidance ? DT_F32 : act) : 0;
    }
    return BERTH_OK;
}
