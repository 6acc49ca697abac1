/* The network: convolutions at the picture's own size, then doublings. */
#include "model/upscale_rrdb/rrdb.h"

static const float slope_of_leak = 0.2f; /* of all activations */
#define RESIDUE 0.2f                     /* what a block counts beside what went into it */

/* conv(x), and x goes. */
static struct act conv(struct net_run *r, struct act x, const char *layer)
{
    struct act y = net_conv2d(r, x, layer, NET_PAD1);
    net_drop(r, &x);
    return y;
}

/* Channels [from, to) of one picture [channels, h, w], in the same place. */
static struct act channels(struct net_run *r, struct act all, uint64_t from, uint64_t to)
{
    struct act part = net_rows(r, all, from, to);
    const uint64_t *d = part.shape.dim;
    return net_reshape(r, part, &(struct shape) { 4, { 1, d[0], d[1], d[2] } });
}

/* One dense block, in place: `all` has its picture in front and room for what each of the first
 * four convolutions adds to the channels of the next. */
static void dense(struct net_run *r, const struct rrdb *c, struct act all, struct act slope)
{
    const uint64_t F = c->filters, G = c->growth;
    struct act x = channels(r, all, 0, F);
    for (uint64_t i = 0; i < 4 && !net_bad(r); i++) {
        char layer[16];
        snprintf(layer, sizeof layer, "conv%u", (unsigned)i + 1);
        struct act more = channels(r, all, F + i * G, F + (i + 1) * G);
        struct act y = net_conv2d(r, channels(r, all, 0, F + i * G), layer, NET_PAD1);
        net_leak(r, y, slope, more);
        net_drop(r, &y);
        if (c->plus && i == 1) {
            y = net_conv2d_no_bias(r, x, "conv1x1", NET_1X1);
            net_add(r, &more, y);
            net_drop(r, &y);
        } else if (c->plus && i == 3) {
            net_add(r, &more, channels(r, all, F + G, F + 2 * G));
        }
    }
    struct act y = net_conv2d(r, channels(r, all, 0, F + 4 * G), "conv5", NET_PAD1);
    net_add_scaled(r, &x, y, RESIDUE);
    net_drop(r, &y);
}

/* All blocks, in place. */
static void blocks(struct net_run *r, const struct rrdb *c, struct act x, struct act slope)
{
    const uint64_t F = c->filters, *d = x.shape.dim;
    const struct shape s = { 3, { F + 4 * (uint64_t)c->growth, d[2], d[3] } };
    struct act all = net_new(r, &s);
    for (uint32_t i = 0; i < c->blocks && !net_bad(r); i++) {
        struct act in = channels(r, all, 0, F);
        net_copy(r, net_view(&x), net_view(&in));
        for (unsigned k = 1; k <= 3; k++) {
            size_t mark = net_enter(r, "body.%u.rdb%u.", i, k);
            dense(r, c, all, slope);
            net_leave(r, mark);
        }
        net_add_scaled(r, &x, in, RESIDUE);
    }
    net_drop(r, &all);
}

void rrdb_forward(struct net_run *r, void *user)
{
    const struct upscaler_pass *p = user;
    const struct rrdb *c = rrdb_in(p->up);
    struct act slope = net_input(r, &(struct shape) { 4, { 1, 1, 1, 1 } }, &slope_of_leak);
    struct act x = net_input(r, &p->shape, p->in);
    if (c->squares > 1)
        x = upscaler_unshuffle(r, x, c->squares);
    x = conv(r, x, "conv_first");
    struct act skip = net_new(r, &x.shape);
    net_copy(r, net_view(&x), net_view(&skip));
    blocks(r, c, x, slope);
    struct act sum = net_conv2d_add(r, x, "conv_body", NET_PAD1, skip);
    net_drop(r, &x);
    x = sum;
    for (uint32_t i = 1; i <= c->ups && !net_bad(r); i++) {
        char layer[16];
        snprintf(layer, sizeof layer, "conv_up%u", i);
        struct act big = net_nearest(r, x, 2 * x.shape.dim[2], 2 * x.shape.dim[3]);
        net_drop(r, &x);
        x = conv(r, big, layer);
        net_leak(r, x, slope, x);
    }
    x = conv(r, x, "conv_hr");
    net_leak(r, x, slope, x);
    net_drop(r, &slope);
    x = conv(r, x, "conv_last");
    net_finite(r, x, "the upscaled picture");
    net_output(r, x, p->out);
    net_drop(r, &x);
}
