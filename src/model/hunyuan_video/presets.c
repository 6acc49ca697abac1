/* HunyuanVideo: blocks of two streams, then of one; a refiner for the text. */
#include "model/hunyuan_video/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */
#define HEAD 128
#define PATCH 2
#define REFINERS 2

static void embedder(struct keys *k, const char *name, uint64_t in, uint64_t D)
{
    size_t mark = keys_enter(k, "%s", name);
    keys_linear(k, "in_layer", D, in, KEYS_BIAS);
    keys_linear(k, "out_layer", D, D, KEYS_BIAS);
    keys_leave(k, mark);
}

static void head_norms(struct keys *k)
{
    keys_tensor(k, "norm.query_norm.weight", HEAD, 0, 0, 0);
    keys_tensor(k, "norm.key_norm.weight", HEAD, 0, 0, 0);
}

static void text_in(struct keys *k, const struct hunyuan_config *c)
{
    const uint64_t D = c->hidden;
    size_t top = keys_enter(k, "txt_in");
    keys_linear(k, "input_embedder", D, c->context_dim, KEYS_BIAS);
    embedder(k, "t_embedder", TIME_WIDTH, D);
    embedder(k, "c_embedder", c->context_dim, D);
    for (int i = 0; i < REFINERS; i++) {
        size_t mark = keys_enter(k, "individual_token_refiner.blocks.%d", i);
        keys_linear(k, "adaLN_modulation.1", 2 * D, D, KEYS_BIAS);
        keys_norm(k, "norm1", D);
        keys_linear(k, "self_attn.qkv", 3 * D, D, KEYS_BIAS);
        keys_linear(k, "self_attn.proj", D, D, KEYS_BIAS);
        keys_norm(k, "norm2", D);
        keys_linear(k, "mlp.0", 4 * D, D, KEYS_BIAS);
        keys_linear(k, "mlp.2", D, 4 * D, KEYS_BIAS);
        keys_leave(k, mark);
    }
    keys_leave(k, top);
}

static void stream(struct keys *k, const char *name, uint64_t D)
{
    size_t mark = keys_enter(k, "%s_mod", name);
    keys_linear(k, "lin", 6 * D, D, KEYS_BIAS); /* shift, scale, gate for attention and for mlp */
    keys_leave(k, mark);
    mark = keys_enter(k, "%s_attn", name);
    keys_linear(k, "qkv", 3 * D, D, KEYS_BIAS);
    head_norms(k);
    keys_linear(k, "proj", D, D, KEYS_BIAS);
    keys_leave(k, mark);
    mark = keys_enter(k, "%s_mlp", name);
    keys_linear(k, "0", 4 * D, D, KEYS_BIAS);
    keys_linear(k, "2", D, 4 * D, KEYS_BIAS);
    keys_leave(k, mark);
}

void keys_hunyuan(struct keys *k, const struct hunyuan_config *c)
{
    const uint64_t D = c->hidden;
    const struct shape filter = { 5, { D, c->channels, 1, PATCH, PATCH } };
    keys_shape(k, "img_in.proj.weight", &filter);
    keys_tensor(k, "img_in.proj.bias", D, 0, 0, 0);
    embedder(k, "time_in", TIME_WIDTH, D);
    if (c->vector_dim)
        embedder(k, "vector_in", c->vector_dim, D);
    if (c->guidance)
        embedder(k, "guidance_in", TIME_WIDTH, D);
    text_in(k, c);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "double_blocks.%d", i);
        stream(k, "img", D);
        stream(k, "txt", D);
        keys_leave(k, mark);
    }
    for (int i = 0; i < c->single; i++) {
        size_t mark = keys_enter(k, "single_blocks.%d", i);
        keys_linear(k, "linear1", 7 * D, D, KEYS_BIAS); /* queries, keys, values, and mlp */
        keys_linear(k, "linear2", D, 5 * D, KEYS_BIAS);
        head_norms(k);
        keys_linear(k, "modulation.lin", 3 * D, D, KEYS_BIAS);
        keys_leave(k, mark);
    }
    size_t mark = keys_enter(k, "final_layer");
    keys_linear(k, "linear", PATCH * PATCH * c->channels, D, KEYS_BIAS);
    keys_linear(k, "adaLN_modulation.1", 2 * D, D, KEYS_BIAS);
    keys_leave(k, mark);
}

static void build(struct keys *k, const void *config)
{
    keys_hunyuan(k, config);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the ways in, and the refiner of the text. */
static const char *const hiprec[] = { "txt_in.",      "img_in.",      "time_in.", "vector_in.",
                                      "guidance_in.", "final_layer.", NULL };

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "hyvid", .hiprec = hiprec, .build = build,         \
        .config = &(const struct hunyuan_config)                                                   \
        {                                                                                          \
            .channels = 16, .guidance = true, __VA_ARGS__                                          \
        }                                                                                          \
    }
const struct preset hunyuan_presets[] = {
    PRESET("hunyuan-video-tiny", "HunyuanVideo transformer, 1 + 2 blocks of width 256",
           .hidden = 256, .context_dim = 64, .vector_dim = 64, .depth = 1, .single = 2),
    PRESET("hunyuan-video", "HunyuanVideo transformer, full size", .hidden = 3072,
           .context_dim = 4096, .vector_dim = 768, .depth = 20, .single = 40),
    { .name = NULL },
};
