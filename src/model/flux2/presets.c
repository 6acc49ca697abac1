/* Flux.2: double-stream blocks (image and text apart), then single-stream ones; one modulation for
 * all blocks of a kind. */
#include "model/flux2/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */
#define MLP 3          /* times the width, inside of feed-forwards */

static void linear(struct keys *k, const char *name, uint64_t out, uint64_t in)
{
    keys_linear(k, name, out, in, KEYS_NO_BIAS);
}

static void embedder(struct keys *k, const char *name, uint64_t hidden)
{
    size_t mark = keys_enter(k, "%s", name);
    linear(k, "in_layer", hidden, TIME_WIDTH);
    linear(k, "out_layer", hidden, hidden);
    keys_leave(k, mark);
}

static void qk_norm(struct keys *k, const struct flux2_config *c)
{
    size_t mark = keys_enter(k, "norm");
    keys_tensor(k, c->scale_names ? "query_norm.scale" : "query_norm.weight", c->head_dim, 0, 0, 0);
    keys_tensor(k, c->scale_names ? "key_norm.scale" : "key_norm.weight", c->head_dim, 0, 0, 0);
    keys_leave(k, mark);
}

/* One stream of a double block; its layers are called img_* or txt_*. */
static void stream(struct keys *k, const struct flux2_config *c, const char *name)
{
    const uint64_t D = c->hidden;
    size_t mark = keys_enter(k, "%s_attn", name);
    linear(k, "qkv", 3 * D, D);
    qk_norm(k, c);
    linear(k, "proj", D, D);
    keys_leave(k, mark);
    mark = keys_enter(k, "%s_mlp", name);
    linear(k, "0", 2 * MLP * D, D); /* the gate, and what it lets through */
    linear(k, "2", D, MLP * D);
    keys_leave(k, mark);
}

void keys_flux2(struct keys *k, const struct flux2_config *c)
{
    const uint64_t D = c->hidden;
    linear(k, "img_in", D, c->channels);
    embedder(k, "time_in", D);
    if (c->guidance)
        embedder(k, "guidance_in", D);
    linear(k, "txt_in", D, c->context_dim);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "double_blocks.%d", i);
        stream(k, c, "img");
        stream(k, c, "txt");
        keys_leave(k, mark);
    }
    for (int i = 0; i < c->depth_single; i++) {
        size_t mark = keys_enter(k, "single_blocks.%d", i);
        linear(k, "linear1", (3 + 2 * MLP) * D, D); /* q, k, v and the mlp's gate and rest */
        linear(k, "linear2", D, (1 + MLP) * D);     /* attention and mlp */
        qk_norm(k, c);
        keys_leave(k, mark);
    }
    linear(k, "final_layer.linear", c->channels, D);
    linear(k, "final_layer.adaLN_modulation.1", 2 * D, D);
    linear(k, "double_stream_modulation_img.lin", 6 * D, D);
    linear(k, "double_stream_modulation_txt.lin", 6 * D, D);
    linear(k, "single_stream_modulation.lin", 3 * D, D);
}

static void build(struct keys *k, const void *config)
{
    keys_flux2(k, config);
}

/* ComfyUI-GGUF's converter takes it for Flux.1: the way in and the way out stay unquantised. */
static const char *const hiprec[] = { "img_in.",      "txt_in.",      "time_in.",
                                      "guidance_in.", "final_layer.", NULL };

/* Contexts are three layers of a text encoder side by side: mistral3-tiny or qwen3-klein-tiny. */
#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "flux", .hiprec = hiprec, .build = build,          \
        .config = &(const struct flux2_config)                                                     \
        {                                                                                          \
            .channels = 128, .head_dim = 128, __VA_ARGS__                                          \
        }                                                                                          \
    }
const struct preset flux2_presets[] = {
    PRESET("flux2-klein-tiny", "Flux.2 klein transformer, 1 + 2 blocks of width 256", .hidden = 256,
           .context_dim = 96, .depth = 1, .depth_single = 2),
    PRESET("flux2-tiny", "Flux.2 dev transformer, 2 + 2 blocks of width 256", .hidden = 256,
           .context_dim = 96, .depth = 2, .depth_single = 2, .guidance = true),
    PRESET("flux2-dev", "FLUX.2-dev transformer, full size", .hidden = 6144, .context_dim = 15360,
           .depth = 8, .depth_single = 48, .guidance = true),
    PRESET("flux2-klein-4b", "FLUX.2-klein 4B transformer, full size", .hidden = 3072,
           .context_dim = 7680, .depth = 5, .depth_single = 20),
    PRESET("flux2-klein-9b", "FLUX.2-klein 9B transformer, full size", .hidden = 4096,
           .context_dim = 12288, .depth = 8, .depth_single = 24),
    { .name = NULL },
};
