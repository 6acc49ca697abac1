/* vision: the vision towers of Qwen2.5-VL, Qwen3-VL and Qwen3.5 (llm-encoders.md 2): a picture
 * becomes rows among those of words.
 *
 * Words      patch    14 or 16 pixels square, twice: the networks take pairs of frames
 *            cell     2 x 2 patches: one row of the result
 *            window   4 x 4 cells, fewer at the right and bottom edges. Most layers of Qwen2.5-VL
 *                     attend inside of windows, so patches enter in their order
 * Config     from shapes, but for the heads: 16, or 12 of the smallest Qwen3.5.
 * Files      vision.c networks; picture.c what they take from the host */
#pragma once

#include "model/lm/lm.h"

extern const struct encoder_sight lm_sight, lm_sight_35;

#define SIGHT_WIDTH_12 768           /* of the tower that has 12 heads; others have 16 */
#define SIGHT_PATCHES_MAX (1u << 18) /* of a picture */

/* Patches [at, at + n * size): n windows of `size` each. */
struct sight_run {
    uint32_t at, size, n;
};

struct sight_host {               /* what a pass takes from the host; one piece of memory */
    uint32_t high, wide, patches; /* of patches */
    uint64_t features;            /* of a patch */
    float *patch;                 /* [patches, features] */
    float *angles;                /* [patches, head / 2, 2] */
    uint32_t *cell;               /* [patches / 4]: where in the picture each cell is, row by row */
    struct sight_run *run;        /* windows that follow each other and are equally large */
    size_t runs;
    int32_t *corner; /* [4, patches]: rows of the table of positions around each patch */
    float *share;    /* [4, patches]: and the weight of each */
};
/* BERTH_EINVAL, BERTH_ENOMEM. */
berth_status sight_host_new(const struct lm_net *c, const struct text_picture *p,
                            struct sight_host **out, berth_err *err);

/* Sides of the picture that is looked at, for one of this size (2.1). */
void sight_sides(size_t high, size_t wide, uint32_t patch, size_t *to_high, size_t *to_wide);
