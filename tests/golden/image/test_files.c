/* Every kind of file against Pillow, whole, cut at every byte, and with every byte damaged. */
#include "files.h"

static void equals(const struct golden_file *g, const struct image_file *f)
{
    assert_int_equal(f->w, g->w);
    assert_int_equal(f->h, g->h);
    assert_int_equal(f->frames, g->frames);
    assert_int_equal(f->alpha, g->alpha);
    for (unsigned i = 0; i < f->frames; i++) {
        struct image rgba;
        berth_err err;
        assert_ok(image_convert(&f->frame[i], 4, &rgba, &err), err);
        const uint8_t *want = g->rgba + (size_t)i * g->w * g->h * 4;
        for (size_t k = 0; k < (size_t)g->w * g->h * 4; k++)
            if (rgba.px[k] != want[k])
                fail_msg("%s: frame %u, pixel %zu, %zu, channel %zu is %u, Pillow says %u", g->name,
                         i, k / 4 % g->w, k / 4 / g->w, k % 4, rgba.px[k], want[k]);
        image_release(&rgba);
    }
}

static void whole(const struct golden_file *g)
{
    struct image_file f;
    berth_err err;
    if (image_decode(g->bytes, g->n, NULL, &f, &err) != BERTH_OK)
        fail_msg("%s: %s", g->name, err.msg);
    assert_string_equal(f.format, g->format);
    equals(g, &f);
    assert_true((f.seconds != NULL) == (f.frames > 1));
    image_file_release(&f);
}

static void equal_to_pillow(void **state)
{
    (void)state;
    assert_int_equal(golden_each(whole), 114);
}

/* Refused with a reason, or all of it: never a part without a word. Numbers in text files have no
 * length, so what is left of the last one cannot be told from a whole one. */
static void cut(const struct golden_file *g)
{
    bool text = strncmp(g->name, "text", 4) == 0 && strcmp(g->format, "pnm") == 0;
    for (size_t n = 0; n<g->n; n += g->n> 2000 ? 17 : 1) {
        uint8_t *part = malloc(n ? n : 1);
        assert_non_null(part);
        memcpy(part, g->bytes, n);
        struct image_file f;
        berth_err err = { 0 };
        berth_status s = image_decode(part, n, NULL, &f, &err);
        if (s && !(err.msg[0] && (s == BERTH_EFORMAT || s == BERTH_EUNSUPPORTED)))
            fail_msg("%s, %zu bytes: %s %s", g->name, n, berth_status_name(s), err.msg);
        if (!s && !text)
            equals(g, &f);
        image_file_release(&f);
        free(part);
    }
}

static void cut_anywhere(void **state)
{
    (void)state;
    golden_each(cut);
}

static void damage(const struct golden_file *g)
{
    const struct image_limits lim = { .max_side = 4096, .max_pixels = 1 << 16, .max_frames = 64 };
    for (size_t at = 0; at<g->n; at += g->n> 2000 ? 29 : 3) {
        struct image_file f;
        berth_err err = { 0 };
        uint8_t was = g->bytes[at];
        g->bytes[at] ^= (uint8_t)(1u << at % 8);
        berth_status s = image_decode(g->bytes, g->n, &lim, &f, &err);
        assert_true(s == BERTH_OK || err.msg[0]);
        for (unsigned i = 0; !s && i < f.frames; i++)
            assert_true(f.frame[i].px && f.frame[i].w == f.w && f.frame[i].h == f.h);
        image_file_release(&f);
        g->bytes[at] = was;
    }
}

static void damaged_anywhere(void **state)
{
    (void)state;
    golden_each(damage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_pillow),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(damaged_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
