#include "model/control.h"

#include "base/sz.h"

#include <stdlib.h>
#include <string.h>

static const struct control_kind *const all[] = {
#define CONTROL(x) &control_##x,
#include "model/controls.def"
#undef CONTROL
};

/* ---- what a file holds ---- */

static const struct control_kind *find(const struct weights *w, const char *part,
                                       char root[ARCH_ROOT_MAX])
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (arch_is(&all[i]->arch, w, part ? part : "", root))
            return all[i];
    return NULL;
}

/* Control nets that ComfyUI has and nobody here computes, by a tensor of theirs. */
static const struct other {
    const char *what, *has;
} others[] = {
    { "a control LoRA, which is made from the model's own weights", "lora_controlnet" },
    { "a ControlNet for SD3", "pos_embed_input.proj.weight" },
    { "a ControlNet for Hunyuan-DiT", "after_proj_list.18.bias" },
    { "a ControlNet for Stable Cascade", "backbone.0.0.weight" },
    { "a ControlNet for Stable Cascade", "backbone.10.blocks.0.weight" },
    { "a ControlNet for Flux (MistoLine)", "controlnet_blocks.0.linear.weight" },
    { "a ControlNet for Qwen-Image (InstantX)", "transformer_blocks.0.img_mlp.net.0.proj.weight" },
    { "a ControlNet for Qwen-Image (Fun)", "control_blocks.0.after_proj.weight" },
};

static berth_status none(const struct weights *w, berth_err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (arch_find(w, "", others[i].has))
            return err_set(err, BERTH_EUNSUPPORTED, "'%.120s' is %s: it cannot be computed yet",
                           weights_path(w), others[i].what);
    return err_set(err, BERTH_EUNSUPPORTED,
                   "'%.120s' holds no control net of a kind that is known here", weights_path(w));
}

/* Reads its config; free() it. */
static berth_status read_config(const struct weights *w, const char *part,
                                const struct control_kind **kind, char root[ARCH_ROOT_MAX],
                                void **own, berth_err *err)
{
    *own = NULL;
    *kind = find(w, part, root);
    if (!*kind)
        return none(w, err);
    if (!(*own = calloc(1, (*kind)->bytes)))
        return err_set(err, BERTH_ENOMEM, "a control net");
    if (!(*kind)->config(w, root, *own, err))
        return BERTH_OK;
    free(*own);
    *own = NULL;
    return err_add(err, "'%.120s'", weights_path(w));
}

berth_status diffusion_control_info(const struct weights *w, const char *part,
                                    struct control_info *out, berth_err *err)
{
    const struct control_kind *kind;
    char root[ARCH_ROOT_MAX];
    void *own;
    if (read_config(w, part, &kind, root, &own, err))
        return err->code;
    *out = (struct control_info) { .multiple = 1 };
    kind->describe(own, out);
    free(own);
    return BERTH_OK;
}

static berth_status check_fit(const struct weights *w, const struct control_kind *kind,
                              const void *own, const struct family *family,
                              const struct family_config *cfg, const char *family_name,
                              berth_err *err)
{
    if (kind->family != family)
        return err_set(err, BERTH_EINVAL, "'%.120s' is %s: it cannot steer a model of %s",
                       weights_path(w), kind->arch.base.about, family_name);
    return kind->fits(own, cfg, err) ? err_add(err, "'%.120s' cannot steer this model of %s",
                                               weights_path(w), family_name)
                                     : BERTH_OK;
}

berth_status control_check(const struct weights *w, const char *part, const struct family *family,
                           const struct family_config *cfg, const char *family_name, berth_err *err)
{
    const struct control_kind *kind;
    char root[ARCH_ROOT_MAX];
    void *own;
    if (read_config(w, part, &kind, root, &own, err))
        return err->code;
    berth_status s = check_fit(w, kind, own, family, cfg, family_name, err);
    free(own);
    return s;
}

/* ---- life ---- */

struct control { /* owner: the diffusion model's executor */
    const struct control_kind *kind;
    char root[ARCH_ROOT_MAX];
    void *own;
    struct net *net;
    struct res_model *m;
    struct control_info info;
    float *hint; /* pictures of a batch, one for each item */
    size_t hint_cap;
    float *types; /* [info.types] */
};

/* peak NULL: computes. */
static berth_status pass(const struct control_kind *kind, struct net *net, struct control_turn *t,
                         uint64_t *peak, berth_err *err)
{
    if (kind->turn)
        return kind->turn(net, t, peak, err);
    return peak ? net_predict(net, kind->forward, t, peak, err)
                : net_forward(net, kind->forward, t, err);
}

static void own_free(const struct control_kind *kind, void *own)
{
    if (own && kind->release)
        kind->release(own);
    free(own);
}

/* A turn over a usual picture: what is missing is said before anything is computed. */
static berth_status try_turn(struct net *net, const struct control_kind *kind, void *own,
                             berth_err *err)
{
    const struct family *f = kind->family;
    const float one = 1;
    struct family_batch b = { .shape = f->usual, .tokens = f->usual_tokens, .guidance = &one };
    struct control_info info = { .multiple = 1 };
    struct control_out *out = calloc(1, sizeof *out);
    uint64_t peak;
    if (!out)
        return err_set(err, BERTH_ENOMEM, "a control net");
    kind->describe(own, &info);
    struct control_turn t = {
        .own = own, .b = &b, .type = info.types ? 0 : -1, .strength = &one, .out = out
    };
    const int sides = b.shape.ndim - 2;
    t.hint_shape = b.shape;
    t.hint_shape.dim[1] = info.channels;
    for (int i = sides; i < b.shape.ndim; i++)
        t.hint_shape.dim[i] *= info.ratio;
    berth_status s = pass(kind, net, &t, &peak, err);
    control_out_free(out);
    return s;
}

berth_status control_trace(const struct arch *arch, const struct weights *w, const char *root,
                           struct block_trace *out, berth_err *err)
{
    size_t i = 0;
    while (i < ARRAY_LEN(all) && &all[i]->arch != arch)
        i++;
    if (i == ARRAY_LEN(all))
        BUG("'%s' is not in controls.def", arch->base.name);
    const struct control_kind *kind = all[i];
    char full[ARCH_ROOT_MAX];
    void *own = calloc(1, kind->bytes);
    struct net *net = NULL;
    berth_status s = own && arch_is(arch, w, root, full)
                         ? kind->config(w, full, own, err)
                         : err_set(err, BERTH_ENOMEM, "a control net");
    if (!s)
        s = net_trace_open(
            &(struct net_trace_args) {
                .w = w, .root = full, .names = kind->names, .names_user = own, .out = out },
            &net, err);
    if (!s)
        s = try_turn(net, kind, own, err);
    net_close(net);
    own_free(kind, own);
    return s;
}

berth_status control_open(const struct control_args *a, struct control **out, berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    struct control *c = calloc(1, sizeof *c);
    const char *first;
    *out = NULL;
    if (!c)
        return err_set(err, BERTH_ENOMEM, "a control net");
    c->m = a->m;
    if (read_config(w, a->part, &c->kind, c->root, &c->own, err) ||
        check_fit(w, c->kind, c->own, a->family, a->cfg, a->family_name, err))
        goto fail;
    c->info.multiple = 1;
    c->kind->describe(c->own, &c->info);
    if (c->info.types && !(c->types = calloc(c->info.types, sizeof *c->types))) {
        err_set(err, BERTH_ENOMEM, "a control net");
        goto fail;
    }
    struct net_args args = *a->like;
    args.m = a->m;
    args.root = c->root;
    args.names = c->kind->names;
    args.names_user = c->own;
    args.fp8 = false;
    if (net_open(&args, &c->net, err) || try_turn(c->net, c->kind, c->own, err)) {
        err_add(err, "'%.120s'", weights_path(w));
        goto fail;
    }
    net_unused(c->net, &first);
    *out = c;
    return BERTH_OK;
fail:
    control_close(c);
    return err->code;
}

void control_close(struct control *c)
{
    if (!c)
        return;
    net_close(c->net);
    own_free(c->kind, c->own);
    free(c->hint);
    free(c->types);
    free(c);
}

struct net_report control_report(const struct control *c)
{
    return net_report(c->net);
}

const struct res_model *control_model(const struct control *c)
{
    return c->m;
}

void control_out_free(struct control_out *o)
{
    if (o)
        free(o->mem);
    free(o);
}

/* ---- turns ---- */

void control_give(struct net_run *r, const struct control_turn *t, enum control_at at,
                  uint32_t block, struct act y)
{
    const struct shape one = { y.shape.ndim, { 1, 1, 1, 1 } };
    struct control_value *to = &t->out->at[at][block];
    if (*t->strength != 1.0f && y.shape.ndim) {
        struct act k = net_input(r, &one, t->strength);
        net_mul(r, &y, k);
        net_drop(r, &k);
    }
    to->shape = y.shape;
    net_output(r, y, to->x);
    net_drop(r, &y);
}

/* Which value of those that are given in a row is block's, of so many. */
static uint32_t shared_by(const struct control_value *given, bool around, uint32_t block,
                          uint32_t blocks)
{
    uint32_t n = 0;
    while (n < CONTROL_BLOCKS && given[n].shape.ndim)
        n++;
    return !n ? 0 : around ? block % n : block / ((blocks + n - 1) / n);
}

void control_add(struct net_run *r, const struct family_batch *b, enum control_at at,
                 uint32_t block, uint32_t blocks, struct act *h)
{
    for (size_t i = 0; i < b->steers && !net_bad(r); i++) {
        const struct control_value *given = b->steer[i]->at[at];
        const uint32_t which =
            blocks ? shared_by(given, b->steer[i]->around, block, blocks) : block;
        const struct control_value *v = &given[which < CONTROL_BLOCKS ? which : 0];
        if (which >= CONTROL_BLOCKS)
            return;
        char mine[SHAPE_TEXT_MAX], theirs[SHAPE_TEXT_MAX];
        if (!v->shape.ndim)
            continue;
        struct shape whole = v->shape;
        whole.dim[0] = whole.dim[0] == 1 ? h->shape.dim[0] : whole.dim[0];
        if (!shape_eq(&whole, &h->shape)) {
            net_fail(r, BERTH_EINVAL, "a control net gave values %s for a block of %s",
                     shape_text(&v->shape, theirs), shape_text(&h->shape, mine));
            return;
        }
        struct act x = net_input(r, &v->shape, v->x);
        net_add(r, h, x);
        net_drop(r, &x);
    }
}

/* Room for all that a dry turn said it would give. */
static berth_status place(struct control_out *o, berth_err *err)
{
    size_t n = 0;
    uint64_t each;
    for (size_t i = 0; i < CONTROL_ATS * CONTROL_BLOCKS; i++) {
        struct control_value *v = &o->at[i / CONTROL_BLOCKS][i % CONTROL_BLOCKS];
        if (v->shape.ndim && (!shape_count(&v->shape, &each) || !sz_add(n, (size_t)each, &n)))
            return err_set(err, BERTH_ELIMIT, "what a control net gives");
    }
    if (n > o->cap) {
        free(o->mem);
        o->cap = 0;
        if (!(o->mem = calloc(n, sizeof *o->mem)))
            return err_set(err, BERTH_ENOMEM, "%zu values of a control net", n);
        o->cap = n;
    }
    float *x = o->mem;
    for (size_t i = 0; i < CONTROL_ATS * CONTROL_BLOCKS; i++) {
        struct control_value *v = &o->at[i / CONTROL_BLOCKS][i % CONTROL_BLOCKS];
        v->x = v->shape.ndim ? x : NULL;
        if (v->shape.ndim && shape_count(&v->shape, &each))
            x += each;
    }
    return BERTH_OK;
}

/* Room for what a turn gives: as after the last one, if that was like it. */
static berth_status make_room(struct control *c, struct control_turn *t, berth_err *err)
{
    struct control_out *o = t->out;
    uint64_t peak;
    if (o->net == c->net && shape_eq(&o->latents, &t->b->shape) &&
        shape_eq(&o->hint, &t->hint_shape))
        return BERTH_OK;
    o->net = NULL;
    memset(o->at, 0, sizeof o->at);
    if (pass(c->kind, c->net, t, &peak, err) || place(o, err))
        return err->code;
    o->net = c->net;
    o->latents = t->b->shape;
    o->hint = t->hint_shape;
    return BERTH_OK;
}

/* The mean of every channel, everywhere. */
static void average(struct control_out *o)
{
    for (size_t i = 0; i < CONTROL_ATS * CONTROL_BLOCKS; i++) {
        const struct control_value *v = &o->at[i / CONTROL_BLOCKS][i % CONTROL_BLOCKS];
        if (v->shape.ndim != 4)
            continue;
        const size_t planes = (size_t)(v->shape.dim[0] * v->shape.dim[1]);
        const size_t hw = (size_t)shape_inner(&v->shape, 2);
        for (size_t k = 0; k < planes; k++) {
            double sum = 0;
            for (size_t p = 0; p < hw; p++)
                sum += v->x[k * hw + p];
            for (size_t p = 0; p < hw; p++)
                v->x[k * hw + p] = (float)(sum / (double)hw);
        }
    }
}

/* The pictures of a batch: one for all, or each item's own. */
static berth_status share_out(struct control *c, const struct diffusion_steer *s,
                              const size_t *item, size_t n, struct control_turn *t, berth_err *err)
{
    const size_t each = (size_t)shape_inner(&s->hint_shape, 1), have = (size_t)s->hint_shape.dim[0];
    size_t want;
    t->hint = s->hint;
    t->hint_shape = s->hint_shape;
    if (have == 1)
        return BERTH_OK;
    if (!sz_mul(n, each, &want))
        return err_set(err, BERTH_ELIMIT, "%zu pictures of a control net", n);
    if (want > c->hint_cap) {
        free(c->hint);
        c->hint_cap = 0;
        if (!(c->hint = calloc(want, sizeof *c->hint)))
            return err_set(err, BERTH_ENOMEM, "%zu pictures of a control net", n);
        c->hint_cap = want;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(c->hint + i * each, s->hint + item[i] % have * each, each * sizeof *c->hint);
    t->hint = c->hint;
    t->hint_shape.dim[0] = n;
    return BERTH_OK;
}

static berth_status check_picture(const struct control *c, const struct diffusion_steer *s,
                                  berth_err *err)
{
    if (s->hint_shape.dim[1] != c->info.channels)
        return err_set(err, BERTH_EINVAL, "a picture of %llu channels; the %s looks at %llu",
                       (unsigned long long)s->hint_shape.dim[1], c->info.what,
                       (unsigned long long)c->info.channels);
    if (s->type >= 0 && c->info.types && (unsigned)s->type >= c->info.types)
        return err_set(err, BERTH_EINVAL,
                       "pictures of type %d; this union ControlNet tells %u apart (its ProMax "
                       "build has more)",
                       s->type, c->info.types);
    return BERTH_OK;
}

/* Did it look at that one picture before, and would see the same again? */
static bool is_made(const struct control *c, const struct diffusion_steer *s,
                    const struct control_turn *t)
{
    const struct control_out *o = t->out;
    return c->kind->still && o->net == c->net && o->looked_at && o->looked_at == s->hint &&
           s->hint_shape.dim[0] == 1 && o->strength == s->strength &&
           shape_eq(&o->hint, &t->hint_shape);
}

berth_status control_run(struct control *c, const struct diffusion_steer *s,
                         const struct family_batch *b, const size_t *item, struct control_out *out,
                         berth_err *err)
{
    const char *path = weights_path(res_weights(c->m));
    struct control_turn t = {
        .own = c->own, .b = b, .strength = &s->strength, .types = c->types, .type = -1, .out = out
    };
    if (check_picture(c, s, err))
        return err_add(err, "'%.120s'", path);
    if (share_out(c, s, item, (size_t)b->shape.dim[0], &t, err))
        return err->code;
    for (unsigned i = 0; i < c->info.types; i++)
        c->types[i] = s->type == (int)i ? 1.0f : 0.0f;
    if (c->info.types)
        t.type = s->type;
    if (is_made(c, s, &t))
        return BERTH_OK;
    out->looked_at = NULL;
    if (make_room(c, &t, err) || pass(c->kind, c->net, &t, NULL, err))
        return err->code == BERTH_ECANCELED ? err->code : err_add(err, "'%.120s'", path);
    out->around = c->kind->around;
    out->looked_at = s->hint;
    out->strength = s->strength;
    if (s->mean)
        average(out);
    return BERTH_OK;
}
