/* The tensors of Qwen-Image transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct qwen_image_config {
    uint64_t channels, hidden, head_dim, context_dim;
    int depth;
    bool timestep_zero; /* the mark of editing models since 2511 */
    bool layered;
    uint64_t looks_at; /* channels: it is a control net of InstantX's; 0: it is none */
};
void keys_qwen_image(struct keys *k, const struct qwen_image_config *c);

extern const struct preset qwen_image_presets[];         /* of its descriptor */
extern const struct preset qwen_image_control_presets[]; /* of control nets' */
