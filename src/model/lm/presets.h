/* The tensors of language models of any size: what presets and tests are made of. */
#pragma once

#include "model/preset.h"

struct lm_eyes { /* 0 blocks: none */
    int blocks;
    uint64_t width, mlp, patch, table; /* table: rows of the table of positions */
    int depths;                        /* with neither these nor a table: those of Qwen2.5-VL */
};
struct lm_config {
    uint64_t vocab, width, heads, kv_heads, head_dim, mlp;
    int layers;
    bool qk_norm, bias, sandwich, head, no_norm;
    /* Qwen3.5: every fourth layer attends, the others have a memory of so many heads; queries have
     * gates; names are those of files with a vision tower. 0: none of it. */
    uint64_t memory, memory_keys, memory_dim;
    struct lm_eyes eyes;
};
void keys_lm(struct keys *k, const struct lm_config *c);

/* Of their descriptors. */
extern const struct preset qwen3_presets[], llama3_presets[], qwen25_presets[], qwen3vl_presets[],
    qwen35_presets[],
    mistral3_presets[], gemma_presets[];
