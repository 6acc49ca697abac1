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
    if (c->no_way_out)
        return;
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

/* ---- control nets ---- */

struct control {
    struct flux_config flux;
    uint64_t looks_at; /* channels of a latent, and of a mask */
    uint64_t modes;    /* of union nets */
};

static void layers(struct keys *k, const char *list, int n, uint64_t D)
{
    char name[48];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s.%d", list, i);
        keys_linear(k, name, D, D, KEYS_BIAS);
    }
}

static void head_norms(struct keys *k, const char *const *list, uint64_t head_dim)
{
    for (; *list; list++)
        keys_tensor(k, *list, head_dim, 0, 0, 0);
}

/* The same network in diffusers' names, without a way out. */
static void diffusers(struct keys *k, const struct flux_config *c)
{
    static const char *const product[] = { "to_q",       "to_k",       "to_v",     "add_q_proj",
                                           "add_k_proj", "add_v_proj", "to_out.0", "to_add_out" };
    static const char *const norm[] = { "attn.norm_q.weight", "attn.norm_k.weight", NULL };
    static const char *const added[] = { "attn.norm_added_q.weight", "attn.norm_added_k.weight",
                                         NULL };
    const uint64_t D = c->hidden;
    char name[48];
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "transformer_blocks.%d", i);
        keys_linear(k, "norm1.linear", 6 * D, D, KEYS_BIAS);
        keys_linear(k, "norm1_context.linear", 6 * D, D, KEYS_BIAS);
        head_norms(k, norm, c->head_dim);
        head_norms(k, added, c->head_dim);
        for (size_t n = 0; n < ARRAY_LEN(product); n++) {
            snprintf(name, sizeof name, "attn.%s", product[n]);
            keys_linear(k, name, D, D, KEYS_BIAS);
        }
        keys_linear(k, "ff.net.0.proj", 4 * D, D, KEYS_BIAS);
        keys_linear(k, "ff.net.2", D, 4 * D, KEYS_BIAS);
        keys_linear(k, "ff_context.net.0.proj", 4 * D, D, KEYS_BIAS);
        keys_linear(k, "ff_context.net.2", D, 4 * D, KEYS_BIAS);
        keys_leave(k, mark);
    }
    for (int i = 0; i < c->depth_single; i++) {
        size_t mark = keys_enter(k, "single_transformer_blocks.%d", i);
        keys_linear(k, "norm.linear", 3 * D, D, KEYS_BIAS);
        keys_linear(k, "proj_mlp", 4 * D, D, KEYS_BIAS);
        keys_linear(k, "proj_out", D, 5 * D, KEYS_BIAS);
        head_norms(k, norm, c->head_dim);
        for (size_t n = 0; n < 3; n++) { /* queries, keys, values */
            snprintf(name, sizeof name, "attn.%s", product[n]);
            keys_linear(k, name, D, D, KEYS_BIAS);
        }
        keys_leave(k, mark);
    }
}

static void build_instantx(struct keys *k, const void *config)
{
    static const char *const embed[] = { "timestep_embedder", "guidance_embedder",
                                         "text_embedder" };
    const struct control *c = config;
    const uint64_t D = c->flux.hidden, wide[] = { TIME_WIDTH, TIME_WIDTH, c->flux.vec_dim };
    keys_linear(k, "x_embedder", D, c->flux.in_channels, KEYS_BIAS);
    keys_linear(k, "context_embedder", D, c->flux.context_dim, KEYS_BIAS);
    for (size_t i = 0; i < ARRAY_LEN(embed); i++) {
        size_t mark = keys_enter(k, "time_text_embed.%s", embed[i]);
        keys_linear(k, "linear_1", D, wide[i], KEYS_BIAS);
        keys_linear(k, "linear_2", D, D, KEYS_BIAS);
        keys_leave(k, mark);
    }
    diffusers(k, &c->flux);
    layers(k, "controlnet_blocks", c->flux.depth, D);
    layers(k, "controlnet_single_blocks", c->flux.depth_single, D);
    keys_linear(k, "controlnet_x_embedder", D, 4 * c->looks_at, KEYS_BIAS);
    if (c->modes)
        keys_tensor(k, "controlnet_mode_embedder.weight", c->modes, D, 0, 0);
}

#define HINT 16 /* channels of its convolutions */

static void build_xlabs(struct keys *k, const void *config)
{
    const struct control *c = config;
    char name[32];
    keys_flux(k, &c->flux);
    layers(k, "controlnet_blocks", c->flux.depth, c->flux.hidden);
    keys_linear(k, "pos_embed_input", c->flux.hidden, c->flux.in_channels, KEYS_BIAS);
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "input_hint_block.%d", 2 * i);
        keys_conv(k, name, HINT, i ? HINT : 3, 3);
    }
}

#define TINY_WIDTHS                                                                                \
    .in_channels = 64, .hidden = 256, .head_dim = 128, .context_dim = 64, .vec_dim = 64
#define FULL_WIDTHS                                                                                \
    .in_channels = 64, .hidden = 3072, .head_dim = 128, .context_dim = 4096, .vec_dim = 768
#define CONTROL_PRESET(name_, about_, build_, ...)                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .build = build_, .config = &(const struct control)         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset flux_instantx_presets[] = {
    CONTROL_PRESET("controlnet-flux-union-tiny", "InstantX's union ControlNet for flux-tiny",
                   build_instantx,
                   .flux = { TINY_WIDTHS, .depth = 1, .depth_single = 1, .guidance = true },
                   .looks_at = 16, .modes = 10),
    CONTROL_PRESET("controlnet-flux-union", "InstantX's union ControlNet for Flux, full size",
                   build_instantx,
                   .flux = { FULL_WIDTHS, .depth = 5, .depth_single = 10, .guidance = true },
                   .looks_at = 16, .modes = 10),
    { .name = NULL },
};
const struct preset flux_xlabs_presets[] = {
    CONTROL_PRESET("controlnet-flux-xlabs-tiny", "XLabs' ControlNet for flux-tiny", build_xlabs,
                   .flux = { TINY_WIDTHS, .depth = 1, .guidance = true, .no_way_out = true }),
    CONTROL_PRESET("controlnet-flux-xlabs", "XLabs' ControlNet for Flux, full size", build_xlabs,
                   .flux = { FULL_WIDTHS, .depth = 2, .guidance = true, .no_way_out = true }),
    { .name = NULL },
};
