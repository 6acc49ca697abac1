/* CLIP's encoders of pictures and SigLIP's under transformers' names, and under OpenCLIP's. */
#include "model/clip_vision/presets.h"

static void hf_layer(struct keys *k, const struct clip_vision_config *c)
{
    const uint64_t D = c->width;
    keys_norm(k, "layer_norm1", D);
    keys_linear(k, "self_attn.q_proj", D, D, KEYS_BIAS);
    keys_linear(k, "self_attn.k_proj", D, D, KEYS_BIAS);
    keys_linear(k, "self_attn.v_proj", D, D, KEYS_BIAS);
    keys_linear(k, "self_attn.out_proj", D, D, KEYS_BIAS);
    keys_norm(k, "layer_norm2", D);
    keys_linear(k, "mlp.fc1", c->mlp, D, KEYS_BIAS);
    keys_linear(k, "mlp.fc2", D, c->mlp, KEYS_BIAS);
}

void keys_clip_vision(struct keys *k, const struct clip_vision_config *c)
{
    const uint64_t D = c->width;
    size_t model = keys_enter(k, "vision_model");
    if (!c->siglip)
        keys_tensor(k, "embeddings.class_embedding", D, 0, 0, 0);
    keys_tensor(k, "embeddings.patch_embedding.weight", D, 3, c->patch, c->patch);
    if (c->siglip)
        keys_tensor(k, "embeddings.patch_embedding.bias", D, 0, 0, 0);
    keys_tensor(k, "embeddings.position_embedding.weight", c->tokens, D, 0, 0);
    if (!c->siglip)
        keys_norm(k, "pre_layrnorm", D);
    for (int i = 0; i < c->layers; i++) {
        size_t mark = keys_enter(k, "encoder.layers.%d", i);
        hf_layer(k, c);
        keys_leave(k, mark);
    }
    keys_norm(k, "post_layernorm", D);
    keys_leave(k, model);
    if (c->projection)
        keys_tensor(k, "visual_projection.weight", c->projection, D, 0, 0);
    if (c->llava) {
        keys_linear(k, "multi_modal_projector.linear_1", c->llava, D, KEYS_BIAS);
        keys_linear(k, "multi_modal_projector.linear_2", c->llava, c->llava, KEYS_BIAS);
    }
}

/* Its attention has q, k and v in one matrix, its projection the other way round than a linear
 * layer. */
void keys_openclip_vision(struct keys *k, const struct clip_vision_config *c)
{
    const uint64_t D = c->width;
    size_t model = keys_enter(k, "visual");
    keys_tensor(k, "class_embedding", D, 0, 0, 0);
    keys_tensor(k, "conv1.weight", D, 3, c->patch, c->patch);
    keys_tensor(k, "positional_embedding", c->tokens, D, 0, 0);
    keys_norm(k, "ln_pre", D);
    for (int i = 0; i < c->layers; i++) {
        size_t mark = keys_enter(k, "transformer.resblocks.%d", i);
        keys_norm(k, "ln_1", D);
        keys_tensor(k, "attn.in_proj_weight", 3 * D, D, 0, 0);
        keys_tensor(k, "attn.in_proj_bias", 3 * D, 0, 0, 0);
        keys_linear(k, "attn.out_proj", D, D, KEYS_BIAS);
        keys_norm(k, "ln_2", D);
        keys_linear(k, "mlp.c_fc", c->mlp, D, KEYS_BIAS);
        keys_linear(k, "mlp.c_proj", D, c->mlp, KEYS_BIAS);
        keys_leave(k, mark);
    }
    keys_norm(k, "ln_post", D);
    if (c->projection)
        keys_tensor(k, "proj", D, c->projection, 0, 0);
    keys_leave(k, model);
}

static void build(struct keys *k, const void *config)
{
    keys_clip_vision(k, config);
}

#define PRESET(name_, about_, heads_, ...)                                                         \
    {                                                                                              \
        .name = name_, .about = about_, .heads = heads_, .build = build,                           \
        .config = &(const struct clip_vision_config)                                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset clip_vision_presets[] = {
    PRESET("clip-vision-l-tiny", "CLIP-L vision of width 64, 4 x 4 patches", 4, .width = 64,
           .mlp = 256, .patch = 14, .tokens = 17, .layers = 3, .projection = 48),
    PRESET("clip-vision-l", "CLIP-L 14 vision, full size", 0, .width = 1024, .mlp = 4096,
           .patch = 14, .tokens = 257, .layers = 24, .projection = 768),
    PRESET("clip-vision-l-336", "CLIP-L 14 vision for 336 pixels, full size", 0, .width = 1024,
           .mlp = 4096, .patch = 14, .tokens = 577, .layers = 24, .projection = 768),
    PRESET("clip-vision-h-tiny", "CLIP-H vision of width 64, all of its 32 layers", 4, .width = 64,
           .mlp = 128, .patch = 14, .tokens = 17, .layers = 32, .projection = 48),
    PRESET("clip-vision-h", "CLIP-H 14 vision, full size", 0, .width = 1280, .mlp = 5120,
           .patch = 14, .tokens = 257, .layers = 32, .projection = 1024),
    PRESET("clip-vision-g", "CLIP-G 14 vision, full size", 0, .width = 1664, .mlp = 8192,
           .patch = 14, .tokens = 257, .layers = 48, .projection = 1280),
    PRESET("siglip-tiny", "SigLIP vision of width 64, 4 x 4 patches", 4, .width = 64, .mlp = 96,
           .patch = 14, .tokens = 16, .layers = 3, .siglip = true),
    PRESET("siglip-16-tiny", "SigLIP vision of width 64, 4 x 4 patches of 16 pixels", 4,
           .width = 64, .mlp = 96, .patch = 16, .tokens = 16, .layers = 3, .siglip = true),
    PRESET("siglip-deep-tiny", "SigLIP vision of width 64, 4 x 4 patches, 21 layers", 4,
           .width = 64, .mlp = 96, .patch = 14, .tokens = 16, .layers = 21, .siglip = true),
    PRESET("siglip-384", "SigLIP so400m vision for 384 pixels, full size", 0, .width = 1152,
           .mlp = 4304, .patch = 14, .tokens = 729, .layers = 27, .siglip = true),
    PRESET("siglip-512", "SigLIP so400m vision for 512 pixels, full size", 0, .width = 1152,
           .mlp = 4304, .patch = 16, .tokens = 1024, .layers = 27, .siglip = true),
    { .name = NULL },
};
