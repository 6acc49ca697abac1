/* BMP: palettes, 16, 24 and 32 bits with or without masks, run lengths, either way up. */
#include "image/image_impl.h"

#include "base/rd.h"

enum { RGB, RLE8, RLE4, BITFIELDS, ALPHAFIELDS = 6 };

struct bmp {
    uint32_t w, h;
    bool top_down;
    unsigned bits, packing;
    uint32_t mask[4]; /* red, green, blue, alpha */
    uint8_t color[256][3];
    const uint8_t *data; /* pixels */
    size_t n;
};

static bool is(const uint8_t *p, size_t n)
{
    return n >= 26 && p[0] == 'B' && p[1] == 'M';
}

/* ---- header ---- */

static void read_masks(struct bmp *b, struct rd *r, uint32_t header)
{
    static const uint32_t plain16[4] = { 0x7c00, 0x3e0, 0x1f, 0 };
    static const uint32_t plain32[4] = { 0xff0000, 0xff00, 0xff, 0 };
    memcpy(b->mask, b->bits == 16 ? plain16 : plain32, sizeof b->mask);
    if (b->packing != BITFIELDS && b->packing != ALPHAFIELDS)
        return;
    bool alpha = header >= 56 || b->packing == ALPHAFIELDS;
    for (int i = 0; i < (alpha ? 4 : 3); i++)
        b->mask[i] = rd_u32le(r); /* right behind the 40 bytes, part of the header or not */
    static const uint32_t none[4], bgra[4] = { 0xff0000, 0xff00, 0xff, 0xff000000 };
    if (b->bits == 32 && memcmp(b->mask, none, sizeof none) == 0)
        memcpy(b->mask, bgra, sizeof bgra);
}

static void read_palette(struct bmp *b, struct rd *r, size_t used, size_t bytes)
{
    size_t most = (size_t)1 << b->bits;
    size_t n = used && used < most ? used : most;
    for (size_t i = 0; i < n && rd_left(r) >= bytes; i++) {
        const uint8_t *p = rd_take(r, bytes);
        for (int k = 0; k < 3; k++)
            b->color[i][k] = p[2 - k];
    }
}

static bool depth_fits(const struct bmp *b)
{
    switch (b->packing) {
    case RGB:
        return b->bits == 1 || b->bits == 4 || b->bits == 8 || b->bits == 16 || b->bits == 24 ||
               b->bits == 32;
    case RLE8:
        return b->bits == 8;
    case RLE4:
        return b->bits == 4;
    default:
        return b->bits == 16 || b->bits == 32;
    }
}

static berth_status read_header(struct bmp *b, const struct image_in *in, berth_err *err)
{
    *b = (struct bmp) { 0 };
    struct rd r = rd_init(in->p, in->n);
    rd_take(&r, 10);
    uint32_t offset = rd_u32le(&r), header = rd_u32le(&r), used = 0;
    if (header == 12) { /* OS/2 */
        b->w = rd_u16le(&r);
        b->h = rd_u16le(&r);
        rd_u16le(&r);
        b->bits = rd_u16le(&r);
    } else if (header >= 40 && header <= 124) {
        b->w = rd_u32le(&r);
        b->h = rd_u32le(&r);
        rd_u16le(&r);
        b->bits = rd_u16le(&r);
        b->packing = rd_u32le(&r);
        rd_take(&r, 12);
        used = rd_u32le(&r);
        rd_u32le(&r);
        b->top_down = b->h >> 31;
        b->h = b->top_down ? 0 - b->h : b->h;
    } else
        return err_set(err, BERTH_EUNSUPPORTED, "a header of %u bytes", header);
    if (!depth_fits(b) || (b->packing > BITFIELDS && b->packing != ALPHAFIELDS))
        return err_set(err, BERTH_EUNSUPPORTED, "%u bits with compression %u", b->bits, b->packing);
    size_t masks = b->packing == BITFIELDS && header < 52     ? 12
                   : b->packing == ALPHAFIELDS && header < 56 ? 16
                                                              : 0;
    read_masks(b, &r, header);
    if (r.bad || 14 + header + masks > in->n || offset > in->n)
        return err_set(err, BERTH_EFORMAT, "the header is cut short");
    r = rd_init(in->p + 14 + header + masks, in->n - 14 - header - masks);
    if (b->bits <= 8)
        read_palette(b, &r, used, header == 12 ? 3 : 4);
    b->data = in->p + offset;
    b->n = in->n - offset;
    return BERTH_OK;
}

/* ---- pixels ---- */

static uint8_t field(uint32_t v, uint32_t mask)
{
    if (!mask)
        return 0;
    int shift = __builtin_ctz(mask);
    uint64_t most = mask >> shift;
    return (uint8_t)((uint64_t)((v & mask) >> shift) * 255 / most);
}

static void read_row(const struct bmp *b, const uint8_t *s, uint8_t *d, unsigned channels)
{
    for (uint32_t x = 0; x < b->w; x++, d += channels) {
        if (b->bits <= 8) {
            unsigned per = 8 / b->bits, at = x % per;
            unsigned v = s[x / per], i = v >> (8 - b->bits * (at + 1)) & ((1u << b->bits) - 1);
            memcpy(d, b->color[i], 3);
        } else if (b->bits == 24) {
            for (int k = 0; k < 3; k++)
                d[k] = s[3 * (size_t)x + 2 - (size_t)k];
        } else {
            struct rd r = rd_init(s + (size_t)x * b->bits / 8, b->bits / 8);
            uint32_t v = (uint32_t)rd_uint_le(&r, b->bits / 8);
            for (unsigned k = 0; k < channels; k++)
                d[k] = field(v, b->mask[k]);
        }
    }
}

static berth_status read_plain(const struct bmp *b, struct image *im, berth_err *err)
{
    size_t stride = ((size_t)b->w * b->bits + 31) / 32 * 4, row = (size_t)b->w * im->channels;
    if (b->n / stride < b->h && b->n + 3 < stride * b->h) /* the last padding may be missing */
        return err_set(err, BERTH_EFORMAT, "%zu bytes hold no %u rows of %zu", b->n, b->h, stride);
    size_t need = ((size_t)b->w * b->bits + 7) / 8;
    for (uint32_t y = 0; y < b->h; y++) {
        if (b->n - y * stride < need)
            return err_set(err, BERTH_EFORMAT, "row %u is cut short", y);
        read_row(b, b->data + y * stride, im->px + (b->top_down ? y : b->h - 1 - y) * row,
                 im->channels);
    }
    return BERTH_OK;
}

struct pen { /* where run lengths draw; y counts up from the bottom */
    const struct bmp *b;
    struct image *im;
    uint32_t x, y;
};

static void draw(struct pen *p, unsigned index)
{
    if (p->x < p->b->w && p->y < p->b->h) {
        uint32_t y = p->b->top_down ? p->y : p->b->h - 1 - p->y;
        memcpy(p->im->px + ((size_t)y * p->b->w + p->x) * 3, p->b->color[index], 3);
    }
    p->x++;
}

/* n pixels of four or eight bits; repeat: all of them from one byte. */
static void draw_run(struct pen *p, struct rd *r, unsigned n, bool repeat)
{
    unsigned v = repeat ? rd_u8(r) : 0;
    for (unsigned i = 0; i < n && !r->bad; i++) {
        bool low = p->b->bits == 4 && i % 2;
        if (!repeat && !low)
            v = rd_u8(r);
        draw(p, p->b->bits == 8 ? v : low ? v & 15 : v >> 4);
    }
}

static berth_status read_runs(const struct bmp *b, struct image *im, berth_err *err)
{
    struct rd r = rd_init(b->data, b->n);
    struct pen p = { .b = b, .im = im };
    for (size_t i = 0; i < (size_t)b->w * b->h; i++)
        memcpy(im->px + 3 * i, b->color[0], 3);
    while (!r.bad && p.y < b->h) {
        unsigned n = rd_u8(&r);
        if (n) {
            draw_run(&p, &r, n, true);
            continue;
        }
        n = rd_u8(&r);
        if (n == 1) /* the end */
            return BERTH_OK;
        if (n == 0) {
            p.x = 0;
            p.y++;
        } else if (n == 2) {
            p.x += rd_u8(&r);
            p.y += rd_u8(&r);
        } else {
            draw_run(&p, &r, n, false);
            if ((b->bits == 8 ? n : (n + 1) / 2) % 2)
                rd_u8(&r); /* runs end at even bytes */
        }
    }
    return r.bad ? err_set(err, BERTH_EFORMAT, "run lengths are cut short") : BERTH_OK;
}

static berth_status read_bmp(struct image_in *in, struct image_file *out, berth_err *err)
{
    struct bmp b;
    if (read_header(&b, in, err))
        return err->code;
    out->alpha = b.bits > 8 && b.bits != 24 && b.mask[3];
    unsigned channels = out->alpha ? 4 : 3;
    if (image_file_begin(in, out, b.w, b.h, channels, 1, err) ||
        image_init(&out->frame[0], b.w, b.h, channels, err))
        return err->code;
    bool runs = b.packing == RLE8 || b.packing == RLE4;
    return runs ? read_runs(&b, &out->frame[0], err) : read_plain(&b, &out->frame[0], err);
}

const struct image_format image_format_bmp = {
    .name = "bmp", .ext = "bmp dib ", .is = is, .read = read_bmp
};
