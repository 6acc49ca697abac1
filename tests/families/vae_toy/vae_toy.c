/* vae_toy: the toy's VAE. A convolution each way; latents stand for 4 x 4 pixels. */
#include "model/vae.h"

static bool vae_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "toy_decoder.weight");
}

static berth_status config(const struct weights *w, const char *root, struct vae_net *out,
                           berth_err *err)
{
    const struct weights_entry *e = arch_find(w, root, "toy_decoder.weight");
    if (!e || e->shape.ndim != 4 || !e->shape.dim[1] || e->shape.dim[1] > 64)
        return err_set(err, BERTH_EUNSUPPORTED, "no toy VAE");
    out->latent = (struct latent_format) {
        .name = "the toy kind", .channels = (uint32_t)e->shape.dim[1], .rank = 2, .ratio = 4
    };
    out->decoder = true;
    out->encoder = arch_find(w, root, "toy_encoder.weight");
    return BERTH_OK;
}

static net_names_fn *names(const struct vae_net *v)
{
    (void)v;
    return NULL;
}

static void decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    struct act z = net_input(r, &p->shape, p->in);
    struct act big = net_nearest(r, z, 4 * p->shape.dim[2], 4 * p->shape.dim[3]);
    net_drop(r, &z);
    struct act x = net_conv2d(r, big, "toy_decoder", NET_PAD1);
    net_drop(r, &big);
    net_finite(r, x, "the decoded picture");
    net_output(r, x, p->out);
    net_drop(r, &x);
}

static void encode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    struct act x = net_input(r, &p->shape, p->in);
    struct act z = net_conv2d(r, x, "toy_encoder", (struct net_conv) { .stride = 4 });
    net_drop(r, &x);
    net_finite(r, z, "the encoded latent");
    net_output(r, z, p->out);
    net_drop(r, &z);
}

const struct vae_family vae_toy = {
    .arch = { VAE_ARCH("toy-vae", "the toy's VAE"), .detect = vae_at },
    .what = "a toy VAE",
    .name = "toy",
    .at = vae_at,
    .config = config,
    .names = names,
    .decode = decode,
    .encode = encode,
};
