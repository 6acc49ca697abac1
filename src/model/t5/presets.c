/* T5 encoder (v1.1: gated feed-forward, no biases). */
#include "model/t5/presets.h"

#include "model/preset.h"
#include "model/t5/t5.h"

void keys_t5(struct keys *k, const struct t5_config *c)
{
    const uint64_t D = c->width;
    size_t top = keys_enter(k, "encoder");
    for (int i = 0; i < c->layers; i++) {
        size_t block = keys_enter(k, "block.%d", i);
        keys_linear(k, "layer.0.SelfAttention.q", c->inner, D, KEYS_NO_BIAS);
        keys_linear(k, "layer.0.SelfAttention.k", c->inner, D, KEYS_NO_BIAS);
        keys_linear(k, "layer.0.SelfAttention.v", c->inner, D, KEYS_NO_BIAS);
        keys_linear(k, "layer.0.SelfAttention.o", D, c->inner, KEYS_NO_BIAS);
        if (i == 0) /* all blocks share the first one's table */
            keys_tensor(k, "layer.0.SelfAttention.relative_attention_bias.weight", c->buckets,
                        c->heads, 0, 0);
        keys_tensor(k, "layer.0.layer_norm.weight", D, 0, 0, 0);
        keys_linear(k, "layer.1.DenseReluDense.wi_0", c->ff, D, KEYS_NO_BIAS);
        keys_linear(k, "layer.1.DenseReluDense.wi_1", c->ff, D, KEYS_NO_BIAS);
        keys_linear(k, "layer.1.DenseReluDense.wo", D, c->ff, KEYS_NO_BIAS);
        keys_tensor(k, "layer.1.layer_norm.weight", D, 0, 0, 0);
        keys_leave(k, block);
    }
    keys_tensor(k, "final_layer_norm.weight", D, 0, 0, 0);
    keys_leave(k, top);
    keys_tensor(k, "shared.weight", c->vocab, D, 0, 0);
}

static void t5_tiny(struct keys *k)
{
    keys_t5(k, &(struct t5_config) { .vocab = 32128,
                                     .width = 64,
                                     .inner = 64,
                                     .ff = 160,
                                     .heads = 4,
                                     .buckets = 32,
                                     .layers = 3 });
}

static const struct preset preset_t5_tiny = {
    .name = "t5-tiny",
    .about = "T5 text encoder for flux-tiny",
    .arch = "t5encoder",
    .build = t5_tiny,
};

static void t5xxl(struct keys *k)
{
    keys_t5(k, &(struct t5_config) { .vocab = 32128,
                                     .width = 4096,
                                     .inner = 4096,
                                     .ff = 10240,
                                     .heads = 64,
                                     .buckets = 32,
                                     .layers = 24 });
}

static const struct preset preset_t5xxl = {
    .name = "t5xxl",
    .about = "T5-XXL text encoder, full size",
    .arch = "t5encoder",
    .build = t5xxl,
};

const struct preset *const t5_presets[] = { &preset_t5_tiny, &preset_t5xxl, NULL };
