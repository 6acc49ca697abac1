/* resize: pictures and latents to another size, with the numbers of the reference. Nodes call it on
 * host memory, in any layout; what networks do between layers, on a device's memory, is
 * op_resize2d() of op/ops.h: torch's "nearest" (not "-exact") and the bilinear of here.
 *
 * Layout     [n, h, w, c], contiguous. Planar data ([n, c, h, w]) is n * c pictures with c = 1.
 * Methods    nearest-exact, bilinear, area, bicubic: torch.nn.functional.interpolate with
 *            align_corners=False and no antialiasing. lanczos: Pillow's (up to 12, x before y; 13
 *            takes the cheaper order), on values cut to 8 bits first (that is what ComfyUI does),
 *            so c is 1, 3 or 4 (RGBA: colours weighted by alpha) and results are k/255.
 *            bislerp: ComfyUI's own, over the channels of planar data: op_bislerp(). antialias:
 *            torch's bicubic with antialias=True.
 * Numbers    nearest-exact and lanczos equal the reference to the bit, area too unless one pixel is
 *            left; the others to 1e-5. Vectors at the edge of "same direction" may differ more.
 * Threads    Any; rows are spread over the pool, which changes no number. Any thread may set
 *            *cancel, which is checked before each row: then BERTH_ECANCELED, and dst is half
 *            made.
 * Files      resize.c doors, taps, area; resize_lanczos.c; resize_antialias.c; bislerp.c;
 *            resize_impl.h among them. */
#pragma once

#include "base/err.h"
#include "base/tpool.h"

#include <stdatomic.h>

enum resize {
    RESIZE_NEAREST,
    RESIZE_BILINEAR,
    RESIZE_AREA,
    RESIZE_BICUBIC,
    RESIZE_LANCZOS,
    RESIZE_BISLERP,
    RESIZE_ANTIALIAS /* no node's choice: what encoders look at */
};
/* "nearest-exact" ... */
WARN_UNUSED bool resize_parse(const char *name, enum resize *out);

struct resize_shape {
    size_t n, h, w, c; /* source */
    size_t oh, ow;     /* at least 1 */
};
/* dst: n * oh * ow * c floats, not overlapping src. pool, cancel may be NULL. BERTH_EINVAL: a side
 * of zero, or a method that does not take this data; BERTH_ELIMIT: a side over 4,194,304. */
berth_status op_resize(enum resize method, const struct resize_shape *s, const float *src,
                       float *dst, struct tpool *pool, const atomic_bool *cancel, berth_err *err);
/* [n, c, h, w] -> [n, c, oh, ow]. */
berth_status op_bislerp(const struct resize_shape *s, const float *src, float *dst,
                        struct tpool *pool, const atomic_bool *cancel, berth_err *err);

/* ComfyUI's "center" crop before a resize: the part of w x h whose aspect is that of ow x oh. No
 * side may be zero; none becomes it (where the reference would fail). */
struct resize_crop {
    size_t x, y, w, h;
};
struct resize_crop resize_center(size_t w, size_t h, size_t ow, size_t oh);
