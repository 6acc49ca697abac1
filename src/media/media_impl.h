/* media_impl.h: what a helper and the program that started it say to each other.
 *
 * Both are the same program, so structs travel as they are. Descriptors of a helper: 0 the file to
 * read, or /dev/null; 1 the socket; 2 messages of libraries; 3 the file to write, where there is
 * one.
 *
 *     parent -> helper   request, its tags (TEXT), its frames and sounds (FRAME, SOUND), END
 *     helper -> parent   what was asked for (INFO, TEXT, FRAME, HEAD, SOUND, STEP), then END;
 *                        or FAIL */
#pragma once

#include "media/media.h"

#include <sys/types.h>

enum media_op { MEDIA_PROBE = 1, MEDIA_FRAMES, MEDIA_SOUND, MEDIA_WRITE, MEDIA_COPY };

struct media_request {
    uint32_t size; /* of this struct */
    enum media_op op;
    struct media_cut cut;
    double rate;
    uint64_t skip, every, cap;
    bool bytes, first;
    char container[MEDIA_NAME_MAX], muxer_options[MEDIA_OPTIONS_MAX];
    char encoder[MEDIA_NAME_MAX], pixels[MEDIA_NAME_MAX], options[MEDIA_OPTIONS_MAX];
    char sound[MEDIA_NAME_MAX], sound_options[MEDIA_OPTIONS_MAX];
    uint32_t w, h, rate_num, rate_den, channels, bits;
    enum media_color color;
    bool no_bit_rate, quality;
    uint32_t sound_rate, sound_channels, sound_bit_rate;
};

enum media_say {
    SAY_TEXT = 1, /* a: bytes of the key, which the value follows */
    SAY_INFO,     /* struct media_info */
    SAY_FRAME,    /* a, b: sides; x: seconds; w * h * channels samples */
    SAY_HEAD,     /* a: rate, b: channels */
    SAY_SOUND,    /* floats, interleaved */
    SAY_STEP,     /* x: seconds */
    SAY_END,
    SAY_FAIL, /* a: a berth_status; the message */
};
struct media_msg {
    uint32_t say, a, b, pad;
    double x;
    uint64_t n; /* bytes that follow */
};
#define MEDIA_FAIL_MAX 400
#define MEDIA_PIECE ((size_t)1 << 20) /* of sound at once, in bytes */

/* process.c */
struct media_process {
    pid_t pid;
    int fd; /* -1: gone */
    const struct media_host *host;
    char about[256]; /* the file, for messages */
};
/* in: the file to read, -1: none. out: the file to write, -1: none. Both borrowed. */
berth_status process_start(const struct media_host *host, const struct media_request *q, int in,
                           int out, const char *about, struct media_process *p, berth_err *err);
berth_status process_send(struct media_process *p, const struct media_msg *m, const void *data,
                          berth_err *err);
berth_status process_texts(struct media_process *p, const struct media_text *text, size_t n,
                           berth_err *err);
/* A message, whose data is then read with process_data(). SAY_FAIL has become *err. */
berth_status process_next(struct media_process *p, struct media_msg *m, berth_err *err);
berth_status process_data(struct media_process *p, void *to, size_t n, berth_err *err);
/* What a helper should not have said. */
berth_status process_nonsense(struct media_process *p, berth_err *err);
/* The helper's last message, or how it ended, in place of *err that came from talking to it. */
berth_status process_why(struct media_process *p, berth_err *err);
void process_end(struct media_process *p); /* stops it, if it has not ended; zeroed is not fine */
/* Copies a name into a field of a request. */
#define REQUEST_NAME(to, from, err) request_name(to, sizeof(to), from, err)
berth_status request_name(char *to, size_t most, const char *from, berth_err *err);
