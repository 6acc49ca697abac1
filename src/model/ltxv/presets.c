/* LTX-Video: blocks that look at each other, then at text, with one modulation. */
#include "model/ltxv/presets.h"

#include "model/vae_ltxv/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */
#define CHUNKS 6       /* of a modulation: shift, scale, gate for attention and for mlp */

static void attention(struct keys *k, const char *name, uint64_t D)
{
    size_t mark = keys_enter(k, "%s", name);
    keys_tensor(k, "q_norm.weight", D, 0, 0, 0);
    keys_tensor(k, "k_norm.weight", D, 0, 0, 0);
    keys_linear(k, "to_q", D, D, KEYS_BIAS);
    keys_linear(k, "to_k", D, D, KEYS_BIAS);
    keys_linear(k, "to_v", D, D, KEYS_BIAS);
    keys_linear(k, "to_out.0", D, D, KEYS_BIAS);
    keys_leave(k, mark);
}

void keys_ltxv(struct keys *k, const struct ltxv_config *c)
{
    const uint64_t D = c->hidden;
    keys_tensor(k, "scale_shift_table", 2, D, 0, 0);
    keys_linear(k, "patchify_proj", D, c->channels, KEYS_BIAS);
    keys_linear(k, "adaln_single.emb.timestep_embedder.linear_1", D, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "adaln_single.emb.timestep_embedder.linear_2", D, D, KEYS_BIAS);
    keys_linear(k, "adaln_single.linear", CHUNKS * D, D, KEYS_BIAS);
    keys_linear(k, "caption_projection.linear_1", D, c->context_dim, KEYS_BIAS);
    keys_linear(k, "caption_projection.linear_2", D, D, KEYS_BIAS);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "transformer_blocks.%d", i);
        keys_tensor(k, "scale_shift_table", CHUNKS, D, 0, 0);
        attention(k, "attn1", D);
        keys_linear(k, "ff.net.0.proj", 4 * D, D, KEYS_BIAS);
        keys_linear(k, "ff.net.2", D, 4 * D, KEYS_BIAS);
        attention(k, "attn2", D);
        keys_leave(k, mark);
    }
    keys_linear(k, "proj_out", c->channels, D, KEYS_BIAS);
}

static void build(struct keys *k, const void *config)
{
    keys_ltxv(k, config);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the tables that noise levels are added to. */
static const char *const hiprec[] = { "scale_shift_table", NULL };

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "ltxv", .hiprec = hiprec, .build = build,          \
        .config = &(const struct ltxv_config)                                                      \
        {                                                                                          \
            .channels = 128, __VA_ARGS__                                                           \
        }                                                                                          \
    }
struct all { /* a checkpoint, as Lightricks gives them */
    struct ltxv_config model;
    struct vae_ltxv_config vae;
};

static void build_all(struct keys *k, const void *config)
{
    const struct all *c = config;
    size_t mark = keys_enter(k, "model.diffusion_model");
    keys_ltxv(k, &c->model);
    keys_leave(k, mark);
    mark = keys_enter(k, "vae");
    keys_vae_ltxv(k, &c->vae);
    keys_leave(k, mark);
}

#define CHECKPOINT(name_, about_, ...)                                                             \
    {                                                                                              \
        .name = name_, .about = about_, .build = build_all, .config = &(const struct all)          \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset ltxv_presets[] = {
    PRESET("ltxv-tiny", "LTX-Video transformer, 2 blocks of width 256", .hidden = 256,
           .context_dim = 64, .depth = 2),
    PRESET("ltxv-2b", "LTX-Video 2B transformer, full size", .hidden = 2048, .context_dim = 4096,
           .depth = 28),
    PRESET("ltxv-13b", "LTX-Video 13B transformer, full size", .hidden = 4096, .context_dim = 4096,
           .depth = 48),
    CHECKPOINT("ltxv-checkpoint-tiny", "ltxv-tiny and ltxv-tiny-vae in one file",
               .model = { 128, 256, 64, 2 },
               .vae = { .base = 16, .latent = 128, .version = 2, .blocks = 1 }),
    CHECKPOINT("ltxv-checkpoint-2b", "an LTX-Video 2B checkpoint of 0.9.5 and later, full size",
               .model = { 128, 2048, 4096, 28 },
               .vae = { .base = 128, .latent = 128, .version = 2 }),
    { .name = NULL },
};
