/* copy.c: a file's streams into another file, as they are or encoded anew, a frame at a time. */
#include "media/ffmpeg/av.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STEP 0.25 /* seconds of video between two words about it */

struct copy {
    struct helper *h;
    struct input in;
    struct output o;
    double told;
};

static berth_status step(struct copy *x, double seconds, berth_err *err)
{
    if (seconds < x->told + STEP)
        return BERTH_OK;
    x->told = seconds;
    return say(&(struct media_msg) { .say = SAY_STEP, .x = seconds }, NULL, err);
}

/* The file's own tags, but for those that are given anew. */
static berth_status keep_tags(struct copy *x, berth_err *err)
{
    const struct av *av = &x->h->av;
    const AVDictionaryEntry *t = NULL;
    while ((t = av->av_dict_get(x->in.f->metadata, "", t, AV_DICT_IGNORE_SUFFIX)))
        if (av->av_dict_set(&x->h->text, t->key, t->value, AV_DICT_DONT_OVERWRITE) < 0)
            return err_set(err, BERTH_ENOMEM, "tags");
    return BERTH_OK;
}

/* ---- as they are ---- */

static berth_status add_stream(struct copy *x, const AVStream *from, int *index, berth_err *err)
{
    const struct av *av = &x->h->av;
    enum AVMediaType type = from->codecpar->codec_type;
    size_t n = 0;
    *index = -1;
    if ((type != AVMEDIA_TYPE_VIDEO && type != AVMEDIA_TYPE_AUDIO &&
         type != AVMEDIA_TYPE_SUBTITLE) ||
        !av->avcodec_find_decoder(from->codecpar->codec_id))
        return BERTH_OK;
    AVStream *st = av->avformat_new_stream(x->o.f, NULL);
    int k = st ? av->avcodec_parameters_copy(st->codecpar, from->codecpar) : AVERROR(ENOMEM);
    if (k < 0)
        return av_failed(av, k, "a stream", err);
    st->codecpar->codec_tag = 0;
    st->time_base = from->time_base;
    st->avg_frame_rate = from->avg_frame_rate;
    const uint8_t *turn = av->av_stream_get_side_data(from, AV_PKT_DATA_DISPLAYMATRIX, &n);
    uint8_t *own = turn ? av->av_malloc(n) : NULL;
    if (own) {
        memcpy(own, turn, n);
        if (av->av_stream_add_side_data(st, AV_PKT_DATA_DISPLAYMATRIX, own, n) < 0)
            av->av_free(own);
    }
    *index = st->index;
    return BERTH_OK;
}

static berth_status copy_streams(struct copy *x, berth_err *err)
{
    const struct av *av = &x->h->av;
    int *map = calloc(x->in.f->nb_streams + 1, sizeof *map);
    AVPacket *pkt = av->av_packet_alloc();
    unsigned n = x->in.f->nb_streams;
    berth_status s = map && pkt ? BERTH_OK : err_set(err, BERTH_ENOMEM, "streams");
    for (unsigned i = 0; !s && i < n; i++)
        s = add_stream(x, x->in.f->streams[i], &map[i], err);
    if (!s)
        s = output_begin(&x->o, x->h->q.muxer_options, x->h->text, err);
    while (!s && input_packet(&x->in, pkt)) {
        unsigned i = (unsigned)pkt->stream_index;
        if (i >= n || map[i] < 0 || pkt->dts == AV_NOPTS_VALUE)
            continue;
        const AVStream *from = x->in.f->streams[i], *to = x->o.f->streams[map[i]];
        double at = (double)pkt->dts * av_q2d(from->time_base);
        av->av_packet_rescale_ts(pkt, from->time_base, to->time_base);
        pkt->stream_index = map[i];
        pkt->pos = -1;
        int k = av->av_interleaved_write_frame(x->o.f, pkt);
        s = k < 0 ? av_failed(av, k, "a stream", err) : step(x, at, err);
    }
    av->av_packet_free(&pkt);
    free(map);
    return s;
}

/* ---- encoded anew ---- */

struct anew {
    struct copy *x;
    struct decoder video, sound;
    bool has_sound, video_done, sound_begun;
    struct encoder out;
    struct sound_out voice;
    struct SwsContext *sws;
    int w, h, fmt, turns;
    double start, end;         /* of what is wanted; end 0: of the file */
    int64_t first, last, each; /* pts of frames that went out, in the video's base */
    double shown;              /* seconds of video */
    AVFrame *turned;
};

/* A plane, turned. */
static void turn_plane(const AVFrame *f, AVFrame *o, int plane, int w, int h, int bytes, int turns)
{
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            int tx = turns == 1 ? y : turns == 2 ? w - 1 - x : h - 1 - y;
            int ty = turns == 1 ? w - 1 - x : turns == 2 ? h - 1 - y : x;
            memcpy(o->data[plane] + (ptrdiff_t)ty * o->linesize[plane] + (ptrdiff_t)tx * bytes,
                   f->data[plane] + (ptrdiff_t)y * f->linesize[plane] + (ptrdiff_t)x * bytes,
                   (size_t)bytes);
        }
}

static berth_status begin(struct anew *a, const AVFrame *f, berth_err *err)
{
    struct copy *x = a->x;
    const struct av *av = &x->h->av;
    const struct media_request *q = &x->h->q;
    const AVStream *st = a->video.st;
    enum AVPixelFormat to = av->av_get_pix_fmt(q->pixels);
    a->w = f->width;
    a->h = f->height;
    a->fmt = f->format;
    int w = a->turns % 2 ? f->height : f->width, h = a->turns % 2 ? f->width : f->height;
    if (w % 2 || h % 2)
        return err_set(err, BERTH_EINVAL, "%s wants even sides, and it has %dx%d", q->encoder, w,
                       h);
    if (encoder_new(&x->o, q->encoder, &a->out, err))
        return err->code;
    AVCodecContext *c = a->out.c;
    bool keeps =
        q->color == MEDIA_COLOR_UNKNOWN && color_of(st->codecpar->color_trc) != MEDIA_COLOR_UNKNOWN;
    c->width = w;
    c->height = h;
    c->pix_fmt = to;
    c->time_base = st->time_base;
    c->framerate = st->avg_frame_rate;
    c->max_b_frames = 0; /* so that times of any kind stay as they are */
    c->sample_aspect_ratio = f->sample_aspect_ratio;
    color_tags(q->color, c);
    if (keeps) {
        c->color_primaries = st->codecpar->color_primaries;
        c->color_trc = st->codecpar->color_trc;
        c->colorspace = st->codecpar->color_space;
        c->color_range = st->codecpar->color_range;
    }
    AVRational rate = st->avg_frame_rate.num > 0 ? st->avg_frame_rate : (AVRational) { 25, 1 };
    a->each = av->av_rescale_q(1, av_inv_q(rate), st->time_base);
    a->each = a->each > 0 ? a->each : 1;
    if (encoder_start(&a->out, q->options, err))
        return err->code;
    a->sws = av->sws_getContext(f->width, f->height, (enum AVPixelFormat)f->format, f->width,
                                f->height, to, SWS_BILINEAR, NULL, NULL, NULL);
    if (!a->sws)
        return err_set(err, BERTH_EUNSUPPORTED, "no way from its pixels to '%s'", q->pixels);
    int *inv, *table, from_full, to_full, bright, contrast, saturation;
    if (av->sws_getColorspaceDetails(a->sws, &inv, &from_full, &table, &to_full, &bright, &contrast,
                                     &saturation) >= 0) {
        from_full = from_full || f->color_range == AVCOL_RANGE_JPEG;
        const int *own = av->sws_getCoefficients(f->colorspace);
        av->sws_setColorspaceDetails(a->sws, own, from_full, own, keeps && from_full, bright,
                                     contrast, saturation);
    }
    if (a->has_sound) {
        const AVCodecParameters *p = a->sound.st->codecpar;
        int channels = p->ch_layout.nb_channels;
        int rate_out = q->sound_rate ? (int)q->sound_rate : p->sample_rate;
        const struct sound_format from = { p->sample_rate, channels, a->sound.c->sample_fmt };
        if (sound_open(&a->voice, &x->o, q->sound, rate_out,
                       channels == 1 || channels == 6 ? channels : 2, err) ||
            sound_start(&a->voice, &from, "", err))
            return err->code;
    }
    return output_begin(&x->o, q->muxer_options, x->h->text, err);
}

static berth_status convert(struct anew *a, const AVFrame *f, berth_err *err)
{
    const struct av *av = &a->x->h->av;
    const AVCodecContext *c = a->out.c;
    AVFrame *o = a->turns ? a->turned : a->out.frame;
    av->av_frame_unref(o);
    o->format = c->pix_fmt;
    o->width = f->width;
    o->height = f->height;
    int k = av->av_frame_get_buffer(o, 0);
    if (k >= 0)
        k = av->sws_scale(a->sws, (const uint8_t *const *)f->data, f->linesize, 0, f->height,
                          o->data, o->linesize);
    if (k < 0)
        return av_failed(av, k, "a frame", err);
    if (!a->turns)
        return BERTH_OK;
    AVFrame *t = a->out.frame;
    const AVPixFmtDescriptor *d = av->av_pix_fmt_desc_get(c->pix_fmt);
    av->av_frame_unref(t);
    t->format = c->pix_fmt;
    t->width = c->width;
    t->height = c->height;
    if ((k = av->av_frame_get_buffer(t, 0)) < 0)
        return av_failed(av, k, "a frame", err);
    for (int i = 0; i < 3; i++)
        turn_plane(o, t, i, i ? -(-f->width >> d->log2_chroma_w) : f->width,
                   i ? -(-f->height >> d->log2_chroma_h) : f->height, d->comp[i].step, a->turns);
    return BERTH_OK;
}

static berth_status put_video(struct anew *a, const AVFrame *f, berth_err *err)
{
    AVRational base = a->video.st->time_base;
    if (!a->out.o && begin(a, f, err))
        return err->code;
    if (f->width != a->w || f->height != a->h || f->format != a->fmt)
        return err_set(err, BERTH_EFORMAT, "its frames change from %dx%d to %dx%d", a->w, a->h,
                       f->width, f->height);
    if (convert(a, f, err))
        return err->code;
    AVFrame *o = a->out.frame;
    int64_t pts = f->pts;
    if (a->last < 0)
        a->first = pts == AV_NOPTS_VALUE ? 0 : pts;
    pts = pts == AV_NOPTS_VALUE ? a->last + a->each : pts - a->first;
    o->pts = a->last >= 0 && pts <= a->last ? a->last + a->each : pts;
    a->last = o->pts;
    a->shown = (double)(a->last + a->each) * av_q2d(base);
    o->color_primaries = a->out.c->color_primaries;
    o->color_trc = a->out.c->color_trc;
    o->colorspace = a->out.c->colorspace;
    o->color_range = a->out.c->color_range;
    return encoder_put(&a->out, o, err) ? err->code : step(a->x, a->shown, err);
}

static berth_status video_frames(struct anew *a, berth_err *err)
{
    double base = av_q2d(a->video.st->time_base);
    while (!a->video_done && decoder_take(&a->video)) {
        const AVFrame *f = a->video.frame;
        double at = f->pts == AV_NOPTS_VALUE ? a->start : (double)f->pts * base;
        if (f->pts != AV_NOPTS_VALUE && f->pts < in_base(a->start, a->video.st->time_base))
            continue;
        a->video_done = a->end > 0 && at >= a->end;
        if (!a->video_done && put_video(a, f, err))
            return err->code;
    }
    return BERTH_OK;
}

/* Once the pictures are there their times are known, and with them how much sound is wanted. */
static berth_status put_sound(struct anew *a, berth_err *err)
{
    const struct av *av = &a->x->h->av;
    const AVCodecParameters *p = a->sound.st->codecpar;
    struct decoder *d = &a->sound;
    double zero = a->start > 0 ? a->start : 0;
    int64_t most = (int64_t)ceil(a->shown * p->sample_rate), sent = 0;
    bool end = false;
    while (sent < most && !decoder_next(d, &end, err) && !end) {
        const AVFrame *f = d->frame;
        enum AVSampleFormat fmt = (enum AVSampleFormat)f->format;
        const uint8_t *data[MEDIA_CHANNELS_MAX];
        int c = f->ch_layout.nb_channels;
        if (fmt != d->c->sample_fmt || c != p->ch_layout.nb_channels ||
            f->sample_rate != p->sample_rate || c > MEDIA_CHANNELS_MAX)
            return err_set(err, BERTH_EUNSUPPORTED, "its sound changes on the way");
        double at = f->pts == AV_NOPTS_VALUE ? zero : (double)f->pts * av_q2d(d->st->time_base);
        double skip = a->sound_begun ? 0 : trunc((zero - at) * p->sample_rate);
        if (skip >= f->nb_samples)
            continue;
        int from = skip > 0 ? (int)skip : 0;
        int64_t n = f->nb_samples - from < most - sent ? f->nb_samples - from : most - sent;
        a->sound_begun = true;
        bool planar = av->av_sample_fmt_is_planar(fmt);
        size_t each = (size_t)av->av_get_bytes_per_sample(fmt) * (planar ? 1 : (size_t)c);
        for (int i = 0; i < (planar ? c : 1); i++)
            data[i] = f->extended_data[i] + (size_t)from * each;
        if (sound_put(&a->voice, data, (int)n, err))
            return err->code;
        sent += n;
    }
    return sound_end(&a->voice, err);
}

static void anew_release(struct anew *a)
{
    const struct av *av = &a->x->h->av;
    av->sws_freeContext(a->sws);
    av->av_frame_free(&a->turned);
    encoder_release(&a->out);
    sound_release(&a->voice);
    decoder_release(&a->video);
    decoder_release(&a->sound);
}

static berth_status encode_anew(struct copy *x, berth_err *err)
{
    const struct media_request *q = &x->h->q;
    struct anew a = { .x = x, .last = -1, .start = q->cut.start };
    struct input again = { 0 }; /* the sound, read a second time: nothing of it is kept meanwhile */
    AVStream *st = input_video(&x->in);
    bool end = false;
    if (!st)
        return err_set(err, BERTH_EFORMAT, "there is no video in it");
    a.end = q->cut.duration > 0 ? q->cut.start + q->cut.duration : 0;
    a.turns = input_turns(&x->in, st);
    a.turned = x->h->av.av_frame_alloc();
    berth_status s =
        a.turned ? decoder_open(&x->in, st, &a.video, err) : err_set(err, BERTH_ENOMEM, "a frame");
    if (!s && q->sound[0] && !(s = input_open(&x->h->av, &again, err))) {
        AVStream *sound = input_sound(&again, false);
        a.has_sound =
            sound && sound->codecpar->sample_rate > 0 && sound->codecpar->ch_layout.nb_channels > 0;
        if (a.has_sound)
            s = decoder_open(&again, sound, &a.sound, err);
    }
    if (!s) {
        decoder_seek(&a.video, a.start);
        if (a.has_sound)
            decoder_seek(&a.sound, a.start);
    }
    while (!s && !a.video_done && !end) {
        bool more;
        while ((more = input_packet(&x->in, a.video.pkt)) && a.video.pkt->stream_index != st->index)
            ;
        end = !more;
        s = decoder_feed(&a.video, more ? a.video.pkt : NULL, err);
        if (!s)
            s = video_frames(&a, err);
    }
    if (!s && !a.out.o)
        s = err_set(err, BERTH_EFORMAT, "no frame of its video can be decoded");
    if (!s)
        s = encoder_put(&a.out, NULL, err);
    if (!s && a.has_sound)
        s = put_sound(&a, err);
    anew_release(&a);
    input_release(&again);
    return s;
}

berth_status helper_copy(struct helper *h, berth_err *err)
{
    struct copy x = { .h = h };
    berth_status s = input_open(&h->av, &x.in, err);
    if (!s)
        s = output_open(&h->av, h->q.container, &x.o, err);
    if (!s)
        s = keep_tags(&x, err);
    if (!s)
        s = h->q.encoder[0] ? encode_anew(&x, err) : copy_streams(&x, err);
    if (!s)
        s = output_end(&x.o, err);
    output_release(&x.o);
    input_release(&x.in);
    return s;
}
