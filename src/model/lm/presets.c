/* Language models: decoders with grouped heads and gated feed-forward. */
#include "model/lm/presets.h"

static void block(struct keys *k, const struct lm_config *c)
{
    const uint64_t D = c->width, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    enum keys_bias bias = c->bias ? KEYS_BIAS : KEYS_NO_BIAS;
    keys_linear(k, "self_attn.q_proj", q, D, bias);
    keys_linear(k, "self_attn.k_proj", kv, D, bias);
    keys_linear(k, "self_attn.v_proj", kv, D, bias);
    keys_linear(k, "self_attn.o_proj", D, q, KEYS_NO_BIAS);
    if (c->qk_norm) {
        keys_tensor(k, "self_attn.q_norm.weight", c->head_dim, 0, 0, 0);
        keys_tensor(k, "self_attn.k_norm.weight", c->head_dim, 0, 0, 0);
    }
    keys_linear(k, "mlp.gate_proj", c->mlp, D, KEYS_NO_BIAS);
    keys_linear(k, "mlp.up_proj", c->mlp, D, KEYS_NO_BIAS);
    keys_linear(k, "mlp.down_proj", D, c->mlp, KEYS_NO_BIAS);
    keys_tensor(k, "input_layernorm.weight", D, 0, 0, 0);
    keys_tensor(k, "post_attention_layernorm.weight", D, 0, 0, 0);
    if (c->sandwich) {
        keys_tensor(k, "pre_feedforward_layernorm.weight", D, 0, 0, 0);
        keys_tensor(k, "post_feedforward_layernorm.weight", D, 0, 0, 0);
    }
}

void keys_lm(struct keys *k, const struct lm_config *c)
{
    size_t top = keys_enter(k, "model");
    keys_tensor(k, "embed_tokens.weight", c->vocab, c->width, 0, 0);
    for (int i = 0; i < c->layers; i++) {
        size_t mark = keys_enter(k, "layers.%d", i);
        block(k, c);
        keys_leave(k, mark);
    }
    if (!c->no_norm)
        keys_tensor(k, "norm.weight", c->width, 0, 0, 0);
    keys_leave(k, top);
    if (c->head)
        keys_linear(k, "lm_head", c->vocab, c->width, KEYS_NO_BIAS);
}

static void build(struct keys *k, const void *config)
{
    keys_lm(k, config);
}

#define PRESET(name_, arch_, about_, ...)                                                          \
    {                                                                                              \
        .name = name_, .about = about_, .arch = arch_, .build = build,                             \
        .config = &(const struct lm_config)                                                        \
        {                                                                                          \
            .head_dim = 128, __VA_ARGS__                                                           \
        }                                                                                          \
    }

#define QWEN3 .vocab = 151936, .qk_norm = true
const struct preset qwen3_presets[] = {
    PRESET("qwen3-tiny", "qwen3", "Qwen3 text encoder for z-image-tiny", QWEN3, .width = 256,
           .heads = 4, .kv_heads = 2, .mlp = 384, .layers = 4),
    PRESET("qwen3-0.6b", "qwen3", "Qwen3 0.6B, full size", QWEN3, .width = 1024, .heads = 16,
           .kv_heads = 8, .mlp = 3072, .layers = 28),
    PRESET("qwen3-4b", "qwen3", "Qwen3 4B text encoder of Z-Image, full size", QWEN3, .width = 2560,
           .heads = 32, .kv_heads = 8, .mlp = 9728, .layers = 36),
    PRESET("qwen3-8b", "qwen3", "Qwen3 8B text encoder of Flux.2 klein 9B, full size", QWEN3,
           .width = 4096, .heads = 32, .kv_heads = 8, .mlp = 12288, .layers = 36, .head = true),
    { .name = NULL },
};

#define QWEN25 .bias = true
const struct preset qwen25_presets[] = {
    PRESET("qwen25-tiny", "qwen2vl", "Qwen2.5 text encoder for qwen-image-tiny, without its eyes",
           QWEN25, .vocab = 152064, .width = 192, .heads = 4, .kv_heads = 2, .mlp = 384,
           .layers = 3),
    PRESET("qwen25-7b", "qwen2vl", "Qwen2.5-VL 7B text encoder of Qwen-Image, without its eyes",
           QWEN25, .vocab = 152064, .width = 3584, .heads = 28, .kv_heads = 4, .mlp = 18944,
           .layers = 28, .head = true),
    { .name = NULL },
};
