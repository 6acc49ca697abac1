/* vae: pictures to latents and back (spec: vae.md).
 *
 * Shapes     Latents [n, c, h, w], of video [n, c, t, h, w]: what the format says. Pictures as the
 *            network has them are [n, 3, h * r, w * r], of video [n, 3, frames, h * r, w * r]; as
 *            nodes have them, [n, h, w, 3] and [n, frames, h, w, 3], 0..1. Those that are also
 *            more or less opaque have 4 channels instead of 3.
 * Config     from names and shapes. A file may have the encoder or the decoder alone.
 * Batches    go item by item: the pass of one picture fills every processor, and memory is that of
 *            one.
 * Tiling     overlapping pieces blended as ComfyUI does it: three passes with different tiles,
 *            averaged; of video a single one. Automatic: when a whole pass has no room (net.h,
 *            Ladder) the tiles of vae.md 7 are used, then ever smaller ones, down to VAE_TILE_MIN;
 *            log and job say so. A tile of video has all of its frames, unless some are asked for.
 * Threads    Executor; vae_detect() any.
 * Adding     a VAE: a folder src/model/vae_<x>/ that exports `const struct vae_family vae_<x>`, and
 *            the line VAE(<x>) in vaes.def.
 * Files      vae.c doors, vae_tile.c tiling, vae_image.c pictures <-> latents; a folder for each
 *            family */
#pragma once

#include "format/weights.h"
#include "model/arch.h"
#include "model/latent_format.h"
#include "net/net.h"

#include <stddef.h>

#define VAE_TILE_MIN 8  /* latent units: smaller tiles are all seam */
#define VAE_OWN_MAX 128 /* bytes of a family's config */

struct vae_net { /* what a file's VAE looks like */
    const struct vae_family *family;
    /* Of its latents as nodes see them: name ("the SD1, SD2 and SDXL kind", for people), channels,
     * rank, ratios. How networks scale them it does not know. */
    struct latent_format latent;
    uint32_t colours;      /* channels of its pictures: 3, or 4 with how opaque they are */
    bool encoder, decoder; /* what is in the file */
    _Alignas(max_align_t) unsigned char own[VAE_OWN_MAX]; /* the family's config */
};

struct vae_pass { /* of one item, or of a tile of it; host memory, borrowed */
    const struct vae_net *vae;
    struct shape
        shape; /* of in, with a batch of 1; what comes out is vae_decoded(), vae_encoded() */
    const float *in;
    const float *noise; /* of vae_family.noise(); dry passes do not look at it */
    float *out;
};

struct vae_family {
    struct arch arch; /* VAE_ARCH(), .detect, .presets */
    const char *what; /* "a VAE of SD's or Flux's kind": for people */
    const char *name; /* "AutoencoderKL": of the family, likewise */
    /* Is a half of it, under whatever names, behind root? */
    bool (*at)(const struct weights *w, const char *root);
    /* Fills in all but family and colours, which are 3 unless it says so. Errors say why it cannot
     * be computed. */
    berth_status (*config)(const struct weights *w, const char *root, struct vae_net *out,
                           berth_err *err);
    net_names_fn *(*names)(const struct vae_net *v); /* called with v; NULL: the file has ours */
    net_forward_fn *decode, *encode;                 /* user: a struct vae_pass */
    /* Random numbers that it takes to decode such latents: the same every time. NULL: none. */
    size_t (*noise)(const struct vae_net *v, const struct shape *latents);
};
#define VAE(x) extern const struct vae_family vae_##x;
#include "model/vaes.def"
#undef VAE
#define VAE_ARCH(name_, about_)                                                                    \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = "vae", .trace = vae_trace
/* arch.trace of every VAE: what it encodes with, then what it decodes with. */
berth_status vae_trace(const struct arch *arch, const struct weights *w, const char *root,
                       struct block_trace *out, berth_err *err);

/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: no such VAE, or one we cannot run:
 * says why. */
berth_status vae_detect(const struct weights *w, const char *root, struct vae_net *out,
                        berth_err *err);
/* The same behind `part` (NULL: all), wherever VAEs stand there; *root: where. */
berth_status vae_find(const struct weights *w, const char *part, char root[ARCH_ROOT_MAX],
                      struct vae_net *out, berth_err *err);
/* Finds the VAE in the model's file, behind `part` (as it was opened; NULL: all), and opens it. a:
 * all but root and names, which are filled in here. *vae is what *out reads names with: it
 * stays where it is until net_close(). */
berth_status vae_open(const struct net_args *a, const char *part, struct vae_net *vae,
                      struct net **out, berth_err *err);

/* Progress over tiles, and batch items; may be NULL. BERTH_ECANCELED ends it. */
typedef berth_status vae_step_fn(void *user, size_t done, size_t total, berth_err *err);
struct vae_job {
    struct net *net;
    const struct vae_net *vae;
    const struct log *log; /* may be NULL */
    vae_step_fn *step;
    void *user;
    /* Tiles in latent units (decode) or pixels (encode); 0: whole, tiles only when there is no
     * room */
    size_t tile_x, tile_y, overlap;
    /* Of video that is decoded in such tiles, in latent frames; 0: each has all of them. A tile
     * sees nothing of the frames before it. */
    size_t tile_t, overlap_t;
    bool tiled;   /* out: it was, though nobody asked. Later items begin with tiles then */
    size_t tiles; /* out: so many for the last item, all three passes; of those nobody asked for */
    uint64_t rungs; /* out: how often it turned to tiles, or to smaller ones, for want of memory */
};
/* What comes out of these, as the network has them. An encoder leaves out pixels and frames that
 * fill no latent pixel or frame. */
struct shape vae_decoded(const struct vae_net *v, const struct shape *latents);
struct shape vae_encoded(const struct vae_net *v, const struct shape *pictures);
/* The network alone, s of what comes in: pictures nominally -1..1; encoding gives the mean, and all
 * of s counts. BERTH_EUNSUPPORTED: the file has no such half. BERTH_EINVAL: not of such a shape, or
 * tiles that do not overlap properly. */
berth_status vae_decode(struct vae_job *j, const float *z, const struct shape *s, float *out,
                        berth_err *err);
berth_status vae_encode(struct vae_job *j, const float *x, const struct shape *s, float *out,
                        berth_err *err);
/* As nodes have pictures; s is [n, h, w, c] or [n, frames, h, w, c] of what is encoded: the first
 * channels count, sides are cut in the middle, frames at the end. A picture that does not say how
 * opaque it is is so altogether. */
berth_status vae_decode_image(struct vae_job *j, const float *z, const struct shape *s, float *out,
                              berth_err *err);
berth_status vae_encode_image(struct vae_job *j, const float *image, const struct shape *s,
                              float *out, berth_err *err);
/* Such pictures as the network has them, cut to what it encodes. */
struct shape vae_pictures(const struct vae_net *v, const struct shape *image);
/* Peak of a pass, before it runs: of one item, since they go one by one, or of the largest tile the
 * job asks for. It is the compute device's memory; pictures, latents, tiles and their sums are host
 * buffers beside it: for each of the n items in and out, and with tiles 4 * (3 or z) bytes for
 * every pixel or latent pixel once more. */
berth_status vae_predict(struct vae_job *j, bool decode, const struct shape *s, uint64_t *peak,
                         berth_err *err);
