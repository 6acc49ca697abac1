/* PNG, read: chunks and text by our own walk, pixels by libpng.
 *
 * The walk comes first. It knows the size before libpng allocates anything, inflates text against
 * one budget, and finds the frames of an APNG, which libpng does not know. libpng is then told to
 * look at nothing but IHDR, PLTE, tRNS, IDAT and IEND. */
#include "image/image_impl.h"

#include <png.h>
#include <setjmp.h>
#include <zlib.h>

#define KEY_MAX 79 /* bytes of a keyword, by the specification */
/* Deflate makes at most 1032 bytes of one; what claims more pixels than that is cut or a bomb. */
#define RATIO_MAX 1032

static bool is(const uint8_t *p, size_t n)
{
    return n >= PNG_SIGNATURE_LEN && memcmp(p, PNG_SIGNATURE, PNG_SIGNATURE_LEN) == 0;
}

/* ---- chunks ---- */

bool png_next(const uint8_t *file, size_t n, size_t *at, struct png_chunk *out)
{
    size_t left = n - *at;
    if (left < 12)
        return false;
    const uint8_t *p = file + *at;
    size_t len = png_get_u32(p);
    if (len > left - 12)
        return false;
    *out = (struct png_chunk) { .p = p + 8, .n = len, .crc = png_get_u32(p + 8 + len) };
    memcpy(out->type, p + 4, 4);
    *at += 12 + len;
    return true;
}

static bool crc_matches(const struct png_chunk *c)
{
    return crc32_z(crc32_z(0, (const Bytef *)c->type, 4), c->p, c->n) == c->crc;
}

static berth_status read_header(const struct image_in *in, struct png_head *h, berth_err *err)
{
    struct png_chunk c;
    size_t at = PNG_SIGNATURE_LEN;
    if (!png_next(in->p, in->n, &at, &c) || !png_is(&c, "IHDR") || c.n != 13)
        return err_set(err, BERTH_EFORMAT, "no IHDR chunk at the start");
    *h = (struct png_head) { .w = png_get_u32(c.p),
                             .h = png_get_u32(c.p + 4),
                             .depth = c.p[8],
                             .color = c.p[9],
                             .interlace = c.p[12] };
    static const uint32_t depths[7] = { /* which bit depths a colour type may have */
                                        1u << 1 | 1u << 2 | 1u << 4 | 1u << 8 | 1u << 16,
                                        0,
                                        1u << 8 | 1u << 16,
                                        1u << 1 | 1u << 2 | 1u << 4 | 1u << 8,
                                        1u << 8 | 1u << 16,
                                        0,
                                        1u << 8 | 1u << 16
    };
    if (h->color > 6 || h->depth > 16 || !(depths[h->color] & 1u << h->depth))
        return err_set(err, BERTH_EFORMAT, "colour type %u with %u bits", h->color, h->depth);
    return BERTH_OK;
}

/* ---- text ---- */

/* Inflates p into out, at most max bytes. */
static berth_status inflate_text(const uint8_t *p, size_t n, size_t max, struct str *out,
                                 berth_err *err)
{
    z_stream z = { .next_in = (Bytef *)(uintptr_t)p, .avail_in = (uInt)n };
    if (inflateInit(&z) != Z_OK)
        return err_set(err, BERTH_ENOMEM, "compressed text");
    int r = Z_OK;
    while (r == Z_OK && out->n <= max && !out->bad) {
        char buf[4096];
        z.next_out = (Bytef *)buf;
        z.avail_out = sizeof buf;
        r = inflate(&z, Z_NO_FLUSH);
        str_add(out, buf, sizeof buf - z.avail_out);
    }
    inflateEnd(&z);
    if (out->bad || r == Z_MEM_ERROR)
        return err_set(err, BERTH_ENOMEM, "compressed text");
    if (out->n > max)
        return err_set(err, BERTH_ELIMIT, "compressed text of more than %zu bytes", max);
    return r == Z_STREAM_END ? BERTH_OK : err_set(err, BERTH_EFORMAT, "broken compressed text");
}

struct text { /* one text chunk, taken apart */
    const char *key, *value;
    size_t key_n, value_n;
    bool packed, latin1;
};

/* False: not as the specification has it; such a chunk is passed over, as others do. */
static bool parse_text(const struct png_chunk *c, struct text *t)
{
    const char *p = (const char *)c->p, *end = p + c->n;
    size_t key = strnlen(p, c->n < KEY_MAX + 1 ? c->n : KEY_MAX + 1);
    if (!key || key > KEY_MAX || key == c->n)
        return false;
    *t = (struct text) { .key = p, .key_n = key, .latin1 = true };
    p += key + 1;
    if (png_is(c, "zTXt")) {
        if (p == end || *p++ != 0) /* method 0: deflate */
            return false;
        t->packed = true;
    } else if (png_is(c, "iTXt")) {
        if (end - p < 2 || (p[0] && p[1]))
            return false;
        t->packed = p[0];
        t->latin1 = false;
        p += 2;
        for (int i = 0; i < 2; i++) { /* language, keyword in that language */
            p = memchr(p, 0, (size_t)(end - p));
            if (!p)
                return false;
            p++;
        }
    }
    t->value = p;
    t->value_n = (size_t)(end - p);
    return true;
}

/* Keeps it; of an XMP packet also the orientation. */
static berth_status add_text(struct image_in *in, const struct png_chunk *c, berth_err *err)
{
    struct text t;
    struct str plain = { 0 };
    berth_status s = BERTH_OK;
    if (!crc_matches(c) || !parse_text(c, &t))
        return BERTH_OK;
    if (t.packed) {
        s = inflate_text((const uint8_t *)t.value, t.value_n, in->lim.max_text - in->text_bytes,
                         &plain, err);
        t.value = str_c(&plain);
        t.value_n = plain.n;
    }
    if (s == BERTH_EFORMAT) /* broken metadata is no reason to refuse the picture */
        s = BERTH_OK;
    else if (!s)
        s = image_file_text(in, t.key, t.key_n, t.value, t.value_n, t.latin1, err);
    if (!s && in->orientation == 1 && str_eq(t.key, t.key_n, "XML:com.adobe.xmp")) {
        unsigned o = xmp_orientation((const uint8_t *)t.value, t.value_n);
        in->orientation = o ? o : 1;
    }
    str_release(&plain);
    return s;
}

/* ---- the walk ---- */

/* Frames count once their data begins; acTL says how many there may be. */
struct count {
    uint32_t claimed, seen;
    bool control; /* an fcTL waits for its data */
    bool before;  /* one came before IDAT */
};

static void count_frames(struct count *n, const struct png_chunk *c, bool idat_seen)
{
    if (png_is(c, "acTL") && c->n == 8 && !idat_seen)
        n->claimed = png_get_u32(c->p);
    else if (png_is(c, "fcTL")) {
        n->control = true;
        n->before = n->before || !idat_seen;
    } else if ((png_is(c, "IDAT") || png_is(c, "fdAT")) && n->control) {
        n->control = false;
        n->seen++;
    }
}

static bool is_text(const struct png_chunk *c)
{
    return png_is(c, "tEXt") || png_is(c, "zTXt") || png_is(c, "iTXt");
}

static berth_status walk(struct image_in *in, struct png_head *h, berth_err *err)
{
    struct png_chunk c;
    struct count n = { 0 };
    unsigned exif = 0;
    size_t at = PNG_SIGNATURE_LEN;
    for (;;) {
        h->cut = !png_next(in->p, in->n, &at, &c);
        if (h->cut && !in->lim.partial)
            return err_set(err, BERTH_EFORMAT, "the file is cut short");
        if (h->cut)
            break;
        if (png_is(&c, "IEND"))
            break;
        count_frames(&n, &c, h->idat > 0);
        berth_status s = BERTH_OK;
        if (png_is(&c, "IDAT"))
            h->idat += c.n;
        else if (png_is(&c, "tRNS"))
            h->trns = h->trns || h->idat == 0;
        else if (png_is(&c, "eXIf") && crc_matches(&c))
            exif = exif_orientation(c.p, c.n);
        else if (is_text(&c))
            s = add_text(in, &c, err);
        if (s)
            return s;
    }
    if (exif)
        in->orientation = exif;
    if (h->cut)
        return BERTH_OK; /* no frames */
    if (n.seen < n.claimed)
        return err_set(err, BERTH_EFORMAT, "%u of %u frames are there", n.seen, n.claimed);
    h->frames = n.claimed;
    h->still = h->frames && !n.before;
    return BERTH_OK;
}

/* ---- pixels ---- */

unsigned png_channels(const struct png_head *h)
{
    if (h->color == PNG_COLOR_TYPE_PALETTE)
        return h->trns ? 4 : 3;
    return h->color & PNG_COLOR_MASK_ALPHA ? 4 : h->color & PNG_COLOR_MASK_COLOR ? 3 : 1;
}

struct source {
    const uint8_t *p; /* what libpng has not read yet */
    size_t n;
    jmp_buf jump;
    bool memory; /* it was memory that ran out */
    bool begun;  /* rows are being read */
    char msg[96];
};

/* libpng's errors end here and nowhere else: read_rows() is where they land. The only frames of
 * ours that they pass over are those of the two callbacks below, which hold nothing. */
static void on_error(png_structp png, png_const_charp msg)
{
    struct source *s = png_get_error_ptr(png);
    snprintf(s->msg, sizeof s->msg, "%s", msg);
    longjmp(s->jump, 1);
}

static void on_warning(png_structp png, png_const_charp msg)
{
    (void)png, (void)msg;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct source *s = png_get_io_ptr(png);
    if (n > s->n)
        png_error(png, "the file is cut short");
    memcpy(to, s->p, n);
    s->p += n;
    s->n -= n;
}

static png_voidp on_malloc(png_structp png, png_alloc_size_t n)
{
    void *p = malloc(n);
    struct source *s = png_get_mem_ptr(png);
    if (!p)
        s->memory = true;
    return p;
}

static void on_free(png_structp png, png_voidp p)
{
    (void)png;
    free(p);
}

static void transforms(png_structp png, const struct png_head *h, bool wide)
{
    if (h->color == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png); /* its transparency becomes alpha */
    else if (h->color == PNG_COLOR_TYPE_GRAY && h->depth < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    else if (h->color == PNG_COLOR_TYPE_GRAY_ALPHA)
        png_set_gray_to_rgb(png);
    if (h->depth == 16 && !wide)
        png_set_strip_16(png);
}

/* rows: h rows of `stride` bytes. */
static bool read_rows(struct source *s, const struct png_head *h, uint8_t *rows, size_t stride,
                      bool wide)
{
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, s, on_error, on_warning, s,
                                               on_malloc, on_free);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info || setjmp(s->jump)) {
        png_destroy_read_struct(&png, &info, NULL);
        return false;
    }
    png_set_read_fn(png, s, on_read);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* ours were checked */
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_benign_errors(png, 1);
    png_read_info(png, info);
    transforms(png, h, wide);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    if (png_get_rowbytes(png, info) != stride)
        png_error(png, "rows of an unexpected size");
    s->begun = true;
    for (int pass = 0; pass < passes; pass++)
        for (uint32_t y = 0; y < h->h; y++)
            png_read_row(png, rows + y * stride, NULL);
    png_destroy_read_struct(&png, &info, NULL);
    return true;
}

/* 16-bit grey as ComfyUI's LoadImage has it: v / 255 without its fraction, at most 255. */
static void narrow_grey(const uint8_t *wide, uint8_t *to, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++) {
        int v = (int)((wide[2 * i] << 8 | wide[2 * i + 1]) * (1.0 / 255));
        to[i] = (uint8_t)(v > 255 ? 255 : v);
    }
}

berth_status png_pixels(const struct png_head *h, const uint8_t *p, size_t n, bool partial,
                        struct image *im, berth_err *err)
{
    struct source s = { .p = p, .n = n };
    size_t pixels = (size_t)h->w * h->h;
    bool is_wide = h->depth == 16 && h->color == PNG_COLOR_TYPE_GRAY;
    uint8_t *wide = is_wide ? malloc(pixels * 2) : NULL;
    if (is_wide && !wide)
        return err_set(err, BERTH_ENOMEM, "%zu bytes for 16-bit pixels", pixels * 2);
    uint8_t *rows = wide ? wide : im->px;
    size_t stride = (size_t)h->w * (wide ? 2 : im->channels);
    if (partial)
        memset(rows, 0, stride * h->h);
    bool ok = read_rows(&s, h, rows, stride, is_wide);
    ok = ok || (partial && s.begun && !s.memory);
    if (ok && wide)
        narrow_grey(wide, im->px, pixels);
    free(wide);
    if (ok)
        return BERTH_OK;
    if (s.memory || !s.msg[0])
        return err_set(err, BERTH_ENOMEM, "reading %u x %u pixels", h->w, h->h);
    return err_set(err, BERTH_EFORMAT, "%s", s.msg);
}

/* Bits of a pixel as stored: what the plausibility check needs. */
static unsigned stored_bits(const struct png_head *h)
{
    static const uint8_t samples[7] = { 1, 0, 3, 1, 2, 0, 4 };
    return samples[h->color] * (unsigned)h->depth;
}

/* A cut file without what libpng would stumble over: the chunks that pixels need, the last one as
 * long as it is. */
static void keep_pixel_chunks(const struct image_in *in, struct str *out)
{
    struct png_chunk c;
    size_t at = PNG_SIGNATURE_LEN;
    str_add(out, PNG_SIGNATURE, PNG_SIGNATURE_LEN);
    while (png_next(in->p, in->n, &at, &c))
        if (png_is(&c, "IHDR") || png_is(&c, "PLTE") || png_is(&c, "tRNS") || png_is(&c, "IDAT"))
            png_chunk_add(out, c.type, c.p, c.n, NULL, 0);
    if (in->n - at > 8 && memcmp(in->p + at + 4, "IDAT", 4) == 0) {
        size_t len = png_get_u32(in->p + at), left = in->n - at - 8;
        png_chunk_add(out, "IDAT", in->p + at + 8, len < left ? len : left, NULL, 0);
    }
}

static berth_status read_cut(const struct image_in *in, const struct png_head *h, struct image *im,
                             berth_err *err)
{
    struct str kept = { 0 };
    keep_pixel_chunks(in, &kept);
    berth_status s = kept.bad ? err_set(err, BERTH_ENOMEM, "a copy of %zu bytes", in->n)
                              : png_pixels(h, (const uint8_t *)kept.p, kept.n, true, im, err);
    str_release(&kept);
    return s;
}

static berth_status read_png(struct image_in *in, struct image_file *out, berth_err *err)
{
    struct png_head h;
    berth_status s = read_header(in, &h, err);
    if (!s)
        s = walk(in, &h, err);
    if (s)
        return s;
    unsigned channels = png_channels(&h), frames = h.frames ? h.frames + h.still : 1;
    out->alpha = channels == 4;
    s = image_file_begin(in, out, h.w, h.h, channels, frames, err);
    if (s)
        return s;
    if ((uint64_t)h.w * h.h * stored_bits(&h) / 8 / RATIO_MAX > in->n)
        return err_set(err, BERTH_EFORMAT, "%u x %u pixels cannot come from %zu bytes", h.w, h.h,
                       in->n);
    if (frames > 1)
        return png_frames(in, &h, out, err);
    s = image_init(&out->frame[0], h.w, h.h, channels, err);
    if (!s && h.cut)
        return read_cut(in, &h, &out->frame[0], err);
    return s ? s : png_pixels(&h, in->p, in->n, in->lim.partial, &out->frame[0], err);
}

const struct image_format image_format_png = {
    .name = "png", .ext = "png apng ", .is = is, .read = read_png
};
