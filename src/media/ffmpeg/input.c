/* input.c: the file on descriptor 0, as streams and frames. */
#include "media/ffmpeg/av.h"

#include <errno.h>
#include <math.h>
#include <unistd.h>

#define IO_BYTES 65536
#define PIXELS_MAX ((int64_t)1 << 27)
/* What people have. The rest of FFmpeg's readers, such as play lists that name other files, are
 * not asked. */
#define FORMATS                                                                                    \
    "mov,matroska,webm,avi,mpegts,mpeg,mpegvideo,ogg,flac,mp3,wav,w64,aiff,caf,aac,ac3,eac3,amr,"  \
    "asf,flv,gif,apng,ivf,obu,h264,hevc,m4v,mjpeg,mxf,nut,au,tta,wv,ape,rm,3gp,dv,yuv4mpegpipe"

static int io_read(void *user, uint8_t *to, int n)
{
    struct input *in = user;
    ssize_t k;
    do
        k = pread(0, to, (size_t)n, in->at);
    while (k < 0 && errno == EINTR);
    if (k < 0)
        return AVERROR(EIO);
    in->at += k;
    return k ? (int)k : AVERROR_EOF;
}

static int64_t io_seek(void *user, int64_t at, int whence)
{
    struct input *in = user;
    off_t size = lseek(0, 0, SEEK_END); /* fstat() may ask by a name, which nobody does here */
    if (size < 0)
        return AVERROR(EIO);
    if (whence & AVSEEK_SIZE)
        return size;
    whence &= ~AVSEEK_FORCE;
    at += whence == SEEK_CUR ? in->at : whence == SEEK_END ? size : 0;
    if (at < 0)
        return AVERROR(EINVAL);
    in->at = at;
    return at;
}

/* A file that names others gets none. */
static int no_other(struct AVFormatContext *f, AVIOContext **pb, const char *url, int flags,
                    AVDictionary **options)
{
    (void)f, (void)pb, (void)url, (void)flags, (void)options;
    return AVERROR(EPERM);
}

berth_status input_open(const struct av *av, struct input *in, berth_err *err)
{
    *in = (struct input) { .av = av };
    uint8_t *buf = av->av_malloc(IO_BYTES);
    if (buf)
        in->io = av->avio_alloc_context(buf, IO_BYTES, 0, in, io_read, NULL, io_seek);
    if (buf && !in->io)
        av->av_free(buf);
    if (!in->io || !(in->f = av->avformat_alloc_context()))
        return err_set(err, BERTH_ENOMEM, "a reader");
    in->f->pb = in->io;
    in->f->flags |= AVFMT_FLAG_CUSTOM_IO;
    in->f->io_open = no_other;
    in->f->format_whitelist = av->av_strdup(FORMATS);
    int k =
        in->f->format_whitelist ? av->avformat_open_input(&in->f, "", NULL, NULL) : AVERROR(ENOMEM);
    if (k < 0) /* the context is gone then */
        return av_failed(av, k, "no file of video or sound that is read here", err);
    if ((k = av->avformat_find_stream_info(in->f, NULL)) < 0)
        return av_failed(av, k, "its streams", err);
    return BERTH_OK;
}

void input_release(struct input *in)
{
    if (in->f)
        in->av->avformat_close_input(&in->f);
    if (in->io) {
        in->av->av_free(in->io->buffer);
        in->av->avio_context_free(&in->io);
    }
    *in = (struct input) { 0 };
}

AVStream *input_video(const struct input *in)
{
    for (unsigned i = 0; i < in->f->nb_streams; i++)
        if (in->f->streams[i]->codecpar->codec_type == AVMEDIA_TYPE_VIDEO)
            return in->f->streams[i];
    return NULL;
}

AVStream *input_sound(const struct input *in, bool first)
{
    AVStream *last = NULL;
    for (unsigned i = 0; i < in->f->nb_streams; i++) {
        AVStream *st = in->f->streams[i];
        if (st->codecpar->codec_type != AVMEDIA_TYPE_AUDIO ||
            (!first && !in->av->avcodec_find_decoder(st->codecpar->codec_id)))
            continue;
        last = st;
        if (first)
            break;
    }
    return last;
}

int input_turns(const struct input *in, const AVStream *st)
{
    const uint8_t *data = NULL;
    size_t n = 0;
    data = in->av->av_stream_get_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, &n);
    if (!data || n < 9 * sizeof(int32_t))
        return 0;
    double turned = in->av->av_display_rotation_get((const int32_t *)(const void *)data);
    return isnan(turned) ? 0 : ((int)floor(trunc(turned) / 90) % 4 + 4) % 4;
}

enum media_color color_of(enum AVColorTransferCharacteristic t)
{
    return t == AVCOL_TRC_BT709 || t == AVCOL_TRC_IEC61966_2_1 ? MEDIA_SRGB
           : t == AVCOL_TRC_ARIB_STD_B67                       ? MEDIA_HLG
           : t == AVCOL_TRC_SMPTE2084                          ? MEDIA_PQ
                                                               : MEDIA_COLOR_UNKNOWN;
}

/* ---- decoding ---- */

berth_status decoder_open(struct input *in, AVStream *st, struct decoder *d, berth_err *err)
{
    const struct av *av = in->av;
    *d = (struct decoder) { .in = in, .st = st };
    const AVCodec *codec = av->avcodec_find_decoder(st->codecpar->codec_id);
    if (!codec)
        return err_set(err, BERTH_EUNSUPPORTED, "FFmpeg has no decoder for '%s' here",
                       av->avcodec_get_name(st->codecpar->codec_id));
    d->c = av->avcodec_alloc_context3(codec);
    d->pkt = av->av_packet_alloc();
    d->frame = av->av_frame_alloc();
    if (!d->c || !d->pkt || !d->frame)
        return err_set(err, BERTH_ENOMEM, "a decoder");
    int k = av->avcodec_parameters_to_context(d->c, st->codecpar);
    d->c->pkt_timebase = st->time_base;
    d->c->max_pixels = PIXELS_MAX;
    d->c->thread_count = helper_threads();
    if (k >= 0)
        k = av->avcodec_open2(d->c, codec, NULL);
    return k < 0 ? av_failed(av, k, codec->name, err) : BERTH_OK;
}

void decoder_release(struct decoder *d)
{
    if (!d->in)
        return;
    d->in->av->avcodec_free_context(&d->c);
    d->in->av->av_packet_free(&d->pkt);
    d->in->av->av_frame_free(&d->frame);
    *d = (struct decoder) { 0 };
}

bool input_packet(struct input *in, AVPacket *pkt)
{
    in->av->av_packet_unref(pkt);
    return in->av->av_read_frame(in->f, pkt) >= 0;
}

berth_status decoder_feed(struct decoder *d, const AVPacket *pkt, berth_err *err)
{
    int k = d->in->av->avcodec_send_packet(d->c, pkt);
    d->fed = d->fed || !pkt;
    return k == AVERROR(ENOMEM) ? err_set(err, BERTH_ENOMEM, "decoding") : BERTH_OK;
}

bool decoder_take(struct decoder *d)
{
    d->in->av->av_frame_unref(d->frame);
    if (d->in->av->avcodec_receive_frame(d->c, d->frame) < 0)
        return false;
    if (d->frame->pts == AV_NOPTS_VALUE)
        d->frame->pts = d->frame->best_effort_timestamp;
    return true;
}

berth_status decoder_next(struct decoder *d, bool *end, berth_err *err)
{
    for (;;) {
        if (decoder_take(d)) {
            *end = false;
            return BERTH_OK;
        }
        if ((*end = d->fed))
            return BERTH_OK;
        bool more;
        while ((more = input_packet(d->in, d->pkt)) && d->pkt->stream_index != d->st->index)
            ;
        if (decoder_feed(d, more ? d->pkt : NULL, err))
            return err->code;
    }
}

void decoder_seek(struct decoder *d, double seconds)
{
    int64_t at = in_base(seconds, d->st->time_base);
    if (at > 0 && d->in->av->av_seek_frame(d->in->f, d->st->index, at, AVSEEK_FLAG_BACKWARD) >= 0)
        d->in->av->avcodec_flush_buffers(d->c);
}
