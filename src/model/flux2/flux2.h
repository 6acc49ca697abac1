/* flux2: the transformer of Flux.2 dev and of the smaller klein, 4B and 9B (spec: flux2.md).
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            Norms of queries and keys are called "scale" in some files and "weight" in others.
 * Flux.1     has the same two kinds of blocks. Here one modulation serves all blocks of a kind,
 *            feed-forwards are gated, no layer has a bias, a patch is one latent pixel and
 *            positions have a fourth axis, the text's. What is left in common is how a guidance is
 *            rounded and what diffusers calls the layers (flux.h).
 * Sequence   Text first, then the picture's pixels, then those of pictures to look at, in one
 *            buffer from the first layer to the last; both streams of a double block work on
 *            slices of it.
 * Kept refs  Where a node asks for it, keys and values of pictures to look at are kept from the
 *            first step of a run, and later steps leave their tokens out (model/ref_cache.h).
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    flux2_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_flux2.c
 * Files      family.c the descriptor, config.c detection, host.c tokens and positions, forward.c,
 *            lora.c what adapters call its tensors, presets.c */
#pragma once

#include "format/weights.h"
#include "model/diffusion.h"
#include "model/ref_cache.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define FLUX2_DEPTH_MAX 256       /* blocks of a kind */
#define FLUX2_REFS_MAX 64         /* pictures to look at */
#define FLUX2_WIDTH_MAX (1 << 20) /* of anything a row is made of: linear1 has 9 x 6144 rows */
#define FLUX2_AXES 4              /* of positions: which picture, row, column, word */
#define FLUX2_TIME_WIDTH 256      /* of the embedding of one number */

struct flux2_net {                      /* what a file's transformer looks like */
    uint64_t in_channels, out_channels; /* of a latent */
    uint64_t hidden, mlp;               /* D; width inside of feed-forwards, behind the gate */
    uint64_t context_dim;
    uint32_t heads, head_dim;
    uint32_t axis; /* of head_dim: how much each axis turns, a quarter */
    uint32_t depth, depth_single;
    bool guidance;    /* has the embedding of it (dev) */
    bool scale_names; /* norms of queries and keys are called "scale" */
};
bool flux2_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. */
berth_status flux2_detect(const struct weights *w, const char *root, struct flux2_net *out,
                          berth_err *err);
/* For net_args: `names`, with the struct flux2_net as names_user. NULL: the file has our names. */
net_names_fn *flux2_names(const struct flux2_net *f);

/* For its descriptor. */
void flux2_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

struct flux2_sizes { /* tokens of a pass */
    uint64_t text, picture, refs;
    bool zero; /* refs count as free of noise */
    bool kept; /* their keys and values are of an earlier pass: their tokens are left out */
};
/* BERTH_ELIMIT: too large, or too many to look at. */
berth_status flux2_sizes(const struct family_batch *b, struct flux2_sizes *out, berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct flux2_host {
    struct flux2_buffer {
        float *p;
        size_t cap;
    } table,    /* [text + picture + refs, head_dim / 2, 2]: cos and sin of every position */
        tokens, /* [n, picture + refs, channels]; refs unless they are kept */
        result, /* [n, picture, channels] */
        number; /* [3, n]: times, zeros and guidances as they are embedded */
    struct ref_cache cache;
};
void flux2_host_release(struct flux2_host *host);
/* All of it, for such a pass; act: what guidances are rounded to (flux.h). */
berth_status flux2_host_fill(struct flux2_host *host, const struct flux2_net *f,
                             const struct family_batch *b, const struct flux2_sizes *s,
                             enum dtype act, berth_err *err);
/* What came out, as latents. */
void flux2_host_give(const struct flux2_host *host, const struct flux2_net *f,
                     const struct family_batch *b);

/* family.forward of it; host: for the latents it computes. */
berth_status flux2_forward(struct net *net, const struct flux2_net *f, const struct family_batch *b,
                           struct flux2_host *host, uint64_t *peak, berth_err *err);
