/* T5 encoder (v1.1: gated feed-forward, no biases), and umT5's. */
#include "model/t5/presets.h"

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
        if (i == 0 || c->own_bias) /* else all blocks share the first one's table */
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

static void build(struct keys *k, const void *config)
{
    keys_t5(k, config);
}

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "t5encoder", .build = build,                       \
        .config = &(const struct t5_config)                                                        \
        {                                                                                          \
            .buckets = 32, __VA_ARGS__                                                             \
        }                                                                                          \
    }
#define TINY .width = 64, .inner = 64, .ff = 160, .heads = 4, .layers = 3
#define XXL .width = 4096, .inner = 4096, .ff = 10240, .heads = 64, .layers = 24
const struct preset t5_presets[] = {
    PRESET("t5-tiny", "T5 text encoder for flux-tiny", .vocab = 32128, TINY),
    PRESET("t5xxl", "T5-XXL text encoder, full size", .vocab = 32128, XXL),
    { .name = NULL },
};
const struct preset umt5_presets[] = {
    PRESET("umt5-tiny", "umT5 text encoder for wan-tiny", .own_bias = true, .vocab = 256384, TINY),
    PRESET("umt5-xxl", "umT5-XXL text encoder, full size", .own_bias = true, .vocab = 256384, XXL),
    { .name = NULL },
};
