#include "app/app.h"

#include "image/image.h"

struct small { /* a picture that is looked at through cells */
    const struct image *im;
    uint32_t w, h;
};

/* The mean colour of cell (x, y) over white. */
static void mean_color(const struct small *s, uint32_t x, uint32_t y, unsigned rgb[3])
{
    const struct image *im = s->im;
    uint32_t x0 = (uint32_t)((uint64_t)x * im->w / s->w),
             x1 = (uint32_t)((uint64_t)(x + 1) * im->w / s->w),
             y0 = (uint32_t)((uint64_t)y * im->h / s->h),
             y1 = (uint32_t)((uint64_t)(y + 1) * im->h / s->h);
    uint64_t sum[3] = { 0 }, n = 0;
    for (uint32_t yy = y0; yy < (y1 > y0 ? y1 : y0 + 1); yy++)
        for (uint32_t xx = x0; xx < (x1 > x0 ? x1 : x0 + 1); xx++, n++) {
            const uint8_t *p = im->px + ((size_t)yy * im->w + xx) * im->channels;
            unsigned alpha = im->channels == 4 ? p[3] : 255;
            for (int k = 0; k < 3; k++) {
                unsigned v = im->channels == 1 ? p[0] : p[k];
                sum[k] += (v * alpha + 255 * (255 - alpha)) / 255;
            }
        }
    for (int k = 0; k < 3; k++)
        rgb[k] = (unsigned)(sum[k] / n);
}

static void add_rows(const struct small *s, uint32_t y, struct str *out)
{
    for (uint32_t x = 0; x < s->w; x++) {
        unsigned up[3], down[3];
        mean_color(s, x, y, up);
        str_addf(out, "\033[38;2;%u;%u;%um", up[0], up[1], up[2]);
        if (y + 1 < s->h) {
            mean_color(s, x, y + 1, down);
            str_addf(out, "\033[48;2;%u;%u;%um", down[0], down[1], down[2]);
        }
        str_adds(out, "▀");
    }
    str_adds(out, "\033[0m\n");
}

berth_status show_picture(const void *bytes, size_t n, int columns, struct str *out, berth_err *err)
{
    const struct image_limits lim = { .max_pixels = (uint64_t)1 << 26, .max_frames = 64 };
    struct image_file file = { 0 };
    berth_status st = image_decode(bytes, n, &lim, &file, err);
    if (!st) {
        uint32_t most =
            columns > 0 && columns < SHOW_COLUMNS_MAX ? (uint32_t)columns : SHOW_COLUMNS_MAX;
        struct small s = { .im = &file.frame[0], .w = file.w < most ? file.w : most };
        s.h = (uint32_t)(((uint64_t)s.w * file.h + file.w / 2) / file.w);
        s.h = s.h < 1         ? 1
              : s.h > 2 * s.w ? 2 * s.w
                              : s.h; /* a tower would scroll everything away */
        for (uint32_t y = 0; y < s.h; y += 2)
            add_rows(&s, y, out);
        if (out->bad)
            st = err_set(err, BERTH_ENOMEM, "a picture for the terminal");
    }
    image_file_release(&file);
    return st;
}
