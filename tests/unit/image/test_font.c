/* The built-in typeface: areas that can be worked out, and text that is none. */
#include "image/font.h"
#include "support/test.h"

static struct image page(uint32_t w, uint32_t h)
{
    struct image im;
    berth_err err;
    assert_ok(image_init(&im, w, h, 1, &err), err);
    memset(im.px, 0, (size_t)w * h);
    return im;
}

static unsigned long ink(const struct image *im)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < (size_t)im->w * im->h; i++)
        sum += im->px[i];
    return sum;
}

/* At 100 pixels a unit is a tenth of one: '-' is 21 x 5.6 pixels. */
#define HYPHEN_AREA 117
static void a_hyphen_has_its_area(void **state)
{
    struct image im = page(60, 120);
    struct font_at at = { .x = 10, .y = 5, .size = 100 };
    int box[4];
    berth_err err;
    (void)state;
    font_box("-", 1, 100, 0, box);
    assert_ok(font_draw("-", 1, &at, &im, &err), err);
    unsigned long full = 0;
    for (size_t y = 0; y < im.h; y++)
        for (size_t x = 0; x < im.w; x++) {
            bool in = (int)x >= 10 + box[0] && (int)x < 10 + box[2] && (int)y >= 5 + box[1] &&
                      (int)y < 5 + box[3];
            if (!in)
                assert_int_equal(im.px[y * im.w + x], 0);
            full += im.px[y * im.w + x] == 255;
        }
    assert_in_range(ink(&im) / 255, HYPHEN_AREA - 3, HYPHEN_AREA + 3);
    assert_true(full > HYPHEN_AREA / 2);
    image_release(&im);
}

static void characters_stand_beside_each_other(void **state)
{
    (void)state;
    assert_int_equal(font_width("", 0, 20), 0);
    static char wide[1 << 20];
    memset(wide, 'W', sizeof wide);
    assert_int_equal(font_width(wide, sizeof wide, FONT_SIZE_MAX), FONT_WIDTH_MAX);
    int a = font_width("A", 1, 20), i = font_width("i", 1, 20);
    assert_true(a > i && i > 0);
    assert_int_equal(font_width("AiA", 3, 20), 2 * a + i);
    assert_int_equal(font_ascent(16), 16);
    assert_int_equal(font_descent(16), 4);
    /* what it does not have, and bytes that are no text, look alike */
    assert_int_equal(font_width("\xe4\xb8\x80", 3, 20), font_width("\xff", 1, 20));
}

static void a_stroke_lies_around(void **state)
{
    struct image plain = page(60, 40), wide = page(60, 40);
    int a[4], b[4];
    berth_err err;
    (void)state;
    assert_ok(font_draw("o", 1, &(struct font_at) { 10, 5, 24, 0 }, &plain, &err), err);
    assert_ok(font_draw("o", 1, &(struct font_at) { 10, 5, 24, 2 }, &wide, &err), err);
    assert_true(ink(&wide) > ink(&plain));
    font_box("o", 1, 24, 0, a);
    font_box("o", 1, 24, 2, b);
    assert_true(b[0] == a[0] - 2 && b[1] == a[1] - 2 && b[2] == a[2] + 2 && b[3] == a[3] + 2);
    image_release(&plain);
    image_release(&wide);
}

/* Every character of the table, at the edges of a small picture. */
static void nothing_leaves_the_picture(void **state)
{
    struct image im = page(9, 7);
    char all[256];
    berth_err err;
    (void)state;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    for (int x = -30; x < 12; x += 7)
        for (unsigned size = 1; size < 60; size += 19)
            for (unsigned stroke = 0; stroke < 3; stroke++)
                for (size_t i = 0; i < sizeof all; i++)
                    assert_ok(
                        font_draw(all + i, 1, &(struct font_at) { x, x, size, stroke }, &im, &err),
                        err);
    assert_ok(font_draw(all, sizeof all, &(struct font_at) { -900, 0, 30, 0 }, &im, &err), err);
    assert_fails(font_draw("a", 1, &(struct font_at) { 0, 0, 5000, 0 }, &im, &err), err,
                 BERTH_ELIMIT, "5000");
    image_release(&im);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hyphen_has_its_area),
        cmocka_unit_test(characters_stand_beside_each_other),
        cmocka_unit_test(a_stroke_lies_around),
        cmocka_unit_test(nothing_leaves_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
