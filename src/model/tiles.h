/* tiles: overlapping pieces of a picture, as ComfyUI cuts and blends them (vae.md 7).
 *
 * Words   cover    the tiles along one side of the picture
 *         feather  a tile's weight rises over the overlap at both ends, also at the picture's own
 *                  borders */
#pragma once

#include <stddef.h>

struct cover {
    size_t size, tile, overlap, step, n;
};

static inline struct cover cover(size_t size, size_t tile, size_t overlap)
{
    struct cover c = { .size = size, .tile = tile, .overlap = overlap, .step = tile - overlap };
    c.n = size > tile ? (size - overlap + c.step - 1) / c.step : 1;
    return c;
}

/* Where tile i is: the last one is short, it is not moved back. */
static inline size_t cover_at(const struct cover *c, size_t i, size_t *len)
{
    size_t pos = i * c->step;
    *len = c->tile < c->size - pos ? c->tile : c->size - pos;
    return pos;
}

/* Weight at i of n with feathers of f at both ends; f >= n: none. */
static inline float feather(size_t i, size_t n, size_t f)
{
    float m = 1.0f;
    if (f >= n)
        return m;
    if (i < f)
        m *= (float)((double)(i + 1) / (double)f);
    if (n - 1 - i < f)
        m *= (float)((double)(n - i) / (double)f);
    return m;
}
