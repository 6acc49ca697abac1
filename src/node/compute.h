/* compute: what nodes that run networks share: values of their own types, and models made ready.
 *
 * Words      conditioning  a list of prompts with what nodes said about them (area, mask, strength,
 *                          range); entries are copied, their tensors shared
 *            ready         patches set, loaded, opened: between ready_*() and its release nothing
 *                          of it moves
 * Flow       node run() -> ready_diffusion(ref) -> res_set_patches, res_load (cancel) ->
 *            diffusion_open -> guide + sampler -> release. Text and VAE likewise.
 * Adapters   Are set at each use: two branches may patch one model differently, and whoever
 *            computes next finds what the other left. The same set again costs nothing.
 * Threads    Executor, as everything that runs.
 * Files      compute.c ready_*; assets.c tokenizers; cond.c the CONDITIONING value, conditioning.c
 *            its nodes; controlnet.c control nets; edit_model.c pictures that prompts show;
 *            text_encode.c; sample_latent.c a run of a sampler, sample_conds.c what it makes of
 *            conditionings; sampling.c KSampler and kin; sampler.c noise.c guider.c the objects of
 *            custom sampling; model_sampling.c what is said about a MODEL, and schedules that ask
 *            one; vae.c; vision.c pictures as encoders see them, and prompts made of that; unclip.c
 *            the same for unCLIP */
#pragma once

#include "model/diffusion.h"
#include "model/encoder.h"
#include "model/style.h"
#include "model/vae.h"
#include "model/vision.h"
#include "node/node_impl.h"
#include "sample/guide.h"

/* ---- objects ---- */

/* The object an input has; BERTH_EINVAL: it is none of this type. */
berth_status in_object(const struct node_call *c, const char *name, const struct value_type *type,
                       const void **out, berth_err *err);

/* A latent to look at, or what is said around one, behind those before it: lists share their
 * beginnings. */
struct cond_ref {
    unsigned counts;
    struct htensor *latent;
    struct cond_ref *before; /* NULL: it is the first */
};
/* Adds one to the list; the latent is shared. */
berth_status cond_ref_add(struct cond_ref **list, struct htensor *latent, berth_err *err);
size_t cond_refs(const struct cond_ref *list);          /* how many */
struct cond_ref *cond_ref_share(struct cond_ref *list); /* one more reference; NULL is fine */
void cond_ref_release(struct cond_ref *list);           /* NULL is fine */

/* Latent frames at the end of a video that stand for others (struct diffusion_guide), behind those
 * before them: shared as those are. */
struct cond_guide {
    unsigned counts;
    uint64_t frames, rows, columns;
    int64_t at;
    bool first;
    uint32_t spread;
    double strength;
    struct htensor *weight;    /* of every cell that is there; NULL: 1 */
    struct cond_guide *before; /* NULL: it is the first */
};
/* Adds one to the list; guide.weight is shared, counts and before are not looked at. */
berth_status cond_guide_add(struct cond_guide **list, struct cond_guide guide, berth_err *err);
void cond_guides_drop(struct cond_guide **list); /* leaves none */
size_t cond_guides(const struct cond_guide *list);

/* A box of the picture with its text (GLIGEN), behind those before it: shared as those are. */
struct cond_box {
    unsigned counts;
    struct htensor *text;    /* [1, width] */
    double h, w, y, x;       /* of latent pixels */
    struct cond_box *before; /* NULL: it is the first */
};
/* Adds one to the list; box.text is shared, counts and before are not looked at. */
berth_status cond_box_add(struct cond_box **list, struct cond_box box, berth_err *err);
size_t cond_boxes(const struct cond_box *list);

/* What an encoder saw of pictures, for models that are told (unCLIP); lists share their
 * beginnings. */
struct cond_unclip {
    unsigned counts;
    struct htensor *embeds; /* [n, width] */
    double strength, noise; /* noise: part of the steps */
    struct cond_unclip *before;
};
void unclip_release(struct cond_unclip *x); /* NULL is fine */

/* A control net that steers a prompt, behind those that were given before it; counted, and shared
 * once made. */
struct cond_control {
    unsigned counts;
    struct cond_control *before; /* a reference; NULL: it is the first */
    struct model_ref net, vae;   /* vae: without parts where none is given */
    struct htensor *image;       /* [n, h, w, c]; a reference */
    struct htensor *mask;        /* [n, h, w] beside it, 1 is what stays; a reference or NULL */
    double strength, start_percent, end_percent;
};
void cond_control_unref(struct cond_control *k); /* NULL is fine */

/* A video to follow (VACE), behind those that were said before it; lists share their
 * beginnings. */
struct cond_vace {
    unsigned counts;
    struct htensor *frames; /* [1, 2 * channels, t, h, w]: latents as the VAE gives them */
    struct htensor *mask;   /* [1, 64, t, h, w] */
    double strength;
    struct cond_vace *before; /* NULL: it is the first */
};
/* Adds one to the list; its tensors are shared, counts and before are not looked at. */
berth_status cond_vace_add(struct cond_vace **list, struct cond_vace vace, berth_err *err);

struct hooks;
struct cond_entry {
    struct htensor *cond;   /* [1, tokens, width] */
    struct htensor *pooled; /* [1, n]; NULL: none */
    struct htensor *shown;  /* [1, tokens]: 0 is padding, to be seen by nobody; NULL: all is text */
    struct diffusion_size size;
    double strength; /* 1 */
    enum cond_area { AREA_NONE, AREA_PIXELS, AREA_PERCENT, AREA_VIDEO } area_kind;
    double area[4];       /* h, w, y, x: pixels of the picture, or fractions of it */
    double area_time[2];  /* AREA_VIDEO, fractions as well: frames, and the first of them */
    struct htensor *mask; /* [n, h, w]; NULL: none */
    double mask_strength; /* 1 */
    bool mask_bounds;     /* the area is the mask's bounding box */
    double start_percent, end_percent;
    bool ranged; /* those two count */
    /* When the text encoder was as it encoded this (SetClipHooks); the narrower of both counts. */
    double clip_start, clip_end;
    bool clip_ranged;
    bool otherwise; /* counts where the other prompts of its list do not */
    struct htensor *concat_latent, *concat_mask; /* inpaint models: [n, c, h, w], [n, h, w]; NULL */
    size_t concat_mask_index; /* of video: so many channels of the latents come before the mask */
    struct htensor *extra[EXTRA_KINDS]; /* diffusion_cond.extra, raw; NULL: none */
    struct cond_vace *vace;             /* the last one; NULL: none */
    struct cond_ref *ref;               /* pictures to look at, the last one; NULL: none */
    enum diffusion_ref_method ref_method;
    double frame_rate;        /* of the video; 0: nobody said */
    struct cond_guide *guide; /* the last one; NULL: none */
    /* diffusion_beside: texts [1, tokens, width]; what was seen [n, rows, columns, width] */
    struct cond_ref *ref_text, *ref_seen;
    struct cond_box *box; /* the last one; NULL: none */
    struct value *gligen; /* the GLIGEN that they are for; a reference; NULL without boxes */
    struct cond_control *control; /* the last one; NULL: none */
    bool control_to_all;          /* prompts without any get it from a positive one */
    struct htensor *control_text; /* [1, tokens, width] that they are told; NULL: the prompt's */
    int guided;                   /* as diffusion_cond: 0 not given, 1 `guidance`, -1 without */
    double guidance;
    /* Added to what attention makes of every query (row) and key: [tokens + 1, tokens + 1], the
     * last standing for the picture; NULL: none. */
    struct htensor *bias;
    struct cond_unclip *unclip; /* the last one; NULL: none */
    struct hooks *hooks;        /* hooks.h; a reference; NULL: none */
};
/* Nodes may join a list with itself over and over, which doubles it each time. */
#define CONDS_MAX 4096                   /* prompts of a list */
#define COND_TOKENS_MAX (77 * CONDS_MAX) /* of all its prompts together */
struct conditioning {
    struct cond_entry *at;
    size_t n;
};
extern const struct value_type type_conditioning; /* V_OBJECT of a struct conditioning */
berth_status in_conditioning(const struct node_call *c, const char *name,
                             const struct conditioning **out, berth_err *err);
/* One entry without anything said about it; takes the tensors, also on failure. */
berth_status conditioning_new(struct htensor *cond, struct htensor *pooled,
                              struct conditioning **out, berth_err *err);
/* a's entries, then b's (NULL: none), sharing tensors; release with conditioning_free().
 * BERTH_ELIMIT: too many of them, or of their tokens. */
berth_status conditioning_join(const struct conditioning *a, const struct conditioning *b,
                               struct conditioning **out, berth_err *err);
berth_status conditioning_copy(const struct conditioning *x, struct conditioning **out,
                               berth_err *err);
/* BERTH_ELIMIT: more than COND_TOKENS_MAX of them. Asked before a prompt is made longer. */
berth_status conditioning_tokens_fit(size_t tokens, berth_err *err);
size_t conditioning_tokens(const struct conditioning *x); /* of all prompts; x NULL: 0 */
void conditioning_free(struct conditioning *x);           /* NULL is fine */
/* Input `clip`: one that is not there gets what its loader said, else ComfyUI's hint. */
berth_status in_clip(const struct node_call *c, const struct model_ref **out, berth_err *err);
/* Prompts, and what they show, through the text encoders at input `clip`: what CLIPTextEncode and
 * its kin are. wants: the set that the node is for; NULL: any. */
berth_status text_conditioning(struct node_call *c, const struct text_prompt *prompt,
                               size_t prompts, const struct text_set *wants,
                               struct conditioning **out, berth_err *err);
/* Output i; takes it, also on failure. */
berth_status out_conditioning(struct node_call *c, size_t i, struct conditioning *taken,
                              berth_err *err);

/* SamplerLCMUpscale: the latent grows behind each of the first steps. */
struct sampler_growth {
    const char *method; /* of scale_planes(); static; NULL: it does not grow */
    double ratio;
    int64_t steps; /* < 0: half of them */
};

struct vision_output {    /* CLIP_VISION_OUTPUT: vision.h, Results */
    struct htensor *last; /* [n, tokens, width] */
    struct htensor *penultimate;
    struct htensor *embeds;    /* [n, width], or as last */
    struct htensor *projected; /* NULL: none */
    struct htensor *mid, *low; /* as penultimate, of layers before it; NULL: none */
    size_t side;               /* pixels of the square it looked at */
};
extern const struct value_type type_vision_output;
void vision_output_free(void *x);
/* What the CLIP_VISION ref sees of pictures. crop: of their middle, else of all of them. */
berth_status see_picture(struct node_call *c, const struct model_ref *ref,
                         const struct htensor *image, bool crop, struct vision_output **out,
                         berth_err *err);
berth_status in_vision_output(const struct node_call *c, const char *name,
                              const struct vision_output **out, berth_err *err);

struct sampler_choice { /* SAMPLER */
    const struct sampler *sampler;
    struct sample_options opt;
    struct sampler_growth growth;
};
extern const struct value_type type_sampler;
struct noise_source { /* NOISE */
    uint64_t seed;
    bool none; /* zeros; the seed still feeds the sampler */
};
extern const struct value_type type_noise;
struct guider { /* GUIDER */
    struct model_ref model;
    struct model_ref model_negative; /* DualModelGuider; without parts: none */
    struct conditioning *positive, *middle, *negative, *empty; /* all but the first may be NULL */
    double cfg, cfg_middle;                                    /* as struct sampling_request */
    bool nested;
    struct guide_patch perp;
};
extern const struct value_type type_guider;

/* ---- models made ready ---- */

/* What people call the model, for messages; "a model without weights". */
const char *ready_name(const struct model_ref *ref);
/* Sets the patches of part i and loads it. Cancel is the call's; a load is reported as text. */
berth_status ready_load(struct node_call *c, const struct model_ref *ref, size_t i, berth_err *err);
/* Says what a pass will take before it begins: a line in the log, a warning when it is more than
 * half of what the device has. batch: items of it. */
void ready_tell_peak(struct node_call *c, struct res_model *m, const char *what, size_t batch,
                     uint64_t peak);
/* What a network did, at the end of its use: into the prompt's history, where people look for how
 * fast it was and what it took. what: "diffusion", "vae", "text", "upscale". Nothing for one that
 * ran no pass. */
void ready_done(struct node_call *c, struct res_model *m, const char *what,
                const struct net_report *r);
/* diffusion_close() it. */
berth_status ready_diffusion(struct node_call *c, const struct model_ref *ref,
                             struct diffusion **out, berth_err *err);
/* What it is, without loading it, and with what nodes said about it. */
berth_status ready_info(const struct model_ref *ref, struct diffusion_info *out, berth_err *err);
/* The model's noise levels, with what ModelSampling* nodes said. ms_release() it. */
berth_status ready_msampling(const struct model_ref *ref, struct msampling *out, berth_err *err);

struct ready_vae { /* stays where it is until its release: the net looks at `vae` */
    struct node_call *c;
    struct net *net;
    struct vae_net vae;
    struct res_model *m; /* borrowed from the ref */
    /* What its use was, for the history: */
    const char *what; /* "decode", "encode"; static; NULL: none yet */
    size_t tiles;     /* of a picture, for want of memory; 0: whole, or as it was asked for */
    uint64_t rungs;   /* of vae_job, all of them */
};
berth_status ready_vae(struct node_call *c, const struct model_ref *ref, struct ready_vae *out,
                       berth_err *err);
void ready_vae_release(struct ready_vae *v); /* zeroed is fine */

/* A network that is opened as vision_open() and style_open() do it: loaded, and its arguments. */
berth_status ready_net(struct node_call *c, const struct model_ref *ref, const char *what,
                       struct net_args *out, berth_err *err);

struct asset { /* an opened tokenizer; executor's thread */
    const struct tokenizer *kind;
    void *tok;
    char *from;     /* where it came from */
    uint64_t stamp; /* of its files there */
    size_t refs;    /* asset_unref() it */
};
/* The tokenizer of this kind for a model. w: its file; NULL: from the env's folders alone.
 * BERTH_ENOTFOUND names the places that were looked at and says what to do. */
berth_status asset_tokenizer(const struct node_env *env, const struct tokenizer *kind,
                             const struct weights *w, struct asset **out, berth_err *err);
void asset_unref(struct asset *a); /* NULL is fine */

struct ready_text {
    struct node_call *c;
    const struct model_ref *ref; /* borrowed */
    struct text_encoder enc[TEXT_ENCODERS_MAX];
    struct text_found found[TEXT_ENCODERS_MAX];
    size_t part[TEXT_ENCODERS_MAX]; /* of the ref */
    size_t n;
    struct arena mem; /* configs */
    const struct text_set *set;
    int skip;                                   /* of text_args */
    struct asset *tokenizer[TEXT_ENCODERS_MAX]; /* [n] */
};
berth_status ready_text(struct node_call *c, const struct model_ref *ref, struct ready_text *out,
                        berth_err *err);
struct text_args
ready_text_args(struct ready_text *t);         /* without embeddings; t stays where it is */
void ready_text_release(struct ready_text *t); /* zeroed is fine */

/* A copy of the input, to say something about (model_ref.said). */
berth_status in_model_copy(struct node_call *c, const char *input, struct model_ref *out,
                           berth_err *err);

/* The pictures [n, h, w, c] as latents, by this VAE. *out is new. */
berth_status encode_picture(struct node_call *c, const struct model_ref *vae,
                            const struct htensor *image, struct htensor **out, berth_err *err);

/* ---- networks that steer a diffusion model (model_patch.c) ---- */

#define STEERING_MAX 4
struct steering { /* those of a MODEL, for latents of one size */
    struct diffusion_control at[STEERING_MAX];
    const struct model_ref *net[STEERING_MAX]; /* borrowed from the MODEL */
    size_t n;
};
/* Encodes what they look at; hints live in mem. */
berth_status steer_hints(struct node_call *c, const struct model_ref *ref,
                         const struct diffusion_info *info, const struct shape *latents,
                         struct arena *mem, struct steering *out, berth_err *err);
/* Loads them and lets them steer d, an open one. */
berth_status steer(struct node_call *c, const struct steering *s, struct diffusion *d,
                   berth_err *err);

/* ---- control nets of prompts (controlnet.c) ---- */

/* Can all of them steer this model? From headers: nothing is loaded. */
berth_status controls_check(const struct cond_control *last, const struct model_ref *model,
                            berth_err *err);
struct control_hint { /* what one looks at for latents of one size */
    const struct cond_control *of;
    size_t h, w; /* of latents */
    struct shape shape;
    const float *x;
    struct control_hint *next;
};
/* Finds it in the list, or makes it, in mem; f: what the model's latents are. A VAE may be loaded
 * for it. */
berth_status control_hint(struct node_call *c, const struct cond_control *k,
                          const struct latent_format *f, size_t h, size_t w, struct arena *mem,
                          struct control_hint **list, const struct control_hint **out,
                          berth_err *err);
/* How the net is to be used, beside what it looks at. */
void control_manner(const struct cond_control *k, struct diffusion_steer *out);

/* guidance.c: what nodes that change models share. Output 0: the input "model" with one change
 * more; takes change.with. */
berth_status give_changed(struct node_call *c, struct model_change change, berth_err *err);
/* BERTH_EINVAL: not finite; links bring what no validation saw. */
berth_status in_finite(const struct node_call *c, const char *input, double *out, berth_err *err);
/* The noise levels of "start_percent" and "end_percent", as the input "model" has them here. */
berth_status in_percents(struct node_call *c, double *start, double *end, berth_err *err);

/* ---- sampling ---- */

struct sampling_request { /* borrowed for the call */
    const struct model_ref *model;
    uint64_t seed;
    bool no_noise; /* noise is zeros */
    const struct sampler *sampler;
    struct sample_options opt;
    struct sampler_growth growth;
    const float *sigmas;
    size_t n; /* of sigmas; 0: the latent comes back as it is */
    double cfg;
    const struct conditioning *positive, *negative; /* negative NULL: none */
    const struct conditioning *middle;              /* DualCFG; NULL */
    double cfg_middle;
    bool nested;
    const struct conditioning *empty;       /* Perp-Neg; NULL */
    struct guide_patch perp;                /* how, with `empty` */
    const struct model_ref *model_negative; /* computes the negative; NULL: model does */
    const struct latent *latent;
};
/* *out: the new latent. *denoised (may be NULL): what was denoised last; *out again when no step
 * ran. Previews and progress are the call's. */
berth_status sample_latent(struct node_call *c, const struct sampling_request *q,
                           struct latent *out, struct latent *denoised, berth_err *err);

/* Noise of a latent of shape s as ComfyUI draws it: one draw over all, or one for each index up to
 * the largest. index: [n]; NULL: none. BERTH_ECANCELED: between the draws for indexes. */
berth_status latent_noise(struct node_call *c, const int64_t *index, const struct shape *s,
                          struct torch_rng *rng, float *out, berth_err *err);
/* The latent's samples in the model's format: an empty one gets its channels, another that has not
 * is BERTH_EINVAL; a picture is video of one frame. A new reference. */
berth_status latent_fit(const struct latent *l, const struct diffusion_info *info,
                        struct htensor **out, berth_err *err);
bool all_zero(const float *x, size_t n);
/* A noise mask over latents of shape s: its planes are for the pictures of a batch, or for the
 * frames of every video in it. A mask [n, c, t, h, w] has its own items and channels, which are
 * repeated. out: of shape s. */
berth_status latent_mask(struct node_call *c, const struct htensor *mask, const struct shape *s,
                         float *out, berth_err *err);

/* sample_video.c: what is beside a video's latent, [batch, in_channels - channels, t, h, w]. NULL:
 * nothing was said of it. */
struct cond_scene;
berth_status video_concat(struct node_call *c, const struct cond_entry *e,
                          const struct cond_scene *scene, const float **out, berth_err *err);
/* What else a prompt brings along, in the model's scale; what the model takes nothing of is left
 * out, and said. */
berth_status video_extras(struct node_call *c, const struct cond_entry *e,
                          const struct cond_scene *scene, struct diffusion_cond *to,
                          berth_err *err);
/* Which of `have` items is item i of `want`: spread evenly, as ComfyUI's resize_to_batch_size(). */
size_t cond_spread(size_t i, size_t have, size_t want);

/* sample_conds.c: conditionings as the guide wants them. */
struct sampled_cond { /* guide_cond.cond */
    struct diffusion_cond cond;
    const struct model_ref *with;       /* what computes it; borrowed */
    const struct hooks *hooks;          /* it is patched with meanwhile; borrowed; NULL: none */
    const struct model_ref *gligen;     /* of its boxes; borrowed; NULL: none */
    const struct cond_control *control; /* that steer it, the last one; borrowed; NULL: none */
    bool control_to_all;                /* cond_entry */
    /* [batch, extra channels, ..., h, w] of the whole latent; NULL: the network's own */
    const float *concat;
};
struct cond_scene { /* what they are resolved against; borrowed */
    const struct model_ref *model;
    const struct diffusion_info *info;
    const struct msampling *ms;
    struct shape shape;  /* of info's format, of the first of several */
    bool several;        /* latents, without pixels in common: no areas, no masks */
    const float *latent; /* in the model's scale */
    const float *mask;   /* of that shape; NULL: none */
    uint64_t seed;       /* of the run */
    struct arena *mem;   /* results live there */
};
/* unclip.c: the vector that a model is told, 2 * info->unclip values: pictures with their noise,
 * drawn by the seed, then the level of it. */
berth_status unclip_vector(const struct cond_unclip *list, const struct diffusion_info *info,
                           uint64_t seed, struct arena *mem, float **out, berth_err *err);
struct cond_list {
    struct vec at; /* struct guide_cond */
};
/* area: not yet cut to the latent, for conds_pair(). */
berth_status conds_resolve(struct node_call *c, const struct conditioning *x, bool negative,
                           const struct cond_scene *scene, struct cond_list *out, berth_err *err);
/* Every area of one list gets a counterpart in the others, where they have none of their own;
 * control nets of the first that are for all go to the others; then all areas are cut to the
 * latent. BERTH_EINVAL: one lies outside of it. */
berth_status conds_pair(struct node_call *c, struct cond_list *list, size_t lists,
                        const struct cond_scene *scene, berth_err *err);
