/* The VAEs of Wan: four levels of sides, of which two also halve frames. Those of Wan 2.2's are
 * stages, and its pixels are folded. */
#include "model/vae_wan/presets.h"

#define LEVELS 4
#define RES_BLOCKS 2 /* per level in the encoder; one more in the decoder */
#define SIDE 3       /* of filters, and their frames */
#define FOLD 4       /* pixels of a folded one */

static const uint64_t mult[LEVELS] = { 1, 2, 4, 4 };
static const bool halves_frames[LEVELS - 1] = { false, true, true };

static void gamma_of(struct keys *k, const char *name, uint64_t n)
{
    char full[64];
    snprintf(full, sizeof full, "%s.gamma", name);
    keys_tensor(k, full, n, 1, 1, 1);
}

static void conv(struct keys *k, const char *name, uint64_t out, uint64_t in)
{
    keys_conv3d(k, name, out, in, SIDE, SIDE);
}

static void res_block(struct keys *k, uint64_t in, uint64_t out)
{
    gamma_of(k, "residual.0", in);
    conv(k, "residual.2", out, in);
    gamma_of(k, "residual.3", out);
    conv(k, "residual.6", out, out);
    if (in != out)
        keys_conv3d(k, "shortcut", out, in, 1, 1);
}

static void middle(struct keys *k, uint64_t ch)
{
    for (unsigned i = 0; i < 3; i++) {
        size_t mark = keys_enter(k, "middle.%u", i);
        if (i == 1) {
            keys_tensor(k, "norm.gamma", ch, 1, 1, 0);
            keys_conv(k, "to_qkv", 3 * ch, ch, 1);
            keys_conv(k, "proj", ch, ch, 1);
        } else {
            res_block(k, ch, ch);
        }
        keys_leave(k, mark);
    }
}

static void resample(struct keys *k, uint64_t ch, uint64_t made, uint64_t time)
{
    keys_conv(k, "resample.1", made, ch, SIDE);
    if (time)
        keys_conv3d(k, "time_conv", time, ch, SIDE, 1);
}

/* Level `level` of the encoder, or of the decoder, which has one block more. */
static void stage(struct keys *k, const char *list, uint64_t in, uint64_t out, unsigned blocks,
                  bool resizes, uint64_t time)
{
    size_t top = keys_enter(k, "%s", list), mark;
    for (unsigned i = 0; i < blocks; i++) {
        mark = keys_enter(k, "%u", i);
        res_block(k, i ? out : in, out);
        keys_leave(k, mark);
    }
    mark = keys_enter(k, "%u", blocks);
    if (resizes)
        resample(k, out, out, time);
    keys_leave(k, mark);
    keys_leave(k, top);
}

/* Of Wan 2.2's. */
static uint64_t stages(struct keys *k, const struct vae_wan_config *c, bool encodes)
{
    const uint64_t dim = encodes ? c->dim : c->dec_dim;
    uint64_t ch = dim * mult[encodes ? 0 : LEVELS - 1];
    for (unsigned i = 0; i < LEVELS; i++) {
        const unsigned level = encodes ? i : LEVELS - 1 - i;
        const uint64_t out = dim * mult[level];
        const bool resizes = i + 1 < LEVELS;
        const bool time = resizes && halves_frames[encodes ? level : level - 1];
        size_t mark = keys_enter(k, encodes ? "downsamples.%u" : "upsamples.%u", i);
        stage(k, encodes ? "downsamples" : "upsamples", ch, out, RES_BLOCKS + !encodes, resizes,
              !time     ? 0
              : encodes ? out
                        : 2 * out);
        keys_leave(k, mark);
        ch = out;
    }
    return ch;
}

static void encoder_of_stages(struct keys *k, const struct vae_wan_config *c)
{
    size_t top = keys_enter(k, "encoder");
    conv(k, "conv1", c->dim, FOLD * c->colours);
    uint64_t ch = stages(k, c, true);
    middle(k, ch);
    gamma_of(k, "head.0", ch);
    conv(k, "head.2", 2 * c->z_channels, ch);
    keys_leave(k, top);
}

static void decoder_of_stages(struct keys *k, const struct vae_wan_config *c)
{
    const uint64_t ch = c->dec_dim * mult[LEVELS - 1];
    size_t top = keys_enter(k, "decoder");
    conv(k, "conv1", ch, c->z_channels);
    middle(k, ch);
    stages(k, c, false);
    gamma_of(k, "head.0", c->dec_dim * mult[0]);
    conv(k, "head.2", FOLD * c->colours, c->dec_dim * mult[0]);
    keys_leave(k, top);
}

static void encoder(struct keys *k, const struct vae_wan_config *c)
{
    size_t top = keys_enter(k, "encoder");
    uint64_t ch = c->dim;
    unsigned n = 0;
    conv(k, "conv1", ch, c->colours);
    for (unsigned level = 0; level < LEVELS; level++) {
        const uint64_t out = c->dim * mult[level];
        for (unsigned i = 0; i < RES_BLOCKS; i++, ch = out) {
            size_t mark = keys_enter(k, "downsamples.%u", n++);
            res_block(k, ch, out);
            keys_leave(k, mark);
        }
        if (level + 1 == LEVELS)
            break;
        size_t mark = keys_enter(k, "downsamples.%u", n++);
        keys_conv(k, "resample.1", ch, ch, SIDE);
        if (halves_frames[level])
            keys_conv3d(k, "time_conv", ch, ch, SIDE, 1);
        keys_leave(k, mark);
    }
    middle(k, ch);
    gamma_of(k, "head.0", ch);
    conv(k, "head.2", 2 * c->z_channels, ch); /* mean and log variance */
    keys_leave(k, top);
}

/* From the deepest level on; doubling sides also halves channels. */
static void decoder(struct keys *k, const struct vae_wan_config *c)
{
    size_t top = keys_enter(k, "decoder");
    uint64_t ch = c->dim * mult[LEVELS - 1];
    unsigned n = 0;
    conv(k, "conv1", ch, c->z_channels);
    middle(k, ch);
    for (unsigned level = LEVELS; level-- > 0;) {
        const uint64_t out = c->dim * mult[level];
        for (unsigned i = 0; i <= RES_BLOCKS; i++, ch = out) {
            size_t mark = keys_enter(k, "upsamples.%u", n++);
            res_block(k, ch, out);
            keys_leave(k, mark);
        }
        if (!level)
            break;
        size_t mark = keys_enter(k, "upsamples.%u", n++);
        keys_conv(k, "resample.1", ch / 2, ch, SIDE);
        if (halves_frames[level - 1])
            keys_conv3d(k, "time_conv", 2 * ch, ch, SIDE, 1);
        ch /= 2;
        keys_leave(k, mark);
    }
    gamma_of(k, "head.0", ch);
    conv(k, "head.2", c->colours, ch);
    keys_leave(k, top);
}

void keys_vae_wan(struct keys *k, const struct vae_wan_config *c)
{
    if (c->dec_dim)
        encoder_of_stages(k, c);
    else
        encoder(k, c);
    keys_conv3d(k, "conv1", 2 * c->z_channels, 2 * c->z_channels, 1, 1);
    keys_conv3d(k, "conv2", c->z_channels, c->z_channels, 1, 1);
    if (c->dec_dim)
        decoder_of_stages(k, c);
    else
        decoder(k, c);
}

static void build(struct keys *k, const void *config)
{
    keys_vae_wan(k, config);
}

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .build = build, .config = &(const struct vae_wan_config)   \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset vae_wan_presets[] = {
    PRESET("wan-tiny-vae", "16-channel VAE of Wan 2.1 and Qwen-Image, narrow", .z_channels = 16,
           .dim = 16, .colours = 3),
    PRESET("wan-vae", "VAE of Wan 2.1 and Qwen-Image, full size", .z_channels = 16, .dim = 96,
           .colours = 3),
    PRESET("wan-rgba-tiny-vae", "wan-tiny-vae for pictures that may be transparent",
           .z_channels = 16, .dim = 16, .colours = 4),
    PRESET("wan22-tiny-vae", "48-channel VAE of Wan 2.2 5B, narrow", .z_channels = 48, .dim = 16,
           .dec_dim = 16, .colours = 3),
    PRESET("wan22-vae", "VAE of Wan 2.2 5B, full size", .z_channels = 48, .dim = 160,
           .dec_dim = 256, .colours = 3),
    { .name = NULL },
};
