/* vae_film: the film's VAE, its decoder alone. A latent frame stands for 4 x 4 pixels and, but for
 * the first, for two frames. */
#include "model/vae.h"

static bool vae_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "film_decoder.weight");
}

static berth_status config(const struct weights *w, const char *root, struct vae_net *out,
                           berth_err *err)
{
    const struct weights_entry *e = arch_find(w, root, "film_decoder.weight");
    if (!e || e->shape.ndim != 4 || e->shape.dim[1] != 4)
        return err_set(err, BERTH_EUNSUPPORTED, "no film's VAE");
    out->latent = (struct latent_format) {
        .name = "the film kind", .channels = 4, .rank = 3, .ratio = 4, .time_ratio = 2
    };
    out->decoder = true;
    return BERTH_OK;
}

static net_names_fn *names(const struct vae_net *v)
{
    (void)v;
    return NULL;
}

/* Every frame by itself; then all but the first are there twice. */
static void decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const uint64_t T = p->frames, h = 4 * (uint64_t)p->h, w = 4 * (uint64_t)p->w;
    struct act z = net_input(r, &(struct shape) { 4, { 4, T, p->h, p->w } }, p->in);
    struct act frames = net_permute(r, z, (const int[]) { 1, 0, 2, 3 });
    net_drop(r, &z);
    struct act big = net_nearest(r, frames, h, w);
    net_drop(r, &frames);
    struct act x = net_conv2d(r, big, "film_decoder", NET_PAD1); /* [T, 3, h, w] */
    net_drop(r, &big);
    struct act rows = net_permute(r, x, (const int[]) { 1, 0, 2, 3 });
    net_drop(r, &x);
    rows = net_reshape(r, rows, &(struct shape) { 4, { 1, 3, T, h * w } });
    struct act twice = net_nearest(r, rows, 2 * T, h * w);
    net_drop(r, &rows);
    struct act out = net_slice(r, twice, 2, 1, 2 * T); /* [1, 3, 2T - 1, h * w] */
    net_drop(r, &twice);
    net_finite(r, out, "the decoded video");
    net_output(r, out, p->out);
    net_drop(r, &out);
}

const struct vae_family vae_film = {
    .arch = { VAE_ARCH("film-vae", "the film's VAE"), .detect = vae_at },
    .what = "a film's VAE",
    .at = vae_at,
    .config = config,
    .names = names,
    .decode = decode,
};
