/* What a pass of Wan takes from the host: patches of latents, positions as angles, what else goes
 * in. */
#include "model/wan/wan.h"

#include "model/families.h"
#include "model/rope_table.h"

#include <stdlib.h>
#include <string.h>

#define THETA 10000.0
#define PATCH WAN_PATCH
#define PIXELS (PATCH * PATCH)

/* ---- sizes ---- */

static const struct diffusion_extra *extra(const struct family_batch *b, size_t item,
                                           enum diffusion_extra_kind kind)
{
    for (size_t i = 0; i < b->extras; i++)
        if (b->extra[item * b->extras + i].kind == kind)
            return &b->extra[item * b->extras + i];
    return NULL;
}

/* What CLIP vision saw: [1, tokens, WAN_SEEN_WIDTH]. Of those with positions the first count. */
static berth_status count_seen(const struct wan_net *f, const struct family_batch *b,
                               struct wan_sizes *out, berth_err *err)
{
    const struct diffusion_extra *x = extra(b, 0, EXTRA_SEEN);
    char text[SHAPE_TEXT_MAX];
    if (!x || !f->sees)
        return BERTH_OK;
    if (x->shape.ndim != 3 || x->shape.dim[2] != WAN_SEEN_WIDTH || !x->shape.dim[1])
        return err_set(err, BERTH_EINVAL,
                       "Wan looks at pictures as CLIP vision H sees them, [1, tokens, %d], not %s",
                       WAN_SEEN_WIDTH, shape_text(&x->shape, text));
    out->seen = x->shape.dim[1];
    if (f->seen_most && out->seen > f->seen_most)
        out->seen = f->seen_most;
    return BERTH_OK;
}

static berth_status count_ref(const struct wan_net *f, const struct family_batch *b,
                              struct wan_sizes *out, berth_err *err)
{
    if (!f->ref_channels || !b->refs)
        return BERTH_OK;
    const struct shape *s = &b->ref[b->refs - 1].shape;
    char text[SHAPE_TEXT_MAX];
    if (s->dim[3] / PATCH != out->rows || s->dim[4] / PATCH != out->columns)
        return err_set(err, BERTH_EINVAL,
                       "Wan looks at pictures of the video's size in whole patches: a latent %s "
                       "for %llu x %llu of them",
                       shape_text(s, text), (unsigned long long)out->rows,
                       (unsigned long long)out->columns);
    out->ref = out->rows * out->columns;
    return BERTH_OK;
}

berth_status wan_sizes(const struct wan_net *f, const struct family_batch *b, struct wan_sizes *out,
                       berth_err *err)
{
    const uint64_t *d = b->shape.dim;
    char text[SHAPE_TEXT_MAX];
    if (!tokens_moderate(&b->shape) || b->tokens > UINT32_MAX)
        return err_set(err, BERTH_ELIMIT, "latents %s with %zu tokens", shape_text(&b->shape, text),
                       b->tokens);
    *out = (struct wan_sizes) {
        .frames = d[2], .rows = tokens_side(d[3]), .columns = tokens_side(d[4]), .times = 1
    };
    out->video = out->kept = out->frames * out->rows * out->columns;
    if (count_seen(f, b, out, err) || count_ref(f, b, out, err))
        return err->code;
    if (b->mask)
        out->times = d[2];
    if ((out->ref + out->video) % out->times)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "latents %s of which some are known, with a picture to look at: their times "
                       "are not shared out evenly",
                       shape_text(&b->shape, text));
    return BERTH_OK;
}

/* ---- positions ---- */

struct line { /* positions along an axis */
    double first, step;
    uint64_t n;
};

static float *fill_grid(const struct wan_net *f, struct line t, struct line h, struct line w,
                        float *out)
{
    for (uint64_t i = 0; i < t.n; i++)
        for (uint64_t j = 0; j < h.n; j++)
            for (uint64_t k = 0; k < w.n; k++) {
                rope_angles(THETA, t.first + (double)i * t.step, f->axis[0], out);
                out += f->axis[0];
                rope_angles(THETA, h.first + (double)j * h.step, f->axis[1], out);
                out += f->axis[1];
                rope_angles(THETA, w.first + (double)k * w.step, f->axis[2], out);
                out += f->axis[2];
            }
    return out;
}

/* A picture in front is frame 0. */
static void fill_table(const struct wan_net *f, const struct family_batch *b,
                       const struct wan_sizes *s, float *out)
{
    struct patch_positions at = { .scale_x = 1, .scale_y = 1, .scale_t = 1 };
    patch_moves(b, &at);
    struct line t = { at.shift_t, at.scale_t, s->frames };
    const struct line h = { at.shift_y, at.scale_y, s->rows },
                      w = { at.shift_x, at.scale_x, s->columns };
    if (s->ref) {
        t.n++;
        out = fill_grid(f, (struct line) { t.first, t.step, 1 }, h, w, out);
        t.first += t.step;
        t.n--;
    }
    fill_grid(f, t, h, w, out);
}

/* ---- buffers ---- */

void wan_host_release(struct wan_host *host)
{
    free(host->table.p);
    free(host->patches.p);
    free(host->ref.p);
    free(host->seen.p);
    free(host->result.p);
    free(host->time.p);
    *host = (struct wan_host) { .table = { NULL, 0 } };
}

static void fill_seen(const struct family_batch *b, const struct wan_sizes *s, float *out)
{
    const size_t n = (size_t)s->seen * WAN_SEEN_WIDTH;
    for (size_t i = 0; n && i < (size_t)b->shape.dim[0]; i++, out += n)
        memcpy(out, extra(b, i, EXTRA_SEEN)->x, n * sizeof *out);
}

/* The first frame of the last picture, in whole patches. */
static void fill_ref(const struct family_batch *b, const struct wan_sizes *s, float *out)
{
    for (size_t i = 0; s->ref && i < (size_t)b->shape.dim[0]; i++) {
        const struct diffusion_ref *ref = &b->ref[i * b->refs + b->refs - 1];
        const size_t h = (size_t)ref->shape.dim[3], w = (size_t)ref->shape.dim[4];
        const size_t plane = (size_t)ref->shape.dim[2] * h * w;
        for (size_t y = 0; y + 1 < h; y += PATCH)
            for (size_t x = 0; x + 1 < w; x += PATCH)
                for (size_t c = 0; c < (size_t)ref->shape.dim[1]; c++)
                    for (size_t k = 0; k < PIXELS; k++)
                        *out++ = ref->x[c * plane + (y + k / PATCH) * w + x + k % PATCH];
    }
}

/* Of what is known of a frame there is no noise: its time is the mean of its pixels'. */
static void fill_times(const struct family_batch *b, const struct wan_sizes *s, float *out)
{
    const size_t hw = (size_t)(b->shape.dim[3] * b->shape.dim[4]);
    const float *mask = b->mask;
    for (size_t i = 0; i < (size_t)b->shape.dim[0]; i++)
        for (size_t t = 0; t < (size_t)s->times; t++) {
            double sum = 0;
            for (size_t k = 0; mask && k < hw; k++)
                sum += (double)*mask++;
            *out++ = b->mask ? (float)(sum / (double)hw) * b->t[i] : b->t[i];
        }
}

berth_status wan_host_fill(struct wan_host *host, const struct wan_net *f,
                           const struct family_batch *b, const struct wan_sizes *s, berth_err *err)
{
    const uint64_t n = b->shape.dim[0];
    char text[SHAPE_TEXT_MAX];
    if (!tokens_room(&host->table, s->ref + s->video, WAN_HEAD, 1) ||
        !tokens_room(&host->patches, n, s->video, f->in_channels * PIXELS) ||
        !tokens_room(&host->ref, n, s->ref, f->ref_channels * PIXELS) ||
        !tokens_room(&host->seen, n, s->seen, WAN_SEEN_WIDTH) ||
        !tokens_room(&host->result, n, s->kept, f->out_channels * PIXELS) ||
        !tokens_room(&host->time, n, s->times, 1))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    tokens_from_batch(b, 0, host->patches.p);
    fill_table(f, b, s, host->table.p);
    fill_seen(b, s, host->seen.p);
    fill_ref(b, s, host->ref.p);
    fill_times(b, s, host->time.p);
    for (size_t i = 0; i < ARRAY_LEN(host->row); i++)
        host->row[i] = (int32_t)i;
    return BERTH_OK;
}

/* ---- what comes out ---- */

/* A token's values are ordered row, column, channel here. */
void wan_host_give(const struct wan_host *host, const struct wan_net *f,
                   const struct family_batch *b)
{
    const size_t C = (size_t)f->out_channels, T = (size_t)b->shape.dim[2];
    const size_t h = (size_t)b->shape.dim[3], w = (size_t)b->shape.dim[4];
    const float *from = host->result.p;
    for (size_t i = 0; i < (size_t)b->shape.dim[0]; i++)
        for (size_t t = 0; t < T; t++)
            for (size_t y = 0; y < h; y += PATCH)
                for (size_t x = 0; x < w; x += PATCH)
                    for (size_t k = 0; k < PIXELS; k++, from += C) {
                        const size_t row = y + k / PATCH, column = x + k % PATCH;
                        for (size_t c = 0; row < h && column < w && c < C; c++)
                            b->out[((i * C + c) * T + t) * h * w + row * w + column] = from[c];
                    }
}
