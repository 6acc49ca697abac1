/* clips: sound and video as values, and what their nodes share.
 *
 * AUDIO      struct audio: [batch, channels, samples] and a rate. None where a video has no sound.
 * VIDEO      struct video: a file and which part of it, not decoded; or the pictures and the sound
 *            that a node was given, by reference.
 * Files      clips.c; audio.c audio_more.c what is done to sound, audio_resample.c; audio_file.c
 *            sound in files; video_file.c video_save.c video in files; video_vhs.c those of
 *            VideoHelperSuite. They read and write through media/media.h. */
#pragma once

#include "media/media.h"
#include "node/node_impl.h"

struct audio {
    struct htensor *wave; /* [b, c, n]; a reference */
    uint32_t rate;
};
extern const struct value_type type_audio;
/* *out NULL: None, or not given. BERTH_EINVAL: something else. */
berth_status in_audio(const struct node_call *c, const char *name, const struct audio **out,
                      berth_err *err);
/* The same where there must be some. */
berth_status in_some_audio(const struct node_call *c, const char *name, const struct audio **out,
                           berth_err *err);
/* Takes the tensor, also on failure. NULL counts as out of memory. */
struct value *value_audio(struct htensor *taken, uint32_t rate);
berth_status out_audio(struct node_call *c, size_t i, berth_status s, struct htensor *taken,
                       uint32_t rate, berth_err *err);
berth_status out_no_audio(struct node_call *c, size_t i, berth_err *err);
berth_status wave_new(size_t b, size_t c, size_t n, struct htensor **out, berth_err *err);
/* Samples [from, from + n) of each channel; what lies beyond the end is 0. */
berth_status wave_part(const struct htensor *w, size_t from, size_t n, struct htensor **out,
                       berth_err *err);
/* audio_resample.c: as torchaudio does it; a reference where the rates are the same. */
berth_status wave_resample(struct htensor *w, uint32_t from, uint32_t to, struct htensor **out,
                           berth_err *err);

struct video {
    char *path;             /* of a file; NULL: made of the rest */
    double start, duration; /* seconds; start < 0: from the end; duration 0: to the end */
    struct htensor *images; /* a reference; [at, at + n) of them */
    size_t at, n;
    struct value *audio; /* a reference; NULL: none */
    double fps;
    int bit_depth;
};
extern const struct value_type type_video;
berth_status in_video(const struct node_call *c, const char *name, const struct video **out,
                      berth_err *err);
/* Takes what v holds, also on failure. */
berth_status out_video(struct node_call *c, size_t i, struct video *v, berth_err *err);

struct video_facts {
    uint32_t w, h; /* as stored */
    double fps, duration;
    uint64_t frames; /* 0: unknown */
    unsigned bit_depth;
    enum media_color color;
    struct media_info file; /* of a file; zero: none */
};
/* video_facts_release() also after an error. */
berth_status video_facts(struct node_call *c, const struct video *v, struct video_facts *out,
                         berth_err *err);
void video_facts_release(struct video_facts *f); /* zeroed is fine */
struct media_cut video_cut(const struct video *v, const struct video_facts *f);

struct media_host clip_host(const struct node_call *c);
/* Frames of a file as [n, h, w, 3]; expected: about how many, 0: unknown. */
berth_status clip_frames(struct node_call *c, const char *path,
                         const struct media_frames_args *args, uint64_t expected,
                         struct htensor **out, berth_err *err);
/* *out NULL: it has no sound. */
berth_status clip_sound(struct node_call *c, const char *path, const struct media_sound_args *args,
                        struct value **out, berth_err *err);

/* A file of pictures and sound, or of sound alone, that a node leaves behind. */
struct clip_out {
    struct media_write_args args; /* fd, what and tags are filled in */
    const struct htensor *images; /* NULL: sound alone */
    size_t at, n;
    const struct audio *sound; /* NULL: none */
    size_t item;               /* of its batch */
    size_t samples;            /* at most so many of each channel; SIZE_MAX: all */
    const size_t *order;       /* of n pictures; NULL: as they stand */
    const char *ext;           /* ".mp4" */
    const char *key;           /* of the ui */
    size_t batch;              /* for %batch_num% */
    bool plain;                /* without the prompt */
    struct str *name;          /* gets the file's name; NULL: nobody asks */
};
berth_status clip_save(struct node_call *c, struct saved *to, const struct clip_out *f,
                       berth_err *err);
/* What save_begin() found, as tags; borrowed from to. NULL and *err: out of memory; free() it. */
struct media_text *clip_tags(const struct saved *to, berth_err *err);
/* round(fps * 1000) / 1000, as a fraction. */
berth_status clip_rate(double fps, uint32_t *num, uint32_t *den, berth_err *err);
