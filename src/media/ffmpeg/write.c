/* write.c: pictures and sound that come over the socket, into a file. */
#include "media/ffmpeg/av.h"

#include <stdlib.h>

struct film { /* one file while it is written */
    struct helper *h;
    struct output o;
    struct encoder video;
    struct sound_out sound;
    bool has_video, has_sound;
    struct SwsContext *sws;
    uint8_t *px; /* a picture as it comes */
    size_t bytes;
    int64_t frames;
    float *samples;
};

static enum AVPixelFormat given_format(const struct media_request *q)
{
    return q->bits == 16 ? AV_PIX_FMT_RGB48 : q->channels == 4 ? AV_PIX_FMT_RGBA : AV_PIX_FMT_RGB24;
}

static berth_status open_scaler(struct film *m, enum AVPixelFormat to, berth_err *err)
{
    const struct av *av = &m->h->av;
    const struct media_request *q = &m->h->q;
    int *inv, *table, from_full, to_full, bright, contrast, saturation;
    m->sws = av->sws_getContext((int)q->w, (int)q->h, given_format(q), (int)q->w, (int)q->h, to,
                                SWS_BILINEAR, NULL, NULL, NULL);
    if (!m->sws)
        return err_set(err, BERTH_EUNSUPPORTED, "no way from RGB to '%s'", q->pixels);
    if (q->color != MEDIA_COLOR_UNKNOWN &&
        av->sws_getColorspaceDetails(m->sws, &inv, &from_full, &table, &to_full, &bright, &contrast,
                                     &saturation) >= 0)
        av->sws_setColorspaceDetails(
            m->sws, inv, from_full,
            av->sws_getCoefficients(q->color == MEDIA_HLG || q->color == MEDIA_PQ ? SWS_CS_BT2020
                                                                                  : SWS_CS_ITU709),
            0, bright, contrast, saturation);
    m->bytes = (size_t)q->w * q->h * q->channels * (q->bits / 8);
    m->px = malloc(m->bytes + 64);
    return m->px ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a frame of %ux%u", q->w, q->h);
}

static berth_status open_video(struct film *m, berth_err *err)
{
    const struct media_request *q = &m->h->q;
    enum AVPixelFormat to = m->h->av.av_get_pix_fmt(q->pixels);
    if (to == AV_PIX_FMT_NONE)
        return err_set(err, BERTH_EUNSUPPORTED, "FFmpeg knows no pixels '%s'", q->pixels);
    if (encoder_new(&m->o, q->encoder, &m->video, err))
        return err->code;
    AVCodecContext *c = m->video.c;
    c->width = (int)q->w;
    c->height = (int)q->h;
    c->pix_fmt = to;
    c->framerate = (AVRational) { (int)q->rate_num, (int)q->rate_den };
    c->time_base = av_inv_q(c->framerate);
    if (q->no_bit_rate)
        c->bit_rate = 0;
    color_tags(q->color, c);
    m->has_video = true;
    return encoder_start(&m->video, q->options, err) ? err->code : open_scaler(m, to, err);
}

static berth_status open_sound(struct film *m, berth_err *err)
{
    const struct media_request *q = &m->h->q;
    const struct sound_format from = { (int)q->sound_rate, (int)q->sound_channels,
                                       AV_SAMPLE_FMT_FLT };
    /* More than stereo is 5.1 or is mixed down. */
    int channels = q->sound_channels == 1 || q->sound_channels == 6 ? (int)q->sound_channels : 2;
    if (sound_open(&m->sound, &m->o, q->sound, from.rate, channels, err))
        return err->code;
    AVCodecContext *c = m->sound.e.c;
    if (q->sound_bit_rate)
        c->bit_rate = q->sound_bit_rate;
    if (q->quality)
        c->flags |= AV_CODEC_FLAG_QSCALE;
    m->has_sound = true;
    m->samples = malloc(MEDIA_PIECE);
    return m->samples ? sound_start(&m->sound, &from, q->sound_options, err)
                      : err_set(err, BERTH_ENOMEM, "samples of sound");
}

static berth_status take_frame(struct film *m, uint64_t n, berth_err *err)
{
    const struct av *av = &m->h->av;
    const struct media_request *q = &m->h->q;
    AVFrame *f = m->video.frame;
    const AVCodecContext *c = m->video.c;
    if (!m->has_video || n != m->bytes)
        return err_set(err, BERTH_EINVAL, "a frame of %llu bytes", (unsigned long long)n);
    if (hear_data(m->px, m->bytes, err))
        return err->code;
    av->av_frame_unref(f); /* the encoder has its own reference to the pixels */
    f->format = c->pix_fmt;
    f->width = c->width;
    f->height = c->height;
    f->color_primaries = c->color_primaries;
    f->color_trc = c->color_trc;
    f->colorspace = c->colorspace;
    f->color_range = c->color_range;
    f->pts = m->frames++;
    int k = av->av_frame_get_buffer(f, 0);
    const uint8_t *from[4] = { m->px };
    int stride[4] = { (int)(q->w * q->channels * (q->bits / 8)) };
    if (k >= 0)
        k = av->sws_scale(m->sws, from, stride, 0, c->height, f->data, f->linesize);
    return k < 0 ? av_failed(av, k, "a frame", err) : encoder_put(&m->video, f, err);
}

static berth_status take_sound(struct film *m, uint64_t n, berth_err *err)
{
    size_t each = sizeof(float) * m->h->q.sound_channels;
    const uint8_t *data[1] = { (const uint8_t *)m->samples };
    if (!m->has_sound || n > MEDIA_PIECE || n % each)
        return err_set(err, BERTH_EINVAL, "sound of %llu bytes", (unsigned long long)n);
    if (hear_data(m->samples, (size_t)n, err))
        return err->code;
    return sound_put(&m->sound, data, (int)(n / each), err);
}

static berth_status take_all(struct film *m, berth_err *err)
{
    struct media_msg *msg = &m->h->m; /* the first is there */
    berth_status s = BERTH_OK;
    while (!s && msg->say != SAY_END) {
        s = msg->say == SAY_FRAME   ? take_frame(m, msg->n, err)
            : msg->say == SAY_SOUND ? take_sound(m, msg->n, err)
                                    : err_set(err, BERTH_EINVAL, "message %u", msg->say);
        if (!s)
            s = hear(msg, err);
    }
    return s;
}

berth_status helper_write(struct helper *h, berth_err *err)
{
    struct film m = { .h = h };
    berth_status s = output_open(&h->av, h->q.container, &m.o, err);
    if (!s && h->q.encoder[0])
        s = open_video(&m, err);
    if (!s && h->q.sound[0])
        s = open_sound(&m, err);
    if (!s)
        s = output_begin(&m.o, h->q.muxer_options, h->text, err);
    if (!s)
        s = take_all(&m, err);
    if (!s && m.has_video)
        s = encoder_put(&m.video, NULL, err);
    if (!s && m.has_sound)
        s = sound_end(&m.sound, err);
    if (!s)
        s = output_end(&m.o, err);
    h->av.sws_freeContext(m.sws);
    free(m.px);
    free(m.samples);
    encoder_release(&m.video);
    sound_release(&m.sound);
    output_release(&m.o);
    return s;
}
