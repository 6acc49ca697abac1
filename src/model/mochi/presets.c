/* Mochi: blocks of two streams of different widths. */
#include "model/mochi/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */
#define PATCH 2
#define CHUNKS 4 /* of a modulation: scale and gate for attention and for mlp */

static void mlp(struct keys *k, const char *name, uint64_t wide, uint64_t hidden)
{
    size_t mark = keys_enter(k, "%s", name);
    keys_linear(k, "w1", 2 * hidden, wide, KEYS_NO_BIAS);
    keys_linear(k, "w2", wide, hidden, KEYS_NO_BIAS);
    keys_leave(k, mark);
}

static void block(struct keys *k, const struct mochi_config *c, bool last)
{
    static const char *const norm[] = { "q_norm_x", "k_norm_x", "q_norm_y", "k_norm_y" };
    const uint64_t D = c->hidden, E = c->text_hidden;
    char full[32];
    keys_linear(k, "mod_x", CHUNKS * D, D, KEYS_BIAS);
    keys_linear(k, "mod_y", (last ? 1 : CHUNKS) * E, D, KEYS_BIAS);
    size_t mark = keys_enter(k, "attn");
    keys_linear(k, "qkv_x", 3 * D, D, KEYS_NO_BIAS);
    keys_linear(k, "qkv_y", 3 * D, E, KEYS_NO_BIAS);
    for (size_t i = 0; i < sizeof norm / sizeof *norm; i++) {
        snprintf(full, sizeof full, "%s.weight", norm[i]);
        keys_tensor(k, full, D / c->heads, 0, 0, 0);
    }
    keys_linear(k, "proj_x", D, D, KEYS_BIAS);
    if (!last)
        keys_linear(k, "proj_y", E, D, KEYS_BIAS);
    keys_leave(k, mark);
    mlp(k, "mlp_x", D, c->mlp);
    if (!last)
        mlp(k, "mlp_y", E, c->text_mlp);
}

void keys_mochi(struct keys *k, const struct mochi_config *c)
{
    const uint64_t D = c->hidden;
    keys_tensor(k, "pos_frequencies", 3, c->heads, D / c->heads / 2, 0);
    keys_conv(k, "x_embedder.proj", D, c->channels, PATCH);
    keys_linear(k, "t_embedder.mlp.0", D, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "t_embedder.mlp.2", D, D, KEYS_BIAS);
    keys_linear(k, "t5_y_embedder.to_kv", 2 * c->context_dim, c->context_dim, KEYS_BIAS);
    keys_linear(k, "t5_y_embedder.to_q", c->context_dim, c->context_dim, KEYS_BIAS);
    keys_linear(k, "t5_y_embedder.to_out", D, c->context_dim, KEYS_BIAS);
    keys_linear(k, "t5_yproj", c->text_hidden, c->context_dim, KEYS_BIAS);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "blocks.%d", i);
        block(k, c, i + 1 == c->depth);
        keys_leave(k, mark);
    }
    keys_linear(k, "final_layer.mod", 2 * D, D, KEYS_BIAS);
    keys_linear(k, "final_layer.linear", PATCH * PATCH * c->channels, D, KEYS_BIAS);
}

static void build(struct keys *k, const void *config)
{
    keys_mochi(k, config);
}

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .build = build, .config = &(const struct mochi_config)     \
        {                                                                                          \
            .channels = 12, __VA_ARGS__                                                            \
        }                                                                                          \
    }
const struct preset mochi_presets[] = {
    PRESET("mochi-tiny", "Mochi transformer, 2 blocks of width 256", .hidden = 256,
           .text_hidden = 128, .context_dim = 64, .heads = 2, .mlp = 512, .text_mlp = 256,
           .depth = 2),
    PRESET("mochi", "Mochi 1 preview transformer, full size", .hidden = 3072, .text_hidden = 1536,
           .context_dim = 4096, .heads = 24, .mlp = 8192, .text_mlp = 4096, .depth = 48),
    { .name = NULL },
};
