/* T2I adapters of SD1.x, SD2 and SDXL: a few convolutions over the picture alone, whose results are
 * added on the model's way down. What they give is the same at every step.
 *
 * Pixels are folded into channels first, 8 x 8 or for SDXL 16 x 16 of them. A full adapter is
 * body.0 to body.7, two blocks a level; a light one body.0 to body.3, with its blocks inside. */
#include "model/unet/presets.h"
#include "model/unet/unet_impl.h"

#include "model/canonical.h"

#include <string.h>

#define LEVELS 4
#define BLOCKS 2 /* of a full adapter's level */
#define FOLD 8
#define FOLD_XL 16

struct unet_adapter { /* control_kind: own */
    bool light, xl, diffusers;
    uint32_t blocks; /* of a light one's level */
    uint64_t in_channels, width;
    uint32_t fold;
    uint32_t kernel; /* of a full one's in_conv and block2 */
};

/* ---- names ---- */

/* "body.<2 level + block>.<what>" -> "adapter.body.<level>.resnets.<block>.<what>" */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    const struct unet_adapter *a = user;
    const char *s = canonical;
    unsigned n;
    *out = (struct net_source) { .rows = 0 };
    if (!a->diffusers)
        return false;
    if (!name_numbered(&s, "body", LEVELS * BLOCKS, &n))
        return name_print(out->name, sizeof out->name, "adapter.%s", canonical);
    if (n % BLOCKS == 0 && strncmp(s, "block", 5) != 0) /* of the level */
        return name_print(out->name, sizeof out->name, "adapter.body.%u.%s", n / BLOCKS, s);
    return name_print(out->name, sizeof out->name, "adapter.body.%u.resnets.%u.%s", n / BLOCKS,
                      n % BLOCKS, s);
}

/* ---- config ---- */

static bool adapter_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "adapter.body.0.resnets.0.block1.weight") ||
           (arch_find(w, root, "body.0.in_conv.weight") &&
            arch_find(w, root, "body.0.out_conv.weight")) ||
           (arch_find(w, root, "conv_in.weight") && arch_find(w, root, "body.0.block1.weight") &&
            arch_find(w, root, "body.0.block2.weight"));
}

static berth_status config(const struct weights *w, const char *root, void *own, berth_err *err)
{
    struct unet_adapter *a = own;
    a->diffusers = arch_find(w, root, "adapter.body.0.resnets.0.block1.weight") != NULL;
    a->light = arch_find(w, root, "body.0.in_conv.weight") != NULL;
    const struct canonical in = { .w = w, .root = root, .names = names, .user = a };
    const struct weights_entry *first =
        canonical_find(&in, a->light ? "body.0.in_conv.weight" : "conv_in.weight");
    const struct weights_entry *wide =
        a->light ? canonical_find(&in, "body.0.out_conv.weight") : first;
    a->in_channels = arch_dim(first, 1);
    a->width = arch_dim(wide, 0);
    a->xl = !a->light && a->in_channels % (FOLD_XL * FOLD_XL) == 0;
    a->fold = a->xl ? FOLD_XL : FOLD;
    a->blocks = a->light ? arch_layers(w, root, "body.0.body") : BLOCKS;
    a->kernel = a->light ? 1 : (uint32_t)arch_dim(canonical_find(&in, "body.0.block2.weight"), 2);
    if (!a->width || a->width > UNET_CHANNELS_MAX || !a->in_channels ||
        a->in_channels > UNET_CHANNELS_MAX || a->in_channels % (a->fold * a->fold) ||
        a->blocks > UNET_BLOCKS_MAX || !(a->kernel == 1 || a->kernel == 3))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a T2I adapter of width %llu over %llu channels, with kernels of %u",
                       (unsigned long long)a->width, (unsigned long long)a->in_channels, a->kernel);
    return BERTH_OK;
}

static berth_status fits(const void *own, const struct family_config *cfg, berth_err *err)
{
    static const uint32_t mult[] = { 1, 2, 4, 4 };
    const struct unet_adapter *a = own;
    const struct unet_net *u = cfg->own;
    bool same = a->width == u->model_channels && u->middle && u->levels == (a->xl ? 3 : 4);
    for (uint32_t i = 0; same && i < u->levels; i++)
        same = u->res[i] == 2 && u->mult[i] == mult[i];
    return same ? BERTH_OK
                : err_set(err, BERTH_EINVAL,
                          "it is a T2I adapter for %s, from width %llu on; the model has %u levels "
                          "from width %llu on",
                          a->xl ? "SDXL's three levels" : "the four levels of SD1.x and SD2",
                          (unsigned long long)a->width, u->levels,
                          (unsigned long long)u->model_channels);
}

static void describe(const void *own, struct control_info *out)
{
    const struct unet_adapter *a = own;
    out->what = "T2I adapter";
    out->channels = a->in_channels / (a->fold * a->fold);
    out->ratio = FOLD;
    out->multiple = a->fold;
}

/* ---- a turn ---- */

/* [n, c, H, W] -> [n, c * fold * fold, H / fold, W / fold]; which follows from both shapes. */
static void fold_pixels(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                        const void *user)
{
    const size_t W = (size_t)xs->dim[3], H = (size_t)xs->dim[2];
    const size_t w = (size_t)ys->dim[3], h = (size_t)ys->dim[2], fold = W / w;
    const size_t planes = (size_t)(ys->dim[0] * ys->dim[1]);
    (void)user;
    for (size_t k = 0; k < planes; k++) {
        const float *from = x + k / (fold * fold) * H * W;
        const size_t dy = k / fold % fold, dx = k % fold;
        for (size_t i = 0; i < h * w; i++)
            *y++ = from[(i / w * fold + dy) * W + i % w * fold + dx];
    }
}

/* Means of 2 x 2; before odd sides stand zeros, which count. */
static void halve(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                  const void *user)
{
    const size_t H = (size_t)xs->dim[2], W = (size_t)xs->dim[3], oy = H % 2, ox = W % 2;
    const size_t h = (size_t)ys->dim[2], w = (size_t)ys->dim[3];
    (void)user;
    for (size_t k = 0; k < (size_t)(xs->dim[0] * xs->dim[1]); k++, x += H * W)
        for (size_t i = 0; i < h * w; i++) {
            float sum = 0;
            for (size_t d = 0; d < 4; d++) {
                const size_t at_y = 2 * (i / w) + d / 2, at_x = 2 * (i % w) + d % 2;
                if (at_y >= oy && at_y - oy < H && at_x >= ox && at_x - ox < W)
                    sum += x[(at_y - oy) * W + at_x - ox];
            }
            *y++ = sum / 4;
        }
}

/* Takes x. */
static struct act down(struct net_run *r, struct act x)
{
    struct act y;
    if (net_has(r, "down_opt.op")) {
        struct net_conv how = NET_PAD1;
        how.stride = 2;
        y = net_conv2d(r, x, "down_opt.op", how);
    } else {
        struct shape s = x.shape;
        s.dim[2] = (s.dim[2] + 1) / 2;
        s.dim[3] = (s.dim[3] + 1) / 2;
        y = net_host(r, x, &s, halve, NULL);
    }
    net_drop(r, &x);
    return y;
}

static struct net_conv padded(uint32_t kernel)
{
    return kernel == 1 ? NET_1X1 : NET_PAD1;
}

/* x + block2(relu(block1(x))); takes x. */
static struct act res_block(struct net_run *r, struct act x, uint32_t kernel)
{
    struct act h = net_conv2d(r, x, "block1", NET_PAD1);
    net_unary(r, &h, OP_RELU);
    x = net_conv2d_add(r, h, "block2", padded(kernel), x);
    net_drop(r, &h);
    return x;
}

/* Takes x. */
static struct act conv_if_any(struct net_run *r, struct act x, const char *layer, uint32_t kernel)
{
    if (!net_has(r, layer))
        return x;
    struct act y = net_conv2d(r, x, layer, padded(kernel));
    net_drop(r, &x);
    return y;
}

/* Does a level begin with half the sides? */
static bool halves(const struct unet_adapter *a, uint32_t level)
{
    return a->xl ? level == 2 : level > 0;
}

static struct act full_level(struct net_run *r, const struct unet_adapter *a, uint32_t level,
                             struct act x)
{
    for (uint32_t i = 0; i < BLOCKS && !net_bad(r); i++) {
        size_t mark = net_enter(r, "body.%u.", level * BLOCKS + i);
        if (i == 0 && halves(a, level))
            x = down(r, x);
        x = conv_if_any(r, x, "in_conv", a->kernel);
        x = res_block(r, x, a->kernel);
        net_leave(r, mark);
    }
    return x;
}

static struct act light_level(struct net_run *r, const struct unet_adapter *a, uint32_t level,
                              struct act x)
{
    size_t mark = net_enter(r, "body.%u.", level);
    if (halves(a, level))
        x = down(r, x);
    x = conv_if_any(r, x, "in_conv", 1);
    for (uint32_t i = 0; i < a->blocks && !net_bad(r); i++) {
        size_t inner = net_enter(r, "body.%u.", i);
        x = res_block(r, x, 3);
        net_leave(r, inner);
    }
    x = conv_if_any(r, x, "out_conv", 1);
    net_leave(r, mark);
    return x;
}

/* A copy for the model: the next level goes on from x. */
static void give(struct net_run *r, const struct unet_adapter *a, const struct control_turn *t,
                 uint32_t level, struct act x)
{
    static const uint32_t block[] = { 2, 5, 8, 11 }, block_xl[] = { 3, 5, 8 };
    struct act y = net_slice(r, x, 0, 0, x.shape.dim[0]);
    if (a->xl && level == LEVELS - 1)
        control_give(r, t, CONTROL_MIDDLE, 0, y);
    else
        control_give(r, t, CONTROL_INPUT, a->xl ? block_xl[level] : block[level], y);
}

static void forward(struct net_run *r, void *user)
{
    const struct control_turn *t = user;
    const struct unet_adapter *a = t->own;
    const struct shape *s = &t->hint_shape;
    const struct shape folded = {
        4, { s->dim[0], a->in_channels, s->dim[2] / a->fold, s->dim[3] / a->fold }
    };
    struct act pixels = net_input(r, s, t->hint),
               x = net_host(r, pixels, &folded, fold_pixels, NULL);
    net_drop(r, &pixels);
    if (!a->light) {
        struct act y = net_conv2d(r, x, "conv_in", NET_PAD1);
        net_drop(r, &x);
        x = y;
    }
    for (uint32_t i = 0; i < LEVELS && !net_bad(r); i++) {
        x = a->light ? light_level(r, a, i, x) : full_level(r, a, i, x);
        give(r, a, t, i, x);
    }
    net_drop(r, &x);
}

const struct control_kind control_adapter = {
    .arch = { CONTROL_ARCH("t2i-adapter", "a T2I adapter for SD1.x, SD2 or SDXL"),
              .detect = adapter_at, .presets = unet_adapter_presets },
    .family = &family_unet,
    .bytes = sizeof(struct unet_adapter),
    .still = true,
    .config = config,
    .fits = fits,
    .describe = describe,
    .names = names,
    .forward = forward,
};
