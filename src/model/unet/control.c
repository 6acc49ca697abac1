/* ControlNets of SD1.5, SD2 and SDXL: the way down of a UNet and its middle, with weights of their
 * own, on the same latents. The picture comes in behind the first convolution; a 1x1 convolution
 * behind every block makes what that block's counterpart on the model's way up is given.
 *
 * A union net (ControlNet++) is one for several sorts of pictures: it is told which, by an
 * embedding beside that of time and by a vector that a transformer over a single token adds to the
 * picture's features. Where nobody says, it gets the embedding of none of them. */
#include "model/unet/presets.h"
#include "model/unet/unet_impl.h"

#include "model/canonical.h"

#include <string.h>

#define HINT_CONVS 8 /* with SiLU between them; at the third, fifth and seventh sides are halved */
#define HINT_RATIO 8
#define TYPE_WIDTH 256 /* of the embedding of one type */
#define EPS 1e-5f

struct unet_control {    /* control_kind: own */
    struct unet_net net; /* first: names are read with it */
    uint64_t hint_channels;
    unsigned types;      /* of a union net; 0: it is none */
    uint64_t type_width; /* of a union net's transformer */
};

/* ---- names ---- */

/* "<list>.<n>.<0?>.<what>" where ours has a module more: theirs, or false. */
static bool list_name(const char *canonical, const char *ours, const char *theirs, char *q,
                      size_t cap)
{
    const char *s = canonical;
    unsigned n;
    return name_numbered(&s, ours, UNET_BLOCKS_MAX, &n) && !strncmp(s, "0.", 2) &&
           name_print(q, cap, "%s.%u.%s", theirs, n, s + 2);
}

static bool hint_name(const char *canonical, char *q, size_t cap)
{
    const char *s = canonical;
    unsigned n;
    if (!name_numbered(&s, "input_hint_block", 2 * HINT_CONVS, &n))
        return false;
    if (n == 0)
        return name_print(q, cap, "controlnet_cond_embedding.conv_in.%s", s);
    if (n / 2 == HINT_CONVS - 1)
        return name_print(q, cap, "controlnet_cond_embedding.conv_out.%s", s);
    return name_print(q, cap, "controlnet_cond_embedding.blocks.%u.%s", n / 2 - 1, s);
}

/* What diffusers calls it. */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    static const char attn[] = "transformer_layes.0.attn.in_proj.";
    static const char middle[] = "middle_block_out.0.";
    const struct unet_control *c = user;
    char *q = out->name;
    const size_t cap = sizeof out->name;
    *out = (struct net_source) { .rows = 0 };
    if (!c->net.diffusers)
        return false;
    if (!strcmp(canonical, "task_embedding.weight")) /* a tensor without a layer */
        return name_print(q, cap, "task_embedding");
    if (!strncmp(canonical, attn, sizeof attn - 1))
        return name_print(q, cap, "transformer_layes.0.attn.in_proj_%s",
                          canonical + sizeof attn - 1);
    if (!strncmp(canonical, middle, sizeof middle - 1))
        return name_print(q, cap, "controlnet_mid_block.%s", canonical + sizeof middle - 1);
    return list_name(canonical, "zero_convs", "controlnet_down_blocks", q, cap) ||
           hint_name(canonical, q, cap) || unet_diffusers_tensor(user, canonical, out);
}

/* ---- config ---- */

static bool control_at(const struct weights *w, const char *root)
{
    return (arch_find(w, root, "zero_convs.0.0.weight") &&
            arch_find(w, root, "input_hint_block.0.weight")) ||
           (arch_find(w, root, "controlnet_cond_embedding.conv_in.weight") &&
            arch_find(w, root, "controlnet_down_blocks.0.weight"));
}

static berth_status config(const struct weights *w, const char *root, void *own, berth_err *err)
{
    struct unet_control *c = own;
    if (unet_detect_half(w, root, &c->net, err))
        return err->code;
    const bool theirs = c->net.diffusers;
    const struct canonical in = { .w = w, .root = root, .names = names, .user = c };
    const struct weights_entry *hint = canonical_find(&in, "input_hint_block.0.weight"),
                               *last = canonical_find(&in, "input_hint_block.14.weight"),
                               *task = arch_find(w, root, "task_embedding");
    const uint32_t zero = arch_layers(w, root, theirs ? "controlnet_down_blocks" : "zero_convs");
    c->hint_channels = arch_dim(hint, 1);
    if (!last || arch_dim(last, 0) != c->net.model_channels || !c->hint_channels ||
        c->hint_channels > UNET_CHANNELS_MAX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a ControlNet that does not look at its picture with %d convolutions",
                       HINT_CONVS);
    if (zero != c->net.input_blocks || !c->net.middle)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a ControlNet with %u input blocks that gives %u values%s",
                       c->net.input_blocks, zero, c->net.middle ? "" : ", without a middle");
    if (theirs && arch_find(w, root, "control_add_embedding.linear_1.bias")) {
        c->types = (unsigned)(arch_dim(task, 0) < UNET_BLOCKS_MAX ? arch_dim(task, 0) : 0);
        c->type_width = arch_dim(task, 1);
        if (!c->types || c->type_width != c->net.model_channels)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "a union ControlNet whose 'task_embedding' is missing or odd");
    }
    return BERTH_OK;
}

static berth_status fits(const void *own, const struct family_config *cfg, berth_err *err)
{
    const struct unet_net *c = &((const struct unet_control *)own)->net, *u = cfg->own;
    bool same = c->model_channels == u->model_channels && c->levels == u->levels &&
                c->input_blocks == u->input_blocks && c->context_dim == u->context_dim &&
                c->adm_channels == u->adm_channels && u->middle;
    for (uint32_t i = 0; same && i < u->levels; i++)
        same = c->res[i] == u->res[i] && c->mult[i] == u->mult[i];
    if (same && c->in_channels == u->out_channels)
        return BERTH_OK;
    return err_set(err, BERTH_EINVAL,
                   "it has %u blocks from width %llu on, texts of width %llu and a vector of %llu; "
                   "the model %u from width %llu on, %llu and %llu",
                   c->input_blocks, (unsigned long long)c->model_channels,
                   (unsigned long long)c->context_dim, (unsigned long long)c->adm_channels,
                   u->input_blocks, (unsigned long long)u->model_channels,
                   (unsigned long long)u->context_dim, (unsigned long long)u->adm_channels);
}

static void describe(const void *own, struct control_info *out)
{
    const struct unet_control *c = own;
    out->what = c->types ? "union ControlNet" : "ControlNet";
    out->channels = c->hint_channels;
    out->ratio = HINT_RATIO;
    out->types = c->types;
}

/* ---- a turn ---- */

/* The mean of every channel: [n, C, h, w] -> [n, 1, C]. */
static void mean_of(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                    const void *user)
{
    const size_t planes = (size_t)(xs->dim[0] * xs->dim[1]), hw = (size_t)shape_inner(xs, 2);
    (void)ys, (void)user;
    for (size_t i = 0; i < planes; i++) {
        double sum = 0;
        for (size_t k = 0; k < hw; k++)
            sum += x[i * hw + k];
        y[i] = (float)(sum / (double)hw);
    }
}

/* The embedding of what the picture is, [1, 4M]: of every type whether it is that. */
static struct act type_embedding(struct net_run *r, const struct unet_control *c,
                                 const struct control_turn *t)
{
    const struct shape flat = { 2, { 1, c->types * TYPE_WIDTH } };
    struct act e = net_timestep(r, t->types, c->types, TYPE_WIDTH);
    e = net_reshape(r, e, &flat);
    struct act a = net_linear(r, e, "control_add_embedding.linear_1");
    net_drop(r, &e);
    net_unary(r, &a, OP_SILU);
    e = net_linear(r, a, "control_add_embedding.linear_2");
    net_drop(r, &a);
    return e;
}

/* x [n, 1, D] + what attention and feed-forward make of it. A single token sees itself alone, so
 * attention gives its values as they are. */
static struct act type_block(struct net_run *r, struct act x)
{
    const uint64_t D = x.shape.dim[2];
    size_t mark = net_enter(r, "transformer_layes.0.");
    struct act n = net_layer_norm(r, x, "ln_1", EPS), all = net_linear(r, n, "attn.in_proj");
    net_drop(r, &n);
    struct act v = net_slice(r, all, 2, 2 * D, 3 * D);
    net_drop(r, &all);
    x = net_linear_add(r, v, "attn.out_proj", x);
    net_drop(r, &v);
    n = net_layer_norm(r, x, "ln_2", EPS);
    struct act up = net_linear(r, n, "mlp.c_fc");
    net_drop(r, &n);
    net_unary(r, &up, OP_QUICK_GELU);
    x = net_linear_add(r, up, "mlp.c_proj", x);
    net_drop(r, &up);
    net_leave(r, mark);
    return x;
}

/* Adds to the features of a picture, [n, M, h, w], what tells its type. */
static void tell_type(struct net_run *r, const struct unet_control *c, const struct control_turn *t,
                      struct act *hint)
{
    const struct shape one = { 3, { hint->shape.dim[0], 1, c->type_width } };
    const struct shape task = { 3, { 1, 1, c->type_width } };
    const struct shape spread = { 4, { hint->shape.dim[0], c->type_width, 1, 1 } };
    struct act x = net_host(r, *hint, &one, mean_of, NULL);
    struct act e = net_embedding(r, &t->type, 1, "task_embedding");
    e = net_reshape(r, e, &task);
    net_add(r, &x, e);
    net_drop(r, &e);
    x = type_block(r, x);
    struct act alpha = net_linear(r, x, "spatial_ch_projs");
    net_drop(r, &x);
    alpha = net_reshape(r, alpha, &spread);
    net_add(r, hint, alpha);
    net_drop(r, &alpha);
}

/* The picture's features, [1 or n, M, h, w]. */
static struct act look(struct net_run *r, const struct unet_control *c,
                       const struct control_turn *t)
{
    struct act x = net_input(r, &t->hint_shape, t->hint);
    for (uint32_t i = 0; i < HINT_CONVS && !net_bad(r); i++) {
        struct net_conv how = NET_PAD1;
        char layer[32];
        how.stride = i && i % 2 == 0 ? 2 : 1;
        snprintf(layer, sizeof layer, "input_hint_block.%u", 2 * i);
        struct act y = net_conv2d(r, x, layer, how);
        net_drop(r, &x);
        x = y;
        if (i + 1 < HINT_CONVS)
            net_unary(r, &x, OP_SILU);
    }
    if (t->type >= 0)
        tell_type(r, c, t, &x);
    return x;
}

/* What h has for the model, by a 1x1 convolution; h stays. */
static void give(struct net_run *r, const struct control_turn *t, enum control_at at, uint32_t i,
                 struct act h, const char *layer)
{
    control_give(r, t, at, i, net_conv2d(r, h, layer, NET_1X1));
}

/* Behind block i: what it has for the model. Where sums are wide the rounded one lies on the stack,
 * for the block that halves sides. */
static void behind(struct net_run *r, struct unet_pass *p, const struct control_turn *t, uint32_t i,
                   struct act h)
{
    char layer[32];
    snprintf(layer, sizeof layer, "zero_convs.%u.0", i);
    const bool wide = unet_is_wide(r, &h);
    p->skip[0] = wide ? net_round(r, h) : h;
    p->skips = wide;
    give(r, t, CONTROL_OUTPUT, i, p->skip[0], layer);
}

static void forward(struct net_run *r, void *user)
{
    const struct control_turn *t = user;
    const struct unet_control *c = t->own;
    const struct unet_net *u = &c->net;
    struct unet_pass p = { .u = u, .in = t->b };
    struct shape cs = { 3, { t->b->shape.dim[0], t->b->tokens, u->context_dim } };
    struct act type = { .addr = 0 };
    if (c->types)
        type = type_embedding(r, c, t);
    p.emb = unet_embed(r, u, t->b, type);
    net_drop(r, &type);
    p.context = net_input(r, &cs, t->b->context);

    struct act x = net_input(r, &t->b->shape, t->b->x);
    struct act h = net_conv2d(r, x, "input_blocks.0.0", NET_PAD1), hint = look(r, c, t);
    net_drop(r, &x);
    net_add(r, &h, hint);
    net_drop(r, &hint);
    behind(r, &p, t, 0, h);
    for (uint32_t i = 1; i < u->input_blocks && !net_bad(r); i++) {
        struct act rounded = p.skip[0];
        const bool wide = p.skips;
        h = unet_input_block(r, &p, i, h, true);
        if (wide)
            net_drop(r, &rounded);
        behind(r, &p, t, i, h);
    }
    if (p.skips)
        net_drop(r, &p.skip[0]);
    h = unet_middle(r, &p, h, true);
    net_drop(r, &p.emb);
    net_drop(r, &p.context);
    x = unet_is_wide(r, &h) ? net_round(r, h) : h;
    if (unet_is_wide(r, &h))
        net_drop(r, &h);
    give(r, t, CONTROL_MIDDLE, 0, x, "middle_block_out.0");
    net_drop(r, &x);
}

const struct control_kind control_unet = {
    .arch = { CONTROL_ARCH("sd-controlnet", "a ControlNet for SD1.x, SD2 or SDXL"),
              .detect = control_at, .presets = unet_control_presets },
    .family = &family_unet,
    .bytes = sizeof(struct unet_control),
    .config = config,
    .fits = fits,
    .describe = describe,
    .names = names,
    .forward = forward,
};
