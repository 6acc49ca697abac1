/* Control nets of Flux: a few blocks like the model's on the same latents, to whose tokens those of
 * a picture are added. InstantX's (and Shakker's), in diffusers' names, look at a latent, some at a
 * mask beside it, and union nets have a token for what the picture is; what a block gives goes to
 * as many of the model's in a row. XLabs' look at pixels, and their values go around. */
#include "model/control.h"
#include "model/flux/flux.h"
#include "model/flux/presets.h"

#include "model/canonical.h"

#include <string.h>

#define PIXELS (FLUX_PATCH * FLUX_PATCH)
#define HINT_RATIO 8
#define COLOURS 3
#define MODES_MAX 64

struct own {
    struct flux_net net; /* first: names are read with it */
    bool pixels;
    uint64_t channels; /* of what it looks at */
    unsigned modes;    /* of a union net; 0: it is none */
    struct flux_host host;
};

/* The layer over the picture's patches has another name in diffusers' files. */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    static const char layer[] = "pos_embed_input.";
    const struct own *o = user;
    net_names_fn *model = flux_names(&o->net);
    if (o->net.diffusers && !strncmp(canonical, layer, sizeof layer - 1)) {
        *out = (struct net_source) { .rows = 0 };
        return name_print(out->name, sizeof out->name, "controlnet_x_embedder.%s",
                          canonical + sizeof layer - 1);
    }
    return model && model(&o->net, canonical, out);
}

static berth_status config(const struct weights *w, const char *root, void *own, berth_err *err)
{
    struct own *o = own;
    if (flux_detect_control(w, root, &o->net, err))
        return err->code;
    const struct canonical in = { .w = w, .root = root, .names = names, .user = o };
    const struct weights_entry *embed = canonical_find(&in, "pos_embed_input.weight"),
                               *hint = canonical_find(&in, "input_hint_block.0.weight"),
                               *mode = canonical_find(&in, "controlnet_mode_embedder.weight");
    const uint64_t wide = arch_dim(embed, 1) / PIXELS, latent = o->net.in_channels;
    o->pixels = !o->net.diffusers;
    o->channels = o->pixels ? arch_dim(hint, 1) : wide;
    o->modes = (unsigned)(arch_dim(mode, 0) <= MODES_MAX ? arch_dim(mode, 0) : 0);
    if (arch_dim(embed, 1) % PIXELS || arch_dim(embed, 0) != o->net.hidden ||
        (o->pixels ? o->channels != COLOURS : wide != latent && wide != latent + 1))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control net of Flux that looks at %llu channels of %s",
                       (unsigned long long)o->channels, o->pixels ? "a picture" : "a latent");
    if (o->net.depth > CONTROL_BLOCKS || o->net.depth_single > CONTROL_BLOCKS ||
        arch_layers(w, root, "controlnet_blocks") != o->net.depth ||
        arch_layers(w, root, "controlnet_single_blocks") != o->net.depth_single)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control net of Flux of %u and %u blocks that does not give as many "
                       "values",
                       o->net.depth, o->net.depth_single);
    return BERTH_OK;
}

static berth_status fits(const void *own, const struct family_config *cfg, berth_err *err)
{
    const struct flux_net *c = &((const struct own *)own)->net;
    const struct flux_net *f = cfg->own; /* of the family: its first member */
    return c->hidden == f->hidden && c->context_dim == f->context_dim && c->vec_dim == f->vec_dim &&
                   c->in_channels == f->out_channels
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL,
                         "it is %llu wide, for texts of width %llu; the model is %llu wide, for "
                         "texts of %llu",
                         (unsigned long long)c->hidden, (unsigned long long)c->context_dim,
                         (unsigned long long)f->hidden, (unsigned long long)f->context_dim);
}

static void describe(const void *own, struct control_info *out)
{
    const struct own *o = own;
    out->what = o->modes ? "union ControlNet" : "ControlNet";
    out->channels = o->channels;
    out->ratio = o->pixels ? HINT_RATIO : 1;
    out->types = o->modes;
    out->latents = !o->pixels;
    out->masked = !o->pixels && o->channels > o->net.in_channels;
}

static berth_status turn(struct net *net, struct control_turn *t, uint64_t *peak, berth_err *err)
{
    struct own *o = t->own;
    return flux_turn(net, &o->net, t, o->pixels, &o->host, peak, err);
}

static void release(void *own)
{
    flux_host_release(&((struct own *)own)->host);
}

#define KIND                                                                                       \
    .family = &family_flux, .bytes = sizeof(struct own), .config = config, .fits = fits,           \
    .describe = describe, .names = names, .turn = turn, .release = release

const struct control_kind control_flux_instantx = {
    .arch = { CONTROL_ARCH("flux-controlnet", "a ControlNet for Flux (InstantX's, Shakker's)"),
              .detect = flux_instantx_at, .presets = flux_instantx_presets },
    KIND,
};

const struct control_kind control_flux_xlabs = {
    .arch = { CONTROL_ARCH("flux-xlabs-controlnet", "a ControlNet for Flux (XLabs')"),
              .detect = flux_xlabs_at, .presets = flux_xlabs_presets },
    .around = true,
    KIND,
};
