/* vision: encoders of pictures: what CLIPVisionLoader opens.
 *
 *     vision_open(&args, part, &v, &net, err)     a resident model's file, found and opened
 *     vision_see(net, &v, &job, err)              picture by picture: pixels, patches, a pass
 *     net_close(net)
 *
 * Pixels     A picture of any size becomes the square that the network was made for: bicubic with
 *            antialiasing, its middle or all of it squeezed, rounded to 8 bits, normalised.
 * Results    last: hidden states behind the last layer; penultimate: behind the one before; embeds:
 *            one row for the whole picture, or (SigLIP) `last` again; projected: what LLaVA's files
 *            make of `penultimate` for a language model.
 * Config     from names and shapes; heads as CLIP's text encoders have them (metadata
 *            "berth.heads"), else 16, which is what all that ComfyUI knows have.
 * Threads    Executor; vision_find() any.
 * Adding     an encoder: a folder src/model/<x>/ that exports `const struct vision_class
 *            vision_<x>`, and the line VISION(<x>) in visions.def. */
#pragma once

#include "model/arch.h"
#include "net/net.h"

#include <stddef.h>

#define VISION_OWN_MAX 64    /* bytes of a class's config */
#define VISION_SIDE_MAX 8192 /* pixels of the square */

struct vision_net { /* what a file's encoder looks like */
    const struct vision_class *is;
    uint32_t side, patch; /* pixels: of the square, and of a patch of it */
    uint64_t width, tokens;
    uint64_t embeds_rows, embeds_width;
    uint64_t projected_rows, projected_width; /* 0: it has no such thing */
    bool deep; /* SigLIP of 20 layers and more: mid and low are given */
    float mean[3], std[3];
    _Alignas(max_align_t) unsigned char own[VISION_OWN_MAX];
};

struct vision_pass { /* of one picture; host memory, borrowed */
    const struct vision_net *net;
    const float *patches;  /* [(side / patch)^2, 3 * patch * patch]: channel, row, column */
    const int32_t *number; /* [tokens]: 0, 1, ... */
    float *last, *penultimate, *embeds, *projected;
    float *mid, *low; /* as penultimate, but behind the 11th and the 20th layer from the end */
};

struct vision_class {
    struct arch arch; /* VISION_ARCH(), .detect, .presets */
    const char *name; /* "CLIP vision": of the family, for people */
    const char *what; /* "a CLIP vision model": likewise */
    /* Fills in all but `is`. Errors say why it cannot be computed. */
    berth_status (*config)(const struct weights *w, const char *root, struct vision_net *out,
                           berth_err *err);
    net_names_fn *names;     /* called with the struct vision_net */
    net_forward_fn *forward; /* user: a struct vision_pass */
};
#define VISION(x) extern const struct vision_class vision_##x;
#include "model/visions.def"
#undef VISION
#define VISION_ARCH(name_, about_)                                                                 \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = "vision", .trace = vision_trace
/* arch.trace of every encoder. */
berth_status vision_trace(const struct arch *arch, const struct weights *w, const char *root,
                          struct block_trace *out, berth_err *err);

/* Which class has its tensors behind part (NULL: all); NULL: none. */
const struct vision_class *vision_at(const struct weights *w, const char *part);
/* Its config. BERTH_EUNSUPPORTED: none, or one that cannot be computed: says why. */
berth_status vision_find(const struct weights *w, const char *part, struct vision_net *out,
                         berth_err *err);
/* Finds and opens it. a: all but root and names. *v stays where it is until net_close(). */
berth_status vision_open(const struct net_args *a, const char *part, struct vision_net *v,
                         struct net **out, berth_err *err);

struct vision_job {
    const float *image; /* [n, h, w, c], 0..1; c at least 3, the first three count */
    size_t n, h, w, c;
    bool crop; /* its middle; else all of it, squeezed */
    struct tpool *pool;
    const atomic_bool *cancel;
    /* [n, tokens, width], likewise, [n, embeds_rows, embeds_width] and so on. projected: where
     * there is one */
    float *last, *penultimate, *embeds, *projected;
    float *mid, *low; /* likewise, of one that is deep; both, or NULL */
};
berth_status vision_see(struct net *net, const struct vision_net *v, const struct vision_job *j,
                        berth_err *err);
/* The pixels of picture i, [3, side, side], normalised. */
berth_status vision_pixels(const struct vision_net *v, const struct vision_job *j, size_t i,
                           float *out, berth_err *err);
