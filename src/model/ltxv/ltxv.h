/* ltxv: the transformer of LTX-Video 0.9.x, 2B and 13B (spec: ltxv.md).
 *
 * Config     from names and shapes, as far as they tell: heads are always 32, and what the metadata
 *            says in "config" counts more. Nothing but that says how time is counted (causal, since
 *            0.9.5).
 * Sequence   A token for every latent pixel, by frame, row, column; its features are the channels.
 *            Text is looked at apart, in every block.
 * Times      Of a latent that is partly known every token has a noise level of its own: what of the
 *            noise mask is at its place. Tokens that follow each other with the same level share a
 *            modulation; there are few levels as a rule, so few rows are embedded.
 * Guides     Latent frames at the end may stand for other places of the video. They are tokens like
 *            all others, with positions of their own, and how much the rest and they look at each
 *            other can be said (host.c). Those of a dilated guide that are empty are left out.
 * Positions  are pixels and seconds, as parts of the largest ones; the tables of their angles are
 *            as wide as a token, since every head has other frequencies. They are kept in F32;
 *            ComfyUI rounds them to the type it computes in.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    ltxv_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_ltxv.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c tokens, positions, noise
 *            levels and guides, forward.c, presets.c */
#pragma once

#include "format/weights.h"
#include "model/picture_tokens.h"
#include "net/net.h"

struct family_batch;

#define LTXV_DEPTH_MAX 256
#define LTXV_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define LTXV_GUIDES_MAX 256
#define LTXV_TIME_WIDTH 256 /* of the embedding of one number */
#define LTXV_HEADS 32       /* where no metadata says otherwise */
#define LTXV_RATE 25.0      /* frames a second, where nobody says it */

struct ltxv_net { /* what a file's transformer looks like */
    uint64_t channels, hidden, context_dim, mlp;
    uint32_t depth, heads;
    bool causal;  /* the first latent frame is one frame, not eight */
    bool middle;  /* positions are the middles of tokens, not their corners */
    bool precise; /* frequencies are computed in double */
    double theta;
    double most[TOKENS_AXES]; /* of positions: seconds, rows, columns */
    double times;             /* noise levels, before they are embedded */
};
bool ltxv_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. */
berth_status ltxv_detect(const struct weights *w, const char *root, struct ltxv_net *out,
                         berth_err *err);
/* For net_args, with the struct ltxv_net as names_user, which then outlives the net. */
net_names_fn ltxv_names;

/* Tokens behind each other, of all items of a batch, that are modulated alike. */
struct ltxv_piece {
    uint64_t items;  /* 1, or more that have as many tokens each */
    uint64_t tokens; /* of one */
    uint64_t at;     /* the first of all tokens */
    uint64_t row;    /* of the first one's modulation */
};
/* Queries of guides behind each other that look at the rest with one mask, or with a row each. */
struct ltxv_look {
    uint64_t at, n; /* queries */
    uint64_t rows;  /* of the mask: 1 or n */
    uint64_t from;  /* its first value in ltxv_host.looks */
};

struct ltxv_sizes {  /* of a pass */
    uint64_t all;    /* tokens of an item's latent */
    uint64_t tokens; /* of those, all that are no empty cells of guides */
    uint64_t guides; /* of those, the last ones */
    uint64_t text;   /* tokens that are to be seen */
    bool weighed;    /* how much guides are looked at was said */
};
/* BERTH_ELIMIT: too large. BERTH_EINVAL: guides for latents of another size. */
berth_status ltxv_sizes(const struct family_batch *b, struct ltxv_sizes *out, berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct ltxv_host {
    struct tokens_room table, /* [tokens, hidden / 2, 2]: cos, sin of positions */
        axes,                 /* scratch: those of frames, rows, columns */
        tokens,               /* [n, tokens, channels] */
        result,               /* the same */
        context,              /* [n, text, context_dim] */
        time,                 /* [rows]: as they are embedded */
        noisy,                /* [tokens]: added to what all but guides look at */
        looks;                /* the same of guides, by ltxv_look */
    struct ltxv_piece *piece;
    struct ltxv_look *look;
    size_t pieces, piece_cap, look_n, look_cap;
    uint64_t rows; /* of modulations */
};
void ltxv_host_release(struct ltxv_host *host);
/* All of it, for such a pass. */
berth_status ltxv_host_fill(struct ltxv_host *host, const struct ltxv_net *f,
                            const struct family_batch *b, const struct ltxv_sizes *s,
                            berth_err *err);
/* What came out, to b->out; cells that were left out are 0. */
void ltxv_host_give(const struct ltxv_host *host, const struct family_batch *b,
                    const struct ltxv_sizes *s);

/* family.forward of it; host: for the latents it computes. */
berth_status ltxv_forward(struct net *net, const struct ltxv_net *f, const struct family_batch *b,
                          struct ltxv_host *host, uint64_t *peak, berth_err *err);
