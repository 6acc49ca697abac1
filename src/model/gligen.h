/* gligen: boxes of a picture with a text for each, that a UNet of SD1 is to keep to (GLIGEN).
 *
 * A file has, for each transformer block of the UNet, a gated self-attention over the picture's
 * tokens and those of the boxes ("fuser"), and a small network that makes a token of a box and its
 * text ("position_net"). There are always GLIGEN_BOXES tokens: those nobody asked for are the
 * file's own for "no box".
 *
 * Flow     gligen_open() beside the UNet's net, whose guest it becomes (net.h, Guests);
 *          gligen_features() on the host for each size of latents; in a pass gligen_objects() once
 *          and gligen_fuse() behind each self-attention.
 * Threads  Executor; gligen_check() any. */
#pragma once

#include "format/weights.h"
#include "net/net.h"

#define GLIGEN_BOXES 30

struct gligen_box {    /* host memory, borrowed */
    const float *text; /* [text of gligen_width()] */
    double h, w, y, x; /* of latent pixels */
};

struct gligen;
/* BERTH_EUNSUPPORTED: no GLIGEN of boxes and texts: says why. *text (may be NULL): their width. */
berth_status gligen_check(const struct weights *w, uint64_t *text, berth_err *err);
/* a: as net_args but root and names; a->m is loaded. It becomes the guest of `of`. */
berth_status gligen_open(const struct net_args *a, struct net *of, struct gligen **out,
                         berth_err *err);
void gligen_close(struct gligen *g);          /* after the net it is a guest of; NULL is fine */
uint64_t gligen_text(const struct gligen *g); /* width of texts */
uint64_t gligen_features_n(const struct gligen *g); /* floats of gligen_features() */
/* What position_net is given for boxes of latents of h x w: [GLIGEN_BOXES, ...]. n: no more than
 * that many. */
void gligen_features(const struct gligen *g, const struct gligen_box *box, size_t n, uint64_t h,
                     uint64_t w, float *out);

/* ---- in a pass of the UNet ---- */

/* Tokens [B, GLIGEN_BOXES, width]; features: B times those of above. */
struct act gligen_objects(struct net_run *r, const struct gligen *g, const float *features,
                          uint64_t B);
/* x [B, T, C] with what the boxes add, in its place; behind the prefix of a transformer block. */
struct act gligen_fuse(struct net_run *r, const struct gligen *g, struct act x, struct act objects);
