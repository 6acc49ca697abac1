/* compute: what nodes that run networks share: values of their own types, and models made ready.
 *
 * Words      conditioning   a list of prompts with what nodes said about them (area, mask, strength, range); each
 *                           entry immutable and counted, so that Combine and SetArea share tensors
 *            ready          patches set, loaded, opened: between ready_*() and its release nothing of it moves
 * Flow       node run() -> ready_diffusion(ref) -> res_set_patches, res_load (progress, cancel) -> diffusion_open
 *            -> guide + sampler -> release. Text and VAE likewise.
 * Files      compute.c ready_*; cond.c the CONDITIONING value; sampling.c sampler.c guider.c noise.c nodes;
 *            conditioning.c; vae.c; text_encode.c; preview.c */
#ifndef NODE_COMPUTE_H
#define NODE_COMPUTE_H

#include "model/diffusion.h"
#include "model/vae.h"
#include "node/node_impl.h"
#include "sample/guide.h"
#include "text/encoder.h"

/* ---- CONDITIONING ---- */
struct cond_entry {
    struct htensor *cond;   /* [1, tokens, width] */
    struct htensor *pooled; /* [1, n]; NULL: none */
    struct diffusion_size size;
    bool sized;      /* size was given (CLIPTextEncodeSDXL) */
    double strength; /* 1 */
    enum { AREA_NONE, AREA_PIXELS, AREA_PERCENT } area_kind;
    double area[4];       /* h, w, y, x: latent pixels (/8 done), or fractions */
    struct htensor *mask; /* [n, h, w]; NULL: none */
    double mask_strength;
    bool mask_bounds; /* set_area_to_bounds */
    double start_percent, end_percent;
    bool ranged;
    struct htensor *concat_latent, *concat_mask; /* inpaint models; NULL: none */
    double guidance;                             /* FluxGuidance; NAN: none */
};
struct conditioning {
    struct cond_entry *at;
    size_t n;
};
extern const struct value_type type_conditioning; /* V_OBJECT of a struct conditioning */
berth_status in_conditioning(const struct node_call *c, const char *name,
                             const struct conditioning **out, berth_err *err);
/* A copy that shares tensors; release with conditioning_free(). */
berth_status conditioning_copy(const struct conditioning *x, struct conditioning **out,
                               berth_err *err);
void conditioning_free(struct conditioning *x);
berth_status out_conditioning(struct node_call *c, size_t i, struct conditioning *taken,
                              berth_err *err);

/* ---- models made ready ---- */
/* Patches, loads and opens part `i` of a MODEL / CLIP / VAE. Progress and cancel are the call's. */
berth_status ready_load(struct node_call *c, const struct model_ref *ref, size_t i, berth_err *err);
berth_status ready_diffusion(struct node_call *c, const struct model_ref *ref,
                             struct diffusion **out, berth_err *err);
struct ready_vae {
    struct net *net;
    struct vae_net vae;
};
berth_status ready_vae(struct node_call *c, const struct model_ref *ref, struct ready_vae *out,
                       berth_err *err);
void ready_vae_release(struct ready_vae *v);
struct ready_text {
    struct text_encoder enc[TEXT_ENCODERS_MAX];
    size_t n;
    enum text_set set;
    struct bpe *bpe; /* ... */
};
berth_status ready_text(struct node_call *c, const struct model_ref *ref, struct ready_text *out,
                        berth_err *err);
void ready_text_release(struct ready_text *t);

/* What the sampling nodes share. */
struct sampling_request {
    const struct model_ref *model;
    uint64_t seed;
    bool no_noise; /* noise is zeros */
    const struct sampler *sampler;
    struct sample_options opt;
    const float *sigmas;
    size_t n;
    double cfg;
    const struct conditioning *positive, *negative; /* negative NULL: none */
    const struct conditioning *middle;              /* DualCFG; NULL */
    double cfg_middle;
    bool nested;
    const struct latent *latent;
};
/* outputs: the latent and what was denoised last (may be NULL). Previews and progress are the call's. */
berth_status sample_latent(struct node_call *c, const struct sampling_request *q,
                           struct latent *out, struct latent *denoised, berth_err *err);
/* The model's noise levels, with what ModelSampling* nodes said (model_ref.options). */
berth_status ready_msampling(struct node_call *c, const struct model_ref *ref,
                             struct msampling *out, berth_err *err);

#endif
