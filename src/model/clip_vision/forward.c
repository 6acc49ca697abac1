/* The forward pass: a picture's patches as tokens, T of them, D wide. */
#include "model/clip_vision/clip_vision.h"

#include <math.h>

#define EPS 1e-5f
#define MID 11 /* from the end */
#define LOW 20

static struct act attention(struct net_run *r, const struct vision_net *v, struct act h)
{
    const uint32_t heads = clip_vision_of(v)->heads;
    struct act q = net_linear(r, h, "self_attn.q_proj");
    struct act k = net_linear(r, h, "self_attn.k_proj");
    struct act x = net_linear(r, h, "self_attn.v_proj");
    struct net_attn how = { .heads = heads, .scale = 1.0f / sqrtf((float)(v->width / heads)) };
    struct act y = net_attention(r, q, k, x, how);
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &x);
    return y;
}

/* x += out_proj(attention(norm(x))); x += fc2(act(fc1(norm(x)))) */
static struct act layer(struct net_run *r, const struct vision_net *v, uint32_t i, struct act x)
{
    static const enum op_unary_kind act[] = { [CLIP_VISION_L] = OP_QUICK_GELU,
                                              [CLIP_VISION_H] = OP_GELU,
                                              [CLIP_VISION_SIGLIP] = OP_GELU_TANH };
    size_t mark = net_enter(r, "vision_model.encoder.layers.%u.", i);
    struct act h = net_layer_norm(r, x, "layer_norm1", EPS);
    struct act y = attention(r, v, h);
    net_drop(r, &h);
    x = net_linear_add(r, y, "self_attn.out_proj", x);
    net_drop(r, &y);
    h = net_layer_norm(r, x, "layer_norm2", EPS);
    y = net_linear(r, h, "mlp.fc1");
    net_drop(r, &h);
    net_unary(r, &y, act[clip_vision_of(v)->kind]);
    x = net_linear_add(r, y, "mlp.fc2", x);
    net_drop(r, &y);
    net_leave(r, mark);
    return x;
}

/* [1, T, D]: the token for the class in front, then the patches; and where each of them is. */
static struct act embed(struct net_run *r, const struct vision_pass *p)
{
    const struct vision_net *v = p->net;
    const bool siglip = clip_vision_of(v)->kind == CLIP_VISION_SIGLIP;
    const uint64_t n = v->side / v->patch, first = siglip ? 0 : 1;
    const struct shape xs = { 3, { 1, v->tokens, v->width } };
    const struct shape one = { 3, { 1, 1, v->width } };
    const struct shape ps = { 3, { 1, n * n, 3 * (uint64_t)v->patch * v->patch } };
    size_t mark = net_enter(r, "vision_model.embeddings.");
    struct act x = net_new(r, &xs), in = net_input(r, &ps, p->patches);
    net_product(r, &(struct net_product) { .layer = "patch_embedding",
                                           .x = net_view(&in),
                                           .y = net_part(r, net_view(&x), 1, first, v->tokens),
                                           .no_bias = !siglip });
    net_drop(r, &in);
    if (!siglip) {
        struct act class = net_embedding(r, p->number, 1, "class_embedding");
        struct act row = net_reshape(r, class, &one);
        net_copy(r, net_view(&row), net_part(r, net_view(&x), 1, 0, 1));
        net_drop(r, &class);
    }
    struct act at = net_embedding(r, p->number, (size_t)v->tokens, "position_embedding");
    net_add(r, &x, net_reshape(r, at, &xs));
    net_drop(r, &at);
    net_leave(r, mark);
    return x;
}

static void give(struct net_run *r, struct act x, float *to)
{
    net_finite(r, x, "vision encoder");
    net_output(r, x, to);
}

/* LLaVA: all but the class, for a language model. */
static void give_projected(struct net_run *r, const struct vision_pass *p, struct act x)
{
    struct act in = net_slice(r, x, 1, 1, p->net->tokens);
    struct act h = net_linear(r, in, "multi_modal_projector.linear_1");
    net_drop(r, &in);
    net_unary(r, &h, OP_GELU);
    struct act y = net_linear(r, h, "multi_modal_projector.linear_2");
    net_drop(r, &h);
    give(r, y, p->projected);
    net_drop(r, &y);
}

/* The row of the class, normed and projected. */
static void give_embeds(struct net_run *r, const struct vision_pass *p, struct act x)
{
    struct act row = net_slice(r, x, 1, 0, 1);
    struct act y = net_layer_norm(r, row, "vision_model.post_layernorm", EPS);
    net_drop(r, &row);
    if (clip_vision_of(p->net)->projection) {
        struct act projected = net_linear_no_bias(r, y, "visual_projection");
        net_drop(r, &y);
        y = projected;
    }
    give(r, y, p->embeds);
    net_drop(r, &y);
}

void clip_vision_forward(struct net_run *r, void *user)
{
    const struct vision_pass *p = user;
    const struct clip_vision *c = clip_vision_of(p->net);
    struct act x = embed(r, p);
    if (c->kind != CLIP_VISION_SIGLIP) {
        struct act y = net_layer_norm(r, x, "vision_model.pre_layrnorm", EPS);
        net_drop(r, &x);
        x = y;
    }
    for (uint32_t i = 0; i < c->layers && !net_bad(r); i++) {
        x = layer(r, p->net, i, x);
        if (p->mid && (i + MID == c->layers || i + LOW == c->layers))
            give(r, x, i + MID == c->layers ? p->mid : p->low);
        if (i + 2 != c->layers)
            continue;
        give(r, x, p->penultimate);
        if (p->net->projected_rows)
            give_projected(r, p, x);
    }
    if (c->kind == CLIP_VISION_SIGLIP) {
        struct act y = net_layer_norm(r, x, "vision_model.post_layernorm", EPS);
        give(r, y, p->last);
        net_drop(r, &y);
    } else {
        give(r, x, p->last);
        give_embeds(r, p, x);
    }
    net_drop(r, &x);
}
