/* GIF: every frame, laid over the ones before, as Pillow composes them.
 *
 * One walk over the blocks finds the frames and whether anything can be seen through; a second one
 * decodes. LZW codes grow from bits + 1 to twelve bits; a table entry is its last byte and the
 * entry before it, so a string comes out backwards. */
#include "image/image_impl.h"

#include "base/rd.h"

#define CODES 4096
#define COLORS 256

enum { DISPOSE_CLEAR = 2, DISPOSE_PREVIOUS = 3 };

static bool is(const uint8_t *p, size_t n)
{
    return n >= 13 && (memcmp(p, "GIF87a", 6) == 0 || memcmp(p, "GIF89a", 6) == 0);
}

struct palette {
    uint8_t rgb[COLORS][3];
    bool greys; /* colour i is grey i, as far as it goes: no palette, to Pillow */
};

struct frame { /* a graphic control block and the image after it */
    uint32_t x, y, w, h;
    unsigned delay; /* hundredths of a second */
    uint8_t dispose;
    bool interlaced, own_colors;
    int clear; /* the index that is transparent; -1: none */
    struct palette colors;
    struct rd data; /* LZW: the bits of a code, then sub-blocks */
};

struct walker {
    struct rd r;
    uint32_t w, h;
    unsigned background;
    bool has_colors;
    struct palette colors; /* global; greys where the file has none, as Pillow does */
};

/* ---- blocks ---- */

static void read_colors(struct rd *r, unsigned flags, struct palette *out)
{
    size_t n = (size_t)2 << (flags & 7);
    const uint8_t *p = rd_take(r, n * 3);
    *out = (struct palette) { .greys = true };
    if (!p)
        return;
    memcpy(out->rgb, p, n * 3);
    for (size_t i = 0; i < n * 3; i++)
        out->greys = out->greys && p[i] == i / 3;
}

static void walker_open(struct walker *k, const struct image_in *in)
{
    *k = (struct walker) { .r = rd_init(in->p, in->n) };
    rd_take(&k->r, 6);
    k->w = rd_u16le(&k->r);
    k->h = rd_u16le(&k->r);
    unsigned flags = rd_u8(&k->r);
    k->background = rd_u8(&k->r);
    rd_u8(&k->r); /* aspect of a pixel */
    for (unsigned i = 0; i < COLORS; i++)
        memset(k->colors.rgb[i], (int)i, 3);
    k->colors.greys = true;
    k->has_colors = flags & 0x80;
    if (k->has_colors)
        read_colors(&k->r, flags, &k->colors);
}

static void skip_blocks(struct rd *r)
{
    for (size_t n; (n = rd_u8(r)) > 0;)
        rd_take(r, n);
}

static void read_control(struct rd *r, struct frame *f)
{
    struct rd b = *r; /* sub-blocks are skipped from where they began */
    if (rd_u8(&b) >= 4) {
        unsigned flags = rd_u8(&b);
        f->dispose = flags >> 2 & 7;
        f->delay = rd_u16le(&b);
        unsigned index = rd_u8(&b);
        f->clear = flags & 1 ? (int)index : -1;
    }
    skip_blocks(r);
}

static void read_image(struct walker *k, struct frame *f)
{
    struct rd *r = &k->r;
    f->x = rd_u16le(r);
    f->y = rd_u16le(r);
    f->w = rd_u16le(r);
    f->h = rd_u16le(r);
    unsigned flags = rd_u8(r);
    f->interlaced = flags & 0x40;
    f->own_colors = flags & 0x80;
    f->colors = k->colors;
    if (f->own_colors)
        read_colors(r, flags, &f->colors);
    f->data = *r;
    rd_u8(r);
    skip_blocks(r);
}

/* The next frame. False: no other whole one, and k->r.bad when the file stops before its end. */
static bool next_frame(struct walker *k, struct frame *f)
{
    *f = (struct frame) { .clear = -1 };
    while (!k->r.bad) {
        unsigned kind = rd_u8(&k->r);
        if (k->r.bad)
            return false;
        if (kind == 0x3b) /* the end */
            return false;
        if (kind == 0x21 && rd_u8(&k->r) == 0xf9)
            read_control(&k->r, f);
        else if (kind == 0x21)
            skip_blocks(&k->r);
        else if (kind == 0x2c) {
            read_image(k, f);
            return !k->r.bad;
        } /* other bytes between blocks are passed over, as others do */
    }
    return false;
}

/* ---- LZW ---- */

struct lzw {
    struct rd r;
    size_t block; /* bytes left of the sub-block */
    uint32_t bits;
    unsigned have; /* bits in it */
    unsigned root, width, next;
    int last; /* the code before; -1 after a clear */
    uint16_t before[CODES];
    uint8_t byte[CODES], first[CODES];
    uint8_t stack[CODES];
};

static int next_code(struct lzw *z) /* -1: no more */
{
    while (z->have < z->width) {
        if (z->block == 0)
            z->block = rd_u8(&z->r);
        if (z->block == 0 || z->r.bad)
            return -1;
        z->bits |= (uint32_t)rd_u8(&z->r) << z->have;
        z->have += 8;
        z->block--;
    }
    int code = (int)(z->bits & ((1u << z->width) - 1));
    z->bits >>= z->width;
    z->have -= z->width;
    return code;
}

static void clear_table(struct lzw *z)
{
    z->width = z->root + 1;
    z->next = (1u << z->root) + 2;
    z->last = -1;
}

static bool lzw_open(struct lzw *z, const struct rd *data)
{
    *z = (struct lzw) { .r = *data };
    z->root = rd_u8(&z->r);
    if (z->root < 1 || z->root > 8)
        return false;
    for (unsigned i = 0; i < 1u << z->root; i++)
        z->byte[i] = z->first[i] = (uint8_t)i;
    clear_table(z);
    return true;
}

static void add_code(struct lzw *z, uint8_t byte)
{
    if (z->last < 0 || z->next >= CODES)
        return;
    z->before[z->next] = (uint16_t)z->last;
    z->byte[z->next] = byte;
    z->first[z->next] = z->first[z->last];
    z->next++;
    if (z->next == 1u << z->width && z->width < 12)
        z->width++;
}

/* n bytes of indices; false: there are fewer. */
static bool lzw_read(struct lzw *z, uint8_t *out, size_t n)
{
    const int clear = 1 << z->root, end = clear + 1;
    for (size_t at = 0; at < n;) {
        int code = next_code(z);
        if (code < 0 || code == end || code > (int)z->next || (code == (int)z->next && z->last < 0))
            return false;
        if (code == clear) {
            clear_table(z);
            continue;
        }
        bool fresh = code == (int)z->next; /* the string that this very code makes */
        if (fresh && z->next >= CODES)
            return false;
        int from = fresh ? z->last : code;
        add_code(z, z->first[from]);
        size_t deep = 0;
        for (int c = code; deep < CODES; c = z->before[c]) {
            z->stack[deep++] = z->byte[c];
            if (c < clear)
                break;
        }
        for (size_t i = 0; i < deep && at < n; i++)
            out[at++] = z->stack[deep - 1 - i];
        z->last = code;
    }
    return true;
}

/* ---- composing ---- */

struct canvas {
    struct image now, before;
    struct lzw *lzw;
    uint8_t *index; /* of one frame's pixels, w * h of the canvas */
};

static void put(uint8_t *d, unsigned channels, const uint8_t rgb[3], uint8_t alpha)
{
    memcpy(d, rgb, 3);
    if (channels == 4)
        d[3] = alpha;
}

static void fill(struct image *im, uint32_t x, uint32_t y, uint32_t w, uint32_t h,
                 const uint8_t rgb[3], uint8_t alpha)
{
    for (uint32_t j = y; j < y + h && j < im->h; j++)
        for (uint32_t i = x; i < x + w && i < im->w; i++)
            put(im->px + ((size_t)j * im->w + i) * im->channels, im->channels, rgb, alpha);
}

static uint32_t row_of(const struct frame *f, uint32_t k) /* where the k-th stored row goes */
{
    if (!f->interlaced)
        return k;
    static const uint32_t start[] = { 0, 4, 2, 1 }, step[] = { 8, 8, 4, 2 };
    for (int pass = 0; pass < 4; pass++) {
        uint32_t rows = f->h > start[pass] ? (f->h - start[pass] + step[pass] - 1) / step[pass] : 0;
        if (k < rows)
            return start[pass] + k * step[pass];
        k -= rows;
    }
    return f->h; /* not reached for k < h */
}

/* first: transparent pixels keep the colour of their index, later ones what lies below. */
static void draw_frame(struct canvas *c, const struct frame *f, bool first)
{
    struct image *im = &c->now;
    for (uint32_t k = 0; k < f->h; k++) {
        uint32_t y = f->y + row_of(f, k);
        const uint8_t *s = c->index + (size_t)k * f->w;
        for (uint32_t i = 0; y < im->h && i < f->w && f->x + i < im->w; i++) {
            bool through = s[i] == f->clear;
            if (!through || first)
                put(im->px + ((size_t)y * im->w + f->x + i) * im->channels, im->channels,
                    f->colors.rgb[s[i]], through ? 0 : 255);
        }
    }
}

static berth_status compose_frame(struct canvas *c, const struct walker *k, const struct frame *f,
                                  unsigned number, struct image *out, berth_err *err)
{
    size_t bytes = (size_t)c->now.w * c->now.h * c->now.channels;
    const uint8_t *below = f->clear >= 0 ? f->colors.rgb[f->clear] : f->colors.rgb[0];
    if (number == 0)
        fill(&c->now, 0, 0, c->now.w, c->now.h, below, f->clear >= 0 ? 0 : 255);
    if (!lzw_open(c->lzw, &f->data) || !lzw_read(c->lzw, c->index, (size_t)f->w * f->h))
        return err_set(err, BERTH_EFORMAT, "frame %u is broken or cut short", number);
    if (f->dispose == DISPOSE_PREVIOUS)
        memcpy(c->before.px, c->now.px, bytes);
    draw_frame(c, f, number == 0);
    berth_status s = image_convert(&c->now, c->now.channels, out, err);
    if (f->dispose == DISPOSE_PREVIOUS)
        memcpy(c->now.px, c->before.px, bytes);
    else if (f->dispose == DISPOSE_CLEAR && f->clear >= 0)
        fill(&c->now, f->x, f->y, f->w, f->h, below, 0);
    else if (f->dispose == DISPOSE_CLEAR)
        fill(&c->now, f->x, f->y, f->w, f->h, k->colors.rgb[k->background], 255);
    return s;
}

static berth_status read_frames(const struct image_in *in, unsigned channels, size_t largest,
                                struct image_file *out, berth_err *err)
{
    struct canvas c = { .lzw = malloc(sizeof *c.lzw), .index = malloc(largest) };
    berth_status s = BERTH_OK;
    if (!c.lzw || !c.index)
        s = err_set(err, BERTH_ENOMEM, "a frame of %zu pixels", largest);
    if (!s)
        s = image_init(&c.now, out->w, out->h, channels, err);
    if (!s)
        s = image_init(&c.before, out->w, out->h, channels, err);
    struct walker k;
    struct frame f;
    walker_open(&k, in);
    for (unsigned i = 0; !s && i < out->frames && next_frame(&k, &f); i++) {
        s = compose_frame(&c, &k, &f, i, &out->frame[i], err);
        if (out->seconds)
            out->seconds[i] = f.delay / 100.0;
    }
    free(c.lzw);
    free(c.index);
    image_release(&c.now);
    image_release(&c.before);
    return s;
}

static berth_status read_gif(struct image_in *in, struct image_file *out, berth_err *err)
{
    struct walker k;
    struct frame f;
    unsigned frames = 0;
    size_t largest = 1;
    walker_open(&k, in);
    uint32_t w = k.w, h = k.h;
    while (frames <= in->lim.max_frames && next_frame(&k, &f)) {
        if (!f.w || !f.h)
            return err_set(err, BERTH_EFORMAT, "frame %u is empty", frames);
        if (frames++ == 0) { /* the first may widen the screen */
            w = f.x + f.w > w ? f.x + f.w : w;
            h = f.y + f.h > h ? f.y + f.h : h;
            /* Its first frame decides: later ones are laid over RGB or RGBA, and greys have
             * none. */
            out->alpha = f.clear >= 0 && !f.colors.greys;
        }
        size_t pixels = (size_t)f.w * f.h;
        largest = pixels > largest ? pixels : largest;
    }
    if (k.r.bad || !frames)
        return err_set(err, BERTH_EFORMAT, "the file is cut short after %u frames", frames);
    if (largest > in->lim.max_pixels)
        return err_set(err, BERTH_ELIMIT, "a frame of %zu pixels", largest);
    unsigned channels = out->alpha ? 4 : 3;
    berth_status s = image_file_begin(in, out, w, h, channels, frames, err);
    return s ? s : read_frames(in, channels, largest, out, err);
}

const struct image_format image_format_gif = {
    .name = "gif", .ext = "gif ", .is = is, .read = read_gif
};
