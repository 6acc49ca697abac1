/* info.c: what a file says about itself. */
#include "media/ffmpeg/av.h"

#include <stdio.h>
#include <string.h>

static unsigned depth_of(const AVPixFmtDescriptor *d)
{
    unsigned most = 0;
    for (int i = 0; d && i < d->nb_components; i++)
        most = (unsigned)d->comp[i].depth > most ? (unsigned)d->comp[i].depth : most;
    return most ? most : 8;
}

static bool fits_webm(const struct input *in)
{
    static const enum AVCodecID ids[] = {
        AV_CODEC_ID_AV1,  AV_CODEC_ID_VP8,    AV_CODEC_ID_VP9,
        AV_CODEC_ID_OPUS, AV_CODEC_ID_VORBIS, AV_CODEC_ID_WEBVTT
    };
    for (unsigned i = 0; i < in->f->nb_streams; i++) {
        const AVCodecParameters *p = in->f->streams[i]->codecpar;
        bool asked = p->codec_type == AVMEDIA_TYPE_VIDEO || p->codec_type == AVMEDIA_TYPE_AUDIO ||
                     p->codec_type == AVMEDIA_TYPE_SUBTITLE;
        bool fits = !asked || !in->av->avcodec_find_decoder(p->codec_id);
        for (size_t k = 0; k < ARRAY_LEN(ids) && !fits; k++)
            fits = p->codec_id == ids[k];
        if (!fits)
            return false;
    }
    return true;
}

/* Packets of the video, where nothing else tells how long it is. */
static uint64_t count_packets(struct input *in, const AVStream *st)
{
    uint64_t n = 0;
    AVPacket *pkt = in->av->av_packet_alloc();
    while (pkt && input_packet(in, pkt))
        n += pkt->stream_index == st->index;
    in->av->av_packet_free(&pkt);
    return n;
}

static double file_seconds(struct input *in, const AVStream *video, const struct media_info *i)
{
    if (in->f->duration != AV_NOPTS_VALUE)
        return (double)in->f->duration / AV_TIME_BASE;
    if (!video || !i->rate_num)
        return -1;
    uint64_t n = i->frames ? i->frames : count_packets(in, video);
    return n ? (double)n * i->rate_den / i->rate_num : -1;
}

static void about_video(const struct input *in, const AVStream *st, struct media_info *i)
{
    const AVCodecParameters *p = st->codecpar;
    const AVPixFmtDescriptor *d = in->av->av_pix_fmt_desc_get((enum AVPixelFormat)p->format);
    i->video = true;
    snprintf(i->video_codec, sizeof i->video_codec, "%s", in->av->avcodec_get_name(p->codec_id));
    i->w = p->width > 0 ? (uint32_t)p->width : 0;
    i->h = p->height > 0 ? (uint32_t)p->height : 0;
    i->turns = input_turns(in, st);
    if (st->avg_frame_rate.num > 0 && st->avg_frame_rate.den > 0) {
        i->rate_num = (uint32_t)st->avg_frame_rate.num;
        i->rate_den = (uint32_t)st->avg_frame_rate.den;
    }
    i->frames = st->nb_frames > 0 ? (uint64_t)st->nb_frames : 0;
    if (st->duration != AV_NOPTS_VALUE)
        i->video_duration = (double)st->duration * av_q2d(st->time_base);
    i->bit_depth = depth_of(d);
    i->alpha = d && d->flags & AV_PIX_FMT_FLAG_ALPHA;
    i->color = color_of(p->color_trc);
}

static berth_status tell_tags(const struct av *av, const AVDictionary *tags, berth_err *err)
{
    struct str s = { 0 };
    const AVDictionaryEntry *at = NULL;
    berth_status st = BERTH_OK;
    while (!st && (at = av->av_dict_get(tags, "", at, AV_DICT_IGNORE_SUFFIX))) {
        size_t key = strlen(at->key);
        str_clear(&s);
        str_add(&s, at->key, key);
        str_adds(&s, at->value);
        struct media_msg m = { .say = SAY_TEXT, .a = (uint32_t)key, .n = s.n };
        st = s.bad ? err_set(err, BERTH_ENOMEM, "tags") : say(&m, s.p ? s.p : "", err);
    }
    str_release(&s);
    return st;
}

berth_status helper_probe(struct helper *h, berth_err *err)
{
    struct input in;
    struct media_info i = { .rate_den = 1, .video_duration = -1, .bit_depth = 8 };
    if (input_open(&h->av, &in, err))
        return err->code;
    const AVStream *video = input_video(&in), *sound = input_sound(&in, false);
    snprintf(i.format, sizeof i.format, "%s", in.f->iformat->name);
    if (video)
        about_video(&in, video, &i);
    if (sound) {
        i.audio = true;
        snprintf(i.audio_codec, sizeof i.audio_codec, "%s",
                 h->av.avcodec_get_name(sound->codecpar->codec_id));
        i.sample_rate = (uint32_t)sound->codecpar->sample_rate;
        i.channels = (uint32_t)sound->codecpar->ch_layout.nb_channels;
    }
    i.webm_fits = fits_webm(&in);
    i.duration = file_seconds(&in, video, &i);
    struct media_msg m = { .say = SAY_INFO, .n = sizeof i };
    berth_status s = say(&m, &i, err);
    /* Ogg keeps its tags with the stream. */
    if (!s)
        s = tell_tags(&h->av, in.f->metadata, err);
    if (!s && !in.f->metadata && sound)
        s = tell_tags(&h->av, sound->metadata, err);
    input_release(&in);
    return s;
}
