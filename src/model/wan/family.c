/* The family of Wan. */
#include "model/families.h"

#include "model/encoder.h"
#include "model/wan/presets.h"
#include "model/wan/wan.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define SHIFT 8.0 /* of noise levels */
#define TIMES 1000.0

struct own {            /* struct family_config.own */
    struct wan_net net; /* first: names are read with it */
    struct wan_host host;
};
static_assert(offsetof(struct own, net) == 0, "own is handed to names as a struct wan_net");

static struct own *own_of(const struct family_config *cfg)
{
    return cfg->own;
}

static void release(void *own)
{
    wan_host_release(&((struct own *)own)->host);
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    return wan_detect(w, cfg->root, &own_of(cfg)->net, err);
}

/* NULL: none that is known. */
static const struct latent_format *format_of(const struct wan_net *f)
{
    static const struct latent_format *const all[] = { &latent_wan21, &latent_wan22 };
    size_t i = 0;
    while (i < ARRAY_LEN(all) && all[i]->channels != f->out_channels)
        i++;
    return i < ARRAY_LEN(all) ? all[i] : NULL;
}

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct wan_net *f = &own_of(cfg)->net;
    (void)w, (void)part;
    if (f->ref_channels && f->ref_channels != f->out_channels)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Wan transformer that looks at latents of %llu channels and makes %llu",
                       (unsigned long long)f->ref_channels, (unsigned long long)f->out_channels);
    const struct latent_format *latent = format_of(f);
    if (!latent)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a Wan transformer that makes latents of %llu channels, not %u or %u",
                       (unsigned long long)f->out_channels, latent_wan21.channels,
                       latent_wan22.channels);
    const bool large = latent == &latent_wan22; /* 5B: frames have times of their own */
    *info = (struct diffusion_info) {
        .family = f->sees ? "Wan image to video"
                  : large ? "Wan 2.2 5B"
                          : "Wan",
        .latent = *latent,
        .text = &text_set_wan,
        .predicts = PREDICT_FLOW,
        .shift = SHIFT,
        .multiplier = TIMES,
        .in_channels = f->in_channels,
        .context_dim = f->context_dim,
        .act = DT_F16,
        .act_else = DT_BF16,
        .video_concat = f->in_channels > f->out_channels,
        .video_masked = large || (f->sees && f->in_channels == 36),
        .own_times = large,
        .clean = large,
        .extras = (f->sees ? 1u << EXTRA_SEEN : 0) | (f->camera ? 1u << EXTRA_CAMERA : 0) |
                  (f->vace_blocks ? 1u << EXTRA_VACE : 1u << EXTRA_SUBJECTS),
        .refs = f->ref_channels > 0,
        .renamed = f->diffusers
    };
    return BERTH_OK;
}

static net_names_fn *names(const struct family_config *cfg)
{
    (void)cfg;
    return wan_names;
}

/* Nothing is known, nothing is said of what is to be made. */
static void no_concat(const struct diffusion_info *info, size_t pixels, float *out)
{
    memset(out, 0, (size_t)(info->in_channels - info->latent.channels) * pixels * sizeof *out);
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct own *own = own_of(cfg);
    return wan_forward(net, &own->net, b, &own->host, peak, err);
}

/* 81 frames of 832 x 480 from a picture. */
#define USUAL_SIDES 60, 104
static const struct diffusion_extra usual_extra[] = {
    { .kind = EXTRA_SEEN, .shape = { 3, { 1, 1, WAN_SEEN_WIDTH } } },
    { .kind = EXTRA_CAMERA, .shape = { 5, { 1, 24, 21, 8 * 60, 8 * 104 } } },
};
static const struct diffusion_ref usual_ref = { .shape = { 5, { 1, 16, 1, USUAL_SIDES } } };

const struct family family_wan = {
    .arch = { FAMILY_ARCH("wan", "Wan video transformer"), .detect = wan_at, .lora = wan_lora,
              .presets = wan_presets },
    .checkpoint = FAMILY_CHECKPOINT("wan-checkpoint", "a Wan checkpoint, or parts of one "
                                                      "(transformer, text encoder, VAE)"),
    .bytes = sizeof(struct own),
    .places = PATCH_STREAM_BLOCKS | PATCH_POSITIONS,
    .usual = { 5, { 1, 16, 21, USUAL_SIDES } },
    .usual_tokens = 512,
    .usual_extra = usual_extra,
    .usual_extras = ARRAY_LEN(usual_extra),
    .usual_ref = &usual_ref,
    .usual_refs = 1,
    .at = wan_at,
    .config = config,
    .describe = describe,
    .release = release,
    .names = names,
    .no_concat = no_concat,
    .forward = forward,
};
