/* PNG written and read again: pixels, text, animation; hostile text; exhaustion. */
#include "pictures.h"
#include "support/oom.h"

#include "base/hash.h"

static void there_and_back(void **state)
{
    (void)state;
    static const uint32_t sizes[][2] = { { 1, 1 },   { 1, 9 },   { 13, 1 },
                                         { 64, 64 }, { 37, 29 }, { 300, 150 } };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (size_t c = 0; c < ARRAY_LEN(channel_counts); c++)
            for (int level = 0; level <= 9; level += 3)
                for (int kind = 0; kind < 2; kind++) {
                    struct image im = kind ? noise(sizes[i][0], sizes[i][1], channel_counts[c], i)
                                           : slope(sizes[i][0], sizes[i][1], channel_counts[c]);
                    struct str out = { 0 }, again = { 0 };
                    struct image_png_args args = { .level = level };
                    assert_ok(image_png(&im, &args, &out, &err), err);
                    assert_ok(image_png(&im, &args, &again, &err), err);
                    assert_int_equal(out.n, again.n);
                    assert_memory_equal(out.p, again.p, out.n);
                    struct image_file f = decoded(&out);
                    assert_string_equal(f.format, "png");
                    assert_int_equal(f.alpha, im.channels == 4);
                    assert_same(&f.frame[0], &im);
                    image_file_release(&f);
                    image_release(&im);
                    str_release(&out), str_release(&again);
                }
}

static bool has(const struct str *s, const char *p, size_t n)
{
    return memmem(s->p, s->n, p, n);
}

static void text(void **state)
{
    (void)state;
    const struct image_text pairs[] = {
        { (char *)(uintptr_t) "prompt", (char *)(uintptr_t) "{\"a\": 1}" },
        { (char *)(uintptr_t) "caf\xc3\xa9", (char *)(uintptr_t) "\xc3\xbc" },
        { (char *)(uintptr_t) "wide", (char *)(uintptr_t) "\xe2\x82\xac" },
        { (char *)(uintptr_t) "empty", (char *)(uintptr_t) "" }
    };
    struct image im = slope(4, 4, 3);
    struct str out = { 0 };
    berth_err err;
    str_adds(&out, "before"); /* encoders append */
    const struct image_png_args args = { .level = 4, .text = pairs, .texts = 4 };
    assert_ok(image_png(&im, &args, &out, &err), err);
    assert_memory_equal(out.p, "before", 6);
    assert_true(has(&out, "tEXtprompt\0{\"a\": 1}", 19));
    assert_true(has(&out, "tEXtcaf\xe9\0\xfc", 10)); /* Latin-1 */
    assert_true(has(&out, "iTXtwide\0\0\0\0\0\xe2\x82\xac", 16));
    memmove(out.p, out.p + 6, out.n -= 6);
    struct image_file f = decoded(&out);
    assert_int_equal(f.texts, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(f.text[i].key, pairs[i].key);
        assert_string_equal(f.text[i].value, pairs[i].value);
    }
    image_file_release(&f);
    const struct image_text bad = { (char *)(uintptr_t) "\xe2\x82\xac", (char *)(uintptr_t) "x" };
    size_t had = out.n;
    assert_fails(image_png(&im, &(struct image_png_args) { .text = &bad, .texts = 1 }, &out, &err),
                 err, BERTH_EINVAL, "Latin-1");
    assert_int_equal(out.n, had); /* nothing is left of it */
    assert_fails(image_png(&im, &(struct image_png_args) { .level = 10 }, &out, &err), err,
                 BERTH_EINVAL, "level 10");
    image_release(&im);
    str_release(&out);
}

static void chunk(struct str *out, const char *type, const char *p, size_t n)
{
    const uint8_t len[4] = { (uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                             (uint8_t)n };
    uint32_t crc = crc32_of(crc32_of(0, type, 4), p, n);
    const uint8_t sum[4] = { (uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                             (uint8_t)crc };
    str_add(out, (const char *)len, 4);
    str_add(out, type, 4);
    str_add(out, p, n);
    str_add(out, (const char *)sum, 4);
}

/* A zlib stream that packs well: the pixels of a flat picture. */
static void take_idat(const struct image *im, struct str *z)
{
    struct str png = { 0 };
    berth_err err;
    assert_ok(image_png(im, &(struct image_png_args) { .level = 9 }, &png, &err), err);
    const char *at = memmem(png.p, png.n, "IDAT", 4);
    assert_non_null(at);
    const uint8_t *len = (const uint8_t *)at - 4;
    str_add(z, at + 4, (size_t)len[0] << 24 | (size_t)len[1] << 16 | (size_t)len[2] << 8 | len[3]);
    str_release(&png);
}

/* Text that is small in the file and large in memory. */
static void text_bomb(void **state)
{
    (void)state;
    struct image big, small = slope(2, 2, 1);
    struct str z = { 0 }, body = { 0 }, png = { 0 }, bomb = { 0 };
    berth_err err;
    assert_ok(image_init(&big, 1024, 1024, 1, &err), err);
    memset(big.px, 0, 1024 * 1024);
    take_idat(&big, &z);
    assert_true(z.n < 8192);
    str_add(&body, "key\0\0", 5);
    str_add(&body, z.p, z.n);
    assert_ok(image_png(&small, &(struct image_png_args) { .level = 1 }, &png, &err), err);
    str_add(&bomb, png.p, 33); /* signature and IHDR */
    for (int i = 0; i < 8; i++)
        chunk(&bomb, "zTXt", body.p, body.n);
    str_add(&bomb, png.p + 33, png.n - 33);
    struct image_file f;
    const struct image_limits lim = { .max_text = 4 << 20 };
    assert_fails(image_decode((const uint8_t *)bomb.p, bomb.n, &lim, &f, &err), err, BERTH_ELIMIT,
                 "text");
    image_file_release(&f);
    f = decoded(&bomb); /* 8 MiB is within the default; text ends at its first NUL */
    assert_int_equal(f.texts, 8);
    assert_string_equal(f.text[7].key, "key");
    image_file_release(&f);
    image_release(&big), image_release(&small);
    str_release(&z), str_release(&body), str_release(&png), str_release(&bomb);
}

/* A claim of 30000 x 8000 pixels in a hundred bytes is refused before memory is asked for it. */
static void pixel_bomb(void **state)
{
    (void)state;
    struct str png = { 0 };
    str_add(&png, "\x89PNG\r\n\x1a\n", 8);
    chunk(&png, "IHDR", "\0\0\x75\x30\0\0\x1f\x40\x08\x06\0\0\0", 13);
    chunk(&png, "IDAT", "x", 1);
    chunk(&png, "IEND", "", 0);
    struct image_file f;
    berth_err err;
    assert_fails(image_decode((const uint8_t *)png.p, png.n, NULL, &f, &err), err, BERTH_EFORMAT,
                 "30000 x 8000 pixels cannot come from");
    assert_true(!f.frame || !f.frame[0].px);
    image_file_release(&f);
    str_release(&png);
}

static void animation(void **state)
{
    (void)state;
    const struct image_text pair = { (char *)(uintptr_t) "prompt", (char *)(uintptr_t) "{}" };
    berth_err err;
    for (size_t c = 0; c < ARRAY_LEN(channel_counts); c++)
        for (size_t n = 1; n <= 5; n += 2) {
            struct image frame[5];
            struct str out = { 0 };
            for (size_t i = 0; i < n; i++)
                frame[i] = noise(150, 140, channel_counts[c], i); /* more than one chunk each */
            const struct image_anim_args args = { .fps = 6, .level = 4, .text = &pair, .texts = 1 };
            assert_ok(image_anim_png(frame, n, &args, &out, &err), err);
            assert_true(has(&out, "comfprompt\0{}", 13));
            assert_int_equal(has(&out, "acTL", 4), n > 1);
            struct image_file f = decoded(&out);
            assert_int_equal(f.frames, n);
            for (size_t i = 0; i < n; i++) {
                assert_same(&f.frame[i], &frame[i]);
                if (n > 1)
                    assert_float_equal(f.seconds[i], 0.166, 1e-9);
                image_release(&frame[i]);
            }
            image_file_release(&f);
            str_release(&out);
        }
    struct image two[2] = { slope(3, 3, 3), slope(3, 4, 3) };
    struct str out = { 0 };
    struct image_anim_args args = { .fps = 0 };
    assert_fails(image_anim_png(two, 1, &args, &out, &err), err, BERTH_EINVAL, "per second");
    args.fps = 8;
    assert_fails(image_anim_png(two, 2, &args, &out, &err), err, BERTH_EINVAL,
                 "frame 1 is 3 x 4 x 3");
    assert_fails(image_anim_png(two, 0, &args, &out, &err), err, BERTH_EINVAL, "0 frames");
    image_release(&two[0]), image_release(&two[1]);
    str_release(&out);
}

static void survives_exhaustion(void **state)
{
    (void)state;
    const struct image_text pairs[] = {
        { (char *)(uintptr_t) "prompt", (char *)(uintptr_t) "caf\xc3\xa9" },
        { (char *)(uintptr_t) "wide", (char *)(uintptr_t) "\xe2\x82\xac" }
    };
    const struct image_anim_args args = { .fps = 5, .level = 1, .text = pairs, .texts = 1 };
    struct image frame[2] = { noise(9, 7, 4, 1), noise(9, 7, 4, 2) };
    struct str still = { 0 }, anim = { 0 };
    berth_err err;
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        str_release(&still);
        oom_after(k);
        s = image_png(frame, &(struct image_png_args) { .level = 4, .text = pairs, .texts = 2 },
                      &still, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
    }
    s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        str_release(&anim);
        oom_after(k);
        s = image_anim_png(frame, 2, &args, &anim, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
    }
    const struct str *const files[] = { &still, &anim };
    for (int i = 0; i < 2; i++) {
        s = BERTH_ENOMEM;
        for (long k = 0; s; k++) {
            struct image_file f;
            oom_after(k);
            s = image_decode((const uint8_t *)files[i]->p, files[i]->n, NULL, &f, &err);
            oom_off();
            if (s && s != BERTH_ENOMEM)
                fail_msg("%s", err.msg);
            if (!s)
                assert_same(&f.frame[0], &frame[0]);
            image_file_release(&f);
        }
    }
    image_release(&frame[0]), image_release(&frame[1]);
    str_release(&still), str_release(&anim);
}

/* Encoders stop when they are told to, and leave nothing. */
static void canceled(void **state)
{
    struct image frame[2] = { noise(9, 7, 3, 1), noise(9, 7, 3, 2) };
    struct str out = { 0 };
    berth_err err;
    atomic_bool cancel;
    (void)state;
    str_adds(&out, "before");
    for (int on = 1; on >= 0; on--) {
        atomic_init(&cancel, on);
        const struct image_png_args png = { .level = 4, .cancel = &cancel };
        struct image_anim_args anim = {
            .fps = 5, .level = 1, .quality = 50, .lossless = true, .cancel = &cancel
        };
        berth_status want = on ? BERTH_ECANCELED : BERTH_OK;
        assert_int_equal(image_png(frame, &png, &out, &err), want);
        for (size_t n = 1; n <= 2; n++) {
            assert_int_equal(image_anim_png(frame, n, &anim, &out, &err), want);
            assert_int_equal(image_anim_webp(frame, n, &anim, &out, &err), want);
        }
        if (on)
            assert_string_equal(str_c(&out), "before");
    }
    str_release(&out);
    image_release(&frame[0]);
    image_release(&frame[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canceled),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(text),
        cmocka_unit_test(text_bomb),
        cmocka_unit_test(pixel_bomb),
        cmocka_unit_test(animation),
        cmocka_unit_test(survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
