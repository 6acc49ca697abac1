/* clip: the CLIP text encoders L, G and H (text-encoders.md 6).
 *
 * Config     from shapes; the number of heads is in no tensor: metadata "berth.heads"
 *            (safetensors), "clip.attention.head_count" or "clip.text.attention.head_count" (GGUF),
 *            else width / 64 (at least 1).
 * Which      L, G or H follows from the number of layers (32 and 24 mean G and H), else from the
 *            place in a checkpoint. Where neither says it (small models alone in their file),
 *            metadata "berth.clip" may: "l", "g", "h".
 * Files      family.c the three descriptors; clip.c config and network; names.c HF's, OpenCLIP's
 *            and old names; lora.c what adapters call its tensors; presets.c */
#pragma once

#include "model/encoder.h"

enum clip_style {
    CLIP_NONE,     /* there is no CLIP */
    CLIP_HF,       /* text_model.encoder.layers.0 */
    CLIP_OLD,      /* encoder.layers.0: SD1 checkpoints of the first days */
    CLIP_OPENCLIP, /* transformer.resblocks.0 */
};
struct clip_net {
    uint64_t width, vocab, positions, mlp;
    uint32_t layers, heads;
    bool projection;
    bool quick_gelu; /* CLIP-L; G and H: erf */
    enum clip_style style;
    bool bare_projection; /* a parameter, not a layer: no ".weight", multiplied from the right */
};
/* root: in front of "text_model." or of OpenCLIP's names. Leaves quick_gelu to the caller, to whom
 * it says which of the three it is. */
berth_status clip_configure(const struct weights *w, const char *root, void *config,
                            berth_err *err);
/* As the slots of struct encoder_class. */
net_names_fn clip_names;
void clip_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);
int32_t *clip_positions(size_t len);
void clip_forward(struct net_run *r, const struct encoder_pass *p);

/* In front of a layer's number, without the dot. */
const char *clip_list(enum clip_style style);
enum clip_style clip_style(const struct weights *w, const char *root);
/* The tensor that HF names call `canonical` under `root`, in whatever style; NULL: none. Stacked q,
 * k, v: all of them. */
const struct weights_entry *clip_entry(const struct weights *w, const char *root,
                                       enum clip_style style, const char *canonical);

/* Rewrites an HF name; false: it is called so in files of that style, too. rows of q, k, v: see
 * net_source. */
bool clip_rename(enum clip_style style, bool bare_projection, uint64_t width, const char *canonical,
                 struct net_source *out);
