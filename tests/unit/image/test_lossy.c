/* JPEG and WebP written and read again, still and animated. */
#include "pictures.h"
#include "support/oom.h"

#include <webp/demux.h>

/* Largest difference, colours only. */
static int farthest(const struct image *a, const struct image *b)
{
    struct image x, y;
    berth_err err;
    assert_ok(image_convert(a, 3, &x, &err), err);
    assert_ok(image_convert(b, 3, &y, &err), err);
    assert_true(x.w == y.w && x.h == y.h);
    int worst = 0;
    for (size_t i = 0; i < (size_t)x.w * x.h * 3; i++)
        worst = abs(x.px[i] - y.px[i]) > worst ? abs(x.px[i] - y.px[i]) : worst;
    image_release(&x), image_release(&y);
    return worst;
}

static void jpeg(void **state)
{
    (void)state;
    berth_err err;
    for (size_t c = 0; c < ARRAY_LEN(channel_counts); c++) {
        struct image im = slope(50, 21, channel_counts[c]);
        struct str out = { 0 };
        assert_ok(image_jpeg(&im, 95, &out, &err), err);
        struct image_file f = decoded(&out);
        assert_string_equal(f.format, "jpeg");
        assert_int_equal(f.frame[0].channels, im.channels == 1 ? 1 : 3);
        assert_true(farthest(&im, &f.frame[0]) <= 12);
        assert_false(f.alpha);
        image_file_release(&f);
        size_t had = out.n;
        assert_fails(image_jpeg(&im, 101, &out, &err), err, BERTH_EINVAL, "quality 101");
        assert_int_equal(out.n, had);
        image_release(&im);
        str_release(&out);
    }
    struct image big = noise(400, 300, 3, 1); /* more than one buffer of output */
    struct str out = { 0 };
    assert_ok(image_jpeg(&big, 100, &out, &err), err);
    assert_true(out.n > 32768);
    struct image_file f = decoded(&out);
    assert_int_equal(f.w, 400);
    image_file_release(&f);
    image_release(&big);
    str_release(&out);
}

static void webp(void **state)
{
    (void)state;
    berth_err err;
    for (size_t c = 0; c < ARRAY_LEN(channel_counts); c++)
        for (int lossless = 0; lossless < 2; lossless++) {
            struct image im = slope(50, 21, channel_counts[c]);
            struct str out = { 0 };
            if (im.channels == 4)
                im.px[3] = 17; /* so that the alpha is worth keeping */
            assert_ok(image_webp(&im, 90, lossless, &out, &err), err);
            struct image_file f = decoded(&out);
            assert_string_equal(f.format, "webp");
            assert_int_equal(f.alpha, im.channels == 4);
            if (lossless)
                assert_int_equal(farthest(&im, &f.frame[0]), 0);
            assert_true(farthest(&im, &f.frame[0]) <= 24);
            if (im.channels == 4)
                assert_int_equal(f.frame[0].px[3], 17);
            image_file_release(&f);
            assert_fails(image_webp(&im, 101, lossless, &out, &err), err, BERTH_EINVAL,
                         "quality 101");
            image_release(&im);
            str_release(&out);
        }
    struct image wide = { .w = 20000, .h = 1, .channels = 3, .px = calloc(20000, 3) };
    struct str out = { 0 };
    assert_fails(image_webp(&wide, 90, true, &out, &err), err, BERTH_EINVAL, "16383");
    image_release(&wide);
}

/* The bytes that Pillow writes for ComfyUI's three entries, tags in order. */
static const char exif[] = "MM\0*\0\0\0\x08"
                           "\0\x03"
                           "\x01\x0e\0\x02\0\0\0\x07\0\0\0\x32"
                           "\x01\x0f\0\x02\0\0\0\x0c\0\0\0\x3a"
                           "\x01\x10\0\x02\0\0\0\x0a\0\0\0\x46"
                           "\0\0\0\0"
                           "b:true\0\0"
                           "workflow:{}\0"
                           "prompt:{}";

static void assert_exif(const struct str *webp_file)
{
    const WebPData data = { (const uint8_t *)webp_file->p, webp_file->n };
    WebPDemuxer *d = WebPDemux(&data);
    WebPChunkIterator it;
    assert_non_null(d);
    assert_true(WebPDemuxGetChunk(d, "EXIF", 1, &it));
    assert_int_equal(it.chunk.size, sizeof exif);
    assert_memory_equal(it.chunk.bytes, exif, sizeof exif);
    WebPDemuxReleaseChunkIterator(&it);
    WebPDemuxDelete(d);
}

static void animation(void **state)
{
    (void)state;
    const struct image_text pairs[] = { { (char *)(uintptr_t) "prompt", (char *)(uintptr_t) "{}" },
                                        { (char *)(uintptr_t) "workflow",
                                          (char *)(uintptr_t) "{}" },
                                        { (char *)(uintptr_t) "b", (char *)(uintptr_t) "true" } };
    berth_err err;
    for (size_t n = 1; n <= 4; n += 3)
        for (int lossless = 0; lossless < 2; lossless++) {
            struct image frame[4];
            struct str out = { 0 };
            for (size_t i = 0; i < n; i++) {
                frame[i] = slope(40, 24, 3);
                memset(frame[i].px + i * 500, (int)i * 60, 400);
            }
            const struct image_anim_args args = { .fps = 16,
                                                  .lossless = lossless,
                                                  .quality = 80,
                                                  .method = 4,
                                                  .text = pairs,
                                                  .texts = 3 };
            assert_ok(image_anim_webp(frame, n, &args, &out, &err), err);
            assert_exif(&out);
            struct image_file f = decoded(&out);
            assert_int_equal(f.frames, n);
            for (size_t i = 0; i < n; i++) {
                if (lossless) /* with alpha, perhaps: libwebp leaves out what does not change */
                    assert_int_equal(farthest(&f.frame[i], &frame[i]), 0);
                if (n > 1)
                    assert_float_equal(f.seconds[i], 0.062, 1e-9);
                image_release(&frame[i]);
            }
            image_file_release(&f);
            str_release(&out);
        }
}

/* Our own allocations, that is: those inside the libraries are theirs. */
static void survives_exhaustion(void **state)
{
    (void)state;
    const struct image_text pair = { (char *)(uintptr_t) "prompt", (char *)(uintptr_t) "{}" };
    const struct image_anim_args args = { .fps = 5, .quality = 50, .text = &pair, .texts = 1 };
    struct image im[2] = { slope(20, 10, 1), slope(20, 10, 1) }, rgba = slope(20, 10, 4);
    berth_err err;
    for (int kind = 0; kind < 3; kind++) {
        struct str out = { 0 };
        berth_status s = BERTH_ENOMEM;
        for (long k = 0; s; k++) {
            str_release(&out);
            oom_after(k);
            s = kind == 0   ? image_jpeg(&rgba, 80, &out, &err)
                : kind == 1 ? image_webp(im, 80, false, &out, &err)
                            : image_anim_webp(im, 2, &args, &out, &err);
            oom_off();
            if (s && s != BERTH_ENOMEM)
                fail_msg("kind %d, %ld allocations: %s", kind, k, err.msg);
        }
        s = BERTH_ENOMEM;
        for (long k = 0; s; k++) {
            struct image_file f;
            oom_after(k);
            s = image_decode((const uint8_t *)out.p, out.n, NULL, &f, &err);
            oom_off();
            if (s && s != BERTH_ENOMEM)
                fail_msg("kind %d, %ld allocations: %s", kind, k, err.msg);
            image_file_release(&f);
        }
        str_release(&out);
    }
    image_release(&im[0]), image_release(&im[1]), image_release(&rgba);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jpeg),
        cmocka_unit_test(webp),
        cmocka_unit_test(animation),
        cmocka_unit_test(survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
