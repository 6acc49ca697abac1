/* uso: the projector of USO, which makes tokens of three states of SigLIP: of what is seen of a
 * picture's style. They stand in front of Flux's text, as wide as that is inside. */
#include "model/style.h"
#include "model/uso/presets.h"

#define WIDTH_MAX (1 << 16)
#define STATES 3 /* SigLIP's: of the layer 20th from its end, 11th, and of the last but one */
#define EPS 1e-5f
#define IN_FILE "feature_embedder."

/* In the order of the tokens, and which state each takes. */
static const struct {
    const char *name;
    uint64_t state;
} parts[STATES] = { { "high", 2 }, { "mid", 1 }, { "low", 0 } };

static bool at(const struct weights *w, const char *root)
{
    return arch_find(w, root, IN_FILE "mid_layer_norm.bias") != NULL;
}

static berth_status config(const struct weights *w, const char *root, struct style_net *out,
                           berth_err *err)
{
    const struct weights_entry *rows = arch_find(w, root, IN_FILE "mid_embedding_linear.0.weight");
    const struct weights_entry *wide = arch_find(w, root, IN_FILE "mid_projection.weight");
    out->states = STATES;
    out->rows = arch_dim(rows, 1);
    out->gives = arch_dim(rows, 0);
    out->in = arch_dim(wide, 1);
    out->out = arch_dim(wide, 0);
    if (!out->rows || out->rows > WIDTH_MAX || !out->gives || out->gives > WIDTH_MAX || !out->in ||
        out->in > WIDTH_MAX || !out->out || out->out > WIDTH_MAX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a USO projector of %llu rows of %llu values to %llu of %llu",
                       (unsigned long long)out->rows, (unsigned long long)out->in,
                       (unsigned long long)out->gives, (unsigned long long)out->out);
    return BERTH_OK;
}

/* norm(silu(linear(x turned))) through the projection: [1, gives, out]. */
static struct act part(struct net_run *r, const struct style_net *s, const char *name,
                       const float *from)
{
    static const int turned[] = { 0, 2, 1 };
    const struct shape xs = { 3, { 1, s->rows, s->in } };
    char layer[48];
    struct act x = net_input(r, &xs, from), t = net_permute(r, x, turned);
    net_drop(r, &x);
    snprintf(layer, sizeof layer, IN_FILE "%s_embedding_linear.0", name);
    struct act h = net_linear(r, t, layer);
    net_drop(r, &t);
    net_unary(r, &h, OP_SILU);
    t = net_permute(r, h, turned);
    net_drop(r, &h);
    snprintf(layer, sizeof layer, IN_FILE "%s_layer_norm", name);
    h = net_layer_norm(r, t, layer, EPS);
    net_drop(r, &t);
    snprintf(layer, sizeof layer, IN_FILE "%s_projection", name);
    struct act y = net_linear(r, h, layer);
    net_drop(r, &h);
    return y;
}

static void forward(struct net_run *r, void *user)
{
    const struct style_pass *p = user;
    const struct style_net *s = p->net;
    for (size_t i = 0; i < STATES && !net_bad(r); i++) {
        const float *from = p->x ? p->x + parts[i].state * s->rows * s->in : NULL;
        struct act y = part(r, s, parts[i].name, from);
        net_finite(r, y, "USO projector");
        net_output(r, y, p->out ? p->out + i * s->gives * s->out : NULL);
        net_drop(r, &y);
    }
}

const struct style_class style_uso = {
    .arch = { STYLE_ARCH("flux-uso", "USO projector: a picture's style for Flux"), .detect = at,
              .presets = uso_presets },
    .name = "USO",
    .what = "a USO projector",
    .config = config,
    .forward = forward,
};
