/* guide_area.c: where and how much a conditioning counts. */
#include "sample/guide_impl.h"

#define FEATHER 8 /* latent pixels at most */

bool part_active(const struct guide_cond *c, float sigma, const struct shape *s,
                 struct guide_area *crop)
{
    const uint64_t h = shape_last(s, 2), w = shape_last(s, 1);
    if (sigma > (float)c->sigma_start || sigma < (float)c->sigma_end)
        return false;
    struct guide_area a = { .h = (uint32_t)h, .w = (uint32_t)w };
    if (c->has_area) {
        a = c->area;
        if (a.y >= h || a.x >= w || !a.h || !a.w)
            return false;
        a.h = a.h < h - a.y ? a.h : (uint32_t)(h - a.y);
        a.w = a.w < w - a.x ? a.w : (uint32_t)(w - a.x);
    }
    *crop = a;
    return true;
}

bool part_is_plain(const struct guide_cond *c, const struct guide_area *crop, const struct shape *s)
{
    return !c->mask && c->strength == 1 && crop->h == shape_last(s, 2) &&
           crop->w == shape_last(s, 1);
}

/* Rows (or columns) near an edge inside of the latent fade, so that areas blend: the one at
 * distance t from it, 0 <= t < ramp, counts (t + 1) / ramp. `stride` leads to the next one, `step`
 * along it. */
static void feather(float *edge, ptrdiff_t stride, size_t step, size_t count, size_t ramp)
{
    for (size_t t = 0; t < ramp; t++) {
        float by = (float)(1.0 / (double)ramp * (double)(t + 1));
        for (size_t i = 0; i < count; i++)
            edge[(ptrdiff_t)t * stride + (ptrdiff_t)(i * step)] *= by;
    }
}

static size_t ramp_of(size_t size)
{
    return size / 4 < FEATHER ? size / 4 : FEATHER;
}

/* The weights of one picture, or of one frame. mask: its own; NULL: none. */
static void plane_weights(const struct guide_cond *c, const struct guide_area *crop, size_t h,
                          size_t w, const float *mask, float *out)
{
    size_t ch = crop->h, cw = crop->w;
    float strength = (float)c->strength, mask_strength = (float)c->mask_strength;
    for (size_t y = 0; y < ch; y++)
        for (size_t x = 0; x < cw; x++) {
            float m = mask ? mask[(crop->y + y) * w + crop->x + x] * mask_strength : 1.0f;
            out[y * cw + x] = m * strength;
        }
    if (mask || !c->has_area)
        return;
    if (crop->y)
        feather(out, (ptrdiff_t)cw, 1, cw, ramp_of(ch));
    if (crop->y + ch < h)
        feather(out + (ch - 1) * cw, -(ptrdiff_t)cw, 1, cw, ramp_of(ch));
    if (crop->x)
        feather(out, 1, cw, ch, ramp_of(cw));
    if (crop->x + cw < w)
        feather(out + cw - 1, -1, cw, ch, ramp_of(cw));
}

void part_weights(const struct guide_cond *c, const struct guide_area *crop, const struct shape *s,
                  size_t item, float *out)
{
    size_t h = (size_t)shape_last(s, 2), w = (size_t)shape_last(s, 1);
    size_t planes = (size_t)shape_inner(s, 2) / (h * w), masks = c->mask_n ? c->mask_n : 1;
    const float *mask = c->mask ? c->mask + item % masks * planes * h * w : NULL;
    for (size_t i = 0; i < planes; i++, out += (size_t)crop->h * crop->w)
        plane_weights(c, crop, h, w, mask ? mask + i * h * w : NULL, out);
}
