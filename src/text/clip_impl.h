/* clip_impl: what the files about CLIP share. For text/ alone. */
#ifndef TEXT_CLIP_IMPL_H
#define TEXT_CLIP_IMPL_H

#include "text/encoder.h"

enum clip_style {
    CLIP_NONE,     /* there is no CLIP */
    CLIP_HF,       /* text_model.encoder.layers.0 */
    CLIP_OLD,      /* encoder.layers.0: SD1 checkpoints of the first days */
    CLIP_OPENCLIP, /* transformer.resblocks.0 */
};
/* In front of a layer's number, without the dot. */
const char *clip_list(enum clip_style style);
enum clip_style clip_style(const struct weights *w, const char *root);
/* The tensor that HF names call `canonical` under `root`, in whatever style; NULL: none. Stacked q,
 * k, v: all of them. */
const struct weights_entry *clip_entry(const struct weights *w, const char *root,
                                       enum clip_style style, const char *canonical);
uint32_t clip_layers(const struct weights *w, const char *root, enum clip_style style);
/* style must not be CLIP_NONE. */
enum text_kind clip_kind(const struct weights *w, const char *root, enum clip_style style);

/* Rewrites an HF name; false: it is called so in files of that style, too. rows of q, k, v: see
 * net_source. */
bool clip_rename(enum clip_style style, bool bare_projection, uint64_t width, const char *canonical,
                 struct net_source *out);

#define CLIP_LAYERS_MAX 256

#endif
