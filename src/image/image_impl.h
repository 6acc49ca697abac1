/* image_impl: what the files of image/ share among themselves; nobody else includes it.
 *
 * A format reads through one function, image_format.read(), for probing and for decoding: it finds
 * out the size, calls image_file_begin(), returns there when only a probe was asked for, and then
 * fills out->frame[] in order. Orientation is applied afterwards, once, in image.c. */
#ifndef IMAGE_IMAGE_IMPL_H
#define IMAGE_IMAGE_IMPL_H

#include "base/vec.h"
#include "image/image.h"

struct image_in {     /* one image_probe() or image_decode() in progress, on its stack */
    const uint8_t *p; /* the file; borrowed */
    size_t n;
    struct image_limits lim; /* every field filled in */
    bool pixels;             /* false: image_probe() */
    unsigned orientation;    /* EXIF 1..8; a format that knows it sets it, 1 otherwise */
    struct vec text;         /* struct image_text, image_file_text() */
    size_t text_bytes;       /* what it has taken of max_text */
};

struct image_format {
    const char *name; /* image_file.format */
    bool (*is)(const uint8_t *p, size_t n);
    berth_status (*read)(struct image_in *in, struct image_file *out, berth_err *err);
};

#define IMAGE_FORMAT(x) extern const struct image_format image_format_##x;
#include "image/formats.def"
#undef IMAGE_FORMAT

/* The size a header gave meets the limits; then, when decoding, room for the list of frames (their
 * pixels come with image_init(), one by one). channels: of every frame. */
berth_status image_file_begin(const struct image_in *in, struct image_file *out, uint32_t w,
                              uint32_t h, unsigned channels, unsigned frames, berth_err *err);
/* Appends a copied pair to the file's text. latin1: both are Latin-1, else UTF-8 (malformed parts
 * become U+FFFD). BERTH_ELIMIT: more than max_text altogether. */
berth_status image_file_text(struct image_in *in, const char *key, size_t key_n, const char *value,
                             size_t value_n, bool latin1, berth_err *err);
/* r, g, b -> grey as Pillow rounds ITU-R 601. */
static inline uint8_t image_luma(uint8_t r, uint8_t g, uint8_t b)
{
    return (uint8_t)((r * 19595u + g * 38470u + b * 7471u + 0x8000u) >> 16);
}

/* ---- exif.c ---- */

/* Orientation (1..8) of EXIF data: a TIFF header with or without "Exif\0\0" before it. 0: there is
 * none, or it cannot be read. */
unsigned exif_orientation(const uint8_t *p, size_t n);
/* The same from an XMP packet (tiff:Orientation). */
unsigned xmp_orientation(const uint8_t *p, size_t n);
/* EXIF data (a TIFF header first) holding the pairs as ComfyUI writes them into WebP. */
void exif_write(const struct image_text *text, size_t n, struct str *out);

#endif
