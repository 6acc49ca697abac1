/* pictures: small pictures for the tests of encoders. */
#ifndef UNIT_IMAGE_PICTURES_H
#define UNIT_IMAGE_PICTURES_H

#include "support/rng.h"
#include "support/test.h"

#include "image/image.h"

static inline struct image noise(uint32_t w, uint32_t h, unsigned channels, uint64_t seed)
{
    struct image im;
    struct rng r = { .state = seed };
    berth_err err;
    assert_ok(image_init(&im, w, h, channels, &err), err);
    for (size_t i = 0; i < (size_t)w * h * channels; i++)
        im.px[i] = (uint8_t)rng_u64(&r);
    return im;
}

static inline struct image slope(uint32_t w, uint32_t h, unsigned channels)
{
    struct image im;
    berth_err err;
    assert_ok(image_init(&im, w, h, channels, &err), err);
    for (uint32_t y = 0; y < h; y++)
        for (uint32_t x = 0; x < w; x++)
            for (unsigned k = 0; k < channels; k++)
                im.px[((size_t)y * w + x) * channels + k] =
                    (uint8_t)(k == 3 ? 255 : x * 2 + y * 2 + 30 * k);
    return im;
}

static inline void assert_same(const struct image *a, const struct image *b)
{
    assert_int_equal(a->w, b->w);
    assert_int_equal(a->h, b->h);
    assert_int_equal(a->channels, b->channels);
    assert_memory_equal(a->px, b->px, (size_t)a->w * a->h * a->channels);
}

static inline struct image_file decoded(const struct str *s)
{
    struct image_file f;
    berth_err err;
    assert_ok(image_decode((const uint8_t *)s->p, s->n, NULL, &f, &err), err);
    return f;
}

static const unsigned channel_counts[] = { 1, 3, 4 };

#endif
