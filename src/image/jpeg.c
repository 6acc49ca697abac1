/* JPEG through libjpeg.
 *
 * Its errors jump. Each of the two functions that call setjmp() holds nothing but the library's
 * object, and the callbacks that a jump may start in hold nothing either. Like Pillow we take no
 * notice of warnings about odd data, but the end of the file is the end: a cut picture is refused,
 * unless the caller wants it filled up with grey. */
#include "image/image_impl.h"

#include <setjmp.h>

#include <jpeglib.h> /* wants <stdio.h> before it */

#include <jerror.h>

#define SCANS_MAX 500 /* of a progressive file; each costs a pass over all of the picture */
#define BUFFER 16384
#define RATIO_MAX 1024 /* pixels of a cut file per byte of it; what claims more is a bomb */

struct failing { /* error manager; the first member is what libjpeg sees */
    struct jpeg_error_mgr mgr;
    jmp_buf jump;
    bool limit;
    char msg[JMSG_LENGTH_MAX];
};

static void on_error(j_common_ptr c)
{
    struct failing *f = (struct failing *)c->err;
    c->err->format_message(c, f->msg);
    longjmp(f->jump, 1);
}

static void fail(j_common_ptr c, const char *msg)
{
    struct failing *f = (struct failing *)c->err;
    snprintf(f->msg, sizeof f->msg, "%s", msg);
    longjmp(f->jump, 1);
}

static void on_message(j_common_ptr c, int level)
{
    (void)c, (void)level;
}

static void failing_init(struct failing *f)
{
    jpeg_std_error(&f->mgr);
    f->mgr.error_exit = on_error;
    f->mgr.emit_message = on_message;
    f->mgr.output_message = NULL; /* only error_exit's own default calls it */
}

static berth_status failed(const struct failing *f, berth_err *err)
{
    if (f->mgr.msg_code == JERR_OUT_OF_MEMORY)
        return err_set(err, BERTH_ENOMEM, "%s", f->msg);
    return err_set(err, f->limit ? BERTH_ELIMIT : BERTH_EFORMAT, "%s", f->msg);
}

/* ---- reading ---- */

static bool is(const uint8_t *p, size_t n)
{
    return n >= 3 && memcmp(p, "\xff\xd8\xff", 3) == 0;
}

static void on_source(j_decompress_ptr c)
{
    (void)c;
}

/* Behind the end of a cut file comes an end mark, as often as it is asked for: libjpeg makes grey
 * of what is missing then. */
static boolean on_empty(j_decompress_ptr c)
{
    static const JOCTET end[] = { 0xff, JPEG_EOI };
    if (!c->client_data)
        fail((j_common_ptr)c, "the file is cut short");
    c->src->next_input_byte = end;
    c->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void on_skip(j_decompress_ptr c, long n)
{
    if (n <= 0)
        return;
    if ((size_t)n > c->src->bytes_in_buffer) {
        on_empty(c);
        return;
    }
    c->src->next_input_byte += n;
    c->src->bytes_in_buffer -= (size_t)n;
}

static void on_progress(j_common_ptr c)
{
    if (((j_decompress_ptr)c)->input_scan_number <= SCANS_MAX)
        return;
    ((struct failing *)c->err)->limit = true;
    fail(c, "too many scans");
}

struct reader { /* one jpeg_decompress_struct and what it points to */
    struct jpeg_decompress_struct c;
    struct failing failing;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
};

static unsigned orientation_of(const struct jpeg_decompress_struct *c)
{
    static const char xmp[] = "http://ns.adobe.com/xap/1.0/";
    unsigned from_xmp = 0;
    for (jpeg_saved_marker_ptr m = c->marker_list; m; m = m->next) {
        if (m->data_length >= 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            unsigned o = exif_orientation(m->data, m->data_length);
            if (o)
                return o;
        } else if (m->data_length > sizeof xmp && memcmp(m->data, xmp, sizeof xmp) == 0)
            from_xmp = xmp_orientation(m->data + sizeof xmp, m->data_length - sizeof xmp);
    }
    return from_xmp ? from_xmp : 1;
}

/* Everything up to the size. */
static bool open_header(struct reader *r, const struct image_in *in)
{
    struct jpeg_decompress_struct *c = &r->c;
    failing_init(&r->failing);
    c->err = &r->failing.mgr;
    if (setjmp(r->failing.jump))
        return false;
    jpeg_create_decompress(c);
    c->client_data = in->lim.partial ? r : NULL; /* on_empty() asks */
    r->source = (struct jpeg_source_mgr) { .next_input_byte = in->p,
                                           .bytes_in_buffer = in->n,
                                           .init_source = on_source,
                                           .fill_input_buffer = on_empty,
                                           .skip_input_data = on_skip,
                                           .resync_to_restart = jpeg_resync_to_restart,
                                           .term_source = on_source };
    c->src = &r->source;
    jpeg_save_markers(c, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(c, TRUE);
    return true;
}

/* CMYK as Adobe stores it (0 is full ink) to RGB, in Pillow's arithmetic, in place from four bytes
 * to three. */
static void cmyk_to_rgb(const uint8_t *s, uint8_t *d, uint32_t w)
{
    for (uint32_t x = 0; x < w; x++, s += 4, d += 3) {
        const uint8_t ink[4] = { 255 - s[0], 255 - s[1], 255 - s[2], 255 - s[3] };
        image_cmyk(ink, d);
    }
}

/* line: a row of four samples for CMYK, else NULL. */
static bool read_rows(struct reader *r, struct image *im, uint8_t *line)
{
    struct jpeg_decompress_struct *c = &r->c;
    if (setjmp(r->failing.jump))
        return false;
    r->progress = (struct jpeg_progress_mgr) { .progress_monitor = on_progress };
    c->progress = &r->progress;
    c->out_color_space = line ? JCS_CMYK : im->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(c);
    size_t stride = (size_t)im->w * im->channels;
    while (c->output_scanline < c->output_height) {
        uint8_t *to = im->px + c->output_scanline * stride;
        JSAMPROW row = line ? line : to;
        jpeg_read_scanlines(c, &row, 1);
        if (line)
            cmyk_to_rgb(line, to, im->w);
    }
    return true;
}

static berth_status read_pixels(struct reader *r, bool cmyk, struct image *im, berth_err *err)
{
    uint8_t *line = cmyk ? malloc((size_t)im->w * 4) : NULL;
    if (cmyk && !line)
        return err_set(err, BERTH_ENOMEM, "a row of %u pixels", im->w);
    bool ok = read_rows(r, im, line);
    free(line);
    return ok ? BERTH_OK : failed(&r->failing, err);
}

static berth_status read_opened(struct reader *r, struct image_in *in, struct image_file *out,
                                berth_err *err)
{
    const struct jpeg_decompress_struct *c = &r->c;
    int n = c->num_components;
    if (n != 1 && n != 3 && n != 4)
        return err_set(err, BERTH_EUNSUPPORTED, "%d components", n);
    in->orientation = orientation_of(c);
    unsigned channels = n == 1 ? 1 : 3;
    berth_status s = image_file_begin(in, out, c->image_width, c->image_height, channels, 1, err);
    if (s)
        return s;
    if (in->lim.partial && (uint64_t)c->image_width * c->image_height / RATIO_MAX > in->n)
        return err_set(err, BERTH_EFORMAT, "%u x %u pixels cannot come from %zu bytes",
                       c->image_width, c->image_height, in->n);
    s = image_init(&out->frame[0], c->image_width, c->image_height, channels, err);
    return s ? s : read_pixels(r, n == 4, &out->frame[0], err);
}

static berth_status read_jpeg(struct image_in *in, struct image_file *out, berth_err *err)
{
    struct reader r = { 0 };
    berth_status s = open_header(&r, in) ? read_opened(&r, in, out, err) : failed(&r.failing, err);
    jpeg_destroy_decompress(&r.c);
    return s;
}

const struct image_format image_format_jpeg = {
    .name = "jpeg", .ext = "jpg jpeg jpe jfif ", .is = is, .read = read_jpeg
};

/* ---- writing ---- */

struct writer {
    struct jpeg_compress_struct c;
    struct failing failing;
    struct jpeg_destination_mgr to;
    struct str *out;
    uint8_t buffer[BUFFER];
};

static void rewind_buffer(struct writer *w)
{
    w->to.next_output_byte = w->buffer;
    w->to.free_in_buffer = BUFFER;
}

static void on_begin(j_compress_ptr c)
{
    rewind_buffer(c->client_data);
}

static boolean on_full(j_compress_ptr c)
{
    struct writer *w = c->client_data;
    str_add(w->out, (const char *)w->buffer, BUFFER);
    rewind_buffer(w);
    return TRUE;
}

static void on_end(j_compress_ptr c)
{
    struct writer *w = c->client_data;
    str_add(w->out, (const char *)w->buffer, BUFFER - w->to.free_in_buffer);
}

/* line: a row without alpha where the picture has it, else NULL. */
static bool write_rows(struct writer *w, const struct image *im, int quality, uint8_t *line)
{
    struct jpeg_compress_struct *c = &w->c;
    failing_init(&w->failing);
    c->err = &w->failing.mgr;
    if (setjmp(w->failing.jump))
        return false;
    jpeg_create_compress(c);
    c->client_data = w;
    w->to = (struct jpeg_destination_mgr) { .init_destination = on_begin,
                                            .empty_output_buffer = on_full,
                                            .term_destination = on_end };
    c->dest = &w->to;
    c->image_width = im->w;
    c->image_height = im->h;
    c->input_components = im->channels == 1 ? 1 : 3;
    c->in_color_space = im->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    jpeg_start_compress(c, TRUE);
    while (c->next_scanline < c->image_height) {
        const uint8_t *px = im->px + (size_t)c->next_scanline * im->w * im->channels;
        for (uint32_t x = 0; line && x < im->w; x++)
            memcpy(line + 3 * x, px + 4 * x, 3);
        JSAMPROW row = line ? line : (JSAMPROW)(uintptr_t)px;
        jpeg_write_scanlines(c, &row, 1);
    }
    jpeg_finish_compress(c);
    return true;
}

berth_status image_jpeg(const struct image *im, int quality, struct str *out, berth_err *err)
{
    struct writer *w = calloc(1, sizeof *w); /* its buffer is too much for a stack */
    uint8_t *line = im->channels == 4 ? malloc((size_t)im->w * 3) : NULL;
    size_t had = out->n;
    berth_status s = BERTH_OK;
    if (!w || (im->channels == 4 && !line))
        s = err_set(err, BERTH_ENOMEM, "a JPEG of %u x %u", im->w, im->h);
    else if (quality < 0 || quality > 100 || im->w > JPEG_MAX_DIMENSION ||
             im->h > JPEG_MAX_DIMENSION)
        s = err_set(err, BERTH_EINVAL, "a JPEG of %u x %u in quality %d", im->w, im->h, quality);
    else {
        w->out = out;
        if (!write_rows(w, im, quality, line))
            s = failed(&w->failing, err);
        jpeg_destroy_compress(&w->c);
    }
    free(line);
    free(w);
    return image_finish(s, out, had, err);
}
