/* patch: what nodes change inside a diffusion network.
 *
 * Words      place    where a network lets itself be changed: between blocks, in its attention, a
 *                     whole block. A family says which it offers (family.places)
 *            patch    a kind (what it does at which places) and its numbers
 * A forward asks at its places, through the doors below, and knows no patch by name; a patch knows
 * no network. Most of what patches compute has no op of its own: net_host() does it on the host.
 * Adding     a kind: functions and a struct in patches.c, a line in patches.def.
 * Files      patch.c the doors; patches.c, patches_attention.c, patches.def what there is. */
#pragma once

#include "net/net.h"
#include "sample/rng.h"

enum {                                /* places */
       PATCH_UNET_BLOCKS = 1 << 0,    /* input and output blocks with what is kept between them */
       PATCH_SELF_ATTENTION = 1 << 1, /* of a UNet's transformers */
       PATCH_STREAM_BLOCKS = 1 << 2, /* double and single blocks of a transformer can be left out */
       PATCH_JOINT_ATTENTION = 1 << 3, /* over text and picture at once */
       PATCH_POSITIONS = 1 << 4,       /* positions of the picture's tokens */
       PATCH_REFS = 1 << 5,            /* keys and values of pictures to look at can be kept */
};

enum patch_part { PATCH_INPUT, PATCH_MIDDLE, PATCH_OUTPUT, PATCH_DOUBLE, PATCH_SINGLE };
struct patch_at { /* which block asks */
    enum patch_part part;
    uint32_t block;
    uint64_t width; /* a UNet's channels at its first level */
};

struct family_batch;
struct guide_seen; /* sample/guide.h */
struct net_patch;
/* What patches share in a run of a sampler: random numbers, drawn as ComfyUI's draw them, which is
 * from torch's own generator behind the noise; and of merged tokens which is where. */
struct patch_run {
    struct torch_rng rng;
    uint32_t *row; /* [items, tokens]: of what attention gave; owned, patch_run_release() */
    size_t rows;   /* there is room for */
};
void patch_run_release(struct patch_run *p); /* zeroed is fine */
struct patch_attn {           /* what attention is about to be computed from, before its products */
    struct act q, k, v;       /* [B, T, C]; of self-attention they are one and the same */
    bool own_q, own_k, own_v; /* it is a patch's, and goes when the products are computed */
    bool self;
    bool changed;            /* by any patch */
    uint64_t tiles[4];       /* rows and columns of tiles and of all tokens; 0: not tiled */
    size_t merged;           /* tokens of q before some of them were merged; 0: none were */
    struct torch_rng *draws; /* of this pass; NULL: nobody draws */
};
struct patch_positions { /* position * scale + shift along each axis */
    double scale_x, shift_x, scale_y, shift_y, scale_t, shift_t;
};
struct net_patch_kind {
    const char *name;
    unsigned places; /* where it can be: a network needs one of them */
    bool pairs;      /* positive and negative must be in one pass: it is not split */
    /* An act behind an input block, before it is kept for the way up, or after that; and what an
     * output block begins with. Results are new acts; false: nothing changed. */
    bool (*kept)(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                 const struct family_batch *b, struct act h, struct act *out);
    bool (*after_kept)(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                       const struct family_batch *b, struct act h, struct act *out);
    bool (*output)(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                   struct act h, struct act skip, struct act *new_h, struct act *new_skip);
    /* What attention begins with: new acts instead of some. And what it gave, put back into the
     * order that the network knows: takes o. */
    void (*attends)(struct net_run *r, const struct net_patch *p, const struct family_batch *b,
                    struct patch_attn *a);
    struct act (*gives)(struct net_run *r, const struct family_batch *b, struct patch_attn *a,
                        struct act o);
    /* Self-attention returns its values as they are, without looking at other tokens. */
    bool (*blind)(const struct net_patch *p, const struct patch_at *at);
    /* Looks at queries and keys [B, T, heads * D]. */
    void (*seen)(struct net_run *r, const struct net_patch *p, const struct patch_at *at,
                 const struct family_batch *b, struct act q, struct act k, uint64_t heads);
    /* What attention gave [B, T, C]; joint: tokens of the text are in front. user: the
     * family_batch, whose patches of this kind it walks. */
    net_host_fn *attended, *attended_joint;
    bool (*leaves_out)(const struct net_patch *p, const struct patch_at *at);
    void (*positions)(const struct net_patch *p, struct patch_positions *out);
    /* Keys and values of pictures to look at are kept from the first step on (ref_cache.h), and
     * where nothing else is said, they count as free of noise. */
    bool keeps_refs;
};
#define PATCH_PARAMS 8
struct net_patch {
    const struct net_patch_kind *is;
    double p[PATCH_PARAMS];
    uint64_t blocks[2];           /* of double and of single blocks, a bit each */
    const struct hypernet *hyper; /* model/hypernet.h; borrowed; NULL: none */
    struct guide_seen *seen;      /* receives what it sees; NULL: nobody does. Borrowed */
};
#define NET_PATCH(name) extern const struct net_patch_kind patch_##name;
#include "model/patches.def"
#undef NET_PATCH

struct net_patches { /* in the order nodes added them; borrowed */
    const struct net_patch *at;
    size_t n;
    struct patch_run *run; /* NULL: none of them asks for it */
};

bool patch_wants_pairs(const struct net_patches *patches);
bool patch_keeps_refs(const struct net_patches *patches);

/* ---- doors of forwards; each takes the batch, whose patches it walks ---- */

/* h as patches leave it. *own: h is nobody else's and may go; it is set when h is new. */
struct act patch_kept(struct net_run *r, const struct family_batch *b, const struct patch_at *at,
                      struct act h, bool after, bool *own);
/* The same for h and skip; skip always belongs to the caller. */
void patch_output(struct net_run *r, const struct family_batch *b, const struct patch_at *at,
                  struct act *h, bool *own, struct act *skip);
/* What attention is computed from, as patches leave it, and what it gave, put back; o is taken. */
void patch_attends(struct net_run *r, const struct family_batch *b, struct patch_attn *a);
struct act patch_gives(struct net_run *r, const struct family_batch *b, struct patch_attn *a,
                       struct act o);
bool patch_is_blind(const struct family_batch *b, const struct patch_at *at);
void patch_sees(struct net_run *r, const struct family_batch *b, const struct patch_at *at,
                struct act q, struct act k, uint64_t heads);
/* Does any patch want what attention gives? */
bool patch_wants_attended(const struct family_batch *b, bool joint);
struct act patch_attended(struct net_run *r, const struct family_batch *b, struct act o,
                          bool joint); /* takes o */
bool patch_leaves_out(const struct family_batch *b, enum patch_part part, uint32_t block);
/* False: they stay as they are. */
bool patch_moves(const struct family_batch *b, struct patch_positions *out);
