/* film: a diffusion model family of video, as small as they come. Latents are [n, 4, t, h, w];
 * every frame goes through two convolutions by itself, and the text counts for nothing. Sound,
 * [n, 4, length, 8], may be sampled with it: to this network it is a video of one frame. */
#include "model/families.h"
#include "model/keys.h"
#include "model/lora_names_impl.h"
#include "model/preset.h"
#include "toy_text/toy_text.h"

#define C 4
#define D 8

static bool film_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "film_in.weight");
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    const struct weights_entry *e = arch_find(w, cfg->root, "film_in.weight");
    if (!shape_eq(&e->shape, &(struct shape) { 4, { D, C, 3, 3 } }))
        return err_set(err, BERTH_EUNSUPPORTED, "a film of another size");
    return BERTH_OK;
}

static const float rgb[C][3] = { { 0.5f, 0, 0 }, { 0, 0.5f, 0 }, { 0, 0, 0.5f }, { 0 } };

static const struct latent_format sound = {
    .name = "film sound", .channels = C, .rank = 2, .ratio = 1, .scale = 2, .shift = 0.5
};

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    (void)w, (void)part, (void)cfg, (void)err;
    *info = (struct diffusion_info) { .family = "film",
                                      .latent = { .name = "film",
                                                  .channels = C,
                                                  .rank = 3,
                                                  .ratio = 4,
                                                  .time_ratio = 2,
                                                  .scale = 1,
                                                  .rgb = rgb },
                                      .more = { &sound },
                                      .text = &text_set_toy,
                                      .predicts = PREDICT_FLOW,
                                      .shift = 1.0,
                                      .multiplier = 1.0,
                                      .in_channels = C,
                                      .context_dim = TOY_WIDTH,
                                      .act = DT_BF16,
                                      .act_else = DT_F16 };
    return BERTH_OK;
}

/* Takes x [n, C, t, h, w]. */
static struct act convolve(struct net_run *r, struct act x)
{
    static const int swap[] = { 0, 2, 1, 3, 4 }; /* channels and frames */
    const struct shape s = x.shape;
    const uint64_t *d = s.dim;
    struct act frames = net_permute(r, x, swap);
    net_drop(r, &x);
    frames = net_reshape(r, frames, &(struct shape) { 4, { d[0] * d[2], C, d[3], d[4] } });
    struct act h = net_conv2d(r, frames, "film_in", NET_PAD1);
    net_drop(r, &frames);
    frames = net_conv2d(r, h, "film_out", NET_PAD1);
    net_drop(r, &h);
    frames = net_reshape(r, frames, &(struct shape) { 5, { d[0], d[2], C, d[3], d[4] } });
    x = net_permute(r, frames, swap);
    net_drop(r, &frames);
    return x;
}

static void give(struct net_run *r, const struct family_batch *b, struct act x)
{
    net_output(r, x, b->out);
    net_drop(r, &x);
}

static void film(struct net_run *r, void *user)
{
    const struct family_batch *b = user;
    if (!b->mores) {
        give(r, b, convolve(r, net_input(r, &b->shape, b->x)));
        return;
    }
    const uint64_t *m = b->more[0].dim, n = m[0];
    const uint64_t end[] = { shape_inner(&b->shape, 1), shape_inner(&b->more[0], 1) };
    const struct shape video[] = { b->shape, { 5, { n, C, 1, m[2], m[3] } } };
    struct act all = net_input(r, &(struct shape) { 2, { n, end[0] + end[1] } }, b->x), x[2];
    for (int i = 0; i < 2; i++) {
        x[i] = net_slice(r, all, 1, i ? end[0] : 0, i ? end[0] + end[1] : end[0]);
        x[i] = convolve(r, net_reshape(r, x[i], &video[i]));
        x[i] = net_reshape(r, x[i], &(struct shape) { 2, { n, end[i] } });
    }
    net_drop(r, &all);
    all = net_concat(r, x, 2, 1);
    net_drop(r, &x[0]);
    net_drop(r, &x[1]);
    give(r, b, all);
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    (void)cfg;
    return peak ? net_predict(net, film, (void *)b, peak, err)
                : net_forward(net, film, (void *)b, err);
}

static void checkpoint_keys(struct keys *k, const void *config)
{
    (void)config;
    size_t mark = keys_enter(k, "model.diffusion_model");
    keys_conv(k, "film_in", D, C, 3);
    keys_conv(k, "film_out", C, D, 3);
    keys_leave(k, mark);
    mark = keys_enter(k, "first_stage_model");
    keys_conv(k, "film_decoder", 3, C, 3);
    keys_conv(k, "film_encoder", C, 3, 4);
    keys_leave(k, mark);
    mark = keys_enter(k, "cond_stage_model.transformer");
    keys_toy_text(k);
    keys_leave(k, mark);
}

static const struct preset presets[] = {
    { .name = "film-checkpoint",
      .about = "the film with its VAE and the toy's text encoder",
      .build = checkpoint_keys },
    { .name = NULL },
};

const struct family family_film = {
    .arch = { FAMILY_ARCH("film", "toy model of video"), .detect = film_at, .lora = lora_diffusion,
              .presets = presets },
    .checkpoint = FAMILY_CHECKPOINT("film-checkpoint", "a film checkpoint"),
    .bytes = 1,
    .usual = { 5, { 1, C, 2, 16, 16 } },
    .usual_tokens = 77,
    .at = film_at,
    .config = config,
    .describe = describe,
    .forward = forward,
};
