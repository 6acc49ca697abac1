/* lm: decoders of language models as text encoders: Qwen 2.5, 3 and 3.5, Llama, Mistral, Gemma 2
 * and 3 (llm-encoders.md). One network: their tensors tell them apart, and struct lm_kind has what
 * no tensor shows. Most layers of Qwen3.5 have no attention but a memory of fixed size (delta.h).
 *
 * Config     from names and shapes: heads from the length of the norms of q and k, where there are
 *            any, else from the kind's size of a head.
 * Padding    is hidden from text. A pad token in front of text sees other pads only, so its row
 *            differs from the reference's, which lets it see what follows; the row is never read.
 * Files      lm.c network; delta.c layers with a memory; host.c tables of angles, masks; speak.c
 *            writing text; vision.c, picture.c pictures; cuts.c; config.c; names.c other names of
 *            its tensors; encoders.c descriptors; lora.c; presets.c */
#pragma once

#include "model/encoder.h"

struct lm_delta;
struct lm_kind { /* what no tensor shows */
    const char *name;
    float eps;
    double theta;      /* of positions */
    uint32_t head_dim; /* where there is no norm of q and k to tell it */
    enum op_unary_kind act;
    bool from_one;               /* weights of norms count from 1 */
    bool sandwich;               /* norms behind attention and feed-forward, too */
    bool scaled;                 /* rows of tokens are multiplied by sqrt(width) */
    uint32_t window, full_every; /* layers see so far back, but each full_every-th sees all; 0: all
                                  * layers do */
    double window_theta;         /* of layers with a window */
    double stretch;              /* positions of layers that see all are divided by it; 0: 1 */
    /* Angles of pictures: how many of the frequencies go by time, row, column. Qwen2.5-VL has them
     * one after the other, Qwen3-VL interleaved. */
    uint32_t axis[3];
    bool interleaved;
    /* Qwen3.5: of a head only this part of its values turns, the first; 0: all of it. Those turn by
     * the axes one after the other over both halves of it, so the halves of a pair may differ. */
    uint32_t turns_part;
    bool speaks_flat;    /* where it writes, pictures have places like words */
    const int32_t *stop; /* ids that end generated text, then -1; NULL: it generates none */
};

enum lm_style { /* whose names its tensors have */
                LM_NONE,
                LM_HF,
                LM_GGUF,
                LM_NESTED, /* model.language_model.: as files with a vision tower are published */
};

struct lm_sight_net { /* the vision tower: vision.h */
    uint32_t blocks;  /* 0: it has none */
    uint64_t width;
    uint32_t heads;
    uint32_t patch;    /* pixels of a side */
    uint32_t deep;     /* rows that it gives beside its result; 0: none */
    uint32_t given[4]; /* behind which block each */
    uint32_t table;    /* a side of the table of positions; 0: there is none, Qwen2.5-VL */
};

struct lm_delta_net { /* layers with a memory: delta.h */
    uint32_t heads;   /* of values; 0: there are no such layers */
    uint32_t key_heads, head_dim;
    uint32_t kernel;     /* tokens that a convolution sees */
    uint32_t full_every; /* each such layer attends as others do */
};

struct lm_net {
    const struct lm_kind *kind;
    enum lm_style style;
    uint64_t width, vocab, mlp;
    uint32_t layers, heads, kv_heads, head_dim;
    uint32_t turned; /* values of a head that turn */
    bool gated;      /* queries come with a gate of what attention gives */
    struct lm_delta_net delta;
    bool qk_norm, bias;
    bool final_norm;
    bool head;        /* logits have a matrix of their own, not the table of tokens */
    bool head_inside; /* which the file has as model.lm_head */
    bool adjacent;    /* q and k were stored for turning adjacent pairs (llama.cpp's Llama) */
    struct lm_sight_net sight;
};

/* config.c */
enum lm_style lm_style(const struct weights *w, const char *root);
const char *lm_list(enum lm_style style); /* of layers, in the file */
const struct weights_entry *lm_entry(const struct weights *w, const char *root,
                                     const char *canonical);
berth_status lm_configure(const struct lm_kind *kind, const struct weights *w, const char *root,
                          struct lm_net *c, berth_err *err);
struct encoder_size lm_size(const void *config);

/* names.c */
net_names_fn lm_names;
bool lm_rename(enum lm_style style, const char *canonical, struct net_source *out);
/* A path of the file as ComfyUI has it. False: called so in both. */
bool lm_hf_path(enum lm_style style, const char *path, char *out, size_t n);

/* host.c */
void *lm_prepare(const struct encoder_pass *p);
struct lm_host {                 /* lm_prepare() */
    const float *angles, *local; /* [len, turned / 2, 2]; local: of layers with a window */
    const float *crossed;        /* the other half of pairs turns by these; NULL: by the same */
    const float *still;          /* [len, head_dim / 2, 2] that turn nothing; NULL: all turns */
    const float *mask;           /* [n, 1, 1, len]; NULL: all is text */
    struct lm_delta *delta;      /* [layers] that have a memory; NULL: none have */
    int64_t last;                /* position of the last token */
};
/* Of tokens at these positions, [3][len]: time, row, column. shown: [n, len], encoder_pass.shown.
 * Freed by free(); NULL: out of memory. */
struct lm_host *lm_host_new(const struct lm_net *c, const int64_t *position, size_t len,
                            const uint8_t *shown, size_t n);
/* Cosines and sines for positions [3][len]: time, row and column of each token. */
void lm_angles(const struct lm_kind *kind, uint32_t head_dim, double theta, double stretch,
               const int64_t *position, size_t len, float *out);

/* lm.c */
/* n rows of a [..., row] from `at` on, in the same place. */
struct act lm_rows(const struct act *a, uint64_t at, uint64_t n);
/* x += layer(h), so many rows at a time: what lies inside of a feed-forward is wide. */
typedef struct act lm_layer_fn(struct net_run *r, const void *net, struct act h);
void lm_add_by_rows(struct net_run *r, lm_layer_fn *layer, const void *net, struct act h,
                    struct act x, uint64_t at_a_time);
void lm_forward(struct net_run *r, const struct encoder_pass *p);

/* A step of writing text: tokens go in behind those before them, logits of the one that follows
 * come out. Keys and values of all layers are kept, in pieces of lm_kept_bytes(). */
struct lm_step {
    const struct lm_net *net;
    struct slots in; /* one chunk */
    const struct lm_host *host;
    const struct picture_rows *picture; /* of the first step */
    size_t pictures;
    size_t past, room; /* tokens before; for how many there is room */
    float *logits;     /* [vocab] */
};
void lm_step_forward(struct net_run *r, void *step);
/* Memory for so many tokens: lm_kept_pieces() of as many bytes as lm_kept_bytes() says.
 * UINT64_MAX: more than there are numbers for. */
uint64_t lm_kept_pieces(const struct lm_net *c);
uint64_t lm_kept_bytes(const struct lm_net *c, size_t room, size_t bytes_of_act);

/* speak.c */
extern const struct encoder_speech lm_speech;

/* lora.c */
void lm_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);
