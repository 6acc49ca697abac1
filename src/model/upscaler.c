/* The doors of upscalers: what a file has, opened. */
#include "model/upscaler.h"

static const struct upscaler_family *const all[] = {
#define UPSCALER(x) &upscaler_##x,
#include "model/upscalers.def"
#undef UPSCALER
};

static berth_status configure(const struct upscaler_family *f, const struct weights *w,
                              const char *root, struct upscaler_net *out, berth_err *err)
{
    *out = (struct upscaler_net) { .family = f, .multiple = 1, .least = 1 };
    return f->config(w, root, out, err);
}

berth_status upscaler_find(const struct weights *w, const char *part, char root[ARCH_ROOT_MAX],
                           struct upscaler_net *out, berth_err *err)
{
    part = part ? part : "";
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (arch_is(&all[i]->arch, w, part, root))
            return configure(all[i], w, root, out, err);
    return err_set(err, BERTH_ENOTFOUND, "no upscale model that is known here");
}

static berth_status run_dry(struct net *net, const struct upscaler_net *u, size_t side,
                            berth_err *err)
{
    side = upscaler_side(u, side);
    struct upscaler_pass p = { .up = u, .shape = { 4, { 1, UPSCALE_COLOURS, side, side } } };
    uint64_t peak;
    return net_predict(net, u->family->forward, &p, &peak, err);
}

#define USUAL_SIDE 64 /* of pictures that costs are estimated for */

berth_status upscaler_trace(const struct arch *arch, const struct weights *w, const char *root,
                            struct block_trace *out, berth_err *err)
{
    const struct upscaler_family *f = (const struct upscaler_family *)arch; /* its first member */
    struct upscaler_net u;
    struct net *net;
    if (configure(f, w, root, &u, err))
        return err->code;
    const struct net_trace_args args = {
        .w = w, .root = root, .names = f->names(&u), .names_user = &u, .out = out
    };
    if (net_trace_open(&args, &net, err))
        return err->code;
    berth_status s = run_dry(net, &u, USUAL_SIDE, err);
    net_close(net);
    return s;
}

berth_status upscaler_open(const struct net_args *a, const char *part, struct upscaler_net *up,
                           struct net **out, berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    char root[ARCH_ROOT_MAX];
    const char *first;
    berth_err unsaid;
    *out = NULL;
    if (upscaler_find(w, part, root, up, err))
        return err_add(err, "'%.120s'", weights_path(w));
    struct net_args args = *a;
    args.root = root;
    args.names = up->family->names(up);
    args.names_user = up;
    if (net_open(&args, out, err))
        return err->code;
    if (!run_dry(*out, up, UPSCALE_OVERLAP, &unsaid))
        net_unused(*out, &first); /* what no layer asks for is logged */
    return BERTH_OK;
}

size_t upscaler_side(const struct upscaler_net *u, size_t n)
{
    n = n < u->least ? u->least : n;
    return (n + u->multiple - 1) / u->multiple * u->multiple;
}

/* ---- for families ---- */

#define WIDTH_MAX 4096 /* channels; the largest upscalers have some hundred */

berth_status upscaler_dim(const struct weights_entry *e, const char *name, int axis, uint32_t *out,
                          berth_err *err)
{
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(err, BERTH_EUNSUPPORTED, "an upscale model without '%s'", name);
    if (e->shape.ndim != 4 || !e->shape.dim[axis] || e->shape.dim[axis] > WIDTH_MAX)
        return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' is %s: no layer of an upscale model",
                       e->name, shape_text(&e->shape, text));
    *out = (uint32_t)e->shape.dim[axis];
    return BERTH_OK;
}

struct act upscaler_unshuffle(struct net_run *r, struct act x, uint32_t s)
{
    static const int order[] = { 0, 2, 4, 1, 3 };
    const uint64_t *d = x.shape.dim;
    const struct shape apart = { 5, { d[1], d[2] / s, s, d[3] / s, s } };
    const struct shape whole = { 4, { 1, d[1] * s * s, d[2] / s, d[3] / s } };
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &whole);
}

struct act upscaler_shuffle(struct net_run *r, struct act x, uint32_t s)
{
    static const int order[] = { 0, 3, 1, 4, 2 };
    const uint64_t *d = x.shape.dim, c = d[1] / s / s;
    const struct shape apart = { 5, { c, s, s, d[2], d[3] } };
    const struct shape whole = { 4, { 1, c, d[2] * s, d[3] * s } };
    struct act y = net_permute(r, net_reshape(r, x, &apart), order);
    net_drop(r, &x);
    return net_reshape(r, y, &whole);
}
