/* Memory, channels, limits and the list of formats. */
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
    assert_fails(image_probe((const uint8_t *)many, strlen(many), NULL, &f, &err), err,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_and_limits),
        cmocka_unit_test(channels),
        cmocka_unit_test(not_a_picture),
        cmocka_unit_test(limits_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
