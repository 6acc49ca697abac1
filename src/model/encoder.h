/* encoder: prompts to conditionings, by text encoders and the sets of them that models use.
 *
 *     n = text_find(w, NULL, found);                      which encoders a file holds, and where
 *     text_encoder_init(&enc[i], w, &found[i], &mem, err) config from names and shapes
 *     text_set_find(found, n, "sdxl", &set, err)          what they are for, together
 *     text_encode(&args, prompt, prompts, &mem, &cond, err)
 *     text_answer(&args, prompt, &ask, &ids, err)         what a language model writes to it
 *
 * Words      encoder  one network (CLIP-L, CLIP-G, T5, Qwen3)
 *            set      those that make one conditioning (SDXL: L and G; Flux: T5 and L)
 *            place    a prefix that checkpoints are known to have in front of an encoder's tensors;
 *                     root: the prefix that is really there
 *            skip     clip skip: which hidden layer is the result (CLIPSetLastLayer)
 * Adding     an encoder: a folder src/model/<x>/ that exports `const struct encoder_class
 *            encoder_<x>`, and a line in encoders.def. A set: a `const struct text_set
 *            text_set_<x>` in sets/, and a line in text_sets.def. Nothing outside of these asks
 *            which encoder or set it has.
 * Weights    are used as stored. ComfyUI keeps CLIPs as F16 by default, and a T5 in the type of its
 *            last norm, or F16 if that is F32 (text-encoders.md 8). Loaders therefore open F32
 *            files as F16 (plan/convert.h) unless --fp32-text-enc is given. The golden numbers are
 *            from unrounded F32 ones.
 * Numbers    z and pooled of a chunk do not depend on the other chunks of a pass (op/ops.h, Same
 *            bits), so long prompts can run in several passes.
 * Files      clip/, t5/, lm/ the encoders; sets/ the sets; slots.c tokens and vectors to what
 *            networks take; encoder_find.c where encoders are in a file; text_sets.c which set they
 *            make; encoder_run.c passes, pictures; encoder.c tokens, weighting, answers; speech.c
 *            which token is said next */
#pragma once

#include "model/arch.h"
#include "model/slots.h"
#include "model/speech.h"
#include "net/net.h"
#include "text/chat.h"

struct text_encoder;

#define TEXT_ENCODERS_MAX 4 /* of a set, and of a file */

/* ---- encoders ---- */

struct encoder_want { /* which of its outputs an encoder gives */
    int layer;        /* 0: the last, normed; negative: a hidden layer counted from the end; one
                       * before the first means 0 */
    bool norm_hidden; /* final norm on a hidden layer, too */
    bool project;     /* pooled goes through the projection, if there is one */
    /* Instead of a layer's output: what enters each of these layers, ascending; the number of
     * layers stands for what leaves the last one, normed. z is then [taps, rows, width]. */
    const uint32_t *tap;
    uint32_t taps; /* 0: none; TEXT_TAPS_ALL: of every layer, and the last one's result */
};
#define TEXT_TAPS_ALL UINT32_MAX

struct encoder_size { /* what a config says */
    uint64_t width, vocab;
    uint64_t tokens; /* at most, of a chunk */
    uint32_t layers;
    uint32_t chunks; /* of a pass, at most: memory does not grow with the prompt */
    bool pooled;     /* it has a pooled output */
    bool zero_nans;  /* NaNs in the table of tokens count as 0 */
    float scale;     /* of rows of that table; 0: 1 */
};

/* A picture's place in a prompt: rows of chunk 0, that were made of it and stand in it as
 * vectors. */
struct picture_rows {
    size_t at, n;        /* first row; how many */
    uint32_t high, wide; /* n = high * wide, row by row */
    /* [deep][n, width], added to the rows behind the first so many layers (Qwen3-VL). */
    const float *deeper;
    uint32_t deep;
};

struct encoder_pass { /* what a forward is given */
    const struct encoder_class *is;
    const void *config;
    const struct encoder_want *want;
    struct slots in;
    int32_t *lookup; /* encoder_class.lookup(); NULL: it has none */
    void *own;       /* encoder_class.prepare(); NULL: it has none */
    /* [in.n, in.len], where pads are hidden: 0 is padding, which no token sees; NULL: all is
     * text. */
    const uint8_t *shown;
    const struct picture_rows *picture; /* in order */
    size_t pictures;
    int64_t hidden;  /* index of the layer whose output is z; -1: the last */
    size_t text_end; /* slot of chunk 0: the first end token, vectors of embeddings counted */
    float *z;        /* [in.n, in.len, width], as often as there are taps; NULL: not wanted */
    float *pooled;   /* [width] of chunk 0; NULL: not wanted */
};

struct text_picture { /* what a prompt shows beside what it says */
    const float *rgb; /* [height, width, 3], 0 to 1 */
    size_t width, height;
};
/* How an encoder sees. A picture comes in the place of a token, as rows of the encoder's width. */
struct encoder_sight {
    int32_t token;
    bool (*there)(const void *config); /* files may come without */
    /* What a pass over the picture needs from the host, freed by free(); and how many rows it
     * gives, rows->at and deeper left out. */
    berth_status (*prepare)(const void *config, const struct text_picture *p, void **host,
                            struct picture_rows *rows, berth_err *err);
    /* As net.h says. to: [1 + deep][n, width], in any order that arrange() puts right. */
    void (*forward)(struct net_run *r, const void *config, const void *host, float *to);
    void (*arrange)(const void *config, const void *host, float *rows, float *spare);
};

struct encoder_job;
struct encoder_speech { /* how an encoder writes text */
    bool (*there)(const void *config);
    /* Appends int32_t ids that follow chunk 0 of the job, the one that ends them included. Its net
     * is open. */
    berth_status (*speak)(const struct text_encoder *e, const struct encoder_job *job,
                          const struct speech_how *how, struct vec *said, berth_err *err);
};

/* One kind of encoder. `config` is config_bytes of its own making; w and root are the file and what
 * stands in front of the encoder's tensors in it. */
struct encoder_class {
    struct arch arch;          /* ENCODER_ARCH(), .detect, .lora, .presets */
    const char *name;          /* for messages: "CLIP-L" */
    const char *key;           /* what ComfyUI and embedding files call it: "clip_l" */
    const char *family, *what; /* "CLIP", "a CLIP text encoder": for people */
    /* Its numbers in adapter files (LORA_TE*): in a file of its own, and in one that has CLIP-L in
     * front of it. 0: adapters have none for it. */
    unsigned te, te_beside;
    const struct tokenizer *tokenizer;
    bool own_type; /* held in the type of its last norm, whatever text encoders are held in
                    * otherwise (llm-encoders.md 1.6) */
    size_t config_bytes;
    /* Of several encoders with the same names (CLIP-L, G, H): is it this one? place: the key of the
     * encoder that checkpoints have at this root; NULL: no place that we know. Asked in the order
     * of encoders.def. Optional: arch.detect() says it all. */
    bool (*pick)(const struct weights *w, const char *root, const char *place);
    /* What ComfyUI's keys have in front of the file's names, beside what all encoders have.
     * Optional: nothing. */
    const char *(*key_lead)(const struct weights *w, const char *root);
    /* From names, shapes and metadata. BERTH_ENOTFOUND: no such encoder there. */
    berth_status (*configure)(const struct weights *w, const char *root, void *config,
                              berth_err *err);
    struct encoder_size (*size)(const void *config);
    net_names_fn *names; /* names_user: the config; NULL: the file's names are the network's */
    /* How prompts are cut; `rules` has the tokenizer's ids and nothing else. Optional: one chunk of
     * any length. */
    void (*rules)(const void *config, struct chunk_rules *rules);
    /* Rows of tables beside that of tokens (positions, distances) for chunks of this length;
     * freed by free(). NULL: out of memory. Optional. */
    int32_t *(*lookup)(size_t len);
    /* What else a pass needs from the host (tables of angles, masks), all else of p being known;
     * freed by free(). NULL: out of memory. Optional. */
    void *(*prepare)(const struct encoder_pass *p);
    const struct encoder_sight *sight;   /* NULL: it sees no pictures */
    const struct encoder_speech *speech; /* NULL: it writes no text */
    bool takes_padding;                  /* T5TokenizerOptions is about it */
    bool hides_pads; /* what prompts are padded with is hidden from text (encoder_pass.shown) */
    /* And what stands behind text is left out of passes, which then have one chunk each: its rows
     * of z are zeros. */
    bool drops_pads;
    /* The network, as net.h says; gives p->z and p->pooled as far as they are wanted. */
    void (*forward)(struct net_run *r, const struct encoder_pass *p);
};
#define ENCODER(x) extern const struct encoder_class encoder_##x;
#include "model/encoders.def"
#undef ENCODER
extern const struct encoder_class *const encoder_list[]; /* encoders.def; NULL ends it */
#define ENCODER_ARCH(name_, about_)                                                                \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = "clip", .trace = text_trace

/* Which encoders a file holds and behind which root, in the order of the places: CLIP-L before
 * CLIP-G, T5 last. part: only those whose root begins with it (NULL or "": all). Returns how many;
 * 0: none we know. */
struct text_found {
    const struct encoder_class *is;
    char root[ARCH_ROOT_MAX];
};
size_t text_find(const struct weights *w, const char *part,
                 struct text_found out[TEXT_ENCODERS_MAX]);
/* The one behind this root; false: none. */
bool text_find_at(const struct weights *w, const char *root, struct text_found *out);
/* arch.trace of every encoder: a pass of the one behind this root, over one token. */
berth_status text_trace(const struct arch *arch, const struct weights *w, const char *root,
                        struct block_trace *out, berth_err *err);

struct text_encoder { /* one at work */
    const struct encoder_class *is;
    void *config;    /* in the arena of text_encoder_init() */
    const void *tok; /* its tokenizer, opened; encoders of a set may have different ones */
    struct net *net; /* NULL: not open */
};
/* Without tokenizer and net. */
berth_status text_encoder_init(struct text_encoder *e, const struct weights *w,
                               const struct text_found *found, struct arena *mem, berth_err *err);
/* A dry run of all of it: BERTH_ENOTFOUND names a weight that is not there; what no layer asks for
 * is logged (net_unused()). pre: its net is open. */
berth_status text_encoder_check(const struct text_encoder *e, berth_err *err);
/* z [n, len, width], pooled [width] of chunk 0; either may be NULL: not wanted. All chunks have one
 * length. Vectors of another width are left out, pad tokens at the end of the chunk make up for
 * them; *dropped (may be NULL) counts them. pre: its net is open. */
berth_status text_encoder_run(const struct text_encoder *e, const struct chunks *in,
                              const struct encoder_want *want, float *z, float *pooled,
                              size_t *dropped, berth_err *err);
struct encoder_job { /* the same, with all there is */
    const struct chunks *in;
    const struct picture_rows *picture; /* of chunk 0 */
    size_t pictures;
    struct encoder_want want;
    float *z, *pooled; /* z: [taps or 1, rows, width]; taps are for a single chunk */
    uint8_t *shown;    /* [rows], given: 0 is padding; NULL: not wanted */
    bool hides_pads;   /* text_use.hides_pads */
    size_t dropped;    /* given */
};
berth_status text_encoder_do(const struct text_encoder *e, struct encoder_job *job, berth_err *err);
/* A picture as rows of the encoder's width, in the arena: [rows->n, width], and rows->deeper.
 * BERTH_EUNSUPPORTED: it does not see. pre: its net is open. */
berth_status text_encoder_look(const struct text_encoder *e, const struct text_picture *p,
                               struct arena *mem, struct picture_rows *rows, const float **vectors,
                               berth_err *err);
/* The pictures of a prompt in the places of their tokens of chunk 0, which is made anew, in their
 * order; job gets to know where. A token behind the last picture stays what it is, and so does a
 * picture without a token. */
berth_status text_encoder_see(const struct text_encoder *e, const struct text_picture *picture,
                              size_t pictures, struct chunks *c, struct encoder_job *job,
                              struct arena *mem, berth_err *err);
uint32_t encoder_taps(const struct encoder_want *want, const struct encoder_size *size);
/* Opens its net and checks it; args: without root and names. e stays where it is until
 * net_close(e->net), which is the caller's to do even after a failure: a weight may be missing in a
 * net that is open. */
berth_status text_encoder_open(struct text_encoder *e, const char *root, struct net_args args,
                               berth_err *err);

/* ---- sets ---- */

struct text_cond { /* in the arena */
    float *cond;   /* [tokens, width] */
    size_t tokens, width;
    float *pooled; /* [pooled_n]; NULL: none */
    size_t pooled_n;
    float *mask; /* [tokens]: 1 is text, 0 padding; NULL: all is text */
};

/* How a prompt is put before it becomes tokens. */
struct text_wording {
    const struct chat_template *chat;      /* what stands around it; NULL: nothing */
    const struct chat_template *chat_seen; /* the same for prompts with pictures; NULL: chat */
    bool weights;    /* (words:1.2) are weighted; else the parentheses are text like any other */
    bool embeddings; /* `embedding:name` is looked up */
};

struct text_use { /* how a set uses an encoder */
    const struct encoder_class *encoder;
    struct encoder_want want;           /* layer: without clip skip */
    bool cond;                          /* its z are wanted */
    bool pooled;                        /* its pooled output is wanted */
    uint32_t min_length;                /* chunk_rules.min_length; 0: the encoder's */
    bool pad_left;                      /* chunk_rules.pad_left */
    const struct text_wording *wording; /* NULL: as it is, weighted, with embeddings */
    /* The first row of z that is kept, of the tokens of chunk 0. NULL: all are. */
    size_t (*cut)(const struct token *token, size_t n);
    bool mask; /* which rows are text is wanted */
    /* What prompts are padded with is hidden from text, by an encoder that can do both; a pass then
     * has one chunk. */
    bool hides_pads;
};
struct text_result { /* what an encoder gave */
    const struct text_use *use;
    size_t rows, width;
    float *z;      /* [taps, rows, width], weighted; NULL: not wanted */
    float *pooled; /* [width]; NULL: not wanted */
    float *mask;   /* [rows], text_cond.mask; NULL: all is text, or not wanted */
    uint32_t taps; /* 1 where none are asked for */
};
typedef berth_status text_join_fn(const struct text_result *r, size_t n, struct arena *mem,
                                  struct text_cond *out, berth_err *err);
/* z side by side in the order of the uses, as many rows as the shortest has; pooled is the last
 * one's that gave any. */
text_join_fn text_join_columns;
/* Of one encoder, the taps of a token side by side. */
text_join_fn text_join_taps;

/* How a prompt is put that is to be answered in words. */
struct text_speech {
    const char *before, *after;
    const char *seen;           /* `before` where there are pictures; NULL: the same */
    const char *picture;        /* stands behind it for each picture; NULL: they are not shown */
    const char *after_thinking; /* `after` where it may think first; NULL: the same */
    const char *const *unless;  /* a text that begins with one of these is used as it is; NULL ends
                                 * the list; NULL: none */
    bool always;                /* also where somebody asked for the bare text */
    uint32_t min_length;        /* text_use.min_length */
};

#define TEXT_TYPES_MAX 4
#define TEXT_BUT_MAX 5
struct text_set {
    const char *name; /* for messages: "SDXL" */
    const char
        *types[TEXT_TYPES_MAX + 1]; /* `type` of CLIPLoader and its kin that ask for it; it is
                                            * also found by its encoders alone (text_set_find()) */
    bool any_type; /* and by them where no set of that type has them: what ComfyUI takes such files
                    * for, whatever the loader was told ... */
    const char *but[TEXT_BUT_MAX + 1]; /* ... but for these types, which mean other sets of them */
    struct text_use use[TEXT_ENCODERS_MAX + 1]; /* ends with encoder NULL */
    const struct text_speech *speech; /* of its only encoder; NULL: it is not asked for words */
    bool fill_up; /* given several prompts, shorter lists of chunks get empty ones */
    text_join_fn *join;
};
#define TEXT_SET(x) extern const struct text_set text_set_##x;
#include "model/text_sets.def"
#undef TEXT_SET
extern const struct text_set *const text_set_list[]; /* text_sets.def; NULL ends it */

/* BERTH_EUNSUPPORTED: whatever the files, no set of this type can be computed. */
berth_status text_type_check(const char *type, berth_err *err);
bool text_set_made_of(const struct text_set *set, const struct text_found *found, size_t n);
/* Which set these encoders make. type: what the loader was told ("sdxl", "flux"), which counts as
 * far as ComfyUI lets it; NULL: they came with a checkpoint whose model does not say.
 * BERTH_EINVAL: not what the type wants, saying what is missing. BERTH_EUNSUPPORTED: none that can
 * be computed. */
berth_status text_set_find(const struct text_found *found, size_t n, const char *type,
                           const struct text_set **out, berth_err *err);
/* "CLIP-L and T5": the encoders of a set. */
struct str;
void text_set_encoders(const struct text_set *set, struct str *out);

struct text_args {
    const struct text_set *set;
    struct text_encoder *enc;
    size_t encoders;
    const struct text_embeddings *emb; /* NULL: none */
    int skip;                          /* 0: the set's default; -1..-24: stop_at_clip_layer */
    /* Of encoders that take it, instead of the set's min_length; said false: nobody did. */
    struct text_padding {
        bool said;
        uint32_t min_padding, min_length;
    } padding;
    /* Around the passes of each encoder, one after the other, so that no encoder holds memory while
     * another one computes; NULL: all nets are open.
     *   begin  post: e->net is open
     *   end    after each begin that succeeded */
    berth_status (*begin)(void *user, struct text_encoder *e, berth_err *err);
    void (*end)(void *user, struct text_encoder *e);
    void *user;
};
struct text_prompt {
    const char *text;
    const struct encoder_class *encoder; /* NULL: every encoder without a prompt of its own */
    const struct chat_template *chat;    /* instead of the set's own; NULL: the set's */
    uint32_t without;                    /* chunk_rules.without */
    /* In the order of the placeholders in the worded prompt (Qwen: <|image_pad|>): the k-th of
     * them becomes the rows of picture k. BERTH_EUNSUPPORTED: the encoder sees no pictures. */
    const struct text_picture *picture;
    size_t pictures;
};
/* prompt: one for all encoders, or one for each (CLIPTextEncodeSDXL, CLIPTextEncodeFlux).
 * BERTH_EINVAL: an encoder has none, or is not there. */
berth_status text_encode(const struct text_args *a, const struct text_prompt *prompt,
                         size_t prompts, struct arena *mem, struct text_cond *out, berth_err *err);

struct text_ask {
    bool bare;     /* the text as it is, without what the set puts around it */
    bool thinking; /* it may think first */
    struct speech_how how;
};
/* Appends what the set's language model answers, as int32_t ids of its tokenizer, the one that ends
 * it included. BERTH_EUNSUPPORTED: it writes no text. */
berth_status text_answer(const struct text_args *a, const struct text_prompt *prompt,
                         const struct text_ask *ask, struct vec *ids, berth_err *err);
