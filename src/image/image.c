/* What formats share: memory, channels, limits, orientation, and whose bytes these are. */
#include "image/image_impl.h"

#include "base/sz.h"
#include "base/utf8.h"

#include <strings.h>

static const struct image_format *const all[] = {
#define IMAGE_FORMAT(x) &image_format_##x,
#include "image/formats.def"
#undef IMAGE_FORMAT
};

/* ---- memory ---- */

berth_status image_init(struct image *im, uint32_t w, uint32_t h, unsigned channels, berth_err *err)
{
    *im = (struct image) { 0 };
    size_t n;
    if (!w || !h || (channels != 1 && channels != 3 && channels != 4))
        return err_set(err, BERTH_EINVAL, "an image of %u x %u with %u channels", w, h, channels);
    if (!sz_mul(w, h, &n) || !sz_mul(n, channels, &n) || n > IMAGE_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT, "an image of %u x %u x %u is over %zu bytes", w, h,
                       channels, IMAGE_BYTES_MAX);
    uint8_t *px = malloc(n);
    if (!px)
        return err_set(err, BERTH_ENOMEM, "%zu bytes for an image of %u x %u", n, w, h);
    *im = (struct image) { .w = w, .h = h, .channels = channels, .px = px };
    return BERTH_OK;
}

void image_release(struct image *im)
{
    free(im->px);
    *im = (struct image) { 0 };
}

void image_file_release(struct image_file *f)
{
    for (unsigned i = 0; f->frame && i < f->frames; i++)
        image_release(&f->frame[i]);
    for (size_t i = 0; i < f->texts; i++) {
        free(f->text[i].key);
        free(f->text[i].value);
    }
    free(f->frame);
    free(f->seconds);
    free(f->text);
    *f = (struct image_file) { 0 };
}

/* ---- channels ---- */

/* RGB to grey as Pillow rounds ITU-R 601. */
static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

static void convert(const uint8_t *s, unsigned from, uint8_t *d, unsigned to, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++, s += from, d += to) {
        if (to == 1) {
            d[0] = from == 1 ? s[0] : luma(s);
            continue;
        }
        d[0] = s[0];
        d[1] = from == 1 ? s[0] : s[1];
        d[2] = from == 1 ? s[0] : s[2];
        if (to == 4)
            d[3] = from == 4 ? s[3] : 255;
    }
}

berth_status image_convert(const struct image *im, unsigned channels, struct image *out,
                           berth_err *err)
{
    if (image_init(out, im->w, im->h, channels, err))
        return err->code;
    size_t pixels = (size_t)im->w * im->h;
    if (im->channels == channels)
        memcpy(out->px, im->px, pixels * channels);
    else
        convert(im->px, im->channels, out->px, channels, pixels);
    return BERTH_OK;
}

/* ---- what every format asks for ---- */

berth_status image_file_begin(const struct image_in *in, struct image_file *out, uint32_t w,
                              uint32_t h, unsigned channels, unsigned frames, berth_err *err)
{
    const struct image_limits *l = &in->lim;
    if (!w || !h || !frames)
        return err_set(err, BERTH_EFORMAT, "%u x %u pixels in %u frames", w, h, frames);
    if (w > l->max_side || h > l->max_side)
        return err_set(err, BERTH_ELIMIT, "%u x %u pixels: a side is over %u", w, h, l->max_side);
    uint64_t pixels = (uint64_t)w * h;
    if (pixels > l->max_pixels)
        return err_set(err, BERTH_ELIMIT, "%u x %u pixels: over %llu in all", w, h,
                       (unsigned long long)l->max_pixels);
    if (frames > l->max_frames)
        return err_set(err, BERTH_ELIMIT, "%u frames: over %u", frames, l->max_frames);
    uint64_t one = pixels * channels, bytes;
    if (one > IMAGE_BYTES_MAX || __builtin_mul_overflow(one, frames, &bytes) ||
        bytes > l->max_bytes)
        return err_set(err, BERTH_ELIMIT, "%u frames of %u x %u pixels: over %llu bytes", frames, w,
                       h, (unsigned long long)l->max_bytes);
    out->w = w;
    out->h = h;
    out->frames = frames;
    out->frame = calloc(frames, sizeof *out->frame);
    if (frames > 1)
        out->seconds = calloc(frames, sizeof *out->seconds);
    if (!out->frame || (frames > 1 && !out->seconds))
        return err_set(err, BERTH_ENOMEM, "a list of %u frames", frames);
    return BERTH_OK;
}

/* Appends s in UTF-8: runs that are fine as they are in one piece, Latin-1 letters in two bytes,
 * malformed UTF-8 as U+FFFD. */
static void add_utf8(struct str *out, const char *s, size_t n, bool latin1)
{
    size_t run = 0, i = 0;
    while (i < n) {
        size_t step = latin1 ? !((uint8_t)s[i] & 0x80) : utf8_step(s + i, n - i);
        if (step) {
            i += step;
            continue;
        }
        str_add(out, s + run, i - run);
        uint8_t c = (uint8_t)s[i];
        if (latin1)
            str_add(out, (char[]) { (char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f)) }, 2);
        else
            str_adds(out, "\xef\xbf\xbd");
        run = ++i;
    }
    str_add(out, s + run, n - run);
}

static char *copy_utf8(const char *s, size_t n, bool latin1)
{
    struct str out = { 0 };
    add_utf8(&out, s, strnlen(s, n), latin1); /* our texts end at their first NUL */
    str_addc(&out, 0);                        /* so that an empty one has memory, too */
    if (out.bad)
        str_release(&out);
    return out.p;
}

berth_status image_file_text(struct image_in *in, const char *key, size_t key_n, const char *value,
                             size_t value_n, bool latin1, berth_err *err)
{
    size_t need;
    if (!sz_add(key_n, value_n, &need) || !sz_add(need, sizeof(struct image_text), &need) ||
        need > in->lim.max_text - in->text_bytes)
        return err_set(err, BERTH_ELIMIT, "more than %zu bytes of text", in->lim.max_text);
    in->text_bytes += need;
    struct image_text *t = vec_add(&in->text);
    if (t)
        *t = (struct image_text) { copy_utf8(key, key_n, latin1),
                                   copy_utf8(value, value_n, latin1) };
    if (!t || !t->key || !t->value)
        return err_set(err, BERTH_ENOMEM, "%zu bytes of text", need);
    return BERTH_OK;
}

/* ---- what encoders share ---- */

berth_status image_finish(berth_status s, struct str *out, size_t had, berth_err *err)
{
    if (!s && out->bad)
        s = err_set(err, BERTH_ENOMEM, "a picture of %zu bytes so far", out->n - had);
    if (s && out->n > had) {
        out->n = had;
        out->p[had] = 0;
    }
    return s;
}

berth_status image_check(const atomic_bool *cancel, berth_err *err)
{
    if (cancel && atomic_load_explicit(cancel, memory_order_relaxed))
        return err_set(err, BERTH_ECANCELED, "a picture was not finished");
    return BERTH_OK;
}

berth_status image_anim_check(const struct image *frame, size_t n,
                              const struct image_anim_args *args, unsigned *ms, berth_err *err)
{
    if (!n || n > INT32_MAX)
        return err_set(err, BERTH_EINVAL, "an animation of %zu frames", n);
    for (size_t i = 1; i < n; i++)
        if (frame[i].w != frame[0].w || frame[i].h != frame[0].h ||
            frame[i].channels != frame[0].channels)
            return err_set(err, BERTH_EINVAL,
                           "frame %zu is %u x %u x %u, the first is %u x %u x %u", i, frame[i].w,
                           frame[i].h, frame[i].channels, frame[0].w, frame[0].h,
                           frame[0].channels);
    if (!(args->fps >= 0.001 && args->fps <= 1e6)) /* also refuses NaN */
        return err_set(err, BERTH_EINVAL, "%g frames per second", args->fps);
    *ms = (unsigned)(1000.0 / args->fps);
    if ((uint64_t)*ms * n > INT32_MAX)
        return err_set(err, BERTH_EINVAL, "%zu frames of %u ms are too long", n, *ms);
    return BERTH_OK;
}

/* ---- orientation ---- */

/* The eight values of EXIF are the eight symmetries of a rectangle: where the first pixel of the
 * upright picture is stored, and whether its rows are stored as columns. */
static berth_status apply_orientation(struct image *im, unsigned orientation, berth_err *err)
{
    struct image up;
    bool swap = orientation >= 5;
    bool right = orientation == 2 || orientation == 3 || orientation >= 7;
    bool bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    if (image_init(&up, swap ? im->h : im->w, swap ? im->w : im->h, im->channels, err))
        return err->code;
    ptrdiff_t w = (ptrdiff_t)im->w, start = right ? w - 1 : 0;
    start += bottom ? ((ptrdiff_t)im->h - 1) * w : 0;
    ptrdiff_t across = right ? -1 : 1, down = bottom ? -w : w; /* steps in the stored picture */
    ptrdiff_t dx = swap ? down : across, dy = swap ? across : down;
    size_t c = im->channels;
    uint8_t *d = up.px;
    for (ptrdiff_t y = 0; y < (ptrdiff_t)up.h; y++)
        for (ptrdiff_t x = 0; x < (ptrdiff_t)up.w; x++, d += c)
            memcpy(d, im->px + (size_t)(start + x * dx + y * dy) * c, c);
    image_release(im);
    *im = up;
    return BERTH_OK;
}

static berth_status make_upright(struct image_file *f, unsigned orientation, berth_err *err)
{
    if (orientation < 2 || orientation > 8)
        return BERTH_OK;
    for (unsigned i = 0; i < f->frames; i++)
        if (apply_orientation(&f->frame[i], orientation, err))
            return err->code;
    if (orientation >= 5) {
        uint32_t w = f->w;
        f->w = f->h;
        f->h = w;
    }
    return BERTH_OK;
}

/* ---- the doors ---- */

static struct image_limits limits_of(const struct image_limits *given)
{
    struct image_limits l = given ? *given : (struct image_limits) { 0 };
    l.max_side = l.max_side ? l.max_side : 65500;
    l.max_pixels = l.max_pixels ? l.max_pixels : UINT64_C(1) << 28;
    l.max_frames = l.max_frames ? l.max_frames : 4096;
    l.max_bytes = l.max_bytes ? l.max_bytes : UINT64_C(4) << 30;
    l.max_text = l.max_text ? l.max_text : (size_t)64 << 20;
    return l;
}

bool image_reads(const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || dot == name || strchr(dot, '/') || dot[-1] == '/') /* ".png" is a hidden file */
        return false;
    size_t n = strlen(++dot);
    for (size_t i = 0; n && i < ARRAY_LEN(all); i++)
        for (const char *e = all[i]->ext; *e; e += strcspn(e, " ") + 1)
            if (strcspn(e, " ") == n && strncasecmp(e, dot, n) == 0)
                return true;
    return false;
}

static const struct image_format *format_of(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->is(p, n))
            return all[i];
    return NULL;
}

static berth_status unknown_format(size_t n, berth_err *err)
{
    struct str names = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        str_addf(&names, "%s%s", i ? ", " : "", all[i]->name);
    err_set(err, BERTH_EUNSUPPORTED, "%zu bytes are no picture that is read here (%s)", n,
            str_c(&names));
    str_release(&names);
    return err->code;
}

berth_status image_decode(const uint8_t *p, size_t n, const struct image_limits *lim,
                          struct image_file *out, berth_err *err)
{
    *out = (struct image_file) { 0 };
    const struct image_format *f = format_of(p, n);
    if (!f)
        return unknown_format(n, err);
    struct image_in in = { .p = p,
                           .n = n,
                           .lim = limits_of(lim),
                           .orientation = 1,
                           .text = { .elem = sizeof(struct image_text) } };
    out->format = f->name;
    berth_status s = f->read(&in, out, err);
    out->text = in.text.p; /* ownership moves, also after an error */
    out->texts = in.text.n;
    if (!s && !in.lim.as_stored)
        s = make_upright(out, in.orientation, err);
    return s ? err_add(err, "%s", f->name) : BERTH_OK;
}
