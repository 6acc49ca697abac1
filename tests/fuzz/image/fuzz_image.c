/* Any bytes as a picture: refused, or frames of one size whose pixels are all there. */
#include "image/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bool decode(const uint8_t *data, size_t n, bool partial)
{
    const struct image_limits lim = { .max_side = 1024,
                                      .max_pixels = 1 << 16,
                                      .max_frames = 32,
                                      .max_text = 1 << 16,
                                      .partial = partial };
    struct image_file f;
    berth_err err;
    bool read = image_decode(data, n, &lim, &f, &err) == BERTH_OK;
    unsigned sum = 0;
    for (unsigned i = 0; read && i < f.frames; i++) {
        const struct image *im = &f.frame[i];
        if (im->w != f.w || im->h != f.h || (f.alpha && im->channels != 4))
            abort();
        for (size_t k = 0; k < (size_t)im->w * im->h * im->channels; k++)
            sum += im->px[k];
    }
    volatile unsigned sink = sum; /* so that every pixel is read */
    (void)sink;
    image_file_release(&f);
    return read;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bool whole = decode(data, n, false), some = decode(data, n, true);
    (void)whole, (void)some;
    return 0;
}
