/* The doors of style models. */
#include "model/style.h"

#define USUAL_ROWS 729 /* of a picture: costs are estimated for them */

static const struct style_class *const all[] = {
#define STYLE(x) &style_##x,
#include "model/styles.def"
#undef STYLE
};

uint64_t style_rows(const struct style_net *s, uint64_t rows)
{
    return s->gives ? s->states * s->gives : rows;
}

static uint64_t usual_rows(const struct style_net *s)
{
    return s->rows ? s->rows : USUAL_ROWS;
}

const struct style_class *style_at(const struct weights *w, const char *part)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->arch.detect(w, part ? part : ""))
            return all[i];
    return NULL;
}

static berth_status configure(const struct style_class *is, const struct weights *w,
                              const char *root, struct style_net *out, berth_err *err)
{
    *out = (struct style_net) { .is = is };
    return is->config(w, root, out, err);
}

berth_status style_trace(const struct arch *arch, const struct weights *w, const char *root,
                         struct block_trace *out, berth_err *err)
{
    struct style_net s;
    struct style_pass pass = { .net = &s };
    const struct net_trace_args args = { .w = w, .root = root, .out = out };
    struct net *net;
    uint64_t peak;
    if (configure((const struct style_class *)arch, w, root, &s, err) || /* its first member */
        net_trace_open(&args, &net, err))
        return err->code;
    pass.rows = usual_rows(&s);
    berth_status bad = net_predict(net, s.is->forward, &pass, &peak, err);
    net_close(net);
    return bad;
}

berth_status style_open(const struct net_args *a, const char *part, struct style_net *s,
                        struct net **out, berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    const struct style_class *is = style_at(w, part);
    struct net_args args = *a;
    struct style_pass pass = { .net = s };
    uint64_t peak;
    *out = NULL;
    if (!is)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.120s' holds no style model that can be computed here", weights_path(w));
    args.root = part ? part : "";
    if (configure(is, w, args.root, s, err) || net_open(&args, out, err))
        return err_add(err, "'%.120s'", weights_path(w));
    pass.rows = usual_rows(s);
    if (net_predict(*out, is->forward, &pass, &peak, err)) {
        net_close(*out);
        *out = NULL;
        return err->code;
    }
    return BERTH_OK;
}

berth_status style_tokens(struct net *net, const struct style_net *s, const float *x, uint64_t rows,
                          float *out, berth_err *err)
{
    struct style_pass pass = { .net = s, .x = x, .rows = rows, .out = out };
    return net_forward(net, s->is->forward, &pass, err);
}
