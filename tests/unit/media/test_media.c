/* Files of video and sound, through the real helper: what is written comes back, limits hold, and
 * what goes wrong in a helper is an error here. */
#include "base/file.h"
#include "media/media_impl.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct media_host host = { .helper = BERTH_BINARY };

#define W 34
#define H 22
#define N 7

static void need_media(void)
{
    if (!media_built())
        skip();
}

/* Sample k of picture i. */
static uint8_t painted(size_t i, size_t k)
{
    return (uint8_t)((k * 2654435761u >> 13) + i * 41);
}

static int new_file(const char *name)
{
    int fd = open(tmp_path(name), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

static struct media_write_args film(const char *container, const char *encoder, const char *pixels)
{
    return (struct media_write_args) { .what = "film",
                                       .container = container,
                                       .video = { .encoder = encoder,
                                                  .pixels = pixels,
                                                  .w = W,
                                                  .h = H,
                                                  .rate_num = 25,
                                                  .rate_den = 2,
                                                  .channels = 3,
                                                  .bits = 8 } };
}

/* N pictures, and n samples of sound if there is some. */
static berth_status write_film(const char *name, struct media_write_args *a, const float *sound,
                               size_t n, berth_err *err)
{
    static uint8_t px[W * H * 3];
    struct media_writer *w;
    a->fd = new_file(name);
    berth_status s = media_writer_open(&host, a, &w, err);
    for (size_t i = 0; !s && a->video.encoder && i < N; i++) {
        for (size_t k = 0; k < sizeof px; k++)
            px[k] = painted(i, k);
        s = media_write_frame(w, px, err);
    }
    if (!s && sound)
        s = media_write_sound(w, sound, n, err);
    if (!s)
        s = media_writer_finish(w, err);
    media_writer_close(w);
    close(a->fd);
    return s;
}

/* ---- what comes back ---- */

static void lossless_pictures_come_back(void **state)
{
    struct media_write_args a = film("matroska", "ffv1", "bgr0");
    const struct media_frames_args args = { .bytes = true };
    struct media_reader *r;
    struct media_picture p;
    float px[W * H * 3];
    size_t n = 0;
    berth_err err;
    (void)state;
    need_media();
    assert_ok(write_film("a.mkv", &a, NULL, 0, &err), err);
    assert_ok(media_frames_open(&host, tmp_path("a.mkv"), &args, &r, &err), err);
    for (; media_frame_next(r, &p, &err); n++) {
        assert_int_equal(p.w, W);
        assert_int_equal(p.h, H);
        assert_true(fabs(p.seconds - (double)n * 2 / 25) < 0.001);
        assert_ok(media_frame_take(r, px, &err), err);
        for (size_t k = 0; k < W * H * 3; k++)
            if (px[k] != (float)painted(n, k) / 255.0f)
                fail_msg("frame %zu, sample %zu: %g", n, k, (double)px[k] * 255);
    }
    assert_int_equal(err.code, BERTH_OK);
    assert_int_equal(n, N);
    media_close(r);
}

static void a_file_says_what_it_is(void **state)
{
    struct media_text text[] = { { (char[]) { "prompt" },
                                   (char[]) { "{\"1\": \"\xc3\xa9 = ; #\"}" } },
                                 { (char[]) { "workflow" }, (char[]) { "{}" } } };
    static const char *const container[] = { "mp4", "matroska" };
    berth_err err;
    (void)state;
    need_media();
    for (size_t k = 0; k < 2; k++) {
        struct media_write_args a = film(container[k], "libx264", "yuv420p");
        struct media_info i;
        const char *prompt = NULL;
        a.muxer_options = k ? NULL : "movflags=use_metadata_tags+faststart";
        a.text = text;
        a.texts = 2;
        a.video.color = MEDIA_SRGB;
        assert_ok(write_film("b", &a, NULL, 0, &err), err);
        assert_ok(media_probe(&host, tmp_path("b"), &i, &err), err);
        assert_true(i.video && !i.audio && !i.webm_fits);
        assert_string_equal(i.video_codec, "h264");
        assert_int_equal(i.w, W);
        assert_int_equal(i.h, H);
        assert_int_equal(i.turns, 0);
        assert_true(fabs((double)i.rate_num / i.rate_den - 12.5) < 0.01);
        assert_true(fabs(i.duration - N / 12.5) < 0.0011);
        assert_int_equal(i.bit_depth, 8);
        assert_int_equal(i.color, MEDIA_SRGB);
        for (size_t t = 0; t < i.texts; t++)
            if (!strcasecmp(i.text[t].key, "prompt"))
                prompt = i.text[t].value;
        assert_non_null(prompt);
        assert_string_equal(prompt, text[0].value);
        media_info_release(&i);
    }
}

static void check_sound(const char *container, const char *encoder, float eps)
{
    struct media_write_args a = { .what = "sound",
                                  .container = container,
                                  .audio = { .encoder = encoder, .rate = 22050, .channels = 2 } };
    const struct media_sound_args args = { .first = true };
    struct media_sound s;
    static float data[2 * 30000];
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(data); i++)
        data[i] = (float)((int)(i * 7919 % 60000) - 30000) / 32768.0f;
    assert_ok(write_film("s", &a, data, ARRAY_LEN(data) / 2, &err), err);
    assert_ok(media_sound_read(&host, tmp_path("s"), &args, &s, &err), err);
    assert_int_equal(s.rate, 22050);
    assert_int_equal(s.channels, 2);
    assert_int_equal(s.n, ARRAY_LEN(data) / 2);
    for (size_t i = 0; i < ARRAY_LEN(data); i++)
        if (!(fabsf(s.data[i] - data[i]) <= eps))
            fail_msg("%s: sample %zu is %g, was %g", encoder, i, (double)s.data[i],
                     (double)data[i]);
    media_sound_release(&s);
}

static void lossless_sound_comes_back(void **state)
{
    (void)state;
    need_media();
    check_sound("wav", "pcm_f32le", 0);
    check_sound("wav", "pcm_s16le", 0);
    check_sound("flac", "flac", 0);
}

static size_t count_frames(const char *name, const struct media_frames_args *args, double *first)
{
    struct media_reader *r;
    struct media_picture p;
    static float px[W * H * 3];
    size_t n = 0;
    berth_err err;
    assert_ok(media_frames_open(&host, tmp_path(name), args, &r, &err), err);
    for (; media_frame_next(r, &p, &err); n++) {
        if (!n && first)
            *first = p.seconds;
        assert_ok(media_frame_take(r, px, &err), err);
    }
    assert_int_equal(err.code, BERTH_OK);
    media_close(r);
    return n;
}

static void parts_of_a_file(void **state)
{
    struct media_write_args a = film("matroska", "libx264", "yuv420p");
    struct media_frames_args args = { .cut = { .start = 0.16, .duration = 0.24 } };
    double first = -1;
    berth_err err;
    (void)state;
    need_media();
    assert_ok(write_film("c.mkv", &a, NULL, 0, &err), err);
    assert_int_equal(count_frames("c.mkv", &args, &first), 3);
    assert_true(fabs(first - 0.16) < 1e-6);
    args = (struct media_frames_args) { .cut = { .start = 0.40 } };
    assert_int_equal(count_frames("c.mkv", &args, NULL), 2);
    args = (struct media_frames_args) { .skip = 1, .every = 2 };
    assert_int_equal(count_frames("c.mkv", &args, &first), 3);
    assert_true(fabs(first - 0.08) < 1e-6);
    args = (struct media_frames_args) { .cap = 4 };
    assert_int_equal(count_frames("c.mkv", &args, NULL), 4);
    args = (struct media_frames_args) { .rate = 25 };
    assert_int_equal(count_frames("c.mkv", &args, NULL), 2 * N - 1);
    args = (struct media_frames_args) { .rate = 6.25 };
    assert_int_equal(count_frames("c.mkv", &args, NULL), 4);
}

/* Streams as they are, and encoded anew. */
static void copies(void **state)
{
    struct media_write_args a = film("mp4", "libx264", "yuv420p");
    struct media_copy_args c = { .what = "copy", .container = "matroska" };
    static float silence[2 * 48000];
    const struct media_frames_args all = { 0 };
    struct media_info i;
    berth_err err;
    (void)state;
    need_media();
    a.audio = (struct media_write_audio) { .encoder = "aac", .rate = 48000, .channels = 2 };
    assert_ok(write_film("d.mp4", &a, silence, 26880, &err), err);
    for (int anew = 0; anew < 2; anew++) {
        c.fd = new_file("e.mkv");
        c.encoder = anew ? "libx264" : NULL;
        c.pixels = "yuv420p";
        c.options = anew ? "crf=10" : NULL;
        c.sound = anew ? "libopus" : NULL;
        c.cut.duration = anew ? 0.4 : 0;
        assert_ok(media_copy(&host, tmp_path("d.mp4"), &c, &err), err);
        close(c.fd);
        assert_ok(media_probe(&host, tmp_path("e.mkv"), &i, &err), err);
        assert_string_equal(i.video_codec, "h264");
        assert_string_equal(i.audio_codec, anew ? "opus" : "aac");
        media_info_release(&i);
        assert_int_equal(count_frames("e.mkv", &all, NULL), anew ? 5 : N);
    }
}

/* ---- what goes wrong ---- */

static void files_that_are_none(void **state)
{
    struct media_write_args a = film("mp4", "libx264", "yuv420p");
    struct media_info i;
    struct media_sound s;
    const struct media_sound_args all = { 0 };
    berth_err err;
    (void)state;
    need_media();
    assert_fails(media_probe(&host, tmp_path("none.mp4"), &i, &err), err, BERTH_ENOTFOUND,
                 "none.mp4");
    assert_fails(media_probe(&host, tmp_dir(), &i, &err), err, BERTH_EINVAL, "no file");
    tmp_write("text.mp4", "just words, and many of them\n", 29);
    assert_fails(media_probe(&host, tmp_path("text.mp4"), &i, &err), err, BERTH_EFORMAT,
                 "'text.mp4': no file of video or sound");
    /* A list of other files is not followed. */
    const char *list =
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n";
    tmp_write("list.m3u8", list, strlen(list));
    assert_fails(media_probe(&host, tmp_path("list.m3u8"), &i, &err), err, BERTH_EFORMAT, "");
    assert_ok(write_film("f.mp4", &a, NULL, 0, &err), err);
    assert_int_equal(truncate(tmp_path("f.mp4"), 400), 0);
    assert_fails(media_probe(&host, tmp_path("f.mp4"), &i, &err), err, BERTH_EFORMAT, "");
    assert_ok(write_film("g.mp4", &a, NULL, 0, &err), err);
    assert_ok(media_sound_read(&host, tmp_path("g.mp4"), &all, &s, &err), err);
    assert_int_equal(s.rate, 0); /* no sound is no error */
}

static void what_cannot_be_written(void **state)
{
    struct media_write_args a = film("mp4", "libnone", "yuv420p");
    berth_err err;
    (void)state;
    need_media();
    assert_fails(write_film("x", &a, NULL, 0, &err), err, BERTH_EUNSUPPORTED, "libnone");
    a = film("nowhere", "libx264", "yuv420p");
    assert_fails(write_film("x", &a, NULL, 0, &err), err, BERTH_EUNSUPPORTED, "nowhere");
    a = film("mp4", "libx264", "nothing");
    assert_fails(write_film("x", &a, NULL, 0, &err), err, BERTH_EUNSUPPORTED, "nothing");
    a = film("mp4", "libx264", "yuv420p"); /* one that is there and does not open */
    a.video.options = "preset=nothing";
    assert_fails(write_film("x", &a, NULL, 0, &err), err, BERTH_EFORMAT, "libx264");
    a = film("mp4", "libx264", "yuv420p");
    a.video.w = 0;
    assert_fails(write_film("x", &a, NULL, 0, &err), err, BERTH_EINVAL, "0x22");
}

/* A program in place of the helper. */
static struct media_host script(const char *name, const char *text)
{
    char all[256];
    int n = snprintf(all, sizeof all, "#!/bin/sh\n%s\n", text);
    const char *path = tmp_write(name, all, (size_t)n);
    assert_int_equal(chmod(path, 0700), 0);
    return (struct media_host) { .helper = path, .patience_s = 1 };
}

static void helpers_that_fail(void **state)
{
    struct media_info i;
    berth_err err;
    atomic_bool stop = true;
    const char *file = tmp_write("any", "any", 3);
    (void)state;
    need_media();
    struct media_host h = { 0 };
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_EUNSUPPORTED, "media_helper");
    h.helper = "/nowhere/berth";
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_EIO, "/nowhere/berth");
    h = script("crash", "kill -SEGV $$");
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_EFORMAT, "'any': its helper crashed");
    h = script("leave", "exit 3");
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_EFORMAT, "ended with code 3");
    h = script("noise", "yes >&1");
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_EFORMAT, "said what it should not");
    h = script("hang", "exec sleep 20");
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_ELIMIT, "nothing happened");
    h.cancel = &stop;
    assert_fails(media_probe(&h, file, &i, &err), err, BERTH_ECANCELED, "interrupted");
}

/* What a helper that was taken over may say of a file: no bool, no rate, endless. */
static void helpers_that_lie(void **state)
{
    static const struct media_info honest = { .video = true, .rate_den = 1, .bit_depth = 8 };
    const struct media_msg head = { .say = SAY_INFO, .n = sizeof honest }, end = { .say = SAY_END };
    char answer[sizeof head + sizeof honest + sizeof end], text[200];
    const char *file = tmp_write("any", "any", 3);
    (void)state;
    need_media();
    for (int i = 0; i < 6; i++) {
        struct media_info told = honest, got;
        berth_err err = { 0 };
        const unsigned char two = 2;
        if (i && i < 4)
            memcpy(i == 1 ? &told.video : i == 2 ? &told.audio : &told.webm_fits, &two, 1);
        told.rate_den = i != 4;
        told.duration = i == 5 ? INFINITY : 1;
        memcpy(answer, &head, sizeof head);
        memcpy(answer + sizeof head, &told, sizeof told);
        memcpy(answer + sizeof head + sizeof told, &end, sizeof end);
        snprintf(text, sizeof text, "cat '%s' >&1", tmp_write("answer", answer, sizeof answer));
        const struct media_host h = script("liar", text);
        if (i)
            assert_fails(media_probe(&h, file, &got, &err), err, BERTH_EFORMAT,
                         "said what it should not");
        else
            assert_ok(media_probe(&h, file, &got, &err), err);
        media_info_release(&got);
    }
}

static bool status_has(const char *pid, const char *line)
{
    char path[64];
    char *text;
    size_t n;
    berth_err err;
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    assert_ok(file_read_all(path, 1 << 16, &text, &n, &err), err);
    bool has = strstr(text, line);
    free(text);
    return has;
}

/* While a helper reads a file it is under the filter, and has three descriptors. */
static void helpers_have_no_rights(void **state)
{
    struct media_write_args a = film("matroska", "ffv1", "bgr0");
    const struct media_frames_args all = { 0 };
    struct media_reader *r;
    struct media_picture p;
    char path[64], *pid;
    size_t n, files = 0;
    berth_err err;
    (void)state;
    need_media();
    assert_ok(write_film("r.mkv", &a, NULL, 0, &err), err);
    assert_ok(media_frames_open(&host, tmp_path("r.mkv"), &all, &r, &err), err);
    assert_true(media_frame_next(r, &p, &err));
    snprintf(path, sizeof path, "/proc/self/task/%ld/children", (long)syscall(SYS_gettid));
    if (file_read_all(path, 4096, &pid, &n, &err) || !n) {
        media_close(r);
        skip(); /* a kernel without the list */
    }
    pid[strspn(pid, "0123456789")] = '\0';
    assert_true(status_has(pid, "Seccomp:\t2"));
    assert_true(status_has(pid, "NoNewPrivs:\t1"));
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            files++;
            assert_true(e->d_name[0] <= '2' && !e->d_name[1]);
        }
    closedir(d);
    assert_int_equal(files, 3);
    free(pid);
    media_close(r);
}

static void a_limit_of_frames(void **state)
{
    struct media_write_args a = film("matroska", "ffv1", "bgr0");
    const struct media_frames_args args = { .max_frames = 2 };
    struct media_reader *r;
    struct media_picture p;
    float px[W * H * 3];
    berth_err err;
    (void)state;
    need_media();
    assert_ok(write_film("l.mkv", &a, NULL, 0, &err), err);
    assert_ok(media_frames_open(&host, tmp_path("l.mkv"), &args, &r, &err), err);
    for (int i = 0; i < 2; i++) {
        assert_true(media_frame_next(r, &p, &err));
        assert_ok(media_frame_take(r, px, &err), err);
    }
    assert_false(media_frame_next(r, &p, &err));
    assert_int_equal(err.code, BERTH_ELIMIT);
    media_close(r);
}

/* A stream may change its size, and both sizes may be padded to the same one for the scaler. */
static void a_size_that_changes(void **state)
{
    static const uint32_t side[] = { 18, 30 };
    static uint8_t px[30 * 30 * 3];
    const struct media_frames_args args = { 0 };
    struct media_reader *r;
    struct media_picture p;
    char *text[2];
    size_t n[2], frames = 0;
    float rgb[18 * 18 * 3];
    berth_err err;
    (void)state;
    need_media();
    for (size_t i = 0; i < 2; i++) {
        struct media_write_args a = film("m4v", "mpeg4", "yuv420p");
        struct media_writer *w;
        a.video.w = a.video.h = side[i];
        a.video.options = "g=1";
        a.fd = new_file("one");
        assert_ok(media_writer_open(&host, &a, &w, &err), err);
        for (size_t k = 0; k < N; k++)
            assert_ok(media_write_frame(w, px, &err), err);
        assert_ok(media_writer_finish(w, &err), err);
        media_writer_close(w);
        close(a.fd);
        assert_ok(file_read_all(tmp_path("one"), 1 << 20, &text[i], &n[i], &err), err);
    }
    int fd = new_file("both.m4v");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(write(fd, text[i], n[i]), (ssize_t)n[i]);
        free(text[i]);
    }
    close(fd);
    assert_ok(media_frames_open(&host, tmp_path("both.m4v"), &args, &r, &err), err);
    for (; media_frame_next(r, &p, &err); frames++)
        assert_ok(media_frame_take(r, rgb, &err), err);
    assert_int_equal(frames, N);
    assert_fails(err.code, err, BERTH_EFORMAT, "frame 7 is 30x30, those before it 18x18");
    media_close(r);
}

static void memory_runs_out(void **state)
{
    struct media_text text = { (char[]) { "prompt" }, (char[]) { "{}" } };
    struct media_write_args a = film("matroska", "ffv1", "bgr0");
    struct media_info i;
    struct media_reader *r;
    struct media_writer *w;
    const struct media_frames_args all = { 0 };
    berth_err err;
    (void)state;
    need_media();
    a.text = &text;
    a.texts = 1;
    assert_ok(write_film("o.mkv", &a, NULL, 0, &err), err);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        oom_after(k);
        s = media_probe(&host, tmp_path("o.mkv"), &i, &err);
        oom_off();
        assert_true(!s || s == BERTH_ENOMEM);
    }
    assert_true(i.texts > 0);
    media_info_release(&i);
    s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        oom_after(k);
        s = media_frames_open(&host, tmp_path("o.mkv"), &all, &r, &err);
        oom_off();
        assert_true(!s || (s == BERTH_ENOMEM && !r));
    }
    media_close(r);
    s = BERTH_ENOMEM;
    a.fd = new_file("p.mkv");
    for (long k = 0; s; k++) {
        oom_after(k);
        s = media_writer_open(&host, &a, &w, &err);
        oom_off();
        assert_true(!s || (s == BERTH_ENOMEM && !w));
    }
    media_writer_close(w);
    close(a.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lossless_pictures_come_back),
        cmocka_unit_test(a_file_says_what_it_is),
        cmocka_unit_test(lossless_sound_comes_back),
        cmocka_unit_test(parts_of_a_file),
        cmocka_unit_test(copies),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(what_cannot_be_written),
        cmocka_unit_test(helpers_that_fail),
        cmocka_unit_test(helpers_that_lie),
        cmocka_unit_test(helpers_have_no_rights),
        cmocka_unit_test(a_limit_of_frames),
        cmocka_unit_test(a_size_that_changes),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
