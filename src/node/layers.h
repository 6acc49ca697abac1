/* layers: LAYERS, a stack of pictures with places, and how one lies over what is below it.
 *
 * Words      item   a batch of pictures with one place, opacity and mode; each frame is a layer
 *            mode   of blending, in linear light or as sRGB has the values. "normal" adds to what
 *                   is there, all others change colours within it.
 * Files      layer_blend.c modes; layer_bitmap.c a layer resized and turned; compositor.c the nodes
 * Threads    Executor. */
#pragma once

#include "node/node_impl.h"

extern const char *const layer_modes[]; /* names, NULL-terminated */
size_t layer_mode(const char *name);    /* its number; "normal" for what is none */

/* px pixels RGBA, linear: `layer` with its opacity over `below`, into it. */
void layer_blend(size_t mode, float opacity, const float *layer, float *below, size_t px);
float layer_to_linear(float srgb);
float layer_to_srgb(float linear);

struct layer_place {
    double x, y, w, h, rotation; /* radians, clockwise, about its middle */
    bool flip_h, flip_v;
};
struct layer_bounds { /* of a turned rectangle, in whole pixels */
    double x, y, w, h;
};
struct layer_bounds layer_bounds(const struct layer_place *p);
/* A frame [1,h,w,3 or 4] through 8 bits, flipped, in its size and turned: [1,h,w,4] of 0..1, as
 * large as that makes it. alpha [1,h,w]; NULL: opaque. */
berth_status layer_bitmap(struct node_call *c, const struct htensor *frame,
                          const struct htensor *alpha, const struct layer_place *p,
                          struct htensor **out, berth_err *err);
