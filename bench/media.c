/* media: what writing and reading a clip costs beside its pictures: 121 frames of 1280x720, as
 * SaveVideo and GetVideoComponents do it. The pictures are made one at a time, so that everything
 * this process and its helper hold is counted: their peaks, by the kernel. */
#include "media/media.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { W = 1280, H = 720, N = 121, BAR_MB = 200 };

/* Something that moves, with noise as models leave it. */
static void paint(uint8_t *px, unsigned frame)
{
    uint32_t dice = frame * 747796405u + 1;
    for (unsigned y = 0; y < H; y++)
        for (unsigned x = 0; x < W; x++, px += 3) {
            dice = dice * 1664525u + 1013904223u;
            float v = 110 + 60 * sinf((float)(x + 3 * frame) / 90) * cosf((float)y / 70);
            for (unsigned c = 0; c < 3; c++)
                px[c] = (uint8_t)(v + (float)(dice >> (8 * c + 5) & 7) + 12 * (float)c);
        }
}

static double peak_mb(int who)
{
    struct rusage r;
    getrusage(who, &r);
    return (double)r.ru_maxrss * 1024 / 1e6;
}

static int fail(const berth_err *err)
{
    fprintf(stderr, "%s\n", err->msg);
    return 1;
}

static int write_clip(const struct media_host *host, const char *encoder, const char *container,
                      int fd, uint8_t *px)
{
    const struct media_write_args args = { .fd = fd,
                                           .what = "bench",
                                           .container = container,
                                           .video = { .encoder = encoder,
                                                      .options = "rc-lookahead=32",
                                                      .pixels = "yuv420p",
                                                      .w = W,
                                                      .h = H,
                                                      .rate_num = 24,
                                                      .rate_den = 1,
                                                      .channels = 3,
                                                      .bits = 8,
                                                      .color = MEDIA_SRGB } };
    struct media_writer *w;
    berth_err err = { 0 };
    uint64_t began = clock_mono_ns(clock_system());
    if (media_writer_open(host, &args, &w, &err))
        return fail(&err);
    for (unsigned i = 0; i < N; i++) {
        paint(px, i);
        if (media_write_frame(w, px, &err))
            return fail(&err);
    }
    if (media_writer_finish(w, &err))
        return fail(&err);
    media_writer_close(w);
    double s = (double)(clock_mono_ns(clock_system()) - began) / 1e9;
    double mb = peak_mb(RUSAGE_CHILDREN) + peak_mb(RUSAGE_SELF);
    printf("%-10s write %6.1f s, %5.1f frames/s, %5.0f MB in both processes (bar %d), %s\n",
           encoder, s, N / s, mb, BAR_MB, mb <= BAR_MB ? "kept" : "MISSED");
    return 0;
}

static int read_clip(const struct media_host *host, const char *path)
{
    const struct media_frames_args args = { 0 };
    struct media_reader *r;
    struct media_picture p;
    berth_err err = { 0 };
    float *px = malloc(sizeof *px * W * H * 3);
    unsigned n = 0;
    uint64_t began = clock_mono_ns(clock_system());
    if (!px || media_frames_open(host, path, &args, &r, &err))
        return fail(&err);
    for (; media_frame_next(r, &p, &err); n++)
        if (media_frame_take(r, px, &err))
            return fail(&err);
    double s = (double)(clock_mono_ns(clock_system()) - began) / 1e9;
    media_close(r);
    free(px);
    printf("%-10s read  %6.1f s, %5.1f frames/s, %u frames as floats\n", "", s, n / s, n);
    return n == N ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], MEDIA_HELPER) == 0)
        return media_helper();
    const struct media_host host = { .helper = MEDIA_SELF };
    uint8_t *px = malloc(W * H * 3);
    int fd = memfd_create("clip", MFD_CLOEXEC);
    char path[64];
    if (!px || fd < 0)
        return 1;
    if (!media_built()) {
        puts(MEDIA_ABSENT);
        return 0;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int bad = write_clip(&host, "libx264", "mp4", fd, px) || read_clip(&host, path);
    close(fd);
    free(px);
    return bad;
}
