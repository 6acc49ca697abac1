/* Flux.1: double-stream blocks (image and text apart), then single-stream ones. */
#include "model/flux/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */

static void embedder(struct keys *k, const char *name, uint64_t in, uint64_t hidden)
{
    size_t mark = keys_enter(k, "%s", name);
    keys_linear(k, "in_layer", hidden, in, KEYS_BIAS);
    keys_linear(k, "out_layer", hidden, hidden, KEYS_BIAS);
    keys_leave(k, mark);
}

static void qk_norm(struct keys *k, const char *name, uint64_t head_dim)
{
    size_t mark = keys_enter(k, "%s", name);
    keys_tensor(k, "query_norm.scale", head_dim, 0, 0, 0);
    keys_tensor(k, "key_norm.scale", head_dim, 0, 0, 0);
    keys_leave(k, mark);
}

/* One stream of a double block; its layers are called img_* or txt_*. */
static void stream(struct keys *k, const struct flux_config *c, const char *name)
{
    const uint64_t D = c->hidden;
    char part[32];
    snprintf(part, sizeof part, "%s_mod.lin", name);
    keys_linear(k, part, 6 * D, D, KEYS_BIAS); /* shift, scale, gate for attention and for mlp */
    size_t mark = keys_enter(k, "%s_attn", name);
    keys_linear(k, "qkv", 3 * D, D, KEYS_BIAS);
    qk_norm(k, "norm", c->head_dim);
    keys_linear(k, "proj", D, D, KEYS_BIAS);
    keys_leave(k, mark);
    mark = keys_enter(k, "%s_mlp", name);
    keys_linear(k, "0", 4 * D, D, KEYS_BIAS);
    keys_linear(k, "2", D, 4 * D, KEYS_BIAS);
    keys_leave(k, mark);
}

void keys_flux(struct keys *k, const struct flux_config *c)
{
    const uint64_t D = c->hidden;
    keys_linear(k, "img_in", D, c->in_channels + c->beside, KEYS_BIAS);
    embedder(k, "time_in", TIME_WIDTH, D);
    embedder(k, "vector_in", c->vec_dim, D);
    if (c->guidance)
        embedder(k, "guidance_in", TIME_WIDTH, D);
    keys_linear(k, "txt_in", D, c->context_dim, KEYS_BIAS);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "double_blocks.%d", i);
        stream(k, c, "img");
        stream(k, c, "txt");
        keys_leave(k, mark);
    }
    for (int i = 0; i < c->depth_single; i++) {
        size_t mark = keys_enter(k, "single_blocks.%d", i);
        keys_linear(k, "linear1", 7 * D, D, KEYS_BIAS); /* q, k, v and the mlp's 4 x */
        keys_linear(k, "linear2", D, 5 * D, KEYS_BIAS); /* attention and mlp */
        qk_norm(k, "norm", c->head_dim);
        keys_linear(k, "modulation.lin", 3 * D, D, KEYS_BIAS);
        keys_leave(k, mark);
    }
    keys_linear(k, "final_layer.linear", c->in_channels, D, KEYS_BIAS);
    keys_linear(k, "final_layer.adaLN_modulation.1", 2 * D, D, KEYS_BIAS);
}

/* What the tools see beside a latent: another one; and the mask of 8 x 8 pixels. */
#define CONTROL .beside = 64
#define FILL .beside = 64 + 4 * 64

/* What all presets have; dev has the embedding of guidance, schnell has none. */
#define TINY                                                                                       \
    .in_channels = 64, .hidden = 256, .head_dim = 128, .context_dim = 64, .vec_dim = 64,           \
    .depth = 2, .depth_single = 3
#define FULL                                                                                       \
    .in_channels = 64, .hidden = 3072, .head_dim = 128, .context_dim = 4096, .vec_dim = 768,       \
    .depth = 19, .depth_single = 38

static void build(struct keys *k, const void *config)
{
    keys_flux(k, config);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the way in and the way out. */
static const char *const hiprec[] = { "img_in.",      "txt_in.",      "time_in.", "vector_in.",
                                      "guidance_in.", "final_layer.", NULL };

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "flux", .hiprec = hiprec, .build = build,          \
        .config = &(const struct flux_config)                                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset flux_presets[] = {
    PRESET("flux-tiny", "Flux transformer, 2 + 3 blocks of width 256", TINY, .guidance = true),
    PRESET("flux-dev", "FLUX.1-dev transformer, full size", FULL, .guidance = true),
    PRESET("flux-schnell-tiny", "flux-tiny without guidance, as FLUX.1-schnell is", TINY),
    PRESET("flux-schnell", "FLUX.1-schnell transformer, full size", FULL),
    PRESET("flux-control-tiny", "flux-tiny that sees a picture, as Canny and Depth do", TINY,
           CONTROL, .guidance = true),
    PRESET("flux-control-dev", "FLUX.1-Canny-dev or -Depth-dev transformer, full size", FULL,
           CONTROL, .guidance = true),
    PRESET("flux-fill-tiny", "flux-tiny that sees a picture and a mask, as Fill does", TINY, FILL,
           .guidance = true),
    PRESET("flux-fill-dev", "FLUX.1-Fill-dev transformer, full size", FULL, FILL, .guidance = true),
    { .name = NULL },
};
