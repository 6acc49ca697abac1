/* InstantX's control nets of Qwen-Image (qwen-image-edit.md 5.1): a few blocks like the model's on
 * the same latents, to whose tokens those of a picture's latent are added. What each block gives
 * goes to as many of the model's in a row. Those for inpainting look at a mask, too. */
#include "model/control.h"
#include "model/qwen_image/presets.h"
#include "model/qwen_image/qwen_image.h"

#define PIXELS (QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH)

struct own {
    struct qwen_image_net net;
    uint64_t channels; /* of what it looks at: a latent, and a mask */
    struct qwen_image_host host;
};

static berth_status config(const struct weights *w, const char *root, void *own, berth_err *err)
{
    struct own *o = own;
    const struct weights_entry *in = arch_find(w, root, "controlnet_x_embedder.weight");
    const uint32_t given = arch_layers(w, root, "controlnet_blocks");
    if (qwen_image_detect_control(w, root, &o->net, err))
        return err->code;
    o->channels = arch_dim(in, 1) / PIXELS;
    if (arch_dim(in, 1) % PIXELS || arch_dim(in, 0) != o->net.hidden ||
        (o->channels != o->net.in_channels && o->channels != o->net.in_channels + 1))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control net that looks at %llu channels; a latent has %llu",
                       (unsigned long long)o->channels, (unsigned long long)o->net.in_channels);
    if (!given || given != o->net.depth || given > CONTROL_BLOCKS)
        return err_set(err, BERTH_EUNSUPPORTED, "a control net of %u blocks that gives %u values",
                       o->net.depth, given);
    return BERTH_OK;
}

static berth_status fits(const void *own, const struct family_config *cfg, berth_err *err)
{
    const struct qwen_image_net *c = &((const struct own *)own)->net;
    const struct qwen_image_net *q = cfg->own; /* of the family: its first member */
    return c->hidden == q->hidden && c->context_dim == q->context_dim &&
                   c->in_channels == q->in_channels
               ? BERTH_OK
               : err_set(err, BERTH_EINVAL,
                         "it is %llu wide, for texts of width %llu; the model is %llu wide, for "
                         "texts of %llu",
                         (unsigned long long)c->hidden, (unsigned long long)c->context_dim,
                         (unsigned long long)q->hidden, (unsigned long long)q->context_dim);
}

static void describe(const void *own, struct control_info *out)
{
    const struct own *o = own;
    out->what = "ControlNet";
    out->channels = o->channels;
    out->ratio = 1;
    out->latents = true;
    out->masked = o->channels > o->net.in_channels;
}

static berth_status turn(struct net *net, struct control_turn *t, uint64_t *peak, berth_err *err)
{
    struct own *o = t->own;
    return qwen_image_turn(net, &o->net, t, &o->host, peak, err);
}

static void release(void *own)
{
    qwen_image_host_release(&((struct own *)own)->host);
}

const struct control_kind control_qwen_instantx = {
    .arch = { CONTROL_ARCH("qwen_image-controlnet", "a ControlNet for Qwen-Image (InstantX's)"),
              .detect = qwen_image_control_at, .presets = qwen_image_control_presets },
    .family = &family_qwen_image,
    .bytes = sizeof(struct own),
    .config = config,
    .fits = fits,
    .describe = describe,
    .turn = turn,
    .release = release,
};
