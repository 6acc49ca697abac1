/* toy: a diffusion model family in one folder, to show what one needs (docs/adding.md) and to hold
 * the program to it. A picture and a text meet once:
 *
 *     x [B, 8, h, w] -> in (3x3) + time -> attention to the text -> out (3x3) -> [B, 8, h, w]
 *
 * Latents have 8 channels and stand for 4 x 4 pixels: neither is what any other family has. */
#include "model/families.h"
#include "model/keys.h"
#include "model/lora_names_impl.h"
#include "model/preset.h"
#include "toy_text/toy_text.h"

#include <string.h>

#define TIME_WIDTH 32
#define HEADS 2

struct toy { /* what a file says */
    uint64_t channels, hidden, context_dim;
    bool other_names;
};

/* ---- what is it? ---- */

static bool toy_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "toy_in.weight") || arch_find(w, root, "entry.weight");
}

static berth_status dim(const struct weights *w, const char *root, const char *name, int axis,
                        uint64_t *out, berth_err *err)
{
    const struct weights_entry *e = arch_find(w, root, name);
    if (!e || axis >= e->shape.ndim || !e->shape.dim[axis] || e->shape.dim[axis] > 4096)
        return err_set(err, BERTH_EUNSUPPORTED, "a toy without a proper '%s'", name);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

static berth_status config(const struct weights *w, struct family_config *cfg, berth_err *err)
{
    struct toy *t = cfg->own;
    t->other_names = arch_find(w, cfg->root, "entry.weight");
    const char *in = t->other_names ? "entry.weight" : "toy_in.weight";
    if (dim(w, cfg->root, in, 1, &t->channels, err) || dim(w, cfg->root, in, 0, &t->hidden, err))
        return err->code;
    return dim(w, cfg->root, "toy_text.k.weight", 1, &t->context_dim, err);
}

static const struct latent_format latent_toy = {
    .name = "toy", .channels = 8, .rank = 2, .ratio = 4, .scale = 0.5
};

static berth_status describe(const struct weights *w, const char *part,
                             const struct family_config *cfg, struct diffusion_info *info,
                             berth_err *err)
{
    const struct toy *t = cfg->own;
    (void)w, (void)part;
    if (t->channels != latent_toy.channels)
        return err_set(err, BERTH_EUNSUPPORTED, "a toy of %llu channels",
                       (unsigned long long)t->channels);
    *info = (struct diffusion_info) { .family = "toy",
                                      .latent = latent_toy,
                                      .text = &text_set_toy,
                                      .predicts = PREDICT_FLOW,
                                      .shift = 1.0,
                                      .multiplier = 1.0,
                                      .in_channels = t->channels,
                                      .context_dim = t->context_dim,
                                      .act = DT_BF16,
                                      .act_else = DT_F16 };
    return BERTH_OK;
}

/* ---- names ---- */

/* Some files call the first layer "entry". */
static bool translate(const void *own, const char *canonical, struct net_source *out)
{
    static const char in[] = "toy_in.";
    (void)own;
    *out = (struct net_source) { .row = 0 };
    if (strncmp(canonical, in, sizeof in - 1) != 0)
        return false;
    snprintf(out->name, sizeof out->name, "entry.%s", canonical + sizeof in - 1);
    return true;
}

static net_names_fn *names(const struct family_config *cfg)
{
    return ((const struct toy *)cfg->own)->other_names ? translate : NULL;
}

/* Adapters say "toy.<path>", beside what every diffusion model's do. */
static void lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX];
    lora_diffusion(t, w, net);
    for (size_t i = 0; i < weights_count(w); i++)
        if (lora_path(weights_at(w, i), net->alias.root, path))
            lora_add(t, "toy.", path, false, &(struct lora_name) { .key = weights_at(w, i)->name });
}

/* ---- the network ---- */

struct pass {
    const struct toy *t;
    const struct family_batch *b;
};

static void toy(struct net_run *r, void *user)
{
    const struct pass *p = user;
    const struct family_batch *b = p->b;
    const uint64_t B = b->shape.dim[0], D = p->t->hidden, T = shape_inner(&b->shape, 2);
    struct act x = net_input(r, &b->shape, b->x);
    struct act h = net_conv2d(r, x, "toy_in", NET_PAD1); /* [B, D, h, w] */
    net_drop(r, &x);
    struct act time = net_timestep(r, b->t, (size_t)B, TIME_WIDTH);
    struct act e = net_linear(r, time, "toy_time");
    net_drop(r, &time);
    net_add(r, &h, net_reshape(r, e, &(struct shape) { 4, { B, D, 1, 1 } }));
    net_drop(r, &e);

    struct act text =
        net_input(r, &(struct shape) { 3, { B, b->tokens, p->t->context_dim } }, b->context);
    struct act rows = net_permute(r, net_reshape(r, h, &(struct shape) { 3, { B, D, T } }),
                                  (const int[]) { 0, 2, 1 }); /* [B, T, D] */
    net_drop(r, &h);
    size_t mark = net_enter(r, "toy_text.");
    struct act q = net_linear(r, rows, "q"), k = net_linear(r, text, "k");
    struct act v = net_linear(r, text, "v");
    net_drop(r, &text);
    struct act o = net_attention(r, q, k, v, (struct net_attn) { .heads = HEADS });
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    rows = net_linear_add(r, o, "proj", rows);
    net_drop(r, &o);
    net_leave(r, mark);

    h = net_reshape(r, net_permute(r, rows, (const int[]) { 0, 2, 1 }),
                    &(struct shape) { 4, { B, D, b->shape.dim[2], b->shape.dim[3] } });
    net_drop(r, &rows);
    x = net_conv2d(r, h, "toy_out", NET_PAD1);
    net_drop(r, &h);
    net_output(r, x, b->out);
    net_drop(r, &x);
}

static berth_status forward(struct net *net, const struct family_config *cfg,
                            const struct family_batch *b, uint64_t *peak, berth_err *err)
{
    struct pass p = { .t = cfg->own, .b = b };
    return peak ? net_predict(net, toy, &p, peak, err) : net_forward(net, toy, &p, err);
}

/* ---- synthetic models ---- */

static void diffusion_keys(struct keys *k, const void *config)
{
    (void)config; /* there is one size */
    const uint64_t C = 8, D = 16, context = TOY_WIDTH;
    keys_conv(k, "toy_out", C, D, 3); /* files need not be in order: the pass says it */
    keys_conv(k, "toy_in", D, C, 3);
    keys_linear(k, "toy_text.proj", D, D, KEYS_BIAS);
    keys_linear(k, "toy_text.q", D, D, KEYS_BIAS);
    keys_linear(k, "toy_text.k", D, context, KEYS_BIAS);
    keys_linear(k, "toy_text.v", D, context, KEYS_BIAS);
    keys_linear(k, "toy_time", D, TIME_WIDTH, KEYS_BIAS);
}

static void checkpoint_keys(struct keys *k, const void *config)
{
    size_t mark = keys_enter(k, "model.diffusion_model");
    diffusion_keys(k, config);
    keys_leave(k, mark);
    mark = keys_enter(k, "first_stage_model");
    keys_conv(k, "toy_encoder", 8, 3, 4);
    keys_conv(k, "toy_decoder", 3, 8, 3);
    keys_leave(k, mark);
    mark = keys_enter(k, "cond_stage_model.transformer");
    keys_toy_text(k);
    keys_leave(k, mark);
}

static const struct preset presets[] = {
    { .name = "toy-tiny", .about = "the toy's network", .build = diffusion_keys },
    { .name = "toy-checkpoint",
      .about = "the toy with its VAE and its text encoder",
      .build = checkpoint_keys },
    { .name = NULL },
};

/* ---- all of it ---- */

const struct family family_toy = {
    .arch = { FAMILY_ARCH("toy", "toy diffusion model"), .detect = toy_at, .lora = lora,
              .presets = presets },
    .checkpoint = FAMILY_CHECKPOINT("toy-checkpoint", "a toy checkpoint"),
    .bytes = sizeof(struct toy),
    .repeats = true,
    .usual = { 4, { 1, 8, 64, 64 } },
    .usual_tokens = 77,
    .at = toy_at,
    .config = config,
    .describe = describe,
    .names = names,
    .forward = forward,
};
