/* guide_impl: for guide.c and guide_area.c alone. */
#ifndef SAMPLE_GUIDE_IMPL_H
#define SAMPLE_GUIDE_IMPL_H

#include "sample/guide.h"

/* Whether c counts at sigma, and which crop of latents of this shape it sees. */
bool part_active(const struct guide_cond *c, float sigma, const struct shape *s,
                 struct guide_area *crop);
/* 1 everywhere, so that nothing has to be multiplied. */
bool part_is_plain(const struct guide_cond *c, const struct guide_area *crop,
                   const struct shape *s);
/* How much c counts at each pixel of its crop in one item of the batch:
 * out [..., crop.h, crop.w]. */
void part_weights(const struct guide_cond *c, const struct guide_area *crop, const struct shape *s,
                  size_t item, float *out);

#endif
