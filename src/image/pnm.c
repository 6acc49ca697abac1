/* PNM: PBM, PGM and PPM, as text (P1 P2 P3) and as bytes (P4 P5 P6). */
#include "image/image_impl.h"

#include "base/rd.h"

#include <math.h>

struct pnm {
    struct rd r; /* after the header: at the pixels */
    bool text, bitmap;
    unsigned channels;
    uint32_t w, h, most;
};

static bool is(const uint8_t *p, size_t n)
{
    return n >= 3 && p[0] == 'P' && p[1] >= '1' && p[1] <= '6' &&
           (p[2] == ' ' || p[2] == '\n' || p[2] == '\r' || p[2] == '\t' || p[2] == '#');
}

/* One number in decimal digits, after blanks and comments; digits: at most so many of them. Takes
 * the character that ends it, unless it is a digit. Sets r->bad. */
static uint32_t number(struct rd *r, unsigned digits)
{
    unsigned c = rd_u8(r);
    while (!r->bad && (c == ' ' || (c >= '\t' && c <= '\r') || c == '#')) {
        while (c == '#' && !r->bad && rd_u8(r) != '\n')
            ;
        c = rd_u8(r);
    }
    uint32_t v = 0;
    unsigned n = 0;
    for (; c >= '0' && c <= '9' && n < digits; n++) {
        v = v * 10 + (c - '0');
        if (n + 1 == digits)
            return v;
        if (rd_left(r) == 0)
            return v;
        c = rd_u8(r);
    }
    if (n == 0 || (c > ' ' && c != '#'))
        r->bad = true;
    return v;
}

static berth_status read_header(struct pnm *f, const struct image_in *in, berth_err *err)
{
    unsigned kind = in->p[1] - (unsigned)'0';
    *f = (struct pnm) { .r = rd_init(in->p + 2, in->n - 2),
                        .text = kind <= 3,
                        .bitmap = kind == 1 || kind == 4,
                        .channels = kind % 3 == 0 ? 3 : 1,
                        .most = 1 };
    f->w = number(&f->r, 9);
    f->h = number(&f->r, 9);
    if (!f->bitmap)
        f->most = number(&f->r, 9);
    if (f->r.bad || !f->most || f->most > 65535)
        return err_set(err, BERTH_EFORMAT, "a broken header");
    return BERTH_OK;
}

/* Pillow scales to 255, and grey of more than eight bits to 65535, which ComfyUI then divides. */
static uint8_t scaled(const struct pnm *f, uint32_t v)
{
    bool wide = f->channels == 1 && f->most > 255;
    double full = wide ? 65535 : 255;
    double x = rint((double)v / f->most * full);
    x = wide ? x * (1.0 / 255) : x;
    return (uint8_t)(x > 255 ? 255 : x);
}

static uint32_t sample(struct pnm *f)
{
    if (f->text)
        return number(&f->r, f->bitmap ? 1 : 9);
    const uint8_t *p = rd_take(&f->r, f->most > 255 ? 2 : 1);
    return !p ? 0 : f->most > 255 ? (uint32_t)(p[0] << 8 | p[1]) : p[0];
}

static void read_bits(struct pnm *f, struct image *im)
{
    for (uint32_t y = 0; y < f->h; y++) {
        const uint8_t *p = rd_take(&f->r, ((size_t)f->w + 7) / 8);
        for (uint32_t x = 0; p && x < f->w; x++)
            im->px[(size_t)y * f->w + x] = p[x / 8] >> (7 - x % 8) & 1 ? 0 : 255;
    }
}

static berth_status read_samples(struct pnm *f, struct image *im, berth_err *err)
{
    size_t n = (size_t)f->w * f->h * f->channels;
    for (size_t i = 0; i < n && !f->r.bad; i++) {
        uint32_t v = sample(f);
        if (v > f->most)
            return err_set(err, BERTH_EFORMAT, "a sample of %u, over %u", v, f->most);
        im->px[i] = f->bitmap ? (v ? 0 : 255) : scaled(f, v);
    }
    return BERTH_OK;
}

static berth_status read_pnm(struct image_in *in, struct image_file *out, berth_err *err)
{
    struct pnm f;
    berth_status s = read_header(&f, in, err);
    if (!s)
        s = image_file_begin(in, out, f.w, f.h, f.channels, 1, err);
    if (s)
        return s;
    if ((uint64_t)f.w * f.h * f.channels / 8 > rd_left(&f.r))
        return err_set(err, BERTH_EFORMAT, "the file is cut short");
    s = image_init(&out->frame[0], f.w, f.h, f.channels, err);
    if (s)
        return s;
    if (f.bitmap && !f.text)
        read_bits(&f, &out->frame[0]);
    else
        s = read_samples(&f, &out->frame[0], err);
    return s || !f.r.bad ? s : err_set(err, BERTH_EFORMAT, "the file is cut short");
}

const struct image_format image_format_pnm = {
    .name = "pnm", .ext = "pnm pbm pgm ppm ", .is = is, .read = read_pnm
};
