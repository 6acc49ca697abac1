/* The two forward passes of AutoencoderKL: encoder and decoder, one picture at a time. */
#include "model/vae_kl/vae_kl.h"

#include <math.h>

#define GROUPS 32
#define EPS 1e-6f

/* x [1, in, h, w] -> [1, out, h, w]; takes x. */
static struct act res_block(struct net_run *r, struct act x)
{
    bool conv = net_has(r, "nin_shortcut");
    struct act skip = conv ? net_conv2d(r, x, "nin_shortcut", NET_1X1) : x;
    struct act a = x;
    if (conv) /* x is needed no more */
        net_group_norm_in_place(r, &a, "norm1", GROUPS, EPS, true);
    else
        a = net_group_norm(r, x, "norm1", GROUPS, EPS, true);
    struct act h = net_conv2d(r, a, "conv1", NET_PAD1);
    net_drop(r, &a);
    net_group_norm_in_place(r, &h, "norm2", GROUPS, EPS, true);
    a = net_conv2d_add(r, h, "conv2", NET_PAD1, skip); /* in skip's place */
    net_drop(r, &h);
    return a;
}

static struct act named_res_block(struct net_run *r, const char *name, struct act x)
{
    size_t mark = net_enter(r, "%s", name);
    x = res_block(r, x);
    net_leave(r, mark);
    return x;
}

/* One head over all T = h * w positions. x [1, C, h, w] -> the same; takes x. */
static struct act attention(struct net_run *r, struct act x)
{
    uint64_t C = x.shape.dim[1], h = x.shape.dim[2], w = x.shape.dim[3];
    struct shape rows = { .ndim = 3, .dim = { x.shape.dim[0], C, h * w } };
    struct shape picture = { .ndim = 4, .dim = { x.shape.dim[0], C, h, w } };
    const int swap[] = { 0, 2, 1 };
    size_t mark = net_enter(r, "attn_1.");
    struct act n = net_group_norm(r, x, "norm", GROUPS, EPS, false);
    struct act t = net_permute(r, net_reshape(r, n, &rows), swap); /* [1, T, C] */
    net_drop(r, &n);
    struct act q = net_linear(r, t, "q"), k = net_linear(r, t, "k"), v = net_linear(r, t, "v");
    net_drop(r, &t);
    struct net_attn how = { .heads = 1, .scale = C ? 1.0f / sqrtf((float)C) : 0.0f };
    struct act a = net_attention(r, q, k, v, how);
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    t = net_permute(r, net_reshape(r, x, &rows), swap); /* the sum is rounded once */
    net_drop(r, &x);
    t = net_linear_add(r, a, "proj_out", t);
    net_drop(r, &a);
    x = net_reshape(r, net_permute(r, t, swap), &picture);
    net_drop(r, &t);
    net_leave(r, mark);
    return x;
}

static struct act middle(struct net_run *r, struct act x)
{
    size_t mark = net_enter(r, "mid.");
    x = named_res_block(r, "block_1.", x);
    x = attention(r, x);
    x = named_res_block(r, "block_2.", x);
    net_leave(r, mark);
    return x;
}

/* conv(x), and x goes. */
static struct act conv(struct net_run *r, struct act x, const char *layer, struct net_conv c)
{
    struct act y = net_conv2d(r, x, layer, c);
    net_drop(r, &x);
    return y;
}

static struct act last(struct net_run *r, struct act x) /* [1, out, h, w] */
{
    net_group_norm_in_place(r, &x, "norm_out", GROUPS, EPS, true);
    return conv(r, x, "conv_out", NET_PAD1);
}

/* ---- latents of Flux.2 ---- */

#define BATCH_EPS 1e-4f

static void deviations(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                       const void *user)
{
    (void)ys, (void)user;
    for (size_t i = 0; i < (size_t)xs->dim[1]; i++)
        y[i] = sqrtf(x[i] + BATCH_EPS);
}

static void one_over(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                     const void *user)
{
    deviations(x, xs, y, ys, user);
    for (size_t i = 0; i < (size_t)xs->dim[1]; i++)
        y[i] = 1.0f / y[i];
}

static void negative(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                     const void *user)
{
    (void)ys, (void)user;
    for (size_t i = 0; i < (size_t)xs->dim[1]; i++)
        y[i] = -x[i];
}

/* A vector of the batch norm, [1, channels, 1, 1], as fn leaves it; NULL: as it is. */
static struct act norm_values(struct net_run *r, const char *layer, net_host_fn *fn)
{
    static const int32_t first = 0;
    struct act v = net_embedding(r, &first, 1, layer);
    struct shape s = { 4, { 1, v.shape.ndim ? v.shape.dim[1] : 0, 1, 1 } };
    if (!fn)
        return net_reshape(r, v, &s);
    struct act y = net_host(r, v, &s, fn, NULL);
    net_drop(r, &v);
    return y;
}

static void scale(struct net_run *r, struct act *x, const char *layer, net_host_fn *fn)
{
    struct act by = norm_values(r, layer, fn);
    net_mul(r, x, by);
    net_drop(r, &by);
}

static void shift(struct net_run *r, struct act *x, const char *layer, net_host_fn *fn)
{
    struct act by = norm_values(r, layer, fn);
    net_add(r, x, by);
    net_drop(r, &by);
}

/* [1, 4C, h, w] -> [1, C, 2h, 2w], by channel, row and column of a pixel; takes x. */
static struct act unpack(struct net_run *r, struct act x)
{
    const uint64_t n = VAE_PACKED, C = x.shape.dim[1] / (n * n), h = x.shape.dim[2],
                   w = x.shape.dim[3];
    const struct shape apart = { 5, { C, n, n, h, w } }, whole = { 4, { 1, C, n * h, n * w } };
    const int order[] = { 0, 3, 1, 4, 2 };
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &whole);
}

/* And back. */
static struct act pack(struct net_run *r, struct act x)
{
    const uint64_t n = VAE_PACKED, C = x.shape.dim[1], h = x.shape.dim[2] / n,
                   w = x.shape.dim[3] / n;
    const struct shape apart = { 5, { C, h, n, w, n } }, whole = { 4, { 1, C * n * n, h, w } };
    const int order[] = { 0, 2, 4, 1, 3 };
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &whole);
}

/* Takes x. */
static struct act to_network(struct net_run *r, struct act x)
{
    scale(r, &x, VAE_VARIANCE, deviations);
    shift(r, &x, VAE_MEAN, NULL);
    return unpack(r, x);
}

static struct act from_network(struct net_run *r, struct act x)
{
    x = pack(r, x);
    shift(r, &x, VAE_MEAN, negative);
    scale(r, &x, VAE_VARIANCE, one_over);
    return x;
}

/* ---- passes ---- */

void vae_kl_decode(struct net_run *r, void *user)
{
    const struct vae_pass *p = user;
    const struct vae_kl *v = vae_kl_in(p->vae);
    struct act x = net_input(r, &p->shape, p->in);
    if (v->packed)
        x = to_network(r, x);
    if (v->post_quant)
        x = conv(r, x, "post_quant_conv", NET_1X1);
    size_t top = net_enter(r, "decoder.");
    x = conv(r, x, "conv_in", NET_PAD1);
    x = middle(r, x);
    for (uint32_t level = v->levels; level-- > 0 && !net_bad(r);) {
        size_t mark = net_enter(r, "up.%u.", level);
        for (uint32_t i = 0; i < v->dec_blocks; i++) {
            size_t block = net_enter(r, "block.%u.", i);
            x = res_block(r, x);
            net_leave(r, block);
        }
        if (level) { /* [1, C, 2h, 2w] */
            struct act big = net_nearest(r, x, 2 * x.shape.dim[2], 2 * x.shape.dim[3]);
            net_drop(r, &x);
            x = conv(r, big, "upsample.conv", NET_PAD1);
        }
        net_leave(r, mark);
    }
    x = last(r, x); /* [1, 3, h * ratio, w * ratio] */
    net_finite(r, x, "the decoded picture");
    net_output(r, x, p->out);
    net_drop(r, &x);
    net_leave(r, top);
}

void vae_kl_encode(struct net_run *r, void *user)
{
    /* zeros to the right and below alone */
    static const struct net_conv down = { .stride = 2, .bottom = 1, .right = 1 };
    const struct vae_pass *p = user;
    const struct vae_kl *v = vae_kl_in(p->vae);
    struct act x = net_input(r, &p->shape, p->in);
    size_t top = net_enter(r, "encoder.");
    x = conv(r, x, "conv_in", NET_PAD1);
    for (uint32_t level = 0; level < v->levels && !net_bad(r); level++) {
        size_t mark = net_enter(r, "down.%u.", level);
        for (uint32_t i = 0; i < v->enc_blocks; i++) {
            size_t block = net_enter(r, "block.%u.", i);
            x = res_block(r, x);
            net_leave(r, block);
        }
        if (level + 1 < v->levels)
            x = conv(r, x, "downsample.conv", down); /* [1, C, h / 2, w / 2] */
        net_leave(r, mark);
    }
    x = middle(r, x);
    x = last(r, x); /* [1, 2z, h / ratio, w / ratio] */
    net_leave(r, top);
    if (v->quant)
        x = conv(r, x, "quant_conv", NET_1X1);
    struct act mean = net_slice(r, x, 1, 0, v->channels); /* the log variance is not used */
    net_drop(r, &x);
    if (v->packed)
        mean = from_network(r, mean);
    net_finite(r, mean, "the encoded latent");
    net_output(r, mean, p->out);
    net_drop(r, &mean);
}
