/* helper.c: the process that reads or writes one file. */
#include "media/ffmpeg/av.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCK 1
#define THREADS_MAX 4 /* each of a decoder's keeps a frame */

berth_status say(const struct media_msg *m, const void *data, berth_err *err)
{
    const void *part[] = { m, data };
    size_t size[] = { sizeof *m, data ? (size_t)m->n : 0 };
    for (int i = 0; i < 2; i++)
        for (const char *at = part[i]; size[i];) {
            ssize_t k = send(SOCK, at, size[i], MSG_NOSIGNAL);
            if (k < 0 && errno == EINTR)
                continue;
            if (k <= 0)
                return err_set(err, BERTH_ECANCELED, "nobody listens");
            at += k;
            size[i] -= (size_t)k;
        }
    return BERTH_OK;
}

berth_status hear_data(void *to, size_t n, berth_err *err)
{
    for (char *at = to; n;) {
        ssize_t k = recv(SOCK, at, n, 0);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(err, BERTH_ECANCELED, "nobody speaks");
        at += k;
        n -= (size_t)k;
    }
    return BERTH_OK;
}

berth_status hear(struct media_msg *m, berth_err *err)
{
    return hear_data(m, sizeof *m, err);
}

berth_status av_failed(const struct av *av, int code, const char *what, berth_err *err)
{
    char text[128];
    av->av_strerror(code, text, sizeof text);
    return err_set(err, code == AVERROR(ENOMEM) ? BERTH_ENOMEM : BERTH_EFORMAT, "%s: %s", what,
                   text);
}

int helper_threads(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (int)n;
}

#ifdef __SANITIZE_THREAD__
/* Nobody compiled the libraries for it, so it sees their memory and not their atomics. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libavutil\ncalled_from_lib:libavcodec\ncalled_from_lib:libavformat\n"
           "called_from_lib:libswscale\ncalled_from_lib:libswresample\ncalled_from_lib:libx264\n"
           "called_from_lib:libx265\ncalled_from_lib:libvpx\ncalled_from_lib:libSvtAv1Enc\n"
           "called_from_lib:libdav1d\ncalled_from_lib:libopus\ncalled_from_lib:libmp3lame\n";
}
#endif

static berth_status open_libraries(struct av *av, berth_err *err)
{
#define SONAME_(name, major) name ".so." #major
#define SONAME(name, major) SONAME_(name, major)
    enum { avutil, swresample, avcodec, avformat, swscale, LIBRARIES };
    static const char *const name[LIBRARIES] = {
        [avutil] = SONAME("libavutil", LIBAVUTIL_VERSION_MAJOR),
        [swresample] = SONAME("libswresample", LIBSWRESAMPLE_VERSION_MAJOR),
        [avcodec] = SONAME("libavcodec", LIBAVCODEC_VERSION_MAJOR),
        [avformat] = SONAME("libavformat", LIBAVFORMAT_VERSION_MAJOR),
        [swscale] = SONAME("libswscale", LIBSWSCALE_VERSION_MAJOR),
    };
    void *lib[LIBRARIES], *f;
    for (int i = 0; i < LIBRARIES; i++)
        if (!(lib[i] = dlopen(name[i], RTLD_LAZY | RTLD_LOCAL)))
            return err_set(err, BERTH_EUNSUPPORTED,
                           "files of video and sound need FFmpeg's libraries: %s", dlerror());
#define AV(library, function)                                                                      \
    if (!(f = dlsym(lib[library], #function)))                                                     \
        return err_set(err, BERTH_EUNSUPPORTED, "%s has no " #function, name[library]);            \
    memcpy(&av->function, &f, sizeof f);
#include "media/ffmpeg/av.def"
#undef AV
    av->av_log_set_level(AV_LOG_QUIET);
    return BERTH_OK;
}

/* Tags, up to the first message that is none, which stays in h->m. */
static berth_status hear_texts(struct helper *h, berth_err *err)
{
    size_t all = 0;
    berth_status s = BERTH_OK;
    while (!s && !(s = hear(&h->m, err)) && h->m.say == SAY_TEXT) {
        size_t n = (size_t)h->m.n, key = h->m.a;
        if (key > n || n > MEDIA_TEXT_MAX - all)
            return err_set(err, BERTH_ELIMIT, "tags of more than %zu bytes", MEDIA_TEXT_MAX);
        all += n;
        char *k = calloc(1, key + 1), *v = calloc(1, n - key + 1);
        s = k && v ? hear_data(k, key, err) : err_set(err, BERTH_ENOMEM, "tags");
        if (!s)
            s = hear_data(v, n - key, err);
        if (!s && h->av.av_dict_set(&h->text, k, v, 0) < 0)
            s = err_set(err, BERTH_ENOMEM, "tags");
        free(k);
        free(v);
    }
    return s;
}

static berth_status serve(struct helper *h, berth_err *err)
{
    struct media_msg m;
    if (hear(&m, err))
        return err->code;
    if (m.n != sizeof h->q || hear_data(&h->q, sizeof h->q, err) || h->q.size != sizeof h->q)
        return err_set(err, BERTH_EINVAL, "a request of another version");
    bool writes = h->q.op == MEDIA_WRITE || h->q.op == MEDIA_COPY;
    if (!writes)
        close(3); /* somebody else's, if it is there */
    if (open_libraries(&h->av, err) || sandbox_enter(writes, err) || (writes && hear_texts(h, err)))
        return err->code;
    switch (h->q.op) {
    case MEDIA_PROBE:
        return helper_probe(h, err);
    case MEDIA_FRAMES:
        return helper_frames(h, err);
    case MEDIA_SOUND:
        return helper_sound(h, err);
    case MEDIA_WRITE:
        return helper_write(h, err);
    case MEDIA_COPY:
        return helper_copy(h, err);
    }
    return err_set(err, BERTH_EINVAL, "request %d", (int)h->q.op);
}

int media_helper(void)
{
    struct helper h = { 0 };
    berth_err err = { 0 };
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_ARENA_MAX, 1);              /* encoders have threads, and each would keep a heap */
    mallopt(M_MMAP_THRESHOLD, 256 << 10); /* frames go back to the system */
    sandbox_close_others();
#ifndef SANITIZED
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC); /* encoders tell about themselves */
    if (null >= 0)
        dup2(null, 2);
    if (null > 3)
        close(null);
#endif
    berth_status s = serve(&h, &err);
    struct media_msg m = { .say = SAY_END };
    if (s)
        m = (struct media_msg) { .say = SAY_FAIL,
                                 .a = (uint32_t)s,
                                 .n = strnlen(err.msg, MEDIA_FAIL_MAX) };
    berth_err lost;
    int code = say(&m, s ? err.msg : NULL, &lost) ? 1 : 0;
    _exit(code); /* libraries have exit handlers, and nothing is left to do */
}
