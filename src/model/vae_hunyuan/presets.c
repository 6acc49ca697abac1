/* HunyuanVideo's VAE: SD's, over frames. */
#include "model/vae_hunyuan/presets.h"

#define SIDE 3 /* of filters, and their frames */
#define LEVELS 4

static const uint64_t mult[LEVELS] = { 1, 2, 4, 4 };

static void conv(struct keys *k, const char *name, uint64_t out, uint64_t in, uint64_t side)
{
    char full[64];
    snprintf(full, sizeof full, "%s.conv", name);
    keys_conv3d(k, full, out, in, side, side);
}

static void res_block(struct keys *k, uint64_t in, uint64_t out)
{
    keys_norm(k, "norm1", in);
    conv(k, "conv1", out, in, SIDE);
    keys_norm(k, "norm2", out);
    conv(k, "conv2", out, out, SIDE);
    if (in != out)
        conv(k, "nin_shortcut", out, in, 1);
}

static void middle(struct keys *k, uint64_t ch)
{
    static const char *const point[] = { "q", "k", "v", "proj_out" };
    for (int i = 1; i <= 2; i++) {
        size_t mark = keys_enter(k, "mid.block_%d", i);
        res_block(k, ch, ch);
        keys_leave(k, mark);
    }
    size_t mark = keys_enter(k, "mid.attn_1");
    keys_norm(k, "norm", ch);
    for (size_t i = 0; i < sizeof point / sizeof *point; i++)
        keys_conv3d(k, point[i], ch, ch, 1, 1);
    keys_leave(k, mark);
}

/* One level, up or down; returns the channels behind it. */
static uint64_t level(struct keys *k, const struct vae_hunyuan_config *c, bool up, int i,
                      uint64_t in)
{
    const uint64_t ch = c->ch * mult[i];
    size_t top = keys_enter(k, up ? "up.%d" : "down.%d", i);
    for (int b = 0; b < c->blocks + up; b++, in = ch) {
        size_t mark = keys_enter(k, "block.%d", b);
        res_block(k, in, ch);
        keys_leave(k, mark);
    }
    if (up ? i > 0 : i + 1 < LEVELS)
        conv(k, up ? "upsample.conv" : "downsample.conv", ch, ch, SIDE);
    keys_leave(k, top);
    return ch;
}

void keys_vae_hunyuan(struct keys *k, const struct vae_hunyuan_config *c)
{
    uint64_t ch = c->ch;
    size_t top = keys_enter(k, "encoder");
    conv(k, "conv_in", ch, 3, SIDE);
    for (int i = 0; i < LEVELS; i++)
        ch = level(k, c, false, i, ch);
    middle(k, ch);
    keys_norm(k, "norm_out", ch);
    conv(k, "conv_out", 2 * c->z_channels, ch, SIDE); /* mean and log variance */
    keys_leave(k, top);
    top = keys_enter(k, "decoder");
    conv(k, "conv_in", ch, c->z_channels, SIDE);
    middle(k, ch);
    for (int i = LEVELS; i-- > 0;)
        ch = level(k, c, true, i, ch);
    keys_norm(k, "norm_out", ch);
    conv(k, "conv_out", 3, ch, SIDE);
    keys_leave(k, top);
    keys_conv3d(k, "quant_conv", 2 * c->z_channels, 2 * c->z_channels, 1, 1);
    keys_conv3d(k, "post_quant_conv", c->z_channels, c->z_channels, 1, 1);
}

static void build(struct keys *k, const void *config)
{
    keys_vae_hunyuan(k, config);
}

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .build = build,                                            \
        .config = &(const struct vae_hunyuan_config)                                               \
        {                                                                                          \
            .z_channels = 16, __VA_ARGS__                                                          \
        }                                                                                          \
    }
const struct preset vae_hunyuan_presets[] = {
    PRESET("hunyuan-video-tiny-vae", "VAE of HunyuanVideo, narrow", .ch = 32, .blocks = 1),
    PRESET("hunyuan-video-vae", "VAE of HunyuanVideo, full size", .ch = 128, .blocks = 2),
    { .name = NULL },
};
