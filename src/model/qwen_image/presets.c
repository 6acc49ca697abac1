/* Qwen-Image: blocks of two streams, picture and text, with one attention. */
#include "model/qwen_image/presets.h"

#define TIME_WIDTH 256  /* of the sinusoidal embedding */
#define PIXELS 4        /* of a patch */
#define ADDITION_ROWS 2 /* of layered models' second time embedding */

/* One stream of a block; its attention's layers are called otherwise. */
static void stream(struct keys *k, const char *name, uint64_t D)
{
    size_t mark = keys_enter(k, "%s_mod", name);
    keys_linear(k, "1", 6 * D, D, KEYS_BIAS); /* shift, scale, gate for attention and for mlp */
    keys_leave(k, mark);
    mark = keys_enter(k, "%s_mlp.net", name);
    keys_linear(k, "0.proj", 4 * D, D, KEYS_BIAS);
    keys_linear(k, "2", D, 4 * D, KEYS_BIAS);
    keys_leave(k, mark);
}

static void attention(struct keys *k, uint64_t D, uint64_t head)
{
    static const char *const norm[] = { "norm_q", "norm_k", "norm_added_q", "norm_added_k" };
    static const char *const layer[] = { "to_q",       "to_k",       "to_v",     "add_q_proj",
                                         "add_k_proj", "add_v_proj", "to_out.0", "to_add_out" };
    char full[64];
    size_t mark = keys_enter(k, "attn");
    for (size_t i = 0; i < ARRAY_LEN(norm); i++) {
        snprintf(full, sizeof full, "%s.weight", norm[i]);
        keys_tensor(k, full, head, 0, 0, 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(layer); i++)
        keys_linear(k, layer[i], D, D, KEYS_BIAS);
    keys_leave(k, mark);
}

void keys_qwen_image(struct keys *k, const struct qwen_image_config *c)
{
    const uint64_t D = c->hidden;
    size_t mark = keys_enter(k, "time_text_embed");
    keys_linear(k, "timestep_embedder.linear_1", D, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "timestep_embedder.linear_2", D, D, KEYS_BIAS);
    if (c->layered)
        keys_tensor(k, "addition_t_embedding.weight", ADDITION_ROWS, D, 0, 0);
    keys_leave(k, mark);
    if (c->timestep_zero)
        keys_mark(k, "__index_timestep_zero__");
    keys_tensor(k, "txt_norm.weight", c->context_dim, 0, 0, 0);
    keys_linear(k, "img_in", D, PIXELS * c->channels, KEYS_BIAS);
    keys_linear(k, "txt_in", D, c->context_dim, KEYS_BIAS);
    for (int i = 0; i < c->depth; i++) {
        mark = keys_enter(k, "transformer_blocks.%d", i);
        stream(k, "img", D);
        stream(k, "txt", D);
        attention(k, D, c->head_dim);
        keys_leave(k, mark);
    }
    for (int i = 0; c->looks_at && i < c->depth; i++) {
        char name[48];
        snprintf(name, sizeof name, "controlnet_blocks.%d", i);
        keys_linear(k, name, D, D, KEYS_BIAS);
    }
    if (c->looks_at) {
        keys_linear(k, "controlnet_x_embedder", D, PIXELS * c->looks_at, KEYS_BIAS);
        return;
    }
    keys_linear(k, "norm_out.linear", 2 * D, D, KEYS_BIAS);
    keys_linear(k, "proj_out", PIXELS * c->channels, D, KEYS_BIAS);
}

static void build(struct keys *k, const void *config)
{
    keys_qwen_image(k, config);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the way in and the way out. */
static const char *const hiprec[] = { "img_in.",   "txt_in.",   "time_text_embed.",
                                      "proj_out.", "norm_out.", NULL };

#define TINY .channels = 16, .hidden = 256, .head_dim = 128, .context_dim = 192, .depth = 2
#define FULL .channels = 16, .hidden = 3072, .head_dim = 128, .context_dim = 3584, .depth = 60
#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "qwen_image", .hiprec = hiprec, .build = build,    \
        .config = &(const struct qwen_image_config)                                                \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset qwen_image_presets[] = {
    PRESET("qwen-image-tiny", "Qwen-Image transformer, 2 blocks of width 256", TINY),
    PRESET("qwen-image", "Qwen-Image and Qwen-Image-Edit transformer, full size", FULL),
    PRESET("qwen-edit-tiny", "qwen-image-tiny with the mark of Qwen-Image-Edit-2511", TINY,
           .timestep_zero = true),
    PRESET("qwen-layered-tiny", "qwen-image-tiny as Qwen-Image-Layered is", TINY, .layered = true),
    { .name = NULL },
};

#define CONTROL_PRESET(name_, about_, ...)                                                         \
    {                                                                                              \
        .name = name_, .about = about_, .build = build,                                            \
        .config = &(const struct qwen_image_config)                                                \
        {                                                                                          \
            .channels = 16, .head_dim = 128, __VA_ARGS__                                           \
        }                                                                                          \
    }
const struct preset qwen_image_control_presets[] = {
    CONTROL_PRESET("controlnet-qwen-tiny", "InstantX's ControlNet for qwen-image-tiny",
                   .hidden = 256, .context_dim = 192, .depth = 1, .looks_at = 16),
    CONTROL_PRESET("controlnet-qwen", "InstantX's ControlNet for Qwen-Image, full size",
                   .hidden = 3072, .context_dim = 3584, .depth = 5, .looks_at = 16),
    CONTROL_PRESET("controlnet-qwen-inpaint-tiny",
                   "InstantX's ControlNet for inpainting with qwen-image-tiny", .hidden = 256,
                   .context_dim = 192, .depth = 1, .looks_at = 17),
    { .name = NULL },
};
