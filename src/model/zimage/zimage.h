/* zimage: the transformer of Z-Image (base, Turbo) and of its predecessor, Lumina-Image 2.0
 * (spec: z-image.md). One network, told apart by its shapes.
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            The modulation tells which of the two it is: Z-Image's layers take the embedded time
 *            as it is ("adaLN_modulation.0"), Lumina's through SiLU (".1"). Files in diffusers'
 *            names are translated (names.c); they keep q, k and v apart, which the forward knows.
 *            NewBie is a Lumina2 that also takes a pooled text; Omni a Z-Image that is told what an
 *            encoder saw of pictures. A relative with more to it (pixel space) is refused by name.
 * Sequence   Text and patches are embedded, filled up with pad tokens to multiples of 32 (Z-Image),
 *            refined apart, then joined: text first. Pictures to look at stand in front of the one
 *            that is made, texts around them in front of the prompt; what was seen of them lies
 *            between texts and pictures (omni.c). Each is filled up by itself. They count as free
 *            of noise, so a pass has two modulations then.
 * Host       Patches, positions and small vectors are made on the host, in buffers that outlive a
 *            pass: positions are the same for every step of a picture.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    zimage_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_zimage.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c patches and positions,
 *            omni.c pictures to look at, forward.c, control.c networks that steer it, lora.c what
 *            adapters call its tensors, presets.c */
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
#define ZIMAGE_REFS_MAX 64         /* pictures to look at */
#define ZIMAGE_TEXTS_MAX 128       /* texts around them */

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
    uint32_t layers, noise_refiners, context_refiners, siglip_refiners;
    uint64_t siglip_dim; /* Omni: of what an encoder says of a patch; 0: nobody asks it */
    uint32_t pad_to;     /* tokens of text, and of the picture, come in multiples of it; 1: any */
    bool lumina;         /* modulations take SiLU of the embedded time */
    bool diffusers;      /* the file has diffusers' names */
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
    float *patches, *result; /* [n, pictures, 4 * channels] goes in; [n, picture and pads, same]
                                comes out. A pass that goes wrong on the way back is run again, so
                                they are two */
    size_t patches_cap, result_cap;
    float *time; /* [n] as they are embedded */
    size_t time_cap;
    int32_t *zeros; /* rows of pad tokens to look up: there is one */
    size_t zeros_cap;
    float *texts, *seen; /* [n, rows, *]: of all texts; of all pictures that were seen */
    size_t texts_cap, seen_cap;
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

/* ---- omni.c, for host.c and forward.c: what a sequence is made of ---- */

enum zimage_kind { ZIMAGE_TEXT, ZIMAGE_SEEN, ZIMAGE_PICTURE, ZIMAGE_KINDS };
struct zimage_part {       /* a text, a picture */
    uint64_t rows, tokens; /* of it, and with pads: all of them are pads where nothing is said */
};
/* How many of a kind, and the k-th of them in the order of the sequence. */
size_t zimage_parts(const struct zimage_net *f, const struct family_batch *b,
                    enum zimage_kind kind);
struct zimage_part zimage_part(const struct zimage_net *f, const struct family_batch *b,
                               enum zimage_kind kind, size_t k);
/* Positions of all of it: [T, head_dim / 2, 2]. */
void zimage_fill_table(const struct zimage_net *f, const struct family_batch *b, float *table);
/* Rows of item i of the batch, one part behind the other: what the network embeds. */
void zimage_gather_texts(const struct zimage_net *f, const struct family_batch *b, size_t i,
                         float *out);
void zimage_gather_seen(const struct zimage_net *f, const struct family_batch *b, float *out);
/* family.usual_more, for a network of this config. */
void zimage_usual_more(const struct zimage_net *f, struct family_batch *b);

/* ---- host.c, for forward.c ---- */

struct zimage_sizes {    /* of a batch */
    uint64_t B;          /* latents */
    uint64_t L, V, R, I; /* tokens, pads included: of texts, of what was seen, of pictures to look
                            at, of the one that is made. In this order */
    uint64_t T;          /* all of them */
    uint64_t told;       /* texts that belong to pictures: tokens in front of the prompt's */
    uint64_t rows[ZIMAGE_KINDS]; /* that are embedded */
    uint64_t picture;            /* patches of the one that is made */
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
