/* qwen_image: the transformer of Qwen-Image, of its editing models (Edit, Edit-Plus 2509 and 2511)
 * and of Qwen-Image-Layered (spec: qwen-image.md, qwen-image-edit.md).
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            diffusers' names are the network's own. A tensor without values marks the editing
 *            models whose pictures to look at count as free of noise; a table of a second time
 *            embedding marks layered ones.
 * Sequence   Text first, then the picture's patches, then those of pictures to look at, in one
 *            buffer from the first layer to the last; both streams work on slices of it.
 * Positions  Three numbers a token: layer, row, column. Pictures have their middle at 0, each its
 *            own; text comes behind the picture's corner. They are kept in F32, where ComfyUI
 *            rounds their sines to the type it computes in.
 * Hidden     Masked text is left out of the sequence. It has no part in any result, and the rest
 *            keeps its positions.
 * Kept refs  Where a node asks for it, keys and values of pictures to look at are kept from the
 *            first step of a run (model/ref_cache.h).
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    qwen_image_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_qwen_image.c
 * Files      family.c the descriptor, config.c detection, host.c patches and positions, forward.c,
 *            control.c networks that steer it, instantx.c control nets, lora.c
 *            what adapters call its tensors, presets.c */
#pragma once

#include "format/weights.h"
#include "model/diffusion.h"
#include "model/picture_tokens.h"
#include "model/ref_cache.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define QWEN_IMAGE_DEPTH_MAX 256
#define QWEN_IMAGE_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define QWEN_IMAGE_REFS_MAX 64         /* pictures to look at */
#define QWEN_IMAGE_AXES TOKENS_AXES    /* of positions: layer, row, column */
#define QWEN_IMAGE_PATCH TOKENS_PATCH  /* latent pixels a side */
#define QWEN_IMAGE_TIME_WIDTH 256      /* of the embedding of one number */

struct qwen_image_net {                 /* what a file's transformer looks like */
    uint64_t in_channels, out_channels; /* of a latent */
    uint64_t hidden, mlp;               /* D; width inside of feed-forwards */
    uint64_t context_dim;
    uint32_t heads, head_dim, depth;
    uint32_t axis[QWEN_IMAGE_AXES]; /* of head_dim: how much each turns; even, adds up to it */
    bool layered;                   /* has the second time embedding */
    enum diffusion_ref_method refs; /* how pictures to look at are placed by default */
};
bool qwen_image_at(const struct weights *w, const char *root);
/* A control net of it, which is such a transformer without a way out (instantx.c). */
bool qwen_image_control_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: none, or one we cannot run: says
 * why. */
berth_status qwen_image_detect(const struct weights *w, const char *root,
                               struct qwen_image_net *out, berth_err *err);

/* The same of one without a way out. */
berth_status qwen_image_detect_control(const struct weights *w, const char *root,
                                       struct qwen_image_net *out, berth_err *err);

/* For its descriptor. */
void qwen_image_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* Tokens of a pass. */
struct qwen_image_sizes {
    uint64_t text, picture, refs;
    bool zero; /* refs count as free of noise */
    bool kept; /* their keys and values are of an earlier pass: their tokens are left out */
};
/* BERTH_ELIMIT: too large, or too many to look at. BERTH_EINVAL: no text is left to be seen. */
berth_status qwen_image_sizes(const struct qwen_image_net *q, const struct family_batch *b,
                              struct qwen_image_sizes *out, berth_err *err);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct qwen_image_host {
    struct tokens_room
        table,   /* [text + picture + refs, head_dim / 2, 2]: cos and sin of every position */
        patches, /* [n, picture + refs, 4 * channels]; refs unless they are kept */
        result,  /* [n, picture, 4 * channels] */
        context, /* [n, text, context_dim], where some of it is hidden */
        time,    /* [n or 2 n]: as they are embedded, then the same number of zeros */
        steer,   /* what a steered pass hands over */
        hint;    /* [n or 1, picture, 4 * channels]: what a control net looks at */
    struct ref_cache cache;
};
void qwen_image_host_release(struct qwen_image_host *host);
/* All of it, for such a pass. */
berth_status qwen_image_host_fill(struct qwen_image_host *host, const struct qwen_image_net *q,
                                  const struct family_batch *b, const struct qwen_image_sizes *s,
                                  berth_err *err);

/* control.c: networks that steer it by a picture, block by block (DiffSynth's). */
extern const struct control_class qwen_image_control;
struct qwen_image_between { /* what a steered pass hands over from part to part */
    const struct qwen_image_net *q;
    const struct family_batch *in;
    struct qwen_image_sizes size;
    /* What goes into a part and what comes out of it are apart: one that goes wrong on the way back
     * is run again. */
    float *x, *x_out;           /* [n, tokens, D] */
    float *vec;                 /* [n or 2 n, D]: made by the first part */
    float *tokens, *tokens_out; /* [n, picture, D] */
    float *patches;             /* of every network, [picture, 4 * channels] */
};
/* All but the first three, in host memory. */
berth_status qwen_image_between_open(struct qwen_image_between *b, struct qwen_image_host *host,
                                     berth_err *err);
/* x becomes x_out, what this block gave, with what all networks add to it. */
berth_status qwen_image_steer(struct qwen_image_between *b, uint32_t block, berth_err *err);

/* control_kind.turn of its control nets; host: of the net. */
struct control_turn;
berth_status qwen_image_turn(struct net *net, const struct qwen_image_net *q,
                             struct control_turn *t, struct qwen_image_host *host, uint64_t *peak,
                             berth_err *err);

/* family.forward of it; host: for the latents it computes. */
berth_status qwen_image_forward(struct net *net, const struct qwen_image_net *q,
                                const struct family_batch *b, struct qwen_image_host *host,
                                uint64_t *peak, berth_err *err);
