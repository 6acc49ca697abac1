/* Z-Image and Lumina2: refiners of picture and text, then joint blocks. */
#include "model/zimage/presets.h"

#define PATCH 64 /* 2 x 2 pixels of 16 channels */
#define TIME_WIDTH 256

static void scale(struct keys *k, const char *name, uint64_t n)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    keys_tensor(k, full, n, 0, 0, 0);
}

static void blocks(struct keys *k, const struct zimage_config *c, const char *list, int n,
                   bool modulated)
{
    const uint64_t D = c->hidden, q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    for (int i = 0; i < n; i++) {
        size_t mark = keys_enter(k, "%s.%d", list, i);
        keys_linear(k, "attention.qkv", q + 2 * kv, D, KEYS_NO_BIAS);
        keys_linear(k, "attention.out", D, q, KEYS_NO_BIAS);
        scale(k, "attention.q_norm", c->head_dim);
        scale(k, "attention.k_norm", c->head_dim);
        keys_linear(k, "feed_forward.w1", c->ffn, D, KEYS_NO_BIAS);
        keys_linear(k, "feed_forward.w2", D, c->ffn, KEYS_NO_BIAS);
        keys_linear(k, "feed_forward.w3", c->ffn, D, KEYS_NO_BIAS);
        scale(k, "attention_norm1", D);
        scale(k, "ffn_norm1", D);
        scale(k, "attention_norm2", D);
        scale(k, "ffn_norm2", D);
        if (modulated)
            keys_linear(k, c->lumina ? "adaLN_modulation.1" : "adaLN_modulation.0", 4 * D, c->mod,
                        KEYS_BIAS);
        keys_leave(k, mark);
    }
}

void keys_zimage(struct keys *k, const struct zimage_config *c)
{
    const uint64_t D = c->hidden;
    if (!c->lumina) {
        keys_tensor(k, "x_pad_token", 1, D, 0, 0);
        keys_tensor(k, "cap_pad_token", 1, D, 0, 0);
    }
    if (c->siglip) {
        keys_tensor(k, "siglip_pad_token", 1, D, 0, 0);
        scale(k, "siglip_embedder.0", c->siglip);
        keys_linear(k, "siglip_embedder.1", D, c->siglip, KEYS_BIAS);
        blocks(k, c, "siglip_refiner", c->refiners, false);
    }
    keys_linear(k, "x_embedder", D, PATCH, KEYS_BIAS);
    blocks(k, c, "noise_refiner", c->refiners, true);
    blocks(k, c, "context_refiner", c->refiners, false);
    keys_linear(k, "t_embedder.mlp.0", c->time, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "t_embedder.mlp.2", c->mod, c->time, KEYS_BIAS);
    scale(k, "cap_embedder.0", c->context_dim);
    keys_linear(k, "cap_embedder.1", D, c->context_dim, KEYS_BIAS);
    if (c->pooled) {
        scale(k, "clip_text_pooled_proj.0", c->pooled);
        keys_linear(k, "clip_text_pooled_proj.1", c->pooled, c->pooled, KEYS_BIAS);
        keys_linear(k, "time_text_embed.1", c->mod, c->mod + c->pooled, KEYS_BIAS);
    }
    blocks(k, c, "layers", c->layers, true);
    keys_linear(k, "final_layer.linear", PATCH, D, KEYS_BIAS);
    keys_linear(k, "final_layer.adaLN_modulation.1", D, c->mod, KEYS_BIAS);
}

static void build(struct keys *k, const void *config)
{
    keys_zimage(k, config);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the way in, the way out, and what is small. */
#define ENDS "cap_embedder.", "x_embedder.", "t_embedder.", "final_layer."
static const char *const hiprec[] = { ENDS, "x_pad_token", "cap_pad_token", NULL };
static const char *const hiprec_omni[] = {
    ENDS, "x_pad_token", "cap_pad_token", "siglip_pad_token", "siglip_embedder.", NULL
};
static const char *const hiprec_lumina[] = { ENDS, NULL };

#define PRESET(name_, about_, hiprec_, ...)                                                        \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "lumina2", .hiprec = hiprec_, .build = build,      \
        .config = &(const struct zimage_config)                                                    \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset zimage_presets[] = {
    PRESET("z-image-tiny", "Z-Image transformer, 2 + 2 + 2 blocks of width 256", hiprec,
           .hidden = 256, .ffn = 768, .context_dim = 256, .head_dim = 128, .heads = 2,
           .kv_heads = 2, .time = 256, .mod = 256, .layers = 2, .refiners = 2),
    PRESET("z-image-turbo", "Z-Image Turbo or base transformer, full size", hiprec, .hidden = 3840,
           .ffn = 10240, .context_dim = 2560, .head_dim = 128, .heads = 30, .kv_heads = 30,
           .time = 1024, .mod = 256, .layers = 30, .refiners = 2),
    PRESET("z-image-omni-tiny", "Z-Image Omni transformer, 2 + 2 + 2 + 2 blocks of width 256",
           hiprec_omni, .hidden = 256, .ffn = 768, .context_dim = 256, .head_dim = 128, .heads = 2,
           .kv_heads = 2, .time = 256, .mod = 256, .layers = 2, .refiners = 2, .siglip = 64),
    PRESET("z-image-omni", "Z-Image Omni transformer, full size", hiprec_omni, .hidden = 3840,
           .ffn = 10240, .context_dim = 2560, .head_dim = 128, .heads = 30, .kv_heads = 30,
           .time = 1024, .mod = 256, .layers = 30, .refiners = 2, .siglip = 1152),
    PRESET("lumina2-tiny", "Lumina2 transformer, 2 + 2 + 2 blocks of width 192", hiprec_lumina,
           .hidden = 192, .ffn = 768, .context_dim = 64, .head_dim = 48, .heads = 4, .kv_heads = 2,
           .time = 192, .mod = 192, .layers = 2, .refiners = 2, .lumina = true),
    PRESET("lumina2", "Lumina-Image 2.0 transformer, full size", hiprec_lumina, .hidden = 2304,
           .ffn = 9216, .context_dim = 2304, .head_dim = 96, .heads = 24, .kv_heads = 8,
           .time = 1024, .mod = 1024, .layers = 26, .refiners = 2, .lumina = true),
    { .name = NULL },
};
