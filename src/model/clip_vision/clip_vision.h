/* clip_vision: CLIP's encoders of pictures L, H and G, and SigLIP's.
 *
 * Which      L up to 30 layers, H up to 47, G beyond: that decides the activation. SigLIP has no
 *            token for the class. For small models metadata "berth.clip" may say "l", "h" or "g".
 * Names      transformers' (vision_model.encoder.layers.0), or OpenAI's and OpenCLIP's behind
 *            "visual." (visual.transformer.resblocks.0).
 * Files      family.c descriptor and config; names.c; forward.c; presets.c */
#pragma once

#include "model/vision.h"

enum clip_vision_kind { CLIP_VISION_L, CLIP_VISION_H, CLIP_VISION_SIGLIP }; /* G is as H */
struct clip_vision {                                                        /* vision_net.own */
    enum clip_vision_kind kind;
    bool openclip;   /* the file has OpenCLIP's names */
    bool projection; /* behind the row for the whole picture */
    uint32_t layers, heads;
};
static inline const struct clip_vision *clip_vision_of(const struct vision_net *v)
{
    return (const struct clip_vision *)(const void *)v->own;
}

net_names_fn clip_vision_names;     /* user: a struct vision_net */
net_forward_fn clip_vision_forward; /* user: a struct vision_pass */
/* In front of a layer's number, without the dot. */
const char *clip_vision_list(bool openclip);
