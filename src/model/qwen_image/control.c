/* Networks that steer Qwen-Image by a picture: DiffSynth's (qwen-image-edit.md 5.3).
 *
 * One has a small feed-forward for every block of the transformer. Behind that block it looks at
 * the picture's tokens and at those of edges, depths, poses, and what it makes of both is added to
 * the former. So the two take turns, sixty times a step for the full model, and the tokens travel
 * through host memory each time: either may compute anywhere. */
#include "model/qwen_image/qwen_image.h"

#include "model/arch.h"
#include "model/families.h"

#include <string.h>

#define EPS 1e-6f
#define PIXELS (QWEN_IMAGE_PATCH * QWEN_IMAGE_PATCH)

/* ---- config ---- */

struct control { /* family_control.own */
    uint64_t channels;
    uint32_t blocks;
};

static bool control_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "controlnet_blocks.0.y_rms.weight") &&
           arch_find(w, root, "img_in.weight");
}

static uint64_t control_channels(const struct weights *w, const char *root)
{
    return arch_dim(arch_find(w, root, "img_in.weight"), 1) / PIXELS;
}

static berth_status control_config(const struct weights *w, const char *root,
                                   const struct family_config *cfg, void *own, berth_err *err)
{
    struct control *c = own;
    const struct qwen_image_net *q = cfg->own; /* of the family: its first member */
    const uint64_t wide = arch_dim(arch_find(w, root, "img_in.weight"), 0);
    *c = (struct control) { .channels = control_channels(w, root),
                            .blocks = arch_layers(w, root, "controlnet_blocks") };
    if (wide != q->hidden || c->blocks != q->depth)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control network of %u blocks of width %llu for a transformer of %u of "
                       "width %llu",
                       c->blocks, (unsigned long long)wide, q->depth,
                       (unsigned long long)q->hidden);
    if (c->channels != q->in_channels && c->channels != q->in_channels + 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control network over %llu channels; a latent has %llu, and a mask one "
                       "more",
                       (unsigned long long)c->channels, (unsigned long long)q->in_channels);
    return BERTH_OK;
}

const struct control_class qwen_image_control = {
    .bytes = sizeof(struct control),
    .at = control_at,
    .config = control_config,
    .channels = control_channels,
};

/* ---- a turn ---- */

struct turn {
    const struct family_control *by;
    uint32_t block;
    uint64_t n, tokens, wide, patch; /* latents, tokens of each, D, values of a patch */
    const float *patches, *x;        /* x: [n, tokens, D] */
    float *out;                      /* like x */
};

/* x += strength * output(gelu(input(norm(x) + norm(picture)))) */
static void forward(struct net_run *r, void *user)
{
    const struct turn *t = user;
    const struct shape ps = { 3, { 1, t->tokens, t->patch } }, one = { 3, { 1, 1, 1 } };
    const struct shape xs = { 3, { t->n, t->tokens, t->wide } };
    struct act in = net_input(r, &ps, t->patches), y = net_linear(r, in, "img_in");
    net_drop(r, &in);
    size_t mark = net_enter(r, "controlnet_blocks.%u.", t->block);
    struct act ny = net_rms_norm(r, y, "y_rms", EPS);
    net_drop(r, &y);
    struct act x = net_input(r, &xs, t->x), h = net_rms_norm(r, x, "x_rms", EPS);
    net_add(r, &h, ny);
    net_drop(r, &ny);
    struct act up = net_linear(r, h, "input_proj");
    net_drop(r, &h);
    net_unary(r, &up, OP_GELU);
    struct act z = net_linear(r, up, "output_proj");
    net_drop(r, &up);
    struct act strength = net_input(r, &one, &t->by->strength);
    net_mul(r, &z, strength);
    net_drop(r, &strength);
    net_add(r, &x, z);
    net_drop(r, &z);
    net_output(r, x, t->out);
    net_drop(r, &x);
    net_leave(r, mark);
}

/* ---- between parts of a pass ---- */

static struct shape hint_shape(const struct family_control *by)
{
    const struct control *c = by->own;
    return (struct shape) { 5, { 1, c->channels, 1, by->h, by->w } };
}

berth_status qwen_image_between_open(struct qwen_image_between *b, struct qwen_image_host *host,
                                     berth_err *err)
{
    const uint64_t n = b->in->shape.dim[0], D = b->q->hidden, *d = b->in->shape.dim;
    const uint64_t all = b->size.text + b->size.picture + b->size.refs, one = b->size.picture;
    uint64_t patches = 0;
    for (size_t i = 0; i < b->in->controls; i++) {
        const struct shape s = hint_shape(&b->in->control[i]);
        if (d[3] % 2 || d[4] % 2 || s.dim[3] != d[3] || s.dim[4] != d[4])
            return err_set(
                err, BERTH_EUNSUPPORTED,
                "a control network of Qwen-Image for latents of odd sides, or of another "
                "size than its picture's");
        patches += tokens_count(&s) * s.dim[1] * PIXELS;
    }
    if (!tokens_room(&host->steer, 2 * n * (all + one + 1) * D + patches, 1, 1))
        return err_set(err, BERTH_ENOMEM, "what a control network is given");
    b->x = host->steer.p;
    b->x_out = b->x + n * all * D;
    b->vec = b->x_out + n * all * D;
    b->tokens = b->vec + 2 * n * D;
    b->tokens_out = b->tokens + n * one * D;
    b->patches = b->tokens_out + n * one * D;
    float *to = b->patches;
    for (size_t i = 0; i < b->in->controls; i++) {
        const struct shape s = hint_shape(&b->in->control[i]);
        to = tokens_from(b->in->control[i].hint, &s, to);
    }
    return BERTH_OK;
}

/* The first `tokens` of each item's picture, out of x into `tokens`, or from tokens_out into x. */
static void move(const struct qwen_image_between *b, uint64_t tokens, bool out)
{
    const size_t D = (size_t)b->q->hidden, each = (size_t)tokens * D;
    const size_t all = (size_t)(b->size.text + b->size.picture + b->size.refs) * D;
    for (size_t i = 0; i < (size_t)b->in->shape.dim[0]; i++) {
        float *in_x = b->x + i * all + (size_t)b->size.text * D;
        memcpy(out ? b->tokens + i * each : in_x, out ? in_x : b->tokens_out + i * each,
               each * sizeof *in_x);
    }
}

berth_status qwen_image_steer(struct qwen_image_between *b, uint32_t block, berth_err *err)
{
    const float *patches = b->patches;
    float *x = b->x;
    b->x = b->x_out;
    b->x_out = x;
    for (size_t i = 0; i < b->in->controls; i++) {
        const struct family_control *by = &b->in->control[i];
        const struct shape s = hint_shape(by);
        struct turn t = { .by = by,
                          .block = block,
                          .n = b->in->shape.dim[0],
                          .tokens = tokens_count(&s),
                          .wide = b->q->hidden,
                          .patch = s.dim[1] * PIXELS,
                          .patches = patches,
                          .x = b->tokens,
                          .out = b->tokens_out };
        move(b, t.tokens, true);
        if (net_forward(by->net, forward, &t, err))
            return err_add(err, "the control network");
        move(b, t.tokens, false);
        patches += t.tokens * t.patch;
    }
    return BERTH_OK;
}
