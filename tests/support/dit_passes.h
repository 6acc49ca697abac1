/* dit_passes: the rig of support/diffusion_rig.h for transformers over latents of Qwen-Image's
 * kind, [n, 16, frames, h, w], that may look at others.
 *
 *     struct diff_rig r;
 *     dit_open(&r, "cpu=256m", path, NULL, 2);
 *     r.cond[0].refs = 1;
 *     float *got = diff_run(&r);
 *     diff_close(&r); */
#ifndef SUPPORT_DIT_PASSES_H
#define SUPPORT_DIT_PASSES_H

#include "support/diffusion_rig.h"
#include "support/presets.h"

#define DIT_H 9
#define DIT_W 6
#define DIT_C 16
#define DIT_EACH (DIT_C * DIT_H * DIT_W)
#define DIT_LARGE 96
#define DIT_TOKENS 7

/* looks: how pictures are looked at. */
static inline const struct diff_spec *dit_spec(enum diffusion_ref_method looks)
{
    static struct diff_spec s = { .latent = { 5, { 1, DIT_C, 1, DIT_H, DIT_W } },
                                  .large = { 5, { 1, DIT_C, 1, DIT_LARGE, DIT_LARGE } },
                                  .ref = { { 5, { 1, DIT_C, 1, 6, 7 } },
                                           { 5, { 1, DIT_C, 1, 4, 10 } },
                                           { 5, { 2, DIT_C, 1, 8, 4 } },
                                           { 5, { 1, DIT_C, 3, 5, 8 } } }, /* frames */
                                  .tokens = DIT_TOKENS,
                                  .method = REF_INDEX_TIMESTEP_ZERO };
    s.looks = looks;
    return &s;
}

static inline void dit_open(struct diff_rig *r, const char *devices, const char *path,
                            const char *alloc, size_t n)
{
    diff_open(r, dit_spec(REF_OWN), devices, path, alloc, n);
}

static inline void dit_no_memory_is_survived(const char *path, enum diffusion_ref_method method)
{
    static const bool hidden[DIT_TOKENS] = { [2] = true };
    struct diff_rig r;
    diff_open(&r, dit_spec(method), "cpu=64m", path, NULL, 2);
    diff_refs(&r, 1);
    for (size_t k = 0; k < 2; k++)
        r.cond[k].hidden = hidden;
    diff_no_memory_is_survived(&r);
    diff_close(&r);
}

#endif
