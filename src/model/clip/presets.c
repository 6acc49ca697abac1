/* CLIP text encoders under their HF names, and under OpenCLIP's. */
#include "model/clip/presets.h"

void keys_clip(struct keys *k, const struct clip_config *c)
{
    const uint64_t D = c->width;
    size_t model = keys_enter(k, "text_model");
    keys_tensor(k, "embeddings.token_embedding.weight", c->vocab, D, 0, 0);
    keys_tensor(k, "embeddings.position_embedding.weight", c->positions, D, 0, 0);
    for (int i = 0; i < c->layers; i++) {
        size_t mark = keys_enter(k, "encoder.layers.%d", i);
        keys_norm(k, "layer_norm1", D);
        keys_linear(k, "self_attn.q_proj", D, D, KEYS_BIAS);
        keys_linear(k, "self_attn.k_proj", D, D, KEYS_BIAS);
        keys_linear(k, "self_attn.v_proj", D, D, KEYS_BIAS);
        keys_linear(k, "self_attn.out_proj", D, D, KEYS_BIAS);
        keys_norm(k, "layer_norm2", D);
        keys_linear(k, "mlp.fc1", c->mlp, D, KEYS_BIAS);
        keys_linear(k, "mlp.fc2", D, c->mlp, KEYS_BIAS);
        keys_leave(k, mark);
    }
    keys_norm(k, "final_layer_norm", D);
    keys_leave(k, model);
    if (c->projection)
        keys_tensor(k, "text_projection.weight", D, D, 0, 0);
}

/* Its attention has q, k and v in one matrix, its projection the other way round than a linear
 * layer. */
void keys_openclip(struct keys *k, const struct clip_config *c)
{
    const uint64_t D = c->width;
    keys_tensor(k, "positional_embedding", c->positions, D, 0, 0);
    keys_tensor(k, "text_projection", D, D, 0, 0);
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
    keys_tensor(k, "token_embedding.weight", c->vocab, D, 0, 0);
    keys_norm(k, "ln_final", D);
}

#define TINY .vocab = 49408, .positions = 77, .width = 64, .mlp = 256, .projection = true
const struct clip_config clip_l_tiny = { TINY, .layers = 3 };
const struct clip_config clip_g_tiny = { TINY, .layers = 4 };

static void build_l(struct keys *k, const void *config)
{
    keys_clip(k, config);
}

static void build_g(struct keys *k, const void *config)
{
    size_t mark = keys_enter(k, "conditioner.embedders.1.model.transformer");
    keys_clip(k, config);
    keys_leave(k, mark);
}

const struct preset clip_presets[] = {
    { .name = "clip-l-tiny",
      .about = "CLIP-L text encoder of sd15-tiny and sdxl-tiny, for CLIPLoader and DualCLIPLoader",
      .heads = 4,
      .build = build_l,
      .config = &clip_l_tiny },
    { .name = "clip-g-tiny",
      .about = "CLIP-G text encoder for sdxl-tiny, HF names",
      .heads = 4,
      .build = build_g,
      .config = &clip_g_tiny },
    { .name = NULL },
};
