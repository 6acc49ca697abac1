/* media: files of video and sound. FFmpeg stops in ffmpeg/.
 *
 * Words      helper  a child process that reads or writes one file. FFmpeg is opened there and
 *                    nowhere else: what a hostile file does to a decoder ends a helper, and is an
 *                    error here. It has no rights: no files but those handed over, no network, no
 *                    other programs (ffmpeg/sandbox.c), and limits on memory and time.
 *            cut     which part of a file, in seconds
 *            picture one frame, [h, w, c], rows from the top
 * Flow       parent  media.c: posix_spawn() of host.helper, a request, then messages over a socket
 *            helper  media_helper(): ffmpeg/ opens the libraries, gives up its rights, serves
 *                    one request and ends
 * Memory     Pictures travel one by one, so a clip costs what the caller keeps of it, and a few
 *            frames of the codec's own in the helper.
 * Limits     MEDIA_SIDE_MAX, MEDIA_TEXT_MAX, MEDIA_STREAM_MAX and those of media_frames_args. A
 *            helper that says nothing for media_host.patience_s is stopped. What it says is
 *            checked: it may have been taken over.
 * Threads    Any; a reader or writer belongs to one thread.
 * Files      media.c probing, reading; writer.c writing; process.c the helper from outside;
 *            media_impl.h what both sides say; ffmpeg/ the helper from inside. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdatomic.h>

/* Is FFmpeg in this build? Without it everything here is BERTH_EUNSUPPORTED, and says so. */
bool media_built(void);
#define MEDIA_ABSENT                                                                               \
    "reading and writing video and sound is not in this build (FFmpeg was not there)"

/* main() of a program that is a helper calls this first when argv[1] is MEDIA_HELPER, and returns
 * what it gives. */
#define MEDIA_HELPER "--media-helper"
int media_helper(void);

struct media_host { /* zero: the default of every field */
    /* A program whose main() calls media_helper(); NULL: there is none, BERTH_EUNSUPPORTED. */
    const char *helper;
    const atomic_bool *cancel; /* any thread sets it: BERTH_ECANCELED; NULL: nobody does */
    unsigned patience_s;       /* 120 */
};
/* This program, when it calls media_helper(). */
#define MEDIA_SELF "/proc/self/exe"

#define MEDIA_SIDE_MAX 16384
#define MEDIA_CHANNELS_MAX 64
#define MEDIA_RATE_MAX 768000
#define MEDIA_TEXT_MAX ((size_t)64 << 20) /* of all tags of a file */
#define MEDIA_TAGS_MAX 1024

struct media_text {
    char *key, *value; /* UTF-8 */
};

/* MEDIA_BT709 is for writing alone: sRGB's pixels under the tags that players of video expect. */
enum media_color { MEDIA_COLOR_UNKNOWN, MEDIA_SRGB, MEDIA_HLG, MEDIA_PQ, MEDIA_BT709 };

/* What a file is, by its headers. */
struct media_info {
    char format[64]; /* FFmpeg's: "mov,mp4,m4a,3gp,3g2,mj2" */
    bool video, audio;
    char video_codec[32], audio_codec[32]; /* "h264", "aac"; "": none */
    uint32_t w, h;                         /* as stored; rotation is not applied */
    int turns;                             /* quarter turns to the left that a viewer makes */
    uint32_t rate_num, rate_den;           /* average frames a second; 0/1: unknown */
    uint64_t frames;                       /* as the file says; 0: it does not */
    double
        duration; /* seconds, of the file or, where it does not say, of the frames; < 0: unknown */
    double video_duration; /* of the video stream, as the file says; < 0: it does not */
    unsigned bit_depth;    /* of a sample: 8 where unknown */
    enum media_color color;
    bool alpha;
    uint32_t sample_rate, channels; /* of the last sound that can be decoded */
    bool webm_fits;                 /* every stream is one that WebM may have */
    struct media_text *text;        /* tags of the file; owned */
    size_t texts;
};
/* media_info_release() also after an error. */
berth_status media_probe(const struct media_host *host, const char *path, struct media_info *out,
                         berth_err *err);
void media_info_release(struct media_info *i); /* zeroed is fine */

struct media_cut {
    double start, duration; /* seconds, >= 0; duration 0: to the end */
};

/* ---- reading ---- */

struct media_frames_args { /* zero: every frame, as floats */
    struct media_cut cut;
    bool bytes;     /* 8 bits a sample on the way, as OpenCV gives them: the results are n / 255 */
    double rate;    /* frames a second, by leaving out and repeating; 0: as they are */
    uint64_t skip;  /* leave out so many first, */
    uint64_t every; /* then take each n-th; 0: each */
    uint64_t cap;   /* at most so many; 0: all */
    uint64_t max_frames; /* BERTH_ELIMIT beyond; 0: 1 << 20 */
};
struct media_picture {
    uint32_t w, h;
    double seconds; /* when it shows, in the file's time */
};
struct media_reader;
/* Pictures of the first video stream, turned upright, in RGB; alpha is dropped. */
berth_status media_frames_open(const struct media_host *host, const char *path,
                               const struct media_frames_args *args, struct media_reader **out,
                               berth_err *err);
/* The next picture's sizes; false: there is none, and *err says whether that is an error
 * (err->code). media_frame_take() must follow: w * h * 3 floats, 0..1 for most files. */
bool media_frame_next(struct media_reader *r, struct media_picture *out, berth_err *err);
berth_status media_frame_take(struct media_reader *r, float *rgb, berth_err *err);

struct media_sound_args {
    struct media_cut cut;
    bool first; /* the first sound stream and all of it, else the last one that can be decoded */
    uint64_t max_samples; /* of all channels together; 0: 1 << 30 */
};
struct media_sound { /* media_sound_release() */
    float *data;     /* [n][channels]; owned, free() */
    size_t n;
    uint32_t channels, rate; /* 0: the file has no sound */
};
berth_status media_sound_read(const struct media_host *host, const char *path,
                              const struct media_sound_args *args, struct media_sound *out,
                              berth_err *err);
void media_sound_release(struct media_sound *s); /* zeroed is fine */
void media_close(struct media_reader *r);        /* NULL is fine */

/* ---- writing ---- */

#define MEDIA_NAME_MAX 32
#define MEDIA_OPTIONS_MAX 256
struct media_write_args {
    int fd;                        /* of an empty file that can be read and written; borrowed */
    const char *what;              /* for messages: "video/ComfyUI_00001_.mp4" */
    const char *container;         /* FFmpeg's: "mp4", "matroska", "webm", "flac", ... */
    const char *muxer_options;     /* "movflags=faststart"; NULL: none */
    const struct media_text *text; /* tags of the file; borrowed for the call */
    size_t texts;
    struct media_write_video {
        const char *encoder; /* "libx264", or a codec's name; NULL: no video */
        const char *options; /* "crf=23:preset=6"; NULL: none */
        const char *pixels;  /* of the file: "yuv420p" */
        uint32_t w, h;
        uint32_t rate_num, rate_den;
        unsigned channels, bits; /* of what media_write_frame() gets: 3 or 4 of 8, or 3 of 16 */
        enum media_color color;  /* MEDIA_COLOR_UNKNOWN: no tags, and the library's own matrix */
        bool no_bit_rate;        /* 0 in place of the encoder's default */
    } video;
    struct media_write_audio {
        const char *encoder; /* NULL: no sound */
        uint32_t rate, channels;
        uint32_t bit_rate; /* 0: the encoder's default */
        bool quality;      /* by quality, the best, in place of a bit rate */
        const char *options;
    } audio;
};
struct media_writer;
berth_status media_writer_open(const struct media_host *host, const struct media_write_args *args,
                               struct media_writer **out, berth_err *err);
/* w * h * channels samples; those of 16 bits in this machine's order. */
berth_status media_write_frame(struct media_writer *w, const void *px, berth_err *err);
/* Behind all frames: n of each channel, interleaved. */
berth_status media_write_sound(struct media_writer *w, const float *data, size_t n, berth_err *err);
berth_status media_writer_finish(struct media_writer *w, berth_err *err); /* close it then, too */
void media_writer_close(struct media_writer *w);                          /* NULL is fine */

/* A file's streams in another container (encoder NULL), or its video encoded anew, with its sound.
 * Tags of the file stay where `text` has none of that name. progress: seconds of video that are
 * done; may be NULL. */
struct media_copy_args {
    int fd; /* as above */
    const char *what;
    const char *container, *muxer_options;
    const struct media_text *text;
    size_t texts;
    struct media_cut cut;
    const char *encoder, *options, *pixels; /* of the video; encoder NULL: streams as they are */
    enum media_color color; /* tags of what is encoded; MEDIA_COLOR_UNKNOWN: those of the file */
    const char *sound;      /* encoder of the sound; NULL: none is written */
    uint32_t sound_rate;    /* 0: as it is */
    berth_status (*progress)(void *user, double seconds, berth_err *err);
    void *user;
};
berth_status media_copy(const struct media_host *host, const char *path,
                        const struct media_copy_args *args, berth_err *err);
