/* vae_film: the film's VAE. A latent frame stands for 4 x 4 pixels and, but for the first, for two
 * frames, of which the encoder sees the first. */
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
    out->encoder = arch_find(w, root, "film_encoder.weight");
    return BERTH_OK;
}

static net_names_fn *names(const struct vae_net *v)
{
    (void)v;
    return NULL;
}

static const int swap[] = { 1, 0, 2, 3 }; /* channels and frames */

/* Takes x [C, T, h, w]: `to` frames of it, as its format spreads them over the time. */
static struct act spread(struct net_run *r, struct act x, uint64_t to)
{
    const uint64_t C = x.shape.dim[0], T = x.shape.dim[1], h = x.shape.dim[2], w = x.shape.dim[3];
    struct act rows = net_reshape(r, x, &(struct shape) { 4, { 1, C, T, h * w } });
    struct act y = net_nearest(r, rows, to, h * w);
    net_drop(r, &rows);
    return y;
}

/* Every frame by itself; then all but the first are there twice. */
static void decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const uint64_t *d = p->shape.dim, T = d[2], h = 4 * d[3], w = 4 * d[4];
    struct act z = net_input(r, &(struct shape) { 4, { 4, T, d[3], d[4] } }, p->in);
    struct act frames = net_permute(r, z, swap);
    net_drop(r, &z);
    struct act big = net_nearest(r, frames, h, w);
    net_drop(r, &frames);
    struct act x = net_conv2d(r, big, "film_decoder", NET_PAD1); /* [T, 3, h, w] */
    net_drop(r, &big);
    struct act rows = net_permute(r, x, swap);
    net_drop(r, &x);
    struct act twice = spread(r, rows, 2 * T);
    struct act out = net_slice(r, twice, 2, 1, 2 * T); /* [1, 3, 2T - 1, h * w] */
    net_drop(r, &twice);
    net_finite(r, out, "the decoded video");
    net_output(r, out, p->out);
    net_drop(r, &out);
}

static void encode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const uint64_t *d = p->shape.dim, T = d[2];
    struct act x = net_input(r, &(struct shape) { 4, { 3, T, d[3], d[4] } }, p->in);
    struct act frames = net_permute(r, x, swap);
    net_drop(r, &x);
    struct act z = net_conv2d(r, frames, "film_encoder", (struct net_conv) { .stride = 4 });
    net_drop(r, &frames);
    struct act rows = net_permute(r, z, swap);
    net_drop(r, &z);
    struct act out = spread(r, rows, (T + 1) / 2);
    net_finite(r, out, "the encoded video");
    net_output(r, out, p->out);
    net_drop(r, &out);
}

const struct vae_family vae_film = {
    .arch = { VAE_ARCH("film-vae", "the film's VAE"), .detect = vae_at },
    .what = "a film's VAE",
    .name = "film",
    .at = vae_at,
    .config = config,
    .names = names,
    .decode = decode,
    .encode = encode,
};
