/* What the rest of the program knows of Real-ESRGAN's compact networks, and what they do. */
#include "model/upscale_compact/compact.h"

#include "model/upscale_compact/presets.h"

static bool detect(const struct weights *w, const char *root)
{
    const struct weights_entry *conv = arch_find(w, root, "body.0.weight");
    const struct weights_entry *leak = arch_find(w, root, "body.1.weight");
    return conv && conv->shape.ndim == 4 && leak && leak->shape.ndim == 1;
}

static berth_status config(const struct weights *w, const char *root, struct upscaler_net *out,
                           berth_err *err)
{
    struct compact *c = compact_of(out);
    char last[32];
    uint32_t in, made, s = 1;
    c->layers = arch_layers(w, root, "body");
    if (c->layers < 3 || c->layers % 2 == 0 || c->layers > COMPACT_LAYERS_MAX)
        return err_set(err, BERTH_EUNSUPPORTED, "a compact upscale model of %u layers", c->layers);
    snprintf(last, sizeof last, "body.%u.weight", c->layers - 1);
    if (upscaler_dim(arch_find(w, root, "body.0.weight"), "body.0.weight", 1, &in, err) ||
        upscaler_dim(arch_find(w, root, last), last, 0, &made, err))
        return err->code;
    while (s * s * UPSCALE_COLOURS < made)
        s++;
    if (in != UPSCALE_COLOURS || s * s * UPSCALE_COLOURS != made)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a compact upscale model of %u channels in and %u out", in, made);
    out->scale = s;
    return BERTH_OK;
}

static net_names_fn *names(const struct upscaler_net *u)
{
    (void)u;
    return NULL;
}

static void forward(struct net_run *r, void *user)
{
    const struct upscaler_pass *p = user;
    const uint32_t layers = compact_in(p->up)->layers, scale = p->up->scale;
    struct act picture = net_input(r, &p->shape, p->in);
    struct act x = net_conv2d(r, picture, "body.0", NET_PAD1);
    for (uint32_t i = 1; i < layers && !net_bad(r); i++) {
        char layer[24];
        snprintf(layer, sizeof layer, "body.%u", i);
        if (i % 2) {
            net_prelu(r, &x, layer);
        } else {
            struct act y = net_conv2d(r, x, layer, NET_PAD1);
            net_drop(r, &x);
            x = y;
        }
    }
    x = upscaler_shuffle(r, x, scale);
    struct act large = net_nearest(r, picture, scale * p->shape.dim[2], scale * p->shape.dim[3]);
    net_drop(r, &picture);
    net_add(r, &x, large);
    net_drop(r, &large);
    net_finite(r, x, "the upscaled picture");
    net_output(r, x, p->out);
    net_drop(r, &x);
}

const struct upscaler_family upscaler_compact = {
    .arch = { UPSCALER_ARCH("esrgan-compact", "Real-ESRGAN compact: makes pictures larger"),
              .detect = detect, .presets = compact_presets },
    .what = "a compact Real-ESRGAN upscale model",
    .name = "Real-ESRGAN compact",
    .config = config,
    .names = names,
    .forward = forward,
};
