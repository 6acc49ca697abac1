/* av.h: FFmpeg's libraries, and what a helper shares. For this folder alone.
 *
 * The libraries are opened here, at run time: every other process of berth starts without them and
 * the hundred that they bring along. Their headers decide which version is opened.
 *
 * Files      av.def what is called; helper.c opens, listens and answers; sandbox.c gives up rights;
 *            input.c a file that is read; info.c read.c probes, reads; output.c a file that is
 *            written; write.c copy.c write it. */
#pragma once

#include "media/media_impl.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/audio_fifo.h>
#include <libavutil/channel_layout.h>
#include <libavutil/display.h>
#include <libavutil/imgutils.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswresample/swresample.h>
#include <libswscale/swscale.h>

/* Sanitizers have words for people, and more memory than any limit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

struct av {
#define AV(lib, f) __typeof__(f) *f;
#include "media/ffmpeg/av.def"
#undef AV
};

struct helper { /* of one request */
    struct av av;
    struct media_request q;
    AVDictionary *text; /* tags that came with it */
    struct media_msg m; /* what was heard last */
};

/* helper.c: the other side. */
berth_status say(const struct media_msg *m, const void *data, berth_err *err);
berth_status hear(struct media_msg *m, berth_err *err);
berth_status hear_data(void *to, size_t n, berth_err *err);
/* What a function of the libraries said, as an error. */
berth_status av_failed(const struct av *av, int code, const char *what, berth_err *err);
int helper_threads(void); /* for one codec */

/* sandbox.c: from here on neither files nor programs nor networks. */
berth_status sandbox_enter(bool writes, berth_err *err);
void sandbox_close_others(void); /* every descriptor that is not a helper's */

/* ---- input.c: descriptor 0 ---- */
struct input {
    const struct av *av;
    AVFormatContext *f;
    AVIOContext *io;
    int64_t at;
};
berth_status input_open(const struct av *av, struct input *in, berth_err *err);
void input_release(struct input *in);
AVStream *input_video(const struct input *in);             /* the first; NULL: none */
AVStream *input_sound(const struct input *in, bool first); /* the first, or the last decodable */
int input_turns(const struct input *in, const AVStream *st);
enum media_color color_of(enum AVColorTransferCharacteristic t);

struct decoder {
    struct input *in;
    AVStream *st;
    AVCodecContext *c;
    AVPacket *pkt;
    AVFrame *frame;
    bool fed; /* the end was reached */
};
berth_status decoder_open(struct input *in, AVStream *st, struct decoder *d, berth_err *err);
void decoder_release(struct decoder *d);
/* d->frame is the next, or *end. What cannot be decoded is left out. */
berth_status decoder_next(struct decoder *d, bool *end, berth_err *err);
/* One packet more of any stream in d->pkt, false: none is left. */
bool input_packet(struct input *in, AVPacket *pkt);
/* The same in two steps, for several decoders on one input. */
berth_status decoder_feed(struct decoder *d, const AVPacket *pkt,
                          berth_err *err); /* NULL: the end */
bool decoder_take(struct decoder *d);
/* To where `seconds` is shown, or before. */
void decoder_seek(struct decoder *d, double seconds);
static inline int64_t in_base(double seconds, AVRational base)
{
    double x = seconds * base.den / base.num;
    return x >= 9e18 ? INT64_MAX : x <= -9e18 ? INT64_MIN : (int64_t)x;
}

/* ---- output.c: descriptor 3 ---- */
struct output {
    const struct av *av;
    AVFormatContext *f;
    AVIOContext *io;
    int64_t at;
    AVPacket *pkt;
    bool begun;
};
berth_status output_open(const struct av *av, const char *container, struct output *o,
                         berth_err *err);
berth_status output_begin(struct output *o, const char *options, AVDictionary *text,
                          berth_err *err);
berth_status output_end(struct output *o, berth_err *err);
void output_release(struct output *o);

struct encoder {
    struct output *o;
    AVStream *st;
    AVCodecContext *c;
    AVFrame *frame; /* the one that goes in next */
};
berth_status encoder_new(struct output *o, const char *name, struct encoder *e, berth_err *err);
berth_status encoder_start(struct encoder *e, const char *options, berth_err *err);
/* frame NULL: the end. */
berth_status encoder_put(struct encoder *e, const AVFrame *frame, berth_err *err);
void encoder_release(struct encoder *e);
void color_tags(enum media_color color, AVCodecContext *c);

/* Sound on its way into an encoder. */
struct sound_out {
    struct encoder e;
    SwrContext *swr;
    AVAudioFifo *fifo;
    int64_t pts;
};
struct sound_format {
    int rate, channels;
    enum AVSampleFormat fmt;
};
berth_status sound_open(struct sound_out *s, struct output *o, const char *encoder, int rate,
                        int channels, berth_err *err);
berth_status sound_start(struct sound_out *s, const struct sound_format *from, const char *options,
                         berth_err *err);
/* n of each channel; data NULL: what the resampler keeps. */
berth_status sound_put(struct sound_out *s, const uint8_t *const *data, int n, berth_err *err);
berth_status sound_end(struct sound_out *s, berth_err *err);
void sound_release(struct sound_out *s);

/* ---- the operations ---- */
berth_status helper_probe(struct helper *h, berth_err *err);
berth_status helper_frames(struct helper *h, berth_err *err);
berth_status helper_sound(struct helper *h, berth_err *err);
berth_status helper_write(struct helper *h, berth_err *err);
berth_status helper_copy(struct helper *h, berth_err *err);
