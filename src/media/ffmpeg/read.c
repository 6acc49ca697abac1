/* read.c: a file's pictures and sound. */
#include "media/ffmpeg/av.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- pictures ---- */

struct painter { /* frames of a decoder -> rows of RGB */
    const struct av *av;
    const struct media_request *q;
    int turns;
    int w, h, fmt; /* of what `sws` takes */
    struct SwsContext *sws;
    bool bytes; /* it gives 8 bits */
    int stride; /* bytes of a row of a plane */
    uint8_t *plane[4];
    void *out; /* the upright picture */
};

static void painter_release(struct painter *p)
{
    p->av->sws_freeContext(p->sws);
    for (int i = 0; i < 4; i++)
        free(p->plane[i]);
    free(p->out);
    *p = (struct painter) { .av = p->av, .q = p->q, .turns = p->turns };
}

/* ComfyUI takes these at 8 bits and everything else at full depth. */
static bool is_8bit(enum AVPixelFormat f)
{
    return f == AV_PIX_FMT_YUVJ420P || f == AV_PIX_FMT_YUVJ422P || f == AV_PIX_FMT_YUVJ444P ||
           f == AV_PIX_FMT_RGB24 || f == AV_PIX_FMT_RGBA || f == AV_PIX_FMT_PAL8;
}

static berth_status colors(struct painter *p, const AVFrame *f, berth_err *err)
{
    int *inv, *table, from_full, to_full, bright, contrast, saturation;
    if (p->av->sws_getColorspaceDetails(p->sws, &inv, &from_full, &table, &to_full, &bright,
                                        &contrast, &saturation) < 0)
        return BERTH_OK; /* nothing to be told: no YUV on either side */
    if (f->color_range != AVCOL_RANGE_UNSPECIFIED)
        from_full = f->color_range == AVCOL_RANGE_JPEG;
    p->av->sws_setColorspaceDetails(p->sws, p->av->sws_getCoefficients(f->colorspace), from_full,
                                    table, to_full, bright, contrast, saturation);
    (void)err;
    return BERTH_OK;
}

/* Where a sample of colour lies among the pixels it is for, in 256ths; -513: the scaler's own. */
static void chroma_place(const AVFrame *f, const AVPixFmtDescriptor *d, int *x, int *y)
{
    enum AVChromaLocation at = f->chroma_location;
    bool left =
        at == AVCHROMA_LOC_LEFT || at == AVCHROMA_LOC_TOPLEFT || at == AVCHROMA_LOC_BOTTOMLEFT;
    bool top = at == AVCHROMA_LOC_TOP || at == AVCHROMA_LOC_TOPLEFT;
    bool bottom = at == AVCHROMA_LOC_BOTTOM || at == AVCHROMA_LOC_BOTTOMLEFT;
    int right = (1 << d->log2_chroma_w) - 1, down = (1 << d->log2_chroma_h) - 1;
    *x = right ? right * (left ? 0 : 128) : -513;
    *y = down ? down * (top ? 0 : bottom ? 256 : 128) : -513;
}

/* NULL: there is no such way. */
static struct SwsContext *scaler(const struct av *av, const AVFrame *f, int w, int h,
                                 enum AVPixelFormat to)
{
    const AVPixFmtDescriptor *d = av->av_pix_fmt_desc_get((enum AVPixelFormat)f->format);
    struct SwsContext *sws = d ? av->sws_alloc_context() : NULL;
    int x, y;
    if (!sws)
        return NULL;
    chroma_place(f, d, &x, &y);
    const struct {
        const char *name;
        int value;
    } option[] = { { "srcw", w },
                   { "srch", h },
                   { "src_format", f->format },
                   { "dstw", w },
                   { "dsth", h },
                   { "dst_format", (int)to },
                   { "sws_flags", SWS_BILINEAR },
                   { "src_h_chr_pos", x },
                   { "src_v_chr_pos", y } };
    int k = 0;
    for (size_t i = 0; k >= 0 && i < ARRAY_LEN(option); i++)
        k = av->av_opt_set_int(sws, option[i].name, option[i].value, 0);
    if (k < 0 || av->sws_init_context(sws, NULL, NULL) < 0) {
        av->sws_freeContext(sws);
        return NULL;
    }
    return sws;
}

static berth_status painter_for(struct painter *p, const AVFrame *f, int w, int h, berth_err *err)
{
    if (p->sws && p->w == w && p->h == h && p->fmt == f->format)
        return BERTH_OK;
    painter_release(p);
    p->w = w;
    p->h = h;
    p->fmt = f->format;
    p->bytes = p->q->bytes || is_8bit((enum AVPixelFormat)f->format);
    p->sws = scaler(p->av, f, w, h, p->bytes ? AV_PIX_FMT_RGB24 : AV_PIX_FMT_GBRPF32);
    if (!p->sws)
        return err_set(err, BERTH_EUNSUPPORTED, "no way from its pixels (%s) to RGB",
                       p->av->av_pix_fmt_desc_get((enum AVPixelFormat)f->format)
                           ? p->av->av_pix_fmt_desc_get((enum AVPixelFormat)f->format)->name
                           : "unknown");
    p->stride = (w * (p->bytes ? 3 : (int)sizeof(float)) + 127) / 64 * 64;
    for (int i = 0; i < (p->bytes ? 1 : 3); i++)
        if (!(p->plane[i] = aligned_alloc(64, (size_t)p->stride * (size_t)h + 64)))
            return err_set(err, BERTH_ENOMEM, "a frame of %dx%d", w, h);
    /* As large as what is scaled: frames of other sizes may be padded to the same one. */
    p->out = malloc((size_t)w * (size_t)h * 3 * (p->q->bytes ? 1 : sizeof(float)));
    return p->out ? colors(p, f, err) : err_set(err, BERTH_ENOMEM, "a frame of %dx%d", w, h);
}

/* The frame in a larger one whose new edge repeats the last pixels: what lies beyond the edge of a
 * width that the scaler does not like must not shine through. NULL: as it is. */
static AVFrame *padded(const struct av *av, const AVFrame *f)
{
    const AVPixFmtDescriptor *d = av->av_pix_fmt_desc_get((enum AVPixelFormat)f->format);
    if (f->width % 32 == 0 || !d ||
        d->flags & (AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_HWACCEL))
        return NULL;
    AVFrame *o = av->av_frame_alloc();
    if (!o)
        return NULL;
    o->format = f->format;
    o->width = (f->width + 31) / 32 * 32;
    o->height = (f->height + 31) / 32 * 32;
    if (av->av_frame_get_buffer(o, 0) < 0 || av->av_frame_copy_props(o, f) < 0) {
        av->av_frame_free(&o);
        return NULL;
    }
    for (int i = 0; i < av->av_pix_fmt_count_planes((enum AVPixelFormat)f->format); i++) {
        int shift = i == 1 || i == 2 ? d->log2_chroma_h : 0;
        int rows = -(-f->height >> shift), all = -(-o->height >> shift), group = 1;
        for (int k = 0; k < d->nb_components; k++)
            if (d->comp[k].plane == i && d->comp[k].step > group)
                group = d->comp[k].step;
        int has = av->av_image_get_linesize((enum AVPixelFormat)f->format, f->width, i);
        int wants = av->av_image_get_linesize((enum AVPixelFormat)f->format, o->width, i);
        for (int y = 0; y < all; y++) {
            const uint8_t *from =
                f->data[i] + (ptrdiff_t)(y < rows ? y : rows - 1) * f->linesize[i];
            uint8_t *to = o->data[i] + (ptrdiff_t)y * o->linesize[i];
            memcpy(to, from, (size_t)has);
            for (int x = has; x < wants; x++)
                to[x] = to[x - group];
        }
    }
    return o;
}

/* Where pixel (x, y) of the picture stands once it is turned. */
static size_t upright(const struct painter *p, int w, int h, int x, int y)
{
    switch (p->turns) {
    case 1:
        return (size_t)(w - 1 - x) * (size_t)h + (size_t)y;
    case 2:
        return (size_t)(h - 1 - y) * (size_t)w + (size_t)(w - 1 - x);
    case 3:
        return (size_t)x * (size_t)h + (size_t)(h - 1 - y);
    default:
        return (size_t)y * (size_t)w + (size_t)x;
    }
}

static void collect(struct painter *p, int w, int h)
{
    float *out = p->out;
    uint8_t *bytes = p->out;
    for (int y = 0; y < h; y++) {
        const uint8_t *row = p->plane[0] + (ptrdiff_t)y * p->stride;
        const float *g = (const float *)(const void *)row, *b = NULL, *r = NULL;
        if (!p->bytes) {
            b = (const float *)(const void *)(p->plane[1] + (ptrdiff_t)y * p->stride);
            r = (const float *)(const void *)(p->plane[2] + (ptrdiff_t)y * p->stride);
        }
        for (int x = 0; x < w; x++) {
            size_t at = 3 * upright(p, w, h, x, y);
            if (p->q->bytes) {
                memcpy(bytes + at, row + 3 * x, 3);
            } else if (p->bytes) {
                for (int k = 0; k < 3; k++)
                    out[at + (size_t)k] = (float)row[3 * x + k] / 255.0f;
            } else {
                out[at] = r[x];
                out[at + 1] = g[x];
                out[at + 2] = b[x];
            }
        }
    }
}

static berth_status paint(struct painter *p, const AVFrame *f, double seconds, berth_err *err)
{
    AVFrame *wide = p->q->bytes || is_8bit((enum AVPixelFormat)f->format) ? NULL : padded(p->av, f);
    const AVFrame *from = wide ? wide : f;
    int side[] = { f->width, f->height }, stride[4] = { 0 };
    berth_status s = painter_for(p, f, from->width, from->height, err);
    for (int i = 0; i < 4; i++)
        stride[i] = p->plane[i] ? p->stride : 0;
    if (!s && p->av->sws_scale(p->sws, (const uint8_t *const *)from->data, from->linesize, 0,
                               from->height, p->plane, stride) < 0)
        s = err_set(err, BERTH_EFORMAT, "a frame that cannot be turned into RGB");
    p->av->av_frame_free(&wide);
    if (s)
        return s;
    collect(p, side[0], side[1]);
    uint32_t w = (uint32_t)side[p->turns % 2], h = (uint32_t)side[1 - p->turns % 2];
    struct media_msg m = { .say = SAY_FRAME, .a = w, .b = h, .x = seconds };
    m.n = (uint64_t)w * h * 3 * (p->q->bytes ? 1 : sizeof(float));
    return say(&m, p->out, err);
}

/* Which frames are wanted, as VideoHelperSuite counts them: a clock of the wanted rate takes the
 * frame that is there. */
struct choice {
    double from, to, clock; /* seconds of a frame of the file, and of the result */
    uint64_t skip, every, cap, seen, given;
};

/* How often this frame is shown; *done: no other is. */
static bool wanted(struct choice *c, bool *done)
{
    if (c->seen++ < c->skip)
        return false;
    bool take = (c->seen - 1 - c->skip) % c->every == 0;
    c->given += take;
    *done = take && c->cap && c->given >= c->cap;
    return take;
}

static berth_status show(struct painter *p, struct choice *c, const AVFrame *f, double seconds,
                         bool *done, berth_err *err)
{
    if (c->to <= 0)
        return wanted(c, done) ? paint(p, f, seconds, err) : BERTH_OK;
    for (c->clock += c->from; c->clock >= c->to && !*done; c->clock -= c->to)
        if (wanted(c, done) && paint(p, f, seconds, err))
            return err->code;
    return BERTH_OK;
}

berth_status helper_frames(struct helper *h, berth_err *err)
{
    struct input in;
    const struct media_request *q = &h->q;
    struct decoder d = { 0 };
    bool end = false;
    if (input_open(&h->av, &in, err))
        return err->code;
    AVStream *st = input_video(&in);
    if (!st)
        return err_set(err, BERTH_EFORMAT, "there is no video in it");
    if (decoder_open(&in, st, &d, err))
        return err->code;
    struct painter p = { .av = &h->av, .q = q, .turns = input_turns(&in, st) };
    struct choice c = { .skip = q->skip, .every = q->every ? q->every : 1, .cap = q->cap };
    double rate = av_q2d(st->avg_frame_rate);
    if (q->rate > 0 && rate > 0 && isfinite(rate)) {
        c.from = 1 / rate;
        c.to = 1 / q->rate;
        c.clock = c.to - c.from; /* the first frame is always there */
    }
    int64_t from = in_base(q->cut.start, st->time_base),
            to = in_base(q->cut.start + q->cut.duration, st->time_base);
    decoder_seek(&d, q->cut.start);
    berth_status s = BERTH_OK;
    while (!s && !end && !(s = decoder_next(&d, &end, err)) && !end) {
        int64_t pts = d.frame->pts;
        if (pts != AV_NOPTS_VALUE && pts < from)
            continue;
        end = q->cut.duration > 0 && pts != AV_NOPTS_VALUE && pts >= to;
        double at = pts == AV_NOPTS_VALUE ? 0 : (double)pts * av_q2d(st->time_base);
        if (!end)
            s = show(&p, &c, d.frame, at, &end, err);
    }
    painter_release(&p);
    decoder_release(&d);
    input_release(&in);
    return s;
}

/* ---- sound ---- */

static float sample(const uint8_t *at, enum AVSampleFormat f)
{
    int16_t s;
    int32_t i;
    int64_t l;
    float x;
    double d;
    switch (f) {
    case AV_SAMPLE_FMT_U8:
    case AV_SAMPLE_FMT_U8P:
        return ((float)*at - 128.0f) / 128.0f;
    case AV_SAMPLE_FMT_S16:
    case AV_SAMPLE_FMT_S16P:
        memcpy(&s, at, sizeof s);
        return (float)s / 32768.0f;
    case AV_SAMPLE_FMT_S32:
    case AV_SAMPLE_FMT_S32P:
        memcpy(&i, at, sizeof i);
        return (float)((double)i / 2147483648.0);
    case AV_SAMPLE_FMT_S64:
    case AV_SAMPLE_FMT_S64P:
        memcpy(&l, at, sizeof l);
        return (float)((double)l / 9223372036854775808.0);
    case AV_SAMPLE_FMT_FLT:
    case AV_SAMPLE_FMT_FLTP:
        memcpy(&x, at, sizeof x);
        return x;
    case AV_SAMPLE_FMT_DBL:
    case AV_SAMPLE_FMT_DBLP:
        memcpy(&d, at, sizeof d);
        return (float)d;
    case AV_SAMPLE_FMT_NONE:
    case AV_SAMPLE_FMT_NB:
        break;
    }
    return 0;
}

/* Samples from `skip` on. */
static berth_status tell_sound(const struct av *av, const AVFrame *f, int skip, berth_err *err)
{
    enum AVSampleFormat fmt = (enum AVSampleFormat)f->format;
    bool planar = av->av_sample_fmt_is_planar(fmt);
    int c = f->ch_layout.nb_channels, each = av->av_get_bytes_per_sample(fmt);
    int most = (int)(MEDIA_PIECE / ((size_t)c * sizeof(float)));
    float *out = malloc((size_t)most * (size_t)c * sizeof *out);
    berth_status s = out ? BERTH_OK : err_set(err, BERTH_ENOMEM, "sound");
    for (int at = skip, n; !s && at < f->nb_samples; at += n) {
        n = f->nb_samples - at < most ? f->nb_samples - at : most;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < c; k++) {
                const uint8_t *p = planar
                                       ? f->extended_data[k] + (ptrdiff_t)(at + i) * each
                                       : f->extended_data[0] + ((ptrdiff_t)(at + i) * c + k) * each;
                out[i * c + k] = sample(p, fmt);
            }
        struct media_msg m = { .say = SAY_SOUND, .n = (uint64_t)n * (uint64_t)c * sizeof *out };
        s = say(&m, out, err);
    }
    free(out);
    return s;
}

berth_status helper_sound(struct helper *h, berth_err *err)
{
    struct input in;
    const struct media_request *q = &h->q;
    struct decoder d = { 0 };
    bool end = false, begun = false;
    int rate = 0, channels = 0;
    if (input_open(&h->av, &in, err))
        return err->code;
    AVStream *st = input_sound(&in, q->first);
    if (!st)
        return BERTH_OK; /* no HEAD: there is none */
    if (decoder_open(&in, st, &d, err))
        return err->code;
    decoder_seek(&d, q->cut.start);
    berth_status s = BERTH_OK;
    while (!s && !end && !(s = decoder_next(&d, &end, err)) && !end) {
        const AVFrame *f = d.frame;
        if (f->sample_rate <= 0 || f->ch_layout.nb_channels <= 0 ||
            f->ch_layout.nb_channels > MEDIA_CHANNELS_MAX)
            return err_set(err, BERTH_EFORMAT, "%d channels of %d samples a second",
                           f->ch_layout.nb_channels, f->sample_rate);
        if (!rate) {
            rate = f->sample_rate;
            channels = f->ch_layout.nb_channels;
            s = say(&(struct media_msg) { .say = SAY_HEAD,
                                          .a = (uint32_t)rate,
                                          .b = (uint32_t)channels },
                    NULL, err);
        } else if (channels != f->ch_layout.nb_channels || rate != f->sample_rate) {
            s = err_set(err, BERTH_EFORMAT,
                        "its sound changes from %d channels of %d samples a second to %d of %d",
                        channels, rate, f->ch_layout.nb_channels, f->sample_rate);
        }
        double at = f->pts == AV_NOPTS_VALUE ? 0 : (double)f->pts * av_q2d(st->time_base);
        end = q->cut.duration > 0 && at > q->cut.start + q->cut.duration;
        double skip = begun ? 0 : trunc((q->cut.start - at) * rate);
        if (s || end || skip >= f->nb_samples)
            continue;
        s = tell_sound(&h->av, f, begun || q->first || skip < 0 ? 0 : (int)skip, err);
        begun = true;
    }
    decoder_release(&d);
    input_release(&in);
    return s;
}
