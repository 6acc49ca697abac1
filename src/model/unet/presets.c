/* Stable Diffusion: checkpoints made of a UNet, a VAE and a text encoder under their prefixes. */
#include "model/unet/presets.h"

#include "model/clip/presets.h"
#include "model/preset.h"
#include "model/unet/unet.h"
#include "model/vae_kl/presets.h"

static const struct unet_config unet_sd15_tiny = { .in_channels = 4,
                                                   .out_channels = 4,
                                                   .model_channels = 32,
                                                   .context_dim = 64,
                                                   .levels = 4,
                                                   .mult = { 1, 2, 4, 4 },
                                                   .depth = { 1, 1, 1, 0 },
                                                   .depth_middle = 1,
                                                   .res_blocks = 2 };
static const struct vae_config vae_sd15_tiny = { .ch = 32,
                                                 .z_channels = 4,
                                                 .levels = 4,
                                                 .mult = { 1, 2, 4, 4 },
                                                 .res_blocks = 2,
                                                 .quant_convs = true };
static const struct clip_config clip_sd15_tiny = {
    .vocab = 49408, .positions = 77, .width = 64, .mlp = 256, .layers = 3, .projection = true
};

static const struct unet_config unet_sd15 = { .in_channels = 4,
                                              .out_channels = 4,
                                              .model_channels = 320,
                                              .context_dim = 768,
                                              .levels = 4,
                                              .mult = { 1, 2, 4, 4 },
                                              .depth = { 1, 1, 1, 0 },
                                              .depth_middle = 1,
                                              .res_blocks = 2 };
static const struct vae_config vae_sd15 = { .ch = 128,
                                            .z_channels = 4,
                                            .levels = 4,
                                            .mult = { 1, 2, 4, 4 },
                                            .res_blocks = 2,
                                            .quant_convs = true };
static const struct clip_config clip_sd15 = {
    .vocab = 49408, .positions = 77, .width = 768, .mlp = 3072, .layers = 12
};

static const struct unet_config unet_sdxl_tiny = { .in_channels = 4,
                                                   .out_channels = 4,
                                                   .model_channels = 64,
                                                   .context_dim = 128,
                                                   .adm_channels = 1600,
                                                   .levels = 3,
                                                   .mult = { 1, 2, 4 },
                                                   .depth = { 0, 2, 3 },
                                                   .depth_middle = 3,
                                                   .res_blocks = 2,
                                                   .linear_proj = true };

static const struct unet_config unet_sdxl = { .in_channels = 4,
                                              .out_channels = 4,
                                              .model_channels = 320,
                                              .context_dim = 2048,
                                              .adm_channels = 2816,
                                              .levels = 3,
                                              .mult = { 1, 2, 4 },
                                              .depth = { 0, 2, 10 },
                                              .depth_middle = 10,
                                              .res_blocks = 2,
                                              .linear_proj = true };

/* Refiner: one text encoder, size and a score instead of target sizes. */
static const struct unet_config unet_refiner_tiny = { .in_channels = 4,
                                                      .out_channels = 4,
                                                      .model_channels = 64,
                                                      .context_dim = 64,
                                                      .adm_channels = 64 + 5 * 256,
                                                      .levels = 4,
                                                      .mult = { 1, 2, 4, 4 },
                                                      .depth = { 0, 1, 1, 0 },
                                                      .depth_middle = 1,
                                                      .res_blocks = 2,
                                                      .linear_proj = true };
static const struct unet_config unet_sd2_tiny = { .in_channels = 4,
                                                  .out_channels = 4,
                                                  .model_channels = 64,
                                                  .context_dim = 64,
                                                  .levels = 4,
                                                  .mult = { 1, 2, 4, 4 },
                                                  .depth = { 1, 1, 1, 0 },
                                                  .depth_middle = 1,
                                                  .res_blocks = 2,
                                                  .linear_proj = true };
static const struct clip_config clip_g_tiny = {
    .vocab = 49408, .positions = 77, .width = 64, .mlp = 256, .layers = 4, .projection = true
};

static void unet(struct keys *k, const struct unet_config *c)
{
    size_t mark = keys_enter(k, "model.diffusion_model");
    keys_unet(k, c);
    keys_leave(k, mark);
}

static void vae(struct keys *k, const struct vae_config *c)
{
    size_t mark = keys_enter(k, "first_stage_model");
    keys_vae(k, c);
    keys_leave(k, mark);
}

static void text(struct keys *k, const char *prefix, const struct clip_config *c, bool openclip)
{
    size_t mark = keys_enter(k, "%s", prefix);
    (openclip ? keys_openclip : keys_clip)(k, c);
    keys_leave(k, mark);
}

static void checkpoint(struct keys *k, const struct unet_config *u, const struct vae_config *v,
                       const struct clip_config *c)
{
    unet(k, u);
    vae(k, v);
    text(k, "cond_stage_model.transformer", c, false);
}

static void sd15_tiny(struct keys *k)
{
    checkpoint(k, &unet_sd15_tiny, &vae_sd15_tiny, &clip_sd15_tiny);
}

static void sd15(struct keys *k)
{
    checkpoint(k, &unet_sd15, &vae_sd15, &clip_sd15);
}

static void sd15_inpaint_tiny(struct keys *k)
{
    struct unet_config u = unet_sd15_tiny;
    u.in_channels = 9; /* the latent, a mask, the latent of the masked picture */
    checkpoint(k, &u, &vae_sd15_tiny, &clip_sd15_tiny);
}

static void sd2_tiny(struct keys *k)
{
    unet(k, &unet_sd2_tiny);
    vae(k, &vae_sd15_tiny);
    text(k, "cond_stage_model.model", &clip_g_tiny, true);
}

static void sdxl_base_tiny(struct keys *k)
{
    unet(k, &unet_sdxl_tiny);
    vae(k, &vae_sd15_tiny);
    text(k, "conditioner.embedders.0.transformer", &clip_sd15_tiny, false);
    text(k, "conditioner.embedders.1.model", &clip_g_tiny, true);
}

static void sdxl_refiner_tiny(struct keys *k)
{
    unet(k, &unet_refiner_tiny);
    vae(k, &vae_sd15_tiny);
    text(k, "conditioner.embedders.0.model", &clip_g_tiny, true);
}

static void sdxl_tiny(struct keys *k)
{
    unet(k, &unet_sdxl_tiny);
}

static void sdxl(struct keys *k)
{
    unet(k, &unet_sdxl);
}

/* The UNet of sd15-tiny as people keep it, in a file of its own. */
static void sd15_unet_tiny(struct keys *k)
{
    unet(k, &unet_sd15_tiny);
}

/* What ComfyUI-GGUF's converter leaves unquantised: the embeddings, the way in and the way out. */
static const char *const hiprec[] = { "model.diffusion_model.time_embed.",
                                      "model.diffusion_model.label_emb.",
                                      "model.diffusion_model.input_blocks.0.",
                                      "model.diffusion_model.out.", NULL };

static const struct preset preset_sd15_tiny = {
    .name = "sd15-tiny",
    .about = "SD1.5 checkpoint (UNet, VAE, CLIP-L) of width 32",
    .arch = "sd1",
    .hiprec = hiprec,
    .heads = 4,
    .build = sd15_tiny,
};

/* The weights of the real single-file checkpoint. Its constant buffers (position_ids, noise
 * schedule) are no weights: readers ignore them, and the rule has no values for them. */
static const struct preset preset_sd15 = {
    .name = "sd15",
    .about = "SD1.5 checkpoint (UNet, VAE, CLIP-L), full size",
    .arch = "sd1",
    .hiprec = hiprec,
    .build = sd15,
};

static const struct preset preset_sdxl_tiny = {
    .name = "sdxl-tiny",
    .about = "SDXL UNet of width 64 (text encoders: clip-l-tiny and clip-g-tiny)",
    .arch = "sdxl",
    .hiprec = hiprec,
    .build = sdxl_tiny,
};

static const struct preset preset_sdxl = {
    .name = "sdxl",
    .about = "SDXL UNet, full size",
    .arch = "sdxl",
    .hiprec = hiprec,
    .build = sdxl,
};

static const struct preset preset_sd15_inpaint_tiny = {
    .name = "sd15-inpaint-tiny",
    .about = "SD1.5 inpainting checkpoint of width 32",
    .arch = "sd1",
    .hiprec = hiprec,
    .heads = 4,
    .build = sd15_inpaint_tiny,
};

static const struct preset preset_sd2_tiny = {
    .name = "sd2-tiny",
    .about = "SD2 checkpoint (UNet, VAE, CLIP-H) of width 64",
    .arch = "sd1",
    .hiprec = hiprec,
    .heads = 4,
    .build = sd2_tiny,
};

static const struct preset preset_sdxl_base_tiny = {
    .name = "sdxl-base-tiny",
    .about = "SDXL checkpoint (UNet, VAE, CLIP-L, CLIP-G) of width 64",
    .arch = "sdxl",
    .hiprec = hiprec,
    .heads = 4,
    .build = sdxl_base_tiny,
};

static const struct preset preset_sdxl_refiner_tiny = {
    .name = "sdxl-refiner-tiny",
    .about = "SDXL refiner checkpoint (UNet, VAE, CLIP-G) of width 64",
    .arch = "sdxl",
    .hiprec = hiprec,
    .heads = 4,
    .build = sdxl_refiner_tiny,
};

static const struct preset preset_sd15_unet_tiny = {
    .name = "sd15-unet-tiny",
    .about = "UNet of sd15-tiny in a file of its own, for UNETLoader",
    .arch = "sd1",
    .hiprec = hiprec,
    .build = sd15_unet_tiny,
};

const struct preset *const unet_presets[] = { &preset_sd15_tiny,         &preset_sd15,
                                              &preset_sdxl_tiny,         &preset_sdxl,
                                              &preset_sd15_inpaint_tiny, &preset_sd2_tiny,
                                              &preset_sdxl_base_tiny,    &preset_sdxl_refiner_tiny,
                                              &preset_sd15_unet_tiny,    NULL };
