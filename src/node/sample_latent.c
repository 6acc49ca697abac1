/* sample_latent: one run of a sampler over a latent: what all sampling nodes come down to.
 *
 * Flow     model ready -> channels, noise, process in (unless empty) -> conditionings resolved ->
 *          noise scaled with the first sigma -> sampler, each step told with a look at it ->
 *          inverse scaling with the last -> process out (sampling.md 9)
 * Several  Latents that are sampled together (a video and its sound) are packed item by item behind
 *          each other and sampled as one, as ComfyUI does it: noise is drawn for one after the
 *          other; samplers, cfg and masks see [batch, 1, 1, values]; the network gets the shapes
 *          back.
 * Memory   Host tensors of a run live in its arena; the network's own come and go with each
 *          pass. */
#include "node/hooks.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define INDEX_MAX 65536 /* batch_index: so many noises are drawn for one that is picked */

bool all_zero(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

/* ---- latents and noise ---- */

berth_status latent_fit(const struct latent *l, const struct diffusion_info *info,
                        struct htensor **out, berth_err *err)
{
    const struct latent_format *f = &info->latent;
    struct htensor *t = l->samples;
    struct shape s = t->shape;
    char text[SHAPE_TEXT_MAX];
    *out = NULL;
    if (s.ndim == 4 && f->rank == 3) /* a picture is video of one frame */
        s = (struct shape) { 5, { s.dim[0], s.dim[1], 1, s.dim[2], s.dim[3] } };
    if (s.ndim != 2 + f->rank || !htensor_count(t))
        return err_set(err, BERTH_EINVAL, "a latent %s; %s wants [n, %u, %sh, w]",
                       shape_text(&t->shape, text), info->family, f->channels,
                       f->rank == 3 ? "t, " : "");
    if (s.dim[1] != f->channels && !all_zero(t->data, htensor_count(t)))
        return err_set(err, BERTH_EINVAL, "a latent of %zu channels; %s has %u", dim(t, 1),
                       info->family, f->channels);
    if (s.dim[1] != f->channels) {
        s.dim[1] = f->channels;
        return htensor_zeros(&s, out, err);
    }
    if (s.ndim == t->shape.ndim)
        *out = htensor_ref(t);
    else if (!htensor_new(&s, out, err))
        memcpy((*out)->data, t->data, htensor_count(t) * sizeof(float));
    return *out ? BERTH_OK : err->code;
}

/* Frame i of `count`, each of n values, out of `have` masks that are spread over the time: linear
 * between their centres, as the sides are. One mask is every frame's. */
static void mask_frame(const float *masks, size_t have, size_t i, size_t count, size_t n,
                       float *out)
{
    float at = ((float)i + 0.5f) * ((float)have / (float)count) - 0.5f;
    at = at > 0 ? at : 0;
    size_t from = (size_t)at < have ? (size_t)at : have - 1;
    size_t to = from + 1 < have ? from + 1 : from;
    float second = at - (float)from, first = 1.0f - second;
    for (size_t k = 0; k < n; k++)
        out[k] = from == to ? masks[from * n + k]
                            : first * masks[from * n + k] + second * masks[to * n + k];
}

berth_status latent_mask(struct node_call *c, const struct htensor *mask, const struct shape *s,
                         float *out, berth_err *err)
{
    const size_t h = (size_t)shape_last(s, 2), w = (size_t)shape_last(s, 1), hw = h * w;
    const size_t channels = (size_t)s->dim[1], frames = (size_t)shape_inner(s, 2) / hw;
    const bool video = s->ndim == 5, whole = video && mask->shape.ndim == 5;
    struct htensor *sized = NULL;
    if (!htensor_count(mask))
        return err_set(err, BERTH_EINVAL, "a mask without pixels");
    if (scale_planes(c, mask, w, h, "bilinear", false, &sized, err))
        return err->code;
    const size_t planes = htensor_count(sized) / hw; /* items, channels, frames: */
    const size_t items = whole ? dim(mask, 0) : video ? 1 : planes;
    const size_t each = whole ? dim(mask, 1) : 1, have = planes / (items * each);
    for (size_t i = 0; i < (size_t)s->dim[0] * channels; i++) {
        size_t group = i / channels % items * each + i % channels % each;
        for (size_t f = 0; f < frames; f++, out += hw)
            mask_frame(sized->data + group * have * hw, have, f, frames, hw, out);
    }
    htensor_unref(sized);
    return BERTH_OK;
}

/* One draw for each index up to the largest; those that are asked for are kept. Up to
 * INDEX_MAX draws of a picture's size: an interrupt ends them. */
static berth_status indexed_noise(struct node_call *c, const int64_t *index, size_t n, size_t item,
                                  struct torch_rng *rng, float *out, berth_err *err)
{
    int64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        if (index[i] < 0 || index[i] > INDEX_MAX)
            return err_set(err, BERTH_EINVAL, "batch_index %" PRId64 " is not 0 to %d", index[i],
                           INDEX_MAX);
        last = index[i] > last ? index[i] : last;
    }
    float *one = malloc(item * sizeof *one);
    if (!one)
        return err_set(err, BERTH_ENOMEM, "noise of %zu values", item);
    berth_status s = BERTH_OK;
    for (int64_t k = 0; k <= last && !(s = call_check(c, err)); k++) {
        torch_randn(rng, one, item);
        for (size_t i = 0; i < n; i++)
            if (index[i] == k)
                memcpy(out + i * item, one, item * sizeof *one);
    }
    free(one);
    return s;
}

berth_status latent_noise(struct node_call *c, const int64_t *index, const struct shape *s,
                          struct torch_rng *rng, float *out, berth_err *err)
{
    size_t n = (size_t)s->dim[0], item = (size_t)shape_inner(s, 1);
    if (index)
        return indexed_noise(c, index, n, item, rng, out, err);
    torch_randn(rng, out, n * item);
    return BERTH_OK;
}

/* ---- a run ---- */

enum { POSITIVE, MIDDLE, NEGATIVE, EMPTY, LISTS };

struct run { /* of one sample_latent() */
    struct node_call *c;
    const struct sampling_request *q;
    struct diffusion_info info;
    struct run_net {                 /* models that compute, opened when they are asked for */
        const struct model_ref *ref; /* NULL: none */
        struct diffusion *d;
        const struct model_ref *control[DIFFUSION_STEERS]; /* by the number that d has for it */
    } net[2];
    struct control_hint *hints;             /* what control nets of prompts look at */
    struct steering steering;               /* what networks beside them look at */
    const struct model_control *steered_by; /* whose that is; NULL: nobody's yet */
    struct msampling ms;
    struct arena mem;
    struct run_part { /* a latent of those that are sampled together */
        const struct latent_format *format;
        struct htensor *samples; /* a reference */
        const struct htensor *mask;
        size_t at; /* where it begins in an item */
    } part[1 + LATENT_MORE];
    size_t parts;
    struct shape shape; /* of a single one: the format's; else [b, 1, 1, values] */
    size_t n;           /* elements */
    float *latent;      /* in the model's scale */
    float *noise;
    float *x;
    float *last; /* D of the last step; NULL: nobody wants it */
    bool want_last;
    struct shape last_shape; /* of one that grew; ndim 0: it did not */
    bool stepped;
    float *mask;     /* of the latent's shape; NULL: none */
    float *mask_now; /* DifferentialDiffusion: the mask of a noise level; else NULL */
    struct cond_list list[LISTS];
    struct guide_patch *patch; /* [patches] of the model and of the request */
    size_t patches;
    struct guide_memory *memory;
    struct net_patches nets; /* what the network is run with */
    struct guide_seen seen;  /* what it says of its attention */
    struct patch_run draws;  /* what patches of it draw */
    struct step_cache easy;  /* of its passes; threshold 0: none */
    struct step_cache whole; /* of predictions; likewise */
    struct windows windows;  /* context windows; length 0: none */
    struct hooks_run *hooks; /* models with LoRAs of some prompts; NULL: none yet */
    struct cache_key {       /* parts of batches, each the same pointer at every step */
        const void *cond;
        struct guide_area area;
        struct cache_key *next;
    } * keys;
    struct guide guide;
    bool predicted; /* the peak was told */
};

static float *floats(struct run *r, size_t n, berth_err *err)
{
    float *p = arena_array(&r->mem, n, sizeof *p);
    if (!p)
        err_set(err, BERTH_ENOMEM, "%zu values for sampling", n);
    return p;
}

/* ---- latents that are sampled together ---- */

static void add_part(struct run *r, const struct latent_format *f, struct htensor *taken,
                     const struct htensor *mask)
{
    struct run_part *last = r->parts ? &r->part[r->parts - 1] : NULL;
    size_t at = last ? last->at + (size_t)shape_inner(&last->samples->shape, 1) : 0;
    r->part[r->parts++] = (struct run_part) { f, taken, mask, at };
}

/* Those of several must be as the model has them: empty ones are not repaired either. */
static berth_status find_parts(struct run *r, berth_err *err)
{
    const struct latent *l = r->q->latent;
    struct htensor *first;
    if (latent_fit(l, &r->info, &first, err))
        return err->code;
    add_part(r, &r->info.latent, first, l->noise_mask);
    for (size_t i = 0; i < LATENT_MORE && l->more[i].samples; i++) {
        struct htensor *t = l->more[i].samples;
        const struct latent_format *f = r->info.more[i];
        char text[SHAPE_TEXT_MAX];
        if (!f || !latent_is(f, &t->shape) || dim(t, 0) != dim(first, 0))
            return err_set(err, BERTH_EINVAL, "%s does not sample a latent %s with another",
                           r->info.family, shape_text(&t->shape, text));
        add_part(r, f, htensor_ref(t), l->more[i].noise_mask);
    }
    const struct run_part *last = &r->part[r->parts - 1];
    uint64_t all = last->at + shape_inner(&last->samples->shape, 1);
    r->shape =
        r->parts == 1 ? first->shape : (struct shape) { 4, { first->shape.dim[0], 1, 1, all } };
    r->n = (size_t)(r->shape.dim[0] * all);
    return BERTH_OK;
}

/* Part i, which lies together, into its place in every item of `all`; or out of it. */
static void pack(const struct run *r, size_t i, float *part, float *all, bool out)
{
    const struct shape *s = &r->part[i].samples->shape;
    size_t each = (size_t)shape_inner(s, 1), item = (size_t)shape_inner(&r->shape, 1);
    for (size_t b = 0; b < s->dim[0]; b++) {
        float *there = all + b * item + r->part[i].at, *here = part + b * each;
        memcpy(out ? here : there, out ? there : here, each * sizeof *part);
    }
}

/* The noise masks over the latents, and what DifferentialDiffusion makes of them. */
static berth_status prepare_mask(struct run *r, berth_err *err)
{
    size_t masks = 0;
    for (size_t i = 0; i < r->parts; i++)
        masks += r->part[i].mask != NULL;
    if (!masks)
        return BERTH_OK;
    float *one = floats(r, r->n, err);
    r->mask = one ? floats(r, r->n, err) : NULL;
    if (!r->mask)
        return err->code;
    for (size_t i = 0; i < r->parts; i++) {
        const struct run_part *p = &r->part[i];
        for (size_t k = 0; !p->mask && k < htensor_count(p->samples); k++)
            one[k] = 1.0f;
        if (p->mask && latent_mask(r->c, p->mask, &p->samples->shape, one, err))
            return err_add(err, "the noise mask");
        pack(r, i, one, r->mask, false);
    }
    if (!r->q->model->said.differs)
        return BERTH_OK;
    r->mask_now = floats(r, r->n, err);
    return r->mask_now ? BERTH_OK : err->code;
}

static berth_status prepare_windows(struct run *r, berth_err *err);

/* x at the first sigma, and what it is made of. */
static berth_status prepare_latent(struct run *r, berth_err *err)
{
    struct torch_rng rng;
    bool empty = true;
    if (find_parts(r, err))
        return err->code;
    float *one = floats(r, r->n, err);
    r->latent = one ? floats(r, r->n, err) : NULL;
    r->noise = r->latent ? floats(r, r->n, err) : NULL;
    r->x = r->noise ? floats(r, r->n, err) : NULL;
    if (!r->x)
        return err->code;
    for (size_t i = 0; i < r->parts && empty; i++)
        empty = all_zero(r->part[i].samples->data, htensor_count(r->part[i].samples));
    torch_seed(&rng, r->q->seed);
    for (size_t i = 0; i < r->parts; i++) {
        const struct htensor *t = r->part[i].samples;
        memcpy(one, t->data, htensor_count(t) * sizeof *one);
        if (!empty) /* an empty latent is not shifted */
            latent_in(r->part[i].format, one, &t->shape);
        pack(r, i, one, r->latent, false);
        if (r->q->no_noise)
            continue;
        if (latent_noise(r->c, r->q->latent->batch_index, &t->shape, &rng, one, err))
            return err->code;
        pack(r, i, one, r->noise, false);
    }
    r->draws.rng = rng;
    float first = r->q->sigmas[0];
    if (prepare_windows(r, err))
        return err->code;
    ms_noise(&r->ms, first, r->noise, r->latent, ms_max_denoise(&r->ms, first), r->x, r->n);
    return BERTH_OK;
}

/* ---- the network under the guide ---- */

/* Channels [from the whole latent's] of one item, cut to an area. */
static void cut_concat(const struct run *r, const float *whole, size_t item, size_t extra,
                       const struct guide_batch *b, const struct guide_area *a, float *out)
{
    if (b->frame) { /* of a video: these frames alone, whose areas are whole */
        size_t frames = (size_t)r->shape.dim[2], each = (size_t)shape_inner(&r->shape, 3);
        for (size_t c = 0; c < extra; c++)
            for (size_t i = 0; i < b->frames; i++, out += each)
                memcpy(out, whole + ((item * extra + c) * frames + b->frame[i]) * each,
                       each * sizeof *out);
        return;
    }
    size_t h = (size_t)shape_last(&r->shape, 2), w = (size_t)shape_last(&r->shape, 1);
    size_t planes = extra * ((size_t)shape_inner(&r->shape, 2) / (h * w));
    for (size_t k = 0; k < planes; k++)
        for (size_t y = 0; y < a->h; y++)
            memcpy(out + (k * a->h + y) * a->w,
                   whole + ((item * planes + k) * h + a->y + y) * w + a->x, a->w * sizeof *out);
}

/* The first channel of one item's noise mask, cut likewise: the others have it alike. */
static void cut_mask(const struct run *r, size_t item, const struct guide_batch *b,
                     const struct guide_area *a, float *out)
{
    const size_t each = (size_t)shape_inner(&r->shape, 1);
    cut_concat(r, r->mask + item * each, 0, 1, b, a, out);
}

static float largest(const struct sampling_request *q) /* level of the run */
{
    float most = 0;
    for (size_t i = 0; i < q->n; i++)
        most = q->sigmas[i] > most ? q->sigmas[i] : most;
    return most;
}

static void net_end(struct run *r, struct run_net *n)
{
    if (n->d) {
        struct net_report done = diffusion_report(n->d);
        ready_done(r->c, n->ref->part[0], "diffusion", &done);
        for (size_t i = 0; i < DIFFUSION_STEERS && n->control[i]; i++) {
            done = diffusion_control_report(n->d, i);
            ready_done(r->c, n->control[i]->part[0], "control", &done);
        }
        diffusion_close(n->d);
    }
    *n = (struct run_net) { 0 };
}

/* Opens a model with the networks that steer it. What those look at is encoded before it is loaded,
 * because a VAE may do that. */
static berth_status open_net(struct run *r, const struct model_ref *ref, struct diffusion **out,
                             berth_err *err)
{
    struct diffusion_info info;
    if (ref->control && ref->control != r->steered_by) {
        if (ready_info(ref, &info, err) ||
            steer_hints(r->c, ref, &info, &r->q->latent->samples->shape, &r->mem, &r->steering,
                        err))
            return err->code;
        r->steered_by = ref->control;
    }
    if (ready_diffusion(r->c, ref, out, err))
        return err->code;
    if (!ref->control || !steer(r->c, &r->steering, *out, err))
        return BERTH_OK;
    diffusion_close(*out);
    *out = NULL;
    return err->code;
}

/* The network of a model, loaded and open. A model has one set of patches at a time: to use it with
 * others, it must be closed first. A second model that has no room beside the first takes turns
 * with it. */
static berth_status net_for(struct run *r, const struct model_ref *ref, struct diffusion **out,
                            berth_err *err)
{
    struct run_net *to = NULL;
    for (size_t i = 0; i < ARRAY_LEN(r->net); i++) {
        struct run_net *n = &r->net[i];
        if (n->ref == ref) {
            *out = n->d;
            return BERTH_OK;
        }
        if (n->ref && n->ref->part[0] == ref->part[0])
            net_end(r, n);
        if (!n->ref && !to)
            to = n;
    }
    if (!to) {
        to = &r->net[ARRAY_LEN(r->net) - 1];
        net_end(r, to);
    }
    berth_status s = open_net(r, ref, &to->d, err);
    if (s == BERTH_ENODEVMEM || s == BERTH_EBUSY) {
        for (size_t i = 0; i < ARRAY_LEN(r->net); i++)
            net_end(r, &r->net[i]);
        s = open_net(r, ref, &to->d, err);
    }
    to->ref = s ? NULL : ref;
    *out = to->d;
    return s;
}

/* The GLIGENs of prompts, loaded and beside the model that is to keep to their boxes. */
static berth_status add_gligens(struct run *r, struct diffusion *d,
                                const struct sampled_cond *const *cond, size_t n, berth_err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct model_ref *g = cond[i]->gligen;
        if (!g || diffusion_gligen(d) == g->part[0])
            continue;
        if (ready_load(r->c, g, 0, err) ||
            diffusion_add_gligen(d, g->part[0], res_info(g->part[0]).part, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- control nets of prompts ---- */

static bool same_patches(const struct model_ref *a, const struct model_ref *b)
{
    if (a->patches != b->patches)
        return false;
    for (size_t i = 0; i < a->patches; i++)
        if (a->patch[i].adapter != b->patch[i].adapter ||
            a->patch[i].strength != b->patch[i].strength)
            return false;
    return true;
}

/* The number of a control net beside an open model, loaded and opened where it is not yet. */
static berth_status control_for(struct run *r, struct diffusion *d, const struct model_ref *net,
                                size_t *out, berth_err *err)
{
    struct run_net *of = r->net;
    while (of->d != d)
        of++;
    const bool open = diffusion_control_find(d, net->part[0], out);
    if (open && !same_patches(of->control[*out], net))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.80s' as differences to two models in one run cannot be computed yet",
                       ready_name(net));
    if (open)
        return BERTH_OK;
    if (ready_load(r->c, net, 0, err) ||
        diffusion_control_open(d, net->part[0], res_info(net->part[0]).part, out, err))
        return err->code;
    of->control[*out] = net;
    return BERTH_OK;
}

/* Is it one for this noise level? Compared in float32, as torch does. */
static bool is_active(const struct run *r, const struct cond_control *k, float sigma)
{
    return !(sigma > (float)ms_percent(&r->ms, k->start_percent) ||
             sigma < (float)ms_percent(&r->ms, k->end_percent));
}

/* Those of a prompt that count at this noise level, first to last; steer: [DIFFUSION_STEERS]. */
static berth_status steer_pass(struct run *r, struct diffusion *d, const struct guide_batch *b,
                               const struct cond_control *last, struct diffusion_steer *steer,
                               size_t *n, berth_err *err)
{
    const size_t h = (size_t)shape_last(&b->shape, 2), w = (size_t)shape_last(&b->shape, 1);
    size_t at = 0;
    for (const struct cond_control *k = last; k; k = k->before)
        at += is_active(r, k, b->sigma);
    *n = at;
    if (at > DIFFUSION_STEERS)
        return err_set(err, BERTH_ELIMIT, "%zu control nets for one prompt; at most %d are taken",
                       at, DIFFUSION_STEERS);
    for (const struct cond_control *k = last; k; k = k->before) {
        const struct control_hint *hint;
        struct diffusion_steer *s;
        if (!is_active(r, k, b->sigma))
            continue;
        s = &steer[--at];
        if (control_hint(r->c, k, &r->info.latent, h, w, &r->mem, &r->hints, &hint, err) ||
            control_for(r, d, &k->net, &s->net, err))
            return err->code;
        s->hint = hint->x;
        s->hint_shape = hint->shape;
        control_manner(k, s);
    }
    return BERTH_OK;
}

/* Before anything is loaded for them: is every control net for its model, and its picture one? */
static berth_status check_controls(struct run *r, berth_err *err)
{
    for (size_t l = 0; l < LISTS; l++)
        for (size_t i = 0; i < r->list[l].at.n; i++) {
            const struct guide_cond *g = vec_at(&r->list[l].at, i);
            const struct sampled_cond *s = g->cond;
            const struct control_hint *unread;
            const size_t h = g->has_area ? g->area.h : (size_t)shape_last(&r->shape, 2);
            const size_t w = g->has_area ? g->area.w : (size_t)shape_last(&r->shape, 1);
            if (s->control && r->windows.length)
                return err_set(err, BERTH_EUNSUPPORTED,
                               "control nets with context windows cannot be computed yet");
            if (s->control && controls_check(s->control, s->with, err))
                return err->code;
            for (const struct cond_control *k = s->control; k; k = k->before)
                if (control_hint(r->c, k, &r->info.latent, h, w, &r->mem, &r->hints, &unread, err))
                    return err->code;
        }
    return BERTH_OK;
}

/* Predictions of items [from, from + n) of a batch, all of them of one model, with channels beside
 * x or all without. */
static berth_status forward(struct run *r, const struct guide_batch *b, size_t from, size_t n,
                            berth_err *err)
{
    const struct sampled_cond **cond = (const struct sampled_cond **)b->cond + from;
    const struct model_ref *with = cond[0]->with;
    struct diffusion *d;
    if ((cond[0]->hooks && hooks_model(&r->hooks, r->c, with, cond[0]->hooks, &r->ms, b->sigma,
                                       largest(r->q), &with, err)) ||
        net_for(r, with, &d, err) || add_gligens(r, d, cond, n, err))
        return err->code;
    const struct diffusion_info *info = diffusion_info(d);
    size_t extra = (size_t)info->in_channels - info->latent.channels;
    size_t each = (size_t)shape_inner(&b->shape, 1), beside = extra * (each / b->shape.dim[1]);
    struct diffusion_in in = { .shape = r->parts > 1 ? r->part[0].samples->shape : b->shape,
                               .mores = r->parts - 1,
                               .x = b->x + from * each,
                               .t = b->t + from,
                               .item = b->item + from,
                               .patches = b->how ? *(const struct net_patches *)b->how : r->nets,
                               .sigma = b->sigma,
                               .out = b->out + from * each };
    struct diffusion_steer steer[DIFFUSION_STEERS];
    if (cond[0]->control && steer_pass(r, d, b, cond[0]->control, steer, &in.steers, err))
        return err->code;
    in.steer = steer;
    const size_t places = (size_t)shape_inner(&b->shape, 2);
    const bool masked = r->mask && info->own_times && r->parts == 1;
    float *concat = NULL, *mask = masked ? calloc(n, places * sizeof *mask) : NULL;
    const struct diffusion_cond **of = calloc(n, sizeof *of);
    if (cond[0]->concat)
        concat = calloc(n, beside * sizeof *concat);
    berth_status s = of && (concat || !cond[0]->concat) && (mask || !masked)
                         ? BERTH_OK
                         : err_set(err, BERTH_ENOMEM, "a batch of %zu", n);
    for (size_t i = 0; !s && i < n; i++) {
        of[i] = &cond[i]->cond;
        if (concat)
            cut_concat(r, cond[i]->concat, b->item[from + i], extra, b, &b->area[from + i],
                       concat + i * beside);
        if (mask)
            cut_mask(r, b->item[from + i], b, &b->area[from + i], mask + i * places);
    }
    in.shape.dim[0] = n;
    for (size_t i = 0; i < in.mores; i++) {
        in.more[i] = r->part[1 + i].samples->shape;
        in.more[i].dim[0] = n;
    }
    in.cond = of;
    in.concat = concat;
    in.mask = mask;
    if (!s && !r->predicted) { /* of the first batch; others are like it */
        uint64_t peak;
        berth_err unread = { 0 };
        r->predicted = true;
        if (!diffusion_predict(d, &in, &peak, &unread))
            ready_tell_peak(r->c, with->part[0], "step", n, peak);
    }
    if (!s)
        s = diffusion_forward(d, &in, err);
    free(concat);
    free(mask);
    free(of);
    return s;
}

static berth_status predict_all(void *user, const struct guide_batch *b, berth_err *err)
{
    const struct sampled_cond **of = (const struct sampled_cond **)b->cond;
    size_t n = (size_t)b->shape.dim[0];
    berth_status s = BERTH_OK;
    for (size_t i = 0, to; !s && i < n; i = to) {
        for (to = i + 1; to < n && !of[to]->concat == !of[i]->concat &&
                         of[to]->with == of[i]->with && of[to]->hooks == of[i]->hooks &&
                         of[to]->control == of[i]->control;)
            to++;
        s = forward(user, b, i, to - i, err);
    }
    return s;
}

static bool same_area(const struct guide_area *a, const struct guide_area *b)
{
    return a->h == b->h && a->w == b->w && a->y == b->y && a->x == b->x;
}

/* What a part of batches is known by. NULL: no memory. */
static const void *key_of(struct run *r, const void *cond, const struct guide_area *area)
{
    struct cache_key *k = r->keys;
    while (k && (k->cond != cond || !same_area(&k->area, area)))
        k = k->next;
    if (k || !(k = arena_array(&r->mem, 1, sizeof *k)))
        return k;
    *k = (struct cache_key) { cond, *area, r->keys };
    r->keys = k;
    return k;
}

static berth_status predict(void *user, const struct guide_batch *b, berth_err *err)
{
    struct run *r = user;
    bool skip = false;
    if (!(r->easy.threshold > 0))
        return predict_all(r, b, err);
    if (r->windows.length)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "EasyCache with context windows cannot be computed yet");
    size_t items = (size_t)r->shape.dim[0], parts = (size_t)b->shape.dim[0] / items;
    const void **key = arena_array(&r->mem, parts, sizeof *key);
    for (size_t i = 0; key && i < parts; i++)
        if (!(key[i] = key_of(r, b->cond[i * items], &b->area[i * items])))
            key = NULL;
    if (!key)
        return err_set(err, BERTH_ENOMEM, "%zu parts of a batch", parts);
    const struct step_cache_call call = { .sigma = b->sigma,
                                          .first = b->first,
                                          .parts = parts,
                                          .key = key,
                                          .each = items * (size_t)shape_inner(&b->shape, 1),
                                          .h = (size_t)shape_last(&b->shape, 2),
                                          .w = (size_t)shape_last(&b->shape, 1),
                                          .x = b->x,
                                          .out = b->out };
    if (step_cache_begin(&r->easy, &call, &skip, err) || skip || predict_all(r, b, err))
        return skip ? BERTH_OK : err->code;
    return step_cache_end(&r->easy, &call, err);
}

/* DifferentialDiffusion: what of the mask takes part at this noise level. */
static void mask_at(struct run *r, float sigma)
{
    float last = r->q->sigmas[r->q->n - 1], min = ms_sigma_min(&r->ms);
    float from = ms_timestep(&r->ms, r->q->sigmas[0]);
    float to = ms_timestep(&r->ms, last > min ? last : min);
    float threshold = (ms_timestep(&r->ms, sigma) - to) / (from - to);
    double strength = r->q->model->said.differential;
    bool blend = strength > 0 && strength < 1;
    for (size_t i = 0; i < r->n; i++) {
        float on = r->mask[i] >= threshold ? 1.0f : 0.0f;
        r->mask_now[i] = blend ? (float)strength * on + (float)(1 - strength) * r->mask[i] : on;
    }
}

static berth_status denoise(void *user, const float *x, float sigma, float *denoised, float *uncond,
                            berth_err *err)
{
    struct run *r = user;
    if (call_check(r->c, err))
        return err->code;
    if (r->mask_now)
        mask_at(r, sigma);
    return guide_denoise(&r->guide, x, sigma, denoised, uncond, err);
}

/* ---- steps ---- */

/* A look at D, the first latent of its first item. False: there is none to be had. */
static bool look_at(struct run *r, const float *denoised, struct image *out)
{
    const struct shape *s = &r->part[0].samples->shape;
    const struct latent_format *f = &r->info.latent;
    berth_err unread = { 0 };
    if (!r->c->env->previews ||
        image_init(out, (uint32_t)latent_preview_side(f, shape_last(s, 1)),
                   (uint32_t)latent_preview_side(f, shape_last(s, 2)), 3, &unread))
        return false;
    if (latent_preview(f, denoised, s, out->px))
        return true;
    image_release(out);
    return false;
}

static berth_status step(void *user, const struct sample_step *s, berth_err *err)
{
    struct run *r = user;
    struct image picture = { 0 };
    bool seen = look_at(r, s->denoised, &picture);
    struct node_step told = { .value = (double)(s->i + 1),
                              .max = (double)s->total,
                              .picture = seen ? &picture : NULL };
    if (r->last)
        memcpy(r->last, s->denoised, r->n * sizeof(float));
    r->stepped = true;
    berth_status st = call_step(r->c, &told, err);
    image_release(&picture);
    return st;
}

/* ---- all together ---- */

/* What the network is run with: the patches of nodes, and `last` behind them if it is there. */
static berth_status net_list(struct run *r, const struct net_patch *last, struct net_patches *out,
                             berth_err *err)
{
    const struct model_ref *m = r->q->model;
    struct net_patch *at = arena_array(&r->mem, m->changes + 1, sizeof *at);
    *out = (struct net_patches) { .at = at, .run = &r->draws };
    if (!at)
        return err_set(err, BERTH_ENOMEM, "%zu patches", m->changes);
    for (size_t i = 0; i < m->changes; i++) {
        const struct model_change *c = &m->change[i];
        if (!c->net.is || guide_has_passes(c->guide.is))
            continue;
        at[out->n] = c->net;
        at[out->n++].seen = &r->seen;
    }
    if (last)
        at[out->n++] = *last;
    return BERTH_OK;
}

static struct step_cache cache_of(const struct run *r, const struct model_cache *c)
{
    return (struct step_cache) { .threshold = c->threshold,
                                 .from = ms_percent(&r->ms, c->start),
                                 .to = ms_percent(&r->ms, c->end),
                                 .whole = c->whole };
}

/* The last node's windows, and noise that suits them; before anything is made of the noise. */
static berth_status prepare_windows(struct run *r, berth_err *err)
{
    for (size_t i = 0; i < r->q->model->changes; i++)
        if (r->q->model->change[i].windows.length)
            r->windows = r->q->model->change[i].windows;
    const struct windows *w = &r->windows;
    if (!w->length)
        return BERTH_OK;
    if (r->parts > 1)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "context windows over several latents at once cannot be computed yet");
    if (w->dim == 1 || w->dim >= r->shape.ndim || (w->dim > 1 && r->info.latent.rank != 3) ||
        (w->dim > 2))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "context windows along dimension %d of latents with %d: the batch, or the "
                       "frames of a video, can be cut",
                       w->dim, r->shape.ndim);
    return w->free_noise && r->shape.dim[w->dim] > w->length && !r->q->no_noise
               ? windows_noise(w, r->q->seed, &r->shape, r->noise, err)
               : BERTH_OK;
}

/* One of the patches that nodes gave the model. */
static berth_status prepare_change(struct run *r, const struct model_change *c, berth_err *err)
{
    if (c->cache.said)
        *(c->cache.whole ? &r->whole : &r->easy) = cache_of(r, &c->cache);
    if (!c->guide.is)
        return BERTH_OK;
    struct guide_patch *p = &r->patch[r->patches++];
    *p = c->guide;
    p->seen = &r->seen;
    if (!guide_has_passes(p->is))
        return BERTH_OK;
    struct net_patches *how = arena_array(&r->mem, 1, sizeof *how);
    p->how = how;
    return how ? net_list(r, &c->net, how, err) : err_set(err, BERTH_ENOMEM, "a patch");
}

/* What nodes did to the model, and the prompt that is for it. */
static berth_status prepare_patches(struct run *r, const struct conditioning **empty,
                                    berth_err *err)
{
    const struct sampling_request *q = r->q;
    size_t most = q->model->changes + 1;
    r->patch = arena_array(&r->mem, most, sizeof *r->patch);
    r->memory = r->patch ? arena_array(&r->mem, most, sizeof *r->memory) : NULL;
    if (!r->memory)
        return err_set(err, BERTH_ENOMEM, "%zu patches", most);
    if (net_list(r, NULL, &r->nets, err))
        return err->code;
    for (size_t i = 0; i < q->model->changes; i++) {
        if (prepare_change(r, &q->model->change[i], err))
            return err->code;
        const struct value *with = q->model->change[i].with;
        if (with && with->object.type == &type_conditioning)
            *empty = q->model->change[i].with->object.obj;
    }
    if (q->empty) {
        r->patch[r->patches++] = q->perp;
        *empty = q->empty;
    }
    return BERTH_OK;
}

/* Prompts are for the model that computes the negative from here on. */
static berth_status other_scene(const struct run *r, struct cond_scene *scene,
                                struct diffusion_info *info, berth_err *err)
{
    const struct model_ref *other = r->q->model_negative;
    if (!other)
        return BERTH_OK;
    if (ready_info(other, info, err))
        return err->code;
    if (info->latent.channels != r->info.latent.channels ||
        info->latent.rank != r->info.latent.rank)
        return err_set(err, BERTH_EINVAL, "%s and %s have not the same latents", r->info.family,
                       info->family);
    scene->model = other;
    scene->info = info;
    return BERTH_OK;
}

static berth_status prepare_guide(struct run *r, berth_err *err)
{
    const struct sampling_request *q = r->q;
    const struct conditioning *empty = NULL;
    if (prepare_patches(r, &empty, err))
        return err->code;
    struct diffusion_info other;
    struct cond_scene scene = { .model = q->model,
                                .info = &r->info,
                                .ms = &r->ms,
                                .shape = r->part[0].samples->shape,
                                .several = r->parts > 1,
                                .latent = r->latent,
                                .mask = r->mask,
                                .seed = q->seed,
                                .mem = &r->mem };
    /* The middle one of DualCFG counts as a negative where a model tells them apart. */
    if (conds_resolve(r->c, q->positive, false, &scene, &r->list[POSITIVE], err) ||
        conds_resolve(r->c, q->middle, true, &scene, &r->list[MIDDLE], err) ||
        conds_resolve(r->c, empty, true, &scene, &r->list[EMPTY], err) ||
        other_scene(r, &scene, &other, err) ||
        conds_resolve(r->c, q->negative, true, &scene, &r->list[NEGATIVE], err) ||
        conds_pair(r->c, r->list, LISTS, &scene, err))
        return err->code;
    if (!r->list[POSITIVE].at.n)
        return err_set(err, BERTH_EINVAL, "an empty conditioning says nothing to paint");
    r->guide = (struct guide) { .ms = &r->ms,
                                .shape = r->shape,
                                .positive = r->list[POSITIVE].at.p,
                                .positives = r->list[POSITIVE].at.n,
                                .negative = r->list[NEGATIVE].at.p,
                                .negatives = r->list[NEGATIVE].at.n,
                                .cfg = q->cfg,
                                .always_uncond = (q->sampler->flags & SAMPLER_UNCOND) != 0,
                                .apart = q->model_negative != NULL,
                                .patch = r->patch,
                                .patches = r->patches,
                                .memory = r->memory,
                                .empty = r->list[EMPTY].at.p,
                                .empties = r->list[EMPTY].at.n,
                                .middle = r->list[MIDDLE].at.p,
                                .middles = r->list[MIDDLE].at.n,
                                .cfg_middle = q->cfg_middle,
                                .nested = q->nested,
                                .mask = r->mask_now ? r->mask_now : r->mask,
                                .latent = r->latent,
                                .noise = r->noise,
                                .clean = r->info.clean,
                                .windows = r->windows.length ? &r->windows : NULL,
                                .sigmas = q->sigmas,
                                .levels = q->n,
                                .cache = r->whole.threshold > 0 ? &r->whole : NULL,
                                .net = predict,
                                .user = r };
    if (!r->mask || !(q->sampler->flags & SAMPLER_MASK_NOISE))
        return BERTH_OK;
    float *own =
        floats(r, r->n, err); /* what stays is noised by another draw than what is painted */
    struct torch_rng rng;
    if (!own)
        return err->code;
    torch_seed(&rng, q->seed + 1);
    torch_randn(&rng, own, r->n);
    r->draws.rng = rng; /* ComfyUI has one generator for all of this */
    r->guide.noise = own;
    return BERTH_OK;
}

/* ---- a latent that grows ---- */

/* What was made for one size of the latent. */
static berth_status may_grow(const struct run *r, berth_err *err)
{
    const char *with = r->mask                   ? "a noise mask"
                       : r->parts > 1            ? "several latents"
                       : r->patches || r->nets.n ? "nodes that patch a model"
                       : r->easy.threshold > 0 || r->whole.threshold > 0 ? "a cache of steps"
                       : r->windows.length                               ? "context windows"
                       : r->q->model->control                            ? "a network that steers"
                                                                         : NULL;
    for (size_t k = 0; k < LISTS; k++)
        for (size_t i = 0; !with && i < r->list[k].at.n; i++) {
            const struct guide_cond *g = vec_at(&r->list[k].at, i);
            if (g->mask || g->otherwise || ((const struct sampled_cond *)g->cond)->concat)
                with = "masks and pictures of prompts";
        }
    return with ? err_set(err, BERTH_EUNSUPPORTED,
                          "SamplerLCMUpscale with %s cannot be computed yet", with)
                : BERTH_OK;
}

/* x at another size, and everything that has it. */
static berth_status resize_run(struct run *r, size_t h, size_t w, const char *method,
                               berth_err *err)
{
    struct htensor *now, *next = NULL;
    if (htensor_new(&r->shape, &now, err))
        return err->code;
    memcpy(now->data, r->x, r->n * sizeof *r->x);
    berth_status s = scale_planes(r->c, now, w, h, method, false, &next, err);
    htensor_unref(now);
    if (s)
        return s;
    size_t n = htensor_count(next);
    float *x = floats(r, n, err);
    if (!x) {
        htensor_unref(next);
        return err->code;
    }
    memcpy(x, next->data, n * sizeof *x);
    htensor_unref(r->part[0].samples);
    r->part[0].samples = next;
    r->shape = r->guide.shape = next->shape;
    r->n = n;
    r->x = x;
    return BERTH_OK;
}

/* Noise as torch.randn_like() draws it there: behind all that was drawn. */
static void add_noise(struct run *r, float by, struct philox_rng *card, float *noise)
{
    if (card->threads)
        philox_randn(card, noise, r->n);
    else
        torch_randn(&r->draws.rng, noise, r->n);
    for (size_t i = 0; i < r->n; i++)
        r->x[i] += by * noise[i];
}

/* One step of LCM, behind which the latent is `by` of its first size; 0: it stays as it is. */
static berth_status grow_step(struct run *r, size_t i, const struct shape *first, double by,
                              struct philox_rng *card, berth_err *err)
{
    const struct sampling_request *q = r->q;
    float *d = floats(r, r->n, err);
    if (!d)
        return err->code;
    if (r->want_last) {
        r->last = floats(r, r->n, err);
        r->last_shape = r->shape;
    }
    struct sample_step told = {
        .i = i, .total = q->n - 1, .sigma = q->sigmas[i], .x = r->x, .denoised = d
    };
    if ((r->want_last && !r->last) || denoise(r, r->x, q->sigmas[i], d, NULL, err) ||
        step(r, &told, err))
        return err->code;
    memcpy(r->x, d, r->n * sizeof *d);
    size_t h, w;
    if (by > 0 && (round_side((double)shape_last(first, 2) * by, &h, err) ||
                   round_side((double)shape_last(first, 1) * by, &w, err) ||
                   resize_run(r, h, w, q->growth.method, err)))
        return err->code;
    if (!(q->sigmas[i + 1] > 0))
        return BERTH_OK;
    float *noise = floats(r, r->n, err);
    if (!noise)
        return err->code;
    add_noise(r, q->sigmas[i + 1], card, noise);
    return BERTH_OK;
}

static berth_status sample_growing(struct run *r, uint32_t card_threads, float *last,
                                   berth_err *err)
{
    const struct sampling_request *q = r->q;
    const struct shape first = r->shape;
    struct philox_rng card = { 0 };
    int64_t half = (int64_t)(q->n / 2 + 1),
            count = q->growth.steps < 0 ? half : q->growth.steps + 1;
    int64_t most = (int64_t)q->n + 1;
    count = q->growth.steps < 0 ? (count > 2 ? count : 2) : count < most ? count : most;
    if (may_grow(r, err))
        return err->code;
    if (card_threads)
        philox_seed(&card, q->seed, card_threads);
    *last = q->sigmas[q->n - 1];
    for (size_t i = 0; i + 1 < q->n; i++) {
        bool grows = (int64_t)i + 1 < count;
        double by = (int64_t)i + 2 == count
                        ? q->growth.ratio
                        : 1 + (double)(i + 1) * ((q->growth.ratio - 1) / (double)(count - 1));
        if (grow_step(r, i, &first, grows ? by : 0, &card, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status sample(struct run *r, berth_err *err)
{
    const struct sampling_request *q = r->q;
    /* ComfyUI has the latent where the model computes, and draws there. */
    uint32_t card = res_compute(q->model->part[0])->phys->threads;
    struct sample_job job = { .ms = &r->ms,
                              .sigma = q->sigmas,
                              .sigmas = q->n,
                              .n = r->n,
                              .x = r->x,
                              .seed = q->seed,
                              .cuda = r->c->env->numbers.cpu_noise ? 0 : card,
                              .opt = q->opt,
                              .pool = r->c->env->pool,
                              .denoise = denoise,
                              .step = step,
                              .user = r };
    if (q->growth.method
            ? sample_growing(r, job.cuda, &job.last, err)
            : sample_run(q->sampler, &job, err)) /* a single level: noise and no step */
        return err->code;
    ms_finish(&r->ms, job.last, r->x, r->n);
    struct diffusion *d;
    if (net_for(r, q->model, &d, err)) /* is open, but where prompts took turns */
        return err->code;
    struct net_report done = diffusion_report(d);
    log_info(r->c->env->log, "node.sample",
             "node=%s model=%s sampler=%s steps=%zu device=%s predicted=%" PRIu64 " peak=%" PRIu64
             " passes=%" PRIu64 " rungs=%" PRIu64 " skipped=%" PRIu64,
             r->c->id, ready_name(q->model), q->sampler->name, q->n - 1, done.device,
             done.largest_predicted, done.largest, done.passes, done.rungs,
             r->easy.skipped + r->whole.skipped);
    return BERTH_OK;
}

/* A latent like the request's with these samples, taken out of the model's scale. */
static berth_status give(const struct run *r, float *x, struct latent *out, berth_err *err)
{
    const bool grown = x == r->last && r->last_shape.ndim;
    if (latent_like(r->q->latent, out, err))
        return err->code;
    for (size_t i = 0; i < r->parts; i++) {
        const struct run_part *p = &r->part[i];
        struct htensor **to = i ? &out->more[i - 1].samples : &out->samples;
        const struct shape *shape = grown ? &r->last_shape : &p->samples->shape;
        if (htensor_new(shape, to, err))
            return err->code;
        if (grown) /* alone, and of the size it had at its step */
            memcpy((*to)->data, x, htensor_count(*to) * sizeof *x);
        else
            pack(r, i, (*to)->data, x, true);
        latent_out(p->format, (*to)->data, shape);
    }
    return BERTH_OK;
}

/* No step is asked for: what came, with the model's channels. */
static berth_status give_back(struct run *r, struct latent *out, berth_err *err)
{
    if (find_parts(r, err) || latent_like(r->q->latent, out, err))
        return err->code;
    for (size_t i = 0; i < r->parts; i++)
        *(i ? &out->more[i - 1].samples : &out->samples) = htensor_ref(r->part[i].samples);
    return BERTH_OK;
}

/* Prompts of another model are refused before this one is loaded; those that count for a while only
 * when it is their turn. */
static berth_status check_prompts(const struct run *r, const struct conditioning *list,
                                  berth_err *err)
{
    for (size_t i = 0; list && i < list->n; i++) {
        const struct htensor *t = list->at[i].cond;
        if (t && !list->at[i].ranged && t->shape.ndim == 3 &&
            diffusion_text_fits(&r->info, (size_t)t->shape.dim[1], (size_t)t->shape.dim[2], err))
            return err_add(err, "sampling with '%.80s'", ready_name(r->q->model));
    }
    return BERTH_OK;
}

static berth_status run(struct run *r, struct latent *out, struct latent *denoised, berth_err *err)
{
    if (ready_info(r->q->model, &r->info, err))
        return err->code;
    if (!r->q->n)
        return give_back(r, out, err);
    struct diffusion *d;
    if (check_prompts(r, r->q->positive, err) || ready_msampling(r->q->model, &r->ms, err) ||
        prepare_latent(r, err) || prepare_mask(r, err) || prepare_guide(r, err) ||
        check_controls(r, err) || net_for(r, r->q->model, &d, err))
        return err->code;
    r->want_last = denoised != NULL;
    if (denoised && !(r->last = floats(r, r->n, err)))
        return err->code;
    if (sample(r, err))
        return err_add(err, "sampling with '%.80s'", ready_name(r->q->model));
    berth_status s = give(r, r->x, out, err);
    return s || !r->stepped || !denoised ? s : give(r, r->last, denoised, err);
}

berth_status sample_latent(struct node_call *c, const struct sampling_request *q,
                           struct latent *out, struct latent *denoised, berth_err *err)
{
    struct run r = { .c = c, .q = q };
    *out = (struct latent) { 0 };
    if (denoised)
        *denoised = (struct latent) { 0 };
    berth_status s = run(&r, out, denoised, err);
    for (size_t i = 0; i < ARRAY_LEN(r.net); i++)
        net_end(&r, &r.net[i]);
    hooks_run_free(r.hooks);
    guide_memory_release(r.memory, r.patches);
    step_cache_release(&r.easy);
    step_cache_release(&r.whole);
    free(r.seen.of);
    patch_run_release(&r.draws);
    ms_release(&r.ms);
    for (size_t i = 0; i < LISTS; i++)
        vec_release(&r.list[i].at);
    for (size_t i = 0; i < r.parts; i++)
        htensor_unref(r.part[i].samples);
    arena_release(&r.mem);
    if (!s && denoised && !denoised->samples) {
        s = latent_like(out, denoised, err);
        if (!s)
            denoised->samples = htensor_ref(out->samples);
        for (size_t i = 0; !s && i < LATENT_MORE && out->more[i].samples; i++)
            denoised->more[i].samples = htensor_ref(out->more[i].samples);
    }
    if (s) {
        latent_release(out);
        if (denoised)
            latent_release(denoised);
    }
    return s;
}
