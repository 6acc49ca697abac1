/* A person's picture in a token of a prompt. */
#include "model/photomaker.h"

#include "model/clip_vision/clip_vision.h"

#include <stdlib.h>

#define EPS 1e-5f
#define WIDTH_MAX 65536

const char *photomaker_part(const struct weights *w)
{
    static const char *const part[] = { "", "id_encoder." };
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        if (vision_at(w, part[i]) == &vision_clip_vision &&
            arch_find(w, part[i], "visual_projection.weight") &&
            arch_find(w, part[i], "visual_projection_2.weight") &&
            arch_find(w, part[i], "fuse_module.layer_norm.weight"))
            return part[i];
    return NULL;
}

/* The encoder's config without its projection, which is ours. */
static berth_status configure(const struct weights *w, const char *part, struct photomaker *p,
                              berth_err *err)
{
    if (vision_find(w, part, &p->v, err))
        return err->code;
    struct clip_vision *c = (struct clip_vision *)(void *)p->v.own;
    const uint64_t seen = arch_dim(arch_find(w, part, "visual_projection.weight"), 0) +
                          arch_dim(arch_find(w, part, "visual_projection_2.weight"), 0);
    p->width = arch_dim(arch_find(w, part, "fuse_module.layer_norm.weight"), 0);
    c->projection = false;
    p->v.embeds_width = p->v.width;
    if (p->v.embeds_rows != 1 || c->openclip || seen != p->width || !seen || seen > WIDTH_MAX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a PhotoMaker that sees %llu values for tokens of %llu",
                       (unsigned long long)seen, (unsigned long long)p->width);
    return BERTH_OK;
}

berth_status photomaker_open(const struct net_args *a, const char *part, struct photomaker *p,
                             struct net **out, berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    struct net_args args = *a;
    *out = NULL;
    if (configure(w, part ? part : "", p, err))
        return err_add(err, "'%.120s'", weights_path(w));
    args.root = part ? part : "";
    args.names = p->v.is->names;
    args.names_user = &p->v;
    return net_open(&args, out, err);
}

/* ---- a token ---- */

struct fusing {
    const struct photomaker *p;
    const float *seen; /* [width of the encoder] */
    float *token;      /* in and out */
};

/* fc2(gelu(fc1(norm(x)))) + add; takes x, which may be add. */
static struct act mlp(struct net_run *r, const char *name, struct act x, struct act add)
{
    size_t mark = net_enter(r, "fuse_module.%s.", name);
    struct act n = net_layer_norm(r, x, "layernorm", EPS);
    struct act h = net_linear(r, n, "fc1");
    net_drop(r, &n);
    net_unary(r, &h, OP_GELU);
    struct act y = net_linear(r, h, "fc2");
    net_drop(r, &h);
    net_add(r, &y, add);
    net_drop(r, &x);
    net_leave(r, mark);
    return y;
}

static void fuse(struct net_run *r, void *user)
{
    const struct fusing *f = user;
    struct act seen = net_input(r, &(struct shape) { 2, { 1, f->p->v.width } }, f->seen);
    struct act token = net_input(r, &(struct shape) { 2, { 1, f->p->width } }, f->token);
    struct act all[] = { token, net_linear_no_bias(r, seen, "visual_projection"),
                         net_linear_no_bias(r, seen, "visual_projection_2") };
    net_drop(r, &seen);
    struct act x = net_concat(r, all, ARRAY_LEN(all), 1);
    net_drop(r, &all[1]);
    net_drop(r, &all[2]);
    x = mlp(r, "mlp1", x, token);
    net_drop(r, &token);
    x = mlp(r, "mlp2", x, x);
    struct act y = net_layer_norm(r, x, "fuse_module.layer_norm", EPS);
    net_drop(r, &x);
    net_finite(r, y, "a token of PhotoMaker");
    net_output(r, y, f->token);
    net_drop(r, &y);
}

berth_status photomaker_fuse(struct net *net, const struct photomaker *p,
                             const struct vision_job *j, float *token, berth_err *err)
{
    const size_t states = (size_t)(p->v.tokens * p->v.width), wide = (size_t)p->v.width;
    float *room = calloc(2 * states + wide, sizeof *room);
    if (!room)
        return err_set(err, BERTH_ENOMEM, "what an encoder saw");
    struct vision_job one = *j;
    one.n = 1;
    one.last = room;
    one.penultimate = room + states;
    one.embeds = room + 2 * states;
    one.projected = NULL;
    struct fusing f = { .p = p, .seen = one.embeds, .token = token };
    berth_status s = vision_see(net, &p->v, &one, err);
    if (!s)
        s = net_forward(net, fuse, &f, err);
    free(room);
    return s;
}
