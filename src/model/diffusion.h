/* diffusion: a denoising network with what samplers and nodes must know of it: what its latents
 * are, what it predicts, how conditioning reaches it. Callers ask this descriptor, never "are you
 * SDXL".
 *
 * Batches    Conditionings of different lengths are repeated to a common multiple, each up to 4
 *            times, which does not change what attention gives; where that would be more they are
 *            computed apart. So are those that look at pictures of other sizes, or hide other
 *            tokens. A batch that has no room is split, down to single latents: the bits stay
 *            (op/ops.h).
 * Threads    Executor; tables any.
 * Adding     a family: families.h.
 * Files      diffusion.c doors, batching; a folder for each family */
#pragma once

#include "format/weights.h"
#include "model/latent_format.h"
#include "model/patch.h"
#include "net/net.h"

/* What the network predicts, and over which noise levels; sample/ turns it into a struct msampling.
 * Names are those ComfyUI's nodes use. */
enum diffusion_prediction { PREDICT_EPS, PREDICT_V, PREDICT_EDM, PREDICT_X0, PREDICT_FLOW };
/* Where pictures to look at stand among a network's positions, as ComfyUI calls it: beside the one
 * that is made, each in a layer of its own above or below it, or (uxo) across its corner. With
 * timestep_zero they count as free of noise. */
enum diffusion_ref_method {
    REF_OWN, /* what the model was trained with */
    REF_OFFSET,
    REF_INDEX,
    REF_INDEX_TIMESTEP_ZERO,
    REF_NEGATIVE_INDEX,
    REF_UXO
};
struct diffusion_info {
    const char *family; /* "SD1.5", "SD2", "SDXL", "SDXL refiner", ...: for people */
    struct latent_format latent;
    /* What it samples with those, where it is given: sound. NULL: no more */
    const struct latent_format *more[LATENT_MORE];
    const struct text_set *text; /* whose conditionings it takes (encoder.h) */
    enum diffusion_prediction predicts;
    bool zsnr;                               /* zero terminal SNR */
    double sigma_min, sigma_max, sigma_data; /* EDM tables; 0: the discrete table of SD */
    double shift, multiplier; /* flow tables; multiplier 0: Flux dev's, whose shift is mu */
    uint64_t in_channels, context_dim, adm_channels;
    size_t least_tokens; /* of a prompt: shorter ones get zeros in front of them */
    bool shows_pads;     /* what prompts are padded with counts as text: cond.hidden is left out */
    enum dtype act,
        act_else;          /* what ComfyUI computes it in on cards, and on those without that: F16
                                 then BF16 for UNets, BF16 then F16 for Flux; F32 comes last */
    bool guidance;         /* has a guidance embedding */
    double usual_guidance; /* where a prompt says none; 0: 3.5 */
    bool inpaint; /* takes a mask and a masked latent beside x; in_channels says if something else
                       is */
    /* A picture to edit, beside x, is in the model's scale (CosXL, Flux); else as the VAE gives
     * it. */
    bool scaled_edit;
    /* Of inpainting models that take the mask behind the latent, in pixels: fold x fold of them
     * belong to a latent pixel and are its channels (Flux Fill). 0: one value, rounded, in
     * front. */
    uint32_t mask_fold;
    enum diffusion_adm { ADM_NONE, ADM_SDXL, ADM_REFINER, ADM_UNCLIP } adm;
    /* Takes pictures as an encoder sees them, so many values (unCLIP): noise is added to them, of
     * this part of the steps where there are several. They stand in the place of the pooled text;
     * for ADM_UNCLIP with the noise level behind them. 0: takes none. */
    uint64_t unclip;
    double unclip_merge;
    bool refs;         /* takes pictures to look at (diffusion_cond.ref) */
    bool beside;       /* and what is said around them (diffusion_cond.beside) */
    uint64_t seen_dim; /* of that, what an encoder of pictures saw: so wide; 0: nothing */
    bool guides;       /* takes diffusion_cond.guide */
    /* Takes diffusion_in.mask: what is known of a latent has noise levels of its own. */
    bool own_times;
    bool clean;      /* what is known stays free of noise while the rest is made */
    unsigned extras; /* kinds of diffusion_cond.extra that it takes, a bit each */
    /* What is beside a video's latent is others of the same size, each in the model's scale, with
     * or without a mask of 4 channels: in_channels says how many. masked: with one, unless they
     * fill it alone. */
    bool video_concat, video_masked;
    bool biases;     /* takes diffusion_cond.bias */
    unsigned places; /* PATCH_*: where nodes can change it */
    /* Of tokens that can stand in front of the text's (diffusion_add_tokens()); 0: none can. */
    uint64_t token_dim;
    bool renamed; /* the file has other names than ours (diffusers) */
};

struct diffusion; /* loaded and ready */

/* What the file's part is; its data is not read but for markers (v-prediction of SD2). prefix as in
 * res_open. */
berth_status diffusion_detect(const struct weights *w, const char *part, struct diffusion_info *out,
                              berth_err *err);

/* The same, without the file's name in errors. BERTH_ENOTFOUND: it has none of the families; other
 * errors say why a network of a family we know cannot be computed. */
berth_status diffusion_look(const struct weights *w, const char *part, struct diffusion_info *out,
                            berth_err *err);

/* Does it take such a conditioning? BERTH_EINVAL: says what it wants instead. */
berth_status diffusion_text_fits(const struct diffusion_info *info, size_t tokens, size_t width,
                                 berth_err *err);

struct diffusion_args {
    struct residency *res;
    struct res_model *m; /* loaded */
    const char *part;    /* as it was opened; NULL: all */
    struct tpool *pool;
    const atomic_bool *cancel;
    const struct log *log;
    enum dtype act; /* of activations, if the device is made for it; DT_NONE, and else: as the
                       family prefers */
    bool fp8, int8; /* net_args.fp8, .int8 */
    /* Embed guidance as it is. By default we follow ComfyUI, which rounds it to the type of
     * activations before multiplying by 1000: 3.5 becomes 3504 in BF16. For comparisons with
     * numbers computed in another type. */
    bool exact_guidance;
    struct net_times *times; /* net_args.times */
};
berth_status diffusion_open(const struct diffusion_args *a, struct diffusion **out, berth_err *err);
void diffusion_close(struct diffusion *d); /* NULL is fine */

/* A network that steers it by a picture (a "model patch" for ComfyUI). */
struct diffusion_control {
    struct res_model *m; /* loaded */
    const char *part;    /* as of diffusion_args */
    const float *hint;   /* [channels, h, w] in the model's scale; stays until diffusion_close() */
    uint64_t h, w;
    float strength;
};
/* Channels of its hint: as many as latents have, or with them a mask and what that leaves.
 * BERTH_EUNSUPPORTED: no such network. */
berth_status diffusion_control_channels(const struct weights *w, const char *part,
                                        uint64_t *channels, berth_err *err);
/* From now on it steers every pass; latents have the hint's size then. */
berth_status diffusion_add_control(struct diffusion *d, const struct diffusion_control *a,
                                   berth_err *err);
/* These [rows, width] stand in front of every prompt's tokens from now on, as the network has them
 * inside; they stay until diffusion_close(). BERTH_EUNSUPPORTED, BERTH_EINVAL: it takes none, or
 * others. */
berth_status diffusion_add_tokens(struct diffusion *d, const float *x, size_t rows, size_t width,
                                  berth_err *err);
/* The network that makes it keep to boxes (gligen.h): m, loaded, behind part. The same again is
 * fine; BERTH_EUNSUPPORTED: another one is there, or the model takes none. */
berth_status diffusion_add_gligen(struct diffusion *d, struct res_model *m, const char *part,
                                  berth_err *err);
const struct res_model *diffusion_gligen(const struct diffusion *d); /* NULL: none was added */
const struct diffusion_info *diffusion_info(const struct diffusion *d);
struct net_report diffusion_report(struct diffusion *d);

/* ---- control nets, which prompts bring along (control.h) ---- */

struct control_info { /* what the picture must be that it looks at */
    const char *what; /* "ControlNet", ...: for people */
    uint64_t channels;
    uint32_t ratio;    /* its pixels to one of the latents', a side */
    uint32_t multiple; /* its sides are multiples of this; 0 as 1 */
    unsigned types;    /* of pictures that it tells apart; 0: it does not */
    bool latents;      /* it looks at a picture's latent, in the model's scale; ratio is 1 */
    bool masked;       /* and at a mask behind that: 1 is what stays */
};
/* BERTH_EUNSUPPORTED: no such network that can be computed here; says what is there instead. */
berth_status diffusion_control_info(const struct weights *w, const char *part,
                                    struct control_info *out, berth_err *err);
/* Is it for the diffusion model in that file? From headers alone; the error names both, and how
 * wide they are. */
berth_status diffusion_control_fits(const struct weights *model, const char *model_part,
                                    const struct weights *w, const char *part, berth_err *err);
/* Is it open beside d? *net is for struct diffusion_steer. */
bool diffusion_control_find(const struct diffusion *d, const struct res_model *m, size_t *net);
/* m: loaded; stays so until diffusion_close(). */
berth_status diffusion_control_open(struct diffusion *d, struct res_model *m, const char *part,
                                    size_t *net, berth_err *err);
struct net_report diffusion_control_report(struct diffusion *d, size_t net);
#define DIFFUSION_STEERS 16 /* of one pass, and nets that are open */
struct diffusion_steer {    /* how one steers a pass; borrowed */
    size_t net;
    const float *hint;
    struct shape hint_shape; /* [pictures, channels, h, w]; items share them out, over and over */
    float strength;
    int type;  /* of pictures, below control_info.types; -1: not given */
    bool mean; /* what it gives is the same everywhere: its mean */
};

/* What SDXL is told about the picture. 0 is a valid number, so flags say which ones count. */
struct diffusion_size {
    bool said; /* the next six count; else they are those of what is computed, so a crop must set
                  them */
    uint32_t width, height, crop_w, crop_h, target_width, target_height;
    bool scored;     /* aesthetic counts; else it is 6, or 2.5 for negatives */
    float aesthetic; /* refiner */
};
struct diffusion_ref {  /* a picture to look at */
    struct shape shape; /* [items, latent channels, ..., h, w], of any size; items repeat */
    const float *x;     /* scaled for the network */
};
/* What else a prompt brings along, by what it is to the network. */
enum diffusion_extra_kind {
    EXTRA_SEEN,     /* [items, tokens, width]: what leaves CLIP vision's last layer but one */
    EXTRA_SUBJECTS, /* [items, channels, n, h, w]: frames to look at, behind the video */
    EXTRA_CAMERA,   /* [items, channels, t, H, W]: how the camera stands to each pixel */
    EXTRA_VACE,     /* [items, channels, t, h, w]: latents and masks to follow; any number */
    EXTRA_KINDS
};
struct diffusion_extra {
    enum diffusion_extra_kind kind;
    struct shape shape; /* items repeat */
    const float *x;
    float strength;
};
/* Latent frames at the end that stand for other places of the video than behind it. */
struct diffusion_guide {
    uint64_t frames, rows, columns;
    int64_t at; /* frame of the video that they begin with */
    bool first; /* the first of them stands for a single one */
    uint32_t
        spread; /* of so many cells along each side one is there (1: all); the mask says which */
    float strength;      /* how much it is looked at; 1: as all else */
    const float *weight; /* [weights]: times that, of those that are there; NULL: 1 */
    size_t weights;
};
struct diffusion_rows { /* a text, or a picture as an encoder sees it */
    const float *x;     /* [n, width] */
    uint64_t n, width;
    uint64_t rows, cols; /* of a picture: n of them, as they lie in it */
};
/* What is said around the pictures to look at (Z-Image Omni): the k-th text stands in front of the
 * k-th picture, those that are left over behind the prompt; seen[k] is picture k. */
struct diffusion_beside {
    const struct diffusion_rows *text, *seen;
    size_t texts, seens;
};
struct gligen_box;
struct diffusion_cond {   /* one prompt as the network gets it; host memory, borrowed */
    const float *context; /* [tokens, context_dim] */
    size_t tokens, width; /* width must be context_dim */
    const bool *hidden;   /* [tokens]: those that nobody shall see; NULL: none */
    /* [tokens + 1, tokens + 1]: added to the attention of queries (rows) to keys, the last of each
     * being the picture's; NULL: nothing. */
    const float *bias;
    const struct diffusion_ref *ref; /* [refs]: what it is to look at */
    size_t refs;
    enum diffusion_ref_method ref_method;
    const struct diffusion_extra *extra; /* [extras] */
    size_t extras;
    double frame_rate;                   /* of the video; 0: nobody said */
    const struct diffusion_guide *guide; /* [guides], in the order of their frames */
    size_t guides;
    const struct diffusion_beside *beside; /* info.beside; NULL: nothing is said around them */
    const struct gligen_box *box;          /* [boxes]: after diffusion_add_gligen() */
    size_t boxes;
    const float *pooled; /* NULL: zeros */
    size_t pooled_n;
    struct diffusion_size size;
    /* What control nets are told instead: [control_tokens, context_dim]; NULL: the same */
    const float *control_context;
    size_t control_tokens;
    bool negative;
    /* Models with a guidance embedding (Flux dev): guided 0: 3.5; 1: `guidance`; -1: the term is
     * left out (FluxDisableGuidance). */
    int guided;
    float guidance;
};
struct diffusion_in {               /* n latents of one size, each with its own conditioning */
    struct shape shape;             /* [n, latent channels, ..., h, w] */
    struct shape more[LATENT_MORE]; /* of the others; x and out have those of an item together */
    size_t mores;
    const float *x;                           /* scaled for the network */
    const float *t;                           /* [n] */
    const struct diffusion_cond *const *cond; /* [n]; token counts may differ */
    const size_t *item; /* [n]: of their batch, for what differs among those; NULL: 0, 1, ... */
    /* [n, in_channels - channels, ..., h, w] of inpainting models; NULL: theirs for "no mask" */
    const float *concat;
    /* [n, ..., h, w] of models with noise levels of their own for what is known: how much of it is
     * made, usually 0 or 1; NULL: all. */
    const float *mask;
    struct net_patches patches;
    float sigma;                         /* for patches */
    const struct diffusion_steer *steer; /* [steers] control nets, in the order of their nodes */
    size_t steers;
    float *out; /* what the network predicts, of the same shape; not x. After an error anything may
                   be in it */
};
/* Splits the batch where memory has no room for all at once. */
berth_status diffusion_forward(struct diffusion *d, const struct diffusion_in *in, berth_err *err);
/* Peak of the largest of its batches, without splitting. Only shape and cond are read. */
berth_status diffusion_predict(struct diffusion *d, const struct diffusion_in *in, uint64_t *peak,
                               berth_err *err);
