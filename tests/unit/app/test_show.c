/* A picture in a terminal: which colour stands where. */
#include "support/test.h"

#include "app/app.h"
#include "image/image.h"

/* A PNG of w x h, whose pixel (x, y) is color(x, y). */
static void make(struct str *out, uint32_t w, uint32_t h, unsigned channels,
                 void (*color)(uint32_t x, uint32_t y, uint8_t *p))
{
    struct image im;
    berth_err err = { 0 };
    assert_ok(image_init(&im, w, h, channels, &err), err);
    for (uint32_t y = 0; y < h; y++)
        for (uint32_t x = 0; x < w; x++)
            color(x, y, im.px + ((size_t)y * w + x) * channels);
    assert_ok(image_png(&im, &(struct image_png_args) { .level = 1 }, out, &err), err);
    image_release(&im);
}

static void show(const struct str *png, int columns, struct str *out)
{
    berth_err err = { 0 };
    assert_ok(show_picture(png->p, png->n, columns, out, &err), err);
}

static size_t count(const char *text, const char *what)
{
    size_t n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static void quarters(uint32_t x, uint32_t y, uint8_t *p)
{
    p[0] = x < 4 ? 200 : 10;
    p[1] = y < 4 ? 100 : 20;
    p[2] = 0;
}

static void two_pixels_a_character(void **state)
{
    struct str png = { 0 }, out = { 0 };
    (void)state;
    make(&png, 8, 8, 3, quarters);
    show(&png, 2, &out);
    assert_string_equal(str_c(&out), "\033[38;2;200;100;0m\033[48;2;200;20;0m▀"
                                     "\033[38;2;10;100;0m\033[48;2;10;20;0m▀\033[0m\n");
    str_clear(&out);
    show(&png, 1, &out); /* one row of one pixel: nothing below it */
    assert_string_equal(str_c(&out), "\033[38;2;105;60;0m▀\033[0m\n");
    str_clear(&out);
    show(&png, 500, &out); /* never larger than it is */
    assert_int_equal(count(str_c(&out), "▀"), 8 * 4);
    str_release(&out);
    str_release(&png);
}

static void clear(uint32_t x, uint32_t y, uint8_t *p)
{
    (void)y;
    p[0] = p[1] = p[2] = 0;
    p[3] = x ? 255 : 0;
}

static void grey(uint32_t x, uint32_t y, uint8_t *p)
{
    (void)x, (void)y;
    p[0] = 77;
}

static void other_channels(void **state)
{
    struct str png = { 0 }, out = { 0 };
    (void)state;
    make(&png, 2, 1, 4, clear); /* what is transparent is white */
    show(&png, 80, &out);
    assert_string_equal(str_c(&out), "\033[38;2;255;255;255m▀\033[38;2;0;0;0m▀\033[0m\n");
    str_clear(&png), str_clear(&out);
    make(&png, 1, 5000, 1, grey); /* a tower is cut down */
    show(&png, 80, &out);
    assert_string_equal(str_c(&out), "\033[38;2;77;77;77m\033[48;2;77;77;77m▀\033[0m\n");
    str_release(&out);
    str_release(&png);
}

static void what_is_no_picture(void **state)
{
    struct str out = { 0 };
    berth_err err = { 0 };
    (void)state;
    assert_fails(show_picture("hello", 5, 80, &out, &err), err, BERTH_EUNSUPPORTED, "");
    assert_int_equal(out.n, 0);
    str_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_pixels_a_character),
        cmocka_unit_test(other_channels),
        cmocka_unit_test(what_is_no_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
