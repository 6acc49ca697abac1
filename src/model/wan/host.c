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

/* What CLIP vision saw: [1, tokens, WAN_SEEN_WIDTH]. */
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
        return err_set(err, BERTH_EINVAL,
                       "pictures seen as %llu tokens; Wan has positions for %llu",
                       (unsigned long long)out->seen, (unsigned long long)f->seen_most);
    return BERTH_OK;
}

/* Of a kind that has the video's frames. */
static berth_status fits(const struct shape *s, const struct family_batch *b, uint64_t channels,
                         uint64_t side, const char *what, berth_err *err)
{
    const uint64_t *d = b->shape.dim;
    char text[SHAPE_TEXT_MAX], video[SHAPE_TEXT_MAX];
    if (s->ndim == 5 && s->dim[1] == channels && s->dim[2] == d[2] && s->dim[3] == d[3] * side &&
        s->dim[4] == d[4] * side)
        return BERTH_OK;
    return err_set(err, BERTH_EINVAL, "%s %s for a video of latents %s", what, shape_text(s, text),
                   shape_text(&b->shape, video));
}

/* What is followed: nothing, where nothing is said. */
static berth_status count_vace(const struct wan_net *f, const struct family_batch *b,
                               struct wan_sizes *out, berth_err *err)
{
    for (size_t i = 0; f->vace_blocks && i < b->extras; i++) {
        const struct diffusion_extra *x = &b->extra[i];
        if (x->kind != EXTRA_VACE)
            continue;
        if (out->vace == WAN_VACE_MAX)
            return err_set(err, BERTH_ELIMIT, "more than %d videos to follow", WAN_VACE_MAX);
        if (fits(&x->shape, b, f->vace_channels, 1, "VACE follows", err))
            return err->code;
        out->strength[out->vace++] = x->strength;
    }
    if (f->vace_blocks && !out->vace)
        out->strength[out->vace++] = 1.0f;
    return BERTH_OK;
}

static berth_status count_camera(const struct wan_net *f, const struct family_batch *b,
                                 struct wan_sizes *out, berth_err *err)
{
    const struct diffusion_extra *x = f->camera ? extra(b, 0, EXTRA_CAMERA) : NULL;
    out->camera = x != NULL;
    if (!x)
        return BERTH_OK;
    if (b->shape.dim[3] % WAN_PATCH || b->shape.dim[4] % WAN_PATCH)
        return err_set(err, BERTH_EINVAL, "a camera for a video whose latents have odd sides");
    return fits(&x->shape, b, f->camera, WAN_CAMERA_SIDE / WAN_PATCH, "a camera", err);
}

/* Subjects: frames behind the video. */
static berth_status count_subjects(const struct wan_net *f, const struct family_batch *b,
                                   struct wan_sizes *out, berth_err *err)
{
    const struct diffusion_extra *x = extra(b, 0, EXTRA_SUBJECTS);
    char text[SHAPE_TEXT_MAX];
    if (!x)
        return BERTH_OK;
    if (x->shape.ndim != 5 || x->shape.dim[1] != f->in_channels || !tokens_moderate(&x->shape) ||
        tokens_side(x->shape.dim[3]) != out->rows || tokens_side(x->shape.dim[4]) != out->columns)
        return err_set(err, BERTH_EINVAL, "subjects %s beside a video of %llu channels",
                       shape_text(&x->shape, text), (unsigned long long)f->in_channels);
    out->frames += x->shape.dim[2];
    out->video = out->frames * out->rows * out->columns;
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
    if (count_seen(f, b, out, err) || count_ref(f, b, out, err) || count_subjects(f, b, out, err) ||
        count_vace(f, b, out, err) || count_camera(f, b, out, err))
        return err->code;
    if ((out->vace || out->camera) && out->video + out->ref != out->kept)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "VACE or a camera with subjects or pictures to look at");
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
    free(host->vace.p);
    free(host->camera.p);
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

/* Patches of every item's video, and of its subjects behind them. */
static void fill_patches(const struct family_batch *b, float *out)
{
    const size_t each = (size_t)shape_inner(&b->shape, 1);
    for (size_t i = 0; i < (size_t)b->shape.dim[0]; i++) {
        const struct diffusion_extra *more = extra(b, i, EXTRA_SUBJECTS);
        out = tokens_from(b->x + i * each, &b->shape, out);
        if (more)
            out = tokens_from(more->x, &more->shape, out);
    }
}

/* Of nothing to follow: empty latents, and masks that leave all open. */
static void fill_unsaid(const struct wan_net *f, const struct family_batch *b,
                        const struct wan_sizes *s, float *out)
{
    const size_t C = (size_t)f->vace_channels, latents = C - WAN_VACE_MASKS;
    float nothing[WAN_VACE_MASKS] = { 0 };
    const struct shape one = { 5, { 1, latent_wan21.channels, 1, 1, 1 } };
    latent_in(&latent_wan21, nothing, &one);
    for (size_t i = 0; i < (size_t)(b->shape.dim[0] * s->video); i++)
        for (size_t k = 0; k < C * PIXELS; k++) {
            const size_t c = k / PIXELS;
            *out++ = c < latents ? nothing[c % latent_wan21.channels] : 1.0f;
        }
}

static void fill_vace(const struct wan_net *f, const struct family_batch *b,
                      const struct wan_sizes *s, float *out)
{
    bool said = false;
    for (size_t k = 0; s->vace && k < b->extras; k++)
        for (size_t i = 0; i < (size_t)b->shape.dim[0] && b->extra[k].kind == EXTRA_VACE; i++) {
            const struct diffusion_extra *x = &b->extra[i * b->extras + k];
            out = tokens_from(x->x, &x->shape, out);
            said = true;
        }
    if (s->vace && !said)
        fill_unsaid(f, b, s, out);
}

/* A token's pixels: channel, row and column of 8 x 8, then which of the four. */
static void fill_camera(const struct family_batch *b, const struct wan_sizes *s, float *out)
{
    const size_t side = WAN_CAMERA_SIDE / PATCH;
    for (size_t i = 0; s->camera && i < (size_t)b->shape.dim[0]; i++) {
        const struct diffusion_extra *x = extra(b, i, EXTRA_CAMERA);
        const size_t C = (size_t)x->shape.dim[1], T = (size_t)x->shape.dim[2];
        const size_t H = (size_t)x->shape.dim[3], W = (size_t)x->shape.dim[4];
        for (size_t at = 0; at < T * (H / WAN_CAMERA_SIDE) * (W / WAN_CAMERA_SIDE); at++) {
            const size_t columns = W / WAN_CAMERA_SIDE, rows = H / WAN_CAMERA_SIDE;
            const size_t t = at / (rows * columns), y = at / columns % rows * WAN_CAMERA_SIDE;
            const size_t z = at % columns * WAN_CAMERA_SIDE;
            for (size_t k = 0; k < C * side * side * PIXELS; k++) {
                const size_t c = k / PIXELS, row = y + k % PIXELS / PATCH * side + c / side % side;
                const size_t column = z + k % PATCH * side + c % side;
                *out++ = x->x[((c / (side * side) * T + t) * H + row) * W + column];
            }
        }
    }
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
        !tokens_room(&host->vace, s->vace * n, s->video, f->vace_channels * PIXELS) ||
        !tokens_room(&host->camera, s->camera * n, s->video,
                     f->camera * WAN_CAMERA_SIDE * WAN_CAMERA_SIDE) ||
        !tokens_room(&host->result, n, s->kept, f->out_channels * PIXELS) ||
        !tokens_room(&host->time, n, s->times, 1))
        return err_set(err, BERTH_ENOMEM, "patches of latents %s", shape_text(&b->shape, text));
    fill_patches(b, host->patches.p);
    fill_vace(f, b, s, host->vace.p);
    fill_camera(b, s, host->camera.p);
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
