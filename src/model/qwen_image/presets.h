/* The tensors of Qwen-Image transformers of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct qwen_image_config {
    uint64_t channels, hidden, head_dim, context_dim;
    int depth;
    bool timestep_zero; /* the mark of editing models since 2511 */
    bool layered;
};
void keys_qwen_image(struct keys *k, const struct qwen_image_config *c);
/* Of a control net of InstantX's for such a one, with so many blocks as c says. looks_at: channels
 * of its picture's latent, and of a mask. */
void keys_qwen_image_control(struct keys *k, const struct qwen_image_config *c, uint64_t looks_at);

extern const struct preset qwen_image_presets[];         /* of its descriptor */
extern const struct preset qwen_image_control_presets[]; /* of control nets' */
