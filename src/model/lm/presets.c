/* Language models: decoders with grouped heads and gated feed-forward. */
#include "model/lm/presets.h"

static void memory(struct keys *k, const struct lm_config *c)
{
    const uint64_t D = c->width, values = c->memory * c->memory_dim;
    const uint64_t all = values + 2 * c->memory_keys * c->memory_dim;
    size_t mark = keys_enter(k, "linear_attn");
    keys_tensor(k, "A_log", c->memory, 0, 0, 0);
    keys_tensor(k, "dt_bias", c->memory, 0, 0, 0);
    keys_tensor(k, "conv1d.weight", all, 1, 4, 0);
    keys_linear(k, "in_proj_qkv", all, D, KEYS_NO_BIAS);
    keys_linear(k, "in_proj_z", values, D, KEYS_NO_BIAS);
    keys_linear(k, "in_proj_b", c->memory, D, KEYS_NO_BIAS);
    keys_linear(k, "in_proj_a", c->memory, D, KEYS_NO_BIAS);
    keys_tensor(k, "norm.weight", c->memory_dim, 0, 0, 0);
    keys_linear(k, "out_proj", D, values, KEYS_NO_BIAS);
    keys_leave(k, mark);
}

static void attention(struct keys *k, const struct lm_config *c)
{
    const uint64_t D = c->width, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    enum keys_bias bias = c->bias ? KEYS_BIAS : KEYS_NO_BIAS;
    keys_linear(k, "self_attn.q_proj", c->memory ? 2 * q : q, D, bias);
    keys_linear(k, "self_attn.k_proj", kv, D, bias);
    keys_linear(k, "self_attn.v_proj", kv, D, bias);
    keys_linear(k, "self_attn.o_proj", D, q, KEYS_NO_BIAS);
    if (c->qk_norm) {
        keys_tensor(k, "self_attn.q_norm.weight", c->head_dim, 0, 0, 0);
        keys_tensor(k, "self_attn.k_norm.weight", c->head_dim, 0, 0, 0);
    }
}

static void block(struct keys *k, const struct lm_config *c, int i)
{
    const uint64_t D = c->width;
    if (c->memory && (i + 1) % 4 != 0)
        memory(k, c);
    else
        attention(k, c);
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

/* A plain feed-forward behind a norm, or a gated one. */
static void eye_block(struct keys *k, const struct lm_eyes *e)
{
    const uint64_t D = e->width;
    keys_linear(k, "attn.qkv", 3 * D, D, KEYS_BIAS);
    keys_linear(k, "attn.proj", D, D, KEYS_BIAS);
    if (e->table) {
        keys_linear(k, "mlp.linear_fc1", e->mlp, D, KEYS_BIAS);
        keys_linear(k, "mlp.linear_fc2", D, e->mlp, KEYS_BIAS);
        keys_norm(k, "norm1", D);
        keys_norm(k, "norm2", D);
        return;
    }
    keys_linear(k, "mlp.gate_proj", e->mlp, D, KEYS_BIAS);
    keys_linear(k, "mlp.up_proj", e->mlp, D, KEYS_BIAS);
    keys_linear(k, "mlp.down_proj", D, e->mlp, KEYS_BIAS);
    keys_tensor(k, "norm1.weight", D, 0, 0, 0);
    keys_tensor(k, "norm2.weight", D, 0, 0, 0);
}

static void merger(struct keys *k, const struct lm_eyes *e, uint64_t out, bool late)
{
    const uint64_t four = 4 * e->width;
    if (e->table)
        keys_norm(k, "norm", late ? four : e->width);
    else
        keys_tensor(k, "ln_q.weight", e->width, 0, 0, 0);
    keys_linear(k, e->table ? "linear_fc1" : "mlp.0", four, four, KEYS_BIAS);
    keys_linear(k, e->table ? "linear_fc2" : "mlp.2", out, four, KEYS_BIAS);
}

static void eyes(struct keys *k, const char *name, const struct lm_eyes *e, uint64_t out)
{
    size_t top = keys_enter(k, "%s", name), mark;
    keys_shape(k, "patch_embed.proj.weight",
               &(struct shape) { .ndim = 5, .dim = { e->width, 3, 2, e->patch, e->patch } });
    if (e->table)
        keys_tensor(k, "patch_embed.proj.bias", e->width, 0, 0, 0);
    if (e->table)
        keys_tensor(k, "pos_embed.weight", e->table, e->width, 0, 0);
    for (int i = 0; i < e->blocks; i++) {
        mark = keys_enter(k, "blocks.%d", i);
        eye_block(k, e);
        keys_leave(k, mark);
    }
    mark = keys_enter(k, "merger");
    merger(k, e, out, false);
    keys_leave(k, mark);
    for (int i = 0; i < e->depths; i++) {
        mark = keys_enter(k, "deepstack_merger_list.%d", i);
        merger(k, e, out, true);
        keys_leave(k, mark);
    }
    keys_leave(k, top);
}

void keys_lm(struct keys *k, const struct lm_config *c)
{
    size_t top = keys_enter(k, c->memory ? "model.language_model" : "model");
    keys_tensor(k, "embed_tokens.weight", c->vocab, c->width, 0, 0);
    for (int i = 0; i < c->layers; i++) {
        size_t mark = keys_enter(k, "layers.%d", i);
        block(k, c, i);
        keys_leave(k, mark);
    }
    if (!c->no_norm)
        keys_tensor(k, "norm.weight", c->width, 0, 0, 0);
    keys_leave(k, top);
    if (c->head)
        keys_linear(k, "lm_head", c->vocab, c->width, KEYS_NO_BIAS);
    if (c->eyes.blocks)
        eyes(k, c->memory ? "model.visual" : "visual", &c->eyes, c->width);
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
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

#define QWEN3 .vocab = 151936, .head_dim = 128, .qk_norm = true
const struct preset qwen3_presets[] = {
    PRESET("qwen3-tiny", "qwen3", "Qwen3 text encoder for z-image-tiny", QWEN3, .width = 256,
           .heads = 4, .kv_heads = 2, .mlp = 384, .layers = 4),
    PRESET("qwen3-klein-tiny", "qwen3", "Qwen3 text encoder for flux2-klein-tiny", QWEN3,
           .width = 32, .heads = 4, .kv_heads = 2, .mlp = 96, .layers = 28),
    PRESET("qwen3-0.6b", "qwen3", "Qwen3 0.6B, full size", QWEN3, .width = 1024, .heads = 16,
           .kv_heads = 8, .mlp = 3072, .layers = 28),
    PRESET("qwen3-4b", "qwen3", "Qwen3 4B text encoder of Z-Image, full size", QWEN3, .width = 2560,
           .heads = 32, .kv_heads = 8, .mlp = 9728, .layers = 36),
    PRESET("qwen3-8b", "qwen3", "Qwen3 8B text encoder of Flux.2 klein 9B, full size", QWEN3,
           .width = 4096, .heads = 32, .kv_heads = 8, .mlp = 12288, .layers = 36),
    { .name = NULL },
};

#define QWEN25 .vocab = 152064, .head_dim = 128, .bias = true
const struct preset qwen25_presets[] = {
    PRESET("qwen25vl-tiny", "qwen2vl", "Qwen2.5-VL text encoder for qwen-image-tiny", QWEN25,
           .width = 192, .heads = 4, .kv_heads = 2, .mlp = 384, .layers = 3,
           .eyes = { .blocks = 9, .width = 128, .mlp = 96, .patch = 14 }),
    PRESET("qwen25vl-7b", "qwen2vl", "Qwen2.5-VL 7B text encoder of Qwen-Image, full size", QWEN25,
           .width = 3584, .heads = 28, .kv_heads = 4, .mlp = 18944, .layers = 28,
           .eyes = { .blocks = 32, .width = 1280, .mlp = 3420, .patch = 14 }),
    { .name = NULL },
};

#define QWEN3VL QWEN3, .heads = 32, .kv_heads = 8, .layers = 36
const struct preset qwen3vl_presets[] = {
    PRESET("qwen3vl-tiny", "qwen3vl", "Qwen3-VL text encoder, tiny", QWEN3, .width = 64, .heads = 4,
           .kv_heads = 2, .mlp = 96, .layers = 4,
           .eyes = { .blocks = 4, .width = 128, .mlp = 96, .patch = 16, .table = 36, .depths = 3 }),
    PRESET("qwen3vl-krea2-tiny", "qwen3vl", "Qwen3-VL text encoder for krea2-tiny", QWEN3,
           .width = 160, .heads = 2, .kv_heads = 1, .mlp = 96, .layers = 36,
           .eyes = { .blocks = 4, .width = 64, .mlp = 32, .patch = 16, .table = 16, .depths = 3 }),
    PRESET("qwen3vl-4b", "qwen3vl", "Qwen3-VL 4B text encoder of Krea 2, full size", QWEN3VL,
           .width = 2560, .mlp = 9728,
           .eyes = { .blocks = 24,
                     .width = 1024,
                     .mlp = 4096,
                     .patch = 16,
                     .table = 2304,
                     .depths = 3 }),
    { .name = NULL },
};

#define QWEN35                                                                                     \
    .vocab = 248320, .head_dim = 256, .qk_norm = true, .memory_keys = 16, .memory_dim = 128
#define QWEN35_EYES .patch = 16, .table = 2304
const struct preset qwen35_presets[] = {
    PRESET("qwen35-tiny", "qwen35", "Qwen3.5, tiny", .vocab = 248320, .head_dim = 32,
           .qk_norm = true, .width = 64, .heads = 4, .kv_heads = 2, .mlp = 96, .layers = 4,
           .memory = 4, .memory_keys = 2, .memory_dim = 16,
           .eyes = { .blocks = 3, .width = 128, .mlp = 96, .patch = 16, .table = 36 }),
    PRESET("qwen35-2b", "qwen35", "Qwen3.5 2B, full size", QWEN35, .width = 2048, .heads = 8,
           .kv_heads = 2, .mlp = 6144, .layers = 24, .memory = 16,
           .eyes = { QWEN35_EYES, .blocks = 24, .width = 1024, .mlp = 4096 }),
    PRESET("qwen35-4b", "qwen35", "Qwen3.5 4B, full size", QWEN35, .width = 2560, .heads = 16,
           .kv_heads = 4, .mlp = 9216, .layers = 32, .memory = 32,
           .eyes = { QWEN35_EYES, .blocks = 24, .width = 1024, .mlp = 4096 }),
    PRESET("qwen35-9b", "qwen35", "Qwen3.5 9B, full size", QWEN35, .width = 4096, .heads = 16,
           .kv_heads = 4, .mlp = 12288, .layers = 32, .memory = 32,
           .eyes = { QWEN35_EYES, .blocks = 27, .width = 1152, .mlp = 4304 }),
    { .name = NULL },
};

#define MISTRAL .vocab = 131072, .head_dim = 128
const struct preset mistral3_presets[] = {
    PRESET("mistral3-tiny", "llama", "Mistral 3 text encoder, tiny", MISTRAL, .width = 32,
           .heads = 4, .kv_heads = 2, .mlp = 96, .layers = 31, .no_norm = true),
    PRESET("mistral3-24b", "llama", "Mistral 3 24B text encoder of Flux.2, full size", MISTRAL,
           .width = 5120, .heads = 32, .kv_heads = 8, .mlp = 32768, .layers = 40),
    { .name = NULL },
};

#define LLAMA3 .vocab = 128320, .head_dim = 128
const struct preset llama3_presets[] = {
    PRESET("llama3-tiny", "llama", "Llama 3 text encoder for hunyuan-video-tiny", LLAMA3,
           .width = 64, .heads = 2, .kv_heads = 1, .mlp = 96, .layers = 4),
    PRESET("llama3-8b", "llama", "Llama 3 8B text encoder of HunyuanVideo, full size", LLAMA3,
           .width = 4096, .heads = 32, .kv_heads = 8, .mlp = 14336, .layers = 32),
    { .name = NULL },
};

#define GEMMA .head_dim = 256, .sandwich = true
#define GEMMA2 GEMMA, .vocab = 256000
#define GEMMA3 GEMMA, .vocab = 262208, .qk_norm = true
const struct preset gemma_presets[] = {
    PRESET("gemma2-tiny", "gemma2", "Gemma 2 text encoder for lumina2-tiny", GEMMA2, .width = 64,
           .heads = 2, .kv_heads = 1, .mlp = 96, .layers = 3),
    PRESET("gemma2-2b", "gemma2", "Gemma 2 2B text encoder of Lumina 2, full size", GEMMA2,
           .width = 2304, .heads = 8, .kv_heads = 4, .mlp = 9216, .layers = 26),
    PRESET("gemma3-4b", "gemma3", "Gemma 3 4B, full size", GEMMA3, .width = 2560, .heads = 8,
           .kv_heads = 4, .mlp = 10240, .layers = 34),
    PRESET("gemma3-12b", "gemma3", "Gemma 3 12B, full size", GEMMA3, .width = 3840, .heads = 16,
           .kv_heads = 8, .mlp = 15360, .layers = 48),
    { .name = NULL },
};
