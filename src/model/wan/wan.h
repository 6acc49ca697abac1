/* wan: the video transformers of Wan 2.1 and 2.2 (spec: wan.md, wan-variants.md): text to video,
 * image to video, and their relatives, which are the same network with more going in.
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            What no tensor shows is that a head is 128 wide. An output of 48 channels is that of
 *            Wan 2.2's 5B, whose latents are others.
 * Sequence   Every 2 x 2 pixels of a latent frame are a token. A picture to look at (ref_conv)
 *            stands in front, subjects (Phantom) behind, as further frames.
 * VACE       has blocks of its own, whose tokens are made of latents and masks to follow. What they
 *            give is added behind some of the blocks. Without any it is told of nothing.
 * Camera     How it stands to every pixel is added to the patches.
 * Positions  Three numbers a token: frame, row, column. They are kept in F32, where ComfyUI rounds
 *            them to the type it computes in.
 * Times      One of each video, or of each latent frame where a noise mask keeps some (5B).
 * Text       goes in by cross-attention; what CLIP vision saw of pictures beside it, with keys and
 *            values of its own.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    wan_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_wan.c
 * Files      family.c the descriptor, config.c detection, names.c diffusers' names, host.c patches
 *            and positions, forward.c, lora.c what adapters call its tensors, presets.c */
#pragma once

#include "format/weights.h"
#include "model/diffusion.h"
#include "model/picture_tokens.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define WAN_DEPTH_MAX 256
#define WAN_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define WAN_HEAD 128            /* width of a head */
#define WAN_AXES TOKENS_AXES    /* of positions: frame, row, column */
#define WAN_PATCH TOKENS_PATCH  /* latent pixels a side */
#define WAN_TIME_WIDTH 256      /* of the embedding of one number */
#define WAN_SEEN_WIDTH 1280     /* of what CLIP vision sees */
#define WAN_VACE_MAX 16         /* that are followed at once */
#define WAN_VACE_MASKS 64       /* channels of a mask: 8 x 8 pixels */
#define WAN_CAMERA_SIDE 16      /* pixels of a token */
#define WAN_SEEN_MAX 1024       /* tokens of it that have positions */

struct wan_net { /* what a file's transformer looks like; first of the family's own, for names */
    uint64_t in_channels, out_channels; /* of a latent, with what is beside it going in */
    uint64_t hidden, mlp;               /* D; width inside of feed-forwards */
    uint64_t context_dim;
    uint32_t heads, depth;
    uint32_t axis[WAN_AXES]; /* of WAN_HEAD: how much each turns; even, adds up to it */
    bool sees;               /* takes what CLIP vision saw of pictures */
    uint64_t seen_most;      /* so many tokens of it, which have positions; 0: any, without */
    uint64_t ref_channels;   /* of a picture to look at, in front of the video; 0: it takes none */
    uint32_t vace_blocks;    /* 0: none */
    uint64_t vace_channels;  /* of what they follow: two latents and a mask */
    uint64_t camera;         /* channels of a pixel; 0: it is told of none */
    bool diffusers;          /* the file has diffusers' names */
};
bool wan_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. */
berth_status wan_detect(const struct weights *w, const char *root, struct wan_net *out,
                        berth_err *err);

/* For its descriptor. */
net_names_fn wan_names;
void wan_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);
/* diffusers' name of a layer's path; false: called so there, too. */
bool wan_diffusers_path(const char *path, char *out, size_t n);

/* Tokens of a pass. */
struct wan_sizes {
    uint64_t frames, rows, columns; /* of tokens: the latent's, and what goes on behind it */
    uint64_t video;                 /* frames * rows * columns */
    uint64_t kept;                  /* of them those of the latent: what comes out */
    uint64_t ref;                   /* in front of them */
    uint64_t seen;                  /* by CLIP vision */
    uint64_t times;                 /* of one item: 1, or one for each latent frame */
    uint64_t vace;                  /* that are followed */
    float strength[WAN_VACE_MAX];   /* of each */
    bool camera;                    /* is told */
};
/* BERTH_ELIMIT: too large. BERTH_EINVAL: what goes in does not fit the network or the latent. */
berth_status wan_sizes(const struct wan_net *f, const struct family_batch *b, struct wan_sizes *out,
                       berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct wan_host {
    struct tokens_room table,  /* [ref + video, WAN_HEAD / 2, 2]: cos and sin of every position */
        patches,               /* [n, video, 4 * in_channels] */
        ref,                   /* [n, ref, 4 * ref_channels] */
        seen,                  /* [n, seen, WAN_SEEN_WIDTH] */
        vace,                  /* [vace, n, video, 4 * vace_channels] */
        camera,                /* [n, video, camera * WAN_CAMERA_SIDE^2] */
        result,                /* [n, kept, 4 * out_channels] */
        time;                  /* [n, times] */
    int32_t row[WAN_SEEN_MAX]; /* 0, 1, ... */
};
void wan_host_release(struct wan_host *host);
/* All of it, for such a pass. */
berth_status wan_host_fill(struct wan_host *host, const struct wan_net *f,
                           const struct family_batch *b, const struct wan_sizes *s, berth_err *err);
/* host->result to b->out. */
void wan_host_give(const struct wan_host *host, const struct wan_net *f,
                   const struct family_batch *b);

/* family.forward of it; host: for the latents it computes. */
berth_status wan_forward(struct net *net, const struct wan_net *f, const struct family_batch *b,
                         struct wan_host *host, uint64_t *peak, berth_err *err);
