/* zimage: the transformer of Z-Image (base, Turbo) and of its predecessor, Lumina-Image 2.0
 * (spec: z-image.md). One network, told apart by its shapes.
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            The modulation tells which of the two it is: Z-Image's layers take the embedded time
 *            as it is ("adaLN_modulation.0"), Lumina's through SiLU (".1"). Files in diffusers'
 *            names are translated (names.c); they keep q, k and v apart, which the forward knows.
 *            NewBie is a Lumina2 that also takes a pooled text. A relative with more to it (pixel
 *            space) is refused by name.
 * Sequence   Text and patches are embedded, filled up with pad tokens to multiples of 32 (Z-Image),
 *            refined apart, then joined: text first.
 * Host       Patches, positions and small vectors are made on the host, in buffers that outlive a
 *            pass: positions are the same for every step of a picture.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    zimage_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_zimage.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c patches and positions,
 *            forward.c, control.c networks that steer it, lora.c what adapters call its tensors,
 *            presets.c */
#pragma once

#include "format/weights.h"
#include "net/net.h"

struct arch_net;
struct control_class;
struct family_batch;
struct lora_table;

#define ZIMAGE_DEPTH_MAX 256       /* blocks of a kind */
#define ZIMAGE_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define ZIMAGE_AXES 3              /* of positions: place in the sequence, row, column */
#define ZIMAGE_PATCH 2             /* latent pixels a side */
#define ZIMAGE_TIME_WIDTH 256      /* of the embedding of one number */
#define ZIMAGE_PAD_TO 32           /* tokens */

struct zimage_net {                     /* what a file's transformer looks like */
    uint64_t in_channels, out_channels; /* of a latent */
    uint64_t hidden, ffn;               /* D; width inside of feed-forwards */
    uint64_t context_dim;
    uint64_t pooled_dim; /* NewBie: of the pooled text that goes into modulations; 0: none does */
    uint32_t heads, kv_heads, head_dim;
    uint32_t axis[ZIMAGE_AXES]; /* of head_dim: how much each axis turns; even, adds up to it */
    double theta;               /* of positions */
    uint64_t mod;               /* width of what modulations take */
    float time_scale;           /* of 1 - noise level, before it is embedded */
    uint32_t layers, noise_refiners, context_refiners;
    uint32_t pad_to; /* tokens of text, and of the picture, come in multiples of it; 1: any */
    bool lumina;     /* modulations take SiLU of the embedded time */
    bool diffusers;  /* the file has diffusers' names */
};
/* Is there such a transformer under root? */
bool zimage_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: not one of them, or one we cannot
 * run: says why. */
berth_status zimage_detect(const struct weights *w, const char *root, struct zimage_net *out,
                           berth_err *err);
/* For net_args, with the struct zimage_net as names_user, which then outlives the net. */
net_names_fn zimage_names;

/* What diffusers calls the layers, in files and in adapters. Lists end with a layer of NULL. */
struct zimage_name {
    const char *theirs, *layer; /* layer: as the forward asks for it */
    const char *in;             /* our stacked layer that it is rows of; NULL: it is whole there */
    enum { ZIMAGE_Q, ZIMAGE_K, ZIMAGE_V } part; /* of `in` */
};
extern const struct zimage_name zimage_once_names[], zimage_block_names[];
extern const char *const zimage_lists[]; /* of blocks: "layers", ...; NULL ends it */
/* Rows of "attention.qkv" that are queries, keys or values. */
void zimage_rows(const struct zimage_net *f, unsigned part, uint64_t *row, uint64_t *rows);

/* For its descriptor. */
extern const struct control_class zimage_control;
void zimage_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct zimage_host {
    float *table;  /* [text + picture, head_dim / 2, 2]: cos and sin of every position */
    size_t tokens; /* that it was made for; 0: none */
    uint64_t h, w;
    float *patches, *result; /* [n, picture, 4 * channels] goes in; [n, text + picture, same] comes
                                out. A pass that goes wrong on the way back is run again, so they
                                are two */
    size_t patches_cap, result_cap;
    float *time; /* [n] as they are embedded */
    size_t time_cap;
    int32_t *zeros; /* rows of pad tokens to look up: there is one */
    size_t zeros_cap;
    float *steer; /* what networks that steer a pass and it hand over (control.c) */
    size_t steer_cap;
};
/* Room for n floats in host->steer; what was in it is gone. */
bool zimage_host_steer(struct zimage_host *host, size_t n);
void zimage_host_release(struct zimage_host *host);

/* family.forward of it; host: for the latents it computes. */
berth_status zimage_forward(struct net *net, const struct zimage_net *f,
                            const struct family_batch *b, struct zimage_host *host, uint64_t *peak,
                            berth_err *err);

/* ---- host.c, for forward.c ---- */

struct zimage_sizes {    /* of a batch */
    uint64_t B;          /* latents */
    uint64_t text, L;    /* tokens of text, and with pads */
    uint64_t picture, I; /* patches, and with pads */
    uint64_t rows, cols; /* of patches */
};
/* BERTH_ELIMIT: more tokens than can be counted. */
berth_status zimage_sizes(const struct zimage_net *f, const struct family_batch *b,
                          struct zimage_sizes *out, berth_err *err);
/* Table, patches and small vectors of such a pass. */
berth_status zimage_host_fill(struct zimage_host *host, const struct zimage_net *f,
                              const struct family_batch *b, berth_err *err);
/* Patches [n, picture, 4 * channels] of latents s: [n, channels, h, w]. A token's features are
 * ordered row, column, channel of its pixels. Odd sizes wrap around to the first row and column. */
void zimage_patchify(const float *x, const struct shape *s, float *out);
/* And back, from sequences of `tokens` whose patches begin behind `first`; negated, as the network
 * predicts the direction towards the picture. What was wrapped around is left out. */
void zimage_unpatchify(const float *result, uint64_t tokens, uint64_t first, const struct shape *s,
                       float *out);
