/* APNG, read: every frame as a picture of its own, laid over the ones before.
 *
 * A frame's fdAT chunks are IDAT chunks with a number in front. Put back between the header of the
 * file and an end, they are an ordinary PNG stream, which png.c reads. */
#include "image/image_impl.h"

struct shared { /* what every frame's stream begins with */
    struct png_chunk ihdr, plte, trns;
};

struct canvas {
    struct image now, before; /* before: what DISPOSE_PREVIOUS goes back to */
};

enum { DISPOSE_NONE, DISPOSE_CLEAR, DISPOSE_PREVIOUS };

static bool get_control(const struct png_chunk *c, const struct png_head *h, struct png_frame *f)
{
    if (c->n != 26)
        return false;
    const uint8_t *p = c->p + 4; /* after the sequence number, which we do not need */
    *f = (struct png_frame) { .w = png_get_u32(p),
                              .h = png_get_u32(p + 4),
                              .x = png_get_u32(p + 8),
                              .y = png_get_u32(p + 12),
                              .num = (uint16_t)(p[16] << 8 | p[17]),
                              .den = (uint16_t)(p[18] << 8 | p[19]),
                              .dispose = p[20],
                              .blend = p[21] };
    return f->w && f->h && f->w <= h->w && f->h <= h->h && f->x <= h->w - f->w &&
           f->y <= h->h - f->h && f->dispose <= DISPOSE_PREVIOUS && f->blend <= 1;
}

/* ---- composing ---- */

static uint8_t *pixel(struct image *im, uint32_t x, uint32_t y)
{
    return im->px + ((size_t)y * im->w + x) * im->channels;
}

static void blend_pixel(uint8_t *d, const uint8_t *s) /* straight alpha, 8 bits, rounded */
{
    unsigned sa = s[3], da = d[3];
    if (sa == 0)
        return;
    if (sa == 255 || da == 0) {
        memcpy(d, s, 4);
        return;
    }
    unsigned a = sa * 255 + da * (255 - sa); /* times 255 */
    for (int i = 0; i < 3; i++)
        d[i] = (uint8_t)((s[i] * sa * 255 + d[i] * da * (255 - sa) + a / 2) / a);
    d[3] = (uint8_t)((a + 127) / 255);
}

static void draw_frame(struct image *on, const struct png_frame *f, const struct image *im)
{
    size_t c = on->channels;
    for (uint32_t y = 0; y < f->h; y++) {
        uint8_t *d = pixel(on, f->x, f->y + y);
        const uint8_t *s = im->px + (size_t)y * f->w * c;
        if (!f->blend || c != 4) {
            memcpy(d, s, f->w * c);
            continue;
        }
        for (uint32_t x = 0; x < f->w; x++, d += 4, s += 4)
            blend_pixel(d, s);
    }
}

static void clear(struct image *im, const struct png_frame *f)
{
    for (uint32_t y = 0; y < f->h; y++)
        memset(pixel(im, f->x, f->y + y), 0, (size_t)f->w * im->channels);
}

/* Lays a frame down, copies what is seen then to `out`, and disposes of the frame. */
static berth_status compose_frame(struct canvas *c, struct png_frame *f, bool first,
                                  const struct image *im, struct image *out, berth_err *err)
{
    if (first) { /* there is nothing to lie over or to go back to */
        f->blend = 0;
        f->dispose = f->dispose == DISPOSE_PREVIOUS ? DISPOSE_CLEAR : f->dispose;
    }
    if (f->dispose == DISPOSE_PREVIOUS)
        memcpy(c->before.px, c->now.px, (size_t)c->now.w * c->now.h * c->now.channels);
    draw_frame(&c->now, f, im);
    berth_status s = image_convert(&c->now, c->now.channels, out, err);
    if (f->dispose == DISPOSE_CLEAR)
        clear(&c->now, f);
    else if (f->dispose == DISPOSE_PREVIOUS)
        memcpy(c->now.px, c->before.px, (size_t)c->now.w * c->now.h * c->now.channels);
    return s;
}

/* ---- streams ---- */

static void chunk_copy(struct str *out, const struct png_chunk *c)
{
    if (c->p)
        png_chunk_add(out, c->type, c->p, c->n, NULL, 0);
}

static void begin_stream(struct str *out, const struct shared *sh, const struct png_frame *f)
{
    uint8_t head[13];
    memcpy(head, sh->ihdr.p, sizeof head);
    png_u32(head, f->w);
    png_u32(head + 4, f->h);
    str_clear(out);
    str_add(out, PNG_SIGNATURE, PNG_SIGNATURE_LEN);
    png_chunk_add(out, "IHDR", head, sizeof head, NULL, 0);
    chunk_copy(out, &sh->plte);
    chunk_copy(out, &sh->trns);
}

struct reading { /* one png_frames() in progress */
    const struct png_head *h;
    struct image_file *out;
    struct canvas canvas;
    struct shared shared;
    struct str stream; /* of the frame being collected; empty: none */
    struct png_frame frame;
    unsigned done;
};

static berth_status finish_frame(struct reading *r, berth_err *err)
{
    struct png_head h = *r->h;
    struct image im = { 0 };
    if (r->stream.n)
        png_chunk_add(&r->stream, "IEND", NULL, 0, NULL, 0);
    if (r->stream.bad)
        return err_set(err, BERTH_ENOMEM, "the bytes of frame %u", r->done);
    if (!r->stream.n || r->done == r->out->frames)
        return BERTH_OK;
    h.w = r->frame.w;
    h.h = r->frame.h;
    berth_status s = image_init(&im, h.w, h.h, r->canvas.now.channels, err);
    if (!s)
        s = png_pixels(&h, (const uint8_t *)r->stream.p, r->stream.n, false, &im, err);
    if (!s)
        s = compose_frame(&r->canvas, &r->frame, r->done == r->h->still, &im,
                          &r->out->frame[r->done], err);
    r->out->seconds[r->done] = (double)r->frame.num / (r->frame.den ? r->frame.den : 100);
    image_release(&im);
    str_clear(&r->stream);
    if (s)
        return err_add(err, "frame %u", r->done);
    r->done++;
    return BERTH_OK;
}

/* A default image that is not part of the animation is shown first, as Pillow does. */
static berth_status still_frame(struct reading *r, const struct image_in *in, berth_err *err)
{
    struct image *im = &r->out->frame[0];
    berth_status s = image_init(im, r->h->w, r->h->h, r->canvas.now.channels, err);
    r->done = 1;
    return s ? s : png_pixels(r->h, in->p, in->n, false, im, err);
}

static berth_status take_chunk(struct reading *r, const struct png_chunk *c, berth_err *err)
{
    berth_status s = BERTH_OK;
    if (png_is(c, "IHDR"))
        r->shared.ihdr = *c;
    else if (png_is(c, "PLTE"))
        r->shared.plte = *c;
    else if (png_is(c, "tRNS"))
        r->shared.trns = *c;
    else if (png_is(c, "fcTL")) {
        s = finish_frame(r, err);
        if (!s && !get_control(c, r->h, &r->frame))
            s = err_set(err, BERTH_EFORMAT, "frame %u lies outside the picture", r->done);
        if (!s)
            begin_stream(&r->stream, &r->shared, &r->frame);
    } else if (png_is(c, "IDAT") && r->stream.n)
        chunk_copy(&r->stream, &(struct png_chunk) { "IDAT", c->p, c->n, 0 });
    else if (png_is(c, "fdAT") && r->stream.n && c->n >= 4)
        chunk_copy(&r->stream, &(struct png_chunk) { "IDAT", c->p + 4, c->n - 4, 0 });
    return s;
}

berth_status png_frames(const struct image_in *in, const struct png_head *h, struct image_file *out,
                        berth_err *err)
{
    struct reading r = { .h = h, .out = out };
    unsigned channels = png_channels(h);
    berth_status s = image_init(&r.canvas.now, h->w, h->h, channels, err);
    if (!s)
        s = image_init(&r.canvas.before, h->w, h->h, channels, err);
    if (!s) {
        memset(r.canvas.now.px, 0, (size_t)h->w * h->h * channels);
        if (h->still)
            s = still_frame(&r, in, err);
    }
    struct png_chunk c;
    size_t at = PNG_SIGNATURE_LEN;
    while (!s && png_next(in->p, in->n, &at, &c) && !png_is(&c, "IEND"))
        s = take_chunk(&r, &c, err);
    if (!s)
        s = finish_frame(&r, err);
    if (!s && r.done < out->frames)
        s = err_set(err, BERTH_EFORMAT, "%u of %u frames are there", r.done, out->frames);
    image_release(&r.canvas.now);
    image_release(&r.canvas.before);
    str_release(&r.stream);
    return s;
}
