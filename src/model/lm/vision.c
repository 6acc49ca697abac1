/* vision.c: the towers (llm-encoders.md 2.2, 2.3). Qwen2.5-VL's has RMS norms, gated feed-forwards
 * and windows; Qwen3-VL's and Qwen3.5's layer norms
 * and a table of positions; Qwen3-VL's gives rows at several depths. */
#include "model/lm/vision.h"

#include <stdlib.h>
#include <string.h>

#define EPS 1e-6f
#define FULL_EVERY 8  /* layers of Qwen2.5-VL that look at all of the picture */
#define MLP_ROWS 2048 /* of a feed-forward at a time */

static struct act norm(struct net_run *r, const struct lm_sight_net *s, struct act x,
                       const char *layer)
{
    return s->table ? net_layer_norm(r, x, layer, EPS) : net_rms_norm(r, x, layer, EPS);
}

/* [patches, heads * D] as [n, size, heads, D] from patch `at` on. */
static struct view windows_of(struct net_run *r, struct view v, const struct sight_run *w)
{
    v = net_part(r, v, 1, w->at, w->at + (uint64_t)w->size * w->n);
    if (net_bad(r))
        return v;
    v.shape.dim[0] = w->n;
    v.shape.dim[1] = w->size;
    v.stride[0] = w->size * v.stride[1];
    return v;
}

static struct act attention(struct net_run *r, const struct lm_sight_net *s,
                            const struct sight_host *h, struct act x, struct act angles, bool all)
{
    const uint64_t D = s->width;
    const struct shape one = { .ndim = 3, .dim = { 1, h->patches, 3 * D } };
    const struct shape flat = { .ndim = 2, .dim = { h->patches, D } };
    struct act qkv = net_linear(r, x, "attn.qkv");
    struct act y = net_new(r, &flat);
    struct view v = net_view(&qkv), part[3];
    v.shape = one;
    v.stride[2] = v.stride[1], v.stride[1] = v.stride[0];
    for (uint64_t i = 0; i < 3; i++)
        part[i] = net_split(r, net_part(r, v, 2, i * D, (i + 1) * D), s->heads);
    struct view to = net_view(&y);
    to.shape = (struct shape) { .ndim = 3, .dim = { 1, h->patches, D } };
    to.stride[2] = to.stride[1], to.stride[1] = to.stride[0];
    to = net_split(r, to, s->heads);
    net_rotate(r, part[0], part[1], &(struct net_rope) { .table = angles, .halves = true });
    const struct sight_run whole = { .size = h->patches, .n = 1 };
    for (size_t i = 0; i < (all ? 1 : h->runs) && !net_bad(r); i++) {
        const struct sight_run *w = all ? &whole : &h->run[i];
        net_attend(r, windows_of(r, part[0], w), windows_of(r, part[1], w),
                   windows_of(r, part[2], w), windows_of(r, to, w), (struct net_attn) { 0 });
    }
    net_drop(r, &qkv);
    struct act o = net_linear(r, y, "attn.proj");
    net_drop(r, &y);
    return o;
}

static struct act between(struct net_run *r, const struct lm_sight_net *s, struct act in)
{
    if (s->table) {
        struct act f = net_linear(r, in, "mlp.linear_fc1");
        net_unary(r, &f, OP_GELU_TANH);
        return f;
    }
    struct act gate = net_linear(r, in, "mlp.gate_proj");
    net_unary(r, &gate, OP_SILU);
    struct act up = net_linear(r, in, "mlp.up_proj");
    net_mul(r, &gate, up);
    net_drop(r, &up);
    return gate;
}

static struct act feed_forward(struct net_run *r, const void *net, struct act h)
{
    const struct lm_sight_net *s = net;
    struct act f = between(r, s, h);
    struct act y = net_linear(r, f, s->table ? "mlp.linear_fc2" : "mlp.down_proj");
    net_drop(r, &f);
    return y;
}

static void block(struct net_run *r, const struct lm_sight_net *s, const struct sight_host *h,
                  uint32_t i, struct act x, struct act angles)
{
    size_t mark = net_enter(r, "visual.blocks.%u.", i);
    struct act n = norm(r, s, x, "norm1");
    struct act y = attention(r, s, h, n, angles, s->table || (i + 1) % FULL_EVERY == 0);
    net_drop(r, &n);
    net_add(r, &x, y);
    net_drop(r, &y);
    n = norm(r, s, x, "norm2");
    lm_add_by_rows(r, feed_forward, s, n, x, MLP_ROWS);
    net_drop(r, &n);
    net_leave(r, mark);
}

/* Four patches become a row: normed one by one, or (late) together. */
static void merge(struct net_run *r, const struct lm_sight_net *s, struct act x, bool late,
                  float *to)
{
    const struct shape cells = { .ndim = 2,
                                 .dim = { x.shape.ndim ? x.shape.dim[0] / 4 : 0, 4 * s->width } };
    const char *of = s->table ? "norm" : "ln_q";
    struct act n = late ? norm(r, s, net_reshape(r, x, &cells), of) : norm(r, s, x, of);
    struct act f = net_linear(r, net_reshape(r, n, &cells), s->table ? "linear_fc1" : "mlp.0");
    net_drop(r, &n);
    net_unary(r, &f, OP_GELU);
    struct act y = net_linear(r, f, s->table ? "linear_fc2" : "mlp.2");
    net_drop(r, &f);
    net_finite(r, y, "picture");
    net_output(r, y, to);
    net_drop(r, &y);
}

/* x += what the table says of each patch's place, between the four positions around it. */
static void add_positions(struct net_run *r, const struct sight_host *h, struct act *x)
{
    const struct shape column = { .ndim = 2, .dim = { h->patches, 1 } };
    for (size_t k = 0; k < 4; k++) {
        struct act row =
            net_embedding(r, h->corner + k * h->patches, h->patches, "visual.pos_embed");
        struct act share = net_input(r, &column, h->share + k * h->patches);
        net_mul(r, &row, share);
        net_add(r, x, row);
        net_drop(r, &row);
        net_drop(r, &share);
    }
}

/* Are rows given behind block i? Then which. */
static bool gives_behind(const struct lm_sight_net *s, uint32_t i, uint32_t *which)
{
    for (*which = 0; *which < s->deep; ++*which)
        if (s->given[*which] == i)
            return true;
    return false;
}

static void forward(struct net_run *r, const void *config, const void *host, float *to)
{
    const struct lm_net *c = config;
    const struct lm_sight_net *s = &c->sight;
    const struct sight_host *h = host;
    const struct shape in = { .ndim = 2, .dim = { h->patches, h->features } };
    const struct shape turned = { .ndim = 3, .dim = { h->patches, s->width / s->heads / 2, 2 } };
    const size_t rows = (size_t)(h->patches / 4) * (size_t)c->width;
    struct act p = net_input(r, &in, h->patch), angles = net_input_f32(r, &turned, h->angles);
    struct act x = s->table ? net_linear(r, p, "visual.patch_embed.proj")
                            : net_linear_no_bias(r, p, "visual.patch_embed.proj");
    net_drop(r, &p);
    if (s->table)
        add_positions(r, h, &x);
    for (uint32_t i = 0, which; i < s->blocks && !net_bad(r); i++) {
        block(r, s, h, i, x, angles);
        if (!gives_behind(s, i, &which))
            continue;
        size_t mark = net_enter(r, "visual.deepstack_merger_list.%u.", which);
        merge(r, s, x, true, to + (1 + which) * rows);
        net_leave(r, mark);
    }
    size_t mark = net_enter(r, "visual.merger.");
    merge(r, s, x, false, to);
    net_leave(r, mark);
    net_drop(r, &x);
    net_drop(r, &angles);
}

/* Rows came in the order of cells; they leave row by row. */
static void arrange(const void *config, const void *host, float *rows, float *spare)
{
    const struct lm_net *c = config;
    const struct sight_host *h = host;
    const size_t width = (size_t)c->width, cells = h->patches / 4;
    for (size_t k = 0; k <= c->sight.deep; k++, rows += cells * width) {
        memcpy(spare, rows, cells * width * sizeof *rows);
        for (size_t i = 0; i < cells; i++)
            memcpy(rows + h->cell[i] * width, spare + i * width, width * sizeof *rows);
    }
}

static bool there(const void *config)
{
    return ((const struct lm_net *)config)->sight.blocks > 0;
}

static berth_status prepare(const void *config, const struct text_picture *p, void **host,
                            struct picture_rows *rows, berth_err *err)
{
    const struct lm_net *c = config;
    struct sight_host *h;
    berth_status s = sight_host_new(c, p, &h, err);
    *host = h;
    if (!s)
        *rows = (struct picture_rows) {
            .n = h->patches / 4, .high = h->high / 2, .wide = h->wide / 2, .deep = c->sight.deep
        };
    return s;
}

#define SIGHT .there = there, .prepare = prepare, .forward = forward, .arrange = arrange
/* <|image_pad|> */
const struct encoder_sight lm_sight = { SIGHT, .token = 151655 };
const struct encoder_sight lm_sight_35 = { SIGHT, .token = 248056 };
