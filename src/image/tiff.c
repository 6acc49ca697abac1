/* TIFF through libtiff, from memory alone: grey, palette, RGB and CMYK of the depths Pillow knows,
 * in strips or tiles, whole or in planes. Pages of the first one's size are frames. */
#include "image/image_impl.h"

#include "base/sz.h"

#include <tiffio.h>

#define MAX_SAMPLES 8 /* of a pixel: colours, alpha, and others that are ignored */
/* Strips and lists of pages may name the same bytes again and again: of a file so many times its
 * size is read, and of a small one a little more. */
#define READ_TIMES 16
#define READ_ROOM ((size_t)1 << 20)

struct memory { /* what libtiff reads from, and what it complained of first */
    const uint8_t *p;
    size_t n, at;
    size_t left; /* bytes it may still read */
    char why[160];
};

struct page {
    uint32_t w, h;
    uint16_t bits, samples, photometric, planar, format, orientation;
    bool tiled, alpha, premultiplied;
    uint16_t *color[3]; /* of a palette; the library's */
};

static bool is(const uint8_t *p, size_t n)
{
    return n >= 8 && (!memcmp(p, "II*\0", 4) || !memcmp(p, "MM\0*", 4) || !memcmp(p, "II+\0", 4) ||
                      !memcmp(p, "MM\0+", 4));
}

/* ---- the library's side ---- */

static tmsize_t on_read(thandle_t user, void *to, tmsize_t n)
{
    struct memory *m = user;
    size_t left = m->at < m->n ? m->n - m->at : 0, k = n < 0 ? 0 : (size_t)n;
    k = k < left ? k : left;
    if (k > m->left) {
        snprintf(m->why, sizeof m->why, "it is read more than %d times over", READ_TIMES);
        return 0;
    }
    if (k)
        memcpy(to, m->p + m->at, k);
    m->at += k;
    m->left -= k;
    return (tmsize_t)k;
}

static tmsize_t on_write(thandle_t user, void *from, tmsize_t n)
{
    (void)user, (void)from, (void)n;
    return 0;
}

static toff_t on_seek(thandle_t user, toff_t to, int whence)
{
    struct memory *m = user;
    toff_t from = whence == SEEK_CUR ? m->at : whence == SEEK_END ? m->n : 0;
    if (__builtin_add_overflow(from, to, &to) || to > SIZE_MAX)
        return (toff_t)-1;
    m->at = (size_t)to;
    return to;
}

static int on_close(thandle_t user)
{
    (void)user;
    return 0;
}

static toff_t on_size(thandle_t user)
{
    return ((struct memory *)user)->n;
}

PRINTF_LIKE(4, 0)
static int on_error(TIFF *t, void *user, const char *module, const char *fmt, va_list ap)
{
    struct memory *m = user;
    (void)t, (void)module;
    if (!m->why[0])
        vsnprintf(m->why, sizeof m->why, fmt, ap);
    return 1; /* no further handler */
}

PRINTF_LIKE(4, 0)
static int on_warning(TIFF *t, void *user, const char *module, const char *fmt, va_list ap)
{
    (void)t, (void)user, (void)module, (void)fmt, (void)ap;
    return 1;
}

static TIFF *open_memory(struct memory *m, const struct image_in *in)
{
    TIFFOpenOptions *o = TIFFOpenOptionsAlloc();
    if (!o)
        return NULL;
    /* A strip may be a whole frame of 32-bit samples. */
    uint64_t most = in->lim.max_pixels * MAX_SAMPLES * 4;
    TIFFOpenOptionsSetMaxSingleMemAlloc(o, most < IMAGE_BYTES_MAX ? (tmsize_t)most + (1 << 20)
                                                                  : (tmsize_t)IMAGE_BYTES_MAX);
    TIFFOpenOptionsSetErrorHandlerExtR(o, on_error, m);
    TIFFOpenOptionsSetWarningHandlerExtR(o, on_warning, m);
    /* m: nothing is mapped */
    TIFF *t = TIFFClientOpenExt("picture", "rm", m, on_read, on_write, on_seek, on_close, on_size,
                                NULL, NULL, o);
    TIFFOpenOptionsFree(o);
    return t;
}

static berth_status failed(const struct memory *m, unsigned page, berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "page %u: %s", page, m->why[0] ? m->why : "it is broken");
}

/* ---- what a page is ---- */

/* Old JPEG in TIFF is not among them: no two readers agree on it. */
static bool packing_known(uint16_t c)
{
    static const uint16_t known[] = {
        COMPRESSION_NONE, COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,     COMPRESSION_CCITTFAX4,
        COMPRESSION_LZW,  COMPRESSION_JPEG,     COMPRESSION_ADOBE_DEFLATE, COMPRESSION_DEFLATE,
        COMPRESSION_ZSTD, COMPRESSION_WEBP,     COMPRESSION_PACKBITS
    };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (c == known[i])
            return TIFFIsCODECConfigured(c);
    return false;
}

static bool depth_fits(const struct page *g)
{
    bool whole = g->format == SAMPLEFORMAT_UINT || g->format == SAMPLEFORMAT_VOID;
    bool grey =
        g->photometric == PHOTOMETRIC_MINISBLACK || g->photometric == PHOTOMETRIC_MINISWHITE;
    if (grey && g->samples == 1 && g->bits == 32) /* as Pillow's I and F */
        return whole || g->format == SAMPLEFORMAT_INT || g->format == SAMPLEFORMAT_IEEEFP;
    if (!whole)
        return false;
    if (grey || g->photometric == PHOTOMETRIC_PALETTE)
        return g->bits == 8 || (g->bits == 16 && grey) ||
               (g->samples == 1 && (g->bits == 1 || g->bits == 2 || g->bits == 4));
    return g->bits == 8 || g->bits == 16;
}

static unsigned colors_of(const struct page *g)
{
    return g->photometric == PHOTOMETRIC_SEPARATED ? 4 : g->photometric == PHOTOMETRIC_RGB ? 3 : 1;
}

/* The first sample behind the colours, where the file says that it is alpha; four samples of RGB
 * about which it says nothing are taken for RGBA. */
static void find_alpha(TIFF *t, struct page *g)
{
    uint16_t n = 0, *kind = NULL;
    unsigned colors = colors_of(g);
    if (g->samples <= colors || g->photometric == PHOTOMETRIC_SEPARATED ||
        g->photometric == PHOTOMETRIC_PALETTE)
        return;
    if (!TIFFGetField(t, TIFFTAG_EXTRASAMPLES, &n, &kind)) /* its default would say "unspecified" */
        n = 0;
    g->alpha = n ? kind[0] != EXTRASAMPLE_UNSPECIFIED : g->photometric == PHOTOMETRIC_RGB;
    g->premultiplied = n && kind[0] == EXTRASAMPLE_ASSOCALPHA && colors == 3;
}

/* Those that docs/images.md names; of others the numbers say what they are. */
static berth_status not_supported(const struct page *g, unsigned number, berth_err *err)
{
    const char *name = g->photometric == PHOTOMETRIC_CIELAB  ? "L*a*b*"
                       : g->photometric == PHOTOMETRIC_YCBCR ? "YCbCr without JPEG"
                       : g->photometric == PHOTOMETRIC_CFA   ? "a camera's raw picture"
                                                             : NULL;
    if (name)
        return err_set(err, BERTH_EUNSUPPORTED, "page %u: %s is not supported", number, name);
    return err_set(err, BERTH_EUNSUPPORTED,
                   "page %u: %u samples of %u bits, format %u, photometric interpretation %u are "
                   "not supported",
                   number, g->samples, g->bits, g->format, g->photometric);
}

static berth_status read_page(TIFF *t, unsigned number, struct page *g, berth_err *err)
{
    uint16_t packing = COMPRESSION_NONE;
    *g = (struct page) { .orientation = 1 };
    TIFFGetField(t, TIFFTAG_IMAGEWIDTH, &g->w);
    TIFFGetField(t, TIFFTAG_IMAGELENGTH, &g->h);
    TIFFGetFieldDefaulted(t, TIFFTAG_BITSPERSAMPLE, &g->bits);
    TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLESPERPIXEL, &g->samples);
    TIFFGetFieldDefaulted(t, TIFFTAG_PLANARCONFIG, &g->planar);
    TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLEFORMAT, &g->format);
    TIFFGetFieldDefaulted(t, TIFFTAG_COMPRESSION, &packing);
    TIFFGetField(t, TIFFTAG_ORIENTATION, &g->orientation);
    if (!TIFFGetField(t, TIFFTAG_PHOTOMETRIC, &g->photometric))
        g->photometric = PHOTOMETRIC_MINISWHITE; /* as Pillow takes it */
    g->tiled = TIFFIsTiled(t);
    if (!packing_known(packing))
        return err_set(err, BERTH_EUNSUPPORTED, "page %u: compression %u%s is not supported",
                       number, packing, packing == COMPRESSION_OJPEG ? " (old-style JPEG)" : "");
    if (packing == COMPRESSION_JPEG && g->photometric == PHOTOMETRIC_YCBCR) {
        TIFFSetField(t, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
        g->photometric = PHOTOMETRIC_RGB;
    }
    bool known = g->photometric <= PHOTOMETRIC_PALETTE || g->photometric == PHOTOMETRIC_SEPARATED;
    if (!known || !depth_fits(g) || g->samples < colors_of(g) || g->samples > MAX_SAMPLES)
        return not_supported(g, number, err);
    if (g->photometric == PHOTOMETRIC_PALETTE &&
        !TIFFGetField(t, TIFFTAG_COLORMAP, &g->color[0], &g->color[1], &g->color[2]))
        return err_set(err, BERTH_EFORMAT, "page %u: a palette without colours", number);
    find_alpha(t, g);
    return BERTH_OK;
}

/* ---- pixels ---- */

/* Sample i of a row, as 8 bits: of wider ones the high byte, but grey ones of whole numbers as
 * PNG's 16 bits are (image.h). */
static uint8_t sample(const struct page *g, const uint8_t *row, size_t i)
{
    uint16_t wide;
    uint32_t whole;
    int32_t with_sign;
    float real;
    bool grey = colors_of(g) == 1;
    switch (g->bits) {
    case 16:
        memcpy(&wide, row + 2 * i, 2);
        return (uint8_t)(!grey ? wide >> 8 : wide / 255 < 255 ? wide / 255 : 255);
    case 32:
        memcpy(&whole, row + 4 * i, 4);
        memcpy(&with_sign, row + 4 * i, 4);
        memcpy(&real, row + 4 * i, 4);
        if (g->format == SAMPLEFORMAT_IEEEFP)
            return real > 0 ? (real < 255 ? (uint8_t)real : 255) : 0;
        if (g->format == SAMPLEFORMAT_INT && with_sign < 0)
            return 0;
        return (uint8_t)(whole / 255 < 255 ? whole / 255 : 255);
    case 8:
        return row[i];
    default: { /* 1, 2, 4 */
        unsigned per = 8u / g->bits, shift = 8 - g->bits * (unsigned)(i % per + 1);
        return (uint8_t)((unsigned)row[i / per] >> shift & ((1u << g->bits) - 1));
    }
    }
}

static uint8_t clip(int v)
{
    return (uint8_t)(v < 0 ? 0 : v < 255 ? v : 255);
}

/* One pixel of samples s, alpha among them, into RGB or RGBA. */
static void put(const struct page *g, const uint8_t *s, uint8_t *d, unsigned channels)
{
    unsigned colors = colors_of(g), v = s[0];
    if (g->photometric == PHOTOMETRIC_PALETTE) {
        for (int k = 0; k < 3; k++)
            d[k] = (uint8_t)(g->color[k][v] >> 8);
    } else if (colors == 1) {
        v = g->bits < 8 ? v * 255 / ((1u << g->bits) - 1) : v;
        bool white = g->photometric == PHOTOMETRIC_MINISWHITE && g->bits <= 8; /* as Pillow */
        d[0] = d[1] = d[2] = (uint8_t)(white ? 255 - v : v);
    } else if (colors == 4) {
        image_cmyk(s, d);
    } else {
        memcpy(d, s, 3);
    }
    if (channels == 4)
        d[3] = g->alpha ? s[colors] : 255;
    for (int k = 0; g->premultiplied && s[3] && k < 3; k++)
        d[k] = clip(255 * d[k] / s[3]);
}

struct part { /* a strip's row or a tile: where it lies, how many planes it has */
    uint32_t x, y, w, h;
    size_t stride, plane; /* bytes */
};

/* Pixels of a part; `from` has its planes one behind the other, or one that holds all samples. */
static void draw_part(const struct page *g, const struct part *p, const uint8_t *from,
                      struct image *im)
{
    bool planes = g->planar == PLANARCONFIG_SEPARATE;
    uint8_t s[MAX_SAMPLES];
    for (uint32_t y = 0; y < p->h && p->y + y < im->h; y++)
        for (uint32_t x = 0; x < p->w && p->x + x < im->w; x++) {
            for (size_t k = 0; k < g->samples; k++)
                s[k] = planes ? sample(g, from + k * p->plane + y * p->stride, x)
                              : sample(g, from + y * p->stride, (size_t)x * g->samples + k);
            put(g, s, im->px + (((size_t)p->y + y) * im->w + p->x + x) * im->channels,
                im->channels);
        }
}

static bool read_tile(TIFF *t, const struct page *g, struct part *p, uint8_t *buf)
{
    size_t planes = g->planar == PLANARCONFIG_SEPARATE ? g->samples : 1;
    for (size_t k = 0; k < planes; k++) {
        uint32_t i = TIFFComputeTile(t, p->x, p->y, 0, (uint16_t)k);
        if (TIFFReadEncodedTile(t, i, buf + k * p->plane, (tmsize_t)p->plane) != (tmsize_t)p->plane)
            return false;
    }
    return true;
}

static bool read_rows(TIFF *t, const struct page *g, struct part *p, uint8_t *buf, struct image *im)
{
    size_t planes = g->planar == PLANARCONFIG_SEPARATE ? g->samples : 1;
    /* Plane by plane, so that no strip is unpacked twice; the last one completes the pixels. */
    if (planes == 1) {
        for (p->y = 0; p->y < g->h; p->y++) {
            if (TIFFReadScanline(t, buf, p->y, 0) < 0)
                return false;
            draw_part(g, p, buf, im);
        }
        return true;
    }
    for (size_t k = 0; k < planes; k++)
        for (uint32_t y = 0; y < g->h; y++)
            if (TIFFReadScanline(t, buf + k * p->plane + y * p->stride, y, (uint16_t)k) < 0)
                return false;
    p->h = g->h;
    draw_part(g, p, buf, im);
    return true;
}

static bool read_tiles(TIFF *t, const struct page *g, struct part *p, uint8_t *buf,
                       struct image *im)
{
    for (p->y = 0; p->y < g->h; p->y += p->h)
        for (p->x = 0; p->x < g->w; p->x += p->w) {
            if (!read_tile(t, g, p, buf))
                return false;
            draw_part(g, p, buf, im);
        }
    return true;
}

/* How large a row or tile is, from the header alone: the library's own idea must be the same, or
 * its decoder would write more than there is room for. */
static bool part_of(TIFF *t, const struct page *g, struct part *p)
{
    bool planes = g->planar == PLANARCONFIG_SEPARATE;
    *p = (struct part) { .w = g->w, .h = 1 };
    if (g->tiled &&
        (!TIFFGetField(t, TIFFTAG_TILEWIDTH, &p->w) || !TIFFGetField(t, TIFFTAG_TILELENGTH, &p->h)))
        return false;
    if (!p->w || !p->h || p->w > IMAGE_BYTES_MAX / 64 / p->h)
        return false;
    p->stride = ((size_t)p->w * (planes ? 1 : g->samples) * g->bits + 7) / 8;
    p->plane = p->stride * p->h;
    tmsize_t own = g->tiled ? TIFFTileSize(t) : TIFFScanlineSize(t);
    return own == (tmsize_t)p->plane;
}

static berth_status read_pixels(TIFF *t, const struct memory *m, const struct page *g,
                                unsigned number, struct image *im, berth_err *err)
{
    struct part p;
    if (!part_of(t, g, &p))
        return failed(m, number, err);
    size_t planes = g->planar == PLANARCONFIG_SEPARATE ? g->samples : 1;
    if (!g->tiled && planes > 1)
        p.plane = p.stride * g->h;
    uint8_t *buf = calloc(planes, p.plane);
    if (!buf)
        return err_set(err, BERTH_ENOMEM, "a part of %u x %u pixels", p.w, p.h);
    bool ok = g->tiled ? read_tiles(t, g, &p, buf, im) : read_rows(t, g, &p, buf, im);
    free(buf);
    return ok ? BERTH_OK : failed(m, number, err);
}

/* ---- pages ---- */

/* Those of another size, or another way up, than the first are left out, as LoadImage does. */
static bool same_page(const struct page *a, const struct page *b)
{
    return a->w == b->w && a->h == b->h && a->orientation == b->orientation;
}

static berth_status count_pages(TIFF *t, const struct memory *m, const struct image_in *in,
                                struct page *first, unsigned *frames, bool *alpha, berth_err *err)
{
    struct page g;
    *frames = 0;
    for (unsigned i = 0; i <= in->lim.max_frames; i++) {
        berth_status s = read_page(t, i, &g, err);
        if (s)
            return s;
        *first = i ? *first : g;
        *frames += same_page(first, &g);
        *alpha = *alpha || (same_page(first, &g) && g.alpha);
        if (TIFFLastDirectory(t))
            return BERTH_OK;
        if (!TIFFReadDirectory(t)) /* the file says that there is one */
            return failed(m, i + 1, err);
    }
    return err_set(err, BERTH_ELIMIT, "over %u pages", in->lim.max_frames);
}

static berth_status read_frames(TIFF *t, const struct memory *m, const struct page *first,
                                struct image_file *out, berth_err *err)
{
    struct page g;
    berth_status s = BERTH_OK;
    if (!TIFFSetDirectory(t, 0))
        return failed(m, 0, err);
    for (unsigned i = 0, at = 0; !s && at < out->frames; i++) {
        if (i && !TIFFReadDirectory(t))
            return failed(m, i, err);
        s = read_page(t, i, &g, err);
        if (s || !same_page(first, &g))
            continue;
        s = image_init(&out->frame[at], g.w, g.h, out->alpha ? 4 : 3, err);
        if (!s)
            s = read_pixels(t, m, &g, i, &out->frame[at++], err);
    }
    return s;
}

static berth_status read_opened(TIFF *t, struct memory *m, struct image_in *in,
                                struct image_file *out, berth_err *err)
{
    struct page first;
    unsigned frames;
    bool alpha = false;
    berth_status s = count_pages(t, m, in, &first, &frames, &alpha, err);
    if (s)
        return s;
    out->alpha = alpha;
    in->orientation = first.orientation;
    s = image_file_begin(in, out, first.w, first.h, alpha ? 4 : 3, frames, err);
    m->why[0] = '\0'; /* complaints about tags that we do not need */
    return s ? s : read_frames(t, m, &first, out, err);
}

static berth_status read_tiff(struct image_in *in, struct image_file *out, berth_err *err)
{
    struct memory m = { .p = in->p, .n = in->n };
    if (!sz_mul(in->n, READ_TIMES, &m.left) || !sz_add(m.left, READ_ROOM, &m.left))
        m.left = SIZE_MAX;
    TIFF *t = open_memory(&m, in);
    if (!t)
        return failed(&m, 0, err);
    berth_status s = read_opened(t, &m, in, out, err);
    TIFFClose(t);
    return s;
}

const struct image_format image_format_tiff = {
    .name = "tiff", .ext = "tif tiff ", .is = is, .read = read_tiff
};
