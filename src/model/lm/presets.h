/* The tensors of language models of any size: what presets and tests are made of. */
#ifndef MODEL_LM_PRESETS_H
#define MODEL_LM_PRESETS_H

#include "model/preset.h"

struct lm_config {
    uint64_t vocab, width, heads, kv_heads, head_dim, mlp;
    int layers;
    bool qk_norm, bias, sandwich, head, no_norm;
};
void keys_lm(struct keys *k, const struct lm_config *c);

extern const struct preset qwen3_presets[], qwen25_presets[]; /* of their descriptors */

#endif
