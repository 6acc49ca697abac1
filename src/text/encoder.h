/* encoder: prompts to conditioning: CLIP text encoders, T5, and the sets of them that models use.
 *
 * Words      encoder  one network (CLIP-L, -G, -H, T5)
 *            set      those that make one conditioning (SDXL: L and G; Flux: T5 and L)
 *            skip     clip skip: which hidden layer is the result (CLIPSetLastLayer)
 * Config     from shapes; T5's heads are the columns of its table of positions; CLIP's are in no
 *            tensor: metadata "berth.heads" (safetensors),
 *            "clip.attention.head_count" or "clip.text.attention.head_count" (GGUF), else width /
 *            64 (at least 1).
 * Kind       L, G or H follows from the place in a checkpoint, or from the number of layers: 32 and
 *            24 mean G and H. Where neither says it (small models), metadata "berth.clip" may: "l",
 *            "g", "h".
 * Weights    are used as stored. ComfyUI keeps its CLIPs as F16 unless told otherwise, and a T5 in
 *            the type of its last norm, F16 if that is F32, which rounds those of F32 files
 *            (text-encoders.md 8); loaders open those as F16 (plan/convert.h), unless
 *            --fp32-text-enc says otherwise. The golden numbers are from unrounded F32 ones.
 * Numbers    z and pooled of a chunk do not depend on the chunks it is encoded with (op/ops.h, Same
 *            bits), so that long prompts run in several passes.
 * Files      clip.c network; clip_names.c OpenCLIP and old names; t5.c network; t5_names.c
 *            llama.cpp's names, config; slots.c tokens and vectors to what networks take; find.c
 *            where encoders are and of which kind; encoder.c sets, weighting, assembly */
#ifndef TEXT_ENCODER_H
#define TEXT_ENCODER_H

#include "net/net.h"
#include "text/tokenizer.h"

struct clip_net {
    uint64_t width, vocab, positions, mlp;
    uint32_t layers, heads;
    bool projection;
    bool quick_gelu; /* CLIP-L; G and H: erf */
};
/* root: in front of "text_model." or of OpenCLIP's names. BERTH_ENOTFOUND: no CLIP there. */
berth_status clip_detect(const struct weights *w, const char *root, struct clip_net *out,
                         berth_err *err);
/* For net_args.names; NULL: HF names. names_user must be the struct clip_net of that root: its
 * width tells where in OpenCLIP's stacked tensors q, k and v begin. */
net_names_fn *clip_names(const struct weights *w, const char *root);

/* A dry run of all of it: BERTH_ENOTFOUND names a weight that is not there; what no layer asks for
 * is logged (net_unused()). */
berth_status clip_check(struct net *net, const struct clip_net *c, berth_err *err);

struct clip_out_args {
    int layer;        /* 0: last (with final norm); negative: hidden layer counted from the end; one
                  before the first means 0 */
    bool norm_hidden; /* final norm on a hidden layer */
    bool project;     /* pooled . text_projection */
};
/* z [n, len, width], pooled [width] of chunk 0 (either may be NULL). All chunks have one length.
 * Vectors of another width are left out, pad tokens at the end of the chunk make up for them;
 * *dropped (may be NULL) counts them. */
berth_status clip_encode(struct net *net, const struct clip_net *c, const struct chunks *in,
                         const struct clip_out_args *a, float *z, float *pooled, size_t *dropped,
                         berth_err *err);

/* ---- T5 ---- */
struct t5_net { /* text-encoders.md 7; heads * head_dim need not be the width */
    uint64_t width, vocab, inner, mlp; /* inner: heads * head_dim */
    uint32_t layers, heads;
    bool own_bias;     /* every block has its own table of positions (umT5) */
    bool gguf;         /* llama.cpp's names (enc.blk.0.attn_q) */
    bool embed_tokens; /* the table of tokens is called encoder.embed_tokens, there is no shared */
    bool fp8;          /* that table is: NaNs in it count as 0 */
};
/* root: in front of "encoder.block.0." or "enc.blk.0.". BERTH_ENOTFOUND: no T5 there. Heads are the
 * columns of relative_attention_bias. */
berth_status t5_detect(const struct weights *w, const char *root, struct t5_net *out,
                       berth_err *err);
net_names_fn *t5_names(const struct t5_net *t); /* names_user: t; NULL: the file has our names */
berth_status t5_check(struct net *net, const struct t5_net *t, berth_err *err); /* as clip_check */
/* layer as clip_out_args.layer (0: last). z [n, len, width]. */
berth_status t5_encode(struct net *net, const struct t5_net *t, const struct chunks *in, int layer,
                       float *z, size_t *dropped, berth_err *err);

/* ---- sets ---- */
enum text_kind { TEXT_CLIP_L, TEXT_CLIP_G, TEXT_CLIP_H, TEXT_T5 }; /* which encoder a file is */
enum text_set { TEXT_SD1, TEXT_SD2, TEXT_SDXL, TEXT_REFINER, TEXT_FLUX }; /* for which model */
#define TEXT_ENCODERS_MAX 4

struct text_encoder { /* one of a set */
    enum text_kind kind;
    struct net *net;
    struct clip_net clip; /* kinds CLIP_* */
    struct t5_net t5;     /* TEXT_T5 */
    const void *tok;      /* its tokenizer, opened; encoders of a set may have different ones */
};
struct text_args {
    enum text_set set;
    struct text_encoder *enc;
    size_t encoders;
    const struct text_embeddings *emb; /* NULL: none */
    int skip;                          /* 0: the set's default; -1..-24: stop_at_clip_layer */
    /* Around the passes of each encoder, one after the other; NULL: all nets are open. So no encoder
     * holds memory while another one computes.
     *   begin  post: e->net is open
     *   end    after each begin that succeeded */
    berth_status (*begin)(void *user, struct text_encoder *e, berth_err *err);
    void (*end)(void *user, struct text_encoder *e);
    void *user;
};
struct text_cond { /* in the arena */
    float *cond;   /* [tokens, width] */
    size_t tokens, width;
    float *pooled; /* [pooled_n]; NULL: none */
    size_t pooled_n;
};
/* text: for every encoder; text_l (may be NULL): another for CLIP-L (CLIPTextEncodeSDXL: text_g,
 * text_l; CLIPTextEncodeFlux: t5xxl, clip_l). Flux: cond is T5's, pooled CLIP-L's. */
berth_status text_encode(const struct text_args *a, const char *text, const char *text_l,
                         struct arena *mem, struct text_cond *out, berth_err *err);

const struct tokenizer *text_tokenizer(enum text_kind kind);
/* Which encoders a file holds: kind and root of each, L before G, T5 last. part (NULL or "": all):
 * only those whose root begins with it. Returns how many; 0: none we know. */
struct text_found {
    enum text_kind kind;
    char root[128];
};
size_t text_find(const struct weights *w, const char *part,
                 struct text_found out[TEXT_ENCODERS_MAX]);

#endif
