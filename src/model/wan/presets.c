/* Wan: blocks of self-attention, cross-attention to a text, and a feed-forward. */
#include "model/wan/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */
#define PIXELS 4       /* of a patch */
#define SIDE 2
#define SEEN 1280
#define VACE_MASKS 64
#define CAMERA 24 /* channels of a pixel */

static void weight(struct keys *k, const char *name, uint64_t n)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    keys_tensor(k, full, n, 0, 0, 0);
}

static void attention(struct keys *k, const char *name, uint64_t D, bool pictures)
{
    static const char *const layer[] = { "q", "k", "v", "o" };
    size_t mark = keys_enter(k, "%s", name);
    for (size_t i = 0; i < ARRAY_LEN(layer); i++)
        keys_linear(k, layer[i], D, D, KEYS_BIAS);
    weight(k, "norm_q", D);
    weight(k, "norm_k", D);
    if (pictures) {
        keys_linear(k, "k_img", D, D, KEYS_BIAS);
        keys_linear(k, "v_img", D, D, KEYS_BIAS);
        weight(k, "norm_k_img", D);
    }
    keys_leave(k, mark);
}

static void block(struct keys *k, const struct wan_config *c)
{
    keys_tensor(k, "modulation", 1, 6, c->hidden, 0);
    attention(k, "self_attn", c->hidden, false);
    keys_norm(k, "norm3", c->hidden);
    attention(k, "cross_attn", c->hidden, c->sees);
    keys_linear(k, "ffn.0", c->ffn, c->hidden, KEYS_BIAS);
    keys_linear(k, "ffn.2", c->hidden, c->ffn, KEYS_BIAS);
}

static void patches(struct keys *k, const char *name, uint64_t out, uint64_t in)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    keys_shape(k, full, &(struct shape) { 5, { out, in, 1, SIDE, SIDE } });
    snprintf(full, sizeof full, "%s.bias", name);
    keys_tensor(k, full, out, 0, 0, 0);
}

void keys_wan(struct keys *k, const struct wan_config *c)
{
    const uint64_t D = c->hidden;
    patches(k, "patch_embedding", D, c->in);
    keys_linear(k, "text_embedding.0", D, c->context_dim, KEYS_BIAS);
    keys_linear(k, "text_embedding.2", D, D, KEYS_BIAS);
    keys_linear(k, "time_embedding.0", D, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "time_embedding.2", D, D, KEYS_BIAS);
    keys_linear(k, "time_projection.1", 6 * D, D, KEYS_BIAS);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "blocks.%d", i);
        block(k, c);
        keys_leave(k, mark);
    }
    keys_tensor(k, "head.modulation", 1, 2, D, 0);
    keys_linear(k, "head.head", PIXELS * c->out, D, KEYS_BIAS);
    if (c->sees) {
        size_t mark = keys_enter(k, "img_emb");
        if (c->seen)
            keys_tensor(k, "emb_pos", 1, c->seen, SEEN, 0);
        keys_norm(k, "proj.0", SEEN);
        keys_linear(k, "proj.1", SEEN, SEEN, KEYS_BIAS);
        keys_linear(k, "proj.3", D, SEEN, KEYS_BIAS);
        keys_norm(k, "proj.4", D);
        keys_leave(k, mark);
    }
    for (int i = 0; i < c->vace; i++) {
        size_t mark = keys_enter(k, "vace_blocks.%d", i);
        block(k, c);
        if (!i)
            keys_linear(k, "before_proj", D, D, KEYS_BIAS);
        keys_linear(k, "after_proj", D, D, KEYS_BIAS);
        keys_leave(k, mark);
    }
    if (c->vace)
        patches(k, "vace_patch_embedding", D, 2 * c->out + VACE_MASKS);
    if (c->camera) {
        size_t mark = keys_enter(k, "control_adapter");
        keys_conv(k, "conv", D, CAMERA * 64, SIDE);
        keys_conv(k, "residual_blocks.0.conv1", D, D, 3);
        keys_conv(k, "residual_blocks.0.conv2", D, D, 3);
        keys_leave(k, mark);
    }
    if (c->ref)
        keys_conv(k, "ref_conv", D, c->ref, SIDE);
}

static void build(struct keys *k, const void *config)
{
    keys_wan(k, config);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the ways in and out. */
#define ENDS "patch_embedding.", "text_embedding.", "time_embedding.", "time_projection.", "head."
static const char *const hiprec[] = { ENDS, NULL };
static const char *const hiprec_vace[] = { ENDS, "vace_patch_embedding.", NULL };
static const char *const hiprec_camera22[] = { ENDS, "control_adapter.", NULL };
static const char *const hiprec_camera[] = { ENDS, "img_emb.", "control_adapter.", NULL };
static const char *const hiprec_sees[] = { ENDS, "img_emb.", NULL };

#define TINY .hidden = 256, .ffn = 512, .context_dim = 64, .depth = 2
#define SMALL .hidden = 1536, .ffn = 8960, .context_dim = 4096, .depth = 30
#define LARGE .hidden = 5120, .ffn = 13824, .context_dim = 4096, .depth = 40
#define PRESET(name_, about_, hiprec_, ...)                                                        \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "wan", .hiprec = hiprec_, .build = build,          \
        .config = &(const struct wan_config)                                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset wan_presets[] = {
    PRESET("wan-tiny", "Wan text to video transformer, 2 blocks of width 256", hiprec, TINY,
           .in = 16, .out = 16),
    PRESET("wan-t2v-1.3b", "Wan 2.1 text to video 1.3B transformer, full size", hiprec, SMALL,
           .in = 16, .out = 16),
    PRESET("wan-t2v-14b", "Wan 2.1 or 2.2 text to video 14B transformer, full size", hiprec, LARGE,
           .in = 16, .out = 16),
    PRESET("wan-i2v-tiny", "wan-tiny for image to video, as CLIP vision H sees it", hiprec_sees,
           TINY, .in = 36, .out = 16, .sees = true),
    PRESET("wan-flf2v-tiny", "wan-i2v-tiny for a first and a last frame", hiprec_sees, TINY,
           .in = 36, .out = 16, .sees = true, .seen = 514),
    PRESET("wan-i2v-14b", "Wan 2.1 image to video 14B transformer, full size", hiprec_sees, LARGE,
           .in = 36, .out = 16, .sees = true),
    PRESET("wan22-i2v-tiny", "wan-tiny for image to video as in Wan 2.2", hiprec, TINY, .in = 36,
           .out = 16),
    PRESET("wan22-i2v-14b", "Wan 2.2 image to video 14B transformer, full size", hiprec, LARGE,
           .in = 36, .out = 16),
    PRESET("wan-vace-tiny", "wan-tiny that follows videos (VACE)", hiprec_vace, TINY, .in = 16,
           .out = 16, .vace = 1),
    PRESET("wan-vace-1.3b", "Wan 2.1 VACE 1.3B transformer, full size", hiprec_vace, SMALL,
           .in = 16, .out = 16, .vace = 15),
    PRESET("wan-vace-14b", "Wan 2.1 VACE 14B transformer, full size", hiprec_vace, LARGE, .in = 16,
           .out = 16, .vace = 8),
    PRESET("wan-camera-tiny", "wan-i2v-tiny that is told of a camera", hiprec_camera, TINY,
           .in = 32, .out = 16, .sees = true, .camera = true),
    PRESET("wan22-camera-14b", "Wan 2.2 Fun-Camera 14B transformer, full size", hiprec_camera22,
           LARGE, .in = 36, .out = 16, .camera = true),
    PRESET("wan22-ti2v-tiny", "wan-tiny over latents of Wan 2.2's VAE", hiprec, TINY, .in = 48,
           .out = 48),
    PRESET("wan22-ti2v-5b", "Wan 2.2 text and image to video 5B transformer, full size", hiprec,
           .hidden = 3072, .ffn = 14336, .context_dim = 4096, .depth = 30, .in = 48, .out = 48),
    { .name = NULL },
};
