/* hunyuan_video: the transformer of HunyuanVideo 1.0 (spec: hunyuan-video.md).
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            Files have the names of its authors or those that ComfyUI gives them (names.c).
 * Sequence   Text first, then the video's patches, in one buffer from the first layer to the last;
 *            double blocks work on slices of it, single ones on all of it. What of a text is hidden
 *            is left out.
 * Text       goes through blocks of its own first (the refiner), which look at the noise level and
 *            at the mean of the whole text, what is hidden of it included.
 * Positions  Three numbers a token: frame, row, column; text is at 0. They are kept in F32, where
 *            ComfyUI rounds their sines to the type it computes in.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    hunyuan_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_hunyuan_video.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c patches and positions,
 *            forward.c, lora.c what adapters call its tensors, presets.c */
#pragma once

#include "format/weights.h"
#include "model/picture_tokens.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define HUNYUAN_DEPTH_MAX 256
#define HUNYUAN_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define HUNYUAN_PATCH TOKENS_PATCH
#define HUNYUAN_TIME_WIDTH 256 /* of the embedding of one number */

struct hunyuan_net { /* what a file's transformer looks like */
    uint64_t in_channels, out_channels, hidden, context_dim, vector_dim, mlp;
    uint32_t depth, single, refiners, heads;
    uint32_t axis[TOKENS_AXES]; /* of a head: how much each turns */
    bool guidance;              /* has an embedding of it */
    bool authors, scales;       /* the names that the file has (names.c) */
};
bool hunyuan_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. */
berth_status hunyuan_detect(const struct weights *w, const char *root, struct hunyuan_net *out,
                            berth_err *err);
/* For net_args, with the struct hunyuan_net as names_user, which then outlives the net. */
net_names_fn hunyuan_names;
/* The authors' name of a layer or tensor; false: it is called so by them, too. */
bool hunyuan_authors_name(const char *ours, char *out, size_t n);

/* For its descriptor. */
void hunyuan_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* Tokens of a pass. BERTH_ELIMIT: too large. */
struct hunyuan_sizes {
    uint64_t text, picture;
};
berth_status hunyuan_sizes(const struct family_batch *b, struct hunyuan_sizes *out, berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct hunyuan_host {
    struct tokens_room table, /* [text + picture, head / 2, 2]: cos, sin of positions */
        patches,              /* [n, picture, 4 * channels] */
        result,               /* the same */
        context,              /* [n, text, context_dim] */
        mean,                 /* [n, context_dim]: of the whole text */
        number;               /* [n] noise levels, then as many guidances */
};
void hunyuan_host_release(struct hunyuan_host *host);
/* All of it, for such a pass; act: of activations. */
berth_status hunyuan_host_fill(struct hunyuan_host *host, const struct hunyuan_net *f,
                               const struct family_batch *b, const struct hunyuan_sizes *s,
                               enum dtype act, berth_err *err);

/* family.forward of it; host: for the latents it computes. */
berth_status hunyuan_forward(struct net *net, const struct hunyuan_net *f,
                             const struct family_batch *b, struct hunyuan_host *host,
                             uint64_t *peak, berth_err *err);
