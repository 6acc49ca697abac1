/* krea2: the transformer of Krea 2 (spec: krea2.md).
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 * Text       A prompt comes as what enters several layers of its encoder ("taps"). Of each token
 *            these are fused first, as a sequence of their own, then tokens look at each other.
 * Sequence   Text, the picture's patches, those of pictures to look at: one stream, one modulation.
 * Pictures   to look at count only where a node says how they are placed. Each stands in a layer of
 *            its own, whatever was said; "timestep_zero" also has them free of noise.
 * Hidden     text is seen all the same: the model knows no masks.
 * Norms      have weights that count from 1, called "scale" in files (names.c).
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    krea2_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_krea2.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c patches and positions,
 *            forward.c, lora.c what adapters call its tensors, presets.c */
#pragma once

#include "format/weights.h"
#include "model/picture_tokens.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define KREA2_DEPTH_MAX 256
#define KREA2_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define KREA2_REFS_MAX 64         /* pictures to look at */
#define KREA2_TAPS_MAX 256
#define KREA2_PATCH TOKENS_PATCH
#define KREA2_TIME_WIDTH 256 /* of the embedding of one number */

struct krea2_heads { /* of an attention */
    uint32_t q, kv, wide;
};
struct krea2_net {                      /* what a file's transformer looks like */
    uint64_t in_channels, out_channels; /* of a latent */
    uint64_t hidden;                    /* D */
    uint64_t text_dim;                  /* of one tap */
    uint32_t taps, depth;
    uint32_t layerwise, refiners; /* blocks over taps, and over tokens of text */
    struct krea2_heads heads, text_heads;
    uint32_t axis[TOKENS_AXES]; /* of heads.wide: how much each turns; even, adds up to it */
};
bool krea2_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. */
berth_status krea2_detect(const struct weights *w, const char *root, struct krea2_net *out,
                          berth_err *err);
/* For net_args, with the struct krea2_net as names_user, which then outlives the net. */
net_names_fn krea2_names;

/* For its descriptor. */
void krea2_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* Tokens of a pass. */
struct krea2_sizes {
    uint64_t text, picture, refs;
    size_t looks; /* pictures to look at that count */
    bool zero;    /* they are free of noise */
};
/* BERTH_ELIMIT: too large, or too many to look at. BERTH_EUNSUPPORTED: frames. */
berth_status krea2_sizes(const struct family_batch *b, struct krea2_sizes *out, berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct krea2_host {
    struct tokens_room
        table,   /* [text + picture + refs, heads.wide / 2, 2]: cos, sin of positions */
        still,   /* [text or taps, text_heads.wide / 2, 2]: the same where nothing is turned */
        patches, /* [n, picture + refs, 4 * channels] */
        result,  /* [n, picture, 4 * channels] */
        time;    /* [2 n]: as they are embedded, then as many zeros */
};
void krea2_host_release(struct krea2_host *host);
/* All of it, for such a pass. */
berth_status krea2_host_fill(struct krea2_host *host, const struct krea2_net *f,
                             const struct family_batch *b, const struct krea2_sizes *s,
                             berth_err *err);

/* family.forward of it; host: for the latents it computes. */
berth_status krea2_forward(struct net *net, const struct krea2_net *f, const struct family_batch *b,
                           struct krea2_host *host, uint64_t *peak, berth_err *err);
