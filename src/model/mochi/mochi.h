/* mochi: the transformer of Mochi 1 (spec: mochi.md).
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 * Streams    The video's patches, and text of another width, which look at each other in every
 *            block. Text that is hidden is left out: nobody would look at it. The last block leaves
 *            text as it is.
 * Positions  Frequencies are learned, another for every head, and so the file's; angles are their
 *            sums over frame, row and column. Rows and columns are spread over an area that is the
 *            same for every size. All of it is kept in F32, where ComfyUI rounds it to the type it
 *            computes in.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    mochi_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_mochi.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c patches and positions,
 *            forward.c, lora.c what adapters call its tensors, presets.c */
#pragma once

#include "format/weights.h"
#include "model/picture_tokens.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define MOCHI_DEPTH_MAX 256
#define MOCHI_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define MOCHI_PATCH TOKENS_PATCH
#define MOCHI_TIME_WIDTH 256 /* of the embedding of one number */
#define MOCHI_POOL_HEADS 8   /* of the attention that makes one vector of a text */

struct mochi_net { /* what a file's transformer looks like */
    uint64_t channels, hidden, text_hidden, context_dim, mlp, text_mlp;
    uint32_t depth, heads;
    float *frequency; /* [3, heads, head / 2]; owned */
};
bool mochi_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. On success mochi_release() it. */
berth_status mochi_detect(const struct weights *w, const char *root, struct mochi_net *out,
                          berth_err *err);
void mochi_release(struct mochi_net *f); /* zeroed is fine */
/* For net_args, with the struct mochi_net as names_user, which then outlives the net. */
net_names_fn mochi_names;

/* For its descriptor. */
void mochi_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* Tokens of a pass. BERTH_ELIMIT: too large. */
struct mochi_sizes {
    uint64_t text, picture;
};
berth_status mochi_sizes(const struct family_batch *b, struct mochi_sizes *out, berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct mochi_host {
    struct tokens_room table, /* [picture * heads, head / 2, 2]: cos, sin of positions */
        axes,                 /* scratch: those of frames, rows, columns */
        patches,              /* [n, picture, 4 * channels] */
        result,               /* the same, in the network's order */
        context,              /* [n, 1 + text, context_dim]: the mean of a text in front of it */
        time;                 /* [n]: as they are embedded */
};
void mochi_host_release(struct mochi_host *host);
/* All of it, for such a pass. */
berth_status mochi_host_fill(struct mochi_host *host, const struct mochi_net *f,
                             const struct family_batch *b, const struct mochi_sizes *s,
                             berth_err *err);
/* What came out, to b->out. */
void mochi_host_give(const struct mochi_host *host, const struct mochi_net *f,
                     const struct family_batch *b);

/* family.forward of it; host: for the latents it computes. */
berth_status mochi_forward(struct net *net, const struct mochi_net *f, const struct family_batch *b,
                           struct mochi_host *host, uint64_t *peak, berth_err *err);
