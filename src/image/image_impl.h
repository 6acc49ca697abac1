/* image_impl: what the files of image/ share; nothing outside of image/ includes it.
 *
 * A format reads through one function, image_format.read(): it finds out the size, calls
 * image_file_begin(), and then fills out->frame[] in order. image.c applies orientation. */
#pragma once

#include "base/vec.h"
#include "image/image.h"

struct image_in {     /* one image_decode() in progress, on its stack */
    const uint8_t *p; /* the file; borrowed */
    size_t n;
    struct image_limits lim; /* every field filled in */
    unsigned orientation;    /* EXIF 1..8; a format that knows it sets it, 1 otherwise */
    struct vec text;         /* struct image_text, image_file_text() */
    size_t text_bytes;       /* what it has taken of max_text */
};

struct image_format {
    const char *name; /* image_file.format */
    const char *ext;  /* endings of its files, each with a space behind it */
    bool (*is)(const uint8_t *p, size_t n);
    berth_status (*read)(struct image_in *in, struct image_file *out, berth_err *err);
};

#define IMAGE_FORMAT(x) extern const struct image_format image_format_##x;
#include "image/formats.def"
#undef IMAGE_FORMAT

/* Checks the size that a header gave against the limits, then makes room for the list of frames
 * (their pixels come with image_init(), one by one). channels: of every frame. */
berth_status image_file_begin(const struct image_in *in, struct image_file *out, uint32_t w,
                              uint32_t h, unsigned channels, unsigned frames, berth_err *err);
/* Appends a copied pair to the file's text. latin1: both are Latin-1, else UTF-8 (malformed parts
 * become U+FFFD). BERTH_ELIMIT: more than max_text altogether. */
berth_status image_file_text(struct image_in *in, const char *key, size_t key_n, const char *value,
                             size_t value_n, bool latin1, berth_err *err);
/* Ends an encoder that appended to `out`, which had `had` bytes before: if it failed or memory ran
 * out, its bytes are taken back. Returns s, or BERTH_ENOMEM. */
berth_status image_finish(berth_status s, struct str *out, size_t had, berth_err *err);
/* What both animated formats ask of their arguments; ms: how long a frame shows, as ComfyUI cuts it
 * to whole milliseconds. */
berth_status image_anim_check(const struct image *frame, size_t n,
                              const struct image_anim_args *args, unsigned *ms, berth_err *err);
/* BERTH_ECANCELED once *cancel is set. */
berth_status image_check(const atomic_bool *cancel, berth_err *err);
/* Ink to light as Pillow does it. */
static inline void image_cmyk(const uint8_t ink[4], uint8_t rgb[3])
{
    int k = 255 - ink[3];
    for (int i = 0; i < 3; i++) {
        int t = ink[i] * k + 128; /* t / 255, rounded */
        rgb[i] = (uint8_t)(k - ((t >> 8) + t) / 256);
    }
}

/* ---- exif.c ---- */

/* Orientation (1..8) of EXIF data: a TIFF header with or without "Exif\0\0" before it. 0: there is
 * none, or it cannot be read. */
unsigned exif_orientation(const uint8_t *p, size_t n);
/* The same from an XMP packet (tiff:Orientation). */
unsigned xmp_orientation(const uint8_t *p, size_t n);
/* EXIF data (a TIFF header first) with the pairs as ComfyUI writes them into WebP. out: empty. */
berth_status exif_write(const struct image_text *text, size_t n, struct str *out, berth_err *err);

/* ---- png.c, png_anim.c, png_write.c ---- */

#define PNG_SIGNATURE "\x89PNG\r\n\x1a\n"
#define PNG_SIGNATURE_LEN 8

struct png_chunk {
    char type[5];
    const uint8_t *p; /* its n bytes of data, in the file */
    size_t n;
    uint32_t crc; /* as stored */
};
/* The chunk at *at, which moves on. False: none is whole from here on. *at starts at
 * PNG_SIGNATURE_LEN. */
bool png_next(const uint8_t *file, size_t n, size_t *at, struct png_chunk *out);
static inline bool png_is(const struct png_chunk *c, const char *type)
{
    return memcmp(c->type, type, 4) == 0;
}

struct png_frame { /* fcTL: one frame of an APNG */
    uint32_t w, h, x, y;
    uint16_t num, den; /* shows for num / den seconds; den 0 is 100 */
    uint8_t dispose;   /* 0 leave, 1 clear, 2 as before */
    uint8_t blend;     /* 0 replace, 1 over */
};

struct png_head { /* what one walk over the chunks found */
    uint32_t w, h;
    uint8_t depth, color, interlace;
    bool trns;       /* a tRNS chunk before the pixels */
    bool cut;        /* the file ends before its IEND */
    size_t idat;     /* bytes of IDAT */
    unsigned frames; /* of an animation, as far as they are there; 0: none */
    bool still;      /* the default image is not part of the animation, and shown first */
};
unsigned png_channels(const struct png_head *h); /* that it is decoded to */
/* Pixels of the PNG stream p; im has its size and channels. partial: where the data breaks off the
 * rest is 0. */
berth_status png_pixels(const struct png_head *h, const uint8_t *p, size_t n, bool partial,
                        struct image *im, berth_err *err);
/* All frames, composed. image_file_begin() was called. */
berth_status png_frames(const struct image_in *in, const struct png_head *h, struct image_file *out,
                        berth_err *err);

/* Appends one chunk made of two parts. */
void png_chunk_add(struct str *out, const char type[4], const void *a, size_t a_n, const void *b,
                   size_t b_n);
void png_u32(uint8_t *p, uint32_t v); /* big-endian, four bytes */
static inline uint32_t png_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
