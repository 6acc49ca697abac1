/* Memory, channels, limits and the list of formats. */
#include "pictures.h"
#include "support/oom.h"
#include "support/test.h"

#include "image/image.h"

static void init_and_limits(void **state)
{
    (void)state;
    struct image im;
    berth_err err;
    assert_ok(image_init(&im, 3, 2, 4, &err), err);
    memset(im.px, 1, 24);
    image_release(&im);
    assert_null(im.px);
    image_release(&im); /* zeroed is fine */
    assert_fails(image_init(&im, 0, 2, 4, &err), err, BERTH_EINVAL, "0 x 2");
    assert_fails(image_init(&im, 2, 2, 2, &err), err, BERTH_EINVAL, "2 channels");
    assert_fails(image_init(&im, 65536, 65536, 1, &err), err, BERTH_ELIMIT, "65536");
    assert_fails(image_init(&im, UINT32_MAX, UINT32_MAX, 4, &err), err, BERTH_ELIMIT, "bytes");
    assert_null(im.px);
}

/* Grey by ITU-R 601, the numbers of Pillow's convert("L"). */
static void channels(void **state)
{
    (void)state;
    static const uint8_t rgba[] = { 255, 0, 0, 9, 0, 255, 0,   8,   0,  0,
                                    255, 7, 1, 2, 3, 6,   200, 100, 50, 5 };
    static const uint8_t grey[] = { 76, 150, 29, 2, 124 };
    const struct image im = { 5, 1, 4, (uint8_t *)(uintptr_t)rgba };
    struct image one, three, four, same;
    berth_err err;
    assert_ok(image_convert(&im, 1, &one, &err), err);
    assert_memory_equal(one.px, grey, 5);
    assert_ok(image_convert(&im, 3, &three, &err), err);
    for (int i = 0; i < 5; i++)
        assert_memory_equal(three.px + 3 * i, rgba + 4 * i, 3);
    assert_ok(image_convert(&one, 4, &four, &err), err);
    for (int i = 0; i < 5; i++) {
        const uint8_t want[4] = { grey[i], grey[i], grey[i], 255 };
        assert_memory_equal(four.px + 4 * i, want, 4);
    }
    assert_ok(image_convert(&im, 4, &same, &err), err);
    assert_memory_equal(same.px, rgba, sizeof rgba);
    image_release(&one), image_release(&three), image_release(&four), image_release(&same);
}

static void not_a_picture(void **state)
{
    (void)state;
    struct image_file f;
    berth_err err;
    static const char *const texts[] = { "", "P", "PK\3\4 an archive", "GIF90a       ",
                                         "RIFF    WAVEfmt     " };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        const uint8_t *p = (const uint8_t *)texts[i];
        assert_fails(image_decode(p, strlen(texts[i]), NULL, &f, &err), err, BERTH_EUNSUPPORTED,
                     "png, jpeg, webp, gif, bmp, pnm");
        image_file_release(&f);
    }
}

/* A header alone: what it claims meets the limits before anything is made of it. */
static void limits_come_first(void **state)
{
    (void)state;
    struct image_file f;
    berth_err err;
    const char wide[] = "P5 70000 1 255\n", many[] = "P5 60000 60000 255\n",
               fine[] = "P5 2 2 255\nabcd";
    assert_fails(image_decode((const uint8_t *)wide, strlen(wide), NULL, &f, &err), err,
                 BERTH_ELIMIT, "a side is over 65500");
    image_file_release(&f);
    assert_fails(image_decode((const uint8_t *)many, strlen(many), NULL, &f, &err), err,
                 BERTH_ELIMIT, "60000 x 60000");
    image_file_release(&f);
    struct image_limits lim = { .max_pixels = 4 };
    assert_ok(image_decode((const uint8_t *)fine, strlen(fine), &lim, &f, &err), err);
    image_file_release(&f);
    lim = (struct image_limits) { .max_pixels = 3 };
    assert_fails(image_decode((const uint8_t *)fine, strlen(fine), &lim, &f, &err), err,
                 BERTH_ELIMIT, "over 3");
    image_file_release(&f);
    lim = (struct image_limits) { .max_bytes = 3 };
    assert_fails(image_decode((const uint8_t *)fine, strlen(fine), &lim, &f, &err), err,
                 BERTH_ELIMIT, "over 3 bytes");
    image_file_release(&f);
}

/* ---- what is there of a file ---- */

static bool decodes(const struct str *bytes, size_t n, bool partial, struct image_file *f)
{
    berth_err err;
    const struct image_limits lim = { .partial = partial };
    return !image_decode((const uint8_t *)bytes->p, n, &lim, f, &err);
}

static bool all_are(const uint8_t *p, size_t n, uint8_t what)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != what)
            return false;
    return true;
}

/* Rows that are there are right, then there is nothing but `rest`. Returns how many are there. */
static uint32_t rows_then(const struct image *got, const struct image *want, uint8_t rest)
{
    size_t row = (size_t)want->w * want->channels;
    uint32_t y = 0;
    while (y < want->h && memcmp(got->px + y * row, want->px + y * row, row) == 0)
        y++;
    assert_true(all_are(got->px + y * row, (want->h - y) * row, rest));
    return y;
}

static void cut_png(void **state)
{
    static const unsigned channels[] = { 1, 3, 4 };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        struct image im = noise(31, 200, channels[k], 5 + k);
        struct str bytes = { 0 };
        struct image_file f;
        berth_err err;
        uint32_t last = 0;
        assert_ok(image_png(&im, &(struct image_png_args) { .level = 4 }, &bytes, &err), err);
        for (size_t n = 60; n < bytes.n; n += 41) {
            assert_false(decodes(&bytes, n, false, &f));
            image_file_release(&f);
            assert_true(decodes(&bytes, n, true, &f));
            assert_int_equal(f.frame[0].channels, channels[k]);
            uint32_t y = rows_then(&f.frame[0], &im, 0);
            assert_true(y >= last); /* and all that the bytes give: within a row or two */
            assert_true((double)y >= (double)im.h * (double)n / (double)bytes.n - 12);
            last = y;
            image_file_release(&f);
        }
        assert_true(decodes(&bytes, bytes.n - 12, true, &f)); /* only its end is missing */
        assert_int_equal(rows_then(&f.frame[0], &im, 0), im.h);
        image_file_release(&f);
        bytes.p[bytes.n / 2] ^= 0x55; /* broken in the middle: what came before stays */
        assert_false(decodes(&bytes, bytes.n, false, &f));
        image_file_release(&f);
        assert_true(decodes(&bytes, bytes.n, true, &f));
        size_t row = (size_t)im.w * im.channels;
        assert_memory_equal(f.frame[0].px, im.px, row * (im.h / 4));
        image_file_release(&f);
        assert_false(decodes(&bytes, 20, true, &f)); /* no header, no picture */
        image_file_release(&f);
        str_release(&bytes);
        image_release(&im);
    }
}

static void cut_jpeg(void **state)
{
    struct image im = noise(64, 256, 3, 1);
    struct str bytes = { 0 };
    struct image_file f, whole;
    berth_err err;
    (void)state;
    assert_ok(image_jpeg(&im, 90, &bytes, &err), err);
    assert_true(decodes(&bytes, bytes.n, true, &whole));
    for (size_t part = 3; part < 8; part++) {
        size_t n = bytes.n * part / 8;
        assert_false(decodes(&bytes, n, false, &f));
        image_file_release(&f);
        assert_true(decodes(&bytes, n, true, &f));
        size_t row = (size_t)im.w * 3, there = (size_t)im.h * (part - 2) / 8 / 16 * 16;
        assert_memory_equal(f.frame[0].px, whole.frame[0].px, (there - 16) * row);
        assert_true(all_are(f.frame[0].px + (im.h - 16) * row, 16 * row, 128)); /* grey */
        image_file_release(&f);
    }
    assert_false(decodes(&bytes, 100, true, &f));
    image_file_release(&f);
    image_file_release(&whole);
    str_release(&bytes);
    image_release(&im);
}

/* A few bytes that claim a large picture are refused, however little is asked for. */
static void cut_bombs(void **state)
{
    struct image im = noise(16, 16, 3, 1);
    struct str bytes = { 0 };
    struct image_file f;
    berth_err err;
    (void)state;
    assert_ok(image_jpeg(&im, 50, &bytes, &err), err);
    for (size_t i = 0; i + 9 < bytes.n; i++)
        if ((uint8_t)bytes.p[i] == 0xff && (uint8_t)bytes.p[i + 1] == 0xc0) {
            memcpy(bytes.p + i + 5, "\x3f\xff\x3f\xff", 4); /* 16383 x 16383 */
            break;
        }
    assert_false(decodes(&bytes, bytes.n, true, &f));
    image_file_release(&f);
    str_clear(&bytes);
    assert_ok(image_png(&im, &(struct image_png_args) { .level = 4 }, &bytes, &err), err);
    memcpy(bytes.p + 16, "\0\0\x3f\xff\0\0\x3f\xff", 8);
    assert_false(decodes(&bytes, bytes.n - 20, true, &f));
    image_file_release(&f);
    str_release(&bytes);
    image_release(&im);
}

/* ---- GIF: who can be seen through ---- */

static bool gif_alpha(const char *colors, const char *first, const char *second)
{
    struct str s = { 0 };
    struct image_file f;
    bool alpha;
    str_add(&s, "GIF89a\1\0\1\0\x80\0\0", 13);
    str_add(&s, colors, 6);
    for (int i = 0; i < 2; i++) {
        const char *control = i ? second : first;
        if (!control)
            break;
        str_add(&s, "!\xf9\4", 3);
        str_add(&s, control, 5);
        str_add(&s, ",\0\0\0\0\1\0\1\0\0\2\2\x44\1\0", 15);
    }
    str_add(&s, ";", 1);
    assert_true(decodes(&s, s.n, false, &f));
    alpha = f.alpha;
    for (unsigned i = 0; i < f.frames; i++)
        assert_int_equal(f.frame[i].channels, alpha ? 4 : 3);
    image_file_release(&f);
    str_release(&s);
    return alpha;
}

/* As Pillow's modes go: the first frame makes all of them RGB or RGBA. */
static void gif_masks(void **state)
{
    static const char colors[] = "\x10\x20\x30\xff\xff\xff", greys[] = "\0\0\0\1\1\1";
    static const char opaque[] = "\0\0\0\0\0", clear[] = "\1\0\0\0\0", wiped[] = "\x09\0\0\0\0";
    (void)state;
    assert_true(gif_alpha(colors, clear, NULL));
    assert_false(gif_alpha(colors, opaque, NULL));
    assert_true(gif_alpha(colors, clear, opaque));
    assert_false(gif_alpha(colors, opaque, clear));
    assert_false(gif_alpha(colors, opaque, wiped));
    assert_false(gif_alpha(greys, clear, NULL));
    assert_false(gif_alpha(greys, clear, clear));
}

static void put_tag(struct str *s, unsigned tag, uint32_t count, uint32_t value)
{
    const uint32_t field[3] = { tag | 4u << 16, count, value }; /* 4: 32-bit numbers */
    str_add(s, (const char *)field, sizeof field);
}

/* Rows of one pixel, each a strip of its own, all of them the same `bytes` of the file. */
static void tiff_of_one_strip(struct str *s, uint32_t rows, uint32_t bytes)
{
    const uint32_t data = 8, offsets = data + bytes, counts = offsets + 4 * rows,
                   list = counts + 4 * rows;
    str_add(s, "II*\0", 4);
    str_add(s, (const char *)&list, 4);
    str_pad(s, 'x', offsets);
    for (uint32_t i = 0; i < rows; i++)
        str_add(s, (const char *)&data, 4);
    for (uint32_t i = 0; i < rows; i++)
        str_add(s, (const char *)&bytes, 4);
    str_add(s, "\11\0", 2);
    put_tag(s, 256, 1, 1);    /* width */
    put_tag(s, 257, 1, rows); /* height */
    put_tag(s, 258, 1, 8);    /* bits */
    put_tag(s, 259, 1, 1);    /* not packed */
    put_tag(s, 262, 1, 1);    /* grey */
    put_tag(s, 273, rows, offsets);
    put_tag(s, 277, 1, 1); /* samples */
    put_tag(s, 278, 1, 1); /* rows of a strip */
    put_tag(s, 279, rows, counts);
    str_add(s, "\0\0\0\0", 4);
}

/* A file of 1.5 MB could name a megabyte 65,500 times, and that on 4096 pages: hours of copying. */
static void tiff_strips_that_are_the_same(void **state)
{
    (void)state;
    struct str s = { 0 };
    struct image_file f;
    berth_err err = { 0 };
    tiff_of_one_strip(&s, 64, 1 << 14); /* a megabyte of strips */
    f = decoded(&s);
    assert_int_equal(f.h, 64);
    assert_int_equal(f.frame[0].px[0], 'x');
    image_file_release(&f);
    str_clear(&s);
    tiff_of_one_strip(&s, 2048, 1 << 14); /* 32 of them */
    assert_int_equal(image_decode((const uint8_t *)s.p, s.n, NULL, &f, &err), BERTH_EFORMAT);
    assert_non_null(strstr(err.msg, "read more than 16 times over"));
    image_file_release(&f);
    str_release(&s);
}

/* One pixel of three samples. */
static void tiff_of_one_pixel(struct str *s, uint32_t packing, uint32_t photometric, uint32_t bits)
{
    str_clear(s);
    str_add(s, "II*\0\14\0\0\0abc\0\11\0", 14);
    put_tag(s, 256, 1, 1);
    put_tag(s, 257, 1, 1);
    put_tag(s, 258, 1, bits);
    put_tag(s, 259, 1, packing);
    put_tag(s, 262, 1, photometric);
    put_tag(s, 273, 1, 8);
    put_tag(s, 277, 1, 3);
    put_tag(s, 278, 1, 1);
    put_tag(s, 279, 1, 3);
    str_add(s, "\0\0\0\0", 4);
}

static void tiffs_that_are_not_supported_are_named(void **state)
{
    static const struct {
        uint32_t packing, photometric, bits;
        const char *said;
    } row[] = {
        { 1, 8, 8, "page 0: L*a*b* is not supported" },
        { 1, 6, 8, "page 0: YCbCr without JPEG is not supported" },
        { 1, 32803, 8, "page 0: a camera's raw picture is not supported" },
        { 1, 2, 32, "of 32 bits, format 1, photometric interpretation 2 are not supported" },
        { 6, 6, 8, "page 0: compression 6 (old-style JPEG) is not supported" },
    };
    struct image_file f;
    struct str s = { 0 };
    berth_err err;
    (void)state;
    tiff_of_one_pixel(&s, 1, 2, 8); /* RGB: it is the row that is refused, not the file */
    f = decoded(&s);
    image_file_release(&f);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        tiff_of_one_pixel(&s, row[i].packing, row[i].photometric, row[i].bits);
        assert_fails(image_decode((const uint8_t *)s.p, s.n, NULL, &f, &err), err,
                     BERTH_EUNSUPPORTED, row[i].said);
        image_file_release(&f);
    }
    str_release(&s);
}

static void endings(void **state)
{
    static const char *const ours[] = { "a.png",  "A.PNG",  "b.apng", "c.jpg", "d.jpeg",
                                        "e.JFIF", "f.webp", "g.gif",  "h.bmp", "i/x.y.ppm",
                                        "j.pgm",  "k.tif",  "l.TIFF" };
    static const char *const others[] = { "a.exr", "b.avif", "c.heic", "d.svg",   "png",    ".png",
                                          "e.",    "f.pn",   "g.pngx", "h.png/x", "i/.png", "" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ours); i++)
        if (!image_reads(ours[i]))
            fail_msg("'%s' is not read", ours[i]);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (image_reads(others[i]))
            fail_msg("'%s' is read", others[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_and_limits),
        cmocka_unit_test(channels),
        cmocka_unit_test(not_a_picture),
        cmocka_unit_test(limits_come_first),
        cmocka_unit_test(cut_png),
        cmocka_unit_test(cut_jpeg),
        cmocka_unit_test(cut_bombs),
        cmocka_unit_test(gif_masks),
        cmocka_unit_test(endings),
        cmocka_unit_test(tiff_strips_that_are_the_same),
        cmocka_unit_test(tiffs_that_are_not_supported_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
