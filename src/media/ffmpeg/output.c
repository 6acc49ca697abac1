/* output.c: the file on descriptor 3: its container, and encoders that fill it. */
#include "media/ffmpeg/av.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FD 3
#define IO_BYTES 65536

/* ---- bytes ---- */

static int io_write(void *user, uint8_t *from, int n)
{
    int64_t *at = user;
    for (int left = n; left;) {
        ssize_t k = pwrite(FD, from, (size_t)left, *at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return AVERROR(k ? errno : EIO);
        from += k;
        left -= (int)k;
        *at += k;
    }
    return n;
}

static int io_read(void *user, uint8_t *to, int n)
{
    int64_t *at = user;
    ssize_t k;
    do
        k = pread(FD, to, (size_t)n, *at);
    while (k < 0 && errno == EINTR);
    if (k < 0)
        return AVERROR(errno);
    *at += k;
    return k ? (int)k : AVERROR_EOF;
}

static int64_t io_seek(void *user, int64_t to, int whence)
{
    int64_t *at = user;
    off_t size = lseek(FD, 0, SEEK_END); /* fstat() may ask by a name, which nobody does here */
    if (size < 0)
        return AVERROR(EIO);
    if (whence & AVSEEK_SIZE)
        return size;
    whence &= ~AVSEEK_FORCE;
    to += whence == SEEK_CUR ? *at : whence == SEEK_END ? size : 0;
    if (to < 0)
        return AVERROR(EINVAL);
    *at = to;
    return to;
}

struct second { /* a reader of what was written: a muxer moves its index to the front */
    int64_t at;
};

static int open_again(struct AVFormatContext *f, AVIOContext **pb, const char *url, int flags,
                      AVDictionary **options)
{
    const struct av *av = f->opaque;
    struct second *x = calloc(1, sizeof *x);
    uint8_t *buf = av->av_malloc(IO_BYTES);
    (void)url, (void)options;
    *pb = NULL;
    if (x && buf && !(flags & AVIO_FLAG_WRITE))
        *pb = av->avio_alloc_context(buf, IO_BYTES, 0, &x->at, io_read, NULL, io_seek);
    if (*pb)
        return 0;
    free(x);
    if (buf)
        av->av_free(buf);
    return AVERROR(EPERM);
}

static int close_again(struct AVFormatContext *f, AVIOContext *pb)
{
    const struct av *av = f->opaque;
    if (!pb)
        return 0;
    free(pb->opaque);
    av->av_free(pb->buffer);
    av->avio_context_free(&pb);
    return 0;
}

/* ---- the container ---- */

berth_status output_open(const struct av *av, const char *container, struct output *o,
                         berth_err *err)
{
    *o = (struct output) { .av = av };
    int k = av->avformat_alloc_output_context2(&o->f, NULL, container, NULL);
    if (k < 0)
        return err_set(err, BERTH_EUNSUPPORTED, "FFmpeg writes no '%s' here", container);
    uint8_t *buf = av->av_malloc(IO_BYTES);
    if (buf)
        o->io = av->avio_alloc_context(buf, IO_BYTES, 1, &o->at, io_read, io_write, io_seek);
    if (buf && !o->io)
        av->av_free(buf);
    o->pkt = av->av_packet_alloc();
    o->f->url = av->av_strdup("file");
    if (!o->io || !o->pkt || !o->f->url)
        return err_set(err, BERTH_ENOMEM, "a writer");
    o->f->pb = o->io;
    o->f->flags |= AVFMT_FLAG_CUSTOM_IO;
    o->f->opaque = (void *)(uintptr_t)av;
    o->f->io_open = open_again;
    o->f->io_close2 = close_again;
    return BERTH_OK;
}

berth_status output_begin(struct output *o, const char *options, AVDictionary *text, berth_err *err)
{
    const struct av *av = o->av;
    const AVDictionaryEntry *t = NULL;
    AVDictionary *opts = NULL;
    int k = 0;
    while (k >= 0 && (t = av->av_dict_get(text, "", t, AV_DICT_IGNORE_SUFFIX)))
        k = av->av_dict_set(&o->f->metadata, t->key, t->value, 0);
    if (k >= 0 && options[0])
        k = av->av_dict_parse_string(&opts, options, "=", ":", 0);
    if (k >= 0)
        k = av->avformat_write_header(o->f, &opts);
    av->av_dict_free(&opts);
    if (k < 0)
        return av_failed(av, k, o->f->oformat->name, err);
    o->begun = true;
    return BERTH_OK;
}

berth_status output_end(struct output *o, berth_err *err)
{
    int k = o->av->av_write_trailer(o->f);
    o->av->avio_flush(o->io);
    if (k >= 0)
        k = o->io->error;
    return k < 0 ? av_failed(o->av, k, "the end of the file", err) : BERTH_OK;
}

void output_release(struct output *o)
{
    if (!o->av)
        return;
    o->av->av_packet_free(&o->pkt);
    o->av->avformat_free_context(o->f);
    if (o->io) {
        o->av->av_free(o->io->buffer);
        o->av->avio_context_free(&o->io);
    }
    *o = (struct output) { 0 };
}

/* ---- encoders ---- */

berth_status encoder_new(struct output *o, const char *name, struct encoder *e, berth_err *err)
{
    const struct av *av = o->av;
    *e = (struct encoder) { .o = o };
    const AVCodec *codec = av->avcodec_find_encoder_by_name(name);
    const AVCodecDescriptor *d = codec ? NULL : av->avcodec_descriptor_get_by_name(name);
    if (d)
        codec = av->avcodec_find_encoder(d->id);
    if (!codec)
        return err_set(err, BERTH_EUNSUPPORTED, "FFmpeg has no encoder '%s' here", name);
    e->st = av->avformat_new_stream(o->f, NULL);
    e->c = av->avcodec_alloc_context3(codec);
    e->frame = av->av_frame_alloc();
    if (!e->st || !e->c || !e->frame)
        return err_set(err, BERTH_ENOMEM, "an encoder");
    e->c->thread_count = helper_threads();
    e->c->thread_type = FF_THREAD_SLICE; /* threads that take frames hold some each, too */
    if (o->f->oformat->flags & AVFMT_GLOBALHEADER)
        e->c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
    return BERTH_OK;
}

berth_status encoder_start(struct encoder *e, const char *options, berth_err *err)
{
    const struct av *av = e->o->av;
    const char *name = e->c->codec->name; /* a failed open takes the codec away */
    AVDictionary *opts = NULL;
    int k = options[0] ? av->av_dict_parse_string(&opts, options, "=", ":", 0) : 0;
    if (k >= 0)
        k = av->avcodec_open2(e->c, e->c->codec, &opts);
    av->av_dict_free(&opts);
    if (k >= 0)
        k = av->avcodec_parameters_from_context(e->st->codecpar, e->c);
    e->st->time_base = e->c->time_base;
    e->st->avg_frame_rate = e->c->framerate;
    return k < 0 ? av_failed(av, k, name, err) : BERTH_OK;
}

berth_status encoder_put(struct encoder *e, const AVFrame *frame, berth_err *err)
{
    const struct av *av = e->o->av;
    AVPacket *pkt = e->o->pkt;
    int k = av->avcodec_send_frame(e->c, frame);
    while (k >= 0 && (k = av->avcodec_receive_packet(e->c, pkt)) >= 0) {
        bool video = e->c->codec_type == AVMEDIA_TYPE_VIDEO;
        if (video && !pkt->duration && e->c->framerate.num > 0)
            pkt->duration = av->av_rescale_q(1, av_inv_q(e->c->framerate), e->c->time_base);
        av->av_packet_rescale_ts(pkt, e->c->time_base, e->st->time_base);
        pkt->stream_index = e->st->index;
        k = av->av_interleaved_write_frame(e->o->f, pkt);
    }
    return k >= 0 || k == AVERROR(EAGAIN) || k == AVERROR_EOF
               ? BERTH_OK
               : av_failed(av, k, e->c->codec->name, err);
}

void encoder_release(struct encoder *e)
{
    if (!e->o)
        return;
    e->o->av->avcodec_free_context(&e->c);
    e->o->av->av_frame_free(&e->frame);
    *e = (struct encoder) { 0 };
}

void color_tags(enum media_color color, AVCodecContext *c)
{
    bool hdr = color == MEDIA_HLG || color == MEDIA_PQ;
    if (color == MEDIA_COLOR_UNKNOWN)
        return;
    c->color_primaries = hdr ? AVCOL_PRI_BT2020 : AVCOL_PRI_BT709;
    c->color_trc = color == MEDIA_HLG     ? AVCOL_TRC_ARIB_STD_B67
                   : color == MEDIA_PQ    ? AVCOL_TRC_SMPTE2084
                   : color == MEDIA_BT709 ? AVCOL_TRC_BT709
                                          : AVCOL_TRC_IEC61966_2_1;
    c->colorspace = hdr ? AVCOL_SPC_BT2020_NCL : AVCOL_SPC_BT709;
    c->color_range = AVCOL_RANGE_MPEG;
}

/* ---- sound ---- */

berth_status sound_open(struct sound_out *s, struct output *o, const char *encoder, int rate,
                        int channels, berth_err *err)
{
    *s = (struct sound_out) { 0 };
    if (encoder_new(o, encoder, &s->e, err))
        return err->code;
    AVCodecContext *c = s->e.c;
    c->sample_rate = rate;
    c->time_base = (AVRational) { 1, rate };
    o->av->av_channel_layout_default(&c->ch_layout, channels);
    c->sample_fmt = c->codec->sample_fmts ? c->codec->sample_fmts[0] : AV_SAMPLE_FMT_FLTP;
    return BERTH_OK;
}

berth_status sound_start(struct sound_out *s, const struct sound_format *from, const char *options,
                         berth_err *err)
{
    const struct av *av = s->e.o->av;
    AVCodecContext *c = s->e.c;
    AVChannelLayout layout = { 0 };
    if (encoder_start(&s->e, options, err))
        return err->code;
    av->av_channel_layout_default(&layout, from->channels);
    int k = av->swr_alloc_set_opts2(&s->swr, &c->ch_layout, c->sample_fmt, c->sample_rate, &layout,
                                    from->fmt, from->rate, 0, NULL);
    av->av_channel_layout_uninit(&layout);
    if (k >= 0)
        k = av->swr_init(s->swr);
    if (k < 0)
        return av_failed(av, k, "its samples", err);
    s->fifo = av->av_audio_fifo_alloc(c->sample_fmt, c->ch_layout.nb_channels, 8192);
    return s->fifo ? BERTH_OK : err_set(err, BERTH_ENOMEM, "samples of sound");
}

static berth_status sound_frame(struct sound_out *s, int n, berth_err *err)
{
    const struct av *av = s->e.o->av;
    AVFrame *f = s->e.frame;
    av->av_frame_unref(f);
    f->nb_samples = n;
    f->format = s->e.c->sample_fmt;
    f->sample_rate = s->e.c->sample_rate;
    f->pts = s->pts;
    int k = av->av_channel_layout_copy(&f->ch_layout, &s->e.c->ch_layout);
    if (k >= 0)
        k = av->av_frame_get_buffer(f, 0);
    if (k >= 0)
        k = av->av_audio_fifo_read(s->fifo, (void **)f->extended_data, n);
    if (k < 0)
        return av_failed(av, k, "its samples", err);
    s->pts += n;
    return encoder_put(&s->e, f, err);
}

static berth_status sound_drain(struct sound_out *s, bool all, berth_err *err)
{
    int size = s->e.c->frame_size > 0 ? s->e.c->frame_size : 4096, has;
    while ((has = s->e.o->av->av_audio_fifo_size(s->fifo)) >= size || (all && has > 0))
        if (sound_frame(s, has < size ? has : size, err))
            return err->code;
    return BERTH_OK;
}

berth_status sound_put(struct sound_out *s, const uint8_t *const *data, int n, berth_err *err)
{
    const struct av *av = s->e.o->av;
    const AVCodecContext *c = s->e.c;
    int64_t most =
        av->swr_get_delay(s->swr, c->sample_rate) + (int64_t)n * c->sample_rate / 1000 + n + 4096;
    AVFrame *f = s->e.frame;
    av->av_frame_unref(f);
    f->format = c->sample_fmt;
    f->nb_samples = most > 1 << 24 ? 1 << 24 : (int)most;
    int k = av->av_channel_layout_copy(&f->ch_layout, &c->ch_layout);
    if (k >= 0)
        k = av->av_frame_get_buffer(f, 0);
    if (k >= 0)
        k = av->swr_convert(s->swr, f->extended_data, f->nb_samples,
                            (const uint8_t **)(uintptr_t)data, n);
    if (k > 0 && av->av_audio_fifo_write(s->fifo, (void **)f->extended_data, k) < k)
        k = AVERROR(ENOMEM);
    return k < 0 ? av_failed(av, k, "its samples", err) : sound_drain(s, false, err);
}

berth_status sound_end(struct sound_out *s, berth_err *err)
{
    if (sound_put(s, NULL, 0, err) || sound_drain(s, true, err))
        return err->code;
    return encoder_put(&s->e, NULL, err);
}

void sound_release(struct sound_out *s)
{
    if (!s->e.o)
        return;
    s->e.o->av->swr_free(&s->swr);
    if (s->fifo)
        s->e.o->av->av_audio_fifo_free(s->fifo);
    encoder_release(&s->e);
    *s = (struct sound_out) { 0 };
}
