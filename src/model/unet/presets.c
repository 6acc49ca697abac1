/* Stable Diffusion: checkpoints made of a UNet, a VAE and text encoders under their prefixes. */
#include "model/unet/presets.h"

#include "model/clip/presets.h"
#include "model/clip_vision/presets.h"
#include "model/vae_kl/presets.h"

/* What all of SD1 and SD2 have, and all of SDXL. */
#define SD .out_channels = 4, .levels = 4, .mult = { 1, 2, 4, 4 }, .res_blocks = 2
#define XL .out_channels = 4, .levels = 3, .mult = { 1, 2, 4 }, .res_blocks = 2

static const struct unet_config sd15_tiny = { SD,
                                              .in_channels = 4,
                                              .model_channels = 32,
                                              .context_dim = 64,
                                              .depth = { 1, 1, 1, 0 },
                                              .depth_middle = 1 };
static const struct unet_config sd15_inpaint_tiny = {
    SD,
    .in_channels = 9, /* the latent, a mask, the latent of the masked picture */
    .model_channels = 32,
    .context_dim = 64,
    .depth = { 1, 1, 1, 0 },
    .depth_middle = 1
};
static const struct unet_config sd15 = { SD,
                                         .in_channels = 4,
                                         .model_channels = 320,
                                         .context_dim = 768,
                                         .depth = { 1, 1, 1, 0 },
                                         .depth_middle = 1 };
static const struct unet_config sd2_tiny = { SD,
                                             .in_channels = 4,
                                             .model_channels = 64,
                                             .context_dim = 64,
                                             .depth = { 1, 1, 1, 0 },
                                             .depth_middle = 1,
                                             .linear_proj = true };
/* What clip_vision_tiny sees, and the level of the noise in it. */
static const struct unet_config unclip_tiny = { SD,
                                                .in_channels = 4,
                                                .model_channels = 64,
                                                .context_dim = 64,
                                                .adm_channels = 96,
                                                .depth = { 1, 1, 1, 0 },
                                                .depth_middle = 1,
                                                .linear_proj = true };
static const struct clip_vision_config clip_vision_tiny = {
    .width = 64, .mlp = 160, .patch = 14, .tokens = 17, .layers = 3, .projection = 48
};
static const struct unet_config sdxl_tiny = { XL,
                                              .in_channels = 4,
                                              .model_channels = 64,
                                              .context_dim = 128,
                                              .adm_channels = 1600,
                                              .depth = { 0, 2, 3 },
                                              .depth_middle = 3,
                                              .linear_proj = true };
static const struct unet_config sdxl = { XL,
                                         .in_channels = 4,
                                         .model_channels = 320,
                                         .context_dim = 2048,
                                         .adm_channels = 2816,
                                         .depth = { 0, 2, 10 },
                                         .depth_middle = 10,
                                         .linear_proj = true };
/* One text encoder, size and a score instead of target sizes. */
static const struct unet_config refiner_tiny = { SD,
                                                 .in_channels = 4,
                                                 .model_channels = 64,
                                                 .context_dim = 64,
                                                 .adm_channels = 64 + 5 * 256,
                                                 .depth = { 0, 1, 1, 0 },
                                                 .depth_middle = 1,
                                                 .linear_proj = true };
static const struct clip_config clip_l = {
    .vocab = 49408, .positions = 77, .width = 768, .mlp = 3072, .layers = 12
};

struct checkpoint {
    const struct unet_config *unet;
    const struct vae_config *vae; /* NULL: the UNet alone */
    struct {
        const char *prefix; /* NULL: no more */
        const struct clip_config *clip;
        bool openclip; /* its names */
    } text[2];
    const struct clip_vision_config *vision; /* NULL: none */
};

static void build(struct keys *k, const void *config)
{
    const struct checkpoint *c = config;
    size_t mark = keys_enter(k, "model.diffusion_model");
    keys_unet(k, c->unet);
    keys_leave(k, mark);
    if (c->vae) {
        mark = keys_enter(k, "first_stage_model");
        keys_vae(k, c->vae);
        keys_leave(k, mark);
    }
    for (size_t i = 0; i < ARRAY_LEN(c->text) && c->text[i].prefix; i++) {
        mark = keys_enter(k, "%s", c->text[i].prefix);
        (c->text[i].openclip ? keys_openclip : keys_clip)(k, c->text[i].clip);
        keys_leave(k, mark);
    }
    if (c->vision) {
        mark = keys_enter(k, "embedder.model");
        keys_openclip_vision(k, c->vision);
        keys_leave(k, mark);
    }
}

/* What ComfyUI-GGUF's converter leaves unquantised: the embeddings, the way in and the way out. */
static const char *const hiprec[] = { "model.diffusion_model.time_embed.",
                                      "model.diffusion_model.label_emb.",
                                      "model.diffusion_model.input_blocks.0.",
                                      "model.diffusion_model.out.", NULL };

#define PRESET(name_, about_, arch_, heads_, ...)                                                  \
    {                                                                                              \
        .name = name_, .about = about_, .arch = arch_, .hiprec = hiprec, .heads = heads_,          \
        .build = build, .config = &(const struct checkpoint)                                       \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define CLIP_AT(prefix_, clip_)                                                                    \
    {                                                                                              \
        .prefix = prefix_, .clip = &clip_                                                          \
    }
#define OPENCLIP_AT(prefix_, clip_)                                                                \
    {                                                                                              \
        .prefix = prefix_, .clip = &clip_, .openclip = true                                        \
    }

const struct preset unet_presets[] = {
    PRESET("sd15-tiny", "SD1.5 checkpoint (UNet, VAE, CLIP-L) of width 32", "sd1", 4,
           .unet = &sd15_tiny, .vae = &vae_sd_tiny,
           .text = { CLIP_AT("cond_stage_model.transformer", clip_l_tiny) }),
    /* The weights of the real single-file checkpoint. Its constant buffers (position_ids, noise
     * schedule) are no weights: readers ignore them, and the rule has no values for them. */
    PRESET("sd15", "SD1.5 checkpoint (UNet, VAE, CLIP-L), full size", "sd1", 0, .unet = &sd15,
           .vae = &vae_sd, .text = { CLIP_AT("cond_stage_model.transformer", clip_l) }),
    PRESET("sdxl-tiny", "SDXL UNet of width 64 (text encoders: clip-l-tiny and clip-g-tiny)",
           "sdxl", 0, .unet = &sdxl_tiny),
    PRESET("sdxl", "SDXL UNet, full size", "sdxl", 0, .unet = &sdxl),
    PRESET("sd15-inpaint-tiny", "SD1.5 inpainting checkpoint of width 32", "sd1", 4,
           .unet = &sd15_inpaint_tiny, .vae = &vae_sd_tiny,
           .text = { CLIP_AT("cond_stage_model.transformer", clip_l_tiny) }),
    PRESET("sd2-tiny", "SD2 checkpoint (UNet, VAE, CLIP-H) of width 64", "sd1", 4,
           .unet = &sd2_tiny, .vae = &vae_sd_tiny,
           .text = { OPENCLIP_AT("cond_stage_model.model", clip_g_tiny) }),
    PRESET("sd21-unclip-tiny", "SD2.1 unCLIP checkpoint (UNet, VAE, CLIP-H, vision) of width 64",
           "sd1", 4, .unet = &unclip_tiny, .vae = &vae_sd_tiny,
           .text = { OPENCLIP_AT("cond_stage_model.model", clip_g_tiny) },
           .vision = &clip_vision_tiny),
    PRESET("sdxl-base-tiny", "SDXL checkpoint (UNet, VAE, CLIP-L, CLIP-G) of width 64", "sdxl", 4,
           .unet = &sdxl_tiny, .vae = &vae_sd_tiny,
           .text = { CLIP_AT("conditioner.embedders.0.transformer", clip_l_tiny),
                     OPENCLIP_AT("conditioner.embedders.1.model", clip_g_tiny) }),
    PRESET("sdxl-refiner-tiny", "SDXL refiner checkpoint (UNet, VAE, CLIP-G) of width 64", "sdxl",
           4, .unet = &refiner_tiny, .vae = &vae_sd_tiny,
           .text = { OPENCLIP_AT("conditioner.embedders.0.model", clip_g_tiny) }),
    PRESET("sd15-unet-tiny", "UNet of sd15-tiny in a file of its own, for UNETLoader", "sd1", 0,
           .unet = &sd15_tiny),
    { .name = NULL },
};

static void build_control(struct keys *k, const void *config)
{
    size_t mark = keys_enter(k, "control_model");
    keys_unet_control(k, config, 3);
    keys_leave(k, mark);
}

#define CONTROL_PRESET(name_, about_, unet_)                                                       \
    {                                                                                              \
        .name = name_, .about = about_, .build = build_control, .config = &unet_                   \
    }

const struct preset unet_control_presets[] = {
    CONTROL_PRESET("controlnet-sd15-tiny", "ControlNet for sd15-tiny", sd15_tiny),
    CONTROL_PRESET("controlnet-sd15", "ControlNet for SD1.5, full size", sd15),
    CONTROL_PRESET("controlnet-sdxl-tiny", "ControlNet for sdxl-tiny", sdxl_tiny),
    CONTROL_PRESET("controlnet-sdxl", "ControlNet for SDXL, full size", sdxl),
    { .name = NULL },
};

struct adapter { /* a full one */
    uint64_t width;
    bool xl;
};

static void build_adapter(struct keys *k, const void *config)
{
    static const uint64_t mult[] = { 1, 2, 4, 4 };
    const struct adapter *a = config;
    const uint64_t fold = a->xl ? 16 : 8;
    uint64_t in = a->width;
    keys_conv(k, "conv_in", in, 3 * fold * fold, 3);
    for (int i = 0; i < 8; i++) {
        const uint64_t out = a->width * mult[i / 2];
        size_t mark = keys_enter(k, "body.%d", i);
        if (in != out)
            keys_conv(k, "in_conv", out, in, 1);
        keys_conv(k, "block1", out, out, 3);
        keys_conv(k, "block2", out, out, 1);
        keys_leave(k, mark);
        in = out;
    }
}

#define ADAPTER_PRESET(name_, about_, ...)                                                         \
    {                                                                                              \
        .name = name_, .about = about_, .build = build_adapter, .config = &(const struct adapter)  \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const struct preset unet_adapter_presets[] = {
    ADAPTER_PRESET("t2i-adapter-sd15-tiny", "T2I adapter for sd15-tiny", .width = 32),
    ADAPTER_PRESET("t2i-adapter-sd15", "T2I adapter for SD1.5, full size", .width = 320),
    ADAPTER_PRESET("t2i-adapter-sdxl-tiny", "T2I adapter for sdxl-tiny", .width = 64, .xl = true),
    ADAPTER_PRESET("t2i-adapter-sdxl", "T2I adapter for SDXL, full size", .width = 320, .xl = true),
    { .name = NULL },
};
