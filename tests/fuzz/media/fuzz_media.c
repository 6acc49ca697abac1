/* Any bytes as a file of video or sound, or as what a helper says about one: refused, or pictures
 * and samples that are all there. The first byte says which, and what is asked. */
#include "media/media.h"
#include "support/tmp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A program that says what stands in a file, in place of the helper. */
static const char *parrot(void)
{
    static char path[512];
    char text[600];
    if (!*path) {
        int k = snprintf(text, sizeof text, "#!/bin/sh\nexec cat '%s'\n", tmp_path("speech"));
        snprintf(path, sizeof path, "%s", tmp_write("parrot", text, (size_t)k));
        if (chmod(path, 0700))
            abort();
    }
    return path;
}

/* A real helper ends in words, whatever the file is. FFmpeg may crash, we may not. */
static void check(bool real, const berth_err *err)
{
    if (real &&
        (strstr(err->msg, "ended with code") || strstr(err->msg, "said what it should not")))
        abort();
    if (err->code && !err->msg[0])
        abort();
}

static void frames(const struct media_host *host, const char *path, bool real)
{
    const struct media_frames_args args = { .bytes = true, .cap = 4 };
    struct media_reader *r;
    struct media_picture p;
    berth_err err = { 0 };
    double sum = 0;
    if (media_frames_open(host, path, &args, &r, &err)) {
        check(real, &err);
        return;
    }
    while (media_frame_next(r, &p, &err)) {
        size_t n = (size_t)p.w * p.h * 3;
        float *px = n <= (1 << 22) ? malloc(n * sizeof *px) : NULL;
        if (!px || media_frame_take(r, px, &err)) {
            free(px);
            break;
        }
        for (size_t i = 0; i < n; i++)
            sum += (double)px[i];
        free(px);
    }
    check(real, &err);
    media_close(r);
    volatile double sink = sum; /* so that every sample is read */
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bool real = n && !(data[0] & 1);
    struct media_host host = { .helper = real ? BERTH_BINARY : parrot(), .patience_s = 20 };
    const struct media_sound_args sound = { .max_samples = 1 << 20 };
    struct media_info info;
    struct media_sound s;
    berth_err err = { 0 };
    char path[512];
    if (!n || !media_built())
        return 0;
    snprintf(path, sizeof path, "%s", tmp_write("file", data + 1, n - 1));
    tmp_write("speech", data + 1, n - 1);
    if (!(data[0] & 6)) {
        if (media_probe(&host, path, &info, &err))
            check(real, &err);
        else
            media_info_release(&info);
    } else if (data[0] & 2) {
        frames(&host, path, real);
    } else if (media_sound_read(&host, path, &sound, &s, &err)) {
        check(real, &err);
    } else {
        media_sound_release(&s);
    }
    return 0;
}
