/* What a pass of Z-Image takes from the host: patches of latents, texts, positions as angles. */
#include "model/zimage/zimage.h"

#include "model/families.h"

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
    free(host->texts);
    free(host->seen);
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

static berth_status moderate(const struct shape *s, bool look, berth_err *err)
{
    const uint64_t h = s->dim[2], w = s->dim[3];
    if (h > UINT16_MAX || w > UINT16_MAX) /* so that sums fit */
        return err_set(err, BERTH_ELIMIT, "latents of %llu x %llu", (unsigned long long)w,
                       (unsigned long long)h);
    if (look && (h % ZIMAGE_PATCH || w % ZIMAGE_PATCH))
        return err_set(err, BERTH_EINVAL,
                       "a latent to look at of %llu x %llu: Z-Image wants even sides",
                       (unsigned long long)w, (unsigned long long)h);
    return BERTH_OK;
}

static berth_status limits(const struct zimage_net *f, const struct family_batch *b, berth_err *err)
{
    const size_t texts = b->beside ? b->beside->texts : 0;
    uint64_t tokens = b->tokens;
    if (b->refs > ZIMAGE_REFS_MAX || texts > ZIMAGE_TEXTS_MAX)
        return err_set(err, BERTH_ELIMIT,
                       "%zu pictures to look at and %zu texts, at most %d and %d are taken",
                       b->refs, texts, ZIMAGE_REFS_MAX, ZIMAGE_TEXTS_MAX);
    if (b->refs && b->controls)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "Z-Image looks at pictures or is steered by a control network, not both");
    if (moderate(&b->shape, false, err))
        return err->code;
    for (size_t i = 0; i < b->refs; i++)
        if (moderate(&b->ref[i].shape, true, err))
            return err->code;
    for (size_t i = 0; i < texts; i++)
        tokens += b->beside->text[i].n < UINT32_MAX ? b->beside->text[i].n : UINT32_MAX;
    for (size_t i = 0; f->siglip_dim && b->beside && i < b->beside->seens; i++)
        tokens += b->beside->seen[i].n < UINT32_MAX ? b->beside->seen[i].n : UINT32_MAX;
    return tokens > UINT32_MAX
               ? err_set(err, BERTH_ELIMIT, "texts of %llu tokens", (unsigned long long)tokens)
               : BERTH_OK;
}

berth_status zimage_sizes(const struct zimage_net *f, const struct family_batch *b,
                          struct zimage_sizes *out, berth_err *err)
{
    uint64_t tokens[ZIMAGE_KINDS] = { 0 };
    if (limits(f, b, err))
        return err->code;
    *out = (struct zimage_sizes) { .B = b->shape.dim[0] };
    for (unsigned kind = 0; kind < ZIMAGE_KINDS; kind++)
        for (size_t k = 0; k < zimage_parts(f, b, kind); k++) {
            const struct zimage_part part = zimage_part(f, b, kind, k);
            out->rows[kind] += part.rows;
            tokens[kind] += part.tokens;
            if (kind == ZIMAGE_TEXT && k < b->refs)
                out->told += part.tokens;
        }
    const struct zimage_part made = zimage_part(f, b, ZIMAGE_PICTURE, b->refs);
    out->L = tokens[ZIMAGE_TEXT];
    out->V = tokens[ZIMAGE_SEEN];
    out->picture = made.rows;
    out->I = made.tokens;
    out->R = tokens[ZIMAGE_PICTURE] - made.tokens;
    out->T = out->L + out->V + out->R + out->I;
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
    if (host->table && !b->refs && host->tokens == b->tokens && host->h == h && host->w == w)
        return BERTH_OK;
    free(host->table);
    host->table = NULL;
    if (!sz_mul((size_t)z->T, f->head_dim, &count) || !sz_mul(count, sizeof(float), &bytes) ||
        !(host->table = malloc(bytes)))
        return err_set(err, BERTH_ENOMEM, "positions of %llu tokens", (unsigned long long)z->T);
    zimage_fill_table(f, b, host->table);
    host->tokens = b->tokens;
    host->h = b->refs ? 0 : h; /* sizes of those nobody remembers */
    host->w = w;
    return BERTH_OK;
}

/* Room for what pictures to look at bring along. */
static bool make_room_beside(struct zimage_host *host, const struct zimage_net *f,
                             const struct zimage_sizes *z)
{
    const size_t B = (size_t)z->B;
    size_t texts, seen;
    if (!sz_mul((size_t)z->rows[ZIMAGE_TEXT], (size_t)f->context_dim, &texts) ||
        !sz_mul(texts, B, &texts) ||
        !sz_mul((size_t)z->rows[ZIMAGE_SEEN], (size_t)f->siglip_dim, &seen) ||
        !sz_mul(seen, B, &seen))
        return false;
    host->texts = room(host->texts, &host->texts_cap, texts, sizeof(float));
    host->seen = room(host->seen, &host->seen_cap, seen, sizeof(float));
    return host->texts && (host->seen || !seen);
}

static bool make_room(struct zimage_host *host, const struct zimage_net *f,
                      const struct family_batch *b, const struct zimage_sizes *z)
{
    const size_t pixels = ZIMAGE_PATCH * ZIMAGE_PATCH, B = (size_t)z->B;
    size_t in, out, pads;
    if (!sz_mul((size_t)z->rows[ZIMAGE_PICTURE], B, &in) ||
        !sz_mul(in, (size_t)f->in_channels * pixels, &in) || !sz_mul((size_t)z->I, B, &out) ||
        !sz_mul(out, (size_t)f->out_channels * pixels, &out) || !sz_mul(f->pad_to, B, &pads))
        return false;
    host->patches = room(host->patches, &host->patches_cap, in, sizeof(float));
    host->result = room(host->result, &host->result_cap, out, sizeof(float));
    host->time = room(host->time, &host->time_cap, 2 * B, sizeof(float));
    host->zeros = room(host->zeros, &host->zeros_cap, pads, sizeof(int32_t));
    return host->patches && host->result && host->time && host->zeros &&
           (!b->refs || make_room_beside(host, f, z));
}

/* What the network embeds: pictures to look at before the one that is made, all of an item
 * together. */
static void gather(struct zimage_host *host, const struct zimage_net *f,
                   const struct family_batch *b, const struct zimage_sizes *z)
{
    const size_t pixels = (size_t)f->in_channels * ZIMAGE_PATCH * ZIMAGE_PATCH, refs = b->refs;
    struct shape one = b->shape;
    float *out = host->patches;
    one.dim[0] = 1;
    one.dim[1] = f->in_channels;
    for (size_t i = 0; i < z->B; i++) {
        for (size_t k = 0; k < refs; k++) {
            zimage_patchify(b->ref[i * refs + k].x, &b->ref[i * refs + k].shape, out);
            out += zimage_part(f, b, ZIMAGE_PICTURE, k).rows * pixels;
        }
        zimage_patchify(b->x + i * (size_t)shape_inner(&one, 1), &one, out);
        out += z->picture * pixels;
        if (!refs)
            continue;
        zimage_gather_texts(f, b, i, host->texts + i * z->rows[ZIMAGE_TEXT] * f->context_dim);
        zimage_gather_seen(f, b, host->seen + i * z->rows[ZIMAGE_SEEN] * f->siglip_dim);
    }
}

berth_status zimage_host_fill(struct zimage_host *host, const struct zimage_net *f,
                              const struct family_batch *b, berth_err *err)
{
    struct zimage_sizes z;
    char text[SHAPE_TEXT_MAX];
    if (zimage_sizes(f, b, &z, err))
        return err->code;
    if (!make_room(host, f, b, &z))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    gather(host, f, b, &z);
    for (size_t i = 0; i < z.B; i++) {
        host->time[i] = (1.0f - b->t[i]) * f->time_scale;
        host->time[z.B + i] = f->time_scale; /* free of noise */
    }
    return make_table(host, f, b, &z, err);
}
