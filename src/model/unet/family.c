/* The families whose network is the UNet: SD1.x, SD2.x, SDXL, its refiner, their inpainting models
 * and SD2.1 unCLIP. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/lora_names_impl.h"
#include "model/unet/presets.h"
#include "model/unet/unet.h"
#include "tensor/convert.h"

#include <math.h>

#define NUMBER_WIDTH 256 /* of the embedding of one number about the picture */
#define SDXL_SIZES 6     /* height, width, crop_h, crop_w, target height, target width */
#define REFINER_SIZES 5
#define SMALL_MAX 4096 /* elements of tensors that are read here */
#define UNCLIP_MIN 32 /* values of what it is told of a picture; fewer are something else (Lotus) */
#define UNCLIP_MERGE 0.05

/* struct family_config.own is a struct unet_net. */
static const struct unet_net *unet_of(const struct family_config *cfg)
{
    return cfg->own;
}

/* ---- what it is ---- */

/* F32 values of a small tensor; *n of them. False: not there, or not small, or not readable. As the
 * file has them: what a model is does not depend on the type it is held in. */
static bool read_small(const struct weights *w, const char *root, const char *name, float *out,
                       size_t *n)
{
    const struct weights_entry *e = arch_find(w, root, name);
    uint64_t count;
    berth_err err;
    if (!e || !shape_count(&e->shape, &count) || !count || count > SMALL_MAX ||
        !convert_possible(e->stored, DT_F32) ||
        convert(e->stored, weights_stored(w, e), DT_F32, out, (size_t)count, &err) ||
        weights_check(w, &err))
        return false;
    *n = (size_t)count;
    return true;
}

static bool marker(const struct weights *w, const char *part, const char *name)
{
    return arch_find(w, "", name) || arch_find(w, part, name);
}

/* SD2: models that predict v have larger biases in the last transformer (unet.md 1). */
static bool sd2_predicts_v(const struct weights *w, const struct family_config *cfg)
{
    const struct unet_net *u = unet_of(cfg);
    static const char last[] = "transformer_blocks.0.norm1.bias";
    char name[128];
    struct net_source at;
    float v[SMALL_MAX];
    size_t n;
    snprintf(name, sizeof name, "output_blocks.%u.1.%s", u->output_blocks - 1, last);
    net_names_fn *names = unet_names(u);
    if (names && !names(u, name, &at))
        return false;
    if (!read_small(w, cfg->root, names ? at.name : name, v, &n))
        return false;
    double mean = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        mean += v[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (v[i] - mean) * (v[i] - mean) / (double)n;
    return sqrt(square) > 0.09;
}

/* A noise level that the file has as a tensor; `fallback` when it has none. */
static berth_status read_sigma(const struct weights *w, const char *part, const char *name,
                               double fallback, double *out, berth_err *err)
{
    float v[SMALL_MAX];
    size_t n;
    *out = fallback;
    if (!marker(w, part, name))
        return BERTH_OK;
    bool there = read_small(w, "", name, v, &n) || read_small(w, part, name, v, &n);
    if (!there || !(v[0] > 0 && v[0] < 1e6f))
        return err_set(err, BERTH_EUNSUPPORTED, "'%s' is no noise level", name);
    *out = (double)v[0];
    return BERTH_OK;
}

static berth_status sdxl_prediction(const struct weights *w, const char *part,
                                    struct diffusion_info *info, berth_err *err)
{
    if (marker(w, part, "edm_mean") && marker(w, part, "edm_std")) {
        info->latent = latent_playground;
        info->predicts = PREDICT_EDM;
        info->sigma_data = 0.5;
        info->sigma_min = 0.002;
        info->sigma_max = 80.0;
    } else if (marker(w, part, "edm_vpred.sigma_max")) {
        info->predicts = PREDICT_V;
        info->sigma_data = 1.0;
        info->scaled_edit = true;
        if (read_sigma(w, part, "edm_vpred.sigma_max", 120.0, &info->sigma_max, err) ||
            read_sigma(w, part, "edm_vpred.sigma_min", 0.002, &info->sigma_min, err))
            return err->code;
    } else if (marker(w, part, "v_pred")) {
        info->predicts = PREDICT_V;
        info->zsnr = marker(w, part, "ztsnr");
    }
    return BERTH_OK;
}

/* SD2 with a vector: what an encoder saw of a picture, and the level of the noise in it. */
static bool is_unclip(const struct unet_net *u)
{
    return u->linear_proj && u->depth_in[1] && u->adm_channels >= UNCLIP_MIN &&
           u->adm_channels % 2 == 0;
}

/* Which of the families, by what tells them apart in any size. */
static berth_status tell_apart(const struct weights *w, const char *part,
                               const struct family_config *cfg, struct diffusion_info *info,
                               berth_err *err)
{
    const struct unet_net *u = unet_of(cfg);
    info->latent = u->adm_channels && !is_unclip(u) ? latent_sdxl : latent_sd1;
    if (u->out_channels != info->latent.channels)
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet whose latents have %llu channels",
                       (unsigned long long)u->out_channels);
    uint64_t beside = u->in_channels - u->out_channels;
    if (beside && beside != u->out_channels && beside != u->out_channels + 1)
        return err_set(err, BERTH_EUNSUPPORTED, "a UNet with %llu channels beside the latent",
                       (unsigned long long)beside);
    info->inpaint = beside == u->out_channels + 1; /* a mask, and the masked latent */
    if (is_unclip(u)) {
        info->adm = ADM_UNCLIP;
        info->unclip = u->adm_channels / 2;
        info->unclip_merge = UNCLIP_MERGE;
    }
    if (!u->adm_channels || is_unclip(u)) {
        info->family = is_unclip(u) ? "SD2 unCLIP" : u->linear_proj ? "SD2" : "SD1.5";
        info->text = u->linear_proj ? &text_set_sd2 : &text_set_sd1;
        if (u->linear_proj && !beside && sd2_predicts_v(w, cfg))
            info->predicts = PREDICT_V;
        return BERTH_OK;
    }
    /* The refiner reads CLIP-G alone: its pooled output is as wide as its context. */
    bool refiner = u->adm_channels == u->context_dim + REFINER_SIZES * NUMBER_WIDTH;
    if (u->depth_in[1] || (!refiner && u->adm_channels <= SDXL_SIZES * NUMBER_WIDTH))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a UNet with a vector of %llu that is neither SDXL's nor unCLIP's",
                       (unsigned long long)u->adm_channels);
    info->family = refiner ? "SDXL refiner" : "SDXL";
    info->text = refiner ? &text_set_refiner : &text_set_sdxl;
    info->adm = refiner ? ADM_REFINER : ADM_SDXL;
    info->unclip =
        u->adm_channels - (uint64_t)(refiner ? REFINER_SIZES : SDXL_SIZES) * NUMBER_WIDTH;
    return refiner ? BERTH_OK : sdxl_prediction(w, part, info, err);
}

static bool unet_at(const struct weights *w, const char *root)
{
    return (arch_find(w, root, "input_blocks.0.0.weight") &&
            arch_find(w, root, "time_embed.0.weight")) ||
           (arch_find(w, root, "conv_in.weight") &&
            arch_find(w, root, "time_embedding.linear_1.weight"));
}

/* What placement and adapters may count on. */
static bool is_unet(const struct weights *w, const char *root)
{
    return arch_find(w, root, "input_blocks.0.0.weight") &&
           arch_find(w, root, "time_embed.0.weight") &&
           arch_find(w, root, "out.2.weight"); /* a ControlNet has none */
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return unet_detect(w, cfg->root, cfg->own, err);
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct unet_net *u = unet_of(cfg);
    *info = (struct diffusion_info) { .predicts = PREDICT_EPS,
                                      .in_channels = u->in_channels,
                                      .context_dim = u->context_dim,
                                      .adm_channels = u->adm_channels,
                                      .act = DT_F16,
                                      .act_else = DT_BF16,
                                      .renamed = u->diffusers };
    return tell_apart(w, part, cfg, info, err);
}

static net_names_fn *names(const struct family_config *cfg)
{
    return unet_names(unet_of(cfg));
}

/* ---- what it is told ---- */

/* unCLIP: whoever resolved the conditioning made all of it; without pictures it is 0. */
static berth_status picture_vector(const struct diffusion_info *info,
                                   const struct diffusion_cond *c, float *y, berth_err *err)
{
    const size_t n = (size_t)info->adm_channels;
    if (c->pooled && c->pooled_n != n)
        return err_set(err, BERTH_EINVAL, "%s wants a vector of %zu values, not %zu", info->family,
                       n, c->pooled_n);
    for (size_t i = 0; i < n; i++)
        y[i] = c->pooled ? c->pooled[i] : 0.0f;
    return BERTH_OK;
}

static berth_status vector(const struct diffusion_info *info, const struct diffusion_cond *c,
                           const struct shape *latents, float *y, berth_err *err)
{
    bool refiner = info->adm == ADM_REFINER;
    if (info->adm == ADM_UNCLIP)
        return picture_vector(info, c, y, err);
    size_t sizes = refiner ? REFINER_SIZES : SDXL_SIZES;
    size_t pooled = (size_t)info->adm_channels - sizes * NUMBER_WIDTH;
    struct diffusion_size s = c->size;
    if (!s.said) {
        s.width = s.target_width = (uint32_t)(latents->dim[3] * info->latent.ratio);
        s.height = s.target_height = (uint32_t)(latents->dim[2] * info->latent.ratio);
        s.crop_w = s.crop_h = 0;
    }
    if (c->pooled && c->pooled_n != pooled)
        return err_set(err, BERTH_EINVAL,
                       "%s wants a pooled text of %zu values, this conditioning has %zu: is it of "
                       "another model's text encoder?",
                       info->family, pooled, c->pooled_n);
    for (size_t i = 0; i < pooled; i++)
        y[i] = c->pooled ? c->pooled[i] : 0.0f;
    float aesthetic = s.scored ? s.aesthetic : c->negative ? 2.5f : 6.0f;
    float number[SDXL_SIZES] = { /* height before width */
                                 (float)s.height,
                                 (float)s.width,
                                 (float)s.crop_h,
                                 (float)s.crop_w,
                                 refiner ? aesthetic : (float)s.target_height,
                                 (float)s.target_width
    };
    struct op_timestep a = { 0 };
    struct shape ts = { .ndim = 1, .dim = { sizes } },
                 ys = { .ndim = 2, .dim = { sizes, NUMBER_WIDTH } };
    if (view_init(DT_F32, &ts, number, sizes * sizeof(float), &a.t, err) ||
        view_init(DT_F32, &ys, y + pooled, sizes * NUMBER_WIDTH * sizeof(float), &a.y, err))
        return err->code;
    return op_timestep(&(struct op_env) { .backend = NULL }, &a, err);
}

/* Inpainting models without a mask: everything is to be painted, over a grey picture's latent. */
static void no_concat(const struct diffusion_info *info, size_t pixels, float *out)
{
    static const float grey[] = { 0.8223f, -0.6876f, 0.6364f, 0.1380f };
    size_t beside = (size_t)info->in_channels - info->latent.channels;
    for (size_t c = 0; c < beside; c++) {
        float v = !info->inpaint ? 0.0f : c == 0 ? 1.0f : c <= 4 ? grey[c - 1] : 0.0f;
        for (size_t i = 0; i < pixels; i++)
            out[c * pixels + i] = v;
    }
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    return unet_forward(net, unet_of(cfg), b, peak, err);
}

const struct family family_unet = {
    .arch = { FAMILY_ARCH("sd-unet", "UNet of SD1.x, SD2, SDXL"), .detect = is_unet,
              .lora = unet_lora, .presets = unet_presets },
    .checkpoint = FAMILY_CHECKPOINT(
        "sd-checkpoint",
        "an SD1.x, SD2 or SDXL checkpoint, or parts of one (UNet, text encoders, VAE)"),
    .bytes = sizeof(struct unet_net),
    .repeats = true,
    .places = PATCH_UNET_BLOCKS | PATCH_SELF_ATTENTION,
    .boxes = true,
    .usual = { 4, { 1, 4, 128, 128 } },
    .usual_tokens = 77,
    .at = unet_at,
    .config = config,
    .describe = describe,
    .names = names,
    .vector = vector,
    .no_concat = no_concat,
    .forward = forward,
};
