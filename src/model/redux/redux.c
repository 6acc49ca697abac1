/* redux: Flux's style model: what SigLIP saw of a picture as tokens for the text's place. */
#include "model/redux/presets.h"
#include "model/style.h"

#define WIDTH_MAX (1 << 16)

static bool at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "redux_up.weight") && arch_find(w, root, "redux_down.weight");
}

static berth_status config(const struct weights *w, const char *root, struct style_net *out,
                           berth_err *err)
{
    const struct weights_entry *up = arch_find(w, root, "redux_up.weight");
    const struct weights_entry *down = arch_find(w, root, "redux_down.weight");
    out->in = arch_dim(up, 1);
    out->out = arch_dim(down, 0);
    if (!out->in || out->in > WIDTH_MAX || !out->out || out->out > WIDTH_MAX)
        return err_set(err, BERTH_EUNSUPPORTED, "a Redux model of %llu values in, %llu out",
                       (unsigned long long)out->in, (unsigned long long)out->out);
    return BERTH_OK;
}

static void forward(struct net_run *r, void *user)
{
    const struct style_pass *p = user;
    const struct shape s = { 3, { 1, p->rows, p->net->in } };
    struct act x = net_input(r, &s, p->x);
    struct act h = net_linear(r, x, "redux_up");
    net_drop(r, &x);
    net_unary(r, &h, OP_SILU);
    struct act y = net_linear(r, h, "redux_down");
    net_drop(r, &h);
    net_finite(r, y, "style model");
    net_output(r, y, p->out);
    net_drop(r, &y);
}

const struct style_class style_redux = {
    .arch = { STYLE_ARCH("flux-redux", "Flux Redux: a picture as a prompt"), .detect = at,
              .presets = redux_presets },
    .name = "Flux Redux",
    .what = "a style model (Flux Redux)",
    .config = config,
    .forward = forward,
};
