/* LTX-Video's VAE in the three forms that it had. */
#include "model/vae_ltxv/presets.h"

#define SIDE 3         /* of filters, and their frames */
#define CELL 48        /* values of a cell of 4 x 4 pixels */
#define TIME_WIDTH 256 /* of the sinusoidal embedding */

struct member { /* of a list, from the pictures on */
    char
        kind; /* r: blocks; n: that want noise; w: wider; c: a convolution with steps; f: cells */
    int n;    /* blocks; pixels of a cell */
};

static const struct member old_list[] = { { 'r', 4 }, { 'c', 8 }, { 'w', 1 }, { 'r', 3 },
                                          { 'c', 8 }, { 'w', 1 }, { 'r', 3 }, { 'c', 8 },
                                          { 'r', 3 }, { 'r', 4 }, { 0, 0 } };
static const struct member new_encoder[] = { { 'r', 4 }, { 'f', 4 }, { 'r', 6 }, { 'f', 2 },
                                             { 'r', 6 }, { 'f', 8 }, { 'r', 2 }, { 'f', 8 },
                                             { 'r', 2 }, { 0, 0 } };
static const struct member noisy_decoder[] = { { 'n', 5 }, { 'f', 8 }, { 'n', 6 }, { 'f', 8 },
                                               { 'n', 7 }, { 'f', 8 }, { 'r', 8 }, { 0, 0 } };
static const struct member new_decoder[] = { { 'r', 5 }, { 'f', 8 }, { 'r', 5 }, { 'f', 8 },
                                             { 'r', 5 }, { 'f', 8 }, { 'r', 5 }, { 0, 0 } };

static void conv(struct keys *k, const char *name, uint64_t out, uint64_t in)
{
    char full[64];
    snprintf(full, sizeof full, "%s.conv", name);
    keys_conv3d(k, full, out, in, SIDE, SIDE);
}

static void embedder(struct keys *k, const char *name, uint64_t n)
{
    size_t mark = keys_enter(k, "%s.timestep_embedder", name);
    keys_linear(k, "linear_1", n, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "linear_2", n, n, KEYS_BIAS);
    keys_leave(k, mark);
}

static void res_block(struct keys *k, uint64_t in, uint64_t out, bool timed, bool noisy)
{
    if (timed)
        keys_tensor(k, "scale_shift_table", 4, in, 0, 0);
    if (noisy)
        keys_tensor(k, "per_channel_scale1", in, 1, 1, 0);
    conv(k, "conv1", out, in);
    if (noisy)
        keys_tensor(k, "per_channel_scale2", in, 1, 1, 0);
    conv(k, "conv2", out, out);
    if (in == out)
        return;
    keys_conv3d(k, "conv_shortcut", out, in, 1, 1);
    keys_norm(k, "norm3.norm", in);
}

/* One member; returns the channels behind it. */
static uint64_t member(struct keys *k, const struct vae_ltxv_config *c, const struct member *m,
                       uint64_t ch, bool up)
{
    const bool timed = up && c->version > 0;
    const uint64_t cells = (uint64_t)m->n;
    if (m->kind == 'r' || m->kind == 'n') {
        if (timed)
            embedder(k, "time_embedder", 4 * ch);
        for (int i = 0; i < (c->blocks ? c->blocks : m->n); i++) {
            size_t mark = keys_enter(k, "res_blocks.%d", i);
            res_block(k, ch, ch, timed, m->kind == 'n');
            keys_leave(k, mark);
        }
        return ch;
    }
    if (m->kind == 'w') {
        res_block(k, ch, up ? ch / 2 : 2 * ch, false, false);
        return up ? ch / 2 : 2 * ch;
    }
    if (m->kind == 'c' && !up) {
        keys_conv3d(k, "conv", ch, ch, SIDE, SIDE);
        return ch;
    }
    if (m->kind == 'c') {
        conv(k, "conv", cells * ch, ch);
        return ch;
    }
    conv(k, "conv", up ? cells * ch / 2 : 2 * ch / cells, ch);
    return up ? ch / 2 : 2 * ch;
}

static uint64_t half(struct keys *k, const struct vae_ltxv_config *c, const struct member *list,
                     uint64_t ch, bool up)
{
    size_t n = 0;
    while (list[n].kind)
        n++;
    const bool backward = up && list == old_list;
    for (size_t i = 0; i < n; i++) {
        size_t mark = keys_enter(k, up ? "up_blocks.%zu" : "down_blocks.%zu", i);
        ch = member(k, c, &list[backward ? n - 1 - i : i], ch, up);
        keys_leave(k, mark);
    }
    return ch;
}

void keys_vae_ltxv(struct keys *k, const struct vae_ltxv_config *c)
{
    size_t top = keys_enter(k, "encoder");
    conv(k, "conv_in", c->base, CELL);
    uint64_t ch = half(k, c, c->version == 2 ? new_encoder : old_list, c->base, false);
    conv(k, "conv_out", c->latent + 1, ch);
    keys_leave(k, top);
    top = keys_enter(k, "decoder");
    ch = c->version ? 8 * c->base : 4 * c->base;
    conv(k, "conv_in", ch, c->latent);
    ch = half(k, c,
              c->version == 0   ? old_list
              : c->version == 1 ? noisy_decoder
                                : new_decoder,
              ch, true);
    conv(k, "conv_out", CELL, ch);
    if (c->version) {
        keys_shape(k, "timestep_scale_multiplier", &(struct shape) { .ndim = 0 });
        embedder(k, "last_time_embedder", 2 * ch);
        keys_tensor(k, "last_scale_shift_table", 2, ch, 0, 0);
    }
    keys_leave(k, top);
    top = keys_enter(k, "per_channel_statistics");
    keys_tensor(k, "std-of-means", c->latent, 0, 0, 0);
    keys_tensor(k, "mean-of-means", c->latent, 0, 0, 0);
    keys_leave(k, top);
}

static void build(struct keys *k, const void *config)
{
    keys_vae_ltxv(k, config);
}

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .build = build, .config = &(const struct vae_ltxv_config)  \
        {                                                                                          \
            .latent = 128, __VA_ARGS__                                                             \
        }                                                                                          \
    }
const struct preset vae_ltxv_presets[] = {
    PRESET("ltxv-tiny-vae", "VAE of LTX-Video 0.9.5 and later, narrow", .base = 16, .version = 2,
           .blocks = 1),
    PRESET("ltxv-vae", "VAE of LTX-Video 0.9.5 and later, full size", .base = 128, .version = 2),
    PRESET("ltxv-091-tiny-vae", "VAE of LTX-Video 0.9.1, narrow", .base = 16, .version = 1,
           .blocks = 1),
    PRESET("ltxv-091-vae", "VAE of LTX-Video 0.9.1, full size", .base = 128, .version = 1),
    PRESET("ltxv-09-tiny-vae", "VAE of LTX-Video 0.9, narrow", .base = 16, .version = 0,
           .blocks = 1),
    PRESET("ltxv-09-vae", "VAE of LTX-Video 0.9, full size", .base = 128, .version = 0),
    { .name = NULL },
};
