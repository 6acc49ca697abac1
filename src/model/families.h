/* families: diffusion models, one folder and one line each.
 *
 * The folder src/model/<x>/ exports `const struct family family_<x>`: how to tell its files, its
 * config, what samplers must know, names and their other spellings, presets, forward. The line is
 * FAMILY(<x>) in families.def. All else asks the descriptor: placement (arch.h), samplers and nodes
 * (diffusion.h), adapters (lora_names.h), `berth synth` (preset.h). unet/ and flux/ are examples;
 * docs/adding.md shows a small one. */
#pragma once

#include "model/arch.h"
#include "model/diffusion.h"
#include "model/gligen.h"
#include "model/patch.h"

struct family_config { /* a network of some family, as its config() read it */
    char root[ARCH_ROOT_MAX];
    void *own; /* family.bytes, zero before config(); diffusion.c allocates and frees it */
};

/* A network beside a family's own that steers its passes by a picture. Host memory, borrowed. */
#define FAMILY_CONTROLS 4 /* of one diffusion model, at most */
struct family_control {
    struct net *net;
    void *own;         /* control_class.bytes, as its config() read it */
    const float *hint; /* [control_class.channels(), h, w] */
    uint64_t h, w;     /* of the latents, or one more where those are odd */
    float strength;
};
struct control_class {
    size_t bytes; /* of family_control.own */
    bool (*at)(const struct weights *w, const char *root);
    /* cfg: of the network that it is to steer. */
    berth_status (*config)(const struct weights *w, const char *root,
                           const struct family_config *cfg, void *own, berth_err *err);
    /* Of the picture: those of a latent; or of a latent, a mask (1) and what it leaves (a
     * latent). */
    uint64_t (*channels)(const struct weights *w, const char *root);
    net_names_fn *names; /* names_user: own; NULL: the file has our names */
};

/* Latents whose conditionings have one length, and look at pictures of the same sizes: what a
 * family gets. Host memory, borrowed. */
struct control_out;
struct family_batch {
    struct shape shape;             /* [n, in_channels, ..., h, w] */
    struct shape more[LATENT_MORE]; /* [n, ...] of latents that are sampled with them */
    size_t mores;
    const float *x;       /* of that shape, or [n, values]: an item's latents behind each other */
    const float *t;       /* [n] */
    const float *context; /* [n, tokens, context_dim] */
    size_t tokens;
    const bool *hidden;              /* [tokens], of all items; NULL: none */
    const float *bias;               /* as of diffusion_cond, of all items; NULL: none */
    const struct diffusion_ref *ref; /* [n, refs]: of every item its own, [1, channels, ...] each */
    size_t refs;
    enum diffusion_ref_method ref_method;
    const struct diffusion_extra *extra; /* [n, extras]: likewise, [1, ...] each */
    size_t extras;
    double frame_rate;                   /* as of diffusion_cond, of all items */
    const struct diffusion_guide *guide; /* [guides], likewise */
    size_t guides;
    /* [n, ..., h, w], as of diffusion_in. In a prediction only whether there is one counts. */
    const float *mask;
    const struct diffusion_beside *beside; /* of all items; NULL: none */
    const float *tokens_before; /* [tokens_before_n, token_dim], of every item; NULL: none */
    size_t tokens_before_n;
    const float *y;        /* [n, adm_channels]; NULL without */
    const float *guidance; /* [n]; NULL: without that term. In a prediction only that counts */
    bool exact_guidance;   /* diffusion_args */
    const struct family_control *control; /* [controls]; a prediction leaves them out */
    size_t controls;
    /* Boxes of the picture with texts (gligen.h): gligen_features() of each item. NULL: none; a
     * prediction has the first alone. */
    const struct gligen *gligen;
    const float *boxes;
    /* The place of its first item among those that would be one pass if they had room. */
    size_t first;
    float *out; /* as x, without what is beside the latents */
    /* What nodes changed, and what patches ask for: */
    struct net_patches patches;
    float sigma;
    const bool *negative; /* [n]: its prompt is a negative one; NULL: nobody asks */
    size_t chunk;         /* items that share the first one's prompt */
    /* [steers]: what control nets gave for these latents (control.h); a prediction leaves it out */
    const struct control_out *const *steer;
    size_t steers;
};

struct family {
    struct arch arch;       /* FAMILY_ARCH(), .detect, .lora, .presets */
    struct arch checkpoint; /* FAMILY_CHECKPOINT(): what a file with all its networks is called */
    size_t bytes;           /* of family_config.own */
    /* A prompt may be repeated to reach the length of another: attention over the same keys twice
     * gives the same. */
    bool repeats;
    unsigned places; /* PATCH_*: where its forward can be changed */
    bool boxes;      /* its forward looks at family_batch.gligen */
    /* A usual latent, as family_batch has it, and a usual prompt: layers' costs are estimated for
     * them. How many channels a network has its file says. */
    struct shape usual;
    uint32_t usual_tokens;
    /* What a usual prompt brings along, so that every layer is asked for; those are shapes. Models
     * that take none of it leave it out. */
    const struct diffusion_extra *usual_extra;
    size_t usual_extras;
    const struct diffusion_ref *usual_ref;
    size_t usual_refs;
    /* Adds what a prompt must have for all layers of such a network to be asked for; static. NULL:
     * nothing. */
    void (*usual_more)(const struct family_config *cfg, struct family_batch *b);

    /* Is the network behind root, or one so like it that config() can tell what it is instead? */
    bool (*at)(const struct weights *w, const char *root);
    /* Reads cfg->own from the shapes behind cfg->root. Errors say why it cannot be computed. */
    berth_status (*config)(const struct weights *w, struct family_config *cfg, berth_err *err);
    /* What samplers must know. part: in front of markers that lie beside the network. */
    berth_status (*describe)(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err);
    /* Releases what own refers to; own itself is freed afterwards. NULL: nothing to release. */
    void (*release)(void *own);
    /* For net_args, which gets own as names_user; NULL when the file has our names. */
    net_names_fn *(*names)(const struct family_config *cfg);
    /* y of one conditioning, info->adm_channels floats, for latents of a shape as diffusion_in has
     * it. NULL: the family has none. */
    berth_status (*vector)(const struct diffusion_info *info, const struct diffusion_cond *c,
                           const struct shape *latents, float *y, berth_err *err);
    /* Channels beside the latent when the caller gives none: [in_channels - channels, pixels].
     * NULL: there never are any. */
    void (*no_concat)(const struct diffusion_info *info, size_t pixels, float *out);
    const struct control_class *control; /* networks that steer it; NULL: none are known */
    /* peak NULL: computes; else only predicts. */
    berth_status (*forward)(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err);
};

#define FAMILY(x) extern const struct family family_##x;
#include "model/families.def"
#undef FAMILY

/* family.arch except for what is the family's own. */
#define FAMILY_ARCH(name_, about_)                                                                 \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = "unet", .trace = family_trace
#define FAMILY_CHECKPOINT(name_, about_)                                                           \
    {                                                                                              \
        .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },  \
        .holds_parts = true                                                                        \
    }
/* arch.trace of every family: its forward over a usual picture. */
berth_status family_trace(const struct arch *arch, const struct weights *w, const char *root,
                          struct block_trace *out, berth_err *err);
