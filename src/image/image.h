/* image: pixels in memory, and the files they come from and go to. libpng, libjpeg, libwebp and
 * libtiff stop here.
 *
 * Words      image    8-bit samples, rows without padding, top row first: channels 1 grey, 3 RGB,
 *                     4 RGBA (straight alpha)
 *            frames   what one file held: several images of one size for animations (APNG, WebP,
 *                     GIF), each composed as a viewer shows it, and for the pages of a TIFF
 *            text     PNG tEXt/zTXt/iTXt pairs, in the order of the file
 * Decoding   Every format goes to 8 bits as Pillow's convert() would: palettes expanded, 16-bit RGB
 *            cut to its high byte, EXIF or XMP orientation applied, CMYK JPEG (inverted, Adobe's
 *            way) to RGB. A 16-bit grey PNG follows ComfyUI's LoadImage (value / 255, cut at 255).
 *            So does transparency: that of a palette becomes alpha, one transparent colour of a
 *            grey or RGB PNG is left alone. tests/golden/image holds every kind to Pillow's pixels.
 * Limits     A header meets the limits before anything is allocated; broken data is BERTH_EFORMAT
 *            naming what is wrong, never a crash, an endless loop or a half image without a word.
 *            Cut files are refused, a missing end of a PNG or GIF too, unless `partial` asks for
 *            what is there: ComfyUI's LoadImage takes such files.
 * Encoding   The same input gives the same bytes. After an error `out` is as before, except that it
 *            may be `bad`.
 * Threads    Any; no state.
 * Adding     image/x.c with `const struct image_format image_format_x`, a line in formats.def.
 * Files      image.c what formats share; exif.c orientation, text in WebP; png.c reads, png_anim.c
 *            APNG frames, png_write.c stills and APNG; jpeg.c; webp.c reads, webp_write.c stills
 *            and animations; gif.c bmp.c pnm.c tiff.c read; exr_write.c; font.h draws text.
 *            image_impl.h is for this folder alone. */
#pragma once

#include "base/err.h"
#include "base/str.h"

#include <stdatomic.h>

struct image {
    uint32_t w, h;
    unsigned channels; /* 1, 3, 4 */
    uint8_t *px;       /* w * h * channels; owned, image_release() */
};
/* px is not zeroed. BERTH_ELIMIT: more than IMAGE_BYTES_MAX. */
berth_status image_init(struct image *im, uint32_t w, uint32_t h, unsigned channels,
                        berth_err *err);
void image_release(struct image *im); /* zeroed is fine */
/* A copy in another number of channels: alpha added as 255 or dropped, RGB -> grey by ITU-R 601 as
 * Pillow rounds it. */
berth_status image_convert(const struct image *im, unsigned channels, struct image *out,
                           berth_err *err);
#define IMAGE_BYTES_MAX ((size_t)1 << 31)

struct image_limits {    /* zero: the default of every field */
    uint32_t max_side;   /* 65500 */
    uint64_t max_pixels; /* of one frame: 2^28 */
    unsigned max_frames; /* 4096 */
    uint64_t max_bytes;  /* of all frames together: 4 GiB */
    size_t max_text;     /* bytes of all text together: 64 MiB */
    /* A PNG or JPEG that is cut short, or a PNG whose data breaks off: the rows that are there, and
     * black (PNG) or grey (JPEG) below, as Pillow fills up. An animation is its first picture. */
    bool partial;
    bool as_stored; /* orientation is not applied */
};

struct image_text {
    char *key, *value; /* UTF-8; a value with NUL inside ends there */
};

struct image_file {
    const char *format; /* "png", "jpeg", "webp", ...; static */
    uint32_t w, h;      /* after orientation */
    unsigned frames;
    bool alpha; /* frames have 4 channels: LoadImage would make a mask of it */
    struct image *frame;
    double *seconds;         /* how long each frame shows; NULL: one frame */
    struct image_text *text; /* PNG */
    size_t texts;
};
/* By the ending of a file's name: would we read it? What it really is, its first bytes tell. */
bool image_reads(const char *name);
/* All frames; lim may be NULL. image_file_release() also after an error. BERTH_EUNSUPPORTED: no
 * format we read; the message names those that are. */
berth_status image_decode(const uint8_t *p, size_t n, const struct image_limits *lim,
                          struct image_file *out, berth_err *err);
void image_file_release(struct image_file *f); /* zeroed is fine */

/* Encoders append to `out`. BERTH_EINVAL: a size or setting that the format does not have. */
struct image_png_args {
    int level; /* zlib, 0..9 */
    const struct image_text *text;
    size_t texts;              /* tEXt where Latin-1 holds it, as Pillow does; else iTXt */
    const atomic_bool *cancel; /* any thread sets it: BERTH_ECANCELED within a row; may be NULL */
    bool deep; /* 16 bits: im->px has two bytes for each sample, the high one first */
};
berth_status image_png(const struct image *im, const struct image_png_args *args, struct str *out,
                       berth_err *err);
/* quality 0..100, as Pillow's; sides up to 65500; alpha is dropped. */
berth_status image_jpeg(const struct image *im, int quality, struct str *out, berth_err *err);
/* quality 0..100; sides up to 16383; grey becomes RGB. */
berth_status image_webp(const struct image *im, int quality, bool lossless, struct str *out,
                        berth_err *err);

/* Floats of any range, not compressed: what ComfyUI writes. Scene-linear by convention. */
struct image_exr_args {
    uint32_t w, h;
    unsigned channels;             /* 1: Y; 3, 4: RGB, RGBA */
    const float *px;               /* [h, w, channels] */
    const float *primaries;        /* x, y of red, green, blue and white; NULL: says nothing */
    const struct image_text *text; /* attributes of the header */
    size_t texts;
    const atomic_bool *cancel; /* as above */
};
berth_status image_exr(const struct image_exr_args *args, struct str *out, berth_err *err);

/* Frames have one size and number of channels. One frame gives a still picture, with its text. */
struct image_anim_args {
    double fps;    /* a frame shows for 1000 / fps ms, cut to whole ones, as ComfyUI does it */
    bool lossless; /* WebP */
    int quality;   /* WebP 0..100 */
    int method;    /* WebP 0..6 */
    int level;     /* PNG */
    /* WebP: EXIF as ComfyUI writes it ("prompt:{...}" as Model, the others "key:{...}" from Make
     * downwards). PNG: chunks `comf` as ComfyUI's SaveAnimatedPNG (key NUL value, after the
     * pixels), which must be Latin-1. */
    const struct image_text *text;
    size_t texts;
    const atomic_bool *cancel; /* as above; an animated WebP: within a frame */
};
berth_status image_anim_webp(const struct image *frame, size_t n,
                             const struct image_anim_args *args, struct str *out, berth_err *err);
berth_status image_anim_png(const struct image *frame, size_t n, const struct image_anim_args *args,
                            struct str *out, berth_err *err);
