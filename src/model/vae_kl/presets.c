/* AutoencoderKL: the image codec of SD1, SDXL, SD3, Flux and Flux.2. */
#include "model/vae_kl/presets.h"

#define VAE .levels = 4, .mult = { 1, 2, 4, 4 }, .res_blocks = 2 /* of all presets */
#define FLUX2 VAE, .z_channels = 32, .quant_convs = true, .packed = true
#define PACKED 4 /* pixels of the network's latents in one of Flux.2's */

static void res_block(struct keys *k, uint64_t in, uint64_t out)
{
    keys_norm(k, "norm1", in);
    keys_conv(k, "conv1", out, in, 3);
    keys_norm(k, "norm2", out);
    keys_conv(k, "conv2", out, out, 3);
    if (in != out)
        keys_conv(k, "nin_shortcut", out, in, 1);
}

static void middle(struct keys *k, uint64_t ch)
{
    size_t mark = keys_enter(k, "mid.block_1");
    res_block(k, ch, ch);
    keys_leave(k, mark);

    mark = keys_enter(k, "mid.attn_1");
    keys_norm(k, "norm", ch);
    keys_conv(k, "q", ch, ch, 1);
    keys_conv(k, "k", ch, ch, 1);
    keys_conv(k, "v", ch, ch, 1);
    keys_conv(k, "proj_out", ch, ch, 1);
    keys_leave(k, mark);

    mark = keys_enter(k, "mid.block_2");
    res_block(k, ch, ch);
    keys_leave(k, mark);
}

static void encoder(struct keys *k, const struct vae_config *c)
{
    size_t top = keys_enter(k, "encoder");
    uint64_t ch = c->ch;
    keys_conv(k, "conv_in", ch, 3, 3);
    for (int level = 0; level < c->levels; level++) {
        size_t mark = keys_enter(k, "down.%d", level);
        for (int r = 0; r < c->res_blocks; r++) {
            size_t block = keys_enter(k, "block.%d", r);
            res_block(k, ch, c->ch * c->mult[level]);
            ch = c->ch * c->mult[level];
            keys_leave(k, block);
        }
        if (level + 1 < c->levels)
            keys_conv(k, "downsample.conv", ch, ch, 3);
        keys_leave(k, mark);
    }
    middle(k, ch);
    keys_norm(k, "norm_out", ch);
    keys_conv(k, "conv_out", 2 * c->z_channels, ch, 3); /* mean and log variance */
    keys_leave(k, top);
}

static void decoder(struct keys *k, const struct vae_config *c)
{
    size_t top = keys_enter(k, "decoder");
    const uint64_t width = c->decoder_ch ? c->decoder_ch : c->ch;
    const uint64_t deepest = width * c->mult[c->levels - 1];
    keys_conv(k, "conv_in", deepest, c->z_channels, 3);
    middle(k, deepest);
    /* Runs from the deepest level to level 0 and is listed by level, 0 first. */
    for (int level = 0; level < c->levels; level++) {
        size_t mark = keys_enter(k, "up.%d", level);
        uint64_t out = width * c->mult[level];
        uint64_t ch = level + 1 < c->levels ? width * c->mult[level + 1] : deepest;
        for (int r = 0; r <= c->res_blocks; r++) {
            size_t block = keys_enter(k, "block.%d", r);
            res_block(k, ch, out);
            ch = out;
            keys_leave(k, block);
        }
        if (level)
            keys_conv(k, "upsample.conv", out, out, 3);
        keys_leave(k, mark);
    }
    keys_norm(k, "norm_out", width * c->mult[0]);
    keys_conv(k, "conv_out", 3, width * c->mult[0], 3);
    keys_leave(k, top);
}

void keys_vae(struct keys *k, const struct vae_config *c)
{
    encoder(k, c);
    decoder(k, c);
    if (c->quant_convs) {
        keys_conv(k, "quant_conv", 2 * c->z_channels, 2 * c->z_channels, 1);
        keys_conv(k, "post_quant_conv", c->z_channels, c->z_channels, 1);
    }
    if (c->packed) {
        keys_tensor(k, "bn.running_mean", PACKED * c->z_channels, 0, 0, 0);
        keys_tensor(k, "bn.running_var", PACKED * c->z_channels, 0, 0, 0);
    }
}

const struct vae_config vae_sd = { VAE, .ch = 128, .z_channels = 4, .quant_convs = true };
const struct vae_config vae_sd_tiny = { VAE, .ch = 32, .z_channels = 4, .quant_convs = true };

static void build(struct keys *k, const void *config)
{
    keys_vae(k, config);
}

const struct preset vae_kl_presets[] = {
    { .name = "flux-tiny-vae",
      .about = "16-channel VAE of flux-tiny",
      .build = build,
      .config = &(const struct vae_config) { VAE, .ch = 32, .z_channels = 16 } },
    { .name = "vae-tiny",
      .about = "4-channel VAE of sd15-tiny and sdxl-tiny, for VAELoader",
      .build = build,
      .config = &vae_sd_tiny },
    { .name = "flux-vae",
      .about = "16-channel VAE of FLUX.1, full size",
      .build = build,
      .config = &(const struct vae_config) { VAE, .ch = 128, .z_channels = 16 } },
    { .name = "flux2-tiny-vae",
      .about = "128-channel VAE of flux2-tiny",
      .build = build,
      .config = &(const struct vae_config) { FLUX2, .ch = 32 } },
    { .name = "flux2-small-tiny-vae",
      .about = "flux2-tiny-vae with a wider encoder, as the small decoder's file is",
      .build = build,
      .config = &(const struct vae_config) { FLUX2, .ch = 64, .decoder_ch = 32 } },
    { .name = "flux2-vae",
      .about = "128-channel VAE of FLUX.2, full size",
      .build = build,
      .config = &(const struct vae_config) { FLUX2, .ch = 128 } },
    { .name = NULL },
};
