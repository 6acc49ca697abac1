/* diffusion_impl: what a family of denoising networks gives to diffusion.c. */
#ifndef MODEL_DIFFUSION_IMPL_H
#define MODEL_DIFFUSION_IMPL_H

#include "model/arch.h"
#include "model/diffusion.h"

struct diffusion_config { /* a network of some family, as its detect() found it */
    char root[ARCH_ROOT_MAX];
    void
        *own; /* diffusion_family.bytes, zero before detect(); diffusion.c allocates and frees it */
};

/* Latents whose conditionings have one length: what a family gets. Host memory, borrowed. */
struct diffusion_batch {
    size_t n, h, w;
    const float *x;       /* [n, in_channels, h, w]: latents, and what is beside them */
    const float *t;       /* [n] */
    const float *context; /* [n, tokens, context_dim] */
    size_t tokens;
    const float *y;        /* [n, adm_channels]; NULL without */
    const float *guidance; /* [n]; NULL: without that term. In a prediction only that counts */
    bool exact_guidance;   /* diffusion_args */
    float *out;            /* [n, latent channels, h, w] */
};

struct diffusion_family {
    const char *name;
    size_t bytes; /* of diffusion_config.own */
    /* A prompt may be repeated to the length of another: attention over the same keys twice is the
     * same. */
    bool repeats;
    /* Is it there, behind `part`? BERTH_ENOTFOUND: no. */
    berth_status (*detect)(const struct weights *w, const char *part, struct diffusion_config *cfg,
                           struct diffusion_info *info, berth_err *err);
    /* What own refers to; NULL: nothing. own itself is freed behind it. */
    void (*release)(void *own);
    /* For net_args, which gets own as names_user; NULL when the file has our names. */
    net_names_fn *(*names)(const struct diffusion_config *cfg);
    /* y of one conditioning, info->adm_channels floats. */
    berth_status (*vector)(const struct diffusion_info *info, const struct diffusion_cond *c,
                           size_t h, size_t w, float *y, berth_err *err);
    /* Channels beside the latent when the caller gives none: [in_channels - channels, h * w]. */
    void (*no_concat)(const struct diffusion_info *info, size_t hw, float *out);
    /* peak NULL: computes; else only predicts. */
    berth_status (*forward)(struct net *net, const struct diffusion_config *cfg,
                            const struct diffusion_batch *b, uint64_t *peak, berth_err *err);
};
#define DIFFUSION(x) extern const struct diffusion_family diffusion_##x;
#include "model/diffusions.def"
#undef DIFFUSION

#endif
